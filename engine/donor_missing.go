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

// missing is an instance that was neither found nor listed.
type missing struct {
	id    kamino.InstanceID
	since time.Time
}

// lookMissing decides about a donor whose instance was not found. The donor is gone only if its
// pool can be read and does not list it, twice and GoneAfter apart, and its node is not alive
// meanwhile.
func (d *donor) lookMissing(ctx context.Context, id kamino.InstanceID) (workflow.Next, error) {
	if d.back.poolGone {
		return workflow.Done("the donor is gone with its pool"), nil
	}
	now := d.engine.now()
	first := d.back.missing.id != id
	if !first && now.Sub(d.back.missing.since) < kamino.GoneAfter {
		return workflow.Wait("the donor's instance (not found; confirming that it was deleted)"), nil
	}
	pool, err := d.engine.Provider.Pool(ctx, d.pool.ID)
	if err != nil {
		return workflow.Next{}, kamino.HintPool(fmt.Errorf("read pool %s: %w", d.pool.Name, err), d.pool.ID)
	}
	listed, err := d.engine.Provider.Instances(ctx, pool)
	if err != nil {
		return workflow.Next{}, fmt.Errorf("list the instances of pool %s: %w", d.pool.Name, err)
	}
	switch {
	case slices.ContainsFunc(listed, id.Same):
		d.back.missing = missing{}
		return workflow.Wait("the donor's instance, which its pool lists, to be found"), nil
	case first:
		d.back.missing = missing{id, now}
		return workflow.Wait("the donor's instance (not found; confirming that it was deleted)"), nil
	case d.node.Ready && d.node.RunsOn(id):
		return workflow.Wait("the donor's instance, which is not found although its node is Ready"), nil
	}
	if d.wasHeld() {
		d.doubtAll(kamino.StepRelease, []kamino.Warning{d.engine.holder().Lost(pool, id)})
	}
	return workflow.Done("the donor is gone: its instance was deleted"), nil
}

// stranger returns why an instance may not be the donor's machine; "" if it may. The record of a
// donor on a lease is a claim, as a mark is: a machine of another pool, or one that another node
// runs on, is not touched.
func (d *donor) stranger(ctx context.Context, donor string, id kamino.InstanceID) (string, error) {
	if pool, err := d.engine.poolOf(ctx, kamino.Node{Name: donor, ProviderID: id}); err != nil {
		return "", err
	} else if pool != d.pool.ID {
		return fmt.Sprintf("instance %s does not belong to pool %s", id, d.pool.Name), nil
	}
	if d.node.Name == donor && d.node.RunsOn(id) {
		return "", nil
	}
	nodes, err := d.engine.Cluster.Nodes(ctx)
	if err != nil {
		return "", fmt.Errorf("list nodes: %w", err)
	}
	for _, n := range nodes {
		if n.RunsOn(id) && n.Name != donor {
			return fmt.Sprintf("instance %s is the machine of node %s, not of %s", id, n.Name, donor), nil
		}
	}
	return "", nil
}

// replaced reports whether an instance that was read is certainly another machine than that VM.
func replaced(in kamino.Instance, vm string) bool {
	_, now := kamino.ParseVMID(in.VMID)
	_, then := kamino.ParseVMID(vm)
	return now && then && !kamino.SameVM(in.VMID, vm)
}

// lookOn starts the donor of an adopted run if it is off although it was given back.
func (d *donor) lookOn(ctx context.Context) (workflow.Next, error) {
	was := d.held.Before
	next, err := d.lookPower(ctx, was.Donor, kamino.Instance{ID: was.Instance, VMID: was.VMID})
	if err != nil || next.Kind != workflow.NextDone || !was.Held || !d.mayRelease() {
		return next, err
	}
	n, err := d.engine.Cluster.Node(ctx, was.Donor)
	if errors.Is(err, kamino.ErrNotFound) {
		n, err = kamino.Node{Name: was.Donor}, nil
	}
	if err != nil {
		return workflow.Next{}, fmt.Errorf("read node %s: %w", was.Donor, err)
	}
	return d.lookInService(ctx, n, was.Instance)
}
