package engine

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"kamino.dev/kamino"
	"kamino.dev/kamino/poolstate"
	"kamino.dev/kamino/workflow"
)

// OtherDonorError: today's version or snapshot was made of another donor than the named one.
// Nothing was changed.
type OtherDonorError struct {
	Version   string
	BuiltFrom string // node name
	Donor     string // the named donor
}

func (e *OtherDonorError) Error() string {
	return fmt.Sprintf("version %s of today was built from node %s, not from %s", e.Version, e.BuiltFrom, e.Donor)
}

// lookVersion decides what is left to do today, and the name of the version.
func (r *Run) lookVersion(ctx context.Context) (workflow.Next, error) {
	versions, err := r.versions(ctx)
	if err != nil {
		return workflow.Next{}, err
	}
	if missing := r.unlisted(versions); missing != "" && r.plan == nil && r.runner.Spent() < kamino.GoneAfter {
		// A name chosen without these versions might count as earlier than theirs.
		return workflow.Wait(fmt.Sprintf("%s, to be listed, or to stay unlisted for %s", missing, kamino.GoneAfter)), nil
	}
	versions = r.held.Lease.Ledger.Distrust(versions)
	if err := r.refusePinned(ctx, versions); err != nil {
		return workflow.Next{}, err
	}
	r.image.bad = kamino.BadVersions(versions, r.held.Lease.Ledger)
	if next, err := r.chooseReference(versions); err != nil || next.Kind == workflow.NextAct {
		return next, err
	}
	named := r.held.Lease.Record.Version // "" in a plan, which holds no lease
	day, err := kamino.VersionDate(named)
	if err != nil {
		day = r.engine.date()
	}
	next, nameErr := kamino.NextVersion(r.held.Lease.Ledger.WithFormer(versions), day)
	last := kamino.NewestOfDay(versions, day)
	if v := r.pending(versions); v != nil {
		last = v
	}
	for i, v := range versions {
		if v.Name == named && v.Tags[kamino.TagRun] == r.held.Run || r.carriesOn(v) && v.OfDay(day) {
			last = &versions[i] // this run's own version, begun before it was adopted, or one that it continues with
		}
	}
	if v := kamino.First(versions, r.takesOver); v != nil {
		return r.todaysVersion(ctx, *v)
	}
	switch {
	case last == nil, r.held.Adopted && named == next:
	case !last.Whole() && last.State == kamino.Failed && last.Ours() && !r.held.Lease.Ledger.FailedBuild(*last):
		// It was completed once and may be needed, so it stays, and another version is made.
	case r.opts.Today != kamino.TodayAgain, last.Tags[kamino.TagRun] == r.held.Run, r.carriesOn(*last), last.Ours() && (last.State == kamino.Failed || last.State == kamino.Deleting):
		return r.todaysVersion(ctx, *last)
	}
	if nameErr != nil {
		return workflow.Next{}, kamino.InTheWay{Err: kamino.WithHint(nameErr, "run again tomorrow")}
	}
	later := slices.IndexFunc(versions, func(v kamino.Artifact) bool { return !v.Foreign() && kamino.CompareVersions(v.Name, next) > 0 })
	if !r.held.Adopted && later >= 0 {
		return workflow.Next{}, kamino.InTheWay{Err: kamino.WithHint(fmt.Errorf("version %s exists, which is later than today's %s: this clock says %s",
			versions[later].Name, next, r.engine.date().Format(time.RFC3339)), "set the clock of this machine, or delete that version")}
	}
	r.image.version = kamino.Artifact{Kind: kamino.Version, Name: next}
	return r.settled(next, next+" is to be built"), nil
}

// pending returns a version that an earlier run left hidden and unproved, if this run may continue
// with it; else nil.
func (r *Run) pending(newestFirst []kamino.Artifact) *kamino.Artifact {
	if r.proof.mode == kamino.ProveNone || r.opts.Today == kamino.TodayAgain || r.held.Adopted {
		return nil
	}
	v := kamino.NewestGood(newestFirst)
	if v == nil || !v.Unproved() || v.Tags[kamino.TagReceipt] == "" || r.opts.Today != kamino.TodayOfAny {
		return nil // a person who names a donor wants its disk of today
	}
	return v
}

// inherits reports whether this run continues with the version of a run although another version of
// today was requested: that run was the pool's last, had the same donor, and was interrupted.
func (r *Run) inherits(run string) bool {
	past := r.held.Lease.Ledger.Past
	return len(past) > 0 && past[0].Interrupted && past[0].Work == "" && past[0].Run == run && past[0].Donor == r.donor.node.Name
}

// carriesOn reports whether --again continues with a version, in place of making another.
func (r *Run) carriesOn(v kamino.Artifact) bool {
	return r.opts.Today == kamino.TodayAgain && r.inherits(v.Tags[kamino.TagRun]) && r.madeOf(v) && v.Tags[kamino.TagBad] == ""
}

// takesOver reports whether a version was made by the run that this one replaced. Then only its
// proof is missing, whatever the options.
func (r *Run) takesOver(v kamino.Artifact) bool {
	return r.held.Replaced != "" && v.Tags[kamino.TagRun] == r.held.Replaced && r.proof.mode != kamino.ProveNone && v.Unproved() && v.Whole() && r.madeOf(v)
}

// settled is done once the lease records the name of the version. A process that adopts the run
// continues with that name, also after midnight.
func (r *Run) settled(name, what string) workflow.Next {
	if r.held.Run == "" || r.held.Lease.Holder != r.held.Run || r.held.Lease.Record.Version == name {
		return workflow.Done(what)
	}
	return workflow.Act(kamino.ActName, "continue with version "+name, func(context.Context) error { return nil }).
		Noting(func(l *kamino.Lease) { l.Record.Version = name })
}

func (r *Run) todaysVersion(ctx context.Context, v kamino.Artifact) (workflow.Next, error) {
	if v.OfFormer {
		return workflow.Next{}, kamino.InTheWay{Err: kamino.WithHint(fmt.Errorf("version %s exists and was made of an earlier pool of this name", v.Name), poolstate.HintAgain)}
	}
	if !v.Ours() {
		return workflow.Next{}, kamino.InTheWay{Err: kamino.WithHint(fmt.Errorf("version %s exists and was not made by kamino (no tag %s)", v.Name, kamino.TagBuiltFrom), poolstate.HintAgain)}
	}
	if why := v.Tags[kamino.TagBad]; why != "" {
		err := fmt.Errorf("version %s of today was withdrawn (%s)", v.Name, why)
		if v.Aside() {
			return workflow.Next{}, kamino.InTheWay{Err: kamino.WithHint(fmt.Errorf("version %s of today is %s", v.Name, why), "kamino rollback --pool %s --to %s takes it; %s", r.pool.Name, v.Name, poolstate.HintAgain)}
		}
		if r.madeOf(v) { // another version of the same packages would be refused
			return workflow.Next{}, kamino.InTheWay{Err: kamino.WithHint(err, "kamino patch --target-node %s, and then --again; or --again with another node", r.donor.node.Name)}
		}
		return workflow.Next{}, kamino.InTheWay{Err: kamino.WithHint(err, poolstate.HintAgain)}
	}
	switch {
	case v.State == kamino.Failed && !v.Whole():
		r.image.version = kamino.Artifact{Kind: kamino.Version, Name: v.Name}
		return workflow.Act(kamino.ActDeleteVersion, "delete the failed version "+v.Name, func(ctx context.Context) error {
			return r.engine.Provider.Delete(ctx, r.pool, v)
		}), nil
	case v.State == kamino.Deleting:
		return workflow.Wait("the failed version to be deleted"), nil
	}
	if wanted := v.Hidden() && v.Tags[kamino.TagProof] != "" && v.Tags[kamino.TagProof] != kamino.TagProofPassed; wanted && r.opts.Today == kamino.TodayOfAny && r.proof.mode == kamino.ProveNone {
		if err := r.proveAs(ctx, kamino.ProveCanary, "version "+v.Name+" is proved, as requested when it was built"); err != nil {
			return workflow.Next{}, err
		}
	}
	if err := r.usable(v); err != nil {
		return workflow.Next{}, kamino.InTheWay{Err: err}
	}
	r.image.version, r.image.preBuilt, r.image.there = v, true, true
	switch {
	case v.State == kamino.Creating:
		return r.settled(v.Name, v.Name+" is being built"), nil
	case r.ungated():
		return r.gate(v), nil
	}
	return r.settled(v.Name, v.Name+" is there already"), nil
}

// ungated reports whether this run leaves an existing version to a person and no step of a proof
// would record that. A later run with other options would then promote it.
func (r *Run) ungated() bool {
	return r.image.preBuilt && !r.promotes() && !r.provesCanary() && r.image.version.Hidden() && !r.image.version.Gated()
}

func (r *Run) gate(v kamino.Artifact) workflow.Next {
	return r.writeVersion("record on version "+v.Name+" that a person is to promote it", v.Gate())
}

// usable returns an error unless new nodes may be made of today's version: it is of a sealed disk,
// and of the named donor.
func (r *Run) usable(v kamino.Artifact) error {
	switch {
	case r.work() == kamino.WorkProve && (v.Tags[kamino.TagReceipt] != "" || r.opts.Unsealed):
		return nil // a person has named it
	case v.Tags[kamino.TagReceipt] == "":
		return kamino.WithHint(fmt.Errorf("version %s of today has no seal receipt (no tag %s): its disk may hold the identity and the secrets of node %s",
			v.Name, kamino.TagReceipt, cmp.Or(v.Tags[kamino.TagBuiltFrom], "unknown")), poolstate.HintAgain)
	case v.Tags[kamino.TagRun] == r.held.Run, r.opts.Today == kamino.TodayOfAny, r.madeOf(v):
		return nil
	}
	return kamino.WithHint(&OtherDonorError{Version: v.Name, BuiltFrom: v.Tags[kamino.TagBuiltFrom], Donor: r.donor.node.Name},
		"to make another version of today from %s: --again; to use this one: --target-node %s", r.donor.node.Name, v.Tags[kamino.TagBuiltFrom])
}

// unswapped returns an error if a version is not the one that was seen or built before. Somebody
// may have deleted it and made another one with the same name.
func (r *Run) unswapped(v kamino.Artifact) error {
	if then, now := r.image.version.Tags[kamino.TagRun], v.Tags[kamino.TagRun]; len(r.image.version.Tags) > 0 && now != then {
		return kamino.WithHint(fmt.Errorf("version %s was replaced: run %s made it, not run %s; the model is not changed",
			v.Name, cmp.Or(now, "unknown"), cmp.Or(then, "unknown")), poolstate.HintAgain)
	}
	return r.usable(v)
}

// madeOf reports whether a version or a snapshot was made of the donor. A node of the same name on
// another VM is another donor.
func (r *Run) madeOf(a kamino.Artifact) bool {
	vm, known := a.Tags[kamino.TagVM]
	return a.Tags[kamino.TagBuiltFrom] == r.donor.node.Name && (!known || kamino.SameVM(vm, r.donor.instance.VMID))
}

// versions lists the versions of the pool, newest first.
func (r *Run) versions(ctx context.Context) ([]kamino.Artifact, error) {
	versions, err := r.engine.Provider.Find(ctx, r.pool, kamino.Version, "")
	if err != nil {
		return nil, fmt.Errorf("list image versions of pool %s: %w", r.pool.Name, err)
	}
	r.image.listed, r.image.listedAt = append([]kamino.Artifact{}, versions...), r.engine.now()
	return versions, nil
}

// everListed returns the pool's versions from any earlier list of this run. An image that somebody
// writes into the model during the run is refused earlier.
func (r *Run) everListed(ctx context.Context) ([]kamino.Artifact, error) {
	if r.image.listed == nil {
		return r.versions(ctx)
	}
	return r.image.listed, nil
}

// recentVersions returns a list of versions that was read within LookAge, if this process has
// changed no version since; otherwise it reads a new one. It is for choices that another read
// confirms. A person or a scale-out may have begun to use a version meanwhile;
// [kamino.Provider].Delete checks that itself.
func (r *Run) recentVersions(ctx context.Context) ([]kamino.Artifact, error) {
	if kamino.Elapsed(r.image.listedAt, r.engine.now()) < kamino.LookAge {
		return slices.Clone(r.image.listed), nil
	}
	return r.versions(ctx)
}

// unlisted describes versions that are known to exist and that a list does not show: the model's
// image, the last one promoted or made, and those that this run has seen complete; "" if all are
// listed.
func (r *Run) unlisted(versions []kamino.Artifact) string {
	l := r.held.Lease.Ledger
	last, known := l.LastMade(), []string{}
	home := "/galleries/" + strings.ToLower(r.pool.Gallery+"/images/"+kamino.DefinitionName(r.pool.Name)) + "/versions/"
	if strings.Contains(strings.ToLower(r.pool.Model.Image), home) {
		known = append(known, kamino.LastSegment(r.pool.Model.Image))
	}
	if l.Promoted != nil {
		known = append(known, l.Promoted.Version)
	}
	if last >= 0 {
		known = append(known, l.Past[last].Version)
	}
	if v := r.image.version; v.Whole() {
		known = append(known, v.Name)
	}
	// The name of a pool's first version is on the lease. Its definition was made by the adopted
	// run, or by one that failed before; a run that had sealed a donor would have waited.
	rec := r.held.Lease.Record
	first := r.held.Adopted && rec.Version != "" && (l.Past == nil || len(known) == 0 && !rec.Away().IsZero())
	if len(versions) == 0 && (r.image.formerHome && !first && !l.Empty || len(known) > 0) {
		return "the image versions of the pool, of which none is listed"
	}
	for _, name := range known {
		if kamino.IndexOf(versions, name) < 0 {
			return "version " + name + ", which is not listed"
		}
	}
	return ""
}
