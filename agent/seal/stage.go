package seal

import (
	"errors"
	"fmt"
	"io/fs"
	"path"

	"kamino.dev/kamino/agent/disk"
)

// What the agent keeps on the disk.
const (
	StateDir    = "var/lib/kamino"
	journalPath = StateDir + "/seal.journal"
	asideDir    = StateDir + "/aside"
	// asideElse is where, on the disk's other file systems, what lies on them is set aside: a
	// rename does not leave one.
	asideElse   = ".kamino-aside"
	ReceiptPath = StateDir + "/receipt.json"
	LineagePath = StateDir + "/lineage.jsonl"
	Ancestry    = "var/log/ancestry.log"
)

// op is one reversible change: what was at Path waits at Aside (empty: nothing was there), and
// something new may have been put in its place. It is written to the journal before anything moves.
type op struct {
	Rule  string
	Path  string
	Aside string
	Put   bool
	Dir   bool
	VM    string // in the first line only: whose seal this is
	Stuck string // why it could not be taken back, where that was tried
}

const beginRule = "begin"

// stage applies changes so that rollback can take all of them back, after any interruption.
type stage struct {
	disk *disk.Disk
	on   []disk.FileSystem
	next int
}

// begin opens a stage. It fails when an earlier one was neither finished nor taken back.
func begin(d *disk.Disk, vm string) (*stage, error) {
	if d.Exists(journalPath) {
		return nil, fmt.Errorf("begin seal: an interrupted seal is on this disk; run `kamino-agent unseal --root %s` first", d.Dir())
	}
	if err := d.MkdirAll(StateDir, 0o700); err != nil {
		return nil, err
	}
	if err := d.MkdirAll(asideDir, 0o700); err != nil {
		return nil, err
	}
	if err := d.WriteFile(journalPath, nil, 0o600); err != nil {
		return nil, err
	}
	all, err := d.FileSystems()
	if err != nil {
		return nil, err
	}
	s := &stage{disk: d, on: all}
	return s, s.record([]op{{Rule: beginRule, VM: vm}})
}

// aside is a new name for what is at name, on the same file system.
func (s *stage) aside(name string) string {
	dir := asideDir
	if on := fileSystem(s.on, name); on != fileSystem(s.on, asideDir) {
		dir = path.Join(on, asideElse)
	}
	s.next++
	return fmt.Sprintf("%s/%06d", dir, s.next-1)
}

// fileSystem is the place of the file system on which name lies.
func fileSystem(all []disk.FileSystem, name string) (on string) {
	on = "."
	for _, f := range all {
		if disk.Under(name, f.Name) && (on == "." || disk.Under(f.Name, on)) {
			on = f.Name
		}
	}
	return on
}

// asides are all the directories in which something may have been set aside.
func asides(d *disk.Disk) ([]string, error) {
	all, err := d.FileSystems()
	if err != nil {
		return nil, err
	}
	dirs := []string{asideDir}
	for _, f := range all {
		if !f.ReadOnly {
			dirs = append(dirs, path.Join(f.Name, asideElse))
		}
	}
	return dirs, nil
}

func removeAsides(d *disk.Disk) error {
	dirs, err := asides(d)
	for _, dir := range dirs {
		err = errors.Join(err, d.Remove(dir))
	}
	return err
}

// apply changes the matches of one rule: journal first, as one durable write, then the renames.
func (s *stage) apply(rule string, matches []Match) error {
	var ops []op
	for _, m := range matches {
		if m.New != nil {
			dirs, err := s.missingDirs(rule, m.Path)
			if err != nil {
				return err
			}
			ops = append(ops, dirs...)
		}
		o := op{Rule: rule, Path: m.Path, Put: m.New != nil}
		if s.disk.Exists(m.Path) {
			o.Aside = s.aside(m.Path)
		}
		ops = append(ops, o)
	}
	if len(ops) == 0 {
		return nil
	}
	if err := s.record(ops); err != nil {
		return err
	}
	i := 0
	for _, o := range ops {
		if o.Dir {
			if err := s.disk.MkdirAll(o.Path, 0o755); err != nil {
				return err
			}
			continue
		}
		if err := s.change(o, matches[i].New); err != nil {
			return fmt.Errorf("apply rule %s: %w", rule, err)
		}
		i++
	}
	return nil
}

func (s *stage) change(o op, content *Content) error {
	var former fs.FileInfo
	if o.Aside != "" {
		info, err := s.disk.Lstat(o.Path)
		if err != nil {
			return err
		}
		former = info
		if err := s.disk.Move(o.Path, o.Aside); err != nil {
			return err
		}
	}
	if content == nil {
		return nil
	}
	if content.Target != "" {
		return s.disk.Symlink(content.Target, o.Path)
	}
	mode := content.Mode
	if mode == 0 {
		mode = 0o644
	}
	if err := s.disk.WriteFile(o.Path, content.Data, mode); err != nil {
		return err
	}
	if former != nil && content.Mode == 0 && former.Mode().IsRegular() {
		return s.disk.Like(o.Path, former)
	}
	return nil
}

// missingDirs are the directories that a new file needs, so that rollback removes those as well.
func (s *stage) missingDirs(rule, name string) ([]op, error) {
	var dirs []op
	for at := path.Dir(name); at != "." && !s.disk.Exists(at); at = path.Dir(at) {
		dirs = append([]op{{Rule: rule, Path: at, Put: true, Dir: true}}, dirs...)
	}
	return dirs, nil
}

func (s *stage) record(ops []op) error {
	lines, err := encodeOps(ops)
	if err != nil {
		return err
	}
	if err := s.disk.Append(journalPath, lines); err != nil {
		return fmt.Errorf("write seal journal: %w", err)
	}
	return nil
}
