package sim

import (
	"context"
	"errors"
	"strings"
	"testing"

	"kamino.dev/kamino"
	"kamino.dev/kamino/engine"
)

// turning is a provider whose pool is refused from a step on, as when a person changes its upgrade
// policy in the middle of a run.
type turning struct {
	simProvider
	p    *proc
	from string
}

func (r turning) Pool(ctx context.Context, id kamino.PoolID) (kamino.Pool, error) {
	pool, err := r.simProvider.Pool(ctx, id)
	if string(r.p.step) == r.from {
		pool.Refusals = append(pool.Refusals, kamino.Refusal{Code: "upgrade-policy", Field: "upgradePolicy.mode", Value: "Automatic", Why: "it would replace nodes", Do: "set Manual"})
	}
	return pool, err
}

// TestLateRefusal: a run whose pool is refused when the donor has been away already is no refusal
// that left everything as it was. It gives back what it made, and stands in the history.
func TestLateRefusal(t *testing.T) {
	w := aged(1)
	p := &proc{}
	p.tune = func(e *engine.Engine) { e.Provider = turning{e.Provider.(simProvider), p, string(kamino.StepModel)} }
	w.startUpdate(p, options("a-0"))
	w.wait()
	var s *kamino.StepError
	if !errors.As(p.err, &s) || s.Refused {
		t.Errorf("the run ended with %v, refused %t", p.err, s != nil && s.Refused)
	}
	if runs := w.status(t).Runs; len(runs) != 1 || runs[0].Failure == "" {
		t.Errorf("the history has %+v", runs)
	}
	for key := range w.artifacts {
		if strings.HasPrefix(key, "snapshot") {
			t.Errorf("%v was left", key)
		}
	}
	w.sound(t)
}
