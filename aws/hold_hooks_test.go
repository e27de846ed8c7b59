package aws_test

import (
	"strings"
	"testing"
	"time"

	"kamino.dev/kamino"
	"kamino.dev/kamino/aws/emulator"
)

// TestLaunchHook: a donor that comes back from Standby may wait for a launch hook. It is moving for
// so long, and the plan reports a hook that would terminate it.
func TestLaunchHook(t *testing.T) {
	for _, abandon := range []bool{false, true} {
		c := begin(t, setting{group: emulator.Group{Hooks: []emulator.Hook{{Name: "ready", Timeout: 5 * time.Minute, Abandon: abandon}}}})
		_, doubts := c.fits()
		if (len(doubts) > 0) != abandon || abandon && !strings.Contains(doubts[0].Do, "--lifecycle-hook-name ready --default-result CONTINUE") {
			t.Errorf("abandon %t: doubts %v", abandon, doubts)
		}
		c.hold()
		c.must(c.Release(t.Context(), c.pool(), c.donor()))
		c.clock.Advance(time.Minute)
		if how, err := c.Holding(t.Context(), c.pool(), c.donor()); err != nil || how != kamino.Moving {
			t.Errorf("in the hook the donor is %s, %v", how, err)
		}
		c.must(c.Release(t.Context(), c.pool(), c.donor())) // asked for again, it changes nothing
		c.clock.Advance(10 * time.Minute)
		_, err := c.Instance(t.Context(), c.donor())
		if (err != nil) != abandon {
			t.Errorf("abandon %t: after the hook: %v", abandon, err)
		}
	}
}

// TestTerminateHook: an instance that a group lets go runs until the hook ends.
func TestTerminateHook(t *testing.T) {
	c := begin(t, setting{group: emulator.Group{Hooks: []emulator.Hook{{Name: "drain", Leaving: true, Timeout: 5 * time.Minute}}}})
	if _, doubts := c.fits(); len(doubts) > 0 {
		t.Errorf("doubts %v", doubts)
	}
	pool := c.pool()
	c.must(c.SetCapacity(t.Context(), pool, pool.Capacity-1))
	count := func(state string) (n int) {
		for _, m := range c.server.Machines() {
			if m.State == state {
				n++
			}
		}
		return n
	}
	c.clock.Advance(time.Minute)
	if count("running") != 3 {
		t.Errorf("%d machines run in the hook", count("running"))
	}
	c.clock.Advance(10 * time.Minute)
	if count("running") != 2 {
		t.Errorf("%d machines run after the hook", count("running"))
	}
}
