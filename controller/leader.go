package controller

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kamino.dev/kamino"
)

// leaderLease is the lease of the process that leads, in the namespace of the pools' leases.
const leaderLease = "kamino-controller"

// errLost ends a process that leads no more: another one may lead.
var errLost = errors.New("leader election lost: the lease " + leaderLease + " was not renewed in time")

// seat is the lease of the process that leads, in the API server.
type seat interface {
	Lease(ctx context.Context) (*coordinationv1.Lease, error)
	CreateLease(ctx context.Context, l *coordinationv1.Lease) (*coordinationv1.Lease, error)
	UpdateLease(ctx context.Context, l *coordinationv1.Lease) (*coordinationv1.Lease, error)
}

// election makes one of several processes the leader, as client-go's leaderelection does: who holds
// the lease renews it, and who finds it unchanged for as long as it lasts, by its own clock, takes
// it. Two leaders at once would waste requests, and nothing else: each run holds its pool's lease.
type election struct {
	seat  seat
	clock kamino.Clock
	log   *slog.Logger
	me    string
	lasts time.Duration

	revision string    // of the lease as it was read last
	since    time.Time // it has that revision
}

// lead waits until this process leads, calls leading, and renews the lease until that returns. A
// process that could not renew the lease for two thirds of its time, or whose ctx ends, ends the
// context of leading and waits for it for grace.
func (e *election) lead(ctx context.Context, grace time.Duration, leading func(context.Context)) error {
	for !e.hold(ctx) {
		if err := e.clock.Sleep(ctx, e.lasts/8); err != nil {
			return nil // the process ends, and has never led
		}
	}
	e.log.Info("leading", "lease", leaderLease, "identity", e.me)
	on, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan struct{})
	go func() { defer close(ended); leading(on) }()
	lasting := context.WithoutCancel(ctx)
	defer e.release(lasting)
	renewed, told := e.clock.Now(), time.Time{}
	for {
		select {
		case <-ended:
			return nil
		case <-on.Done():
			if told.IsZero() {
				told = e.clock.Now()
			}
		default:
		}
		pause, cancel := e.clock.WithTimeout(lasting, e.lasts/8)
		var over <-chan struct{} // nil: nobody has told this process to end
		if told.IsZero() {
			over = on.Done()
		}
		select {
		case <-ended:
		case <-over:
		case <-pause.Done():
		}
		cancel()
		switch now := e.clock.Now(); {
		case !told.IsZero() && now.Sub(told) >= grace:
			return fmt.Errorf("runs did not end within %s: the next process gives back their donors", grace)
		case e.hold(lasting):
			renewed = e.clock.Now()
		case e.clock.Now().Sub(renewed) >= e.lasts*2/3:
			stop()
			waiting, cancel := e.clock.WithTimeout(lasting, grace)
			defer cancel()
			select {
			case <-ended:
			case <-waiting.Done():
			}
			return errLost
		}
	}
}

// hold takes the lease, or renews it. It is false where another process holds it, or the API server
// gives no answer.
func (e *election) hold(ctx context.Context) bool {
	ctx, cancel := e.clock.WithTimeout(ctx, e.lasts/4)
	defer cancel()
	l, err := e.seat.Lease(ctx)
	switch {
	case apierrors.IsNotFound(err):
		l = &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: leaderLease, Namespace: kamino.SystemNamespace}}
		e.sign(l)
		l, err = e.seat.CreateLease(ctx, l)
	case err == nil && e.free(l):
		e.sign(l)
		l, err = e.seat.UpdateLease(ctx, l)
	case err == nil:
		return false
	}
	if err != nil {
		if ctx.Err() == nil && !apierrors.IsConflict(err) && !apierrors.IsAlreadyExists(err) {
			e.log.Warn("take the lease of the leader", "lease", leaderLease, "error", err)
		}
		return false
	}
	e.revision, e.since = l.ResourceVersion, e.clock.Now()
	return true
}

// free says whether this process may write the lease: it is its own, nobody's, or was not renewed
// while this process looked.
func (e *election) free(l *coordinationv1.Lease) bool {
	if now := e.clock.Now(); l.ResourceVersion != e.revision {
		e.revision, e.since = l.ResourceVersion, now
	}
	holder, lasts := l.Spec.HolderIdentity, e.lasts
	if s := l.Spec.LeaseDurationSeconds; s != nil {
		lasts = time.Duration(*s) * time.Second
	}
	return holder == nil || *holder == "" || *holder == e.me || e.clock.Now().Sub(e.since) >= lasts
}

// sign makes the lease this process's, as of now.
func (e *election) sign(l *coordinationv1.Lease) {
	now, seconds := metav1.NewMicroTime(e.clock.Now()), int32((e.lasts+time.Second-1)/time.Second)
	if l.Spec.HolderIdentity == nil || *l.Spec.HolderIdentity != e.me {
		next := int32(0)
		if l.Spec.LeaseTransitions != nil {
			next = *l.Spec.LeaseTransitions + 1
		}
		l.Spec.AcquireTime, l.Spec.LeaseTransitions = &now, &next
	}
	l.Spec.HolderIdentity, l.Spec.LeaseDurationSeconds, l.Spec.RenewTime = &e.me, &seconds, &now
}

// release lets another process lead at once.
func (e *election) release(ctx context.Context) {
	ctx, cancel := e.clock.WithTimeout(ctx, e.lasts/4)
	defer cancel()
	l, err := e.seat.Lease(ctx)
	if err == nil && (l.Spec.HolderIdentity == nil || *l.Spec.HolderIdentity != e.me) {
		return // somebody else leads
	}
	if err == nil {
		l.Spec.HolderIdentity = new("")
		_, err = e.seat.UpdateLease(ctx, l)
	}
	if err != nil {
		e.log.Warn("release the lease of the leader: another process waits until it expires", "lease", leaderLease, "error", err)
	}
}
