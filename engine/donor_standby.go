package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"kamino.dev/kamino"
	"kamino.dev/kamino/workflow"
)

// wasHeld reports whether the donor was taken out of service, by its mark or a lease of the run.
func (d *donor) wasHeld() bool {
	if !d.mayRelease() {
		return false
	}
	mark, err := d.node.Mark()
	return err == nil && mark != nil && mark.Held || d.held.Before.Held || d.held.Lease != nil && d.held.Lease.Record.Held
}

func (d *donor) mayRelease() bool { return d.engine.holder() != nil }

// holding reads the state of an instance in a pool that replaces an instance that is off.
func (d *donor) holding(ctx context.Context, id kamino.InstanceID) (kamino.Holding, error) {
	how, err := d.engine.holder().Holding(ctx, d.pool, id)
	if err != nil {
		return how, fmt.Errorf("read the state of instance %s in pool %s: %w", id, d.pool.Name, err)
	}
	return how, nil
}

// refuseHeld refuses a donor that somebody else has taken out of service.
func (d *donor) refuseHeld(ctx context.Context) error {
	if !d.mayRelease() {
		return nil
	}
	how, err := d.holding(ctx, d.instance.ID)
	if err != nil || how == kamino.InService || how == kamino.Remains {
		return err
	}
	return &kamino.RefusedError{Subject: "node " + d.node.Name,
		Refusals: []kamino.Refusal{{Code: kamino.CodeHeld, Field: "state in pool " + d.pool.Name, Value: string(how),
			Why: "the donor's instance is not in service, and no run is known that took it out",
			Do:  "kamino restore shows what to do; or choose another node"}}}
}

// refuseServed ends a run whose donor somebody has put back in service before it is switched off,
// because its pool would replace it.
func (d *donor) refuseServed(ctx context.Context) error {
	if !d.mayRelease() {
		return nil
	}
	how, err := d.holding(ctx, d.instance.ID)
	if err != nil || how == kamino.Held {
		return err
	}
	return kamino.WithHint(fmt.Errorf("somebody has put instance %s back in service (%s): pool %s would replace it once it is off",
		d.instance.ID, how, d.pool.Name),
		"find out what ends its Standby, then run the command again")
}

const holdTheDonor = "take the donor out of service"

// lookHold takes the donor out of service. It first writes that on the node and on the lease, so
// that any later run puts the donor back.
func (d *donor) lookHold(ctx context.Context) (workflow.Next, error) {
	n, mark, err := d.recentNode(ctx, d.held.Run)
	if err != nil {
		return workflow.Next{}, err
	}
	if mark == nil || !mark.Held {
		next, err := d.remark(kamino.ActHolding, "record on the node that it is about to be taken out of service", n, mark,
			func(m *kamino.Mark) { m.Held, m.Block = true, true })
		return next.Announcing(kamino.ActHold, holdTheDonor).Noting(func(l *kamino.Lease) { l.Record.Held = true }), err
	}
	how, err := d.holding(ctx, d.instance.ID)
	switch {
	case err != nil:
		return workflow.Next{}, err
	case how == kamino.Held:
		return d.lookCounted(mark), nil
	case how == kamino.Moving:
		return workflow.Wait("the donor to be out of service"), nil
	}
	return workflow.Act(kamino.ActHold, holdTheDonor,
		func(ctx context.Context) error { return d.engine.holder().Hold(ctx, d.pool, d.instance.ID) }).
		Then("the donor to be out of service", 0), nil
}

// recount is longer than cluster-autoscaler remembers the size of a group. For one minute it adds
// changes to the known size and sets the sum (refreshInterval in
// cluster-autoscaler/cloudprovider/aws/aws_manager.go of k8s.io/autoscaler). For the first evicted
// pod it would undo that the group is smaller by one.
const recount = 70 * time.Second

// lookCounted waits, before any pod is evicted, until an autoscaler knows that the donor is out of
// service.
func (d *donor) lookCounted(mark *kamino.Mark) workflow.Next {
	now := d.engine.now()
	if d.drain.held.IsZero() {
		d.drain.held = now
	}
	if waited, limit := now.Sub(d.drain.held), d.engine.forAutoscaler(recount); !mark.Sealing && waited < limit {
		return workflow.WaitFor("cluster-autoscaler to read the pool's new size", limit-waited)
	}
	return workflow.Done("out of service")
}

// lookRelease puts the donor back in service if a run took it out.
func (d *donor) lookRelease(ctx context.Context) (workflow.Next, error) {
	mark, gone, err := d.donorMark(ctx)
	if err != nil || gone != "" {
		return workflow.Done(gone), err
	}
	if !d.back.forgotten && (mark == nil || !mark.Held) && !(d.held.Mine() && d.held.Lease.Record.Held) {
		return workflow.Done("the donor was not taken out of service"), nil
	}
	return d.lookInService(ctx, d.node, d.instance.ID)
}

// lookInService puts an instance back in service. The machine must run and its node must be Ready.
func (d *donor) lookInService(ctx context.Context, n kamino.Node, id kamino.InstanceID) (workflow.Next, error) {
	if d.back.poolGone {
		return workflow.Done("the donor is gone with its pool"), nil
	}
	if why, err := d.stranger(ctx, n.Name, id); err != nil || why != "" {
		return d.leftOff(why), err
	}
	how, err := d.holding(ctx, id)
	if errors.Is(err, kamino.ErrNotFound) {
		return d.lookMissing(ctx, id)
	} else if err != nil {
		return workflow.Next{}, err
	}
	release := workflow.Act(kamino.ActRelease, "put the donor back in service",
		func(ctx context.Context) error { return d.engine.holder().Release(ctx, d.pool, id) }).
		Then("the donor to be in service", 0)
	switch how {
	case kamino.InService:
		return workflow.Done("in service"), nil
	case kamino.Moving:
		return workflow.Wait("the donor to be in service"), nil
	case kamino.Remains:
		return release, nil
	}
	in, err := d.asShown(ctx, id)
	switch {
	case errors.Is(err, kamino.ErrNotFound):
		return d.lookMissing(ctx, id)
	case err != nil:
		return workflow.Next{}, fmt.Errorf("read instance %s: %w", id, err)
	case in.Power == kamino.PowerBetween:
		return workflow.Wait("the machine to start or to stop"), nil
	case in.Power == kamino.PowerOff:
		return workflow.Act(kamino.ActPowerOn, startTheMachine,
			func(ctx context.Context) error { return d.engine.Provider.SetPower(ctx, id, kamino.PowerOn) }).
			Then("the machine to start", 0), nil
	case n.UID != "" && n.RunsOn(id) && !n.Ready:
		return workflow.Wait("the node to become Ready"), nil
	}
	return release, nil
}
