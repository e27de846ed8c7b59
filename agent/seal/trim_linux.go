package seal

import (
	"fmt"
	"io/fs"
	"os"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
	"kamino.dev/kamino/agent/disk"
)

func trim(d *disk.Disk) (int64, error) {
	f, err := d.OpenFile(StateDir, os.O_RDONLY, 0)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	if err := f.Sync(); err != nil {
		return 0, err
	}
	all := trimRange{len: ^uint64(0)}
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, f.Fd(), fitrim, uintptr(unsafe.Pointer(&all))); errno != 0 {
		return 0, fmt.Errorf("trim free space (set freeSpace: zero if the disk has no TRIM): %w", errno)
	}
	return int64(all.len), nil
}

// A second name elsewhere means that the content stays on purpose.
func linked(info fs.FileInfo) bool {
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && st.Nlink > 1
}

// syncDisk makes every write to the disk durable.
func syncDisk(d *disk.Disk) error {
	f, err := d.OpenFile(StateDir, os.O_RDONLY, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := unix.Syncfs(int(f.Fd())); err != nil {
		return fmt.Errorf("sync disk: %w", err)
	}
	return nil
}
