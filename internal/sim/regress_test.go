package sim

import (
	"strings"
	"testing"
	"time"

	"kamino.dev/kamino"
	"kamino.dev/kamino/internal/worlds"
)

// A regression is a story in which a walk or a trial once found a promise
// broken, told without the seed, so that it stays the same when walks change.
type regression struct {
	name  string
	found string // what went wrong
	world func(uint64) *world
	// strike draws the faults of the first run; at finds the call at which one is
	// to strike: the n-th of that step and method in the golden run, -1 the last.
	strike func(at func(step, method string, n int) int, w *world) []fault
	// second, if set, is what the next process meets while it runs.
	second func(at func(step, method string, n int) int, w *world) []fault
	others bool // somebody else's run ends the story, who asked for no new nodes
	after  func(t *testing.T, w *world, first *proc)
}

func rivalNamed(name string) *rival {
	for _, r := range rivals("a-0", "a-1") {
		if r.Name == name {
			return r
		}
	}
	panic("no rival " + name)
}

func meets(name string, at int) fault {
	return fault{kind: worlds.RivalActs, at: at, rival: rivalNamed(name)}
}

type finder = func(step, method string, n int) int

var regressions = []regression{
	{name: "lease touched while it is freed", found: "the run ended well and kept its lease",
		strike: func(at finder, _ *world) []fault {
			return []fault{{kind: worlds.Precondition, at: at("prune", "SetLease", -1)}}
		}},
	{name: "interrupted just after the lease was taken", found: "the lease stayed until it was adopted",
		strike: func(at finder, _ *world) []fault {
			return []fault{{kind: worlds.Interrupted, at: at("lock", "SetLease", 1) + 1}}
		},
		after: func(t *testing.T, w *world, _ *proc) {
			if l := w.leases[poolA]; l.Holder != "" {
				t.Errorf("the lease is held by %s", l.Holder)
			}
		}},
	{name: "taking the lease is answered with an error although it worked", found: "the lease stayed until it was adopted",
		strike: func(at finder, _ *world) []fault {
			return []fault{{kind: worlds.FalseFailure, at: at("lock", "SetLease", 1)}}
		},
		after: func(t *testing.T, w *world, _ *proc) {
			if l := w.leases[poolA]; l.Holder != "" {
				t.Errorf("the lease is held by %s", l.Holder)
			}
		}},
	{name: "model written, then the run fails", found: "the run after it asked for no new nodes",
		strike: func(at finder, _ *world) []fault {
			return []fault{{kind: worlds.Unknown, at: at("model", "Promote", 1) + 1}}
		}},
	{name: "new nodes asked for, then the run fails", found: "the run after it could ask again",
		strike: func(at finder, _ *world) []fault {
			return []fault{{kind: worlds.Unknown, at: at("scale-out", "SetCapacity", 1) + 1}}
		}},
	{name: "donor started between the last look and the snapshot", found: "a snapshot of a disk in use was built into a version",
		strike: func(at finder, _ *world) []fault {
			return []fault{meets("a person starts the donor", at("snapshot", "Create snapshot", 1)-1)}
		}},
	{name: "frozen between the look and the seal, the instance replaced meanwhile", found: "a machine that was not the donor was sealed",
		strike: func(at finder, _ *world) []fault {
			// What was announced is too old after a moment: the lease is written anew.
			n := at("seal", "Seal", 1)
			return []fault{meets("this process is frozen for a moment", n-1), meets("the instance is replaced while this process is frozen", n)}
		}},
	{name: "the definition cannot be made at first", found: "no later run mended it", world: fresh,
		strike: func(at finder, _ *world) []fault {
			return []fault{{kind: worlds.OperationFailed, at: at("definition", "Create image definition", 1)}}
		}},
	{name: "Kubernetes asks for silence, then the run fails", found: "the failure was written on the lease too early",
		strike: func(at finder, w *world) []fault {
			w.machines[w.nodes["a-0"].ProviderID].Fate = worlds.SealIsMute
			return []fault{{kind: worlds.Throttled, at: at("seal", "SetLease", -1)}}
		}},
	{name: "Kubernetes asks for silence while the run goes on", found: "the next intent was written too early",
		strike: func(at finder, _ *world) []fault {
			return []fault{{kind: worlds.Throttled, at: at("seal", "SetLease", -1)}}
		}},
	{name: "Kubernetes asks for silence when the lost lease is read", found: "the failure was written too early", others: true,
		strike: func(at finder, _ *world) []fault {
			n := at("snapshot", "Find snapshot", 5)
			return []fault{meets("a second kamino while this process is frozen", n), {kind: worlds.Throttled, at: n + 2}}
		}},
	{name: "the pool is refused after its model was written", found: "new nodes were asked for in a pool that must not be touched",
		strike: func(at finder, _ *world) []fault {
			return []fault{meets("the pool becomes one that must not be touched", at("scale-out", "Pool", 1))}
		}},
	{name: "our annotation removed after the snapshot", found: "the steps that give back were skipped",
		strike: func(at finder, _ *world) []fault {
			return []fault{meets("a person removes our annotation", at("snapshot", "Find snapshot", -1))}
		}},
	{name: "our annotation removed while the lease is watched", found: "the adopted run went on with a donor that was not marked",
		strike: func(at finder, _ *world) []fault {
			return []fault{{kind: worlds.KillAfter, at: at("snapshot", "Create snapshot", 1)}}
		},
		second: func(finder, *world) []fault { return []fault{meets("a person removes our annotation", 20)} }},
	{name: "sealed, killed, started by a person", found: "a disk that had booted since was taken for sealed",
		strike: func(at finder, w *world) []fault {
			w.machines[w.nodes["a-0"].ProviderID].Fate = worlds.NeverBoots // boots, but its kubelet is silent
			return []fault{{kind: worlds.KillAfter, at: at("stop", "Instance", 1)}}
		},
		second: func(finder, *world) []fault { return []fault{meets("a person starts the donor", 40)} }},
}

// TestRegressions tells each story, and then expects of a clean run all that is
// promised.
func TestRegressions(t *testing.T) {
	for _, r := range regressions {
		t.Run(strings.ReplaceAll(r.name, " ", "-"), func(t *testing.T) {
			if r.world == nil {
				r.world = aged
			}
			golden := &proc{logging: true}
			w := r.world(1)
			w.startUpdate(golden, goldenOptions())
			w.wait()
			at := func(step, method string, n int) int { return nth(t, golden.log, step, method, n) }
			w = r.world(1)
			w.tracing = true
			first := w.update(goldenOptions(), r.strike(at, w)...)
			if r.after != nil {
				r.after(t, w, first)
			}
			if r.second != nil {
				w.update(goldenOptions(), r.second(at, w)...)
			}
			w.mend()
			w.advance(w.now.Add(time.Minute))
			o := goldenOptions()
			o.Donor = w.anyDonor()
			if p := w.updateAsTold(o); p.err != nil {
				t.Errorf("once, %s; now a clean run fails: %v", r.found, p.err)
			}
			if n := w.pools[poolA].capacity; n != 4 && !r.others {
				t.Errorf("the pool has capacity %d, 4 were asked for", n)
			}
			w.sound(t)
		})
	}
}

// nth is the index of a call of the golden run.
func nth(t *testing.T, log []site, step, method string, n int) int {
	t.Helper()
	var all []int
	for _, s := range log {
		if s.step == step && s.call.method == method {
			all = append(all, s.at)
		}
	}
	if n < 0 {
		n += len(all) + 1
	}
	if n < 1 || n > len(all) {
		t.Fatalf("the golden run makes %d calls %s in step %s, not %d", len(all), method, step, n)
	}
	return all[n-1]
}

// TestNextDay: a run that had nothing to do was killed, and adopted the next day. It must not hold
// that day to its own version.
func TestNextDay(t *testing.T) {
	sites, _ := golden(t, aged)
	w := aged(1)
	if p := w.update(goldenOptions()); p.err != nil {
		t.Fatal(p.err)
	}
	w.update(goldenOptions(), fault{kind: worlds.KillAfter, at: nth(t, sites, "lock", "SetLease", 1)})
	if w.leases[poolA].Holder == "" {
		t.Fatal("the process was killed, and its lease is free")
	}
	w.advance(w.now.Add(24 * time.Hour))
	p := w.update(goldenOptions())
	if image := w.pools[poolA].image; p.err != nil || !strings.HasSuffix(image, kamino.VersionName(w.now)) {
		t.Errorf("the model refers to %s on %s: %v", image, w.now, p.err)
	}
	w.sound(t)
}

// TestThrottledDrain: silence that the API server asks for is not the drain's time. Once it was,
// and a drain gave up although every pod was leaving.
func TestThrottledDrain(t *testing.T) {
	sites, _ := golden(t, aged)
	w, o := aged(1), goldenOptions()
	o.DrainTimeout = 10 * time.Minute
	if p := w.update(o, fault{kind: worlds.Throttled, at: nth(t, sites, "drain", "Evict", 1)}); p.err != nil {
		t.Errorf("the run failed: %v", p.err)
	}
	w.sound(t)
}
