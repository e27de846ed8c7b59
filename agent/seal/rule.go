// Package seal makes a node's disk fit to be cloned, and undoes it when it could not be finished.
//
// What is done is one table of rules (Table). How it is done makes it reversible: a rule never
// deletes, it sets aside, by renaming into one directory of the same disk, with a journal written
// first (see stage.go and docs/notes/0002-interrupted-seal.md). Only when every rule was applied
// and the scan found nothing left is the receipt written, which is the one point of no return; then
// what was set aside is overwritten and removed.
package seal

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"

	"kamino.dev/kamino/agent/disk"
)

// Action is what a rule does with what its paths match.
type Action string

// The actions. Check never changes anything: it refuses the seal.
const (
	Remove   Action = "remove"
	Truncate Action = "truncate"
	Edit     Action = "edit"
	Link     Action = "link"
	Check    Action = "check"
)

// Phase is where a rule runs: on the donor before its disk is copied, on a clone's first boot, or
// on both.
type Phase string

// The phases.
const (
	Donor Phase = "donor"
	Both  Phase = "donor, clone"
)

// Rule is one row of the table.
type Rule struct {
	ID     string
	Group  string
	Paths  []string // patterns of path.Match per component; "DIR/*" empties a directory
	Below  []string // directories in which Paths are patterns of file names at any depth; the directories themselves stay
	Keep   []string // patterns of what stays though Paths match it
	Shared []string // what stays besides, where the cluster's nodes share one client credential (join: keep)
	// SharedKinds are the kinds of finding that the scan may make in Shared.
	SharedKinds []string
	Action      Action
	Phase       Phase
	Secret      bool   // what matches may be, or hold, a credential
	Why         string // one sentence for the operator
	When        string // FirstBoot for which the rule applies; empty means always

	// Only narrows an Action to files of this content. Nil means all.
	Only func(data []byte) bool
	// Change is the new content for Edit; the same content means that there is nothing to do.
	Change func(data []byte, donor Facts) []byte
	// Rewrite is Change for a file that is read by its name, with a directory to work in. It always
	// counts as a change.
	Rewrite func(path, work string) ([]byte, error)
	// Target is what Link points to.
	Target string
}

// Match is one path that a rule would change.
type Match struct {
	Path  string
	Bytes int64
	// New is what stands at Path afterwards; nil means nothing.
	New *Content
}

// Content is a new file (Data) or link (Target).
type Content struct {
	Data   []byte
	Target string
	Mode   fs.FileMode // zero: that of the file which was there
}

// matches expands the rule on a disk: on what Own shows, but for a check, which changes nothing and
// looks at memory too.
func (r Rule) matches(d *disk.Disk, o Options) ([]Match, error) {
	out, err := r.matchesOn(d, o)
	if err == nil && r.Action == Check && d.Whole() != d {
		var more []Match
		more, err = r.matchesOn(d.Whole(), o)
		out = distinct(append(out, more...))
	}
	return out, err
}

func (r Rule) matchesOn(d *disk.Disk, o Options) ([]Match, error) {
	if r.When != "" && r.When != o.FirstBoot {
		return nil, nil
	}
	var out []Match
	for _, pattern := range r.Paths {
		found, err := r.expand(d, pattern)
		if err != nil {
			return nil, fmt.Errorf("match rule %s: %w", r.ID, err)
		}
		for _, f := range found {
			name := f.Name
			if r.kept(name, o) || r.kept(f.As, o) {
				continue
			}
			if r.Group == configured && ownFile(name) {
				return nil, r.ownFileError(name)
			}
			if name == StateDir || disk.Under(name, asideDir) || path.Base(name) == asideElse {
				continue
			}
			if err := r.astray(d, pattern, f); err != nil {
				return nil, err
			}
			m, ok, err := r.match(d, name, o)
			if err != nil {
				return nil, fmt.Errorf("match rule %s: %w", r.ID, err)
			}
			if ok {
				out = append(out, m)
			}
		}
	}
	return distinct(out), nil
}

// expand is what one pattern stands for: names on the disk, or with Below regular files in these
// directories.
func (r Rule) expand(d *disk.Disk, pattern string) (found []disk.Found, err error) {
	if len(r.Below) == 0 {
		return d.Find(pattern)
	}
	for _, dir := range r.Below {
		dir = strings.TrimPrefix(dir, "/")
		at, ferr := d.Follow(dir)
		if ferr != nil {
			continue // nothing is there
		}
		err = errors.Join(err, d.Walk(at, func(name string, info fs.FileInfo) error {
			if ok, merr := path.Match(pattern, path.Base(name)); merr != nil || !ok || !info.Mode().IsRegular() {
				return merr
			}
			found = append(found, disk.Found{Name: name, As: dir + strings.TrimPrefix(name, at)})
			return nil
		}))
	}
	return found, err
}

func (r Rule) kept(name string, o Options) bool {
	keep := append([]string{}, r.Keep...)
	if o.Join == JoinKeep {
		keep = append(keep, r.Shared...)
	}
	for _, e := range o.Config.Exceptions {
		if e.Rule == r.ID {
			if len(e.Paths) == 0 {
				return true
			}
			keep = append(keep, e.Paths...)
		}
	}
	for _, pattern := range keep {
		if covers(pattern, name) {
			return true
		}
	}
	return false
}

// covers reports whether pattern matches name or a directory above it.
func covers(pattern, name string) bool {
	pattern = strings.TrimPrefix(pattern, "/")
	for at := name; at != "." && at != "/"; at = path.Dir(at) {
		if ok, err := path.Match(pattern, at); err == nil && ok {
			return true
		}
	}
	return false
}

func (r Rule) match(d *disk.Disk, name string, o Options) (Match, bool, error) {
	info, err := d.Lstat(name)
	if err != nil {
		return Match{}, false, err
	}
	m := Match{Path: name}
	if r.Rewrite != nil {
		// A link would become a copy, with the link's mode, of what it leads to.
		if !info.Mode().IsRegular() {
			return m, false, fmt.Errorf("/%s is not a regular file: remove it", disk.Shown(name))
		}
		if o.Estimate {
			return m, true, nil
		}
		// What it leaves when it is interrupted goes with what is set aside.
		if err := d.MkdirAll(asideDir, 0o700); err != nil {
			return m, false, err
		}
		data, err := r.Rewrite(d.Host(name), d.Host(asideDir))
		m.Bytes, m.New = info.Size()-int64(len(data)), &Content{Data: data}
		return m, true, err
	}
	if r.Only != nil || r.Action == Edit {
		if !info.Mode().IsRegular() {
			return m, false, nil
		}
		data, err := d.ReadFile(name, disk.Small)
		if err != nil {
			return m, false, err
		}
		if r.Only != nil && !r.Only(data) {
			return m, false, nil
		}
		if r.Action == Edit {
			changed := r.Change(data, o.Facts)
			if bytes.Equal(changed, data) {
				return m, false, nil
			}
			m.Bytes = int64(max(len(data)-len(changed), 0))
			m.New = &Content{Data: changed}
			return m, true, nil
		}
	}
	switch r.Action {
	case Truncate:
		if !info.Mode().IsRegular() || info.Size() == 0 {
			return m, false, nil
		}
		m.Bytes, m.New = info.Size(), &Content{}
		return m, true, nil
	case Link:
		if target, err := d.Readlink(name); err == nil && target == r.Target {
			return m, false, nil
		}
		m.New = &Content{Target: r.Target}
	}
	m.Bytes, err = d.Size(name)
	return m, true, err
}

// distinct drops what another match of the same rule already contains.
func distinct(matches []Match) []Match {
	all := map[string]bool{}
	for _, m := range matches {
		all[m.Path] = true
	}
	var out []Match
	for _, m := range matches {
		inside := !all[m.Path] // it came before
		for at := path.Dir(m.Path); at != "." && !inside; at = path.Dir(at) {
			_, inside = all[at]
		}
		if !inside {
			out = append(out, m)
			all[m.Path] = false
		}
	}
	return out
}

// withoutLines drops the lines for which drop is true.
func withoutLines(data []byte, drop func(line string) bool) []byte {
	var out bytes.Buffer
	for line := range strings.Lines(string(data)) {
		if !drop(strings.TrimRight(line, "\n")) {
			out.WriteString(line)
		}
	}
	return out.Bytes()
}
