package sim

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"kamino.dev/kamino"
	"kamino.dev/kamino/engine"
	"kamino.dev/kamino/poolstate"
)

// addFormer makes pool a one that has the name of an earlier pool, of which a version is left:
// whole, offered, proved and sealed, as that of a former cluster is.
func (w *world) addFormer(name string) *simArtifact {
	w.pools[poolA].uid = "second"
	v := w.addVersion(poolA, name)
	v.OfFormer = true
	v.Tags = map[string]string{kamino.TagRun: "of-another-cluster", kamino.TagPoolUID: "first", kamino.TagBuiltFrom: "old-node", kamino.TagReceipt: "sha256:old",
		kamino.TagOffer: "offered", kamino.TagProof: "passed"}
	return v
}

// TestFormerPool: whatever a pool does, nothing of an earlier pool of its name becomes its next
// image, is withdrawn, marked or deleted.
func TestFormerPool(t *testing.T) {
	for reference, begin := range byReference() {
		for name, do := range map[string]func(*world, context.Context, *engine.Engine) error{
			"rollback": func(_ *world, ctx context.Context, e *engine.Engine) error {
				_, err := e.Rollback(ctx, engine.RollbackOptions{Pool: "a", KeepCustomData: true})
				return err
			},
			"withdraw": func(w *world, ctx context.Context, e *engine.Engine) error {
				_, err := e.WithdrawVersion(ctx, kamino.WithdrawOptions{Pool: "a", Version: "2026.03.09", Reason: "leaks a key"})
				return err
			},
			"auto-update": func(w *world, ctx context.Context, e *engine.Engine) error {
				o := autoOptions()
				o.History = 2
				_, err := e.AutoUpdate(ctx, o)
				return err
			},
			"restore": func(_ *world, ctx context.Context, e *engine.Engine) error {
				_, err := e.Restore(ctx, engine.RestoreOptions{})
				return err
			},
		} {
			for _, at := range []string{"2026.03.07", "2025.12.01"} { // the one that comes before, or the oldest
				t.Run(strings.Join([]string{reference, name, at}, " "), func(t *testing.T) {
					w := begin(1)
					for _, v := range w.versions(poolA) { // the pool has one version of its own
						if v.Name != "2026.03.09" {
							delete(w.artifacts, artifactKey(poolA, kamino.KindVersion, v.Name))
						}
					}
					former := w.addFormer(at)
					tags := former.Tags
					p := &proc{}
					w.spawn(p, func(ctx context.Context) { p.err = do(w, ctx, p.engine()) })
					w.wait()
					w.advance(w.now.Add(time.Hour))
					if next := w.bootsFrom(w.pools[poolA]); next == former.ID || slices.Contains(w.turns(), former.ID) {
						t.Errorf("the pool boots from %s, of an earlier pool (%v)", next, p.err)
					}
					left := w.version(at)
					if left == nil || left.Excluded || left.Tags[kamino.TagBad] != tags[kamino.TagBad] {
						t.Errorf("the version of the earlier pool was changed to %+v", left)
					}
				})
			}
		}
	}
}

// TestFormerVersionOfToday: a former cluster's version has today's name. It is not taken for the
// pool's own, and --again makes another beside it.
func TestFormerVersionOfToday(t *testing.T) {
	w := fresh(1)
	former := w.addFormer(kamino.VersionName(w.now))
	o := options("a-0")
	p := w.update(o)
	if p.err == nil || !strings.Contains(p.err.Error(), "earlier pool of this name") || !strings.Contains(kamino.Hint(p.err), "--again") {
		t.Fatalf("the update ended with %v", p.err)
	}
	o.Today = kamino.TodayAgain
	if p = w.update(o); p.err != nil || p.result.Version == former.Name || w.version(former.Name).Tags[kamino.TagRun] != "of-another-cluster" {
		t.Errorf("again: version %s, %v", p.result.Version, p.err)
	}
	w.sound(t)
}

// TestSameMachines: without a name, a rollback and a withdrawal take a version that boots on the
// machines that the pool has now.
func TestSameMachines(t *testing.T) {
	for part, other := range map[string]kamino.Machine{"architecture": {Architecture: "Arm64"}, "firmware": {Architecture: "x64", Generation: "V1"}} {
		t.Run(part, func(t *testing.T) {
			for _, withdraws := range []bool{false, true} {
				w := aged(1)
				for _, a := range w.artifacts {
					if a.Kind == kamino.KindVersion {
						a.Machine = other
					}
				}
				w.version("2026.03.09").Machine = kamino.Machine{Architecture: "x64", Generation: "V2"}
				w.version("2026.03.01").Machine = kamino.Machine{Architecture: "x64", Generation: "V2"}
				p := &proc{}
				w.spawn(p, func(ctx context.Context) {
					if withdraws {
						_, p.err = p.engine().WithdrawVersion(ctx, kamino.WithdrawOptions{Pool: "a", Version: "2026.03.09", Reason: "bad"})
						return
					}
					_, p.err = p.engine().Rollback(ctx, engine.RollbackOptions{Pool: "a"})
				})
				w.wait()
				if v := w.inUse(t); p.err != nil || v.Name != "2026.03.01" {
					t.Errorf("withdraws %t: the next image is %s, %v; want 2026.03.01", withdraws, v.Name, p.err)
				}
			}
		})
	}
}

// TestRollbackKeepsWhatPeopleAdded: the original comes back with what a promotion removed, and what
// people have added to the recipe since stays.
func TestRollbackKeepsWhatPeopleAdded(t *testing.T) {
	w := aged(1)
	w.pools[poolA].exts = append(w.pools[poolA].exts, "scanner")
	p := &proc{}
	w.spawn(p, func(ctx context.Context) {
		_, p.err = p.engine().Rollback(ctx, engine.RollbackOptions{Pool: "a", To: poolstate.ToOriginal, KeepCustomData: true, Secrets: kamino.Secrets{Protected: map[string]json.RawMessage{"cse": nil}}})
	})
	w.wait()
	exts := slices.Sorted(slices.Values(w.pools[poolA].exts))
	if p.err != nil || !slices.Equal(exts, []string{"cse", "monitor", "scanner"}) {
		t.Errorf("extensions %v, %v", exts, p.err)
	}
}

// TestLostInStandby: the pool counts one instance less since its donor was taken out of service.
// When the donor is deleted there, the run says so, with what to do.
func TestLostInStandby(t *testing.T) {
	w := aged(1)
	w.replaces = true
	capacity, said := w.pools[poolA].capacity, ""
	p := &proc{}
	p.tune = heard(func(ev kamino.Event) {
		if ev.Kind == kamino.EventWarning {
			said += ev.Message + "\n"
		}
	})
	w.startUpdate(p, options("a-0"))
	m := w.machines[w.nodes["a-0"].ProviderID]
	var strike func()
	strike = func() {
		if m.held == kamino.Held {
			w.DeleteMachine("a-0")
			return
		}
		w.after(time.Second, strike)
	}
	strike()
	w.wait()
	if w.pools[poolA].capacity != capacity-1 {
		t.Fatalf("the pool has %d instances, had %d", w.pools[poolA].capacity, capacity)
	}
	if !strings.Contains(said, "set its capacity to 3") {
		t.Errorf("nothing says that the pool has one instance less (%v):\n%s", p.err, said)
	}
}
