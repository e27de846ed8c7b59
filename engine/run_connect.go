package engine

import (
	"context"
	"errors"
	"fmt"

	"kamino.dev/kamino"
	"kamino.dev/kamino/lock"
	"kamino.dev/kamino/selection"
	"kamino.dev/kamino/workflow"
)

func (r *Run) lookConnect(ctx context.Context) (workflow.Next, error) {
	if err := r.checkCredentials(ctx); err != nil {
		return workflow.Next{}, err
	}
	if err := r.checkCluster(ctx); err != nil {
		return workflow.Next{}, err
	}
	if err := r.refusePaused(ctx); err != nil && r.opts.Donor != "" {
		return workflow.Next{}, err // a rollback continues
	}
	return workflow.Done("credentials work"), nil
}

func (r *Run) checkCluster(ctx context.Context) error {
	doubts, err := r.engine.Cluster.Preflight(ctx, r.opts.DrainOptions())
	if errors.Is(err, kamino.ErrForbidden) { // what else is missing is reported together
		if more := r.canary.checkProof(ctx); errors.Is(more, kamino.ErrForbidden) {
			return errors.Join(err, more)
		}
	}
	if err != nil {
		return err
	}
	r.doubtAll(kamino.StepConnect, doubts)
	return r.canary.checkProof(ctx)
}

// checkCredentials is the part of connect that a plan needs. A plan also works on a cluster that
// was not prepared.
func (r *Run) checkCredentials(ctx context.Context) error {
	doubts, err := r.engine.Provider.Preflight(ctx)
	if err != nil {
		return err
	}
	r.doubtAll(kamino.StepConnect, doubts)
	return nil
}

func (r *Run) lookValidate(ctx context.Context) (workflow.Next, error) {
	node, err := r.engine.namedNode(ctx, r.opts.Donor)
	if err != nil {
		return workflow.Next{}, err
	}
	if _, err := node.Mark(); err != nil {
		return workflow.Next{}, kamino.RefuseMark(node.Name, err)
	}
	r.donor.node = node
	if refusals := selection.RefuseNode(node, r.opts, true); node.ProviderID == "" {
		return workflow.Next{}, &kamino.RefusedError{Subject: "node " + node.Name, Refusals: refusals}
	}
	if err := r.donor.readPool(ctx); err != nil {
		return workflow.Next{}, err
	}
	mark, err := node.Claimed(r.pool.ID)
	if err != nil {
		return workflow.Next{}, kamino.RefuseMark(node.Name, err)
	}
	if err := r.refuse(mark != nil); err != nil {
		return workflow.Next{}, err
	}
	// A marked donor may be away. Whose mark it is shows under the lease; then the donor is judged.
	if r.donor.unjudged = mark != nil; !r.donor.unjudged {
		if err := r.donor.refuseHeld(ctx); err != nil {
			return workflow.Next{}, err
		}
		if err := r.fit(ctx); err != nil {
			return workflow.Next{}, err
		}
	}
	if r.work() != kamino.WorkPatch {
		if err := r.canary.chooseProof(ctx); err != nil {
			return workflow.Next{}, err
		}
	}
	return workflow.Done(fmt.Sprintf("%s is %s of pool %s", node.Name, r.donor.instance.ID, r.pool.Name)), nil
}

func (r *Run) lookLock(ctx context.Context) (workflow.Next, error) {
	return r.held.Look(ctx, r.freshRecord)
}

// lookFreeLock takes a lease that nobody holds. It adopts no run, because the run's donor would
// have to be given back.
func (r *Run) lookFreeLock(ctx context.Context) (workflow.Next, error) {
	lease, err := r.engine.Cluster.Lease(ctx, r.pool.ID)
	if err != nil {
		return workflow.Next{}, fmt.Errorf("read lease of pool %s: %w", r.pool.Name, err)
	}
	if lease.Holder != "" && lease.Holder != r.held.Run {
		return workflow.Next{}, lock.HeldBy(lease)
	}
	return r.lookLock(ctx)
}

// lookRecover restores what earlier runs of the pool left, before a new donor is touched. An
// adopted run continues where it was, if possible.
func (r *Run) lookRecover(ctx context.Context) (workflow.Next, error) {
	nodes, err := r.engine.Cluster.Nodes(ctx)
	if err != nil {
		return workflow.Next{}, fmt.Errorf("list nodes: %w", err)
	}
	for _, n := range selection.Twins(nodes) {
		if n.Name == r.donor.node.Name {
			r.donor.sawNode(n) // much may have happened while the lease was watched
		}
	}
	continues := r.held.Adopted && r.donor.continues()
	if next, found, err := r.leftBehind(ctx, nodes, continues); found || err != nil {
		return next, err
	}
	if n := r.donor.node; n.Twin != "" && !continues {
		return workflow.Next{}, &kamino.RefusedError{Subject: "node " + n.Name,
			Refusals: []kamino.Refusal{{Code: kamino.CodeMachine, Field: "spec.providerID", Value: string(n.ProviderID),
				Why: "node " + n.Twin + " shows the same machine: the disk of another node could become the image",
				Do:  "find out which of the two runs on it, and delete the other Node object: kubectl delete node NODE"}}}
	}
	if r.held.Adopted && !continues {
		return workflow.Act(kamino.ActBegin, "begin a new run in place of "+r.held.Run, func(ctx context.Context) error {
			id := r.held.FreshID()
			if err := r.canary.readVerdict(ctx); err != nil {
				return err
			}
			err := r.held.SetLease(ctx, func(l *kamino.Lease) {
				if l.Holder != id {
					l.Epoch++
					l.Ledger.NoteFailed(l.Holder, r.held.AsFound(l.Record), r.engine.date())
				}
				was := l.Record
				l.Holder, l.Record = id, r.freshRecord()
				l.Record.Canary, l.Record.CanarySince, l.Record.Probe = was.Canary, was.CanarySince, was.Probe // until they are removed
			})
			if err == nil {
				r.held.Run, r.held.Adopted, r.held.Replaced = id, false, r.held.Run
			}
			return err
		}), nil
	}
	if former := r.held.Replaced; former != r.held.Cleared {
		// If somebody removed the donor's mark, the pods of that run are found only this way.
		return workflow.Act(kamino.ActUnseal, "remove the pods of run "+former, func(ctx context.Context) error {
			err := r.engine.Cluster.RemoveAgents(ctx, former, agentTasks(r.held.Before.Work == kamino.WorkPatch, true))
			if err == nil {
				r.held.Cleared = former
			}
			return err
		}), nil
	}
	if err := r.judge(ctx, continues); err != nil {
		return workflow.Next{}, err
	}
	if err := r.canary.keepProof(ctx); err != nil {
		return workflow.Next{}, err
	}
	if err := r.held.RefuseModel(); err != nil && !continues && r.work() == "" && r.build.needed() {
		return workflow.Next{}, err
	}
	if continues {
		r.donor.away = span{r.held.Lease.Record.AwaySince, r.held.Lease.Record.AwayEnds}
		return workflow.Done(fmt.Sprintf("continuing run %s at step %s", r.held.Run, r.held.Lease.Record.Step)), nil
	}
	return workflow.Done("nothing was left"), nil
}

// judge makes the checks of validate for a donor that was marked. A donor that this run continues
// with may be away; changes of its pool since then count for it too.
func (r *Run) judge(ctx context.Context, continues bool) error {
	if !r.donor.unjudged {
		return nil
	}
	if !continues {
		if err := r.donor.readPool(ctx); err != nil {
			return err
		}
		if err := r.refuse(false); err != nil {
			return err
		}
	}
	if err := r.fit(ctx); err != nil {
		return err
	}
	r.donor.unjudged = false
	return nil
}

// leftBehind finds a donor of the pool that an earlier run left: by the marks or, if Kubernetes has
// forgotten the node, by the record on the lease.
func (r *Run) leftBehind(ctx context.Context, nodes []kamino.Node, continues bool) (next workflow.Next, found bool, err error) {
	if nodes, err = r.engine.ofPool(ctx, nodes, r.pool.ID); err != nil {
		return workflow.Next{}, false, err
	}
	for _, n := range nodes {
		mark, err := n.OwnedBy(r.pool.ID, *r.held.Lease)
		if err != nil {
			r.tell(kamino.Event{Kind: kamino.EventWarning, Step: kamino.StepRecover, Percent: -1, Message: err.Error() + ": left alone"})
		}
		if err != nil || mark == nil || (mark.Run == r.held.Run && continues) {
			continue
		}
		return workflow.ActSteps(kamino.ActGiveBack, fmt.Sprintf("give back node %s, which run %s left", n.Name, mark.Run),
			func(ctx context.Context) error { return r.giveBackNode(ctx, n, *mark) }).Of(n.Name), true, nil
	}
	rec := r.held.Lease.Record
	if !r.held.Adopted || continues || !rec.Sealing && !rec.Held {
		return workflow.Next{}, false, nil
	}
	mark := kamino.Mark{Run: r.held.Run, Pool: r.pool.ID, Instance: rec.Instance, VMID: rec.VMID}
	return workflow.ActSteps(kamino.ActGiveBack, fmt.Sprintf("give back the machine of node %s, which run %s left", rec.Donor, r.held.Run),
		func(ctx context.Context) error {
			if err := r.giveBackNode(ctx, kamino.Node{Name: rec.Donor}, mark); err != nil {
				return err
			}
			return r.held.SetLease(ctx, func(l *kamino.Lease) { l.Record.Sealing, l.Record.Held = false, false })
		}), true, nil
}

// fit compares the donor with the pool's model and image definition before anything is changed.
// Differences that can never be changed would otherwise show when the donor is off, or when the
// pool cannot grow any more.
func (r *Run) fit(ctx context.Context) error {
	if r.work() == kamino.WorkPatch {
		return nil // no image is made of its disk
	}
	var all []kamino.Refusal
	var definition *kamino.Artifact
	if r.image.inDefinition() {
		found, err := r.engine.Provider.Find(ctx, r.pool, kamino.KindDefinition, kamino.DefinitionName(r.pool.Name))
		if err != nil {
			return fmt.Errorf("read image definition of pool %s: %w", r.pool.Name, err)
		}
		if len(found) > 0 && found[0].State == kamino.Succeeded {
			definition, r.image.formerHome = &found[0], true
			all = misfits(found[0], r.image.wantedDefinition())
		}
	}
	refusals, doubts, err := r.engine.Provider.Fit(ctx, r.pool, r.donor.instance, definition)
	if err != nil {
		return fmt.Errorf("compare node %s with pool %s: %w", r.donor.node.Name, r.pool.Name, err)
	}
	r.doubtAll(kamino.StepValidate, doubts)
	all = append(all, refusals...)
	if len(all) > 0 {
		return &kamino.RefusedError{Subject: "node " + r.donor.node.Name, Refusals: all}
	}
	return nil
}
