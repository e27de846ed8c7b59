package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"kamino.dev/kamino"
	"kamino.dev/kamino/poolstate"
	"kamino.dev/kamino/selection"
	"kamino.dev/kamino/workflow"
)

// RestoreOptions are the options of kamino restore.
type RestoreOptions struct {
	DryRun bool     // list what was left, and change nothing
	Pools  []string // names or IDs; none means every pool
	// PoolIsGone is a person's statement that the one named pool was deleted: its donors are given
	// up and their marks removed. Without it, donors of a pool that cannot be read are never given
	// up.
	PoolIsGone bool
	// leaves selects versions in progress that are not waited for, because the next image does not
	// depend on them; nil for none.
	leaves func(kamino.Version) bool
}

// Restore finds what interrupted runs left in the whole cluster (donors that are off, blocked or
// protected, snapshots, failed versions, leases) and restores it, all pools in parallel.
// *HeldError: a live run has a pool, which is left alone. Nothing left is no error. A pool that
// cannot be read is an error, and keeps its marks.
func (e *Engine) Restore(ctx context.Context, opts RestoreOptions) ([]poolstate.Leftover, error) {
	if opts.PoolIsGone && len(opts.Pools) != 1 {
		return nil, kamino.WithHint(fmt.Errorf("--pool-is-gone requires exactly one pool, %d given", len(opts.Pools)),
			"kamino restore --pool POOL --pool-is-gone")
	}
	pools, left, err := leftPools(ctx, e)
	if err != nil {
		return nil, err
	}
	if len(opts.Pools) > 0 {
		if pools, err = chooseLeft(pools, opts.Pools); err != nil {
			return nil, err
		}
		left = slices.DeleteFunc(left, func(l poolstate.Leftover) bool {
			return !slices.ContainsFunc(opts.Pools, l.Pool.Named)
		})
	}
	found, errs := make([][]poolstate.Leftover, len(pools)), make([]error, len(pools))
	e.inTurn(len(pools), func(i int) bool { return pools[i].urgent() }, func(e *Engine, i int) {
		found[i], errs[i] = restorePool(ctx, e, pools[i], opts)
		if held := (*kamino.HeldError)(nil); errors.As(errs[i], &held) {
			alone(found[i], held.Error()+": still active, left alone")
		}
		other, err := unexplained(ctx, e, pools[i])
		found[i], errs[i] = append(found[i], other...), errors.Join(errs[i], err)
	})
	return append(left, slices.Concat(found...)...), errors.Join(errs...)
}

// alone sets why nothing is done about any of the leftovers.
func alone(left []poolstate.Leftover, why string) {
	for i := range left {
		left[i].Reason = why
	}
}

// chooseLeft picks pools by the names or IDs that a user typed.
func chooseLeft(all []leftPool, names []string) ([]leftPool, error) {
	var chosen []leftPool
	var known []string
	for _, p := range all {
		known = append(known, p.id.Name())
	}
	for _, name := range names {
		n := len(chosen)
		for _, p := range all {
			if p.id.Named(name) {
				chosen = append(chosen, p)
			}
		}
		switch len(chosen) - n {
		case 0:
			return nil, kamino.WithHint(fmt.Errorf("pool %q is unknown: no node and no lease names it", name), "the pools are %s",
				cmp.Or(strings.Join(known, ", "), "not to be found: check kubectl get nodes"))
		case 1:
		default:
			return nil, kamino.WithHint(fmt.Errorf("pool %q is ambiguous: %d pools have that name", name, len(chosen)-n),
				"give the whole ID")
		}
	}
	return chosen, nil
}

// restoration gives back what ended runs left in a pool.
type restoration struct {
	*Run

	leaves func(kamino.Version) bool // versions still being built that are not waited for; nil: none
	left   bool                      // there was one
}

// leftPool is a pool in which something may have been left.
type leftPool struct {
	id      kamino.PoolID
	lease   kamino.Lease
	nodes   []kamino.Node // nodes that runs have
	others  []kamino.Node // nodes that no run is known to have
	members []kamino.Node // all nodes of the pool
}

// urgent reports whether somebody may wait for a donor of the pool.
func (p leftPool) urgent() bool { return len(p.nodes) > 0 || p.lease.Holder != "" }

// leftPools collects every pool that the nodes or the leases name, and the leftovers that are left
// alone: marks that are not believed, and nodes that stay blocked after a patch.
func leftPools(ctx context.Context, e *Engine) ([]leftPool, []poolstate.Leftover, error) {
	pools := map[kamino.PoolID]*leftPool{}
	get := func(id kamino.PoolID) *leftPool {
		if pools[id] == nil {
			pools[id] = &leftPool{id: id, lease: kamino.Lease{Pool: id}}
		}
		return pools[id]
	}
	leases, err := e.Cluster.Leases(ctx)
	if err != nil {
		return nil, nil, fmt.Errorf("list leases: %w", err)
	}
	for _, lease := range leases {
		get(lease.Pool).lease = lease
	}
	nodes, err := e.Cluster.Nodes(ctx)
	if err != nil {
		return nil, nil, fmt.Errorf("list nodes: %w", err)
	}
	var foreign []poolstate.Leftover
	for _, n := range selection.Twins(nodes) {
		id, err := e.poolOf(ctx, n)
		if err != nil {
			return nil, nil, err
		}
		if id == "" || id.OfCanary() {
			continue
		}
		p := get(id)
		p.members = append(p.members, n)
		mark, err := n.OwnedBy(id, p.lease)
		if err != nil {
			foreign = append(foreign, poolstate.Leftover{Pool: id, Node: n.Name, What: "a mark that is not trusted",
				Reason: "left alone: " + err.Error() + "; " + kamino.LeftAlone(n.Name)})
		} else if mark != nil {
			p.nodes = append(p.nodes, n)
		} else if b := n.Blocked(); b != nil {
			foreign = append(foreign, poolstate.Leftover{Pool: id, Run: b.Run, Node: n.Name, What: "node is blocked " + b.String(),
				Reason: "needs a decision: " + b.Do()})
		} else if n.Name != p.lease.Record.Donor {
			p.others = append(p.others, n)
		}
	}
	out := make([]leftPool, 0, len(pools))
	for _, p := range pools {
		out = append(out, *p)
	}
	slices.SortFunc(out, func(a, b leftPool) int { return strings.Compare(string(a.id), string(b.id)) })
	return out, foreign, nil
}

// unexplained lists machines of the pool that are off or out of service and that no run is known to
// have, also those without a node, which Kubernetes may have forgotten. If etcd was restored from a
// backup, or the lease was deleted, this is all that shows a killed run. A person may have done it,
// too.
func unexplained(ctx context.Context, e *Engine, p leftPool) (left []poolstate.Leftover, err error) {
	ctx = kamino.Looking(ctx)
	r := newRun(e, kamino.Defaults())
	r.pool = kamino.Pool{ID: p.id, Name: p.id.Name()}
	look := func(id kamino.InstanceID, node, machine string, ready bool) {
		note := func(what, do string) {
			left = append(left, poolstate.Leftover{Pool: p.id, Node: node, What: machine + " is " + what + ", and no known run did it",
				Reason: "needs a decision: unless this is intended, " + do})
		}
		if !ready {
			in, failed := e.Provider.Instance(ctx, id)
			if failed == nil && in.Power == kamino.PowerOff {
				note("off", "run: "+id.Start())
			} else if failed != nil && !errors.Is(failed, kamino.ErrNotFound) && !errors.Is(failed, kamino.ErrNotVisible) {
				err = errors.Join(err, fmt.Errorf("read instance %s: %w", id, failed))
			}
		}
		if !r.donor.mayRelease() {
			return
		}
		if how, failed := r.donor.holding(ctx, id); how == kamino.Held {
			note("out of service", "run: "+id.Release(r.pool.Name)+", then run: kamino restore")
		} else if failed != nil && !errors.Is(failed, kamino.ErrNotFound) {
			err = errors.Join(err, failed)
		}
	}
	for _, n := range p.others {
		look(n.ProviderID, n.Name, "machine", n.Ready)
	}
	pool, failed := e.Provider.Pool(ctx, p.id)
	if failed != nil { // gone; any other error is what restorePool returns
		return left, err
	}
	listed, failed := e.Provider.Instances(ctx, pool)
	if failed != nil && !errors.Is(failed, kamino.ErrNotFound) && !errors.Is(failed, kamino.ErrNotVisible) {
		err = errors.Join(err, fmt.Errorf("list the instances of pool %s: %w", pool.Name, failed))
	}
	for _, id := range listed {
		if !id.Same(p.lease.Record.Instance) && !slices.ContainsFunc(p.members, func(n kamino.Node) bool { return n.RunsOn(id) }) {
			look(id, "", "machine "+id.Name()+" without a node", false)
		}
	}
	return left, err
}

// restorePool restores what was left in one pool. *HeldError, with what was seen: a live run has
// the pool.
func restorePool(ctx context.Context, e *Engine, p leftPool, opts RestoreOptions) ([]poolstate.Leftover, error) {
	r := newRun(e, kamino.Defaults())
	r.restore.leaves = opts.leaves
	left := p.left()
	if p.lease.Err != nil {
		if _, err := e.Provider.Pool(ctx, p.id); errors.Is(err, kamino.ErrNotFound) && len(left) == 0 {
			return nil, nil
		}
		return left, fmt.Errorf("read lease of pool %s: %w", p.id.Name(), p.lease.Err)
	}
	if err := r.restore.readLeftPool(ctx, p, opts); errors.Is(err, kamino.ErrNotFound) && len(left) == 0 {
		return nil, nil
	} else if err != nil {
		return left, err
	}
	made, surveyed := r.restore.survey(ctx, p)
	if opts.DryRun || len(left)+len(made) == 0 {
		for i, l := range left {
			left[i].Reason = l.Repaired("would be given back")
		}
		left = append(left, made...)
		if u := p.lease.Unfinished(r.engine.now()); u != nil && u.Alive {
			alone(left, fmt.Sprintf("still active, left alone: last heartbeat %.0fs ago", u.Silence))
		}
		return left, surveyed
	}
	swept, err := r.restore.restoreAll(ctx)
	if held := (*kamino.HeldError)(nil); errors.As(err, &held) {
		return append(left, made...), err
	} else if err != nil {
		err = kamino.WithHint(fmt.Errorf("restore pool %s: %w", r.pool.Name, err), "%s",
			cmp.Or(kamino.Hint(err), "fix the cause, then run: kamino restore"))
		return append(left, made...), errors.Join(err, surveyed)
	}
	for i := range left {
		left[i].Done = cmp.Or(left[i].Repaired("given back"), "given back")
	}
	for i := range made {
		why := r.build.foreign
		if made[i].Kept != "" {
			why = r.canary.kept[made[i].Kept]
		}
		if made[i].Reason = why; why == "" && swept == nil {
			made[i].Done = "given back"
		}
	}
	if swept != nil {
		swept = kamino.WithHint(fmt.Errorf("the donors of pool %s are back; clean up: %w", r.pool.Name, swept),
			"fix the cause, then run: kamino restore")
	}
	return append(left, made...), errors.Join(swept, surveyed)
}

// readLeftPool reads the pool, or confirms the user's statement that it is gone.
func (r *restoration) readLeftPool(ctx context.Context, p leftPool, opts RestoreOptions) error {
	r.pool = kamino.Pool{ID: p.id, Name: p.id.Name()}
	var pool kamino.Pool
	err := r.held.Retry(ctx, func(ctx context.Context) (err error) {
		pool, err = r.engine.Provider.Pool(ctx, p.id)
		return err
	})
	unseen := errors.Is(err, kamino.ErrNotFound) || errors.Is(err, kamino.ErrNotVisible)
	switch {
	case err == nil && opts.PoolIsGone:
		return kamino.WithHint(fmt.Errorf("pool %s exists: it is not given up", pool.Name), "omit --pool-is-gone")
	case err == nil:
		r.pool = pool
	case unseen && opts.PoolIsGone:
		r.donor.back.poolGone = true
	default:
		return kamino.HintPool(fmt.Errorf("read pool %s: %w", p.id.Name(), err), p.id)
	}
	return nil
}

// left lists what nodes and lease tell.
func (p leftPool) left() []poolstate.Leftover {
	var left []poolstate.Leftover
	for _, n := range p.nodes {
		mark, err := n.Claimed(p.id)
		if err != nil || mark == nil {
			continue
		}
		left = append(left, poolstate.Leftover{Pool: p.id, Run: mark.Run, Node: n.Name, What: "node is " + mark.Holds(),
			Begun: mark.Patches() && mark.Begun})
	}
	if probe := p.lease.Record.Probe; probe != nil {
		left = append(left, poolstate.Leftover{Pool: p.id, Run: probe.Run, What: "probe in namespace " + probe.Namespace})
	}
	if p.lease.Holder != "" {
		left = append(left, poolstate.Leftover{Pool: p.id, Run: p.lease.Holder, Node: p.lease.Record.Donor,
			What: fmt.Sprintf("lease held by process %s at step %s", cmp.Or(p.lease.Process, "unknown"),
				cmp.Or(p.lease.Record.Step, kamino.StepLock))})
	}
	return left
}

// survey lists what was left in the cloud, by reading only.
func (r *restoration) survey(ctx context.Context, p leftPool) ([]poolstate.Leftover, error) {
	if r.donor.back.poolGone {
		return nil, nil
	}
	var left []poolstate.Leftover
	lease := p.lease
	s, err := r.engine.readSnapshot(ctx, r.pool)
	if err != nil {
		return nil, err
	}
	if s != nil {
		if s.Ours() {
			r.build.reused = s // one read that does not find it is no proof that it is gone
			left = append(left, poolstate.Leftover{Pool: r.pool.ID, Run: s.Run, Node: s.Donor, What: "snapshot " + s.Name})
		}
		if n, mark, err := r.forgottenDonor(ctx, *s, lease); err != nil {
			return left, err
		} else if mark != nil {
			left = append(left, poolstate.Leftover{Pool: r.pool.ID, Run: mark.Run, Node: n.Name,
				What: "node is off or out of service: snapshot " + s.Name + " names it as the donor of a run that the lease does not know"})
		}
	}
	if !p.urgent() { // otherwise it is removed with the donor
		if id, err := r.remains(kamino.Looking(ctx), p.members); err != nil {
			return left, err
		} else if id != "" {
			left = append(left, poolstate.Leftover{Pool: r.pool.ID,
				What: "processes that a run suspended in the pool (on AWS: AZRebalance)"})
		}
	}
	canaries, err := r.canary.leftCanaries(ctx)
	left = append(left, canaries...)
	if err != nil {
		return left, err
	}
	versions, err := r.image.versions(ctx)
	if err != nil {
		return left, err
	}
	for _, v := range versions {
		if lease.Sweepable(v, r.engine.now()) {
			left = append(left, poolstate.Leftover{Pool: r.pool.ID, Run: v.Run, Node: v.Donor, What: "failed version " + v.Name})
		}
	}
	return left, nil
}

// restoreAll takes the lease, restores every marked node, cleans up and releases the lease. swept
// is an error of cleaning up, after all donors are back.
func (r *restoration) restoreAll(ctx context.Context) (swept, err error) {
	r.held.GivingBack = true
	err = r.exec(ctx, []Step{
		lockStep(takeTheLease, r.lookLock),
		{Name: kamino.StepRecover, Does: "give back the nodes that runs took", Look: r.lookLeft, Limit: 2 * time.Hour},
	})
	if err == nil && !r.donor.back.poolGone {
		if swept = r.exec(ctx, sweep(r.Run)); !errors.Is(swept, kamino.ErrLeaseLost) {
			swept = errors.Join(swept, r.stayedOn(ctx), r.canary.readVerdict(ctx))
		}
	}
	if err == nil && !errors.Is(swept, kamino.ErrLeaseLost) {
		return swept, r.release(context.WithoutCancel(ctx), nil)
	} else if err == nil {
		return nil, swept
	}
	// What is left is on the nodes. Only an adopted run needs its lease: the donor whose node
	// Kubernetes has forgotten is known from there.
	if r.held.Regain(ctx); r.held.Lease != nil && !r.held.Adopted && !errors.Is(err, kamino.ErrLeaseLost) {
		err = errors.Join(err, r.release(context.WithoutCancel(ctx), nil))
	}
	return nil, err
}

// clearPool restores what an interrupted run of the pool left. *HeldError: the run is alive.
func clearPool(ctx context.Context, e *Engine, o poolstate.State, opts RestoreOptions) ([]poolstate.Leftover, error) {
	p := leftPool{id: o.ID, lease: o.Lease, nodes: o.Taken()}
	if !p.urgent() {
		return nil, nil
	}
	return restorePool(ctx, e, p, opts)
}

// clearCanaries removes the canaries that ended runs of a pool left, if no run holds the pool.
func clearCanaries(ctx context.Context, e *Engine, o poolstate.State) error {
	if len(o.Canaries) == 0 || o.Lease.Holder != "" {
		return nil
	}
	_, err := restorePool(ctx, e, leftPool{id: o.ID, lease: o.Lease, nodes: o.Taken()}, RestoreOptions{})
	if held := (*kamino.HeldError)(nil); errors.As(err, &held) {
		return nil // they belong to that run
	}
	return err
}

// clearUnread clears a pool that could only be read in part and has no donor away.
func clearUnread(ctx context.Context, e *Engine, o poolstate.State) error {
	_, undo := clearPool(ctx, e, o, RestoreOptions{})
	if undo != nil && o.Pool.ID == "" {
		return undo // the pool itself, and what to do about it
	}
	return errors.Join(o.Err, undo)
}

// lookLeft restores one donor after the other.
func (r *restoration) lookLeft(ctx context.Context) (workflow.Next, error) {
	nodes, err := r.engine.Cluster.Nodes(ctx)
	if err != nil {
		return workflow.Next{}, fmt.Errorf("list nodes: %w", err)
	}
	if next, found, err := r.leftBehind(ctx, nodes, false); found || err != nil {
		return next, err
	}
	if r.donor.back.poolGone {
		return workflow.Done("no node is left to be given back"), nil
	}
	s, err := r.engine.readSnapshot(ctx, r.pool)
	if err != nil {
		return workflow.Next{}, err
	}
	if s != nil {
		if n, mark, err := r.forgottenDonor(ctx, *s, *r.held.Lease); err != nil {
			return workflow.Next{}, err
		} else if mark != nil {
			return r.giveBackForgotten(n, mark, *s), nil
		}
	}
	if nodes, err = r.engine.ofPool(ctx, nodes, r.pool.ID); err != nil {
		return workflow.Next{}, err
	}
	return r.lookRemains(ctx, nodes)
}

// lookRemains undoes what a run did to the pool itself, which nothing else shows. It is certainly
// Kamino's, because Hold marks it. A process that lost its lease in the middle of an act may be
// about to take its donor out of service, and still needs it.
func (r *restoration) lookRemains(ctx context.Context, nodes []kamino.Node) (workflow.Next, error) {
	switch id, err := r.remains(ctx, nodes); {
	case err != nil:
		return workflow.Next{}, err
	case id == "":
		return workflow.Done("no node is left to be given back"), nil
	case r.runner.Spent() < kamino.LeaseDuration:
		return workflow.WaitFor("acts of a process that lost its lease to end", kamino.LeaseDuration-r.runner.Spent()), nil
	default:
		return workflow.Act(kamino.ActRelease, "resume what a run suspended in the pool",
			func(ctx context.Context) error { return r.engine.holder().Release(ctx, r.pool, id) }).
			Then("the pool to resume it", 0), nil
	}
}

// remains returns an instance in service with which Release undoes what Hold did to the pool; "" if
// there is nothing to undo, or if an instance is out of service, which needs it.
func (r *restoration) remains(ctx context.Context, nodes []kamino.Node) (id kamino.InstanceID, err error) {
	if !r.donor.mayRelease() {
		return "", nil
	}
	for _, n := range nodes {
		how, err := r.donor.holding(ctx, n.ProviderID)
		switch {
		case errors.Is(err, kamino.ErrNotFound):
		case err != nil:
			return "", err
		case how == kamino.Remains:
			id = n.ProviderID
		default:
			return "", nil
		}
	}
	return id, nil
}

// forgottenDonor returns the node that a snapshot was taken of, if its machine is off or out of
// service and only the snapshot's tags name the run, as after etcd was restored from a backup. The
// mark is nil if there is none.
func (r *restoration) forgottenDonor(ctx context.Context, s kamino.Copy, lease kamino.Lease) (kamino.Node, *kamino.Mark, error) {
	run, vm := s.Run, s.VM
	if run == "" || vm == "" || lease.Knows(run) {
		return kamino.Node{}, nil, nil
	}
	n, err := r.engine.Cluster.Node(ctx, s.Donor)
	if errors.Is(err, kamino.ErrNotFound) {
		if n, err = r.nodelessDonor(ctx, s); err != nil || n.ProviderID == "" {
			return n, nil, err
		}
	} else if err != nil {
		return n, nil, fmt.Errorf("read node %s: %w", s.Donor, err)
	}
	pool, err := r.engine.poolOf(ctx, n)
	if err != nil || pool != r.pool.ID || n.UID != "" && !kamino.SameVM(n.SystemUUID, vm) {
		return n, nil, err
	}
	in, err := r.engine.Provider.Instance(ctx, n.ProviderID)
	if errors.Is(err, kamino.ErrNotFound) {
		return n, nil, nil
	} else if err != nil {
		return n, nil, fmt.Errorf("read instance %s: %w", n.ProviderID, err)
	}
	away := in.Power != kamino.PowerOn
	if !away && r.donor.mayRelease() {
		how, err := r.donor.holding(ctx, in.ID)
		if err != nil {
			return n, nil, err
		}
		away = how == kamino.Held
	}
	if !away || replaced(in.WithVM(vm), vm) {
		return n, nil, nil
	}
	return n, &kamino.Mark{Run: run, Pool: pool, Instance: n.ProviderID, VMID: vm, Sealing: true, Held: true, Forgotten: true}, nil
}

// nodelessDonor finds a donor that has no Node, as after etcd was restored from an older backup. It is
// the machine of the pool that has no Node and whose disk is the snapshot's source. If there is none,
// the node that it returns has no provider ID.
func (r *restoration) nodelessDonor(ctx context.Context, s kamino.Copy) (kamino.Node, error) {
	none := kamino.Node{Name: s.Donor}
	nodes, err := r.engine.Cluster.Nodes(ctx)
	if err != nil {
		return none, fmt.Errorf("list nodes: %w", err)
	}
	listed, err := r.engine.Provider.Instances(ctx, r.pool)
	if err != nil {
		return none, fmt.Errorf("list the instances of pool %s: %w", r.pool.Name, err)
	}
	for _, id := range listed {
		if slices.ContainsFunc(nodes, func(n kamino.Node) bool { return n.RunsOn(id) }) {
			continue
		}
		in, err := r.engine.Provider.Instance(ctx, id)
		if err != nil && !errors.Is(err, kamino.ErrNotFound) {
			return none, fmt.Errorf("read instance %s: %w", id, err)
		} else if err == nil && in.Disk != "" && strings.EqualFold(in.Disk, s.Source) {
			none.ProviderID = id
			return none, nil
		}
	}
	return none, nil
}

func (r *restoration) giveBackForgotten(n kamino.Node, mark *kamino.Mark, s kamino.Copy) workflow.Next {
	return workflow.ActSteps(kamino.ActGiveBack, fmt.Sprintf(
		"give back node %s: snapshot %s names it as the donor of run %s, which the lease does not know", n.Name, s.Name, mark.Run),
		func(ctx context.Context) error { return r.giveBackNode(ctx, n, *mark) }).Of(n.Name)
}

func (r *restoration) lookSweep(ctx context.Context) (workflow.Next, error) {
	versions, err := r.image.versions(ctx)
	if err != nil {
		return workflow.Next{}, err
	}
	for _, v := range versions {
		switch building := v.Ours() && (v.State == kamino.Creating || v.State == kamino.Deleting); {
		case r.held.Lease.Sweepable(v, r.engine.now()):
			return workflow.Act(kamino.ActDeleteVersion, "delete the failed version "+v.Name, func(ctx context.Context) error {
				return r.engine.Provider.Delete(ctx, r.pool, v.Artifact)
			}).Of(v.Name), nil
		case building && r.leaves != nil && v.State == kamino.Creating && (v.Excluded || !kamino.Points(r.pool.Model.Image, versions)) &&
			r.leaves(v):
			r.left, r.build.foreign = true, "version "+v.Name+" is still being built from it"
		case building:
			return workflow.WaitPercent(fmt.Sprintf("version %s, which is %s", v.Name, v.State), v.Percent), nil
		}
	}
	return workflow.Done("no failed version"), nil
}

func (r *restoration) leftNone() bool { return !r.left }

// retireLeft removes the canary, or its Node object, that an earlier proof could not remove.
func retireLeft(ctx context.Context, e *Engine, o poolstate.State) error {
	return underLease(ctx, e, o.Pool, func(r *Run) []Step {
		return []Step{{Name: kamino.StepRetire, Does: "remove canaries", When: r.canary.makesCanaries,
			Look: r.canary.lookRetire, Patient: true}}
	}, nil)
}

// GiveBack restores what an earlier run left in the pool of a node with which no run can be tried
// now. A live run is left alone. A node that is unknown or in no pool is no error.
func (e *Engine) GiveBack(ctx context.Context, donor string) error {
	return newRun(e, kamino.Options{Donor: donor}).giveBackRefused(ctx)
}
