package disk

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// ErrMounted is the error of a removal or an overwriting that came to a place where something else
// is mounted.
var ErrMounted = errors.New("something else is mounted there")

// Remove removes name, and what is in it when it is a directory. What is absent is removed already.
// It never leaves the mount on which name lies: ErrMounted. An empty directory on which something
// is mounted stays: syscall.EBUSY, once the rest is removed.
func (d *Disk) Remove(name string) error {
	at, err := d.Resolve(name)
	if err != nil {
		return absent(err)
	}
	if _, err := d.lstat(at); err != nil {
		return absent(err) // also where the file system is read-only
	}
	if _, rest := d.in(at); rest == "." {
		return fmt.Errorf("remove %s: %w", Shown(name), ErrMounted)
	}
	dir, err := d.openFile(path.Dir(at), os.O_RDONLY|syscall.O_DIRECTORY, 0)
	if err != nil {
		return fmt.Errorf("remove %s: %w", Shown(name), err)
	}
	defer dir.Close()
	mount, err := mountID(int(dir.Fd()))
	if err == nil {
		err = d.removeAt(int(dir.Fd()), at, mount)
	}
	if err != nil {
		return fmt.Errorf("remove %s: %w", Shown(name), err)
	}
	return nil
}

// removeAt removes the last component of name from the directory dir. It holds a descriptor per
// level, so nothing that is renamed meanwhile leads it elsewhere.
func (d *Disk) removeAt(dir int, name string, mount uint64) error {
	if err := d.About("remove", name); err != nil {
		return err
	}
	base := path.Base(name)
	err := unix.Unlinkat(dir, base, 0)
	if err == nil || errors.Is(err, unix.ENOENT) {
		return nil
	}
	// EISDIR is Linux's, EPERM POSIX's (unlink(2)); a mount point, be it a file's, is EBUSY.
	if !errors.Is(err, unix.EISDIR) && !errors.Is(err, unix.EPERM) {
		return at(name, err)
	}
	fd, oerr := unix.Openat(dir, base, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if oerr != nil {
		return at(name, err)
	}
	inside := os.NewFile(uintptr(fd), name)
	defer inside.Close()
	here, err := mountID(fd)
	if err != nil {
		return at(name, err)
	}
	if here != mount {
		return at(name, ErrMounted)
	}
	entries, err := inside.Readdirnames(-1)
	if err != nil {
		return err
	}
	var busy error
	for _, e := range entries {
		err := d.removeAt(fd, path.Join(name, e), mount)
		if errors.Is(err, unix.EBUSY) {
			busy = err
		} else if err != nil {
			return err
		}
	}
	if busy != nil {
		return busy
	}
	if err := unix.Unlinkat(dir, base, unix.AT_REMOVEDIR); err != nil && !errors.Is(err, unix.ENOENT) {
		return at(name, err)
	}
	return nil
}

func at(name string, err error) error { return fmt.Errorf("/%s: %w", Shown(name), err) }

// mountID tells the mount through which a descriptor was opened, by the id that mountinfo has for
// it. statx knows it since Linux 5.8, /proc/self/fdinfo since 3.15 (proc(5)).
func mountID(fd int) (uint64, error) {
	var st unix.Statx_t
	if err := unix.Statx(fd, "", unix.AT_EMPTY_PATH|unix.AT_STATX_DONT_SYNC, unix.STATX_MNT_ID, &st); err == nil &&
		st.Mask&unix.STATX_MNT_ID != 0 {
		return st.Mnt_id, nil
	}
	text, err := os.ReadFile(fmt.Sprintf("/proc/self/fdinfo/%d", fd))
	if err != nil {
		return 0, fmt.Errorf("find mount: %w", err)
	}
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, "mnt_id:"); ok {
			return strconv.ParseUint(strings.TrimSpace(value), 10, 64)
		}
	}
	return 0, errors.New("find mount: this kernel does not report the mount of an open file; Linux 5.8 or later is needed")
}

// Overwrite writes zeros over the first most bytes of every file at or below the names, but for
// holes, without a sync. A file that has a further name elsewhere is left alone: its content stays
// on purpose. Where a file system writes zeros to a new place and has no room (an XFS file that
// shares its blocks), it goes on with the others and returns syscall.ENOSPC.
func (d *Disk) Overwrite(most int64, names ...string) error {
	return d.each(names, "overwrite", func(f *os.File, size int64) error { return shred(f, min(size, most)) })
}

// Empty truncates every file at or below the names, so that a process which still has one open
// reads nothing. A file that has a further name elsewhere is left alone.
func (d *Disk) Empty(names ...string) error {
	return d.each(names, "truncate", func(f *os.File, _ int64) error { return f.Truncate(0) })
}

type inode struct{ dev, ino uint64 }

// each opens each regular file all of whose names are at or below names, once, and hands it to
// work.
func (d *Disk) each(names []string, kind string, work func(f *os.File, size int64) error) error {
	links := map[inode]int{}
	files := func(visit func(name string, info fs.FileInfo, st *syscall.Stat_t) error) error {
		for _, name := range names {
			err := d.Walk(name, func(name string, info fs.FileInfo) error {
				st, ok := info.Sys().(*syscall.Stat_t)
				if !ok || !info.Mode().IsRegular() || info.Size() == 0 {
					return nil
				}
				return visit(name, info, st)
			})
			if err != nil {
				return err
			}
		}
		return nil
	}
	err := files(func(_ string, _ fs.FileInfo, st *syscall.Stat_t) error {
		if st.Nlink > 1 {
			links[inode{st.Dev, st.Ino}]++
		}
		return nil
	})
	if err != nil {
		return err
	}
	var full error
	err = files(func(name string, info fs.FileInfo, st *syscall.Stat_t) error {
		if st.Nlink > 1 {
			id := inode{st.Dev, st.Ino}
			if links[id] < int(st.Nlink) {
				return nil
			}
			links[id] = 0 // once is enough
		}
		err := d.change(name, kind, info.Size(), work)
		if errors.Is(err, syscall.ENOSPC) {
			full = at(name, err)
			return nil
		}
		return err
	})
	if err != nil {
		return err
	}
	return full
}

// change opens a file for writing, if it is the directory's own and not one that is mounted over
// it.
func (d *Disk) change(name, kind string, size int64, work func(f *os.File, size int64) error) error {
	f, err := d.openFile(name, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	dir, err := d.openFile(path.Dir(name), os.O_RDONLY|syscall.O_DIRECTORY, 0)
	if err != nil {
		return errors.Join(err, f.Close())
	}
	here, err := mountID(int(f.Fd()))
	there, derr := mountID(int(dir.Fd()))
	err = errors.Join(err, derr, dir.Close())
	if err == nil && here != there {
		err = at(name, ErrMounted)
	}
	if err == nil {
		err = d.About(kind, name)
	}
	if err == nil {
		err = work(f, size)
	}
	return errors.Join(err, f.Close())
}
