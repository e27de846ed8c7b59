package sim

import (
	"slices"
	"strings"
	"testing"
	"time"

	"kamino.dev/kamino"
	"kamino.dev/kamino/engine"
	"kamino.dev/kamino/internal/worlds"
)

// TestFailedProofTold: a process is killed at any write from the withdrawal of a bad version on.
// Whoever ends its run reads from the version that its proof failed: the ledger tells that, of
// which notifications and metrics are made, and an event on the donor.
func TestFailedProofTold(t *testing.T) {
	restored := func(w *world, _ kamino.Options) { w.restore() }
	for ender, ends := range map[string]func(*world, kamino.Options){
		"a restore":       restored,
		"a night":         func(w *world, o kamino.Options) { w.auto(nightly(o.Proof.Mode)) },
		"the same update": func(w *world, o kamino.Options) { w.update(o) },
		"another update":  func(w *world, o kamino.Options) { o.Donor = "a-1"; w.update(o) },
		"a rollback": func(w *world, _ kamino.Options) {
			_, _ = w.rollback(t, engine.RollbackOptions{Pool: "a", To: "2026.03.05"})
		},
	} {
		o := proving()
		golden := &proc{logging: true}
		w := aged(1)
		w.sick = mute
		w.startUpdate(golden, o)
		w.wait()
		seen, tried := false, 0
		for _, s := range golden.log {
			seen = seen || strings.HasPrefix(s.call.method, "Withdraw")
			if !seen || !s.call.write {
				continue
			}
			for _, kind := range []worlds.Fault{worlds.KillBefore, worlds.KillUnheard, worlds.KillAfter} {
				w := aged(1)
				w.sick = mute
				w.update(o, fault{kind: kind, at: s.at})
				w.advance(w.now.Add(10 * time.Minute))
				w.sick = healthy
				ends(w, o)
				v := w.version("2026.03.10")
				if v == nil || !strings.Contains(v.Tags[kamino.TagBad], "ready: ") {
					continue // it was killed before
				}
				tried++
				told := slices.ContainsFunc(w.leases[poolA].Ledger.Past, func(p kamino.PastRun) bool {
					return p.Proof == kamino.ProofFailed && !p.Interrupted && strings.Contains(p.Failure, "failed its proof: ready: ")
				})
				event := slices.ContainsFunc(w.events, func(e string) bool {
					return strings.HasPrefix(e, "a-0 KaminoProofFailed") && strings.Contains(e, "ready: ")
				})
				if !told || !event {
					t.Errorf("%s, %s at %s: an event %t, and the ledger tells %+v", ender, kind, s, event, w.leases[poolA].Ledger.Past[0])
				}
			}
		}
		if tried < 3 {
			t.Errorf("%s: %d kills were tried", ender, tried)
		}
	}
}
