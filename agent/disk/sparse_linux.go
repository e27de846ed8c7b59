package disk

import (
	"errors"
	"io/fs"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// Holes is how much of a file takes no place on the disk, in bytes.
func Holes(info fs.FileInfo) int64 {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0
	}
	return max(info.Size()-st.Blocks*512, 0)
}

// Extents visits the parts of a file that hold data, as offset and length, with as many zeros around
// each as the caller wants. A hole costs nothing to make, and to read one of terabytes takes longer
// than a seal may. A file system that knows no holes (lseek(2)) has one part, and so has a file that
// takes all of its size on the disk.
func Extents(f *os.File, info fs.FileInfo, around int64, visit func(at, size int64) error) error {
	size := info.Size()
	if Holes(info) == 0 {
		return visit(0, size)
	}
	var from, to int64 // what is not visited yet
	for at := int64(0); at < size; {
		start, err := unix.Seek(int(f.Fd()), at, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) {
			break // a hole up to the end
		}
		if err != nil {
			return visit(from, size-from)
		}
		end, err := unix.Seek(int(f.Fd()), start, unix.SEEK_HOLE)
		if err != nil {
			return err
		}
		at = end
		if start -= around; start > to {
			if to > from {
				if err := visit(from, to-from); err != nil {
					return err
				}
			}
			from = start
		}
		to = min(end+around, size)
	}
	if to > from {
		return visit(from, to-from)
	}
	return nil
}
