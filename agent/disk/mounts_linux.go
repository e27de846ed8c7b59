package disk

import (
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"sort"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// FileSystem is one mounted file system that lies on the same physical disk as the root: what a
// snapshot of that disk contains as well.
type FileSystem struct {
	Name     string // where it is mounted, relative to the root; "." for the root's own
	Type     string // as mountinfo names it: ext4, xfs, vfat; empty for a root that is a mere directory of a file system
	ReadOnly bool
}

// Mount is something that is mounted below the root, without the root's own mount.
type Mount struct {
	Point  string // relative to the root
	Type   string
	Source string
	// Own is true where it is one of the disk's own file systems at the place where Own shows it.
	Own bool
	// Covers is the own name of the directory or file under it; empty when that is not one of the
	// disk's own.
	Covers string
	// Shows is, for a bind mount of one of the disk's own file systems, the own name of what it
	// shows; otherwise empty.
	Shows string
	// ReadOnly is the mount's own flag, or its file system's.
	ReadOnly bool
}

// FileSystems lists the root's own file system first, then those mounted below it from the same
// physical disk: /boot, /boot/efi, /var of images with several partitions. The resource disk, data
// disks, network and memory are not listed.
func (d *Disk) FileSystems() ([]FileSystem, error) {
	if d.own != nil {
		return d.own, nil
	}
	l, err := d.layout()
	if err != nil {
		return nil, err
	}
	return l.fileSystems(), nil
}

// Mounts lists what is mounted below the root, hidden mounts included, sorted by place.
func (d *Disk) Mounts() ([]Mount, error) {
	l, err := d.Whole().layout()
	if err != nil {
		return nil, err
	}
	return l.mounts(), nil
}

// mount is one line of mountinfo.
type mount struct {
	id, parent   int
	dev          uint64
	root, point  string // root is the directory of the file system that is seen at point
	kind, source string
	readOnly     bool
}

// parseMounts reads proc(5)'s mountinfo: "36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3
// /dev/root rw".
func parseMounts(text string) (all []mount) {
	for line := range strings.Lines(text) {
		left, right, _ := strings.Cut(line, " - ")
		field, kind := strings.Fields(left), strings.Fields(right)
		if len(field) < 6 || len(kind) < 3 {
			continue
		}
		m := mount{root: unescape.Replace(field[3]), point: unescape.Replace(field[4]), kind: kind[0], source: unescape.Replace(kind[1])}
		major, minor, _ := strings.Cut(field[2], ":")
		var errs [4]error
		var number [2]uint64
		m.id, errs[0] = strconv.Atoi(field[0])
		m.parent, errs[1] = strconv.Atoi(field[1])
		number[0], errs[2] = strconv.ParseUint(major, 10, 32)
		number[1], errs[3] = strconv.ParseUint(minor, 10, 32)
		if errors.Join(errs[:]...) != nil {
			continue
		}
		m.dev = unix.Mkdev(uint32(number[0]), uint32(number[1]))
		m.readOnly = slices.Contains(strings.Split(field[5], ","), "ro") || slices.Contains(strings.Split(kind[2], ","), "ro")
		all = append(all, m)
	}
	return all
}

var unescape = strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)

// relative is name as seen from dir, "." for dir itself. Both are clean, and both absolute or both
// relative.
func relative(dir, name string) (string, bool) {
	if name == dir {
		return ".", true
	}
	if dir == "." {
		return name, true
	}
	return strings.CutPrefix(name, strings.TrimSuffix(dir, "/")+"/")
}

// layout sorts out what is mounted at and below a root.
type layout struct {
	dir   string
	top   mount   // the mount in which the root is, as if it began there
	mere  bool    // the root is a directory of its file system, not where one is mounted
	own   []mount // the other file systems of the disk, each at the first place that shows it whole
	other []mount // everything else, and what is hidden under another mount
	// partly are own file systems that are mounted, but nowhere below the root seen whole.
	partly []mount
}

func (d *Disk) layout() (layout, error) {
	dir, err := filepath.Abs(d.dir)
	if err == nil {
		dir, err = filepath.EvalSymlinks(dir)
	}
	if err != nil {
		return layout{}, err
	}
	id, err := d.mountOf(".")
	if err != nil {
		return layout{}, err
	}
	text, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return layout{}, fmt.Errorf("read mounts: %w", err)
	}
	l, ok := arrange(parseMounts(string(text)), dir, int(id), func(own, dev uint64) bool { return within(sysfs, own, dev) })
	if !ok {
		return l, fmt.Errorf("read mounts: %s is on mount %d, which /proc/self/mountinfo does not have", dir, id)
	}
	return l, nil
}

func (d *Disk) mountOf(dir string) (uint64, error) {
	f, err := d.openFile(dir, os.O_RDONLY, 0)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	return mountID(int(f.Fd()))
}

// arrange sorts the mounts below dir, which is on the mount id. belongs tells whether a device is
// on the disks of another.
func arrange(all []mount, dir string, id int, belongs func(own, dev uint64) bool) (l layout, ok bool) {
	at := slices.IndexFunc(all, func(m mount) bool { return m.id == id })
	if at < 0 {
		return l, false
	}
	l.dir, l.top = dir, all[at]
	rest, _ := relative(l.top.point, dir)
	l.mere = rest != "."
	l.top.root, l.top.point = path.Join(l.top.root, rest), dir
	seen := map[uint64]bool{l.top.dev: true}
	for _, m := range all {
		if _, below := relative(dir, m.point); !below || m.id == id || !descends(all, m, id) {
			continue
		}
		switch {
		case m.dev != l.top.dev && belongs(l.top.dev, m.dev) && m.root == "/" && !seen[m.dev] && visible(all, m, id):
			seen[m.dev] = true
			l.own = append(l.own, m)
		default:
			l.other = append(l.other, m)
		}
	}
	for _, m := range l.other {
		if !seen[m.dev] && belongs(l.top.dev, m.dev) {
			seen[m.dev] = true
			l.partly = append(l.partly, m)
		}
	}
	byPoint := func(s []mount) func(i, j int) bool { return func(i, j int) bool { return s[i].point < s[j].point } }
	sort.SliceStable(l.own, byPoint(l.own))
	sort.SliceStable(l.other, byPoint(l.other))
	return l, true
}

func parentOf(all []mount, m mount) (mount, bool) {
	i := slices.IndexFunc(all, func(p mount) bool { return p.id == m.parent && p.id != m.id })
	if i < 0 {
		return mount{}, false
	}
	return all[i], true
}

// descends reports whether m is mounted on the mount id, directly or on something that is.
func descends(all []mount, m mount, id int) bool {
	for range all {
		if m.parent == id {
			return true
		}
		p, ok := parentOf(all, m)
		if !ok {
			return false
		}
		m = p
	}
	return false
}

// visible reports whether m can be reached by its name: nothing is mounted on it, nor on a
// directory on the way to it.
func visible(all []mount, m mount, id int) bool {
	for child, ok := m, true; ok; child, ok = parentOf(all, child) {
		for _, n := range all {
			if n.id == child.id || n.id == child.parent {
				continue
			}
			if n.parent == child.id && n.point == child.point {
				return false
			}
			if _, above := relative(n.point, child.point); above && n.parent == child.parent && n.point != child.point {
				return false
			}
		}
		if child.parent == id {
			break
		}
	}
	return true
}

func (l layout) fileSystems() []FileSystem {
	out := []FileSystem{{Name: ".", ReadOnly: l.top.readOnly}}
	if !l.mere {
		out[0].Type = l.top.kind
	}
	for _, m := range l.own {
		name, _ := relative(l.dir, m.point)
		out = append(out, FileSystem{name, m.kind, m.readOnly})
	}
	return out
}

// name is the own name of the directory or file dir of the file system dev.
func (l layout) name(dev uint64, dir string) (string, bool) {
	for _, m := range append([]mount{l.top}, l.own...) {
		if m.dev != dev {
			continue
		}
		rest, ok := relative(m.root, dir)
		if !ok {
			return "", false
		}
		base, _ := relative(l.dir, m.point)
		return path.Join(base, rest), true
	}
	return "", false
}

func (l layout) mounts() (out []Mount) {
	whole := append([]mount{l.top}, append(slices.Clone(l.own), l.other...)...)
	describe := func(m mount, own bool) {
		s := Mount{Type: m.kind, Source: m.source, Own: own, ReadOnly: m.readOnly}
		s.Point, _ = relative(l.dir, m.point)
		for _, p := range whole {
			if p.id == m.parent {
				rest, _ := relative(p.point, m.point)
				s.Covers, _ = l.name(p.dev, path.Join(p.root, rest))
			}
		}
		if !own {
			s.Shows, _ = l.name(m.dev, m.root)
		}
		out = append(out, s)
	}
	for _, m := range l.own {
		describe(m, true)
	}
	for _, m := range l.other {
		describe(m, false)
	}
	sort.SliceStable(out, func(i, j int) bool { return out[i].Point < out[j].Point })
	return out
}

// Sync makes every write to the disk durable, on all of its file systems.
func (d *Disk) Sync() error {
	all, err := d.FileSystems()
	if err != nil {
		return err
	}
	for _, f := range all {
		if f.ReadOnly {
			continue
		}
		if err := d.About("sync", f.Name); err != nil {
			return err
		}
		dir, err := d.openFile(f.Name, os.O_RDONLY, 0)
		if err != nil {
			return err
		}
		err = unix.Syncfs(int(dir.Fd()))
		_ = dir.Close() // a directory, opened to read
		if err != nil {
			return fmt.Errorf("sync /%s: %w", f.Name, err)
		}
	}
	return nil
}
