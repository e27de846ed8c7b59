package crash

import (
	"cmp"
	"os"
	"slices"
	"strings"
	"testing"

	"kamino.dev/kamino/internal/sim"
	"kamino.dev/kamino/internal/sim/mutants"
)

// TestDefects puts one known bad behaviour after the other into the engine: a harness that cannot
// fail proves nothing. KAMINO_DEFECT names some of them, with commas, or all: they take an hour.
func TestDefects(t *testing.T) {
	only := os.Getenv("KAMINO_DEFECT")
	if only == "" {
		t.Skip("KAMINO_DEFECT names no defect, nor all")
	}
	if !mutants.Built() {
		mutants.Play(t)
		return
	}
	cases := map[Work][]*Case{} // by the command that is spoiled
	undisturbed := func(t *testing.T, work Work) error {
		goldens, err := Goldens(t.Context(), station, false, work)
		if err == nil && cases[work] == nil {
			cases[work] = spread(Enumerate(goldens))
		}
		return err
	}
	for _, work := range []Work{Update, Patch, Rollback, Withdraw} {
		if err := undisturbed(t, work); err != nil {
			t.Fatal(err)
		}
	}
	station.tamper = sim.Tamper
	t.Cleanup(func() {
		station.tamper = nil
		_ = sim.Switch(nil) // cannot fail
	})
	for _, d := range sim.Defects() {
		if only != "all" && !slices.Contains(strings.Split(only, ","), d.Name) || d.Sim {
			continue
		}
		t.Run(d.Name, func(t *testing.T) {
			if err := sim.Switch(&d); err != nil {
				t.Fatal(err)
			}
			// Some are found without any harm done.
			work := cmp.Or(Work(d.Work), Update)
			if err := undisturbed(t, work); err != nil {
				t.Logf("caught by the undisturbed run: %.300v", err)
				return
			}
			for i, c := range cases[work] {
				o, err := c.Try(t.Context(), station, false)
				if err != nil {
					t.Fatal(err)
				}
				if len(o.Violations) > 0 {
					t.Logf("caught by case %d, %s: %.300s", i+1, c.Name, o.Violations[0])
					return
				}
			}
			t.Errorf("%s: nobody notices", d.What)
		})
	}
}

// spread changes the order, so that every step has its turn early.
func spread(cases []*Case) []*Case {
	const stride = 41
	var out []*Case
	for first := range stride {
		for i := first; i < len(cases); i += stride {
			out = append(out, cases[i])
		}
	}
	return out
}
