package scan

import (
	"bufio"
	"bytes"
	"compress/bzip2"
	"compress/gzip"
	"fmt"
	"io"

	"github.com/klauspost/compress/zstd"
	"github.com/ulikunitz/xz"
)

// windowMost bounds what a decoder remembers, in bytes: xz -9 needs as much. A file is told, not
// scanned, if it needs more.
const windowMost = 64 << 20

// encoding is how a file's bytes hide its text.
type encoding struct {
	name string
	open func(r *bufio.Reader) (io.Reader, func(), error)
}

// encoded recognises an encoding by a file's first bytes, nil if there is none.
func encoded(head []byte) *encoding {
	is := func(sign string) bool { return bytes.HasPrefix(head, []byte(sign)) }
	switch {
	case is("\x1f\x8b\x08"):
		return &encoding{"gzip", func(r *bufio.Reader) (io.Reader, func(), error) {
			z, err := gzip.NewReader(r)
			return z, func() {}, err
		}}
	case is("\xfd7zXZ\x00"):
		return &encoding{"xz", openXZ}
	case is("\x28\xb5\x2f\xfd"):
		return &encoding{"zstd", func(r *bufio.Reader) (io.Reader, func(), error) {
			z, err := zstd.NewReader(r, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(windowMost))
			if err != nil {
				return nil, nil, err
			}
			return z, z.Close, nil
		}}
	case is("BZh") && len(head) >= 10 && string(head[4:10]) == "1AY&SY": // a block's sign; a digest may begin as the file does
		return &encoding{"bzip2", func(r *bufio.Reader) (io.Reader, func(), error) { return bzip2.NewReader(r), func() {}, nil }}
	case is("\xff\xfe\x00\x00"), fourths(head, 0):
		return &encoding{"UTF-32", func(r *bufio.Reader) (io.Reader, func(), error) { return wide{r, 4, 0}, func() {}, nil }}
	case is("\x00\x00\xfe\xff"), fourths(head, 3):
		return &encoding{"UTF-32", func(r *bufio.Reader) (io.Reader, func(), error) { return wide{r, 4, 3}, func() {}, nil }}
	case is("\xff\xfe"), alternates(head, 1):
		return &encoding{"UTF-16", func(r *bufio.Reader) (io.Reader, func(), error) { return wide{r, 2, 0}, func() {}, nil }}
	case is("\xfe\xff"), alternates(head, 0):
		return &encoding{"UTF-16", func(r *bufio.Reader) (io.Reader, func(), error) { return wide{r, 2, 1}, func() {}, nil }}
	}
	return nil
}

// openXZ refuses a dictionary that the memory does not allow; its size is a byte of the first
// block's header (tukaani.org/xz/xz-file-format.txt, sections 3.1 and 5.3.1).
func openXZ(r *bufio.Reader) (io.Reader, func(), error) {
	head, err := r.Peek(17)
	if err != nil {
		return nil, nil, err
	}
	const flagsAt, filterAt, sizeAt = 13, 14, 16
	if head[flagsAt] != 0 && head[flagsAt]&0xc0 == 0 || head[filterAt] != 0x21 && head[flagsAt]&0xc0 == 0 {
		return nil, nil, fmt.Errorf("xz: more than one filter")
	}
	const most = 28 // 64 MiB, that of xz -9
	if head[flagsAt]&0xc0 == 0 && head[sizeAt] > most {
		return nil, nil, fmt.Errorf("xz: dictionary larger than 64 MiB")
	}
	z, err := xz.NewReader(r)
	return z, func() {}, err
}

// alternates tells text in UTF-16 without a byte order mark: every second byte is zero, from the
// one at first.
func alternates(head []byte, first int) bool {
	const least = 16
	n := min(len(head), 256) &^ 1
	if n < least {
		return false
	}
	zero, text := 0, 0
	for i := 0; i < n; i += 2 {
		if head[i+first] == 0 {
			zero++
		}
		if c := head[i+1-first]; c >= ' ' && c <= '~' || c == '\n' || c == '\r' || c == '\t' {
			text++
		}
	}
	return zero >= n/2*9/10 && text >= n/2*9/10
}

// fourths tells text in UTF-32 without a byte order mark: three of four bytes are zero, and the one
// at low is text.
func fourths(head []byte, low int) bool {
	const least = 16
	n := min(len(head), 256) &^ 3
	if n < least {
		return false
	}
	for i := 0; i < n; i += 4 {
		for at := range 4 {
			if c := head[i+at]; at != low && c != 0 || at == low && (c < ' ' && c != '\n' && c != '\r' && c != '\t' || c > '~') {
				return false
			}
		}
	}
	return true
}

// wide gives the Latin part of a text in UTF-16 or UTF-32; everything else becomes a question mark.
// unit is the number of bytes of a character, low says which of them holds the low bits.
type wide struct {
	r         *bufio.Reader
	unit, low int
}

func (w wide) Read(p []byte) (n int, err error) {
	var c [4]byte
	for n < len(p) {
		if _, err := io.ReadFull(w.r, c[:w.unit]); err != nil {
			if err == io.ErrUnexpectedEOF {
				err = io.EOF
			}
			return n, err
		}
		p[n] = c[w.low]
		for i := range w.unit {
			if i != w.low && c[i] != 0 {
				p[n] = '?'
			}
		}
		n++
	}
	return n, nil
}
