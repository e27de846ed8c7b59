package crash

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	awsemulator "kamino.dev/kamino/aws/emulator"
	"kamino.dev/kamino/azure/emulator"
	"kamino.dev/kamino/internal/invariant"
	"kamino.dev/kamino/internal/worlds"
	"kamino.dev/kamino/lab/nodes"
)

// Shape is what a world is like before anything happens, and how its update is asked for.
type Shape struct {
	Name     string
	NewNodes int
	// Points: the pool's model names the image definition from the beginning. Tagged: somebody has
	// tagged the definition, so that the model names the version.
	Points, Tagged bool
	// Mute machines do not switch themselves off when they are sealed.
	Mute bool
	// Prove: versions are proved by a canary before they are promoted.
	Prove bool
	// Patch: the command is kamino patch, not update.
	Patch bool
	// Kept: no command, but a controller keeps the pool, whose NodePrototype there is.
	Kept bool
	// Command, if set, chooses another image for the next machine, and is no update.
	Command Work
	// Named: the command is kamino promote, which proves a version first that somebody else made.
	Named bool
	// Owned: the pool's recipe is cluster-api-provider-azure's, which looks at it in the end.
	Owned bool
	// Models is how many models the instances refer to, besides that of the first two.
	Models int
	// Old is how many image versions exist already, with gallery and definition.
	Old int
	// Configure, if set, changes the cloud before it is filled.
	Configure func(*emulator.Server)
	// Group, if set, is the pool of a world on AWS.
	Group *awsemulator.Group
	// Pool, if set, changes the pool before it is made.
	Pool func(*emulator.Pool)
}

// World is everything around the processes of one case.
type World struct {
	station  *Station
	ctx      context.Context
	shape    Shape
	start    time.Time
	scenario emulator.Scenario
	clock    *Clock
	cloud                // see there
	fleet    nodes.Cloud // its machines
	network  nodes.Network
	pool     string // ID as the engine writes it
	donor    string // name of the donor's node
	spare    string // name of another node of the pool
	verbose  bool
	history  []string // what happened, if verbose

	mu         sync.Mutex // guards what follows
	processes  []*Process
	state      invariant.State
	audit      invariant.Auditor
	dirty      dirt
	tend       bool // pods changed since kubelets last looked
	runs       int
	machines   map[string]*machine // by lower-case ID of the instance
	canaries   map[string]bool     // nodes of canaries
	pods       map[string]bool     // "UID VM" of those that the kubelet of that machine has seen, and "end UID VM" of those that end
	apiAway    time.Time           // Kubernetes answers again at that time
	conflicts  time.Time           // until then evictions are answered with 409
	coming     bool                // a pod comes back that tolerates everything
	older      map[string]*answers // of reads of Kubernetes, by URL
	owned      bool                // the pool has an owner
	definition string              // ARM ID, where there is history
	person     string              // image that a person wrote into the model
	vanished   time.Time           // the cloud shows everything again at that time
	forged     *machine            // that wrote a mark of no run
	backup     backup
	nexts      []string // what the next machine booted from, one after the other
	chosen     []string // what nexts must be in the end; nil for anything
	trouble    error    // of the harness itself

	slowWrites atomic.Int64 // how long each write of Kubernetes takes
	gitOps     atomic.Bool  // it writes back what it has in its files

	changes sync.Mutex
	pending []string // instances that changed
	moved   bool     // anything of the cloud changed
}

// dirt says what of the state must be read again.
type dirt struct{ nodes, pods, leases bool }

// answers are the last two different answers to a read.
type answers struct{ now, before *reply }

const poolName = "k8s-pool1-vmss"

// worldBegins is a quiet hour: tests of midnight choose another.
var worldBegins = time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC)

// NewWorld clears the station and makes a world of a shape on it.
func (s *Station) NewWorld(ctx context.Context, shape Shape, start time.Time) (*World, error) {
	w := &World{
		station: s, ctx: ctx, shape: shape, start: start, clock: newClock(start), scenario: s.scenario,
		machines: map[string]*machine{}, canaries: map[string]bool{}, pods: map[string]bool{}, older: map[string]*answers{},
		dirty: dirt{true, true, true}, owned: shape.Owned,
	}
	w.audit.Hosts = []string{strings.TrimPrefix(s.cloudURL, "https://")}
	if shape.Group != nil {
		w.onAWS(*shape.Group)
	} else {
		w.onAzure()
	}
	if err := w.fill(); err != nil {
		return nil, fmt.Errorf("fill world: %w", err)
	}
	if err := w.backUp(); err != nil {
		return nil, fmt.Errorf("back the cluster up: %w", err)
	}
	w.clock.react = w.react
	w.clock.pass(0)
	s.world.Store(w)
	return w, w.trouble
}

// End forgets the world. Its objects stay until the next one clears them.
func (w *World) End() {
	w.station.world.Store(nil)
	w.Close()
}

// process finds who calls. A real process sends no name; one exists at a time.
func (w *World) process(name string) *Process {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, p := range w.processes {
		if name != "" && p.Name == name || name == "" && p.slay != nil && !p.over() {
			return p
		}
	}
	return nil
}

// newRunID counts, so that the same world makes the same calls.
func (w *World) newRunID() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.runs++
	return fmt.Sprintf("run-%d", w.runs)
}

func (w *World) trace(format string, args ...any) {
	if w.verbose {
		w.changes.Lock()
		defer w.changes.Unlock()
		w.history = append(w.history, w.clock.Now().Format("02 15:04:05 ")+fmt.Sprintf(format, args...))
	}
}

// handle takes a call of a process; nil means that it gets no answer.
func (w *World) handle(p *Process, c *Call, r *http.Request) *reply {
	if p.mortal() {
		return nil
	}
	p.mu.Lock()
	if p.slay != nil && !p.located && c.Method == http.MethodGet && c.Path == "/api/v1/nodes" {
		p.located = true
		p.mu.Unlock()
		return w.answer(p, c, r, "")
	}
	c.N = len(p.Calls) + 1
	c.at = w.clock.Now()
	p.Calls = append(p.Calls, c)
	p.mu.Unlock()
	kind := worlds.Fault("")
	if p.strike.hits(c) {
		kind = p.strike.Kind
		w.trace("! %s: %s at call %d %s", p.Name, kind, c.N, c)
	}
	if kind == worlds.RivalActs {
		p.meet(p.strike.Rival)
	}
	if p.slow > 1 {
		w.clock.sleep(time.Duration(p.slow) * callTime)
	}
	if d := time.Duration(w.slowWrites.Load()); d > 0 && c.Side == Kubernetes && c.Write {
		w.clock.sleep(d)
	}
	if kind == worlds.KillBefore {
		p.kill()
		return nil
	}
	answer := w.answer(p, c, r, kind)
	switch kind {
	case worlds.RivalActs:
		p.suspend(p.strike.Rival.Suspend)
	case worlds.KillUnheard:
		p.kill()
		return nil
	case worlds.KillAfter:
		p.mu.Lock()
		p.doomed = true
		p.mu.Unlock()
	case worlds.LostReply:
		return nil
	case worlds.Interrupted:
		p.cancel()
		return nil
	case worlds.FalseFailure:
		if answer.status < 300 {
			answer = w.refuses(worlds.FalseFailure, c)
		}
	}
	return answer
}

// callTime is how long a call takes where that matters; else it takes no time.
const callTime = 50 * time.Millisecond

// meet lets others act, and does to the process what they do to it.
func (p *Process) meet(r *worlds.Rival) {
	p.mu.Lock()
	p.Skew += r.Jump
	p.slow = max(p.slow, r.Slow)
	p.mu.Unlock()
	p.world.look() // what became true by itself counts as shown
	r.Act(p.world, p.world.donor, p.world.spare)
	if r.Freeze > 0 {
		p.world.clock.sleep(r.Freeze)
	}
}

// suspend is what happens to the machine of a process.
func (p *Process) suspend(d time.Duration) {
	if d == 0 {
		return
	}
	p.world.clock.sleep(d)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.slept += d
}

// answer lets a call take effect, unless its kind of strike keeps it from that,
// and checks the invariants on both sides of it.
func (w *World) answer(p *Process, c *Call, r *http.Request, kind worlds.Fault) *reply {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.complete(p, c)
	w.state.Now = w.clock.Now()
	if c.Side == Kubernetes && w.clock.Now().Before(w.apiAway) {
		kind = worlds.ServerError
	}
	if strings.HasSuffix(c.Path, "/eviction") && w.clock.Now().Before(w.conflicts) {
		kind = worlds.Conflict
	}
	if w.shape.Patch {
		w.readKubelets()
		c.means.Raced = c.means.Raced || w.audit.Meddled(c.means.Node, w.clock.Now())
		c.means.KeepsMark = !c.takesOff()
	}
	outdated := w.outdated(c)
	if before := c.means; outdated {
		before.Verb = invariant.Read // what is refused changes nothing
		w.audit.Before(&w.state, before)
	} else {
		w.audit.Before(&w.state, before)
	}
	w.audit.Request(r.Host, c.Side == Cloud && r.Header.Get("Authorization") != "")
	var answer *reply
	if kind != worlds.FalseFailure {
		answer = w.refuses(kind, c)
	}
	if kind == worlds.Throttled && (w.shape.Group == nil || c.Side == Kubernetes) { // AWS does not say for how long
		w.audit.Throttled(p.Name, c.means.Bucket, w.clock.Now().Add(throttleTime))
	}
	if answer == nil {
		answer = w.forward(c, r, kind)
		if c.reads() {
			answer = w.replay(c, answer, kind == worlds.StaleRead)
		}
	}
	if outdated && kind == "" && answer.status < 300 {
		w.audit.Violate("I10", "%s: %s takes effect on condition %s, which is outdated", p.Name, c.Act, c.means.Revision)
	}
	c.Status = answer.status
	if c.Side == Cloud {
		w.learn(p, c, answer)
	}
	if kind != worlds.FalseSuccess {
		w.signed(c)
	}
	w.trace("%s #%d %s %s: %d %s", p.Name, c.N, c.Step, c, c.Status, c.Act)
	if c.Write {
		was := w.state
		w.refresh()
		w.audit.After(&was, &w.state, c.means)
		w.audit.Changed(&w.state)
		w.judgeNext()
	}
	return answer
}

// refuses is the answer of a fault that keeps a call from its destination, nil for others.
func (w *World) refuses(k worlds.Fault, c *Call) *reply {
	if c.Side == Cloud {
		return w.refusal(k, c)
	}
	return lie(k, c.Side)
}

// complete adds to a call's meaning what only the world knows.
func (w *World) complete(p *Process, c *Call) {
	if c.Side == Cloud && c.means.Machine != "" {
		c.means.SeenVM = p.seenVM[c.means.Machine]
	}
	if c.unconditional { // such a write is checked by the read before it
		for _, pool := range w.state.Pools {
			c.means.Revision, c.means.Raced = pool.Revision, p.read != "" && p.read != pool.Revision
			if c.prepares {
				c.means.Target = pool.Image
			}
		}
	}
	p.read = ""
	if c.means.Node == "" && c.means.Pod != "" {
		for _, pod := range w.state.Pods {
			if pod.Name == c.means.Pod {
				c.means.Node = pod.Node
			}
		}
	}
	if strings.HasSuffix(c.Path, "/events") {
		c.means.Bucket = "" // events are lost rather than waited for
	}
}

// outdated tells whether a conditional write is based on what is no longer so.
func (w *World) outdated(c *Call) bool {
	if c.means.Revision == "" {
		return false
	}
	for _, p := range w.state.Pools {
		if p.ID == c.means.Pool {
			return p.Revision != c.means.Revision
		}
	}
	return false
}

// forward brings a call to its destination.
func (w *World) forward(c *Call, r *http.Request, kind worlds.Fault) *reply {
	if c.Side == Cloud {
		return w.pass(c, r, kind)
	}
	if c.Write {
		w.dirty.nodes = w.dirty.nodes || strings.Contains(c.Path, "/nodes")
		w.dirty.pods = w.dirty.pods || strings.Contains(c.Path, "/pods")
		w.tend = w.tend || w.dirty.pods
		w.dirty.leases = w.dirty.leases || strings.Contains(c.Path, "/leases")
	}
	url := *w.station.serverURL
	url.Path, url.RawQuery = r.URL.Path, r.URL.RawQuery
	if kind == worlds.FalseSuccess {
		// The API server's own idea of what it would have answered.
		query := url.Query()
		query.Set("dryRun", "All")
		url.RawQuery = query.Encode()
	}
	answer, err := w.station.ask(w.ctx, r.Method, url.String(), r.Header, c.body)
	if err != nil {
		w.trouble = fmt.Errorf("pass %s on: %w", c, err)
		return lie(worlds.ServerError, Kubernetes)
	}
	if w.dirty.leases && kind != worlds.FalseSuccess && answer.status < 300 && w.takeLease(answer.body.Bytes()) {
		w.dirty.leases = false // the answer was the lease as it now stands
	}
	return answer
}

// replay remembers the answer to a read and, if it shall be stale, gives the one
// before.
func (w *World) replay(c *Call, answer *reply, stale bool) *reply {
	key := c.Path
	if c.Side == Kubernetes && strings.Contains(c.Query, "labelSelector") || c.Side == Cloud {
		key += "?" + c.Query // the other queries of Kubernetes only say how to answer
	}
	known := w.older[key]
	if known == nil {
		known = &answers{}
		w.older[key] = known
	}
	if known.now == nil || !bytes.Equal(answer.body.Bytes(), known.now.body.Bytes()) {
		known.before, known.now = known.now, answer
	}
	c.Older = known.before != nil
	if stale && known.before != nil {
		return known.before
	}
	return answer
}
