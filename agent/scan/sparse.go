package scan

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// aroundData is how much of the zeros on both sides of data is read with it: patterns look at what
// stands before and behind.
const aroundData = 4096

// extents visits the parts of a file that hold data, as offset and length. A hole costs nothing to
// make, and to read one of terabytes takes longer than a seal may. A file system that knows no
// holes (lseek(2)) has one part, and so has a file that takes all of its size on the disk.
func extents(f *os.File, info fs.FileInfo, visit func(at, size int64) error) error {
	size := info.Size()
	if st, ok := info.Sys().(*syscall.Stat_t); !ok || st.Blocks*512 >= size {
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
		if start -= aroundData; start > to {
			if to > from {
				if err := visit(from, to-from); err != nil {
					return err
				}
			}
			from = start
		}
		to = min(end+aroundData, size)
	}
	if to > from {
		return visit(from, to-from)
	}
	return nil
}

// data reports the matches in a file's data, in the order of their offsets.
func (m *matcher) data(f *os.File, buf []byte, in *inside, report func(hit)) (total int64, err error) {
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	err = extents(f, info, func(at, size int64) error {
		n, err := m.stream(io.NewSectionReader(f, at, size), buf, in, 0, func(h hit) {
			h.offset += at
			report(h)
		})
		total += n
		return err
	})
	return total, err
}
