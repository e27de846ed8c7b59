package crash

import (
	"fmt"
	"os"
	"testing"
)

// TestSample tries a sample of all cases; KAMINO_CRASH=all tries them all.
func TestSample(t *testing.T) {
	sample := 24
	if os.Getenv("KAMINO_CRASH") == "all" {
		sample = 0
	} else if n := os.Getenv("KAMINO_CRASH"); n != "" {
		fmt.Sscan(n, &sample)
	}
	goldens, err := Goldens(t.Context(), station)
	if err != nil {
		t.Fatal(err)
	}
	report := &Report{Cells: map[Cell]int{}}
	err = report.try(t.Context(), []*Station{station}, spread(choose(Enumerate(goldens), Options{Sample: sample})), func(done, all int, o Outcome) {
		if o.Took.Seconds() > 5 || len(o.Violations) > 0 || !o.Hit || testing.Verbose() {
			fmt.Fprintf(os.Stderr, "%d/%d %.1fs %s hit=%v err=%v %q\n", done, all, o.Took.Seconds(), o.Case.Name, o.Hit, o.FirstErr, o.Violations)
		}
		if len(o.Violations) > 0 && os.Getenv("CRASH_LOGS") != "" {
			os.WriteFile(fmt.Sprintf("%s/%04d.log", os.Getenv("CRASH_LOGS"), done), []byte(o.Case.Name+"\n"+tail(o.History, 100000)), 0o644)
		}
	})
	if err != nil {
		t.Error(err)
	}
	report.sum()
	report.WriteText(os.Stderr, report.Summary())
	for _, f := range report.Summary().Failures {
		t.Errorf("%s: %q", f.Case, f.What)
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
