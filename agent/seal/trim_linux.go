package seal

import (
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
	"kamino.dev/kamino/agent/disk"
)

// trim tells the disk which blocks of the file system at dir are free, and reports their bytes.
func trim(d *disk.Disk, dir string) (int64, error) {
	f, err := d.OpenFile(dir, os.O_RDONLY, 0)
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
