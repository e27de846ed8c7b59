// Package disk reads and changes the files of one root directory: "/" on a running node, a host's root seen from a
// pod, or the file system of an attached disk.
//
// Nothing here ever leaves that directory. Names are resolved component by component the way the disk's own kernel
// would resolve them after booting from it: an absolute symbolic link starts again at the root, and ".." stops there.
// The resolved name, which contains no link any more, is then opened through os.Root, so that a link swapped in
// between the two steps cannot lead out either.
package disk

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"sort"
	"strings"
	"sync"
	"syscall"
)

// maxLinks is the kernel's own limit (MAXSYMLINKS in include/linux/namei.h).
const maxLinks = 40

// Disk is one root directory. Names are slash separated and relative to it; a leading slash is accepted and ignored.
// A Disk is safe for concurrent use as far as the file system is.
type Disk struct {
	dir     string
	root    *os.Root
	devices sync.Map // device number → whether it is on the root's physical disk
}

// Open opens the root directory dir.
func Open(dir string) (*Disk, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("open root %s: %w", dir, err)
	}
	return &Disk{dir: dir, root: root}, nil
}

// Close releases the directory handle.
func (d *Disk) Close() error { return d.root.Close() }

// Dir is the directory as it was given to Open.
func (d *Disk) Dir() string { return d.dir }

// Live reports whether the disk is the running system's own root.
func (d *Disk) Live() bool { return path.Clean(d.dir) == "/" }

// Host is name as this process would have to spell it for a program outside this package, such as a command.
func (d *Disk) Host(name string) string { return path.Join(d.dir, clean(name)) }

func clean(name string) string {
	name = strings.TrimPrefix(path.Clean("/"+name), "/")
	if name == "" {
		return "."
	}
	return name
}

// Resolve follows every symbolic link of name but the last component's, and returns a name without links. The last
// component need not exist; a missing directory on the way is fs.ErrNotExist.
func (d *Disk) Resolve(name string) (string, error) {
	todo := strings.Split(clean(name), "/")
	done := "."
	for links := 0; len(todo) > 0; {
		part := todo[0]
		todo = todo[1:]
		switch part {
		case "", ".":
			continue
		case "..":
			done = path.Dir(done)
			continue
		}
		next := path.Join(done, part)
		if len(todo) == 0 {
			return next, nil
		}
		info, err := d.root.Lstat(next)
		if err != nil {
			return "", err
		}
		if info.Mode()&fs.ModeSymlink == 0 {
			done = next
			continue
		}
		if links++; links > maxLinks {
			return "", fmt.Errorf("resolve %s: %w", name, syscall.ELOOP)
		}
		target, err := d.root.Readlink(next)
		if err != nil {
			return "", err
		}
		if strings.HasPrefix(target, "/") {
			done = "."
		}
		todo = append(strings.Split(target, "/"), todo...)
	}
	return done, nil
}

// Follow resolves every link of name, the last component's included.
func (d *Disk) Follow(name string) (string, error) {
	for range maxLinks {
		at, err := d.Resolve(name)
		if err != nil {
			return "", err
		}
		target, err := d.root.Readlink(at)
		if err != nil {
			return at, nil
		}
		if strings.HasPrefix(target, "/") {
			name = target
		} else {
			// Not path.Join: the link's own ".." must be taken after links before it are resolved.
			name = path.Dir(at) + "/" + target
		}
	}
	return "", fmt.Errorf("resolve %s: %w", name, syscall.ELOOP)
}

// Lstat describes name itself.
func (d *Disk) Lstat(name string) (fs.FileInfo, error) {
	at, err := d.Resolve(name)
	if err != nil {
		return nil, err
	}
	return d.root.Lstat(at)
}

// Exists reports whether something is at name; a dangling link counts.
func (d *Disk) Exists(name string) bool {
	_, err := d.Lstat(name)
	return err == nil
}

// OpenFile opens name, following links inside the root.
func (d *Disk) OpenFile(name string, flag int, mode fs.FileMode) (*os.File, error) {
	at, err := d.Follow(name)
	if err != nil {
		return nil, err
	}
	return d.root.OpenFile(at, flag|syscall.O_NOFOLLOW, mode)
}

// ReadFile reads a regular file of at most limit bytes.
func (d *Disk) ReadFile(name string, limit int64) ([]byte, error) {
	f, err := d.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("read %s: not a regular file", name)
	}
	data, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	if int64(len(data)) > limit {
		return nil, fmt.Errorf("read %s: larger than %d bytes", name, limit)
	}
	return data, nil
}

// Small is the most that any configuration file of ours may weigh.
const Small = 4 << 20

// Text reads a small file and trims white space; it is empty when the file cannot be read.
func (d *Disk) Text(name string) string {
	data, err := d.ReadFile(name, Small)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(data))
}

// ReadDir lists a directory, sorted. A missing directory is empty.
func (d *Disk) ReadDir(name string) ([]fs.DirEntry, error) {
	at, err := d.Follow(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	f, err := d.root.Open(at)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	entries, err := f.ReadDir(-1)
	if errors.Is(err, syscall.ENOTDIR) {
		return nil, nil
	}
	sort.Slice(entries, func(i, j int) bool { return entries[i].Name() < entries[j].Name() })
	return entries, err
}

// Glob expands a pattern of path.Match components; matches are resolved names, sorted, each once. Links are followed
// on the way but never as the last component. What does not exist does not match.
func (d *Disk) Glob(pattern string) ([]string, error) {
	matches := []string{"."}
	parts := strings.Split(clean(pattern), "/")
	for i, part := range parts {
		var next []string
		for _, base := range matches {
			found, err := d.expand(base, part, i == len(parts)-1)
			if err != nil {
				return nil, err
			}
			next = append(next, found...)
		}
		matches = next
	}
	sort.Strings(matches)
	out := matches[:0]
	for i, m := range matches {
		if i == 0 || m != matches[i-1] {
			out = append(out, m)
		}
	}
	return out, nil
}

func (d *Disk) expand(base, part string, last bool) ([]string, error) {
	if !strings.ContainsAny(part, `*?[\`) {
		name := path.Join(base, part)
		if last {
			if _, err := d.root.Lstat(name); err != nil {
				return nil, absent(err)
			}
			return []string{name}, nil
		}
		at, err := d.Follow(name)
		if err != nil {
			return nil, absent(err)
		}
		if _, err := d.root.Lstat(at); err != nil {
			return nil, absent(err)
		}
		return []string{at}, nil
	}
	entries, err := d.ReadDir(base)
	if err != nil {
		return nil, err
	}
	var out []string
	for _, e := range entries {
		ok, err := path.Match(part, e.Name())
		if err != nil {
			return nil, fmt.Errorf("match %s: %w", part, err)
		}
		if !ok {
			continue
		}
		name := path.Join(base, e.Name())
		if !last {
			if name, err = d.Follow(name); err != nil {
				continue
			}
		}
		out = append(out, name)
	}
	return out, nil
}

// absent forgives what means "there is nothing of that name".
func absent(err error) error {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) || errors.Is(err, syscall.ELOOP) {
		return nil
	}
	return err
}
