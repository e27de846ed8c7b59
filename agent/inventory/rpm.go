package inventory

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path"

	"kamino.dev/kamino/agent/disk"
	"kamino.dev/kamino/agent/sqlite"
)

// Where rpm keeps its database (rpm --eval %_dbpath), in the format of rpm 4.16 and later.
var rpmPaths = []string{"var/lib/rpm/rpmdb.sqlite", "usr/lib/sysimage/rpm/rpmdb.sqlite"}

// rpmOthers are databases of other formats: Berkeley DB of rpm before 4.16 (Amazon Linux 2, RHEL
// 8), and ndb (SUSE).
var rpmOthers = []string{"var/lib/rpm/Packages", "var/lib/rpm/Packages.db", "usr/lib/sysimage/rpm/Packages",
	"usr/lib/sysimage/rpm/Packages.db"}

// readRPM reads rpm's database: a header for each package, with the digest of each file.
func readRPM(o *owners, d *disk.Disk, dirs *resolver) error {
	for _, name := range rpmPaths {
		if !d.Exists(name) {
			continue
		}
		from := len(o.files)
		err := rpmHeaders(d, name, func(h header) error {
			return h.files(func(listed string, kind kind, config bool, digest string) {
				o.addHex(dirs.name(listed), kind, config, digest)
			})
		})
		if err != nil {
			o.files = o.files[:from]
			return fmt.Errorf("read /%s: %w; the files of its packages are unknown", name, err)
		}
		o.rpm = true
		return nil
	}
	for _, name := range rpmOthers {
		if d.Exists(name) {
			return fmt.Errorf("/%s: an rpm database of a format that is not supported (only SQLite is); the files of its packages are unknown", name)
		}
	}
	return nil
}

// rpmHeaders visits the header of every package of a database.
func rpmHeaders(d *disk.Disk, name string, visit func(header) error) error {
	return readTable(d, name, "Packages", func(row []sqlite.Value) error {
		if len(row) < 2 {
			return errors.New("a package without a header")
		}
		h, err := parseHeader(row[1].Bytes)
		if err != nil {
			return err
		}
		return visit(h)
	})
}

// errJournal is a database with a rollback journal: a change of it did not end
// (https://www.sqlite.org/fileformat2.html#hotjrnl).
var errJournal = errors.New("a change of it was not finished")

// readTable visits the rows of a table of a database of SQLite, its write-ahead log included.
func readTable(d *disk.Disk, name, table string, visit func([]sqlite.Value) error) error {
	f, err := d.OpenFile(name, os.O_RDONLY, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	if info, err := d.Lstat(name + "-journal"); err == nil && info.Size() > 0 {
		return errJournal
	}
	info, err := f.Stat()
	if err != nil {
		return err
	}
	var log io.ReaderAt
	if d.Exists(name + "-wal") {
		f, err := d.OpenFile(name+"-wal", os.O_RDONLY, 0)
		if err != nil {
			return err
		}
		defer f.Close()
		log = f
	}
	db, err := sqlite.Open(f, info.Size(), log)
	if err != nil {
		return err
	}
	return db.Table(table, visit)
}

// Tags, types and flags of rpm's headers: include/rpm/rpmtag.h and rpmfiles.h of
// github.com/rpm-software-management/rpm.
const (
	rpmFileModes   = 1030
	rpmProvides    = 1047
	rpmFileDigests = 1035
	rpmFileFlags   = 1037
	rpmDirIndexes  = 1116
	rpmBaseNames   = 1117
	rpmDirNames    = 1118
	rpmDigestAlgo  = 5011

	rpmInt16, rpmInt32, rpmStrings = 3, 4, 8

	rpmConfig = 1 << 0
	rpmGhost  = 1 << 6 // not in the package: made by it later
	rpmMD5    = 1
	rpmSHA256 = 8
)

// header is a package's header as the database has it: the number of entries and of bytes, the
// entries (tag, type, offset, count), the data. Everything is big-endian.
type header struct{ entries, data []byte }

func parseHeader(blob []byte) (h header, err error) {
	if len(blob) < 8 {
		return h, errors.New("an rpm header is cut short")
	}
	n, size := uint64(binary.BigEndian.Uint32(blob)), uint64(binary.BigEndian.Uint32(blob[4:]))
	if n > 1<<16 || 8+16*n+size > uint64(len(blob)) {
		return h, errors.New("an rpm header is cut short")
	}
	return header{blob[8 : 8+16*n], blob[8+16*n : 8+16*n+size]}, nil
}

// find returns the data of a tag from its start to the header's end, and how many values it has.
func (h header) find(tag, kind uint32) (data []byte, count int) {
	for e := h.entries; len(e) >= 16; e = e[16:] {
		if binary.BigEndian.Uint32(e) != tag || binary.BigEndian.Uint32(e[4:]) != kind {
			continue
		}
		if at := binary.BigEndian.Uint32(e[8:]); uint64(at) <= uint64(len(h.data)) {
			return h.data[at:], int(binary.BigEndian.Uint32(e[12:]) & 0x7fffffff)
		}
	}
	return nil, 0
}

func (h header) numbers(tag, kind uint32, size int) ([]byte, error) {
	data, n := h.find(tag, kind)
	if n > len(data)/size {
		return nil, fmt.Errorf("tag %d of an rpm header is cut short", tag)
	}
	return data[:n*size], nil
}

func (h header) strings(tag uint32) (out []string, err error) {
	data, n := h.find(tag, rpmStrings)
	if n > len(data) {
		return nil, fmt.Errorf("tag %d of an rpm header is cut short", tag)
	}
	for range n {
		text, rest, ok := bytes.Cut(data, []byte{0})
		if !ok {
			return nil, fmt.Errorf("tag %d of an rpm header is cut short", tag)
		}
		out, data = append(out, string(text)), rest
	}
	return out, nil
}

// files visits what a package ships, without directories and ghosts.
func (h header) files(visit func(name string, kind kind, config bool, digest string)) error {
	bases, err1 := h.strings(rpmBaseNames)
	dirs, err2 := h.strings(rpmDirNames)
	digests, err3 := h.strings(rpmFileDigests)
	index, err4 := h.numbers(rpmDirIndexes, rpmInt32, 4)
	flags, err5 := h.numbers(rpmFileFlags, rpmInt32, 4)
	modes, err6 := h.numbers(rpmFileModes, rpmInt16, 2)
	algo, err7 := h.numbers(rpmDigestAlgo, rpmInt32, 4)
	if err := errors.Join(err1, err2, err3, err4, err5, err6, err7); err != nil {
		return err
	}
	digestKind := byNone
	switch {
	case len(algo) == 0 || binary.BigEndian.Uint32(algo) == rpmMD5:
		digestKind = byMD5
	case binary.BigEndian.Uint32(algo) == rpmSHA256:
		digestKind = bySHA256
	}
	n := len(bases)
	if len(index) != 4*n || len(flags) != 4*n || len(modes) != 2*n || len(digests) != n {
		return fmt.Errorf("an rpm header has %d files, %d digests, %d flags and %d modes", n, len(digests), len(flags)/4, len(modes)/2)
	}
	for i, base := range bases {
		const typeMask, directory = 0o170000, 0o040000
		at, flag := binary.BigEndian.Uint32(index[4*i:]), binary.BigEndian.Uint32(flags[4*i:])
		if uint64(at) >= uint64(len(dirs)) {
			return fmt.Errorf("an rpm header has a file in directory %d of %d", at, len(dirs))
		}
		if binary.BigEndian.Uint16(modes[2*i:])&typeMask == directory || flag&rpmGhost != 0 {
			continue
		}
		kind := digestKind
		if digests[i] == "" {
			kind = byNone
		}
		visit(path.Join(dirs[at], base), kind, flag&rpmConfig != 0, digests[i])
	}
	return nil
}
