// Package disk reads and changes the files of one root directory: "/" on a running node, a host's
// root seen from a pod, or the file system of an attached disk.
//
// Nothing here ever leaves that directory. Names are resolved component by component the way the
// disk's own kernel would resolve them after booting from it: an absolute symbolic link starts
// again at the root, and ".." stops there. The resolved name, which contains no link any more, is
// then opened through os.Root, so that a link swapped in between the two steps cannot lead out
// either.
//
// Nothing that is mounted there from elsewhere is ever overwritten or removed: what changes a tree
// stays on the mount in which it began (statx's mount id, which tells bind mounts of one file
// system apart as well), and Own shows a root without them.
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
	"syscall"
	"time"
)

// maxLinks is the kernel's own limit (MAXSYMLINKS in include/linux/namei.h).
const maxLinks = 40

// Disk is one root directory. Names are slash separated and relative to it; a leading slash is
// accepted and ignored. A Disk is safe for concurrent use as far as the file system is.
type Disk struct {
	dir    string
	views  []*view // deepest first; the last is the root's
	whole  *Disk   // of what Own returned: the root with all that is mounted there
	own    []FileSystem
	before func(kind, name string) error
}

// view is one file system, or one directory with all that is mounted there, and its place in the
// tree of names.
type view struct {
	point string // "." for the root
	root  *os.Root
	tree  *os.File // a detached mount of the file system alone, which exists as long as this is open; nil without one
	top   *os.File // the directory, to open what is below it in one call: tree, or one of its own; nil without one
}

// Open opens the root directory dir.
func Open(dir string) (*Disk, error) {
	var root *os.Root
	info, err := os.Stat(dir)
	if err == nil && !info.IsDir() {
		err = errors.New("not a directory") // a pipe would be waited for
	}
	if err == nil {
		root, err = os.OpenRoot(dir)
	}
	if at := (*fs.PathError)(nil); errors.As(err, &at) {
		err = at.Err
	}
	if err != nil {
		return nil, fmt.Errorf("open root %s: %w; give the directory at which the disk is mounted: --root DIRECTORY", dir, err)
	}
	return &Disk{dir: dir, views: []*view{{point: ".", root: root, top: topOf(dir)}}}, nil
}

// Close releases the directory handles.
func (d *Disk) Close() (err error) {
	for _, v := range d.views {
		err = errors.Join(err, v.root.Close())
		if v.tree != nil {
			err = errors.Join(err, v.tree.Close())
		}
		if v.top != nil && v.top != v.tree {
			err = errors.Join(err, v.top.Close())
		}
	}
	return err
}

// Whole is the root with everything that is mounted there, if d is what Own returned; otherwise d.
func (d *Disk) Whole() *Disk {
	if d.whole != nil {
		return d.whole
	}
	return d
}

// BeforeWrite makes d call hook before each step that changes the disk, with its kind (create,
// write, append, sync, overwrite, truncate, mkdir, rename, symlink, remove, attributes, zero) and
// the name that changes; an error of hook is returned instead of taking the step. It is how tests
// cut the power. What Own returns has the hook as well.
func (d *Disk) BeforeWrite(hook func(kind, name string) error) { d.before = hook }

// About announces a step that is taken outside of this package to the hook of BeforeWrite.
func (d *Disk) About(kind, name string) error {
	if d.before == nil {
		return nil
	}
	return d.before(kind, name)
}

// in finds the file system on which a resolved name lies, and its name there.
func (d *Disk) in(name string) (*view, string) {
	for _, v := range d.views {
		if rest, ok := relative(v.point, name); ok {
			return v, rest
		}
	}
	return d.views[len(d.views)-1], name // never: "." contains all
}

func (d *Disk) lstat(name string) (fs.FileInfo, error) {
	v, at := d.in(name)
	info, err := v.root.Lstat(at)
	return info, ShownError(err)
}

func (d *Disk) readlink(name string) (string, error) {
	v, at := d.in(name)
	target, err := v.root.Readlink(at)
	return target, ShownError(err)
}

// openFile announces what creates or truncates; writing into what is open its caller announces.
func (d *Disk) openFile(name string, flag int, mode fs.FileMode) (*os.File, error) {
	if flag&os.O_CREATE != 0 {
		if err := d.About("create", name); err != nil {
			return nil, err
		}
	} else if flag&os.O_TRUNC != 0 {
		if err := d.About("truncate", name); err != nil {
			return nil, err
		}
	}
	v, at := d.in(name)
	return opened(name, func() (*os.File, error) {
		if f, ok, err := v.openBelow(at, flag|opening); ok {
			return f, err
		}
		return v.root.OpenFile(at, flag|opening, mode)
	})
}

// opening are the flags with which everything is opened: to open a pipe without O_NONBLOCK waits
// for its other end, for ever.
const opening = syscall.O_NOFOLLOW | syscall.O_NONBLOCK

// errOther says that something is neither a regular file nor a directory.
var errOther = errors.New("neither a regular file nor a directory")

// leased is how long a file's lease may keep others out, by the kernel's default and a bit
// (/proc/sys/fs/lease-break-time, 45 s).
const leased = 50 * time.Second

// opened gives what was opened where it is a regular file or a directory. Who looked at its name
// before knows nothing: a process that may write there exchanges it for a pipe or a device meanwhile.
func opened(name string, open func() (*os.File, error)) (*os.File, error) {
	f, err := open()
	for began := time.Now(); errors.Is(err, syscall.EWOULDBLOCK) && time.Since(began) < leased; f, err = open() {
		time.Sleep(100 * time.Millisecond) // somebody has a lease on it, which the first try ends (fcntl(2))
	}
	if err != nil {
		return nil, ShownError(err)
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() && !info.IsDir() {
		err = &fs.PathError{Op: "open", Path: Shown(name), Err: errOther}
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// Dir is the directory as it was given to Open.
func (d *Disk) Dir() string { return d.dir }

// Live reports whether the disk is the running system's own root.
func (d *Disk) Live() bool { return path.Clean(d.dir) == "/" }

// Host is name as this process, and as long as d is open, would have to spell it for a library
// outside this package. The name must be free of links.
func (d *Disk) Host(name string) string {
	v, at := d.in(clean(name))
	if v.tree != nil {
		return path.Join(fmt.Sprintf("/proc/self/fd/%d", v.tree.Fd()), at)
	}
	return path.Join(d.dir, clean(name))
}

func clean(name string) string {
	name = strings.TrimPrefix(path.Clean("/"+name), "/")
	if name == "" {
		return "."
	}
	return name
}

// Resolve follows every symbolic link of name but the last component's, and returns a name without
// links. The last component need not exist; a missing directory on the way is fs.ErrNotExist.
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
		info, err := d.lstat(next)
		if err != nil {
			return "", err
		}
		if info.Mode()&fs.ModeSymlink == 0 {
			done = next
			continue
		}
		if links++; links > maxLinks {
			return "", fmt.Errorf("resolve %s: %w", Shown(name), syscall.ELOOP)
		}
		target, err := d.readlink(next)
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
		target, err := d.readlink(at)
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
	return "", fmt.Errorf("resolve %s: %w", Shown(name), syscall.ELOOP)
}

// Lstat describes name itself.
func (d *Disk) Lstat(name string) (fs.FileInfo, error) {
	at, err := d.Resolve(name)
	if err != nil {
		return nil, err
	}
	return d.lstat(at)
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
	return d.openFile(at, flag, mode)
}

// OpenWalked opens for reading what Walk has just named. No link was on the way, so none is looked
// for, which would take longer than to open and read a small file. What has become one since is
// followed inside the root. A file that has become a pipe or a device is gone: fs.ErrNotExist.
func (d *Disk) OpenWalked(name string) (*os.File, error) {
	f, err := d.openFile(clean(name), os.O_RDONLY, 0)
	if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, errOther) {
		f, err = d.OpenFile(name, os.O_RDONLY, 0)
	}
	if errors.Is(err, errOther) {
		return nil, fmt.Errorf("%w: %w", fs.ErrNotExist, err)
	}
	return f, err
}

// ReadFile reads a regular file of at most limit bytes.
func (d *Disk) ReadFile(name string, limit int64) ([]byte, error) {
	f, err := d.OpenFile(name, os.O_RDONLY, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("read %s: not a regular file", Shown(name))
	}
	data, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", Shown(name), err)
	}
	if int64(len(data)) > limit {
		return nil, fmt.Errorf("read %s: larger than %d bytes", Shown(name), limit)
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
	f, err := d.openFile(at, os.O_RDONLY|syscall.O_DIRECTORY, 0)
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

// absent drops the errors which say that nothing has that name, or that nothing can have it.
func absent(err error) error {
	for _, none := range []error{fs.ErrNotExist, syscall.ENOTDIR, syscall.ELOOP, syscall.ENAMETOOLONG} {
		if errors.Is(err, none) {
			return nil
		}
	}
	return err
}
