package crash

import (
	"context"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
)

var onAWSGoldens = sync.OnceValues(func() ([]*Golden, error) { return Goldens(context.Background(), station, true, "") })

func undisturbedOnAWS(t *testing.T) []*Golden {
	t.Helper()
	g, err := onAWSGoldens()
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// TestEveryCellHasACaseOnAWS: nothing that the matrix requires of AWS is left out.
func TestEveryCellHasACaseOnAWS(t *testing.T) {
	count, names := map[Cell]int{}, map[string]bool{}
	cases := Enumerate(undisturbedOnAWS(t))
	everyRival(t, cases, true)
	for _, c := range cases {
		count[c.Cell]++
		if names[c.Name] {
			t.Errorf("two cases are named %s", c.Name)
		}
		names[c.Name] = true
	}
	empty := []string{}
	for _, cell := range required(true, "") {
		if count[cell] == 0 {
			empty = append(empty, cell.String()+" wants "+cell.wants())
		}
	}
	if len(empty) > 0 {
		t.Errorf("cells without a case: %s", strings.Join(empty, ", "))
	}
	t.Logf("%d cases", len(names))
}

// TestUndisturbedRunOnAWS prints what an undisturbed run calls, with -v.
func TestUndisturbedRunOnAWS(t *testing.T) {
	for _, g := range undisturbedOnAWS(t) {
		for i, c := range g.Calls {
			t.Logf("%-16s %3d %-4s %-10s %s %d %s %v", g.Shape.Name, c.N, g.Rows[i], c.Step, c, c.Status, c.Act, g.at[i])
		}
		for _, line := range g.Digest {
			t.Log(line)
		}
		if len(g.Calls) == 0 {
			t.Errorf("%s makes no calls", g.Shape.Name)
		}
	}
}

// TestSampleOnAWS tries a sample of all cases; kamino-lab crash --cloud aws tries them all.
func TestSampleOnAWS(t *testing.T) {
	sample, seed := 15, 0
	if n, err := strconv.Atoi(os.Getenv("KAMINO_CRASH_SAMPLE")); err == nil {
		sample, seed = n, n
	}
	report := &Report{Cells: map[Cell]int{}, aws: true}
	err := report.try(t.Context(), []*Station{station}, choose(Enumerate(undisturbedOnAWS(t)), Options{Sample: sample, Seed: uint64(seed)}), func(_, _ int, o Outcome) {
		for _, v := range o.Violations {
			t.Errorf("%s: %s", o.Case.Name, v)
		}
		if len(o.Violations) > 0 && testing.Verbose() {
			t.Log(tail(o.History, 40))
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	report.sum()
	if summary := report.Summary(); summary.Positions != sample || summary.Violations > 0 {
		t.Errorf("positions %d, violations %d", summary.Positions, summary.Violations)
	}
}
