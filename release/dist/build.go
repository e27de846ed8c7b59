package dist

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
)

// The programs of a release.
const (
	kamino = "kamino"
	agent  = "kamino-agent"
)

func (r *Release) buildAgent(ctx context.Context) error {
	for _, t := range r.linux() {
		if err := r.build(ctx, agent, t); err != nil {
			return err
		}
	}
	return nil
}

// buildKamino builds kamino with the digest of the agent's image in it, so that no option has to
// name the image that seals.
func (r *Release) buildKamino(ctx context.Context) error {
	for _, t := range r.Targets {
		if err := r.build(ctx, kamino, t, "-X main.builtinImage="+r.reference(agent)); err != nil {
			return err
		}
	}
	return nil
}

func (r *Release) build(ctx context.Context, program string, t Target, variables ...string) error {
	file := filepath.Join(r.work, program+"-"+t.OS+"-"+t.Arch)
	flags := append([]string{"-s -w", "-X main.version=v" + r.Version, "-X main.commit=" + r.Commit}, variables...)
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-tags=grpcnotrace", "-ldflags",
		strings.Join(flags, " "), "-o", file, "./cmd/"+program)
	cmd.Dir, cmd.Stderr = r.Source, os.Stderr
	// What somebody's shell says of flags or of the processor must not change the bytes.
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS="+t.OS, "GOARCH="+t.Arch, "GOFLAGS=", "GOAMD64=v1",
		"GOARM64=v8.0", "GOEXPERIMENT=")
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s for %s: %w", program, t, err)
	}
	r.binaries[program+" "+t.String()] = file
	return nil
}

// runnable is a kamino that this machine can run, to ask it for its completions.
func (r *Release) runnable(ctx context.Context) (string, error) {
	here := Target{runtime.GOOS, runtime.GOARCH}
	if file, ok := r.binaries[kamino+" "+here.String()]; ok {
		return file, nil
	}
	err := r.build(ctx, kamino, here)
	return r.binaries[kamino+" "+here.String()], err
}

// completions are kamino's own, by the names under which shells look for them.
func (r *Release) completions(ctx context.Context) ([]entry, error) {
	program, err := r.runnable(ctx)
	if err != nil {
		return nil, err
	}
	var entries []entry
	for _, shell := range []struct{ name, file string }{
		{"bash", "kamino.bash"}, {"zsh", "_kamino"}, {"fish", "kamino.fish"}, {"powershell", "kamino.ps1"},
	} {
		var out, errs bytes.Buffer
		cmd := exec.CommandContext(ctx, program, "completion", shell.name)
		cmd.Stdout, cmd.Stderr = &out, &errs
		if err := cmd.Run(); err != nil {
			return nil, fmt.Errorf("completion for %s: %w: %s", shell.name, err, errs.String())
		}
		entries = append(entries, entry{name: "completions/" + shell.file, mode: 0o644, body: out.Bytes()})
	}
	return entries, nil
}
