//go:build defects

package kamino

import (
	"context"
	"encoding/json"
	"fmt"
	"time"
)

// Defect is a known bad behaviour that can be switched on.
type Defect struct {
	Name string
	Like string // the original's defect that it translates, "" when it is another
	What string
	By   string // the invariant that must find it; "" any

	ports func() *tampering // what it does to the ports; fresh for every run
	steps func(*Run, []Step) []Step
}

// active is the one that is switched on.
var active *Defect

// SwitchDefect switches one defect on and all others off; "" switches all off.
// It must not be called while an engine runs.
func SwitchDefect(name string) error {
	active = nil
	if name == "" {
		return nil
	}
	for i := range Defects {
		if Defects[i].Name == name {
			active = &Defects[i]
			return nil
		}
	}
	return fmt.Errorf("there is no defect %q", name)
}

func faulty(e *Engine) *Engine {
	if active == nil || active.ports == nil {
		return e
	}
	copied, t := *e, active.ports()
	t.process = e.Process
	copied.Provider, copied.Cluster = faultyProvider{e.Provider, t}, faultyCluster{e.Cluster, t}
	if t.clock != 0 {
		copied.Clock = wrongClock{e.clock(), t.clock}
	}
	return &copied
}

func faultySteps(r *Run, steps []Step) []Step {
	if active == nil || active.steps == nil {
		return steps
	}
	return active.steps(r, append([]Step(nil), steps...))
}

type wrongClock struct {
	Clock
	off time.Duration
}

func (c wrongClock) Now() time.Time { return c.Clock.Now().Add(c.off) }

// tampering is what a defect does on the way to the ports and back. Nil
// functions do nothing.
type tampering struct {
	clock time.Duration

	instance  func(*Instance)
	pool      func(*Pool)
	found     func(kind Kind, list []Artifact) []Artifact
	condition func(*Pool) // of a write of the pool
	node      func(*Node)
	listed    func(*Node) // in a list only
	mark      func(*Mark)
	drain     func(*DrainOptions)
	sealPod   func(*SealPod)
	keepPods  bool // seal pods are never deleted
	pulse     func(time.Time) time.Time
	setLease  func(*Lease) // before it is written
	overwrite bool         // leases, whatever their revision
	freed     bool         // leases of other processes look free
	process   string
	failure   func(error) error
}

func do[T any](f func(*T), v *T) {
	if f != nil {
		f(v)
	}
}

func (t *tampering) err(err error) error {
	if err != nil && t.failure != nil {
		return t.failure(err)
	}
	return err
}

type faultyProvider struct {
	Provider
	t *tampering
}

func (p faultyProvider) Pool(ctx context.Context, id PoolID) (Pool, error) {
	out, err := p.Provider.Pool(ctx, id)
	do(p.t.pool, &out)
	return out, p.t.err(err)
}

func (p faultyProvider) Instance(ctx context.Context, id InstanceID) (Instance, error) {
	out, err := p.Provider.Instance(ctx, id)
	if err == nil {
		do(p.t.instance, &out)
	}
	return out, p.t.err(err)
}

func (p faultyProvider) SetPower(ctx context.Context, id InstanceID, want Power) error {
	return p.t.err(p.Provider.SetPower(ctx, id, want))
}

func (p faultyProvider) Find(ctx context.Context, pool Pool, kind Kind, name string) ([]Artifact, error) {
	out, err := p.Provider.Find(ctx, pool, kind, name)
	if p.t.found != nil {
		out = p.t.found(kind, append([]Artifact(nil), out...))
	}
	return out, p.t.err(err)
}

func (p faultyProvider) Create(ctx context.Context, pool Pool, a Artifact) error {
	return p.t.err(p.Provider.Create(ctx, pool, a))
}

func (p faultyProvider) Delete(ctx context.Context, pool Pool, a Artifact) error {
	return p.t.err(p.Provider.Delete(ctx, pool, a))
}

func (p faultyProvider) SetModel(ctx context.Context, pool Pool, want ModelSpec, dryRun bool) ([]FieldChange, error) {
	do(p.t.condition, &pool)
	diff, err := p.Provider.SetModel(ctx, pool, want, dryRun)
	return diff, p.t.err(err)
}

func (p faultyProvider) SetCapacity(ctx context.Context, pool Pool, instances int) error {
	do(p.t.condition, &pool)
	return p.t.err(p.Provider.(Scaler).SetCapacity(ctx, pool, instances))
}

func (p faultyProvider) Address(pool Pool, kind Kind, name string) string {
	if a, ok := p.Provider.(Addresser); ok {
		return a.Address(pool, kind, name)
	}
	return ""
}

func (p faultyProvider) Preflight(ctx context.Context) ([]string, error) {
	if f, ok := p.Provider.(Preflighter); ok {
		doubts, err := f.Preflight(ctx)
		return doubts, p.t.err(err)
	}
	return nil, nil
}

func (p faultyProvider) Fit(ctx context.Context, pool Pool, donor Instance, definition *Artifact) ([]Refusal, []string, error) {
	if f, ok := p.Provider.(Fitter); ok {
		refusals, doubts, err := f.Fit(ctx, pool, donor, definition)
		return refusals, doubts, p.t.err(err)
	}
	return nil, nil, nil
}

func (p faultyProvider) ReadSaved(raw json.RawMessage) (Model, error) {
	return p.Provider.(SavedReader).ReadSaved(raw)
}

func (p faultyProvider) SetExcluded(ctx context.Context, pool Pool, v Artifact, excluded bool, tags map[string]string) error {
	return p.t.err(p.Provider.(Excluder).SetExcluded(ctx, pool, v, excluded, tags))
}

type faultyCluster struct {
	Cluster
	t *tampering
}

func (c faultyCluster) Node(ctx context.Context, name string) (Node, error) {
	n, err := c.Cluster.Node(ctx, name)
	if err == nil {
		do(c.t.node, &n)
	}
	return n, c.t.err(err)
}

func (c faultyCluster) Nodes(ctx context.Context) ([]Node, error) {
	list, err := c.Cluster.Nodes(ctx)
	for i := range list {
		do(c.t.node, &list[i])
		do(c.t.listed, &list[i])
	}
	return list, c.t.err(err)
}

func (c faultyCluster) Mark(ctx context.Context, n Node, m *Mark) error {
	if m != nil {
		copied := *m
		m = &copied
		do(c.t.mark, m)
	}
	return c.t.err(c.Cluster.Mark(ctx, n, m))
}

func (c faultyCluster) Evict(ctx context.Context, n Node, opts DrainOptions) ([]Pod, error) {
	do(c.t.drain, &opts)
	left, err := c.Cluster.Evict(ctx, n, opts)
	return left, c.t.err(err)
}

func (c faultyCluster) SealPod(ctx context.Context, n Node, run string) (SealPod, error) {
	pod, err := c.Cluster.SealPod(ctx, n, run)
	do(c.t.sealPod, &pod)
	return pod, c.t.err(err)
}

func (c faultyCluster) Seal(ctx context.Context, n Node, order SealOrder) error {
	return c.t.err(c.Cluster.Seal(ctx, n, order))
}

func (c faultyCluster) RemoveSealPod(ctx context.Context, n Node, run string) error {
	if c.t.keepPods {
		return nil
	}
	return c.t.err(c.Cluster.RemoveSealPod(ctx, n, run))
}

func (c faultyCluster) Lease(ctx context.Context, id PoolID) (Lease, error) {
	l, err := c.Cluster.Lease(ctx, id)
	if c.t.freed && l.Process != c.t.process {
		l.Holder, l.Process = "", ""
	}
	return l, c.t.err(err)
}

func (c faultyCluster) SetLease(ctx context.Context, l Lease) (Lease, error) {
	do(c.t.setLease, &l)
	if c.t.overwrite {
		if have, err := c.Cluster.Lease(ctx, l.Pool); err == nil {
			l.Revision = have.Revision
		}
	}
	out, err := c.Cluster.SetLease(ctx, l)
	return out, c.t.err(err)
}

func (c faultyCluster) Record(ctx context.Context, n Node, reason, message string) {
	if r, ok := c.Cluster.(Recorder); ok {
		r.Record(ctx, n, reason, message)
	}
}

func (c faultyCluster) Pulse(ctx context.Context, n Node) (time.Time, error) {
	pulse, err := n.Heartbeat, error(nil)
	if p, ok := c.Cluster.(Pulser); ok {
		pulse, err = p.Pulse(ctx, n)
	}
	if c.t.pulse != nil {
		pulse = c.t.pulse(pulse)
	}
	return pulse, c.t.err(err)
}

func (c faultyCluster) Leases(ctx context.Context) ([]Lease, error) {
	l, ok := c.Cluster.(Leases)
	if !ok {
		return nil, nil
	}
	list, err := l.Leases(ctx)
	return list, c.t.err(err)
}
