package seal

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"kamino.dev/kamino/agent/disk"
)

// Interrupted reports whether a seal was begun on this disk and reached neither its receipt nor its
// rollback.
func Interrupted(d *disk.Disk) bool { return d.Exists(journalPath) && !d.Exists(ReceiptPath) }

// InterruptedBy is the VM whose seal was interrupted, empty when it is not known.
func InterruptedBy(d *disk.Disk) string {
	ops, err := readJournal(d)
	if err != nil || len(ops) == 0 {
		return ""
	}
	return ops[0].VM
}

// Unseal takes an interrupted seal back: afterwards every file is the one it was, with owner, mode
// and time. It may itself be interrupted and repeated. A change that cannot be taken back keeps
// none of the others from it: *NotTakenBack. A disk with a receipt is refused: what was set aside
// is gone.
func Unseal(d *disk.Disk) (restored int, err error) {
	if !d.Exists(journalPath) && !d.Exists(ReceiptPath) {
		return 0, nil
	}
	err = within(d, func(own *disk.Disk) error {
		restored, err = unseal(own)
		return err
	})
	return restored, err
}

func unseal(d *disk.Disk) (restored int, err error) {
	if d.Exists(ReceiptPath) {
		return 0, errors.New("unseal: this disk carries a receipt, its donor's identity is gone; start the machine, it comes back as the first clone")
	}
	if !d.Exists(journalPath) {
		return 0, nil
	}
	ops, err := readJournal(d)
	if err != nil {
		return 0, err
	}
	restored, stuck := takeBack(d, ops)
	if len(stuck) > 0 {
		return restored, keepStuck(d, ops, stuck)
	}
	if err := removeAsides(d); err != nil {
		return restored, err
	}
	if err := d.Remove(journalPath); err != nil {
		return restored, err
	}
	return restored, d.SyncDir(StateDir)
}

// takeBack undoes what it can, from the last change to the first. What failed is left as it is, and
// so is every earlier change above or below it: taken back first, it would go when that one is.
func takeBack(d *disk.Disk, ops []op) (restored int, stuck []op) {
	for _, o := range slices.Backward(ops) {
		if o.Rule == beginRule {
			continue
		}
		over := slices.IndexFunc(stuck, func(s op) bool { return disk.Under(s.Path, o.Path) || disk.Under(o.Path, s.Path) })
		if over >= 0 {
			o.Stuck = stuck[over].Stuck
		} else if err := undo(d, o); err != nil {
			o.Stuck = err.Error()
		} else {
			restored++
			continue
		}
		stuck = append(stuck, o)
	}
	return restored, stuck
}

// keepStuck leaves a journal of what could not be taken back, for the next attempt.
func keepStuck(d *disk.Disk, ops, stuck []op) error {
	left := &NotTakenBack{}
	for _, o := range stuck {
		left.Changes = append(left.Changes, fmt.Sprintf("/%s (rule %s): %s", disk.Shown(o.Path), o.Rule, o.Stuck))
	}
	slices.Reverse(stuck)
	if len(ops) > 0 && ops[0].Rule == beginRule {
		stuck = append([]op{ops[0]}, stuck...)
	}
	lines, err := encodeOps(stuck)
	if err == nil {
		err = d.WriteFile(journalPath, lines, 0o600)
	}
	return errors.Join(left, err)
}

// NotTakenBack is an interrupted seal of which some changes could not be taken back. The others
// were, and the journal keeps those, so that the next attempt makes up for them.
type NotTakenBack struct{ Changes []string }

func (n *NotTakenBack) Error() string {
	const most = 10
	lines := n.Changes[:min(len(n.Changes), most)]
	text := fmt.Sprintf("%d changes of an interrupted seal could not be undone:\n  %s", len(n.Changes), strings.Join(lines, "\n  "))
	if more := len(n.Changes) - most; more > 0 {
		text += fmt.Sprintf("\n  and %d more", more)
	}
	return text + "\nWhat was there waits in /" + asideDir +
		" of the same file system; remove what is in the way, then run `kamino-agent unseal`."
}

// stuck is *NotTakenBack where an earlier attempt left something, which has to be seen to before a
// seal is begun.
func stuck(d *disk.Disk) error {
	if !Interrupted(d) {
		return nil
	}
	ops, err := readJournal(d)
	if err != nil {
		return err
	}
	left := &NotTakenBack{}
	for _, o := range ops {
		if o.Stuck != "" {
			left.Changes = append(left.Changes, fmt.Sprintf("/%s (rule %s): %s", disk.Shown(o.Path), o.Rule, o.Stuck))
		}
	}
	if len(left.Changes) == 0 {
		return nil
	}
	return fmt.Errorf("seal refused: %w", left)
}

// setAside reports whether something is set aside.
func setAside(d *disk.Disk) bool {
	dirs, err := asides(d)
	return err != nil || slices.ContainsFunc(dirs, func(dir string) bool {
		entries, err := d.ReadDir(dir)
		return err != nil || len(entries) > 0
	})
}

func undo(d *disk.Disk, o op) error {
	if o.Put && !o.Dir {
		if err := d.Discard(o.Path); err != nil {
			return err
		}
	}
	switch {
	case o.Dir:
		// Only when it is empty: somebody else may have put something there since.
		if entries, err := d.ReadDir(o.Path); err != nil || len(entries) > 0 {
			return err
		}
		return d.Remove(o.Path)
	case o.Aside == "" && !o.Put:
		return nil // it was gone when its turn came; what may be there now is somebody else's
	case o.Aside == "":
		return d.Remove(o.Path)
	case !d.Exists(o.Aside):
		return nil // it never moved, or is back already
	}
	if err := d.Remove(o.Path); err != nil {
		return err
	}
	return d.Move(o.Aside, o.Path)
}
