package engine

import (
	"context"
	"fmt"
	"time"

	"kamino.dev/kamino"
	"kamino.dev/kamino/workflow"
)

func (d *donor) lookProtect(ctx context.Context) (workflow.Next, error) {
	n, mark, err := d.recentNode(ctx, d.held.Run)
	if err != nil {
		return workflow.Next{}, err
	}
	if n.Tainted(kamino.TaintDeleting) {
		return workflow.Next{}, fmt.Errorf("cluster-autoscaler is deleting node %s", n.Name)
	}
	if mark == nil && (d.held.Sealing() || n.Tainted(kamino.TaintBlock)) {
		// A new mark would not know what was done to the donor.
		return workflow.Next{}, d.lostMark()
	}
	if mark == nil {
		m := d.newMark(n, d.instance, d.work())
		return workflow.Act(kamino.ActProtect, "annotate the node with "+kamino.AnnotationProtect+"=true", func(ctx context.Context) error {
			if err := d.engine.Cluster.Mark(ctx, n, m); err != nil || d.held.Overdue() || m.Work == kamino.WorkPatch {
				return err
			}
			// The inventory takes about as long as the settling, so they begin together. The next
			// step checks its end.
			return d.beginSurvey(ctx, n)
		}).Announcing(kamino.ActSurvey, lookAtTheFiles).Then(whySettle, d.engine.forAutoscaler(settle)), nil
	}
	// The autoscaler reads the annotation only when it evaluates the node, and finishes a deletion
	// that it has begun.
	if age, limit := d.engine.now().Sub(mark.Since), d.engine.forAutoscaler(settle); age >= 0 && age < limit && d.runner.Spent() < limit {
		return workflow.WaitFor(whySettle, limit-max(age, d.runner.Spent())), nil
	}
	return workflow.Done("protected"), nil
}

const whySettle = "cluster-autoscaler to notice the annotation"

// settle is how long a run waits for cluster-autoscaler to see the protection: two of its scan
// intervals, which are ten seconds by default (--scan-interval,
// https://github.com/kubernetes/autoscaler/blob/master/cluster-autoscaler/FAQ.md).
const settle = 20 * time.Second

func (d *donor) newMark(n kamino.Node, of kamino.Instance, work kamino.Work) kamino.Mark {
	m := kamino.Mark{
		Format: kamino.MarkFormat, Run: d.held.Run, Epoch: d.held.Lease.Epoch, Pool: d.pool.ID,
		Instance: of.ID, VMID: of.VMID, BootID: n.BootID, Since: d.engine.date(), Work: work,
	}
	if v, ok := n.Annotations[kamino.AnnotationProtect]; ok {
		m.Protection = &v
	}
	return m
}

// remark is an act that changes the mark of the run.
func (d *donor) remark(what kamino.Act, says string, n kamino.Node, mark *kamino.Mark, change func(*kamino.Mark)) (workflow.Next, error) {
	if mark == nil {
		return workflow.Next{}, d.lostMark()
	}
	m := *mark
	change(&m)
	m.Epoch = d.held.Lease.Epoch
	return workflow.Act(what, says, func(ctx context.Context) error { return d.engine.Cluster.Mark(ctx, n, m) }), nil
}

func (d *donor) lostMark() error {
	return fmt.Errorf("node %s lost the mark of run %s: somebody removed annotation %s", d.node.Name, d.held.Run, kamino.AnnotationRun)
}
