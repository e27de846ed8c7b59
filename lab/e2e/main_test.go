// Package e2e tests the whole product: the binary kamino as a user starts it,
// against a real API server with real controllers, and Azure's emulator over
// HTTPS, which the Azure SDK cannot tell from Azure.
package e2e

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"kamino.dev/kamino/internal/bench"
	"kamino.dev/kamino/lab"
	"kamino.dev/kamino/lab/controlplane"
)

// speed is how many times faster than published Azure the shared lab works: a
// stop takes 0.2 s, the build of an image version 1.1 s.
const speed = 600

// One lab serves all tests. Each test has pools of its own in it.
var (
	shared    *lab.Lab
	binary    string // kamino
	labBinary string // kamino-lab
)

func TestMain(m *testing.M) {
	code, err := run(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func run(m *testing.M) (int, error) {
	flag.Parse()
	// The tests mostly wait, so they run side by side on few cores.
	if err := flag.Set("test.parallel", "16"); err != nil {
		return 0, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 15*time.Minute) // a cold build takes four
	defer cancel()
	dir, err := os.MkdirTemp("", "kamino-e2e-")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir)
	if labBinary, err = controlplane.Build(ctx); err != nil {
		return 0, err
	}
	if binary, err = buildKamino(ctx, dir); err != nil {
		return 0, err
	}
	if !bench.Measures() { // the bench has labs of its own
		if shared, err = lab.Start(ctx, lab.Options{Dir: filepath.Join(dir, "lab"), Binary: labBinary, NodesPerPool: 3, Speed: speed}); err != nil {
			return 0, err
		}
		defer shared.Stop()
	}
	return m.Run(), nil
}

// buildKamino builds the product as make does, but for its version, so that they
// share the build cache. KAMINO in the environment names a binary to test instead.
func buildKamino(ctx context.Context, dir string) (string, error) {
	if given := os.Getenv("KAMINO"); given != "" {
		return filepath.Abs(given)
	}
	path := filepath.Join(dir, "kamino")
	cmd := exec.CommandContext(ctx, "go", "build", "-buildvcs=false", "-ldflags", "-s -w -X main.version=e2e", "-o", path, "./cmd/kamino")
	cmd.Dir = filepath.Join("..", "..")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if text, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build kamino: %w\n%s", err, text)
	}
	return path, nil
}
