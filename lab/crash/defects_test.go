//go:build defects

package crash

import (
	"os"
	"testing"

	"kamino.dev/kamino"
)

// TestDefects switches on one known bad behaviour of the engine after the other:
// a harness that cannot fail proves nothing. KAMINO_DEFECT names one of them.
func TestDefects(t *testing.T) {
	goldens, err := Goldens(t.Context(), station)
	if err != nil {
		t.Fatal(err)
	}
	cases := spread(Enumerate(goldens))
	t.Cleanup(func() { _ = kamino.SwitchDefect("") })
	for _, d := range kamino.Defects {
		if only := os.Getenv("KAMINO_DEFECT"); only != "" && only != d.Name {
			continue
		}
		t.Run(d.Name, func(t *testing.T) {
			if err := kamino.SwitchDefect(d.Name); err != nil {
				t.Fatal(err)
			}
			// Some are found without any harm done.
			if _, err := Goldens(t.Context(), station); err != nil {
				t.Logf("caught by the undisturbed run: %.300v", err)
				return
			}
			for i, c := range cases {
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
