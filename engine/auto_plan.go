package engine

import (
	"context"
	"errors"
	"fmt"

	"kamino.dev/kamino"
	"kamino.dev/kamino/poolstate"
)

// PlanPools finds out what AutoUpdate would do with the same options, by reading only. The plan of
// a pool that cannot be read has an error, which is also joined to the returned one.
func (e *Engine) PlanPools(ctx context.Context, opts kamino.AutoOptions) ([]poolstate.PoolPlan, error) {
	if err := opts.Validate(); err != nil {
		return nil, err
	}
	e, ctx = e.planning(), kamino.Looking(ctx)
	all, _, err := e.overviews(ctx, opts.Pools)
	if err != nil {
		return nil, err
	}
	plans, errs := make([]poolstate.PoolPlan, len(all)), make([]error, len(all))
	paused, _ := e.Paused(ctx) // a run reports if it may not read the pause
	e.inTurn(len(all), noneUrgent, func(own *Engine, i int) {
		o := all[i]
		plans[i], errs[i] = o.Decide(opts, e.now()), o.Err
		if run := o.Lease.Unfinished(e.now()); run != nil && run.Alive && plans[i].Action == poolstate.DoFinish {
			plans[i].Hold(kamino.CodeHeld, "run %s (process %s) is active: its last heartbeat was %.0fs ago", run.Run,
				run.Process, run.Silence)
		}
		if err := detail(ctx, own, o, opts, &plans[i]); err != nil {
			errs[i] = err
			plans[i].Hold(kamino.CodeError, "%v", err)
		}
		after := plans[i]
		if plans[i].HeldBy(paused); plans[i].Action != after.Action {
			plans[i].AfterResume, plans[i].Donor, plans[i].Run = after.Action, after.Donor, after.Run
		}
	})
	return plans, errors.Join(errs...)
}

// View reads one pool with its lease, and the nodes of the cluster. An error of reading the pool is
// in the status and not returned.
func (e *Engine) View(ctx context.Context, id kamino.PoolID, opts kamino.AutoOptions) (v poolstate.PoolView, err error) {
	if err := opts.Validate(); err != nil {
		return v, err
	}
	o := poolstate.State{ID: id}
	if o.Nodes, err = e.nodesOf(ctx, id); err != nil {
		return v, err
	}
	if o.Lease, err = e.Cluster.Lease(ctx, id); err != nil {
		return v, fmt.Errorf("read lease of pool %s: %w", id.Name(), err)
	}
	paused, err := e.Paused(ctx)
	if err != nil {
		return v, fmt.Errorf("read whether runs are paused: %w", err)
	}
	o.Err = e.readOne(ctx, &o)
	o.Versions = o.Lease.Ledger.Distrust(o.Versions)
	v.Status, v.Plan = o.Status(e.now(), opts.Rules.LastPatch), o.Decide(opts, e.now())
	v.Status.Paused, v.Status.PausedBy, v.Status.PausedSince, v.Gone = paused.Reason, paused.By, paused.Since, o.Gone
	v.Plan.HeldBy(paused)
	if next := o.Next(); next != nil {
		v.Promoted = o.PromotedAt(next)
	}
	return v, nil
}

// detail adds what needs more reads: the plan of the run, and whether the provider refuses the
// donor. A refused donor is replaced by the next candidate.
func detail(ctx context.Context, e *Engine, o poolstate.State, opts kamino.AutoOptions, p *poolstate.PoolPlan) error {
	switch p.Action {
	case poolstate.DoModel:
		if err := e.heed(ctx, &o); err != nil {
			return err
		}
		t := o.Newest(opts)
		if err := e.comeToPoint(ctx, &o, &t); err != nil {
			return err
		}
		next, err := e.Provider.NextImage(ctx, o.Pool, t.Spec())
		p.ModelDiff = next.Diff
		return err
	case poolstate.DoUpdate, poolstate.DoFinish:
	default:
		return nil
	}
	refused := 0
	for tries := 0; tries < poolstate.MaxTries && p.Donor != ""; refused++ {
		run := p.RunOf(opts, p.Donor)
		plan, err := planRun(ctx, e, run, &o.Lease)
		if err != nil {
			return fmt.Errorf("plan the run with donor %s: %w", p.Donor, err)
		}
		p.Run = plan
		switch {
		case len(plan.Refusals) == 0 || p.Action == poolstate.DoFinish:
			return nil
		case stepRefused(plan.Refusals):
			for _, r := range plan.Refusals {
				p.Hold(kamino.CodeRefused, "%s; %s", r.Why, r.Do)
			}
			p.Refusals = plan.Refusals
			return nil
		}
		if !kamino.OfNode(plan.Refusals) {
			tries++
		}
		p.Refuse(plan.Refusals, opts.MinCandidates)
	}
	if p.Donor != "" {
		p.Hold(kamino.CodeRefused, "%d candidates are refused", refused)
	}
	return nil
}
