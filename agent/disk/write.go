package disk

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"syscall"
)

// WriteFile replaces name as a whole or not at all: temporary file, fsync, rename, fsync of the directory. Missing
// directories are made (0755). A link at name is replaced, not followed.
func (d *Disk) WriteFile(name string, data []byte, mode fs.FileMode) error {
	if err := d.MkdirAll(path.Dir(clean(name)), 0o755); err != nil {
		return err
	}
	at, err := d.Resolve(name)
	if err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	tmp := path.Join(path.Dir(at), ".kamino-new-"+path.Base(at))
	if err := d.fill(tmp, data, mode); err != nil {
		_ = d.root.Remove(tmp)
		return fmt.Errorf("write %s: %w", name, err)
	}
	if err := d.root.Rename(tmp, at); err != nil {
		_ = d.root.Remove(tmp)
		return fmt.Errorf("write %s: %w", name, err)
	}
	return d.SyncDir(path.Dir(at))
}

func (d *Disk) fill(name string, data []byte, mode fs.FileMode) error {
	f, err := d.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_TRUNC|syscall.O_NOFOLLOW, mode.Perm())
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	// The process's umask must not decide who may read a credential.
	err = errors.Join(err, f.Chmod(mode.Perm()), f.Sync())
	return errors.Join(err, f.Close())
}

// Discard removes what an interrupted WriteFile, CopyIn or Symlink of name has left.
func (d *Disk) Discard(name string) error {
	return d.Remove(path.Join(path.Dir(clean(name)), ".kamino-new-"+path.Base(clean(name))))
}

// CopyIn writes the content of r to name, as WriteFile does, without holding it in memory.
func (d *Disk) CopyIn(name string, r io.Reader, mode fs.FileMode) error {
	if err := d.MkdirAll(path.Dir(clean(name)), 0o755); err != nil {
		return err
	}
	at, err := d.Resolve(name)
	if err != nil {
		return err
	}
	tmp := path.Join(path.Dir(at), ".kamino-new-"+path.Base(at))
	f, err := d.root.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_TRUNC|syscall.O_NOFOLLOW, mode.Perm())
	if err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	_, err = io.Copy(f, r)
	if err = errors.Join(err, f.Chmod(mode.Perm()), f.Sync(), f.Close()); err == nil {
		err = d.root.Rename(tmp, at)
	}
	if err != nil {
		_ = d.root.Remove(tmp)
		return fmt.Errorf("write %s: %w", name, err)
	}
	return d.SyncDir(path.Dir(at))
}

// AppendLine adds one line to name and makes it durable.
func (d *Disk) AppendLine(name, line string, mode fs.FileMode) error {
	if err := d.MkdirAll(path.Dir(clean(name)), 0o755); err != nil {
		return err
	}
	f, err := d.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_APPEND, mode)
	if err != nil {
		return fmt.Errorf("append to %s: %w", name, err)
	}
	_, err = f.WriteString(line + "\n")
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return fmt.Errorf("append to %s: %w", name, err)
	}
	return nil
}

// MkdirAll makes a directory and its parents; links on the way are followed inside the root.
func (d *Disk) MkdirAll(name string, mode fs.FileMode) error {
	name = clean(name)
	if at, err := d.Follow(name); err == nil {
		info, err := d.root.Lstat(at)
		if err == nil && info.IsDir() {
			return nil
		}
		if err == nil {
			return fmt.Errorf("make directory %s: %w", name, syscall.ENOTDIR)
		}
	}
	if parent := path.Dir(name); parent != name {
		if err := d.MkdirAll(parent, mode); err != nil {
			return err
		}
	}
	at, err := d.Follow(name)
	if err != nil {
		return fmt.Errorf("make directory %s: %w", name, err)
	}
	if err := d.root.Mkdir(at, mode); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("make directory %s: %w", name, err)
	}
	return nil
}

// Symlink makes name a link to target, replacing what file or link is there.
func (d *Disk) Symlink(target, name string) error {
	if err := d.MkdirAll(path.Dir(clean(name)), 0o755); err != nil {
		return err
	}
	at, err := d.Resolve(name)
	if err != nil {
		return err
	}
	tmp := path.Join(path.Dir(at), ".kamino-new-"+path.Base(at))
	_ = d.root.Remove(tmp)
	if err := d.root.Symlink(target, tmp); err != nil {
		return fmt.Errorf("link %s: %w", name, err)
	}
	if err := d.root.Rename(tmp, at); err != nil {
		_ = d.root.Remove(tmp)
		return fmt.Errorf("link %s: %w", name, err)
	}
	return nil
}

// Readlink is the target of a link, as it is written.
func (d *Disk) Readlink(name string) (string, error) {
	at, err := d.Resolve(name)
	if err != nil {
		return "", err
	}
	return d.root.Readlink(at)
}

// SyncDir makes the renames and removals in a directory durable.
func (d *Disk) SyncDir(name string) error {
	at, err := d.Follow(name)
	if err != nil {
		return err
	}
	f, err := d.root.Open(at)
	if err != nil {
		return err
	}
	err = f.Sync()
	// Some file systems (and overlay lower layers) do not know how to sync a directory; they have nothing to lose.
	if errors.Is(err, syscall.EINVAL) || errors.Is(err, syscall.ENOTSUP) {
		err = nil
	}
	return errors.Join(err, f.Close())
}

// Remove removes name, and what is in it when it is a directory. What is absent is removed already.
func (d *Disk) Remove(name string) error {
	at, err := d.Resolve(name)
	if err != nil {
		return absent(err)
	}
	if _, err := d.root.Lstat(at); err != nil {
		return absent(err) // also where the file system is read-only
	}
	if err := d.root.RemoveAll(at); err != nil {
		return fmt.Errorf("remove %s: %w", name, err)
	}
	return nil
}

// Move renames from to to (parents are made). Between two file systems it copies, durably and under another name until
// the copy is whole, and then overwrites and removes the original: its blocks are of no use to anyone.
func (d *Disk) Move(from, to string) error {
	if err := d.MkdirAll(path.Dir(clean(to)), 0o700); err != nil {
		return err
	}
	src, err := d.Resolve(from)
	if err != nil {
		return err
	}
	dst, err := d.Resolve(to)
	if err != nil {
		return err
	}
	err = d.root.Rename(src, dst)
	if errors.Is(err, syscall.EXDEV) {
		err = d.moveAcross(src, dst)
	}
	if err != nil {
		return fmt.Errorf("move %s: %w", from, err)
	}
	return nil
}

func (d *Disk) moveAcross(src, dst string) error {
	part := path.Join(path.Dir(dst), ".kamino-part-"+path.Base(dst))
	if err := d.root.RemoveAll(part); err != nil {
		return err
	}
	if err := d.copyTree(src, part); err != nil {
		return err
	}
	if err := d.root.Rename(part, dst); err != nil {
		return err
	}
	if err := d.SyncDir(path.Dir(dst)); err != nil {
		return err
	}
	if err := errors.Join(d.Overwrite(src, 1<<63-1), d.Sync()); err != nil {
		return err
	}
	return d.root.RemoveAll(src)
}

// Overwrite writes zeros over the first most bytes of every file at or below name, without a sync. A file with a second
// name elsewhere is left alone: its content stays on purpose.
func (d *Disk) Overwrite(name string, most int64) error {
	zero := make([]byte, 64<<10)
	return d.Walk(name, func(name string, info fs.FileInfo) error {
		if !info.Mode().IsRegular() || info.Size() == 0 || linked(info) {
			return nil
		}
		f, err := d.root.OpenFile(name, os.O_WRONLY|syscall.O_NOFOLLOW, 0)
		if err != nil {
			return err
		}
		for left := min(info.Size(), most); left > 0 && err == nil; left -= int64(len(zero)) {
			_, err = f.Write(zero[:min(left, int64(len(zero)))])
		}
		return errors.Join(err, f.Close())
	})
}

// Empty truncates every file at or below name, so that a process which still has one open reads nothing.
func (d *Disk) Empty(name string) error {
	return d.Walk(name, func(name string, info fs.FileInfo) error {
		if !info.Mode().IsRegular() || info.Size() == 0 || linked(info) {
			return nil
		}
		f, err := d.root.OpenFile(name, os.O_WRONLY|os.O_TRUNC|syscall.O_NOFOLLOW, 0)
		if err != nil {
			return err
		}
		return f.Close()
	})
}

func linked(info fs.FileInfo) bool {
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && st.Nlink > 1
}

func (d *Disk) copyTree(src, dst string) error {
	info, err := d.root.Lstat(src)
	if err != nil {
		return err
	}
	switch {
	case info.IsDir():
		if err := d.root.Mkdir(dst, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
		entries, err := d.ReadDir(src)
		if err != nil {
			return err
		}
		for _, e := range entries {
			if err := d.copyTree(path.Join(src, e.Name()), path.Join(dst, e.Name())); err != nil {
				return err
			}
		}
	case info.Mode()&fs.ModeSymlink != 0:
		target, err := d.root.Readlink(src)
		if err != nil {
			return err
		}
		return d.root.Symlink(target, dst)
	case info.Mode().IsRegular():
		if err := d.copyFile(src, dst); err != nil {
			return err
		}
	default:
		return nil // sockets, pipes and devices hold no data
	}
	return d.Like(dst, info)
}

func (d *Disk) copyFile(src, dst string) error {
	in, err := d.root.OpenFile(src, os.O_RDONLY|syscall.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := d.root.OpenFile(dst, os.O_WRONLY|os.O_CREATE|os.O_TRUNC|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Sync(), out.Close())
}

// Like gives name the owner, mode and time that info describes.
func (d *Disk) Like(name string, info fs.FileInfo) error {
	at, err := d.Resolve(name)
	if err != nil {
		return err
	}
	if st, ok := info.Sys().(*syscall.Stat_t); ok && os.Geteuid() == 0 {
		if err := d.root.Lchown(at, int(st.Uid), int(st.Gid)); err != nil {
			return err
		}
	}
	if err := d.root.Chmod(at, info.Mode().Perm()); err != nil {
		return err
	}
	return d.root.Chtimes(at, info.ModTime(), info.ModTime())
}

// Own gives name the owner of what info describes.
func (d *Disk) Own(name string, info fs.FileInfo) error {
	at, err := d.Resolve(name)
	if err != nil {
		return err
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok || os.Geteuid() != 0 {
		return nil
	}
	return d.root.Lchown(at, int(st.Uid), int(st.Gid))
}
