// Package sqlite reads the rows of a table of a SQLite database: enough for a package manager's,
// without the megabytes of a whole SQLite. It follows https://www.sqlite.org/fileformat2.html,
// reads the write-ahead log as well, writes nothing and takes no lock: whoever reads a database
// that is being written must be ready for an error, and for reading it again.
package sqlite

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
)

// Value is one column of a row.
type Value struct {
	Int   int64
	Bytes []byte // of a text or blob; valid until the visit returns
}

// DB is an open database.
type DB struct {
	file   io.ReaderAt
	size   int // of a page
	usable int // of a page without what extensions reserve
	pages  uint32
	log    io.ReaderAt
	logged map[uint32]int64 // page number → offset of its last committed copy in the log
}

// payloadMost bounds a row, against databases that are none.
const payloadMost = 64 << 20

var errCorrupt = errors.New("corrupt SQLite database")

// Open reads the header. log is the write-ahead log beside the file, nil where there is none; size
// is the file's.
func Open(file io.ReaderAt, size int64, log io.ReaderAt) (*DB, error) {
	db := &DB{file: file, log: log, logged: map[uint32]int64{}}
	var head [100]byte
	if _, err := file.ReadAt(head[:], 0); err != nil {
		return nil, fmt.Errorf("read SQLite header: %w", err)
	}
	if string(head[:16]) != "SQLite format 3\x00" {
		return nil, errors.New("no SQLite database")
	}
	db.size = int(binary.BigEndian.Uint16(head[16:]))
	if db.size == 1 {
		db.size = 1 << 16
	}
	if db.size < 512 || db.size&(db.size-1) != 0 {
		return nil, fmt.Errorf("%w: pages of %d bytes", errCorrupt, db.size)
	}
	db.usable = db.size - int(head[20])
	if db.usable < 480 {
		return nil, fmt.Errorf("%w: pages of %d usable bytes", errCorrupt, db.usable)
	}
	if size/int64(db.size) > math.MaxUint32-1 {
		return nil, fmt.Errorf("%w: of %d bytes", errCorrupt, size)
	}
	db.pages = uint32(size / int64(db.size))
	return db, db.readLog()
}

// readLog finds the last committed copy of each page in the write-ahead log. Frames of an earlier
// use of the log have other salts or a wrong checksum, and end it.
func (db *DB) readLog() error {
	const frameHead = 24
	if db.log == nil {
		return nil
	}
	var head [32]byte
	if n, _ := db.log.ReadAt(head[:], 0); n < len(head) {
		return nil // empty: everything is in the file
	}
	magic := binary.BigEndian.Uint32(head[:])
	var order binary.ByteOrder = binary.LittleEndian
	switch magic {
	case 0x377f0682:
	case 0x377f0683:
		order = binary.BigEndian
	default:
		return fmt.Errorf("%w: write-ahead log with magic %#x", errCorrupt, magic)
	}
	if int(binary.BigEndian.Uint32(head[8:])) != db.size {
		return fmt.Errorf("%w: the write-ahead log has other pages", errCorrupt)
	}
	s := checksum{order: order}
	if s.add(head[:24]); !s.is(head[24:]) {
		return nil // a header that was not finished
	}
	frame := make([]byte, frameHead+db.size)
	pending := map[uint32]int64{}
	for at := int64(32); ; at += int64(len(frame)) {
		if n, _ := db.log.ReadAt(frame, at); n < len(frame) {
			return nil
		}
		if string(frame[8:16]) != string(head[16:24]) {
			return nil
		}
		s.add(frame[:8])
		if s.add(frame[frameHead:]); !s.is(frame[16:]) {
			return nil
		}
		pending[binary.BigEndian.Uint32(frame)] = at + frameHead
		if committed := binary.BigEndian.Uint32(frame[4:]); committed > 0 {
			db.pages = committed
			for number, offset := range pending {
				db.logged[number] = offset
			}
			clear(pending)
		}
	}
}

// checksum is the log's, over pairs of words.
type checksum struct {
	order binary.ByteOrder
	a, b  uint32
}

func (s *checksum) add(data []byte) {
	for ; len(data) >= 8; data = data[8:] {
		s.a += s.order.Uint32(data) + s.b
		s.b += s.order.Uint32(data[4:]) + s.a
	}
}

func (s *checksum) is(data []byte) bool {
	return s.a == binary.BigEndian.Uint32(data) && s.b == binary.BigEndian.Uint32(data[4:])
}

func (db *DB) page(number uint32) ([]byte, error) {
	if number == 0 || number > db.pages {
		return nil, fmt.Errorf("%w: page %d of %d", errCorrupt, number, db.pages)
	}
	from, at := db.file, int64(number-1)*int64(db.size)
	if offset, ok := db.logged[number]; ok {
		from, at = db.log, offset
	}
	data := make([]byte, db.size)
	if n, err := from.ReadAt(data, at); n < len(data) {
		return nil, fmt.Errorf("read page %d: %w", number, err)
	}
	return data, nil
}

// Table visits every row of a table in the order of row numbers. A table that does not exist is an
// error.
func (db *DB) Table(name string, visit func(row []Value) error) error {
	var root uint32
	left := int64(db.pages) // a tree has each page once
	err := db.walk(1, &left, func(row []Value) error {
		if len(row) >= 4 && string(row[0].Bytes) == "table" && string(row[1].Bytes) == name {
			root = uint32(row[3].Int)
		}
		return nil
	})
	if err != nil {
		return err
	}
	if root == 0 {
		return fmt.Errorf("there is no table %s", name)
	}
	left = int64(db.pages)
	return db.walk(root, &left, visit)
}

// walk visits the rows of a table's b-tree of at most so many pages.
func (db *DB) walk(number uint32, left *int64, visit func([]Value) error) error {
	if *left--; *left < 0 {
		return fmt.Errorf("%w: a table has more pages than the database", errCorrupt)
	}
	page, err := db.page(number)
	if err != nil {
		return err
	}
	head := page
	if number == 1 {
		head = page[100:]
	}
	const interior, leaf = 5, 13
	kind, cells := head[0], int(binary.BigEndian.Uint16(head[3:]))
	pointers := head[8:]
	if kind == interior {
		pointers = head[12:]
	} else if kind != leaf {
		return fmt.Errorf("%w: page %d of kind %d in a table", errCorrupt, number, kind)
	}
	if len(pointers) < 2*cells {
		return fmt.Errorf("%w: page %d has %d cells", errCorrupt, number, cells)
	}
	for i := range cells {
		at := int(binary.BigEndian.Uint16(pointers[2*i:]))
		if at+4 > db.usable {
			return fmt.Errorf("%w: cell at %d of page %d", errCorrupt, at, number)
		}
		if kind == interior {
			err = db.walk(binary.BigEndian.Uint32(page[at:]), left, visit)
		} else {
			err = db.row(page[at:db.usable], visit)
		}
		if err != nil {
			return err
		}
	}
	if kind == interior {
		return db.walk(binary.BigEndian.Uint32(head[8:]), left, visit)
	}
	return nil
}

// row reads a cell of a leaf: payload size, row number, payload, and the first overflow page if it
// does not fit.
func (db *DB) row(cell []byte, visit func([]Value) error) error {
	size, n := varint(cell)
	_, m := varint(cell[n:])
	cell = cell[n+m:]
	if n == 0 || m == 0 || size > payloadMost {
		return fmt.Errorf("%w: row of %d bytes", errCorrupt, size)
	}
	payload, err := db.payload(cell, int(size))
	if err != nil {
		return err
	}
	row, err := record(payload)
	if err != nil {
		return err
	}
	return visit(row)
}

func (db *DB) payload(cell []byte, size int) ([]byte, error) {
	local := size
	if most := db.usable - 35; size > most {
		least := (db.usable-12)*32/255 - 23
		if local = least + (size-least)%(db.usable-4); local > most {
			local = least
		}
	}
	if local == size {
		if size > len(cell) {
			return nil, fmt.Errorf("%w: row behind its page", errCorrupt)
		}
		return cell[:size], nil
	}
	if local+4 > len(cell) {
		return nil, fmt.Errorf("%w: row behind its page", errCorrupt)
	}
	out := make([]byte, 0, size)
	out = append(out, cell[:local]...)
	next := binary.BigEndian.Uint32(cell[local:])
	for len(out) < size {
		page, err := db.page(next)
		if err != nil {
			return nil, err
		}
		next = binary.BigEndian.Uint32(page)
		out = append(out, page[4:4+min(size-len(out), db.usable-4)]...)
	}
	return out, nil
}

// record splits a payload into its columns: a header of serial types, then the values.
func record(payload []byte) (row []Value, err error) {
	headSize, n := varint(payload)
	if n == 0 || headSize > uint64(len(payload)) || headSize < uint64(n) {
		return nil, fmt.Errorf("%w: record header of %d bytes", errCorrupt, headSize)
	}
	head, body := payload[n:headSize], payload[headSize:]
	for len(head) > 0 {
		kind, n := varint(head)
		if n == 0 {
			return nil, fmt.Errorf("%w: record header", errCorrupt)
		}
		head = head[n:]
		size := serialSize(kind)
		if size > uint64(len(body)) {
			return nil, fmt.Errorf("%w: column of %d bytes", errCorrupt, size)
		}
		row = append(row, value(kind, body[:size]))
		body = body[size:]
	}
	return row, nil
}

func serialSize(kind uint64) uint64 {
	if kind >= 12 {
		return (kind - 12) / 2
	}
	return [12]uint64{0, 1, 2, 3, 4, 6, 8, 8, 0, 0, 0, 0}[kind]
}

func value(kind uint64, data []byte) Value {
	switch {
	case kind >= 12:
		return Value{Bytes: data}
	case kind == 9:
		return Value{Int: 1}
	case kind == 0 || kind > 6: // NULL, floats, which nobody here needs, and the constant 0
		return Value{}
	}
	v := int64(int8(data[0]))
	for _, b := range data[1:] {
		v = v<<8 | int64(b)
	}
	return Value{Int: v}
}

// varint reads SQLite's: up to nine bytes, the most significant first. n is 0 when it is cut short.
func varint(data []byte) (v uint64, n int) {
	for i := range min(len(data), 9) {
		if i == 8 {
			return v<<8 | uint64(data[i]), 9
		}
		v = v<<7 | uint64(data[i]&0x7f)
		if data[i] < 0x80 {
			return v, i + 1
		}
	}
	return 0, 0
}
