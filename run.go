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
	held  leaseHolder // the lock of the pool
	donor donorView   // the node whose disk becomes the image
	back  comingBack
	image imaging
	proof proof // of the version, before it is promoted
	empty emptying

	away   span // of the donor, from when it began to be away, or to be sealed by the process before this one
	result Result

	plan   *Plan             // set in a dry-run
	peeked map[string]string // step -> what it would do, in a dry-run
	doubts []Doubt           // told as warnings already
}

// running is the step that is running.
type running struct {
	since     time.Time
	throttled time.Duration // how long others asked it to be silent
	off       time.Time     // when it first saw the donor off without a receipt

	pauseAsked time.Time // of the run: when it last looked at the stop switch
	// silent, of the run: before when the service wants to be asked for no such act again. A run
	// that ends meanwhile and gives back waits as well.
	silent map[deed]time.Time
	verb   Verb // of the run: what it does in place of an update; "" nothing
}

// span is a time that has begun, and perhaps ended.
type span struct{ from, to time.Time }

func (e *Engine) newRun(opts Options) *Run {
	r := &Run{engine: e, opts: opts, holds: &holds{}, donor: donorView{engine: e}, proof: proof{removed: map[string]bool{}, kept: map[string]string{}, machines: map[InstanceID]string{}}}
	r.held = leaseHolder{engine: e, pool: &r.pool}
	return r
}

// freshRecord is what stands on the lease of a run that begins.
func (r *Run) freshRecord() Record {
	now := r.engine.date()
	rec := Record{
		Donor: r.donor.node.Name, Instance: r.donor.instance.ID, VMID: r.donor.instance.VMID,
		Started: now, Step: r.held.step, ModelWas: r.pool.Model.Image, Promote: r.leaves(), Work: r.work(), Prove: r.proof.mode,
	}
	if rec.Donor != "" || rec.Work == WorkProve {
		rec.Nonce, rec.Version = rand.Text(), r.opts.Version
	}
	if rec.Nonce != "" && rec.Work == "" {
		rec.Version = VersionName(now) // one that is adopted after midnight goes on with it
	}
	return rec
}

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
			say(failed, err.Error(), -1)
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
	if left := r.now.silent[deed{next.act, next.on}].Sub(r.engine.now()); left > 0 {
		return Next{}, &ThrottledError{After: left, Err: fmt.Errorf("%s: too many requests before", next.what)}
	}
	if p.tooSoon(deed{next.act, next.on}) {
		return wait("the effect of: " + next.what), nil
	}
	looked := r.engine.now()
	if err := r.held.intend(ctx, s, next); err != nil {
		return next, err
	}
	if late := elapsed(looked, r.engine.now()); late > lookAge {
		r.held.late = deed{next.act, next.on} // it is announced: the next look is soon enough for it
		return waitUpTo(fmt.Sprintf("rereading state: writing the lease took %s", late.Round(time.Second)), r.engine.minPoll()), nil
	}
	if !r.held.remade.Before(looked) { // the marks may have gone back in time with it
		r.held.late = deed{next.act, next.on}
		return waitUpTo("rereading state: the lease had to be written again", r.engine.minPoll()), nil
	}
	r.held.late = deed{}
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
		rec.Record(ctx, r.donor.node, r.held.run, "Kamino"+s.Notify, cmp.Or(s.Tells, next.what))
	}
	if next.steps {
		return next, next.do(ctx)
	}
	next, err = r.within(ctx, r.held.actLimit(), func(ctx context.Context) (Next, error) { return next, next.do(ctx) })
	if t := (*ThrottledError)(nil); errors.As(err, &t) {
		if r.now.silent == nil {
			r.now.silent = map[deed]time.Time{}
		}
		r.now.silent[deed{next.act, next.on}] = r.engine.now().Add(t.After)
	}
	return next, err
}

// bounded ends calls before the lease can run out. A process that was frozen
// must not wake up and act on what another has taken over meanwhile.
func (r *Run) bounded(ctx context.Context, calls func(context.Context) (Next, error)) (Next, error) {
	return r.within(ctx, actTimeout, calls)
}

func (r *Run) within(ctx context.Context, limit time.Duration, calls func(context.Context) (Next, error)) (Next, error) {
	limited, cancel := r.engine.clock().WithTimeout(ctx, limit)
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

// pace decides how long to wait between looks.
type pace struct {
	run      *Run
	step     Step
	began    time.Time
	failures int
	acts     map[deed]int
	notified bool
	hold     time.Time // before which no act is repeated
}

func (p *pace) reset() { p.began = p.run.engine.now(); p.failures = 0 }

// deed is an act, and which of several it is for.
type deed struct {
	act Act
	on  string
}

// tooSoon says whether an act that was already made must be given time to
// show, so that a slow or lying service is not flooded.
func (p *pace) tooSoon(what deed) bool {
	now := p.run.engine.now()
	if n := p.acts[what]; n > 0 && now.Before(p.hold) {
		return true
	}
	p.acts[what]++
	back := min(time.Second<<min(p.acts[what], 6), 30*time.Second)
	p.hold = now.Add(back)
	return false
}

// worked is spent without the time in which the service asked for silence.
func (r *Run) worked() time.Duration { return r.spent() - r.now.throttled }

// errOverdue: a step has taken longer than its limit.
var errOverdue = errors.New("not done")

// pause waits as long as the last look or failure demands.
func (p *pace) pause(ctx context.Context, next Next, failure error) error {
	now := p.run.engine.now()
	limit := cmp.Or(p.step.Limit, defaultLimit)
	if spent := p.run.worked(); spent > limit {
		if failure != nil {
			return fmt.Errorf("%w after %s: %w", errOverdue, spent.Round(time.Second), failure)
		}
		return fmt.Errorf("%w after %s, last waiting for: %s", errOverdue, spent.Round(time.Second), next.what)
	}
	d := max(p.delay(now), next.after)
	if next.within > 0 {
		d = min(d, next.within)
	}
	var t *ThrottledError
	if errors.As(failure, &t) && t.After > longestSilence {
		return fmt.Errorf("%w: the next call is allowed in %s, which is longer than a run waits: %w", errOverdue, t.After.Round(time.Minute), failure)
	} else if t != nil {
		d = max(t.After, d)
		p.run.now.throttled += d
	} else if failure != nil {
		p.failures++
		d = min(p.run.engine.minPoll()<<min(p.failures-1, 6), 30*time.Second)
	}
	p.run.donor.read, p.run.donor.seenAt = false, time.Time{}
	for ; d > pauseSeen; d -= pauseSeen { // a pause of the cluster ends a wait for a service, too
		if err := p.run.held.sleep(ctx, pauseSeen); err != nil {
			return err
		}
		if err := p.run.heldUp(ctx, p.step); err != nil {
			return err
		}
	}
	return p.run.held.sleep(ctx, d)
}

// longestSilence is the longest time for which a service may refuse calls before a run gives up. The
// marks of the donor stay then, for a restore.
const longestSilence = returnLimit

// delay grows with the time already waited, so that short waits end promptly
// and long ones cost few calls.
func (p *pace) delay(now time.Time) time.Duration {
	if p.began.IsZero() {
		p.began = p.run.now.since
	}
	most := cmp.Or(p.run.engine.MaxPoll, 5*time.Second)
	if p.step.Patient {
		most *= 3
	}
	return min(max(now.Sub(p.began)/20, p.run.engine.minPoll()), max(most, p.run.engine.minPoll()))
}

func (e *Engine) minPoll() time.Duration {
	if e.MinPoll > 0 {
		return e.MinPoll
	}
	return time.Second
}

// spent is how long the running step has taken.
func (r *Run) spent() time.Duration { return r.engine.now().Sub(r.now.since) }

// hold is something that a run has taken and must give back, in words for people.
type hold struct {
	what  string
	until string // the step that gives it back; "" none before the lease is free
}

// holds is what a run holds now. Runs that give back in the name of another share its list.
type holds struct{ list []hold }

// adoptedHold is what a run holds that was taken over, before its steps have told more.
var adoptedHold = hold{"what its former process had taken, possibly the donor", InReturn}

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

// release frees the lease, and with it what only that gives back.
func (r *Run) release(ctx context.Context, note func(*Lease)) error {
	if err := r.held.release(ctx, note); err != nil {
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
