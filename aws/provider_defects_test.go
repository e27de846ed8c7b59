package aws_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"kamino.dev/kamino/internal/sim/mutants"
	"kamino.dev/kamino/internal/sweep"
)

// defectEnv names the mutant that a test binary with the overlay has.
const defectEnv = "KAMINO_AWS_DEFECT"

func TestMain(m *testing.M) {
	if err := mutants.Switch(os.Getenv(defectEnv)); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

// TestDefects puts one known bad behaviour after the other into the provider: tests that cannot
// fail prove nothing. Each must make one of this package's other tests fail, moto's apart.
func TestDefects(t *testing.T) {
	if mutants.Built() {
		t.Skip("this is the binary with the defects")
	}
	root, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	overlay, err := mutants.Overlay(root, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	binary := filepath.Join(t.TempDir(), "aws.test")
	if out, err := exec.CommandContext(t.Context(), "go", "test", "-c", "-o", binary, "-overlay="+overlay, "-ldflags=-s -w", ".").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	defects := slices.DeleteFunc(mutants.All(), func(m mutants.Mutant) bool { return m.In != "aws" })
	if len(defects) < 10 {
		t.Errorf("%d defects", len(defects))
	}
	for i := range sweep.Cases(t, len(defects), 30*time.Second, nil) {
		m := defects[i]
		t.Run(m.Name, func(t *testing.T) {
			cmd := exec.CommandContext(t.Context(), binary, "-test.failfast", "-test.skip=^(TestMoto.*|TestDefects)$", "-test.timeout=5m")
			cmd.Env = append(os.Environ(), defectEnv+"="+m.Name)
			out, err := cmd.CombinedOutput()
			if err == nil {
				t.Errorf("nobody notices: %s", m.What)
				return
			}
			if strings.Contains(string(out), "panic:") {
				t.Errorf("a test panics where it should say what is wrong:\n%s", out)
			}
			for line := range strings.Lines(string(out)) {
				if strings.HasPrefix(strings.TrimSpace(line), "--- FAIL") {
					t.Log(strings.TrimSpace(line))
				}
			}
		})
	}
}
