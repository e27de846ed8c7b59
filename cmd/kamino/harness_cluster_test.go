package main

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"kamino.dev/kamino"
)

var fakeSealImage = "registry.invalid/kamino@sha256:" + strings.Repeat("0", 64)

// fakeCluster is a cluster that is a table, too.
type fakeCluster struct {
	kamino.Examiner
	nodes  map[string]*kamino.Node
	pods   map[string][]kamino.Pod // by node
	leases map[kamino.PoolID]kamino.Lease
	writes []string
	alive  bool // the process of a held lease renews it

	paused     string
	doubtful   bool     // Rehearse doubts that the pods will leave
	unprepared error    // what Preflight says
	sealPod    error    // what RehearseSeal says
	noImages   bool     // no image may seal disks
	images     []string // that may seal disks; nil: fakeSealImage
}

func (c *fakeCluster) SealImages(context.Context) (images []string, release string, err error) {
	if c.noImages {
		return nil, "", nil
	}
	if c.images != nil {
		return c.images, "", nil
	}
	return []string{fakeSealImage}, "", nil
}

func (*fakeCluster) PreflightProof(context.Context, []byte) error { return nil }

func (c *fakeCluster) Paused(context.Context) (kamino.Pause, error) {
	if c.paused == "" {
		return kamino.Pause{}, nil
	}
	return kamino.Pause{Reason: c.paused, By: "ann", Since: time.Date(2026, 3, 10, 9, 0, 0, 0, time.UTC)}, nil
}

func (c *fakeCluster) Pause(_ context.Context, reason string) error {
	c.paused = reason
	return nil
}

func (c *fakeCluster) RehearseSeal(context.Context, kamino.Node, kamino.SealOrder) error {
	return c.sealPod
}

func (c *fakeCluster) Node(_ context.Context, name string) (kamino.Node, error) {
	if n := c.nodes[name]; n != nil {
		return *n, nil
	}
	return kamino.Node{}, fmt.Errorf("nodes %q: %w", name, kamino.ErrNotFound)
}

func (c *fakeCluster) Nodes(context.Context) ([]kamino.Node, error) {
	var out []kamino.Node
	for _, name := range slices.Sorted(maps.Keys(c.nodes)) {
		out = append(out, *c.nodes[name])
	}
	return out, nil
}

func (c *fakeCluster) Mark(_ context.Context, n kamino.Node, _ kamino.Mark) error {
	c.writes = append(c.writes, "mark "+n.Name)
	return nil
}

func (c *fakeCluster) Unmark(_ context.Context, n kamino.Node) error {
	c.writes = append(c.writes, "unmark "+n.Name)
	return nil
}

func (c *fakeCluster) Pulse(_ context.Context, n kamino.Node) (time.Time, error) {
	return n.Heartbeat, nil
}

func (c *fakeCluster) Evict(_ context.Context, n kamino.Node, _ kamino.DrainOptions) ([]kamino.Pod, error) {
	c.writes = append(c.writes, "evict "+n.Name)
	return c.pods[n.Name], nil
}

func (c *fakeCluster) Rehearse(_ context.Context, n kamino.Node, _ kamino.SealOrder, _ kamino.DrainOptions) (stuck []kamino.Pod, err error) {
	for _, p := range c.pods[n.Name] {
		if p.Stuck || c.doubtful {
			stuck = append(stuck, p)
		}
	}
	return stuck, nil
}

func (c *fakeCluster) Preflight(context.Context, kamino.DrainOptions) (doubts []kamino.Warning, err error) {
	return nil, c.unprepared
}

func (c *fakeCluster) AgentPod(context.Context, string, kamino.Task) (kamino.AgentPod, error) {
	return kamino.AgentPod{}, nil
}

func (c *fakeCluster) StartAgent(_ context.Context, n kamino.Node, task kamino.Task, _ kamino.SealOrder) error {
	c.writes = append(c.writes, string(task)+" "+n.Name)
	return nil
}

func (c *fakeCluster) RemoveAgents(_ context.Context, run string, _ []kamino.Task) error {
	c.writes = append(c.writes, "remove pods of run "+run)
	return nil
}

func (c *fakeCluster) Lease(_ context.Context, pool kamino.PoolID) (kamino.Lease, error) {
	l := c.leases[pool]
	l.Pool = pool
	if c.alive && l.Holder == "r9" {
		l.Revision += "+"
		c.leases[pool] = l
	}
	return l, nil
}

func (c *fakeCluster) Leases(ctx context.Context) ([]kamino.Lease, error) {
	var out []kamino.Lease
	for id := range c.leases {
		l, _ := c.Lease(ctx, id)
		out = append(out, l)
	}
	return out, nil
}

func (c *fakeCluster) SetLease(_ context.Context, l kamino.Lease) (kamino.Lease, error) {
	if l.Revision != c.leases[l.Pool].Revision {
		return l, kamino.ErrConflict
	}
	c.writes = append(c.writes, "lease "+l.Pool.Name())
	l.Revision += "x"
	c.leases[l.Pool] = l
	return l, nil
}

func (c *fakeCluster) Preview(_ context.Context, n kamino.Node, _ kamino.DrainOptions) ([]kamino.Pod, error) {
	return c.pods[n.Name], nil
}

// fakeWorld is both, at a fixed time.
type fakeWorld struct {
	kamino.WallClock
	cloud    *fakeCloud
	cluster  *fakeCluster
	now      time.Time
	env      map[string]string
	starters []starter
	typed    string // by a person at a terminal; "" means that nobody sits there
}

func newFakeWorld() *fakeWorld {
	return &fakeWorld{
		cloud:   newFakeCloud(),
		cluster: &fakeCluster{nodes: map[string]*kamino.Node{}, pods: map[string][]kamino.Pod{}, leases: map[kamino.PoolID]kamino.Lease{}},
		now:     time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC),
		env:     map[string]string{"POD_IMAGE": fakeSealImage},
	}
}

// Now and Sleep make the world a clock: sleeping is instantaneous.
func (w *fakeWorld) Now() time.Time { return w.now }

func (w *fakeWorld) Sleep(ctx context.Context, d time.Duration) error {
	w.now = w.now.Add(d)
	return ctx.Err()
}

// addNode adds a Ready node, patched at a date, with its instance.
func (w *fakeWorld) addNode(pool, name, patched string) *kamino.Node {
	i := len(w.cluster.nodes)
	vm := fmt.Sprintf("%08d-0000-0000-0000-000000000000", i)
	id := kamino.InstanceID(fmt.Sprintf("azure://%s/virtualMachines/%d", fakePool(pool), i))
	n := &kamino.Node{
		Name: name, UID: vm, ProviderID: id, OS: "linux", Architecture: "amd64", SystemUUID: vm, BootID: "boot",
		Ready: true, ReadySince: w.now.Add(-time.Duration(i+1) * time.Hour), Annotations: map[string]string{},
	}
	if patched != "" {
		n.Annotations[kamino.KuredLastPatch.Annotation] = patched
	}
	w.cluster.nodes[name] = n
	w.cloud.instances[id] = kamino.Instance{
		ID: id, Pool: fakePool(pool), VMID: vm, Hostname: name, Power: kamino.PowerOn, Disk: "disk-" + name, Image: stock,
		Machine: kamino.Machine{Generation: "V2", Architecture: "x64", SecurityType: "Standard"},
	}
	return n
}

// instance is the one behind a node, to be changed.
func (w *fakeWorld) instance(node string, change func(*kamino.Instance)) {
	id := w.cluster.nodes[node].ProviderID
	in := w.cloud.instances[id]
	change(&in)
	w.cloud.instances[id] = in
}

func (w *fakeWorld) writes() []string { return slices.Concat(w.cloud.writes, w.cluster.writes) }

// kamino runs one command line on the world.
func (w *fakeWorld) kamino(t *testing.T, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	var out, errs bytes.Buffer
	a := newApp(ioStreams{In: strings.NewReader(w.typed), Out: &out, Err: &errs}, func(k string) string { return w.env[k] }, func(int) {})
	a.clock, a.terminal = w, func(any) bool { return w.typed != "" }
	a.provider = func(context.Context, globalOptions) (kamino.Provider, error) { return w.cloud, nil }
	a.cluster = func(context.Context, *app) (kamino.Cluster, error) { return w.cluster, nil }
	a.starters = func(context.Context, *app) []starter { return w.starters }
	code = execute(t.Context(), a, args)
	return out.String(), errs.String(), code
}
