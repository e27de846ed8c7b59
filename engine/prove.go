package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"kamino.dev/kamino"
	"kamino.dev/kamino/poolstate"
	"kamino.dev/kamino/proof"
	"kamino.dev/kamino/workflow"
)

// validate checks the options of a proof by themselves.
func (o PromoteOptions) validate() error {
	switch p := o.Proof; {
	case p == nil:
		return nil
	case p.Mode != kamino.ProveCanary:
		return kamino.WithHint(fmt.Errorf("%q cannot prove a version before its promotion", p.Mode), "use --prove canary, or omit it")
	case o.Version == "":
		return kamino.WithHint(errors.New("no version to prove is named"), "name it with --version: kamino status lists them")
	}
	return o.Proof.Validate()
}

// omit records on a version, before its promotion, that it is promoted without the proof that it
// had to pass. Otherwise a later run would continue the proof, or take the version back.
func (r *Run) omit(v kamino.Artifact) workflow.Next {
	v = v.WithTag(kamino.TagProof, kamino.TagProofOmitted)
	return workflow.Act(kamino.ActMarkVersion, "record on version "+v.Name+" that it is accepted without a proof", func(ctx context.Context) error {
		return r.engine.Provider.SetTags(ctx, r.pool, v)
	}).Of(v.Name)
}

// proves reports whether versions of this run are proved.
func (r *Run) proves() bool {
	_, looks := r.engine.Cluster.(kamino.Examiner)
	return looks && r.proof.mode != kamino.ProveNone
}

// hide returns a version that the run creates hidden.
func (r *Run) hide(v kamino.Artifact) kamino.Artifact {
	if v = v.Offering(kamino.TagOfferHidden); r.proves() {
		v.Tags[kamino.TagProof] = kamino.TagProofWanted
	}
	return v
}

// proofState is what a run knows of the proof of its version.
type proofState struct {
	mode     kamino.ProveMode // "" until it is decided
	fit      kamino.CanaryFit
	sight    proof.Observation
	asked    time.Time                    // when the cloud was last read
	whole    time.Time                    // when all of the observation was last read
	seen     time.Time                    // when the cluster's part of it was last read
	denied   error                        // why the cloud refused to create the canary
	listed   []kamino.Canary              // the canaries as last listed
	listedAt time.Time                    // when listed was read; zero after an act on a canary
	absent   time.Time                    // since when no canary is listed
	leaves   bool                         // the canary was seen to be deleted
	shown    bool                         // the canary was listed: once its deletion was requested and it is not listed, it is gone
	removed  map[string]bool              // canaries whose deletion this process has requested
	machines map[kamino.InstanceID]string // canaries by their machines, from the lists
	kept     map[string]string            // canaries that may not be removed, with the reason
	error    *kamino.ProofError           // how the proof ended, to be written on the version
	passed   bool
	findings []kamino.Finding // the findings with which it passed
	blind    time.Time        // since when reads fail that may work again; zero: they do not fail
}

// prover returns the provider as Prover and the cluster as Examiner, if they are.
func (e *Engine) prover() (kamino.Prover, kamino.Examiner, bool) {
	prover, can := e.asked().(kamino.Prover)
	examiner, looks := e.Cluster.(kamino.Examiner)
	return prover, examiner, can && looks
}

// makesCanaries reports whether the provider can make canaries, so that there may be some.
func (r *Run) makesCanaries() bool { _, _, ok := r.engine.prover(); return ok }

// leftCanaries lists the canaries of a pool that runs left, by reading only.
func (r *Run) leftCanaries(ctx context.Context) ([]poolstate.Leftover, error) {
	if !r.makesCanaries() {
		return nil, nil
	}
	list, err := r.listCanaries(ctx)
	if err != nil {
		return nil, err
	}
	left := make([]poolstate.Leftover, len(list))
	for i, c := range list {
		left[i] = poolstate.Leftover{Pool: r.pool.ID, Run: c.Run, Node: c.Hostname, What: "canary " + c.Name, Kept: c.Name}
	}
	return left, nil
}

// ProvePipeline is the list of steps that prove a version which a person named, in order.
func ProvePipeline() []Step { return proveSteps(&Run{}) }

func proveSteps(r *Run) []Step {
	return []Step{
		{Name: kamino.StepConnect, Does: "check that the credentials work and that every needed action is allowed",
			Look: r.lookConnect, Limit: 30 * time.Second},
		{Name: kamino.StepValidate, Does: "check that a canary of the pool can be created",
			Look: r.lookProvable, Limit: 30 * time.Second},
		lockStep(takeTheLease, r.lookFreeLock),
		{Name: kamino.StepVersion, Does: "read the version", Look: r.lookNamed, Patient: true},
		{Name: kamino.StepLaunch, Does: "start one instance from the version beside the pool", Back: "removed",
			Look: r.lookLaunch, Patient: true, Plan: r.planLaunch, Takes: "the canary", Until: kamino.StepRetire},
		{Name: kamino.StepJoin, Does: "wait for the canary's node, cordon it and remove its taint",
			Look: r.lookJoin, Patient: true, Limit: proofLimit},
		{Name: kamino.StepExamine, Does: "examine the canary: Ready in time, an identity of its own, and like its siblings",
			Look: r.lookExamine, Patient: true, Limit: workflow.Unlimited},
		{Name: kamino.StepModel, Does: "make the version what the pool's next node boots from",
			Look: r.lookModel, Patient: true},
		{Name: kamino.StepRetire, Does: "remove the canary and its Node object", Look: r.lookRetire, Patient: true, Spare: true},
	}
}

// proveNamed proves a version, and promotes it if it passes. A later command restores what a killed
// proof left.
func (e *Engine) proveNamed(ctx context.Context, o poolstate.State, t poolstate.Destination, opts PromoteOptions) (Rollback, error) {
	back, err := e.point(ctx, o, t, nil, true)
	if err != nil {
		return back, err
	}
	run := t.Options()
	run.Version, run.Unsealed, run.Proof, run.PendingReboot = t.Version.Name, opts.AcceptUnsealed, *opts.Proof, opts.PendingReboot
	r, began := e.newRun(run), e.now()
	if r.pool, back.Changed, back.Unproved = o.Pool, true, false; opts.DryRun {
		r.held.Lease = &o.Lease
		_, err := r.lookProvable(ctx)
		back.Canary = r.planLaunch()
		return back, err
	}
	if err = r.exec(ctx, proveSteps(r)); err != nil {
		r.held.Regain(ctx)
	}
	switch {
	case err == nil:
		back.ModelDiff, back.Proof = append(back.ModelDiff[:0], r.result.ModelDiff...), r.proved()
		err = r.release(context.WithoutCancel(ctx), func(l *kamino.Lease) {
			l.Ledger.NotePromoted(t.Name(), e.now())
			l.Ledger.NotePast(kamino.PastRun{Run: r.held.Run, Work: kamino.WorkProve, Pointed: t.Name(), Verb: kamino.VerbPromote, Ended: e.date(),
				Seconds: e.now().Sub(began).Seconds(), ProofSeconds: r.result.proofSeconds()})
			l.Record = kamino.Record{} // it did not fail
		})
	case r.held.Lease != nil && !errors.Is(err, kamino.ErrLeaseLost):
		err = r.abandon(ctx, err)
	}
	back.Warnings = r.result.Warnings
	return back, r.afterPromotion(err)
}

// proofExpected is the expected duration of a version's proof.
func (r *Run) proofExpected() time.Duration {
	boot := 5 * time.Minute
	if usual := kamino.Usually(r.held.Lease.Ledger.Boots); usual > 0 {
		boot = usual
	}
	return boot + r.opts.Proof.For
}
