package sim

import (
	"context"
	"slices"
	"time"

	"kamino.dev/kamino"
)

type wrongClock struct {
	kamino.Clock
	t *tampering
}

func (c wrongClock) Now() time.Time {
	now := c.Clock.Now().Add(c.t.clock)
	if c.t.wall {
		now = now.Round(0)
	}
	return now
}

// tampering is what a defect does on the way to the ports and back. Nil
// functions do nothing.
type tampering struct {
	clock time.Duration
	wall  bool // the clock has no monotonic reading
	fits  bool // every disk its pool

	instance  func(*kamino.Instance)
	pool      func(*kamino.Pool)
	found     func(kind kamino.Kind, list []kamino.Artifact) []kamino.Artifact
	condition func(*kamino.Pool) // of a write of the pool
	target    func(*kamino.Target)
	node      func(*kamino.Node)
	listed    func(*kamino.Node) // in a list only
	mark      func(*kamino.Mark)
	drain     func(*kamino.DrainOptions)
	drained   func(*kamino.Node)
	unstuck   bool               // no pod that another run has on a node holds its drain up
	ordered   func(*kamino.Node) // to a pod of the agent
	sealPod   func(*kamino.AgentPod)
	keepPods  bool // seal pods are never deleted
	pulse     func(time.Time) time.Time
	setLease  func(*kamino.Lease) // before it is written
	overwrite bool                // leases, whatever their revision
	freed     bool                // leases of other processes look free
	canaries  func([]kamino.Canary) []kamino.Canary
	examined  func(*kamino.ClusterObservation)
	process   string
	holding   func(*kamino.Holding)
	believes  bool // that what was asked out of service is
	asked     bool // it was
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
	kamino.Provider
	kamino.Prover
	t *tampering
}

func (p faultyProvider) Pool(ctx context.Context, id kamino.PoolID) (kamino.Pool, error) {
	out, err := p.Provider.Pool(ctx, id)
	do(p.t.pool, &out)
	return out, p.t.err(err)
}

func (p faultyProvider) Instance(ctx context.Context, id kamino.InstanceID) (kamino.Instance, error) {
	out, err := p.Provider.Instance(ctx, id)
	if err == nil {
		do(p.t.instance, &out)
	}
	return out, p.t.err(err)
}

func (p faultyProvider) Canaries(ctx context.Context, pool kamino.Pool) ([]kamino.Canary, error) {
	list, err := p.Prover.Canaries(ctx, pool)
	if p.t.canaries != nil {
		list = p.t.canaries(list)
	}
	return list, p.t.err(err)
}

func (p faultyProvider) SetPower(ctx context.Context, id kamino.InstanceID, want kamino.Power) error {
	return p.t.err(p.Provider.SetPower(ctx, id, want))
}

func (p faultyProvider) Find(ctx context.Context, pool kamino.Pool, kind kamino.Kind, name string) ([]kamino.Artifact, error) {
	out, err := p.Provider.Find(ctx, pool, kind, name)
	if p.t.found != nil {
		out = p.t.found(kind, append([]kamino.Artifact(nil), out...))
	}
	return out, p.t.err(err)
}

func (p faultyProvider) Create(ctx context.Context, pool kamino.Pool, a kamino.Artifact) error {
	return p.t.err(p.Provider.Create(ctx, pool, a))
}

func (p faultyProvider) Delete(ctx context.Context, pool kamino.Pool, a kamino.Artifact) error {
	return p.t.err(p.Provider.Delete(ctx, pool, a))
}

func (p faultyProvider) Promote(ctx context.Context, pool kamino.Pool, want kamino.Target) error {
	do(p.t.condition, &pool)
	do(p.t.target, &want)
	return p.t.err(p.Provider.Promote(ctx, pool, want))
}

func (p faultyProvider) NextImage(ctx context.Context, pool kamino.Pool, want kamino.Target) (kamino.NextImage, error) {
	do(p.t.target, &want)
	return p.Provider.NextImage(ctx, pool, want)
}

func (p faultyProvider) SetCapacity(ctx context.Context, pool kamino.Pool, instances int) error {
	do(p.t.condition, &pool)
	return p.t.err(p.Provider.SetCapacity(ctx, pool, instances))
}

func (p faultyProvider) Preflight(ctx context.Context) ([]kamino.Warning, error) {
	doubts, err := p.Provider.Preflight(ctx)
	return doubts, p.t.err(err)
}

func (p faultyProvider) Fit(ctx context.Context, pool kamino.Pool, donor kamino.Instance, definition *kamino.Artifact) ([]kamino.Refusal,
	[]kamino.Warning, error) {
	if p.t.fits {
		return nil, nil, nil
	}
	refusals, doubts, err := p.Provider.Fit(ctx, pool, donor, definition)
	return refusals, doubts, p.t.err(err)
}

func (p faultyProvider) SetTags(ctx context.Context, pool kamino.Pool, a kamino.Artifact) error {
	return p.t.err(p.Provider.SetTags(ctx, pool, a))
}

func (p faultyProvider) Withdraw(ctx context.Context, pool kamino.Pool, version string, bad kamino.Bad) error {
	return p.t.err(p.Provider.Withdraw(ctx, pool, version, bad))
}

// faultyHolder is faultyProvider where the pools replace what is off.
type faultyHolder struct {
	faultyProvider
	kamino.Standby
}

func (p faultyHolder) Holding(ctx context.Context, pool kamino.Pool, id kamino.InstanceID) (kamino.Holding, error) {
	how, err := p.Standby.Holding(ctx, pool, id)
	do(p.t.holding, &how)
	if p.t.asked && how == kamino.InService {
		how = kamino.Held
	}
	return how, p.t.err(err)
}

func (p faultyHolder) Hold(ctx context.Context, pool kamino.Pool, id kamino.InstanceID) error {
	if p.t.believes {
		p.t.asked = true
		return nil
	}
	return p.t.err(p.Standby.Hold(ctx, pool, id))
}

func (p faultyHolder) Release(ctx context.Context, pool kamino.Pool, id kamino.InstanceID) error {
	p.t.asked = false
	return p.t.err(p.Standby.Release(ctx, pool, id))
}

type faultyCluster struct {
	kamino.Cluster
	kamino.Examiner
	kamino.Patcher
	t *tampering
}

func (c faultyCluster) Node(ctx context.Context, name string) (kamino.Node, error) {
	n, err := c.Cluster.Node(ctx, name)
	if err == nil {
		do(c.t.node, &n)
	}
	return n, c.t.err(err)
}

func (c faultyCluster) Nodes(ctx context.Context) ([]kamino.Node, error) {
	list, err := c.Cluster.Nodes(ctx)
	for i := range list {
		do(c.t.node, &list[i])
		do(c.t.listed, &list[i])
	}
	return list, c.t.err(err)
}

func (c faultyCluster) Examine(ctx context.Context, order kamino.ExamineOrder) (kamino.ClusterObservation, error) {
	out, err := c.Examiner.Examine(ctx, order)
	if err == nil {
		do(c.t.examined, &out)
	}
	return out, c.t.err(err)
}

func (c faultyCluster) Mark(ctx context.Context, n kamino.Node, m kamino.Mark) error {
	do(c.t.mark, &m)
	return c.t.err(c.Cluster.Mark(ctx, n, m))
}

func (c faultyCluster) Unmark(ctx context.Context, n kamino.Node) error {
	return c.t.err(c.Cluster.Unmark(ctx, n))
}

func (c faultyCluster) Evict(ctx context.Context, n kamino.Node, opts kamino.DrainOptions) ([]kamino.Pod, error) {
	do(c.t.drain, &opts)
	do(c.t.drained, &n)
	left, err := c.Cluster.Evict(ctx, n, opts)
	return c.t.leave(left), c.t.err(err)
}

func (c faultyCluster) Rehearse(ctx context.Context, n kamino.Node, order kamino.SealOrder, opts kamino.DrainOptions) ([]kamino.Pod,
	error) {
	left, err := c.Cluster.Rehearse(ctx, n, order, opts)
	return c.t.leave(left), c.t.err(err)
}

func (t *tampering) leave(left []kamino.Pod) []kamino.Pod {
	return slices.DeleteFunc(left, func(p kamino.Pod) bool { return t.unstuck && p.Namespace == kamino.SystemNamespace })
}

func (c faultyCluster) AgentPod(ctx context.Context, run string, task kamino.Task) (kamino.AgentPod, error) {
	pod, err := c.Cluster.AgentPod(ctx, run, task)
	if task == kamino.TaskSeal {
		do(c.t.sealPod, &pod)
	}
	return pod, c.t.err(err)
}

func (c faultyCluster) StartAgent(ctx context.Context, n kamino.Node, task kamino.Task, order kamino.SealOrder) error {
	do(c.t.ordered, &n)
	return c.t.err(c.Cluster.StartAgent(ctx, n, task, order))
}

func (c faultyCluster) RemoveAgents(ctx context.Context, run string, tasks []kamino.Task) error {
	if c.t.keepPods {
		return nil
	}
	return c.t.err(c.Cluster.RemoveAgents(ctx, run, tasks))
}

func (c faultyCluster) Lease(ctx context.Context, id kamino.PoolID) (kamino.Lease, error) {
	l, err := c.Cluster.Lease(ctx, id)
	if c.t.freed && l.Process != c.t.process {
		l.Holder, l.Process = "", ""
	}
	return l, c.t.err(err)
}

func (c faultyCluster) SetLease(ctx context.Context, l kamino.Lease) (kamino.Lease, error) {
	do(c.t.setLease, &l)
	if c.t.overwrite {
		if have, err := c.Cluster.Lease(ctx, l.Pool); err == nil {
			l.Revision = have.Revision
		}
	}
	out, err := c.Cluster.SetLease(ctx, l)
	return out, c.t.err(err)
}

func (c faultyCluster) Pulse(ctx context.Context, n kamino.Node) (time.Time, error) {
	pulse, err := c.Cluster.Pulse(ctx, n)
	if c.t.pulse != nil {
		pulse = c.t.pulse(pulse)
	}
	return pulse, c.t.err(err)
}

func (c faultyCluster) Leases(ctx context.Context) ([]kamino.Lease, error) {
	list, err := c.Cluster.Leases(ctx)
	return list, c.t.err(err)
}
