package seal

import (
	"errors"
	"fmt"
	"syscall"

	"kamino.dev/kamino/agent/disk"
)

// Forget applies, without a way back, the rules that a clone repeats: those of phase Both, or all
// of them where the disk was never sealed. machine-id and the recorded machine are the caller's:
// the one is replaced, not emptied, on a running system; the other is overwritten last, so that an
// interruption repeats the whole.
func Forget(d *disk.Disk, o Options, all bool) (counts []RuleCount, err error) {
	err = within(d, func(own *disk.Disk) error {
		counts, err = forget(own, o, all)
		return err
	})
	return counts, err
}

// forget goes on after an error, and returns all of them: what can go, goes.
func forget(d *disk.Disk, o Options, all bool) (counts []RuleCount, failed error) {
	for _, r := range o.rooted(d) {
		if r.Action == Check || r.ID == "machine-id" || r.ID == "recorded-vm" || !all && r.Phase != Both {
			continue
		}
		matches, err := r.matches(d, o)
		if err != nil {
			failed = errors.Join(failed, err)
			continue
		}
		for _, m := range matches {
			if err := replace(d, m); err != nil {
				failed = errors.Join(failed, fmt.Errorf("apply rule %s: %w", r.ID, err))
			}
		}
		if len(matches) > 0 {
			counts = append(counts, RuleCount{ID: r.ID, Matched: len(matches)})
		}
	}
	if all {
		failed = errors.Join(failed, removeAsides(d)) // where a rule may have worked
	}
	return counts, failed
}

func replace(d *disk.Disk, m Match) error {
	switch {
	case m.New == nil:
		if err := d.Remove(m.Path); !errors.Is(err, syscall.EBUSY) {
			return err
		}
		return nil // an empty directory, on which this machine has mounted something
	case m.New.Target != "":
		return d.Symlink(m.New.Target, m.Path)
	}
	info, err := d.Lstat(m.Path)
	if err != nil {
		return err
	}
	if err := d.WriteFile(m.Path, m.New.Data, info.Mode().Perm()); err != nil {
		return err
	}
	return d.Like(m.Path, info)
}
