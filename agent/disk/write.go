package disk

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"syscall"
)

// WriteFile replaces name as a whole or not at all: temporary file, fsync, rename, fsync of the
// directory. Missing directories are made (0755). A link at name is replaced, not followed.
func (d *Disk) WriteFile(name string, data []byte, mode fs.FileMode) error {
	if err := d.MkdirAll(path.Dir(clean(name)), 0o755); err != nil {
		return err
	}
	at, err := d.Resolve(name)
	if err != nil {
		return fmt.Errorf("write %s: %w", Shown(name), err)
	}
	tmp := temporary(at)
	if err = d.fill(tmp, bytes.NewReader(data), mode); err == nil {
		err = d.rename(tmp, at)
	}
	if err != nil {
		_ = d.unlink(tmp)
		return fmt.Errorf("write %s: %w", Shown(name), err)
	}
	return d.SyncDir(path.Dir(at))
}

func (d *Disk) fill(name string, from io.Reader, mode fs.FileMode) error {
	f, err := d.openFile(name, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, mode.Perm())
	if err != nil {
		return err
	}
	if err = d.About("write", name); err == nil {
		_, err = io.Copy(f, from)
	}
	if err == nil {
		// The process's umask must not decide who may read a credential.
		err = errors.Join(f.Chmod(mode.Perm()), d.About("sync", name))
	}
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// rename, link, unlink and mkdir take one announced step each, on resolved names.
func (d *Disk) rename(from, to string) error {
	v, src := d.in(from)
	w, dst := d.in(to)
	if v != w {
		return &os.LinkError{Op: "rename", Old: from, New: to, Err: syscall.EXDEV}
	}
	if err := d.About("rename", from); err != nil {
		return err
	}
	return ShownError(v.root.Rename(src, dst))
}

func (d *Disk) link(target, name string) error {
	if err := d.About("symlink", name); err != nil {
		return err
	}
	v, at := d.in(name)
	return ShownError(v.root.Symlink(target, at))
}

func (d *Disk) unlink(name string) error {
	if err := d.About("remove", name); err != nil {
		return err
	}
	v, at := d.in(name)
	return ShownError(v.root.Remove(at))
}

func (d *Disk) mkdir(name string, mode fs.FileMode) error {
	if err := d.About("mkdir", name); err != nil {
		return err
	}
	v, at := d.in(name)
	return ShownError(v.root.Mkdir(at, mode))
}

// Discard removes what an interrupted WriteFile, CopyIn or Symlink of name has left.
func (d *Disk) Discard(name string) error {
	return d.Remove(temporary(clean(name)))
}

// temporary is where a file is written before it is renamed to name. Its length does not depend on
// name's, which may be as long as a file system allows.
func temporary(name string) string {
	sum := sha256.Sum256([]byte(path.Base(name)))
	return path.Join(path.Dir(name), ".kamino-new-"+hex.EncodeToString(sum[:8]))
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
	tmp := temporary(at)
	if err = d.fill(tmp, r, mode); err == nil {
		err = d.rename(tmp, at)
	}
	if err != nil {
		_ = d.unlink(tmp)
		return fmt.Errorf("write %s: %w", Shown(name), err)
	}
	return d.SyncDir(path.Dir(at))
}

// AppendLine adds one line to name, which is made if it is not there, and makes it durable.
func (d *Disk) AppendLine(name, line string, mode fs.FileMode) error {
	if err := d.MkdirAll(path.Dir(clean(name)), 0o755); err != nil {
		return err
	}
	return d.append(name, []byte(line+"\n"), os.O_CREATE, mode)
}

// Append adds data to the end of a file, which must be there, and makes it durable.
func (d *Disk) Append(name string, data []byte) error { return d.append(name, data, 0, 0) }

func (d *Disk) append(name string, data []byte, flag int, mode fs.FileMode) error {
	f, err := d.OpenFile(name, os.O_WRONLY|os.O_APPEND|flag, mode)
	if err != nil {
		return fmt.Errorf("append to %s: %w", Shown(name), err)
	}
	if err = d.About("append", name); err == nil {
		_, err = f.Write(data)
	}
	if err == nil {
		err = d.About("sync", name)
	}
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("append to %s: %w", Shown(name), err)
	}
	return nil
}

// MkdirAll makes a directory and its parents; links on the way are followed inside the root.
func (d *Disk) MkdirAll(name string, mode fs.FileMode) error {
	name = clean(name)
	if at, err := d.Follow(name); err == nil {
		info, err := d.lstat(at)
		if err == nil && info.IsDir() {
			return nil
		}
		if err == nil {
			return fmt.Errorf("make directory %s: %w", Shown(name), syscall.ENOTDIR)
		}
	}
	if parent := path.Dir(name); parent != name {
		if err := d.MkdirAll(parent, mode); err != nil {
			return err
		}
	}
	at, err := d.Follow(name)
	if err != nil {
		return fmt.Errorf("make directory %s: %w", Shown(name), err)
	}
	if err := d.mkdir(at, mode); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("make directory %s: %w", Shown(name), err)
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
	tmp := temporary(at)
	_ = d.unlink(tmp)
	if err := d.link(target, tmp); err != nil {
		return fmt.Errorf("link %s: %w", Shown(name), err)
	}
	if err := d.rename(tmp, at); err != nil {
		_ = d.unlink(tmp)
		return fmt.Errorf("link %s: %w", Shown(name), err)
	}
	return nil
}

// Readlink is the target of a link, as it is written.
func (d *Disk) Readlink(name string) (string, error) {
	at, err := d.Resolve(name)
	if err != nil {
		return "", err
	}
	return d.readlink(at)
}

// SyncDir makes the renames and removals in a directory durable.
func (d *Disk) SyncDir(name string) error {
	at, err := d.Follow(name)
	if err == nil {
		err = d.About("sync", name)
	}
	if err != nil {
		return err
	}
	f, err := d.openFile(at, os.O_RDONLY, 0)
	if err != nil {
		return err
	}
	err = f.Sync()
	// Some file systems (and overlay lower layers) do not know how to sync a directory; they have
	// nothing to lose.
	if errors.Is(err, syscall.EINVAL) || errors.Is(err, syscall.ENOTSUP) {
		err = nil
	}
	return errors.Join(err, f.Close())
}

// Move renames from to to (parents are made). Between two file systems nothing is moved; the error
// is syscall.EXDEV then. A directory that takes only files of its own project (chattr +P) takes the
// file with the project that it has.
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
	err = d.rename(src, dst)
	if errors.Is(err, syscall.EXDEV) {
		err = d.acrossProjects(path.Dir(dst), err, func() error { return d.rename(src, dst) })
	}
	if err != nil {
		return fmt.Errorf("move %s: %w", Shown(from), err)
	}
	return nil
}

// Like gives name the owner, mode and time that info describes.
func (d *Disk) Like(name string, info fs.FileInfo) error {
	at, err := d.Resolve(name)
	if err != nil {
		return err
	}
	if err := d.About("attributes", name); err != nil {
		return err
	}
	v, at := d.in(at)
	if st, ok := info.Sys().(*syscall.Stat_t); ok && os.Geteuid() == 0 {
		if err := v.root.Lchown(at, int(st.Uid), int(st.Gid)); err != nil {
			return err
		}
	}
	if err := v.root.Chmod(at, info.Mode().Perm()); err != nil {
		return err
	}
	return v.root.Chtimes(at, info.ModTime(), info.ModTime())
}

// GiveTo gives name the owner of what info describes.
func (d *Disk) GiveTo(name string, info fs.FileInfo) error {
	at, err := d.Resolve(name)
	if err != nil {
		return err
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok || os.Geteuid() != 0 {
		return nil
	}
	v, at := d.in(at)
	return v.root.Lchown(at, int(st.Uid), int(st.Gid))
}
