package seal

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
	"kamino.dev/kamino/agent/disk"
)

// What to do about blocks that hold what was deleted earlier, by whomever.
const (
	// FreeZero writes zeros over every free block. The only way that does not depend on what a disk makes of TRIM.
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
	if err := eachAside(d, overwrite); err != nil {
		return fmt.Errorf("overwrite what was set aside: %w", err)
	}
	if err := syncDisk(d); err != nil {
		return err
	}
	if err := eachAside(d, func(f *os.File, _ int64) error { return f.Truncate(0) }); err != nil {
		return fmt.Errorf("truncate what was set aside: %w", err)
	}
	if err := d.Remove(asideDir); err != nil {
		return err
	}
	if err := d.Remove(journalPath); err != nil {
		return err
	}
	return d.SyncDir(StateDir)
}

func eachAside(d *disk.Disk, do func(f *os.File, size int64) error) error {
	return d.Walk(asideDir, true, func(name string, info fs.FileInfo) error {
		if !info.Mode().IsRegular() || info.Size() == 0 || linked(info) {
			return nil
		}
		f, err := d.OpenFile(name, os.O_WRONLY, 0)
		if err != nil {
			return err
		}
		return errors.Join(do(f, info.Size()), f.Close())
	})
}

func overwrite(f *os.File, size int64) error {
	zero := make([]byte, min(size, 64<<10))
	for left := min(size, shredMost); left > 0; {
		n, err := f.Write(zero[:min(left, int64(len(zero)))])
		if err != nil {
			return err
		}
		left -= int64(n)
	}
	return nil
}

// scrubFree deals with free blocks by the given method and reports how many bytes it covered.
func scrubFree(ctx context.Context, d *disk.Disk, method string) (int64, error) {
	switch method {
	case FreeTrim:
		return trim(d)
	case FreeZero:
		return zeroFree(ctx, d)
	}
	return 0, nil
}

// zeroFree fills a file with zeros until the disk is full, then removes it. Space reserved for root is included, since
// the agent is root.
func zeroFree(ctx context.Context, d *disk.Disk) (written int64, err error) {
	name := StateDir + "/zero"
	f, err := d.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return 0, fmt.Errorf("zero free space: %w", err)
	}
	block := make([]byte, 4<<20)
	for ctx.Err() == nil {
		n, werr := f.Write(block)
		written += int64(n)
		if werr != nil {
			if !errors.Is(werr, unix.ENOSPC) && !errors.Is(werr, unix.EDQUOT) {
				err = werr
			} else if len(block) > 512 {
				// The last blocks do not fit a whole buffer.
				block = block[:len(block)/2]
				continue
			}
			break
		}
		// Written back as we go: otherwise the page cache swallows the memory of a small machine and the end comes late.
		if written%(256<<20) < int64(len(block)) {
			err = errors.Join(err, f.Sync())
		}
	}
	err = errors.Join(err, ctx.Err(), f.Sync(), f.Close(), d.Remove(name))
	if err != nil {
		return written, fmt.Errorf("zero free space: %w", err)
	}
	return written, d.SyncDir(StateDir)
}

// fitrim is FITRIM of linux/fs.h, _IOWR('X', 121, struct fstrim_range).
const fitrim = 0xc0185879

type trimRange struct{ start, len, minLen uint64 }
