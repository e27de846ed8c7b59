package inventory

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"syscall"
	"time"

	"kamino.dev/kamino/agent/disk"
)

// Index is what a look saw, so that the next one reads only what changed. It belongs to one boot of
// one disk: it is kept in memory (/run), never on the disk.
type Index struct {
	Agent string `json:"agent"`
	Base  string `json:"base"` // of the package databases and image stores
	// Files are the files that rules edit, each with the digest of its content after the edit.
	Files map[string]Indexed `json:"files"`
	Notes []string           `json:"notes,omitempty"`
	Whys  []string           `json:"whys,omitempty"` // what speaks against unknown files
	// Boot is the kernel's ID of the boot in which it was taken, Run for whom, empty where the
	// policy of that run refused what was seen.
	Boot    string `json:"boot,omitempty"`
	Run     string `json:"run,omitempty"`
	Count   int    `json:"count"`
	Unknown int    `json:"unknown"`

	known   []mark
	unknown []doubt
	last    bool // no further look follows
}

// Indexed is a file of which the index keeps the name.
type Indexed struct {
	Digest Digest `json:"digest"`
	Class  Class  `json:"class"`
	Stamp  uint64 `json:"stamp"`
}

// mark is a known file: 25 bytes each.
type mark struct {
	key   key
	stamp [8]byte
	class Class
}

// doubt is an unknown file: 58 bytes each.
type doubt struct {
	key    key
	stamp  [8]byte
	digest Digest
	why    uint16 // of Index.Whys
}

const (
	markSize  = 25
	doubtSize = 58
)

// racy is how young a change may not be for its stamp to count: a kernel's clock for ctime is
// coarse (a tick, up to 10 ms), so that a second change within one leaves the same stamp.
const racy = time.Second

// stampOf changes with every change of a file's content, mode or owner. Zero: too young to tell.
func stampOf(info fs.FileInfo) uint64 {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0
	}
	if time.Since(time.Unix(st.Ctim.Unix())) < racy {
		return 0
	}
	var b [48]byte
	for i, v := range []uint64{uint64(st.Dev), st.Ino, uint64(st.Size), uint64(st.Ctim.Sec), uint64(st.Ctim.Nsec), uint64(st.Mode)} {
		binary.LittleEndian.PutUint64(b[8*i:], v)
	}
	sum := sha256.Sum256(b[:])
	return binary.LittleEndian.Uint64(sum[:]) | 1
}

func (x *Index) add(name string, stamp uint64, v verdict) {
	if v.digest != (Digest{}) && v.class != Unknown {
		x.Files[name] = Indexed{v.digest, v.class, stamp}
		return
	}
	if stamp == 0 {
		return
	}
	if v.class == Unknown {
		if x.last {
			return
		}
		why := slices.Index(x.Whys, v.why) // of a dozen
		if why < 0 {
			why, x.Whys = len(x.Whys), append(x.Whys, v.why)
		}
		f := doubt{key: keyOf(name), digest: v.digest, why: uint16(why)}
		binary.LittleEndian.PutUint64(f.stamp[:], stamp)
		x.unknown = append(x.unknown, f)
		return
	}
	m := mark{key: keyOf(name), class: v.class}
	binary.LittleEndian.PutUint64(m.stamp[:], stamp)
	x.known = append(x.known, m)
}

func (x *Index) finish() {
	slices.SortFunc(x.known, func(a, b mark) int { return a.key.compare(b.key) })
	slices.SortFunc(x.unknown, func(a, b doubt) int { return a.key.compare(b.key) })
	x.Count, x.Unknown = len(x.known), len(x.unknown)
}

// seen is the verdict on a file that did not change.
func (x *Index) seen(name string, info fs.FileInfo) (verdict, bool) {
	if x == nil {
		return verdict{}, false
	}
	stamp := stampOf(info)
	if stamp == 0 {
		return verdict{}, false
	}
	if f, ok := x.Files[name]; ok {
		return verdict{class: f.Class, digest: f.Digest, lasts: true}, f.Stamp == stamp
	}
	k := keyOf(name)
	if i, ok := slices.BinarySearchFunc(x.unknown, k, func(f doubt, k key) int { return f.key.compare(k) }); ok {
		f := x.unknown[i]
		return verdict{class: Unknown, digest: f.digest, why: x.Whys[f.why], lasts: true}, binary.LittleEndian.Uint64(f.stamp[:]) == stamp
	}
	i, ok := slices.BinarySearchFunc(x.known, k, func(m mark, k key) int { return m.key.compare(k) })
	if !ok || binary.LittleEndian.Uint64(x.known[i].stamp[:]) != stamp {
		return verdict{}, false
	}
	class := x.known[i].class
	return verdict{class: class, holds: (class == Owned || class == Layer) && info.Mode().IsRegular(), lasts: true}, true
}

// Forget gives back an index's memory. It fits no disk any more.
func (x *Index) Forget() {
	if x != nil {
		*x = Index{}
	}
}

// Vouched tells the files that were a package's or an image layer's as they are. It keeps nothing
// of the unknown ones.
func (x *Index) Vouched() func(name string) bool {
	known := x.known
	return func(name string) bool {
		k := keyOf(name)
		i, ok := slices.BinarySearchFunc(known, k, func(m mark, k key) int { return m.key.compare(k) })
		return ok && (known[i].class == Owned || known[i].class == Layer)
	}
}

// Fits reports whether a look by an agent of this version can go on from an index: the packages and
// their databases are still those that it rests on.
func (x *Index) Fits(d *disk.Disk, agent string) bool {
	return x != nil && x.Agent == agent && x.Base == baseline(d)
}

// becomes reports whether a file has the content that a rule was to leave, of a file that was known
// before.
func (x *Index) becomes(name string, digest Digest) bool {
	if x == nil {
		return false
	}
	f, ok := x.Files[name]
	return ok && f.Digest == digest
}

// baseline changes with the package databases and image stores that verdicts rest on.
func baseline(d *disk.Disk) string {
	h := sha256.New()
	for _, name := range append([]string{dpkgStatus, dpkgDir + "/info", "var/lib/ucf/hashfile", "var/lib/rpm/rpmdb.sqlite-wal"},
		rpmPaths...) {
		if info, err := d.Lstat(name); err == nil {
			fmt.Fprintf(h, "%s %d %d\n", name, info.Size(), info.ModTime().UnixNano())
		}
	}
	return fmt.Sprintf("%x", h.Sum(nil)[:8])
}

// Write saves an index: its JSON in one line, then the known and the unknown files.
func (x *Index) Write(w io.Writer) error {
	head, err := json.Marshal(x)
	if err != nil {
		return err
	}
	b := bufio.NewWriter(w) // whose first error Flush returns
	_, _ = b.Write(append(head, '\n'))
	for _, m := range x.known {
		_, _ = b.Write(m.key[:])
		_, _ = b.Write(m.stamp[:])
		_ = b.WriteByte(byte(m.class))
	}
	for _, f := range x.unknown {
		_, _ = b.Write(f.key[:])
		_, _ = b.Write(f.stamp[:])
		_, _ = b.Write(f.digest[:])
		_, _ = b.Write([]byte{byte(f.why), byte(f.why >> 8)})
	}
	return b.Flush()
}

// ReadIndex reads a saved index.
func ReadIndex(data []byte) (*Index, error) {
	head, rest, _ := bytes.Cut(data, []byte("\n"))
	var x Index
	if err := json.Unmarshal(head, &x); err != nil {
		return nil, fmt.Errorf("decode inventory: %w", err)
	}
	if most := len(rest); x.Count < 0 || x.Count > most || x.Unknown < 0 || x.Unknown > most ||
		most != x.Count*markSize+x.Unknown*doubtSize {
		return nil, errors.New("decode inventory: it is cut short")
	}
	x.known = make([]mark, x.Count)
	for i := range x.known {
		at := rest[i*markSize:]
		copy(x.known[i].key[:], at)
		copy(x.known[i].stamp[:], at[16:])
		x.known[i].class = Class(at[24])
		if x.known[i].class > Allowed {
			return nil, fmt.Errorf("decode inventory: class %d", at[24])
		}
	}
	x.unknown = make([]doubt, x.Unknown)
	for i := range x.unknown {
		at, f := rest[x.Count*markSize+i*doubtSize:], &x.unknown[i]
		copy(f.key[:], at)
		copy(f.stamp[:], at[16:])
		copy(f.digest[:], at[24:])
		if f.why = binary.LittleEndian.Uint16(at[56:]); int(f.why) >= len(x.Whys) {
			return nil, fmt.Errorf("decode inventory: reason %d of %d", f.why, len(x.Whys))
		}
	}
	return &x, nil
}
