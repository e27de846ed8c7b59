package inventory

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"path"
	"slices"

	"kamino.dev/kamino/agent/disk"
)

// key stands for a path. 128 bits of SHA-256 keep the memory of a million files small.
type key [16]byte

func keyOf(name string) (k key) {
	sum := sha256.Sum256([]byte(name))
	copy(k[:], sum[:])
	return k
}

func (k key) compare(other key) int { return bytes.Compare(k[:], other[:]) }

// kind is which digest a package database has of a file.
type kind uint8

const (
	byNone kind = iota // a link, or a file whose package tells no digest
	byMD5
	bySHA256 // its first 16 bytes
)

// owned is one file of one package: 34 bytes, so that a node's 300,000 fit in 10 MB.
type owned struct {
	key    key
	kind   kind
	config bool // its package calls it a configuration file
	sum    [16]byte
}

func (o owned) matches(s sums) bool {
	switch o.kind {
	case byMD5:
		return s.md5 == o.sum
	case bySHA256:
		return [16]byte(s.sha[:16]) == o.sum
	}
	return false
}

func (o owned) complaint() string {
	if o.kind == byNone {
		return "its package has no digest"
	}
	return "changed since its package was installed"
}

// owners are the package databases of a disk.
type owners struct {
	files []owned  // by key
	sums  []uint32 // which of them have a digest, by kind and sum, for copies
	rpm   bool     // rpm's database was read
	notes []string
}

// readOwners reads every package database of the disk that it knows. One that it cannot read owns
// nothing, and says so: its files are then unknown.
func readOwners(d *disk.Disk) *owners {
	o := &owners{}
	dirs := &resolver{disk: d, dirs: map[string]string{}}
	for _, read := range []func(*owners, *disk.Disk, *resolver) error{readDpkg, readUCF, readRPM} {
		if err := read(o, d, dirs); err != nil {
			o.notes = append(o.notes, err.Error())
		}
	}
	o.sort()
	o.sums = make([]uint32, 0, len(o.files))
	for i, f := range o.files {
		if f.kind != byNone {
			o.sums = append(o.sums, uint32(i))
		}
	}
	slices.SortFunc(o.sums, func(a, b uint32) int { return compareSums(o.files[a], o.files[b]) })
	return o
}

func (o *owners) sort() {
	slices.SortStableFunc(o.files, func(a, b owned) int { return a.key.compare(b.key) })
}

func (o *owners) has(name string) bool {
	_, ok := o.find(name)
	return ok
}

func compareSums(a, b owned) int {
	if a.kind != b.kind {
		return int(a.kind) - int(b.kind)
	}
	return bytes.Compare(a.sum[:], b.sum[:])
}

func (o *owners) add(name string, kind kind, config bool, sum []byte) {
	f := owned{key: keyOf(name), kind: kind, config: config}
	copy(f.sum[:], sum)
	o.files = append(o.files, f)
}

// addHex adds a file with a digest as databases write it.
func (o *owners) addHex(name string, kind kind, config bool, digest string) {
	sum, err := hex.DecodeString(digest)
	if err != nil || len(sum) < 16 {
		kind, sum = byNone, nil
	}
	o.add(name, kind, config, sum)
}

// find returns what is known of a path; where several packages or databases tell of it, one that
// tells a digest.
func (o *owners) find(name string) (best owned, ok bool) {
	k := keyOf(name)
	i, ok := slices.BinarySearchFunc(o.files, k, func(f owned, k key) int { return f.key.compare(k) })
	for ; ok && i < len(o.files) && o.files[i].key == k; i++ {
		if best.kind == byNone || o.files[i].kind != byNone {
			best = o.files[i]
		}
	}
	return best, ok
}

// ships reports whether some package ships this content, under whatever name.
func (o *owners) ships(s sums) bool {
	for _, f := range []owned{{kind: byMD5, sum: s.md5}, {kind: bySHA256, sum: [16]byte(s.sha[:16])}} {
		if _, ok := slices.BinarySearchFunc(o.sums, f, func(i uint32, f owned) int { return compareSums(o.files[i], f) }); ok {
			return true
		}
	}
	return false
}

// resolver spells the paths of a package database as the disk has them: where /bin is a link to
// usr/bin, a package's /bin/sh lies at usr/bin/sh.
type resolver struct {
	disk *disk.Disk
	dirs map[string]string
}

func (r *resolver) name(listed string) string {
	dir, base := path.Split(path.Clean("/" + listed))
	at, ok := r.dirs[dir]
	if !ok {
		var err error
		if at, err = r.disk.Follow(dir); err != nil {
			at = path.Clean(dir)[1:]
		}
		r.dirs[dir] = at
	}
	return path.Join(at, base)
}
