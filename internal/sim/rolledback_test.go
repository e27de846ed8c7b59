package sim

import (
	"context"
	"slices"
	"testing"
	"time"

	"kamino.dev/kamino"
	"kamino.dev/kamino/engine"
	"kamino.dev/kamino/internal/worlds"
)

// TestRollbackThenStay: a rollback fails halfway, and a person says by its name that the present
// version stays. No night takes it back.
func TestRollbackThenStay(t *testing.T) {
	for reference, begin := range byReference() {
		log := &proc{logging: true}
		w := begin(1)
		if err := tryRollback(w, log, engine.RollbackOptions{Pool: "a", To: "2026.03.05"}); err != nil {
			t.Fatal(err)
		}
		for _, s := range log.log {
			for _, kind := range []worlds.Fault{worlds.Forbidden, worlds.KillBefore} {
				w := begin(1)
				was := birth(w)
				p := &proc{faults: []fault{{kind: kind, at: s.at}}}
				err := tryRollback(w, p, engine.RollbackOptions{Pool: "a", To: "2026.03.05"})
				if birth(w) != was {
					continue
				}
				w.advance(w.now.Add(10 * time.Minute))
				out, err2 := w.rollback(t, engine.RollbackOptions{Pool: "a", To: was})
				if err2 != nil {
					t.Logf("%s, %s at %s: %v, then %v", reference, kind, s, err, err2)
					continue
				}
				left := w.leases[poolA].Ledger.RolledBack
				w.advance(w.now.Add(10 * time.Hour))
				night, res := w.auto(nightly(kamino.ProveCanary))
				if got := birth(w); got != was || slices.Contains(left, was) {
					t.Errorf("%s, %s at %s: the rollback ended %v; kamino rollback --to %s: changed %v; the ledger distrusts %v; after the night (%v, %+v) nodes boot from %s", reference, kind, s, err, was, out.Changed, left, night.err, res[0].Why, got)
				}
			}
		}
	}
}

func tryRollback(w *world, p *proc, o engine.RollbackOptions) error {
	w.spawn(p, func(ctx context.Context) { _, p.err = p.engine().Rollback(ctx, o) })
	w.wait()
	return p.err
}

// TestRollbackFailedDistrusts: a rollback that failed before it announced a write leaves nothing
// distrusted, neither what is there nor what an ended run may have begun.
func TestRollbackFailedDistrusts(t *testing.T) {
	for reference, begin := range byReference() {
		o, at := building(t, begin)
		ended := func() *world {
			w := begin(1)
			w.startUpdate(&proc{faults: []fault{{kind: worlds.KillBefore, at: at}}}, o)
			w.wait()
			return w
		}
		back, log, tried := engine.RollbackOptions{Pool: "a", To: "2026.03.05"}, &proc{logging: true}, 0
		_ = tryRollback(ended(), log, back)
		for _, s := range log.log {
			if s.step == "mark" && s.call.write || s.step == "model" && s.call.method == "Promote" {
				break // it was announced
			}
			w := ended()
			was := birth(w)
			err := tryRollback(w, &proc{faults: []fault{{kind: worlds.Forbidden, at: s.at}}}, back)
			if err == nil {
				continue
			}
			tried++
			if left := w.leases[poolA].Ledger.RolledBack; len(left) > 0 || birth(w) != was {
				t.Errorf("%s: forbidden at %s: the rollback ended %v, nodes boot from %s, and the ledger distrusts %v", reference, s, err, birth(w), left)
			}
		}
		if tried < 4 {
			t.Errorf("%s: only %d places", reference, tried)
		}
	}
}

// TestRollbackNamedAgain: what the ledger alone distrusts is trusted again once a person rolls
// forward to it.
func TestRollbackNamedAgain(t *testing.T) {
	for reference, begin := range byReference() {
		w, back := begin(1), engine.RollbackOptions{Pool: "a", To: "2026.03.05"}
		if _, err := w.rollback(t, back); err != nil {
			t.Fatal(err)
		}
		v := w.addVersion(poolA, "2026.03.10")
		v.State, v.Ready, v.Excluded = kamino.Creating, false, true
		if _, err := w.rollback(t, back); err != nil {
			t.Fatal(err)
		}
		for _, excluded := range []bool{true, false} {
			v.State, v.Ready, v.Excluded = kamino.Succeeded, true, excluded
			out, err := w.rollback(t, engine.RollbackOptions{Pool: "a", To: "2026.03.10"})
			if left := w.leases[poolA].Ledger.RolledBack; err != nil || len(left) > 0 || birth(w) != "2026.03.10" {
				t.Errorf("%s, excluded %v: %+v, %v; the ledger distrusts %v, nodes boot from %s", reference, excluded, out, err, left, birth(w))
			}
			if _, err := w.rollback(t, back); err != nil {
				t.Fatal(err)
			}
			delete(v.Tags, kamino.TagBad)
			delete(v.Tags, kamino.TagOffer)
			l := w.leases[poolA]
			l.Ledger.RolledBack = []string{"2026.03.10"}
			w.leases[poolA] = l
		}
	}
}

// TestRollbackAfterWithdrawal: between a run that died while its version was built, and a rollback,
// a person withdrew the present version.
func TestRollbackAfterWithdrawal(t *testing.T) {
	for reference, begin := range byReference() {
		o, at := building(t, begin)
		w := begin(1)
		w.startUpdate(&proc{faults: []fault{{kind: worlds.LateCreate, at: at}, {kind: worlds.KillBefore, at: at + 1}}}, o)
		w.wait()
		name := kamino.VersionName(w.now)
		w.version(name).hidden = w.now.Add(15 * time.Minute)
		_, p := w.withdraw(kamino.WithdrawOptions{Pool: "a", Reason: "bad"})
		if p.err != nil {
			t.Fatal(p.err)
		}
		if _, err := w.rollback(t, engine.RollbackOptions{Pool: "a", To: "2026.03.05"}); err != nil {
			t.Fatal(err)
		}
		for range 3 {
			w.advance(w.now.Add(24 * time.Hour))
			if p, res := w.auto(nightly(kamino.ProveCanary)); p.err != nil {
				t.Errorf("%s: the night: %+v, %v", reference, res, p.err)
			}
		}
		if got := birth(w); got != "2026.03.05" {
			t.Errorf("%s: nodes boot from %s; distrusted %v", reference, got, w.leases[poolA].Ledger.RolledBack)
		}
	}
}
