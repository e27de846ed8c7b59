package kamino

import (
	"context"
	"testing"
	"time"
)

// leaseWrites is a cluster of which only the lease can be written.
type leaseWrites struct {
	Cluster
	n int
}

func (c *leaseWrites) SetLease(_ context.Context, l Lease) (Lease, error) {
	c.n++
	return l, nil
}

// stoppedClock stands still until it is set.
type stoppedClock struct {
	WallClock
	now time.Time
}

func (c *stoppedClock) Now() time.Time                             { return c.now }
func (c *stoppedClock) Sleep(context.Context, time.Duration) error { return nil }

// TestIntend: what was announced is not written again, as long as nobody can have taken the lease since.
func TestIntend(t *testing.T) {
	noop := func(context.Context) error { return nil }
	for name, c := range map[string]struct {
		next   Next
		later  time.Duration
		back   bool
		writes int
	}{
		"announced":               {next: act(ActEvict, "evict", noop), later: lookAge - time.Nanosecond},
		"announced, too long ago": {next: act(ActEvict, "evict", noop), later: lookAge, writes: 1},
		"the act itself, again":   {next: act(ActBlock, "block", noop)},
		"not announced":           {next: act(ActSeal, "seal", noop), writes: 1},
		"with something to note":  {next: act(ActEvict, "evict", noop).noting(func(*Lease) {}), writes: 1},
		"the clock was set back":  {next: act(ActEvict, "evict", noop), later: -time.Hour, writes: 1},
		"now it gives back":       {next: act(ActEvict, "evict", noop), back: true, writes: 1},
	} {
		t.Run(name, func(t *testing.T) {
			cluster, clock := &leaseWrites{}, &stoppedClock{now: time.Date(2026, 3, 10, 10, 0, 0, 0, time.UTC)}
			r := &Run{Engine: &Engine{Cluster: cluster, Clock: clock}, id: "r", lease: &Lease{Holder: "r"}}
			s := Step{Name: "drain"}
			if err := r.intend(t.Context(), s, act(ActBlock, "block", noop).announcing(ActEvict, "evict")); err != nil || cluster.n != 1 {
				t.Fatalf("%d writes, %v", cluster.n, err)
			}
			clock.now, r.back = clock.now.Add(c.later), c.back
			if err := r.intend(t.Context(), s, c.next); err != nil || cluster.n != 1+c.writes {
				t.Errorf("%d writes more, %v; on the lease stands %q", cluster.n-1, err, r.lease.Record.Intent)
			}
		})
	}
}
