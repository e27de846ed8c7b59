package inventory

import (
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
	// Files are the unknown files and those that rules edit, with their digests.
	Files map[string]Indexed `json:"files"`
	Notes []string           `json:"notes,omitempty"`
	// Boot is the kernel's ID of the boot in which it was taken, Run for whom, empty where the
	// policy of that run refused what was seen.
	Boot  string `json:"boot,omitempty"`
	Run   string `json:"run,omitempty"`
	Count int    `json:"count"`

	known []mark
	last  bool // no further look follows
}

// Indexed is a file of which the index keeps the name.
type Indexed struct {
	Digest string `json:"digest"`
	Why    string `json:"why,omitempty"`
	Class  Class  `json:"class"`
	Stamp  uint64 `json:"stamp"`
}

// mark is a known file: 25 bytes each.
type mark struct {
	key   key
	stamp [8]byte
	class Class
}

const markSize = 25

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
	if v.digest != "" {
		if x.last {
			return
		}
		x.Files[name] = Indexed{v.digest, v.why, v.class, stamp}
		return
	}
	if stamp == 0 {
		return
	}
	m := mark{key: keyOf(name), class: v.class}
	binary.LittleEndian.PutUint64(m.stamp[:], stamp)
	x.known = append(x.known, m)
}

func (x *Index) finish() {
	slices.SortFunc(x.known, func(a, b mark) int { return a.key.compare(b.key) })
	x.Count = len(x.known)
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
		return verdict{class: f.Class, digest: f.Digest, why: f.Why, lasts: true}, f.Stamp == stamp
	}
	k := keyOf(name)
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
func (x *Index) becomes(name, digest string) bool {
	if x == nil {
		return false
	}
	f, ok := x.Files[name]
	return ok && f.Class != Unknown && f.Digest == digest
}

// baseline changes with the package databases and image stores that verdicts rest on.
func baseline(d *disk.Disk) string {
	h := sha256.New()
	for _, name := range append([]string{dpkgStatus, dpkgDir + "/info", "var/lib/ucf/hashfile", "var/lib/rpm/rpmdb.sqlite-wal"}, rpmPaths...) {
		if info, err := d.Lstat(name); err == nil {
			fmt.Fprintf(h, "%s %d %d\n", name, info.Size(), info.ModTime().UnixNano())
		}
	}
	return fmt.Sprintf("%x", h.Sum(nil)[:8])
}

// Write saves an index: its JSON in one line, then the known files.
func (x *Index) Write(w io.Writer) error {
	head, err := json.Marshal(x)
	if err != nil {
		return err
	}
	var b bytes.Buffer
	b.Grow(len(head) + 1 + len(x.known)*markSize)
	b.Write(head)
	b.WriteByte('\n')
	for _, m := range x.known {
		b.Write(m.key[:])
		b.Write(m.stamp[:])
		b.WriteByte(byte(m.class))
	}
	_, err = w.Write(b.Bytes())
	return err
}

// ReadIndex reads a saved index.
func ReadIndex(data []byte) (*Index, error) {
	head, rest, _ := bytes.Cut(data, []byte("\n"))
	var x Index
	if err := json.Unmarshal(head, &x); err != nil {
		return nil, fmt.Errorf("decode inventory: %w", err)
	}
	if len(rest) != x.Count*markSize {
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
	return &x, nil
}
