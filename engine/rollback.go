package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"kamino.dev/kamino"
	"kamino.dev/kamino/poolstate"
	"kamino.dev/kamino/workflow"
)

// RollbackOptions are the options of kamino rollback.
type RollbackOptions struct {
	Pool   string // name or ID
	To     string // a version, or ToOriginal; "" is the version before the present one, else the original
	DryRun bool
	// Secrets of the original model, which no provider returns.
	Secrets kamino.Secrets
	// KeepCustomData returns to the original without its custom data: for models that had none, or
	// whose instances do not need it.
	KeepCustomData bool
}

// Rollback is the result of a rollback, a promotion or a withdrawal, or of its dry run.
type Rollback struct {
	Pool kamino.PoolID `json:"pool"`
	Name string        `json:"name"`
	From string        `json:"from"` // version, or the former image of the model
	To   string        `json:"to"`
	Bad  []string      `json:"markedBad"`  // versions marked and excluded from latest
	Good []string      `json:"markedGood"` // versions whose mark was removed
	// Since is the version that was rolled back or withdrawn when new nodes began to boot from To.
	// It is set if nothing more was done, because nobody named an older version.
	Since string `json:"since,omitempty"`
	// Unproved: the version To has passed no proof.
	Unproved bool `json:"unproved,omitempty"`
	// Offered: the version To is offered, and the model, which has another owner, names another
	// image.
	Offered   bool                 `json:"offered,omitempty"`
	ModelDiff []kamino.FieldChange `json:"modelDiff"`
	Changed   bool                 `json:"changed"`
	// NeedsCustomData: the model has custom data that were not supplied. Needs are the extensions
	// that come back without their protected settings.
	NeedsCustomData bool     `json:"needsCustomData,omitempty"`
	Needs           []string `json:"needsProtectedSettings,omitempty"`
	// Unmarked are the versions whose mark could not be written. The pool's ledger records that
	// they must not be chosen.
	Unmarked []Unmarked `json:"notMarked,omitempty"`
	// GivenBack is what an interrupted run of the pool had left, which was restored first.
	GivenBack []poolstate.Leftover `json:"givenBack,omitempty"`
	// Descendants are the versions that have a withdrawn version among their ancestors.
	Descendants []string `json:"descendants,omitempty"`
	// Proof is how a version passed that was proved first. Canary, of a dry run, is what the proof
	// would start.
	Proof    *kamino.Proved `json:"proof,omitempty"`
	Canary   string         `json:"canary,omitempty"`
	Warnings []string       `json:"warnings,omitempty"` // what is left for the next run to clean up
}

// Unmarked is a version that could not be marked.
type Unmarked struct {
	Version string `json:"version"`
	Error   string `json:"error"`
}

// Rollback points the model of a pool at an earlier or later version, by one conditional write
// under the pool's lease. It first restores what earlier runs of the pool left, except a version
// that is still being built, which it waits for at its end. With that write the ledger records that
// the versions newer than the target must not be chosen again, including one in progress. Then they
// are marked, and a mark on the target is removed. A mark that cannot be written is reported and
// does not stop the rollback. Running instances stay as they are. Repeated, it changes nothing
// except secrets: they are written whenever they are given, because no provider shows them.
func (e *Engine) Rollback(ctx context.Context, opts RollbackOptions) (Rollback, error) {
	o, err := e.onePool(ctx, opts.Pool, opts.DryRun, func(v kamino.Version) bool { return kamino.CompareVersions(v.Name, opts.To) != 0 })
	if err != nil {
		return Rollback{}, err
	}
	t, err := o.FindTarget(opts.To)
	if err != nil {
		return Rollback{}, err
	}
	t.Points, t.Verb = t.Version != nil && o.Follows(), kamino.VerbRollback
	t.Stays = t.Since != "" && t.Saved != nil && opts.Secrets.CustomData == nil && len(opts.Secrets.Protected) == 0
	var needs kamino.NextImage
	var missing error
	if !t.Stays {
		needs, missing = secretsFor(ctx, e, opts, &t, o.Pool)
	}
	if unknown := (missingSecrets{}); missing != nil && !(opts.DryRun && errors.As(missing, &unknown)) {
		return Rollback{}, missing
	}
	if err := bootable(ctx, e, o, t, opts.DryRun); err != nil {
		return Rollback{}, err
	}
	bad := o.Distrusted(t)
	if t.Since != "" { // the earlier withdrawal or rollback is completed, and nothing else withdrawn
		bad = slices.DeleteFunc(bad, kamino.Version.Good)
	} else {
		bad, t.Unborn = append(bad, o.Making(t)...), o.Unborn(t)
	}
	back, err := pointTo(ctx, e, o, t, bad, opts.DryRun)
	back.Since = t.Since
	if back.NeedsCustomData, back.Needs = needs.NeedsCustomData, needs.Needs; err == nil && back.Changed {
		err = missing
	}
	return back, err
}

// missingSecrets ends a rollback to a model whose secrets were not supplied. A dry run also shows
// what it would do.
type missingSecrets struct{ error }

func (m missingSecrets) Unwrap() error { return m.error }

// secretsFor adds the secrets that a provider does not show to a saved model, and reports all that
// are missing at once. A generic image whose instances get the prototype's empty custom data, or an
// extension without its command, would never join the cluster, and nobody would know why.
func secretsFor(ctx context.Context, e *Engine, o RollbackOptions, t *poolstate.Destination, pool kamino.Pool) (needs kamino.NextImage,
	err error) {
	given := o.Secrets.CustomData != nil
	switch {
	case t.Saved == nil && (given || o.KeepCustomData || len(o.Secrets.Protected) > 0):
		return needs, kamino.WithHint(fmt.Errorf("custom data and protected settings are for the original model, not for version %s",
			t.Name()), "use --to original, or omit them")
	case given && o.KeepCustomData:
		return needs, kamino.WithHint(errors.New("--custom-data and --keep-custom-data are mutually exclusive"), "omit one of them")
	case t.Saved == nil:
		t.Secrets = o.Secrets
		return needs, nil
	}
	t.Secrets = o.Secrets
	next, err := e.Provider.NextImage(ctx, pool, t.Spec())
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
	return next, kamino.WithHint(missingSecrets{fmt.Errorf(
		"pool %s cannot go back to the original model without %s: the provider does not return them", pool.Name,
		strings.Join(lacks, " and "))},
		"give them as in your template: kamino rollback --pool %s --to original %s; %s; --to VERSION needs none of it", pool.Name,
		strings.Join(give, " "), strings.Join(none, "; "))
}

// pointTo moves the model of a pool to a target.
func pointTo(ctx context.Context, e *Engine, o poolstate.State, t poolstate.Destination, bad []kamino.Version,
	dryRun bool) (Rollback, error) {
	out := Rollback{Pool: o.ID, Name: o.Pool.Name, From: kamino.LastSegments(o.Pool.Model.Image, 3), To: t.Name(), Bad: []string{},
		Good: []string{}, GivenBack: o.GivenBack}
	if v := o.Next(); v != nil {
		out.From = v.Name
	}
	out.Unproved = t.Version != nil && t.Version.Proof != kamino.TagProofPassed
	out.Offered = t.Offered && !kamino.Points(o.Pool.Model.Image, o.Versions)
	for _, v := range bad {
		out.Bad = append(out.Bad, v.Name)
	}
	out.Good = append(out.Good, t.Offers()...)
	if refusals := t.Options().Unlifted(o.Pool.Refusals); len(refusals) > 0 {
		return out, &kamino.RefusedError{Subject: "pool " + o.Pool.Name, Refusals: refusals}
	}
	if t.Points && !t.Stays && t.Version.Disputed {
		return out, kamino.WithHint(fmt.Errorf("pool %s cannot use this version: %s", o.Pool.Name, t.Version.WhyDisputed()),
			"set excludeFromLatest to the same value in all its regions, or use an older version: kamino rollback --to")
	}
	if o.Pool.Owner != nil && !t.Points && !t.Stays {
		return out, kamino.WithHint(fmt.Errorf("%s writes the model of pool %s: kamino does not", o.Pool.Owner.Name, o.Pool.Name),
			"change it there; %s", o.TargetsHint())
	}
	out.ModelDiff = []kamino.FieldChange{}
	if !t.Stays {
		next, err := e.Provider.NextImage(ctx, o.Pool, t.Spec())
		if err != nil {
			return out, fmt.Errorf("compare the model of pool %s: %w", o.Pool.Name, err)
		}
		// other changes of the owner stay
		if o.Pool.Owner == nil && !t.Offered && (t.Adopts || !o.Lease.Ledger.Leaves(o.Pool, t.Spec(), next)) {
			out.ModelDiff = next.Diff
		}
	}
	accepts := t.TakesUntried()
	if l := o.Lease.Ledger; t.Verb == kamino.VerbPromote && t.Nobody == nil && t.Name() != "" {
		accepts = accepts || kamino.Kept(l.Past, t.Name()) != nil // in spite of its nodes
	}
	out.Changed = len(out.ModelDiff)+len(out.Bad)+len(out.Good)+len(t.Unborn) > 0 || accepts
	if dryRun || !out.Changed {
		return out, nil
	}
	var err error
	out.Unmarked, out.Warnings, err = repoint(ctx, e, o, t, out)
	return out, err
}

// repoint takes the lease and points the model at the target. It returns the versions that could
// not be marked, and the warnings about work after that write.
func repoint(ctx context.Context, e *Engine, o poolstate.State, t poolstate.Destination, plan Rollback) ([]Unmarked, []string, error) {
	r := newRun(e, t.Options())
	r.pool, r.verb = o.Pool, t.Verb
	var stray *kamino.Stray
	if !t.Points {
		stray = o.Strayed()
	}
	m := newVersionMarks(plan, t, o)
	mark := func(ctx context.Context) (workflow.Next, error) { return m.look(ctx, &r.pointer) }
	steps := []Step{
		{Name: kamino.StepConnect, Does: "check that the credentials work", Look: r.lookConnect},
		lockStep(takeTheLease, r.lookFreeLock),
		{Name: kamino.StepModel, Does: "point the pool's model at the target, in one write", Patient: true,
			Look: func(ctx context.Context) (workflow.Next, error) { return m.lookTarget(ctx, &r.pointer, t, stray) }},
		{Name: kamino.StepMark, Does: "mark versions as good or bad", Patient: true, Limit: m.limit(), Look: mark},
	}
	if t.Stays {
		steps = slices.DeleteFunc(steps, func(s Step) bool { return s.Name == kamino.StepModel })
	}
	began := r.engine.now()
	err := r.exec(ctx, steps)
	if err != nil {
		r.held.Regain(ctx)
	}
	var failed *kamino.StepError
	if errors.As(err, &failed) && failed.Step == kamino.StepMark && !m.to.Points && !errors.Is(err, errPromoted) && ctx.Err() == nil &&
		!errors.Is(err, kamino.ErrLeaseLost) {
		m.give(failed.Err)
		err = nil
	} else if err != nil && !m.to.Points && r.result.Changed {
		m.give(err) // the model may be written, so the ledger keeps the rejections
	} else if err != nil && m.to.Points && failed != nil && failed.Step == kamino.StepMark {
		m.give(err)
	}
	if r.held.Lease != nil && !errors.Is(err, kamino.ErrLeaseLost) {
		ended := kamino.PastRun{Run: r.held.Run, Pointed: plan.To, Verb: t.Verb, Reason: kamino.CutText(t.Why.Reason, kamino.MaxTag),
			Ended: r.engine.date(), Seconds: r.engine.now().Sub(began).Seconds(), Step: kamino.FailedStep(err)}
		if t.Verb == kamino.VerbWithdraw && len(plan.Bad) > 0 {
			ended.Withdrawn = plan.Bad[0]
		}
		if err != nil {
			ended.Failure = kamino.CutText(err.Error(), kamino.MaxFailure)
		}
		moved := err == nil
		note := func(l *kamino.Lease) {
			if m.settle(l, moved); moved {
				l.Ledger.NotePromoted(plan.To, r.engine.now())
			}
			l.Ledger.NotePast(ended)
		}
		if moved && o.Awaits && r.held.Persist(ctx, "write the rollback on", note) == nil {
			note = m.awaitBuilds(ctx, r)
		}
		err = errors.Join(err, r.release(context.WithoutCancel(ctx), note))
	}
	return m.unmarked(&r.pointer), r.result.Warnings, err
}

// bootable reads whether a target version is replicated in the pool's region, which no list shows.
// While a version is changed, for example by a rollback just before, the provider may report that
// it is not; that is waited for.
func bootable(ctx context.Context, e *Engine, o poolstate.State, t poolstate.Destination, dryRun bool) error {
	if t.Version == nil {
		return nil
	}
	look := func(ctx context.Context) (workflow.Next, error) {
		v, err := e.readVersion(ctx, o.Pool, t.Version.Name)
		switch {
		case err != nil:
			return workflow.Next{}, err
		case v != nil && v.Whole() && v.Ready:
			return workflow.Done("version " + t.Version.Name + " is replicated"), nil
		case v != nil && v.State == kamino.Succeeded && v.Failure == "":
			return workflow.WaitPercent("the change of version "+t.Version.Name, v.Percent), nil
		}
		return workflow.Next{}, kamino.WithHint(fmt.Errorf("version %s of pool %s is not replicated in %s: no node can boot from it",
			t.Version.Name, o.Pool.Name, cmp.Or(o.Pool.Location, "the pool's region")), "%s", o.TargetsHint(t.Version.Name))
	}
	if next, err := look(ctx); err != nil || next.Kind == workflow.NextDone || dryRun {
		return err
	}
	r := newRun(e, t.Options())
	r.pool = o.Pool
	return r.exec(ctx, []Step{{Name: kamino.StepVersion, Does: "wait for the change of the version", Patient: true,
		Look: look}})
}

// proveNamed proves a version, and promotes it if it passes. A later command restores what a killed
// proof left.
func proveNamed(ctx context.Context, e *Engine, o poolstate.State, t poolstate.Destination, opts PromoteOptions) (Rollback, error) {
	back, err := pointTo(ctx, e, o, t, nil, true)
	if err != nil {
		return back, err
	}
	run := t.Options()
	run.Version, run.Unsealed, run.Proof, run.PendingReboot = t.Version.Name, opts.AcceptUnsealed, *opts.Proof, opts.PendingReboot
	r, began := newRun(e, run), e.now()
	if r.pool, back.Changed, back.Unproved = o.Pool, true, false; opts.DryRun {
		r.held.Lease = &o.Lease
		_, err := r.canary.lookProvable(ctx)
		back.Canary = r.canary.planLaunch()
		return back, err
	}
	if err = r.exec(ctx, proveSteps(r)); err != nil {
		r.held.Regain(ctx)
	}
	switch {
	case err == nil:
		back.ModelDiff, back.Proof = append(back.ModelDiff[:0], r.result.ModelDiff...), r.canary.proved()
		err = r.release(context.WithoutCancel(ctx), func(l *kamino.Lease) {
			l.Ledger.NotePromoted(t.Name(), e.now())
			l.Ledger.NotePast(kamino.PastRun{Run: r.held.Run, Work: kamino.WorkProve, Pointed: t.Name(), Verb: kamino.VerbPromote,
				Ended:   e.date(),
				Seconds: e.now().Sub(began).Seconds(), ProofSeconds: r.result.proofSeconds()})
			l.Record = kamino.Record{} // it did not fail
		})
	case r.held.Lease != nil && !errors.Is(err, kamino.ErrLeaseLost):
		err = r.abandon(ctx, err)
	}
	back.Warnings = r.result.Warnings
	return back, r.afterPromotion(err)
}
