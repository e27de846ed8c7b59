// Package chart tests charts/vmss-prototype: rendered by Helm's own library,
// checked by a real API server, and run.
package chart

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kamino.dev/kamino/azure/emulator"
	"kamino.dev/kamino/lab"
	"kamino.dev/kamino/lab/controlplane"
)

// namespace is that of the release.
const namespace = "kamino-system"

const (
	// speed is how many times faster than published Azure the lab works.
	speed = 600
	// pools is how many scale sets there are: each run of a test takes one.
	pools = 32
)

var (
	shared *lab.Lab
	binary string // kamino
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
	if err := flag.Set("test.parallel", "8"); err != nil {
		return 0, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 15*time.Minute) // a cold build takes four
	defer cancel()
	dir, err := os.MkdirTemp("", "kamino-chart-")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir)
	labBinary, err := controlplane.Build(ctx)
	if err != nil {
		return 0, err
	}
	binary = filepath.Join(dir, "kamino")
	build := exec.CommandContext(ctx, "go", "build", "-ldflags=-s -w", "-o", binary, "./cmd/kamino")
	build.Dir = filepath.Join("..", "..")
	if text, err := build.CombinedOutput(); err != nil {
		return 0, fmt.Errorf("build kamino: %w\n%s", err, text)
	}
	var scenario emulator.Scenario
	for n := range pools {
		scenario.Pools = append(scenario.Pools, emulator.Pool{Name: poolName(n), Count: 1})
	}
	if shared, err = lab.Start(ctx, lab.Options{Dir: filepath.Join(dir, "lab"), Binary: labBinary, Scenario: scenario, Speed: speed}); err != nil {
		return 0, err
	}
	defer shared.Stop()
	_, err = shared.Client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{})
	if err != nil {
		return 0, err
	}
	return m.Run(), nil
}

func poolName(n int) string { return fmt.Sprintf("k8s-p%02d-vmss", n) }
