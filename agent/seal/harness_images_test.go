package seal

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// Real file systems for tests: image files on loop devices, mounted.

var formats = map[string]struct {
	megabytes int
	command   []string
}{
	"ext4": {16, []string{"mke2fs", "-q", "-F", "-t", "ext4", "-b", "1024", "-E", "nodiscard,lazy_itable_init=0", "-m", "0"}},
	// So small a file system xfsprogs makes for tests only; the kernel mounts it like any other.
	"xfs":   {20, []string{"mkfs.xfs", "--unsupported", "-q", "-f"}},
	"btrfs": {112, []string{"mkfs.btrfs", "-q", "-f"}},
	"vfat":  {8, []string{"mkfs.vfat"}},
}

// needImages skips, saying why, where file systems cannot be made or mounted.
func needImages(t testing.TB, kinds ...string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("mounting an image needs root")
	}
	for _, k := range kinds {
		if _, err := exec.LookPath(formats[k].command[0]); err != nil {
			t.Skipf("%s is not installed", formats[k].command[0])
		}
	}
	if _, err := os.Stat("/dev/loop-control"); err != nil {
		t.Skipf("no loop devices here: %v", err)
	}
}

// scratch is a directory in memory where there is one.
func scratch(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "kamino-images-")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func run(t testing.TB, name string, args ...string) string {
	t.Helper()
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v: %s", name, strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(string(out))
}

// image makes a file system in a new file.
func image(t testing.TB, kind string) string {
	t.Helper()
	f := formats[kind]
	name := filepath.Join(scratch(t), kind+".img")
	if err := errors.Join(os.WriteFile(name, nil, 0o600), os.Truncate(name, int64(f.megabytes)<<20)); err != nil {
		t.Fatal(err)
	}
	run(t, f.command[0], append(f.command[1:], name)...)
	return name
}

// copyImage copies an image with its holes, and makes holes of the zeros that it writes.
func copyImage(t testing.TB, from, to string) {
	t.Helper()
	src, err := os.Open(from)
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	dst, err := os.Create(to)
	if err != nil {
		t.Fatal(err)
	}
	defer dst.Close()
	info, err := src.Stat()
	if err = errors.Join(err, dst.Truncate(info.Size())); err != nil {
		t.Fatal(err)
	}
	buf, zero := make([]byte, 64<<10), make([]byte, 64<<10)
	for at := int64(0); at < info.Size(); {
		if at, err = src.Seek(at, unix.SEEK_DATA); errors.Is(err, syscall.ENXIO) {
			return // nothing but holes is left
		}
		n, rerr := src.ReadAt(buf, at)
		if rerr != nil && !errors.Is(rerr, io.EOF) {
			err = errors.Join(err, rerr)
		}
		if err == nil && !bytes.Equal(buf[:n], zero[:n]) {
			_, err = dst.WriteAt(buf[:n], at)
		}
		if err != nil {
			t.Fatal(err)
		}
		at += int64(n)
	}
}

// attach makes an image a loop device, with its partitions if it has any. It asks the kernel
// itself: the tests attach thousands of them.
func attach(t testing.TB, name string) (device string, detach func()) {
	t.Helper()
	file, err := os.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	control, err := os.OpenFile("/dev/loop-control", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer control.Close()
	config := unix.LoopConfig{Fd: uint32(file.Fd()), Info: unix.LoopInfo64{Flags: unix.LO_FLAGS_PARTSCAN}}
	for {
		n, err := unix.IoctlRetInt(int(control.Fd()), unix.LOOP_CTL_GET_FREE)
		if err != nil {
			t.Fatalf("find a free loop device: %v", err)
		}
		device = fmt.Sprintf("/dev/loop%d", n)
		loop, err := os.OpenFile(device, os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		if err = unix.IoctlLoopConfigure(int(loop.Fd()), &config); err == nil {
			return device, once(t, func() error { return errors.Join(unix.IoctlSetInt(int(loop.Fd()), unix.LOOP_CLR_FD, 0), loop.Close()) })
		}
		if loop.Close(); !errors.Is(err, syscall.EBUSY) { // somebody else was quicker
			t.Fatalf("attach %s to %s: %v", name, device, err)
		}
	}
}

// once is an undoing that a test may do early, and that is done at its end otherwise.
func once(t testing.TB, undo func() error) func() {
	t.Helper()
	done := false
	f := func() {
		if !done {
			done = true
			if err := undo(); err != nil {
				t.Errorf("clean up: %v", err)
			}
		}
	}
	t.Cleanup(f)
	return f
}

func mount(t testing.TB, source, dir, kind string, flags uintptr) (unmount func()) {
	t.Helper()
	if _, err := os.Lstat(dir); err != nil {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	data := ""
	if kind == "xfs" {
		data = "nouuid" // its copies are mounted side by side
	}
	if err := syscall.Mount(source, dir, kind, flags, data); err != nil {
		t.Fatalf("mount %s (%s) at %s: %v", source, kind, dir, err)
	}
	return once(t, func() error { return syscall.Unmount(dir, 0) })
}

// mountImage mounts an image through a loop device of its own.
func mountImage(t testing.TB, name, dir, kind string) (unmount func()) {
	t.Helper()
	device, detach := attach(t, name)
	off := mount(t, device, dir, kind, 0)
	return func() { off(); detach() }
}

// partitioned makes a disk image with one partition of each size, and a master boot record that
// says so.
func partitioned(t testing.TB, megabytes ...int) (device string) {
	t.Helper()
	const sectors = 2048 // in a megabyte
	record, start := make([]byte, 512), sectors
	for i, m := range megabytes {
		entry := record[446+16*i:]
		entry[4] = 0x83 // Linux
		binary.LittleEndian.PutUint32(entry[8:], uint32(start))
		binary.LittleEndian.PutUint32(entry[12:], uint32(m*sectors))
		start += m * sectors
	}
	record[510], record[511] = 0x55, 0xaa
	name := filepath.Join(scratch(t), "disk.img")
	if err := errors.Join(os.WriteFile(name, record, 0o600), os.Truncate(name, int64(start)*512)); err != nil {
		t.Fatal(err)
	}
	device, _ = attach(t, name)
	if _, err := os.Stat(device + "p1"); err != nil {
		run(t, "partx", "--add", device) // this kernel reads no partition tables itself
	}
	for i := range megabytes {
		if _, err := os.Stat(fmt.Sprintf("%sp%d", device, i+1)); err != nil {
			t.Skipf("loop devices have no partitions here: %v", err)
		}
	}
	return device
}

func format(t testing.TB, kind, device string) {
	t.Helper()
	run(t, formats[kind].command[0], append(formats[kind].command[1:], device)...)
}

// digest is over everything about a tree that people could miss: names, modes, owners, sizes,
// times, contents.
func digest(t testing.TB, dir string) string {
	t.Helper()
	sum := sha256.New()
	err := filepath.WalkDir(dir, func(name string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(dir, name)
		st := info.Sys().(*syscall.Stat_t)
		fmt.Fprintf(sum, "%s %v %d:%d %d\n", rel, info.Mode(), st.Uid, st.Gid, st.Nlink)
		if info.Mode().IsRegular() {
			data, err := os.ReadFile(name)
			fmt.Fprintf(sum, "%d %d %x\n", info.Size(), info.ModTime().UnixNano(), sha256.Sum256(data))
			return err
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return hex.EncodeToString(sum.Sum(nil)[:8])
}
