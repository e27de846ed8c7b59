package engine

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"kamino.dev/kamino"
	"kamino.dev/kamino/workflow"
)

func (r *Run) lookProtect(ctx context.Context) (workflow.Next, error) {
	n, mark, err := r.donor.recentNode(ctx, r.held.Run)
	if err != nil {
		return workflow.Next{}, err
	}
	if n.Tainted(kamino.TaintDeleting) {
		return workflow.Next{}, fmt.Errorf("cluster-autoscaler is deleting node %s", n.Name)
	}
	if mark == nil && (r.held.Sealing() || n.Tainted(kamino.TaintBlock)) {
		// A new mark would not know what was done to the donor.
		return workflow.Next{}, r.lostMark()
	}
	if mark == nil {
		m := r.newMark(n, r.donor.instance, r.work())
		return workflow.Act(kamino.ActProtect, "annotate the node with "+kamino.AnnotationProtect+"=true", func(ctx context.Context) error {
			if err := r.engine.Cluster.Mark(ctx, n, m); err != nil || r.held.Overdue() || m.Work == kamino.WorkPatch {
				return err
			}
			// The inventory takes about as long as the settling, so they begin together. The next
			// step checks its end.
			return r.beginSurvey(ctx, n)
		}).Announcing(kamino.ActSurvey, lookAtTheFiles).Then(whySettle, r.engine.forAutoscaler(settle)), nil
	}
	// The autoscaler reads the annotation only when it evaluates the node, and finishes a deletion
	// that it has begun.
	if age, limit := r.engine.now().Sub(mark.Since), r.engine.forAutoscaler(settle); age >= 0 && age < limit && r.runner.Spent() < limit {
		return workflow.WaitFor(whySettle, limit-max(age, r.runner.Spent())), nil
	}
	return workflow.Done("protected"), nil
}

const whySettle = "cluster-autoscaler to notice the annotation"

// settle is how long a run waits for cluster-autoscaler to see the protection: two of its scan
// intervals, which are ten seconds by default (--scan-interval,
// https://github.com/kubernetes/autoscaler/blob/master/cluster-autoscaler/FAQ.md).
const settle = 20 * time.Second

// forAutoscaler returns the length of a wait for cluster-autoscaler.
func (e *Engine) forAutoscaler(needed time.Duration) time.Duration {
	return min(needed, cmp.Or(e.SettleLimit, needed))
}

func (r *Run) newMark(n kamino.Node, of kamino.Instance, work kamino.Work) kamino.Mark {
	m := kamino.Mark{
		Format: kamino.MarkFormat, Run: r.held.Run, Epoch: r.held.Lease.Epoch, Pool: r.pool.ID,
		Instance: of.ID, VMID: of.VMID, BootID: n.BootID, Since: r.engine.date(), Work: work,
	}
	if v, ok := n.Annotations[kamino.AnnotationProtect]; ok {
		m.Protection = &v
	}
	return m
}

// remark is an act that changes the mark of the run.
func (r *Run) remark(what kamino.Act, says string, n kamino.Node, mark *kamino.Mark, change func(*kamino.Mark)) (workflow.Next, error) {
	if mark == nil {
		return workflow.Next{}, r.lostMark()
	}
	m := *mark
	change(&m)
	if m.Block && !n.Tainted(kamino.TaintBlock) {
		m.Since = r.engine.date() // what is created later came past the block
	}
	m.Epoch = r.held.Lease.Epoch
	return workflow.Act(what, says, func(ctx context.Context) error { return r.engine.Cluster.Mark(ctx, n, m) }), nil
}

func (r *Run) lostMark() error {
	return fmt.Errorf("node %s lost the mark of run %s: somebody removed annotation %s", r.donor.node.Name, r.held.Run, kamino.AnnotationRun)
}
