package inventory

import (
	"crypto/md5"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"

	"kamino.dev/kamino/agent/disk"
	"kamino.dev/kamino/agent/runtimes"
)

// quick decides without reading any content, if that can be done.
func (l *look) quick(name string, info fs.FileInfo) (verdict, bool) {
	if l.gone(name) {
		return verdict{class: Named}, true
	}
	if v, ok := l.o.Earlier.seen(name, info); ok {
		return v, true
	}
	switch mode := info.Mode(); {
	case mode&fs.ModeSymlink != 0:
		return l.link(name), true
	case mode&(fs.ModeSocket|fs.ModeNamedPipe) != 0:
		return verdict{class: Generated}, true
	case !mode.IsRegular() && disk.Under(name, "dev"):
		return verdict{class: Generated}, true // an installation's few nodes, under the kernel's own
	case !mode.IsRegular():
		return verdict{class: Unknown, digest: sha256.Sum256([]byte("device")), why: "a device file"}, true
	case info.Size() == 0:
		return l.empty(name), true
	}
	if !runtimes.InStore(l.roots.Usual(name)) {
		return verdict{}, false
	}
	if l.layers().Holds(name) {
		return verdict{class: Layer, holds: true, lasts: true}, true
	}
	return verdict{}, false
}

// empty judges a file without content. A package's whose digest is not that of nothing was cut off
// as it was written; people empty configuration files.
func (l *look) empty(name string) verdict {
	if owner, ok := l.owners().find(name); ok && owner.kind != byNone && !owner.config &&
		!owner.matches(sums{md5: md5.Sum(nil), sha: sha256.Sum256(nil)}) {
		return verdict{class: Generated, torn: "is empty, and its package has content for it"}
	}
	return verdict{class: Generated, lasts: true}
}

// unpacked reports whether a name is that under which rpm writes a package's file. Of a package that
// it has not installed yet only the place tells.
func (l *look) unpacked(name string) bool {
	return unpacking.MatchString(name) && (l.owners().has(unpacking.ReplaceAllString(name, "")) || l.owners().rpm &&
		disk.Under(name, "usr"))
}

// link judges a symbolic link, which holds nothing but a name: one that leads somewhere on the disk
// says no more than what it leads to, and /dev/null is how systemd's units are masked.
func (l *look) link(name string) verdict {
	target, err := l.disk.Readlink(name)
	if err != nil {
		return verdict{class: Named} // it went away meanwhile
	}
	if target == "/dev/null" {
		return verdict{class: Generated}
	}
	// Also into memory: /etc/resolv.conf leads into /run.
	if at, err := l.disk.Whole().Follow(name); err == nil && l.disk.Whole().Exists(at) {
		return verdict{class: Generated, lasts: true}
	}
	if runtimes.InStore(l.roots.Usual(name)) && l.layers().Holds(name) {
		return verdict{class: Layer, lasts: true}
	}
	if _, ok := l.owners().find(name); ok {
		return verdict{class: Owned, lasts: true}
	}
	if generatedLink(name, target) {
		return verdict{class: Generated, lasts: true}
	}
	return verdict{class: Unknown, digest: sha256.Sum256([]byte("link: " + target)), why: "a link that leads nowhere", lasts: true}
}

// sums are the digests of one content.
type sums struct {
	md5  [16]byte
	sha  [32]byte
	size int64
}

// judge reads a regular file.
func (l *look) judge(name string, info fs.FileInfo, buf []byte) verdict {
	if g := generatedRow(l.roots.Usual(name)); g != nil && (g.check == nil || g.programs && l.compiled(name)) {
		return verdict{class: Generated, lasts: true}
	}
	s, err := l.read(name, buf)
	if errors.Is(err, fs.ErrNotExist) {
		return verdict{class: Named} // it went away meanwhile
	}
	if err != nil {
		l.fail(fmt.Errorf("read /%s: %w", disk.Shown(name), disk.ShownError(err)))
		return verdict{}
	}
	if after, ok := l.o.Becomes[name]; ok {
		return l.edited(name, s, after)
	}
	v := l.content(name, s, func() []byte { return l.small(name) })
	v.read, v.lasts = true, true
	return v
}

// compiled reports whether a file begins as programs do.
func (l *look) compiled(name string) bool {
	f, err := l.disk.OpenWalked(name)
	if err != nil {
		return false // judge reads it, and reports that
	}
	defer f.Close()
	sign := make([]byte, 4)
	_, err = io.ReadFull(f, sign)
	return err == nil && string(sign) == "\x7fELF"
}

// edited judges a file that a rule edits by what it is now, and remembers what it will be. What is
// as shipped stays known with the rule's edit; for the rest the policy must allow the edited
// content.
func (l *look) edited(name string, now sums, after []byte) verdict {
	digest := Digest(sha256.Sum256(after))
	if v := l.content(name, now, func() []byte { return l.small(name) }); v.class != Unknown {
		return verdict{class: v.class, digest: digest, read: true, lasts: true}
	}
	s := sums{md5.Sum(after), sha256.Sum256(after), int64(len(after))}
	v := l.content(name, s, func() []byte { return after })
	v.digest, v.read, v.lasts = digest, true, true
	if len(after) == 0 {
		v.class = Generated
	}
	return v
}

// small is the content for a check; nil where it is too large for what the check looks for.
func (l *look) small(name string) []byte {
	data, err := l.disk.ReadFile(name, disk.Small)
	if err != nil {
		return nil
	}
	return data
}

func (l *look) content(name string, s sums, load func() []byte) verdict {
	if sum, ok := l.o.Shipped[name]; ok && sum == s.sha {
		return verdict{class: Owned}
	}
	if runtimes.BlobDigest(l.roots.Usual(name)) == hex.EncodeToString(s.sha[:]) {
		return verdict{class: Layer, holds: true}
	}
	why := "no package's"
	if owner, ok := l.owners().find(name); ok {
		if owner.matches(s) {
			return verdict{class: Owned, holds: true}
		}
		why = owner.complaint()
	}
	// The same bytes under another name: skeletons of homes, boot loader modules, default
	// configurations.
	if l.owners().ships(s) {
		return verdict{class: Owned}
	}
	if l.o.Earlier.becomes(name, s.sha) {
		return verdict{class: Generated}
	}
	if g := generatedRow(l.roots.Usual(name)); g != nil {
		if g.check == nil {
			return verdict{class: Generated}
		}
		if data := load(); data != nil && g.check(l, name, data) {
			return verdict{class: Generated}
		}
		why = "expected: " + g.why
	}
	return verdict{class: Unknown, digest: s.sha, why: why}
}

// read digests a file. One that is written to meanwhile has another stamp at the next look.
func (l *look) read(name string, buf []byte) (s sums, err error) {
	f, err := l.disk.OpenWalked(name)
	if err != nil {
		return s, err
	}
	defer f.Close()
	spare(f)
	if info, err := f.Stat(); err == nil && disk.Holes(info) > holesMost {
		return readSparse(f, info, buf)
	}
	one, two := md5.New(), sha256.New()
	// Where the owner is known one digest is enough, and half the work.
	w := io.MultiWriter(one, two)
	owner, owned := l.owners().find(name)
	switch {
	case owned && owner.kind == byMD5:
		w = one
	case owned && owner.kind == bySHA256, runtimes.BlobDigest(l.roots.Usual(name)) != "":
		w = two
	}
	if s.size, err = copyBuffer(w, f, buf); err != nil {
		return s, err
	}
	one.Sum(s.md5[:0])
	two.Sum(s.sha[:0])
	if owned && w == io.Writer(one) && !owner.matches(s) {
		// Not as shipped: it needs its other digest after all.
		if _, err = f.Seek(0, io.SeekStart); err == nil {
			_, err = copyBuffer(two, f, buf)
			two.Sum(s.sha[:0])
		}
	} else if owned && w == io.Writer(two) && !owner.matches(s) {
		if _, err = f.Seek(0, io.SeekStart); err == nil {
			_, err = copyBuffer(one, f, buf)
			one.Sum(s.md5[:0])
		}
	}
	return s, err
}

// holesMost is how many bytes of holes are read as the zeros that they stand for. No package has a
// file with more.
const holesMost = 1 << 30

// readSparse digests the data of a file that is mostly holes: where they are, and what they are.
// The digest is not that of the content, which may have terabytes of zeros.
func readSparse(f *os.File, info fs.FileInfo, buf []byte) (s sums, err error) {
	h := sha256.New()
	fmt.Fprintf(h, "sparse, %d bytes\n", info.Size())
	s.size = info.Size()
	err = disk.Extents(f, info, 0, func(at, size int64) error {
		fmt.Fprintf(h, "%d bytes at %d\n", size, at)
		_, err := copyBuffer(h, io.NewSectionReader(f, at, size), buf)
		return err
	})
	h.Sum(s.sha[:0])
	return s, err
}

// copyBuffer is io.CopyBuffer without the detours by which *os.File would do without the buffer.
func copyBuffer(w io.Writer, r io.Reader, buf []byte) (n int64, err error) {
	for {
		m, rerr := r.Read(buf)
		n += int64(m)
		if _, err := w.Write(buf[:m]); err != nil {
			return n, err
		}
		if errors.Is(rerr, io.EOF) {
			return n, nil
		}
		if rerr != nil {
			return n, rerr
		}
	}
}

// within reports whether name is below dir.
func within(name, dir string) bool { return name != dir && disk.Under(name, dir) }

// covers reports whether pattern (path.Match per component, absolute) matches name or a directory
// above it.
func covers(pattern, name string) bool {
	for at := name; at != "." && at != "/"; at = path.Dir(at) {
		if ok, err := path.Match(pattern[1:], at); err == nil && ok {
			return true
		}
	}
	return false
}
