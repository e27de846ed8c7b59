package engine

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"kamino.dev/kamino"
	"kamino.dev/kamino/poolstate"
	"kamino.dev/kamino/selection"
)

// PoolResult is what auto-update did with one pool.
type PoolResult struct {
	Pool   kamino.PoolID    `json:"pool"`
	Name   string           `json:"name"`
	Action poolstate.Action `json:"action"`
	Why    []kamino.Verdict `json:"why"`
	Held   []kamino.Verdict `json:"held"`
	Donor  string           `json:"donor,omitempty"`
	// Failed are the candidates that were tried before, with their errors.
	Failed []Attempt `json:"failed,omitempty"`
	// Patched is the result of patching before the donor was chosen; nil if nothing was patched.
	Patched *PatchResult `json:"patched,omitempty"`
	Result  *Result      `json:"result,omitempty"`
	Error   string       `json:"error,omitempty"`
	Hints   []string     `json:"hints,omitempty"` // what to do about Error
}

// Attempt is a candidate that could not become the donor.
type Attempt struct {
	Donor string   `json:"donor"`
	Error string   `json:"error"`
	Hints []string `json:"hints,omitempty"`
}

// AutoUpdate finds out for every pool whether it needs a new image, chooses the donor, and makes
// the image. Pools run in parallel, but no more donors are away at the same time than the options
// allow; images are built at the same time. If a candidate is refused or cannot be drained, the
// next one is tried. The error of one pool is joined to the others and stops no other pool.
func (e *Engine) AutoUpdate(ctx context.Context, opts kamino.AutoOptions) ([]PoolResult, error) {
	if err := opts.Validate(); err != nil {
		return nil, err
	}
	all, _, err := e.overviews(ctx, opts.Pools)
	if err != nil {
		return nil, err
	}
	t := &donorLimit{most: opts.MaxAway, maxNotReady: opts.MaxNotReady, away: map[kamino.PoolID]bool{}, ours: map[kamino.PoolID]bool{}}
	paused, _ := e.Paused(ctx) // a run without the right to read the pause reports that
	results, errs, plans := make([]PoolResult, len(all)), make([]error, len(all)), make([]poolstate.PoolPlan, len(all))
	for i, o := range all {
		plans[i] = o.Decide(opts, e.now())
		plans[i].HeldBy(paused)
		if t.ours[o.ID] = plans[i].Action == poolstate.DoFinish; t.ours[o.ID] && o.DonorAway() {
			t.away[o.ID] = true
		}
	}
	e.beside(len(all), func(e *Engine, i int) {
		o, plan := all[i], plans[i]
		results[i] = PoolResult{Pool: o.ID, Name: plan.Name, Action: plan.Action, Why: plan.Why, Held: plan.Held}
		a := autoRun{engine: e, opts: opts, pool: o, plan: plan, turns: t, result: &results[i], paused: paused.Reason != ""}
		if err := a.do(ctx); err != nil {
			errs[i] = fmt.Errorf("pool %s: %w", plan.Name, err)
			results[i].Error, results[i].Hints = err.Error(), kamino.Advice(err)
		}
		t.leave(o.ID)
	})
	return results, errors.Join(errs...)
}

// autoRun is the work of auto-update on one pool.
type autoRun struct {
	engine *Engine
	opts   kamino.AutoOptions
	pool   poolstate.State
	plan   poolstate.PoolPlan
	turns  *donorLimit
	result *PoolResult
	again  bool // a version of today failed its proof
	paused bool
}

func (a *autoRun) do(ctx context.Context) error {
	if a.pool.Err != nil {
		return clearUnread(ctx, a.engine, a.pool)
	}
	if err := clearCanaries(ctx, a.engine, a.pool); err != nil {
		return err
	}
	if a.patches() {
		if err := a.patch(ctx); err != nil {
			return err
		}
	}
	switch a.plan.Action {
	case poolstate.DoModel:
		if err := a.engine.refusePaused(ctx); err != nil {
			return err
		}
		if err := a.engine.heed(ctx, &a.pool); err != nil {
			return err
		}
		t := a.pool.Newest(a.opts)
		if err := a.engine.comeToPoint(ctx, &a.pool, &t); err != nil {
			return err
		}
		back, err := pointTo(ctx, a.engine, a.pool, t, a.pool.BegunBad(t), false)
		a.result.Result = &Result{Pool: a.pool.ID, Version: back.To, Changed: back.Changed && err == nil, ModelDiff: back.ModelDiff}
		return err
	case poolstate.DoFinish:
		if a.plan.Donor == "" {
			_, err := clearPool(ctx, a.engine, a.pool, RestoreOptions{})
			return err
		}
		return a.update(ctx, a.plan.Donor)
	case poolstate.DoUpdate:
		return a.tryCandidates(ctx)
	}
	if l := a.pool.Lease; l.Ledger.Promoted != nil && l.Holder == "" && kamino.Has(a.plan.Held, kamino.CodePinned) {
		return a.engine.unjudged(ctx, a.pool)
	}
	return nil
}

// unjudged records that somebody else chose the pool's next image. Instances created meanwhile are
// no evidence of whether the pool follows its definition, also later.
func (e *Engine) unjudged(ctx context.Context, o poolstate.State) error {
	return underLease(ctx, e, o.Pool, nil, func(l *kamino.Lease) { l.Ledger.Promoted = nil })
}

// patches reports whether nodes are patched first. They are not if the remains of an earlier run
// come first, or if no image may be made.
func (a *autoRun) patches() bool {
	return a.opts.Patch != nil && !a.paused && a.plan.Action != poolstate.DoFinish && a.pool.Pin() == nil &&
		len(a.opts.Unlifted(a.pool.Pool.Refusals)) == 0
}

// patch patches nodes of the pool, and decides again.
func (a *autoRun) patch(ctx context.Context) error {
	opts := *a.opts.Patch
	opts.Pool, opts.Donor, opts.Rules = string(a.pool.ID), "", a.opts.Rules
	opts.Order.Settle = max(opts.Order.Settle, a.opts.Rules.MinReady)
	a.result.Patched = &PatchResult{Pool: a.pool.ID, Nodes: []PatchedNode{},
		Candidates: selection.SelectPatch(a.pool.Nodes, opts, a.engine.now())}
	if err := patchIn(ctx, a.engine, opts, a.turns, a.pool, a.result.Patched); err != nil {
		return fmt.Errorf("patch: %w", err)
	}
	all, _, err := a.engine.overviews(ctx, []string{string(a.pool.ID)})
	if err != nil {
		return err
	}
	if a.pool = all[0]; a.pool.Err != nil {
		return a.pool.Err
	}
	a.plan = a.pool.Decide(a.opts, a.engine.now())
	a.result.Action, a.result.Why, a.result.Held = a.plan.Action, a.plan.Why, a.plan.Held
	return nil
}

// tryCandidates tries the candidates, the best first.
func (a *autoRun) tryCandidates(ctx context.Context) error {
	names := []string{a.plan.Donor}
	for _, c := range poolstate.Ranked(a.plan.Candidates) {
		if c.Node != a.plan.Donor {
			names = append(names, c.Node)
		}
	}
	var errs []error
	for tries, i := 0, 0; i < len(names) && tries < poolstate.MaxTries; i++ {
		name := names[i]
		err := a.update(ctx, name)
		if err == nil {
			return nil
		}
		errs = append(errs, err)
		if ctx.Err() != nil || !nextMayDo(err) {
			break
		}
		if !kamino.OfNode(kamino.Refusals(err)) {
			tries++
		}
		a.again = a.again || failedProof(err)
		a.result.Failed = append(a.result.Failed, Attempt{name, err.Error(), kamino.Advice(err)})
	}
	return errors.Join(errs...)
}

// update makes an image of a donor, once it is the pool's turn. The turn ends when the donor is
// back, long before the image is built.
func (a *autoRun) update(ctx context.Context, donor string) error {
	if !a.turns.isAway(a.pool.ID) { // otherwise an interrupted run has taken the donor already
		if err := a.turns.wait(ctx, a.engine, a.pool); err != nil {
			return err
		}
	}
	defer a.turns.leave(a.pool.ID)
	engine := *a.engine
	engine.DonorBack = func(pool kamino.PoolID) {
		a.turns.leave(pool)
		if a.engine.DonorBack != nil {
			a.engine.DonorBack(pool)
		}
	}
	run := a.plan.RunOf(a.opts, donor)
	if a.again {
		run.Today = kamino.TodayAgain
	}
	a.result.Donor = donor
	result, err := engine.Update(ctx, run)
	if err == nil {
		a.result.Result = &result
	}
	return err
}

// failedProof reports whether a run's image was found bad.
func failedProof(err error) bool {
	var proof *kamino.ProofError
	return errors.As(err, &proof) && proof.Outcome == kamino.ProofFailed
}

// nextMayDo reports whether another donor may succeed: this one was refused or could not be
// drained, and was given back, or its image is bad.
func nextMayDo(err error) bool {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		all := joined.Unwrap()
		return len(all) == 1 && nextMayDo(all[0])
	}
	var step *kamino.StepError
	if !errors.As(err, &step) {
		return false
	}
	switch step.Step {
	case kamino.StepValidate, kamino.StepRecover:
		var refused *kamino.RefusedError
		if errors.As(err, &refused) {
			return !stepRefused(refused.Refusals)
		}
		return step.Step == kamino.StepValidate && errors.Is(err, kamino.ErrNotFound)
	case kamino.StepLaunch, kamino.StepJoin, kamino.StepExamine:
		return failedProof(err)
	case kamino.StepRehearse, kamino.StepProtect, kamino.StepInventory, kamino.StepDrain, kamino.StepChoose,
		kamino.StepCheck, kamino.StepPatch:
		if refused := (*kamino.RefusedError)(nil); errors.As(err, &refused) && stepRefused(refused.Refusals) {
			return false
		}
		return !errors.Is(err, kamino.ErrLeaseLost) && !errors.Is(err, kamino.ErrForbidden)
	}
	return false
}

// donorLimit limits how many donors are away at the same time. It counts those of this process
// itself, and those of others by their marks.
type donorLimit struct {
	most        int // 0: any number
	maxNotReady int
	// ours are the pools whose interrupted runs this process finishes. Their donors are marked
	// already and wait only for this process.
	ours map[kamino.PoolID]bool

	mu   sync.Mutex
	away map[kamino.PoolID]bool
}

const (
	turnPoll = 5 * time.Second // or the engine's MaxPoll, if shorter
	// turnLimit is how long a pool waits for something that this process cannot speed up: donors of
	// other processes, nodes that are not Ready.
	turnLimit = 30 * time.Minute
)

// wait returns when the pool may take its donor.
func (t *donorLimit) wait(ctx context.Context, e *Engine, o poolstate.State) error {
	clock, poll := e.clock(), turnPoll
	if most := e.MaxPoll; most > 0 {
		poll = min(poll, most)
	}
	began := clock.Now()
	var stuck time.Time
	for {
		why, err := "the donors of other pools to return (--max-unavailable-pools)", error(nil)
		if t.enter(o.ID) {
			if why, err = t.obstacle(ctx, e, o.ID); why == "" && err == nil {
				return nil
			}
			t.leave(o.ID)
			if stuck.IsZero() {
				stuck = clock.Now()
			}
		} else {
			stuck = time.Time{}
		}
		if err != nil && !kamino.Transient(err) {
			return err
		}
		if err != nil {
			why = err.Error()
		}
		if !stuck.IsZero() && clock.Now().Sub(stuck) > turnLimit {
			return kamino.WithHint(fmt.Errorf("timed out after %s, waiting for %s", turnLimit, why),
				"see --max-unavailable-pools and --max-not-ready; kamino restore gives back what interrupted runs left")
		}
		e.report(kamino.Event{Kind: kamino.EventWaiting, Step: "turn", Pool: o.Pool.Name, Percent: -1,
			Elapsed: clock.Now().Sub(began), Message: why})
		pause := poll
		if throttled := (*kamino.ThrottledError)(nil); errors.As(err, &throttled) {
			pause = max(poll, throttled.After)
		}
		if err := clock.Sleep(ctx, pause); err != nil {
			return err
		}
	}
}

func (t *donorLimit) enter(id kamino.PoolID) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.most > 0 && len(t.away) >= t.most {
		return false
	}
	t.away[id] = true
	return true
}

func (t *donorLimit) leave(id kamino.PoolID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.away, id)
}

func (t *donorLimit) isAway(id kamino.PoolID) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.away[id]
}

// obstacle checks the whole cluster for donors of other processes, and for nodes that are not Ready
// for other reasons.
func (t *donorLimit) obstacle(ctx context.Context, e *Engine, own kamino.PoolID) (string, error) {
	nodes, err := e.Cluster.Nodes(ctx)
	if err != nil {
		return "", fmt.Errorf("list nodes: %w", err)
	}
	var donors, silent []string
	for _, n := range nodes {
		pool, err := e.poolOf(ctx, n)
		if err != nil {
			return "", err
		}
		if pool.OfCanary() {
			continue
		}
		marked := false
		if pool != "" {
			if marked, err = e.takenNow(ctx, n, pool); err != nil {
				return "", err
			}
		}
		switch {
		case marked && pool != own && !t.isAway(pool) && !t.ours[pool]:
			donors = append(donors, n.Name)
		case !marked && !n.Ready:
			silent = append(silent, n.Name)
		}
	}
	t.mu.Lock()
	away := len(t.away) - 1
	t.mu.Unlock()
	if t.most > 0 && away+len(donors) >= t.most {
		return "donors of other runs to be back: " + kamino.SomeOf(donors), nil
	}
	if len(silent) > t.maxNotReady {
		return fmt.Sprintf("%d nodes to be Ready, at most %d may be NotReady: %s", len(silent), t.maxNotReady, kamino.SomeOf(silent)), nil
	}
	return "", nil
}
