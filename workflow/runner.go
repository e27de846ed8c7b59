// Package workflow runs steps. A step is done only when a look shows it, not when a call succeeds.
// So a lost reply, a false failure and a false success all end the same way. The package knows no
// pool and no node.
package workflow

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"kamino.dev/kamino"
)

// Step is a named, idempotent part of a run. Its Look reads the cluster and the cloud and returns
// what is next: the step is done, an act is needed, or there is something to wait for. A [Runner]
// makes the act and looks again.
type Step struct {
	Name     string
	Original string // points of the original script's list that the step implements
	Does     string // what the step does, for people
	Back     string // what is restored when a later step fails

	// Limit is how long the step may take, without the time of throttling; 0 means half an hour.
	Limit time.Duration
	// Shown returns the limit that people see, if it differs from Limit; else nil.
	Shown func() time.Duration
	// Patient: the step waits for a long operation while nothing is away.
	Patient bool
	// Stubborn: the step restores something, and tries again after any error.
	Stubborn bool
	// Spare: the step cleans up. If it fails, the run continues with a warning.
	Spare bool
	// Takes describes what the run holds once the step has acted. Until names the step that
	// restores it. Ends names an earlier step; what that step took counts as restored once this
	// step is done.
	Takes, Until, Ends string
	// DonorBack: once this step is done, or not needed, the run has no donor away.
	DonorBack bool
	// Notify is the reason of an event on the donor when the step first acts. Its text is Tells, or
	// what the step is about to do.
	Notify, Tells string

	When func() bool // the step is needed; nil: always
	Look func(context.Context) (Next, error)
	Plan func() string // what a dry run prints; nil: Does
}

// Host is the run whose steps a [Runner] runs.
type Host interface {
	// Begins is called with the name of the step that begins.
	Begins(step string)
	// Tell reports an event.
	Tell(kamino.Event)
	// Untouched reports whether the run has changed nothing yet. Then an error that the same
	// command would meet again is a refusal.
	Untouched() bool
	// Acting is called before each act of a step, after the act was written down.
	Acting(ctx context.Context, s Step, next Next, first bool)
	// Took is called when a step holds what it takes.
	Took(s Step)
	// Passed is called when a step is over: done, not needed, or failed where the run continues.
	Passed(s Step, took kamino.StepTime, failure error)
	// Waits is called for each wait. What was read before the wait is old.
	Waits()
	// HeldUp returns why the run has to end now; nil: it continues.
	HeldUp(ctx context.Context, s Step) error
}

// Lock excludes other runs, and writes down what a [Runner] is about to do.
type Lock interface {
	// Intend writes down the next act of a step, found by a look that began at looked. It fails if
	// the lock is lost. again is why the runner must look once more before the act; "" if it need
	// not.
	Intend(ctx context.Context, step string, next Next, looked time.Time) (again string, err error)
	// ActLimit is how long an act may take.
	ActLimit() time.Duration
	// Renew keeps the lock. It fails if the lock is lost.
	Renew(ctx context.Context) error
	// Sleep waits, and keeps the lock meanwhile.
	Sleep(ctx context.Context, d time.Duration) error
}

// Runner runs steps: it looks, writes down the act that the look asks for, makes it, and looks
// again.
type Runner struct {
	Host  Host
	Lock  Lock
	Clock kamino.Clock
	// MinPoll and MaxPoll limit the time between two looks.
	MinPoll, MaxPoll time.Duration

	since     time.Time     // when the step began
	throttled time.Duration // total time for which services asked the step to back off
	// silent is until when a service wants no more calls of an act. A run that fails meanwhile and
	// restores waits as well.
	silent map[ActKey]time.Time
}

const (
	// DefaultLimit is the limit of steps without one of their own.
	DefaultLimit = 30 * time.Minute
	// Unlimited is the limit of steps that measure their time themselves. It matters only if every
	// look fails, because then they cannot.
	Unlimited = 24 * time.Hour
	// longestSilence is how long a service may refuse calls before a run gives up. The donor's
	// marks then stay, for a restore.
	longestSilence = time.Hour
	// PauseSeen is the interval at which a run checks whether it has to end.
	PauseSeen = time.Minute
)

// Exec runs steps in order until one fails.
func (x *Runner) Exec(ctx context.Context, steps []Step) error {
	for i, s := range steps {
		ev := kamino.Event{Step: s.Name, Number: i + 1, Total: len(steps), Percent: -1}
		if s.When != nil && !s.When() {
			ev.Kind, ev.Message = kamino.EventSkipped, "not needed"
			x.Host.Tell(ev)
			x.Host.Passed(s, kamino.StepTime{Name: s.Name, Skipped: true}, nil)
			continue
		}
		err := x.step(ctx, s, ev)
		if err != nil && (!s.Spare || ctx.Err() != nil || errors.Is(err, kamino.ErrLeaseLost)) {
			return err
		}
		x.Host.Passed(s, kamino.StepTime{Name: s.Name, Seconds: x.Spent().Seconds()}, err)
	}
	return nil
}

// step looks, acts and waits until the step is done, has failed, or has reached its limit.
func (x *Runner) step(ctx context.Context, s Step, ev kamino.Event) error {
	x.since, x.throttled = x.Clock.Now(), 0
	x.Host.Begins(s.Name)
	p := pace{runner: x, step: s, began: x.since, acts: map[ActKey]int{}}
	limit := x.limit(s)
	say := func(kind kamino.EventKind, message string, percent int) {
		if ev.Limit = 0; kind == kamino.EventWaiting {
			ev.Limit = limit
		}
		ev.Kind, ev.Message, ev.Percent, ev.Elapsed = kind, message, percent, x.Spent()
		x.Host.Tell(ev)
	}
	failed := kamino.EventFailed
	if s.Spare {
		failed = kamino.EventWarning
	}
	say(kamino.EventStarted, s.Does, -1)
	for {
		next, err := x.advance(ctx, s, &p, say)
		if err == nil && next.Kind == NextDone {
			x.Host.Took(s)
			say(kamino.EventDone, next.What, -1)
			return nil
		}
		switch acted := err == nil && next.Kind == NextAct; {
		case acted && next.Why == "":
			p.reset()
			continue
		case acted:
			p.reset()
			say(kamino.EventWaiting, next.Why, -1)
		case err == nil:
			say(kamino.EventWaiting, next.What, next.Percent)
		case ctx.Err() == nil && (kamino.Transient(err) || s.Stubborn) && !errors.Is(err, kamino.ErrLeaseLost):
			say(kamino.EventRetry, err.Error(), -1)
		default:
			err = kamino.Interrupted(ctx, err)
			refused := next.Kind != NextAct && kamino.Refusing(err) && x.Host.Untouched()
			if refused && !s.Spare {
				failed = kamino.EventRefused
			}
			say(failed, err.Error(), -1)
			return &kamino.StepError{Step: s.Name, Err: err, Refused: refused}
		}
		if err := p.pause(ctx, next, err); err != nil {
			err = kamino.Interrupted(ctx, err)
			say(failed, err.Error(), -1)
			return &kamino.StepError{Step: s.Name, Err: err}
		}
		if err := cmp.Or(x.Lock.Renew(ctx), x.Host.HeldUp(ctx, s)); err != nil {
			say(failed, err.Error(), -1)
			return &kamino.StepError{Step: s.Name, Err: err}
		}
	}
}

// limit returns how long a step may wait, as people see it; 0 if only Unlimited applies.
func (x *Runner) limit(s Step) time.Duration {
	switch {
	case s.Shown != nil:
		return s.Shown()
	case s.Limit == Unlimited:
		return 0
	}
	return cmp.Or(s.Limit, DefaultLimit)
}

// advance makes one look and, if the look asks for one, one act.
func (x *Runner) advance(ctx context.Context, s Step, p *pace, say func(kamino.EventKind, string, int)) (Next, error) {
	if err := ctx.Err(); err != nil {
		return Next{}, err
	}
	next, err := x.Bounded(kamino.Looking(ctx), s.Look)
	if err != nil || next.Kind != NextAct {
		return next, err
	}
	what := ActKey{next.Act, next.On}
	looked := x.Clock.Now()
	if left := x.silent[what].Sub(looked); left > 0 {
		return Next{}, &kamino.ThrottledError{After: left, Err: fmt.Errorf("%s: too many requests before", next.What)}
	}
	if p.tooSoon(what) {
		return Wait(next.What + ": waiting for the effect"), nil
	}
	again, err := x.Lock.Intend(ctx, s.Name, next, looked)
	if err != nil {
		return next, err
	}
	if again != "" {
		return WaitUpTo("rereading state: "+again, x.MinPoll), nil
	}
	x.Host.Took(s)
	say(kamino.EventActed, next.What, -1)
	x.Host.Acting(ctx, s, next, !p.acted)
	p.acted = true
	if next.HasSteps {
		return next, next.Do(ctx)
	}
	next, err = x.within(ctx, x.Lock.ActLimit(), func(ctx context.Context) (Next, error) { return next, next.Do(ctx) })
	if t := (*kamino.ThrottledError)(nil); errors.As(err, &t) {
		if x.silent == nil {
			x.silent = map[ActKey]time.Time{}
		}
		x.silent[what] = x.Clock.Now().Add(t.After)
	}
	return next, err
}

// Bounded runs calls that end before the lease can expire. A process that was frozen must not wake
// up and act on something that another process has taken over.
func (x *Runner) Bounded(ctx context.Context, calls func(context.Context) (Next, error)) (Next, error) {
	return x.within(ctx, kamino.ActTimeout, calls)
}

func (x *Runner) within(ctx context.Context, limit time.Duration, calls func(context.Context) (Next, error)) (Next, error) {
	limited, cancel := x.Clock.WithTimeout(ctx, limit)
	defer cancel()
	next, err := calls(limited)
	if over := limited.Err(); over != nil && errors.Is(err, over) && ctx.Err() == nil {
		err = fmt.Errorf("%w: %w", kamino.ErrUnavailable, err)
	}
	return next, err
}

// Spent is how long the running step has taken.
func (x *Runner) Spent() time.Duration { return x.Clock.Now().Sub(x.since) }

// Worked is Spent without the time for which services asked to back off.
func (x *Runner) Worked() time.Duration { return x.Spent() - x.throttled }

// ErrOverdue says that a step has reached its limit.
var ErrOverdue = errors.New("not done")

// pace decides how long to wait between looks.
type pace struct {
	runner   *Runner
	step     Step
	began    time.Time
	failures int
	acts     map[ActKey]int
	acted    bool      // an act was made
	hold     time.Time // no act is repeated before this time
}

func (p *pace) reset() { p.began = p.runner.Clock.Now(); p.failures = 0 }

// tooSoon reports whether an act that was made needs more time to show its effect. So a service
// that is slow, or answers falsely, gets few calls.
func (p *pace) tooSoon(what ActKey) bool {
	now := p.runner.Clock.Now()
	if n := p.acts[what]; n > 0 && now.Before(p.hold) {
		return true
	}
	p.acts[what]++
	back := min(time.Second<<min(p.acts[what], 6), 30*time.Second)
	p.hold = now.Add(back)
	return false
}

// pause waits as long as the last look or failure requires.
func (p *pace) pause(ctx context.Context, next Next, failure error) error {
	x := p.runner
	limit := cmp.Or(p.step.Limit, DefaultLimit)
	if spent := x.Worked(); spent > limit {
		if failure != nil {
			return fmt.Errorf("%w after %s: %w", ErrOverdue, spent.Round(time.Second), failure)
		}
		return fmt.Errorf("%w after %s, last waiting for: %s", ErrOverdue, spent.Round(time.Second), next.What)
	}
	d := max(p.delay(x.Clock.Now()), next.After)
	if next.Within > 0 {
		d = min(d, next.Within)
	}
	var t *kamino.ThrottledError
	if errors.As(failure, &t) && t.After > longestSilence {
		return fmt.Errorf("%w: the next call is allowed in %s, which is longer than a run waits: %w", ErrOverdue,
			t.After.Round(time.Minute), failure)
	} else if t != nil {
		d = max(t.After, d)
		x.throttled += d
	} else if failure != nil {
		p.failures++
		d = min(x.MinPoll<<min(p.failures-1, 6), 30*time.Second)
	}
	x.Host.Waits()
	for ; d > PauseSeen; d -= PauseSeen { // a pause of the cluster also ends a wait for a service
		if err := x.Lock.Sleep(ctx, PauseSeen); err != nil {
			return err
		}
		if err := x.Host.HeldUp(ctx, p.step); err != nil {
			return err
		}
	}
	return x.Lock.Sleep(ctx, d)
}

// delay grows with the time already waited, so that short waits end promptly and long ones cost few
// calls.
func (p *pace) delay(now time.Time) time.Duration {
	most := p.runner.MaxPoll
	if p.step.Patient {
		most *= 3
	}
	return min(max(now.Sub(p.began)/20, p.runner.MinPoll), max(most, p.runner.MinPoll))
}
