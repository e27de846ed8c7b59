package kamino

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"
)

// oneLease is a cluster of which only a lease and a node can be read, and the lease written.
type oneLease struct {
	Cluster
	lease  Lease
	n      int // writes
	node   Node
	looked int // reads of the node
}

func (c *oneLease) Lease(context.Context, PoolID) (Lease, error) { return c.lease, nil }

func (c *oneLease) SetLease(_ context.Context, l Lease) (Lease, error) {
	c.n++
	c.lease = l
	return l, nil
}

func (c *oneLease) Node(context.Context, string) (Node, error) {
	c.looked++
	return c.node, nil
}

// stoppedClock stands still until it is set.
type stoppedClock struct {
	WallClock
	now time.Time
}

func (c *stoppedClock) Now() time.Time                             { return c.now }
func (c *stoppedClock) Sleep(context.Context, time.Duration) error { return nil }

// TestIntend: what was announced is not written again, as long as nobody can have taken the lease
// since.
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
			cluster, clock := &oneLease{}, &stoppedClock{now: time.Date(2026, 3, 10, 10, 0, 0, 0, time.UTC)}
			h := leaseHolder{Leases: cluster, Clock: clock, run: "r", lease: &Lease{Holder: "r"}}
			if err := h.write(t.Context(), InDrain, act(ActBlock, "block", noop).announcing(ActEvict, "evict")); err != nil || cluster.n != 1 {
				t.Fatalf("%d writes, %v", cluster.n, err)
			}
			clock.now, h.givingBack = clock.now.Add(c.later), c.back
			if err := h.write(t.Context(), InDrain, c.next); err != nil || cluster.n != 1+c.writes {
				t.Errorf("%d writes more, %v; on the lease stands %q", cluster.n-1, err, h.lease.Record.Intent)
			}
		})
	}
}

// TestAdopt: a run is adopted once its lease was watched for its whole duration and nobody wrote
// it.
func TestAdopt(t *testing.T) {
	cluster := &oneLease{lease: Lease{Holder: "theirs", Process: "gone/1", Epoch: 6, Revision: "a", Record: Record{Donor: "n", Step: InSeal}}}
	clock := &stoppedClock{now: time.Date(2026, 3, 10, 10, 0, 0, 0, time.UTC)}
	h := leaseHolder{Leases: cluster, Clock: clock, Process: "ours/1", Pool: &Pool{Name: "p"}}
	look := func() (Next, error) { return h.look(t.Context(), func() Record { panic("a run that began anew") }) }
	for range 2 {
		if next, err := look(); err != nil || next.kind != nextWait {
			t.Fatalf("%+v, %v", next, err)
		}
		clock.now = clock.now.Add(LeaseDuration - 1)
	}
	clock.now = clock.now.Add(1)
	next, err := look()
	if err != nil || next.kind != nextAct {
		t.Fatalf("%+v, %v", next, err)
	}
	if err := next.do(t.Context()); err != nil {
		t.Fatal(err)
	}
	if next, err = look(); err != nil || next.kind != nextDone || !h.mine() || !h.adopted || h.lease.Epoch != 7 || h.before.Step != InSeal {
		t.Errorf("%+v, %v, holder %+v", next, err, h)
	}

	alive := leaseHolder{Leases: cluster, Clock: clock, Process: h.Process, Pool: h.Pool}
	cluster.lease = Lease{Holder: "theirs", Process: "alive/1", Revision: "a"}
	if next, err := alive.look(t.Context(), nil); err != nil || next.kind != nextWait {
		t.Fatalf("%+v, %v", next, err)
	}
	cluster.lease.Revision = "b"
	if _, err := alive.look(t.Context(), nil); !errors.As(err, new(*HeldError)) {
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
		"for its whole duration": {"a", now.Add(-LeaseDuration), 0},
		"for a part of it":       {"a", now.Add(-20 * time.Second), LeaseDuration - 20*time.Second},
		"as it was before":       {"0", now.Add(-time.Hour), LeaseDuration},
		"never":                  {wait: LeaseDuration},
		"by a clock ahead":       {"a", now.Add(time.Hour), LeaseDuration},
	} {
		t.Run(name, func(t *testing.T) {
			cluster := &oneLease{lease: Lease{Holder: "theirs", Process: "gone/1", Revision: "a"}}
			clock := &stoppedClock{now: now}
			h := leaseHolder{Pool: &Pool{ID: "/p", Name: "p"}, Leases: cluster, Clock: clock, Sighted: func(pool PoolID, revision string) time.Time {
				if pool != "/p" || revision != tt.revision {
					return time.Time{}
				}
				return tt.since
			}}
			if tt.wait > 0 {
				if next, err := h.look(t.Context(), nil); err != nil || next.kind != nextWait || next.within != tt.wait {
					t.Fatalf("%+v, %v", next, err)
				}
				clock.now = now.Add(tt.wait - 1)
				if next, err := h.look(t.Context(), nil); err != nil || next.kind != nextWait {
					t.Fatalf("a moment too early: %+v, %v", next, err)
				}
				clock.now = now.Add(tt.wait)
			}
			if next, err := h.look(t.Context(), nil); err != nil || next.kind != nextAct {
				t.Errorf("%+v, %v", next, err)
			}
		})
	}
}

// TestDonorView: what was read is read again when it is old, and the donor is lost with its machine
// or its mark.
func TestDonorView(t *testing.T) {
	const vm, other = "6f1d1c0e-2f3a-4a7b-9a55-0c2b7e8d9f10", "00000000-2f3a-4a7b-9a55-0c2b7e8d9f10"
	marked := func(run string) map[string]string { return map[string]string{AnnotationRun: `{"run":"` + run + `"}`} }
	for name, tt := range map[string]struct {
		node Node
		lost bool
	}{
		"unmarked":            {node: Node{SystemUUID: vm}},
		"marked by the run":   {node: Node{SystemUUID: vm, Annotations: marked("r")}},
		"another machine":     {node: Node{SystemUUID: other}, lost: true},
		"marked by another":   {node: Node{SystemUUID: vm, Annotations: marked("x")}, lost: true},
		"no mark of kamino's": {node: Node{SystemUUID: vm, Annotations: map[string]string{AnnotationRun: "?"}}, lost: true},
	} {
		t.Run(name, func(t *testing.T) {
			cluster, clock := &oneLease{node: tt.node}, &stoppedClock{now: time.Date(2026, 3, 10, 10, 0, 0, 0, time.UTC)}
			v := donorView{engine: &Engine{Cluster: cluster, Clock: clock}, instance: Instance{VMID: vm}}
			if _, _, err := v.readNode(t.Context(), "r"); (err != nil) != tt.lost {
				t.Fatal(err)
			}
			if tt.lost {
				return
			}
			for age, reads := range map[time.Duration]int{0: 0, lookAge: 1} {
				clock.now, cluster.looked = v.readAt.Add(age), 0
				if _, _, err := v.recentNode(t.Context(), "r"); err != nil || cluster.looked != reads {
					t.Errorf("after %s it was read %d times, want %d: %v", age, cluster.looked, reads, err)
				}
			}
		})
	}
}

// TestWallClockMeasures: the clock of commands carries a monotonic reading, and what is written
// down is in UTC and carries none.
func TestWallClockMeasures(t *testing.T) {
	e := &Engine{}
	if now := e.now(); now == now.Round(0) {
		t.Errorf("%s has no monotonic reading: who sets the clock moves every deadline", now)
	}
	if date := e.date(); date != date.Round(0) || date.Location() != time.UTC {
		t.Errorf("%s is written down", date)
	}
}

// TestLostTo: who lost its lease is told who has it, where anybody does, and what to type.
func TestLostTo(t *testing.T) {
	for want, cur := range map[string]Lease{
		"the lease is free now":                        {},
		"run r2, process host/1, holds the lease now":  {Holder: "r2", Process: "host/1"},
		"run r2, process unknown, holds the lease now": {Holder: "r2"},
	} {
		h := &leaseHolder{}
		if err := h.lostTo(cur); !errors.Is(err, ErrLeaseLost) || !strings.HasSuffix(err.Error(), ": "+want) || !strings.Contains(Hint(err), "kamino restore") || h.lost == nil {
			t.Errorf("%v; hint %q; want %q", err, Hint(err), want)
		}
	}
}
