package disk

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"sort"
	"strings"

	"golang.org/x/sys/unix"
)

// FileSystem is one mounted file system that lies on the same physical disk as the root: what a snapshot of that disk
// contains as well.
type FileSystem struct {
	Name     string // where it is mounted, relative to the root; "." for the root's own
	Type     string // as mountinfo names it: ext4, xfs, vfat
	ReadOnly bool
}

// FileSystems lists the root's own file system first, then those mounted below it from the same physical disk: /boot,
// /boot/efi, /var of images with several partitions. The resource disk, data disks, network and memory are not listed.
func (d *Disk) FileSystems() ([]FileSystem, error) {
	text, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, fmt.Errorf("read mounts: %w", err)
	}
	dir, err := filepath.Abs(d.dir)
	if err != nil {
		return nil, err
	}
	if dir, err = filepath.EvalSymlinks(dir); err != nil {
		return nil, err
	}
	out, seen := []FileSystem{{Name: "."}}, map[uint64]bool{d.device(): true}
	for _, m := range parseMounts(string(text)) {
		name, below := relative(dir, m.point)
		if !below {
			continue
		}
		info, err := d.root.Lstat(name)
		if err != nil || !info.IsDir() {
			continue
		}
		if name == "." {
			out[0] = FileSystem{".", m.kind, m.readOnly}
		} else if dev := device(info); !seen[dev] && d.belongs(dev) {
			seen[dev] = true // a bind mount shows the same files again
			out = append(out, FileSystem{name, m.kind, m.readOnly})
		}
	}
	sort.SliceStable(out[1:], func(i, j int) bool { return out[i+1].Name < out[j+1].Name })
	return out, nil
}

type mount struct {
	point, kind string
	readOnly    bool
}

// parseMounts reads proc(5)'s mountinfo: "36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw".
func parseMounts(text string) (all []mount) {
	for line := range strings.Lines(text) {
		left, right, _ := strings.Cut(line, " - ")
		field, kind := strings.Fields(left), strings.Fields(right)
		if len(field) < 6 || len(kind) < 3 {
			continue
		}
		m := mount{point: unescape.Replace(field[4]), kind: kind[0]}
		m.readOnly = slices.Contains(strings.Split(field[5], ","), "ro") || slices.Contains(strings.Split(kind[2], ","), "ro")
		all = append(all, m)
	}
	return all
}

var unescape = strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)

func relative(dir, point string) (string, bool) {
	if point == dir {
		return ".", true
	}
	name, ok := strings.CutPrefix(point, strings.TrimSuffix(dir, "/")+"/")
	return name, ok
}

// device is the root's own.
func (d *Disk) device() uint64 {
	info, err := d.root.Lstat(".")
	if err != nil {
		return 0
	}
	return device(info)
}

// belongs reports whether a device number is that of the root's file system or of another one on the same physical disk.
func (d *Disk) belongs(dev uint64) bool {
	if known, ok := d.devices.Load(dev); ok {
		return known.(bool)
	}
	own := d.device()
	same := dev == own
	if !same {
		disks := physical("/sys/dev/block", own)
		same = slices.ContainsFunc(physical("/sys/dev/block", dev), func(name string) bool { return slices.Contains(disks, name) })
	}
	d.devices.Store(dev, same)
	return same
}

// physical names the disks behind a block device: a partition's disk, what a mapped device is made of
// (https://docs.kernel.org/admin-guide/sysfs-rules.html). Empty for file systems without a block device.
func physical(sys string, dev uint64) []string {
	at, err := filepath.EvalSymlinks(fmt.Sprintf("%s/%d:%d", sys, unix.Major(dev), unix.Minor(dev)))
	if err != nil {
		return nil
	}
	return below(at, 0)
}

func below(at string, depth int) (disks []string) {
	if _, err := os.Stat(at + "/partition"); err == nil {
		return []string{path.Base(path.Dir(at))}
	}
	slaves, err := os.ReadDir(at + "/slaves")
	if err != nil || len(slaves) == 0 || depth > 8 {
		return []string{path.Base(at)}
	}
	for _, s := range slaves {
		if target, err := filepath.EvalSymlinks(at + "/slaves/" + s.Name()); err == nil {
			disks = append(disks, below(target, depth+1)...)
		}
	}
	return disks
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
		dir, err := d.root.Open(f.Name)
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
