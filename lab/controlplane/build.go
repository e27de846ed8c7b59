package controlplane

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// kubernetesVersion is what the components say they are; that of k8s.io/kubernetes in go.mod.
const kubernetesVersion = "v1.36.3"

// Build builds cmd/kamino-lab of the module that contains the working directory
// into bin/kamino-lab of that module and returns its path. The go command
// decides whether there is anything to do: minutes when the build cache is cold,
// seconds when only the lab changed, below two when nothing did. Several processes may call it at
// the same time (go test runs one per package): they take turns. KAMINO_LAB in the
// environment names a binary that is taken as it is, and nothing is built.
func Build(ctx context.Context) (string, error) {
	if given := os.Getenv("KAMINO_LAB"); given != "" {
		if _, err := os.Stat(given); err != nil {
			return "", fmt.Errorf("use KAMINO_LAB: %w", err)
		}
		return filepath.Abs(given)
	}
	gomod, err := exec.CommandContext(ctx, "go", "env", "GOMOD").Output()
	if err != nil {
		return "", fmt.Errorf("find module of the lab: %w", err)
	}
	dir := filepath.Dir(strings.TrimSpace(string(gomod)))
	if filepath.Base(dir) != "lab" {
		return "", fmt.Errorf("find module of the lab: working directory is in module %q; run this below lab/", dir)
	}
	bin := filepath.Join(dir, "bin")
	if err := os.MkdirAll(bin, 0o755); err != nil {
		return "", fmt.Errorf("make directory: %w", err)
	}
	unlock, err := lockFile(filepath.Join(bin, ".lock"))
	if err != nil {
		return "", err
	}
	defer unlock()
	output := filepath.Join(bin, "kamino-lab")
	cmd := exec.CommandContext(ctx, "go", append([]string{"build", "-o", output}, append(BuildFlags(), "./cmd/kamino-lab")...)...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0") // static: the kubelet in it runs in any VM
	if text, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build kamino-lab: %w\n%s", err, text)
	}
	return output, nil
}

// BuildFlags are the flags of go build for cmd/kamino-lab: stripped (130 MB
// instead of 190), without grpc's tracing pages, and with the version that the API server shall
// report.
func BuildFlags() []string {
	const pkg = "k8s.io/component-base/version."
	ldflags := "-s -w -X " + pkg + "gitVersion=" + kubernetesVersion +
		" -X " + pkg + "gitMajor=1 -X " + pkg + "gitMinor=36 -X " + pkg + "gitTreeState=clean"
	return []string{"-tags=grpcnotrace", "-ldflags=" + ldflags}
}
