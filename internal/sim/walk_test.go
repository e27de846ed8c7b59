package sim

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"kamino.dev/kamino"
	"kamino.dev/kamino/engine"
	"kamino.dev/kamino/internal/sweep"
	"kamino.dev/kamino/internal/worlds"
	"kamino.dev/kamino/poolstate"
)

// A walk is drawn from its seed: a world, one to three processes that faults
// and rivals strike, and then clean ones that must bring everything in order.
type walk struct {
	seed  uint64
	w     *world
	rng   *rand.Rand
	notes []string // what was drawn, for people
	skew  bool
	tune  func(*engine.Engine)
	// proof is what all versions of the walk go through, and sick whether the clones of the first
	// life are.
	proof kamino.Proving
	sick  sickness
}

const walkCalls = 460 // calls of an update without faults, about

func newWalk(seed uint64) *walk {
	k := &walk{seed: seed, rng: rand.New(rand.NewPCG(seed, 2))}
	k.proof = options("").Proof
	if own := rand.New(rand.NewPCG(seed, 3)); own.IntN(2) == 0 {
		k.proof.Mode, k.proof.For, k.proof.Budget = kamino.ProveCanary, 2*time.Minute, 5*time.Minute
		if own.IntN(3) == 0 {
			k.sick = []sickness{mute, flaps, twin, lacking, noQuota}[own.IntN(5)]
		}
	}
	if k.proof.Mode == kamino.ProveCanary && rand.New(rand.NewPCG(seed, 5)).IntN(6) == 0 {
		k.proof.Promote = kamino.PromoteManual
		k.note("promotions are left to a person")
	}
	if k.rng.IntN(3) == 0 {
		k.w = fresh(seed)
	} else {
		k.w = modes[k.rng.IntN(len(modes))](seed)
	}
	if rand.New(rand.NewPCG(seed, 4)).IntN(3) == 0 {
		k.note("its pool replaces what is off in service")
		k.w.replaces = true
	}
	if rand.New(rand.NewPCG(seed, 6)).IntN(3) == 0 {
		k.note("a former pool of that name has left a version")
		k.w.addFormer("2025.12.01")
	}
	if k.w.sick = k.sick; k.proof.Mode == kamino.ProveCanary {
		k.note("versions are proved; wrong with clones: %q", k.sick)
	}
	if k.rng.IntN(4) == 0 {
		days := []string{"2026-03-10", "2026-03-31", "2026-12-31", "2027-02-28", "2028-02-28", "2028-02-29"}
		day, _ := time.Parse(time.DateOnly, days[k.rng.IntN(len(days))])
		k.w.now = day.Add(24*time.Hour - time.Duration(k.rng.IntN(1200))*time.Second)
		k.note("starts %s", k.w.now)
	}
	if k.rng.IntN(8) == 0 {
		k.note("a person had cordoned a-0")
		k.w.EditNode("a-0", func(n *kamino.Node) bool { n.Unschedulable = true; return true })
	}
	if k.rng.IntN(6) == 0 {
		value := []string{"true", "false"}[k.rng.IntN(2)]
		k.note("a person had protected a-0 with %q", value)
		k.w.protect("a-0", value)
	}
	if k.rng.IntN(5) == 0 {
		k.note("a person had pinned the model to an old version")
		k.w.pin("2026.2.9")
	}
	return k
}

func (k *walk) note(format string, args ...any) {
	k.notes = append(k.notes, fmt.Sprintf(format, args...))
}

// run plays the walk. It returns the world's violations.
func (k *walk) run() []string {
	lives := 1 + k.rng.IntN(3)
	for life := range lives {
		k.life(life)
		switch k.rng.IntN(8) {
		case 0:
			k.pass(24 * time.Hour)
		case 1, 2, 3:
			k.pass(time.Duration(k.rng.IntN(600)) * time.Second)
		}
	}
	k.w.mend()
	k.settle()
	return k.w.audit.violations
}

func (k *walk) pass(d time.Duration) {
	k.note("%s pass", d)
	k.w.advance(k.w.now.Add(d))
}

// life runs one process with faults.
func (k *walk) life(number int) {
	p := &proc{tune: k.tune}
	if number == 0 && k.rng.IntN(20) == 0 {
		p.skew = []time.Duration{-25 * time.Hour, 25 * time.Hour, -time.Hour, time.Hour}[k.rng.IntN(4)]
		k.skew = true
	}
	donor := "a-0"
	if number > 0 && k.rng.IntN(4) == 0 {
		donor = "a-1"
	}
	p.faults = k.draw(number, donor)
	o := options(donor)
	o.Proof = k.proof
	o.Force, o.AdoptModel = k.rng.IntN(10) == 0, k.rng.IntN(2) == 0
	if k.rng.IntN(4) == 0 {
		o.NewNodes = 1
	}
	what := fmt.Sprintf("update %s (force %v, new nodes %d)", donor, o.Force, o.NewNodes)
	if number > 0 && k.rng.IntN(4) == 0 {
		what = "restore"
		k.w.startRestore(p)
	} else {
		k.w.startUpdate(p, o)
	}
	k.note("%s, clock off by %s, faults %v", what, p.skew, p.faults)
	start := k.w.now
	k.w.wait()
	if took := k.w.now.Sub(start); took > 40*time.Hour {
		k.w.audit.violate("I18", "life %d took %s", number, took)
	}
}

func (k *walk) draw(number int, donor string) []fault {
	n := 1 + k.rng.IntN(3)
	if number > 0 {
		n = k.rng.IntN(3)
	}
	others := map[string]string{"a-0": "a-1", "a-1": "a-2"}
	list := rivals(donor, others[donor])
	var out []fault
	for range n {
		f := fault{at: k.rng.IntN(walkCalls)}
		if k.rng.IntN(2) == 0 {
			f.at = k.rng.IntN(160) // up to the snapshot, where most writes are
		}
		switch d := k.rng.IntN(10); {
		case d < 3:
			f.kind = faults[k.rng.IntN(4)] // the ways to die
		case d < 6:
			f.kind, f.rival = worlds.RivalActs, list[k.rng.IntN(len(list))]
		default:
			f.kind = faults[4+k.rng.IntN(len(faults)-4)]
		}
		out = append(out, f)
	}
	return out
}

// Limits of processes that nothing goes wrong for.
const (
	restoreTime = 20 * time.Minute // until a donor is back
	cleanTime   = 2 * time.Hour    // of an update, with what it finds
)

// settle runs clean processes: what is left must be given back, an update must
// work, and a second one must find nothing to do.
func (k *walk) settle() {
	w := k.w
	w.sick = healthy
	begun := w.now
	defer func() { w.audit.judge.Restored(begun, restoreTime) }()
	p := w.restore()
	if w.decide(p.found) && p.err == nil {
		p = w.restore()
	}
	if p.err != nil || p.crashed {
		w.audit.violate("I1", "a clean restore fails: %v", p.err)
	}
	w.audit.settled()
	o := options(w.anyDonor())
	o.Proof = k.proof
	started := w.now
	p = w.updateAsTold(o)
	w.audit.judge.Ended(p.name, w.now.Sub(started), cleanTime)
	if p.crashed {
		return // said so already: it did not end
	}
	if p.err != nil {
		if !k.skew || !strings.Contains(p.err.Error(), "this clock says") {
			w.audit.violate("I19", "a clean update fails: %v", p.err)
		}
		return
	}
	pool := w.pools[poolA]
	v := w.artifacts[artifactKey(poolA, kamino.KindVersion, p.result.Version)]
	left := k.proof.Promote == kamino.PromoteManual
	if left && (v == nil || !p.result.Waiting && w.bootsFrom(pool) != v.ID) {
		w.audit.violate("I15", "a clean update leaves its version to nobody: %+v", p.result)
	}
	if !left && (v == nil || v.State != kamino.Succeeded || w.bootsFrom(pool) != v.ID || pool.custom != "noop") {
		w.audit.violate("I15", "a clean update reports success, the next instance boots from %s", w.bootsFrom(pool))
	}
	w.audit.settled()
	before := w.writes
	// What a person pinned is refused again while nothing is promoted.
	if p := w.update(o); w.now.Day() == v.Created.Day() && (p.err != nil && !left || w.writes != before) {
		w.audit.violate("I19", "an update of the same day makes %d writes: %v", w.writes-before, p.err)
	}
	w.audit.settled()
	if k.rng.IntN(3) == 0 && !left {
		k.rollBack()
	}
}

// rollBack goes back to the model before the first prototype, and expects it as
// it was (I8).
func (k *walk) rollBack() {
	w, pool := k.w, k.w.pools[poolA]
	original := w.leases[poolA].Ledger.Original
	if original == nil && w.leaseDeleted {
		return // the way back went with it
	}
	if original == nil {
		w.audit.violate("I8", "after an update no original model is saved")
		return
	}
	p := &proc{}
	w.spawn(p, func(ctx context.Context) {
		_, p.err = p.engine().Rollback(ctx, engine.RollbackOptions{
			Pool: poolA.Name(), To: poolstate.ToOriginal, Secrets: kamino.Secrets{CustomData: []byte("bootstrap"),
				Protected: map[string]json.RawMessage{"cse": json.RawMessage(`{"command":"join"}`)}}})
	})
	w.wait()
	var want document
	_ = json.Unmarshal(original.Saved, &want)
	want.Custom = "bootstrap"
	if have := pool.document(); p.err != nil || have.Image != want.Image || have.Custom != want.Custom || !slices.Equal(have.Exts, want.Exts) {
		w.audit.violate("I8", "rolled back to the original, the model is %+v, not %+v: %v", have, want, p.err)
	}
	w.audit.settled()
}

// anyDonor is a node that can be a donor.
func (w *world) anyDonor() string {
	for _, name := range []string{"a-0", "a-1", "a-2"} {
		if n := w.nodes[name]; n != nil && w.machineOf(n) != nil && !n.Tainted(kamino.TaintDeleting) {
			return name
		}
	}
	return "a-2"
}

// report tells everything about a failed walk.
func report(t *testing.T, seed uint64) {
	t.Helper()
	k := newWalk(seed)
	k.w.tracing = true
	violations := k.run()
	t.Errorf("seed %d: %s\n  drawn:\n    %s\n  again with: WALK=%d go test -run TestWalk$ -v ./internal/sim",
		seed, strings.Join(violations, "\n  "), strings.Join(k.notes, "\n    "), seed)
}

// seedRange reads SEEDS: how many walks from 0, or FROM-TO; 10000 if unset. Whoever sets SEEDS wants
// all of them, else they are a sweep.
func seedRange(t *testing.T) (from, count int, chosen bool) {
	t.Helper()
	text := os.Getenv("SEEDS")
	if text == "" {
		return 0, 10000, false
	}
	if a, b, ok := strings.Cut(text, "-"); ok {
		to := 0
		if _, err := fmt.Sscan(a+" "+b, &from, &to); err == nil && from < to {
			return from, to - from, true
		}
	} else if n, err := strconv.Atoi(text); err == nil && n > 0 {
		return 0, n, true
	}
	t.Fatalf("SEEDS is %q; give a number, or two: SEEDS=10000, SEEDS=10000-20000", text)
	return 0, 0, false
}

// walks yields the seeds to play, at most most of them.
func walks(t *testing.T, most int, budget time.Duration) iter.Seq[int] {
	t.Helper()
	from, count, chosen := seedRange(t)
	count = min(count, most)
	if chosen {
		budget = time.Hour
	}
	cases := sweep.Cases(t, count, budget, nil)
	return func(yield func(int) bool) {
		for i := range cases {
			if !yield(from + i) {
				return
			}
		}
	}
}

// TestWalks plays random walks, side by side.
func TestWalks(t *testing.T) {
	met, played := counts{}, atomic.Int64{}
	bad := sideBySide(walks(t, math.MaxInt, 60*time.Second), func(seed int) string {
		k := newWalk(uint64(seed))
		wrong := k.run()
		met.add(k.w.hits)
		played.Add(1)
		if len(wrong) > 0 {
			return strconv.Itoa(seed)
		}
		return ""
	})
	var cells []string
	if played.Load() >= 1000 { // fewer need not meet everything
		cells = append(rivalCells(), rivalLeaseDeleted)
	}
	met.require(t, cells)
	for _, text := range bad {
		seed, _ := strconv.ParseUint(text, 10, 64)
		report(t, seed)
	}
	inReport(t, func(r *simReport) { r.Seeds += int(played.Load()); r.Violations += len(bad); r.cells(&met, cells) })
}

// TestWalk plays one walk, WALK, and prints its trace.
func TestWalk(t *testing.T) {
	seed, _ := strconv.ParseUint(os.Getenv("WALK"), 10, 64)
	k := newWalk(seed)
	k.w.tracing = true
	for _, v := range k.run() {
		t.Error(v)
	}
	if os.Getenv("WALK") != "" {
		t.Logf("%s\n%s", strings.Join(k.notes, "\n"), k.w.tail(5000))
	}
}

// TestWalkRepeats: the same seed gives the same trace.
func TestWalkRepeats(t *testing.T) {
	for seed := range uint64(50) {
		a, b := newWalk(seed), newWalk(seed)
		a.run()
		b.run()
		if a.w.digest != b.w.digest {
			t.Errorf("seed %d: two traces", seed)
		}
	}
}
