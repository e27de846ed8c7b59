package kamino

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// ToOriginal is the name of the model before the first prototype, as a target.
const ToOriginal = "original"

// RollbackOptions are what the user decides about a rollback.
type RollbackOptions struct {
	Pool   string // name or ID
	To     string // version, or ToOriginal; "" is the version before the present one, else the original
	DryRun bool
	// Secrets of the original model, which no provider gives back.
	Secrets Secrets
	// KeepCustomData goes back to the original without its custom data: for
	// models that had none, or whose instances do not need it.
	KeepCustomData bool
}

// Rollback is what a rollback did, or in a dry-run would do.
type Rollback struct {
	Pool PoolID   `json:"pool"`
	Name string   `json:"name"`
	From string   `json:"from"` // version, or the image that the model referred to
	To   string   `json:"to"`
	Bad  []string `json:"markedBad"`  // versions marked and excluded from latest
	Good []string `json:"markedGood"` // versions whose mark was taken off
	// Since is the version that was rolled back or withdrawn when new nodes began to boot from To,
	// where nothing more was done because nobody named a version further back.
	Since string `json:"since,omitempty"`
	// Unproved: To is a version that has passed no proof.
	Unproved bool `json:"unproved,omitempty"`
	// Offered: To is offered, and the model, which somebody else writes, names another image.
	Offered   bool          `json:"offered,omitempty"`
	ModelDiff []FieldChange `json:"modelDiff"`
	Changed   bool          `json:"changed"`
	// NeedsCustomData: the model has custom data, and nobody has given them. Needs are the
	// extensions that come back and whose protected settings nobody has given.
	NeedsCustomData bool     `json:"needsCustomData,omitempty"`
	Needs           []string `json:"needsProtectedSettings,omitempty"`
	// Unmarked are the versions whose mark could not be written. The pool's ledger
	// keeps that they are not to be chosen.
	Unmarked []Unmarked `json:"notMarked,omitempty"`
	// GivenBack is what an ended run of the pool had left, which was given back first.
	GivenBack []Left `json:"givenBack,omitempty"`
	// Descendants are the versions whose line goes back to one that was withdrawn.
	Descendants []string `json:"descendants,omitempty"`
	// Proof tells how a version passed that was proved first; Canary, of a dry-run, what the proof
	// would start.
	Proof    *Proved  `json:"proof,omitempty"`
	Canary   string   `json:"canary,omitempty"`
	Warnings []string `json:"warnings,omitempty"` // what is left for the next run to clean up
}

// Unmarked is a version that could not be marked.
type Unmarked struct {
	Version string `json:"version"`
	Error   string `json:"error"`
}

// target is what a model is to be pointed at: a version, or a saved model.
type target struct {
	version *Artifact
	points  bool           // the pool refers to the definition, and goes on doing so
	comes   ImageReference // how it refers to the version from now on; "": as before, see comeToPoint
	stays   bool           // what the next instance boots from does not change: only marks do
	saved   *SavedModel
	secrets Secrets
	verb    Verb
	why     Bad      // why what it takes the place of is withdrawn; none: a rollback
	offered bool     // it is offered, and the pool's model is not written
	adopts  bool     // it takes the place of what somebody else chose
	unnamed bool     // it is the one that comes before, and nobody named it
	since   string   // it is there already, since this version was left; "": it is not
	unborn  []string // newer versions that ended runs may have begun, and no list shows yet
	// nobody, where set, is what has to be known of the version as long as no person has named it.
	nobody *Proving
}

// takesUntried says whether a person takes a version without the proof that it was to pass.
func (t target) takesUntried() bool {
	return t.nobody == nil && t.version != nil && !t.stays && t.version.untried() && (t.verb == VerbPromote || t.verb == VerbRollback)
}

func (t target) name() string {
	switch {
	case t.version != nil:
		return t.version.Name
	case t.saved != nil:
		return ToOriginal
	}
	return ""
}

// withdrawnSince says whether a version is the target, and was withdrawn since somebody chose it.
func (t target) withdrawnSince(v Artifact) bool {
	return t.version != nil && !t.stays && t.version.Name == v.Name && t.version.Tags[TagBad] == "" && v.Tags[TagBad] != ""
}

// offers are the versions that have to be offered for a target: itself, or none.
func (t target) offers() []string {
	if t.version == nil || t.stays || !(Target{Reference: t.spec().Reference, Seen: t.version}).Offers() {
		return nil
	}
	return []string{t.version.Name}
}

func (t target) spec() Target {
	switch {
	case t.version != nil && t.points:
		return Target{Version: t.version.Name, Reference: ByDefinition}
	case t.version != nil:
		return Target{Version: t.version.Name, Reference: cmp.Or(t.comes, ByVersion)}
	case t.saved == nil:
		return Target{}
	}
	return Target{Former: t.saved.Saved, Secrets: t.secrets}
}

// defaultTarget is the newest good version older than the one in the model that no person
// excluded and that is for the same machines, else the model before the first prototype. It is
// empty when the model refers to no version.
func (o overview) defaultTarget() target {
	now := o.next()
	if now == nil {
		return target{}
	}
	former := first(o.versions, func(v Artifact) bool {
		return CompareVersions(v.Name, now.Name) < 0 && !v.OfFormer && v.Unlike(now.Machine) == "" && v.good() && v.Ready && !v.unused() && (!v.Excluded || v.hidden()) && !(v.untried() && !v.hidden())
	})
	if former != nil {
		return target{version: former}
	}
	return target{saved: o.lease.Ledger.Original}
}

// findTarget resolves what the user named.
func (o overview) findTarget(to string) (target, error) {
	if to == "" {
		if left := o.lease.Ledger.Withdrew.left(o.next()); left != "" {
			return target{version: o.next(), since: left}, nil
		}
		if w, saved := o.lease.Ledger.Withdrew, o.lease.Ledger.Original; w != nil && w.To == ToOriginal && saved != nil && strings.EqualFold(o.pool.Model.Image, saved.Image) {
			return target{saved: saved, since: w.Version}, nil
		}
		t := o.defaultTarget()
		t.unnamed = true
		switch {
		case t.version != nil && t.version.Tags[TagReceipt] == "":
			return target{}, WithHint(fmt.Errorf("the version before it, %s of pool %s, has no seal receipt: its disk may hold the identity and the secrets of node %s",
				t.name(), o.pool.Name, cmp.Or(t.version.Tags[TagBuiltFrom], "unknown")), "to use it all the same: --to %s; else %s", t.name(), o.targetsHint())
		case t.name() != "":
			return t, nil
		}
		if o.next() == nil {
			return t, WithHint(fmt.Errorf("pool %s has nothing to roll back: its model refers to %s, which is not a version of %s",
				o.pool.Name, lastSegments(o.pool.Model.Image, 3), DefinitionName(o.pool.Name)), "%s", o.targetsHint())
		}
		return t, WithHint(fmt.Errorf("pool %s has no earlier good version, and no model from before the first prototype is saved", o.pool.Name),
			"%s", o.targetsHint())
	}
	if strings.EqualFold(to, ToOriginal) {
		if saved := o.lease.Ledger.Original; saved != nil {
			return target{saved: saved}, nil
		}
		return target{}, WithHint(fmt.Errorf("pool %s: no model from before the first prototype is saved", o.pool.Name), "%s", o.targetsHint())
	}
	switch v := first(o.versions, func(v Artifact) bool { return CompareVersions(v.Name, to) == 0 }); {
	case v == nil:
		return target{}, WithHint(fmt.Errorf("version %q of pool %s does not exist", to, o.pool.Name), "%s", o.targetsHint())
	case !v.whole() || !v.Ready:
		return target{}, WithHint(fmt.Errorf("version %s of pool %s is %s and not ready to boot from: %s", v.Name, o.pool.Name, v.State, cmp.Or(v.Failure, "not replicated")),
			"%s", o.targetsHint())
	default:
		return target{version: v}, nil
	}
}

// targetsHint names what can be chosen, but for what was just refused.
func (o overview) targetsHint(but ...string) string {
	var names []string
	for _, v := range o.versions {
		if v.whole() && v.Ready && !v.OfFormer && !slices.Contains(but, v.Name) {
			names = append(names, v.Name)
		}
	}
	if o.lease.Ledger.Original != nil {
		names = append(names, ToOriginal)
	}
	switch {
	case len(o.versions) == 0 && len(names) == 0:
		return noVersionYet
	case len(names) == 0:
		return "no other version can be chosen: kamino status lists them"
	}
	return "choose with --to " + strings.Join(names, ", ")
}

// Rollback points the model of a pool at an earlier version, or forward at a later one,
// by one conditional write under the pool's lease. It begins with giving back what
// earlier runs of the pool left, but for a version that is still being built, which it
// waits for at its end. With that write the ledger says that the versions newer than
// the target are not to be chosen again, one that is still being built included; then
// they are marked, and a mark on the target itself is removed. A mark that cannot be
// written is reported and does not stop the rollback. Instances that run stay as they
// are. Repeated, it changes nothing, but for secrets: they are written whenever they
// are given, since no provider shows them.
func (e *Engine) Rollback(ctx context.Context, opts RollbackOptions) (Rollback, error) {
	o, err := e.onePool(ctx, opts.Pool, opts.DryRun, func(v Artifact) bool { return CompareVersions(v.Name, opts.To) != 0 })
	if err != nil {
		return Rollback{}, err
	}
	t, err := o.findTarget(opts.To)
	if err != nil {
		return Rollback{}, err
	}
	t.points, t.verb = t.version != nil && o.follows(""), VerbRollback
	t.stays = t.since != "" && t.saved != nil && opts.Secrets.CustomData == nil && len(opts.Secrets.Protected) == 0
	var needs NextImage
	var missing error
	if !t.stays {
		needs, missing = e.secretsFor(ctx, opts, &t, o.pool)
	}
	if unknown := (missingSecrets{}); missing != nil && !(opts.DryRun && errors.As(missing, &unknown)) {
		return Rollback{}, missing
	}
	if err := e.bootable(ctx, o, t, opts.DryRun); err != nil {
		return Rollback{}, err
	}
	bad := o.distrusted(t)
	if t.since != "" { // what that left is finished, and nothing else withdrawn
		bad = slices.DeleteFunc(bad, Artifact.good)
	} else {
		bad, t.unborn = append(bad, o.making(t)...), o.unborn(t)
	}
	back, err := e.point(ctx, o, t, bad, opts.DryRun)
	back.Since = t.since
	if back.NeedsCustomData, back.Needs = needs.NeedsCustomData, needs.Needs; err == nil && back.Changed {
		err = missing
	}
	return back, err
}

// Unreturned names what a pool loses when it first leaves its original model, and what no provider
// gives back; "" where it has left that already, or loses nothing.
func Unreturned(diff []FieldChange) string {
	var lost []string
	for _, d := range diff {
		switch name := d.Field[strings.LastIndexByte(d.Field, '.')+1:]; {
		case name == "imageReference" && strings.Contains(d.From, "/images/kamino-"):
			return ""
		case name == "customData" && d.To == "#cloud-config":
			lost = append([]string{"custom data"}, lost...)
		case name == "extensions":
			stay := strings.Split(d.To, ", ")
			for _, extension := range strings.Split(d.From, ", ") {
				if extension != "" && !slices.Contains(stay, extension) {
					lost = append(lost, "protected settings of "+extension)
				}
			}
		}
	}
	return strings.Join(lost, ", ")
}

// missingSecrets ends a rollback to a model of which not all is given. A dry run tells besides what
// it would do.
type missingSecrets struct{ error }

func (m missingSecrets) Unwrap() error { return m.error }

// secretsFor gives a saved model what a provider does not show, and tells all that is not given at
// once. A generic image whose instances get
// the prototype's empty custom data, or an extension without its command, would
// never join the cluster, and nobody would know why.
func (e *Engine) secretsFor(ctx context.Context, o RollbackOptions, t *target, pool Pool) (needs NextImage, err error) {
	given := o.Secrets.CustomData != nil
	switch {
	case t.saved == nil && (given || o.KeepCustomData || len(o.Secrets.Protected) > 0):
		return needs, WithHint(fmt.Errorf("custom data and protected settings are for the original model, not for version %s", t.name()), "use --to original, or omit them")
	case given && o.KeepCustomData:
		return needs, WithHint(errors.New("--custom-data and --keep-custom-data are mutually exclusive"), "omit one of them")
	case t.saved == nil:
		t.secrets = o.Secrets
		return needs, nil
	}
	t.secrets = o.Secrets
	next, err := e.Provider.NextImage(ctx, pool, t.spec())
	if next.NeedsCustomData = next.NeedsCustomData && !o.KeepCustomData; err != nil || !next.NeedsCustomData && len(next.Needs) == 0 {
		return next, err
	}
	var lacks, give, none []string
	switch {
	case next.NeedsCustomData:
		lacks, give, none = []string{"its custom data"}, []string{"--custom-data FILE"}, []string{"where it had none, --keep-custom-data"}
	case given:
		give = []string{"--custom-data FILE"}
	case o.KeepCustomData:
		give = []string{"--keep-custom-data"}
	}
	for _, name := range next.Needs {
		lacks, give = append(lacks, "the protected settings of extension "+name), append(give, "--protected-settings "+name+"=FILE")
	}
	if len(next.Needs) > 0 {
		none = append(none, "for an extension that has none, --protected-settings "+next.Needs[0]+"=none")
	}
	return next, WithHint(missingSecrets{fmt.Errorf("pool %s cannot go back to the original model without %s: the provider does not return them", pool.Name, strings.Join(lacks, " and "))},
		"give them as in your template: kamino rollback --pool %s --to original %s; %s; --to VERSION needs none of it", pool.Name, strings.Join(give, " "), strings.Join(none, "; "))
}

// options are those of a run that takes no donor: that instances may be
// evicted does not matter to it.
func (t target) options() Options {
	o := Defaults()
	o.AllowSpot, o.AdoptModel, o.ImageOnly, o.offers = true, t.adopts, t.offered, t.offered
	o.Proof.Mode, o.back = ProveNone, t.verb != VerbPromote
	return o
}

// point moves the model of a pool to a target.
func (e *Engine) point(ctx context.Context, o overview, t target, bad []Artifact, dryRun bool) (Rollback, error) {
	out := Rollback{Pool: o.id, Name: o.pool.Name, From: lastSegments(o.pool.Model.Image, 3), To: t.name(), Bad: []string{}, Good: []string{}, GivenBack: o.givenBack}
	if v := o.next(); v != nil {
		out.From = v.Name
	}
	out.Unproved = t.version != nil && t.version.Tags[TagProof] != proofPassed
	out.Offered = t.offered && !points(o.pool.Model.Image, o.versions)
	for _, v := range bad {
		out.Bad = append(out.Bad, v.Name)
	}
	out.Good = append(out.Good, t.offers()...)
	if refusals := t.options().unlifted(o.pool.Refusals); len(refusals) > 0 {
		return out, &RefusedError{Subject: "pool " + o.pool.Name, Refusals: refusals}
	}
	if t.points && !t.stays && t.version.Disputed {
		return out, WithHint(fmt.Errorf("pool %s cannot go to it: %s", o.pool.Name, t.version.disputed()), "set excludeFromLatest alike in all its regions, or go to an older version with kamino rollback --to")
	}
	if o.pool.Owner != nil && !t.points && !t.stays {
		return out, WithHint(fmt.Errorf("%s writes the model of pool %s: kamino does not", o.pool.Owner.Name, o.pool.Name), "change it there; %s", o.targetsHint())
	}
	out.ModelDiff = []FieldChange{}
	if !t.stays {
		next, err := e.Provider.NextImage(ctx, o.pool, t.spec())
		if err != nil {
			return out, fmt.Errorf("compare the model of pool %s: %w", o.pool.Name, err)
		}
		if o.pool.Owner == nil && !t.offered && (t.adopts || !o.lease.Ledger.leaves(o.pool, t.spec(), next)) { // what else the owner wrote stays
			out.ModelDiff = next.Diff
		}
	}
	accepts := t.takesUntried()
	if l := o.lease.Ledger; t.verb == VerbPromote && t.nobody == nil && t.name() != "" {
		accepts = accepts || kept(l.Past, t.name()) != nil // in spite of its nodes
	}
	out.Changed = len(out.ModelDiff)+len(out.Bad)+len(out.Good)+len(t.unborn) > 0 || accepts
	if dryRun || !out.Changed {
		return out, nil
	}
	var err error
	out.Unmarked, out.Warnings, err = e.repoint(ctx, o, t, out)
	return out, err
}

// repoint takes the lease and does it. It returns the versions that could not be
// marked, and what went wrong of what waits until new nodes boot from the target.
func (e *Engine) repoint(ctx context.Context, o overview, t target, plan Rollback) ([]Unmarked, []string, error) {
	r := e.newRun(t.options())
	r.pool, r.verb = o.pool, t.verb
	var stray *Stray
	if !t.points {
		stray = o.strayed()
	}
	m := newMarking(plan, t, o)
	steps := []Step{
		{Name: InConnect, Does: "check that the credentials work", Look: (*Run).lookConnect},
		{Name: InLock, Does: "take the pool's lease", Look: (*Run).lookFreeLock, Limit: 5 * time.Minute},
		{Name: InModel, Does: "point the pool's model at the target, in one write", Patient: true,
			Look: func(r *Run, ctx context.Context) (Next, error) { return r.lookTarget(ctx, t, m, stray) }},
		{Name: InMark, Does: "mark versions as good or bad", Patient: true, Limit: m.limit(), Look: m.look},
	}
	if t.stays {
		steps = slices.DeleteFunc(steps, func(s Step) bool { return s.Name == InModel })
	}
	began := r.engine.now()
	err := r.exec(ctx, steps)
	if err != nil {
		r.held.regain(ctx)
	}
	var failed *StepError
	if errors.As(err, &failed) && failed.Step == InMark && !m.to.points && !errors.Is(err, errPromoted) && ctx.Err() == nil && !errors.Is(err, ErrLeaseLost) {
		m.give(failed.Err)
		err = nil
	} else if err != nil && !m.to.points && r.result.Changed {
		m.give(err) // the model is written, perhaps: the ledger goes on distrusting
	} else if err != nil && m.to.points && failed != nil && failed.Step == InMark {
		m.give(err)
	}
	if r.held.lease != nil && !errors.Is(err, ErrLeaseLost) {
		ended := PastRun{Run: r.held.run, Pointed: plan.To, Verb: t.verb, Reason: cutText(t.why.Reason, maxTag),
			Ended: r.engine.date(), Seconds: r.engine.now().Sub(began).Seconds(), Step: failedStep(err)}
		if t.verb == VerbWithdraw && len(plan.Bad) > 0 {
			ended.Withdrawn = plan.Bad[0]
		}
		if err != nil {
			ended.Failure = cutText(err.Error(), maxFailure)
		}
		moved := err == nil
		note := func(l *Lease) {
			if m.settle(l, moved); moved {
				l.Ledger.promoted(plan.To, r.engine.now())
			}
			l.Ledger.passed(ended)
		}
		if moved && o.awaits && r.held.persist(ctx, "write the rollback on", note) == nil {
			note = m.awaitBuilds(ctx, r)
		}
		err = errors.Join(err, r.release(context.WithoutCancel(ctx), note))
	}
	return m.unmarked(r), r.result.Warnings, err
}

// builds says whether a version is still being built that a run of the ledger began, which ended.
func (l Ledger) builds(v Artifact) bool {
	return v.Ours() && v.State == Creating && slices.ContainsFunc(l.Past, func(p PastRun) bool { return p.Run == v.Tags[TagRun] })
}

// awaitBuilds waits, once new nodes boot from the target, for what an ended run was building: that
// is marked, or deleted where it failed. What goes wrong is left for the next run. It returns what
// to note when the lease is freed.
func (m marking) awaitBuilds(ctx context.Context, r *Run) func(*Lease) {
	l := r.held.lease.Ledger
	err := r.exec(ctx, []Step{{Name: InFailedVersion, Does: "wait for the version that an ended run was building", Look: (*Run).lookSweep, Patient: true, Limit: unlimited}})
	if err == nil {
		// One that failed is deleted, and nothing of it is to be marked.
		built := func(name string, err error) bool {
			return errors.Is(err, errUnbuilt) && indexOf(r.image.listed, name) >= 0
		}
		maps.DeleteFunc(m.failed, built)
		err = r.exec(ctx, []Step{
			{Name: InMark, Does: "mark the version that was being built", Patient: true, Limit: markLimit, Look: m.look},
			{Name: InClean, Does: "delete the snapshot", Look: (*Run).lookClean, Patient: true},
		})
	}
	if err != nil {
		r.result.Warnings = append(r.result.Warnings, err.Error())
		m.give(err)
	} else {
		maps.DeleteFunc(m.failed, func(_ string, err error) bool { return errors.Is(err, errUnbuilt) })
	}
	return func(now *Lease) {
		now.Ledger.Promoted, now.Ledger.Stood = l.Promoted, l.Stood // the mark changed nothing of that
		m.settle(now, true)
	}
}
