package seal

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// waiveReserve gives files the blocks that a file system keeps for itself, which not even root can
// write to, until restore is called. Without it filling a file system leaves up to 4,096 blocks of
// ext4 (ext4_calculate_resv_clusters) and up to 8,192 of XFS (xfs_default_resblks) as they were.
// Other file systems keep none. (XFS has some tens more in each allocation group, for its trees,
// which nothing gives away.)
func waiveReserve(f *os.File) (restore func() error, err error) {
	var fs unix.Statfs_t
	if err := unix.Fstatfs(int(f.Fd()), &fs); err != nil {
		return nil, fmt.Errorf("read file system of %s: %w", f.Name(), err)
	}
	switch fs.Type {
	case unix.EXT4_SUPER_MAGIC: // ext2's and ext3's too; the same driver serves them
		return waiveExt4(f)
	case unix.XFS_SUPER_MAGIC:
		return waiveXFS(f)
	}
	return func() error { return nil }, nil
}

func waiveExt4(f *os.File) (restore func() error, err error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return nil, err
	}
	device, err := os.Readlink(fmt.Sprintf("/sys/dev/block/%d:%d", unix.Major(st.Dev), unix.Minor(st.Dev)))
	if err != nil {
		return nil, fmt.Errorf("find device of file system: %w", err)
	}
	knob := filepath.Join("/sys/fs/ext4", filepath.Base(device), "reserved_clusters")
	former, err := os.ReadFile(knob)
	if errors.Is(err, os.ErrNotExist) {
		return func() error { return nil }, nil // the ext2 driver, which keeps nothing
	}
	if err != nil {
		return nil, err
	}
	set := func(n string) error { return os.WriteFile(knob, []byte(n), 0) }
	return func() error { return set(strings.TrimSpace(string(former))) }, set("0")
}

// EXT4_IOC_CHECKPOINT of ext4.h, _IOW('f', 43, __u32), with its flag to zero the journal's blocks;
// since Linux 5.14.
const (
	ext4Checkpoint = 0x4004662b
	zeroJournal    = 2
)

// checkpoint writes to their places the blocks that only the journal has, and zeroes the journal,
// where the file system and the kernel can; nothing else depends on it.
func checkpoint(f *os.File) {
	flags := uint32(zeroJournal)
	_, _, _ = unix.Syscall(unix.SYS_IOCTL, f.Fd(), ext4Checkpoint, uintptr(unsafe.Pointer(&flags)))
}

// XFS_IOC_SET_RESBLKS and XFS_IOC_GET_RESBLKS of xfs_fs.h, _IOWR('X', 114, struct xfs_fsop_resblks)
// and _IOR('X', 115, …).
const (
	setReserve = 0xc0105872
	getReserve = 0x80105873
)

type xfsReserve struct{ blocks, free uint64 }

func waiveXFS(f *os.File) (restore func() error, err error) {
	call := func(op uintptr, r *xfsReserve) error {
		if _, _, errno := unix.Syscall(unix.SYS_IOCTL, f.Fd(), op, uintptr(unsafe.Pointer(r))); errno != 0 {
			return fmt.Errorf("reserved blocks of XFS: %w", errno)
		}
		return nil
	}
	var former xfsReserve
	if err := call(getReserve, &former); err != nil {
		return nil, err
	}
	return func() error { return call(setReserve, &xfsReserve{blocks: former.blocks}) }, call(setReserve, &xfsReserve{})
}
