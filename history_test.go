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

func TestFailedStep(t *testing.T) {
	err := fmt.Errorf("x: %w", errors.Join(&StepError{Step: "drain", Err: errors.New("y")}, errors.New("z")))
	if s := failedStep(err); s != "drain" || failedStep(errors.New("q")) != "" {
		t.Error(s)
	}
}
