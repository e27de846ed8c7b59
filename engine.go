package kamino

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// Engine runs steps against one provider and one cluster. Its fields are set
// once; every method may be called by several goroutines, for several pools.
type Engine struct {
	Provider Provider
	Cluster  Cluster
	Clock    Clock // nil: the wall clock
	// Process is how this process shows on a lease: host/pid and what makes it unique, as
	// containers may share both. Whose name is on a lease holds it.
	Process string
	Report  func(Event) // nil: nobody listens
	// NewID makes an ID for a new run: lower-case letters, digits and dashes,
	// at most 40 characters.
	NewID func() string
	// MinPoll and MaxPoll bound the time between two looks at something that is
	// waited for; zero means 1 s and 5 s. Patient steps wait up to three times
	// as long. (ARM lets an instance be read 12 times a minute, with bursts of
	// 36: https://learn.microsoft.com/azure/virtual-machines/compute-throttling-limits.)
	// A MinPoll above LongestPoll can make runs fail.
	MinPoll, MaxPoll time.Duration

	// DonorBack, where set, is called as soon as a run has no donor of the pool away, and none that
	// it could take; also by runs that need none.
	DonorBack func(PoolID)
	// Holds, where set, is told what a run of the pool holds, in words for people, whenever that may
	// have changed.
	Holds func(pool PoolID, what []string)
	// Threads, where set, runs n bodies side by side in place of goroutines, each with an engine of
	// its own, and returns when all have ended: a simulation lets one run at a time.
	Threads func(n int, body func(*Engine, int))
}

// LongestPoll is how seldom a donor may be looked at: between two looks it must
// not have been able to go off and on again.
const LongestPoll = 10 * time.Second

// Run is one execution of the pipeline for one pool: what it was asked, and
// what it has learned.
type Run struct {
	*Engine
	Options

	id      string
	fresh   string // the ID of a run that is not adopted
	adopted bool
	lease   *Lease // held; nil before the lock step and after the release
	watched watchedLease
	leased  time.Time // before the last successful write of the lease
	holds   *holds
	// announcedOn is what the announced act is for, where there are several.
	announcedOn string
	hush        time.Time // before which the lease is not renewed: Kubernetes asked for silence
	back        bool      // nothing is made any more, only given back

	node     Node
	read     bool      // node was read since the last act and the last pause
	readAt   time.Time // when node was read; zero once something was done to it
	instance Instance
	pool     Pool

	version  Artifact // today's, as last seen
	reused   *Artifact
	preBuilt bool              // the version was there before the run began
	plan     *Plan             // set in a dry-run
	peeked   map[string]string // step -> what it would do, in a dry-run
	doubts   []string          // told as warnings already
	unjudged bool              // the donor was marked when it was validated: not all was asked of it
	result   Result
	away     time.Time // when the donor began to be away, or to be sealed by the process before this one
	awayEnds time.Time

	rested bool // the donor was seen off after its snapshot had been begun
	// watchedOn is when the donor was last seen on, without a gap in which it could
	// have gone off and been started again since before it was sealed.
	watchedOn time.Time

	emptied  time.Time // when no pod was left on the donor that had to leave
	evicting bool      // this process has asked the donor's pods to leave
	unasked  bool      // the donor's mark was seen before any seal pod was asked for
	// surveyless: the donor's disk cannot be looked at beside its pods.
	surveyless bool

	// What giving back has seen.
	missing     missing  // zero while the donor's instance is there
	poolGone    bool     // a person said that the pool was deleted for good
	before      Record   // of the run that was adopted, as it was then
	foreign     string   // why a snapshot of the pool's name was left alone
	returned    []string // runs whose donors this one has given back
	unsealed    bool     // no seal pod was left when the marks were taken off
	sealStarted bool
	offSeen     bool   // the machine was off, or on its way
	bootThen    string // what Kubernetes took for its boot then
	firstPulse  time.Time

	imageFailures int
	kept          map[string]bool // versions that turned out to be in use

	now struct { // the step that is running
		name      string
		since     time.Time
		throttled time.Duration // how long others asked it to be silent
		off       time.Time     // when it first saw the donor off without a receipt
	}
}

func (e *Engine) clock() Clock {
	if e.Clock == nil {
		return WallClock{}
	}
	return e.Clock
}

func (e *Engine) report(ev Event) {
	if e.Report != nil {
		ev.Time = e.clock().Now()
		e.Report(ev)
	}
}

// Update takes a node as donor and makes its disk the image of its pool. On any
// failure, and when ctx ends, it gives back what it took before it returns; an
// error of giving back is joined to the first.
func (e *Engine) Update(ctx context.Context, opts Options) (Result, error) {
	if err := opts.Validate(); err != nil {
		return Result{}, err
	}
	r, err := e.attempt(ctx, opts)
	if r.adopted && r.lease == nil && errors.Is(err, errStartedSince) && ctx.Err() == nil {
		// What another process had left could not be gone on with. It is given
		// back, and nothing is in the way of a run of our own.
		r, err = e.attempt(ctx, opts)
	}
	var failed *StepError
	if errors.As(err, &failed) && (failed.Step == InConnect || failed.Step == InValidate) && ctx.Err() == nil {
		if undo := r.giveBackRefused(ctx); undo != nil {
			err = errors.Join(err, undo)
		}
	}
	return r.result, err
}

// giveBackRefused gives back what an earlier run left in the pool of a donor that this run may not take: what was taken is given
// back whatever has become of it since, and whatever right is missing that only a new run needs.
func (r *Run) giveBackRefused(ctx context.Context) error {
	if r.node.Name == "" { // nothing was read yet
		var err error
		if r.node, err = r.Cluster.Node(ctx, r.Donor); err != nil {
			return nil // the run's own error tells why
		}
	}
	id, err := r.Provider.PoolOf(r.node.ProviderID)
	if err != nil {
		return nil // not of a pool
	}
	lease, err := r.Cluster.Lease(ctx, id)
	if err != nil {
		return fmt.Errorf("read lease of pool %s: %w", id.Name(), err)
	}
	mark, err := r.node.taken(id, lease)
	if lease.Holder == "" && (err != nil || mark == nil) {
		return nil
	}
	nodes, err := r.Cluster.Nodes(ctx)
	if err != nil {
		return fmt.Errorf("list nodes: %w", err)
	}
	nodes = slices.DeleteFunc(nodes, func(n Node) bool { pool, err := r.Provider.PoolOf(n.ProviderID); return err != nil || pool != id })
	err = r.clear(ctx, overview{id: id, lease: lease, nodes: nodes})
	if held := (*HeldError)(nil); errors.As(err, &held) {
		return nil // it lives, and gives back what it takes
	}
	return err
}

// attempt makes one run, to its end or until everything is given back.
func (e *Engine) attempt(ctx context.Context, opts Options) (*Run, error) {
	r := e.newRun(opts)
	started := e.clock().Now()
	err := r.exec(ctx, Pipeline())
	if err != nil {
		r.regain(ctx)
	}
	switch {
	case err == nil:
		err = r.stayedOn(ctx)
		err = errors.Join(err, r.finish(ctx, started))
	case r.lease != nil && !errors.Is(err, ErrLeaseLost):
		err = r.abandon(ctx, err)
	}
	r.fillResult()
	return r, err
}

func (e *Engine) newRun(opts Options) *Run {
	return &Run{Engine: e, Options: opts, kept: map[string]bool{}, holds: &holds{}}
}

// StepError says which step failed.
type StepError struct {
	Step string
	Err  error
	// Refused: a look before the first change met what the same command would meet again.
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
	ev.Pool, ev.Run = r.pool.Name, r.id
	r.report(ev)
}

// step looks, acts and waits until the step is done, has failed or has taken
// too long.
func (r *Run) step(ctx context.Context, s Step, ev Event) error {
	r.now.name, r.now.since, r.now.throttled, r.now.off = s.Name, r.clock().Now(), 0, time.Time{}
	p := pace{run: r, step: s, acts: map[deed]int{}}
	say := func(kind EventKind, message string, percent int) {
		ev.Kind, ev.Message, ev.Percent, ev.Elapsed = kind, message, percent, r.clock().Now().Sub(r.now.since)
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
			r.result.Steps = append(r.result.Steps, StepTime{Name: s.Name, Seconds: r.clock().Now().Sub(r.now.since).Seconds()})
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
			refused := next.kind != nextAct && refusing(err)
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
		if err := r.renew(ctx); err != nil {
			return &StepError{Step: s.Name, Err: err}
		}
	}
}

// interrupted is the error of a call that ended because ctx did: clients tell
// that as anything between a time-out and a broken reply.
func interrupted(ctx context.Context, err error) error {
	if cause := ctx.Err(); cause != nil && (transient(err) || errors.Is(err, cause)) {
		return fmt.Errorf("interrupted: %w", cause)
	}
	return err
}

// lookAge is how old a look may be when it is acted upon: a process that was
// frozen, or a cluster that answered late, has missed what happened meanwhile.
const lookAge = 10 * time.Second

// advance makes one look and, where it asks for one, one act.
func (r *Run) advance(ctx context.Context, s Step, p *pace, say func(EventKind, string, int)) (Next, error) {
	if err := ctx.Err(); err != nil {
		return Next{}, err
	}
	next, err := r.bounded(ctx, func(ctx context.Context) (Next, error) { return s.Look(r, ctx) })
	if err != nil || next.kind != nextAct {
		return next, err
	}
	if p.tooSoon(deed{next.act, next.on}) {
		return wait("the effect of: " + next.what), nil
	}
	looked := r.clock().Now()
	if err := r.intend(ctx, s, next); err != nil {
		return next, err
	}
	if late := r.clock().Now().Sub(looked); late > lookAge {
		return wait(fmt.Sprintf("a fresh look: the lease was written only after %s", late.Round(time.Second))), nil
	}
	r.takes(s)
	say(StepActed, next.what, -1)
	if r.read = false; !s.Patient { // those do nothing to the donor
		r.readAt = time.Time{}
	}
	if rec, ok := r.Cluster.(Recorder); ok && s.Notify != "" && !p.notified {
		p.notified = true
		rec.Record(ctx, r.node, "Kamino"+s.Notify, next.what)
	}
	if next.steps {
		return next, next.do(ctx)
	}
	return r.bounded(ctx, func(ctx context.Context) (Next, error) { return next, next.do(ctx) })
}

// bounded ends calls before the lease can run out. A process that was frozen
// must not wake up and act on what another has taken over meanwhile.
func (r *Run) bounded(ctx context.Context, calls func(context.Context) (Next, error)) (Next, error) {
	limited, cancel := r.clock().WithTimeout(ctx, actTimeout)
	defer cancel()
	next, err := calls(limited)
	if over := limited.Err(); over != nil && errors.Is(err, over) && ctx.Err() == nil {
		err = fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	return next, err
}
