package scan

import (
	"io"
	"os"

	"kamino.dev/kamino/agent/disk"
)

// aroundData is how much of the zeros on both sides of data is read with it: patterns look at what
// stands before and behind.
const aroundData = 4096

// data reports the matches in a file's data, in the order of their offsets.
func (m *matcher) data(f *os.File, buf []byte, in *inside, report func(hit)) (total int64, err error) {
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	err = disk.Extents(f, info, aroundData, func(at, size int64) error {
		n, err := m.stream(io.NewSectionReader(f, at, size), buf, in, 0, func(h hit) {
			h.offset += at
			report(h)
		})
		total += n
		return err
	})
	return total, err
}
