package engine

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"kamino.dev/kamino"
	"kamino.dev/kamino/workflow"
)

// pauser returns the cluster as Examiner, which has the stop switch; nil if it is none.
func (e *Engine) pauser() kamino.Examiner {
	examiner, _ := e.Cluster.(kamino.Examiner)
	return examiner
}

// Pause holds all new runs and promotions of the cluster. Running runs restore what they took and
// end. The reason is stored on the namespace kamino-system. Resume removes it.
func (e *Engine) Pause(ctx context.Context, reason string) error {
	if strings.TrimSpace(reason) == "" {
		return kamino.WithHint(errors.New("--reason is required"), "--reason TEXT is shown to everyone whose run is refused")
	}
	return e.setPaused(ctx, reason)
}

// Resume ends the pause of the cluster.
func (e *Engine) Resume(ctx context.Context) error { return e.setPaused(ctx, "") }

func (e *Engine) setPaused(ctx context.Context, reason string) error {
	p := e.pauser()
	if p == nil {
		return fmt.Errorf("pause: %w", kamino.ErrUnsupported)
	}
	err := p.Pause(ctx, reason)
	switch {
	case err == nil:
		return nil
	case reason == "":
		return fmt.Errorf("resume: %w", err)
	}
	return fmt.Errorf("pause: %w", err)
}

// Paused returns why new runs and promotions are held; zero if they are not.
func (e *Engine) Paused(ctx context.Context) (kamino.Pause, error) {
	p := e.pauser()
	if p == nil {
		return kamino.Pause{}, nil
	}
	return p.Paused(ctx)
}

func (e *Engine) refusePaused(ctx context.Context) error {
	paused, err := e.Paused(ctx)
	if err != nil {
		return fmt.Errorf("read whether runs are paused: %w", err)
	}
	if paused.Reason == "" {
		return nil
	}
	return &kamino.RefusedError{Subject: "new runs and promotions", Refusals: []kamino.Refusal{{Code: kamino.CodePaused, Value: paused.Reason,
		Why: "the cluster is paused: " + paused.String(), Do: kamino.HowToResume}}}
}

// heldUp returns an error if the cluster is paused, which ends a running run. A stop switch that
// cannot be read stops nothing. A run that restores, or takes a version back, continues.
func (r *Run) heldUp(ctx context.Context, s Step) error {
	now := r.engine.now()
	if r.held.Lease == nil || r.held.GivingBack || s.Stubborn || r.takesBack() || !r.held.Mine() || now.Sub(r.pauseAsked) < workflow.PauseSeen {
		return nil
	}
	var refused *kamino.RefusedError
	if err := r.refusePaused(ctx); errors.As(err, &refused) {
		return err
	}
	return nil
}

// takesBack reports whether the run is a withdrawal or a rollback, or withdraws a version that
// failed its proof. People set a pause in an incident, and it must not keep a bad version in use.
func (r *Run) takesBack() bool {
	return r.verb == kamino.VerbWithdraw || r.verb == kamino.VerbRollback || r.bad().Nodes
}

// refusePaused refuses while the cluster is paused. It does not ask again before the API server
// allows it.
func (r *Run) refusePaused(ctx context.Context) error {
	now := r.engine.now()
	if left := r.pauseAsked.Sub(now); left > 0 {
		return &kamino.ThrottledError{After: left, Err: errors.New("read whether runs are paused: too many requests before")}
	}
	r.pauseAsked = now
	err := r.engine.refusePaused(ctx)
	if throttled := (*kamino.ThrottledError)(nil); errors.As(err, &throttled) {
		r.pauseAsked = now.Add(throttled.After)
	}
	if refused := (*kamino.RefusedError)(nil); errors.As(err, &refused) && r.held.Lease != nil {
		refused.Subject = "the rest of run " + r.held.Run
		ends := "the run ends and gives back what it took"
		if r.verb == kamino.VerbPromote {
			refused.Subject, ends = "the promotion", "nothing more is changed"
		}
		refused.Refusals[0].Do = ends + ": kamino resume, then the same command again"
	}
	return err
}
