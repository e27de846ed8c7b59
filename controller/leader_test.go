package controller

import (
	"context"
	"errors"
	"log/slog"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

var errNoServer = errors.New("connection refused")

// oneSeat is the lease in an API server that refuses writes to another revision than its own.
type oneSeat struct {
	lease *coordinationv1.Lease
	down  atomic.Bool
	race  func() // what another process does between a read and the write that follows
}

func (s *oneSeat) Lease(context.Context) (*coordinationv1.Lease, error) {
	switch {
	case s.down.Load():
		return nil, errNoServer
	case s.lease == nil:
		return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "leases"}, leaderLease)
	}
	return s.lease.DeepCopy(), nil
}

func (s *oneSeat) CreateLease(_ context.Context, l *coordinationv1.Lease) (*coordinationv1.Lease, error) {
	if s.lease != nil {
		return nil, apierrors.NewAlreadyExists(schema.GroupResource{Resource: "leases"}, leaderLease)
	}
	l.ResourceVersion = "1"
	s.lease = l.DeepCopy()
	return l, nil
}

func (s *oneSeat) UpdateLease(_ context.Context, l *coordinationv1.Lease) (*coordinationv1.Lease, error) {
	if race := s.race; race != nil {
		s.race = nil
		race()
	}
	if s.down.Load() {
		return nil, errNoServer
	}
	if l.ResourceVersion != s.lease.ResourceVersion {
		return nil, apierrors.NewConflict(schema.GroupResource{Resource: "leases"}, leaderLease, nil)
	}
	n, err := strconv.Atoi(l.ResourceVersion)
	if err != nil {
		return nil, err
	}
	l.ResourceVersion = strconv.Itoa(n + 1)
	s.lease = l.DeepCopy()
	return l.DeepCopy(), nil
}

// jump is a clock whose timeouts pass at once.
type jump struct{ at *time.Time }

func (j jump) Now() time.Time { return *j.at }

func (j jump) Sleep(ctx context.Context, d time.Duration) error {
	*j.at = j.at.Add(d)
	return ctx.Err()
}

func (j jump) WithTimeout(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	*j.at = j.at.Add(d)
	ctx, cancel := context.WithCancel(ctx)
	cancel()
	return ctx, cancel
}

func candidate(s *oneSeat, at *time.Time, name string) *election {
	return &election{seat: s, clock: quick{at}, log: slog.New(slog.DiscardHandler), me: name, lasts: 15 * time.Second}
}

// TestHold: one process holds the lease; another takes it when it was not renewed for its time, when
// it was released, and never when a third process was faster.
func TestHold(t *testing.T) {
	at, s := now, &oneSeat{}
	a, b, c := candidate(s, &at, "a"), candidate(s, &at, "b"), candidate(s, &at, "c")
	step := func(what string, e *election, want bool) {
		t.Helper()
		if got := e.hold(t.Context()); got != want {
			t.Fatalf("%s: %s holds the lease: %t", what, e.me, got)
		}
	}
	step("nobody led", a, true)
	step("a leads", b, false)
	at = at.Add(14 * time.Second)
	step("a renews", a, true)
	step("a renewed", b, false)
	at = at.Add(14 * time.Second)
	step("a was silent for 14 s", b, false)
	step("c looks for the first time", c, false)
	at = at.Add(time.Second)
	step("c has looked for 1 s", c, false)
	s.race = func() { step("a is back", a, true) }
	step("a was faster", b, false)
	at = at.Add(15 * time.Second)
	s.down.Store(true)
	step("no API server", b, false)
	s.down.Store(false)
	step("a renewed, as b sees now", b, false)
	at = at.Add(15 * time.Second)
	step("a was silent for 15 s", b, true)
	if got := *s.lease.Spec.LeaseTransitions; got != 1 {
		t.Errorf("%d transitions", got)
	}
	step("b leads", a, false)
	a.release(t.Context())
	step("a releases nothing of b's", c, false)
	b.release(t.Context())
	step("b released it", c, true)
}

// TestLead: a process that cannot renew the lease ends its work and says why. One that is told to end
// releases the lease, also when its work does not end in time.
func TestLead(t *testing.T) {
	for name, tt := range map[string]struct {
		end     func(s *oneSeat, stop context.CancelFunc)
		deaf    bool
		grace   time.Duration
		lost    bool
		fails   bool
		holding string
	}{
		"the work ends":        {func(*oneSeat, context.CancelFunc) {}, false, time.Minute, false, false, ""},
		"no API server":        {func(s *oneSeat, _ context.CancelFunc) { s.down.Store(true) }, true, time.Minute, true, true, "a"},
		"told to end":          {func(_ *oneSeat, stop context.CancelFunc) { stop() }, true, 100_000 * time.Hour, false, false, ""},
		"told to end, in vain": {func(_ *oneSeat, stop context.CancelFunc) { stop() }, true, time.Minute, false, true, ""},
	} {
		t.Run(name, func(t *testing.T) {
			at, s := now, &oneSeat{}
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			e := candidate(s, &at, "a")
			e.clock = jump{&at}
			over := make(chan struct{})
			defer close(over)
			err := e.lead(ctx, tt.grace, func(on context.Context) {
				tt.end(s, stop)
				if tt.deaf {
					<-on.Done()
				}
				if tt.deaf && tt.grace == time.Minute {
					<-over
				}
			})
			if (err != nil) != tt.fails || errors.Is(err, errLost) != tt.lost || *s.lease.Spec.HolderIdentity != tt.holding {
				t.Errorf("%v, and %q holds the lease", err, *s.lease.Spec.HolderIdentity)
			}
		})
	}
}
