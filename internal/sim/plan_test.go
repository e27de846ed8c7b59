package sim

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"kamino.dev/kamino"
	"kamino.dev/kamino/engine"
	"kamino.dev/kamino/internal/worlds"
	"kamino.dev/kamino/poolstate"
)

// TestPlanOfAnEndedRun: whoever asks what the same command would do after its process was killed is
// told that it goes on with that run, and not what would stand against a new one; so is who names
// another donor that it is there.
func TestPlanOfAnEndedRun(t *testing.T) {
	again := options("a-0")
	again.Today = kamino.TodayAgain
	today := func() *world {
		w := aged(1)
		if p := w.update(options("a-1")); p.err != nil {
			t.Fatal(p.err)
		}
		return w
	}
	w, log := today(), &proc{logging: true}
	w.startUpdate(log, again)
	w.wait()
	w = today()
	p := &proc{faults: []fault{{kind: worlds.KillAfter, at: nth(t, log.log, "snapshot", "Create snapshot", 1)}}}
	w.startUpdate(p, again)
	w.wait()
	w.advance(w.now.Add(2 * time.Minute))
	left := w.leases[poolA].Record
	if left.Step != "snapshot" || left.Donor != "a-0" {
		t.Fatalf("killed, it left %+v", left)
	}

	var plan, other *poolstate.Plan
	var checks []engine.Check
	look := &proc{}
	w.spawn(look, func(ctx context.Context) {
		e := look.engine()
		if plan, look.err = e.Plan(ctx, options("a-0")); look.err != nil {
			return
		}
		if other, look.err = e.Plan(ctx, options("a-2")); look.err != nil {
			return
		}
		checks, look.err = e.Doctor(ctx, autoOptions(), "a-0")
	})
	if w.wait(); look.err != nil {
		t.Fatal(look.err)
	}
	if len(plan.Refusals) > 0 || plan.Unfinished == nil || plan.Version != left.Version {
		t.Errorf("the plan of the same donor: %v, unfinished %+v, version %s, want %s", plan.Refusals, plan.Unfinished, plan.Version, left.Version)
	}
	if other.Unfinished == nil || other.Unfinished.Donor != "a-0" {
		t.Errorf("the plan of another donor tells of %+v", other.Unfinished)
	}
	told := ""
	for _, c := range checks {
		text := fmt.Sprintf("%s %s: %s; %s\n", c.Name, c.State, c.Found, c.Do)
		if told += text; c.State == engine.CheckFailed || strings.Contains(text, "stale") {
			t.Errorf("doctor: %s", text)
		}
	}
	if !strings.Contains(told, "taken by run") || !strings.Contains(told, "kamino update --target-node a-0 finishes it") {
		t.Errorf("doctor tells\n%s", told)
	}
	w.spawn(look, func(ctx context.Context) { // who has more to tell of the donor tells it beside that
		e, o := look.engine(), autoOptions()
		e.Provider, o.Proof = noCanaries{e.Provider.(simProvider)}, proving().Proof
		checks, look.err = e.Doctor(ctx, o, "a-0")
	})
	if w.wait(); look.err != nil {
		t.Fatal(look.err)
	}
	for _, c := range checks {
		if c.Name == "donor" && (c.State == engine.CheckPassed) != strings.HasPrefix(c.Found, "taken by run") {
			t.Errorf("doctor without the rights for a canary: %+v", c)
		}
	}
	w.pools[poolA].refusals = []kamino.Refusal{{Code: "minimum", Why: "too few instances", Do: "make it larger"}}
	w.spawn(look, func(ctx context.Context) { checks, look.err = look.engine().Doctor(ctx, autoOptions(), "a-2") })
	if w.wait(); look.err != nil || len(checks) < 3 || checks[2].Name != "lease" || !strings.Contains(checks[2].Do, "kamino update --target-node a-0 finishes it") || checks[3].Name != "minimum" {
		t.Errorf("doctor of a pool that is refused meanwhile: %v, %+v", look.err, checks)
	}
	w.pools[poolA].refusals = nil
	if p := w.update(options("a-0")); p.err != nil {
		t.Error(p.err)
	}
	w.sound(t)
}
