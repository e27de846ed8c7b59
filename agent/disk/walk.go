package disk

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"
	"syscall"
)

// Walk calls visit for every file below name, in no particular order of directories but sorted within each; links are
// never followed, and of other file systems only those on the root's physical disk are entered (FileSystems). visit may
// return fs.SkipDir for a directory.
func (d *Disk) Walk(name string, visit func(name string, info fs.FileInfo) error) error {
	at, err := d.Resolve(name)
	if err != nil {
		return absent(err)
	}
	info, err := d.root.Lstat(at)
	if err != nil {
		return absent(err)
	}
	return d.walk(at, info, device(info), visit)
}

func (d *Disk) walk(at string, info fs.FileInfo, dev uint64, visit func(string, fs.FileInfo) error) error {
	err := visit(at, info)
	if errors.Is(err, fs.SkipDir) && info.IsDir() {
		return nil
	}
	if err != nil || !info.IsDir() {
		return err
	}
	entries, err := d.ReadDir(at)
	if err != nil {
		return fmt.Errorf("list %s: %w", at, err)
	}
	for _, e := range entries {
		child, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) {
			continue // gone since the directory was read
		}
		if err != nil {
			return err
		}
		if child.IsDir() && device(child) != dev && !d.belongs(device(child)) {
			continue
		}
		if err := d.walk(path.Join(at, e.Name()), child, device(child), visit); err != nil {
			return err
		}
	}
	return nil
}

func device(info fs.FileInfo) uint64 {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return uint64(st.Dev)
	}
	return 0
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
