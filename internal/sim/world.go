package sim

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"kamino.dev/kamino"
	"kamino.dev/kamino/engine"
	"kamino.dev/kamino/internal/worlds"
	"kamino.dev/kamino/poolstate"
)

// world is everything outside the engine, in memory and on a virtual clock:
// machines and their disks, artifacts, pools, nodes, pods and leases. Processes
// live in it one at a time: each runs in a goroutine of its own, but only one
// goroutine runs at any moment, and it hands over at every call and every
// sleep. So the same seed gives the same trace.
type world struct {
	booting map[kamino.PoolID][]string // what the next instance of a pool booted from, in turn
	tagged  bool                       // somebody has tagged the image definitions: models name the version
	listed  bool                       // nodes tell their packages
	mute    bool                       // but not when they are asked for them
	events  []string                   // that runs left on nodes: node, reason and message

	seed   uint64
	rng    *rand.Rand
	now    time.Time
	timers []timer
	serial int // of timers, UIDs, boots and revisions

	pools     map[kamino.PoolID]*simPool
	machines  map[kamino.InstanceID]*machine
	nodes     map[string]*simNode
	artifacts map[string]*simArtifact
	leases    map[kamino.PoolID]kamino.Lease
	etcd      backups
	born      time.Time              // when the first process began
	hits      map[string]int         // what has happened that tests must have met
	sealPods  map[string]*simSealPod // by run
	surveys   map[string]*simSealPod // the pods of inventories, by run
	patches   map[string]*simSealPod // those of patches, by task and run
	pods      []*simPod
	throttled map[string]time.Time
	apiAway   time.Time // the Kubernetes API answers again at that time
	evicted   func()    // by a drain; nil where no autoscaler cares
	scaled    func()    // after each change
	conflicts time.Time // until then evictions are answered with 409
	// slowWrites is how long each write of Kubernetes takes.
	slowWrites time.Duration
	// leaseRoom is how many bytes of a lease the API server takes; 0: as many as it likes.
	leaseRoom int
	filled    bool // by others
	gitOps    bool // it writes back what it has in its files
	// detachedDisks are those of no machine any more.
	detachedDisks map[string]bool
	// The cloud shows everything again at that time.
	blindUntil time.Time
	vanished   time.Time // until then instances and artifacts are not found, and lists are empty
	powers
	excluded  time.Time // a person took a version out of latest
	staleList []kamino.Artifact

	promotedByHand bool // a person promotes
	leaseDeleted   bool // and with it the ledger

	canaries map[string]*simCanary
	unnamed  bool     // canaries' nodes are not named after them, and their machines' IDs tell no pool
	sick     sickness // of every clone from now on
	paused   string
	replaces bool // its pools replace what is off in service
	// probe is the run and node of the operator's probe; proofDenied is why proofs lack rights.
	probe       string
	probeNonce  string
	probes      int // how often one was started
	proofDenied error

	procs   []*proc
	started int
	done    chan struct{}
	audit   audit

	tracing bool
	trace   []string
	digest  uint64
	calls   []string // methods called so far, by all processes
	writes  int      // effects of processes, leases not counted
}

type timer struct {
	at     time.Time
	serial int
	fire   func()
}

func newWorld(seed uint64) *world {
	w := &world{
		seed: seed, rng: rand.New(rand.NewPCG(seed, 0x6b616d696e6f)),
		now:    time.Date(2026, 3, 10, 10, 0, 0, 0, time.UTC),
		tagged: true,
		pools:  map[kamino.PoolID]*simPool{}, machines: map[kamino.InstanceID]*machine{}, nodes: map[string]*simNode{},
		artifacts: map[string]*simArtifact{}, leases: map[kamino.PoolID]kamino.Lease{}, sealPods: map[string]*simSealPod{},
		surveys: map[string]*simSealPod{}, patches: map[string]*simSealPod{}, hits: map[string]int{},
		throttled: map[string]time.Time{}, canaries: map[string]*simCanary{}, done: make(chan struct{}),
		detachedDisks: map[string]bool{},
	}
	w.audit.begin(w)
	return w
}

func (w *world) next() int { w.serial++; return w.serial }

// after calls fire once d has passed.
func (w *world) after(d time.Duration, fire func()) {
	t := timer{w.now.Add(d), w.next(), fire}
	i, _ := slices.BinarySearchFunc(w.timers, t, func(a, b timer) int {
		if c := a.at.Compare(b.at); c != 0 {
			return c
		}
		return a.serial - b.serial
	})
	w.timers = slices.Insert(w.timers, i, t)
}

// advance lets time pass, and what is due happen.
func (w *world) advance(to time.Time) {
	for len(w.timers) > 0 && !w.timers[0].at.After(to) {
		t := w.timers[0]
		w.timers = w.timers[1:]
		if t.at.After(w.now) {
			w.now = t.at
		}
		t.fire()
	}
	if to.After(w.now) {
		w.now = to
	}
}

// happened is called after every change of the world.
func (w *world) happened(format string, args ...any) {
	w.say("  ~ "+format, args...)
	w.watchNext()
	if w.scaled != nil {
		w.scaled()
	}
	w.audit.check()
}

// watchNext notes what the next instance of a pool boots from, where that changed.
func (w *world) watchNext() {
	for id, p := range w.pools {
		if w.booting == nil {
			w.booting = map[kamino.PoolID][]string{}
		}
		if past, now := w.booting[id], w.bootsFrom(p); len(past) == 0 || past[len(past)-1] != now {
			w.booting[id] = append(past, now)
		}
	}
}

func (w *world) say(format string, args ...any) {
	line := fmt.Sprintf(format, args...)
	h := fnv.New64a()
	fmt.Fprintf(h, "%d %s %s", w.digest, w.now.Format(time.RFC3339Nano), line)
	w.digest = h.Sum64()
	if w.tracing {
		w.trace = append(w.trace, w.now.Format("02T15:04:05.000 ")+line)
	}
}

// proc is one process: it has a name, a clock that may be wrong, and faults
// that strike its calls.
type proc struct {
	w      *world
	name   string
	skew   time.Duration // of its wall clock
	slept  time.Duration // how long its machine was suspended
	slow   int           // how many times as long each call takes; 0 is once
	faults []fault
	calls  int
	force  bool // the user asked for it
	adopts bool // the user said that what a person chose may be replaced
	listed time.Time
	dying  bool // killed as soon as it does anything more
	cancel context.CancelFunc
	// What the process last read of instances.
	seenVM  map[kamino.InstanceID]string
	seenOff map[kamino.InstanceID]bool

	wake   time.Time
	resume chan struct{}

	result  engine.Result
	found   []poolstate.Leftover // by a restore
	err     error
	crashed bool

	body        func(context.Context)
	interrupted bool
	ended       bool
	runs        int
	step        string // that is running
	logging     bool
	log         []site // with logging: every call
	tune        func(*engine.Engine)

	parent  *proc // of a thread, which shares its calls, faults and fate
	running int   // threads that have not ended
	thread  int   // number of a thread
}

// root is the process of a thread.
func (p *proc) root() *proc {
	if p.parent != nil {
		return p.parent
	}
	return p
}

// threads runs bodies as threads of the process, and returns when all have ended.
func (p *proc) threads(n int, body func(*engine.Engine, int)) {
	p.running = n
	for i := range n {
		t := p.w.spawn(&proc{name: p.name, parent: p, thread: i, force: p.force, tune: p.tune}, func(context.Context) {})
		t.body = func(context.Context) { body(t.engine(), i) }
		t.seenVM, t.seenOff = p.seenVM, p.seenOff
	}
	for p.running > 0 {
		p.pass(p.w.now.Add(24 * 365 * time.Hour))
	}
	if p.dying {
		panic(crash{})
	}
}

type crash struct{}

// engine is a new engine of this process.
func (p *proc) engine() *engine.Engine {
	e := &engine.Engine{
		Provider: p.provider(), Cluster: p.cluster(), Clock: p, Process: p.name,
		Report: func(ev kamino.Event) {
			p.step = ev.Step
			p.watch(ev)
			if p.w.tracing && ev.Kind != kamino.EventWaiting {
				p.w.trace = append(p.w.trace, fmt.Sprintf("    %s: %s %s: %s", p.name, ev.Step, ev.Kind, ev.Message))
			}
		},
		NewID:   func() string { r := p.root(); r.runs++; return fmt.Sprintf("%s-run%d", r.name, r.runs) },
		Threads: p.threads,
	}
	if p.tune != nil {
		p.tune(e)
	}
	Tamper(e)
	return e
}

// Now is the time that this process believes.
func (p *proc) Now() time.Time { return worlds.Reading(p.w.now.Add(p.root().skew), p.awake()) }

// awake is the time of a clock that stands still while the machine is suspended.
func (p *proc) awake() time.Time { return p.w.now.Add(-p.root().slept) }

// Sleep lets the others run and time pass.
func (p *proc) Sleep(ctx context.Context, d time.Duration) error {
	if p.root().dying {
		panic(crash{})
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	p.pass(p.w.now.Add(d))
	return ctx.Err()
}

// WithTimeout is by the time in which the machine was awake. Nobody here waits for the context's
// end: calls ask for its error.
func (p *proc) WithTimeout(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	return limited{ctx, p, p.awake().Add(d)}, func() {}
}

type limited struct {
	context.Context
	p   *proc
	end time.Time
}

func (l limited) Err() error {
	if err := l.Context.Err(); err != nil || l.p.awake().Before(l.end) {
		return err
	}
	return context.DeadlineExceeded
}

// pass hands over to whoever is due first, and returns when this process is.
func (p *proc) pass(until time.Time) {
	p.wake = until
	next := p.w.due()
	p.w.advance(next.wake)
	if next != p {
		next.resume <- struct{}{}
		<-p.resume
	}
}

// due is the process that is to run next; among several chance decides.
func (w *world) due() *proc {
	var first []*proc
	for _, p := range w.procs {
		switch {
		case len(first) == 0 || p.wake.Before(first[0].wake) && first[0].wake.After(w.now):
			first = []*proc{p}
		case p.wake.Equal(first[0].wake) || !p.wake.After(w.now):
			first = append(first, p)
		}
	}
	if len(first) == 1 {
		return first[0]
	}
	return first[w.rng.IntN(len(first))]
}

// spawn starts a process; it runs when others hand over or wait is called.
func (w *world) spawn(p *proc, body func(context.Context)) *proc {
	if w.started == 0 {
		w.backUp()
	}
	w.started++
	p.w, p.resume, p.wake, p.body = w, make(chan struct{}), w.now, body
	p.seenVM, p.seenOff = map[kamino.InstanceID]string{}, map[kamino.InstanceID]bool{}
	if p.name == "" {
		p.name = fmt.Sprintf("p%d", w.started)
	}
	ctx, cancel := context.WithCancel(context.Background())
	p.cancel = cancel
	w.procs = append(w.procs, p)
	go func() {
		<-p.resume
		defer func() {
			if r := recover(); r != nil {
				if _, ok := r.(crash); !ok {
					panic(r)
				}
				p.crashed = true
				p.root().dying = true
				w.say("%s killed", p.name)
			}
			p.end()
		}()
		p.body(ctx)
	}()
	return p
}

func (p *proc) end() {
	w := p.w
	p.ended = true
	p.cancel()
	w.say("%s ended: %v", p.name, p.err)
	if r := p.parent; r != nil {
		if r.running--; r.running == 0 {
			r.wake = w.now
		}
	}
	w.procs = slices.DeleteFunc(w.procs, func(o *proc) bool { return o == p })
	if len(w.procs) == 0 {
		w.done <- struct{}{}
		return
	}
	next := w.due()
	w.advance(next.wake)
	next.resume <- struct{}{}
}

// wait runs all processes to their ends.
func (w *world) wait() {
	if len(w.procs) == 0 {
		return
	}
	next := w.due()
	w.advance(next.wake)
	next.resume <- struct{}{}
	<-w.done
}

// options are those of an update with a donor. Versions are proved where a test says so.
func options(donor string) kamino.Options {
	o := kamino.Defaults()
	o.Proof.Mode = kamino.ProveNone
	o.Donor = donor
	return o
}

// startUpdate spawns a process that updates.
func (w *world) startUpdate(p *proc, o kamino.Options) *proc {
	p.force, p.adopts = o.Force, o.AdoptModel
	return w.spawn(p, func(ctx context.Context) {
		w.say("%s: update with donor %s", p.name, o.Donor)
		p.result, p.err = p.engine().Update(ctx, o)
		p.left()
	})
}

// update runs one update to its end.
func (w *world) update(o kamino.Options, faults ...fault) *proc {
	p := w.startUpdate(&proc{faults: faults}, o)
	w.wait()
	return p
}

// left checks that a process that ends by itself has given everything back, or
// says that it could not.
func (p *proc) left() {
	w, l := p.w, p.w.standing(poolA)
	if p.err != nil && (errors.Is(p.err, kamino.ErrLeaseLost) || kamino.Hint(p.err) == "kamino restore" ||
		strings.Contains(p.err.Error(), "give back:") || strings.Contains(p.err.Error(), "restore pool ")) {
		return
	}
	if l.Process == p.name && (p.err == nil || !strings.Contains(p.err.Error(), "release lease of pool")) {
		w.audit.violate("I16", "%s ends and keeps the lease of %s without a word: %v", p.name, l.Pool.Name(), p.err)
	}
	for _, c := range w.canaries {
		told := p.err != nil && strings.Contains(p.err.Error(), "remove the canary") ||
			strings.Contains(strings.Join(p.result.Warnings, " "), "retire: ")
		if c.Run == p.result.Run && c.State != kamino.Deleting && !told {
			w.audit.violate("I29", "%s ends and leaves canary %s without a word: %v", p.name, c.Name, p.err)
		}
	}
	for _, n := range w.nodes { // what GitOps puts back, the next run finds
		if w.markedBy(n, p.result.Run) && !w.gitOps && (l.Process == "" || l.Process == p.name) {
			w.audit.violate("I1", "%s ends and leaves node %s marked without a word: %v", p.name, n.Name, p.err)
		}
	}
}

func (w *world) startRestore(p *proc) *proc {
	return w.spawn(p, func(ctx context.Context) {
		w.say("%s: restore", p.name)
		p.found, p.err = p.engine().Restore(ctx, engine.RestoreOptions{})
	})
}

// restore runs one restore to its end.
func (w *world) restore(faults ...fault) *proc {
	p := w.startRestore(&proc{faults: faults})
	w.wait()
	return p
}

// tail is the end of the trace, for failing tests.
func (w *world) tail(n int) string {
	return strings.Join(w.trace[max(0, len(w.trace)-n):], "\n")
}
