package disk

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// Locks are inode flags of linux/fs.h under which not even root may overwrite, truncate, rename or
// remove a file, nor put names into a directory or take them out: FS_IMMUTABLE_FL and FS_APPEND_FL,
// chattr(1)'s i and a.
type Locks uint32

const (
	immutable  Locks = 0x10 // FS_IMMUTABLE_FL
	appendOnly Locks = 0x20 // FS_APPEND_FL
)

// String is what chattr(1) calls the flags: "i", "a" or "ia"; empty without one.
func (l Locks) String() string {
	var text string
	if l&immutable != 0 {
		text += "i"
	}
	if l&appendOnly != 0 {
		text += "a"
	}
	return text
}

// Locks reads the flags of a file or directory, whose name must be free of links, as Walk and Glob
// give it. What has none to tell, a link or a file system that knows no flags, has none set.
func (d *Disk) Locks(name string, info fs.FileInfo) (Locks, error) {
	if !info.IsDir() && !info.Mode().IsRegular() {
		return 0, nil
	}
	f, err := d.hold(name, os.O_RDONLY)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	flags, err := unix.IoctlGetInt(int(f.Fd()), unix.FS_IOC_GETFLAGS)
	if errors.Is(err, syscall.ENOTTY) || errors.Is(err, syscall.EOPNOTSUPP) || errors.Is(err, syscall.EINVAL) {
		return 0, nil
	}
	return Locks(flags) & (immutable | appendOnly), err
}

// Unlock takes those flags off everything at and below name. It goes on after an error and returns
// all of them.
func (d *Disk) Unlock(name string) error {
	var failed error
	walked := d.Walk(name, func(name string, info fs.FileInfo) error {
		locks, err := d.Locks(name, info)
		if err == nil && locks != 0 {
			err = d.unlock(name)
		}
		failed = errors.Join(failed, err)
		return nil
	})
	return errors.Join(failed, walked)
}

func (d *Disk) unlock(name string) error {
	f, err := d.hold(name, os.O_RDONLY)
	if err != nil {
		return err
	}
	defer f.Close()
	flags, err := unix.IoctlGetInt(int(f.Fd()), unix.FS_IOC_GETFLAGS)
	if err != nil {
		return fmt.Errorf("read flags of /%s: %w", Shown(name), err)
	}
	// The ioctl takes a pointer to an int (ioctl_iflags(2)).
	if err := unix.IoctlSetPointerInt(int(f.Fd()), unix.FS_IOC_SETFLAGS, flags&^int(immutable|appendOnly)); err != nil {
		return fmt.Errorf("clear flags of /%s: %w", Shown(name), err)
	}
	return nil
}

// TryWrite opens a regular file, whose name must be free of links, as Overwrite will, and writes
// nothing. A program that is running gives syscall.ETXTBSY, a read-only file system syscall.EROFS.
func (d *Disk) TryWrite(name string) error {
	f, err := d.hold(name, os.O_WRONLY)
	if err != nil {
		return err
	}
	return f.Close()
}

// hold resolves nothing: in a deep tree the walk over all of a name's directories, for each of
// them, would take minutes.
func (d *Disk) hold(name string, flag int) (*os.File, error) {
	return d.openFile(clean(name), flag|syscall.O_NONBLOCK, 0)
}

// Free is how many bytes root may still write to the file system that holds name.
func (d *Disk) Free(name string) (int64, error) {
	f, err := d.hold(name, os.O_RDONLY)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	var st unix.Statfs_t
	if err := unix.Fstatfs(int(f.Fd()), &st); err != nil {
		return 0, fmt.Errorf("read free space of /%s: %w", Shown(name), err)
	}
	return int64(st.Bfree) * st.Bsize, nil
}
