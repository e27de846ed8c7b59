package kamino

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"time"
)

// Run is one execution of the pipeline for one pool: what it was asked, and what it has learned.
// What only one room needs to remember is of a type of that room.
type Run struct {
	engine *Engine
	opts   Options
	now    running // the step that is running
	holds  *holds

	pool  Pool
	held  holder    // the lock of the pool
	donor donorView // the node whose disk becomes the image
	back  comingBack
	image imaging
	proof proof // of the version, before it is promoted
	empty emptying

	away   span // of the donor, from when it began to be away, or to be sealed by the process before this one
	result Result

	plan   *Plan             // set in a dry-run
	peeked map[string]string // step -> what it would do, in a dry-run
	doubts []string          // told as warnings already
}

// running is the step that is running.
type running struct {
	since     time.Time
	throttled time.Duration // how long others asked it to be silent
	off       time.Time     // when it first saw the donor off without a receipt

	pauseAsked time.Time // of the run: when it last looked at the stop switch
	verb       Verb      // of the run: what it does in place of an update; "" nothing
}

// span is a time that has begun, and perhaps ended.
type span struct{ from, to time.Time }

func (e *Engine) newRun(opts Options) *Run {
	r := &Run{engine: e, opts: opts, holds: &holds{}, donor: donorView{engine: e}, proof: proof{removed: map[string]bool{}, kept: map[string]string{}, machines: map[InstanceID]string{}}}
	r.held = holder{engine: e, pool: &r.pool}
	return r
}

// freshRecord is what stands on the lease of a run that begins.
func (r *Run) freshRecord() Record {
	now := r.engine.date()
	rec := Record{
		Donor: r.donor.node.Name, Instance: r.donor.instance.ID, VMID: r.donor.instance.VMID,
		Started: now, Step: r.held.step, ModelWas: r.pool.Model.Image, Promote: r.leaves(), Work: r.work(), Prove: r.proof.mode,
	}
	if rec.Donor != "" {
		rec.Nonce = rand.Text()
	}
	if rec.Nonce != "" && rec.Work == "" {
		rec.Version = VersionName(now) // one that is adopted after midnight goes on with it
	}
	return rec
}

// StepError says which step failed.
type StepError struct {
	Step string
	Err  error
	// Refused: a look before the first change but for marks met what the same command would meet
	// again.
	Refused bool
}

func (e *StepError) Error() string { return e.Step + ": " + e.Err.Error() }
func (e *StepError) Unwrap() error { return e.Err }

// exec runs steps in order until one fails.
func (r *Run) exec(ctx context.Context, steps []Step) error {
	for i, s := range steps {
		ev := Event{Step: s.Name, Number: i + 1, Total: len(steps), Percent: -1}
		if s.When != nil && !s.When(r) {
			ev.Kind, ev.Message = StepSkipped, "not needed"
			r.tell(ev)
			r.result.Steps = append(r.result.Steps, StepTime{Name: s.Name, Skipped: true})
			r.passed(s)
			continue
		}
		if err := r.step(ctx, s, ev); err != nil && (!s.Spare || ctx.Err() != nil || errors.Is(err, ErrLeaseLost)) {
			return err
		} else if err != nil {
			r.result.Warnings = append(r.result.Warnings, err.Error())
		}
		r.passed(s)
	}
	return nil
}

func (r *Run) tell(ev Event) {
	ev.Pool, ev.Run = r.pool.Name, r.held.run
	r.engine.report(ev)
}

// step looks, acts and waits until the step is done, has failed or has taken
// too long.
func (r *Run) step(ctx context.Context, s Step, ev Event) error {
	r.held.step, r.now.since, r.now.throttled, r.now.off = s.Name, r.engine.now(), 0, time.Time{}
	p := pace{run: r, step: s, acts: map[deed]int{}}
	limit := r.limit(s)
	say := func(kind EventKind, message string, percent int) {
		if ev.Limit = 0; kind == StepWaiting {
			ev.Limit = limit
		}
		ev.Kind, ev.Message, ev.Percent, ev.Elapsed = kind, message, percent, r.engine.now().Sub(r.now.since)
		r.tell(ev)
	}
	failed := StepFailed
	if s.Spare {
		failed = Warned
	}
	say(StepStarted, s.Does, -1)
	for {
		next, err := r.advance(ctx, s, &p, say)
		if err == nil && next.kind == nextDone {
			r.takes(s)
			say(StepDone, next.what, -1)
			r.result.Steps = append(r.result.Steps, StepTime{Name: s.Name, Seconds: r.engine.now().Sub(r.now.since).Seconds()})
			return nil
		}
		switch acted := err == nil && next.kind == nextAct; {
		case acted && next.why == "":
			p.reset()
			continue
		case acted:
			p.reset()
			say(StepWaiting, next.why, -1)
		case err == nil:
			say(StepWaiting, next.what, next.percent)
		case ctx.Err() == nil && (transient(err) || s.Stubborn) && !errors.Is(err, ErrLeaseLost):
			say(StepRetry, err.Error(), -1)
		default:
			err = interrupted(ctx, err)
			refused := next.kind != nextAct && refusing(err) && r.away.from.IsZero() && !r.result.Changed
			if refused && !s.Spare {
				failed = StepRefused
			}
			say(failed, err.Error(), -1)
			return &StepError{Step: s.Name, Err: err, Refused: refused}
		}
		if err := p.pause(ctx, next, err); err != nil {
			err = interrupted(ctx, err)
			say(failed, err.Error(), -1)
			return &StepError{Step: s.Name, Err: err}
		}
		if err := cmp.Or(r.held.renew(ctx), r.heldUp(ctx, s)); err != nil {
			return &StepError{Step: s.Name, Err: err}
		}
	}
}

// limit is how long a step may wait, as people are told; 0 where nothing but the world's end limits
// it.
func (r *Run) limit(s Step) time.Duration {
	switch {
	case s.Name == InDrain:
		return r.opts.drainTimeout()
	case s.Name == InLock:
		return LeaseDuration
	case s.Limit == unlimited:
		return 0
	}
	return cmp.Or(s.Limit, defaultLimit)
}

// interrupted is the error of a call that ended because ctx did: clients tell
// that as anything between a time-out and a broken reply.
func interrupted(ctx context.Context, err error) error {
	if cause := ctx.Err(); cause != nil && (transient(err) || errors.Is(err, cause)) {
		return &interruption{cause}
	}
	return err
}

// interruption is the end of a run's context, in words for people.
type interruption struct{ cause error }

func (i *interruption) Error() string {
	if errors.Is(i.cause, context.Canceled) {
		return "interrupted"
	}
	return "interrupted: " + i.cause.Error()
}

func (i *interruption) Unwrap() error { return i.cause }

// lookAge is how old a look may be when it is acted upon: a process that was
// frozen, or a cluster that answered late, has missed what happened meanwhile.
const lookAge = 10 * time.Second

// advance makes one look and, where it asks for one, one act.
func (r *Run) advance(ctx context.Context, s Step, p *pace, say func(EventKind, string, int)) (Next, error) {
	if err := ctx.Err(); err != nil {
		return Next{}, err
	}
	next, err := r.bounded(Looking(ctx), func(ctx context.Context) (Next, error) { return s.Look(r, ctx) })
	if err != nil || next.kind != nextAct {
		return next, err
	}
	if p.tooSoon(deed{next.act, next.on}) {
		return wait("the effect of: " + next.what), nil
	}
	looked := r.engine.now()
	if err := r.held.intend(ctx, s, next); err != nil {
		return next, err
	}
	if late := elapsed(looked, r.engine.now()); late > lookAge {
		return wait(fmt.Sprintf("a fresh look: the lease was written only after %s", late.Round(time.Second))), nil
	}
	r.takes(s)
	if next.act != ActDeleteSnapshot { // any other may change what is listed of versions
		r.image.listedAt = time.Time{}
	}
	say(StepActed, next.what, -1)
	if r.donor.read, r.donor.seenAt = false, (time.Time{}); !s.Patient { // those do nothing to the donor
		r.donor.readAt = time.Time{}
	}
	if rec, ok := r.engine.Cluster.(Recorder); ok && s.Notify != "" && !p.notified {
		p.notified = true
		rec.Record(ctx, r.donor.node, "Kamino"+s.Notify, firstWord(s.Tells, next.what))
	}
	if next.steps {
		return next, next.do(ctx)
	}
	return r.bounded(ctx, func(ctx context.Context) (Next, error) { return next, next.do(ctx) })
}

// bounded ends calls before the lease can run out. A process that was frozen
// must not wake up and act on what another has taken over meanwhile.
func (r *Run) bounded(ctx context.Context, calls func(context.Context) (Next, error)) (Next, error) {
	limited, cancel := r.engine.clock().WithTimeout(ctx, actTimeout)
	defer cancel()
	next, err := calls(limited)
	if over := limited.Err(); over != nil && errors.Is(err, over) && ctx.Err() == nil {
		err = fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	return next, err
}

// donorNeeded: no image and no snapshot of today can be used.
func (r *Run) donorNeeded() bool { return r.imageMissing() && r.image.reused == nil }

// donorUntouched: the donor is needed, and nothing was done to it yet.
func (r *Run) donorUntouched() bool {
	mark, err := r.donor.node.claim(r.pool.ID)
	return r.donorNeeded() && mark == nil && err == nil && !r.held.sealing()
}

// donorMarked: the run may hold a donor.
func (r *Run) donorMarked() bool {
	mark, err := r.donor.node.claim(r.pool.ID)
	return mark != nil || err != nil || r.held.sealing() || r.donorNeeded()
}

// spent is how long the running step has taken.
func (r *Run) spent() time.Duration { return r.engine.now().Sub(r.now.since) }

// EventKind says what an Event tells.
type EventKind string

// The kinds of events, in the order in which a step can send them.
const (
	StepStarted EventKind = "started"
	StepActed   EventKind = "acted"   // about to do what Message says
	StepWaiting EventKind = "waiting" // for what Message says
	StepRetry   EventKind = "retry"   // a call failed and will be looked at again
	StepSkipped EventKind = "skipped"
	StepDone    EventKind = "done"
	StepFailed  EventKind = "failed"
	StepRefused EventKind = "refused" // failed before its first change, by what the same command would meet again
	Warned      EventKind = "warning"
	GivingBack  EventKind = "giving back"
)

// Event is one thing that happened in a run, for progress output and logs.
type Event struct {
	Time    time.Time     `json:"time"`
	Pool    string        `json:"pool,omitempty"`
	Run     string        `json:"run,omitempty"`
	Kind    EventKind     `json:"kind"`
	Step    string        `json:"step,omitempty"`
	Number  int           `json:"number,omitempty"` // of the step, from 1
	Total   int           `json:"total,omitempty"`
	Elapsed time.Duration `json:"elapsed"` // since the step started, in nanoseconds
	// Limit is how long a wait may last at most, in nanoseconds from the step's start; 0 where that
	// is not known.
	Limit   time.Duration `json:"limit,omitempty"`
	Percent int           `json:"percent"` // as the provider reports it; -1 when it reports none
	Message string        `json:"message,omitempty"`
}

// StepTime is how long a step of a finished run took.
type StepTime struct {
	Name    string  `json:"name"`
	Seconds float64 `json:"seconds"`
	Skipped bool    `json:"skipped,omitempty"`
}

// Result is what a run did.
type Result struct {
	Run         string        `json:"run"`
	Pool        PoolID        `json:"pool"`
	Donor       string        `json:"donor"`
	Version     string        `json:"version"`
	Image       string        `json:"image"` // ID of the version
	Changed     bool          `json:"changed"`
	Adopted     bool          `json:"adopted,omitempty"` // an unfinished run was taken over
	Steps       []StepTime    `json:"steps"`
	AwaySeconds float64       `json:"donorAwaySeconds"` // 0 if it is not known; of a run that was taken over since its disk began to be sealed
	ModelDiff   []FieldChange `json:"modelDiff"`
	Pruned      []string      `json:"pruned"`
	// Hidden: the version is not offered. Waiting: it is left to kamino promote. Owner writes the
	// model, and every new instance runs Extensions, where kamino does not write the model.
	Hidden     bool        `json:"hidden,omitempty"`
	Waiting    bool        `json:"waiting,omitempty"`
	Next       string      `json:"next,omitempty"` // the version, where the pool's next node boots from it
	Proof      *Proved     `json:"proof,omitempty"`
	Owner      *Owner      `json:"owner,omitempty"`
	Extensions []Extension `json:"extensions,omitempty"`
	// Warnings are what went wrong after the image was in use: things that are
	// left for the next run to clean up.
	Warnings []string `json:"warnings,omitempty"`
}

// hold is something that a run has taken and must give back, in words for people.
type hold struct {
	what  string
	until string // the step that gives it back; "" none before the lease is free
}

// holds is what a run holds now. Runs that give back in the name of another share its list.
type holds struct{ list []hold }

// adoptedHold is what a run holds that was taken over, before its steps have told more.
var adoptedHold = hold{"what its former process had taken, perhaps the donor", InReturn}

// takes notes what a step takes once it has acted, or has found it done by the process that had the
// run before.
func (r *Run) takes(s Step) {
	if r.held.adopted && s.Name == InLock {
		r.holds.add(adoptedHold)
	}
	if s.Takes != "" {
		r.holds.add(hold{s.Takes, s.Until})
	}
	r.tellHolds()
}

// passed drops what a step gives back that is done or not needed, and tells who waits for it that
// the donor is back.
func (r *Run) passed(s Step) {
	r.holds.drop(func(h hold) bool { return h.until == s.Name || h.until == s.Ends })
	r.tellHolds()
	if s.DonorBack && r.engine.DonorBack != nil {
		r.engine.DonorBack(r.pool.ID)
	}
}

// freed drops what only the freeing of the lease gives back.
func (r *Run) freed() {
	r.holds.list = slices.DeleteFunc(r.holds.list, func(one hold) bool { return one.until == "" })
	r.tellHolds()
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
