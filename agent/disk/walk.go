package disk

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"syscall"
)

// Walk calls visit for every file below name, in no particular order of directories but sorted
// within each; links are never followed. It does not enter what is mounted there, except, on what
// Own returned, the disk's own file systems. visit may return fs.SkipDir for a directory.
func (d *Disk) Walk(name string, visit func(name string, info fs.FileInfo) error) error {
	at, err := d.Resolve(name)
	if err != nil {
		return absent(err)
	}
	info, err := d.lstat(at)
	if err != nil {
		return absent(err)
	}
	return walker{Disk: d, visit: visit}.walk(at, info)
}

type walker struct {
	*Disk
	visit func(string, fs.FileInfo) error
	on    *view
	mount uint64
	// from is a directory above, of which directories below are opened, and above its name: from
	// the root each would take as long as its depth, and all of a deep tree the square of that.
	from  *os.Root
	above string
	depth int
}

// anchorEvery is how many levels are opened from one directory.
const anchorEvery = 32

func (w walker) walk(name string, info fs.FileInfo) error {
	if !info.IsDir() {
		return w.visit(name, info)
	}
	if len(name) > mostPath {
		if err := w.visit(name, tooDeep{info}); !errors.Is(err, fs.SkipDir) {
			return err
		}
		return nil
	}
	dir, err := w.enter(name)
	if dir == nil || err != nil {
		return absent(err) // gone since its directory was read, or not the disk's
	}
	if err := w.visit(name, info); err != nil {
		_ = dir.Close() // opened to read
		if errors.Is(err, fs.SkipDir) {
			return nil
		}
		return err
	}
	entries, err := dir.ReadDir(-1)
	if w.depth++; w.depth%anchorEvery == 0 && err == nil {
		// By the descriptor: its name may be another's by now.
		if root, rerr := os.OpenRoot(fmt.Sprintf("/proc/self/fd/%d", dir.Fd())); rerr == nil {
			defer root.Close()
			w.from, w.above = root, name
		}
	}
	if err = errors.Join(err, dir.Close()); err != nil {
		return fmt.Errorf("list %s: %w", Shown(name), err)
	}
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	for _, e := range entries {
		below := path.Join(name, e.Name())
		child, err := e.Info()
		if v, rest := w.in(below); rest == "." {
			child, err = v.root.Lstat(".") // another of the disk's file systems begins here
		}
		if errors.Is(err, fs.ErrNotExist) {
			continue // gone since the directory was read
		}
		if err != nil {
			return err
		}
		if err := w.walk(below, child); err != nil {
			return err
		}
	}
	return nil
}

// enter opens a directory, unless it is one of something else that is mounted there. It has its own
// copy of the walker.
func (w *walker) enter(name string) (*os.File, error) {
	v, _ := w.in(name)
	if v != w.on {
		w.from = nil
	}
	dir, err := opened(name, func() (*os.File, error) {
		if w.from != nil {
			return w.from.OpenFile(strings.TrimPrefix(name, w.above+"/"), os.O_RDONLY|syscall.O_DIRECTORY|opening, 0)
		}
		_, at := w.in(name)
		return v.root.OpenFile(at, os.O_RDONLY|syscall.O_DIRECTORY|opening, 0)
	})
	if err != nil {
		return nil, err
	}
	mount, err := mountID(int(dir.Fd()))
	if v != w.on {
		w.on, w.mount = v, mount
	}
	if err != nil || mount != w.mount {
		return nil, errors.Join(err, dir.Close())
	}
	return dir, nil
}

// Size is the number of content bytes at name, directories summed.
func (d *Disk) Size(name string) (bytes int64, err error) {
	err = d.Walk(name, func(_ string, info fs.FileInfo) error {
		if info.Mode().IsRegular() {
			bytes += info.Size()
		}
		return nil
	})
	return bytes, err
}

// Under reports whether name is dir or below it.
func Under(name, dir string) bool {
	name, dir = clean(name), clean(dir)
	return dir == "." || name == dir || strings.HasPrefix(name, dir+"/")
}

// mostPath is how long a name may be that Walk enters: the kernel takes no longer one (PATH_MAX), so
// that only who changes into each directory after the other gets further down.
const mostPath = 4096

// tooDeep describes a directory that Walk did not enter.
type tooDeep struct{ fs.FileInfo }

// Deep reports whether what Walk visits is a directory that it does not enter, as its name is longer
// than the kernel takes one. What is below was not looked at.
func Deep(info fs.FileInfo) bool {
	_, deep := info.(tooDeep)
	return deep
}
