package sqlite

import (
	"bytes"
	"encoding/binary"
	"testing"
)

// FuzzLog: a write-ahead log whose checksums are right, with any pages for any numbers. FuzzTable's
// bytes hardly ever have right ones.
func FuzzLog(f *testing.F) {
	const page = 512
	file := make([]byte, 2*page)
	copy(file, "SQLite format 3\x00\x02\x00")
	file[100] = 13
	f.Add(bytes.Clone(file[:page]), uint32(1), uint32(1), false)
	f.Add(bytes.Clone(file[:page]), uint32(2), uint32(0xffffffff), true)
	loop := bytes.Clone(file[:page])
	loop[100], loop[111] = 5, 1
	f.Add(append(loop, loop...), uint32(1), uint32(3), false)
	f.Fuzz(func(_ *testing.T, pages []byte, number, committed uint32, little bool) {
		log, sum := make([]byte, 32), checksum{order: binary.BigEndian}
		binary.BigEndian.PutUint32(log, 0x377f0683)
		if little {
			binary.BigEndian.PutUint32(log, 0x377f0682)
			sum.order = binary.LittleEndian
		}
		binary.BigEndian.PutUint32(log[8:], page)
		sum.add(log[:24])
		put := func(to []byte) {
			binary.BigEndian.PutUint32(to, sum.a)
			binary.BigEndian.PutUint32(to[4:], sum.b)
		}
		put(log[24:])
		for ; len(pages) >= page; pages = pages[page:] {
			frame := make([]byte, 24)
			binary.BigEndian.PutUint32(frame, number)
			binary.BigEndian.PutUint32(frame[4:], committed)
			sum.add(frame[:8])
			sum.add(pages[:page])
			put(frame[16:])
			log = append(append(log, frame...), pages[:page]...)
			number++
		}
		db, err := Open(bytes.NewReader(file), int64(len(file)), bytes.NewReader(log))
		if err != nil {
			return
		}
		_ = db.Table("Packages", func([]Value) error { return nil })
	})
}
