//go:build defects

package sim

import (
	"fmt"
	"strings"
	"testing"

	"kamino.dev/kamino"
)

// TestDefects switches on one defect after the other and looks who finds it:
// random walks, single faults, rivals.
func TestDefects(t *testing.T) {
	sites, w := golden(t, aged)
	want := w.end()
	told, met := lies(aged, sites), encounters(sites)
	caught := 0
	for _, d := range kamino.Defects {
		if err := kamino.SwitchDefect(d.Name); err != nil {
			t.Fatal(err)
		}
		by, found := hunt(d, told, met, want)
		if by == "" {
			t.Errorf("%s (%s): nobody notices", d.Name, d.What)
			continue
		}
		caught++
		first, _, _ := strings.Cut(found, "\n")
		t.Logf("%-24s %-4s %s: %s", d.Name, d.Like, by, first)
	}
	_ = kamino.SwitchDefect("")
	inReport(t, func(r *simReport) { r.Defects.Seeded, r.Defects.Caught = len(kamino.Defects), caught })
	fmt.Printf("defects: %d seeded, %d caught\n", len(kamino.Defects), caught)
}

// hunt looks for a first violation.
func hunt(d kamino.Defect, told, met []trial, want string) (by, found string) {
	walks := func(from, to uint64) bool {
		for seed := from; seed < to; seed++ {
			if v := ofKind(newWalk(seed).run(), d.By); v != "" {
				by, found = fmt.Sprintf("walk %d", seed), v
				return true
			}
		}
		return false
	}
	trials := func(list []trial, want, what string) bool {
		for i, x := range list {
			w := x.single(want)
			if v := ofKind(w.audit.violations, d.By); v != "" {
				by, found = fmt.Sprintf("%s %d", what, i), x.String()+": "+v
				return true
			}
		}
		return false
	}
	_ = walks(0, 50) || trials(told[:1], want, "fault") || trials(told, want, "fault") || trials(met, "", "rival") || walks(50, 8000)
	return by, found
}

// ofKind is the first violation of an invariant; "" means any.
func ofKind(violations []string, id string) string {
	for _, v := range violations {
		if id == "" || strings.HasPrefix(v, id+":") {
			return v
		}
	}
	return ""
}
