package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"kamino.dev/kamino"
	"kamino.dev/kamino/workflow"
)

// deleteSnapshot deletes a snapshot, after any version that is still being built from it.
func (r *Run) deleteSnapshot(ctx context.Context, s kamino.Artifact, what string) (workflow.Next, error) {
	versions, err := r.versions(ctx)
	if err != nil {
		return workflow.Next{}, err
	}
	for _, v := range versions {
		if v.State == kamino.Creating && v.Ours() {
			return workflow.WaitPercent("version "+v.Name+", which is being built from the snapshot", v.Percent), nil
		}
	}
	return workflow.Act(kamino.ActDeleteSnapshot, what, func(ctx context.Context) error {
		r.image.cleaning = r.image.reused != nil // otherwise it is not this run's
		return r.engine.Provider.Delete(ctx, r.pool, s)
	}), nil
}

// lookClean deletes the snapshot of the pool, once no version is built from it.
func (r *Run) lookClean(ctx context.Context) (workflow.Next, error) {
	name := kamino.SnapshotName(r.pool.Name)
	if v := r.image.version; r.image.reused != nil && v.Keeps && v.Source == r.image.reused.ID {
		return workflow.Done("a part of version " + v.Name), nil
	}
	found, err := r.engine.Provider.Find(ctx, r.pool, kamino.Snapshot, name)
	if err != nil {
		return workflow.Next{}, fmt.Errorf("read snapshot %s: %w", name, err)
	}
	if len(found) == 0 && r.image.reused != nil && !r.image.cleaning && r.runner.Spent() < kamino.LookAge {
		return workflow.Wait("the snapshot of this run (not found; confirming that it was deleted)"), nil
	} else if len(found) == 0 {
		return workflow.Done("no snapshot is left"), nil
	}
	s := found[0]
	if !s.Ours() {
		return workflow.Done("snapshot " + name + " was not made by kamino and is kept"), nil
	}
	if s.State == kamino.Deleting {
		return workflow.Wait("the snapshot to be deleted"), nil
	}
	if next, over := r.waitForActs(s); !over && r.foreignSnapshot(s) {
		return next, nil
	}
	return r.deleteSnapshot(ctx, s, cleanText(r.pool))
}

func cleanText(p kamino.Pool) string { return "delete snapshot " + kamino.SnapshotName(p.Name) }

// mayHaveSnapshot reports whether the run got as far as the snapshot, now or before it was adopted.
func (r *Run) mayHaveSnapshot() bool { return r.held.Adopted || r.image.version.Name != "" }

func (r *Run) lookStop(ctx context.Context) (workflow.Next, error) {
	if r.away.from.IsZero() && !(r.held.Adopted && r.held.Before.Sealing) { // otherwise only the previous process knows
		r.away.from = r.engine.now()
	}
	in, err := r.donor.instanceNow(ctx)
	if err != nil {
		return workflow.Next{}, err
	}
	switch {
	case in.Power == kamino.PowerOff:
		return workflow.Done("off"), nil
	case in.Power == kamino.PowerOn && !r.donor.stillOn(r.runner.Spent()):
		return workflow.Next{}, fmt.Errorf("node %s runs although its disk is sealed: %w", r.donor.node.Name, errStartedSince)
	case in.Power == kamino.PowerOn && r.runner.Spent() > guestHalt:
		return workflow.Act(kamino.ActPowerOff, "switch the donor off", func(ctx context.Context) error {
			return r.engine.Provider.SetPower(ctx, in.ID, kamino.PowerOff)
		}), nil
	}
	return workflow.Wait("the donor to switch itself off"), nil
}

// errStartedSince: nobody knows whether the disk is still as it was sealed.
var errStartedSince = errors.New("it may have been started again since")

func (r *Run) lookSnapshot(ctx context.Context) (workflow.Next, error) {
	name := kamino.SnapshotName(r.pool.Name)
	found, err := r.engine.Provider.Find(ctx, r.pool, kamino.Snapshot, name)
	if err != nil {
		return workflow.Next{}, fmt.Errorf("read snapshot %s: %w", name, err)
	}
	if len(found) == 0 {
		return r.takeSnapshot(ctx, name)
	}
	s := found[0]
	if s.Tags[kamino.TagRun] != r.held.Run {
		return workflow.Next{}, fmt.Errorf("snapshot %s belongs to run %q, not to this one", name, s.Tags[kamino.TagRun])
	}
	if r.otherDisk(s.Source) {
		return workflow.Act(kamino.ActDeleteSnapshot, "delete the snapshot: it is of disk "+kamino.LastSegment(s.Source)+", and the run sealed "+kamino.LastSegment(r.held.Lease.Record.Disk), func(ctx context.Context) error {
			return r.engine.Provider.Delete(ctx, r.pool, s)
		}), nil
	}
	if s.State != kamino.Failed && !r.empty.rested {
		if next, err := r.lookRested(ctx, s); err != nil || next.Kind == workflow.NextAct {
			return next, err
		}
	}
	switch {
	case s.State == kamino.Failed:
		return workflow.Act(kamino.ActDeleteSnapshot, "delete the failed snapshot: "+s.Failure, func(ctx context.Context) error {
			return r.engine.Provider.Delete(ctx, r.pool, s)
		}), nil
	case s.State == kamino.Succeeded && s.Ready:
		r.image.reused = &s
		return workflow.Done("complete"), nil
	}
	return workflow.WaitPercent("the copy of the disk", s.Percent), nil
}

// lookRested makes sure that nobody started the donor between the last look and the snapshot,
// because the request cannot carry a condition.
func (r *Run) lookRested(ctx context.Context, s kamino.Artifact) (workflow.Next, error) {
	in, err := r.donor.readInstance(ctx)
	if err != nil {
		return workflow.Next{}, err
	}
	if in.Power != kamino.PowerOff {
		return workflow.Act(kamino.ActDeleteSnapshot, "delete the snapshot: somebody started the donor meanwhile", func(ctx context.Context) error {
			return r.engine.Provider.Delete(ctx, r.pool, s)
		}), nil
	}
	r.empty.rested = true
	return workflow.Done("at rest"), nil
}

// takeSnapshot checks once more, immediately before the request, that the disk is sealed and the
// machine off.
func (r *Run) takeSnapshot(ctx context.Context, name string) (workflow.Next, error) {
	n, mark, err := r.donor.readNode(ctx, r.held.Run)
	if err != nil {
		return workflow.Next{}, err
	}
	receipt, ok := n.Receipt()
	if !ok || receipt.Run != r.held.Run || mark == nil || n.BootID != mark.BootID {
		return workflow.Next{}, fmt.Errorf("refusing to snapshot: no seal receipt of run %s for the current boot of node %s", r.held.Run, n.Name)
	}
	if err := r.checkReceipt(receipt); err != nil {
		return workflow.Next{}, err
	}
	in, err := r.donor.instanceNow(ctx)
	if err != nil {
		return workflow.Next{}, err
	}
	if in.Power != kamino.PowerOff {
		return workflow.Next{}, fmt.Errorf("refusing to snapshot: instance %s is %s, not off", in.ID, in.Power)
	}
	if r.otherDisk(in.Disk) {
		return workflow.Next{}, kamino.WithHint(fmt.Errorf("refusing to snapshot: instance %s has OS disk %s now, and run %s sealed %s: somebody replaced the disk while the machine was off",
			in.ID, kamino.LastSegment(in.Disk), r.held.Run, kamino.LastSegment(r.held.Lease.Record.Disk)),
			"the pool's image stays as it is; check who reimaged the machine or swapped its OS disk, then run the command again")
	}
	want := kamino.Artifact{
		Kind: kamino.Snapshot, Name: name, Source: in.Disk, Tags: r.tags(receipt),
		Machine: kamino.Machine{Generation: in.Generation, Architecture: in.Architecture, SecurityType: in.SecurityType},
	}
	return workflow.Act(kamino.ActCreateSnapshot, "snapshot disk "+kamino.LastSegment(in.Disk), func(ctx context.Context) error {
		r.saveList(ctx, n, receipt)
		return r.engine.Provider.Create(ctx, r.pool, want)
	}).Noting(func(l *kamino.Lease) {
		l.Ledger.Generic = cmp.Or(receipt.Waterfall(n.Name, r.engine.date()), l.Ledger.Generic)
	}), nil
}

// otherDisk reports whether a disk is another one than the run has sealed, if both are known. A
// reimage of a VM keeps its ID, its Node object and the receipt there. Whether it can keep the
// disk's ID is unverified.
func (r *Run) otherDisk(disk string) bool {
	sealed := r.held.Lease.Record.Disk
	return sealed != "" && disk != "" && !strings.EqualFold(sealed, disk)
}

func (r *Run) tags(receipt kamino.Receipt) map[string]string {
	tags := map[string]string{
		kamino.TagBuiltFrom: r.donor.node.Name,
		kamino.TagBuiltAt:   r.engine.date().Format(kamino.BuiltAtFormat),
		kamino.TagRun:       r.held.Run,
		kamino.TagEpoch:     fmt.Sprint(r.held.Lease.Epoch),
		kamino.TagReceipt:   receipt.Hash,
		kamino.TagParent:    kamino.LastSegments(r.donor.instance.Image, 3),
		kamino.TagVM:        r.donor.instance.VMID,
	}
	if receipt.Policy != "" {
		tags[kamino.TagPolicy] = receipt.Policy
	}
	if keys := strings.Join(receipt.SSHKeys, " "); keys != "" {
		tags[kamino.TagSSHKeys] = keys
	}
	maps.Copy(tags, receipt.Freshness.Tags(r.donor.node.Software))
	if u := receipt.Unknown; u != nil {
		tags[kamino.TagUnknown], tags[kamino.TagUnknownMode], tags[kamino.TagUnknownDigest] = fmt.Sprint(u.Count), u.Mode, u.Digest
	}
	for tag, value := range tags { // text from a node may have any length
		tags[tag] = kamino.CutText(value, kamino.MaxTag)
	}
	return tags
}

// reusable returns why a snapshot may not become this run's version; "" if it may.
func (r *Run) reusable(s kamino.Artifact) string {
	day, err := kamino.VersionDate(r.image.version.Name)
	built, known := s.Built()
	switch {
	case s.Tags[kamino.TagReceipt] == "":
		return "no seal receipt"
	case s.Source != "" && !strings.EqualFold(s.Source, r.donor.instance.Disk):
		return "of another disk than the donor's"
	case s.Tags[kamino.TagRun] == r.held.Run:
		return ""
	case !slices.ContainsFunc(r.held.Lease.Ledger.Past, func(p kamino.PastRun) bool { return p.Run == s.Tags[kamino.TagRun] }):
		return "of a run that is not in the pool's ledger"
	case r.opts.Today == kamino.TodayAgain && !r.inherits(s.Tags[kamino.TagRun]):
		return "not of this run"
	case !r.madeOf(s):
		return "not of this donor"
	case err != nil || !known || kamino.VersionName(built.Time) != kamino.VersionName(day):
		return "not of today"
	}
	return ""
}

// foreignSnapshot reports whether a snapshot belongs to a run that this run's lease does not know
// and that may still act. A run has certainly ended if it held the lease under an earlier epoch, if
// its donor was given back just now, or if its snapshot is too old. A later epoch is that of a
// lease that was deleted or went back in time; a process that lost its lease does nothing after its
// last act. A snapshot without a run was made by the original script, which had no runs.
func (r *Run) foreignSnapshot(s kamino.Artifact) bool {
	run, held := s.Tags[kamino.TagRun], r.held.Lease.Epoch
	if r.held.Run == "" {
		held++ // a plan: the run would take the lease
	}
	epoch, err := strconv.ParseInt(s.Tags[kamino.TagEpoch], 10, 64)
	earlier := err == nil && epoch < held
	old := !s.Created.IsZero() && r.engine.now().Sub(s.Created) > kamino.SnapshotLife
	return run != "" && run != r.held.Run && !earlier && !old && !slices.Contains(r.back.returned, run)
}

// waitForActs waits until the last act of the run of a foreign snapshot is over.
func (r *Run) waitForActs(s kamino.Artifact) (next workflow.Next, over bool) {
	left := kamino.LeaseDuration - r.held.HeldFor() // an act may begin late, and ends before its lease could expire
	return workflow.WaitFor(fmt.Sprintf("the last act of run %s, which made snapshot %s and lost the lease, to end", s.Tags[kamino.TagRun], s.Name), left), left <= 0
}

// lookReuse takes over a sealed and complete snapshot of today, and deletes any other snapshot of
// the pool.
func (r *Run) lookReuse(ctx context.Context) (workflow.Next, error) {
	name := kamino.SnapshotName(r.pool.Name)
	found, err := r.engine.Provider.Find(ctx, r.pool, kamino.Snapshot, name)
	if err != nil {
		return workflow.Next{}, fmt.Errorf("read snapshot %s: %w", name, err)
	}
	if len(found) == 0 {
		return workflow.Done("no snapshot of today"), nil
	}
	s := found[0]
	why := r.reusable(s)
	switch {
	case s.OfFormer:
		return workflow.Next{}, kamino.InTheWay{Err: kamino.WithHint(fmt.Errorf("snapshot %s was made of an earlier pool of this name", name), "delete or rename it, then run again")}
	case !s.Ours():
		return workflow.Next{}, kamino.InTheWay{Err: kamino.WithHint(fmt.Errorf("snapshot %s exists and was not made by kamino (no tag %s)", name, kamino.TagBuiltFrom),
			"delete or rename it, then run again")}
	case s.State == kamino.Deleting:
		return workflow.Wait("an old snapshot to be deleted"), nil
	case s.Tags[kamino.TagRun] == r.held.Run && s.State != kamino.Failed && !s.Ready:
		return workflow.Done("this run's own, not complete yet"), nil
	case why == "" && s.State == kamino.Succeeded && s.Ready:
		used, err := r.imagedElsewhere(ctx, s)
		if err != nil {
			return workflow.Next{}, err
		}
		if !used {
			r.image.reused = &s
			return workflow.Done("taken from " + s.Tags[kamino.TagBuiltFrom] + " today"), nil
		}
		why = "a version was made of it"
	}
	if r.foreignSnapshot(s) {
		if n, mark, err := r.forgottenDonor(ctx, s, *r.held.Lease); err != nil {
			return workflow.Next{}, err
		} else if mark != nil {
			return r.giveBackForgotten(n, mark, s), nil
		}
		if next, over := r.waitForActs(s); !over {
			return next, nil
		}
	}
	return r.deleteSnapshot(ctx, s, fmt.Sprintf("delete the stale snapshot taken from %s: %s", s.Tags[kamino.TagBuiltFrom], cmp.Or(why, "it is "+string(s.State))))
}

// imagedElsewhere reports whether another version was made of a snapshot, for example by a run that
// passed midnight.
func (r *Run) imagedElsewhere(ctx context.Context, s kamino.Artifact) (bool, error) {
	versions, err := r.versions(ctx)
	return slices.ContainsFunc(versions, func(v kamino.Artifact) bool {
		return v.Ours() && v.Tags[kamino.TagRun] == s.Tags[kamino.TagRun] && v.State != kamino.Failed && kamino.CompareVersions(v.Name, r.image.version.Name) != 0
	}), err
}
