package disk

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Running reports whether the disk is the root of the system that runs here: "/" itself, or a host's
// root seen from a pod, whose /proc is this kernel's. The kernel knows nothing of any other disk that
// is attached here: Swaps, Loops and Held are then empty.
func (d *Disk) Running() bool {
	if d.Live() {
		return true
	}
	const name = "proc/sys/kernel/random/boot_id"
	own, err := os.ReadFile("/" + name)
	return err == nil && d.Whole().Text(name) == strings.TrimSpace(string(own))
}

// Swaps are the devices and files of the disk to which the running kernel swaps out memory, as
// /proc/swaps names them.
func (d *Disk) Swaps() ([]string, error) {
	if !d.Running() {
		return nil, nil
	}
	l, err := d.Whole().layout()
	if err != nil || l.mere {
		return nil, err
	}
	text, err := os.ReadFile("/proc/swaps")
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil // a kernel without swap
	}
	if err != nil {
		return nil, fmt.Errorf("read swaps: %w", err)
	}
	var own []string
	for _, name := range parseSwaps(string(text)) {
		st, seen, err := d.statKernels(name)
		if err != nil {
			return nil, fmt.Errorf("stat swap %s: %w", name, err)
		}
		dev := st.Dev
		if st.Mode&unix.S_IFMT == unix.S_IFBLK {
			dev = st.Rdev
		}
		if seen && within(sysfs, l.top.dev, dev) {
			own = append(own, name)
		}
	}
	return own, nil
}

// statKernels describes what the kernel calls name. It is the running system's name: in a pod what is
// not seen may be anywhere.
func (d *Disk) statKernels(name string) (st unix.Stat_t, seen bool, err error) {
	err = unix.Stat(name, &st)
	if errors.Is(err, fs.ErrNotExist) && !d.Live() {
		return st, false, nil
	}
	return st, err == nil, err
}

// parseSwaps reads proc(5)'s swaps: a line of headings, then "/dev/sda2 partition 524284 0 -2".
func parseSwaps(text string) (names []string) {
	for i, line := range strings.Split(text, "\n") {
		if field := strings.Fields(line); i > 0 && len(field) > 1 {
			names = append(names, unescape.Replace(field[0]))
		}
	}
	return names
}

// Loop is a loop device that shows a file as a disk.
type Loop struct {
	Device string // /dev/loop0
	file   inode
}

// Shows reports whether info, which Lstat or Walk gave, describes that file.
func (l Loop) Shows(info fs.FileInfo) bool {
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && (inode{st.Dev, st.Ino}) == l.file
}

// Loops are the loop devices in use, but for those of which a pod sees neither device nor file. The
// kernel tells a device's file by inode (LOOP_GET_STATUS64, loop(4)): the name in sysfs is the one
// by which it was opened, perhaps by a link, in a bind mount, or in another mount namespace.
func (d *Disk) Loops() ([]Loop, error) {
	if !d.Running() {
		return nil, nil
	}
	found, err := filepath.Glob(sysfs + "/block/loop*/loop/backing_file")
	if err != nil {
		return nil, err
	}
	var all []Loop
	for _, at := range found {
		l := Loop{Device: devfs + "/" + path.Base(path.Dir(path.Dir(at)))}
		if l.file, err = backing(l.Device); err == nil {
			all = append(all, l)
			continue
		}
		// Without the device's node there is only the name.
		text, terr := os.ReadFile(at)
		if terr != nil {
			continue // detached since
		}
		st, seen, serr := d.statKernels(strings.TrimRight(string(text), "\n"))
		if serr == nil && !seen {
			continue
		}
		if serr != nil {
			return nil, fmt.Errorf("find the file of %s: %w", l.Device, errors.Join(err, serr))
		}
		l.file = inode{st.Dev, st.Ino}
		all = append(all, l)
	}
	return all, nil
}

func backing(device string) (inode, error) {
	f, err := os.Open(device)
	if err != nil {
		return inode{}, err
	}
	defer f.Close()
	status, err := unix.IoctlLoopGetStatus64(int(f.Fd()))
	if err != nil {
		return inode{}, err
	}
	return inode{status.Device, status.Inode}, nil
}

// Held is a deleted file of the disk that a process still uses, so that its blocks are neither free
// nor anybody's.
type Held struct {
	PID     int
	Command string
	Name    string // what it was called
	// link opens it for writing. It is empty for a program or library that runs: it cannot be
	// overwritten without harm.
	link string
	inode
}

// Running reports whether the file is a program or library that runs; such a file Release leaves.
func (h Held) Running() bool { return h.link == "" }

func (h Held) String() string {
	return fmt.Sprintf("/%s, held by %s (process %d)", h.Name, h.Command, h.PID)
}

// Held lists the deleted files of the disk that processes use, each once.
func (d *Disk) Held() ([]Held, error) {
	if !d.Running() {
		return nil, nil
	}
	l, err := d.Whole().layout()
	if err != nil {
		return nil, err
	}
	own := map[uint64]bool{}
	for _, m := range append([]mount{l.top}, append(l.own, l.partly...)...) {
		own[m.dev] = true
	}
	processes, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return nil, err
	}
	var all []Held
	seen := map[inode]int{}
	for _, p := range processes {
		for _, h := range append(openedBy(p), mappedBy(p)...) {
			if !own[h.dev] {
				continue
			}
			if i, known := seen[h.inode]; known {
				if all[i].Running() {
					all[i].link = h.link
				}
				continue
			}
			if name, ok := relative(l.dir, "/"+h.Name); ok {
				h.Name = name
			}
			seen[h.inode] = len(all)
			all = append(all, h)
		}
	}
	return all, nil
}

// Release overwrites the first most bytes of every file that Held lists, and truncates it. What a
// process maps and has not opened is left when it is a program or a library.
func (d *Disk) Release(most int64) error {
	all, err := d.Held()
	if err != nil {
		return err
	}
	for _, h := range all {
		if h.Running() {
			continue
		}
		if err := d.release(h, most); err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ESRCH) {
			return fmt.Errorf("overwrite deleted file %s: %w", h, err)
		}
	}
	return nil
}

func (d *Disk) release(h Held, most int64) error {
	f, err := os.OpenFile(h.link, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	var st unix.Stat_t
	if err = unix.Fstat(int(f.Fd()), &st); err == nil && (inode{st.Dev, st.Ino}) == h.inode && st.Nlink == 0 {
		if err = d.About("overwrite", h.Name); err == nil {
			// Synced before it is truncated: zeros that are still in memory would go with the
			// blocks, and the blocks as they were.
			if err = errors.Join(shred(f, min(st.Size, most)), f.Sync()); err == nil {
				err = f.Truncate(0)
			}
		}
	}
	return errors.Join(err, f.Close())
}

const deleted = " (deleted)"

// openedBy lists the deleted regular files that a process has open (proc(5), /proc/PID/fd).
func openedBy(process string) (all []Held) {
	for _, n := range names(process + "/fd") {
		link := process + "/fd/" + n
		target, err := os.Readlink(link)
		if err != nil || !strings.HasSuffix(target, deleted) {
			continue
		}
		var st unix.Stat_t
		if err := unix.Stat(link, &st); err == nil && st.Nlink == 0 && st.Mode&unix.S_IFMT == unix.S_IFREG {
			all = append(all, held(process, target, link, inode{st.Dev, st.Ino}))
		}
	}
	return all
}

// mappedBy lists the deleted files that a process has mapped (proc(5), /proc/PID/maps: "address
// perms offset dev inode path"); those mapped writable and shared can be opened through
// /proc/PID/map_files.
func mappedBy(process string) (all []Held) {
	text, err := os.ReadFile(process + "/maps")
	if err != nil {
		return nil
	}
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSuffix(line, "\n")
		field := strings.Fields(line)
		if len(field) < 7 || !strings.HasSuffix(line, deleted) {
			continue
		}
		var major, minor uint32
		if _, err := fmt.Sscanf(field[3], "%x:%x", &major, &minor); err != nil {
			continue
		}
		number, err := strconv.ParseUint(field[4], 10, 64)
		if err != nil {
			continue
		}
		link := ""
		if strings.HasPrefix(field[1][1:], "w") && strings.HasSuffix(field[1], "s") {
			link = process + "/map_files/" + field[0]
		}
		all = append(all, held(process, strings.Join(field[5:], " "), link, inode{unix.Mkdev(major, minor), number}))
	}
	return all
}

func held(process, target, link string, id inode) Held {
	pid, _ := strconv.Atoi(path.Base(process))
	command, _ := os.ReadFile(process + "/comm")
	return Held{PID: pid, Command: string(bytes.TrimSpace(command)), Name: strings.TrimPrefix(strings.TrimSuffix(target, deleted), "/"),
		link: link, inode: id}
}

// shred writes zeros over what there is of the first size bytes. A hole stays one: to fill it would
// need room, and it has nothing to hide.
func shred(f *os.File, size int64) error {
	zero := make([]byte, min(size, 64<<10))
	for at := int64(0); at < size; {
		// lseek(2): ENXIO says that only a hole is left. A file system without holes is data from
		// end to end.
		start, err := f.Seek(at, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) {
			return nil
		}
		if err != nil {
			return err
		}
		end, err := f.Seek(start, unix.SEEK_HOLE)
		if err != nil {
			return err
		}
		end = min(end, size)
		for at = start; at < end; {
			n, err := f.WriteAt(zero[:min(end-at, int64(len(zero)))], at)
			if at += int64(n); err != nil {
				return err
			}
		}
		at = max(at, end, start+1)
	}
	return nil
}

// ZeroSwap overwrites a swap partition behind its header, so that it can be used again as it is.
// Nobody may be swapping to it.
func (d *Disk) ZeroSwap(p Partition) error {
	if err := d.About("zero", p.Device); err != nil {
		return err
	}
	f, err := os.OpenFile(p.Device, os.O_RDWR|syscall.O_EXCL, 0) // EBUSY while it is in use
	if err != nil {
		return err
	}
	head := make([]byte, 64<<10)
	n, err := f.ReadAt(head, 0)
	kind, header := Swap(head[:n])
	if kind != HoldsSwap {
		return errors.Join(fmt.Errorf("%s has no swap header any more", p.Device), err, f.Close())
	}
	// BLKZEROOUT of linux/fs.h, _IO(0x12, 127): offset and length in bytes.
	span := [2]uint64{uint64(header), uint64(p.Size - header)}
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, f.Fd(), unix.BLKZEROOUT, uintptr(unsafe.Pointer(&span))); errno != 0 {
		return errors.Join(errno, f.Close())
	}
	return errors.Join(f.Sync(), f.Close())
}
