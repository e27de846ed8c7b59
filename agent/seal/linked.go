package seal

import (
	"io/fs"
	"syscall"

	"kamino.dev/kamino/agent/disk"
)

// otherNames are the names that files which were set aside still have elsewhere: hard links. A scan
// must read them wherever they are, in installed software too, which it passes over otherwise.
func otherNames(d *disk.Disk) (names []string, err error) {
	type inode struct{ dev, ino uint64 }
	left := map[inode]int{}
	linked := func(name string, visit func(name string, id inode, links int)) error {
		return d.Walk(name, func(name string, info fs.FileInfo) error {
			if st, ok := info.Sys().(*syscall.Stat_t); ok && info.Mode().IsRegular() && st.Nlink > 1 {
				visit(name, inode{st.Dev, st.Ino}, int(st.Nlink))
			}
			return nil
		})
	}
	dirs, err := asides(d)
	if err != nil {
		return nil, err
	}
	for _, dir := range dirs {
		err := linked(dir, func(_ string, id inode, links int) {
			if _, seen := left[id]; !seen {
				left[id] = links
			}
			left[id]--
		})
		if err != nil {
			return nil, err
		}
	}
	for id, links := range left {
		if links == 0 {
			delete(left, id)
		}
	}
	if len(left) == 0 {
		return nil, nil // and the walk over all files is not made
	}
	err = linked(".", func(name string, id inode, _ int) {
		if _, elsewhere := left[id]; elsewhere {
			names = append(names, name)
		}
	})
	return names, err
}
