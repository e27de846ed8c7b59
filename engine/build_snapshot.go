package engine

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"kamino.dev/kamino"
	"kamino.dev/kamino/workflow"
)

// deleteSnapshot deletes a snapshot, after any version that is still being built from it.
func (b *build) deleteSnapshot(ctx context.Context, s kamino.Copy, what string) (workflow.Next, error) {
	versions, err := b.image.versions(ctx)
	if err != nil {
		return workflow.Next{}, err
	}
	for _, v := range versions {
		if v.State == kamino.Creating && v.Ours() {
			return workflow.WaitPercent("version "+v.Name+", which is being built from the snapshot", v.Percent), nil
		}
	}
	return workflow.Act(kamino.ActDeleteSnapshot, what, func(ctx context.Context) error {
		b.cleaning = b.reused != nil // otherwise it is not this run's
		return b.engine.Provider.Delete(ctx, b.pool, s.Artifact)
	}), nil
}

// lookClean deletes the snapshot of the pool, once no version is built from it.
func (b *build) lookClean(ctx context.Context) (workflow.Next, error) {
	name := kamino.SnapshotName(b.pool.Name)
	if v := b.image.version; b.reused != nil && v.Keeps && v.Source == b.reused.ID {
		return workflow.Done("a part of version " + v.Name), nil
	}
	found, err := b.engine.readSnapshot(ctx, b.pool)
	if err != nil {
		return workflow.Next{}, err
	}
	if found == nil && b.reused != nil && !b.cleaning && b.runner.Spent() < kamino.LookAge {
		return workflow.Wait("the snapshot of this run (not found; confirming that it was deleted)"), nil
	} else if found == nil {
		return workflow.Done("no snapshot is left"), nil
	}
	s := *found
	if !s.Ours() {
		return workflow.Done("snapshot " + name + " was not made by kamino and is kept"), nil
	}
	if s.State == kamino.Deleting {
		return workflow.Wait("the snapshot to be deleted"), nil
	}
	if next, over := b.waitForActs(s); !over && b.foreignSnapshot(s) {
		return next, nil
	}
	return b.deleteSnapshot(ctx, s, cleanText(b.pool))
}

func (b *build) lookSnapshot(ctx context.Context) (workflow.Next, error) {
	name := kamino.SnapshotName(b.pool.Name)
	found, err := b.engine.readSnapshot(ctx, b.pool)
	if err != nil {
		return workflow.Next{}, err
	} else if found == nil {
		return b.takeSnapshot(ctx, name)
	}
	s := *found
	if s.Run != b.held.Run {
		return workflow.Next{}, fmt.Errorf("snapshot %s belongs to run %q, not to this one", name, s.Run)
	}
	if b.otherDisk(s.Source) {
		return workflow.Act(kamino.ActDeleteSnapshot, "delete the snapshot: it is of disk "+kamino.LastSegment(s.Source)+
			", and the run sealed "+kamino.LastSegment(b.held.Lease.Record.Disk), func(ctx context.Context) error {
			return b.engine.Provider.Delete(ctx, b.pool, s.Artifact)
		}), nil
	}
	if s.State != kamino.Failed && !b.donor.drain.rested {
		if next, err := b.lookRested(ctx, s); err != nil || next.Kind == workflow.NextAct {
			return next, err
		}
	}
	switch {
	case s.State == kamino.Failed:
		return workflow.Act(kamino.ActDeleteSnapshot, "delete the failed snapshot: "+s.Failure, func(ctx context.Context) error {
			return b.engine.Provider.Delete(ctx, b.pool, s.Artifact)
		}), nil
	case s.State == kamino.Succeeded && s.Ready:
		b.reused = &s
		return workflow.Done("complete"), nil
	}
	return workflow.WaitPercent("the copy of the disk", s.Percent), nil
}

// lookRested makes sure that nobody started the donor between the last look and the snapshot,
// because the request cannot carry a condition.
func (b *build) lookRested(ctx context.Context, s kamino.Copy) (workflow.Next, error) {
	in, err := b.donor.readInstance(ctx)
	if err != nil {
		return workflow.Next{}, err
	}
	if in.Power != kamino.PowerOff {
		return workflow.Act(kamino.ActDeleteSnapshot, "delete the snapshot: somebody started the donor meanwhile",
			func(ctx context.Context) error {
				return b.engine.Provider.Delete(ctx, b.pool, s.Artifact)
			}), nil
	}
	b.donor.drain.rested = true
	return workflow.Done("at rest"), nil
}

// takeSnapshot checks once more, immediately before the request, that the disk is sealed and the
// machine off.
func (b *build) takeSnapshot(ctx context.Context, name string) (workflow.Next, error) {
	n, mark, err := b.donor.readNode(ctx, b.held.Run)
	if err != nil {
		return workflow.Next{}, err
	}
	receipt, ok := n.Receipt()
	if !ok || receipt.Run != b.held.Run || mark == nil || n.BootID != mark.BootID {
		return workflow.Next{}, fmt.Errorf("refusing to snapshot: no seal receipt of run %s for the current boot of node %s",
			b.held.Run, n.Name)
	}
	if err := b.donor.checkReceipt(receipt); err != nil {
		return workflow.Next{}, err
	}
	in, err := b.donor.instanceNow(ctx)
	if err != nil {
		return workflow.Next{}, err
	}
	if in.Power != kamino.PowerOff {
		return workflow.Next{}, fmt.Errorf("refusing to snapshot: instance %s is %s, not off", in.ID, in.Power)
	}
	if b.otherDisk(in.Disk) {
		return workflow.Next{}, kamino.WithHint(fmt.Errorf(
			"refusing to snapshot: instance %s has OS disk %s now, and run %s sealed %s: somebody replaced the disk while the machine was off",
			in.ID, kamino.LastSegment(in.Disk), b.held.Run, kamino.LastSegment(b.held.Lease.Record.Disk)),
			"the pool's image stays as it is; check who reimaged the machine or swapped its OS disk, then run the command again")
	}
	want := kamino.Artifact{
		Kind: kamino.KindSnapshot, Name: name, Source: in.Disk, Tags: b.tags(receipt),
		Machine: kamino.Machine{Generation: in.Generation, Architecture: in.Architecture, SecurityType: in.SecurityType},
	}
	return workflow.Act(kamino.ActCreateSnapshot, "snapshot disk "+kamino.LastSegment(in.Disk), func(ctx context.Context) error {
		b.image.saveList(ctx, n, receipt)
		return b.engine.Provider.Create(ctx, b.pool, want)
	}).Noting(func(l *kamino.Lease) {
		l.Ledger.Generic = cmp.Or(receipt.Waterfall(n.Name, b.engine.date()), l.Ledger.Generic)
	}), nil
}

// otherDisk reports whether a disk is another one than the run has sealed, if both are known. A
// reimage of a VM keeps its ID, its Node object and the receipt there. Whether it can keep the
// disk's ID is unverified.
func (b *build) otherDisk(disk string) bool {
	sealed := b.held.Lease.Record.Disk
	return sealed != "" && disk != "" && !strings.EqualFold(sealed, disk)
}

func (b *build) tags(receipt kamino.Receipt) map[string]string {
	tags := map[string]string{
		kamino.TagBuiltFrom: b.donor.node.Name,
		kamino.TagBuiltAt:   b.engine.date().Format(kamino.BuiltAtFormat),
		kamino.TagRun:       b.held.Run,
		kamino.TagEpoch:     fmt.Sprint(b.held.Lease.Epoch),
		kamino.TagReceipt:   receipt.Hash,
		kamino.TagParent:    kamino.LastSegments(b.donor.instance.Image, 3),
		kamino.TagVM:        b.donor.instance.VMID,
	}
	if receipt.Policy != "" {
		tags[kamino.TagPolicy] = receipt.Policy
	}
	if keys := strings.Join(receipt.SSHKeys, " "); keys != "" {
		tags[kamino.TagSSHKeys] = keys
	}
	maps.Copy(tags, receipt.Freshness.Tags(b.donor.node.Software))
	if u := receipt.Unknown; u != nil {
		tags[kamino.TagUnknown], tags[kamino.TagUnknownMode], tags[kamino.TagUnknownDigest] = fmt.Sprint(u.Count), u.Mode, u.Digest
	}
	for tag, value := range tags { // text from a node may have any length
		tags[tag] = kamino.CutText(value, kamino.MaxTag)
	}
	return tags
}

// reusable returns why a snapshot may not become this run's version; "" if it may.
func (b *build) reusable(s kamino.Copy) string {
	day, err := kamino.VersionDate(b.image.version.Name)
	built, known := s.Built()
	switch {
	case s.Receipt == "":
		return "no seal receipt"
	case s.Source != "" && !strings.EqualFold(s.Source, b.donor.instance.Disk):
		return "of another disk than the donor's"
	case s.Run == b.held.Run:
		return ""
	case !slices.ContainsFunc(b.held.Lease.Ledger.Past, func(p kamino.PastRun) bool { return p.Run == s.Run }):
		return "of a run that is not in the pool's ledger"
	case b.opts.Today == kamino.TodayAgain && !b.image.inherits(s.Run):
		return "not of this run"
	case !b.image.madeOf(s):
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
func (b *build) foreignSnapshot(s kamino.Copy) bool {
	run, held := s.Run, b.held.Lease.Epoch
	if b.held.Run == "" {
		held++ // a plan: the run would take the lease
	}
	earlier := s.Epoch > 0 && s.Epoch < held
	old := !s.Created.IsZero() && b.engine.now().Sub(s.Created) > kamino.SnapshotLife
	return run != "" && run != b.held.Run && !earlier && !old && !slices.Contains(b.donor.back.returned, run)
}

// waitForActs waits until the last act of the run of a foreign snapshot is over.
func (b *build) waitForActs(s kamino.Copy) (next workflow.Next, over bool) {
	left := kamino.LeaseDuration - b.held.HeldFor() // an act may begin late, and ends before its lease could expire
	return workflow.WaitFor(fmt.Sprintf("the last act of run %s, which made snapshot %s and lost the lease, to end", s.Run, s.Name), left),
		left <= 0
}

// imagedElsewhere reports whether another version was made of a snapshot, for example by a run that
// passed midnight.
func (b *build) imagedElsewhere(ctx context.Context, s kamino.Copy) (bool, error) {
	versions, err := b.image.versions(ctx)
	return slices.ContainsFunc(versions, func(v kamino.Version) bool {
		return v.Ours() && v.Run == s.Run && v.State != kamino.Failed && kamino.CompareVersions(v.Name, b.image.version.Name) != 0
	}), err
}
