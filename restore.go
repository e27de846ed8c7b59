package kamino

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Left is something that an interrupted run left behind.
type Left struct {
	Pool   PoolID `json:"pool"`
	Run    string `json:"run"`
	Node   string `json:"node,omitempty"`
	What   string `json:"what"`             // for people
	Done   string `json:"done,omitempty"`   // what was done about it
	Reason string `json:"reason,omitempty"` // why nothing was done
}

// Restore finds what interrupted runs left in the whole cluster (donors that
// are off, blocked or protected, snapshots, failed versions, leases) and gives
// it back. A run whose process lives is left alone. With dryRun it only lists.
// Nothing left is no error.
func (e *Engine) Restore(ctx context.Context, dryRun bool) ([]Left, error) {
	pools, left, err := e.leftPools(ctx)
	if err != nil {
		return nil, err
	}
	var errs []error
	for _, p := range pools {
		got, err := e.restorePool(ctx, p, dryRun)
		left = append(left, got...)
		errs = append(errs, err)
	}
	return left, errors.Join(errs...)
}

// leftPool is a pool in which something may have been left.
type leftPool struct {
	id    PoolID
	lease Lease
	nodes []Node // marked
}

// leftPools collects every pool that the nodes or the leases name.
func (e *Engine) leftPools(ctx context.Context) ([]leftPool, []Left, error) {
	nodes, err := e.Cluster.Nodes(ctx)
	if err != nil {
		return nil, nil, fmt.Errorf("list nodes: %w", err)
	}
	pools := map[PoolID]*leftPool{}
	get := func(id PoolID) *leftPool {
		if pools[id] == nil {
			pools[id] = &leftPool{id: id, lease: Lease{Pool: id}}
		}
		return pools[id]
	}
	var foreign []Left
	for _, n := range nodes {
		id, poolErr := e.Provider.PoolOf(n.ProviderID)
		mark, err := n.claim(id)
		if err != nil {
			foreign = append(foreign, Left{Pool: id, Node: n.Name, What: "a mark that is not ours", Reason: "left alone: " + err.Error()})
			continue
		}
		switch {
		case mark != nil:
			p := get(mark.Pool)
			p.nodes = append(p.nodes, n)
		case poolErr == nil:
			get(id)
		}
	}
	if l, ok := e.Cluster.(Leases); ok {
		leases, err := l.Leases(ctx)
		if err != nil {
			return nil, nil, fmt.Errorf("list leases: %w", err)
		}
		for _, lease := range leases {
			get(lease.Pool).lease = lease
		}
	}
	out := make([]leftPool, 0, len(pools))
	for _, p := range pools {
		out = append(out, *p)
	}
	slices.SortFunc(out, func(a, b leftPool) int { return strings.Compare(string(a.id), string(b.id)) })
	return out, foreign, nil
}

// restorePool gives back what was left in one pool.
func (e *Engine) restorePool(ctx context.Context, p leftPool, dryRun bool) ([]Left, error) {
	r := e.newRun(Defaults())
	var err error
	if r.pool, err = e.Provider.Pool(ctx, p.id); errors.Is(err, ErrNotFound) && len(p.nodes) == 0 && p.lease.Holder == "" {
		return nil, nil
	} else if errors.Is(err, ErrNotFound) {
		// Machines are gone with their pool; marks and lease are not.
		r.pool = Pool{ID: p.id, Name: p.id.Name()}
	} else if err != nil {
		return nil, fmt.Errorf("read pool %s: %w", p.id.Name(), err)
	}
	left, err := r.survey(ctx, p, err == nil)
	if err != nil || len(left) == 0 || dryRun {
		return left, err
	}
	if err := r.restoreAll(ctx, err == nil); err != nil {
		var held *HeldError
		if errors.As(err, &held) {
			for i := range left {
				left[i].Reason = held.Error()
			}
			return left, nil
		}
		return left, WithHint(fmt.Errorf("restore pool %s: %w", r.pool.Name, err), "mend the cause, then again: kamino restore")
	}
	for i := range left {
		left[i].Done = "given back"
	}
	return left, nil
}

// survey lists what was left, by reading only.
func (r *Run) survey(ctx context.Context, p leftPool, exists bool) ([]Left, error) {
	var left []Left
	for _, n := range p.nodes {
		mark, _ := n.claim(p.id)
		what := "protected"
		if mark.Block {
			what += ", blocked"
		}
		if mark.Sealing {
			what += ", perhaps sealed and off"
		}
		left = append(left, Left{Pool: p.id, Run: mark.Run, Node: n.Name, What: "node is " + what})
	}
	if p.lease.Holder != "" {
		left = append(left, Left{Pool: p.id, Run: p.lease.Holder, Node: p.lease.Record.Donor,
			What: fmt.Sprintf("lease held by process %s at step %s", p.lease.Process, p.lease.Record.Step)})
	}
	if !exists {
		return left, nil
	}
	snapshots, err := r.Provider.Find(ctx, r.pool, Snapshot, SnapshotName(r.pool.Name))
	if err != nil {
		return nil, fmt.Errorf("read the snapshot of pool %s: %w", r.pool.Name, err)
	}
	for _, s := range snapshots {
		if s.Ours() {
			left = append(left, Left{Pool: p.id, Run: s.Tags[TagRun], Node: s.Tags[TagBuiltFrom], What: "snapshot " + s.Name})
		}
	}
	versions, err := r.Provider.Find(ctx, r.pool, Version, "")
	if err != nil {
		return nil, fmt.Errorf("list image versions of pool %s: %w", r.pool.Name, err)
	}
	for _, v := range versions {
		if v.Ours() && v.State == Failed {
			left = append(left, Left{Pool: p.id, Run: v.Tags[TagRun], Node: v.Tags[TagBuiltFrom], What: "failed version " + v.Name})
		}
	}
	return left, nil
}

// restoreAll takes the lease, gives back every marked node, cleans up and frees
// the lease.
func (r *Run) restoreAll(ctx context.Context, exists bool) error {
	r.back = true
	steps := []Step{
		{Name: "lock", Does: "take the pool's lease", Look: (*Run).lookLock},
		{Name: "recover", Does: "give back the donors", Look: (*Run).lookLeft, Limit: 2 * time.Hour},
	}
	if exists {
		steps = append(steps, sweep()...)
	}
	err := r.exec(ctx, steps)
	if err == nil {
		return r.release(ctx, nil)
	}
	// What is left stands on the nodes. Only an adopted run needs its lease: the
	// donor whose node Kubernetes has forgotten is known from there.
	if r.regain(ctx); r.lease != nil && !r.adopted && !errors.Is(err, ErrLeaseLost) {
		err = errors.Join(err, r.release(context.WithoutCancel(ctx), nil))
	}
	return err
}

// lookLeft gives back one donor after the other.
func (r *Run) lookLeft(ctx context.Context) (Next, error) {
	nodes, err := r.Cluster.Nodes(ctx)
	if err != nil {
		return Next{}, fmt.Errorf("list nodes: %w", err)
	}
	if next, found := r.leftBehind(nodes, false); found {
		return next, nil
	}
	return done("no donor is left"), nil
}

// sweep deletes failed versions, waits for those still being built, and then
// deletes the snapshot that they were built from.
func sweep() []Step {
	return []Step{
		{Name: "failed-version", Does: "delete failed image versions", Look: (*Run).lookSweep, Patient: true, Limit: unlimited},
		{Name: "clean", Does: "delete the snapshot", Look: (*Run).lookClean, Patient: true},
	}
}

func (r *Run) lookSweep(ctx context.Context) (Next, error) {
	versions, err := r.Provider.Find(ctx, r.pool, Version, "")
	if err != nil {
		return Next{}, fmt.Errorf("list image versions of pool %s: %w", r.pool.Name, err)
	}
	for _, v := range versions {
		if !v.Ours() {
			continue
		}
		switch v.State {
		case Failed:
			return act("delete the failed version "+v.Name, func(ctx context.Context) error {
				return r.Provider.Delete(ctx, r.pool, v)
			}), nil
		case Creating, Deleting:
			return waitPercent(fmt.Sprintf("version %s, which is %s", v.Name, v.State), v.Percent), nil
		}
	}
	return done("no failed version"), nil
}
