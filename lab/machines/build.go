package machines

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"kamino.dev/kamino/lab/controlplane"
)

// Binaries are the static programs that machines and their images hold.
type Binaries struct {
	Kubelet, Guest string // of the lab
	Kamino, Agent  string // the product
}

// BuildBinaries builds them into lab/bin and bin of the checkout that lab is the
// lab's directory of. The go command decides whether there is anything to do.
func BuildBinaries(ctx context.Context, lab string) (Binaries, error) {
	at := func(parts ...string) string { return filepath.Join(append([]string{lab}, parts...)...) }
	b := Binaries{Kubelet: at("bin", "kubelet"), Guest: at("bin", "guest"), Kamino: at("..", "bin", "kamino"),
		Agent: at("..", "bin", "kamino-agent")}
	for _, dir := range []string{at("bin"), at("..", "bin")} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return b, fmt.Errorf("make directory: %w", err)
		}
	}
	for _, program := range []struct {
		module, pkg, out string
		flags            []string
	}{
		{lab, "./machines/kubelet", b.Kubelet, controlplane.BuildFlags()},
		{lab, "./machines/guest", b.Guest, []string{"-ldflags=-s -w"}},
		// As make builds them, so that the build cache serves both.
		{at(".."), "./cmd/kamino", b.Kamino, []string{"-ldflags=-s -w"}},
		{at(".."), "./cmd/kamino-agent", b.Agent, []string{"-ldflags=-s -w"}},
	} {
		cmd := exec.CommandContext(ctx, "go", slices.Concat([]string{"build", "-buildvcs=false", "-o", program.out}, program.flags,
			[]string{program.pkg})...)
		cmd.Dir = program.module
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if text, err := cmd.CombinedOutput(); err != nil {
			return b, fmt.Errorf("build %s: %w\n%s", program.pkg, err, text)
		}
	}
	return b, nil
}

// FindLab is the lab's directory: that of the module around the working
// directory, or around this program, which make puts into lab/bin.
func FindLab() (string, error) {
	if out, err := exec.Command("go", "env", "GOMOD").Output(); err == nil {
		if dir := filepath.Dir(strings.TrimSpace(string(out))); filepath.Base(dir) == "lab" {
			return dir, nil
		} else if exists(filepath.Join(dir, "lab", "go.mod")) {
			return filepath.Join(dir, "lab"), nil
		}
	}
	program, err := os.Executable()
	if err != nil {
		return "", err
	}
	if dir := filepath.Join(filepath.Dir(program), ".."); exists(filepath.Join(dir, "go.mod")) {
		return filepath.Abs(dir)
	}
	return "", fmt.Errorf("the lab's sources are neither around %s nor around the working directory; run this in a checkout of Kamino",
		program)
}
