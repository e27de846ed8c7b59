package kamino

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Today says what a run does with an image version that was made on the same day.
type Today string

// What a version of the same day means.
const (
	// TodayOfDonor: one that was made of the donor will do; one of another donor is refused.
	TodayOfDonor Today = ""
	// TodayOfAny: one of any donor will do, as where no person chose the donor.
	TodayOfAny Today = "any"
	// TodayAgain: another one is made.
	TodayAgain Today = "again"
)

// OtherDonorError says that what was made today is of another donor than the
// one that was named. Nothing was changed.
type OtherDonorError struct {
	Version   string
	BuiltFrom string // node name
	Donor     string // that was named
}

func (e *OtherDonorError) Error() string {
	return fmt.Sprintf("version %s of today was built from node %s, not from %s", e.Version, e.BuiltFrom, e.Donor)
}

const hintAgain = "another version of today is made with --again"

// lookVersion decides what is left to be done today, and how the version is named.
func (r *Run) lookVersion(ctx context.Context) (Next, error) {
	versions, err := r.versions(ctx)
	if err != nil {
		return Next{}, err
	}
	if missing := r.unlisted(versions); missing != "" && r.plan == nil && r.runner.Spent() < goneAfter {
		// A name that is chosen without them would count as earlier than theirs.
		return wait(fmt.Sprintf("%s, to be listed, or to stay unlisted for %s", missing, goneAfter)), nil
	}
	versions = r.held.lease.Ledger.distrust(versions)
	if err := r.refusePinned(ctx, versions); err != nil {
		return Next{}, err
	}
	r.image.bad = badVersions(versions, r.held.lease.Ledger)
	if next, err := r.chooseReference(versions); err != nil || next.kind == nextAct {
		return next, err
	}
	named := r.held.lease.Record.Version // "" in a plan: nobody holds the lease
	day, err := VersionDate(named)
	if err != nil {
		day = r.engine.date()
	}
	next, nameErr := NextVersion(r.held.lease.Ledger.given(versions), day)
	last := newestOfDay(versions, day)
	if v := r.pending(versions); v != nil {
		last = v
	}
	for i, v := range versions {
		if v.Name == named && v.Tags[TagRun] == r.held.run || r.carriesOn(v) && v.ofDay(day) {
			last = &versions[i] // this run's own, begun before it was adopted, or one that it goes on with
		}
	}
	if v := first(versions, r.takesOver); v != nil {
		return r.todaysVersion(ctx, *v)
	}
	switch {
	case last == nil, r.held.adopted && named == next:
	case !last.whole() && last.State == Failed && last.Ours() && !r.held.lease.Ledger.failedBuild(*last):
		// It was whole once, and may be needed: it stays, and another one is made.
	case r.opts.Today != TodayAgain, last.Tags[TagRun] == r.held.run, r.carriesOn(*last), last.Ours() && (last.State == Failed || last.State == Deleting):
		return r.todaysVersion(ctx, *last)
	}
	if nameErr != nil {
		return Next{}, inTheWay{WithHint(nameErr, "run again tomorrow")}
	}
	later := slices.IndexFunc(versions, func(v Artifact) bool { return !v.foreign() && CompareVersions(v.Name, next) > 0 })
	if !r.held.adopted && later >= 0 {
		return Next{}, inTheWay{WithHint(fmt.Errorf("version %s exists, which is later than today's %s: this clock says %s",
			versions[later].Name, next, r.engine.date().Format(time.RFC3339)), "set the clock of this machine, or delete that version")}
	}
	r.image.version = Artifact{Kind: Version, Name: next}
	return r.settled(next, next+" is to be built"), nil
}

// pending is a version that an earlier run left hidden and unproved, and that this one may go on
// with; nil when there is none.
func (r *Run) pending(newestFirst []Artifact) *Artifact {
	if r.proof.mode == ProveNone || r.opts.Today == TodayAgain || r.held.adopted {
		return nil
	}
	v := newestGood(newestFirst)
	if v == nil || !v.unproved() || v.Tags[TagReceipt] == "" || r.opts.Today != TodayOfAny {
		return nil // a person who names a donor wants its disk of today
	}
	return v
}

// inherits says whether what an ended run made is gone on with, also where another version of today
// is to be made: the pool's last run, of the same donor, was interrupted.
func (r *Run) inherits(run string) bool {
	past := r.held.lease.Ledger.Past
	return len(past) > 0 && past[0].Interrupted && past[0].Work == "" && past[0].Run == run && past[0].Donor == r.donor.node.Name
}

// carriesOn says whether a version is what --again goes on with, in place of making another.
func (r *Run) carriesOn(v Artifact) bool {
	return r.opts.Today == TodayAgain && r.inherits(v.Tags[TagRun]) && r.madeOf(v) && v.Tags[TagBad] == ""
}

// takesOver says whether a version is of the run in whose place this one began, whatever it was
// told: only the proof is missing.
func (r *Run) takesOver(v Artifact) bool {
	return r.held.replaced != "" && v.Tags[TagRun] == r.held.replaced && r.proof.mode != ProveNone && v.unproved() && v.whole() && r.madeOf(v)
}

// settled is done once the name of the version stands on the lease: a process
// that adopts the run goes on with that one, also after midnight.
func (r *Run) settled(name, what string) Next {
	if r.held.run == "" || r.held.lease.Holder != r.held.run || r.held.lease.Record.Version == name {
		return done(what)
	}
	return act(ActName, "continue with version "+name, func(context.Context) error { return nil }).
		noting(func(l *Lease) { l.Record.Version = name })
}

func (r *Run) todaysVersion(ctx context.Context, v Artifact) (Next, error) {
	if v.OfFormer {
		return Next{}, inTheWay{WithHint(fmt.Errorf("version %s exists and was made of an earlier pool of this name", v.Name), hintAgain)}
	}
	if !v.Ours() {
		return Next{}, inTheWay{WithHint(fmt.Errorf("version %s exists and was not made by kamino (no tag %s)", v.Name, TagBuiltFrom), hintAgain)}
	}
	if why := v.Tags[TagBad]; why != "" {
		err := fmt.Errorf("version %s of today was withdrawn (%s)", v.Name, why)
		if v.aside() {
			return Next{}, inTheWay{WithHint(fmt.Errorf("version %s of today is %s", v.Name, why), "kamino rollback --pool %s --to %s takes it; %s", r.pool.Name, v.Name, hintAgain)}
		}
		if r.madeOf(v) { // of the same packages another one is refused
			return Next{}, inTheWay{WithHint(err, "kamino patch --target-node %s, and then --again; or --again with another node", r.donor.node.Name)}
		}
		return Next{}, inTheWay{WithHint(err, hintAgain)}
	}
	switch {
	case v.State == Failed && !v.whole():
		r.image.version = Artifact{Kind: Version, Name: v.Name}
		return act(ActDeleteVersion, "delete the failed version "+v.Name, func(ctx context.Context) error {
			return r.engine.Provider.Delete(ctx, r.pool, v)
		}), nil
	case v.State == Deleting:
		return wait("the failed version to be deleted"), nil
	}
	if wanted := v.hidden() && v.Tags[TagProof] != "" && v.Tags[TagProof] != proofPassed; wanted && r.opts.Today == TodayOfAny && r.proof.mode == ProveNone {
		if err := r.proveAs(ctx, ProveCanary, "version "+v.Name+" was made to be proved, and is"); err != nil {
			return Next{}, err
		}
	}
	if err := r.usable(v); err != nil {
		return Next{}, inTheWay{err}
	}
	r.image.version, r.image.preBuilt, r.image.there = v, true, true
	switch {
	case v.State == Creating:
		return r.settled(v.Name, v.Name+" is being built"), nil
	case r.ungated():
		return r.gate(v), nil
	}
	return r.settled(v.Name, v.Name+" is there already"), nil
}

// ungated says whether this run leaves a version that is there to a person, and no step of a proof
// would write that on it: a later run with other options would promote it.
func (r *Run) ungated() bool {
	return r.image.preBuilt && !r.promotes() && !r.provesCanary() && r.image.version.hidden() && !r.image.version.gated()
}

func (r *Run) gate(v Artifact) Next {
	return r.writeVersion("record on version "+v.Name+" that a person is to promote it", v.gate())
}

// usable says whether a version of today may become what new nodes are made of:
// it is of a sealed disk, and of the donor that was named.
func (r *Run) usable(v Artifact) error {
	switch {
	case r.work() == WorkProve && (v.Tags[TagReceipt] != "" || r.opts.Unsealed):
		return nil // a person has named it
	case v.Tags[TagReceipt] == "":
		return WithHint(fmt.Errorf("version %s of today has no seal receipt (no tag %s): its disk may hold the identity and the secrets of node %s",
			v.Name, TagReceipt, cmp.Or(v.Tags[TagBuiltFrom], "unknown")), hintAgain)
	case v.Tags[TagRun] == r.held.run, r.opts.Today == TodayOfAny, r.madeOf(v):
		return nil
	}
	return WithHint(&OtherDonorError{Version: v.Name, BuiltFrom: v.Tags[TagBuiltFrom], Donor: r.donor.node.Name},
		"to make another version of today from %s: --again; to use this one: --target-node %s", r.donor.node.Name, v.Tags[TagBuiltFrom])
}

// unswapped makes sure that a version is the one that was seen, or built, before: somebody may have
// deleted it meanwhile, and made another one by the same name.
func (r *Run) unswapped(v Artifact) error {
	if then, now := r.image.version.Tags[TagRun], v.Tags[TagRun]; len(r.image.version.Tags) > 0 && now != then {
		return WithHint(fmt.Errorf("version %s is another one than before: run %s made it, not run %s; the model is not changed",
			v.Name, cmp.Or(now, "unknown"), cmp.Or(then, "unknown")), hintAgain)
	}
	return r.usable(v)
}

// madeOf says whether a version or a snapshot was made of the donor. A node of
// the same name on another VM is another donor.
func (r *Run) madeOf(a Artifact) bool {
	vm, known := a.Tags[TagVM]
	return a.Tags[TagBuiltFrom] == r.donor.node.Name && (!known || SameVM(vm, r.donor.instance.VMID))
}

// reusable says why a snapshot may not become this run's version; "" when it may.
func (r *Run) reusable(s Artifact) string {
	day, err := VersionDate(r.image.version.Name)
	built, known := s.built()
	switch {
	case s.Tags[TagReceipt] == "":
		return "no seal receipt"
	case s.Source != "" && !strings.EqualFold(s.Source, r.donor.instance.Disk):
		return "of another disk than the donor's"
	case s.Tags[TagRun] == r.held.run:
		return ""
	case !slices.ContainsFunc(r.held.lease.Ledger.Past, func(p PastRun) bool { return p.Run == s.Tags[TagRun] }):
		return "of a run that is not in the pool's ledger"
	case r.opts.Today == TodayAgain && !r.inherits(s.Tags[TagRun]):
		return "not of this run"
	case !r.madeOf(s):
		return "not of this donor"
	case err != nil || !known || VersionName(built.Time) != VersionName(day):
		return "not of today"
	}
	return ""
}

// snapshotLife is longer than any run needs its snapshot: the limits of the steps from its making
// to the end of the build.
const snapshotLife = 24 * time.Hour

// foreignSnapshot tells why a snapshot may belong to a run that lives elsewhere, "" when its run is
// this one or has certainly ended: it was made under an earlier epoch of the lease that this run
// holds, its donor was given back just now, or it is too old. A snapshot without a run was made by
// the original, which had no runs.
func (r *Run) foreignSnapshot(s Artifact) string {
	run, held := s.Tags[TagRun], r.held.lease.Epoch
	if r.held.run == "" {
		held++ // a plan: the run would take the lease
	}
	epoch, err := strconv.ParseInt(s.Tags[TagEpoch], 10, 64)
	earlier := err == nil && epoch < held
	old := !s.Created.IsZero() && r.engine.now().Sub(s.Created) > snapshotLife
	if run == "" || run == r.held.run || earlier || old || slices.Contains(r.back.returned, run) {
		return ""
	}
	return fmt.Sprintf("belongs to run %s, which is not recorded on the lease of the pool", run)
}

// versions lists the versions of the pool, newest first.
func (r *Run) versions(ctx context.Context) ([]Artifact, error) {
	versions, err := r.engine.Provider.Find(ctx, r.pool, Version, "")
	if err != nil {
		return nil, fmt.Errorf("list image versions of pool %s: %w", r.pool.Name, err)
	}
	r.image.listed, r.image.listedAt = append([]Artifact{}, versions...), r.engine.now()
	return versions, nil
}

// everListed are the pool's versions as this run has listed them, whenever that was: an image that
// somebody puts into the model during the run is refused before it is asked for here.
func (r *Run) everListed(ctx context.Context) ([]Artifact, error) {
	if r.image.listed == nil {
		return r.versions(ctx)
	}
	return r.image.listed, nil
}

// recentVersions is versions, or the list that was read within lookAge, where this process has done
// nothing to a version since: for a choice that is made sure of by another read. A person, or a
// scale-out, may have begun to use a version meanwhile; [Provider].Delete looks for that itself.
func (r *Run) recentVersions(ctx context.Context) ([]Artifact, error) {
	if elapsed(r.image.listedAt, r.engine.now()) < lookAge {
		return slices.Clone(r.image.listed), nil
	}
	return r.versions(ctx)
}

// unlisted tells of versions that are known to be there, and that a list does not show: what the
// model names, what was promoted or made last, and what this run has seen whole; "" where it shows
// them all.
func (r *Run) unlisted(versions []Artifact) string {
	l := r.held.lease.Ledger
	last, known := l.lastMade(), []string{}
	home := "/galleries/" + strings.ToLower(r.pool.Gallery+"/images/"+DefinitionName(r.pool.Name)) + "/versions/"
	if strings.Contains(strings.ToLower(r.pool.Model.Image), home) {
		known = append(known, lastSegment(r.pool.Model.Image))
	}
	if l.Promoted != nil {
		known = append(known, l.Promoted.Version)
	}
	if last >= 0 {
		known = append(known, l.Past[last].Version)
	}
	if v := r.image.version; v.whole() {
		known = append(known, v.Name)
	}
	// Of a pool's first version the name stands on the lease: its home is of the adopted run, or of
	// one that failed before; who sealed the donor had waited.
	rec := r.held.lease.Record
	first := r.held.adopted && rec.Version != "" && (l.Past == nil || len(known) == 0 && !rec.Away().IsZero())
	if len(versions) == 0 && (r.image.formerHome && !first && !l.Empty || len(known) > 0) {
		return "the image versions of the pool, of which none is listed"
	}
	for _, name := range known {
		if indexOf(versions, name) < 0 {
			return "version " + name + ", which is not listed"
		}
	}
	return ""
}

// lookReuse takes over a snapshot of today that is sealed and complete, and
// clears away any other of ours.
func (r *Run) lookReuse(ctx context.Context) (Next, error) {
	name := SnapshotName(r.pool.Name)
	found, err := r.engine.Provider.Find(ctx, r.pool, Snapshot, name)
	if err != nil {
		return Next{}, fmt.Errorf("read snapshot %s: %w", name, err)
	}
	if len(found) == 0 {
		return done("no snapshot of today"), nil
	}
	s := found[0]
	why := r.reusable(s)
	switch {
	case s.OfFormer:
		return Next{}, inTheWay{WithHint(fmt.Errorf("snapshot %s was made of an earlier pool of this name", name), "delete or rename it, then run again")}
	case !s.Ours():
		return Next{}, inTheWay{WithHint(fmt.Errorf("snapshot %s exists and was not made by kamino (no tag %s)", name, TagBuiltFrom),
			"delete or rename it, then run again")}
	case s.State == Deleting:
		return wait("an old snapshot to be deleted"), nil
	case s.Tags[TagRun] == r.held.run && s.State != Failed && !s.Ready:
		return done("this run's own, not complete yet"), nil
	case why == "" && s.State == Succeeded && s.Ready:
		used, err := r.imagedElsewhere(ctx, s)
		if err != nil {
			return Next{}, err
		}
		if !used {
			r.image.reused = &s
			return done("taken from " + s.Tags[TagBuiltFrom] + " today"), nil
		}
		why = "a version was made of it"
	}
	if foreign := r.foreignSnapshot(s); foreign != "" {
		if n, mark, err := r.forgottenDonor(ctx, s, *r.held.lease); err != nil {
			return Next{}, err
		} else if mark != nil {
			return r.giveBackForgotten(n, mark, s), nil
		}
		return Next{}, inTheWay{WithHint(fmt.Errorf("snapshot %s %s", name, foreign), "wait until that run has ended; if none makes images of this pool, delete the snapshot")}
	}
	return r.deleteSnapshot(ctx, s, fmt.Sprintf("delete the stale snapshot taken from %s: %s", s.Tags[TagBuiltFrom], cmp.Or(why, "it is "+string(s.State))))
}

// imagedElsewhere says whether another version was made of a snapshot, as by a
// run that passed midnight.
func (r *Run) imagedElsewhere(ctx context.Context, s Artifact) (bool, error) {
	versions, err := r.versions(ctx)
	return slices.ContainsFunc(versions, func(v Artifact) bool {
		return v.Ours() && v.Tags[TagRun] == s.Tags[TagRun] && v.State != Failed && CompareVersions(v.Name, r.image.version.Name) != 0
	}), err
}
