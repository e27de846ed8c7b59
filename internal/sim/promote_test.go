package sim

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"kamino.dev/kamino"
	"kamino.dev/kamino/engine"
	"kamino.dev/kamino/internal/worlds"
	"kamino.dev/kamino/poolstate"
)

// TestSwappedVersion: the version of today that was seen being built is another one when it is
// done. It is not promoted.
func TestSwappedVersion(t *testing.T) {
	for name, tags := range map[string]map[string]string{
		"without a receipt": {kamino.TagBuiltFrom: "a-2"},
		"of another run":    {kamino.TagBuiltFrom: "a-0", kamino.TagReceipt: "y", kamino.TagRun: "r-other"},
	} {
		for _, late := range []time.Duration{5 * time.Minute, 0} {
			w := aged(1)
			v := w.addVersion(poolA, kamino.VersionName(w.now))
			swap := func() {
				v.State, v.Ready, v.Percent = kamino.Succeeded, true, 100
				v.Tags = tags
				v.Tags[kamino.TagBuiltAt] = w.now.UTC().Format(kamino.BuiltAtFormat)
			}
			v.Created = w.now
			v.Tags = map[string]string{kamino.TagBuiltFrom: "a-0", kamino.TagVM: w.nodes["a-0"].SystemUUID, kamino.TagReceipt: "x", kamino.TagRun: "r-dead",
				kamino.TagBuiltAt: w.now.UTC().Format(kamino.BuiltAtFormat)}
			var faults []fault
			if late > 0 {
				v.State, v.Ready, v.Percent = kamino.Creating, false, 10
				w.after(late, swap)
			} else { // just before the model
				other := &rival{Rival: worlds.Rival{Name: "the version is another one"}, happen: func(*world) { swap() }}
				faults = []fault{{kind: worlds.RivalActs, at: nthCall(t, w, "model", "Find image version"), rival: other}}
			}
			p := w.update(options("a-0"), faults...)
			if p.err == nil || w.pools[poolA].image == v.ID {
				t.Errorf("%s, after %s: the run ended %v, the model refers to %s of %v", name, late, p.err, w.pools[poolA].image, v.Tags)
			}
		}
	}
}

// nthCall is the index of the first call of a method in a step of an update of a-0, in a world like
// this one.
func nthCall(t *testing.T, like *world, step, method string) int {
	t.Helper()
	w := aged(1)
	for key, a := range like.artifacts {
		copied := *a
		w.artifacts[key] = &copied
	}
	p := &proc{logging: true}
	w.startUpdate(p, options("a-0"))
	w.wait()
	return nth(t, p.log, step, method, 1)
}

// TestOriginalStays: the ledger's original is the model before the first prototype. A pin that is
// adopted, or another gallery's prototype, does not replace it: rollback to the original brings the
// bootstrap extension back.
func TestOriginalStays(t *testing.T) {
	for name, image := range map[string]string{
		"a pin":                "canonical:ubuntu:22_04-lts:22.04.202603010",
		"another gallery":      groupID + "/galleries/SIG_old/images/kamino-a-prototype/versions/2026.03.09",
		"a community gallery":  "/CommunityGalleries/x/images/y/versions/1.0.0",
		"the original, pinned": baseLTS,
	} {
		w := aged(1)
		w.pools[poolA].image = image // the extensions stay those of the prototype
		o := options("a-0")
		o.AdoptModel = true
		if p := w.update(o); p.err != nil {
			t.Fatal(p.err)
		}
		l := w.leases[poolA].Ledger
		if l.Original == nil || savedImage(l.Original.Saved) != baseLTS || l.Former == nil || l.Former.Image != image {
			t.Errorf("%s: original %+v, former %+v", name, l.Original, l.Former)
		}
		out, err := w.rollback(t, engine.RollbackOptions{Pool: "a", To: poolstate.ToOriginal, Secrets: kamino.Secrets{CustomData: []byte("bootstrap"),
			Protected: map[string]json.RawMessage{"cse": json.RawMessage(`{"commandToExecute":"join"}`)}}})
		if p := w.pools[poolA]; err != nil || !slices.Contains(p.exts, "cse") || p.image != baseLTS {
			t.Errorf("%s: rollback to the original ended %v, %+v: image %s, extensions %v", name, err, out, p.image, p.exts)
		}
	}
}

// savedImage is the image of a saved model.
func savedImage(saved []byte) string {
	var d document
	_ = json.Unmarshal(saved, &d)
	return d.Image
}

// TestSweepSparesVersions: a version that Azure shows as Failed after a write of its tags failed is
// whole. What a rollback may need, and what was finished once, is deleted by no restore; a build
// that failed is.
func TestSweepSparesVersions(t *testing.T) {
	w := aged(1)
	for _, name := range []string{"2026.03.01", "2026.03.05", "2026.02.10"} {
		v := w.version(name)
		v.State, v.Failure = kamino.Failed, "the update of tags failed"
	}
	fresh := w.addVersion(poolA, "2026.03.10")
	fresh.State, fresh.Created, fresh.Tags = kamino.Failed, w.now, map[string]string{kamino.TagBuiltFrom: "a-0", kamino.TagRun: "r-finished"}
	broken := w.addVersion(poolA, "2026.03.1001")
	broken.State, broken.Ready, broken.Created, broken.Tags = kamino.Failed, false, w.now, map[string]string{kamino.TagBuiltFrom: "a-0", kamino.TagRun: "r-failed"}
	l := w.leases[poolA]
	l.Ledger.RolledBack = []string{"2026.03.05"}
	l.Ledger.Past = []kamino.PastRun{{Run: "r-failed", Version: "2026.03.1001", Failure: "f"}, {Run: "r-finished", Version: "2026.03.10"}}
	w.leases[poolA] = l
	p := w.restore()
	w.advance(w.now.Add(time.Hour))
	for _, name := range []string{"2026.03.01", "2026.03.05", "2026.02.10", "2026.03.10"} {
		if w.version(name) == nil {
			t.Errorf("restore ended %v, %+v; version %s is gone", p.err, p.found, name)
		}
	}
	if p.err != nil || w.version("2026.03.1001") != nil {
		t.Errorf("restore ended %v, %+v; the failed build is there still", p.err, p.found)
	}
}

// TestDefaultRollbackNeedsAReceipt: without --to, no version without a seal receipt becomes
// what new nodes are made of. Named, it does.
func TestDefaultRollbackNeedsAReceipt(t *testing.T) {
	w := aged(1)
	delete(w.version("2026.03.05").Tags, kamino.TagReceipt)
	was := w.pools[poolA].image
	_, err := w.rollback(t, engine.RollbackOptions{Pool: "a"})
	if err == nil || !strings.Contains(kamino.Hint(err), "--to 2026.03.05") || w.pools[poolA].image != was {
		t.Errorf("rollback ended %v (hint %q); the model refers to %s", err, kamino.Hint(err), w.pools[poolA].image)
	}
	if _, err := w.rollback(t, engine.RollbackOptions{Pool: "a", To: "2026.03.05"}); err != nil || w.inUse(t).Name != "2026.03.05" {
		t.Errorf("rollback to 2026.03.05 ended %v", err)
	}
}

// TestAgainBesideAFailedVersion: --again makes another version where today's newest is a failed one
// of somebody else.
func TestAgainBesideAFailedVersion(t *testing.T) {
	w := aged(1)
	v := w.addVersion(poolA, kamino.VersionName(w.now))
	v.State, v.Ready, v.Tags = kamino.Failed, false, map[string]string{"team": "x"}
	o := options("a-0")
	o.Today = kamino.TodayAgain
	if p := w.update(o); p.err != nil || w.inUse(t) == nil || w.inUse(t).Name != kamino.VersionName(w.now)+"01" || w.artifacts[artifactKey(poolA, kamino.KindVersion, v.Name)] != v {
		t.Errorf("with --again: %v; hint: %s", p.err, kamino.Hint(p.err))
	}
}

// TestPausedTakingBack: withdraw and rollback go on while the cluster is paused, however long the
// pool is busy.
func TestPausedTakingBack(t *testing.T) {
	for verb, do := range map[string]func(context.Context, *engine.Engine) error{
		"rollback": func(ctx context.Context, e *engine.Engine) error {
			_, err := e.Rollback(ctx, engine.RollbackOptions{Pool: "a", To: "2026.03.05"})
			return err
		},
		"withdraw": func(ctx context.Context, e *engine.Engine) error {
			_, err := e.WithdrawVersion(ctx, kamino.WithdrawOptions{Pool: "a", Reason: "bad"})
			return err
		},
	} {
		w := aged(1)
		w.paused = "an incident"
		w.pools[poolA].busy = w.now.Add(5 * time.Minute)
		p := &proc{}
		w.spawn(p, func(ctx context.Context) { p.err = do(ctx, p.engine()) })
		w.wait()
		if now := lastSegment(w.bootsFrom(w.pools[poolA])); p.err != nil || now != "2026.03.05" {
			t.Errorf("%s while paused, the pool busy for five minutes: %v; new nodes boot from %s", verb, p.err, now)
		}
	}
}

// TestPausedWithdrawal: a version that failed its proof is withdrawn to the end, also where somebody
// pauses the cluster as soon as its proof failed.
func TestPausedWithdrawal(t *testing.T) {
	for name, begin := range byReference() {
		w := begin(1)
		w.sick = mute
		o := proving()
		fresh, was := kamino.VersionName(w.now), birth(w)
		p := w.startUpdate(&proc{tune: heard(func(ev kamino.Event) {
			if ev.Kind == kamino.EventWarning && strings.HasPrefix(ev.Message, "proof of version "+fresh+": fail: ") {
				w.paused = "an incident"
			}
		})}, o)
		w.wait()
		w.advance(w.now.Add(time.Minute))
		var proof *kamino.ProofError
		if !errors.As(p.err, &proof) || w.paused == "" || birth(w) != was || w.version(fresh).Tags[kamino.TagBad] == "" {
			t.Errorf("%s: %v; new nodes boot from %s, tags %v", name, p.err, birth(w), w.version(fresh).Tags)
		}
	}
}

// TestWithdrawnWhileProved: a version that somebody withdraws while it is proved is not promoted,
// and its mark stays, however shortly before a tag of its proof is written that was.
func TestWithdrawnWhileProved(t *testing.T) {
	withdrawn := &rival{Rival: worlds.Rival{Name: "the version is withdrawn"}, happen: func(w *world) {
		if v := w.version(kamino.VersionName(w.now)); v != nil {
			v.Artifact = kamino.ParseVersion(v.Artifact).Withdrawn(kamino.Bad{Reason: "somebody"}).Artifact
		}
	}}
	for name, begin := range map[string]func(uint64) *world{"by version": aged, "pointing": pointing} {
		o, log, tags := proving(), &proc{logging: true}, 0
		w := begin(1)
		w.startUpdate(log, o)
		w.wait()
		for _, s := range log.log {
			if s.call.method != "SetTags" {
				continue
			}
			tags++
			w := begin(1)
			p := w.update(o, fault{kind: worlds.RivalActs, at: s.at, rival: withdrawn})
			v := w.version(kamino.VersionName(w.now))
			if next := lastSegment(w.bootsFrom(w.pools[poolA])); p.err == nil || v.Tags[kamino.TagBad] != "somebody" || next == v.Name {
				t.Errorf("%s, at %s: %v; new nodes boot from %s, tags %v", name, s, p.err, next, v.Tags)
			}
		}
		if tags < 2 {
			t.Errorf("%s: %d tags are written in a proof", name, tags)
		}
	}
}

// TestPromotionsByHandPoint: where a person promotes each version, the model comes to name the
// definition with the first of them, also in a pool that went by version, and is written no more:
// else each promotion would make a model, of which a pool may have ten.
func TestPromotionsByHandPoint(t *testing.T) {
	for name, begin := range map[string]func(uint64) *world{"a pool's first version": fresh, "a pool by version": untagged} {
		w := begin(1)
		w.tagged = false
		o := options("a-0")
		o.Proof = proving().Proof
		o.Proof.Promote = kamino.PromoteManual
		models, want := w.pools[poolA].model, []string{lastSegment(w.bootsFrom(w.pools[poolA]))}
		w.watchNext()
		for night := range 3 {
			if p := w.update(o); p.err != nil || !p.result.Waiting {
				t.Fatalf("%s, night %d: the run ended %v, waiting %t", name, night, p.err, p.result.Waiting)
			}
			v := kamino.VersionName(w.now)
			plan, err := w.promote(engine.PromoteOptions{Pool: "a", DryRun: true})
			if err != nil || (len(plan.ModelDiff) > 0) != (night == 0) {
				t.Errorf("%s, night %d: a dry run of the promotion ended %v, with the difference %+v", name, night, err, plan.ModelDiff)
			}
			_, err = w.promote(engine.PromoteOptions{Pool: "a"})
			w.advance(w.now.Add(time.Minute))
			want = append(want, v)
			if named := lastSegment(w.pools[poolA].image); err != nil || named != kamino.DefinitionName("a") || !slices.Equal(w.turns(), want) {
				t.Errorf("%s, night %d: the promotion ended %v; the model names %s, nodes boot in turn from %v", name, night, err, named, w.turns())
			}
			w.advance(w.now.Add(24 * time.Hour))
		}
		if wrote := w.pools[poolA].model - models; wrote != 1 {
			t.Errorf("%s: the model was written %d times", name, wrote)
		}
		w.sound(t)
	}
}

// TestPromotionByHandKilled: where a promotion that lets a pool come to point is killed at a call,
// or loses a reply, the next node boots from the former image or from the version, and the same
// command ends it.
func TestPromotionByHandKilled(t *testing.T) {
	for name, begin := range map[string]func(uint64) *world{"a pool's first version": fresh, "a pool by version": untagged} {
		ready := func() (*world, []string) {
			w := begin(1)
			w.tagged = false
			o := options("a-0")
			o.Proof = proving().Proof
			o.Proof.Promote = kamino.PromoteManual
			if p := w.update(o); p.err != nil {
				t.Fatal(p.err)
			}
			want := []string{lastSegment(w.bootsFrom(w.pools[poolA])), kamino.VersionName(w.now)}
			w.watchNext()
			w.promotedByHand = true
			return w, want
		}
		play := func(w *world, faults ...fault) *proc {
			p := &proc{logging: true, faults: faults}
			w.spawn(p, func(ctx context.Context) {
				_, p.err = p.engine().PromoteVersion(ctx, engine.PromoteOptions{Pool: "a"})
			})
			w.wait()
			return p
		}
		w, _ := ready()
		p := play(w)
		if nth(t, p.log, "model", "Promote", 2); p.err != nil {
			t.Fatal(p.err)
		}
		for _, s := range p.log {
			for _, kind := range []worlds.Fault{worlds.KillBefore, worlds.KillUnheard, worlds.KillAfter, worlds.LostReply, worlds.FalseFailure, worlds.ServerError} {
				if !kind.Fits(s.call.is()) || s.step == "" {
					continue
				}
				w, want := ready()
				play(w, fault{kind: kind, at: s.at})
				w.pass(t)
				w.advance(w.now.Add(time.Minute))
				second := play(w)
				w.advance(w.now.Add(time.Minute))
				if named := lastSegment(w.pools[poolA].image); !slices.Equal(w.turns(), want) || named != kamino.DefinitionName("a") {
					t.Errorf("%s, %s at %s: repeated, it ended %v; the model names %s, nodes boot in turn from %v", name, kind, s, second.err, named, w.turns())
				}
				w.sound(t)
			}
		}
	}
}

// TestPromotionByHandByVersion: a promotion leaves a pool by version where its definition stands
// for another than the model names, or is tagged as unreliable; a pool that points goes by version
// again where its definition is tagged.
func TestPromotionByHandByVersion(t *testing.T) {
	for name, change := range map[string]func(w *world){
		"latest is another one": func(w *world) { w.version("2026.03.09").Excluded = true },
		"the definition is tagged": func(w *world) {
			w.definition().Tags = map[string]string{kamino.TagPointer: "unreliable"}
		},
		"the definition is tagged, and it points": func(w *world) {
			*w = *tagged(1)
			w.waits("2026.03.10")
		},
	} {
		w := untagged(1)
		w.artifacts[artifactKey(poolA, kamino.KindDefinition, kamino.DefinitionName("a"))] = pointing(1).definition()
		w.waits("2026.03.10")
		change(w)
		w.watchNext()
		_, err := w.promote(engine.PromoteOptions{Pool: "a"})
		w.advance(w.now.Add(time.Minute))
		if named := lastSegment(w.pools[poolA].image); err != nil || named != "2026.03.10" || birth(w) != "2026.03.10" || len(w.turns()) != 2 {
			t.Errorf("%s: it ended %v; the model names %s, nodes boot in turn from %v", name, err, named, w.turns())
		}
	}
}

// TestNamesWhatIsLost: what no provider gives back is named before the first write of a model,
// once, and not with a later one.
func TestNamesWhatIsLost(t *testing.T) {
	w := fresh(1)
	for day, want := range []string{"warned written", "written"} {
		var seen []string
		p := &proc{tune: func(e *engine.Engine) {
			report := e.Report
			e.Report = func(ev kamino.Event) {
				report(ev)
				switch {
				case ev.Kind == kamino.EventWarning && strings.Contains(ev.Message, "save from your template: protected settings of cse"):
					seen = append(seen, "warned")
				case ev.Step == kamino.StepModel && ev.Kind == kamino.EventActed:
					seen = append(seen, "written")
				}
			}
		}}
		w.startUpdate(p, options("a-0"))
		if w.wait(); p.err != nil || strings.Join(seen, " ") != want {
			t.Errorf("day %d: %v, want %s; %v", day, seen, want, p.err)
		}
		w.advance(w.now.Add(24 * time.Hour))
	}
	w.sound(t)
}
