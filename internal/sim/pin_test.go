package sim

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"kamino.dev/kamino"
	"kamino.dev/kamino/engine"
	"kamino.dev/kamino/internal/worlds"
	"kamino.dev/kamino/poolstate"
)

// made is a world in which a run has made version 2026.03.10 of a-0, and a-2 was
// patched since.
func made(t *testing.T) *world {
	t.Helper()
	w := aged(1)
	if p := w.update(options("a-0")); p.err != nil {
		t.Fatal(p.err)
	}
	w.advance(w.now.Add(24 * time.Hour))
	w.patch("a-2", "2026-03-11T08:00:00Z")
	return w
}

func (w *world) status(t *testing.T) poolstate.PoolStatus {
	t.Helper()
	var out []poolstate.PoolStatus
	p := &proc{}
	w.spawn(p, func(ctx context.Context) {
		out, p.err = p.engine().Status(ctx, nil, []kamino.Signal{kamino.KuredLastPatch})
	})
	w.wait()
	if p.err != nil || len(out) != 1 {
		t.Fatalf("status: %+v, %v", out, p.err)
	}
	return out[0]
}

func (w *world) planPools(t *testing.T, o kamino.AutoOptions) poolstate.PoolPlan {
	t.Helper()
	var out []poolstate.PoolPlan
	p := &proc{}
	w.spawn(p, func(ctx context.Context) { out, p.err = p.engine().PlanPools(ctx, o) })
	w.wait()
	if p.err != nil || len(out) != 1 {
		t.Fatalf("plan: %+v, %v", out, p.err)
	}
	return out[0]
}

// TestPinned: an image that a person chose after a run of ours stays, whether a
// new one is needed or not, until somebody says otherwise.
func TestPinned(t *testing.T) {
	for _, patched := range []bool{true, false} {
		w := made(t)
		if !patched {
			w.patch("a-2", "2026-03-01T08:00:00Z")
		}
		w.pin("2026.03.05")
		if p, res := w.auto(autoOptions()); p.err != nil || !kamino.Has(res[0].Held, "pinned") || res[0].Action != poolstate.DoNothing {
			t.Errorf("auto-update: %+v, %v", res, p.err)
		}
		if plan := w.planPools(t, autoOptions()); !kamino.Has(plan.Held, "pinned") || plan.Action != poolstate.DoNothing {
			t.Errorf("plan: %+v", plan)
		}
		if pin := w.status(t).Pinned; pin == nil || lastSegment(pin.Image) != "2026.03.05" || lastSegment(pin.Wrote) != "2026.03.10" {
			t.Errorf("status: %+v", pin)
		}
		p := w.update(options("a-2"))
		var refused *kamino.RefusedError
		if !errors.As(p.err, &refused) || refused.Refusals[0].Code != "pinned" || !strings.Contains(p.err.Error(), "--adopt-model") {
			t.Errorf("update: %v", p.err)
		}
		if name := w.inUse(t).Name; name != "2026.03.05" {
			t.Errorf("a person pinned 2026.03.05, the model refers to %s", name)
		}
		o := options("a-2")
		o.AdoptModel = true
		if p := w.update(o); p.err != nil || w.inUse(t).Name != "2026.03.11" {
			t.Errorf("told to adopt the model, it refers to %s: %v", w.inUse(t).Name, p.err)
		}
		if w.status(t).Pinned != nil {
			t.Error("pinned still")
		}
		w.sound(t)
	}
}

// TestPinIsTheImage: that somebody changed anything else is no pin.
func TestPinIsTheImage(t *testing.T) {
	w := made(t)
	w.pools[poolA].exts = []string{"monitor", "antivirus"}
	if p, res := w.auto(autoOptions()); p.err != nil || w.inUse(t).Name != "2026.03.11" {
		t.Errorf("%+v, %v", res, p.err)
	}
	w.sound(t)
}

// TestInterruptedIsNoPin: a run that was killed anywhere, given back or not, does
// not look like a person.
func TestInterruptedIsNoPin(t *testing.T) {
	log := &proc{logging: true}
	w := made(t)
	w.startUpdate(log, options("a-2"))
	w.wait()
	for _, s := range log.log {
		if !s.call.write {
			continue
		}
		for _, restored := range []bool{false, true} {
			w := made(t)
			w.update(options("a-2"), fault{kind: worlds.KillAfter, at: s.at})
			w.advance(w.now.Add(20 * time.Minute))
			if restored {
				w.restore()
			}
			if p, res := w.auto(autoOptions()); p.err != nil || kamino.Has(res[0].Held, "pinned") {
				t.Errorf("killed at %s, restored %v: %+v, %v", s, restored, res, p.err)
			}
		}
	}
}

// TestPinnedMeanwhile: where a person chose an image while an interrupted run lay
// there, auto-update gives back what was taken and leaves the image.
func TestPinnedMeanwhile(t *testing.T) {
	w := killed("Create snapshot", 1)
	w.advance(w.now.Add(time.Hour))
	w.pin("2026.03.05")
	p, res := w.auto(autoOptions())
	if p.err != nil || w.inUse(t).Name != "2026.03.05" || res[0].Action != poolstate.DoFinish {
		t.Errorf("the model refers to %s: %+v, %v", w.inUse(t).Name, res, p.err)
	}
	w.sound(t)
}

// rolledBack is a world in which a version was rolled back with marks that fail.
type unmarkable struct {
	simProvider
	err error
}

func (u unmarkable) Withdraw(context.Context, kamino.Pool, string, kamino.Bad) error {
	return u.err
}

// TestRollbackUnmarked: a mark that cannot be written does not stop a rollback,
// is told, and does not let auto-update undo it.
func TestRollbackUnmarked(t *testing.T) {
	for _, failure := range []error{errors.New("Global storage account type does not match"), kamino.ErrUnavailable, kamino.ErrForbidden} {
		w := made(t)
		w.patch("a-2", "2026-03-01T08:00:00Z")
		var out engine.Rollback
		p := &proc{}
		p.tune = func(e *engine.Engine) { e.Provider = unmarkable{e.Provider.(simProvider), failure} }
		w.spawn(p, func(ctx context.Context) { out, p.err = p.engine().Rollback(ctx, engine.RollbackOptions{Pool: "a"}) })
		w.wait()
		if p.err != nil || w.inUse(t).Name != "2026.03.09" || len(out.Unmarked) != 1 || out.Unmarked[0].Version != "2026.03.10" {
			t.Errorf("%v: the model refers to %s: %+v, %v", failure, w.inUse(t).Name, out, p.err)
		}
		if p, res := w.auto(autoOptions()); p.err != nil || w.inUse(t).Name != "2026.03.09" {
			t.Errorf("%v: auto-update: %+v, %v", failure, res, p.err)
		}
		if v := w.status(t).Versions[0]; v.Bad == "" {
			t.Errorf("%v: status tells of %+v", failure, v)
		}
		out, err := w.rollback(t, engine.RollbackOptions{Pool: "a", To: "2026.03.09"})
		if v := w.version("2026.03.10"); err != nil || !out.Changed || v.Tags[kamino.TagBad] == "" || !v.Excluded || len(w.leases[poolA].Ledger.RolledBack) > 0 {
			t.Errorf("%v: again: %+v %+v, %v", failure, out, v, err)
		}
		if out, err := w.rollback(t, engine.RollbackOptions{Pool: "a", To: "2026.03.09"}); err != nil || out.Changed {
			t.Errorf("%v: once more: %+v, %v", failure, out, err)
		}
		w.sound(t)
	}
}

// TestRollbackKilled: a rollback that was killed anywhere is never undone once
// its model is written, and its repetition ends it.
func TestRollbackKilled(t *testing.T) {
	log := &proc{logging: true}
	w := made(t)
	w.spawn(log, func(ctx context.Context) { _, log.err = log.engine().Rollback(ctx, engine.RollbackOptions{Pool: "a"}) })
	w.wait()
	for _, s := range log.log {
		if s.step == "" {
			continue // what is read beforehand, in goroutines that cannot be killed here
		}
		for _, kind := range []worlds.Fault{worlds.KillAfter, worlds.Interrupted} {
			rollbackEnded(t, fault{kind: kind, at: s.at}, fmt.Sprint(s))
		}
	}
}

// rollbackEnded is a rollback that does not get to its end, an auto-update, and the rollback again.
func rollbackEnded(t *testing.T, f fault, s string) {
	t.Helper()
	const target = "2026.03.09"
	w := made(t)
	w.patch("a-2", "2026-03-01T08:00:00Z")
	_, _ = w.rollback(t, engine.RollbackOptions{Pool: "a", To: target}, f)
	before := w.inUse(t).Name
	w.advance(w.now.Add(5 * time.Minute))
	// Where the write was announced and not sent, the auto-update may bring it to its end.
	if p, _ := w.auto(autoOptions()); p.err != nil || w.inUse(t).Name != before && (f.kind != worlds.Interrupted || w.inUse(t).Name != target) {
		t.Errorf("%v at %s: the model referred to %s, after an auto-update to %s: %v", f.kind, s, before, w.inUse(t).Name, p.err)
	}
	_, err := w.rollback(t, engine.RollbackOptions{Pool: "a", To: target})
	if v := w.version("2026.03.10"); err != nil || w.inUse(t).Name != target || v.Tags[kamino.TagBad] == "" {
		t.Errorf("%v at %s, again: the model refers to %s, %+v: %v", f.kind, s, w.inUse(t).Name, v.Tags, err)
	}
	w.sound(t)
}

// TestRollbackToOriginalSettings: the settings that no provider shows are asked
// for, extension by extension, and written whenever they are given.
func TestRollbackToOriginalSettings(t *testing.T) {
	to := func(settings map[string]json.RawMessage) engine.RollbackOptions {
		return engine.RollbackOptions{Pool: "a", To: poolstate.ToOriginal, Secrets: kamino.Secrets{CustomData: []byte("bootstrap"), Protected: settings}}
	}
	cse := map[string]json.RawMessage{"cse": json.RawMessage(`{"commandToExecute":"join"}`)}
	w := made(t)
	before := w.allWrites()
	_, err := w.rollback(t, engine.RollbackOptions{Pool: "a", To: poolstate.ToOriginal})
	if err == nil || !strings.Contains(err.Error(), "custom data") || !strings.Contains(err.Error(), "extension cse") ||
		!strings.Contains(kamino.Hint(err), "--to original --custom-data FILE --protected-settings cse=FILE") || w.allWrites() != before {
		t.Errorf("without anything: not all is asked for at once: %v, hint %q; %d writes", err, kamino.Hint(err), w.allWrites()-before)
	}
	_, err = w.rollback(t, to(nil))
	if err == nil || !strings.Contains(err.Error(), "cse") || strings.Contains(err.Error(), "monitor") || !strings.Contains(kamino.Hint(err), "--protected-settings cse=FILE") ||
		w.allWrites() != before {
		t.Errorf("without settings: %v, hint %q; %d writes, extensions %v", err, kamino.Hint(err), w.allWrites()-before, w.pools[poolA].exts)
	}
	dry := to(nil)
	dry.DryRun = true
	if out, dryErr := w.rollback(t, dry); dryErr == nil || dryErr.Error() != err.Error() || kamino.Hint(dryErr) != kamino.Hint(err) || len(out.Needs) != 1 || out.Needs[0] != "cse" || !out.Changed {
		t.Errorf("dry-run: %+v, %v", out, dryErr)
	}
	out, err := w.rollback(t, to(map[string]json.RawMessage{"cse": nil}))
	if pool := w.pools[poolA]; err != nil || pool.image != baseLTS || len(pool.protected) > 0 {
		t.Errorf("with the word that none are needed: %+v, %v", out, err)
	}
	out, err = w.rollback(t, to(cse))
	if pool := w.pools[poolA]; err != nil || !out.Changed || pool.protected["cse"] != string(cse["cse"]) {
		t.Errorf("given later: %+v, settings %v, %v", out, pool.protected, err)
	}
	w.sound(t)
}

// hurried lists versions as services do: without a word on their replicas.
type hurried struct{ simProvider }

func (h hurried) Find(ctx context.Context, pool kamino.Pool, kind kamino.Kind, name string) ([]kamino.Artifact, error) {
	found, err := h.simProvider.Find(ctx, pool, kind, name)
	for i := range found {
		if name == "" {
			found[i].Ready = found[i].State == kamino.Succeeded
		}
	}
	return found, err
}

// TestUnreplicated: no model is pointed at a version that has no replica in the
// pool's region, by a rollback or by auto-update.
func TestUnreplicated(t *testing.T) {
	w := made(t)
	w.patch("a-2", "2026-03-01T08:00:00Z")
	v := w.version("2026.03.09")
	v.Ready, v.Failure = false, "not replicated to the pool's region"
	p := &proc{}
	p.tune = func(e *engine.Engine) { e.Provider = hurried{e.Provider.(simProvider)} }
	w.spawn(p, func(ctx context.Context) { _, p.err = p.engine().Rollback(ctx, engine.RollbackOptions{Pool: "a"}) })
	w.wait()
	if p.err == nil || !strings.Contains(p.err.Error(), "not replicated") || w.inUse(t).Name != "2026.03.10" {
		t.Errorf("rollback: %v, the model refers to %s", p.err, w.inUse(t).Name)
	}
	w.sound(t)

	// While its tags are written it may be told as not ready, too.
	v.Failure = ""
	w.after(10*time.Minute, func() { v.Ready = true })
	w.spawn(p, func(ctx context.Context) {
		_, p.err = p.engine().Rollback(ctx, engine.RollbackOptions{Pool: "a", DryRun: true})
	})
	if w.wait(); p.err != nil {
		t.Errorf("dry run beside a change of the version: %v", p.err)
	}
	w.spawn(p, func(ctx context.Context) { _, p.err = p.engine().Rollback(ctx, engine.RollbackOptions{Pool: "a"}) })
	if w.wait(); p.err != nil || w.inUse(t).Name != "2026.03.09" {
		t.Errorf("rollback beside a change of the version: %v, the model refers to %s", p.err, w.inUse(t).Name)
	}
	w.sound(t)

	w = interruptedInBuild(t)
	v = w.version("2026.03.10")
	for v.State != kamino.Succeeded {
		w.advance(w.now.Add(time.Minute))
	}
	v.Ready = false
	w.after(10*time.Minute, func() { v.Ready = true })
	w.DeleteSnapshot()
	var res []engine.PoolResult
	p = &proc{}
	p.tune = func(e *engine.Engine) { e.Provider = hurried{e.Provider.(simProvider)} }
	w.spawn(p, func(ctx context.Context) { res, p.err = p.engine().AutoUpdate(ctx, autoOptions()) })
	w.wait()
	if p.err != nil || res[0].Action != poolstate.DoModel || w.inUse(t).Name != "2026.03.10" {
		t.Errorf("auto-update: %+v, %v, the model refers to %s", res, p.err, w.inUse(t).Name)
	}
	w.sound(t)
}

// madeAnew is a cluster that was deleted and made anew under the same names, as by Terraform: no
// lease, a pool of the original recipe, and in the gallery the versions of the former cluster's
// nodes, whose disks join that one.
func madeAnew() string {
	w := fresh(1)
	old := w.addVersion(poolA, "2026.02.01")
	old.Tags = map[string]string{kamino.TagBuiltFrom: "gone-7", kamino.TagRun: "r-gone", kamino.TagReceipt: "sha256:gone", kamino.TagVM: "vm-gone",
		kamino.TagOffer: "offered", kamino.TagProof: "passed", kamino.TagBuiltAt: "2026-02-01 03:00:00.000000"}
	return w.nightLeaves(nightly(kamino.ProveCanary))
}

// chosenAndForgotten is a pool whose model a person took back to an image of their own, before the
// namespace of Kamino was deleted and made anew, as by helm uninstall.
func chosenAndForgotten() string {
	w := aged(1)
	if p := w.update(options("a-0")); p.err != nil {
		return p.err.Error()
	}
	w.advance(w.now.Add(24 * time.Hour))
	w.patch("a-2", "2026-03-11T08:00:00Z")
	w.pools[poolA].image, w.pools[poolA].custom = baseLTS, "bootstrap"
	delete(w.leases, poolA)
	return w.nightLeaves(autoOptions())
}

// nightLeaves plays a night that has to leave the image of the model, and say so.
func (w *world) nightLeaves(o kamino.AutoOptions) string {
	p := &proc{}
	var res []engine.PoolResult
	w.spawn(p, func(ctx context.Context) { res, p.err = p.engine().AutoUpdate(ctx, o) })
	w.wait()
	return unless(p.err == nil && w.pools[poolA].image == baseLTS && kamino.Has(res[0].Held, "foreign-model"),
		"the night ended %v, held by %v, and the model names %s", p.err, res[0].Held, lastSegment(w.pools[poolA].image))
}

// calls are those of a first update that nothing disturbs.
func calls(o kamino.Options) []site {
	golden := &proc{logging: true}
	w := fresh(1)
	w.startUpdate(golden, o)
	w.wait()
	return golden.log
}

// TestHalfPromoted: a run is killed anywhere in the step that writes a pool's first model, and a
// restore ends it. The model still has its original image, which nobody chose since: the next night
// uses the version.
func TestHalfPromoted(t *testing.T) {
	for _, tagged := range []bool{true, false} {
		begin := func() *world { w := fresh(1); w.tagged = tagged; return w }
		o := options("a-0")
		tried := 0
		for _, s := range calls(o) {
			if s.step != "model" || !s.call.write {
				continue
			}
			for _, kind := range []worlds.Fault{worlds.KillBefore, worlds.KillUnheard} {
				tried++
				w := begin()
				w.update(o, fault{kind: kind, at: s.at})
				back := w.restore()
				w.advance(w.now.Add(30 * time.Minute))
				night := autoOptions()
				p, res := w.auto(night)
				if back.err != nil || p.err != nil || len(res) != 1 || len(res[0].Held) > 0 || w.pools[poolA].image == baseLTS {
					t.Errorf("tagged %t, %s at %s: restore ended %v, the night %v, %+v; the model names %s", tagged, kind, s, back.err, p.err, res, lastSegment(w.pools[poolA].image))
				}
				w.sound(t)
			}
		}
		if tried < 4 {
			t.Errorf("tagged %t: only %d places", tagged, tried)
		}
	}
}

// TestHalfPromotedTakenBack: as TestHalfPromoted, where the write took effect, and a person takes
// the model back to its former image by other means, before the restore, after it, or without one:
// of a pool's first promotion and of a later one. That was a choice, which neither a night nor an
// update undoes that nobody told to.
func TestHalfPromotedTakenBack(t *testing.T) {
	for name, made := range map[string]func(uint64) *world{"first": fresh, "later": aged} {
		for _, tagged := range []bool{true, false} {
			begin := func(seed uint64) *world { w := made(seed); w.tagged = tagged; return w }
			o := options("a-0")
			golden := &proc{logging: true}
			w := begin(1)
			w.startUpdate(golden, o)
			w.wait()
			tried := 0
			for _, s := range golden.log {
				if s.step != "model" || s.call.method != "Promote" {
					continue
				}
				for _, kind := range []worlds.Fault{worlds.KillAfter, worlds.KillUnheard} {
					for _, restore := range []string{"before", "after", "never"} {
						w := begin(1)
						former, custom := w.pools[poolA].image, w.pools[poolA].custom
						w.update(o, fault{kind: kind, at: s.at})
						if w.pools[poolA].image == former {
							continue // it offered the version
						}
						tried++
						if restore == "before" {
							w.restore()
						}
						w.advance(w.now.Add(time.Hour))
						w.pools[poolA].image, w.pools[poolA].custom, w.pools[poolA].revision = former, custom, w.next()
						w.advance(w.now.Add(time.Hour))
						if restore == "after" {
							w.restore()
						}
						night := autoOptions()
						w.auto(night)
						p, res := w.auto(night)
						if p.err != nil || len(res) != 1 || !kamino.Has(res[0].Held, "pinned") || w.pools[poolA].image != former {
							t.Errorf("%s, tagged %t, restored %s, %s at %s: the night ended %v, %+v; the model names %s", name, tagged, restore, kind, s, p.err, res, lastSegment(w.pools[poolA].image))
						}
						if by := w.update(o); by.err == nil || w.pools[poolA].image != former {
							t.Errorf("%s, tagged %t, restored %s, %s at %s: an update ended %v; the model names %s", name, tagged, restore, kind, s, by.err, lastSegment(w.pools[poolA].image))
						}
						told := o
						told.AdoptModel = true
						if by := w.update(told); by.err != nil || w.pools[poolA].image == former {
							t.Errorf("%s, tagged %t, restored %s, %s at %s: an update that was told to ended %v; the model names %s", name, tagged, restore, kind, s, by.err, lastSegment(w.pools[poolA].image))
						}
						w.sound(t)
					}
				}
			}
			if tried < 6 {
				t.Errorf("%s, tagged %t: only %d places", name, tagged, tried)
			}
		}
	}
}

// TestRefusedWriteIsNoPin: a run may not write the model, and ends. The model has its former image,
// and an autoscaler has written the pool since: that is nobody's choice, since the run knows that
// its write was refused, and the next night writes.
func TestRefusedWriteIsNoPin(t *testing.T) {
	for name, begin := range map[string]func(uint64) *world{"first": fresh, "later": aged} {
		o := options("a-0")
		golden := &proc{logging: true}
		w := begin(1)
		w.startUpdate(golden, o)
		w.wait()
		w = begin(1)
		former := w.pools[poolA].image
		p := w.update(o, fault{kind: worlds.Forbidden, at: nth(t, golden.log, "model", "Promote", 1)})
		if p.err == nil || w.pools[poolA].image != former {
			t.Fatalf("%s: the update ended %v", name, p.err)
		}
		w.advance(w.now.Add(time.Hour))
		w.pools[poolA].capacity, w.pools[poolA].revision = w.pools[poolA].capacity+1, w.next()
		night, res := w.auto(autoOptions())
		if night.err != nil || len(res) != 1 || len(res[0].Held) > 0 || w.pools[poolA].image == former {
			t.Errorf("%s: the night ended %v, %+v; the model names %s", name, night.err, res, lastSegment(w.pools[poolA].image))
		}
	}
}
