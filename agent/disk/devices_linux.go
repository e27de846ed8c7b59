package disk

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

const (
	sysfs = "/sys"
	devfs = "/dev"
)

// Partition is a partition, or a mapped volume, of the disk on which the root lies, that Own does
// not show.
type Partition struct {
	Device string // /dev/sda3
	Size   int64  // bytes
	Holds  string // one of the Holds constants, or a file system: ext4, xfs, btrfs, vfat
	dev    uint64
}

// What a partition may hold besides a file system.
const (
	HoldsSwap    = "swap"
	HoldsNothing = "nothing" // zeros from end to end
	HoldsBoot    = "boot loader"
	HoldsCrypt   = "crypto_LUKS"
	HoldsLVM     = "LVM2_member"
	HoldsUnknown = "unknown data"
	// HoldsHibernation is memory of a system that was not shut down.
	HoldsHibernation = "a hibernated system"
)

// Devices is what the block devices under the root are.
type Devices struct {
	Disks      []string    // the physical disks under the root's file system; none where it has no block device
	Encrypted  []string    // the dm-crypt devices under the disk's own file systems
	Partly     []string    // devices of the disk that are mounted, but nowhere below the root as a whole
	Partitions []Partition // what is not mounted
	Outside    *Outside    // data outside of all partitions; nil without
}

// Devices looks at the disk under the root, in sysfs and at the first bytes of what is not mounted.
// A root that is a mere directory of a file system is on nobody's disk: nothing is looked at.
func (d *Disk) Devices() (Devices, error) {
	l, err := d.Whole().layout()
	if err != nil || l.mere {
		return Devices{}, err
	}
	return l.devices(sysfs, devfs)
}

func (l layout) devices(sys, dev string) (Devices, error) {
	var out Devices
	out.Disks = physical(sys, l.top.dev)
	mounted := map[uint64]bool{}
	for _, m := range append([]mount{l.top}, l.own...) {
		mounted[m.dev] = true
		out.Encrypted = append(out.Encrypted, encrypted(sys, m.dev)...)
	}
	for _, m := range l.partly {
		mounted[m.dev] = true
		out.Partly = append(out.Partly, fmt.Sprintf("%s (/%s)", m.source, strings.TrimPrefix(m.root, "/")))
	}
	for _, disk := range out.Disks {
		for _, at := range leaves(sys+"/class/block/"+disk, 0) {
			p, err := describe(at, dev)
			if err != nil {
				return out, err
			}
			if mounted[p.dev] || path.Base(at) == disk {
				continue
			}
			if p.Holds, err = probe(p, path.Join(dev, disk), at); err != nil {
				return out, fmt.Errorf("probe %s: %w", p.Device, err)
			}
			out.Partitions = append(out.Partitions, p)
		}
		if out.Outside == nil {
			var err error
			if out.Outside, err = outside(sys, dev, disk); err != nil {
				return out, err
			}
		}
	}
	return out, nil
}

// within reports whether all of the device dev lies on the disks of the device own.
func within(sys string, own, dev uint64) bool {
	if own == dev {
		return true
	}
	disks, of := physical(sys, own), physical(sys, dev)
	return len(of) > 0 && !slices.ContainsFunc(of, func(name string) bool { return !slices.Contains(disks, name) })
}

func deviceDir(sys string, dev uint64) (string, error) {
	return filepath.EvalSymlinks(fmt.Sprintf("%s/dev/block/%d:%d", sys, unix.Major(dev), unix.Minor(dev)))
}

// physical names the disks behind a block device: a partition's disk, what a mapped device is made
// of (https://docs.kernel.org/admin-guide/sysfs-rules.html). Empty for file systems without a block
// device.
func physical(sys string, dev uint64) (disks []string) {
	under(sys, dev, func(at string) {
		if name := path.Base(at); len(madeOf(at)) == 0 && !slices.Contains(disks, name) {
			disks = append(disks, name)
		}
	})
	return disks
}

// encrypted names the dm-crypt devices in what a block device is made of; dm/uuid begins with the
// target's kind (https://gitlab.com/cryptsetup/cryptsetup: lib/utils_devpath.c, "CRYPT-").
func encrypted(sys string, dev uint64) (names []string) {
	under(sys, dev, func(at string) {
		if id, err := os.ReadFile(at + "/dm/uuid"); err == nil && bytes.HasPrefix(id, []byte("CRYPT-")) {
			names = append(names, devfs+"/"+path.Base(at))
		}
	})
	return names
}

// under visits the sysfs directories of a block device and of all that it is made of.
func under(sys string, dev uint64, visit func(at string)) {
	at, err := deviceDir(sys, dev)
	if err != nil {
		return
	}
	var down func(at string, depth int)
	down = func(at string, depth int) {
		visit(at)
		for _, s := range madeOf(at) {
			if depth < 8 {
				down(s, depth+1)
			}
		}
	}
	down(at, 0)
}

// madeOf are the devices of which a mapped device is made, and the disk of a partition.
func madeOf(at string) (all []string) {
	if _, err := os.Stat(at + "/partition"); err == nil {
		return []string{path.Dir(at)}
	}
	for _, s := range names(at + "/slaves") {
		if target, err := filepath.EvalSymlinks(at + "/slaves/" + s); err == nil {
			all = append(all, target)
		}
	}
	return all
}

func names(dir string) (out []string) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil
	}
	for _, e := range entries {
		out = append(out, e.Name())
	}
	return out
}

// leaves are the partitions of a disk, and the mapped devices that are made of them, which nothing
// else is made of.
func leaves(at string, depth int) (all []string) {
	target, err := filepath.EvalSymlinks(at)
	if err != nil || depth > 8 {
		return nil
	}
	var next []string
	for _, name := range names(target) {
		if _, err := os.Stat(path.Join(target, name, "partition")); err == nil {
			next = append(next, path.Join(target, name))
		}
	}
	for _, name := range names(target + "/holders") {
		next = append(next, path.Join(target, "holders", name))
	}
	if len(next) == 0 {
		return []string{target}
	}
	for _, n := range next {
		for _, leaf := range leaves(n, depth+1) {
			if !slices.Contains(all, leaf) { // two physical volumes may hold one logical volume
				all = append(all, leaf)
			}
		}
	}
	return all
}

func describe(at, dev string) (Partition, error) {
	p := Partition{Device: path.Join(dev, path.Base(at))}
	number, err := os.ReadFile(at + "/dev")
	if err != nil {
		return p, fmt.Errorf("read device number: %w", err)
	}
	var major, minor uint32
	if _, err := fmt.Sscanf(string(number), "%d:%d", &major, &minor); err != nil {
		return p, fmt.Errorf("read device number of %s: %w", p.Device, err)
	}
	p.dev = unix.Mkdev(major, minor)
	if sectors, err := os.ReadFile(at + "/size"); err == nil {
		n, _ := strconv.ParseInt(strings.TrimSpace(string(sectors)), 10, 64)
		p.Size = n << 9 // sysfs counts in 512 bytes, whatever the disk's sectors are
	}
	return p, nil
}

// probe finds out what an unmounted partition holds.
func probe(p Partition, disk, at string) (string, error) {
	f, err := os.Open(p.Device)
	if err != nil {
		return "", err
	}
	defer f.Close()
	kind, err := signature(f)
	if err != nil || kind != HoldsUnknown {
		return kind, err
	}
	if number, err := os.ReadFile(at + "/partition"); err == nil {
		n, _ := strconv.Atoi(strings.TrimSpace(string(number)))
		whole, err := os.Open(disk)
		if err != nil {
			return "", err
		}
		defer whole.Close()
		if biosBoot(whole, n) {
			return HoldsBoot, nil
		}
	}
	const most = 256 << 20 // what is larger is for people to look at
	if p.Size <= most && zeros(io.LimitReader(f, most)) {
		return HoldsNothing, nil
	}
	return HoldsUnknown, nil
}

// signature knows the kinds of content that matter, by the magic numbers of util-linux' libblkid
// (superblocks/*.c).
func signature(r io.ReaderAt) (string, error) {
	head := make([]byte, 64<<10+4096)
	n, err := r.ReadAt(head, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return "", err
	}
	if n < 4096 {
		return HoldsUnknown, nil
	}
	for _, m := range []struct {
		offset      int
		magic, kind string
	}{
		{0, "LUKS\xba\xbe", HoldsCrypt}, {0, "XFSB", "xfs"}, {1080, "\x53\xef", "ext4"}, {64<<10 + 64, "_BHRfS_M", "btrfs"},
		{512 + 24, "LVM2 001", HoldsLVM}, {24, "LVM2 001", HoldsLVM}, {82, "FAT32   ", "vfat"}, {54, "FAT16   ", "vfat"},
		{54, "FAT12   ", "vfat"},
	} {
		if m.offset < n && bytes.HasPrefix(head[m.offset:n], []byte(m.magic)) {
			return m.kind, nil
		}
	}
	if kind, _ := Swap(head[:n]); kind != "" {
		return kind, nil
	}
	return HoldsUnknown, nil
}

// Swap tells whether a file or partition that begins with these bytes is made for swapping
// (HoldsSwap), or holds a hibernated system (HoldsHibernation), and the length of its header;
// otherwise kind is empty. The signature is in the last ten bytes of the first page, of 4 to 64 KiB
// (mkswap(8); include/linux/swap.h, kernel/power/swap.c; util-linux, superblocks/swap.c).
func Swap(head []byte) (kind string, header int64) {
	for page := 4096; page <= 64<<10 && page <= len(head); page *= 2 {
		switch string(head[page-10 : page]) {
		case "SWAPSPACE2", "SWAP-SPACE":
			return HoldsSwap, int64(page)
		case "S1SUSPEND\x00", "S2SUSPEND\x00", "ULSUSPEND\x00", "LINHIB0001":
			return HoldsHibernation, int64(page)
		}
	}
	return "", 0
}

// biosBoot reports whether a GPT says that a partition holds a boot loader for machines without
// UEFI: the type's GUID, 21686148-6449-6E6F-744E-656564454649, is a sentence where it is written
// (UEFI specification, "GPT Partition Entry Array";
// https://www.gnu.org/software/grub/manual/grub/html_node/BIOS-installation.html).
func biosBoot(disk io.ReaderAt, number int) bool {
	if number < 1 {
		return false
	}
	for _, sector := range []int64{512, 4096} {
		head := make([]byte, 92)
		if _, err := disk.ReadAt(head, sector); err != nil || string(head[:8]) != "EFI PART" {
			continue
		}
		table, count, size := binary.LittleEndian.Uint64(head[72:]), binary.LittleEndian.Uint32(head[80:]),
			binary.LittleEndian.Uint32(head[84:])
		if uint32(number) > count || size < 128 || size > 4096 {
			return false
		}
		entry := make([]byte, 16)
		_, err := disk.ReadAt(entry, int64(table)*sector+int64(number-1)*int64(size))
		return err == nil && string(entry) == "Hah!IdontNeedEFI"
	}
	return false
}

func zeros(r io.Reader) bool {
	buf, zero := make([]byte, 1<<20), make([]byte, 1<<20)
	for {
		n, err := r.Read(buf)
		if !bytes.Equal(buf[:n], zero[:n]) {
			return false
		}
		if err != nil {
			return errors.Is(err, io.EOF)
		}
	}
}

// HasSwap reports whether a source of fstab(5), in which a tag's value may be quoted, is a swap
// partition of this disk.
func (d *Disk) HasSwap(source string) bool {
	source = strings.ReplaceAll(source, `"`, "")
	devices, err := d.Devices()
	if err != nil {
		return false
	}
	var dev uint64
	var st unix.Stat_t
	if at := tagged(source); at != "" && unix.Stat(at, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFBLK {
		dev = st.Rdev
	}
	return slices.ContainsFunc(devices.Partitions, func(p Partition) bool {
		if p.Holds != HoldsSwap {
			return false
		}
		id, label := swapNames(p.Device)
		return dev != 0 && p.dev == dev || source == "UUID="+id || label != "" && source == "LABEL="+label
	})
}

// tagged is the name of a device that a source of fstab(5) has where udev makes links.
func tagged(source string) string {
	for tag, dir := range map[string]string{"UUID=": "by-uuid", "LABEL=": "by-label", "PARTUUID=": "by-partuuid",
		"PARTLABEL=": "by-partlabel"} {
		if value, ok := strings.CutPrefix(source, tag); ok && value != "" && path.Base(value) == value {
			return path.Join(devfs, "disk", dir, value)
		}
	}
	if strings.HasPrefix(source, devfs+"/") {
		return path.Clean(source)
	}
	return ""
}

// swapNames are the UUID and the label in the header of a swap partition: behind 1024 bytes and
// three numbers, of 16 bytes each (include/linux/swap.h).
func swapNames(device string) (id, label string) {
	const at = 1024 + 12
	head := make([]byte, at+32)
	f, err := os.Open(device)
	if err != nil {
		return "", ""
	}
	defer f.Close()
	if _, err := f.ReadAt(head, 0); err != nil {
		return "", ""
	}
	u := head[at : at+16]
	name, _, _ := bytes.Cut(head[at+16:], []byte{0})
	return fmt.Sprintf("%x-%x-%x-%x-%x", u[:4], u[4:6], u[6:8], u[8:10], u[10:]), string(name)
}
