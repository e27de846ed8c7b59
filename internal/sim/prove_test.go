package sim

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"kamino.dev/kamino"
	"kamino.dev/kamino/engine"
	"kamino.dev/kamino/internal/sweep"
	"kamino.dev/kamino/internal/worlds"
	"kamino.dev/kamino/poolstate"
)

func proving() kamino.Options {
	o := options("a-0")
	o.Proof.Mode, o.Proof.For, o.Proof.Budget = kamino.ProveCanary, 2*time.Minute, 5*time.Minute
	return o
}

// TestProve: the version is hidden from birth, a canary boots from it, joins, is examined and goes
// before the pool's next image changes, once; by version and where the pool points. Killed at each
// call of it, the next run ends the same.
func TestProve(t *testing.T) {
	for by, world := range map[string]func(uint64) *world{"version": aged, "definition": pointing} {
		o := proving()
		w := world(1)
		w.watchNext()
		p := &proc{logging: true, tune: heard(func(ev kamino.Event) {
			if ev.Kind == kamino.EventRetry {
				t.Errorf("by %s, undisturbed: %s: %s", by, ev.Step, ev.Message)
			}
		})}
		w.startUpdate(p, o)
		w.wait()
		fresh := kamino.VersionName(w.now)
		v := w.version(fresh)
		if p.err != nil || v == nil || v.Excluded || v.Tags[kamino.TagOffer] != "offered" || v.Tags[kamino.TagProof] != "passed" {
			t.Fatalf("by %s: the update ended %v, version %+v", by, p.err, v)
		}
		if got := w.turns(); !slices.Equal(got, []string{"2026.03.09", fresh}) {
			t.Fatalf("by %s: the next instance boots from %v", by, got)
		}
		if how := p.result.Proof; p.result.Next != fresh || how == nil || how.By != kamino.ProveCanary || how.ReadySeconds == 0 || how.Checks != len(kamino.Checks())-1 {
			t.Errorf("by %s: the result tells %q, %+v", by, p.result.Next, how)
		}
		launched, promoted, proved := false, false, false
		for _, s := range p.log {
			launched = launched || s.call.method == "Create canary"
			proved = proved || s.step == "examine" && s.call.write && !s.call.kube
			if s.step == "model" && s.call.write && !s.call.kube {
				promoted = true
				if !launched || !proved {
					t.Errorf("by %s: promoted before the proof: %s", by, s)
				}
			}
		}
		if !launched || !promoted {
			t.Errorf("by %s: launched %t, promoted %t", by, launched, promoted)
		}
		w.audit.settled()
		w.sound(t)
		steps := []string{"launch", "join", "examine", "retire", "model"}
		kinds := []worlds.Fault{worlds.KillBefore, worlds.KillUnheard, worlds.KillAfter, worlds.LostReply, worlds.Absent, worlds.LateCreate, worlds.ServerError, worlds.Conflict}
		trials := faultsIn(p.log, kinds, steps...)
		for i := range sweep.Cases(t, len(trials), 10*time.Second, func(i int) string { return trials[i].what() + trials[i].site.step }) {
			x := trials[i]
			w := world(1)
			w.watchNext()
			w.startUpdate(&proc{faults: []fault{{kind: x.kind, at: x.site.at}}}, o)
			w.wait()
			second := w.update(o)
			if got := w.turns(); second.err != nil || !slices.Equal(got, []string{"2026.03.09", fresh}) {
				t.Errorf("by %s, %s: the run after it ended %v; the next instance boots from %v", by, x, second.err, got)
			}
			w.audit.settled()
			w.sound(t)
		}
	}
}

// TestProveBad: an image whose clone is sick is withdrawn with the reason, the pool boots from what
// it booted from before, and nothing of the canary is left. The next candidate is taken.
func TestProveBad(t *testing.T) {
	for sick, check := range map[sickness]string{mute: "ready", flaps: "stable", twin: "identity", lacking: "daemonsets"} {
		w := aged(1)
		w.sick = sick
		var found []string
		p := &proc{tune: heard(func(ev kamino.Event) {
			if _, what, ok := strings.Cut(ev.Message, "proof of version "+kamino.VersionName(w.now)+": fail: "); ok && ev.Kind == kamino.EventWarning {
				found = append(found, what)
			}
		})}
		w.startUpdate(p, proving())
		w.wait()
		v := w.version(kamino.VersionName(w.now))
		var proof *kamino.ProofError
		if !errors.As(p.err, &proof) || proof.Outcome != kamino.ProofFailed || proof.Findings[0].Check != check {
			t.Fatalf("%s: %v", sick, p.err)
		}
		if len(found) != len(proof.Findings) || found[0] != proof.Findings[0].String() {
			t.Errorf("%s: reported are %q, found was %v", sick, found, proof.Findings)
		}
		if v.Tags[kamino.TagOffer] != "withdrawn" || !strings.Contains(v.Tags[kamino.TagBad], check+": ") || !v.Excluded {
			t.Errorf("%s: %+v", sick, v.Tags)
		}
		if past := w.leases[poolA].Ledger.Past[0]; past.Proof != kamino.ProofFailed {
			t.Errorf("%s: the ledger tells %+v", sick, past)
		}
		if got := w.turns(); !slices.Equal(got, []string{"2026.03.09"}) {
			t.Errorf("%s: the next instance boots from %v", sick, got)
		}
		w.audit.settled()
		w.sound(t)
		if again := w.update(proving()); again.err == nil {
			t.Errorf("%s: a withdrawn version is used again", sick)
		}
		if _, err := w.promote(engine.PromoteOptions{Pool: "a", Version: v.Name}); err == nil {
			t.Errorf("%s: a withdrawn version is promoted", sick)
		}
	}
}

// TestProveNextCandidate: auto-update takes the next candidate where the image of the first is bad,
// and tells both.
func TestProveNextCandidate(t *testing.T) {
	w := aged(1)
	for _, name := range []string{"a-0", "a-1", "a-2"} {
		w.nodes[name].Annotations[kamino.KuredLastPatch.Annotation] = w.now.Format(time.RFC3339)
		w.nodes[name].ReadySince = w.now.Add(-time.Hour)
	}
	w.sick = mute
	cure := func(e *engine.Engine) {
		report := e.Report
		e.Report = func(ev kamino.Event) {
			if report(ev); ev.Step == "retire" && ev.Kind == kamino.EventDone {
				w.sick = healthy
			}
		}
	}
	o := autoOptions()
	o.Proof = proving().Proof
	var res []engine.PoolResult
	p := &proc{tune: cure}
	w.spawn(p, func(ctx context.Context) { res, p.err = p.engine().AutoUpdate(ctx, o) })
	w.wait()
	if p.err != nil || len(res) != 1 || len(res[0].Failed) != 1 || res[0].Result == nil {
		t.Fatalf("%v, %+v", p.err, res)
	}
	if got := w.turns(); len(got) != 2 || got[1] != kamino.VersionName(w.now)+"01" {
		t.Errorf("the next instance boots from %v", got)
	}
	w.audit.settled()
	w.sound(t)
}

// TestProveInconclusive: where the cloud has no room the version stays hidden, nobody is marked,
// and the next run proves it, on the same day and on the next.
func TestProveInconclusive(t *testing.T) {
	for _, later := range []time.Duration{time.Minute, 24 * time.Hour} {
		w := aged(1)
		w.sick = noQuota
		p := w.update(proving())
		fresh := kamino.VersionName(w.now)
		var proof *kamino.ProofError
		if !errors.As(p.err, &proof) || proof.Outcome != kamino.ProofInconclusive || proof.Findings[0].Check != "cloud" {
			t.Fatal(p.err)
		}
		v := w.version(fresh)
		if v.Tags[kamino.TagOffer] != "hidden" || v.Tags[kamino.TagBad] != "" || !strings.HasPrefix(v.Tags[kamino.TagProof], "inconclusive: cloud") {
			t.Errorf("%+v", v.Tags)
		}
		w.audit.settled()
		w.advance(w.now.Add(later))
		w.sick = healthy
		o := autoOptions()
		o.Proof = proving().Proof
		again, res := w.auto(o)
		if got := w.turns(); again.err != nil || !slices.Equal(got, []string{"2026.03.09", fresh}) {
			t.Errorf("after %s: %v, %+v; the next instance boots from %v", later, again.err, res, got)
		}
		w.audit.settled()
		w.sound(t)
	}
}

// TestProveBelow: a version that was not proved is proved by the night after a newer one was
// withdrawn, and never promoted without.
func TestProveBelow(t *testing.T) {
	for _, world := range []func(uint64) *world{aged, pointing} {
		for _, sick := range []sickness{healthy, mute} {
			w := world(1)
			w.watchNext()
			w.sick = noQuota
			_ = w.update(proving())
			second := w.version(kamino.VersionName(w.now))
			w.advance(w.now.Add(24 * time.Hour))
			w.sick = mute
			_ = w.update(proving())
			if third := w.version(kamino.VersionName(w.now)); second.Tags[kamino.TagOffer] != "hidden" || third == nil || third.Tags[kamino.TagOffer] != "withdrawn" {
				t.Fatalf("%v, %+v", second.Tags, third)
			}
			w.advance(w.now.Add(24 * time.Hour))
			second.sick, w.sick = sick, sick
			want := []string{"2026.03.09"}
			o := autoOptions()
			o.Proof = proving().Proof
			if sick == healthy {
				want = append(want, second.Name)
			}
			p, res := w.auto(o)
			if got := w.turns(); !slices.Equal(got, want) || (sick == healthy) != (second.Tags[kamino.TagProof] == "passed") {
				t.Errorf("clones %q: %v, %+v; the next instance boots from %v, %v", sick, p.err, res, got, second.Tags)
			}
			w.audit.settled()
			w.sound(t)
		}
	}
}

// TestForeignNodesStay: what a lease calls a canary is a claim. Only the node of a canary of its
// own run is deleted, and only where its machine is none of a pool.
func TestForeignNodesStay(t *testing.T) {
	w := aged(1)
	l := w.leases[poolA]
	l.Pool, l.Holder, l.Process, l.Record = poolA, "r-dead", "dead/1", kamino.Record{Donor: "a-0", Canary: "a-", Step: "examine"}
	w.leases[poolA] = l
	own := kamino.CanaryName(poolA, "r-dead") + "00000"
	for name, id := range map[string]kamino.InstanceID{own + "1": w.nodes["a-1"].ProviderID, own + "2": "", "kamino-00000000000000": ""} {
		w.nodes[name] = &simNode{Node: kamino.Node{Name: name, UID: name, ProviderID: id, Annotations: map[string]string{}}}
	}
	p := w.restore()
	for name, stays := range map[string]bool{"a-0": true, "a-1": true, "a-2": true, own + "1": true, own + "2": false, "kamino-00000000000000": true} {
		if (w.nodes[name] != nil) != stays {
			t.Errorf("restore ended %v: node %s is there %t", p.err, name, w.nodes[name] != nil)
		}
	}
}

// TestCanariesLeft: the canary of a run that was killed is removed with its node by the next run,
// also by one that proves nothing, and by a nightly run that has nothing to do; where no list shows
// it, by its name.
func TestCanariesLeft(t *testing.T) {
	o := proving()
	p := &proc{logging: true}
	w := aged(1)
	w.startUpdate(p, o)
	w.wait()
	again := options("a-1")
	again.Today = kamino.TodayAgain
	for _, step := range []string{"launch", "join", "examine"} {
		at := -1
		for _, s := range p.log {
			if s.step == step {
				at = s.at
			}
		}
		for name, next := range map[string]func(*world) error{
			"update of another donor": func(w *world) error { return w.update(again).err },
			"restore":                 func(w *world) error { return w.restore().err },
			"restore, not listed": func(w *world) error {
				for _, c := range w.canaries {
					c.hidden = w.now.Add(10 * time.Minute)
				}
				return w.restore().err
			},
		} {
			w := aged(1)
			w.startUpdate(&proc{faults: []fault{{kind: worlds.KillBefore, at: at}}}, o)
			w.wait()
			if err := next(w); err != nil || len(w.canaries) > 0 {
				t.Errorf("killed in %s, then %s: %v, %d canaries", step, name, err, len(w.canaries))
			}
			for n := range w.nodes {
				if strings.HasPrefix(n, "kamino-") {
					t.Errorf("killed in %s, then %s: node %s is left", step, name, n)
				}
			}
		}
	}
	w = aged(1)
	name := kamino.CanaryName(poolA, "r-old")
	w.canaries[name] = &simCanary{pool: poolA, Canary: kamino.Canary{Name: name, Run: "r-old", State: kamino.Succeeded, Expires: w.now.Add(-time.Hour)}}
	if night, res := w.auto(autoOptions()); night.err != nil || len(w.canaries) > 0 {
		t.Errorf("a nightly run ended %v, %+v; %d canaries", night.err, res, len(w.canaries))
	}
	w.canaries[name] = &simCanary{pool: poolA, Canary: kamino.Canary{Name: name, Run: "r-alive", State: kamino.Succeeded, Expires: w.now.Add(time.Hour)}}
	if left := w.restore(); left.err != nil || len(left.found) != 1 || left.found[0].Done != "" || left.found[0].Reason == "" || len(w.canaries) != 1 {
		t.Errorf("a canary of a run that nobody knows: %v, %+v", left.err, left.found)
	}
}

// TestPromoteByHand: with --promote manual a version that passed waits, nightly runs do nothing and
// say so, and a person promotes it.
func TestPromoteByHand(t *testing.T) {
	for _, world := range []func(uint64) *world{aged, pointing} {
		w := world(1)
		o := proving()
		o.Proof.Promote = kamino.PromoteManual
		p := w.update(o)
		fresh := kamino.VersionName(w.now)
		if got := w.turns(); p.err != nil || len(got) > 1 {
			t.Fatalf("%v; the next instance boots from %v", p.err, got)
		}
		w.leftWaiting(t, fresh)
		w.advance(w.now.Add(24 * time.Hour))
		nightly := autoOptions()
		nightly.Proof = o.Proof
		before := w.writes
		again, res := w.auto(nightly)
		if again.err != nil || w.writes != before || !kamino.Has(res[0].Held, "promote") {
			t.Errorf("%v, %d writes, %+v", again.err, w.writes-before, res)
		}
		if back, err := w.promote(engine.PromoteOptions{Pool: "a"}); err != nil || back.To != fresh {
			t.Errorf("%+v, %v", back, err)
		}
		if got := w.turns(); !slices.Equal(got, []string{"2026.03.09", fresh}) {
			t.Errorf("the next instance boots from %v", got)
		}
		w.audit.settled()
		w.sound(t)
	}
}

// TestByHandBeforeItPassed: that a version which is there already is left to a person stands on it
// from the first write of its proof: a run that is killed then and ended by a restore leaves no
// other trace, and a nightly run with other options must not promote it.
func TestByHandBeforeItPassed(t *testing.T) {
	begin := func() *world {
		w := aged(1)
		w.sick = noQuota
		if p := w.update(proving()); p.err == nil { // inconclusive: it stays hidden
			t.Fatal("a proof without room for its canary passed")
		}
		w.sick = healthy
		return w
	}
	o := proving()
	o.Proof.Promote = kamino.PromoteManual
	golden := &proc{logging: true}
	w := begin()
	w.startUpdate(golden, o)
	w.wait()
	launched := nth(t, golden.log, "launch", "Create canary", 1)
	w = begin()
	fresh := kamino.VersionName(w.now)
	was := w.turns()
	w.update(o, fault{kind: worlds.KillAfter, at: launched})
	w.pass(t) // a restore ends it
	again := proving()
	again.Today = kamino.TodayOfAny
	if p := w.update(again); p.err != nil || !p.result.Waiting {
		t.Errorf("the next run ended %v: %+v", p.err, p.result)
	}
	w.leftWaiting(t, fresh)
	if got := w.turns(); !slices.Equal(got, was) {
		t.Errorf("the next instance boots in turn from %v", got)
	}
	w.sound(t)
}

// TestByHandUnproved: a run that neither proves nor promotes a version which is there already says
// on it that a person is to promote it; else the next one with other options would.
func TestByHandUnproved(t *testing.T) {
	w := aged(1)
	w.sick = noQuota
	if p := w.update(proving()); p.err == nil { // inconclusive: it stays hidden
		t.Fatal("a proof without room for its canary passed")
	}
	fresh, was := kamino.VersionName(w.now), w.turns()
	o := proving()
	o.Proof.Mode, o.Proof.Promote = kamino.ProveNone, kamino.PromoteManual
	var plan *poolstate.Plan
	p := &proc{}
	w.spawn(p, func(ctx context.Context) { plan, p.err = p.engine().Plan(ctx, o) })
	w.wait()
	if p.err != nil || plan.Nothing || !slices.ContainsFunc(plan.Steps, func(s poolstate.PlannedStep) bool {
		return strings.HasSuffix(s.Would, "that a person is to promote it")
	}) {
		t.Errorf("a dry run: %+v, %v", plan, p.err)
	}
	for _, promote := range []kamino.PromoteMode{kamino.PromoteManual, kamino.PromoteAuto} {
		o.Proof.Promote = promote
		if p := w.update(o); p.err != nil || !p.result.Waiting {
			t.Errorf("--promote %s: %v, %+v", promote, p.err, p.result)
		}
		if got := w.turns(); w.version(fresh).Tags[kamino.TagPromote] != "manual" || !slices.Equal(got, was) {
			t.Errorf("--promote %s: %v, the next instance boots from %v", promote, w.version(fresh).Tags, got)
		}
	}
	w.sound(t)
}

// leftWaiting runs without --promote manual, and expects that each leaves the version waiting and
// says so.
func (w *world) leftWaiting(t *testing.T, version string) {
	t.Helper()
	was := w.turns()
	for _, mode := range []kamino.ProveMode{kamino.ProveCanary, kamino.ProveNone} {
		night, again := autoOptions(), proving()
		night.Proof, night.Proof.Mode = again.Proof, mode
		again.Proof.Mode, again.Donor = mode, w.version(version).Tags[kamino.TagBuiltFrom]
		if p, res := w.auto(night); p.err != nil || !kamino.Has(res[0].Held, "promote") {
			t.Errorf("a nightly run with --prove %s ended %v: %+v", mode, p.err, res)
		}
		again.Today = kamino.TodayOfAny
		if p := w.update(again); p.err != nil || !p.result.Waiting {
			t.Errorf("an update with --prove %s ended %v: %+v", mode, p.err, p.result)
		}
		if got := w.turns(); !slices.Equal(got, was) {
			t.Fatalf("with --prove %s and without --promote manual: the next instance boots from %v", mode, got)
		}
	}
}

// TestPromoteByHandKilled: a run that goes on with one that was to wait leaves its version waiting.
func TestPromoteByHandKilled(t *testing.T) {
	o := proving()
	o.Proof.Promote = kamino.PromoteManual
	w, p := aged(1), &proc{logging: true}
	w.startUpdate(p, o)
	w.wait()
	seen := map[string]bool{}
	for _, s := range p.log {
		if seen[s.step] || !s.call.write || s.step == "lock" || s.step == "connect" {
			continue
		}
		seen[s.step] = true
		w := aged(1)
		w.watchNext()
		w.startUpdate(&proc{faults: []fault{{kind: worlds.KillAfter, at: s.at}}}, o)
		w.wait()
		p := w.update(proving())
		if got := w.turns(); p.err != nil || len(got) > 1 || !p.result.Waiting {
			t.Errorf("killed in %s, then without --promote manual: %v; the next instance boots from %v", s.step, p.err, got)
		}
	}
	if !seen["image"] || !seen["protect"] {
		t.Errorf("killed in %v only", seen)
	}
}

// TestPromotePinned: what somebody else has put into the model is replaced only where a person says
// so.
func TestPromotePinned(t *testing.T) {
	for _, world := range []func(uint64) *world{aged, pointing} {
		w := world(1)
		o := proving()
		o.Proof.Promote = kamino.PromoteManual
		if p := w.update(o); p.err != nil {
			t.Fatal(p.err)
		}
		if p := w.pools[poolA]; p.image == w.bootsFrom(p) {
			l := w.leases[poolA]
			l.Ledger.Wrote = &kamino.WrittenModel{Image: p.image, Seen: true}
			w.leases[poolA], p.image = l, artifactID(poolA, kamino.KindVersion, "2026.03.05")
		} else {
			w.version("2026.03.09").Tags[kamino.TagOffer] = "offered"
			w.version("2026.03.09").Excluded = true
		}
		was := w.bootsFrom(w.pools[poolA])
		var refused *kamino.RefusedError
		if _, err := w.promote(engine.PromoteOptions{Pool: "a"}); !errors.As(err, &refused) || refused.Refusals[0].Code != "pinned" || w.bootsFrom(w.pools[poolA]) != was {
			t.Errorf("%v; the next instance boots from %s", err, w.bootsFrom(w.pools[poolA]))
		}
		if _, err := w.promote(engine.PromoteOptions{Pool: "a", AdoptModel: true}); err != nil || lastSegment(w.bootsFrom(w.pools[poolA])) != kamino.VersionName(w.now) {
			t.Errorf("with --adopt-model: %v; the next instance boots from %s", err, w.bootsFrom(w.pools[poolA]))
		}
	}
}

// TestVerbs: the history tells a promotion from a rollback.
func TestVerbs(t *testing.T) {
	w := aged(1)
	o := proving()
	o.Proof.Promote = kamino.PromoteManual
	if p := w.update(o); p.err != nil {
		t.Fatal(p.err)
	}
	if _, err := w.promote(engine.PromoteOptions{Pool: "a"}); err != nil {
		t.Fatal(err)
	}
	if p := w.leases[poolA].Ledger.Past[0]; p.Verb != kamino.VerbPromote || p.Pointed != kamino.VersionName(w.now) {
		t.Errorf("after a promotion: %+v", p)
	}
	if _, err := w.rollback(t, engine.RollbackOptions{Pool: "a"}); err != nil {
		t.Fatal(err)
	}
	if p := w.leases[poolA].Ledger.Past[0]; p.Verb != kamino.VerbRollback || p.Pointed != "2026.03.09" || p.Withdrawn != "" {
		t.Errorf("after a rollback: %+v", p)
	}
}

func (w *world) promote(o engine.PromoteOptions) (back engine.Rollback, err error) {
	p := &proc{}
	w.promotedByHand = true
	w.spawn(p, func(ctx context.Context) { back, err = p.engine().PromoteVersion(ctx, o) })
	w.wait()
	return back, err
}

// TestWithdrawByHand: what the pool boots from gives way to the good version before it, with the
// reason; another one is only marked. Without a former one nothing is changed.
func TestWithdrawByHand(t *testing.T) {
	withdraw := func(w *world, o kamino.WithdrawOptions) (back engine.Rollback, err error) {
		p := &proc{}
		w.spawn(p, func(ctx context.Context) { back, err = p.engine().WithdrawVersion(ctx, o) })
		w.wait()
		return back, err
	}
	for _, world := range []func(uint64) *world{aged, pointing} {
		w := world(1)
		w.watchNext()
		if _, err := withdraw(w, kamino.WithdrawOptions{Pool: "a"}); err == nil {
			t.Error("without a reason")
		}
		if _, err := withdraw(w, kamino.WithdrawOptions{Pool: "a", Reason: "disk fills up"}); err != nil {
			t.Fatal(err)
		}
		if v := w.version("2026.03.09"); v.Tags[kamino.TagBad] != "disk fills up" || !v.Excluded {
			t.Errorf("%+v", v)
		}
		if _, err := withdraw(w, kamino.WithdrawOptions{Pool: "a", Version: "2026.03.01", Reason: "old"}); err != nil {
			t.Fatal(err)
		}
		past := w.leases[poolA].Ledger.Past
		if p := past[1]; p.Verb != kamino.VerbWithdraw || p.Reason != "disk fills up" || p.Withdrawn != "2026.03.09" || p.Pointed != "2026.03.05" {
			t.Errorf("the history tells %+v", p)
		}
		if got := w.turns(); !slices.Equal(got, []string{"2026.03.09", "2026.03.05"}) || w.version("2026.03.01").Tags[kamino.TagBad] != "old" {
			t.Errorf("the next instance boots from %v", got)
		}
		w.sound(t)
	}
	w := fresh(1)
	w.sick = noQuota
	if p := w.update(proving()); p.err == nil {
		t.Fatal("proved without a canary")
	}
	if _, err := withdraw(w, kamino.WithdrawOptions{Pool: "a", Version: kamino.VersionName(w.now), Reason: "hidden"}); err != nil || w.version(kamino.VersionName(w.now)).Tags[kamino.TagBad] != "hidden" {
		t.Errorf("a hidden one that no model refers to: %v", err)
	}
	w = fresh(1)
	if p := w.update(options("a-0")); p.err != nil {
		t.Fatal(p.err)
	}
	if _, err := withdraw(w, kamino.WithdrawOptions{Pool: "a", Reason: "first"}); err == nil {
		t.Error("the only version is withdrawn")
	}
}

// TestPause: no run begins while the cluster is paused; one that works gives its donor back and
// ends; rollback and restore go on.
func TestPause(t *testing.T) {
	w := aged(1)
	w.paused = "an incident"
	var refused *kamino.RefusedError
	if p := w.update(options("a-0")); !errors.As(p.err, &refused) || refused.Refusals[0].Code != kamino.CodePaused || w.writes > 0 {
		t.Fatalf("%v, %d writes", p.err, w.writes)
	}
	w.nodes["a-1"].Annotations[kamino.KuredLastPatch.Annotation] = w.now.Format(time.RFC3339)
	w.nodes["a-1"].ReadySince = w.now.Add(-time.Hour)
	again, res := w.auto(autoOptions())
	if again.err != nil || w.writes > 0 || !kamino.Has(res[0].Held, "paused") {
		t.Errorf("%v, %+v", again.err, res)
	}
	w.paused = ""
	p := w.startUpdate(&proc{}, options("a-0"))
	w.after(3*time.Minute, func() { w.paused = "an incident" })
	w.wait()
	if !errors.As(p.err, &refused) || len(w.turns()) > 1 {
		t.Errorf("%v; %v", p.err, w.turns())
	}
	if text := p.err.Error(); !strings.Contains(text, "the run ends and gives back what it took: kamino resume, then the same command") || strings.Contains(text, "new runs") {
		t.Errorf("the run at work is told: %s", text)
	}
	w.audit.settled()
	w.sound(t)
	if p := w.restore(); p.err != nil {
		t.Error(p.err)
	}
	if _, err := w.promote(engine.PromoteOptions{Pool: "a", Version: "2026.03.09"}); err == nil {
		t.Error("promoted while the cluster is paused")
	}
}

// TestPausedBeforeLaunch: no canary is asked for after the pause, however short before it that was.
func TestPausedBeforeLaunch(t *testing.T) {
	w := aged(1)
	p := w.startUpdate(&proc{tune: heard(func(ev kamino.Event) {
		if ev.Step == "launch" && ev.Kind == kamino.EventStarted {
			w.paused = "an incident"
		}
		if ev.Step == "launch" && ev.Kind == kamino.EventActed && strings.HasPrefix(ev.Message, "start canary") {
			t.Error("launched while the cluster is paused")
		}
	})}, proving())
	w.wait()
	var refused *kamino.RefusedError
	if !errors.As(p.err, &refused) || refused.Refusals[0].Code != kamino.CodePaused || len(w.turns()) > 1 {
		t.Errorf("%v; %v", p.err, w.turns())
	}
	w.audit.settled()
	w.sound(t)
}

// TestProveFirst: a pool's first version is proved by a canary, too.
func TestProveFirst(t *testing.T) {
	w := fresh(1)
	if p := w.update(proving()); p.err != nil {
		t.Fatal(p.err)
	}
	w.audit.settled()
	w.sound(t)
}

// TestWatch: where two of the first three nodes of a version that the run promoted do not become
// Ready, it is withdrawn; one of three is not enough. What is no word of the image says nothing.
func TestWatch(t *testing.T) {
	stays, goes := []string{"2026.03.09"}, []string{"2026.03.09", "2026.03.05"}
	for name, tt := range map[string]struct {
		late    int
		version string // that the run promoted
		happens func(*world)
		want    []string
		budget  time.Duration // 0: five minutes
		doubt   string        // what the watch says that it cannot judge
	}{
		"one is late":                             {1, "2026.03.09", nil, stays, 0, ""},
		"two are late":                            {2, "2026.03.09", nil, goes, 0, ""},
		"not of this run":                         {2, "2026.03.05", nil, stays, 0, ""},
		"they are off":                            {2, "2026.03.09", func(w *world) { power(w, kamino.PowerOff, "") }, stays, 0, "does not run"},
		"never allocated":                         {2, "2026.03.09", func(w *world) { power(w, kamino.PowerOn, "AllocationFailed") }, stays, 0, ""},
		"older than the run":                      {0, "2026.03.09", nil, stays, 0, ""},
		"others are not well":                     {2, "2026.03.09", silence, stays, 0, "most other nodes of the cluster are not Ready"},
		"their zone is cut off":                   {2, "2026.03.09", func(w *world) { zoned(w, false) }, stays, 0, "in zone " + theZone + ": most nodes"},
		"their zone is well":                      {2, "2026.03.09", func(w *world) { zoned(w, true) }, goes, 0, ""},
		"replaced as sick":                        {2, "2026.03.09", func(w *world) { replaced(w, 4*time.Minute) }, goes, 0, ""},
		"replaced young":                          {2, "2026.03.09", func(w *world) { replaced(w, time.Minute) }, stays, 0, "whose machine is gone"},
		"replaced after a look":                   {2, "2026.03.09", func(w *world) { replaced(w, 50*time.Second) }, stays, 90 * time.Second, "whose machine is gone"},
		"replaced after several":                  {2, "2026.03.09", func(w *world) { replaced(w, 4*time.Minute) }, goes, 90 * time.Second, ""},
		"they are spot instances":                 {2, "2026.03.09", func(w *world) { spots(w); replaced(w, 4*time.Minute) }, stays, 0, "that are spot instances"},
		"their zone has new nodes that are Ready": {2, "2026.03.09", func(w *world) { zoned(w, false); joined(w, 2) }, goes, 0, ""},
	} {
		w := aged(1)
		w.watchNext()
		w.version("2026.03.09").Tags[kamino.TagRun] = "former"
		w.version("2026.03.09").sick = mute
		for i := range 2 - tt.late { // for months
			m := w.addMachine(poolA, fmt.Sprintf("a-old%d", i), artifactID(poolA, kamino.KindVersion, "2026.03.09"))
			m.Kubelet = false
			delete(w.nodes, m.Hostname)
		}
		var doubts []string
		p := &proc{tune: heard(func(ev kamino.Event) {
			if ev.Kind == kamino.EventWarning && strings.Contains(ev.Message, "cannot judge") {
				doubts = append(doubts, ev.Message)
			}
		})}
		w.spawn(p, func(ctx context.Context) {
			runs := []engine.PoolResult{{Pool: poolA, Result: &engine.Result{Version: tt.version, Changed: true}}}
			p.err = p.engine().Watch(ctx, runs, engine.Watching{For: time.Hour, Proof: kamino.Proving{Budget: cmp.Or(tt.budget, 5*time.Minute)}})
		})
		w.after(time.Minute, func() { w.grow(w.pools[poolA], 3+tt.late) })
		if tt.happens != nil {
			w.after(time.Minute+joinTime+time.Second, func() { tt.happens(w) })
		}
		w.wait()
		if got := w.turns(); !slices.Equal(got, tt.want) || (p.err != nil) != (len(tt.want) > 1) {
			t.Errorf("%s: %v; the next instance boots from %v", name, p.err, got)
		}
		if (len(doubts) > 0) != (tt.doubt != "") || tt.doubt != "" && !strings.Contains(doubts[0], tt.doubt) {
			t.Errorf("%s: the watch says %q, want %q", name, doubts, tt.doubt)
		}
	}
}

// replaced: a group with health checks replaces the machines without a kubelet, again and again.
func replaced(w *world, after time.Duration) {
	w.after(after, func() {
		p, sick := w.pools[poolA], 0
		for _, m := range w.machines {
			if !m.Kubelet {
				w.removeMachine(m)
				sick++
			}
		}
		p.capacity -= sick
		w.grow(p, p.capacity+sick)
		w.after(joinTime+time.Second, func() { replaced(w, after) })
	})
}

// power is what the cloud says of the machines without a kubelet.
func power(w *world, is kamino.Power, failure string) {
	for _, m := range w.machines {
		if !m.Kubelet {
			m.Power, m.Failure = is, failure
		}
	}
}

// zoned: the machines without a kubelet are in a zone with one older node, which is well or not.
func zoned(w *world, well bool) {
	w.nodes["a-1"].Labels[zoneLabel], w.nodes["a-1"].Ready = theZone, well
	for _, m := range w.machines {
		if !m.Kubelet {
			m.Zone = theZone
		}
	}
}

// spots: the provider may take the machines of the pool away at any time.
func spots(w *world) { w.pools[poolA].refusals = []kamino.Refusal{{Code: "spot"}} }

// joined: nodes of an older version join in the zone of the machines without a kubelet.
func joined(w *world, n int) {
	for i := range n {
		name := fmt.Sprintf("a-older%d", i)
		w.addMachine(poolA, name, artifactID(poolA, kamino.KindVersion, "2026.03.05"))
		w.nodes[name].Labels[zoneLabel], w.nodes[name].Created = theZone, w.now
	}
}

// silence: the kubelets of all nodes are heard no more.
func silence(w *world) {
	for _, n := range w.nodes {
		n.Ready = false
	}
}

// TestProveAway: while the API server does not answer nobody can tell whether an image is good, and
// nobody is marked.
func TestProveAway(t *testing.T) {
	w := aged(1)
	p := w.startUpdate(&proc{tune: examined(func() { w.apiAway = w.now.Add(40 * time.Minute) })}, proving())
	w.wait()
	var proof *kamino.ProofError
	if !errors.As(p.err, &proof) || proof.Outcome != kamino.ProofInconclusive {
		t.Fatal(p.err)
	}
	if v := w.version(kamino.VersionName(w.now)); v.Tags[kamino.TagBad] != "" || v.Tags[kamino.TagOffer] != "hidden" {
		t.Errorf("%+v", v.Tags)
	}
	w.audit.settled()
	w.sound(t)
}

// TestProbe: the operator's probe runs once on the canary, and is removed. Without the rights to
// create it nothing is built.
func TestProbe(t *testing.T) {
	w := aged(1)
	w.watchNext()
	o := proving()
	o.Proof.Probe = []byte("a Job")
	if p := w.update(o); p.err != nil || len(w.turns()) != 2 || w.probe != "" || w.probes != 1 {
		t.Errorf("%v; the next instance boots from %v, probe %q is left, %d were started", p.err, w.turns(), w.probe, w.probes)
	}
	w.sound(t)
	w = aged(1)
	w.proofDenied = fmt.Errorf("create jobs: %w", kamino.ErrForbidden)
	if p := w.update(o); !errors.Is(p.err, kamino.ErrForbidden) || w.writes > 0 {
		t.Errorf("%v, %d writes", p.err, w.writes)
	}
}

// TestProveAgainKilled: the run after one that ended in its proof goes on with the version of that,
// though both were told to make another one, and no donor is taken away for it. Its probe is
// removed, also by a restore.
func TestProveAgainKilled(t *testing.T) {
	for name, restored := range map[string]bool{"the same command": false, "a restore": true} {
		for _, givesBack := range []bool{false, true} {
			w := aged(1)
			o := proving()
			o.Today, o.Proof.Probe = kamino.TodayAgain, []byte("a Job")
			p := &proc{}
			p.tune = heard(func(ev kamino.Event) {
				switch {
				case ev.Step == "examine" && ev.Kind == kamino.EventWaiting && givesBack && w.probe != "":
					p.cancel()
				case ev.Step == "examine" && ev.Kind == kamino.EventWaiting && w.probe != "", ev.Step == "retire" && ev.Kind == kamino.EventStarted && givesBack:
					p.dying = true
				}
			})
			w.startUpdate(p, o)
			w.wait()
			if !p.crashed || w.probe == "" {
				t.Fatalf("%s, giving back %t: crashed %t: %v, probe %q", name, givesBack, p.crashed, p.err, w.probe)
			}
			if restored {
				if r := w.restore(); r.err != nil || w.probe != "" {
					t.Errorf("restored: %v, probe %q is left", r.err, w.probe)
				}
				continue
			}
			donor := w.machineOf(w.nodes["a-0"])
			boots := donor.Boots
			again := w.update(o)
			if again.err != nil || again.result.Version != kamino.VersionName(w.now) || donor.Boots != boots || w.probe != "" {
				t.Errorf("giving back %t: %v, version %s, donor booted %d times more, probe %q is left", givesBack, again.err, again.result.Version, donor.Boots-boots, w.probe)
			}
			w.audit.settled()
			w.sound(t)
		}
	}
}

// heard lets a process tell somebody else of its events, too.
func heard(by func(kamino.Event)) func(*engine.Engine) {
	return func(e *engine.Engine) {
		report := e.Report
		e.Report = func(ev kamino.Event) {
			report(ev)
			by(ev)
		}
	}
}

// examined does something when the examination begins.
func examined(do func()) func(*engine.Engine) {
	return heard(func(ev kamino.Event) {
		if ev.Step == "examine" && ev.Kind == kamino.EventStarted {
			do()
		}
	})
}

// TestProveGivenUp: the cloud gives the canary up for what its guest did, and takes its machine
// away: that is no eviction.
func TestProveGivenUp(t *testing.T) {
	w := aged(1)
	p := w.startUpdate(&proc{tune: examined(func() {
		c := w.loseCanary(false)
		c.Instance, c.VMID, c.Hostname, c.Power = "", "", "", ""
		c.State, c.Failure = kamino.Failed, "VMExtensionProvisioningError"
	})}, proving())
	w.wait()
	var proof *kamino.ProofError
	if !errors.As(p.err, &proof) || proof.Outcome != kamino.ProofFailed || proof.Findings[0].Check != "cloud" {
		t.Error(p.err)
	}
	w.audit.settled()
	w.sound(t)
}

// loseCanary ends the machine of the one canary that there is, unless it comes back.
func (w *world) loseCanary(back bool) (lost *simCanary) {
	for _, c := range w.canaries {
		lost = c
	}
	lost.machine.Kubelet = back
	return lost
}

// TestProveEvicted: a canary whose machine is evicted, deleted or lost from one list says nothing
// of its image.
func TestProveEvicted(t *testing.T) {
	for _, back := range []bool{false, true} {
		w := aged(1)
		var lost *simCanary
		p := w.startUpdate(&proc{tune: examined(func() {
			lost = w.loseCanary(back)
			was := lost.Canary
			lost.Instance, lost.VMID, lost.Hostname, lost.Power = "", "", "", ""
			if back {
				w.after(90*time.Second, func() {
					lost.Instance, lost.VMID, lost.Hostname, lost.Power = was.Instance, was.VMID, was.Hostname, was.Power
				})
			}
		})}, proving())
		w.wait()
		var proof *kamino.ProofError
		if errors.As(p.err, &proof) == back || !back && (proof.Outcome != kamino.ProofInconclusive || proof.Findings[0].Check != "cloud") || lost == nil {
			t.Errorf("it comes back: %t: %v", back, p.err)
		}
		if v := w.version(kamino.VersionName(w.now)); v.Tags[kamino.TagBad] != "" {
			t.Errorf("%+v", v.Tags)
		}
		w.audit.settled()
		w.sound(t)
	}
}

// TestEvents: what somebody should look at stands as an event on the node, with the check and its
// evidence, or why a patch left it blocked; a good proof and a good patch leave none.
func TestEvents(t *testing.T) {
	for _, tt := range []struct {
		what, want string
		play       func(w *world)
	}{
		{"a good proof", "", func(w *world) { w.update(proving()) }},
		{"a bad image", "a-0 KaminoProofFailed version 2026.03.10 failed its proof: ready: ", func(w *world) {
			w.sick = mute
			w.update(proving())
		}},
		{"no quota", "a-0 KaminoProofInconclusive the proof of version 2026.03.10 is inconclusive: cloud: ", func(w *world) {
			w.sick = noQuota
			w.update(proving())
		}},
		{"a good patch", "", func(w *world) { w.patched(patchOptions()) }},
		{"a bad patch", "a-0 KaminoPatchFailed the pod of DaemonSet", func(w *world) {
			w.machineOf(w.nodes["a-0"]).broken = true
			w.patched(patchOptions())
		}},
	} {
		w := aged(1)
		tt.play(w)
		told := slices.DeleteFunc(w.events, func(e string) bool { return !strings.Contains(e, `Type "kamino `) })
		if len(told) > 1 || (len(told) == 1) != (tt.want != "") || tt.want != "" && (!strings.HasPrefix(told[0], tt.want) || len(told[0]) < len(tt.want)+5) {
			t.Errorf("%s: %q, want %q", tt.what, told, tt.want)
		}
	}
}

// TestFailureEvents: a run that fails leaves a Warning on its donor with what to type, and one more
// where the donor is not back; who is told to end is no failure.
func TestFailureEvents(t *testing.T) {
	for fate, want := range map[worlds.Fate][]string{
		worlds.Healthy:       nil,
		worlds.SealTakenBack: {kamino.EventRunFailed},
		worlds.NeverBoots:    {kamino.EventRunFailed, kamino.EventDonorAway},
	} {
		w := aged(1)
		w.machineOf(w.nodes["a-0"]).Fate = fate
		p := w.update(options("a-0"))
		w.wait()
		var got []string
		for _, e := range w.events {
			if reason, ok := strings.CutPrefix(e, "a-0 Kamino"); ok && strings.Contains(e, `Type "kamino `) {
				got = append(got, "Kamino"+strings.Fields(reason)[0])
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%v, %v: Warnings %q, want %q in %q", fate, p.err, got, want, w.events)
		}
	}
}

// TestUnnamedCanaryLeft: where the cloud names nodes its own way, what a run could not remove of
// its canary, the Node object of a machine that is gone included, is removed by the next.
func TestUnnamedCanaryLeft(t *testing.T) {
	begin := func() *world {
		w := pointing(1)
		w.unnamed = true
		return w
	}
	o := proving()
	log, p := begin(), &proc{logging: true}
	log.startUpdate(p, o)
	log.wait()
	if p.err != nil {
		t.Fatal(p.err)
	}
	tried := 0
	for _, s := range p.log {
		if s.step != "retire" {
			continue
		}
		for _, kind := range []worlds.Fault{worlds.Forbidden, worlds.KillBefore, worlds.KillUnheard, worlds.KillAfter} {
			if !kind.Fits(s.call.is()) {
				continue
			}
			tried++
			w := begin()
			w.update(o, fault{kind: kind, at: s.at})
			w.advance(w.now.Add(time.Minute))
			if again := w.update(o); again.err != nil {
				t.Errorf("%s at %s: the next run ended %v", kind, s, again.err)
			}
			for _, n := range w.nodes {
				if n.Labels[kamino.LabelCanary] != "" {
					t.Errorf("%s at %s: node %s of a canary is left", kind, s, n.Name)
				}
			}
			if len(w.canaries) > 0 {
				t.Errorf("%s at %s: %v is left", kind, s, w.canaries)
			}
			w.sound(t)
		}
	}
	if tried < 8 {
		t.Errorf("%d faults were tried", tried)
	}
}
