package engine

import (
	"cmp"
	"context"
	"crypto/rand"
	"slices"
	"time"

	"kamino.dev/kamino"
	"kamino.dev/kamino/lock"
	"kamino.dev/kamino/poolstate"
	"kamino.dev/kamino/workflow"
)

// Run is one execution of the pipeline for one pool: its options and what it has learned. State
// that only one part of a run needs has a type in that part's file.
type Run struct {
	engine *Engine
	opts   kamino.Options
	holds  *holds
	runner workflow.Runner
	verb   kamino.Verb // what it does in place of an update; "" for an update

	pauseAsked time.Time // when it last read the stop switch
	offSince   time.Time // when the running step first saw the donor off without a receipt

	pool  kamino.Pool
	held  lock.Lock // the lock of the pool
	donor donorView // the node whose disk becomes the image
	back  recovery
	image imageState
	proof proofState // of the version, before its promotion
	empty drainState

	away   span // how long the donor is away, also under the previous process
	result Result

	plan   *poolstate.Plan   // set in a dry run
	peeked map[string]string // step -> what it would do, in a dry run
	doubts []kamino.Warning  // reported as warnings already
}

// span is a time that has begun, and may have ended.
type span struct{ from, to time.Time }

func (e *Engine) newRun(opts kamino.Options) *Run {
	r := &Run{engine: e, opts: opts, holds: &holds{}, donor: donorView{engine: e}, proof: proofState{removed: map[string]bool{}, kept: map[string]string{}, machines: map[kamino.InstanceID]string{}}}
	r.held = lock.Lock{Leases: e.Cluster, Clock: e.clock(), Process: e.Process, NewID: e.NewID, Sighted: e.Sighted, Report: e.report, MinPoll: e.minPoll(), Pool: &r.pool}
	r.runner = workflow.Runner{Host: runHost{r}, Lock: &r.held, Clock: e.clock(), MinPoll: e.minPoll(), MaxPoll: cmp.Or(e.MaxPoll, 5*time.Second)}
	return r
}

// freshRecord is the record on the lease of a run that begins.
func (r *Run) freshRecord() kamino.Record {
	now := r.engine.date()
	rec := kamino.Record{
		Donor: r.donor.node.Name, Instance: r.donor.instance.ID, VMID: r.donor.instance.VMID,
		Started: now, Step: r.held.Step, ModelWas: r.pool.Model.Image, Promote: r.leaves(), Work: r.work(), Prove: r.proof.mode,
	}
	if rec.Donor != "" || rec.Work == kamino.WorkProve {
		rec.Nonce, rec.Version = rand.Text(), r.opts.Version
	}
	if rec.Nonce != "" && rec.Work == "" {
		rec.Version = kamino.VersionName(now) // a run that is adopted after midnight continues with it
	}
	return rec
}

func (r *Run) tell(ev kamino.Event) {
	ev.Pool, ev.Run = r.pool.Name, r.held.Run
	r.engine.report(ev)
}

// runHost makes a run the Host of a [workflow.Runner].
type runHost struct{ *Run }

func (h runHost) Begins(step string) { h.held.Step, h.offSince = step, time.Time{} }

func (h runHost) Tell(ev kamino.Event) { h.tell(ev) }

func (h runHost) Untouched() bool { return h.away.from.IsZero() && !h.result.Changed }

func (h runHost) Acting(ctx context.Context, s Step, next workflow.Next, first bool) {
	if next.Act != kamino.ActDeleteSnapshot { // any other act may change a list of versions
		h.image.listedAt = time.Time{}
	}
	if h.donor.read, h.donor.seenAt = false, (time.Time{}); !s.Patient { // patient steps do nothing to the donor
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

func (h runHost) Waits() { h.donor.read, h.donor.seenAt = false, time.Time{} }

func (h runHost) HeldUp(ctx context.Context, s Step) error { return h.heldUp(ctx, s) }

func (r *Run) exec(ctx context.Context, steps []Step) error { return r.runner.Exec(ctx, steps) }

// drainTimeout is the limit of the drain that people see.
func (r *Run) drainTimeout() time.Duration { return r.opts.DrainLimit() }

// donorNeeded reports whether neither an image nor a snapshot of this day can be used.
func (r *Run) donorNeeded() bool { return r.imageMissing() && r.image.reused == nil }

// donorUntouched reports whether the donor is needed, and nothing was done to it yet.
func (r *Run) donorUntouched() bool {
	mark, err := r.donor.node.Claimed(r.pool.ID)
	return r.donorNeeded() && mark == nil && err == nil && !r.held.Sealing()
}

// donorMarked reports whether the run may hold a donor.
func (r *Run) donorMarked() bool {
	mark, err := r.donor.node.Claimed(r.pool.ID)
	return mark != nil || err != nil || r.held.Sealing() || r.donorNeeded()
}

func (e *Engine) minPoll() time.Duration {
	if e.MinPoll > 0 {
		return e.MinPoll
	}
	return time.Second
}

// hold is something that a run has taken and must restore, worded for people.
type hold struct {
	what  string
	until string // the step that restores it; "": only the release of the lease does
}

// holds is what a run holds now. Runs that restore in the name of another share its list.
type holds struct{ list []hold }

// adoptedHold is what an adopted run holds until its steps have reported more.
var adoptedHold = hold{"resources of its previous process, possibly the donor", kamino.StepReturn}

// takes records what a step takes, once it has acted, or has found it done by the previous process.
func (r *Run) takes(s Step) {
	if r.held.Adopted && s.Name == kamino.StepLock {
		r.holds.add(adoptedHold)
	}
	if s.Takes != "" {
		r.holds.add(hold{s.Takes, s.Until})
	}
	r.tellHolds()
}

// passed removes what a finished step restores, and calls DonorBack if the donor is back.
func (r *Run) passed(s Step) {
	r.holds.drop(func(h hold) bool { return h.until == s.Name || h.until == s.Ends })
	r.tellHolds()
	if s.DonorBack && r.engine.DonorBack != nil {
		r.engine.DonorBack(r.pool.ID)
	}
}

// release releases the lease, and with it what only the release restores.
func (r *Run) release(ctx context.Context, note func(*kamino.Lease)) error {
	if err := r.held.Release(ctx, note); err != nil {
		return err
	}
	r.holds.list = slices.DeleteFunc(r.holds.list, func(one hold) bool { return one.until == "" })
	r.tellHolds()
	return nil
}

func (h *holds) add(one hold) {
	if !slices.Contains(h.list, one) {
		h.list = append(h.list, one)
	}
}

func (h *holds) drop(over func(hold) bool) {
	h.list = slices.DeleteFunc(h.list, func(one hold) bool { return one.until != "" && over(one) })
}

func (r *Run) tellHolds() {
	if r.engine == nil || r.engine.Holds == nil {
		return
	}
	what := make([]string, len(r.holds.list))
	for i, h := range r.holds.list {
		what[i] = h.what
	}
	r.engine.Holds(r.pool.ID, what)
}
