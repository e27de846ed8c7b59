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

// TestWithdrawAgain: a withdrawal without a version that is repeated, as a script does that tries
// again, ends the same one and goes no further back, whether it was killed before or not.
func TestWithdrawAgain(t *testing.T) {
	again := kamino.WithdrawOptions{Pool: "a", Reason: "leaks a key"}
	for reference, begin := range byReference() {
		ended := func(w *world, what string) {
			t.Helper()
			for range 3 {
				w.pass(t)
				w.advance(w.now.Add(time.Minute))
				if _, p := w.withdraw(again); p.err != nil {
					t.Errorf("%s, %s: repeated, it ended %v", reference, what, p.err)
				}
			}
			w.advance(w.now.Add(time.Minute))
			for _, v := range w.versions(poolA) {
				if bad := v.Tags[kamino.TagBad] != ""; bad != (v.Name == "2026.03.09") {
					t.Errorf("%s, %s: version %s: %q", reference, what, v.Name, v.Tags[kamino.TagBad])
				}
			}
			if got := birth(w); got != "2026.03.05" {
				t.Errorf("%s, %s: nodes boot from %s", reference, what, got)
			}
			w.sound(t)
		}
		w := begin(1)
		_, p := w.withdraw(again)
		ended(w, "to its end")
		for _, s := range p.log {
			for _, kind := range []worlds.Fault{worlds.KillBefore, worlds.KillUnheard, worlds.KillAfter, worlds.LostReply, worlds.Forbidden} {
				if kind.Fits(s.call.is()) && s.step != "" {
					w := begin(1)
					w.withdraw(again, fault{kind: kind, at: s.at})
					ended(w, string(kind)+" at "+s.String())
				}
			}
		}
	}
}

// TestWithdrawFurther: what a withdrawal fell back to is withdrawn where somebody names it. One
// that was chosen since needs no name.
func TestWithdrawFurther(t *testing.T) {
	for reference, begin := range byReference() {
		w := begin(1)
		w.withdraw(kamino.WithdrawOptions{Pool: "a", Reason: "leaks a key"})
		_, p := w.withdraw(kamino.WithdrawOptions{Pool: "a", Reason: "another reason"})
		if p.err == nil || !strings.Contains(kamino.Hint(p.err), "--version 2026.03.05") || birth(w) != "2026.03.05" {
			t.Errorf("%s: for another reason: %v (hint %q); nodes boot from %s", reference, p.err, kamino.Hint(p.err), birth(w))
		}
		w.advance(w.now.Add(time.Minute))
		if _, p := w.withdraw(kamino.WithdrawOptions{Pool: "a", Version: "2026.03.05", Reason: "another reason"}); p.err != nil {
			t.Errorf("%s: named: %v", reference, p.err)
		}
		w.advance(w.now.Add(time.Minute))
		if got := birth(w); got != "2026.03.01" {
			t.Errorf("%s: named: nodes boot from %s", reference, got)
		}
		if _, err := w.rollback(t, engine.RollbackOptions{Pool: "a", To: "2026.03.05"}); err != nil {
			t.Fatal(err)
		}
		w.advance(w.now.Add(time.Minute))
		if _, p := w.withdraw(kamino.WithdrawOptions{Pool: "a", Reason: "leaks a key"}); p.err != nil {
			t.Errorf("%s: chosen by a rollback since: %v", reference, p.err)
		}
		w.advance(w.now.Add(time.Minute))
		if got := birth(w); got != "2026.03.01" {
			t.Errorf("%s: chosen by a rollback since: nodes boot from %s", reference, got)
		}
	}
}

// TestWithdrawNeedsAReceipt: no withdrawal falls back to a version without a seal receipt. Where
// there is no other the hint names it.
func TestWithdrawNeedsAReceipt(t *testing.T) {
	for reference, begin := range byReference() {
		w := begin(1)
		delete(w.version("2026.03.05").Tags, kamino.TagReceipt)
		if _, p := w.withdraw(kamino.WithdrawOptions{Pool: "a", Reason: "bad"}); p.err != nil || birth(w) != "2026.03.01" {
			t.Errorf("%s: %v; nodes boot from %s", reference, p.err, birth(w))
		}
		w = begin(1)
		for _, v := range []string{"2026.03.05", "2026.03.01", "2026.02.10", "2026.2.9"} {
			delete(w.version(v).Tags, kamino.TagReceipt)
		}
		if _, p := w.withdraw(kamino.WithdrawOptions{Pool: "a", Reason: "bad"}); p.err == nil || !strings.Contains(kamino.Hint(p.err), "kamino rollback --pool a --to 2026.03.05") || birth(w) != "2026.03.09" {
			t.Errorf("%s, none other: %v (hint %q); nodes boot from %s", reference, p.err, kamino.Hint(p.err), birth(w))
		}
	}
}

// TestPausedPromotion: a pause that somebody sets while a version is promoted by hand is seen
// before the write.
func TestPausedPromotion(t *testing.T) {
	for reference, begin := range byReference() {
		for _, step := range []string{"lock", "model", "mark"} {
			w := begin(1)
			w.waits("2026.03.19")
			w.promotedByHand = true
			p := &proc{tune: heard(func(ev kamino.Event) {
				if ev.Step == step && ev.Kind == kamino.EventStarted {
					w.paused = "an incident"
				}
			})}
			w.spawn(p, func(ctx context.Context) {
				_, p.err = p.engine().PromoteVersion(ctx, engine.PromoteOptions{Pool: "a"})
			})
			w.wait()
			w.advance(w.now.Add(time.Minute))
			half := step == "mark" && reference == "by version" // the model names it already
			var refused *kamino.RefusedError
			if !half && (p.err == nil || !strings.Contains(p.err.Error(), "nothing more is changed: kamino resume, then the same command")) {
				t.Errorf("%s, at %s: who promotes is told: %v", reference, step, p.err)
			}
			if got := birth(w); (got == "2026.03.19") != half || errors.As(p.err, &refused) == half {
				t.Errorf("%s, at %s: %v; nodes boot from %s", reference, step, p.err, got)
			}
			w.sound(t)
		}
	}
}

// TestPromotedWhileWithdrawn: a version that waits, and that somebody promotes while another
// withdraws it, is not withdrawn below the pool's nodes.
func TestPromotedWhileWithdrawn(t *testing.T) {
	withdraw := func(ctx context.Context, e *engine.Engine) error {
		_, err := e.WithdrawVersion(ctx, kamino.WithdrawOptions{Pool: "a", Version: "2026.03.19", Reason: "bad"})
		return err
	}
	rollback := func(ctx context.Context, e *engine.Engine) error {
		_, err := e.Rollback(ctx, engine.RollbackOptions{Pool: "a", To: "2026.03.09"})
		return err
	}
	for verb, do := range map[string]func(context.Context, *engine.Engine) error{"withdraw": withdraw, "rollback to the present one": rollback} {
		for reference, begin := range byReference() {
			w := begin(1)
			v := w.waits("2026.03.19")
			p := w.between(func() {
				v.Artifact = kamino.ParseVersion(v.Artifact).Offered().Artifact
				if a, l := w.pools[poolA], w.leases[poolA]; reference == "by version" {
					a.image, a.revision = v.ID, w.next()
					l.Ledger.Wrote = &kamino.WrittenModel{Image: v.ID, Seen: true, At: w.now}
					w.leases[poolA] = l
				}
			}, do)
			if got := birth(w); w.version(got).Tags[kamino.TagBad] != "" || got == "2026.03.19" && p.err == nil {
				t.Errorf("%s, %s: %v; nodes boot from %s, %v", reference, verb, p.err, got, w.version(got).Tags)
			}
		}
	}
}

// TestProofOutlives: a version that passed its proof, was rolled back or withdrawn for another
// reason, and is named again is proved still, whatever words a person gave. One that was withdrawn
// because of how its nodes did is not, nor is one that passed nothing.
func TestProofOutlives(t *testing.T) {
	const watched = "watched"
	for reference, begin := range byReference() {
		for _, tt := range []struct {
			mode   kamino.ProveMode
			reason string // "": rolled back; watched: by how its nodes did
			want   string
		}{
			{kamino.ProveCanary, "", "passed"},
			{kamino.ProveCanary, "an alert", "passed"},
			{kamino.ProveCanary, "failed its proof: watch: 2 of 3 new nodes were not Ready", "passed"},
			{kamino.ProveCanary, watched, ""},
			{kamino.ProveNone, "", ""},
		} {
			w := begin(1)
			o := proving()
			o.Proof.Mode = tt.mode
			if p := w.update(o); p.err != nil {
				t.Fatal(p.err)
			}
			v := birth(w)
			if tt.reason == "" {
				if _, err := w.rollback(t, engine.RollbackOptions{Pool: "a", To: "2026.03.09"}); err != nil {
					t.Fatal(err)
				}
			} else if tt.reason == watched {
				w.version(v).sick = mute
				p := &proc{}
				w.spawn(p, func(ctx context.Context) {
					runs := []engine.PoolResult{{Pool: poolA, Result: &engine.Result{Version: v, Changed: true}}}
					p.err = p.engine().Watch(ctx, runs, engine.Watching{For: time.Hour, Proof: kamino.Proving{Budget: 10 * time.Minute}})
				})
				w.after(time.Minute, func() { w.grow(w.pools[poolA], 5) })
				w.wait()
			} else if _, p := w.withdraw(kamino.WithdrawOptions{Pool: "a", Reason: tt.reason}); p.err != nil {
				t.Fatal(p.err)
			}
			w.advance(w.now.Add(time.Minute))
			if away := birth(w); away != "2026.03.09" || w.version(v).Tags[kamino.TagBad] == "" {
				t.Fatalf("nodes boot from %s", away)
			}
			back, err := w.rollback(t, engine.RollbackOptions{Pool: "a", To: v})
			if err != nil || back.Unproved != (tt.want == "") {
				t.Fatalf("%s, %+v: %+v, %v", reference, tt, back, err)
			}
			w.advance(w.now.Add(time.Minute))
			s := w.status(t)
			i := slices.IndexFunc(s.Versions, func(x poolstate.VersionStatus) bool { return x.Name == v })
			if s.Next != v || s.Versions[i].Proof != tt.want {
				t.Errorf("%s, %+v: the next node boots from %s, proof %q", reference, tt, s.Next, s.Versions[i].Proof)
			}
			if tt.reason != watched { // who names a bad one, has its nodes
				w.sound(t)
			}
		}
	}
}

// TestRollbackAgain: a rollback without a target that is repeated ends the same one and goes no
// further back, whether it was killed before or not; what waits since then is left alone.
func TestRollbackAgain(t *testing.T) {
	for reference, begin := range byReference() {
		ended := func(w *world, what string) {
			t.Helper()
			for i := range 3 {
				w.pass(t)
				w.advance(w.now.Add(time.Minute))
				if out, err := w.rollback(t, engine.RollbackOptions{Pool: "a"}); err != nil || i > 0 && (out.Changed || out.Since != "2026.03.09") {
					t.Errorf("%s, %s: repeated, it ended %+v, %v", reference, what, out, err)
				}
				w.advance(w.now.Add(time.Minute))
				if w.version("2026.03.19") == nil {
					w.waits("2026.03.19")
				}
			}
			w.advance(w.now.Add(time.Minute))
			for _, v := range w.versions(poolA) {
				if bad := v.Tags[kamino.TagBad] != ""; bad != (v.Name == "2026.03.09") {
					t.Errorf("%s, %s: version %s: %q", reference, what, v.Name, v.Tags[kamino.TagBad])
				}
			}
			if got := birth(w); got != "2026.03.05" {
				t.Errorf("%s, %s: nodes boot from %s", reference, what, got)
			}
			w.sound(t)
		}
		play := func(faults ...fault) (*world, *proc) {
			w, p := begin(1), &proc{faults: faults, logging: true}
			w.spawn(p, func(ctx context.Context) { _, p.err = p.engine().Rollback(ctx, engine.RollbackOptions{Pool: "a"}) })
			w.wait()
			return w, p
		}
		w, p := play()
		ended(w, "to its end")
		for _, s := range p.log {
			for _, kind := range []worlds.Fault{worlds.KillBefore, worlds.KillUnheard, worlds.KillAfter, worlds.LostReply, worlds.Forbidden} {
				if kind.Fits(s.call.is()) && s.step != "" {
					w, _ := play(fault{kind: kind, at: s.at})
					ended(w, string(kind)+" at "+s.String())
				}
			}
		}
	}
}

// TestRollbackFurther: what a rollback without a target, or a withdrawal, went back to is left by
// its name only. What was chosen since needs none.
func TestRollbackFurther(t *testing.T) {
	for reference, begin := range byReference() {
		for by, leave := range map[string]func(w *world) error{
			"rollback": func(w *world) error {
				_, err := w.rollback(t, engine.RollbackOptions{Pool: "a"})
				return err
			},
			"withdraw": func(w *world) error {
				_, p := w.withdraw(kamino.WithdrawOptions{Pool: "a", Reason: "leaks a key"})
				return p.err
			},
		} {
			w := begin(1)
			if err := leave(w); err != nil || birth(w) != "2026.03.05" {
				t.Fatalf("%s, %s: %v; nodes boot from %s", reference, by, err, birth(w))
			}
			w.advance(w.now.Add(time.Minute))
			if out, err := w.rollback(t, engine.RollbackOptions{Pool: "a"}); err != nil || out.Changed || birth(w) != "2026.03.05" {
				t.Errorf("%s, %s: a rollback after it: %+v, %v; nodes boot from %s", reference, by, out, err, birth(w))
			}
			if s := w.status(t); s.RollbackTarget != "2026.03.01" || !s.RollbackNamed {
				t.Errorf("%s, %s: status tells %q, by name %t", reference, by, s.RollbackTarget, s.RollbackNamed)
			}
			if _, p := w.withdraw(kamino.WithdrawOptions{Pool: "a", Reason: "another"}); p.err == nil || !strings.Contains(kamino.Hint(p.err), "--version 2026.03.05") || birth(w) != "2026.03.05" {
				t.Errorf("%s, %s: a withdrawal after it: %v; nodes boot from %s", reference, by, p.err, birth(w))
			}
			w.advance(w.now.Add(time.Minute))
			if _, err := w.rollback(t, engine.RollbackOptions{Pool: "a", To: "2026.03.01"}); err != nil || birth(w) != "2026.03.01" {
				t.Errorf("%s, %s: named: %v; nodes boot from %s", reference, by, err, birth(w))
			}
			w.advance(w.now.Add(time.Minute))
			if _, err := w.rollback(t, engine.RollbackOptions{Pool: "a", To: "2026.03.09"}); err != nil || w.status(t).RollbackNamed {
				t.Fatalf("%s, %s: %v, %+v", reference, by, err, w.status(t))
			}
			w.advance(w.now.Add(time.Minute))
			if _, err := w.rollback(t, engine.RollbackOptions{Pool: "a"}); err != nil || birth(w) == "2026.03.09" {
				t.Errorf("%s, %s: chosen since: %v; nodes boot from %s", reference, by, err, birth(w))
			}
		}
	}
}

// TestRollbackToOriginalAgain: so is one that had nothing but the original to go back to. Secrets
// are written whenever they are given.
func TestRollbackToOriginalAgain(t *testing.T) {
	w := made(t)
	for key, a := range w.artifacts {
		if a.Kind == kamino.KindVersion && a.Name != "2026.03.10" {
			delete(w.artifacts, key)
		}
	}
	given := engine.RollbackOptions{Pool: "a", Secrets: kamino.Secrets{CustomData: []byte("bootstrap"), Protected: map[string]json.RawMessage{"cse": nil}}}
	if out, err := w.rollback(t, given); err != nil || out.To != poolstate.ToOriginal || w.pools[poolA].image != baseLTS {
		t.Fatalf("%+v, %v", out, err)
	}
	for range 2 {
		w.advance(w.now.Add(time.Minute))
		before := w.allWrites()
		out, err := w.rollback(t, engine.RollbackOptions{Pool: "a"})
		if err != nil || out.Changed || out.Since != "2026.03.10" || out.To != poolstate.ToOriginal || w.allWrites() != before {
			t.Errorf("repeated: %+v, %v", out, err)
		}
	}
	given.Secrets.Protected = map[string]json.RawMessage{"cse": json.RawMessage(`{"commandToExecute":"join"}`)}
	if out, err := w.rollback(t, given); err != nil || !out.Changed || w.pools[poolA].protected["cse"] == "" {
		t.Errorf("with secrets: %+v, %v", out, err)
	}
	w.sound(t)
}
