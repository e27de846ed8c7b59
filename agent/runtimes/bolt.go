package runtimes

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"os"
	"syscall"

	"kamino.dev/kamino/agent/disk"
)

// A reader of Bolt databases (https://github.com/etcd-io/bbolt,
// internal/common/{page,meta,bucket}.go) of its own: the library takes a lock that the owner of the
// database holds, maps the file, and panics or runs in circles where a page is damaged. Numbers are
// in the machine's order, which is little-endian wherever Kamino runs.

const (
	boltMagic   = 0xed0cdaed
	boltVersion = 2

	boltHeader  = 16 // id, flags, count, overflow
	boltMeta    = 64
	boltElement = 16
	boltBranch  = 0x01
	boltLeaf    = 0x02
	boltNested  = 0x01 // flag of a leaf's element: a bucket

	boltDeepest = 32
)

// database is one state of a database that may be written to meanwhile.
type database struct {
	file io.ReaderAt
	size int64
	page int64 // bytes
	root uint64
	// Pages and elements that may still be read: more than there can be means that pages refer to
	// each other.
	reads, elements int64
}

// bucket is a bucket: its top page, or the page itself where it is small enough to lie in its
// parent.
type bucket struct {
	db     *database
	page   uint64
	inline []byte
}

// view reads a database of which the owner may be running. Bolt writes no page that a committed
// transaction refers to (copy-on-write): when the two meta pages are the same before and after,
// what was read is that transaction's state. Read starts anew each time. A database that does not
// exist has no buckets.
func view[T any](d *disk.Disk, name string, read func(root *bucket) (T, error)) (out T, err error) {
	const tries = 20
	if !d.Exists(name) {
		return out, nil
	}
	f, err := openDatabase(d, name)
	if err != nil {
		return out, err
	}
	defer f.Close()
	for range tries {
		var before metas
		if before, err = metaPages(f); err != nil {
			break
		}
		out, err = viewOnce(f, before, read)
		if after, aerr := metaPages(f); aerr == nil && before == after {
			break
		}
		err = errors.New("it is written to all the time")
	}
	if err != nil {
		return out, fmt.Errorf("read /%s: %w", name, err)
	}
	return out, nil
}

// openDatabase does not block where a user has put a pipe.
func openDatabase(d *disk.Disk, name string) (*os.File, error) {
	f, err := d.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("read /%s: no regular file", name)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// metas is what there is where a meta page may be: at the beginning of the file, and at that of its
// second page, of which the size is the machine's where the database was made.
type metas [9][boltHeader + boltMeta]byte

func metaPages(f io.ReaderAt) (all metas, err error) {
	for i := range all {
		if _, rerr := f.ReadAt(all[i][:], metaAt(i)); !errors.Is(rerr, io.EOF) {
			err = errors.Join(err, rerr)
		}
	}
	return all, err
}

func metaAt(i int) int64 {
	if i == 0 {
		return 0
	}
	return 256 << i // 512 to 64 KiB
}

func viewOnce[T any](f *os.File, meta metas, read func(*bucket) (T, error)) (out T, err error) {
	info, err := f.Stat()
	if err != nil {
		return out, err
	}
	db, err := openBolt(f, info.Size(), meta)
	if err != nil {
		return out, err
	}
	return read(&bucket{db: db, page: db.root})
}

// openBolt takes the newer of the two meta pages. The second one is where the first one's size of a
// page says, or where its own says, should the first one be the damaged one.
func openBolt(file io.ReaderAt, size int64, meta metas) (*database, error) {
	var newest uint64
	db := &database{file: file, size: size}
	for i := range meta {
		b := meta[i][boltHeader:]
		sum := fnv.New64a()
		sum.Write(b[:56])
		if binary.LittleEndian.Uint32(b) != boltMagic || binary.LittleEndian.Uint32(b[4:]) != boltVersion ||
			binary.LittleEndian.Uint64(b[56:]) != sum.Sum64() {
			continue
		}
		page, id := int64(binary.LittleEndian.Uint32(b[8:])), binary.LittleEndian.Uint64(b[48:])
		if page < 512 || page > 64<<10 || i > 0 && page != metaAt(i) || db.page != 0 && (page != db.page || id <= newest) {
			continue
		}
		newest, db.page, db.root = id, page, binary.LittleEndian.Uint64(b[16:])
	}
	if db.page == 0 {
		return nil, errors.New("not a Bolt database")
	}
	db.reads, db.elements = 16*(size/db.page)+1024, size // each is looked at a few times, and takes 16 bytes and more
	return db, nil
}

var errBolt = errors.New("a page of the Bolt database is damaged")

// load reads a page with those that it overflows into.
func (db *database) load(id uint64) ([]byte, error) {
	if db.reads--; db.reads < 0 || id > uint64(db.size/db.page) {
		return nil, errBolt
	}
	at := int64(id) * db.page
	var head [boltHeader]byte
	if _, err := db.file.ReadAt(head[:], at); err != nil {
		return nil, errors.Join(errBolt, err)
	}
	if binary.LittleEndian.Uint64(head[:]) != id {
		return nil, errBolt
	}
	n := (int64(binary.LittleEndian.Uint32(head[12:])) + 1) * db.page
	if n > db.size-at {
		return nil, errBolt
	}
	p := make([]byte, n)
	_, err := db.file.ReadAt(p, at)
	return p, err
}

// each visits the elements of a bucket in order: a value, or a bucket.
func (b *bucket) each(visit func(key, value []byte, nested *bucket) error) error {
	if b == nil {
		return nil
	}
	if b.inline != nil {
		return b.db.walk(b.inline, boltDeepest, visit)
	}
	return b.db.walkPage(b.page, 0, visit)
}

func (db *database) walkPage(id uint64, depth int, visit func(key, value []byte, nested *bucket) error) error {
	if depth >= boltDeepest {
		return errBolt
	}
	p, err := db.load(id)
	if err != nil {
		return err
	}
	return db.walk(p, depth, visit)
}

func (db *database) walk(p []byte, depth int, visit func(key, value []byte, nested *bucket) error) error {
	if len(p) < boltHeader {
		return errBolt
	}
	kind, count := binary.LittleEndian.Uint16(p[8:]), int(binary.LittleEndian.Uint16(p[10:]))
	if kind != boltBranch && kind != boltLeaf { // of zeros, it would be an empty bucket
		return errBolt
	}
	for i := range count {
		at := boltHeader + i*boltElement
		if db.elements--; db.elements < 0 || at+boltElement > len(p) {
			return errBolt
		}
		e := p[at:]
		var err error
		if kind == boltBranch {
			err = db.walkPage(binary.LittleEndian.Uint64(e[8:]), depth+1, visit)
		} else {
			err = db.leaf(e, visit)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// leaf visits the element at the start of e: flags, the key's place from here, the lengths of key
// and value.
func (db *database) leaf(e []byte, visit func(key, value []byte, nested *bucket) error) error {
	pos, keys, values := uint64(binary.LittleEndian.Uint32(e[4:])), uint64(binary.LittleEndian.Uint32(e[8:])),
		uint64(binary.LittleEndian.Uint32(e[12:]))
	if pos+keys+values > uint64(len(e)) {
		return errBolt
	}
	key, value := e[pos:pos+keys], e[pos+keys:pos+keys+values]
	if binary.LittleEndian.Uint32(e)&boltNested == 0 {
		return visit(key, value, nil)
	}
	if len(value) < 16 {
		return errBolt
	}
	nested := &bucket{db: db, page: binary.LittleEndian.Uint64(value)}
	if nested.page == 0 {
		nested.inline = value[16:]
	}
	return visit(key, nil, nested)
}

// buckets visits the buckets in b.
func (b *bucket) buckets(visit func(name string, nested *bucket) error) error {
	return b.each(func(key, _ []byte, nested *bucket) error {
		if nested == nil {
			return nil
		}
		return visit(string(key), nested)
	})
}

// in is the bucket at a path of names below b; nil where there is none.
func (b *bucket) in(names ...string) (found *bucket, err error) {
	found = b
	for _, name := range names {
		var next *bucket
		err = errors.Join(err, found.buckets(func(n string, nested *bucket) error {
			if n == name {
				next = nested
			}
			return nil
		}))
		found = next
	}
	return found, err
}

// values are the values in b, by key.
func (b *bucket) values() (map[string][]byte, error) {
	out := map[string][]byte{}
	err := b.each(func(key, value []byte, nested *bucket) error {
		if nested == nil {
			out[string(key)] = value
		}
		return nil
	})
	return out, err
}
