package kamino

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
)

// TestExpected: the median, in whatever order runs were noted, of those that
// ended well and were seen to their end.
func TestExpected(t *testing.T) {
	run := func(seconds, away float64) PastRun { return PastRun{Seconds: seconds, AwaySeconds: away} }
	failed := PastRun{Seconds: 1, AwaySeconds: 1, Failure: "x"}
	for _, c := range []struct {
		past      []PastRun
		run, away float64
	}{
		{nil, 0, 0},
		{[]PastRun{failed}, 0, 0},
		{[]PastRun{run(900, 30), run(100, 20), run(200, 10)}, 200, 20},
		{[]PastRun{run(100, 5), failed, run(900, 9), run(300, 1), run(200, 3)}, 250, 4},
		{[]PastRun{run(100, 0), run(300, 7)}, 300, 7}, // of one that was adopted nobody knows
	} {
		if a, b := (Ledger{Past: c.past}).expected(); a != c.run || b != c.away {
			t.Errorf("%+v: %v, %v", c.past, a, b)
		}
	}
}

// TestHistory: the ledger and status keep the last runs, failed ones with the
// step and the reason.
func TestHistory(t *testing.T) {
	sites, _ := golden(t, aged)
	w := aged(1)
	w.update(options("a-0"), fault{kind: finalError, at: nth(t, sites, "snapshot", "Create snapshot", 1)})
	w.update(options("a-0"), fault{kind: crashAfter, at: nth(t, sites, "drain", "Mark", 1)})
	w.advance(w.now.Add(time.Hour))
	w.restore()
	if p := w.update(options("a-0")); p.err != nil {
		t.Fatal(p.err)
	}
	runs := w.status(t).Runs
	if len(runs) != 3 || runs[0].Failure != "" || runs[0].Version != "2026.03.10" || runs[0].AwaySeconds == 0 ||
		runs[1].Failure != processEnded+"drain" || runs[1].Step != "drain" || runs[2].Step != "snapshot" || !strings.Contains(runs[2].Failure, errFinal.Error()) {
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
	for range 2 * maxPast {
		w.update(options("a-0"), fault{kind: finalError, at: nth(t, sites, "definition", "Find image definition", 1)})
	}
	if runs := w.status(t).Runs; len(runs) != maxPast || runs[maxPast-1].Step != "definition" {
		t.Errorf("%d runs are kept, the last of step %s", len(runs), runs[len(runs)-1].Step)
	}
	w.sound(t)
}

// TestFailureIsShort: no failure makes the annotation of a lease too large.
func TestFailureIsShort(t *testing.T) {
	var l Ledger
	for i := range 3 * maxPast {
		l.failed(fmt.Sprint("run", i), Record{Donor: "a", Failure: strings.Repeat("ü", 100000)}, time.Time{})
	}
	if n := len([]rune(l.Past[0].Failure)); len(l.Past) != maxPast || n != maxFailure {
		t.Errorf("%d runs, %d characters", len(l.Past), n)
	}
}

// TestLiveAndDead: status tells a run at work from one whose process has ended,
// and plan does not offer to finish the first.
func TestLiveAndDead(t *testing.T) {
	w := killed("Create snapshot", 1)
	u := w.status(t).Unfinished
	if u == nil || !u.Alive || u.Silence > 20 || u.Heartbeat.IsZero() {
		t.Errorf("a moment after its last heartbeat: %+v", u)
	}
	if plan := w.planPools(t, autoOptions()); plan.Action != DoNothing || !Has(plan.Held, "held") {
		t.Errorf("plan: %+v", plan)
	}
	w.advance(w.now.Add(time.Hour))
	if u := w.status(t).Unfinished; u == nil || u.Alive || u.Silence < 3600 {
		t.Errorf("an hour later: %+v", u)
	}
	if plan := w.planPools(t, autoOptions()); plan.Action != DoFinish {
		t.Errorf("plan: %+v", plan)
	}
	// Whether it may be taken over is found out by watching, as before.
	w = killed("Create snapshot", 1)
	if p, res := w.auto(autoOptions()); p.err != nil || res[0].Action != DoFinish {
		t.Errorf("%+v, %v", res, p.err)
	}
	w.sound(t)
}

func TestFailedStep(t *testing.T) {
	err := fmt.Errorf("x: %w", errors.Join(&StepError{"drain", errors.New("y")}, errors.New("z")))
	if s := failedStep(err); s != "drain" || failedStep(errors.New("q")) != "" {
		t.Error(s)
	}
}
