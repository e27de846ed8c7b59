// Package scan looks for what must not be in an image: credentials, and what identifies the machine
// it came from.
//
// It knows nothing of the table of seal rules, on purpose: it is the net under that table. It has
// three ways to find something: trees that must be empty but for a few names (Trees), names that
// mean a credential anywhere (names), and content (patterns and the donor's own facts). Anything
// found is a failure; what is right to stay is allowed by name.
package scan

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"runtime"
	"slices"
	"strings"
	"sync"

	"kamino.dev/kamino/agent/disk"
	"kamino.dev/kamino/agent/roots"
)

// Finding is one thing that must not be there. Detail never holds the secret, only what identifies
// it again.
type Finding struct {
	Kind   string `json:"kind"`
	Path   string `json:"path"`
	Offset int64  `json:"offset,omitempty"`
	Detail string `json:"detail,omitempty"`
}

func (f Finding) String() string {
	at := disk.Shown(f.Path)
	if f.Offset > 0 {
		at = fmt.Sprintf("%s at byte %d", at, f.Offset)
	}
	if f.Detail == "" {
		return fmt.Sprintf("%s: %s", f.Kind, at)
	}
	return fmt.Sprintf("%s: %s (%s)", f.Kind, at, f.Detail)
}

// Options of a scan.
type Options struct {
	Facts Facts
	// Allow reports what may stay.
	Allow func(kind, path string) bool
	// Deep also reads the trees that hold installed software and container images.
	Deep bool
	// Also are directories within those trees that are read all the same: what containers wrote.
	Also []string
	// Unvouched are files within those trees for whose content nothing vouches. They are read too;
	// what is merely called a password counts in those of them that are texts.
	Unvouched []string
	// Vouched reports whether a package or an image brought a file as it is: nothing but a token in
	// one is on every machine. Nil: none.
	Vouched func(name string) bool
	// Seen, if not nil, says what an earlier scan has looked at: only what changed since is looked
	// at.
	Seen *Seen
}

// Facts identify the donor. Addresses are IPs in text form, MACs, VMID and MachineID as the system
// prints them.
type Facts struct {
	Host      string
	Addresses []string
	MACs      []string
	VMID      string
	MachineID string
}

// Result is what a scan saw.
type Result struct {
	Files int   `json:"files"`
	Bytes int64 `json:"bytes"`
	// Findings are sorted by path, MostFindings at most.
	Findings []Finding `json:"findings"`
	// More is how many findings are not listed.
	More int `json:"more,omitempty"`
	// Skipped are facts that could not be looked for, with the reason.
	Skipped []string `json:"skipped,omitempty"`
}

// Chunk and overlap of reading: the longest match that is found across a chunk's end is overlap
// bytes.
const (
	chunk   = 1 << 20
	overlap = 8 << 10
	behind  = 512 // what patterns may look at before a match
)

// software is installed from packages and images, the same on every machine; its test keys are not
// the donor's. What people install by hand (unpackaged) lies among it and is looked at: no package
// says what belongs there.
var software = []string{"usr", "lib", "lib64", "bin", "sbin", "snap", "opt/cni/bin", "opt/kamino",
	"var/lib/containerd/io.containerd.content.v1.content", "var/lib/containerd/io.containerd.snapshotter.v1.overlayfs",
	"var/lib/docker/overlay2", "var/lib/docker/image", "var/lib/snapd/snaps", "var/lib/dpkg", "var/lib/rpm"}

var unpackaged = []string{"usr/local"}

// kept is what the agent itself keeps: what was set aside is not part of the image, and the
// genealogy names the donor.
var kept = []string{"var/lib/kamino/aside", "var/lib/kamino/seal.journal"}
var genealogy = []string{"var/lib/kamino/receipt.json", "var/lib/kamino/lineage.jsonl", "var/log/ancestry.log",
	// Names of files, each of which is judged where it is.
	"var/lib/kamino/unknown.list",
	// The kernel's own; a file only where a directory plays a whole machine.
	"sys/class/dmi/id/product_uuid"}

// Files scans every file of the disk: of its own file systems, also where something else is mounted
// over them, and nothing that is mounted there from elsewhere. On an attached disk /run and /dev
// are directories like all others.
func Files(ctx context.Context, d *disk.Disk, o Options) (Result, error) {
	d, err := d.Own()
	if err != nil {
		return Result{}, err
	}
	defer d.Close()
	skip, err := setAside(d)
	if err != nil {
		return Result{}, err
	}
	m, unlookable := newMatcher(o.Facts)
	if o.Vouched == nil {
		o.Vouched = func(string) bool { return false }
	}
	w := walk{disk: d, roots: roots.Of(d), options: o, skip: skip, matcher: m, names: newNameMatcher(o.Facts), jobs: make(chan job, 256),
		found: findings{allow: o.Allow}, skipped: skipped{list: unlookable}}
	var workers sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		workers.Go(w.work)
	}
	visit := func(name string, info fs.FileInfo) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		return w.visit(name, info)
	}
	err = d.Walk(".", visit)
	for _, name := range o.Also {
		if err == nil && !o.Deep && Software(w.roots, name) {
			err = d.Walk(name, visit)
		}
	}
	if err == nil && !o.Deep {
		err = w.unvouched(ctx)
	}
	close(w.jobs)
	workers.Wait()
	w.found.settle()
	w.result.Findings, w.result.More, w.result.Skipped = w.found.list, w.found.more, w.skipped.lines()
	return w.result, errors.Join(err, w.failed)
}

// walk is one scan of a disk.
type walk struct {
	disk    *disk.Disk
	roots   roots.Roots
	options Options
	skip    []string
	matcher *matcher
	names   *matcher // the donor's facts only
	jobs    chan job

	unpacking sync.Mutex // held while a file is unpacked

	mu      sync.Mutex
	result  Result // its numbers
	found   findings
	skipped skipped
	failed  error
}

type job struct {
	name string
	info fs.FileInfo
}

// visit judges what is there by its name, and leaves regular files' contents to the workers.
func (w *walk) visit(name string, info fs.FileInfo) error {
	software := !w.options.Deep && Software(w.roots, name) && !under(name, w.options.Also)
	if under(name, w.skip) || software && !leads(name, unpackaged) {
		if info.IsDir() {
			return fs.SkipDir
		}
		return nil
	}
	if disk.Deep(info) {
		w.mu.Lock()
		w.skipped.add(fmt.Sprintf("directory /%.200s…: its path is longer than 4096 bytes, what is below was not scanned",
			disk.Shown(name)))
		w.mu.Unlock()
		return nil
	}
	if software || !info.IsDir() && !w.options.Seen.changed(name, info) {
		return nil // on the way to what people installed; or looked at before
	}
	var found []Finding
	if f, ok := byName(name, w.roots.Usual(name), info); ok {
		found = append(found, f)
	}
	base := []byte(path.Base(name) + "   ")
	w.names.search(base, 0, len(base), 0, func(h hit) {
		found = append(found, Finding{Kind: h.kind, Path: name, Detail: "in the file's name, " + w.names.digest.of(h.text)})
	})
	if len(found) > 0 {
		w.mu.Lock()
		w.found.add(found...)
		w.mu.Unlock()
	}
	if info.Mode().IsRegular() || info.IsDir() { // an empty one may have attributes
		w.jobs <- job{name, info}
	}
	return nil
}

// unvouched looks at Options.Unvouched, and at what the scan before had of it.
func (w *walk) unvouched(ctx context.Context) error {
	for _, name := range w.options.Seen.also(w.options.Unvouched) {
		if err := ctx.Err(); err != nil {
			return err
		}
		if !Software(w.roots, name) || under(name, w.options.Also) || under(name, w.skip) {
			continue
		}
		info, err := w.disk.Lstat(name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		if info.Mode().IsRegular() && info.Size() > 0 && w.options.Seen.changed(name, info) {
			w.jobs <- job{name, info}
		}
	}
	return nil
}

// Software reports whether a file belongs to installed software, which a scan skips: packages'
// files, and image layers in the stores of a disk's runtimes.
func Software(r roots.Roots, name string) bool {
	name = r.Usual(name)
	return under(name, software) && !under(name, unpackaged)
}

// leads is whether one of dirs lies below name.
func leads(name string, dirs []string) bool {
	return slices.ContainsFunc(dirs, func(d string) bool { return disk.Under(d, name) })
}

func (w *walk) work() {
	f := reader{matcher: w.matcher, roots: w.roots, also: w.options.Also, vouched: w.options.Vouched, deep: w.options.Deep,
		unpacking: &w.unpacking, buf: make([]byte, chunk+overlap), memory: &scratch{}}
	for j := range w.jobs {
		seen, err := f.file(w.disk, j)
		w.mu.Lock()
		if j.info.Mode().IsRegular() && j.info.Size() > 0 {
			w.result.Files++
		}
		w.result.Bytes += seen.bytes
		w.found.add(seen.findings...)
		w.found.addMore(j.name, seen.more)
		w.skipped.add(seen.skipped...)
		if err != nil && !errors.Is(err, fs.ErrNotExist) && w.failed == nil {
			w.failed = fmt.Errorf("scan %s: %w", disk.Shown(j.name), disk.ShownError(err))
		}
		w.mu.Unlock()
	}
}

// setAside are the places of what a seal has moved aside and not yet removed, one on each file
// system.
func setAside(d *disk.Disk) ([]string, error) {
	all, err := d.FileSystems()
	dirs := slices.Clone(kept)
	for _, f := range all {
		dirs = append(dirs, path.Join(f.Name, ".kamino-aside"))
	}
	return dirs, err
}

// isSwap reports whether a file is made for swapping: it holds memory, whatever its name is.
func isSwap(f *os.File, buf []byte) (bool, error) {
	info, err := f.Stat()
	if err != nil || info.Size() < 10*4096 || info.Size()%4096 != 0 { // mkswap(8): ten pages at least
		return false, err
	}
	n, err := f.ReadAt(buf[:64<<10], 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return false, err
	}
	kind, _ := disk.Swap(buf[:n])
	return kind != "", nil
}

func under(name string, dirs []string) bool {
	for _, d := range dirs {
		if disk.Under(name, d) {
			return true
		}
	}
	return false
}

// stream calls report for each match in r, once, with its offset in r; with in, also for those in
// texts in base64. depth encodings are around r.
func (m *matcher) stream(r io.Reader, buf []byte, in *inside, depth int, report func(hit)) (int64, error) {
	var base, total int64
	have, from, text := 0, 0, 0
	for {
		n, err := io.ReadFull(r, buf[have:])
		total += int64(n)
		end := have + n
		last := err != nil
		// What starts in the overlap at the end is left to the next round, which sees the rest of
		// it.
		until := end
		if !last {
			until = end - overlap
		}
		m.search(buf[:end], from, until, base, func(h hit) {
			h.offset += base
			report(h)
		})
		if in != nil {
			text = m.unfold(buf[:end], text, until, !last, base, "", depth, in, report)
		}
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return total, nil
		}
		if err != nil {
			return total, err
		}
		// Keep some of what was searched as left context, for the patterns that look behind.
		start := max(until-behind, 0)
		if in != nil {
			start = min(start, text)
		}
		copy(buf, buf[start:end])
		have, from, text = end-start, until-start, text-start
		base += int64(start)
	}
}

// hit is one match in a stream. Its text is valid until report returns.
type hit struct {
	kind   string
	offset int64
	text   []byte
	prose  bool
	where  string // in what encoding
}

// Pattern tells whether a path pattern (path.Match) covers name or a directory above it.
func Pattern(pattern, name string) bool {
	pattern = strings.TrimPrefix(pattern, "/")
	for at := name; at != "." && at != "/" && at != ""; at = path.Dir(at) {
		if ok, err := path.Match(pattern, at); err == nil && ok {
			return true
		}
	}
	return false
}
