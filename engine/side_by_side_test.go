package engine_test

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"kamino.dev/kamino"
	"kamino.dev/kamino/engine"
)

// TestPoolsSideBySide runs three pools at once on goroutines, as production does, for the race
// detector. (Package sim lets one goroutine run at a time.) The clock is that of a synctest bubble:
// it advances only while every goroutine waits, so the pools wake up together and run in parallel.
// The detector does not see each race in each round.
func TestPoolsSideBySide(t *testing.T) {
	for name, story := range map[string]func(*testing.T){
		"updated":     updated,
		"interrupted": func(t *testing.T) { restored(t, false) },
		"killed":      func(t *testing.T) { restored(t, true) },
	} {
		t.Run(name, func(t *testing.T) {
			for range 5 {
				synctest.Test(t, story)
			}
		})
	}
}

// updated plans and updates the three pools, with any number of donors away.
func updated(t *testing.T) {
	w := threePools()
	p := w.process("first")
	for range 5 {
		if plans, err := p.engine(t).PlanPools(t.Context(), inParallel()); len(plans) != 3 || err != nil {
			t.Errorf("%d pools planned: %v", len(plans), err)
		}
	}
	results, err := p.engine(t).AutoUpdate(t.Context(), inParallel())
	if len(results) != 3 || err != nil {
		t.Errorf("%d pools updated: %v", len(results), err)
	}
	for _, r := range results {
		made := w.artifacts[key(r.Pool, kamino.KindVersion, kamino.VersionName(time.Now()))]
		if r.Donor != r.Name+"-0" || made == nil || !made.Ready || made.Excluded || w.pools[r.Pool].Model.Image != made.ID {
			t.Errorf("pool %s, donor %q: version %+v, the next node boots from %s", r.Name, r.Donor, made, w.pools[r.Pool].Model.Image)
		}
		if of := p.reports[r.Name]; len(of.events) == 0 || of.back == 0 {
			t.Errorf("pool %s: %d events, %d calls of DonorBack", r.Name, len(of.events), of.back)
		}
	}
	p.holdsNothing(t)
	w.sound(t)
}

// restored ends three runs while their donors are off. Interrupted runs give their donors back
// themselves; Restore gives back the donors of killed runs.
func restored(t *testing.T, killed bool) {
	w := threePools()
	p := w.process("first")
	ctx, cancel := context.WithCancel(t.Context())
	w.allOff = func() { p.killed.Store(killed); cancel() }
	if results, err := p.engine(t).AutoUpdate(ctx, inParallel()); ctx.Err() == nil || !killed && err == nil {
		t.Fatalf("the runs were not ended: %+v, %v", results, err)
	}
	second := w.process("second")
	left, err := second.engine(t).Restore(t.Context(), engine.RestoreOptions{})
	pools := map[kamino.PoolID]bool{}
	for _, l := range left {
		pools[l.Pool] = true
	}
	if err != nil || (len(pools) == 3) != killed {
		t.Errorf("restored %+v: %v", left, err)
	}
	if second.holdsNothing(t); !killed {
		p.holdsNothing(t)
	}
	w.sound(t)
}

func inParallel() kamino.AutoOptions {
	o := kamino.AutoDefaults()
	o.MaxAway, o.Proof.Mode = 0, kamino.ProveNone
	return o
}

// world is a cloud and a cluster in memory, for many goroutines. Readers share its lock: they do not
// order each other's goroutines, so the detector sees more races.
type world struct {
	mu        sync.RWMutex
	serial    int
	pools     map[kamino.PoolID]*kamino.Pool
	machines  map[kamino.InstanceID]*kamino.Instance
	nodes     map[string]*kamino.Node
	artifacts map[string]*kamino.Artifact
	pods      map[string]kamino.AgentPod
	leases    map[kamino.PoolID]lease
	allOff    func() // called when three machines are off
}

// lease is a lease as the API server stores it: each reader decodes a copy of its own.
type lease struct {
	text     []byte
	revision string
}

func key(pool kamino.PoolID, kind kamino.Kind, name string) string {
	return fmt.Sprint(pool, "|", kind, "|", name)
}

// threePools is a world of three pools with three nodes each. The first node of each is patched.
func threePools() *world {
	w := &world{pools: map[kamino.PoolID]*kamino.Pool{}, machines: map[kamino.InstanceID]*kamino.Instance{}, nodes: map[string]*kamino.Node{},
		artifacts: map[string]*kamino.Artifact{}, pods: map[string]kamino.AgentPod{}, leases: map[kamino.PoolID]lease{}}
	for _, name := range []string{"a", "b", "c"} {
		pool := kamino.PoolID(name)
		w.pools[pool] = &kamino.Pool{ID: pool, Name: name, Location: "west", Capacity: 3, Model: kamino.Model{Image: "base"}, Revision: w.next()}
		for i := range 3 {
			host := fmt.Sprintf("%s-%d", name, i)
			id := kamino.InstanceID(name + "/" + host)
			m := &kamino.Instance{ID: id, Pool: pool, VMID: fmt.Sprintf("%032x", len(w.machines)+1), Hostname: host, Disk: host, Image: "base"}
			w.machines[id] = m
			w.nodes[host] = &kamino.Node{Name: host, UID: w.next(), ProviderID: id, OS: "linux", Architecture: "amd64", SystemUUID: m.VMID,
				Created: time.Now().Add(-time.Hour), Annotations: map[string]string{}}
			w.boot(m)
			w.nodes[host].ReadySince = w.nodes[host].Created
		}
		w.nodes[name+"-0"].Annotations[kamino.KuredLastPatch.Annotation] = time.Now().Format(time.RFC3339)
	}
	return w
}

func (w *world) next() string { w.serial++; return fmt.Sprint(w.serial) }

func (w *world) boot(m *kamino.Instance) {
	n := w.nodes[m.Hostname]
	m.Power, n.Ready, n.ReadySince, n.Heartbeat, n.BootID = kamino.PowerOn, true, time.Now(), time.Now(), w.next()
}

func (w *world) after(d time.Duration, do func()) {
	time.AfterFunc(d, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		do()
	})
}

// sound checks that nothing of a run is left in the world.
func (w *world) sound(t *testing.T) {
	t.Helper()
	w.mu.RLock()
	defer w.mu.RUnlock()
	for _, n := range w.nodes {
		_, protected := n.Annotations[kamino.AnnotationProtect]
		_, marked := n.Annotations[kamino.AnnotationRun]
		if m := w.machines[n.ProviderID]; !n.Ready || m.Power != kamino.PowerOn || protected || marked || len(n.Taints) > 0 {
			t.Errorf("node %s: ready %t, power %s, annotations %v, taints %v", n.Name, n.Ready, m.Power, n.Annotations, n.Taints)
		}
	}
	for pool := range w.pools {
		if l := w.lease(pool); l.Holder != "" || l.Epoch == 0 {
			t.Errorf("lease of pool %s: holder %q, epoch %d", pool, l.Holder, l.Epoch)
		}
		if w.artifacts[key(pool, kamino.KindSnapshot, kamino.SnapshotName(pool.Name()))] != nil {
			t.Errorf("the snapshot of pool %s is left", pool)
		}
	}
	if len(w.pods) > 0 {
		t.Errorf("pods are left: %v", w.pods)
	}
}

// process is one process in the world. Once it is killed, each of its goroutines ends at its next
// call of a port.
type process struct {
	*world
	name    string
	killed  atomic.Bool
	reports map[string]*reports // by the name of the pool
}

// reports is what the engine reported of one pool. It has no lock: the engine promises that these
// calls come one at a time for one pool.
type reports struct {
	events []kamino.Event
	back   int
	holds  []string
}

func (w *world) process(name string) *process {
	return &process{world: w, name: name, reports: map[string]*reports{"a": {}, "b": {}, "c": {}}}
}

func (p *process) holdsNothing(t *testing.T) {
	t.Helper()
	for pool, of := range p.reports {
		if len(of.holds) > 0 {
			t.Errorf("process %s, pool %s: the run that has ended holds %q", p.name, pool, of.holds)
		}
	}
}

func (p *process) engine(t *testing.T) *engine.Engine {
	return &engine.Engine{
		Provider: cloud{process: p}, Cluster: cluster{process: p}, Process: p.name,
		NewID: func() string { return strings.ToLower(rand.Text()) },
		Report: func(ev kamino.Event) {
			of := p.reports[ev.Pool]
			if of == nil { // a run reads its pool in the step validate
				if ev.Pool != "" || ev.Run != "" || ev.Step != kamino.StepConnect && ev.Step != kamino.StepValidate {
					t.Errorf("event of pool %q: %+v", ev.Pool, ev)
				}
				return
			}
			if n := len(of.events); n > 0 && ev.Run != "" && of.events[n-1].Run != "" && ev.Run != of.events[n-1].Run {
				t.Errorf("pool %s: event of run %s among those of run %s", ev.Pool, ev.Run, of.events[n-1].Run)
			}
			of.events = append(of.events, ev)
		},
		DonorBack: func(pool kamino.PoolID) { p.reports[pool.Name()].back++ },
		Holds: func(pool kamino.PoolID, what []string) {
			if of := p.reports[pool.Name()]; of != nil {
				of.holds = what
			} else if len(what) > 0 {
				t.Errorf("pool %q: the run holds %q", pool, what)
			}
		},
	}
}

func (p *process) reads() (unlock func()) {
	p.dies()
	p.mu.RLock()
	return p.mu.RUnlock
}

func (p *process) writes() (unlock func()) {
	p.dies()
	p.mu.Lock()
	return p.mu.Unlock
}

func (p *process) dies() {
	if p.killed.Load() {
		runtime.Goexit()
	}
}

// cloud is the world as a provider. What the test does not need panics.
type cloud struct {
	kamino.Provider
	*process
}

func (c cloud) Preflight(context.Context) ([]kamino.Warning, error) { return nil, nil }
func (c cloud) Homes() []kamino.Kind                                { return nil }

func (c cloud) Fit(context.Context, kamino.Pool, kamino.Instance, *kamino.Artifact) ([]kamino.Refusal, []kamino.Warning, error) {
	return nil, nil, nil
}

func (c cloud) PoolOf(_ context.Context, id kamino.InstanceID) (kamino.PoolID, error) {
	pool, _, _ := strings.Cut(string(id), "/")
	return kamino.PoolID(pool), nil
}

func (c cloud) Instances(context.Context, kamino.Pool) ([]kamino.InstanceID, error) { return nil, nil }

func (c cloud) Pool(_ context.Context, id kamino.PoolID) (kamino.Pool, error) {
	defer c.reads()()
	return *c.pools[id], nil
}

func (c cloud) Instance(_ context.Context, id kamino.InstanceID) (kamino.Instance, error) {
	defer c.reads()()
	return *c.machines[id], nil
}

func (c cloud) SetPower(_ context.Context, id kamino.InstanceID, want kamino.Power) error {
	defer c.writes()()
	if m := c.machines[id]; want == kamino.PowerOn && m.Power == kamino.PowerOff {
		m.Power = kamino.PowerBetween
		c.after(30*time.Second, func() { c.boot(m) })
	}
	return nil
}

func (c cloud) Find(_ context.Context, pool kamino.Pool, kind kamino.Kind, name string) (out []kamino.Artifact, err error) {
	defer c.reads()()
	for _, a := range c.artifacts {
		if k := key(pool.ID, kind, a.Name); (name == "" || a.Name == name) && a.ID == k {
			found := *a
			found.Tags, found.InModel = maps.Clone(a.Tags), c.pools[pool.ID].Model.Image == k
			out = append(out, found)
		}
	}
	return out, nil
}

func (c cloud) Create(_ context.Context, pool kamino.Pool, a kamino.Artifact) error {
	defer c.writes()()
	a.ID = key(pool.ID, a.Kind, a.Name)
	a.State, a.Created, a.Tags = kamino.Creating, time.Now(), maps.Clone(a.Tags)
	if c.artifacts[a.ID] == nil {
		c.artifacts[a.ID] = &a
		c.after(time.Minute, func() { a.State, a.Ready, a.Percent = kamino.Succeeded, true, 100 })
	}
	return nil
}

func (c cloud) Delete(_ context.Context, pool kamino.Pool, a kamino.Artifact) error {
	defer c.writes()()
	delete(c.artifacts, key(pool.ID, a.Kind, a.Name))
	return nil
}

func (c cloud) NextImage(_ context.Context, pool kamino.Pool, want kamino.Target) (next kamino.NextImage, err error) {
	if next.Image = key(pool.ID, kamino.KindVersion, want.Version); next.Image != pool.Model.Image {
		next.Diff = []kamino.FieldChange{{Field: "image", From: pool.Model.Image, To: next.Image}}
	}
	return next, nil
}

func (c cloud) Promote(_ context.Context, pool kamino.Pool, want kamino.Target) error {
	defer c.writes()()
	p := c.pools[pool.ID]
	if p.Revision != pool.Revision {
		return kamino.ErrConflict
	}
	p.Model.Image, p.Revision = key(pool.ID, kamino.KindVersion, want.Version), c.next()
	return nil
}

// cluster is the world as Kubernetes.
type cluster struct {
	kamino.Cluster
	*process
}

func (c cluster) Preflight(context.Context, kamino.DrainOptions) ([]kamino.Warning, error) {
	return nil, nil
}

func (c cluster) Rehearse(context.Context, kamino.Node, kamino.SealOrder, kamino.DrainOptions) ([]kamino.Pod, error) {
	return nil, nil
}

func (c cluster) RehearseSeal(context.Context, kamino.Node, kamino.SealOrder) error { return nil }

func (c cluster) Preview(context.Context, kamino.Node, kamino.DrainOptions) ([]kamino.Pod, error) {
	return nil, nil
}

func (c cluster) Evict(context.Context, kamino.Node, kamino.DrainOptions) ([]kamino.Pod, error) {
	return nil, nil
}

func copied(n kamino.Node) kamino.Node {
	n.Annotations, n.Taints = maps.Clone(n.Annotations), slices.Clone(n.Taints)
	return n
}

func (c cluster) Node(_ context.Context, name string) (kamino.Node, error) {
	defer c.reads()()
	return copied(*c.nodes[name]), nil
}

func (c cluster) Nodes(context.Context) (out []kamino.Node, err error) {
	defer c.reads()()
	for _, n := range c.nodes {
		out = append(out, copied(*n))
	}
	return out, nil
}

func (c cluster) Pulse(context.Context, kamino.Node) (time.Time, error) { return time.Now(), nil }

func (c cluster) Mark(_ context.Context, node kamino.Node, mark kamino.Mark) error {
	defer c.writes()()
	text, err := json.Marshal(mark)
	n := c.nodes[node.Name]
	n.Annotations[kamino.AnnotationRun], n.Annotations[kamino.AnnotationProtect] = string(text), "true"
	if n.Taints = nil; mark.Block {
		n.Taints = []kamino.Taint{{Key: kamino.TaintBlock, Value: mark.Run, Effect: "NoSchedule"}}
	}
	return err
}

func (c cluster) Unmark(_ context.Context, node kamino.Node) error {
	defer c.writes()()
	n := c.nodes[node.Name]
	maps.DeleteFunc(n.Annotations, func(name, _ string) bool { return name != kamino.KuredLastPatch.Annotation })
	n.Taints = nil
	return nil
}

// StartAgent ends the pod at once. A seal writes its receipt and switches the machine off.
func (c cluster) StartAgent(_ context.Context, node kamino.Node, task kamino.Task, order kamino.SealOrder) error {
	defer c.writes()()
	c.pods[order.Run+string(task)] = kamino.AgentPod{Exists: true, Done: true, Node: node.Name, Nonce: order.Nonce}
	if task != kamino.TaskSeal {
		return nil
	}
	n, off := c.nodes[node.Name], 0
	text, err := json.Marshal(kamino.Receipt{Run: order.Run, Nonce: order.Nonce, Donor: n.Name, VMID: n.SystemUUID, SealedAt: time.Now(), Hash: "sha256:" + n.BootID})
	n.Ready, n.Annotations[kamino.AnnotationReceipt] = false, string(text)
	c.machines[n.ProviderID].Power = kamino.PowerOff
	for _, m := range c.machines {
		if m.Power == kamino.PowerOff {
			off++
		}
	}
	if off == 3 && c.allOff != nil {
		c.allOff()
	}
	return err
}

func (c cluster) AgentPod(_ context.Context, run string, task kamino.Task) (kamino.AgentPod, error) {
	defer c.reads()()
	return c.pods[run+string(task)], nil
}

func (c cluster) RemoveAgents(_ context.Context, run string, tasks []kamino.Task) error {
	defer c.writes()()
	for _, task := range tasks {
		delete(c.pods, run+string(task))
	}
	return nil
}

func (w *world) lease(pool kamino.PoolID) (out kamino.Lease) {
	text := cmp.Or(string(w.leases[pool].text), "{}")
	if err := json.Unmarshal([]byte(text), &out); err != nil {
		panic(err)
	}
	out.Pool, out.Revision = pool, w.leases[pool].revision
	return out
}

func (c cluster) Lease(_ context.Context, pool kamino.PoolID) (kamino.Lease, error) {
	defer c.reads()()
	return c.lease(pool), nil
}

func (c cluster) Leases(context.Context) (out []kamino.Lease, err error) {
	defer c.reads()()
	for pool := range c.leases {
		out = append(out, c.lease(pool))
	}
	return out, nil
}

func (c cluster) SetLease(_ context.Context, l kamino.Lease) (kamino.Lease, error) {
	defer c.writes()()
	if l.Revision != c.leases[l.Pool].revision {
		return l, kamino.ErrConflict
	}
	text, err := json.Marshal(l)
	c.leases[l.Pool] = lease{text, c.next()}
	return c.lease(l.Pool), err
}
