// Package engine has the runs of Kamino: update, patch, prove, promote, withdraw, rollback,
// restore, plan, auto-update and doctor. [Pipeline] is the list of steps of an update; the same
// list drives the command line, the Job, the dry run, the progress output and the docs. An [Engine]
// runs steps: it looks, acts, looks again, waits, continues what another process left, and restores
// what was taken.
package engine

import (
	"sync"
	"time"

	"kamino.dev/kamino"
	"kamino.dev/kamino/poolstate"
)

// Engine runs steps against one provider and one cluster. Its fields are set once. Every method may
// be called by several goroutines, for several pools.
//
// A method that works on several pools runs them in parallel and calls the functions in the fields
// from several goroutines at once. Only the calls of Report, DonorBack and Holds for one pool come
// one at a time. Until a run has read its pool, Report and Holds name no pool.
type Engine struct {
	Provider kamino.Provider
	Cluster  kamino.Cluster
	Clock    kamino.Clock // nil: the wall clock
	// Process is the name of this process on a lease: host/pid and a unique part, because
	// containers may share both. The process whose name is on a lease holds it.
	Process string
	Report  func(kamino.Event) // nil: events are dropped
	// NewID makes an ID for a new run: lower-case letters, digits and dashes, at most 40
	// characters.
	NewID func() string
	// MinPoll and MaxPoll limit the time between two looks of a wait; zero means 1 s and 5 s.
	// Patient steps wait up to three times as long. (ARM allows 12 reads of an instance a minute,
	// with bursts of 36:
	// https://learn.microsoft.com/azure/virtual-machines/compute-throttling-limits.) A MinPoll
	// above LongestPoll can make runs fail.
	MinPoll, MaxPoll time.Duration
	// SettleLimit limits each wait for cluster-autoscaler; zero: no limit. It is for tests, in
	// whose clusters no autoscaler runs.
	SettleLimit time.Duration

	// DonorBack, if set, is called as soon as a run has no donor of the pool away and will take
	// none, also by runs that need none.
	DonorBack func(kamino.PoolID)
	// Holds, if set, is called with what a run of the pool holds, worded for people, whenever that
	// may have changed.
	Holds func(pool kamino.PoolID, what []string)
	// Sighted, if set, returns since when this process has seen a pool's lease at a revision; zero:
	// it has not. That time counts as watching the lease, so a standby process need not begin to
	// watch when the other process ends.
	Sighted func(pool kamino.PoolID, revision string) time.Time
	// Threads, if set, runs n bodies in parallel in place of goroutines, each with an engine of its
	// own, and returns when all have ended. A simulation lets one run at a time.
	Threads func(n int, body func(*Engine, int))
}

// now is for measuring, date for times that are written down.
func (e *Engine) now() time.Time { return e.clock().Now() }

func (e *Engine) date() time.Time { return e.now().UTC() }

// LongestPoll is the longest interval between two reads of a donor, in which it must not be able to
// go off and on again.
const LongestPoll = 10 * time.Second

func (e *Engine) clock() kamino.Clock {
	if e.Clock == nil {
		return kamino.WallClock{}
	}
	return e.Clock
}

func (e *Engine) report(ev kamino.Event) {
	if e.Report != nil {
		ev.Time = e.date()
		e.Report(ev)
	}
}

// inTurn calls do for 0 to n-1, each with an engine of its own: the urgent ones all at once, and in
// parallel the others, at most Readers at a time. It returns when all have ended.
func (e *Engine) inTurn(n int, urgent func(int) bool, do func(*Engine, int)) {
	var now, later []int
	for i := range n {
		if urgent(i) {
			now = append(now, i)
		} else {
			later = append(later, i)
		}
	}
	var mu sync.Mutex
	next := func() (i int, ok bool) {
		mu.Lock()
		defer mu.Unlock()
		if len(later) == 0 {
			return 0, false
		}
		i, later = later[0], later[1:]
		return i, true
	}
	e.beside(len(now)+min(len(later), poolstate.Readers), func(e *Engine, worker int) {
		if worker < len(now) {
			do(e, now[worker])
			return
		}
		for i, ok := next(); ok; i, ok = next() {
			do(e, i)
		}
	})
}

// noneUrgent is for calls of inTurn where nothing is urgent.
func noneUrgent(int) bool { return false }

// beside calls body n times in parallel and returns when all have ended.
func (e *Engine) beside(n int, body func(*Engine, int)) {
	if e.Threads != nil {
		e.Threads(n, body)
		return
	}
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { body(e, i) })
	}
	wg.Wait()
}

func (e *Engine) minPoll() time.Duration {
	if e.MinPoll > 0 {
		return e.MinPoll
	}
	return time.Second
}
