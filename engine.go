// Package kamino applies the Prototype Pattern to pools of Kubernetes nodes:
// take the best node running in a pool, make its OS disk the pool's image, and
// every new node is like it. Running nodes stay untouched.
//
// The package holds the words of the project, the two ports to the outside
// world, and the pipeline. It imports the standard library only.
//
//   - [Provider] is the port to a factory of VMs; package azure implements it.
//   - [Cluster] is the port to Kubernetes; package kube implements it.
//   - [Pipeline] is the list of steps of a run. The same list drives the
//     command line, the Job, the dry-run, the progress output and the docs.
//   - [Engine] runs steps: it looks at the world, acts, looks again, waits,
//     resumes what another process left, and gives back what was taken.
//
// A step never believes a reply. It is done only when a later read shows it,
// so a lost reply, a false failure and a false success all end the same way.
// Nothing is kept in files or databases: names can be computed, and what a run
// needs to be resumed stands on the pool's [Lease], on the donor's [Mark] and
// in the tags of what it made.
package kamino

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"
)

// Engine runs steps against one provider and one cluster. Its fields are set
// once; every method may be called by several goroutines, for several pools.
//
// A method that works on several pools runs them side by side and calls the functions in the
// fields from several goroutines at once. Only the calls of Report, DonorBack and Holds for one pool
// come one at a time. Until a run has read its pool, Report and Holds name no pool.
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
	// Holds, where set, is told what a run of the pool holds, in words for people, whenever that
	// may have changed.
	Holds func(pool PoolID, what []string)
	// Sighted, where set, tells since when this process has seen the lease of a pool as it is at a
	// revision; zero: it has not. That counts as watching it, so that a process that stands by
	// need not begin to watch when the other one's end is known.
	Sighted func(pool PoolID, revision string) time.Time
	// Threads, where set, runs n bodies side by side in place of goroutines, each with an engine of
	// its own, and returns when all have ended: a simulation lets one run at a time.
	Threads func(n int, body func(*Engine, int))
}

// Clock is the one source of time of a run: nothing else here reads the time, waits or gives up by
// it. Tests put a virtual clock here, whose Sleep advances it.
type Clock interface {
	// Now is this machine's time, with its monotonic reading where there is one. UTC, as JSON,
	// takes that off: so the zone is anybody's, and who writes a time down converts it.
	Now() time.Time
	// Sleep returns after d, or earlier with the context's error.
	Sleep(ctx context.Context, d time.Duration) error
	// WithTimeout is [context.WithTimeout] by this clock. With which error the
	// context ends is the clock's business.
	WithTimeout(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc)
}

// WallClock is the time of this machine.
type WallClock struct{}

// Now returns the present time. UTC would remove its monotonic reading
// (https://pkg.go.dev/time#hdr-Monotonic_Clocks), and who sets the clock would move every deadline.
func (WallClock) Now() time.Time { return time.Now() }

// Sleep waits for d or for the end of ctx.
func (WallClock) Sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}

// WithTimeout is [context.WithTimeout].
func (WallClock) WithTimeout(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, d)
}

// now is for measuring, date for what is written down.
func (e *Engine) now() time.Time { return e.clock().Now() }

func (e *Engine) date() time.Time { return e.now().UTC() }

// lookAge is how old a look may be when it is acted upon: a process that was
// frozen, or a cluster that answered late, has missed what happened meanwhile.
const lookAge = 10 * time.Second

// elapsed is how much later b is than a, by the clock that says more: the monotonic one stands
// still while the machine is suspended, and the other may be set back. Both stand still in a VM
// that is paused.
func elapsed(a, b time.Time) time.Duration { return max(b.Sub(a), b.Round(0).Sub(a.Round(0))) }

// LongestPoll is the longest interval between two reads of a donor: it must not
// be able to go off and on again between them.
const LongestPoll = 10 * time.Second

func (e *Engine) clock() Clock {
	if e.Clock == nil {
		return WallClock{}
	}
	return e.Clock
}

// EventKind is the kind of an Event.
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

func (e *Engine) report(ev Event) {
	if e.Report != nil {
		ev.Time = e.date()
		e.Report(ev)
	}
}

// poolOf is the pool of a node, "" where it is of none.
func (e *Engine) poolOf(ctx context.Context, n Node) (PoolID, error) {
	id, err := e.Provider.PoolOf(ctx, n.ProviderID)
	if errors.Is(err, ErrUnsupported) {
		return "", nil
	} else if err != nil {
		return "", fmt.Errorf("find the pool of node %s: %w", n.Name, err)
	}
	return id, nil
}

// nodesOf reads the nodes of a pool, by a list of all.
func (e *Engine) nodesOf(ctx context.Context, id PoolID) ([]Node, error) {
	nodes, err := e.Cluster.Nodes(ctx)
	if err != nil {
		return nil, fmt.Errorf("list nodes: %w", err)
	}
	return e.ofPool(ctx, nodes, id)
}

// ofPool are those of the nodes that belong to a pool.
func (e *Engine) ofPool(ctx context.Context, nodes []Node, id PoolID) (out []Node, err error) {
	for _, n := range nodes {
		pool, err := e.poolOf(ctx, n)
		if err != nil {
			return nil, err
		}
		if pool == id {
			out = append(out, n)
		}
	}
	return twins(out), nil
}

// inTurn calls do for 0 to n-1, each with an engine of its own: those that are urgent all at once,
// and beside them the others, as many at a time as readers. It returns when all have ended.
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
	e.beside(len(now)+min(len(later), readers), func(e *Engine, worker int) {
		if worker < len(now) {
			do(e, now[worker])
			return
		}
		for i, ok := next(); ok; i, ok = next() {
			do(e, i)
		}
	})
}

// noneUrgent is for inTurn where nothing is urgent.
func noneUrgent(int) bool { return false }

// beside calls body n times side by side and returns when all have ended.
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

// pauser is the cluster as one that knows the stop switch; nil when it knows none.
func (e *Engine) pauser() Examiner {
	examiner, _ := e.Cluster.(Examiner)
	return examiner
}

// Pause holds all new runs and promotions of the whole cluster; runs that work give back what they
// took and end. The reason is stored on the namespace kamino-system. Resume removes it.
func (e *Engine) Pause(ctx context.Context, reason string) error {
	if strings.TrimSpace(reason) == "" {
		return WithHint(errors.New("no reason given"), "--reason TEXT tells others why no run begins")
	}
	return e.setPaused(ctx, reason)
}

// Resume lets runs begin again.
func (e *Engine) Resume(ctx context.Context) error { return e.setPaused(ctx, "") }

func (e *Engine) setPaused(ctx context.Context, reason string) error {
	p := e.pauser()
	if p == nil {
		return fmt.Errorf("pause: %w", ErrUnsupported)
	}
	err := p.Pause(ctx, reason)
	switch {
	case err == nil:
		return nil
	case reason == "":
		return fmt.Errorf("resume: %w", err)
	}
	return fmt.Errorf("pause: %w", err)
}

// Pause is the state of the stop switch. Who set it and when is unknown if kubectl set it.
type Pause struct {
	Reason string    `json:"reason"` // "": nothing is held
	By     string    `json:"by,omitempty"`
	Since  time.Time `json:"since,omitzero"`
}

// String is for people; "" while nothing is held.
func (p Pause) String() string {
	text := Plain(p.Reason)
	if p.By != "" {
		text += " (by " + Plain(p.By) + ", since " + p.Since.UTC().Format(time.RFC3339) + ")"
	}
	return text
}

// Pause is what holds runs and promotions.
func (s PoolStatus) Pause() Pause { return Pause{s.Paused, s.PausedBy, s.PausedSince} }

// Paused is why new runs and promotions are held, zero when they are not.
func (e *Engine) Paused(ctx context.Context) (Pause, error) {
	p := e.pauser()
	if p == nil {
		return Pause{}, nil
	}
	return p.Paused(ctx)
}

const howToResume = "kamino resume ends it"

// CodePaused is the code of the refusal of a run or a promotion while the cluster is paused.
const CodePaused = "paused"

func (e *Engine) refusePaused(ctx context.Context) error {
	paused, err := e.Paused(ctx)
	if err != nil {
		return fmt.Errorf("read whether runs are paused: %w", err)
	}
	if paused.Reason == "" {
		return nil
	}
	return &RefusedError{Subject: "new runs and promotions", Refusals: []Refusal{{Code: CodePaused, Value: paused.Reason,
		Why: "the cluster is paused: " + paused.String(), Do: howToResume}}}
}

// AnnotationPaused on the namespace kamino-system is the stop switch; it holds the reason.
// AnnotationPausedBy holds a Pause as JSON, which counts only where its reason is the same.
const (
	AnnotationPaused   = "kamino.dev/paused"
	AnnotationPausedBy = "kamino.dev/paused-by"
)

// heldUp ends a run that works when the cluster is paused. A switch that cannot be read stops
// nothing; what gives back, or takes a version back, goes on.
func (r *Run) heldUp(ctx context.Context, s Step) error {
	now := r.engine.now()
	if r.held.lease == nil || r.held.givingBack || s.Stubborn || r.takesBack() || !r.held.mine() || now.Sub(r.pauseAsked) < pauseSeen {
		return nil
	}
	var refused *RefusedError
	if err := r.refusePaused(ctx); errors.As(err, &refused) {
		return err
	}
	return nil
}

// takesBack says whether a run is a withdrawal or a rollback, or withdraws a version that has
// failed its proof. A pause, which people set in an incident, leaves no bad version where new nodes
// boot from it.
func (r *Run) takesBack() bool {
	return r.verb == VerbWithdraw || r.verb == VerbRollback || r.bad().Nodes
}

// refusePaused is the engine's, which is not asked again before the API server wants to be.
func (r *Run) refusePaused(ctx context.Context) error {
	now := r.engine.now()
	if left := r.pauseAsked.Sub(now); left > 0 {
		return &ThrottledError{After: left, Err: errors.New("read whether runs are paused: too many requests before")}
	}
	r.pauseAsked = now
	err := r.engine.refusePaused(ctx)
	if throttled := (*ThrottledError)(nil); errors.As(err, &throttled) {
		r.pauseAsked = now.Add(throttled.After)
	}
	if refused := (*RefusedError)(nil); errors.As(err, &refused) && r.held.lease != nil {
		refused.Subject = "the rest of run " + r.held.run
		ends := "it ends here, and what it took is given back"
		if r.verb == VerbPromote {
			refused.Subject, ends = "the promotion", "nothing more is changed"
		}
		refused.Refusals[0].Do = ends + ": kamino resume, then the same command again"
	}
	return err
}
