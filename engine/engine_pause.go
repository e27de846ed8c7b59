package engine

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"kamino.dev/kamino"
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
	return &kamino.RefusedError{Subject: "new runs and promotions",
		Refusals: []kamino.Refusal{{Code: kamino.CodePaused, Value: paused.Reason,
			Why: "the cluster is paused: " + paused.String(), Do: kamino.HowToResume}}}
}
