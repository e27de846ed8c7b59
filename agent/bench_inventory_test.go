package agent_test

import (
	"bufio"
	"crypto/md5"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"kamino.dev/kamino/agent/seal"
	"kamino.dev/kamino/internal/bench"
)

// TestBenchInventory measures the inventory of 200,000 files of 6 GB, nearly all of them a
// package's: the look beside the running node, with the files out of the page cache, and the second
// one, which is what the donor's time away grows by.
func TestBenchInventory(t *testing.T) {
	bench.Need(t)
	root := t.TempDir()
	packageTree(t, root, 200_000, 30_000)
	run := filepath.Join(root, "run")
	if err := errors.Join(os.Mkdir(run, 0o755), syscall.Mount("tmpfs", run, "tmpfs", 0, "size=64m")); err != nil {
		t.Skipf("a root with memory at /run cannot be made: %v", err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(run, syscall.MNT_DETACH) })
	// The processor's seconds tell more than the clock's on a machine that does other things as
	// well.
	program := buildAgent(t)
	look := func() (seconds, megabytes, processor float64) {
		cmd := exec.Command(program, "verify", "--inventory", "--root", root)
		started := time.Now()
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		t.Logf("%s", out[max(len(out)-300, 0):])
		usage := cmd.ProcessState.SysUsage().(*syscall.Rusage)
		spent := cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
		return time.Since(started).Seconds(), float64(usage.Maxrss) / 1000, spent.Seconds()
	}
	// A process that was started counts what its parent took when it started it (getrusage(2),
	// ru_maxrss): no figure of this test's is less than that.
	var own syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &own); err != nil {
		t.Fatal(err)
	}
	t.Logf("this test itself took %.1f MB", float64(own.Maxrss)/1000)
	seconds, megabytes, processor := look()
	bench.Figure("agent-inventory-200k-files-6gb", seconds, "s", 60)
	bench.Figure("agent-inventory-memory", megabytes, "MB", 64)
	bench.Figure("agent-inventory-processor", processor, "s", 60)
	seconds, megabytes, processor = look()
	bench.Figure("agent-inventory-away", seconds, "s", 2)
	bench.Figure("agent-inventory-away-processor", processor, "s", 2)
	bench.Figure("agent-inventory-away-memory", megabytes, "MB", 64)
}

// TestBenchUnknown measures the look at a disk of 200,000 files, of which nothing explains 120,000, and its
// seals: as a donor, and as a donor that is itself a clone, which compares with the list of its image.
func TestBenchUnknown(t *testing.T) {
	bench.Need(t)
	root := t.TempDir()
	unpackBase(t, "debian12-kubeadm", root)
	writeFile(t, filepath.Join(root, "etc/kamino/seal.yaml"), benchPolicy)
	program := buildAgent(t)
	list, err1 := os.Create(filepath.Join(root, "var/lib/dpkg/info/bench.list"))
	digests, err2 := os.Create(filepath.Join(root, "var/lib/dpkg/info/bench.md5sums"))
	err := errors.Join(err1, err2)
	for i := 0; i < 200_000 && err == nil; i++ {
		text := fmt.Appendf(nil, "line %d of a file that nothing explains\n", i)
		name := fmt.Sprintf("srv/application/data/%03d/%06d.txt", i/200, i)
		if i%5 < 2 {
			name = fmt.Sprintf("usr/lib/bench/%03d/%06d", i/200, i)
			_, err1 = fmt.Fprintf(list, "/%s\n", name)
			_, err2 = fmt.Fprintf(digests, "%x  %s\n", md5.Sum(text), name)
		}
		at := filepath.Join(root, name)
		err = errors.Join(err1, err2, os.MkdirAll(filepath.Dir(at), 0o755), os.WriteFile(at, text, 0o644))
	}
	if err = errors.Join(err, list.Close(), digests.Close()); err != nil {
		t.Fatal(err)
	}
	look := exec.Command(program, "verify", "--inventory", "--root", root)
	if out, err := look.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out[max(len(out)-1000, 0):])
	}
	memory := func(cmd *exec.Cmd) float64 {
		return float64(cmd.ProcessState.SysUsage().(*syscall.Rusage).Maxrss) / 1024
	}
	bench.Figure("agent-inventory-120k-unknown-memory", memory(look), "MiB", 128)
	for _, of := range []string{"donor", "clone"} {
		started := time.Now()
		cmd := exec.Command(program, "seal", "--root", root, "--run", of, "--no-install", "--free-space", "none", "--imds", "http://127.0.0.1:1")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		bench.Figure("agent-seal-120k-unknown-"+of, time.Since(started).Seconds(), "s", 60)
		bench.Figure("agent-seal-120k-unknown-memory-"+of, memory(cmd), "MiB", 128)
		if err := os.Remove(filepath.Join(root, seal.ReceiptPath)); err != nil {
			t.Fatal(err)
		}
	}
}

// packageTree writes files of a dpkg package, except one in a hundred that nobody owns, and takes
// them out of the cache.
func packageTree(t *testing.T, root string, files, size int) {
	t.Helper()
	content := make([]byte, size)
	random := rand.NewChaCha8([32]byte{1})
	info := filepath.Join(root, "var/lib/dpkg/info")
	if err := os.MkdirAll(info, 0o755); err != nil {
		t.Fatal(err)
	}
	list, err1 := os.Create(filepath.Join(info, "bench.list"))
	digests, err2 := os.Create(filepath.Join(info, "bench.md5sums"))
	err := errors.Join(err1, err2)
	if err != nil {
		t.Fatal(err)
	}
	lists, sums := bufio.NewWriter(list), bufio.NewWriter(digests) // not in memory: see above
	for i := range files {
		name := fmt.Sprintf("usr/lib/bench/%d/%d", i/200, i)
		if i%100 == 0 {
			name = fmt.Sprintf("srv/app/%d/%d", i/20000, i)
		}
		_, _ = random.Read(content) // never fails
		err = errors.Join(err, os.MkdirAll(filepath.Join(root, filepath.Dir(name)), 0o755), os.WriteFile(filepath.Join(root, name), content, 0o644))
		if i%100 > 0 {
			fmt.Fprintf(lists, "/%s\n", name)
			fmt.Fprintf(sums, "%x  %s\n", md5.Sum(content), name)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(lists.Flush(), sums.Flush(), list.Close(), digests.Close()); err != nil {
		t.Fatal(err)
	}
	writeFile(t, filepath.Join(root, "var/lib/dpkg/status"), "Package: bench\n")
	syscall.Sync()
	err = filepath.WalkDir(root, func(name string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		f, err := os.Open(name)
		if err != nil {
			return err
		}
		return errors.Join(unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED), f.Close())
	})
	if err != nil {
		t.Fatal(err)
	}
}
