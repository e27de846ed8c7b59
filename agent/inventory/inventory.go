// Package inventory says of every file on a node's own disk why it is there, so that what nobody
// can explain does not travel in an image unseen.
//
// A file is *owned* (a package shipped it, and its content is still as shipped), an *image
// layer's*, *named* by a rule of the seal which takes it away, *generated* (a table with a reason
// for each kind), *allowed* by the run's policy, or *unknown*. Patterns and rules know yesterday's
// agents; the inventory fails closed on tomorrow's.
//
// # Shape
//
// Look walks the disk once and returns a Result: the counts of each class, the unknown files with
// their digests, and an Index of what it saw. Given that Index as Options.Earlier, a second Look
// reads only what changed since (device, inode, size, mode, ctime): the first is made beside the
// running node, the second in the donor's time away. Result.Groups folds the unknown by directory
// for people; WriteAllow writes them as a policy's verify.known for review, each entry with a
// digest, so that a file which is changed, or added beside it, is unknown again.
//
// Neither links nor empty files nor sockets hold content, so they are known, except links that lead
// nowhere. The content of unpacked layers is not compared with the image: that they are committed,
// and the image store's, must do. Writes through a shared memory map that was there before the
// first look may leave no trace in ctime; files so written (the databases of services) are no
// package's, so this hides no secret in what counts as owned.
package inventory

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"runtime"
	"slices"
	"strings"
	"sync"

	"kamino.dev/kamino/agent/disk"
	"kamino.dev/kamino/agent/roots"
	"kamino.dev/kamino/agent/runtimes"
)

// Class is why a file is on the disk.
type Class uint8

// The classes. Their order is part of a saved Index.
const (
	Unknown Class = iota
	Owned
	Layer
	Named
	Generated
	Allowed
)

var classNames = [...]string{"unknown", "owned by packages", "of image layers", "named by rules", "generated and known", "allowed"}

func (c Class) String() string { return classNames[c] }

// Classes lists all of them, the unknown last.
func Classes() []Class { return []Class{Owned, Layer, Named, Generated, Allowed, Unknown} }

// Digest is a SHA-256; zero where there is none.
type Digest [sha256.Size]byte

// String is the digest in hex.
func (d Digest) String() string {
	if d == (Digest{}) {
		return ""
	}
	return hex.EncodeToString(d[:])
}

// MarshalText is String.
func (d Digest) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText reads what MarshalText wrote.
func (d *Digest) UnmarshalText(text []byte) error {
	if n := hex.DecodedLen(len(text)); n != 0 && n != len(d) {
		return fmt.Errorf("a digest of %d bytes", n)
	}
	_, err := hex.Decode(d[:], text)
	return err
}

// File is one unknown file. A disk may have a hundred thousand, which all are in memory.
type File struct {
	Path   string `json:"path"`   // relative to the root
	Digest Digest `json:"digest"` // of its content; of "link: " and the target for a link
	Size   int64  `json:"size"`
	Why    string `json:"why"` // what speaks against it: no package's, or changed since
}

// Count is how much a class has.
type Count struct {
	Files int   `json:"files"`
	Bytes int64 `json:"bytes"`
}

// Options of a look.
type Options struct {
	// Gone are paths, resolved and relative, that the seal's rules take away or keep by a decision
	// of the operator's; a directory stands for all below it.
	Gone map[string]bool
	// Becomes are the contents that rules of action edit leave, by path.
	Becomes map[string][]byte
	// Shipped are the SHA-256 digests of what Kamino itself puts on the disk, by path.
	Shipped map[string][32]byte
	// Note asks for Result.Noted: whether a file's name belongs there. Nil: none does.
	Note func(name string) bool
	// Known is what the run's policy allows.
	Known []Known
	// Earlier is a former look at the same disk by the same agent; nil, and everything is read.
	Earlier *Index
	// Last says that no further look follows, whose index would have to keep the unknown files.
	Last bool
	// Agent is this program's version: an Index of another one is not used.
	Agent string
}

// Result is what a look saw.
type Result struct {
	Counts  map[Class]Count
	Unknown []File // sorted by path
	// Unexplained is Unknown with what the policy allows.
	Unexplained []File
	// Torn are files of packages whose installation did not end, with the reason, sorted.
	Torn []string
	// Noted are the files that Options.Note asked for and for whose content neither a package nor
	// an image vouches.
	Noted []string
	// Notes say what could not be used: a package database of another format, an image store that
	// cannot be read.
	Notes []string
	Index *Index
	// Read counts the files whose content was read, the rest being as in Options.Earlier.
	Read int

	settled map[key]bool // directories with something of a package or layer below
}

// Look classifies every file of the disk. It changes nothing.
func Look(ctx context.Context, d *disk.Disk, o Options) (*Result, error) {
	l := newLook(d, o)
	type job struct {
		name string
		info fs.FileInfo
	}
	jobs := make(chan job, 64)
	var workers sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		workers.Go(func() {
			buf := make([]byte, 256<<10)
			for j := range jobs {
				l.settle(j.name, j.info, l.judge(j.name, j.info, buf))
			}
		})
	}
	err := d.Walk(".", func(name string, info fs.FileInfo) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		if info.IsDir() {
			if l.gone(name) {
				return l.skip(name)
			}
			if disk.Deep(info) {
				l.settle(name, info, verdict{class: Unknown, why: "its path is longer than 4096 bytes: its contents were not examined"})
			}
			return nil
		}
		if v, ok := l.quick(name, info); ok {
			l.settle(name, info, v)
			return nil
		}
		jobs <- job{name, info}
		return nil
	})
	close(jobs)
	workers.Wait()
	if err = errors.Join(err, l.failed); err != nil {
		return nil, fmt.Errorf("take inventory: %w", err)
	}
	return l.result(), nil
}

// verdict is what is decided of one file.
type verdict struct {
	class  Class
	digest Digest // of an unknown file, or of one that a rule edits: of the content that it will have
	why    string
	holds  bool // a package's or a layer's own place: its directory is not wholly unknown
	read   bool
	lasts  bool   // goes into the index
	torn   string // why its package's installation did not end
}

type look struct {
	disk   *disk.Disk
	roots  roots.Roots
	o      Options
	base   string
	owners func() *owners // read when first needed
	layers func() runtimes.Layers
	unread []string // of image stores; layers's

	mu     sync.Mutex
	failed error
	out    Result
	index  Index
}

func newLook(d *disk.Disk, o Options) *look {
	l := &look{disk: d, roots: roots.Of(d), o: o, base: baseline(d)}
	l.owners = sync.OnceValue(func() *owners { return readOwners(d) })
	l.layers = sync.OnceValue(func() runtimes.Layers {
		layers, err := runtimes.ReadLayers(d)
		if err != nil {
			l.unread = append(l.unread, err.Error())
		}
		return layers
	})
	if !o.Earlier.Fits(d, o.Agent) {
		l.o.Earlier = nil
	}
	l.out = Result{Counts: map[Class]Count{}, settled: map[key]bool{}}
	l.index = Index{Agent: o.Agent, Base: l.base, Files: map[string]Indexed{}, last: o.Last}
	return l
}

func (l *look) gone(name string) bool { return l.o.Gone[name] }

// skip counts what is below a directory that a rule removes.
func (l *look) skip(name string) error {
	var c Count
	err := l.disk.Walk(name, func(_ string, info fs.FileInfo) error {
		if !info.IsDir() {
			c.Files++
			c.Bytes += info.Size()
		}
		return nil
	})
	l.mu.Lock()
	defer l.mu.Unlock()
	l.count(Named, c)
	return errors.Join(err, fs.SkipDir)
}

func (l *look) count(class Class, more Count) {
	c := l.out.Counts[class]
	l.out.Counts[class] = Count{c.Files + more.Files, c.Bytes + more.Bytes}
}

func (l *look) settle(name string, info fs.FileInfo, v verdict) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.count(v.class, Count{1, info.Size()})
	if v.read {
		l.out.Read++
	}
	if v.class != Named && v.class != Layer && l.unpacked(name) {
		v.torn = "is a package's that rpm did not finish"
	}
	if v.torn != "" {
		l.out.Torn = append(l.out.Torn, "/"+disk.Shown(name)+" "+v.torn)
	}
	if v.holds {
		l.mark(name)
	}
	// Bytecode that was compiled from the source above it holds the constants of that source, which
	// is judged itself.
	compiled := v.class == Generated && path.Ext(name) == ".pyc"
	if vouched := v.class == Owned || v.class == Layer || compiled; !vouched && l.o.Note != nil && info.Mode().IsRegular() &&
		info.Size() > 0 && l.o.Note(name) {
		l.out.Noted = append(l.out.Noted, name)
	}
	if v.lasts {
		l.index.add(name, stampOf(info), v)
	}
	if v.class == Unknown {
		l.out.Unknown = append(l.out.Unknown, File{name, v.digest, info.Size(), v.why})
	}
}

// mark settles the directories above a known file.
func (l *look) mark(name string) {
	for i := strings.LastIndexByte(name, '/'); i > 0; i = strings.LastIndexByte(name[:i], '/') {
		k := keyOf(name[:i])
		if l.out.settled[k] {
			return
		}
		l.out.settled[k] = true
	}
}

func (l *look) fail(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.failed = errors.Join(l.failed, err)
}

func (l *look) result() *Result {
	r := &l.out
	slices.Sort(r.Torn)
	slices.SortFunc(r.Unknown, func(a, b File) int { return strings.Compare(a.Path, b.Path) })
	r.allow(l.o.Known)
	l.index.finish()
	r.Index = &l.index
	if l.o.Earlier != nil { // the databases may not have been read again
		r.Notes = append(r.Notes, l.o.Earlier.Notes...)
	} else {
		l.layers()
		r.Notes = append(l.owners().notes, l.unread...)
	}
	l.index.Notes = r.Notes
	return r
}

// Sum is the digest over all unknown files' names and contents: two disks of the same unknown have
// the same.
func (r *Result) Sum() string { return treeSum(r.Unknown) }

// Summary is one line of text for people.
func (r *Result) Summary() string {
	var parts []string
	for _, c := range Classes() {
		if n := r.Counts[c]; n.Files > 0 || c == Unknown {
			parts = append(parts, fmt.Sprintf("%d %s", n.Files, c))
		}
	}
	total := 0
	for n := range maps.Values(r.Counts) {
		total += n.Files
	}
	return fmt.Sprintf("%d files: %s", total, strings.Join(parts, ", "))
}
