package sim

import (
	"cmp"
	"strings"
	"testing"
	"time"

	"kamino.dev/kamino"
	"kamino.dev/kamino/internal/worlds"
	"kamino.dev/kamino/poolstate"
)

// pastRuns is how many runs a ledger keeps.
const pastRuns = 20

// TestHistory: the ledger and status keep the last runs, failed ones with the
// step and the reason.
func TestHistory(t *testing.T) {
	sites, _ := golden(t, aged)
	w := aged(1)
	w.update(options("a-0"), fault{kind: worlds.Unknown, at: nth(t, sites, "snapshot", "Create snapshot", 1)})
	w.update(options("a-0"), fault{kind: worlds.KillAfter, at: nth(t, sites, "drain", "Mark", 1)})
	w.advance(w.now.Add(time.Hour))
	w.restore()
	if p := w.update(options("a-0")); p.err != nil {
		t.Fatal(p.err)
	}
	runs := w.status(t).Runs
	if len(runs) != 3 || runs[0].Failure != "" || runs[0].Version != "2026.03.10" || runs[0].AwaySeconds == 0 ||
		runs[1].Failure != "its process ended at step drain" || runs[1].Step != "drain" || runs[2].Step != "snapshot" || !strings.Contains(runs[2].Failure, errFinal.Error()) {
		t.Fatalf("%+v", runs)
	}
	for _, r := range runs {
		if r.Donor != "a-0" || r.Run == "" || r.Ended.IsZero() || r.Seconds <= 0 {
			t.Errorf("%+v", r)
		}
	}
	if p := w.update(options("a-0")); p.err != nil || len(w.status(t).Runs) != 3 {
		t.Errorf("a run with nothing to do is told: %+v, %v", w.status(t).Runs, p.err)
	}
	for range 2 * pastRuns {
		w.update(options("a-0"), fault{kind: worlds.Unknown, at: nth(t, sites, "definition", "Find image definition", 1)})
	}
	if runs := w.status(t).Runs; len(runs) != pastRuns || runs[pastRuns-1].Step != "definition" {
		t.Errorf("%d runs are kept, the last of step %s", len(runs), runs[len(runs)-1].Step)
	}
	w.sound(t)
}

// TestLiveAndDead: status tells a run at work from one whose process has ended,
// and plan does not offer to finish the first.
func TestLiveAndDead(t *testing.T) {
	w := killed("Create snapshot", 1)
	u := w.status(t).Unfinished
	if u == nil || !u.Alive || u.Silence > 20 || u.Heartbeat.IsZero() {
		t.Errorf("a moment after its last heartbeat: %+v", u)
	}
	if plan := w.planPools(t, autoOptions()); plan.Action != poolstate.DoNothing || !kamino.Has(plan.Held, "held") {
		t.Errorf("plan: %+v", plan)
	}
	// A run that lives writes its lease every 15 s, and may be taken over after 60.
	w.advance(u.Heartbeat.Add(76 * time.Second))
	if u := w.status(t).Unfinished; u == nil || u.Alive || u.Silence != 76 {
		t.Errorf("76 s after its last heartbeat: %+v", u)
	}
	if plan := w.planPools(t, autoOptions()); plan.Action != poolstate.DoFinish {
		t.Errorf("plan: %+v", plan)
	}
	// Whether it may be taken over is found out by watching, as before.
	w = killed("Create snapshot", 1)
	if p, res := w.auto(autoOptions()); p.err != nil || res[0].Action != poolstate.DoFinish {
		t.Errorf("%+v, %v", res, p.err)
	}
	w.sound(t)
}

// TestAwayAcrossProcesses: how long a donor was away counts from the process that took it,
// whichever gives it back.
func TestAwayAcrossProcesses(t *testing.T) {
	const dead = 10 * time.Minute
	for _, tt := range []struct {
		method  string
		restore bool
		least   float64
		most    float64 // 0: no bound
		donor   string  // another than the killed run's
	}{
		{method: "Create snapshot", least: dead.Seconds()},
		{method: "Create snapshot", restore: true, least: dead.Seconds()},
		{method: "Evict", least: 1, most: dead.Seconds()},                    // killed before the donor was away
		{method: "Create image version", least: 1, most: dead.Seconds() / 2}, // and after it was back
		{method: "Create snapshot", donor: "a-1", least: 30},                 // that of the donor which took its place
	} {
		w := killed(tt.method, 1)
		w.advance(w.now.Add(dead))
		if tt.restore {
			w.restore()
		} else if p := w.update(options(cmp.Or(tt.donor, "a-0"))); p.err != nil || p.result.Adopted != (tt.donor == "") || p.result.AwaySeconds != w.status(t).Runs[0].AwaySeconds {
			t.Errorf("%+v: %+v, %v; the ledger has %+v", tt, p.result, p.err, w.status(t).Runs)
		}
		if away := w.status(t).Runs[0].AwaySeconds; away < tt.least || tt.most > 0 && away > tt.most {
			t.Errorf("%+v: the donor was away for %.1f s", tt, away)
		}
		w.sound(t)
	}
}
