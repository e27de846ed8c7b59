package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"kamino.dev/kamino"
	"kamino.dev/kamino/workflow"
)

// drainState is what was observed while the donor was drained and sealed.
type drainState struct {
	evicting bool      // this process has evicted pods of the donor
	emptied  time.Time // when every evictable pod had left
	held     time.Time // when the donor was first seen out of service
	// surveyless: no inventory pod can run on the donor beside its pods.
	surveyless bool
	served     bool // the inventory pod on the donor is not of a former process
	unasked    bool // this process saw the donor's mark before it requested a seal pod
	listing    bool // this process has requested the donor's packages
	listed     bool // the packages are compared, or are not known before the seal
	rested     bool // the donor was seen off after its snapshot had begun
	arrivals   arrivals
}

// arrivals are the pods that the rounds of a drain saw.
type arrivals struct {
	seen map[string]bool // by UID
	// rounds counts, by controller, the rounds that saw a pod which none before had seen.
	rounds map[string]int
}

// note tells which pods come back though they do not tolerate the block: their controller names the
// node (spec.nodeName) and asks no scheduler. A pod that was bound while the node was blocked may be
// late, even by minutes if it waits for a volume, but nothing takes its place.
func (a *arrivals) note(pods []kamino.Pod) {
	const often = 3
	first := a.seen == nil
	if first {
		a.seen, a.rounds = map[string]bool{}, map[string]int{}
	}
	by := func(p kamino.Pod) string { return p.Namespace + "/" + p.Controller }
	came := map[string]bool{}
	for _, p := range pods {
		came[by(p)] = came[by(p)] || !first && !a.seen[p.UID]
		a.seen[p.UID] = true
	}
	for controller, came := range came {
		if came {
			a.rounds[controller]++
		}
	}
	for i, p := range pods {
		if a.rounds[by(p)] >= often {
			pods[i].Reason, pods[i].Stuck, pods[i].Returns = "its controller makes it for this node, again after each eviction", true, true
		}
	}
}

// lookRehearse finds out, before the donor is changed, what would end its drain or its seal. Once
// pods are evicted, users notice.
func (d *donor) lookRehearse(ctx context.Context) (workflow.Next, error) {
	return d.rehearse(ctx, d.sealOrder())
}

func (d *donor) rehearse(ctx context.Context, order kamino.SealOrder) (workflow.Next, error) {
	pods, err := d.engine.Cluster.Rehearse(ctx, d.node, order, d.opts.DrainOptions())
	var refused *kamino.RefusedError
	if errors.As(err, &refused) {
		return workflow.Next{}, err
	} else if err != nil {
		return workflow.Next{}, fmt.Errorf("dry-run drain and seal of node %s: %w", d.node.Name, err)
	}
	var stuck []kamino.Pod
	var doubts []kamino.Warning
	for _, p := range pods {
		if p.Stuck {
			stuck = append(stuck, p)
		} else {
			doubts = append(doubts, kamino.Warning{Found: fmt.Sprintf("pod %s might not end in time: %s", p, p.Reason)})
		}
	}
	d.doubtAll(kamino.StepRehearse, doubts)
	if len(stuck) > 0 {
		return workflow.Next{}, &kamino.RefusedError{Subject: "node " + d.node.Name, Refusals: []kamino.Refusal{kamino.RefuseStuck(stuck)}}
	}
	if d.pool.Capacity == 1 {
		d.doubt(kamino.StepRehearse, fmt.Sprintf("pool %s has one node, the donor: until it is back, its pods run only where other pools have room for them", d.pool.Name))
	}
	return workflow.Done("drain and seal are possible"), nil
}

// refuseSeal refuses a donor that got, after the rehearsal, something that a stop would harm: a
// local volume, or a pod that tolerates the block.
func (d *donor) refuseSeal(ctx context.Context, n kamino.Node) error {
	pods, err := d.engine.Cluster.Rehearse(ctx, n, d.sealOrder(), d.opts.DrainOptions())
	var refused *kamino.RefusedError
	switch back := kamino.Tolerant(pods); {
	case errors.As(err, &refused):
		return err
	case err != nil:
		return fmt.Errorf("dry-run the seal of node %s: %w", n.Name, err)
	case len(back) > 0:
		return d.undrainable(back)
	}
	return nil
}

// undrainable is the error for pods that come back.
func (d *donor) undrainable(back []kamino.Pod) error {
	return kamino.WithHint(fmt.Errorf("node %s cannot be drained: %s", d.node.Name, kamino.DescribePods(back)), kamino.LeaveReturning)
}

// lookDrain blocks the donor and evicts its pods, one round each time, until none is left that must
// leave and their volumes are detached.
func (d *donor) lookDrain(ctx context.Context) (workflow.Next, error) {
	n, mark, err := d.readNode(ctx, d.held.Run)
	if err != nil {
		return workflow.Next{}, err
	}
	if mark == nil || !mark.Block || !n.Tainted(kamino.TaintBlock) {
		next, err := d.remark(kamino.ActBlock, "block the node with taint "+kamino.TaintBlock, n, mark,
			func(m *kamino.Mark) { m.Block = true })
		return next.Announcing(kamino.ActEvict, evictThePods), err
	}
	if mark.Sealing {
		return workflow.Done("drained earlier"), nil
	}
	opts := d.opts.DrainOptions()
	opts.Overdue = d.runner.Worked() > d.opts.DrainLimit()
	evict := func(ctx context.Context) ([]kamino.Pod, error) {
		pods, err := d.engine.Cluster.Evict(ctx, n, opts)
		if err == nil {
			d.drain.arrivals.note(pods)
		}
		return pods, err
	}
	if !d.drain.evicting {
		return workflow.Act(kamino.ActEvict, evictThePods, func(ctx context.Context) error {
			d.drain.evicting = true
			_, err := evict(ctx)
			return err
		}).Then("the pods to leave", 0), nil
	}
	pods, err := evict(ctx)
	if err != nil {
		return workflow.Next{}, fmt.Errorf("evict the pods of node %s: %w", n.Name, err)
	}
	if len(pods) == 0 {
		return d.lookDetached(n), nil
	}
	if err := d.drainStuck(pods, opts); err != nil {
		return workflow.Next{}, err
	}
	return workflow.Wait(kamino.DescribePods(pods)), nil
}

// detachTime is how long a run waits for volumes after their pods have left. The attach-detach
// controller releases a volume of a machine that is off only after six minutes
// (maxWaitForUnmountDuration in k8s.io/kubernetes/pkg/controller/volume/attachdetach), and its pod
// cannot start elsewhere so long. Volumes of pods that stay are never detached; the node does not
// show which those are.
const detachTime = 2 * time.Minute

// lookDetached waits until the volumes of the pods that left are detached from the donor.
func (d *donor) lookDetached(n kamino.Node) workflow.Next {
	now := d.engine.now()
	if d.drain.emptied.IsZero() {
		d.drain.emptied = now
	}
	switch waited := now.Sub(d.drain.emptied); {
	case len(n.Volumes) == 0:
		return workflow.Done("every pod that had to leave is gone")
	case waited > detachTime:
		d.held.Warn(fmt.Sprintf("volumes still attached to node %s after %s: %s", n.Name, detachTime, kamino.SomeOf(n.Volumes)))
		return workflow.Done("every pod that had to leave is gone; volumes still attached: " + kamino.SomeOf(n.Volumes))
	}
	return workflow.Wait("volumes to be detached: " + kamino.SomeOf(n.Volumes))
}

const evictThePods = "evict the pods of the node"

// drainStuck decides whether to continue waiting for pods.
func (d *donor) drainStuck(pods []kamino.Pod, opts kamino.DrainOptions) error {
	if back := kamino.Returning(pods); len(back) > 0 {
		return d.undrainable(back)
	}
	stuck := slices.ContainsFunc(pods, func(p kamino.Pod) bool { return p.Stuck }) && !opts.Force
	overdue := opts.Overdue && !opts.Force
	hopeless := d.runner.Worked() > d.opts.DrainLimit()+2*max(d.opts.Grace, 0)+5*time.Minute
	if !stuck && !overdue && !hopeless {
		return nil
	}
	return kamino.WithHint(fmt.Errorf("node %s cannot be drained after %s: %s", d.node.Name, d.runner.Worked().Round(time.Second),
		kamino.DescribePods(pods)),
		"fix what blocks their eviction, choose another node, or use --force to delete them")
}

func (d *donor) planDrain() string {
	n := len(d.plan.Evictions)
	if n == 0 {
		return "block the donor for new pods; no pod has to leave"
	}
	return "block the donor for new pods; " + kamino.DescribePods(d.plan.Evictions)
}

// drainTimeout is the limit of the drain that people see.
func (d *donor) drainTimeout() time.Duration { return d.opts.DrainLimit() }
