package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"kamino.dev/kamino"
	"kamino.dev/kamino/workflow"
)

// donorView is what a run knows of its donor, with the age of each read.
type donorView struct {
	engine *Engine

	node     kamino.Node
	read     bool      // node was read since the last act and the last pause
	readAt   time.Time // when node was read; zero after an act on it
	instance kamino.Instance
	seenAt   time.Time // when instance was read; zero since the last act and the last pause
	// watchedOn is when the donor was last seen on, with no gap since before its seal in which it
	// could have gone off and been started again.
	watchedOn time.Time
	// unjudged: the donor was marked when it was validated, so some checks are still to be made.
	unjudged bool
}

// readNode reads the donor's node again and makes sure that it is the machine that the run began
// with, and that no other run has it.
func (v *donorView) readNode(ctx context.Context, run string) (kamino.Node, *kamino.Mark, error) {
	n, err := v.rereadNode(ctx)
	if err != nil {
		return n, nil, fmt.Errorf("read node %s: %w", v.node.Name, err)
	}
	mark, err := n.Mark()
	if err != nil {
		return n, nil, err
	}
	if !kamino.SameVM(n.SystemUUID, v.instance.VMID) {
		return n, mark, fmt.Errorf("donor lost: node %s now runs on VM %s, the run began with VM %s",
			n.Name, n.SystemUUID, v.instance.VMID)
	}
	if mark != nil && mark.Run != run {
		return n, mark, fmt.Errorf("donor lost: node %s is marked by run %s", n.Name, mark.Run)
	}
	v.sawNode(n)
	return n, mark, nil
}

// recentNode is readNode, but accepts a node that was read within LookAge. It is for steps that
// wait for nothing that the node shows.
func (v *donorView) recentNode(ctx context.Context, run string) (kamino.Node, *kamino.Mark, error) {
	v.read = v.recent()
	return v.readNode(ctx, run)
}

// sawNode remembers the donor's node as it was just read. A node from before the pause keeps its
// age.
func (v *donorView) sawNode(n kamino.Node) {
	if !v.read {
		v.readAt = v.engine.now()
	}
	v.node, v.read = n, true
}

// rereadNode reads the donor's node, unless the previous step has just read it and nothing was done
// since.
func (v *donorView) rereadNode(ctx context.Context) (kamino.Node, error) {
	if v.read = v.read && v.recent(); v.read {
		return v.node, nil
	}
	return v.engine.Cluster.Node(ctx, v.node.Name)
}

func (v *donorView) recent() bool { return kamino.Elapsed(v.readAt, v.engine.now()) < kamino.LookAge }

// readInstance reads the donor's VM again, and makes sure that it is still the donor's.
func (v *donorView) readInstance(ctx context.Context) (kamino.Instance, error) {
	in, err := v.engine.Provider.Instance(ctx, v.instance.ID)
	if err != nil {
		return in, fmt.Errorf("read instance %s: %w", v.instance.ID, err)
	}
	if in = in.WithVM(v.instance.VMID); !kamino.SameVM(in.VMID, v.instance.VMID) {
		return in, fmt.Errorf("donor lost: instance %s is now VM %s, the run began with VM %s", in.ID, in.VMID, v.instance.VMID)
	}
	return v.sawInstance(in), nil
}

// sawInstance remembers the donor's instance as it was just read.
func (v *donorView) sawInstance(in kamino.Instance) kamino.Instance {
	in.Architecture = cmp.Or(in.Architecture, v.instance.Architecture)
	v.instance, v.seenAt = in, v.engine.now()
	return in
}

// instanceNow is readInstance, unless the previous step has just read it.
func (v *donorView) instanceNow(ctx context.Context) (kamino.Instance, error) {
	if kamino.Elapsed(v.seenAt, v.engine.now()) <= kamino.JustNow {
		return v.instance, nil
	}
	return v.readInstance(ctx)
}

// asShown returns an instance as the cloud shows it, even if it is another VM; or the donor's as
// the previous step has just read it.
func (v *donorView) asShown(ctx context.Context, id kamino.InstanceID) (kamino.Instance, error) {
	if id == v.instance.ID && kamino.Elapsed(v.seenAt, v.engine.now()) <= kamino.JustNow {
		return v.instance, nil
	}
	v.seenAt = time.Time{} // until the caller is sure that it is the donor (sawShown)
	return v.engine.Provider.Instance(ctx, id)
}

// sawShown is sawInstance for an instance that asShown has read, and not for a remembered one.
func (v *donorView) sawShown(in kamino.Instance) kamino.Instance {
	if v.seenAt.IsZero() {
		return v.sawInstance(in)
	}
	return in
}

// stillOn reports whether a running machine has run without a break since it was sealed. A machine
// that went off and was started again is not sealed any more, and nothing else shows it until its
// kubelet reports. If nobody watched, it is believed for as long as a machine needs to go off;
// spent is how long that is already.
func (v *donorView) stillOn(spent time.Duration) bool {
	now := v.engine.now()
	if v.watchedOn.IsZero() || now.Sub(v.watchedOn) > watchGap {
		v.watchedOn = time.Time{}
		return spent < guestHalt
	}
	v.watchedOn = now
	return true
}

// watchGap is shorter than any machine needs to go off and on again.
const watchGap = LongestPoll + 2*time.Second

// lookMissing decides about a donor whose instance was not found. The donor is gone only if its
// pool can be read and does not list it, twice and GoneAfter apart, and its node is not alive
// meanwhile.
func (r *Run) lookMissing(ctx context.Context, id kamino.InstanceID) (workflow.Next, error) {
	if r.back.poolGone {
		return workflow.Done("the donor is gone with its pool"), nil
	}
	now := r.engine.now()
	first := r.back.missing.id != id
	if !first && now.Sub(r.back.missing.since) < kamino.GoneAfter {
		return workflow.Wait("the donor's instance (not found; confirming that it was deleted)"), nil
	}
	pool, err := r.engine.Provider.Pool(ctx, r.pool.ID)
	if err != nil {
		return workflow.Next{}, kamino.HintPool(fmt.Errorf("read pool %s: %w", r.pool.Name, err), r.pool.ID)
	}
	listed, err := r.engine.Provider.Instances(ctx, pool)
	if err != nil {
		return workflow.Next{}, fmt.Errorf("list the instances of pool %s: %w", r.pool.Name, err)
	}
	switch {
	case slices.ContainsFunc(listed, id.Same):
		r.back.missing = missing{}
		return workflow.Wait("the donor's instance, which its pool lists, to be found"), nil
	case first:
		r.back.missing = missing{id, now}
		return workflow.Wait("the donor's instance (not found; confirming that it was deleted)"), nil
	case r.donor.node.Ready && r.donor.node.RunsOn(id):
		return workflow.Wait("the donor's instance, which is not found although its node is Ready"), nil
	}
	if r.wasHeld() {
		r.doubtAll(kamino.StepRelease, []kamino.Warning{r.engine.holder().Lost(pool, id)})
	}
	return workflow.Done("the donor is gone: its instance was deleted"), nil
}

// missing is an instance that was neither found nor listed.
type missing struct {
	id    kamino.InstanceID
	since time.Time
}

// stranger returns why an instance may not be the donor's machine; "" if it may. The record of a
// donor on a lease is a claim, as a mark is: a machine of another pool, or one that another node
// runs on, is not touched.
func (r *Run) stranger(ctx context.Context, donor string, id kamino.InstanceID) (string, error) {
	if pool, err := r.engine.poolOf(ctx, kamino.Node{Name: donor, ProviderID: id}); err != nil {
		return "", err
	} else if pool != r.pool.ID {
		return fmt.Sprintf("instance %s does not belong to pool %s", id, r.pool.Name), nil
	}
	if r.donor.node.Name == donor && r.donor.node.RunsOn(id) {
		return "", nil
	}
	nodes, err := r.engine.Cluster.Nodes(ctx)
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
func (r *Run) lookOn(ctx context.Context) (workflow.Next, error) {
	was := r.held.Before
	next, err := r.lookPower(ctx, was.Donor, kamino.Instance{ID: was.Instance, VMID: was.VMID})
	if err != nil || next.Kind != workflow.NextDone || !was.Held || !r.mayRelease() {
		return next, err
	}
	n, err := r.engine.Cluster.Node(ctx, was.Donor)
	if errors.Is(err, kamino.ErrNotFound) {
		n, err = kamino.Node{Name: was.Donor}, nil
	}
	if err != nil {
		return workflow.Next{}, fmt.Errorf("read node %s: %w", was.Donor, err)
	}
	return r.lookInService(ctx, n, was.Instance)
}
