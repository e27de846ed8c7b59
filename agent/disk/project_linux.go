package disk

import (
	"errors"
	"os"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// attributes is struct fsxattr of linux/fs.h, which ext4 and XFS fill in (ioctl_xfs_fsgetxattr(2)).
type attributes struct {
	flags, extentSize, extents, project, cowExtentSize uint32
	_                                                  [8]byte
}

const (
	getAttributes = 0x801c581f // FS_IOC_FSGETXATTR, _IOR('X', 31, struct fsxattr)
	setAttributes = 0x401c5820 // FS_IOC_FSSETXATTR, _IOW('X', 32, struct fsxattr)
	// inheritProject is FS_XFLAG_PROJINHERIT, chattr(1)'s P: what is made in the directory has its
	// project, and what has another cannot be renamed into it (xfs_rename in fs/xfs/xfs_inode.c,
	// ext4_rename in fs/ext4/namei.c).
	inheritProject = 0x200
)

// acrossProjects repeats a rename that a directory's project forbade, without that flag, which it
// puts back. A power cut between the two leaves the directory without the flag. refused is returned
// where the project was not why.
func (d *Disk) acrossProjects(dir string, refused error, again func() error) error {
	f, err := d.openFile(dir, os.O_RDONLY|syscall.O_DIRECTORY, 0)
	if err != nil {
		return refused
	}
	defer f.Close()
	var now attributes
	if control(f, getAttributes, &now) != nil || now.flags&inheritProject == 0 {
		return refused
	}
	if err := d.About("attributes", dir); err != nil {
		return err
	}
	without := now
	without.flags &^= inheritProject
	if err := control(f, setAttributes, &without); err != nil {
		return errors.Join(refused, err)
	}
	return errors.Join(again(), control(f, setAttributes, &now))
}

func control(f *os.File, request uintptr, a *attributes) error {
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, f.Fd(), request, uintptr(unsafe.Pointer(a))); errno != 0 {
		return os.NewSyscallError("ioctl", errno)
	}
	return nil
}
