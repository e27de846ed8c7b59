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
)

// Result is the result of a run.
type Result struct {
	Run         string               `json:"run"`
	Pool        kamino.PoolID        `json:"pool"`
	Donor       string               `json:"donor"`
	Version     string               `json:"version"`
	Image       string               `json:"image"` // ID of the version
	Changed     bool                 `json:"changed"`
	Adopted     bool                 `json:"adopted,omitempty"` // an interrupted run was adopted
	Steps       []kamino.StepTime    `json:"steps"`
	AwaySeconds float64              `json:"donorAwaySeconds"` // 0 if not known; of an adopted run since the seal of the disk began
	ModelDiff   []kamino.FieldChange `json:"modelDiff"`
	Pruned      []string             `json:"pruned"`
	// Hidden: the version is not offered. Waiting: only kamino promote promotes it. Owner manages
	// the model, and every new instance runs Extensions, if Kamino does not write the model.
	Hidden     bool               `json:"hidden,omitempty"`
	Waiting    bool               `json:"waiting,omitempty"`
	Next       string             `json:"next,omitempty"` // the version, if the pool's next node boots from it
	Proof      *kamino.Proved     `json:"proof,omitempty"`
	Owner      *kamino.Owner      `json:"owner,omitempty"`
	Extensions []kamino.Extension `json:"extensions,omitempty"`
	// Warnings are errors after the image was in use: leftovers that the next run cleans up.
	Warnings []string `json:"warnings,omitempty"`
}

// Update takes a node as donor and makes its disk the image of its pool. On any failure, and when
// ctx ends, it restores what it took before it returns; an error of the restore is joined to the
// first.
func (e *Engine) Update(ctx context.Context, opts kamino.Options) (Result, error) {
	if err := opts.Validate(); err != nil {
		return Result{}, err
	}
	r, err := e.attempt(ctx, opts)
	if r.held.Adopted && r.held.Lease == nil && errors.Is(err, errStartedSince) && ctx.Err() == nil {
		// The run of another process could not be continued and was restored, so a run of our own
		// can begin.
		r, err = e.attempt(ctx, opts)
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
func (e *Engine) attempt(ctx context.Context, opts kamino.Options) (*Run, error) {
	r := e.newRun(opts)
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

// afterPromotion adds to the error of a run that its version is promoted already, if the version is
// not to blame.
func (r *Run) afterPromotion(err error) error {
	proof := (*kamino.ProofError)(nil)
	if err == nil || errors.As(err, &proof) || !r.promotedHere() || !r.promotes() || r.result.Hidden || r.modelIsTheirs() {
		return err
	}
	return fmt.Errorf("%w; version %s is promoted: new nodes of pool %s boot from it already", err, r.image.version.Name, r.pool.Name)
}

// finish records the run on the ledger and releases the pool.
func (r *Run) finish(ctx context.Context, started time.Time) error {
	now := r.engine.now()
	return r.release(context.WithoutCancel(ctx), func(l *kamino.Lease) {
		l.Ledger.Owed = nil
		l.Ledger.GoneOn()
		l.Ledger.NotePromoted(r.image.version.Name, now)
		if w := l.Ledger.Wrote; r.image.whole && w != nil && strings.EqualFold(w.Image, r.pool.Model.Image) {
			l.Ledger.Wrote = &kamino.WrittenModel{Image: w.Image, At: w.At, Seen: true, Whole: true}
		}
		if r.donorUsed() || r.result.Changed {
			l.Ledger.NotePast(kamino.PastRun{Run: r.held.Run, Donor: cmp.Or(r.image.version.Tags[kamino.TagBuiltFrom], r.donor.node.Name), Version: r.image.version.Name,
				Ended: now.UTC(), Seconds: now.Sub(started).Seconds(), AwaySeconds: r.awayFor().Seconds(), ProofSeconds: r.result.proofSeconds()})
		}
		l.Record = kamino.Record{} // it did not fail
	})
}

func (r *Run) fillResult() {
	r.result.Run, r.result.Pool = r.held.Run, r.pool.ID
	// The tag of an earlier version names its donor.
	r.result.Donor = cmp.Or(r.image.version.Tags[kamino.TagBuiltFrom], r.donor.node.Name)
	r.result.Version, r.result.Image = r.image.version.Name, r.image.version.ID
	r.result.Adopted = r.held.Adopted
	if r.modelIsTheirs() {
		r.result.Owner, r.result.Extensions = r.pool.Owner, r.pool.Model.Extensions
	}
	r.result.AwaySeconds = r.awayFor().Seconds()
}

// fillNext sets what a successful run leaves to the pool's next node.
func (r *Run) fillNext() {
	r.result.Waiting = r.image.version.Hidden() && !r.promotes()
	if !r.result.Waiting && r.promotes() && !r.result.Hidden && !r.modelIsTheirs() {
		r.result.Next = r.image.version.Name
	}
	if r.proof.passed {
		r.result.Proof = r.proved()
	}
}

// proofSeconds is how long the steps took that prove the version.
func (r Result) proofSeconds() (sum float64) {
	for _, s := range r.Steps {
		if slices.Contains([]string{kamino.StepLaunch, kamino.StepJoin, kamino.StepExamine, kamino.StepRetire}, s.Name) {
			sum += s.Seconds
		}
	}
	return sum
}

func (r *Run) donorUsed() bool { return !r.away.from.IsZero() && !r.away.to.IsZero() }

func (r *Run) awayFor() time.Duration {
	if !r.donorUsed() {
		return 0
	}
	return r.away.to.Sub(r.away.from)
}
