package disk

import (
	"errors"
	"fmt"
	"os"
	"path"
	"sort"
	"strings"

	"golang.org/x/sys/unix"
)

// Own shows the same root as the disk itself has it: only the file systems of the root's physical
// disk, and what lies under everything else that is mounted there. It does so through private
// mounts that are attached nowhere (open_tree(2), Linux 5.2), so nobody else sees them, nothing can
// be mounted on them, and they end with the process. The result is closed by the caller; d stays
// open. On what Own returned it returns another of the same kind.
//
// Where mounting is not permitted and nothing is mounted below the root, it is the root as it is.
func (d *Disk) Own() (*Disk, error) {
	d = d.Whole()
	l, err := d.layout()
	if err != nil {
		return nil, err
	}
	o := &Disk{dir: d.dir, whole: d, own: l.fileSystems(), before: d.before}
	for _, m := range append([]mount{l.top}, l.own...) {
		v, err := detach(m, l)
		if errors.Is(err, unix.EPERM) && len(l.own)+len(l.other) == 0 {
			v, err = plainView(l.dir)
		}
		if err != nil {
			return nil, errors.Join(fmt.Errorf("see what is under the mounts below %s (Linux 5.2 or later, as root): %w", l.dir, err),
				o.Close())
		}
		o.views = append(o.views, v)
	}
	sort.SliceStable(o.views, func(i, j int) bool { return depth(o.views[i].point) > depth(o.views[j].point) })
	return o, nil
}

// Beneath is what Own returned, without the file system at point and those below it: what lies
// under them shows. It is closed with d.
func (d *Disk) Beneath(point string) *Disk {
	b := &Disk{dir: d.dir, whole: d.whole, own: d.own, before: d.before}
	for _, v := range d.views {
		if _, inside := relative(point, v.point); !inside {
			b.views = append(b.views, v)
		}
	}
	return b
}

func depth(point string) int {
	if point == "." {
		return 0
	}
	return strings.Count(point, "/") + 1
}

func plainView(dir string) (*view, error) {
	root, err := os.OpenRoot(dir)
	return &view{point: ".", root: root, top: topOf(dir)}, err
}

// detach opens a mount of m's file system alone.
func detach(m mount, l layout) (*view, error) {
	fd, err := unix.OpenTree(unix.AT_FDCWD, m.point, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_NO_AUTOMOUNT)
	if err != nil {
		return nil, fmt.Errorf("open_tree %s: %w", m.point, err)
	}
	tree := os.NewFile(uintptr(fd), path.Join("/proc/self/fd", fmt.Sprint(fd)))
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, errors.Join(err, tree.Close())
	}
	if st.Dev != m.dev && !anonymous(m.dev) {
		return nil, errors.Join(fmt.Errorf("%s is not what /proc/self/mountinfo says", m.point), tree.Close())
	}
	root, err := os.OpenRoot(tree.Name())
	if err != nil {
		return nil, errors.Join(err, tree.Close())
	}
	point, _ := relative(l.dir, m.point)
	return &view{point: point, root: root, tree: tree, top: tree}, nil
}

// anonymous reports whether a device number is one of those that the kernel gives to file systems
// without a block device; those of btrfs differ between a mount and its files.
func anonymous(dev uint64) bool { return unix.Major(dev) == 0 }
