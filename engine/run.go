package engine

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"time"

	"kamino.dev/kamino"
	"kamino.dev/kamino/lock"
	"kamino.dev/kamino/workflow"
)

// Run is one execution of a pipeline for one pool. What the steps of one subject have learned stands
// in the type of that subject.
type Run struct {
	common

	donor   donor
	image   image
	pointer pointer
	canary  canary
	patch   patch
	build   build
	dry     dryRun
	restore restoration
}

func newRun(e *Engine, opts kamino.Options) *Run {
	r := &Run{common: common{engine: e, opts: opts, holds: &holds{}}}
	c := &r.common
	r.donor.common = c
	r.image = image{common: c, donor: &r.donor}
	r.pointer = pointer{common: c, image: &r.image}
	r.canary = canary{common: c, donor: &r.donor, image: &r.image, pointer: &r.pointer,
		removed: map[string]bool{}, kept: map[string]string{}, machines: map[kamino.InstanceID]string{}}
	r.patch = patch{common: c, donor: &r.donor}
	r.build = build{common: c, donor: &r.donor, image: &r.image, pointer: &r.pointer, canary: &r.canary}
	r.dry.Run, r.restore.Run = r, r
	r.held = lock.Lock{Leases: e.Cluster, Clock: e.clock(), Process: e.Process, NewID: e.NewID, Sighted: e.Sighted, Report: e.report,
		MinPoll: e.minPoll(), Pool: &r.pool}
	r.runner = workflow.Runner{Host: runHost{r}, Lock: &r.held, Clock: e.clock(), MinPoll: e.minPoll(),
		MaxPoll: cmp.Or(e.MaxPoll, 5*time.Second)}
	return r
}

// freshRecord is the record on the lease of a run that begins.
func (r *Run) freshRecord() kamino.Record {
	now := r.engine.date()
	rec := kamino.Record{
		Donor: r.donor.node.Name, Instance: r.donor.instance.ID, VMID: r.donor.instance.VMID,
		Started: now, Step: r.held.Step, ModelWas: r.pool.Model.Image, Promote: r.image.promoteMode(), Work: r.work(), Prove: r.mode,
	}
	if rec.Donor != "" || rec.Work == kamino.WorkProve {
		rec.Nonce, rec.Version = rand.Text(), r.opts.Version
	}
	if rec.Nonce != "" && rec.Work == "" {
		rec.Version = kamino.VersionName(now) // a run that is adopted after midnight continues with it
	}
	return rec
}

// runHost makes a run the Host of a [workflow.Runner].
type runHost struct{ *Run }

func (h runHost) Begins(step string) { h.held.Step, h.donor.offSince = step, time.Time{} }

func (h runHost) Tell(ev kamino.Event) { h.tell(ev) }

func (h runHost) Untouched() bool { return h.donor.away.from.IsZero() && !h.result.Changed }

func (h runHost) Acting(ctx context.Context, s Step, next workflow.Next, first bool) {
	if next.Act != kamino.ActDeleteSnapshot { // any other act may change a list of versions
		h.image.listedAt = time.Time{}
	}
	if h.donor.outdate(); !s.Patient { // patient steps do nothing to the donor
		h.donor.readAt = time.Time{}
	}
	if rec, ok := h.engine.Cluster.(kamino.Recorder); ok && s.Notify != "" && first {
		rec.Record(ctx, h.donor.node, h.held.Run, "Kamino"+s.Notify, cmp.Or(s.Tells, next.What))
	}
}

func (h runHost) Took(s Step) { h.takes(s) }

func (h runHost) Passed(s Step, took kamino.StepTime, failure error) {
	if failure != nil {
		h.result.Warnings = append(h.result.Warnings, failure.Error())
	} else {
		h.result.Steps = append(h.result.Steps, took)
	}
	h.passed(s)
}

func (h runHost) Waits() { h.donor.outdate() }

func (h runHost) HeldUp(ctx context.Context, s Step) error { return h.heldUp(ctx, s) }

// underLease takes the lease of a pool that nobody holds, runs the steps, and releases the lease
// with a note.
func underLease(ctx context.Context, e *Engine, pool kamino.Pool, steps func(*Run) []Step, note func(*kamino.Lease)) error {
	r := newRun(e, kamino.Defaults())
	r.pool = pool
	all := []Step{lockStep(takeTheLease, r.lookFreeLock)}
	if steps != nil {
		all = append(all, steps(r)...)
	}
	err := r.exec(ctx, all)
	if r.held.Lease != nil && !errors.Is(err, kamino.ErrLeaseLost) {
		err = errors.Join(err, r.release(context.WithoutCancel(ctx), note))
	}
	return err
}

// heldUp returns an error if the cluster is paused, which ends a running run. A stop switch that
// cannot be read stops nothing. A run that restores, or takes a version back, continues.
func (r *Run) heldUp(ctx context.Context, s Step) error {
	now := r.engine.now()
	if r.held.Lease == nil || r.held.GivingBack || s.Stubborn || r.takesBack() || !r.held.Mine() ||
		now.Sub(r.pauseAsked) < workflow.PauseSeen {
		return nil
	}
	var refused *kamino.RefusedError
	if err := r.refusePaused(ctx); errors.As(err, &refused) {
		return err
	}
	return nil
}

// takesBack reports whether the run is a withdrawal or a rollback, or withdraws a version that
// failed its proof. People set a pause in an incident, and it must not keep a bad version in use.
func (r *Run) takesBack() bool {
	return r.verb == kamino.VerbWithdraw || r.verb == kamino.VerbRollback || r.canary.bad().Nodes
}
