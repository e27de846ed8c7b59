package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"kamino.dev/kamino"
)

// donor is the node whose disk becomes the image, or that is patched: what a run knows of it, with
// the age of each read.
type donor struct {
	*common

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

	drain    drainState
	back     recovery
	bad      []kamino.Version // the withdrawn versions of the pool
	away     span             // how long the donor is away, also under the previous process
	offSince time.Time        // when the running step first saw the donor off without a receipt
}

// span is a time that has begun, and may have ended.
type span struct{ from, to time.Time }

// readPool reads the donor's instance and its pool.
func (d *donor) readPool(ctx context.Context) error {
	id, err := d.engine.namedPool(ctx, d.node)
	if err != nil {
		return err
	}
	if d.pool, err = d.engine.Provider.Pool(ctx, id); err != nil {
		return d.hintGone(fmt.Errorf("read pool %s of node %s: %w", id.Name(), d.node.Name, err))
	}
	in, err := d.engine.Provider.Instance(ctx, d.node.ProviderID)
	if err != nil {
		return d.hintGone(fmt.Errorf("read instance %s of node %s: %w", d.node.ProviderID, d.node.Name, err))
	}
	d.instance = in.WithVM(d.node.SystemUUID)
	d.instance.Architecture = cmp.Or(in.Architecture, kamino.NodeArchitecture(d.node.Architecture))
	return nil
}

// hintGone adds what to do about a node whose machine is gone.
func (d *donor) hintGone(err error) error {
	switch marked := d.node.Annotations[kamino.AnnotationRun] != "" || d.node.Tainted(kamino.TaintBlock); {
	case !errors.Is(err, kamino.ErrNotFound):
		return err
	case marked: // other runs know of this run by the node
		return kamino.WithHint(err, "a run took the node; to give back what it left: kamino restore")
	}
	return kamino.WithHint(err, "if the machine was deleted, its Node object is stale: kubectl delete node %s; else check the node's providerID", d.node.Name)
}

// continues reports whether the adopted run can continue with this donor. It cannot if it was
// restoring, if it had another donor, or if the donor has booted since, because its disk is then
// not the sealed one.
func (d *donor) continues() bool {
	rec := d.held.Lease.Record
	if rec.GivingBack || rec.Donor != d.node.Name || !kamino.SameVM(rec.VMID, d.instance.VMID) {
		return false
	}
	if rec.Work != d.work() {
		return false
	}
	if rec.Work == "" && rec.Intent == "" && rec.Version != kamino.VersionName(d.engine.now()) {
		return false // it had not begun anything, and its day is over
	}
	mark, err := d.node.Claimed(d.pool.ID)
	if err != nil || mark == nil {
		// The run can continue if the donor is not marked yet, or was returned already. It cannot
		// if somebody removed the mark meanwhile.
		return err == nil && !rec.Sealing && !rec.Held
	}
	// A node that is patched boots in between.
	return mark.Run == d.held.Run && (mark.BootID == d.node.BootID || rec.Work == kamino.WorkPatch)
}

// readNode reads the donor's node again and makes sure that it is the machine that the run began
// with, and that no other run has it.
func (d *donor) readNode(ctx context.Context, run string) (kamino.Node, *kamino.Mark, error) {
	n, err := d.rereadNode(ctx)
	if err != nil {
		return n, nil, fmt.Errorf("read node %s: %w", d.node.Name, err)
	}
	mark, err := n.Mark()
	if err != nil {
		return n, nil, err
	}
	if !kamino.SameVM(n.SystemUUID, d.instance.VMID) {
		return n, mark, fmt.Errorf("donor lost: node %s now runs on VM %s, the run began with VM %s",
			n.Name, n.SystemUUID, d.instance.VMID)
	}
	if mark != nil && mark.Run != run {
		return n, mark, fmt.Errorf("donor lost: node %s is marked by run %s", n.Name, mark.Run)
	}
	d.sawNode(n)
	return n, mark, nil
}

// recentNode is readNode, but accepts a node that was read within LookAge. It is for steps that
// wait for nothing that the node shows.
func (d *donor) recentNode(ctx context.Context, run string) (kamino.Node, *kamino.Mark, error) {
	d.read = d.recent()
	return d.readNode(ctx, run)
}

// sawNode remembers the donor's node as it was just read. A node from before the pause keeps its
// age.
func (d *donor) sawNode(n kamino.Node) {
	if !d.read {
		d.readAt = d.engine.now()
	}
	d.node, d.read = n, true
}

// rereadNode reads the donor's node, unless the previous step has just read it and nothing was done
// since.
func (d *donor) rereadNode(ctx context.Context) (kamino.Node, error) {
	if d.read = d.read && d.recent(); d.read {
		return d.node, nil
	}
	return d.engine.Cluster.Node(ctx, d.node.Name)
}

// outdate makes the next step read the donor again: an act or a pause came after the last read.
func (d *donor) outdate() { d.read, d.seenAt = false, time.Time{} }

func (d *donor) recent() bool { return kamino.Elapsed(d.readAt, d.engine.now()) < kamino.LookAge }

// readInstance reads the donor's VM again, and makes sure that it is still the donor's.
func (d *donor) readInstance(ctx context.Context) (kamino.Instance, error) {
	in, err := d.engine.Provider.Instance(ctx, d.instance.ID)
	if err != nil {
		return in, fmt.Errorf("read instance %s: %w", d.instance.ID, err)
	}
	if in = in.WithVM(d.instance.VMID); !kamino.SameVM(in.VMID, d.instance.VMID) {
		return in, fmt.Errorf("donor lost: instance %s is now VM %s, the run began with VM %s", in.ID, in.VMID, d.instance.VMID)
	}
	return d.sawInstance(in), nil
}

// sawInstance remembers the donor's instance as it was just read.
func (d *donor) sawInstance(in kamino.Instance) kamino.Instance {
	in.Architecture = cmp.Or(in.Architecture, d.instance.Architecture)
	d.instance, d.seenAt = in, d.engine.now()
	return in
}

// instanceNow is readInstance, unless the previous step has just read it.
func (d *donor) instanceNow(ctx context.Context) (kamino.Instance, error) {
	if kamino.Elapsed(d.seenAt, d.engine.now()) <= kamino.JustNow {
		return d.instance, nil
	}
	return d.readInstance(ctx)
}

// asShown returns an instance as the cloud shows it, even if it is another VM; or the donor's as
// the previous step has just read it.
func (d *donor) asShown(ctx context.Context, id kamino.InstanceID) (kamino.Instance, error) {
	if id == d.instance.ID && kamino.Elapsed(d.seenAt, d.engine.now()) <= kamino.JustNow {
		return d.instance, nil
	}
	d.seenAt = time.Time{} // until the caller is sure that it is the donor (sawShown)
	return d.engine.Provider.Instance(ctx, id)
}

// sawShown is sawInstance for an instance that asShown has read, and not for a remembered one.
func (d *donor) sawShown(in kamino.Instance) kamino.Instance {
	if d.seenAt.IsZero() {
		return d.sawInstance(in)
	}
	return in
}

// stillOn reports whether a running machine has run without a break since it was sealed. A machine
// that went off and was started again is not sealed any more, and nothing else shows it until its
// kubelet reports. If nobody watched, it is believed for as long as a machine needs to go off;
// spent is how long that is already.
func (d *donor) stillOn(spent time.Duration) bool {
	now := d.engine.now()
	if d.watchedOn.IsZero() || now.Sub(d.watchedOn) > watchGap {
		d.watchedOn = time.Time{}
		return spent < guestHalt
	}
	d.watchedOn = now
	return true
}

// watchGap is shorter than any machine needs to go off and on again.
const watchGap = LongestPoll + 2*time.Second

func (d *donor) used() bool { return !d.away.from.IsZero() && !d.away.to.IsZero() }

func (d *donor) awayFor() time.Duration {
	if !d.used() {
		return 0
	}
	return d.away.to.Sub(d.away.from)
}
