package kamino

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"
)

// StepOf is a named, idempotent part of a run. Its Look reads the world and says
// what is next: the step is done, something must be done, or there is
// something to wait for. A [Runner] does it and looks again.
type StepOf[R any] struct {
	Name     string
	Original string // the numbers of these steps in the original's description
	Does     string // what it does, for people
	Back     string // what is given back when a later step fails

	// Limit is how long the step may take, time of throttling not counted; 0 means half an hour.
	Limit time.Duration
	// Shown is the limit that people are told, where it is another; nil: it is not.
	Shown func(R) time.Duration
	// Patient steps wait for long operations while nothing is away.
	Patient bool
	// Stubborn steps give something back: they try again after any error.
	Stubborn bool
	// Spare steps clean up: when one fails, the run goes on and warns.
	Spare bool
	// Takes is what the run holds once the step has acted, in words for people, and Until the name
	// of the step that gives it back. Ends is the name of a step whose takings end with this one,
	// too.
	Takes, Until, Ends string
	// DonorBack: once this step is done, or not needed, the run has no donor away.
	DonorBack bool
	// Notify puts an event on the donor when the step first acts, which says Tells or, without,
	// what it is about to do.
	Notify, Tells string

	When func(R) bool // nil: always
	Look func(R, context.Context) (Next, error)
	Plan func(R) string // what a dry-run prints; nil: Does
}

// Host is the run whose steps a [Runner] runs.
type Host[R any] interface {
	// Begins is told the name of the step that begins.
	Begins(step string)
	// Tell reports an event.
	Tell(Event)
	// Untouched says whether the run has changed nothing yet, so that an error that the same command
	// would meet again is a refusal.
	Untouched() bool
	// Acting is called before each act of a step, once it is written down.
	Acting(ctx context.Context, s StepOf[R], next Next, first bool)
	// Took is told that a step holds what it takes.
	Took(s StepOf[R])
	// Passed is told that a step is over: done, not needed, or failed where the run goes on.
	Passed(s StepOf[R], took StepTime, failure error)
	// Waits is told of each wait: what was read before is old after it.
	Waits()
	// HeldUp is why a run that works has to end now; nil: it goes on.
	HeldUp(ctx context.Context, s StepOf[R]) error
}

// Lock keeps others from what a [Runner] acts on, and writes down what it is about to do.
type Lock interface {
	// Intend writes down what a step is about to do after a look that began at looked, and fails where
	// the lock is lost. again is why the runner must look once more before it acts; "" it need not.
	Intend(ctx context.Context, step string, next Next, looked time.Time) (again string, err error)
	// ActLimit is how long an act may take.
	ActLimit() time.Duration
	// Renew keeps the lock. It fails where that is lost.
	Renew(ctx context.Context) error
	// Sleep waits, and keeps the lock meanwhile.
	Sleep(ctx context.Context, d time.Duration) error
}

// Runner runs steps: it looks, writes down what the look asks for, does that, and looks again.
type Runner[R any] struct {
	Run   R // what steps are called with
	Host  Host[R]
	Lock  Lock
	Clock Clock
	// MinPoll and MaxPoll bound the time between two looks.
	MinPoll, MaxPoll time.Duration

	since     time.Time     // when the step began
	throttled time.Duration // how long others asked the step to be silent
	// silent is before when the service wants to be asked for no such act again. A run that ends
	// meanwhile and gives back waits as well.
	silent map[deed]time.Time
}

const (
	defaultLimit = 30 * time.Minute
	// unlimited steps count their time themselves. The limit is for a world that
	// never answers, in which they cannot.
	unlimited = 24 * time.Hour
	// longestSilence is the longest time for which a service may refuse calls before a run gives up.
	// The marks of the donor stay then, for a restore.
	longestSilence = time.Hour
	// pauseSeen is how seldom a run that works asks whether it is to end.
	pauseSeen = time.Minute
)

// Exec runs steps in order until one fails.
func (x *Runner[R]) Exec(ctx context.Context, steps []StepOf[R]) error {
	for i, s := range steps {
		ev := Event{Step: s.Name, Number: i + 1, Total: len(steps), Percent: -1}
		if s.When != nil && !s.When(x.Run) {
			ev.Kind, ev.Message = StepSkipped, "not needed"
			x.Host.Tell(ev)
			x.Host.Passed(s, StepTime{Name: s.Name, Skipped: true}, nil)
			continue
		}
		err := x.step(ctx, s, ev)
		if err != nil && (!s.Spare || ctx.Err() != nil || errors.Is(err, ErrLeaseLost)) {
			return err
		}
		x.Host.Passed(s, StepTime{Name: s.Name, Seconds: x.Spent().Seconds()}, err)
	}
	return nil
}

// step looks, acts and waits until the step is done, has failed or has taken
// too long.
func (x *Runner[R]) step(ctx context.Context, s StepOf[R], ev Event) error {
	x.since, x.throttled = x.Clock.Now(), 0
	x.Host.Begins(s.Name)
	p := pace[R]{runner: x, step: s, began: x.since, acts: map[deed]int{}}
	limit := x.limit(s)
	say := func(kind EventKind, message string, percent int) {
		if ev.Limit = 0; kind == StepWaiting {
			ev.Limit = limit
		}
		ev.Kind, ev.Message, ev.Percent, ev.Elapsed = kind, message, percent, x.Spent()
		x.Host.Tell(ev)
	}
	failed := StepFailed
	if s.Spare {
		failed = Warned
	}
	say(StepStarted, s.Does, -1)
	for {
		next, err := x.advance(ctx, s, &p, say)
		if err == nil && next.kind == nextDone {
			x.Host.Took(s)
			say(StepDone, next.what, -1)
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
			refused := next.kind != nextAct && refusing(err) && x.Host.Untouched()
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
		if err := cmp.Or(x.Lock.Renew(ctx), x.Host.HeldUp(ctx, s)); err != nil {
			say(failed, err.Error(), -1)
			return &StepError{Step: s.Name, Err: err}
		}
	}
}

// limit is how long a step may wait, as people are told; 0 where nothing but the world's end limits
// it.
func (x *Runner[R]) limit(s StepOf[R]) time.Duration {
	switch {
	case s.Shown != nil:
		return s.Shown(x.Run)
	case s.Limit == unlimited:
		return 0
	}
	return cmp.Or(s.Limit, defaultLimit)
}

// advance makes one look and, where it asks for one, one act.
func (x *Runner[R]) advance(ctx context.Context, s StepOf[R], p *pace[R], say func(EventKind, string, int)) (Next, error) {
	if err := ctx.Err(); err != nil {
		return Next{}, err
	}
	next, err := x.Bounded(Looking(ctx), func(ctx context.Context) (Next, error) { return s.Look(x.Run, ctx) })
	if err != nil || next.kind != nextAct {
		return next, err
	}
	what := deed{next.act, next.on}
	looked := x.Clock.Now()
	if left := x.silent[what].Sub(looked); left > 0 {
		return Next{}, &ThrottledError{After: left, Err: fmt.Errorf("%s: too many requests before", next.what)}
	}
	if p.tooSoon(what) {
		return wait("the effect of: " + next.what), nil
	}
	again, err := x.Lock.Intend(ctx, s.Name, next, looked)
	if err != nil {
		return next, err
	}
	if again != "" {
		return waitUpTo("rereading state: "+again, x.MinPoll), nil
	}
	x.Host.Took(s)
	say(StepActed, next.what, -1)
	x.Host.Acting(ctx, s, next, !p.acted)
	p.acted = true
	if next.steps {
		return next, next.do(ctx)
	}
	next, err = x.within(ctx, x.Lock.ActLimit(), func(ctx context.Context) (Next, error) { return next, next.do(ctx) })
	if t := (*ThrottledError)(nil); errors.As(err, &t) {
		if x.silent == nil {
			x.silent = map[deed]time.Time{}
		}
		x.silent[what] = x.Clock.Now().Add(t.After)
	}
	return next, err
}

// Bounded ends calls before the lease can run out. A process that was frozen
// must not wake up and act on what another has taken over meanwhile.
func (x *Runner[R]) Bounded(ctx context.Context, calls func(context.Context) (Next, error)) (Next, error) {
	return x.within(ctx, actTimeout, calls)
}

func (x *Runner[R]) within(ctx context.Context, limit time.Duration, calls func(context.Context) (Next, error)) (Next, error) {
	limited, cancel := x.Clock.WithTimeout(ctx, limit)
	defer cancel()
	next, err := calls(limited)
	if over := limited.Err(); over != nil && errors.Is(err, over) && ctx.Err() == nil {
		err = fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	return next, err
}

// Spent is how long the running step has taken.
func (x *Runner[R]) Spent() time.Duration { return x.Clock.Now().Sub(x.since) }

// Worked is Spent without the time in which the service asked for silence.
func (x *Runner[R]) Worked() time.Duration { return x.Spent() - x.throttled }

// errOverdue: a step has taken longer than its limit.
var errOverdue = errors.New("not done")

// pace decides how long to wait between looks.
type pace[R any] struct {
	runner   *Runner[R]
	step     StepOf[R]
	began    time.Time
	failures int
	acts     map[deed]int
	acted    bool      // an act was begun
	hold     time.Time // before which no act is repeated
}

func (p *pace[R]) reset() { p.began = p.runner.Clock.Now(); p.failures = 0 }

// tooSoon says whether an act that was already made must be given time to
// show, so that a slow or lying service is not flooded.
func (p *pace[R]) tooSoon(what deed) bool {
	now := p.runner.Clock.Now()
	if n := p.acts[what]; n > 0 && now.Before(p.hold) {
		return true
	}
	p.acts[what]++
	back := min(time.Second<<min(p.acts[what], 6), 30*time.Second)
	p.hold = now.Add(back)
	return false
}

// pause waits as long as the last look or failure demands.
func (p *pace[R]) pause(ctx context.Context, next Next, failure error) error {
	x := p.runner
	limit := cmp.Or(p.step.Limit, defaultLimit)
	if spent := x.Worked(); spent > limit {
		if failure != nil {
			return fmt.Errorf("%w after %s: %w", errOverdue, spent.Round(time.Second), failure)
		}
		return fmt.Errorf("%w after %s, last waiting for: %s", errOverdue, spent.Round(time.Second), next.what)
	}
	d := max(p.delay(x.Clock.Now()), next.after)
	if next.within > 0 {
		d = min(d, next.within)
	}
	var t *ThrottledError
	if errors.As(failure, &t) && t.After > longestSilence {
		return fmt.Errorf("%w: the next call is allowed in %s, which is longer than a run waits: %w", errOverdue, t.After.Round(time.Minute), failure)
	} else if t != nil {
		d = max(t.After, d)
		x.throttled += d
	} else if failure != nil {
		p.failures++
		d = min(x.MinPoll<<min(p.failures-1, 6), 30*time.Second)
	}
	x.Host.Waits()
	for ; d > pauseSeen; d -= pauseSeen { // a pause of the cluster ends a wait for a service, too
		if err := x.Lock.Sleep(ctx, pauseSeen); err != nil {
			return err
		}
		if err := x.Host.HeldUp(ctx, p.step); err != nil {
			return err
		}
	}
	return x.Lock.Sleep(ctx, d)
}

// delay grows with the time already waited, so that short waits end promptly
// and long ones cost few calls.
func (p *pace[R]) delay(now time.Time) time.Duration {
	most := p.runner.MaxPoll
	if p.step.Patient {
		most *= 3
	}
	return min(max(now.Sub(p.began)/20, p.runner.MinPoll), max(most, p.runner.MinPoll))
}
