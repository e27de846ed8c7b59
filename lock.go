package kamino

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

// leaseHolder is a run's side of the lock: the lease of its pool, and what it knows of it.
type leaseHolder struct {
	Leases  Leases
	Clock   Clock
	Process string                                       // [Engine.Process]
	NewID   func() string                                // [Engine.NewID]
	Sighted func(pool PoolID, revision string) time.Time // [Engine.Sighted]
	Report  func(Event)                                  // what a person has to know
	MinPoll time.Duration                                // between two tries of a call
	Pool    *Pool                                        // of the run, as it was last read

	run        string // ID; "" before the lock step
	fresh      string // the ID of a run that is not adopted
	adopted    bool
	replaced   string // the run in place of which this one began; "" none
	cleared    string // a replaced run whose pods this process has removed; "" none
	givingBack bool   // nothing is made any more
	retired    bool   // no canary of the pool is left, nor its node
	before     Record // of the run that was adopted, as it was then
	step       string // that is running
	writes     writes // of the model
	verdict    string // on the proof of the run that was adopted, which it did not live to record; "" none

	lease   *Lease // held; nil before the lock step and after the release
	watched watchedLease
	leased  time.Time // before the last successful write of the lease
	lost    *Lease    // as it was when another run was found to have it; nil: it was not
	remade  time.Time // when this run wrote it again after it was deleted or went back in time; zero: never
	written time.Time // after that write
	late    deed      // the act whose announcement took too long to be acted on at once
	// announcedOn is what the announced act is for, where there are several.
	announcedOn string
	hush        time.Time // before which the lease is not renewed: the API server asked to back off
}

// writes are what a run knows of its own writes of the model.
type writes struct {
	refused bool // the provider refused one
	unsure  bool // one may have taken effect
}

func (h *leaseHolder) now() time.Time { return h.Clock.Now() }

func (h *leaseHolder) wrote(err error) {
	known := err != nil && !errors.Is(err, ErrUnavailable) && !errors.Is(err, ErrInProgress) && !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, context.Canceled)
	h.writes.refused, h.writes.unsure = h.writes.refused || known, h.writes.unsure || !known
}

// inNameOf takes part in a lease that another run holds, for a run that is given back in passing.
func (h *leaseHolder) inNameOf(run string, lease *Lease) {
	h.run, h.lease, h.givingBack = run, lease, true
}

// mine says whether the lease names this run.
func (h *leaseHolder) mine() bool { return h.lease != nil && h.lease.Holder == h.run }

// sealing says whether it is written down that the donor may have been touched, or taken out of
// service.
func (h *leaseHolder) sealing() bool {
	return h.lease != nil && (h.lease.Record.Sealing || h.lease.Record.Held)
}

func (h *leaseHolder) warn(message string) {
	h.Report(Event{Kind: Warned, Pool: h.Pool.Name, Run: h.run, Step: h.step, Percent: -1, Message: message})
}

// ifOwn keeps a note off the lease while it holds another run.
func (h *leaseHolder) ifOwn(note func(*Lease)) func(*Lease) {
	return func(l *Lease) {
		if l.Holder == h.run {
			note(l)
		}
	}
}

// watchedLease is what is known of a lease that somebody else holds.
type watchedLease struct {
	revision string
	since    time.Time
}

// look takes the lease of the pool. A lease that another run holds is
// watched for its duration: if it is renewed meanwhile, that run lives and this
// one leaves; if not, its process has ended and its run is adopted.
func (h *leaseHolder) look(ctx context.Context, fresh func() Record) (Next, error) {
	if h.lease != nil {
		return done(fmt.Sprintf("run %s, epoch %d", h.run, h.lease.Epoch)), nil
	}
	lease, err := h.Leases.Lease(ctx, h.Pool.ID)
	if err != nil {
		return Next{}, fmt.Errorf("read lease of pool %s: %w", h.Pool.Name, err)
	}
	if h.run != "" && lease.Holder == h.run && lease.Process == h.Process {
		h.lease = &lease
		return done(fmt.Sprintf("run %s, epoch %d", h.run, lease.Epoch)), nil
	}
	if lease.Holder == "" {
		return act(ActLease, "take the lease of pool "+h.Pool.Name, func(ctx context.Context) error {
			h.run, h.adopted = h.freshID(), false
			return h.take(ctx, lease, fresh())
		}), nil
	}
	now := h.now()
	if lease.Revision != h.watched.revision {
		if h.watched.revision != "" {
			return Next{}, heldError(lease)
		}
		h.watched = watchedLease{lease.Revision, h.sighted(h.Pool.ID, lease.Revision, now)}
	}
	if left := LeaseDuration - now.Sub(h.watched.since); left > 0 {
		return waitUpTo(fmt.Sprintf("a lease renewal by run %s (process %s, %s %s, step %s)",
			lease.Holder, cmp.Or(lease.Process, "unknown"), lease.Record.Work.takes(), cmp.Or(lease.Record.Donor, "none"), cmp.Or(lease.Record.Step, InLock)), left), nil
	}
	return act(ActLease, fmt.Sprintf("adopt run %s, left by process %s at step %s", lease.Holder, lease.Process, lease.Record.Step),
		func(ctx context.Context) error {
			h.run, h.adopted, h.before = lease.Holder, true, lease.Record
			return h.take(ctx, lease, lease.Record)
		}), nil
}

// sighted is since when this process watches a lease that it reads now. Each write makes another
// revision, so one that is still there was not written since it was first seen.
func (h *leaseHolder) sighted(pool PoolID, revision string, now time.Time) time.Time {
	if h.Sighted != nil {
		if since := h.Sighted(pool, revision); !since.IsZero() && since.Before(now) {
			return since
		}
	}
	return now
}

func heldError(l Lease) error {
	return WithHint(&HeldError{Pool: l.Pool, Holder: l.Holder, By: l.Process, Step: l.Record.Step, Donor: l.Record.Donor, Work: l.Record.Work},
		"wait until it has ended: kamino status shows what it does; %s", HowToEnd(l.Process))
}

// HowToEnd is how to end a run that is at work, and when its lease is free for others.
func HowToEnd(process string) string {
	return fmt.Sprintf("to end it now: kamino pause --reason TEXT, or SIGTERM to process %s: it gives back what it took; if that process is gone or hangs and is killed, the next run, or kamino restore, takes the lease over once it has watched it for %s",
		cmp.Or(process, "unknown"), LeaseDuration)
}

// freshID is the same however often it is asked for, so that a write whose reply
// was lost is recognised.
func (h *leaseHolder) freshID() string {
	if h.fresh == "" {
		h.fresh = h.NewID()
	}
	return h.fresh
}

// take writes this run and this process on the lease. Where the reply was lost the
// next look tells whether it worked. What the API server says that it has written is
// what every later write, and so every act, depends on.
func (h *leaseHolder) take(ctx context.Context, lease Lease, record Record) error {
	lease.Holder, lease.Process, lease.Record = h.run, h.Process, record
	lease.Epoch++
	now := h.now()
	lease.Renewed, lease.Duration = now.UTC(), LeaseDuration
	room := leaseRoom - runRoom
	if h.adopted || h.givingBack {
		room = leaseRoom
	}
	lease.trim(room)
	got, err := h.store(ctx, lease)
	if err == nil {
		h.lease, h.leased, h.written = &got, now, h.now()
	}
	return err
}

// setLease changes the lease that this run holds. ErrLeaseLost when it no
// longer does.
func (h *leaseHolder) setLease(ctx context.Context, change func(*Lease)) error {
	next := *h.lease
	change(&next)
	now := h.now()
	next.Renewed, next.Duration = now.UTC(), LeaseDuration
	next.trim(leaseRoom)
	got, err := h.store(ctx, next)
	if err == nil {
		*h.lease, h.leased, h.written = got, now, h.now()
		return nil
	}
	if !errors.Is(err, ErrConflict) {
		return h.hushed(err)
	}
	// Our own write took effect although its reply was lost, or somebody touched
	// the object without taking it, or another process has adopted the run.
	cur, readErr := h.Leases.Lease(ctx, h.Pool.ID)
	if readErr != nil {
		return h.hushed(readErr)
	}
	switch {
	case cur.Revision == "" && cur.Holder == "":
		return h.remakeLease(ctx, next, cur, "the lease of pool "+h.Pool.Name+" was deleted externally; recreated it")
	case h.lease.before(cur):
		return h.remakeLease(ctx, next, cur, "the lease of pool "+h.Pool.Name+" holds an earlier state, as after a restore of etcd from a backup; wrote it again")
	case !sameOwner(cur, next) && !sameOwner(cur, *h.lease):
		return h.lostTo(cur)
	}
	*h.lease = cur
	return err
}

// store writes a lease. Where it is too large it drops the oldest history first, and then what is
// written for people only: giving back must not fail for want of room.
func (h *leaseHolder) store(ctx context.Context, l Lease) (Lease, error) {
	got, err := h.Leases.SetLease(ctx, l)
	for errors.Is(err, ErrTooLarge) && l.Ledger.dropOldest() {
		got, err = h.Leases.SetLease(ctx, l)
	}
	if rec := &l.Record; errors.Is(err, ErrTooLarge) {
		rec.Intent, rec.Failure = "", cutText(rec.Failure, 100)
		got, err = h.Leases.SetLease(ctx, l)
	}
	if errors.Is(err, ErrTooLarge) {
		err = WithHint(err, "kubectl -n %s get leases -o yaml shows the annotations: remove those that others wrote, and shorten the settings of the pool's extensions", SystemNamespace)
	}
	return got, err
}

// before says whether cur, which is read from the cluster, is an earlier state of the lease than
// the last known one, as after a restore of etcd from a backup. Whoever takes a lease over writes
// a higher epoch than the one that is taken over; another run that took the restored lease wrote
// it after this run began.
func (l Lease) before(cur Lease) bool {
	if sameOwner(cur, l) {
		return cur.Renewed.Before(l.Renewed)
	}
	return cur.Epoch < l.Epoch && (cur.Holder == l.Holder || cur.Holder == "" && !cur.Renewed.After(l.Record.Started))
}

// lostTo is the error of a run whose lease another run has, or had.
func (h *leaseHolder) lostTo(cur Lease) error {
	h.lost = &cur
	who := fmt.Sprintf("run %s, process %s, holds the lease now", cur.Holder, cmp.Or(cur.Process, "unknown"))
	if cur.Holder == "" {
		who = "the lease is free now"
	}
	return WithHint(fmt.Errorf("%w: %s", ErrLeaseLost, who), "if a donor is not Ready and no run works on it: kamino restore")
}

// remakeLease writes the lease again that somebody deleted, or that went back in time, while this
// run held it: others know the donor and the way back from it. Whoever wrote it meanwhile has the
// pool.
func (h *leaseHolder) remakeLease(ctx context.Context, next, cur Lease, why string) error {
	next.Revision = cur.Revision
	now := h.now()
	got, err := h.store(ctx, next)
	if err == nil {
		*h.lease, h.leased, h.written, h.remade = got, now, h.now(), now
		h.warn(why)
		return nil
	}
	if !errors.Is(err, ErrConflict) {
		return h.hushed(err)
	}
	cur, readErr := h.Leases.Lease(ctx, h.Pool.ID)
	switch {
	case readErr != nil:
		return h.hushed(readErr)
	case cur.Revision == "" || h.lease.before(cur): // the next write sees it
	case !sameOwner(cur, next):
		return h.lostTo(cur)
	default:
		*h.lease = cur
	}
	return err
}

// hushed notes for how long Kubernetes wants to hear nothing of the lease.
func (h *leaseHolder) hushed(err error) error {
	var t *ThrottledError
	if errors.As(err, &t) {
		h.hush = h.now().Add(t.After)
	}
	return err
}

func sameOwner(a, b Lease) bool {
	return a.Holder == b.Holder && a.Epoch == b.Epoch && a.Process == b.Process
}

// Intend writes down what a step is about to do, after a look that began at looked. It is also the
// fence: a process that no longer holds the lease gets no further than this. again is why the world
// must be looked at once more before the act; "" it need not be.
func (h *leaseHolder) Intend(ctx context.Context, step string, next Next, looked time.Time) (again string, err error) {
	if err := h.write(ctx, step, next); err != nil {
		return "", err
	}
	h.late = deed{next.act, next.on} // it is announced: the next look is soon enough for it
	if late := elapsed(looked, h.now()); late > lookAge {
		return fmt.Sprintf("writing the lease took %s", late.Round(time.Second)), nil
	}
	if !h.remade.Before(looked) { // the marks may have gone back in time with it
		return "the lease had to be written again", nil
	}
	h.late = deed{}
	return "", nil
}

// write writes an intent on the lease. What was announced with an earlier act stands there already,
// and for lookAge after a write nobody can have taken the lease.
func (h *leaseHolder) write(ctx context.Context, step string, next Next) error {
	if h.lease == nil {
		return nil // the lock step itself
	}
	if wait := h.hush.Sub(h.now()); wait > 0 {
		return &ThrottledError{After: wait, Err: errors.New("the API server asked to back off")}
	}
	announced := h.lease.Record.intends(next.act) && next.on == h.announcedOn && (!h.givingBack || h.lease.Record.GivingBack)
	age := h.leaseAge()
	if announced && next.note == nil && age >= 0 && age < lookAge {
		return nil
	}
	// Where every write takes long, what was announced with the last one is acted on after the next look.
	if announced && h.late == (deed{next.act, next.on}) && age < slowWrite && elapsed(h.written, h.now()) < lookAge {
		return nil
	}
	h.announcedOn = next.on
	acts, says := []Act{next.act}, []string{next.what}
	for _, a := range next.along {
		acts, says = append(acts, a.act), append(says, a.what)
	}
	return h.setLease(ctx, func(l *Lease) {
		l.Record.Step, l.Record.Acts, l.Record.Intent = step, acts, strings.Join(says, "; ")
		if h.givingBack && l.Holder == h.run {
			l.Record.GivingBack = true
		}
		if next.note != nil {
			next.note(l)
		}
	})
}

// ActLimit is how long an act may take: it ends before the lease can run out.
func (h *leaseHolder) ActLimit() time.Duration {
	if h.lease == nil {
		return actTimeout
	}
	return min(actTimeout, LeaseDuration-time.Second-h.leaseAge())
}

// leaseAge is how long ago this process wrote the lease; very long where it has not yet.
func (h *leaseHolder) leaseAge() time.Duration { return elapsed(h.leased, h.now()) }

// forgotten says whether another run has the lease that does not know of this one, whose donor may
// be off or out of service.
func (h *leaseHolder) forgotten() bool {
	return h.lost != nil && !h.lost.knows(h.run) && h.mine() && h.sealing()
}

// overdue says, between two calls of one act, that the lease may be another's by now. The deadline of
// the context does not tell where the machine was suspended: timers stand still then
// (https://github.com/golang/go/issues/24595).
func (h *leaseHolder) overdue() bool { return h.leaseAge() >= actTimeout }

// Renew shows that this process lives. A cluster that does not answer is no
// reason to stop; a lost lease is.
func (h *leaseHolder) Renew(ctx context.Context) error {
	if h.lease == nil || h.leaseAge() < renewAfter || h.now().Before(h.hush) {
		return nil
	}
	where := func(l *Lease) { l.Record.Step = h.step }
	if err := h.setLease(ctx, h.ifOwn(where)); errors.Is(err, ErrLeaseLost) {
		return err
	}
	return nil
}

// release frees the lease, keeping its ledger.
func (h *leaseHolder) release(ctx context.Context, note func(*Lease)) error {
	err := h.persist(ctx, "release", func(l *Lease) {
		if h.retired {
			l.Ledger.Canary, l.Ledger.CanaryNonce = "", ""
		} else if l.Record.Canary != "" {
			l.Ledger.Canary, l.Ledger.CanaryNonce = l.Record.Canary, l.Record.Nonce
		}
		if note != nil {
			note(l)
		}
		l.Ledger.read(h.Pool.Model.Image)
		if w := l.Ledger.Wrote; w != nil && h.writes.refused && !h.writes.unsure {
			refused := *w
			refused.Refused = true
			l.Ledger.Wrote = &refused
		}
		l.Ledger.failed(l.Holder, h.asFound(l.Record), h.now().UTC())
		l.Holder, l.Process, l.Record = "", "", Record{}
	})
	if errors.Is(err, ErrLeaseLost) {
		err = nil // freed earlier with a lost reply, and taken by the next run
	}
	h.lease = nil
	if err != nil {
		err = WithHint(err, "only the lease is left; the next run releases it, or run now: kamino restore")
	}
	return err
}

// regain finds out whether this process has the lease, where the reply to its
// taking was lost, or it ended before it could look.
func (h *leaseHolder) regain(ctx context.Context) {
	if h.lease != nil || h.run == "" {
		return
	}
	_ = h.retry(context.WithoutCancel(ctx), func(ctx context.Context) error {
		lease, err := h.Leases.Lease(ctx, h.Pool.ID)
		if err == nil && lease.Holder == h.run && lease.Process == h.Process {
			h.lease = &lease
		}
		return err
	})
}

// persist writes the lease, trying again while that can help.
func (h *leaseHolder) persist(ctx context.Context, what string, change func(*Lease)) error {
	err := h.retry(ctx, func(ctx context.Context) error { return h.setLease(ctx, change) })
	if err != nil {
		return fmt.Errorf("%s lease of pool %s: %w", what, h.Pool.Name, err)
	}
	return nil
}

// retry makes a call until it works or cannot.
func (h *leaseHolder) retry(ctx context.Context, call func(context.Context) error) error {
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
		if err = call(ctx); err == nil || !transient(err) {
			break
		}
	}
	return err
}

// Sleep waits in pieces short enough to keep the lease.
func (h *leaseHolder) Sleep(ctx context.Context, d time.Duration) error {
	for d > 0 {
		piece := min(d, renewAfter)
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

// asFound is a record with the step at which an adopted run was found, since what gives it back
// writes steps of its own, and with the verdict on its proof.
func (h *leaseHolder) asFound(rec Record) Record {
	rec.FailedAt = cmp.Or(rec.FailedAt, h.before.Step)
	if h.verdict != "" {
		rec.Failure, rec.Proof, rec.Interrupted = cmp.Or(rec.Failure, h.verdict), ProofFailed, false
	}
	return rec
}
