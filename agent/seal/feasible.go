package seal

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strings"
	"syscall"

	"kamino.dev/kamino/agent/disk"
)

// NeedsBoot is an error behind the point of no return, or of a seal that could not be taken back:
// the disk is not the donor's any more, so none of its services may be started on it. Switch the
// machine off; its next boot mends it.
type NeedsBoot struct {
	Err error
	// Halfway says that the changes could not be taken back: the boot tries again to make it the
	// donor's disk.
	Halfway bool
}

func (n *NeedsBoot) Error() string {
	as := "the first clone"
	if n.Halfway {
		as = "the donor"
	}
	return fmt.Sprintf("%v; start the machine again: it comes back as %s", n.Err, as)
}

func (n *NeedsBoot) Unwrap() error { return n.Err }

// feasible refuses a plan that could not be carried out to its end. Everything in it is read or
// opened, nothing changed.
func feasible(d *disk.Disk, o Options, plan []Step) error {
	var stuck obstacles
	for _, s := range plan {
		for _, m := range s.matches {
			if err := stuck.parent(d, path.Dir(m.Path)); err != nil {
				return err
			}
			if err := stuck.below(d, m.Path, o.Estimate); err != nil {
				return err
			}
		}
	}
	if err := stuck.err(func(name string) string { return name }); err != nil {
		return err
	}
	return room(d, o, plan)
}

// removable makes sure that what was set aside can be overwritten and removed: the last look before
// the receipt, after which there is no way back.
func removable(d *disk.Disk) error {
	dirs, err := asides(d)
	if err != nil {
		return err
	}
	var stuck obstacles
	for _, dir := range dirs {
		if err := stuck.below(d, dir, false); err != nil {
			return err
		}
	}
	if len(stuck.lines) == 0 {
		return nil
	}
	ops, err := readJournal(d)
	if err != nil {
		return err
	}
	return stuck.err(func(name string) string {
		for _, o := range ops {
			if o.Aside != "" && disk.Under(name, o.Aside) {
				return o.Path + strings.TrimPrefix(name, o.Aside)
			}
		}
		return name
	})
}

// obstacle is one file that could not be overwritten, moved or removed.
type obstacle struct {
	name  string
	locks disk.Locks // none: open is why
	open  error
}

type obstacles struct {
	lines   []obstacle
	parents map[string]bool
}

// parent looks at a directory out of which something is moved.
func (s *obstacles) parent(d *disk.Disk, name string) error {
	if s.parents[name] {
		return nil
	}
	if s.parents == nil {
		s.parents = map[string]bool{}
	}
	s.parents[name] = true
	info, err := d.Lstat(name)
	if err != nil {
		return gone(err)
	}
	return s.locked(d, name, info)
}

// below looks at everything that moves with name. While services run, a running program is no
// obstacle: they may be what runs it.
func (s *obstacles) below(d *disk.Disk, name string, running bool) error {
	return d.Walk(name, func(name string, info fs.FileInfo) error {
		before := len(s.lines)
		if err := s.locked(d, name, info); err != nil || len(s.lines) > before || !info.Mode().IsRegular() {
			return err
		}
		err := gone(d.TryWrite(name))
		if err != nil && !(running && errors.Is(err, syscall.ETXTBSY)) {
			s.lines = append(s.lines, obstacle{name: name, open: err})
		}
		return nil
	})
}

func (s *obstacles) locked(d *disk.Disk, name string, info fs.FileInfo) error {
	locks, err := d.Locks(name, info)
	if err != nil {
		return gone(err)
	}
	if locks != 0 {
		s.lines = append(s.lines, obstacle{name: name, locks: locks})
	}
	return nil
}

// gone forgives what was there a moment ago: the donor may still run.
func gone(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

func (s *obstacles) err(shown func(name string) string) error {
	if len(s.lines) == 0 {
		return nil
	}
	const most = 10
	var lines []string
	for _, o := range s.lines[:min(len(s.lines), most)] {
		lines = append(lines, "  "+o.describe("/"+shown(o.name)))
	}
	if n := len(s.lines) - most; n > 0 {
		lines = append(lines, fmt.Sprintf("  and %d more", n))
	}
	return fmt.Errorf("seal refused: %d files that must not be in an image cannot be overwritten or removed:\n%s\nNothing was changed.",
		len(s.lines), strings.Join(lines, "\n"))
}

func (o obstacle) describe(name string) string {
	switch {
	case o.locks != 0:
		return fmt.Sprintf("%s has the attribute %s: run `chattr -%s %s`", name, o.locks, o.locks, name)
	case errors.Is(o.open, syscall.ETXTBSY):
		return fmt.Sprintf("%s is a program that runs: end it (`fuser -k %s`)", name, name)
	case errors.Is(o.open, syscall.EROFS):
		return fmt.Sprintf("%s is on a read-only file system: remount it, or write an exception", name)
	}
	return fmt.Sprintf("%s: %v", name, o.open)
}

// spare is what a seal writes besides the contents that it knows beforehand: units, journal,
// receipt, directories.
const spare = 4 << 20

// room makes sure that the disk takes what the seal writes: this program, edited files, and a
// database twice, compacted and in place.
func room(d *disk.Disk, o Options, plan []Step) error {
	need := int64(spare)
	if o.Binary != "" {
		if info, err := os.Stat(o.Binary); err == nil && !installedAs(d, info) {
			need += info.Size()
		}
	}
	for _, s := range plan {
		for _, m := range s.matches {
			switch {
			case m.New != nil:
				need += int64(len(m.New.Data))
			case s.Action == Edit: // rewritten only when services are stopped
				if info, err := d.Lstat(m.Path); err == nil {
					need += 2 * info.Size()
				}
			}
		}
	}
	free, err := d.Free(".")
	if err != nil {
		return err
	}
	if free < need {
		return fmt.Errorf("seal refused: the disk has %d bytes free and the seal writes up to %d: make room on the root file system of the donor; nothing was changed", free, need)
	}
	return nil
}

func installedAs(d *disk.Disk, program fs.FileInfo) bool {
	there, err := os.Stat(d.Host(BinaryPath))
	return err == nil && os.SameFile(program, there)
}
