package seal

import (
	"context"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
	"kamino.dev/kamino/agent/disk"
)

// What to do about blocks that hold what was deleted earlier, by whomever.
const (
	// FreeAuto trims, and zeroes the file systems whose disk takes no TRIM.
	FreeAuto = "auto"
	// FreeZero writes zeros over every free block: minutes on a large disk, but it does not depend on what the disk makes of
	// TRIM. The default: on a disk whose clusters are larger than a file system's blocks, trimmed secrets were found in the image.
	FreeZero = "zero"
	// FreeTrim tells the disk which blocks are free. Whether a managed disk then returns zeros is unverified on real Azure.
	FreeTrim = "trim"
	// FreeNone leaves them.
	FreeNone = "none"
)

// shredMost bounds what is overwritten in one file. Secrets are small; the gigabytes of a swap file or a log are left to
// the freed-space step, which covers their blocks as well.
const shredMost = 16 << 20

// Purge overwrites and removes what a committed seal set aside. It may be interrupted and repeated.
//
// Overwriting in place makes the blocks zero even on a disk without TRIM; truncating before removing leaves nothing to a
// process that still has the file open. All is overwritten before one sync, because a sync per file would take longer
// than everything else together.
func Purge(d *disk.Disk) error {
	if !d.Exists(asideDir) && !d.Exists(journalPath) {
		return removeZeros(d) // done before; a sync would only hold up a boot
	}
	if err := d.Overwrite(asideDir, shredMost); err != nil {
		return fmt.Errorf("overwrite what was set aside: %w", err)
	}
	if err := d.Sync(); err != nil {
		return err
	}
	if err := d.Empty(asideDir); err != nil {
		return fmt.Errorf("truncate what was set aside: %w", err)
	}
	if err := d.Remove(asideDir); err != nil {
		return err
	}
	if err := d.Remove(journalPath); err != nil {
		return err
	}
	if err := removeZeros(d); err != nil {
		return err
	}
	return d.SyncDir(StateDir)
}

const zeroFile = ".kamino-zero"

// removeZeros removes what an interrupted zeroFree left: a file that fills the disk.
func removeZeros(d *disk.Disk) error {
	all, err := d.FileSystems()
	if err != nil {
		return err
	}
	for _, f := range all {
		if !f.ReadOnly {
			err = errors.Join(err, d.Remove(f.Name+"/"+zeroFile))
		}
	}
	return err
}

// zeroFree fills a file with zeros until the file system at dir is full, then removes it. Space reserved for root is
// included, since the agent is root.
func zeroFree(ctx context.Context, d *disk.Disk, dir string) (written int64, err error) {
	name := dir + "/" + zeroFile
	f, err := d.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return 0, fmt.Errorf("zero free space: %w", err)
	}
	// What was removed a moment ago is free only when the journal has it, and what was written only promised takes more
	// room than what is on the disk. So a full file system is full when it is still full after a sync.
	err = d.Sync()
	for more := true; more && err == nil && ctx.Err() == nil; {
		var n int64
		n, err = fillZeros(ctx, f)
		written += n
		err = errors.Join(err, f.Sync())
		more = n > 0
	}
	err = errors.Join(err, ctx.Err(), f.Sync(), f.Close(), d.Remove(name))
	if err != nil {
		return written, fmt.Errorf("zero free space: %w", err)
	}
	return written, d.SyncDir(dir)
}

// fillZeros writes zeros until there is no room.
func fillZeros(ctx context.Context, f *os.File) (written int64, err error) {
	zero := make([]byte, 4<<20)
	for block := len(zero); block >= 512 && ctx.Err() == nil; {
		n, err := f.Write(zero[:block])
		written += int64(n)
		switch {
		case errors.Is(err, unix.EFBIG):
			return 0, nil // FAT's largest file; what is beyond 4 GB of an EFI partition was never written
		case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT):
			block /= 2 // the last blocks do not fit a whole buffer
		case err != nil:
			return written, err
		}
		// Written back as we go: otherwise the page cache swallows the memory of a small machine and the end comes late.
		if written%(256<<20) < int64(block) {
			if err := f.Sync(); err != nil && !errors.Is(err, unix.ENOSPC) {
				return written, err
			}
		}
	}
	return written, nil
}

// fitrim is FITRIM of linux/fs.h, _IOWR('X', 121, struct fstrim_range).
const fitrim = 0xc0185879

type trimRange struct{ start, len, minLen uint64 }
