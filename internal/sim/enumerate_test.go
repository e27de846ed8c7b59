package sim

import (
	"fmt"
	"iter"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"kamino.dev/kamino"
	"kamino.dev/kamino/internal/sweep"
	"kamino.dev/kamino/internal/worlds"
)

// goldenOptions is the longest happy run: everything happens in it.
func goldenOptions() kamino.Options {
	o := options("a-0")
	o.NewNodes = 1
	return o
}

// golden plays the run without faults in a world, and lists its sites.
func golden(t *testing.T, begin func(uint64) *world) (sites []site, w *world) {
	t.Helper()
	w = begin(1)
	p := w.startUpdate(&proc{logging: true}, goldenOptions())
	w.wait()
	if p.err != nil {
		t.Fatal(p.err)
	}
	w.sound(t)
	seen := map[string][]int{}
	for i, s := range p.log {
		key := s.step + s.call.method + s.call.subject
		seen[key] = append(seen[key], i)
	}
	for i, s := range p.log {
		same := seen[s.step+s.call.method+s.call.subject]
		if n := slices.Index(same, i); n < 2 || n == len(same)-1 || s.step == "seal" {
			sites = append(sites, s)
		}
	}
	return sites, w
}

// end is what is left of a world, without what depends on IDs and times.
func (w *world) end() string {
	var lines []string
	for id, p := range w.pools {
		lines = append(lines, fmt.Sprintf("pool %s: %s %s %v, capacity %d", id.Name(), lastSegment(p.image), p.custom, p.exts, p.capacity))
	}
	for _, n := range w.nodes {
		lines = append(lines, fmt.Sprintf("node %s: ready %v, cordoned %v, taints %v, annotations %d", n.Name, n.Ready, n.Unschedulable, n.Taints, len(n.Annotations)))
	}
	for _, v := range w.artifacts {
		lines = append(lines, fmt.Sprintf("%s %s: %s, ready %v, excluded %v, %s, from %s", v.Kind, v.Name, v.State, v.Ready, v.Excluded, v.Storage, v.Tags[kamino.TagBuiltFrom]))
	}
	for _, l := range w.leases {
		former, original := "", ""
		if l.Ledger.Former != nil {
			former = lastSegment(l.Ledger.Former.Image)
		}
		if l.Ledger.Original != nil {
			original = l.Ledger.Original.Image
		}
		lines = append(lines, fmt.Sprintf("lease of %s: held by %q, former %s, original %s", l.Pool.Name(), l.Holder, former, original))
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// single plays the trial, a clean run of the same command, and one more that
// must find nothing to do.
func (x trial) single() (w *world) {
	want := x.want
	f := fault{kind: x.kind, at: x.site.at, rival: x.rival}
	w = x.begin(1)
	if x.rival != nil && x.rival.midnight {
		w.now = w.now.Truncate(24 * time.Hour).Add(24*time.Hour - x.site.when.Sub(w.now))
	}
	first := w.startUpdate(&proc{faults: []fault{f}}, goldenOptions())
	w.wait()
	if x.rival != nil {
		if !x.rival.harms(x.site) && first.err != nil {
			w.audit.violate("I19", "the run fails although it could go on: %v", first.err)
		}
		w.mend()
	}
	w.blindUntil, w.vanished = time.Time{}, time.Time{} // somebody sets the credentials right
	w.advance(w.now.Add(time.Minute))
	o := goldenOptions()
	o.Donor = w.anyDonor()
	begun := w.now
	second := w.updateAsTold(o)
	w.audit.judge.Restored(begun, restoreTime)
	w.audit.judge.Ended(second.name, w.now.Sub(begun), cleanTime)
	if second.err != nil {
		w.audit.violate("I19", "a clean run after it fails: %v", second.err)
	}
	w.audit.settled()
	if got := w.turns(); x.rival == nil && !w.tagged && len(got) > 2 {
		w.audit.violate("I6", "the next instance boots from %v in turn", got)
	}
	if have := w.end(); have != want && want != "" {
		w.audit.violate("I19", "it does not end as the golden run does:\n%s\nwanted:\n%s\nfirst run: %v", have, want, first.err)
	}
	day, before := w.now.Day(), w.writes
	third := w.update(o)
	if third.err != nil {
		w.audit.violate("I19", "the second clean run fails: %v", third.err)
	} else if w.now.Day() == day {
		w.audit.judge.Idle(third.name, w.writes-before)
	}
	w.audit.settled()
	return w
}

// trial is one fault at one site.
type trial struct {
	begin func(uint64) *world
	site  site
	kind  worlds.Fault
	rival *rival
	want  string // how the world must end; "" any way
}

func (x trial) what() string {
	if x.rival != nil {
		return x.rival.Name
	}
	return string(x.kind)
}

func (x trial) String() string { return fmt.Sprintf("%s at %s", x.what(), x.site) }

// lies are all trials of the ways to die and to lie.
func lies(begin func(uint64) *world, sites []site, want string) (out []trial) {
	for _, s := range sites {
		for _, kind := range faults {
			if kind.Fits(s.call.is()) {
				out = append(out, trial{begin: begin, site: s, kind: kind, want: want})
			}
		}
	}
	return out
}

// faultsIn are the trials of the given kinds at the calls of the given steps.
func faultsIn(sites []site, kinds []worlds.Fault, steps ...string) (out []trial) {
	for _, kind := range kinds {
		for _, s := range sites {
			if kind.Fits(s.call.is()) && slices.Contains(steps, s.step) {
				out = append(out, trial{site: s, kind: kind})
			}
		}
	}
	return out
}

// encounters are all trials of what others can do, at the beginning of every
// step and before every write.
func encounters(begin func(uint64) *world, sites []site) (out []trial) {
	step := ""
	for _, s := range sites {
		if s.step == step && (!s.call.write || s.call.method == "SetLease") {
			continue
		}
		step = s.step
		for i := range rivals("a-0", "a-1") {
			// Each trial has a rival of its own: some remember.
			out = append(out, trial{begin: begin, site: s, kind: worlds.RivalActs, rival: rivals("a-0", "a-1")[i]})
		}
	}
	return out
}

// play sweeps the trials, and reports what went wrong. Each of the cells must have been met.
func play(t *testing.T, trials []trial, cells []string) {
	t.Helper()
	var away awayTimes
	met := counts{}
	cases := sweep.Cases(t, len(trials), 10*time.Second, func(i int) string { return trials[i].what() })
	bad := sideBySide(cases, func(i int) string {
		w := trials[i].single()
		away.add(trials[i].what(), w, trials[i].rival != nil && trials[i].rival.alone)
		met.add(w.hits)
		if len(w.audit.violations) == 0 {
			return ""
		}
		return fmt.Sprintf("%s:\n  %s", trials[i], strings.Join(w.audit.violations, "\n  "))
	})
	for _, b := range bad {
		t.Error(b)
	}
	met.require(t, cells)
	t.Logf("donor away %s", worlds.AwayOf(away.list))
	away.print(t)
	inReport(t, func(r *simReport) {
		r.Positions += len(trials)
		r.Violations += len(bad)
		r.away(&away)
		r.cells(&met, cells)
	})
}

// TestSingleFaults tries every way to die and every lie at every call of the
// golden run.
func TestSingleFaults(t *testing.T) {
	for _, begin := range modes {
		sites, w := golden(t, begin)
		t.Logf("%d sites of the golden run's %d calls", len(sites), len(w.calls))
		play(t, lies(begin, sites, w.end()), lieCells())
	}
}

// modes are the worlds of a pool that names versions, and of one that points at the definition.
var modes = []func(uint64) *world{aged, mixed}

// mixed is the world of pointing with versions of every kind: offered, of others, hidden, and
// withdrawn.
func mixed(seed uint64) *world {
	w := pointing(seed)
	w.version("2026.03.09").Tags[kamino.TagOffer] = "offered"
	w.addVersion(poolA, "2026.02.20").Tags = map[string]string{"team": "x"}
	hidden, withdrawn := w.addVersion(poolA, "2026.03.08"), w.addVersion(poolA, "2026.03.07")
	hidden.Excluded, hidden.Tags[kamino.TagOffer] = true, "hidden"
	withdrawn.Excluded, withdrawn.Tags[kamino.TagOffer], withdrawn.Tags[kamino.TagBad] = true, "withdrawn", "rolled back once"
	w.watchNext()
	return w
}

// TestSingleFaultsFirstRun tries them where a pool's first run differs from all
// later ones: it makes gallery and definition, and replaces the original model.
func TestSingleFaultsFirstRun(t *testing.T) {
	sites, w := golden(t, fresh)
	sites = slices.DeleteFunc(sites, func(s site) bool {
		return !slices.Contains([]string{"gallery", "definition", "model", "prune"}, s.step)
	})
	play(t, lies(fresh, sites, w.end()), nil)
}

// TestSingleRivals lets others interfere at every step and every write.
func TestSingleRivals(t *testing.T) {
	for _, begin := range modes {
		sites, _ := golden(t, begin)
		play(t, encounters(begin, sites), append(append(rivalCells(), limitCells()...), rivalLeaseDeleted))
	}
}

// lieCells name every way to die and to lie, rivalCells everything that others do.
func lieCells() (out []string) {
	for _, kind := range faults {
		out = append(out, string(kind))
	}
	return out
}

func rivalCells() (out []string) {
	for _, r := range rivals("a-0", "a-1") {
		out = append(out, "rival: "+r.Name)
	}
	return out
}

func limitCells() (out []string) {
	for _, by := range worlds.PodLimits() {
		out = append(out, cellLimited(by))
	}
	return out
}

// sideBySide plays the cases on two processors, and returns what went wrong with
// the first ten that failed.
func sideBySide(cases iter.Seq[int], play func(int) string) []string {
	// Worlds are small and short-lived: collecting them less often saves a fifth.
	defer debug.SetGCPercent(debug.SetGCPercent(400))
	var mu sync.Mutex
	var bad []string
	var group sync.WaitGroup
	for range 2 {
		group.Go(func() {
			for i := range cases {
				wrong := play(i)
				mu.Lock()
				if wrong != "" {
					bad = append(bad, wrong)
				}
				enough := len(bad) >= 10
				mu.Unlock()
				if enough {
					return
				}
			}
		})
	}
	group.Wait()
	return bad
}
