package seal

import (
	"context"
	"errors"
	"fmt"
	"syscall"

	"kamino.dev/kamino/agent/disk"
)

// What to do about blocks that hold what was deleted earlier, by whomever.
const (
	// FreeAuto trims, and zeroes the file systems whose disk takes no TRIM.
	FreeAuto = "auto"
	// FreeZero writes zeros over every free block: minutes on a large disk, but it does not depend
	// on what the disk makes of TRIM. The default: on a disk whose clusters are larger than a file
	// system's blocks, trimmed secrets were found in the image.
	FreeZero = "zero"
	// FreeTrim tells the disk which blocks are free. Whether a managed disk then returns zeros is
	// unverified on real Azure.
	FreeTrim = "trim"
	// FreeNone leaves them.
	FreeNone = "none"
)

// shredMost bounds what is overwritten in one file. Secrets are small; the gigabytes of a swap file
// or a log are left to the freed-space step, which covers their blocks as well.
const shredMost = 16 << 20

// Purge overwrites and removes what a committed seal set aside. It may be interrupted and repeated.
//
// Overwriting in place makes the blocks zero even on a disk without TRIM; truncating before
// removing leaves nothing to a process that still has the file open. All is overwritten before one
// sync, because a sync per file would take longer than everything else together. All that was set
// aside is looked at together, so that a file of two names is overwritten when both were.
func Purge(d *disk.Disk) error {
	if !d.Exists(asideDir) && !d.Exists(journalPath) {
		return removeZeros(d) // done before; a sync would only hold up a boot
	}
	dirs, err := asides(d)
	if err != nil {
		return err
	}
	for _, dir := range dirs {
		if err := d.Unlock(dir); err != nil {
			return fmt.Errorf("unlock what was set aside: %w", err)
		}
	}
	// Without room for the zeros what was set aside is truncated all the same, and then its blocks
	// are among the free ones.
	full := d.Overwrite(shredMost, dirs...)
	if full != nil && !errors.Is(full, syscall.ENOSPC) {
		return fmt.Errorf("overwrite what was set aside: %w", full)
	}
	if err := d.Sync(); err != nil {
		return err
	}
	if err := d.Empty(dirs...); err != nil {
		return fmt.Errorf("truncate what was set aside: %w", err)
	}
	if err := removeAsides(d); err != nil {
		return err
	}
	if full != nil {
		if _, err := freeSpace(context.Background(), d, FreeZero); err != nil {
			return fmt.Errorf("overwrite what was set aside: %w; and where it was: %w", full, err)
		}
	}
	if err := d.Remove(journalPath); err != nil {
		return err
	}
	if err := removeZeros(d); err != nil {
		return err
	}
	return d.SyncDir(StateDir)
}

// Mend finishes at boot what a purge left, where Purge itself cannot: what cannot be overwritten is
// removed as it is. It returns why something was not overwritten or could not even be removed,
// which is for a person to read: no image is made of such a disk, because its receipt never reached
// the Node, and a boot must not fail for it each time. An error means that the journal is still
// there, with which the next boot would take the seal back.
func Mend(d *disk.Disk) (left []error, err error) {
	failed := Purge(d)
	if failed == nil {
		return nil, nil
	}
	left = append(left, failed)
	if err := removeAsides(d); err != nil {
		left = append(left, err)
	}
	if err := removeZeros(d); err != nil {
		left = append(left, err)
	}
	if err := d.Remove(journalPath); err != nil {
		return left, err
	}
	return left, d.SyncDir(StateDir)
}

// FreeSpace deals with the blocks of what was deleted, by the configured method, on every file
// system of the disk, and reports the bytes covered. A root that is a mere directory of somebody
// else's file system is left alone. Whatever the method, deleted files that processes still have
// open are overwritten and truncated: their blocks are not free.
func FreeSpace(ctx context.Context, d *disk.Disk, method string) (covered int64, err error) {
	err = within(d, func(own *disk.Disk) error {
		if err := own.Release(shredMost); err != nil {
			return err
		}
		covered, err = freeSpace(ctx, own, method)
		return err
	})
	return covered, err
}

func freeSpace(ctx context.Context, d *disk.Disk, method string) (covered int64, err error) {
	if method == FreeNone {
		return 0, nil
	}
	all, err := d.FileSystems()
	if err != nil {
		return 0, err
	}
	for _, f := range all {
		if f.ReadOnly || f.Type == "" {
			continue
		}
		var n int64
		if method != FreeZero {
			n, err = trim(d, f.Name)
		}
		if method == FreeZero || method == FreeAuto && (errors.Is(err, errors.ErrUnsupported) || errors.Is(err, syscall.ENOTTY)) {
			if n, err = zeroFree(ctx, d, f.Name); err == nil && method == FreeZero {
				// As well as it goes: an image without blocks of zeros is smaller, and XFS has a
				// few that no file can reach.
				_, _ = trim(d, f.Name)
			}
		}
		if covered += n; err != nil {
			return covered, err
		}
	}
	return covered, nil
}

// zeroFiles are what zeroFree writes. The second is for the last block of all, when the first, were
// it to grow by that, would need another for its extents.
var zeroFiles = []string{".kamino-zero", ".kamino-zero-last"}

// removeZeros removes what an interrupted zeroFree left: files that fill the disk.
func removeZeros(d *disk.Disk) error {
	all, err := d.FileSystems()
	if err != nil {
		return err
	}
	for _, f := range all {
		if f.ReadOnly {
			continue
		}
		for _, name := range zeroFiles {
			err = errors.Join(err, d.Remove(f.Name+"/"+name))
		}
	}
	return err
}

// fitrim is FITRIM of linux/fs.h, _IOWR('X', 121, struct fstrim_range).
const fitrim = 0xc0185879

type trimRange struct{ start, len, minLen uint64 }
