package engine

import (
	"cmp"
	"context"
	"fmt"

	"kamino.dev/kamino"
	"kamino.dev/kamino/workflow"
)

// lookReuse takes over a sealed and complete snapshot of today, and deletes any other snapshot of
// the pool.
func (r *Run) lookReuse(ctx context.Context) (workflow.Next, error) {
	name := kamino.SnapshotName(r.pool.Name)
	found, err := r.engine.readSnapshot(ctx, r.pool)
	if err != nil {
		return workflow.Next{}, err
	} else if found == nil {
		return workflow.Done("no snapshot of today"), nil
	}
	s := *found
	why := r.build.reusable(s)
	switch {
	case s.OfFormer:
		return workflow.Next{}, kamino.InTheWay{Err: kamino.WithHint(fmt.Errorf("snapshot %s was made of an earlier pool of this name",
			name), "delete or rename it, then run again")}
	case !s.Ours():
		return workflow.Next{}, kamino.InTheWay{Err: kamino.WithHint(fmt.Errorf("snapshot %s exists and was not made by kamino (no tag %s)",
			name, kamino.TagBuiltFrom),
			"delete or rename it, then run again")}
	case s.State == kamino.Deleting:
		return workflow.Wait("an old snapshot to be deleted"), nil
	case s.Run == r.held.Run && s.State != kamino.Failed && !s.Ready:
		return workflow.Done("this run's own, not complete yet"), nil
	case why == "" && s.State == kamino.Succeeded && s.Ready:
		used, err := r.build.imagedElsewhere(ctx, s)
		if err != nil {
			return workflow.Next{}, err
		}
		if !used {
			r.build.reused = &s
			return workflow.Done("taken from " + s.Donor + " today"), nil
		}
		why = "a version was made of it"
	}
	if r.build.foreignSnapshot(s) {
		if n, mark, err := r.restore.forgottenDonor(ctx, s, *r.held.Lease); err != nil {
			return workflow.Next{}, err
		} else if mark != nil {
			return r.restore.giveBackForgotten(n, mark, s), nil
		}
		if next, over := r.build.waitForActs(s); !over {
			return next, nil
		}
	}
	return r.build.deleteSnapshot(ctx, s, fmt.Sprintf("delete the stale snapshot taken from %s: %s", s.Donor,
		cmp.Or(why, "it is "+string(s.State))))
}
