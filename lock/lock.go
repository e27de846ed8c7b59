// Package lock takes, adopts, renews and releases the lease of a pool, and writes on it what a run
// is about to do. A process that does not hold the lease changes nothing.
package lock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"kamino.dev/kamino"
	"kamino.dev/kamino/workflow"
)

// runRoom is the part of LeaseRoom that is kept free for what a run writes between its beginning and
// its end.
const runRoom = 16 << 10

// RefuseModel refuses a pool whose present model could not be saved after the image is built.
func (h *Lock) RefuseModel() error {
	next := *h.Lease
	next.Ledger.NoteSaved(kamino.SavedModel{At: h.now().UTC(), Image: h.Pool.Model.Image, Saved: h.Pool.Model.Saved}, false)
	next.Trim(kamino.LeaseRoom - runRoom)
	if size := next.Size(); size > kamino.LeaseRoom-runRoom {
		return &kamino.RefusedError{Subject: "pool " + h.Pool.Name,
			Refusals: []kamino.Refusal{{Code: "model-size", Field: "settings of extensions",
				Value: fmt.Sprintf("%d KiB", len(h.Pool.Model.Saved)>>10),
				Why: fmt.Sprintf("saving this model for a rollback needs %d KiB on the pool's lease, which has room for %d", size>>10,
					(kamino.LeaseRoom-runRoom)>>10),
				Do: "let the largest extension download its script (fileUris) instead of containing it"}}}
	}
	return nil
}

// Lock is a run's view of its pool's lease.
type Lock struct {
	Leases  kamino.Leases
	Clock   kamino.Clock
	Process string                                              // names this process among those of all machines
	NewID   func() string                                       // makes the ID of a run
	Sighted func(pool kamino.PoolID, revision string) time.Time // when this process first saw that revision of the lease
	Report  func(kamino.Event)                                  // reports what a person has to know
	MinPoll time.Duration                                       // between two tries of a call
	Pool    *kamino.Pool                                        // the pool of the run, as last read

	Run        string // run ID; "" before the lock step
	fresh      string // ID of a run that is not adopted
	Adopted    bool
	Replaced   string        // the run that this one replaced; "" if none
	Cleared    string        // a replaced run whose pods this process has removed; "" if none
	GivingBack bool          // the run is restoring, and makes nothing any more
	Retired    bool          // no canary of the pool is left, nor its node
	Before     kamino.Record // of the adopted run, as it was at the adoption
	Step       string        // the running step
	writes     writes        // writes of the model
	Verdict    string        // verdict of the adopted run's proof that the run had not recorded; "" if none

	Lease   *kamino.Lease // the held lease; nil before the lock step and after the release
	watched watchedLease
	taken   time.Time       // when this process took the lease
	leased  time.Time       // when the last successful write of the lease began
	Lost    *kamino.Lease   // the lease as read when another run had it; nil: not lost
	Remade  time.Time       // when this run recreated the lease after it was deleted or went back in time; zero: never
	written time.Time       // when that write ended
	late    workflow.ActKey // the act whose announcement took too long to act on it at once
	// announcedOn is the artifact that the announced act is for.
	announcedOn string
	hush        time.Time // until when the lease is not renewed, because the API server asked to back off
}

// writes records the outcomes of a run's own writes of the model.
type writes struct {
	refused bool // the provider refused one
	unsure  bool // one write may have taken effect
}

func (h *Lock) now() time.Time { return h.Clock.Now() }

// Wrote records how a write of the model ended.
func (h *Lock) Wrote(err error) {
	known := err != nil && !errors.Is(err, kamino.ErrUnavailable) && !errors.Is(err, kamino.ErrInProgress) &&
		!errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, context.Canceled)
	h.writes.refused, h.writes.unsure = h.writes.refused || known, h.writes.unsure || !known
}

// InNameOf makes this lock act for another run, under the lease that this process holds for it, to give
// back what that run took.
func (h *Lock) InNameOf(run string, lease *kamino.Lease) {
	h.Run, h.Lease, h.GivingBack = run, lease, true
}

// Mine reports whether the lease names this run.
func (h *Lock) Mine() bool { return h.Lease != nil && h.Lease.Holder == h.Run }

// Sealing reports whether the lease records that the donor may have been changed, or taken out of
// service.
func (h *Lock) Sealing() bool {
	return h.Lease != nil && (h.Lease.Record.Sealing || h.Lease.Record.Held)
}

// Warn reports a warning about the run.
func (h *Lock) Warn(message string) {
	h.Report(kamino.Event{Kind: kamino.EventWarning, Pool: h.Pool.Name, Run: h.Run, Step: h.Step, Percent: -1, Message: message})
}

// IfOwn returns a change of the lease that does nothing while the lease holds another run.
func (h *Lock) IfOwn(note func(*kamino.Lease)) func(*kamino.Lease) {
	return func(l *kamino.Lease) {
		if l.Holder == h.Run {
			note(l)
		}
	}
}

// watchedLease is a lease that somebody else holds, as it was watched.
type watchedLease struct {
	revision string
	since    time.Time
}

// Look takes the lease of the pool. It watches a lease that another run holds for LeaseDuration. If
// the lease is renewed meanwhile, that run is alive and this one ends; if not, its process has
// ended and its run is adopted.
func (h *Lock) Look(ctx context.Context, fresh func() kamino.Record) (workflow.Next, error) {
	if h.Lease != nil {
		return workflow.Done(fmt.Sprintf("run %s, epoch %d", h.Run, h.Lease.Epoch)), nil
	}
	lease, err := h.Leases.Lease(ctx, h.Pool.ID)
	if err != nil {
		return workflow.Next{}, fmt.Errorf("read lease of pool %s: %w", h.Pool.Name, err)
	}
	if h.Run != "" && lease.Holder == h.Run && lease.Process == h.Process {
		h.Lease, h.taken = &lease, h.now()
		return workflow.Done(fmt.Sprintf("run %s, epoch %d", h.Run, lease.Epoch)), nil
	}
	if lease.Holder == "" {
		return workflow.Act(kamino.ActLease, "take the lease of pool "+h.Pool.Name, func(ctx context.Context) error {
			h.Run, h.Adopted = h.FreshID(), false
			return h.take(ctx, lease, fresh())
		}), nil
	}
	now := h.now()
	if lease.Revision != h.watched.revision {
		if h.watched.revision != "" {
			return workflow.Next{}, HeldBy(lease)
		}
		h.watched = watchedLease{lease.Revision, h.sighted(h.Pool.ID, lease.Revision, now)}
	}
	if left := kamino.LeaseDuration - now.Sub(h.watched.since); left > 0 {
		return workflow.WaitUpTo(fmt.Sprintf("a lease renewal by run %s (process %s, %s %s, step %s)",
			lease.Holder, cmp.Or(lease.Process, "unknown"), lease.Record.Work.Takes(), cmp.Or(lease.Record.Donor, "none"),
			cmp.Or(lease.Record.Step, kamino.StepLock)), left), nil
	}
	return workflow.Act(kamino.ActLease, fmt.Sprintf("adopt run %s, left by process %s at step %s", lease.Holder,
		lease.Process, lease.Record.Step),
		func(ctx context.Context) error {
			h.Run, h.Adopted, h.Before = lease.Holder, true, lease.Record
			return h.take(ctx, lease, lease.Record)
		}), nil
}

// sighted returns since when this process watches a lease that it reads now. Each write changes the
// revision, so the lease was not written since its revision was first seen.
func (h *Lock) sighted(pool kamino.PoolID, revision string, now time.Time) time.Time {
	if h.Sighted != nil {
		if since := h.Sighted(pool, revision); !since.IsZero() && since.Before(now) {
			return since
		}
	}
	return now
}

// HeldBy is the error of a command that finds the pool held by a live run.
func HeldBy(l kamino.Lease) error {
	return kamino.WithHint(&kamino.HeldError{Pool: l.Pool, Holder: l.Holder, By: l.Process, Step: l.Record.Step, Donor: l.Record.Donor,
		Work: l.Record.Work},
		"wait until it has ended: kamino status shows what it does; %s", HowToEnd(l.Process))
}

// HowToEnd is the advice how to end a live run, and when its lease is free.
func HowToEnd(process string) string {
	return fmt.Sprintf("to stop it: send SIGTERM to process %s, or run kamino pause --reason TEXT; if the process is gone: kamino restore, which takes over after %s",
		cmp.Or(process, "unknown"), kamino.LeaseDuration)
}

// FreshID returns the ID of a new run, always the same, so that a write whose reply was lost is
// recognized.
func (h *Lock) FreshID() string {
	if h.fresh == "" {
		h.fresh = h.NewID()
	}
	return h.fresh
}

// take writes this run and this process on the lease. If the reply is lost, the next look shows
// whether the write worked. Every later write, and so every act, depends on the lease that the API
// server returns.
func (h *Lock) take(ctx context.Context, lease kamino.Lease, record kamino.Record) error {
	lease.Holder, lease.Process, lease.Record = h.Run, h.Process, record
	lease.Epoch++
	now := h.now()
	lease.Renewed, lease.Duration = now.UTC(), kamino.LeaseDuration
	room := kamino.LeaseRoom - runRoom
	if h.Adopted || h.GivingBack {
		room = kamino.LeaseRoom
	}
	lease.Trim(room)
	got, err := h.store(ctx, lease)
	if err == nil {
		h.Lease, h.taken, h.leased, h.written = &got, now, now, h.now()
	}
	return err
}

// SetLease changes the lease that this run holds. ErrLeaseLost if it no longer does.
func (h *Lock) SetLease(ctx context.Context, change func(*kamino.Lease)) error {
	next := *h.Lease
	change(&next)
	now := h.now()
	next.Renewed, next.Duration = now.UTC(), kamino.LeaseDuration
	next.Trim(kamino.LeaseRoom)
	got, err := h.store(ctx, next)
	if err == nil {
		*h.Lease, h.leased, h.written = got, now, h.now()
		return nil
	}
	if !errors.Is(err, kamino.ErrConflict) {
		return h.hushed(err)
	}
	// Our own write took effect although its reply was lost, or somebody changed the object without
	// taking it, or another process has adopted the run.
	cur, readErr := h.Leases.Lease(ctx, h.Pool.ID)
	if readErr != nil {
		return h.hushed(readErr)
	}
	switch {
	case cur.Revision == "" && cur.Holder == "":
		return h.remakeLease(ctx, next, cur, "the lease of pool "+h.Pool.Name+" was deleted externally; recreated it")
	case h.Lease.Before(cur):
		return h.remakeLease(ctx, next, cur, "the lease of pool "+h.Pool.Name+
			" holds an earlier state, as after a restore of etcd from a backup; wrote it again")
	case !kamino.SameOwner(cur, next) && !kamino.SameOwner(cur, *h.Lease):
		return h.lostTo(cur)
	}
	*h.Lease = cur
	return err
}

// store writes a lease. If the lease is too large, it drops the oldest history first, then the
// texts for people: a restore must not fail for want of room.
func (h *Lock) store(ctx context.Context, l kamino.Lease) (kamino.Lease, error) {
	got, err := h.Leases.SetLease(ctx, l)
	for errors.Is(err, kamino.ErrTooLarge) && l.Ledger.DropOldest() {
		got, err = h.Leases.SetLease(ctx, l)
	}
	if rec := &l.Record; errors.Is(err, kamino.ErrTooLarge) {
		rec.Intent, rec.Failure = "", kamino.CutText(rec.Failure, 100)
		got, err = h.Leases.SetLease(ctx, l)
	}
	if errors.Is(err, kamino.ErrTooLarge) {
		err = kamino.WithHint(err, "kubectl -n %s get leases -o yaml shows the annotations: remove those that others wrote, and shorten the settings of the pool's extensions", kamino.SystemNamespace)
	}
	return got, err
}

// lostTo is the error of a run whose lease another run has, or had.
func (h *Lock) lostTo(cur kamino.Lease) error {
	h.Lost = &cur
	who := fmt.Sprintf("run %s, process %s, holds the lease now", cur.Holder, cmp.Or(cur.Process, "unknown"))
	if cur.Holder == "" {
		who = "the lease is free now"
	}
	return kamino.WithHint(fmt.Errorf("%w: %s", kamino.ErrLeaseLost, who), "if a donor is not Ready and no run works on it: kamino restore")
}

// remakeLease recreates a lease that somebody deleted, or that went back in time, while this run
// held it: other runs find the donor and the former model by it. If another run wrote it meanwhile,
// that run has the pool.
func (h *Lock) remakeLease(ctx context.Context, next, cur kamino.Lease, why string) error {
	next.Revision = cur.Revision
	now := h.now()
	got, err := h.store(ctx, next)
	if err == nil {
		*h.Lease, h.leased, h.written, h.Remade = got, now, h.now(), now
		h.Warn(why)
		return nil
	}
	if !errors.Is(err, kamino.ErrConflict) {
		return h.hushed(err)
	}
	cur, readErr := h.Leases.Lease(ctx, h.Pool.ID)
	switch {
	case readErr != nil:
		return h.hushed(readErr)
	case cur.Revision == "" || h.Lease.Before(cur): // the next write sees it
	case !kamino.SameOwner(cur, next):
		return h.lostTo(cur)
	default:
		*h.Lease = cur
	}
	return err
}

// hushed records for how long the API server asked to back off.
func (h *Lock) hushed(err error) error {
	var t *kamino.ThrottledError
	if errors.As(err, &t) {
		h.hush = h.now().Add(t.After)
	}
	return err
}

// Intend writes down the next act of a step, found by a look that began at looked. It is also the
// fence: a process that no longer holds the lease fails here. again is why the world must be looked
// at once more before the act; "" if it need not.
func (h *Lock) Intend(ctx context.Context, step string, next workflow.Next, looked time.Time) (again string, err error) {
	if err := h.write(ctx, step, next); err != nil {
		return "", err
	}
	h.late = workflow.ActKey{Act: next.Act, On: next.On} // it is announced, so the next look may act
	if late := kamino.Elapsed(looked, h.now()); late > kamino.LookAge {
		return fmt.Sprintf("writing the lease took %s", late.Round(time.Second)), nil
	}
	if !h.Remade.Before(looked) { // the marks may have gone back in time with the lease
		return "the lease had to be written again", nil
	}
	h.late = workflow.ActKey{}
	return "", nil
}

// write writes an intent on the lease. What was announced with an earlier act is on the lease
// already, and nobody can have taken the lease within [kamino.LookAge] after a write.
func (h *Lock) write(ctx context.Context, step string, next workflow.Next) error {
	if h.Lease == nil {
		return nil // the lock step itself
	}
	if wait := h.hush.Sub(h.now()); wait > 0 {
		return &kamino.ThrottledError{After: wait, Err: errors.New("the API server asked to back off")}
	}
	announced := h.Lease.Record.Intends(next.Act) && next.On == h.announcedOn && (!h.GivingBack || h.Lease.Record.GivingBack)
	age := h.LeaseAge()
	if announced && next.Note == nil && age >= 0 && age < kamino.LookAge {
		return nil
	}
	// If every write takes long, an act that was announced with the last write is made after the
	// next look.
	if announced && h.late == (workflow.ActKey{Act: next.Act, On: next.On}) && age < kamino.SlowWrite &&
		kamino.Elapsed(h.written, h.now()) < kamino.LookAge {
		return nil
	}
	h.announcedOn = next.On
	acts, says := []kamino.Act{next.Act}, []string{next.What}
	for _, a := range next.Along {
		acts, says = append(acts, a.Act), append(says, a.What)
	}
	return h.SetLease(ctx, func(l *kamino.Lease) {
		l.Record.Step, l.Record.Acts, l.Record.Intent = step, acts, strings.Join(says, "; ")
		if h.GivingBack && l.Holder == h.Run {
			l.Record.GivingBack = true
		}
		if next.Note != nil {
			next.Note(l)
		}
	})
}

// ActLimit returns how long an act may take: it ends before the lease can expire.
func (h *Lock) ActLimit() time.Duration {
	if h.Lease == nil {
		return kamino.ActTimeout
	}
	return min(kamino.ActTimeout, kamino.LeaseDuration-time.Second-h.LeaseAge())
}

// LeaseAge returns how long ago this process wrote the lease; very long if it never did.
func (h *Lock) LeaseAge() time.Duration { return kamino.Elapsed(h.leased, h.now()) }

// HeldFor is how long this process has had the lease.
func (h *Lock) HeldFor() time.Duration { return h.now().Sub(h.taken) }

// Forgotten reports whether another run has the lease and its ledger does not know this run, whose
// donor may be off or out of service.
func (h *Lock) Forgotten() bool {
	return h.Lost != nil && !h.Lost.Knows(h.Run) && h.Mine() && h.Sealing()
}

// Overdue reports, between two calls of one act, whether another process may have the lease by now.
// The deadline of the context is not enough where the machine was suspended: timers stand still
// then (https://github.com/golang/go/issues/24595).
func (h *Lock) Overdue() bool { return h.LeaseAge() >= kamino.ActTimeout }

// Renew shows that this process is alive. It ignores a cluster that does not answer, and fails if
// the lease is lost.
func (h *Lock) Renew(ctx context.Context) error {
	if h.Lease == nil || h.LeaseAge() < kamino.RenewAfter || h.now().Before(h.hush) {
		return nil
	}
	where := func(l *kamino.Lease) { l.Record.Step = h.Step }
	if err := h.SetLease(ctx, h.IfOwn(where)); errors.Is(err, kamino.ErrLeaseLost) {
		return err
	}
	return nil
}

// Release frees the lease, keeping its ledger.
func (h *Lock) Release(ctx context.Context, note func(*kamino.Lease)) error {
	err := h.Persist(ctx, "release", func(l *kamino.Lease) {
		if h.Retired {
			l.Ledger.Canary, l.Ledger.CanaryNonce = "", ""
		} else if l.Record.Canary != "" {
			l.Ledger.Canary, l.Ledger.CanaryNonce = l.Record.Canary, l.Record.Nonce
		}
		if note != nil {
			note(l)
		}
		l.Ledger.NoteRead(h.Pool.Model.Image)
		if w := l.Ledger.Wrote; w != nil && h.writes.refused && !h.writes.unsure {
			refused := *w
			refused.Refused = true
			l.Ledger.Wrote = &refused
		}
		l.Ledger.NoteFailed(l.Holder, h.AsFound(l.Record), h.now().UTC())
		l.Holder, l.Process, l.Record = "", "", kamino.Record{}
	})
	if errors.Is(err, kamino.ErrLeaseLost) {
		err = nil // freed earlier with a lost reply, and taken by the next run
	}
	h.Lease = nil
	if err != nil {
		err = kamino.WithHint(err, "only the lease is left; the next run releases it, or run now: kamino restore")
	}
	return err
}

// Regain finds out whether this process has the lease, if the reply to taking it was lost, or if
// the process ended before it could look.
func (h *Lock) Regain(ctx context.Context) {
	if h.Lease != nil || h.Run == "" {
		return
	}
	_ = h.Retry(context.WithoutCancel(ctx), func(ctx context.Context) error {
		lease, err := h.Leases.Lease(ctx, h.Pool.ID)
		if err == nil && lease.Holder == h.Run && lease.Process == h.Process {
			h.Lease = &lease
		}
		return err
	})
}

// Persist writes the lease, and tries again while that can help.
func (h *Lock) Persist(ctx context.Context, what string, change func(*kamino.Lease)) error {
	err := h.Retry(ctx, func(ctx context.Context) error { return h.SetLease(ctx, change) })
	if err != nil {
		return fmt.Errorf("%s lease of pool %s: %w", what, h.Pool.Name, err)
	}
	return nil
}

// Retry makes a call until it succeeds or cannot.
func (h *Lock) Retry(ctx context.Context, call func(context.Context) error) error {
	var err error
	for try := range 10 {
		pause := h.hush.Sub(h.now())
		if try > 0 {
			pause = max(pause, min(h.MinPoll<<(try-1), 30*time.Second))
		}
		if pause > 0 {
			if failed := h.Sleep(ctx, pause); failed != nil {
				return errors.Join(err, failed)
			}
		}
		if err = call(ctx); err == nil || !kamino.Transient(err) {
			break
		}
	}
	return err
}

// Sleep waits in pieces short enough to keep the lease.
func (h *Lock) Sleep(ctx context.Context, d time.Duration) error {
	for d > 0 {
		piece := min(d, kamino.RenewAfter)
		if err := h.Clock.Sleep(ctx, piece); err != nil {
			return err
		}
		if d -= piece; d > 0 {
			if err := h.Renew(ctx); err != nil {
				return err
			}
		}
	}
	return nil
}

// AsFound returns a record with the step at which an adopted run was found, because restoring it
// writes steps of its own, and with the verdict of its proof.
func (h *Lock) AsFound(rec kamino.Record) kamino.Record {
	rec.FailedAt = cmp.Or(rec.FailedAt, h.Before.Step)
	if h.Verdict != "" {
		rec.Failure, rec.Proof, rec.Interrupted = cmp.Or(rec.Failure, h.Verdict), kamino.ProofFailed, false
	}
	return rec
}
