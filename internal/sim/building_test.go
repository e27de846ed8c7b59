package sim

import (
	"context"
	"slices"
	"testing"
	"time"

	"kamino.dev/kamino"
	"kamino.dev/kamino/engine"
	"kamino.dev/kamino/internal/worlds"
	"kamino.dev/kamino/poolstate"
)

// TestRollbackDuringTheBuild: a run ends while its version is built, or about to be, and a person
// goes back to an older one, by which all newer ones are not to be chosen again. The one in the
// making is newer too, whatever becomes of its build and though no list shows it yet, and no night
// brings it back. One that is still being built after the rollback is marked by the next one.
func TestRollbackDuringTheBuild(t *testing.T) {
	for reference, begin := range byReference() {
		o, at := building(t, begin)
		next := at + 1
		for what, faults := range map[string][]fault{
			"built":           {{kind: worlds.KillAfter, at: at}},
			"built, no lease": {{kind: worlds.KillAfter, at: at}},
			"failed":          {{kind: worlds.OperationFailed, at: at}, {kind: worlds.KillBefore, at: next}},
			"late":            {{kind: worlds.LateCreate, at: at}, {kind: worlds.KillBefore, at: next}},
		} {
			for _, wait := range []time.Duration{0, time.Minute, 2 * time.Hour} {
				w := begin(1)
				w.startUpdate(&proc{faults: faults}, o)
				w.wait()
				fresh := kamino.VersionName(w.now)
				v := w.version(fresh)
				switch {
				case what == "late" && wait == 0:
					v.hidden = w.now.Add(5 * time.Minute) // the rollback sees none
				case what == "built, no lease": // nobody waits for the end of the build
					w.DeleteLease()
				}
				w.advance(w.now.Add(wait))
				state := v.State
				back, err := w.rollback(t, engine.RollbackOptions{Pool: "a", To: "2026.03.05"})
				if err != nil {
					t.Fatal(err)
				}
				if told := slices.ContainsFunc(back.Unmarked, func(u engine.Unmarked) bool { return u.Version == fresh }); told != (v.State == kamino.Creating && what != "late") {
					t.Errorf("%s, %s after %s: version %s was %s, and the rollback tells %v", reference, what, wait, fresh, state, back.Unmarked)
				}
				for _, later := range []time.Duration{0, 24 * time.Hour, 24 * time.Hour} {
					w.advance(w.now.Add(later))
					if p, res := w.auto(nightly(kamino.ProveCanary)); p.err != nil || what != "failed" && res[0].Action != poolstate.DoNothing {
						t.Errorf("%s, %s after %s: the night: %+v, %v", reference, what, wait, res, p.err)
					}
				}
				w.advance(w.now.Add(time.Minute))
				if got := birth(w); got == fresh || what != "failed" && got != "2026.03.05" {
					t.Errorf("%s, %s after %s: rolled back to 2026.03.05 while %s was %s, and two nights later nodes boot from %s: %v", reference, what, wait, fresh, state, got, v.Tags)
				}
				if _, err := w.rollback(t, engine.RollbackOptions{Pool: "a", To: "2026.03.05"}); err != nil {
					t.Error(err)
				}
				left := w.leases[poolA].Ledger.RolledBack
				if what != "failed" && (v.Tags[kamino.TagBad] == "" || len(left) > 0) {
					t.Errorf("%s, %s after %s: a second rollback leaves %s with the tags %v, and the ledger distrusts %v", reference, what, wait, fresh, v.Tags, left)
				}
			}
		}
	}
}

// building is an update that proves its version, and at which call it asks for that.
func building(t *testing.T, begin func(uint64) *world) (kamino.Options, int) {
	t.Helper()
	o, log := proving(), &proc{logging: true}
	w := begin(1)
	w.startUpdate(log, o)
	w.wait()
	i := slices.IndexFunc(log.log, func(s site) bool { return s.call.method == "Create image version" })
	if i < 0 {
		t.Fatalf("no build in %v", log.log)
	}
	return o, log.log[i].at
}

// TestRollbackBeforeTheBuild: where nothing was built of what a rollback has left, the next version
// of the day has another name, and is trusted.
func TestRollbackBeforeTheBuild(t *testing.T) {
	for reference, begin := range byReference() {
		o, at := building(t, begin)
		w := begin(1)
		w.startUpdate(&proc{faults: []fault{{kind: worlds.KillBefore, at: at}}}, o)
		w.wait()
		if _, err := w.rollback(t, engine.RollbackOptions{Pool: "a", To: "2026.03.05"}); err != nil {
			t.Fatal(err)
		}
		p := w.update(o)
		w.advance(w.now.Add(time.Minute))
		if got := birth(w); p.err != nil || got != "2026.03.1001" {
			t.Errorf("%s: %v; nodes boot from %s", reference, p.err, got)
		}
	}
}

// TestNightBesideTheBuildThatWasLeft: while a version that a rollback has left is still being
// built, the night waits for the next day, though nodes were patched.
func TestNightBesideTheBuildThatWasLeft(t *testing.T) {
	for reference, begin := range byReference() {
		o, at := building(t, begin)
		w := begin(1)
		w.startUpdate(&proc{faults: []fault{{kind: worlds.KillAfter, at: at}}}, o)
		w.wait()
		w.DeleteLease()
		if _, err := w.rollback(t, engine.RollbackOptions{Pool: "a", To: "2026.03.05"}); err != nil {
			t.Fatal(err)
		}
		if v := w.version(kamino.VersionName(w.now)); v.State != kamino.Creating {
			t.Fatalf("%s: version %s is %s", reference, v.Name, v.State)
		}
		for night := range 3 {
			w.patch("a-2", w.now.Add(-5*time.Hour).UTC().Format(time.RFC3339))
			p, res := w.auto(nightly(kamino.ProveCanary))
			held := len(res) > 0 && slices.ContainsFunc(res[0].Held, func(v kamino.Verdict) bool { return v.Code == "today" })
			if p.err != nil || night == 0 && !held {
				t.Errorf("%s, night %d: %+v, %v", reference, night, res, p.err)
			}
			w.advance(w.now.Add(24 * time.Hour))
		}
		w.sound(t)
	}
}

// TestRollbackBeforeTheBuildEnds: a rollback does not wait for what an ended run was building: new
// nodes boot from the target first, once and for good, and then the version is marked, or swept
// where its build failed, as well as the snapshot. Killed anywhere, the same command ends the same.
func TestRollbackBeforeTheBuildEnds(t *testing.T) {
	back := engine.RollbackOptions{Pool: "a", To: "2026.03.05"}
	for reference, begin := range byReference() {
		o, at := building(t, begin)
		for what, faults := range map[string][]fault{
			"built":  {{kind: worlds.KillAfter, at: at}},
			"failed": {{kind: worlds.OperationFailed, at: at}, {kind: worlds.KillBefore, at: at + 1}},
		} {
			play := func(p *proc) (*world, *simArtifact) {
				w := begin(1)
				w.watchNext()
				w.startUpdate(&proc{faults: faults}, o)
				w.wait()
				v := w.version(kamino.VersionName(w.now))
				w.spawn(p, func(ctx context.Context) { _, p.err = p.engine().Rollback(ctx, back) })
				return w, v
			}
			ended := func(w *world, name, where string) {
				t.Helper()
				v, l := w.version(name), w.leases[poolA].Ledger
				marked := v != nil && v.Tags[kamino.TagBad] != "" && len(l.RolledBack) == 0
				if got := w.turns(); !slices.Equal(got, []string{"2026.03.09", "2026.03.05"}) || (what == "failed") != (v == nil) || v != nil && !marked {
					t.Errorf("%s, %s, %s: nodes booted from %v, the version is %+v, the ledger distrusts %v", reference, what, where, got, v, l.RolledBack)
				}
				if left := w.artifacts[artifactKey(poolA, kamino.KindSnapshot, kamino.SnapshotName("a"))]; left != nil {
					t.Errorf("%s, %s, %s: snapshot %s is left", reference, what, where, left.Name)
				}
				w.sound(t)
			}
			var state kamino.State
			var w *world
			var v *simArtifact
			log := &proc{logging: true, tune: heard(func(ev kamino.Event) {
				if ev.Kind == kamino.EventDone && ev.Step == "mark" && state == "" && birth(w) == "2026.03.05" {
					state = v.State
				}
			})}
			w, v = play(log)
			w.wait()
			if log.err != nil || state != kamino.Creating {
				t.Errorf("%s, %s: %v; when nodes booted from the target, the version was %q", reference, what, log.err, state)
			}
			ended(w, v.Name, "undisturbed")
			if past := w.leases[poolA].Ledger.Past; len(past) < 2 || past[0].Verb != kamino.VerbRollback || past[0].Failure != "" || past[1].Verb != "" {
				t.Errorf("%s, %s: the ledger tells %+v", reference, what, past)
			}
			for _, s := range log.log {
				for _, kind := range []worlds.Fault{worlds.KillBefore, worlds.KillUnheard, worlds.KillAfter} {
					if s.step == "" || !s.call.write {
						continue
					}
					w, v := play(&proc{faults: []fault{{kind: kind, at: s.at}}})
					w.wait()
					w.advance(w.now.Add(time.Minute))
					for range 2 {
						if _, err := w.rollback(t, back); err != nil {
							t.Error(err)
						}
					}
					ended(w, v.Name, string(kind)+" at "+s.String())
				}
			}
		}
	}
}

// TestBuildThatWasLeftFails: the build of a version that a rollback has left fails. What is left of
// it is swept by a restore, that day or much later.
func TestBuildThatWasLeftFails(t *testing.T) {
	for reference, begin := range byReference() {
		for _, leased := range []bool{true, false} {
			for _, late := range []time.Duration{3 * time.Hour, 72 * time.Hour} {
				o, at := building(t, begin)
				w := begin(1)
				w.startUpdate(&proc{faults: []fault{{kind: worlds.OperationFailed, at: at}, {kind: worlds.KillBefore, at: at + 1}}}, o)
				w.wait()
				name := kamino.VersionName(w.now)
				if w.version(name) == nil {
					t.Fatal("no version")
				}
				if !leased {
					w.DeleteLease() // nobody waits for the end of the build
				}
				if _, err := w.rollback(t, engine.RollbackOptions{Pool: "a", To: "2026.03.05"}); err != nil {
					t.Fatal(err)
				}
				w.advance(w.now.Add(late))
				p := w.restore()
				w.advance(w.now.Add(time.Hour))
				if v := w.version(name); p.err != nil || v != nil {
					t.Errorf("%s, %s later, leased %t: restore ended %v, and version %s is still there: %s, the ledger distrusts %v", reference, late, leased, p.err, name, v.State, w.leases[poolA].Ledger.RolledBack)
				}
				w.sound(t)
			}
		}
	}
}

// TestRollbackRepeatedDuringTheBuild: where new nodes boot from the target already, the ledger
// notes what is being built all the same.
func TestRollbackRepeatedDuringTheBuild(t *testing.T) {
	for reference, begin := range byReference() {
		w, back := begin(1), engine.RollbackOptions{Pool: "a", To: "2026.03.05"}
		if _, err := w.rollback(t, back); err != nil {
			t.Fatal(err)
		}
		v := w.addVersion(poolA, "2026.03.10")
		v.State, v.Ready, v.Excluded = kamino.Creating, false, true
		out, err := w.rollback(t, back)
		if left := w.leases[poolA].Ledger.RolledBack; err != nil || !out.Changed || !slices.Equal(left, []string{"2026.03.10"}) {
			t.Errorf("%s: %+v, %v; the ledger distrusts %v", reference, out, err, left)
		}
	}
}
