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
	served     bool // no inventory pod on the donor is of a former process
	unasked    bool // the donor's mark was seen before any seal pod was requested
	listing    bool // this process has requested the donor's packages
	listed     bool // the packages are compared, or are not known before the seal
	rested     bool // the donor was seen off after its snapshot had begun
	patch      patching
	local      []kamino.Refusal // of a plan: the local volumes of the donor
}

// lookRehearse finds out, before the donor is changed, what would end its drain or its seal. Once
// pods are evicted, users notice.
func (r *Run) lookRehearse(ctx context.Context) (workflow.Next, error) {
	return r.rehearse(ctx, r.sealOrder())
}

func (r *Run) rehearse(ctx context.Context, order kamino.SealOrder) (workflow.Next, error) {
	pods, err := r.engine.Cluster.Rehearse(ctx, r.donor.node, order, r.opts.DrainOptions())
	var refused *kamino.RefusedError
	if errors.As(err, &refused) {
		return workflow.Next{}, err
	} else if err != nil {
		return workflow.Next{}, fmt.Errorf("dry-run drain and seal of node %s: %w", r.donor.node.Name, err)
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
	r.doubtAll(kamino.StepRehearse, doubts)
	if len(stuck) > 0 {
		return workflow.Next{}, &kamino.RefusedError{Subject: "node " + r.donor.node.Name, Refusals: []kamino.Refusal{kamino.RefuseStuck(stuck)}}
	}
	if r.pool.Capacity == 1 {
		r.doubt(kamino.StepRehearse, fmt.Sprintf("pool %s has one node, the donor: until it is back, its pods run only where other pools have room for them", r.pool.Name))
	}
	return workflow.Done("drain and seal are possible"), nil
}

// refuseSeal refuses a donor that got, after the rehearsal, something that a stop would harm: a
// local volume, or a pod that tolerates the block.
func (r *Run) refuseSeal(ctx context.Context, n kamino.Node) error {
	pods, err := r.engine.Cluster.Rehearse(ctx, n, r.sealOrder(), r.opts.DrainOptions())
	var refused *kamino.RefusedError
	switch back := kamino.Tolerant(pods); {
	case errors.As(err, &refused):
		return err
	case err != nil:
		return fmt.Errorf("dry-run the seal of node %s: %w", n.Name, err)
	case len(back) > 0:
		return r.undrainable(back)
	}
	return nil
}

// undrainable is the error for pods that come back.
func (r *Run) undrainable(back []kamino.Pod) error {
	return kamino.WithHint(fmt.Errorf("node %s cannot be drained: %s", r.donor.node.Name, kamino.DescribePods(back)), kamino.LeaveReturning)
}

func (r *Run) lookDrain(ctx context.Context) (workflow.Next, error) {
	n, mark, err := r.donor.readNode(ctx, r.held.Run)
	if err != nil {
		return workflow.Next{}, err
	}
	if mark == nil || !mark.Block || !n.Tainted(kamino.TaintBlock) {
		next, err := r.remark(kamino.ActBlock, "block the node with taint "+kamino.TaintBlock, n, mark, func(m *kamino.Mark) { m.Block = true })
		return next.Announcing(kamino.ActEvict, evictThePods), err
	}
	if mark.Sealing {
		return workflow.Done("drained earlier"), nil
	}
	opts := r.opts.DrainOptions()
	opts.Overdue = r.runner.Worked() > r.opts.DrainLimit()
	evict := func(ctx context.Context) ([]kamino.Pod, error) { return r.engine.Cluster.Evict(ctx, n, opts) }
	if !r.empty.evicting {
		return workflow.Act(kamino.ActEvict, evictThePods, func(ctx context.Context) error {
			r.empty.evicting = true
			_, err := evict(ctx)
			return err
		}).Then("the pods to leave", 0), nil
	}
	pods, err := evict(ctx)
	if err != nil {
		return workflow.Next{}, fmt.Errorf("evict the pods of node %s: %w", n.Name, err)
	}
	if len(pods) == 0 {
		return r.lookDetached(n), nil
	}
	if err := r.drainStuck(pods, opts); err != nil {
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
func (r *Run) lookDetached(n kamino.Node) workflow.Next {
	now := r.engine.now()
	if r.empty.emptied.IsZero() {
		r.empty.emptied = now
	}
	switch waited := now.Sub(r.empty.emptied); {
	case len(n.Volumes) == 0:
		return workflow.Done("every pod that had to leave is gone")
	case waited > detachTime:
		r.held.Warn(fmt.Sprintf("volumes still attached to node %s after %s: %s", n.Name, detachTime, kamino.SomeOf(n.Volumes)))
		return workflow.Done("every pod that had to leave is gone; volumes still attached: " + kamino.SomeOf(n.Volumes))
	}
	return workflow.Wait("volumes to be detached: " + kamino.SomeOf(n.Volumes))
}

const evictThePods = "evict the pods of the node"

// drainStuck decides whether to continue waiting for pods.
func (r *Run) drainStuck(pods []kamino.Pod, opts kamino.DrainOptions) error {
	if back := kamino.Returning(pods); len(back) > 0 {
		return r.undrainable(back)
	}
	stuck := slices.ContainsFunc(pods, func(p kamino.Pod) bool { return p.Stuck }) && !opts.Force
	overdue := opts.Overdue && !opts.Force
	hopeless := r.runner.Worked() > r.opts.DrainLimit()+2*max(r.opts.Grace, 0)+5*time.Minute
	if !stuck && !overdue && !hopeless {
		return nil
	}
	return kamino.WithHint(fmt.Errorf("node %s cannot be drained after %s: %s", r.donor.node.Name, r.runner.Worked().Round(time.Second), kamino.DescribePods(pods)),
		"fix what blocks their eviction, choose another node, or use --force to delete them")
}
