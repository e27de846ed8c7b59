package workflow

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"kamino.dev/kamino"
)

// world is what the steps of these tests look at. It is the clock, the lock and the host of its
// runner, too: time passes in its sleeps only.
type world struct {
	kamino.WallClock
	now    time.Time
	events []string
	acts   int
	dirty  bool   // the run has changed something
	again  string // what the lock says at the next intent
	lost   error  // of the lock
	paused error
	warned []string
	slept  []time.Duration
}

func (w *world) Now() time.Time                           { return w.now }
func (w *world) Begins(string)                            {}
func (w *world) Tell(ev kamino.Event)                     { w.events = append(w.events, string(ev.Kind)) }
func (w *world) Untouched() bool                          { return !w.dirty }
func (w *world) Took(Step)                                {}
func (w *world) Waits()                                   {}
func (w *world) HeldUp(context.Context, Step) error       { return w.paused }
func (w *world) Renew(context.Context) error              { return w.lost }
func (w *world) ActLimit() time.Duration                  { return time.Minute }
func (w *world) Acting(context.Context, Step, Next, bool) {}

func (w *world) WithTimeout(ctx context.Context, _ time.Duration) (context.Context, context.CancelFunc) {
	return context.WithCancel(ctx)
}

func (w *world) Passed(s Step, took kamino.StepTime, failure error) {
	if failure != nil {
		w.warned = append(w.warned, failure.Error())
	}
}

func (w *world) Intend(context.Context, string, Next, time.Time) (string, error) {
	again := w.again
	w.again = ""
	return again, w.lost
}

func (w *world) Sleep(ctx context.Context, d time.Duration) error {
	w.now, w.slept = w.now.Add(d), append(w.slept, d)
	return ctx.Err()
}

func (w *world) run(ctx context.Context, steps ...Step) error {
	w.now = time.Date(2026, 3, 10, 10, 0, 0, 0, time.UTC)
	x := Runner{Host: w, Lock: w, Clock: w, MinPoll: time.Second, MaxPoll: 5 * time.Second}
	return x.Exec(ctx, steps)
}

// acting is a look that asks for an act until it was made n times.
func acting(n int) func(*world, context.Context) (Next, error) {
	return func(w *world, _ context.Context) (Next, error) {
		if w.acts >= n {
			return Done("all acts"), nil
		}
		return Act(kamino.ActEvict, "evict", func(context.Context) error { w.acts++; return nil }), nil
	}
}

// failing is a look that always fails.
func failing(err error) func(*world, context.Context) (Next, error) {
	return func(*world, context.Context) (Next, error) { return Next{}, err }
}

// TestExec: what comes of a step, and what is told of it.
func TestExec(t *testing.T) {
	refused := &kamino.RefusedError{Subject: "node n"}
	throttled := func(d time.Duration) error { return &kamino.ThrottledError{After: d, Err: errors.New("slow down")} }
	for name, tt := range map[string]struct {
		look   func(*world, context.Context) (Next, error)
		step   Step
		world  world
		want   string // the kinds of the events
		failed string // what the error says; "" none
		acts   int
		slept  time.Duration // at least
	}{
		"done already":      {look: acting(0), want: "started done"},
		"not needed":        {step: Step{When: func() bool { return false }}, want: "skipped"},
		"an act":            {look: acting(1), want: "started acted done", acts: 1},
		"the act again":     {look: acting(2), want: "started acted waiting waiting acted done", acts: 2, slept: 2 * time.Second},
		"a second look":     {look: acting(1), world: world{again: "writing the lease took 20s"}, want: "started waiting waiting acted done", acts: 1},
		"the lock is lost":  {look: acting(1), step: Step{Stubborn: true}, world: world{lost: kamino.ErrLeaseLost}, want: "started failed", failed: "taken over"},
		"refused":           {look: failing(refused), want: "started refused", failed: "node n"},
		"refused too late":  {look: failing(refused), world: world{dirty: true}, want: "started failed", failed: "node n"},
		"spare":             {look: failing(refused), step: Step{Spare: true}, want: "started warning"},
		"final":             {look: failing(errors.New("broken")), want: "started failed", failed: "broken"},
		"never":             {look: failing(kamino.ErrUnavailable), step: Step{Limit: 3 * time.Second}, failed: "not done after", slept: 3 * time.Second},
		"stubborn":          {look: failing(errors.New("broken")), step: Step{Stubborn: true, Limit: 10 * time.Second}, failed: "not done after", slept: 10 * time.Second},
		"silence for long":  {look: failing(throttled(2 * time.Hour)), want: "started retry failed", failed: "longer than a run waits"},
		"paused":            {look: failing(kamino.ErrUnavailable), world: world{paused: errors.New("paused")}, want: "started retry failed", failed: "paused"},
		"waits for someone": {look: func(*world, context.Context) (Next, error) { return Wait("somebody"), nil }, step: Step{Limit: time.Minute}, failed: "last waiting for: somebody", slept: time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			w := tt.world
			tt.step.Name, tt.step.Look = "x", func(ctx context.Context) (Next, error) { return tt.look(&w, ctx) }
			err := w.run(t.Context(), tt.step)
			var failed *kamino.StepError
			if tt.failed == "" && err != nil || tt.failed != "" && (!errors.As(err, &failed) || failed.Step != "x" || !strings.Contains(err.Error(), tt.failed)) {
				t.Errorf("%v, want %q", err, tt.failed)
			}
			if failed != nil && failed.Refused != slices.Contains(w.events, string(kamino.EventRefused)) {
				t.Errorf("refused: %t; events %q", failed.Refused, w.events)
			}
			if got := strings.Join(w.events, " "); tt.want != "" && got != tt.want || w.acts != tt.acts {
				t.Errorf("%q and %d acts, want %q and %d", got, w.acts, tt.want, tt.acts)
			}
			var slept time.Duration
			for _, d := range w.slept {
				slept += d
			}
			if slept < tt.slept {
				t.Errorf("it waited for %s, want %s", slept, tt.slept)
			}
			if (len(w.warned) > 0) != tt.step.Spare {
				t.Errorf("warnings %q", w.warned)
			}
		})
	}
}

// TestSilence: while a service asked to be left alone, the same act is not tried again; another is.
func TestSilence(t *testing.T) {
	w := &world{}
	var tried []string
	throttledOnce := func(of string) Next {
		return Act(kamino.ActEvict, "evict "+of, func(context.Context) error {
			if tried = append(tried, fmt.Sprint(of, " after ", w.now.Hour()*60+w.now.Minute()-600)); of == "a" && len(tried) == 1 {
				return &kamino.ThrottledError{After: 10 * time.Minute, Err: errors.New("slow down")}
			}
			w.acts++
			return nil
		}).Of(of)
	}
	err := w.run(t.Context(), Step{Name: "x", Look: func(context.Context) (Next, error) {
		switch {
		case len(tried) == 0:
			return throttledOnce("a"), nil
		case w.acts == 0:
			return throttledOnce("b"), nil
		case w.acts == 1:
			return throttledOnce("a"), nil
		}
		return Done("both"), nil
	}})
	if want := []string{"a after 0", "b after 10", "a after 10"}; err != nil || !slices.Equal(tried, want) {
		t.Errorf("tried %q, want %q; %v", tried, want, err)
	}
}

// TestInterrupted: a run that is told to stop ends at once, whatever it waits for.
func TestInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	w := &world{}
	err := w.run(ctx, Step{Name: "x", Stubborn: true, Look: func(context.Context) (Next, error) {
		cancel(errors.New("SIGTERM"))
		return Wait("nothing that ever comes"), nil
	}})
	if err == nil || !errors.Is(err, context.Canceled) || len(w.slept) > 1 {
		t.Errorf("%v after %d waits", err, len(w.slept))
	}
}
