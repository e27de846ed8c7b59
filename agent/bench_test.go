package agent_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"kamino.dev/kamino/internal/bench"
)

// TestBench prints the figures of `make bench` for the agent. It never fails because of one.
func TestBench(t *testing.T) {
	bench.Need(t)
	program := buildAgent(t)
	info, err := os.Stat(program)
	if err != nil {
		t.Fatal(err)
	}
	bench.Figure("agent-size", float64(info.Size())/1e6, "MB", 11)
	binary = program

	w := benchWorld(t)
	syscall.Sync() // a donor's files were written long ago
	started := time.Now()
	w.run("seal --run bench --donor "+benchHost, 0)
	bench.Figure("agent-seal-200k-files", time.Since(started).Seconds(), "s", 20)
	receipt, err := os.ReadFile(filepath.Join(w.root, "var/lib/kamino/receipt.json"))
	if err != nil {
		t.Fatal(err)
	}
	var fresh, old []float64
	for i := range 7 {
		// The disk wakes up on the next machine, as sealed as it was.
		writeFile(t, filepath.Join(w.root, "var/lib/kamino/receipt.json"), string(receipt))
		if err := os.RemoveAll(filepath.Join(w.root, "etc/kamino/vm.json")); err != nil {
			t.Fatal(err)
		}
		id := fmt.Sprintf("5e1f0a2b-3c4d-4e6f-8a9b-0c1d2e3f4a%02d", i)
		w.platform.serve("instance.json", strings.ReplaceAll(benchInstance, "VMID", id))
		w.step(step{Machine: id})
		fresh = append(fresh, milliseconds(func() { w.run("boot --early", 0); w.run("boot", 0) }))
		w.step(step{Machine: id})
		// The later part's unit is skipped by its condition.
		old = append(old, milliseconds(func() { w.run("boot --early", 0) }))
	}
	// The least of seven: what it costs itself, without what else the machine does.
	bench.Figure("agent-boot-new-vm-200k-files", slices.Min(fresh), "ms", 300)
	bench.Figure("agent-boot-old-vm", slices.Min(old), "ms", 30)
}

// buildAgent builds the program itself: a test's own binary is larger, and so is the memory in which
// it lies.
func buildAgent(t *testing.T) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "kamino-agent")
	build := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w", "-o", program, "kamino.dev/kamino/cmd/kamino-agent")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return program
}

const (
	benchHost     = "k8s-pool1-28346-vmss000003"
	benchInstance = `{"compute":{"vmId":"VMID","osProfile":{"computerName":"k8s-pool1-28346-vmss000008"}}}`
	benchPolicy   = "apiVersion: kamino.dev/v1alpha1\nkind: SealConfig\nverify: {unknown: report}\n" // nothing explains the files of a bench
	benchConfig   = "apiVersion: kamino.dev/v1alpha1\nkind: NodeConfig\ngeneration: 1\ncluster:\n  endpoint: https://10.0.0.1:6443\n  ca: %s\n" +
		"join: {method: bootstrapToken, token: abcdef.0123456789abcdef}\n"
)

// benchWorld is a node's disk with 200,000 files, on a real file system: software, unpacked images,
// and everything else.
func benchWorld(t *testing.T) *world {
	w := &world{t: t, root: filepath.Join(t.TempDir(), "root"), platform: servePlatform(t, map[string]string{})}
	unpackBase(t, "debian12-kubeadm", w.root)
	writeFile(t, filepath.Join(w.root, "etc/kamino/seal.yaml"), benchPolicy)
	ca, err := os.ReadFile(filepath.Join(w.root, "etc/kubernetes/pki/ca.crt"))
	if err != nil {
		t.Fatal(err)
	}
	indented := "|\n    " + strings.ReplaceAll(strings.TrimSpace(string(ca)), "\n", "\n    ")
	w.platform.serve("userdata", fmt.Sprintf(benchConfig, indented))
	text := []byte(strings.Repeat("The quick brown fox jumps over the lazy dog.\n", 100))
	for tree, n := range map[string]int{"usr/lib": 100_000, "var/lib/containerd/io.containerd.snapshotter.v1.overlayfs/snapshots": 60_000, "srv": 20_000, "var/lib/app": 20_000} {
		for i := range n {
			dir := filepath.Join(w.root, tree, fmt.Sprint(i/200))
			if i%200 == 0 {
				err = errors.Join(err, os.MkdirAll(dir, 0o755))
			}
			err = errors.Join(err, os.WriteFile(filepath.Join(dir, fmt.Sprint(i)), text[:len(text)*(i%10)/10], 0o644))
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	w.env = append(os.Environ(), "KAMINO_IMDS="+w.platform.url, "KAMINO_WIRESERVER="+w.platform.url)
	return w
}

func milliseconds(work func()) float64 {
	started := time.Now()
	work()
	return float64(time.Since(started).Microseconds()) / 1000
}
