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
	"slices"
	"strings"
	"sync"
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
	// Holds, where set, is told what a run of the pool holds, in words for people, whenever that
	// may have changed.
	Holds func(pool PoolID, what []string)
	// Threads, where set, runs n bodies side by side in place of goroutines, each with an engine of
	// its own, and returns when all have ended: a simulation lets one run at a time.
	Threads func(n int, body func(*Engine, int))
}

// LongestPoll is how seldom a donor may be looked at: between two looks it must
// not have been able to go off and on again.
const LongestPoll = 10 * time.Second

func (e *Engine) clock() Clock {
	if e.Clock == nil {
		return WallClock{}
	}
	return e.Clock
}

func (e *Engine) report(ev Event) {
	if e.Report != nil {
		ev.Time = e.date()
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
	if r.held.adopted && r.held.lease == nil && errors.Is(err, errStartedSince) && ctx.Err() == nil {
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

// GiveBack gives back what an earlier run left in the pool of a node with which no run can be tried
// now. A run that lives is left alone; a node that is unknown or of no pool is no error.
func (e *Engine) GiveBack(ctx context.Context, donor string) error {
	return e.newRun(Options{Donor: donor}).giveBackRefused(ctx)
}

// giveBackRefused gives back what an earlier run left in the pool of a donor that this run may not
// take: what was taken is given back whatever has become of it since, and whatever right is missing
// that only a new run needs.
func (r *Run) giveBackRefused(ctx context.Context) error {
	if r.donor.node.Name == "" { // nothing was read yet
		var err error
		if r.donor.node, err = r.engine.Cluster.Node(ctx, r.opts.Donor); err != nil {
			return nil // the run's own error tells why
		}
	}
	id, err := r.engine.poolOf(ctx, r.donor.node)
	if err != nil || id == "" {
		return err
	}
	lease, err := r.engine.Cluster.Lease(ctx, id)
	if err != nil {
		return fmt.Errorf("read lease of pool %s: %w", id.Name(), err)
	}
	mark, err := r.donor.node.taken(id, lease)
	if lease.Holder == "" && (err != nil || mark == nil) {
		return nil
	}
	nodes, err := r.engine.Cluster.Nodes(ctx)
	if err != nil {
		return fmt.Errorf("list nodes: %w", err)
	}
	if nodes, err = r.engine.ofPool(ctx, nodes, id); err != nil {
		return err
	}
	err = r.engine.clear(ctx, overview{id: id, lease: lease, nodes: nodes}, RestoreOptions{})
	if held := (*HeldError)(nil); errors.As(err, &held) {
		return nil // it lives, and gives back what it takes
	}
	return err
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
	return out, nil
}

// attempt makes one run, to its end or until everything is given back.
func (e *Engine) attempt(ctx context.Context, opts Options) (*Run, error) {
	r := e.newRun(opts)
	started := e.now()
	err := r.exec(ctx, Pipeline())
	if err != nil {
		r.held.regain(ctx)
	}
	switch {
	case err == nil:
		err = r.stayedOn(ctx)
		err = errors.Join(err, r.finish(ctx, started))
	case r.held.lease != nil && !errors.Is(err, ErrLeaseLost):
		err = r.abandon(ctx, err)
	}
	r.fillResult()
	if err == nil {
		r.fillNext()
	}
	return r, r.afterPromotion(err)
}

// afterPromotion adds to what ended a run that its version is promoted, where that was done before
// and the version is not to blame.
func (r *Run) afterPromotion(err error) error {
	proof := (*ProofError)(nil)
	pointed := slices.ContainsFunc(r.result.Steps, func(s StepTime) bool { return s.Name == InModel && !s.Skipped })
	if err == nil || errors.As(err, &proof) || !pointed || !r.promotes() || r.result.Hidden || r.modelIsTheirs() {
		return err
	}
	return fmt.Errorf("%w; version %s is promoted: new nodes of pool %s boot from it already", err, r.image.version.Name, r.pool.Name)
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
// took and end. The reason stands on the namespace kamino-system. Resume takes it away.
func (e *Engine) Pause(ctx context.Context, reason string) error {
	if strings.TrimSpace(reason) == "" {
		return WithHint(errors.New("no reason given"), "--reason TEXT tells everybody why nothing is done")
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
	return p.Pause(ctx, reason)
}

// Pause is what the stop switch says. Who turned it and when is not known of one that an earlier
// kamino, or kubectl, has turned.
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

// pauseSeen is how seldom a run that works asks whether it is to end.
const pauseSeen = time.Minute

// heldUp ends a run that works when the cluster is paused. A switch that cannot be read stops
// nothing; what gives back, or takes a version back, goes on.
func (r *Run) heldUp(ctx context.Context, s Step) error {
	now := r.engine.now()
	if r.held.lease == nil || r.held.givingBack || s.Stubborn || r.takesBack() || !r.held.mine() || now.Sub(r.now.pauseAsked) < pauseSeen {
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
	return r.now.verb == VerbWithdraw || r.now.verb == VerbRollback || r.badReason() != ""
}

// refusePaused is the engine's, which is not asked again before the API server wants to be.
func (r *Run) refusePaused(ctx context.Context) error {
	now := r.engine.now()
	if left := r.now.pauseAsked.Sub(now); left > 0 {
		return &ThrottledError{After: left, Err: errors.New("read whether runs are paused: too many requests before")}
	}
	r.now.pauseAsked = now
	err := r.engine.refusePaused(ctx)
	if throttled := (*ThrottledError)(nil); errors.As(err, &throttled) {
		r.now.pauseAsked = now.Add(throttled.After)
	}
	return err
}
