package sim

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"kamino.dev/kamino"
	"kamino.dev/kamino/engine"
	"kamino.dev/kamino/poolstate"
)

// TestVersionsUnlisted: a list of versions that lacks what is known to be there, for as long as
// other reads may not find what exists, is waited for, and the version of the run gets the name
// that it would have got.
func TestVersionsUnlisted(t *testing.T) {
	for reference, begin := range byReference() {
		for what, happens := range map[string]func(*world){
			"nothing is listed":   func(w *world) { w.vanished = w.now.Add(2 * time.Minute) },
			"the newest is not":   func(w *world) { w.version("2026.03.1001").hidden = w.now.Add(2 * time.Minute) },
			"a made one is not":   func(w *world) { w.version("2026.03.1002").hidden = w.now.Add(2 * time.Minute) },
			"everything is there": func(*world) {},
		} {
			w := begin(1)
			v := w.addVersion(poolA, "2026.03.1001")
			waits := w.waits("2026.03.1002")
			v.Tags[kamino.TagOffer], v.Tags[kamino.TagRun] = "offered", "r-0"
			waits.Artifact = kamino.ParseVersion(waits.Artifact).Withdrawn(kamino.Bad{Reason: "bad"}).Artifact
			l := w.leases[poolA]
			if reference == "by version" {
				w.pools[poolA].image = v.ID
				l.Ledger.Wrote = &kamino.WrittenModel{Image: v.ID, Seen: true}
			} else {
				l.Ledger.Promoted = &kamino.Promotion{Version: v.Name, At: w.now.Add(-time.Hour)}
			}
			l.Ledger.Past = []kamino.PastRun{{Run: "r-1", Version: "2026.03.1002", Ended: w.now.Add(-time.Hour)}}
			w.leases[poolA] = l
			o := options("a-0")
			o.Today = kamino.TodayAgain
			p := w.startUpdate(&proc{tune: heard(func(ev kamino.Event) {
				if ev.Step == "version" && ev.Kind == kamino.EventStarted {
					happens(w)
				}
			})}, o)
			w.wait()
			if got := birth(w); p.err != nil || got != "2026.03.1003" {
				t.Errorf("%s, %s: %v; nodes boot from %s", reference, what, p.err, got)
			}
			w.sound(t)
		}
	}
}

// TestVersionsGone: what stays away from lists is believed to be gone at last.
func TestVersionsGone(t *testing.T) {
	w := aged(1)
	delete(w.artifacts, artifactKey(poolA, kamino.KindVersion, "2026.03.09"))
	began := w.now
	o := options("a-0")
	o.AdoptModel = true
	if p := w.update(o); p.err != nil || birth(w) != kamino.VersionName(w.now) || w.now.Sub(began) < goneAfter {
		t.Errorf("%v after %s; nodes boot from %s", p.err, w.now.Sub(began), birth(w))
	}
}

// TestForeignLater: a hidden version of somebody else, whose name counts as later, is none of ours:
// it holds nothing up, hides no version of ours that is to be proved or promoted, and is not
// marked.
func TestForeignLater(t *testing.T) {
	for reference, begin := range byReference() {
		foreign := func() (*world, *simArtifact) {
			w := begin(1)
			w.watchNext()
			v := w.addVersion(poolA, "2099.01.01")
			v.Excluded, v.Tags = true, map[string]string{"team": "x"}
			return w, v
		}
		alone := func(v *simArtifact) {
			t.Helper()
			if len(v.Tags) != 1 || !v.Excluded {
				t.Errorf("%s: the foreign version is %+v", reference, v.Artifact)
			}
		}
		w, v := foreign()
		w.patch("a-0", w.now.Add(-time.Hour).Format(time.RFC3339))
		w.nodes["a-0"].ReadySince = w.now.Add(-time.Hour)
		if p, res := w.auto(autoOptions()); p.err != nil || birth(w) != kamino.VersionName(w.now) {
			t.Errorf("%s: a night ended %v, %+v; nodes boot from %s", reference, p.err, res, birth(w))
		}
		if _, err := w.rollback(t, engine.RollbackOptions{Pool: "a", To: "2026.03.05"}); err != nil {
			t.Errorf("%s: a rollback ended %v", reference, err)
		}
		alone(v)

		w, v = foreign()
		w.sick = noQuota
		o := proving()
		_ = w.update(o)
		w.sick = healthy
		w.advance(w.now.Add(24 * time.Hour))
		night := autoOptions()
		night.Proof = o.Proof
		p, res := w.auto(night)
		if got := w.turns(); p.err != nil || !slices.Equal(got, []string{"2026.03.09", "2026.03.10"}) {
			t.Errorf("%s: with one of ours to be proved: %v, %+v; nodes boot from %v", reference, p.err, res, got)
		}
		alone(v)

		w, _ = foreign()
		w.waits("2026.03.10")
		night.Proof.Promote = kamino.PromoteManual
		if p, res := w.auto(night); p.err != nil || !kamino.Has(res[0].Held, "promote") {
			t.Errorf("%s: with one of ours that waits: %v, %+v", reference, p.err, res)
		}
		ours := func(list []kamino.Artifact) string {
			return fmt.Sprint(engine.Prunable(kamino.ParseVersions(list), 2, 1, kamino.Ledger{}))
		}
		if with, without := ours(w.versions(poolA)), ours(w.versions(poolA)[1:]); with != without {
			t.Errorf("%s: pruned with the foreign one: %s, without: %s", reference, with, without)
		}
	}
}

// noCanaries is a provider without the rights for a canary.
type noCanaries struct{ simProvider }

func (noCanaries) PreflightCanary(context.Context) ([]kamino.Warning, error) {
	return nil, fmt.Errorf("create scale sets: %w", kamino.ErrForbidden)
}

// TestNoCanary: where no canary can be created, a run is refused before it changes anything, whoever
// promotes; auto-update tries no other donor. With --prove none the version is made.
func TestNoCanary(t *testing.T) {
	without := func(e *engine.Engine) { e.Provider = noCanaries{e.Provider.(simProvider)} }
	for reference, begin := range byReference() {
		for _, promote := range []kamino.PromoteMode{kamino.PromoteAuto, kamino.PromoteManual} {
			w := begin(1)
			o := proving()
			o.Proof.Promote = promote
			p := w.startUpdate(&proc{tune: without}, o)
			w.wait()
			var refused *kamino.RefusedError
			if !errors.As(p.err, &refused) || refused.Refusals[0].Code != kamino.CodeNoCanary || !strings.Contains(refused.Error(), "--prove none") || w.writes > 0 || birth(w) != "2026.03.09" {
				t.Errorf("%s, --promote %s: %v; %d writes, nodes boot from %s", reference, promote, p.err, w.writes, birth(w))
			}
			night := nightly(kamino.ProveCanary)
			night.Proof.Promote = promote
			w.patch("a-0", w.now.Add(-time.Hour).Format(time.RFC3339))
			w.nodes["a-0"].ReadySince = w.now.Add(-time.Hour)
			var res []engine.PoolResult
			p = &proc{tune: without}
			w.spawn(p, func(ctx context.Context) { res, p.err = p.engine().AutoUpdate(ctx, night) })
			w.wait()
			if !errors.As(p.err, &refused) || refused.Refusals[0].Code != kamino.CodeNoCanary || len(res) != 1 || len(res[0].Failed) > 0 || w.writes > 0 {
				t.Errorf("%s, --promote %s, a night: %v, %+v; %d writes", reference, promote, p.err, res, w.writes)
			}
			var plans []poolstate.PoolPlan
			p = &proc{tune: without}
			w.spawn(p, func(ctx context.Context) { plans, p.err = p.engine().PlanPools(ctx, night) })
			w.wait()
			if p.err != nil || len(plans) != 1 || !kamino.Has(plans[0].Held, "refused") || plans[0].Refusals[0].Code != kamino.CodeNoCanary {
				t.Errorf("%s, --promote %s, a plan: %v, %+v", reference, promote, p.err, plans)
			}
		}
		w := begin(1)
		o := proving()
		o.Proof.Mode = kamino.ProveNone
		p := w.startUpdate(&proc{tune: without}, o)
		w.wait()
		if p.err != nil || birth(w) != kamino.VersionName(w.now) {
			t.Errorf("%s, --prove none: %v; nodes boot from %s", reference, p.err, birth(w))
		}
	}
}

// TestWatchTriesAgain: a withdrawal that could not be made, as while another run has the pool, is
// tried again by the next look of a watch.
func TestWatchTriesAgain(t *testing.T) {
	w := aged(1)
	w.watchNext()
	w.version("2026.03.09").sick = mute
	p := &proc{}
	w.spawn(p, p.watches)
	w.after(time.Minute, func() { w.grow(w.pools[poolA], 5) })
	beat := func() {
		l := w.leases[poolA]
		l.Holder, l.Process, l.Revision = "r-other", "other/1", fmt.Sprint("r", w.next())
		w.leases[poolA] = l
	}
	for tick := range 80 { // for 13 minutes: longer than it takes to blame the version
		w.after(time.Duration(tick)*10*time.Second, beat)
	}
	w.after(15*time.Minute, func() {
		l := w.leases[poolA]
		l.Holder, l.Process, l.Revision = "", "", fmt.Sprint("r", w.next())
		w.leases[poolA] = l
	})
	w.wait()
	var proof *kamino.ProofError
	if got := w.turns(); !errors.As(p.err, &proof) || !slices.Equal(got, []string{"2026.03.09", "2026.03.05"}) {
		t.Errorf("%v; nodes boot from %v", p.err, got)
	}
}
