package sim

import (
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"kamino.dev/kamino/internal/sim/mutants"
	"kamino.dev/kamino/internal/sweep"
	"kamino.dev/kamino/internal/worlds"
)

// TestDefects puts one defect after the other into the engine and looks who finds it: random walks,
// single faults, rivals. The engine has none of them: where this binary holds no mutants, one is
// built that does, and plays the test. KAMINO_DEFECT names some of them,
// with commas between.
func TestDefects(t *testing.T) {
	if !mutants.Built() {
		mutants.Play(t)
		return
	}
	var trials []trial
	for _, begin := range modes {
		sites, w := golden(t, begin)
		trials = slices.Concat(trials, lies(begin, sites, w.end()), encounters(begin, sites))
	}
	// So that every kind of harm at every step has its turn early.
	rand.New(rand.NewPCG(1, 2)).Shuffle(len(trials), func(i, j int) { trials[i], trials[j] = trials[j], trials[i] })
	defects := Defects()
	if only := os.Getenv("KAMINO_DEFECT"); only != "" {
		defects = slices.DeleteFunc(defects, func(d Defect) bool { return !slices.Contains(strings.Split(only, ","), d.Name) })
	}
	played, caught := 0, 0
	for i := range sweep.Cases(t, len(defects), 60*time.Second, nil) {
		d := &defects[i]
		played++
		if err := Switch(d); err != nil {
			t.Fatal(err)
		}
		by, found := hunt(d, trials)
		if by == "" {
			t.Errorf("%s (%s): nobody notices", d.Name, d.What)
			continue
		}
		caught++
		first, _, _ := strings.Cut(found, "\n")
		t.Logf("%-24s %-4s %s: %s", d.Name, d.Like, by, first)
	}
	if err := Switch(nil); err != nil {
		t.Fatal(err)
	}
	inReport(t, func(r *simReport) { r.Defects = worlds.Defects{Seeded: played, Caught: caught} })
	fmt.Printf("defects: %d of %d played, %d caught\n", played, len(defects), caught)
}

// TestSeeded: there are as many as were promised, and each has a name of its own.
func TestSeeded(t *testing.T) {
	names := map[string]bool{}
	for _, d := range Defects() {
		names[d.Name] = d.What != ""
	}
	if n := len(Defects()); n < 55 || len(names) != n || names[""] {
		t.Errorf("%d defects, %d names", n, len(names))
	}
}

// hunt looks for a first violation.
func hunt(d *Defect, trials []trial) (by, found string) {
	walks := func(from, to int) bool {
		i, v := firstOf(to-from, func(i int) string { return ofKind(newWalk(uint64(from+i)).run(), d.By) })
		by, found = fmt.Sprintf("walk %d", from+i), v
		return v != ""
	}
	single := func() bool {
		i, v := firstOf(len(trials), func(i int) string {
			return ofKind(trials[i].single().audit.violations, d.By)
		})
		by, found = fmt.Sprintf("trial %d", i), trials[i].String()+": "+v
		return v != ""
	}
	for _, s := range stories {
		if wrong := s.play(); wrong != "" && (d.By == "" || strings.HasPrefix(wrong, d.By+":")) {
			return "story", s.name + ": " + wrong
		}
	}
	if walks(0, 25) || single() || walks(25, 8000) {
		return by, found
	}
	return "", ""
}

// firstOf plays 0 to n-1 until one goes wrong, a few at a time, and returns the first that did.
func firstOf(n int, play func(int) string) (int, string) {
	block := 4 * runtime.GOMAXPROCS(0)
	for from := 0; from < n; from += block {
		wrong := make([]string, min(block, n-from))
		var group sync.WaitGroup
		for i := range wrong {
			group.Go(func() { wrong[i] = play(from + i) })
		}
		group.Wait()
		for i, what := range wrong {
			if what != "" {
				return from + i, what
			}
		}
	}
	return 0, ""
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
