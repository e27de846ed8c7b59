package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"kamino.dev/kamino"
	"kamino.dev/kamino/poolstate"
	"kamino.dev/kamino/selection"
)

// PatchResult is the result of Patch for a pool.
type PatchResult struct {
	Pool  kamino.PoolID `json:"pool"`
	Nodes []PatchedNode `json:"nodes"` // in the order in which they were patched
	// Candidates are the nodes that were considered. Rank is 0 for a node that was not patched.
	Candidates []kamino.Candidate `json:"candidates"`
	Unfinished *kamino.Unfinished `json:"unfinishedRun,omitempty"` // of a plan: the run that holds the pool
}

// Patch upgrades the packages of some nodes of a pool, the best candidates first, drained and
// restored like a donor. A node that does not come back in order stays blocked, and the next
// candidate is tried.
func (e *Engine) Patch(ctx context.Context, opts kamino.PatchOptions) (PatchResult, error) {
	result, o, err := patchCandidates(ctx, e, opts)
	if err != nil {
		return result, err
	}
	t := &donorLimit{most: opts.MaxAway, maxNotReady: opts.MaxNotReady, away: map[kamino.PoolID]bool{},
		ours: map[kamino.PoolID]bool{o.ID: o.Lease.Holder != ""}}
	return result, patchIn(ctx, e, opts, t, o, &result)
}

// PlanPatch returns the ranked candidates of Patch, and changes nothing.
func (e *Engine) PlanPatch(ctx context.Context, opts kamino.PatchOptions) (PatchResult, error) {
	result, o, err := patchCandidates(ctx, e, opts)
	if err == nil {
		o.Date(result.Candidates)
		result.Unfinished, err = o.Unfinished(e.now()), e.refusePaused(ctx)
	}
	return result, err
}

func patchCandidates(ctx context.Context, e *Engine, opts kamino.PatchOptions) (result PatchResult, o poolstate.State, err error) {
	if err := opts.Validate(); err != nil {
		return result, o, err
	}
	if _, ok := e.Cluster.(kamino.Patcher); !ok {
		return result, o, fmt.Errorf("patch: %w", kamino.ErrUnsupported)
	}
	pool := opts.Pool
	if opts.Donor != "" {
		n, err := e.namedNode(ctx, opts.Donor)
		if err != nil {
			return result, o, err
		}
		id, err := e.namedPool(ctx, n)
		if err != nil {
			return result, o, err
		}
		pool = string(id)
	}
	all, _, err := e.overviews(ctx, []string{pool})
	if err != nil {
		return result, o, err
	}
	if o = all[0]; o.Err != nil {
		return result, o, o.Err
	}
	result = PatchResult{Pool: o.ID, Nodes: []PatchedNode{}, Candidates: selection.SelectPatch(o.Nodes, opts, e.now())}
	return result, o, nil
}

func patchIn(ctx context.Context, e *Engine, opts kamino.PatchOptions, t *donorLimit, o poolstate.State, result *PatchResult) error {
	names := []string{}
	if u := o.Lease.Record; o.Lease.Holder != "" && u.Work == kamino.WorkPatch && u.Donor != "" {
		names = append(names, u.Donor) // the remains of an interrupted run are finished first
	}
	for _, c := range poolstate.Ranked(result.Candidates) {
		if !slices.Contains(names, c.Node) {
			names = append(names, c.Node)
		}
	}
	if opts.Donor != "" {
		names = []string{opts.Donor}
	}
	left, retries := opts.Nodes, opts.Retries
	var errs []error
	for _, name := range names {
		if left == 0 || len(errs) > 0 && retries < 0 {
			break
		}
		if err := t.wait(ctx, e, o); err != nil {
			return errors.Join(append(errs, err)...)
		}
		node, err := patchOne(ctx, e, opts, name)
		t.leave(o.ID)
		result.Nodes = append(result.Nodes, node)
		if err == nil {
			left--
			continue
		}
		errs = append(errs, fmt.Errorf("node %s: %w", name, err))
		if ctx.Err() != nil || !nextMayDo(err) && !node.Blocked {
			if left == opts.Nodes {
				return errors.Join(errs...)
			}
			break // with the count: a refusal alone would mean that nothing was changed
		}
		if !kamino.OfNode(kamino.Refusals(err)) {
			retries--
		}
	}
	switch {
	case left == 0:
		return nil // earlier errors are in the result
	case left < opts.Nodes || len(errs) == 0:
		errs = append(errs, fmt.Errorf("%d of %d nodes of pool %s patched", opts.Nodes-left, opts.Nodes, o.ID.Name()))
	}
	return kamino.WithHint(errors.Join(errs...), "kamino patch --pool %s --dry-run shows why each node was chosen or not", o.ID.Name())
}

// patchOne patches one node. If the node is not healthy, it restores everything but the block.
func patchOne(ctx context.Context, e *Engine, opts kamino.PatchOptions, name string) (PatchedNode, error) {
	run := opts.Options
	run.Donor, run.Patch, run.PendingReboot, run.RequireLabels = name, &opts.Order, nil, nil
	r := newRun(e, run)
	err := r.exec(ctx, patchSteps(r))
	if err != nil {
		r.held.Regain(ctx)
	}
	switch {
	case err == nil:
		err = r.stayedOn(ctx)
		err = errors.Join(err, r.release(context.WithoutCancel(ctx), func(l *kamino.Lease) {
			l.Ledger.NotePast(r.patch.pastPatch(l.Record))
			l.Record = kamino.Record{}
		}))
	case r.held.Lease != nil && !errors.Is(err, kamino.ErrLeaseLost):
		err = r.abandon(ctx, err)
	}
	out := r.patch.PatchedNode
	if out.Blocked && ctx.Err() != nil {
		err = kamino.WithHint(err, "node %s stays blocked: kamino patch --target-node %s continues and examines it", name, name)
	}
	out.Node, out.Run, out.Steps, out.Warnings = name, r.held.Run, r.result.Steps, append(out.Warnings, r.result.Warnings...)
	if err != nil {
		out.Error, out.Hints = err.Error(), kamino.Advice(err)
	}
	return out, err
}
