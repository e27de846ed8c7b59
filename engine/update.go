package engine

import (
	"context"
	"errors"

	"kamino.dev/kamino"
)

// Update takes a node as donor and makes its disk the image of its pool. On any failure, and when
// ctx ends, it restores what it took before it returns; an error of the restore is joined to the
// first.
func (e *Engine) Update(ctx context.Context, opts kamino.Options) (Result, error) {
	if err := opts.Validate(); err != nil {
		return Result{}, err
	}
	r, err := attempt(ctx, e, opts)
	if r.held.Adopted && r.held.Lease == nil && errors.Is(err, errStartedSince) && ctx.Err() == nil {
		// The run of another process could not be continued and was restored, so a run of our own
		// can begin.
		r, err = attempt(ctx, e, opts)
	}
	var failed *kamino.StepError
	if errors.As(err, &failed) && (failed.Step == kamino.StepConnect || failed.Step == kamino.StepValidate) && ctx.Err() == nil {
		if undo := r.giveBackRefused(ctx); undo != nil {
			err = errors.Join(err, undo)
		}
	}
	return r.result, err
}

// attempt makes one run, to its end or until everything is restored.
func attempt(ctx context.Context, e *Engine, opts kamino.Options) (*Run, error) {
	r := newRun(e, opts)
	started := e.now()
	err := r.exec(ctx, updateSteps(r))
	if err != nil {
		r.held.Regain(ctx)
	}
	switch {
	case err == nil:
		err = r.stayedOn(ctx)
		err = errors.Join(err, r.finish(ctx, started))
	case r.held.Lease != nil && !errors.Is(err, kamino.ErrLeaseLost):
		err = r.abandon(ctx, err)
	}
	if r.held.Forgotten() {
		err = errors.Join(err, r.startForgotten(ctx))
	}
	r.fillResult()
	if err == nil {
		r.fillNext()
	}
	return r, r.afterPromotion(err)
}
