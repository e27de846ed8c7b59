package kamino

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"time"
)

// watchedLease is what is known of a lease that somebody else holds.
type watchedLease struct {
	revision string
	since    time.Time
}

// lookLock takes the lease of the pool. A lease that another run holds is
// watched for its duration: if it is renewed meanwhile, that run lives and this
// one leaves; if not, its process has ended and its run is adopted.
func (r *Run) lookLock(ctx context.Context) (Next, error) {
	lease, err := r.Cluster.Lease(ctx, r.pool.ID)
	if err != nil {
		return Next{}, fmt.Errorf("read lease of pool %s: %w", r.pool.Name, err)
	}
	if r.id != "" && lease.Holder == r.id && lease.Process == r.Process {
		r.lease = &lease
		return done(fmt.Sprintf("run %s, epoch %d", r.id, lease.Epoch)), nil
	}
	if lease.Holder == "" {
		return act(ActLease, "take the lease of pool "+r.pool.Name, func(ctx context.Context) error {
			r.id, r.adopted = r.freshID(), false
			return r.take(ctx, lease, r.freshRecord())
		}), nil
	}
	now := r.clock().Now()
	if lease.Revision != r.watched.revision {
		if r.watched.revision != "" {
			return Next{}, heldError(lease)
		}
		r.watched = watchedLease{lease.Revision, now}
	}
	if now.Sub(r.watched.since) < LeaseDuration {
		return wait(fmt.Sprintf("a sign of life of run %s (process %s, donor %s, step %s)",
			lease.Holder, firstWord(lease.Process, "unknown"), firstWord(lease.Record.Donor, "none"), firstWord(lease.Record.Step, InLock))), nil
	}
	return act(ActLease, fmt.Sprintf("adopt run %s, left by process %s at step %s", lease.Holder, lease.Process, lease.Record.Step),
		func(ctx context.Context) error {
			r.id, r.adopted, r.before = lease.Holder, true, lease.Record
			return r.take(ctx, lease, lease.Record)
		}), nil
}

func heldError(l Lease) error {
	return WithHint(&HeldError{Pool: l.Pool, Holder: l.Holder, By: l.Process, Step: l.Record.Step, Donor: l.Record.Donor},
		"wait until it has ended, or see what it does with: kamino status")
}

// freshID is the same however often it is asked for, so that a write whose reply
// was lost is recognised.
func (r *Run) freshID() string {
	if r.fresh == "" {
		r.fresh = r.NewID()
	}
	return r.fresh
}

func (r *Run) freshRecord() Record {
	now := r.clock().Now()
	rec := Record{
		Donor: r.node.Name, Instance: r.instance.ID, VMID: r.instance.VMID,
		Started: now, Step: r.now.name, ModelWas: r.pool.Model.Image,
	}
	if rec.Donor != "" {
		rec.Nonce = rand.Text()
		rec.Version = VersionName(now) // one that is adopted after midnight goes on with it
	}
	return rec
}

// take writes this run and this process on the lease. The next look tells
// whether it worked, whatever the reply was.
func (r *Run) take(ctx context.Context, lease Lease, record Record) error {
	lease.Holder, lease.Process, lease.Record = r.id, r.Process, record
	lease.Epoch++
	lease.Renewed, lease.Duration = r.clock().Now(), LeaseDuration
	_, err := r.Cluster.SetLease(ctx, lease)
	return err
}

// setLease changes the lease that this run holds. ErrLeaseLost when it no
// longer does.
func (r *Run) setLease(ctx context.Context, change func(*Lease)) error {
	next := *r.lease
	change(&next)
	now := r.clock().Now()
	next.Renewed, next.Duration = now, LeaseDuration
	got, err := r.Cluster.SetLease(ctx, next)
	if err == nil {
		*r.lease, r.leased = got, now
		return nil
	}
	if !errors.Is(err, ErrConflict) {
		return r.hushed(err)
	}
	// Our own write took effect although its reply was lost, or somebody touched
	// the object without taking it, or another process has adopted the run.
	cur, readErr := r.Cluster.Lease(ctx, r.pool.ID)
	if readErr != nil {
		return r.hushed(readErr)
	}
	if cur.Revision == "" && cur.Holder == "" {
		return r.remakeLease(ctx, next)
	}
	if !sameOwner(cur, next) && !sameOwner(cur, *r.lease) {
		return fmt.Errorf("%w: now held by run %s, process %s", ErrLeaseLost, cur.Holder, cur.Process)
	}
	*r.lease = cur
	return err
}

// remakeLease makes the lease again that somebody deleted while this run held it: it is what others know the donor and the way back
// from. Whoever made one meanwhile has the pool.
func (r *Run) remakeLease(ctx context.Context, next Lease) error {
	next.Revision = ""
	now := r.clock().Now()
	got, err := r.Cluster.SetLease(ctx, next)
	if err == nil {
		*r.lease, r.leased = got, now
		r.tell(Event{Kind: Warned, Step: r.now.name, Percent: -1, Message: "somebody deleted the lease of pool " + r.pool.Name + ": made again"})
		return nil
	}
	if !errors.Is(err, ErrConflict) {
		return r.hushed(err)
	}
	cur, readErr := r.Cluster.Lease(ctx, r.pool.ID)
	if readErr != nil {
		return r.hushed(readErr)
	}
	if !sameOwner(cur, next) && cur.Revision != "" {
		return fmt.Errorf("%w: its lease was deleted, and made anew by run %s, process %s", ErrLeaseLost, cur.Holder, cur.Process)
	}
	if cur.Revision != "" {
		*r.lease = cur
	}
	return err
}

// hushed notes for how long Kubernetes wants to hear nothing of the lease.
func (r *Run) hushed(err error) error {
	var t *ThrottledError
	if errors.As(err, &t) {
		r.hush = r.clock().Now().Add(t.After)
	}
	return err
}

func sameOwner(a, b Lease) bool {
	return a.Holder == b.Holder && a.Epoch == b.Epoch && a.Process == b.Process
}

// intend writes down what is about to be done. It is also the fence: a process
// that no longer holds the lease gets no further than this. What was announced
// with an earlier act stands there already, and for lookAge after a write nobody
// can have taken the lease.
func (r *Run) intend(ctx context.Context, s Step, next Next) error {
	if r.lease == nil {
		return nil // the lock step itself
	}
	if wait := r.hush.Sub(r.clock().Now()); wait > 0 {
		return &ThrottledError{After: wait, Err: errors.New("Kubernetes asked for silence")}
	}
	announced := next.note == nil && r.lease.Record.intends(next.act) && next.on == r.announcedOn && (!r.back || r.lease.Record.GivingBack)
	if age := r.leaseAge(); announced && age >= 0 && age < lookAge {
		return nil
	}
	r.announcedOn = next.on
	acts, says := []Act{next.act}, []string{next.what}
	for _, a := range next.along {
		acts, says = append(acts, a.act), append(says, a.what)
	}
	return r.setLease(ctx, func(l *Lease) {
		l.Record.Step, l.Record.Acts, l.Record.Intent = s.Name, acts, strings.Join(says, "; ")
		if r.back && l.Holder == r.id {
			l.Record.GivingBack = true
		}
		if next.note != nil {
			next.note(l)
		}
	})
}

// leaseAge is how long ago the lease was written, by the clock that says more: one
// was set back, or stood still while the machine was suspended. Both stand still in
// a VM that is paused.
func (r *Run) leaseAge() time.Duration {
	now := r.clock().Now()
	return max(now.Sub(r.leased), now.Round(0).Sub(r.leased.Round(0)))
}

// renew shows that this process lives. A cluster that does not answer is no
// reason to stop; a lost lease is.
func (r *Run) renew(ctx context.Context) error {
	now := r.clock().Now()
	if r.lease == nil || now.Sub(r.lease.Renewed) < renewAfter || now.Before(r.hush) {
		return nil
	}
	where := func(l *Lease) {
		if l.Holder == r.id {
			l.Record.Step = r.now.name
		}
	}
	if err := r.setLease(ctx, where); errors.Is(err, ErrLeaseLost) {
		return err
	}
	return nil
}

// release frees the lease, keeping its ledger.
func (r *Run) release(ctx context.Context, note func(*Lease)) error {
	err := r.persist(ctx, "release", func(l *Lease) {
		if note != nil {
			note(l)
		}
		l.Ledger.read(r.pool.Model.Image)
		l.Ledger.failed(l.Holder, r.asFound(l.Record), r.clock().Now())
		l.Holder, l.Process, l.Record = "", "", Record{}
	})
	if errors.Is(err, ErrLeaseLost) {
		err = nil // freed earlier with a lost reply, and taken by the next run
	}
	r.lease = nil
	if err != nil {
		err = WithHint(err, "nothing but the lease is left; the next run frees it, or now: kamino restore")
	}
	return err
}

// regain finds out whether this process has the lease, where the reply to its
// taking was lost, or it ended before it could look.
func (r *Run) regain(ctx context.Context) {
	if r.lease != nil || r.id == "" {
		return
	}
	_ = r.retry(context.WithoutCancel(ctx), func(ctx context.Context) error {
		lease, err := r.Cluster.Lease(ctx, r.pool.ID)
		if err == nil && lease.Holder == r.id && lease.Process == r.Process {
			r.lease = &lease
		}
		return err
	})
}

// persist writes the lease, trying again while that can help.
func (r *Run) persist(ctx context.Context, what string, change func(*Lease)) error {
	err := r.retry(ctx, func(ctx context.Context) error { return r.setLease(ctx, change) })
	if err != nil {
		return fmt.Errorf("%s lease of pool %s: %w", what, r.pool.Name, err)
	}
	return nil
}

// retry makes a call until it works or cannot.
func (r *Run) retry(ctx context.Context, call func(context.Context) error) error {
	var err error
	for try := 0; try < 10; try++ {
		pause := r.hush.Sub(r.clock().Now())
		if try > 0 {
			pause = max(pause, min(r.minPoll()<<(try-1), 30*time.Second))
		}
		if pause > 0 {
			if failed := r.sleep(ctx, pause); failed != nil {
				return errors.Join(err, failed)
			}
		}
		if err = call(ctx); err == nil || !transient(err) {
			break
		}
	}
	return err
}
