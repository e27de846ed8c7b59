package seal

import (
	"context"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
	"kamino.dev/kamino/agent/disk"
)

// zeroFree fills files with zeros until the file system at dir is full, then removes them. Space
// reserved for root is included, since the agent is root, and so is what the file system reserves
// for itself.
func zeroFree(ctx context.Context, d *disk.Disk, dir string) (written int64, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("zero free space: %w", err)
		}
	}()
	var files []*os.File
	for _, name := range zeroFiles {
		f, err := d.OpenFile(dir+"/"+name, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
		if err != nil {
			return 0, err
		}
		defer f.Close()
		files = append(files, f)
	}
	if err := d.Sync(); err != nil { // what was removed a moment ago is free only when the journal has it
		return 0, err
	}
	if err := d.About("zero", dir); err != nil {
		return 0, err
	}
	// The reserve last, and for a moment: it is there so that data which was promised room finds
	// it.
	written, err = fillFile(ctx, files[0])
	if err == nil {
		var restore func() error
		if restore, err = waiveReserve(files[0]); err != nil {
			err = fmt.Errorf("take the file system's reserved blocks (set freeSpace: trim if the kernel does not allow it): %w", err)
		} else {
			for _, f := range files {
				n, ferr := fillFile(ctx, f)
				written, err = written+n, errors.Join(err, ferr)
			}
			err = errors.Join(err, restore())
		}
	}
	// Before the removal: a freed block that only the journal has is never written over what its
	// place on the disk holds.
	checkpoint(files[0])
	for _, name := range zeroFiles {
		err = errors.Join(err, d.Remove(dir+"/"+name))
	}
	return written, errors.Join(err, d.SyncDir(dir))
}

// fillFile writes zeros until there is no room even after a sync: what was written but only
// promised a place takes more room than what has one.
func fillFile(ctx context.Context, f *os.File) (written int64, err error) {
	for {
		n, err := fillZeros(ctx, f)
		written += n
		sync := f.Sync()
		if errors.Is(sync, unix.ENOSPC) {
			return written, errors.Join(err, ctx.Err())
		}
		if err = errors.Join(err, sync, ctx.Err()); n == 0 || err != nil {
			return written, err
		}
	}
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
		// Written back as we go: otherwise the page cache swallows the memory of a small machine
		// and the end comes late.
		if written%(256<<20) < int64(block) {
			if err := f.Sync(); err != nil && !errors.Is(err, unix.ENOSPC) {
				return written, err
			}
		}
	}
	return written, nil
}
