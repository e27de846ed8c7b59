package disk

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// endsIn fails the test where work does not end: an agent that hangs keeps its node from ever being
// a donor.
func endsIn(t *testing.T, limit time.Duration, work func()) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		work()
	}()
	select {
	case <-done:
	case <-time.After(limit):
		t.Fatal("it hangs")
	}
}

func hostileDisk(t *testing.T) *Disk {
	t.Helper()
	d, err := Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	return d
}

// TestExchanged: a process in a container, which may write in one directory, exchanges its files and
// folders for pipes while they are walked and opened.
func TestExchanged(t *testing.T) {
	d := hostileDisk(t)
	top, aside := d.Host("opt/r"), filepath.Join(d.Dir(), "opt/q")
	const files = 40
	for _, dir := range []string{top, aside} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for i := range files {
		at := fmt.Sprintf("%s/f%02d", top, i)
		err := os.WriteFile(at, []byte("x"), 0o600)
		if i%4 == 0 {
			err = errors.Join(os.Remove(at), os.MkdirAll(at+"/below", 0o755))
		}
		if err = errors.Join(err, syscall.Mkfifo(fmt.Sprintf("%s/p%02d", aside, i), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			for i := range files {
				select {
				case <-stop:
					return
				default:
				}
				_ = unix.Renameat2(unix.AT_FDCWD, fmt.Sprintf("%s/f%02d", top, i), unix.AT_FDCWD, fmt.Sprintf("%s/p%02d", aside, i), unix.RENAME_EXCHANGE)
			}
		}
	}()
	defer func() { close(stop); <-stopped }()
	opened := 0
	endsIn(t, 20*time.Second, func() {
		for range 300 {
			err := d.Walk("opt", func(name string, info fs.FileInfo) error {
				if !info.Mode().IsRegular() {
					return nil
				}
				f, err := d.OpenWalked(name)
				if errors.Is(err, fs.ErrNotExist) {
					return nil
				}
				if err != nil {
					return err
				}
				defer f.Close()
				if now, err := f.Stat(); err != nil || !now.Mode().IsRegular() && !now.IsDir() {
					t.Errorf("%s was opened as %v, %v", name, now.Mode(), err)
				}
				opened++
				return nil
			})
			if err != nil {
				t.Error(err)
				return
			}
		}
	})
	if opened == 0 {
		t.Error("nothing was opened")
	}
}

// TestPipeForAnything: a pipe, or a link to one, in the place of whatever the agent opens or lists.
func TestPipeForAnything(t *testing.T) {
	d := hostileDisk(t)
	if err := errors.Join(os.Mkdir(d.Host("d"), 0o755), syscall.Mkfifo(d.Host("d/pipe"), 0o600), os.Symlink("pipe", d.Host("d/link"))); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"d/pipe", "d/link"} {
		for what, work := range map[string]func() error{
			"Open":       func() error { _, err := Open(d.Host(name)); return refused(err) },
			"ReadDir":    func() error { _, err := d.ReadDir(name); return err },
			"Glob":       func() error { _, err := d.Glob(name + "/*.conf"); return err },
			"Walk":       func() error { return d.Walk(name, func(string, fs.FileInfo) error { return nil }) },
			"OpenFile":   func() error { _, err := d.OpenFile(name, os.O_RDONLY, 0); return refused(err) },
			"OpenWalked": func() error { _, err := d.OpenWalked(name); return refused(err) },
			"ReadFile":   func() error { _, err := d.ReadFile(name, 10); return refused(err) },
			"append":     func() error { return refused(d.Append(name, []byte("x"))) },
			"SyncDir":    func() error { _ = d.SyncDir(name); return nil },
		} {
			t.Run(what+" "+name, func(t *testing.T) {
				endsIn(t, 10*time.Second, func() {
					if err := work(); err != nil {
						t.Error(err)
					}
				})
			})
		}
	}
}

func refused(err error) error {
	if err == nil {
		return errors.New("a pipe was opened")
	}
	return nil
}

// TestDeepTree: a tree that is as deep as names may be takes time for each directory once, and one
// that is deeper is told, not entered.
func TestDeepTree(t *testing.T) {
	d := hostileDisk(t)
	at, err := unix.Open(d.Dir(), unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		t.Fatal(err)
	}
	const levels = 6000
	for range levels {
		if err := unix.Mkdirat(at, "d", 0o755); err != nil {
			t.Fatal(err)
		}
		next, err := unix.Openat(at, "d", unix.O_RDONLY|unix.O_DIRECTORY, 0)
		if err = errors.Join(err, unix.Close(at)); err != nil {
			t.Fatal(err)
		}
		at = next
	}
	_ = unix.Close(at)
	seen, deep, longest := 0, 0, 0
	began := time.Now()
	err = d.Walk(".", func(name string, info fs.FileInfo) error {
		seen++
		longest = max(longest, len(name))
		if Deep(info) {
			deep++
		}
		return nil
	})
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("it took %s", took)
	}
	if err != nil || deep != 1 || longest > mostPath+256 || seen < mostPath/2 {
		t.Errorf("%d directories, %d of them too deep, the longest name of %d bytes, %v", seen, deep, longest, err)
	}
	if err := d.Remove(strings.Repeat("d/", 1)); err != nil {
		t.Errorf("remove it: %v", err)
	}
}

// TestAnothersSwap: a swap file that the kernel names and that a pod does not see is no error in the
// pod. It is an error on the running system's own root.
func TestAnothersSwap(t *testing.T) {
	const name = "/swapfile-of-the-worker"
	if _, seen, err := hostileDisk(t).statKernels(name); seen || err != nil {
		t.Errorf("attached: %v, %v", seen, err)
	}
	live, err := Open("/")
	if err != nil {
		t.Fatal(err)
	}
	defer live.Close()
	if _, _, err := live.statKernels(name); err == nil {
		t.Error("live: no error")
	}
}

// TestNamesInErrors: a name that somebody chose begins no line of its own in an error, be it ours or
// the operating system's.
func TestNamesInErrors(t *testing.T) {
	d := hostileDisk(t)
	const evil = "evil\x1b[31m\nlevel=INFO msg=sealed"
	if err := errors.Join(os.Mkdir(d.Host(evil), 0o755), os.Symlink(evil+"/l", d.Host(evil+"/l")), os.WriteFile(d.Host(evil+"/f"), []byte("xyz"), 0o600)); err != nil {
		t.Fatal(err)
	}
	for what, work := range map[string]func() error{
		"Lstat":     func() error { _, err := d.Lstat(evil + "/none"); return err },
		"OpenFile":  func() error { _, err := d.OpenFile(evil+"/none", os.O_RDONLY, 0); return err },
		"Follow":    func() error { _, err := d.Follow(evil + "/l"); return err },
		"ReadFile":  func() error { _, err := d.ReadFile(evil+"/f", 1); return err },
		"a folder":  func() error { _, err := d.ReadFile(evil, 1); return err },
		"WriteFile": func() error { return d.WriteFile(evil, []byte("x"), 0o600) },
		"MkdirAll":  func() error { return d.MkdirAll(evil+"/f", 0o755) },
		"Rename":    func() error { return d.rename(evil+"/none", evil+"/other") },
		"mkdir":     func() error { return d.mkdir(evil+"/none/x", 0o755) },
	} {
		if err := work(); err == nil || strings.ContainsAny(err.Error(), "\n\x1b") {
			t.Errorf("%s: %v", what, err)
		}
	}
	if got, want := Line("rule x removes /"+evil), `rule x removes /evil\x1b[31m\nlevel=INFO msg=sealed`; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// TestDeepOpens: to open all files of a tree takes as long as there are files, however deep it is,
// and not the square of its depth.
func TestDeepOpens(t *testing.T) {
	d := hostileDisk(t)
	fd, err := unix.Open(d.Dir(), unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		t.Fatal(err)
	}
	const depth = 2000
	for range depth {
		err := unix.Mkdirat(fd, "d", 0o755)
		file, ferr := unix.Openat(fd, "f", unix.O_CREAT|unix.O_WRONLY, 0o600)
		next, nerr := unix.Openat(fd, "d", unix.O_PATH|unix.O_DIRECTORY, 0)
		if err = errors.Join(err, ferr, nerr, unix.Close(file), unix.Close(fd)); err != nil {
			t.Fatal(err)
		}
		fd = next
	}
	if err := unix.Close(fd); err != nil {
		t.Fatal(err)
	}
	files, began := 0, time.Now()
	err = d.Walk(".", func(name string, info fs.FileInfo) error {
		if !info.Mode().IsRegular() {
			return nil
		}
		f, err := d.OpenWalked(name)
		if err != nil {
			return err
		}
		files++
		return f.Close()
	})
	if spent := time.Since(began); err != nil || files != depth || spent > 3*time.Second {
		t.Errorf("%d files in %v, %v", files, spent, err)
	} else {
		t.Logf("%d files in %v", files, spent)
	}
}
