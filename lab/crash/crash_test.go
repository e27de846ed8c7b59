package crash

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"

	"kamino.dev/kamino/internal/invariant"
	"kamino.dev/kamino/internal/worlds"
	"kamino.dev/kamino/lab/labtest"
)

var station *Station

func TestMain(m *testing.M) {
	labtest.Main(m, func(ctx context.Context, dir, labBinary string) (stop func(), err error) {
		station, err = NewStation(ctx, dir, labBinary)
		return station.Close, err
	})
}

// goldens are made once for all tests.
var goldens = sync.OnceValues(func() ([]*Golden, error) { return Goldens(context.Background(), station, false, "") })

func undisturbed(t *testing.T) []*Golden {
	t.Helper()
	g, err := goldens()
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// TestSample tries a sample of all cases; kamino-lab crash tries them all.
func TestSample(t *testing.T) {
	report := &Report{Cells: map[Cell]int{}}
	const sample = 20
	err := report.try(t.Context(), []*Station{station}, choose(Enumerate(undisturbed(t)), Options{Sample: sample}), nil)
	if err != nil {
		t.Fatal(err)
	}
	report.sum()
	summary := report.Summary()
	for _, f := range summary.Failures {
		t.Errorf("%s: %q", f.Case, f.What)
	}
	if summary.Positions != sample || summary.Away.Max <= 0 || summary.Idle < sample*3/4 {
		t.Errorf("positions %d, %d of them run once more, donors away for at most %v s", summary.Positions, summary.Idle, summary.Away.Max)
	}
}

// TestKept tries a few of the cases in which a controller keeps the pool.
func TestKept(t *testing.T) {
	g, err := Goldens(t.Context(), station, false, Keep)
	if err != nil {
		t.Fatal(err)
	}
	again, err := Goldens(t.Context(), station, false, Keep)
	if err != nil {
		t.Fatal(err)
	}
	if diff := differences(callList(g[0]), callList(again[0])); len(diff) > 0 {
		t.Errorf("another run makes other calls: %q", diff)
	}
	report := &Report{Cells: map[Cell]int{}, work: Keep}
	const sample = 12
	if err := report.try(t.Context(), []*Station{station}, choose(Enumerate(g), Options{Sample: sample}), nil); err != nil {
		t.Fatal(err)
	}
	report.sum()
	summary := report.Summary()
	for _, f := range summary.Failures {
		t.Errorf("%s: %q", f.Case, f.What)
	}
	if summary.Positions != sample || summary.Away.Max <= 0 {
		t.Errorf("positions %d, donors away for at most %v s", summary.Positions, summary.Away.Max)
	}
}

// TestEveryCellHasACase: nothing that the matrix requires is left out, and no
// case has the name of another.
func TestEveryCellHasACase(t *testing.T) {
	count, names := map[Cell]int{}, map[string]bool{}
	cases := Enumerate(undisturbed(t))
	everyRival(t, cases, false)
	for _, c := range cases {
		count[c.Cell]++
		if names[c.Name] {
			t.Errorf("two cases are named %s", c.Name)
		}
		names[c.Name] = true
	}
	for _, cell := range required(false, "") {
		if count[cell] == 0 {
			t.Errorf("cell %s, which wants %s, has no case", cell, cell.wants())
		}
	}
}

// everyRival: each rival of the dictionary acts in every row where it can matter.
func everyRival(t *testing.T, cases []*Case, aws bool) {
	t.Helper()
	met := map[string]bool{}
	for _, c := range cases {
		if c.Strike.Rival != nil {
			met[c.Cell.String()+" "+c.Strike.Rival.Name] = true
		}
	}
	for _, r := range worlds.Rivals() {
		for _, cell := range required(aws, "") {
			if cell.work() == Update && cell.Column == r.Column && (r.Rows == nil || slices.Contains(r.Rows, cell.Row)) && !met[cell.String()+" "+r.Name] {
				t.Errorf("cell %s has no case of %q", cell, r.Name)
			}
		}
	}
}

// TestCallsRepeat: the same world makes the same calls, or a case would not
// strike what it says.
func TestCallsRepeat(t *testing.T) {
	again, err := runGolden(t.Context(), station, Shapes()[0])
	if err != nil {
		t.Fatal(err)
	}
	if diff := differences(callList(undisturbed(t)[0]), callList(again)); len(diff) > 0 {
		t.Errorf("another run makes other calls: %q", diff)
	}
	if diff := differences(undisturbed(t)[0].Digest, again.Digest); len(diff) > 0 {
		t.Errorf("another run ends otherwise: %q", diff)
	}
}

// TestAbandonedRunIsNoticed: when nobody runs the command again, the harness
// must complain about everything that was left.
func TestAbandonedRunIsNoticed(t *testing.T) {
	g := undisturbed(t)[0]
	for _, call := range g.Calls {
		if call.means.Verb != invariant.CreateSnapshot {
			continue
		}
		c := &Case{Name: "abandoned", Golden: g, Strike: Strike{At: call.N, Kind: worlds.KillUnheard}, Abandoned: true}
		o, err := c.Try(t.Context(), station, false)
		if err != nil {
			t.Fatal(err)
		}
		for _, id := range []string{"I1: machine", "I1: node", "I16: snapshot", "I16: the lease"} {
			if !slices.ContainsFunc(o.Violations, func(v string) bool { return strings.HasPrefix(v, id) }) {
				t.Errorf("nobody notices %q; noticed is %q", id, o.Violations)
			}
		}
		return
	}
	t.Fatal("the undisturbed run takes no snapshot")
}

// TestUndisturbedRun prints what an undisturbed run calls, with -v.
func TestUndisturbedRun(t *testing.T) {
	for _, g := range undisturbed(t) {
		for i, c := range g.Calls {
			t.Logf("%-16s %3d %-4s %-10s %s %d %s %v", g.Shape.Name, c.N, g.Rows[i], c.Step, c, c.Status, c.Act, g.at[i])
		}
		if len(g.Calls) == 0 {
			t.Errorf("%s makes no calls", g.Shape.Name)
		}
	}
}
