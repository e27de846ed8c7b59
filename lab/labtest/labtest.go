// Package labtest is what the lab's own tests share: programs that are built
// once per run, and waiting.
package labtest

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"kamino.dev/kamino/lab/controlplane"
)

// buildTime bounds a build of kamino-lab; a cold one takes four minutes.
const buildTime = 15 * time.Minute

// Main runs the tests of a package, and ends the process. setup starts what they
// share, from kamino-lab at labBinary and below dir, which is removed afterwards;
// stop, if not nil, ends it. setup may set the flags of the tests.
func Main(m *testing.M, setup func(ctx context.Context, dir, labBinary string) (stop func(), err error)) {
	code, err := run(m, setup)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func run(m *testing.M, setup func(context.Context, string, string) (func(), error)) (int, error) {
	flag.Parse()
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "kamino-lab-test-")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir)
	building, cancel := context.WithTimeout(ctx, buildTime)
	defer cancel()
	labBinary, err := controlplane.Build(building)
	if err != nil {
		return 0, err
	}
	stop, err := setup(ctx, dir, labBinary)
	if err != nil {
		return 0, err
	}
	if stop != nil {
		defer stop()
	}
	return m.Run(), nil
}

// SideBySide lets n tests run at a time, however few cores there are: most of
// their time they wait.
func SideBySide(n int) error { return flag.Set("test.parallel", strconv.Itoa(n)) }

// BuildKamino builds the product as make does, static and but for its version,
// so that they share the build cache, and returns its path below dir. KAMINO in
// the environment names a binary to test instead. The working directory is that
// of a package directly below lab/. pollInterval is the shortest time between two polls, and
// settleLimit bounds the waits for cluster-autoscaler: "" for the user's.
func BuildKamino(ctx context.Context, dir, pollInterval, settleLimit string) (string, error) {
	if given := os.Getenv("KAMINO"); given != "" {
		return filepath.Abs(given)
	}
	path := filepath.Join(dir, "kamino")
	cmd := exec.CommandContext(ctx, "go", "build", "-buildvcs=false", "-ldflags", "-s -w -X main.version=test -X main.pollInterval="+
		pollInterval+" -X main.settleLimit="+settleLimit, "-o", path, "./cmd/kamino")
	cmd.Dir = filepath.Join("..", "..")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if text, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build kamino: %w\n%s", err, text)
	}
	return path, nil
}

// Await polls until check returns "", and fails the test with its last words
// when limit is over.
func Await(t testing.TB, limit time.Duration, what string, check func() string) {
	t.Helper()
	timeout := time.NewTimer(limit)
	defer timeout.Stop()
	ticker := time.NewTicker(30 * time.Millisecond)
	defer ticker.Stop()
	for {
		said := check()
		if said == "" {
			return
		}
		select {
		case <-timeout.C:
			t.Fatalf("waited in vain until %s: %s", what, said)
		case <-ticker.C:
		}
	}
}
