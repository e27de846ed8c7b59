package engine

import (
	"context"
	"errors"
	"fmt"

	"kamino.dev/kamino"
	"kamino.dev/kamino/poolstate"
	"kamino.dev/kamino/workflow"
)

// lookReturn removes the run's marks from the donor. If its image is still to be built, the same
// intent announces the build.
func (r *Run) lookReturn(ctx context.Context) (workflow.Next, error) {
	build := ""
	if !r.held.GivingBack && r.work() == "" && r.image.missing() {
		build = buildText(r.image.version.Name)
	}
	return r.donor.lookUnmark(ctx, build)
}

// giveBackNode restores a node that another run left.
func (r *Run) giveBackNode(ctx context.Context, n kamino.Node, mark kamino.Mark) error {
	engine := *r.engine
	engine.DonorBack = nil // this run's own donor is still to go
	other := newRun(&engine, r.opts)
	other.pool, other.holds, other.donor.back.poolGone = r.pool, r.holds, r.donor.back.poolGone
	other.held.InNameOf(mark.Run, r.held.Lease)
	other.donor.back.work = mark.Work
	other.donor.back.forgotten = mark.Forgotten
	other.donor.node, other.donor.instance = n, kamino.Instance{ID: mark.Instance, VMID: n.VMOf(mark, *r.held.Lease), Pool: mark.Pool}
	err := other.exec(ctx, restitution(other))
	r.donor.back.missing = other.donor.back.missing
	if err == nil {
		r.donor.back.returned = append(r.donor.back.returned, mark.Run)
	}
	return err
}

// giveBackRefused restores what an earlier run left in the pool of a donor that this run may not
// take, whatever has become of the pool since, and even if rights are missing that only a new run
// needs.
func (r *Run) giveBackRefused(ctx context.Context) error {
	if r.donor.node.Name == "" { // nothing was read yet
		var err error
		if r.donor.node, err = r.engine.Cluster.Node(ctx, r.opts.Donor); err != nil {
			return nil // the run's own error explains why
		}
	}
	id, err := r.engine.poolOf(ctx, r.donor.node)
	if err != nil || id == "" {
		return err
	}
	lease, err := r.engine.Cluster.Lease(ctx, id)
	if err != nil {
		return fmt.Errorf("read lease of pool %s: %w", id.Name(), err)
	}
	mark, err := r.donor.node.OwnedBy(id, lease)
	if lease.Holder == "" && (err != nil || mark == nil) {
		return nil
	}
	nodes, err := r.engine.nodesOf(ctx, id)
	if err != nil {
		return err
	}
	_, err = clearPool(ctx, r.engine, poolstate.State{ID: id, Lease: lease, Nodes: nodes}, RestoreOptions{})
	if held := (*kamino.HeldError)(nil); errors.As(err, &held) {
		return nil // it is alive, and restores what it takes
	}
	return err
}

// abandon restores everything after a failure. It continues although ctx may have ended, because
// that is when a restore matters most.
func (r *Run) abandon(ctx context.Context, cause error) error {
	interrupted := ctx.Err() != nil
	ctx = context.WithoutCancel(ctx)
	if r.refusedFirst(cause) {
		return errors.Join(cause, r.release(ctx, func(l *kamino.Lease) { l.Record = kamino.Record{} })) // no run that could be reported
	}
	r.held.GivingBack = true
	if rec := r.held.Lease.Record; r.held.Adopted && rec.Donor != "" &&
		!(rec.Donor == r.donor.node.Name && kamino.SameVM(rec.VMID, r.donor.instance.VMID)) {
		// The adopted run had another donor, and still has it.
		r.donor.node = kamino.Node{Name: rec.Donor}
		r.donor.instance = kamino.Instance{ID: rec.Instance, VMID: rec.VMID}
	}
	r.tell(kamino.Event{Kind: kamino.EventGivingBack, Percent: -1, Message: cause.Error()})
	errs := []error{cause}
	if err := r.held.Persist(ctx, "write failure on", func(l *kamino.Lease) {
		l.Record.GivingBack, l.Record.Failure, l.Record.FailedAt, l.Record.Interrupted = true,
			kamino.CutText(cause.Error(), 5*kamino.MaxFailure), kamino.FailedStep(cause), interrupted
		if proof := (*kamino.ProofError)(nil); errors.As(cause, &proof) {
			l.Record.Proof = proof.Outcome
		}
	}); err != nil {
		if errors.Is(err, kamino.ErrLeaseLost) {
			return errors.Join(cause, err)
		}
		errs = append(errs, err)
	}
	// for other runs there is an event already
	if proof := (*kamino.ProofError)(nil); !interrupted && r.work() == "" && !errors.As(cause, &proof) {
		r.warn(ctx, r.donor.node, kamino.EventRunFailed, "run "+r.held.Run+" failed, and gives back what it took: "+cause.Error(), cause)
	}
	failed := r.giveBack(ctx, cause)
	left := r.exec(ctx, canaryBack(r))
	if failed == nil && !interrupted && r.work() == "" {
		failed = r.exec(ctx, leftovers(r))
	}
	failed = errors.Join(failed, left)
	if failed != nil {
		// The lease stays held: the next run adopts this one and restores.
		r.warn(ctx, r.donor.node, kamino.EventDonorAway, "run "+r.held.Run+" could not give back what it took: "+failed.Error(), nil)
		errs = append(errs, kamino.WithHint(fmt.Errorf("give back: %w", failed), "kamino restore"))
		return errors.Join(errs...)
	}
	_ = r.canary.readVerdict(ctx) // what cannot be read shows in the run's own failure
	if err := r.release(ctx, nil); err != nil {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// giveBack restores the donor, unless that has failed already. Then a person is needed, and is
// notified now.
func (r *Run) giveBack(ctx context.Context, cause error) error {
	if r.work() == kamino.WorkProve {
		return nil // it takes none
	}
	var s *kamino.StepError
	if errors.As(cause, &s) && (s.Step == kamino.StepStart || s.Step == kamino.StepReturn) && errors.Is(cause, workflow.ErrOverdue) {
		return errors.New("the donor did not come back in time")
	}
	return r.exec(ctx, restitution(r))
}

// startForgotten starts the donor of a run whose lease another run holds without knowing it, as
// after etcd was restored from a backup. Nobody else would.
func (r *Run) startForgotten(ctx context.Context) error {
	rec := r.held.Lease.Record
	// The run may have created its seal pod after the lease went back in time; the pod would seal
	// the disk under the other run.
	removed := r.engine.Cluster.RemoveAgents(context.WithoutCancel(ctx), r.held.Run, agentTasks(r.donor.patching(), true))
	if rec.Donor == r.held.Lost.Record.Donor {
		return removed
	}
	r.held.Before, r.held.Lease = rec, nil
	return errors.Join(removed, r.exec(context.WithoutCancel(ctx),
		[]Step{{Name: kamino.StepStayOn, Does: "start the machine of this run, which the run that holds the lease does not know",
			Look: r.lookForgotten, Limit: returnLimit, Stubborn: true}}))
}

// lookForgotten starts a machine, and watches it for a while: a sealed one switches itself off, and
// a node that was off a moment ago still shows Ready. Only then the machine is put back in service.
func (r *Run) lookForgotten(ctx context.Context) (workflow.Next, error) {
	if r.runner.Spent() >= 2*guestHalt {
		return r.donor.lookOn(ctx)
	}
	was := r.held.Before
	next, err := r.donor.lookPower(ctx, was.Donor, kamino.Instance{ID: was.Instance, VMID: was.VMID})
	if err == nil && next.Kind == workflow.NextDone {
		return workflow.Wait("a sealed machine to switch itself off"), nil
	}
	return next, err
}

// stayedOn checks the donor of an adopted run once more before its lease is released, and the marks
// of a run whose lease went back in time, because the marks may have come back with it.
func (r *Run) stayedOn(ctx context.Context) error {
	if !r.held.Remade.IsZero() && r.donor.node.Name != "" && !r.held.GivingBack {
		if err := r.exec(ctx, []Step{{Name: kamino.StepReturn, Does: "remove the block and the protection if they came back",
			Look: r.lookReturn, Limit: returnLimit, Stubborn: true}}); err != nil {
			return err
		}
	}
	if r.held.Before.Instance == "" {
		return nil
	}
	return r.exec(ctx, stayOn(r))
}
