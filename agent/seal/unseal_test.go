package seal

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"kamino.dev/kamino/agent/disk"
)

// small is a donor's disk with little more than the files given.
func small(t *testing.T, files map[string]string) *disk.Disk {
	t.Helper()
	root := t.TempDir()
	for name, text := range map[string]string{"etc/hostname": donorHost + "\n", "etc/machine-id": donorMachine + "\n", "usr/bin/kubelet": "program\n", "var/lib/x/y": "z\n"} {
		plantFile(t, root, name, text)
	}
	for name, text := range files {
		plantFile(t, root, name, text)
	}
	d, err := disk.Open(root)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	return d
}

// TestNamesOfBytes: names that are no UTF-8 and differ in such bytes only come back as they were,
// from an interrupted seal and from a refused one.
func TestNamesOfBytes(t *testing.T) {
	odd := map[string]string{"home/u/.\xfe_history": "one\n", "home/u/.\xff_history": "two\n", "tmp/caf\xe9": "three\n", "tmp/\xef\xbf\xbd": "four\n"}
	t.Run("interrupted", func(t *testing.T) {
		d := small(t, odd)
		before := read(t, d)
		if _, err := Seal(t.Context(), d, planted(func(o *Options) { o.InterruptAfter = "temporary" })); !errors.Is(err, ErrInterrupted) {
			t.Fatal(err)
		}
		if _, err := Unseal(d); err != nil {
			t.Fatal(err)
		}
		sameAs(t, before, read(t, d))
	})
	t.Run("refused", func(t *testing.T) {
		d := small(t, odd)
		plantFile(t, d.Dir(), "srv/key", secret)
		before := read(t, d)
		var found *Found
		if _, err := Seal(t.Context(), d, planted(nil)); !errors.As(err, &found) {
			t.Fatal(err)
		}
		sameAs(t, before, read(t, d))
	})
}

// TestLongestName: a file whose name is as long as a file system allows is emptied as any other,
// and comes back.
func TestLongestName(t *testing.T) {
	name := "var/log/app/" + strings.Repeat("n", 251) + ".log"
	d := small(t, map[string]string{name: "line\n"})
	before := read(t, d)
	if _, err := Seal(t.Context(), d, planted(func(o *Options) { o.InterruptAfter = "other-logs" })); !errors.Is(err, ErrInterrupted) {
		t.Fatal(err)
	}
	if _, err := Unseal(d); err != nil {
		t.Fatal(err)
	}
	sameAs(t, before, read(t, d))
	if _, err := Seal(t.Context(), d, planted(nil)); err != nil || d.Text(name) != "" {
		t.Errorf("sealed: %v; the log says %q", err, d.Text(name))
	}
}

// TestStuck: one change that cannot be taken back keeps no other from it, nor is anything of it
// lost; another seal is refused, and the next attempt makes up for it.
func TestStuck(t *testing.T) {
	d := small(t, map[string]string{"tmp/a": "a\n", "tmp/b": "b\n", "etc/resolv.conf": "search x.internal.cloudapp.net\n"})
	before := read(t, d)
	if _, err := Seal(t.Context(), d, planted(func(o *Options) { o.InterruptAfter = "machine-id" })); !errors.Is(err, ErrInterrupted) {
		t.Fatal(err)
	}
	d.BeforeWrite(func(kind, name string) error {
		if kind == "rename" && strings.HasPrefix(name, asideDir) && d.Text(name) == "a" {
			return syscall.EIO
		}
		return nil
	})
	var left *NotTakenBack
	for range 2 {
		if _, err := Unseal(d); !errors.As(err, &left) || len(left.Changes) != 1 || !strings.Contains(left.Changes[0], "/tmp/a ") {
			t.Fatalf("taken back: %v", err)
		}
	}
	if d.Text("tmp/b") != "b" || d.Text("etc/machine-id") != donorMachine {
		t.Error("other files were not brought back")
	}
	if err := Permit(d, planted(nil)); !errors.As(err, &left) {
		t.Errorf("another seal: %v", err)
	}
	d.BeforeWrite(nil)
	if _, err := Unseal(d); err != nil {
		t.Fatal(err)
	}
	sameAs(t, before, read(t, d))
}

// TestStuckAbove: an earlier change at the same place waits for the later one, or its file would be
// removed for that one's.
func TestStuckAbove(t *testing.T) {
	d := small(t, map[string]string{"srv/x": "first\n"})
	before := read(t, d)
	s, err := begin(d, donorVM)
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"second\n", "third\n"} {
		if err := s.apply("x", []Match{{Path: "srv/x", New: &Content{Data: []byte(text)}}}); err != nil {
			t.Fatal(err)
		}
	}
	d.BeforeWrite(func(kind, name string) error {
		if kind == "rename" && d.Text(name) == "second" {
			return syscall.EIO
		}
		return nil
	})
	var left *NotTakenBack
	if _, err := Unseal(d); !errors.As(err, &left) || len(left.Changes) != 2 {
		t.Fatalf("taken back: %v", err)
	}
	d.BeforeWrite(nil)
	if _, err := Unseal(d); err != nil {
		t.Fatal(err)
	}
	sameAs(t, before, read(t, d))
}

// TestUnsealGone: what had gone by itself before its rule came is not removed when somebody makes
// it anew.
func TestUnsealGone(t *testing.T) {
	d := small(t, nil)
	s, err := begin(d, donorVM)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.apply("x", []Match{{Path: "tmp/gone"}}); err != nil {
		t.Fatal(err)
	}
	plantFile(t, d.Dir(), "tmp/gone", "made anew\n")
	if _, err := Unseal(d); err != nil || d.Text("tmp/gone") != "made anew" {
		t.Errorf("%v, %q", err, d.Text("tmp/gone"))
	}
}

// TestProject: a directory that takes files of its own project only (chattr +P) gets back what was
// taken out of it.
func TestProject(t *testing.T) {
	needImages(t, "xfs")
	if _, err := exec.LookPath("xfs_io"); err != nil {
		t.Skip("xfs_io is not installed")
	}
	img, dir := image(t, "xfs"), filepath.Join(scratch(t), "root")
	defer mountImage(t, img, dir, "xfs")()
	donorTree(t, dir)
	plantFile(t, dir, "var/log/syslog", "line\n")
	plantFile(t, dir, "srv/key", secret)
	if err := os.Symlink("syslog", filepath.Join(dir, "var/log/messages")); err != nil {
		t.Fatal(err)
	}
	logs := filepath.Join(dir, "var/log")
	run(t, "xfs_io", "-c", "chproj 42", "-c", "chattr +P", logs)
	d, err := disk.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	before := read(t, d)
	var found *Found
	if _, err := Seal(t.Context(), d, foreignOptions()); !errors.As(err, &found) {
		t.Errorf("sealed: %v", err)
	}
	sameAs(t, before, read(t, d))
	if got := run(t, "xfs_io", "-r", "-c", "lsattr", "-c", "lsproj", logs); !strings.Contains(got, "P") || !strings.Contains(got, "42") {
		t.Errorf("the directory's project afterwards: %s", got)
	}
}

// TestHoles: what a rule takes may have holes larger than the disk has room; they are not filled.
func TestHoles(t *testing.T) {
	needImages(t, "ext4", "xfs")
	for _, kind := range []string{"ext4", "xfs"} {
		t.Run(kind, func(t *testing.T) {
			img, dir := image(t, kind), filepath.Join(scratch(t), "root")
			off := mountImage(t, img, dir, kind)
			defer off()
			donorTree(t, dir)
			for _, name := range []string{"tmp/a", "tmp/b", "tmp/c", "tmp/d", "tmp/e", "tmp/f", "tmp/g", "tmp/h"} {
				plantFile(t, dir, name, marked("before"))
				f, err := os.OpenFile(filepath.Join(dir, name), os.O_WRONLY, 0)
				if err == nil {
					_, err = f.WriteAt([]byte(marked("behind")), 10<<20)
					err = errors.Join(err, f.Truncate(400<<20), f.Close())
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			d, err := disk.Open(dir)
			if err != nil {
				t.Fatal(err)
			}
			if _, err = Seal(t.Context(), d, foreignOptions()); errors.Join(err, d.Close()) != nil {
				t.Fatal(err)
			}
			off()
			if n, m := marks(t, img, "before"), marks(t, img, "behind"); n+m != 0 {
				t.Errorf("%d lines from before and %d from behind the hole are in the image", n, m)
			}
		})
	}
}

// TestNoRoomForZeros: where a file system has no room for the zeros, the file's blocks are zeroed
// once they are free.
func TestNoRoomForZeros(t *testing.T) {
	needImages(t, "ext4")
	img, dir := image(t, "ext4"), filepath.Join(scratch(t), "root")
	off := mountImage(t, img, dir, "ext4")
	defer off()
	donorTree(t, dir)
	plantFile(t, dir, "tmp/left", marked("left"))
	run(t, "sync", "-f", dir)
	d, err := disk.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	d.BeforeWrite(func(kind, _ string) error {
		if kind == "overwrite" {
			return syscall.ENOSPC
		}
		return nil
	})
	if _, err = Seal(t.Context(), d, foreignOptions()); errors.Join(err, d.Close()) != nil {
		t.Fatal(err)
	}
	off()
	if n := marks(t, img, "left"); n != 0 {
		t.Errorf("%d lines are in the image", n)
	}
}
