package engine

import (
	"context"
	"errors"

	"kamino.dev/kamino"
	"kamino.dev/kamino/poolstate"
)

// Status reads the status of all pools, or of the named ones. A pool that cannot be read has an
// Error, which is joined to the returned error.
func (e *Engine) Status(ctx context.Context, pools []string, lastPatch []kamino.Signal) ([]poolstate.PoolStatus, error) {
	all, _, err := e.overviews(kamino.Looking(ctx), pools)
	if err != nil {
		return nil, err
	}
	out := make([]poolstate.PoolStatus, 0, len(all))
	var errs []error
	paused, _ := e.Paused(ctx) // a run reports if it may not read the pause
	for i, o := range all {
		out = append(out, o.Status(e.now(), lastPatch))
		out[i].Paused, out[i].PausedBy, out[i].PausedSince = paused.Reason, paused.By, paused.Since
		errs = append(errs, o.Err)
	}
	e.addLacks(ctx, all, out)
	return out, errors.Join(errs...)
}
