package sim

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"kamino.dev/kamino"
	"kamino.dev/kamino/internal/worlds"
)

// poolProof are options of an update that proves in the pool, however that refers to its image.
func poolProof() kamino.Options {
	o := proving()
	o.ImageReference, o.Proof.Mode = "", kamino.ProvePool
	return o
}

// nightly is an auto-update with such a proof.
func nightly(mode kamino.ProveMode) kamino.AutoOptions {
	o := unsetAuto()
	o.Proof = proving().Proof
	o.Proof.Mode = mode
	return o
}

// seconds are what comes after a run that was killed.
var seconds = map[string]func(*world) *proc{
	"the same command": func(w *world) *proc { return w.update(poolProof()) },
	"another donor": func(w *world) *proc {
		o := poolProof()
		o.Donor, o.Today = "a-2", kamino.TodayAgain
		return w.update(o)
	},
	"restore":          func(w *world) *proc { return w.restore() },
	"a night, canary":  func(w *world) *proc { p, _ := w.auto(nightly(kamino.ProveCanary)); return p },
	"a night, pool":    func(w *world) *proc { p, _ := w.auto(nightly(kamino.ProvePool)); return p },
	"a night, none":    func(w *world) *proc { p, _ := w.auto(nightly(kamino.ProveNone)); return p },
	"restore, a night": func(w *world) *proc { w.restore(); p, _ := w.auto(nightly(kamino.ProveNone)); return p },
}

// unprovedNext is what nodes boot from, where that is a version of ours that has passed nothing.
func (w *world) unprovedNext() string {
	v := w.version(birth(w))
	if v == nil || v.Tags[kamino.TagRun] == "" || v.Tags[kamino.TagProof] == "passed" {
		return ""
	}
	return v.Name
}

// TestProvePoolKilled: a version that a killed run had promoted to be proved in the pool does not
// stay the pool's image without a proof: what comes next goes on with it or takes it back, by
// version and where the pool points. A bad one never stays.
func TestProvePoolKilled(t *testing.T) {
	for reference, begin := range byReference() {
		for _, sick := range []sickness{healthy, mute} {
			log := &proc{logging: true}
			w := begin(1)
			w.sick = sick
			w.startUpdate(log, poolProof())
			w.wait()
			for i, s := range log.log {
				if i == 0 || !log.log[i-1].call.write || !slices.Contains([]string{"image", "model", "scale-out", "watch", "mark", "clean", "prune", "retire"}, s.step) {
					continue
				}
				for second, do := range seconds {
					w := begin(1)
					w.sick = sick
					w.startUpdate(&proc{faults: []fault{{kind: worlds.KillBefore, at: s.at}}}, poolProof())
					w.wait()
					fresh := kamino.VersionName(w.now)
					w.advance(w.now.Add(5 * time.Minute))
					p := do(w)
					w.advance(w.now.Add(time.Minute))
					if got := w.unprovedNext(); got != "" {
						t.Errorf("%s, clones %q, killed before %s, then %s: %v; nodes boot from %s, which was not proved", reference, sick, s, second, p.err, got)
					}
					if v := w.version(fresh); sick != healthy && birth(w) == fresh {
						t.Errorf("%s, killed before %s, then %s: %v; nodes boot from the bad one: %v", reference, s, second, p.err, v.Tags)
					}
					w.kept(t, fmt.Sprintf("%s, killed before %s, then %s", reference, s, second))
				}
			}
		}
	}
}

// kept fails where a withdrawn version is what nodes boot from.
func (w *world) kept(t *testing.T, what string) {
	t.Helper()
	if v := w.version(birth(w)); v == nil || v.Tags[kamino.TagBad] != "" {
		t.Errorf("%s: nodes boot from %s, %+v", what, birth(w), v)
	}
}

// watchKilled is a world in which a run was killed while it watched the first node of its version.
func watchKilled(begin func(uint64) *world) *world {
	w := begin(1)
	p := &proc{}
	p.tune = heard(func(ev kamino.Event) {
		if ev.Step == "watch" && ev.Kind == kamino.StepStarted {
			p.dying = true
		}
	})
	w.startUpdate(p, poolProof())
	w.wait()
	w.advance(w.now.Add(5 * time.Minute))
	return w
}

// TestTrialTold: status tells of a version whose proof in the pool did not end, and so does
// restore, which takes it back.
func TestTrialTold(t *testing.T) {
	for reference, begin := range byReference() {
		w := watchKilled(begin)
		fresh := kamino.VersionName(w.now)
		if v := w.status(t).Versions[0]; v.Name != fresh || v.Life != kamino.LifePromoted || v.Proof != "abandoned" {
			t.Errorf("%s: status: %+v", reference, v)
		}
		p := w.restore()
		told := slices.ContainsFunc(p.found, func(l kamino.Left) bool { return strings.Contains(l.What, fresh) && l.Done != "" })
		w.advance(w.now.Add(time.Minute))
		if p.err != nil || !told || birth(w) != "2026.03.09" || w.version(fresh).Tags[kamino.TagBad] == "" {
			t.Errorf("%s: restore: %v, %+v; nodes boot from %s", reference, p.err, p.found, birth(w))
		}
		if p := w.restore(); len(p.found) > 0 {
			t.Errorf("%s: the second restore: %+v", reference, p.found)
		}
		w.sound(t)
	}
}

// TestTrialMoved: where somebody else has changed what new nodes boot from since, that stays, and
// it is told.
func TestTrialMoved(t *testing.T) {
	for reference, begin := range byReference() {
		for second, do := range map[string]func(*world, *proc) *proc{
			"restore": func(w *world, p *proc) *proc { w.startRestore(p); w.wait(); return p },
			"update":  func(w *world, p *proc) *proc { w.startUpdate(p, poolProof()); w.wait(); return p },
		} {
			w := watchKilled(begin)
			v := w.version(kamino.VersionName(w.now))
			if reference == "by version" {
				w.pin("2026.03.05")
				w.pools[poolA].revision = w.next()
			} else {
				v.Excluded = true
			}
			was, told := birth(w), false
			do(w, &proc{tune: heard(func(ev kamino.Event) {
				told = told || ev.Kind == kamino.Warned && strings.Contains(ev.Message, "someone else has changed since")
			})})
			w.advance(w.now.Add(time.Minute))
			if birth(w) != was || v.Tags[kamino.TagBad] != "" || !told {
				t.Errorf("%s, %s: nodes boot from %s, and did from %s; %v; told: %t", reference, second, birth(w), was, v.Tags, told)
			}
		}
	}
}

// TestTrialDecided: a person who promotes the version by its name takes it as it is; one who
// withdraws it, or goes back, ends the matter too.
func TestTrialDecided(t *testing.T) {
	for reference, begin := range byReference() {
		for verb, do := range map[string]func(w *world, version string) error{
			"promote": func(w *world, v string) error {
				_, err := w.promote(kamino.PromoteOptions{Pool: "a", Version: v})
				return err
			},
			"withdraw": func(w *world, v string) error {
				_, p := w.withdraw(kamino.WithdrawOptions{Pool: "a", Version: v, Reason: "bad"})
				return p.err
			},
			"rollback": func(w *world, _ string) error { _, err := w.rollback(t, kamino.RollbackOptions{Pool: "a"}); return err },
		} {
			w := watchKilled(begin)
			fresh := kamino.VersionName(w.now)
			if err := do(w, fresh); err != nil {
				t.Errorf("%s, %s: %v", reference, verb, err)
			}
			w.advance(w.now.Add(time.Minute))
			got := birth(w)
			if (got == fresh) != (verb == "promote") {
				t.Errorf("%s, %s: nodes boot from %s", reference, verb, got)
			}
			if p := w.restore(); p.err != nil || len(p.found) > 0 || birth(w) != got {
				t.Errorf("%s, %s: a restore after it: %v, %+v; nodes boot from %s", reference, verb, p.err, p.found, birth(w))
			}
		}
	}
}

// TestProvePoolEnded: a run that was told to end leaves the proof to the next one.
func TestProvePoolEnded(t *testing.T) {
	for reference, begin := range byReference() {
		w := begin(1)
		p := &proc{}
		p.tune = heard(func(ev kamino.Event) {
			if ev.Step == "watch" && ev.Kind == kamino.StepWaiting {
				p.cancel()
			}
		})
		w.startUpdate(p, poolProof())
		w.wait()
		fresh := kamino.VersionName(w.now)
		if w.unprovedNext() != fresh {
			t.Fatalf("%s: %v; nodes boot from %s", reference, p.err, birth(w))
		}
		w.advance(w.now.Add(24 * time.Hour))
		capacity := w.pools[poolA].capacity
		night, res := w.auto(nightly(kamino.ProveCanary))
		if v := w.version(fresh); night.err != nil || birth(w) != fresh || v.Tags[kamino.TagProof] != "passed" || w.pools[poolA].capacity != capacity {
			t.Errorf("%s: a night after: %v, %+v; nodes boot from %s, %v; capacity %d, was %d", reference, night.err, res, birth(w), v.Tags, w.pools[poolA].capacity, capacity)
		}
		if l := w.leases[poolA].Ledger; l.Trial != "" {
			t.Errorf("%s: the ledger goes on naming %s", reference, l.Trial)
		}
		w.sound(t)
	}
}

// TestAdopterKeepsProof: who takes over a run that was to prove its version proves it too, or
// leaves it hidden, whatever it was told.
func TestAdopterKeepsProof(t *testing.T) {
	o := proving()
	o.ImageReference = ""
	unproved := func() kamino.Options { u := options("a-0"); u.ImageReference = ""; return u }
	for reference, begin := range byReference() {
		for _, sick := range []sickness{healthy, mute} {
			log := &proc{logging: true}
			w := begin(1)
			w.sick = sick
			w.startUpdate(log, o)
			w.wait()
			for _, s := range log.log {
				if !s.call.write || s.step == "lock" || s.step == "connect" {
					continue
				}
				for second, do := range map[string]func(*world) *proc{
					"a night":          func(w *world) *proc { p, _ := w.auto(nightly(kamino.ProveNone)); return p },
					"restore, a night": seconds["restore, a night"],
					"the same command": func(w *world) *proc { return w.update(unproved()) },
				} {
					for _, kind := range []worlds.Fault{worlds.KillAfter, worlds.Interrupted} {
						if kind == worlds.Interrupted && (s.step != "image" || second == "the same command") { // there a person says so
							continue
						}
						w := begin(1)
						w.sick = sick
						w.startUpdate(&proc{faults: []fault{{kind: kind, at: s.at}}}, o)
						w.wait()
						w.advance(w.now.Add(10 * time.Minute))
						p := do(w)
						w.advance(w.now.Add(time.Minute))
						if got := w.unprovedNext(); got != "" {
							t.Errorf("%s, clones %q, %s at %s, then %s: %v; nodes boot from %s, which was not proved", reference, sick, kind, s, second, p.err, got)
						}
						w.kept(t, fmt.Sprintf("%s, %s at %s, then %s", reference, kind, s, second))
					}
				}
			}
		}
	}
}

// TestTrialPassedOver: a version whose promotion to be proved in the pool ended halfway does not
// become what nodes boot from, because a person decided about other versions meanwhile.
func TestTrialPassedOver(t *testing.T) {
	moves := map[string]func(context.Context, *kamino.Engine) error{
		"withdraw": func(ctx context.Context, e *kamino.Engine) error {
			_, err := e.WithdrawVersion(ctx, kamino.WithdrawOptions{Pool: "a", Reason: "leaks a key"})
			return err
		},
		"promote": func(ctx context.Context, e *kamino.Engine) error {
			_, err := e.PromoteVersion(ctx, kamino.PromoteOptions{Pool: "a", Version: "2026.03.0902"})
			return err
		},
		"rollback": func(ctx context.Context, e *kamino.Engine) error {
			_, err := e.Rollback(ctx, kamino.RollbackOptions{Pool: "a", To: "2026.03.05"})
			return err
		},
	}
	begin := func(sick sickness) *world {
		w := aged(1)
		w.waits("2026.03.0902")
		w.sick = sick
		return w
	}
	update := poolProof()
	update.ImageReference = kamino.ByDefinition
	for _, sick := range []sickness{healthy, mute} {
		log := &proc{logging: true}
		w := begin(sick)
		w.startUpdate(log, update)
		w.wait()
		struck := 0
		for _, s := range log.log {
			if s.step != "model" || s.call.method != "Promote" {
				continue
			}
			if struck++; w.version("2026.03.1000") == nil {
				t.Fatal("the run made another version")
			}
			for what, move := range moves {
				for night, mode := range map[string]kamino.ProveMode{"canary": kamino.ProveCanary, "pool": kamino.ProvePool, "none": kamino.ProveNone} {
					w := begin(sick)
					w.startUpdate(&proc{faults: []fault{{kind: worlds.KillAfter, at: s.at}}}, update)
					w.wait()
					w.advance(w.now.Add(5 * time.Minute))
					p := &proc{}
					w.spawn(p, func(ctx context.Context) { p.err = move(ctx, p.engine()) })
					w.wait()
					w.advance(w.now.Add(24 * time.Hour))
					n, _ := w.auto(nightly(mode))
					w.advance(w.now.Add(time.Minute))
					if got := birth(w); got == "2026.03.1000" && w.version(got).Tags[kamino.TagProof] != "passed" {
						t.Errorf("clones %q, killed at %s, then %s (%v), then a night with %s (%v): nodes boot from %s, unproved", sick, s, what, p.err, night, n.err, got)
					}
				}
			}
		}
		if struck < 2 {
			t.Errorf("clones %q: killed at %d writes", sick, struck)
		}
	}
}

// TestTrialWithoutLease: what the tags tell of a version that is proved in the pool outlives the
// lease. One that a person took without a proof stays.
func TestTrialWithoutLease(t *testing.T) {
	for reference, begin := range byReference() {
		for second, do := range seconds {
			w := watchKilled(begin)
			fresh := kamino.VersionName(w.now)
			w.DeleteLease()
			if s := w.status(t).Versions[0]; s.Name != fresh || s.Proof != "abandoned" {
				t.Errorf("%s: status: %+v", reference, s)
			}
			p := do(w)
			w.advance(w.now.Add(time.Minute))
			if got := w.unprovedNext(); got != "" {
				t.Errorf("%s, then %s: %v; nodes boot from %s, which was not proved", reference, second, p.err, got)
			}
		}
		w := watchKilled(begin)
		fresh := kamino.VersionName(w.now)
		if _, err := w.promote(kamino.PromoteOptions{Pool: "a", Version: fresh}); err != nil {
			t.Fatal(err)
		}
		w.DeleteLease()
		w.restore()
		w.auto(nightly(kamino.ProveCanary))
		w.advance(w.now.Add(time.Minute))
		if got := birth(w); got != fresh || w.version(got).Tags[kamino.TagProof] != "omitted" {
			t.Errorf("%s: taken by a person: nodes boot from %s, %v", reference, got, w.version(got).Tags)
		}
	}
}

// nameAgain is a day on which a person deletes a version that was withdrawn, and another one is
// made: the instance that booted from the first may not be taken for the first one of the second.
func nameAgain(begin func(uint64) *world) string {
	w := begin(1)
	if p := w.update(poolProof()); p.err != nil {
		return p.err.Error()
	}
	name := kamino.VersionName(w.now)
	w.advance(w.now.Add(time.Hour))
	if _, p := w.withdraw(kamino.WithdrawOptions{Pool: "a", Reason: "leaks a key"}); p.err != nil {
		return p.err.Error()
	}
	w.advance(w.now.Add(time.Minute))
	delete(w.artifacts, artifactKey(poolA, kamino.Version, name)) // az sig image-version delete
	w.advance(w.now.Add(10 * time.Minute))
	w.sick = mute
	o := poolProof()
	o.Donor, o.Today = "a-2", kamino.TodayAgain
	p := w.update(o)
	w.advance(w.now.Add(time.Minute))
	return unless(p.err != nil && birth(w) != name, "no node of the new image ever was Ready, the update ended %v, and nodes boot from %s", p.err, birth(w))
}
