package lock

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"kamino.dev/kamino"
	"kamino.dev/kamino/workflow"
)

// TestIntend: what was announced is not written again, as long as nobody can have taken the lease
// since.
func TestIntend(t *testing.T) {
	noop := func(context.Context) error { return nil }
	for name, c := range map[string]struct {
		next   workflow.Next
		later  time.Duration
		back   bool
		writes int
	}{
		"announced":               {next: workflow.Act(kamino.ActEvict, "evict", noop), later: kamino.LookAge - time.Nanosecond},
		"announced, too long ago": {next: workflow.Act(kamino.ActEvict, "evict", noop), later: kamino.LookAge, writes: 1},
		"the act itself, again":   {next: workflow.Act(kamino.ActBlock, "block", noop)},
		"not announced":           {next: workflow.Act(kamino.ActSeal, "seal", noop), writes: 1},
		"with something to note":  {next: workflow.Act(kamino.ActEvict, "evict", noop).Noting(func(*kamino.Lease) {}), writes: 1},
		"the clock was set back":  {next: workflow.Act(kamino.ActEvict, "evict", noop), later: -time.Hour, writes: 1},
		"now it gives back":       {next: workflow.Act(kamino.ActEvict, "evict", noop), back: true, writes: 1},
	} {
		t.Run(name, func(t *testing.T) {
			cluster, clock := &oneLease{}, &stoppedClock{now: time.Date(2026, 3, 10, 10, 0, 0, 0, time.UTC)}
			h := Lock{Leases: cluster, Clock: clock, Run: "r", Lease: &kamino.Lease{Holder: "r"}}
			if err := h.write(t.Context(), kamino.StepDrain, workflow.Act(kamino.ActBlock, "block", noop).Announcing(kamino.ActEvict, "evict")); err != nil || cluster.n != 1 {
				t.Fatalf("%d writes, %v", cluster.n, err)
			}
			clock.now, h.GivingBack = clock.now.Add(c.later), c.back
			if err := h.write(t.Context(), kamino.StepDrain, c.next); err != nil || cluster.n != 1+c.writes {
				t.Errorf("%d writes more, %v; on the lease stands %q", cluster.n-1, err, h.Lease.Record.Intent)
			}
		})
	}
}

// TestAdopt: a run is adopted once its lease was watched for its whole duration and nobody wrote
// it.
func TestAdopt(t *testing.T) {
	cluster := &oneLease{lease: kamino.Lease{Holder: "theirs", Process: "gone/1", Epoch: 6, Revision: "a", Record: kamino.Record{Donor: "n", Step: kamino.StepSeal}}}
	clock := &stoppedClock{now: time.Date(2026, 3, 10, 10, 0, 0, 0, time.UTC)}
	h := Lock{Leases: cluster, Clock: clock, Process: "ours/1", Pool: &kamino.Pool{Name: "p"}}
	look := func() (workflow.Next, error) {
		return h.Look(t.Context(), func() kamino.Record { panic("a run that began anew") })
	}
	for range 2 {
		if next, err := look(); err != nil || next.Kind != workflow.NextWait {
			t.Fatalf("%+v, %v", next, err)
		}
		clock.now = clock.now.Add(kamino.LeaseDuration - 1)
	}
	clock.now = clock.now.Add(1)
	next, err := look()
	if err != nil || next.Kind != workflow.NextAct {
		t.Fatalf("%+v, %v", next, err)
	}
	if err := next.Do(t.Context()); err != nil {
		t.Fatal(err)
	}
	if next, err = look(); err != nil || next.Kind != workflow.NextDone || !h.Mine() || !h.Adopted || h.Lease.Epoch != 7 || h.Before.Step != kamino.StepSeal {
		t.Errorf("%+v, %v, holder %+v", next, err, h)
	}

	alive := Lock{Leases: cluster, Clock: clock, Process: h.Process, Pool: h.Pool}
	cluster.lease = kamino.Lease{Holder: "theirs", Process: "alive/1", Revision: "a"}
	if next, err := alive.Look(t.Context(), nil); err != nil || next.Kind != workflow.NextWait {
		t.Fatalf("%+v, %v", next, err)
	}
	cluster.lease.Revision = "b"
	if _, err := alive.Look(t.Context(), nil); !errors.As(err, new(*kamino.HeldError)) {
		t.Errorf("a lease that was renewed: %v", err)
	}
}

// TestSighted: a process that has seen the lease before it looks for its run watches it since then,
// and no longer than it is as it was seen.
func TestSighted(t *testing.T) {
	now := time.Date(2026, 3, 10, 10, 0, 0, 0, time.UTC)
	for name, tt := range map[string]struct {
		revision string
		since    time.Time
		wait     time.Duration
	}{
		"for its whole duration": {"a", now.Add(-kamino.LeaseDuration), 0},
		"for a part of it":       {"a", now.Add(-20 * time.Second), kamino.LeaseDuration - 20*time.Second},
		"as it was before":       {"0", now.Add(-time.Hour), kamino.LeaseDuration},
		"never":                  {wait: kamino.LeaseDuration},
		"by a clock ahead":       {"a", now.Add(time.Hour), kamino.LeaseDuration},
	} {
		t.Run(name, func(t *testing.T) {
			cluster := &oneLease{lease: kamino.Lease{Holder: "theirs", Process: "gone/1", Revision: "a"}}
			clock := &stoppedClock{now: now}
			h := Lock{Pool: &kamino.Pool{ID: "/p", Name: "p"}, Leases: cluster, Clock: clock, Sighted: func(pool kamino.PoolID, revision string) time.Time {
				if pool != "/p" || revision != tt.revision {
					return time.Time{}
				}
				return tt.since
			}}
			if tt.wait > 0 {
				if next, err := h.Look(t.Context(), nil); err != nil || next.Kind != workflow.NextWait || next.Within != tt.wait {
					t.Fatalf("%+v, %v", next, err)
				}
				clock.now = now.Add(tt.wait - 1)
				if next, err := h.Look(t.Context(), nil); err != nil || next.Kind != workflow.NextWait {
					t.Fatalf("a moment too early: %+v, %v", next, err)
				}
				clock.now = now.Add(tt.wait)
			}
			if next, err := h.Look(t.Context(), nil); err != nil || next.Kind != workflow.NextAct {
				t.Errorf("%+v, %v", next, err)
			}
		})
	}
}

// TestLostTo: who lost its lease is told who has it, where anybody does, and what to type.
func TestLostTo(t *testing.T) {
	for want, cur := range map[string]kamino.Lease{
		"the lease is free now":                        {},
		"run r2, process host/1, holds the lease now":  {Holder: "r2", Process: "host/1"},
		"run r2, process unknown, holds the lease now": {Holder: "r2"},
	} {
		h := &Lock{}
		if err := h.lostTo(cur); !errors.Is(err, kamino.ErrLeaseLost) || !strings.HasSuffix(err.Error(), ": "+want) || !strings.Contains(kamino.Hint(err), "kamino restore") || h.Lost == nil {
			t.Errorf("%v; hint %q; want %q", err, kamino.Hint(err), want)
		}
	}
}

// oneLease is a cluster of which only a lease can be read and written.
type oneLease struct {
	kamino.Cluster
	lease kamino.Lease
	n     int // writes
}

func (c *oneLease) Lease(context.Context, kamino.PoolID) (kamino.Lease, error) { return c.lease, nil }

func (c *oneLease) SetLease(_ context.Context, l kamino.Lease) (kamino.Lease, error) {
	c.n++
	c.lease = l
	return l, nil
}

// stoppedClock stands still until it is set.
type stoppedClock struct {
	kamino.WallClock
	now time.Time
}

func (c *stoppedClock) Now() time.Time { return c.now }

func (c *stoppedClock) Sleep(context.Context, time.Duration) error { return nil }
