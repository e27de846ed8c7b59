package kamino

import (
	"context"
	"errors"
	"fmt"
	"time"
)

func (r *Run) lookConnect(ctx context.Context) (Next, error) {
	if err := r.checkCredentials(ctx); err != nil {
		return Next{}, err
	}
	if err := r.checkCluster(ctx); err != nil {
		return Next{}, err
	}
	return done("credentials work"), nil
}

func (r *Run) checkCluster(ctx context.Context) error {
	p, ok := r.Cluster.(ClusterPreflighter)
	if !ok {
		return nil
	}
	doubts, err := p.Preflight(ctx, r.drainOptions())
	if err == nil {
		r.doubt(InConnect, doubts)
	}
	return err
}

// checkCredentials is as much of connect as a plan needs, which is printed on clusters that were
// not prepared yet.
func (r *Run) checkCredentials(ctx context.Context) error {
	p, ok := r.Provider.(Preflighter)
	if !ok {
		return nil
	}
	doubts, err := p.Preflight(ctx)
	if err == nil {
		r.doubt(InConnect, doubts)
	}
	return err
}

func (r *Run) lookValidate(ctx context.Context) (Next, error) {
	node, err := r.Cluster.Node(ctx, r.Donor)
	if errors.Is(err, ErrNotFound) {
		return Next{}, refuseUnknown(r.Donor)
	} else if err != nil {
		return Next{}, fmt.Errorf("read node %s: %w", r.Donor, err)
	}
	if _, err := node.Mark(); err != nil {
		return Next{}, refuseMark(node.Name, err)
	}
	r.node = node
	if refusals := refuseNode(node, r.Options, true); node.ProviderID == "" {
		return Next{}, &RefusedError{Subject: "node " + node.Name, Refusals: refusals}
	}
	if err := r.readPool(ctx); err != nil {
		return Next{}, err
	}
	if r.instance.Architecture == "" {
		r.instance.Architecture = nodeArchitecture(node.Architecture)
	}
	mark, err := node.claim(r.pool.ID)
	if err != nil {
		return Next{}, refuseMark(node.Name, err)
	}
	if err := r.refuse(mark != nil); err != nil {
		return Next{}, err
	}
	// A donor that is marked may be away. Whose mark it is shows under the lease, and then it is judged.
	if r.unjudged = mark != nil; !r.unjudged {
		if err := r.fit(ctx); err != nil {
			return Next{}, err
		}
	}
	return done(fmt.Sprintf("%s is %s of pool %s", node.Name, r.instance.ID, r.pool.Name)), nil
}

// readPool reads the instance behind r.node, and its pool.
func (r *Run) readPool(ctx context.Context) error {
	id, err := r.Provider.PoolOf(r.node.ProviderID)
	if err != nil {
		return &RefusedError{Subject: "node " + r.node.Name, Refusals: []Refusal{{
			Code: "provider", Field: "spec.providerID", Value: string(r.node.ProviderID),
			Why: err.Error(), Do: "choose a node of a pool that this provider can handle"}}}
	}
	if r.pool, err = r.Provider.Pool(ctx, id); err != nil {
		return r.hintGone(fmt.Errorf("read pool %s of node %s: %w", id.Name(), r.node.Name, err))
	}
	if r.instance, err = r.Provider.Instance(ctx, r.node.ProviderID); err != nil {
		return r.hintGone(fmt.Errorf("read instance %s of node %s: %w", r.node.ProviderID, r.node.Name, err))
	}
	return nil
}

// hintGone tells what to do about a node whose machine is gone.
func (r *Run) hintGone(err error) error {
	switch marked := r.node.Annotations[AnnotationRun] != "" || r.node.Tainted(TaintBlock); {
	case !errors.Is(err, ErrNotFound):
		return err
	case marked: // the node is what others know of its run
		return WithHint(err, "a run has the node; what it left is given back with: kamino restore")
	}
	return WithHint(err, "if the machine was deleted, its Node object is stale: kubectl delete node %s; else look at the node's providerID", r.node.Name)
}

// lookRecover gives back what earlier runs of the pool left before a new donor
// is touched. An adopted run goes on where it stood if that is possible.
func (r *Run) lookRecover(ctx context.Context) (Next, error) {
	nodes, err := r.Cluster.Nodes(ctx)
	if err != nil {
		return Next{}, fmt.Errorf("list nodes: %w", err)
	}
	for _, n := range nodes {
		if n.Name == r.node.Name {
			r.sawNode(n) // much may have happened while the lease was watched
		}
	}
	continues := r.adopted && r.continues()
	if next, found := r.leftBehind(nodes, continues); found {
		return next, nil
	}
	if r.adopted && !continues {
		return act(ActBegin, "begin a new run in place of "+r.id, func(ctx context.Context) error {
			id := r.freshID()
			err := r.setLease(ctx, func(l *Lease) {
				if l.Holder != id {
					l.Epoch++
					l.Ledger.failed(l.Holder, r.asFound(l.Record), r.clock().Now())
				}
				l.Holder, l.Record = id, r.freshRecord()
			})
			if err == nil {
				r.id, r.adopted = id, false
			}
			return err
		}), nil
	}
	if err := r.judge(ctx, continues); err != nil {
		return Next{}, err
	}
	if continues {
		r.away, r.awayEnds = r.lease.Record.AwaySince, r.lease.Record.AwayEnds
		return done(fmt.Sprintf("going on with run %s at step %s", r.id, r.lease.Record.Step)), nil
	}
	return done("nothing was left"), nil
}

// judge asks of a donor that was marked what validate asks of any other. One that a run goes on with
// may be away; what has become of its pool since then counts for it too.
func (r *Run) judge(ctx context.Context, continues bool) error {
	if !r.unjudged {
		return nil
	}
	if !continues {
		if err := r.readPool(ctx); err != nil {
			return err
		}
		if r.instance.Architecture == "" {
			r.instance.Architecture = nodeArchitecture(r.node.Architecture)
		}
		if err := r.refuse(false); err != nil {
			return err
		}
	}
	if err := r.fit(ctx); err != nil {
		return err
	}
	r.unjudged = false
	return nil
}

// leftBehind finds a donor of the pool that an earlier run left: by the marks,
// and where Kubernetes has forgotten the node, by the record on the lease.
func (r *Run) leftBehind(nodes []Node, continues bool) (next Next, found bool) {
	for _, n := range nodes {
		if pool, err := r.Provider.PoolOf(n.ProviderID); err != nil || pool != r.pool.ID {
			continue
		}
		mark, err := n.taken(r.pool.ID, *r.lease)
		if err != nil {
			r.tell(Event{Kind: Warned, Step: InRecover, Percent: -1, Message: err.Error() + ": left alone"})
		}
		if err != nil || mark == nil || (mark.Run == r.id && continues) {
			continue
		}
		return actSteps(ActGiveBack, fmt.Sprintf("give back node %s, which run %s left", n.Name, mark.Run),
			func(ctx context.Context) error { return r.giveBackNode(ctx, n, *mark) }).of(n.Name), true
	}
	rec := r.lease.Record
	if !r.adopted || continues || !rec.Sealing {
		return Next{}, false
	}
	mark := Mark{Run: r.id, Pool: r.pool.ID, Instance: rec.Instance, VMID: rec.VMID}
	return actSteps(ActGiveBack, fmt.Sprintf("give back the machine of node %s, which run %s left", rec.Donor, r.id), func(ctx context.Context) error {
		if err := r.giveBackNode(ctx, Node{Name: rec.Donor}, mark); err != nil {
			return err
		}
		return r.setLease(ctx, func(l *Lease) { l.Record.Sealing = false })
	}), true
}

// continues says whether the adopted run can go on with this donor. It cannot
// when it was giving back, had another donor, or when the donor has booted
// since: then its disk is no longer the sealed one.
func (r *Run) continues() bool {
	rec := r.lease.Record
	if rec.GivingBack || rec.Donor != r.node.Name || !SameVM(rec.VMID, r.instance.VMID) {
		return false
	}
	if rec.Intent == "" && rec.Version != VersionName(r.clock().Now()) {
		return false // it had not begun anything, and its day is over
	}
	mark, err := r.node.claim(r.pool.ID)
	if err != nil || mark == nil {
		// Not marked yet, or returned already: both are fine to go on from. A mark
		// that somebody removed meanwhile is not.
		return err == nil && !rec.Sealing
	}
	return mark.Run == r.id && mark.BootID == r.node.BootID
}

// readNode reads the donor again and makes sure that it still is the machine
// that the run began with.
func (r *Run) readNode(ctx context.Context) (Node, *Mark, error) {
	n, err := r.rereadNode(ctx)
	if err != nil {
		return n, nil, fmt.Errorf("read node %s: %w", r.node.Name, err)
	}
	mark, err := n.Mark()
	if err != nil {
		return n, nil, err
	}
	if !SameVM(n.SystemUUID, r.instance.VMID) {
		return n, mark, fmt.Errorf("donor lost: node %s now runs on VM %s, the run began with VM %s",
			n.Name, n.SystemUUID, r.instance.VMID)
	}
	if mark != nil && mark.Run != r.id {
		return n, mark, fmt.Errorf("donor lost: node %s is marked by run %s", n.Name, mark.Run)
	}
	r.sawNode(n)
	return n, mark, nil
}

// recentNode is readNode where a node that was read within lookAge will do: where
// nothing is waited for that the node itself would show.
func (r *Run) recentNode(ctx context.Context) (Node, *Mark, error) {
	r.read = r.recent()
	return r.readNode(ctx)
}

// sawNode remembers the donor's node as it was just read. What was read before
// the pause keeps its age.
func (r *Run) sawNode(n Node) {
	if !r.read {
		r.readAt = r.clock().Now()
	}
	r.node, r.read = n, true
}

// rereadNode reads the donor's node. What one step has just read the next one
// need not read again, as long as nothing was done and little time has passed.
func (r *Run) rereadNode(ctx context.Context) (Node, error) {
	if r.read = r.read && r.recent(); r.read {
		return r.node, nil
	}
	return r.Cluster.Node(ctx, r.node.Name)
}

func (r *Run) recent() bool { return r.clock().Now().Sub(r.readAt) < lookAge }

// readInstance reads the donor's VM again, with the same care.
func (r *Run) readInstance(ctx context.Context) (Instance, error) {
	in, err := r.Provider.Instance(ctx, r.instance.ID)
	if err != nil {
		return in, fmt.Errorf("read instance %s: %w", r.instance.ID, err)
	}
	if !SameVM(in.VMID, r.instance.VMID) {
		return in, fmt.Errorf("donor lost: instance %s is now VM %s, the run began with VM %s", in.ID, in.VMID, r.instance.VMID)
	}
	if in.Architecture == "" {
		in.Architecture = r.instance.Architecture
	}
	r.instance = in
	return in, nil
}

// donorNeeded: no image and no snapshot of today can be used.
func (r *Run) donorNeeded() bool { return r.imageMissing() && r.reused == nil }

// donorUntouched: the donor is needed, and nothing was done to it yet.
func (r *Run) donorUntouched() bool {
	mark, err := r.node.claim(r.pool.ID)
	return r.donorNeeded() && mark == nil && err == nil && !(r.lease != nil && r.lease.Record.Sealing)
}

// donorMarked: the run may hold a donor.
func (r *Run) donorMarked() bool {
	mark, err := r.node.claim(r.pool.ID)
	return mark != nil || err != nil || r.lease != nil && r.lease.Record.Sealing || r.donorNeeded()
}

// spent is how long the running step has taken.
func (r *Run) spent() time.Duration { return r.clock().Now().Sub(r.now.since) }

// worked is spent without the time in which the service asked for silence.
func (r *Run) worked() time.Duration { return r.spent() - r.now.throttled }
