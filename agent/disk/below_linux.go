package disk

import (
	"errors"
	"io/fs"
	"os"
	"path"

	"golang.org/x/sys/unix"
)

// topOf opens a directory for openBelow; nil where that fails.
func topOf(dir string) *os.File {
	f, err := os.OpenFile(dir, unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil
	}
	return f
}

// openBelow opens for reading what has no link on the way, in one call (openat2(2), Linux 5.6): an
// os.Root opens each directory of a name by itself, which for all of a deep tree takes the square of
// its depth. ok is false where os.Root has to do it.
func (v *view) openBelow(name string, flag int) (f *os.File, ok bool, err error) {
	if v.top == nil || flag&(os.O_WRONLY|os.O_RDWR|os.O_CREATE|os.O_TRUNC|unix.O_DIRECTORY) != 0 {
		return nil, false, nil
	}
	how := unix.OpenHow{Flags: uint64(flag | unix.O_CLOEXEC), Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS}
	fd, err := unix.Openat2(int(v.top.Fd()), name, &how)
	if errors.Is(err, unix.ENOENT) {
		return nil, true, &fs.PathError{Op: "openat2", Path: name, Err: err}
	}
	if err != nil {
		return nil, false, nil
	}
	return os.NewFile(uintptr(fd), path.Join(v.root.Name(), name)), true, nil
}
