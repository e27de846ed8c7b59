package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"kamino.dev/kamino"
)

// afterPromotion adds to the error of a run that its version is promoted already, if the version is
// not to blame.
func (r *Run) afterPromotion(err error) error {
	proof := (*kamino.ProofError)(nil)
	if err == nil || errors.As(err, &proof) || !r.pointer.promotedHere() || !r.image.promotes() || r.result.Hidden ||
		r.pointer.modelIsTheirs() {
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
		if w := l.Ledger.Wrote; r.pointer.whole && w != nil && strings.EqualFold(w.Image, r.pool.Model.Image) {
			l.Ledger.Wrote = &kamino.WrittenModel{Image: w.Image, At: w.At, Seen: true, Whole: true}
		}
		if r.donor.used() || r.result.Changed {
			l.Ledger.NotePast(kamino.PastRun{Run: r.held.Run, Donor: cmp.Or(r.image.version.Donor, r.donor.node.Name),
				Version: r.image.version.Name,
				Ended:   now.UTC(), Seconds: now.Sub(started).Seconds(), AwaySeconds: r.donor.awayFor().Seconds(),
				ProofSeconds: r.result.proofSeconds()})
		}
		l.Record = kamino.Record{} // it did not fail
	})
}

func (r *Run) fillResult() {
	r.result.Run, r.result.Pool = r.held.Run, r.pool.ID
	// The tag of an earlier version names its donor.
	r.result.Donor = cmp.Or(r.image.version.Donor, r.donor.node.Name)
	r.result.Version, r.result.Image = r.image.version.Name, r.image.version.ID
	r.result.Adopted = r.held.Adopted
	if r.pointer.modelIsTheirs() {
		r.result.Owner, r.result.Extensions = r.pool.Owner, r.pool.Model.Extensions
	}
	r.result.AwaySeconds = r.donor.awayFor().Seconds()
}

// fillNext sets what a successful run leaves to the pool's next node.
func (r *Run) fillNext() {
	r.result.Waiting = r.image.version.Hidden() && !r.image.promotes()
	if !r.result.Waiting && r.image.promotes() && !r.result.Hidden && !r.pointer.modelIsTheirs() {
		r.result.Next = r.image.version.Name
	}
	if r.canary.passed {
		r.result.Proof = r.canary.proved()
	}
}
