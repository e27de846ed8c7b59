package crash

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"kamino.dev/kamino"
	"kamino.dev/kamino/azure"
	"kamino.dev/kamino/azure/emulator"
	"kamino.dev/kamino/internal/invariant"
	"kamino.dev/kamino/internal/worlds"
)

// Shape is what a world is like before anything happens, and how its update is asked for.
type Shape struct {
	Name     string
	NewNodes int
	// Reference is how updates refer to the image. Where it is the definition, a pool that has
	// versions already points there from the beginning.
	Reference kamino.ImageReference
	// Mute machines do not switch themselves off when they are sealed.
	Mute bool
	// Prove: versions are proved by a canary before they are promoted.
	Prove bool
	// Former: an ended run of a version that kept its leases in kube-system holds the pool.
	Former bool
	// Owned: the pool's recipe is cluster-api-provider-azure's, which looks at it in the end.
	Owned bool
	// Models is how many models the instances refer to, besides that of the first two.
	Models int
	// Old is how many image versions exist already, with gallery and definition.
	Old int
	// Configure, if set, changes the cloud before it is filled.
	Configure func(*emulator.Server)
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
	cloud    *emulator.Server
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
	machines   map[string]*machine // by lower-case ARM ID
	pods       map[string]bool     // UIDs whose end or seal has begun
	held       bool                // budgets do not yield
	apiAway    time.Time           // Kubernetes answers again at that time
	older      map[string]*answers // of reads of Kubernetes, by URL
	owned      bool                // the pool has an owner
	definition string              // ARM ID, where there is history
	person     string              // image that a person wrote into the model
	replaced   map[string]string   // VM IDs of instances that were replaced
	vanished   time.Time           // the cloud shows everything again at that time
	forged     *machine            // that wrote a mark of no run
	trouble    error               // of the harness itself

	changes sync.Mutex
	pending []string // instances that changed
	moved   bool     // anything of the cloud changed
}

// dirt says what of the state must be read again.
type dirt struct{ nodes, pods, leases bool }

// answers are the last two different answers to a read.
type answers struct{ now, before *reply }

// latencies make every long operation last for one to three polls.
func latencies() emulator.Latencies {
	return emulator.Latencies{
		Stop: 9 * time.Second, Cut: 4 * time.Second, Start: 4 * time.Second, CreateInstance: 9 * time.Second, DeleteInstance: 9 * time.Second,
		Snapshot: 4 * time.Second, DeleteSnapshot: 4 * time.Second, Gallery: 4 * time.Second, Definition: 4 * time.Second,
		Version: 9 * time.Second, UpdateVersion: 4 * time.Second, DeleteVersion: 4 * time.Second, UpdateScaleSet: 4 * time.Second,
	}
}

const poolName = "k8s-pool1-vmss"

// worldBegins is a quiet hour: tests of midnight choose another.
var worldBegins = time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC)

// NewWorld clears the station and makes a world of a shape on it.
func (s *Station) NewWorld(ctx context.Context, shape Shape, start time.Time) (*World, error) {
	pool := emulator.Pool{Name: poolName, Count: 2}
	if shape.Pool != nil {
		shape.Pool(&pool)
	}
	if shape.Owned {
		pool.Tags = emulator.CAPZTags("blue")
	}
	w := &World{
		station: s, ctx: ctx, shape: shape, start: start, clock: newClock(start), scenario: s.scenario,
		machines: map[string]*machine{}, pods: map[string]bool{}, older: map[string]*answers{}, replaced: map[string]string{}, dirty: dirt{true, true, true}, owned: shape.Owned,
	}
	w.scenario.Pools = []emulator.Pool{pool}
	w.pool = strings.ToLower(w.scenario.PoolID(poolName))
	w.audit.Hosts = []string{strings.TrimPrefix(s.armURL, "https://")}
	w.cloud = &emulator.Server{Clock: w.clock.virtual, Latencies: latencies(), BaseURL: s.armURL, PollInterval: time.Second,
		Identities: []emulator.Identity{{ClientID: clientID, Secret: clientSecret, Tenant: w.scenario.Tenant, Roles: roles(w.scenario)}}}
	if shape.Configure != nil {
		shape.Configure(w.cloud)
	}
	w.cloud.Seed(w.scenario)
	if err := w.fill(); err != nil {
		return nil, fmt.Errorf("fill world: %w", err)
	}
	w.clock.react = w.react
	w.clock.pass(0)
	s.world.Store(w)
	return w, w.trouble
}

// roles are the shipped ones at the resource group, and the two reads of the
// subscription that make a run better.
func roles(sc emulator.Scenario) []emulator.Role {
	subscription := "/subscriptions/" + sc.Subscription
	return []emulator.Role{
		{Scope: subscription + "/resourceGroups/" + sc.ResourceGroup, Actions: slices.Concat(azure.Actions(), azure.CanaryActions())},
		{Scope: subscription, Actions: []string{"Microsoft.Compute/skus/read", "Microsoft.Compute/locations/*/read"}},
	}
}

// End forgets the world. Its objects stay until the next one clears them.
func (w *World) End() {
	w.station.world.Store(nil)
	w.cloud.Close()
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
			answer = lie(worlds.FalseFailure, c.Side)
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
	outdated := w.outdated(c)
	if before := c.means; outdated {
		before.Verb = invariant.Read // what is refused changes nothing
		w.audit.Before(&w.state, before)
	} else {
		w.audit.Before(&w.state, before)
	}
	w.audit.Request(r.Host, c.Side == Azure && r.Header.Get("Authorization") != "")
	var answer *reply
	if kind != worlds.FalseFailure {
		answer = lie(kind, c.Side)
	}
	if kind == worlds.Throttled {
		w.audit.Throttled(p.Name, c.means.Bucket, w.clock.Now().Add(throttleTime))
	}
	if answer == nil {
		answer = w.forward(c, r, kind)
		if c.Method == http.MethodGet {
			answer = w.replay(c, answer, kind == worlds.StaleRead)
		}
	}
	if outdated && kind == "" && answer.status < 300 {
		w.audit.Violate("I10", "%s: %s takes effect on condition %s, which is outdated", p.Name, c.Act, c.means.Revision)
	}
	c.Status = answer.status
	c.Long = answer.header.Get("Azure-AsyncOperation") != ""
	w.learn(p, c, answer)
	w.trace("%s #%d %s %s: %d %s", p.Name, c.N, c.Step, c, c.Status, c.Act)
	if c.Write {
		was := w.state
		w.refresh()
		w.audit.After(&was, &w.state, c.means)
		w.audit.Changed(&w.state)
	}
	return answer
}

// complete adds to a call's meaning what only the world knows.
func (w *World) complete(p *Process, c *Call) {
	if c.Side == Azure && c.means.Machine != "" {
		c.means.SeenVM = p.seenVM[c.means.Machine]
	}
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
	if c.Side == Azure {
		return w.forwardAzure(c, r, kind)
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
	if c.Side == Kubernetes && strings.Contains(c.Query, "labelSelector") || c.Side == Azure {
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

func (w *World) forwardAzure(c *Call, r *http.Request, kind worlds.Fault) *reply {
	if kind == worlds.Vanished {
		w.vanish()
	}
	if f := cloudFault(kind, c); f != nil {
		id := w.cloud.AddFault(*f)
		defer w.cloud.RemoveFault(id)
	}
	answer := newReply()
	inner := r.Clone(w.ctx)
	inner.Body = body(c.body)
	w.cloud.ServeHTTP(answer, inner)
	for old, now := range w.replaced {
		if bytes.Contains(answer.body.Bytes(), []byte(old)) {
			text := bytes.ReplaceAll(answer.body.Bytes(), []byte(old), []byte(now))
			answer.body.Reset()
			answer.body.Write(text)
		}
	}
	return answer
}

// learn notes which VM a process has seen behind an instance.
func (w *World) learn(p *Process, c *Call, answer *reply) {
	lower := strings.ToLower(c.Path)
	if c.Side != Azure || c.Method != http.MethodGet || !strings.Contains(lower, "/virtualmachines/") || answer.status != http.StatusOK {
		return
	}
	if vm := vmIDIn(answer.body.Bytes()); vm != "" {
		p.seenVM[machineID(c.Path)] = vm
	}
}
