package aws_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"kamino.dev/kamino"
	"kamino.dev/kamino/aws/emulator"
)

// actions lists what was written since a request.
func (c *cloud) actions(since int) (names []string) {
	for _, e := range c.server.Requests(since) {
		if !strings.HasPrefix(e.Action, "Describe") && !strings.HasPrefix(e.Action, "Get") {
			names = append(names, e.Action)
		}
	}
	return names
}

// release puts the donor back in service.
func (c *cloud) release() {
	c.Helper()
	c.eventually("the donor is in service", func() bool {
		if err := c.Release(c.Context(), c.pool(), c.donor()); err != nil && !errors.Is(err, kamino.ErrInProgress) {
			c.Fatal(err)
		}
		how, err := c.Holding(c.Context(), c.pool(), c.donor())
		c.must(err)
		return how == kamino.InService
	})
}

// TestHold: a donor that is held may be off for an hour in zones that its absence leaves uneven; it
// comes back when it runs, nobody else was replaced, and nothing stays suspended.
func TestHold(t *testing.T) {
	c := begin(t, setting{group: emulator.Group{Zones: 1}})
	before := c.server.Machines()
	c.hold()
	c.must(c.SetPower(t.Context(), c.donor(), kamino.PowerOff))
	c.clock.Advance(time.Hour)
	if err := c.Release(t.Context(), c.pool(), c.donor()); !errors.Is(err, kamino.ErrInProgress) {
		t.Errorf("a stopped donor was put back: %v", err)
	}
	c.must(c.SetPower(t.Context(), c.donor(), kamino.PowerOn))
	c.release()
	c.clock.Advance(time.Hour)
	after := c.server.Machines()
	if len(after) != len(before) {
		t.Fatalf("%d instances, were %d", len(after), len(before))
	}
	for i := range after {
		if after[i].ID != before[i].ID || after[i].State != "running" || after[i].Lifecycle != "InService" {
			t.Errorf("instance %+v, was %+v", after[i], before[i])
		}
	}
	since := len(c.server.Requests(0))
	c.release()
	if again := c.actions(since); len(again) != 0 {
		t.Errorf("a second release wrote %v", again)
	}
}

// TestHoldSuspends: zone rebalancing is suspended unless it was, and only what Hold suspended is
// resumed.
func TestHoldSuspends(t *testing.T) {
	for _, theirs := range []bool{false, true} {
		c := begin(t, setting{})
		if theirs {
			c.server.Suspend("blue", "AZRebalance")
		}
		c.hold()
		c.must(c.Hold(t.Context(), c.pool(), c.donor())) // once more
		if !c.server.Suspended("blue", "AZRebalance") {
			t.Errorf("theirs %t: zones are rebalanced while a donor is away", theirs)
		}
		c.release()
		if got := c.server.Suspended("blue", "AZRebalance"); got != theirs {
			t.Errorf("theirs %t: suspended afterwards %t", theirs, got)
		}
	}
}

// TestHoldMinimum: the minimum forbids it, and nothing was written.
func TestHoldMinimum(t *testing.T) {
	c := begin(t, setting{group: emulator.Group{Count: 2, Min: 2}})
	since := len(c.server.Requests(0))
	err := c.Hold(t.Context(), c.pool(), c.donor())
	if !errors.Is(err, kamino.ErrUnsupported) || !strings.Contains(kamino.Hint(err), "--min-size 1") {
		t.Errorf("%v, hint %q", err, kamino.Hint(err))
	}
	if wrote := c.actions(since); len(wrote) != 0 {
		t.Errorf("wrote %v", wrote)
	}
}

// TestHoldLaunch: a group that launches nothing takes no instance back from Standby: it is no pool,
// and a donor of one that came to be so meanwhile waits until somebody lets it launch again.
func TestHoldLaunch(t *testing.T) {
	c := begin(t, setting{})
	c.server.Suspend("blue", "Launch")
	if got := fields(c.pool().Refusals); got != "suspended SuspendedProcesses" {
		t.Errorf("refused for %q", got)
	}
	since := len(c.server.Requests(0))
	if err := c.Hold(t.Context(), c.pool(), c.donor()); !errors.Is(err, kamino.ErrUnsupported) || kamino.Hint(err) == "" || len(c.actions(since)) != 0 {
		t.Errorf("hold: %v, hint %q, wrote %v", err, kamino.Hint(err), c.actions(since))
	}
	c = begin(t, setting{})
	c.hold()
	c.server.Suspend("blue", "Launch")
	since = len(c.server.Requests(0))
	err := c.Release(t.Context(), c.pool(), c.donor())
	if !errors.Is(err, kamino.ErrInProgress) || !strings.Contains(kamino.Hint(err), "resume-processes --auto-scaling-group-name blue --scaling-processes Launch") || len(c.actions(since)) != 0 {
		t.Errorf("release: %v, hint %q, wrote %v", err, kamino.Hint(err), c.actions(since))
	}
	c.server.Resume("blue", "Launch")
	c.release()
}

// TestHoldBelieved: what is answered and not done leaves nothing suspended, and no zone rebalanced
// while a donor is away.
func TestHoldBelieved(t *testing.T) {
	for _, action := range []string{"autoscaling:CreateOrUpdateTags", "autoscaling:SuspendProcesses", "autoscaling:ResumeProcesses", "autoscaling:EnterStandby", "autoscaling:ExitStandby", "autoscaling:DeleteTags"} {
		t.Run(action, func(t *testing.T) {
			c := begin(t, setting{group: emulator.Group{Zones: 1}})
			c.server.AddFault(emulator.Fault{Action: action, Kind: emulator.FalseSuccess})
			before := c.server.Machines()
			c.eventually("the donor is held", func() bool {
				if err := c.Hold(t.Context(), c.pool(), c.donor()); err != nil && !errors.Is(err, kamino.ErrInProgress) {
					t.Fatal(err)
				}
				how, err := c.Holding(t.Context(), c.pool(), c.donor())
				c.must(err)
				return how == kamino.Held
			})
			if !c.server.Suspended("blue", "AZRebalance") {
				t.Error("zones are rebalanced while a donor is away")
			}
			c.clock.Advance(time.Hour)
			c.release()
			c.clock.Advance(time.Hour)
			if c.server.Suspended("blue", "AZRebalance") {
				t.Error("rebalancing stays suspended, and no tag says who did it")
			}
			after := c.server.Machines()
			for i := range after {
				if len(after) != len(before) || after[i].ID != before[i].ID || after[i].Lifecycle != "InService" {
					t.Fatalf("%+v, were %+v", after, before)
				}
			}
			for _, f := range c.server.Faults() {
				if f.Hit == 0 {
					t.Error("the fault did not strike")
				}
			}
		})
	}
}

// TestProtectedCanary: the group's template protects its instances from being terminated by a
// call, which Auto Scaling itself does not heed: a canary of it stays for good, one each night.
func TestProtectedCanary(t *testing.T) {
	c := begin(t, setting{latencies: emulator.NoLatency(), group: emulator.Group{Data: map[string]any{"DisableApiTermination": "true"}}})
	pool := c.pool()
	name := kamino.CanaryName(pool.ID, "r-1")
	c.must(c.LaunchCanary(c.Context(), pool, kamino.CanaryOrder{Name: name, Version: c.server.Machines()[0].Image, Run: "r-1", Nonce: "n", Expires: c.clock.Now().Add(time.Hour)}))
	c.eventually("the canary runs", func() bool {
		list, err := c.Canaries(c.Context(), pool)
		c.must(err)
		return len(list) == 1 && list[0].Power == kamino.PowerOn
	})
	if err := c.RemoveCanary(c.Context(), pool, name); err != nil {
		t.Errorf("the canary cannot be removed, and CanaryFit refused nothing: %v", err)
	}
}

// TestNoRoom: a group at its maximum has no room for the donor to come back to, once
// cluster-autoscaler has launched an instance for its pods. The plan says so.
func TestNoRoom(t *testing.T) {
	for most, want := range map[int]int{3: 1, 4: 0} {
		c := begin(t, setting{group: emulator.Group{Count: 3, Max: most}})
		refusals, doubts := c.fits()
		if len(refusals) > 0 || len(doubts) != want || want > 0 && !strings.Contains(doubts[0].Do, "--max-size 4") {
			t.Errorf("maximum %d: %v, %v", most, refusals, doubts)
		}
	}
}
