package controller

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"kamino.dev/kamino"
	"kamino.dev/kamino/engine"
)

// run is a run of auto-update for one prototype, by this process. Readers get a copy.
type run struct {
	running  bool
	id, step string
	percent  int // -1: not known
	began    time.Time
	ended    time.Time
	err      error // error of the last run
	failures int   // number of failures in a row
	patched  time.Time
}

// failed reports whether the last run ended with an error that counts. That another process holds
// the pool, or that this process was told to end, does not.
func (r *run) failed() bool {
	if r == nil || r.err == nil {
		return false
	}
	held := (*kamino.HeldError)(nil)
	return !errors.As(r.err, &held) && !errors.Is(r.err, context.Canceled)
}

// runs are the runs of this process, by the name of their prototypes.
type runs struct {
	engine *engine.Engine
	log    *slog.Logger
	report func(kamino.Event)
	turns  chan struct{}     // one for each donor that may be away
	wake   func(name string) // "": all prototypes
	ended  func(name, pool string, results []engine.PoolResult, err error)

	mu   sync.Mutex
	of   map[string]*run
	on   context.Context // context of the process; nil before it leads
	busy sync.WaitGroup
}

// start lets runs begin. When ctx ends, each run gives back its donor: busy.Wait waits for that.
func (r *runs) start(ctx context.Context) {
	r.mu.Lock()
	r.on = ctx
	r.mu.Unlock()
	r.wake("")
}

// get returns the run of a prototype; nil if there is none.
func (r *runs) get(name string) *run {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.of[name] == nil {
		return nil
	}
	known := *r.of[name]
	return &known
}

func (r *runs) forget(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if one := r.of[name]; one != nil && !one.running {
		delete(r.of, name)
	}
}

// free reports whether a donor may be taken.
func (r *runs) free() bool { return len(r.turns) < cap(r.turns) }

// begin starts a run in the background, if a turn is free: auto-update, or a run that only restores
// what others took.
func (r *runs) begin(name string, opts kamino.AutoOptions, back bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	one := r.of[name]
	if r.on == nil || r.on.Err() != nil || one != nil && one.running {
		return
	}
	select {
	case r.turns <- struct{}{}:
	default:
		return
	}
	if one == nil {
		one = &run{}
		r.of[name] = one
	}
	one.running, one.began, one.percent, one.id, one.step = true, r.engine.Clock.Now(), -1, "", ""
	if opts.Patch != nil {
		one.patched = one.began
	}
	ctx := r.on
	r.busy.Go(func() { r.drive(ctx, name, one, opts, back) })
}

func (r *runs) drive(ctx context.Context, name string, one *run, opts kamino.AutoOptions, giveBack bool) {
	back := sync.OnceFunc(func() { <-r.turns; r.wake("") })
	eng := *r.engine
	eng.DonorBack = func(kamino.PoolID) { back() }
	eng.Report = func(ev kamino.Event) {
		r.report(ev)
		r.note(name, one, ev)
	}
	var results []engine.PoolResult
	var err error
	if giveBack {
		_, err = eng.Restore(ctx, engine.RestoreOptions{Pools: opts.Pools})
	} else {
		results, err = eng.AutoUpdate(ctx, opts)
	}
	back()
	r.mu.Lock()
	one.running, one.ended, one.err = false, r.engine.Clock.Now(), err
	if one.failed() {
		one.failures++
	} else if err == nil {
		one.failures = 0
	}
	failed := one.failed()
	r.mu.Unlock()
	if failed {
		r.log.Error("run failed", "prototype", name, "error", err, "hint", kamino.Hint(err))
	}
	r.ended(name, kamino.PoolID(opts.Pools[0]).Name(), results, err)
	r.wake(name)
}

// note records the events of a run that the status shows, and wakes its prototype.
func (r *runs) note(name string, one *run, ev kamino.Event) {
	r.mu.Lock()
	changed := one.step != ev.Step || one.percent != ev.Percent || one.id != ev.Run && ev.Run != ""
	if one.step, one.percent = ev.Step, ev.Percent; ev.Run != "" {
		one.id = ev.Run
	}
	r.mu.Unlock()
	if changed {
		r.wake(name)
	}
}

// context returns the context of runs; nil before they may begin.
func (r *runs) context() context.Context {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.on
}
