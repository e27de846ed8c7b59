package engine

import (
	"context"
	"fmt"
	"slices"
	"time"

	"kamino.dev/kamino"
	"kamino.dev/kamino/poolstate"
	"kamino.dev/kamino/workflow"
)

// lookVersion decides what is left to do today, and the name of the version.
func (b *build) lookVersion(ctx context.Context) (workflow.Next, error) {
	versions, err := b.image.versions(ctx)
	if err != nil {
		return workflow.Next{}, err
	}
	if missing := b.image.unlisted(versions); missing != "" && b.plan == nil && b.runner.Spent() < kamino.GoneAfter {
		// A name chosen without these versions might count as earlier than theirs.
		return workflow.Wait(fmt.Sprintf("%s, to be listed, or to stay unlisted for %s", missing, kamino.GoneAfter)), nil
	}
	versions = b.held.Lease.Ledger.Distrust(versions)
	if err := b.pointer.refusePinned(ctx, versions); err != nil {
		return workflow.Next{}, err
	}
	b.donor.bad = kamino.BadVersions(versions, b.held.Lease.Ledger)
	if next, err := b.pointer.chooseReference(versions); err != nil || next.Kind == workflow.NextAct {
		return next, err
	}
	named := b.held.Lease.Record.Version // "" in a plan, which holds no lease
	day, err := kamino.VersionDate(named)
	if err != nil {
		day = b.engine.date()
	}
	next, nameErr := kamino.NextVersion(b.held.Lease.Ledger.WithFormer(versions), day)
	last := kamino.NewestOfDay(versions, day)
	if v := b.pending(versions); v != nil {
		last = v
	}
	for i, v := range versions {
		if v.Name == named && v.Run == b.held.Run || b.image.carriesOn(v) && v.OfDay(day) {
			last = &versions[i] // this run's own version, begun before it was adopted, or one that it continues with
		}
	}
	if v := kamino.First(versions, b.takesOver); v != nil {
		return b.todaysVersion(ctx, *v)
	}
	switch {
	case last == nil, b.held.Adopted && named == next:
	case !last.Whole() && last.State == kamino.Failed && last.Ours() && !b.held.Lease.Ledger.FailedBuild(*last):
		// It was completed once and may be needed, so it stays, and another version is made.
	case b.opts.Today != kamino.TodayAgain, last.Run == b.held.Run, b.image.carriesOn(*last),
		last.Ours() && (last.State == kamino.Failed || last.State == kamino.Deleting):
		return b.todaysVersion(ctx, *last)
	}
	if nameErr != nil {
		return workflow.Next{}, kamino.InTheWay{Err: kamino.WithHint(nameErr, "run again tomorrow")}
	}
	later := slices.IndexFunc(versions, func(v kamino.Version) bool { return !v.Foreign() && kamino.CompareVersions(v.Name, next) > 0 })
	if !b.held.Adopted && later >= 0 {
		return workflow.Next{}, kamino.InTheWay{Err: kamino.WithHint(
			fmt.Errorf("version %s exists, which is later than today's %s: this clock says %s",
				versions[later].Name, next, b.engine.date().Format(time.RFC3339)), "set the clock of this machine, or delete that version")}
	}
	b.image.version = kamino.ParseVersion(kamino.Artifact{Kind: kamino.KindVersion, Name: next})
	return b.image.settled(next, next+" is to be built"), nil
}

// pending returns a version that an earlier run left hidden and unproved, if this run may continue
// with it; else nil.
func (b *build) pending(newestFirst []kamino.Version) *kamino.Version {
	if b.mode == kamino.ProveNone || b.opts.Today == kamino.TodayAgain || b.held.Adopted {
		return nil
	}
	v := kamino.NewestGood(newestFirst)
	if v == nil || !v.Unproved() || v.Receipt == "" || b.opts.Today != kamino.TodayOfAny {
		return nil // a person who names a donor wants its disk of today
	}
	return v
}

// takesOver reports whether a version was made by the run that this one replaced. Then only its
// proof is missing, whatever the options.
func (b *build) takesOver(v kamino.Version) bool {
	return b.held.Replaced != "" && v.Run == b.held.Replaced && b.mode != kamino.ProveNone && v.Unproved() && v.Whole() &&
		b.image.madeOf(v.Copy)
}

func (b *build) todaysVersion(ctx context.Context, v kamino.Version) (workflow.Next, error) {
	if v.OfFormer {
		return workflow.Next{}, kamino.InTheWay{Err: kamino.WithHint(
			fmt.Errorf("version %s exists and was made of an earlier pool of this name", v.Name), poolstate.HintAgain)}
	}
	if !v.Ours() {
		return workflow.Next{}, kamino.InTheWay{Err: kamino.WithHint(fmt.Errorf("version %s exists and was not made by kamino (no tag %s)",
			v.Name, kamino.TagBuiltFrom), poolstate.HintAgain)}
	}
	if why := v.Bad; why != "" {
		err := fmt.Errorf("version %s of today was withdrawn (%s)", v.Name, why)
		if v.Aside() {
			return workflow.Next{}, kamino.InTheWay{Err: kamino.WithHint(fmt.Errorf("version %s of today is %s", v.Name, why),
				"kamino rollback --pool %s --to %s takes it; %s", b.pool.Name, v.Name, poolstate.HintAgain)}
		}
		if b.image.madeOf(v.Copy) { // another version of the same packages would be refused
			return workflow.Next{}, kamino.InTheWay{
				Err: kamino.WithHint(err, "kamino patch --target-node %s, and then --again; or --again with another node",
					b.donor.node.Name)}
		}
		return workflow.Next{}, kamino.InTheWay{Err: kamino.WithHint(err, poolstate.HintAgain)}
	}
	switch {
	case v.State == kamino.Failed && !v.Whole():
		b.image.version = kamino.ParseVersion(kamino.Artifact{Kind: kamino.KindVersion, Name: v.Name})
		return workflow.Act(kamino.ActDeleteVersion, "delete the failed version "+v.Name, func(ctx context.Context) error {
			return b.engine.Provider.Delete(ctx, b.pool, v.Artifact)
		}), nil
	case v.State == kamino.Deleting:
		return workflow.Wait("the failed version to be deleted"), nil
	}
	if wanted := v.Hidden() && v.Proof != "" && v.Proof != kamino.TagProofPassed; wanted && b.opts.Today == kamino.TodayOfAny &&
		b.mode == kamino.ProveNone {
		if err := b.canary.proveAs(ctx, kamino.ProveCanary, "version "+v.Name+" is proved, as requested when it was built"); err != nil {
			return workflow.Next{}, err
		}
	}
	if err := b.image.usable(v); err != nil {
		return workflow.Next{}, kamino.InTheWay{Err: err}
	}
	b.image.version, b.image.preBuilt, b.image.there = v, true, true
	switch {
	case v.State == kamino.Creating:
		return b.image.settled(v.Name, v.Name+" is being built"), nil
	case b.ungated():
		return b.image.gate(v), nil
	}
	return b.image.settled(v.Name, v.Name+" is there already"), nil
}

// ungated reports whether this run leaves an existing version to a person and no step of a proof
// would record that. A later run with other options would then promote it.
func (b *build) ungated() bool {
	return b.image.preBuilt && !b.image.promotes() && !b.image.wanted() && b.image.version.Hidden() && !b.image.version.Gated
}
