package sim

import (
	"context"
	"strings"
	"testing"
	"time"

	"kamino.dev/kamino"
	"kamino.dev/kamino/internal/worlds"
)

func unset() kamino.Options {
	o := options("a-0")
	o.ImageReference = ""
	return o
}

func unsetAuto() kamino.AutoOptions {
	o := autoOptions()
	o.ImageReference = ""
	return o
}

func (w *world) withdraw(o kamino.WithdrawOptions, faults ...fault) (back kamino.Rollback, p *proc) {
	p = &proc{faults: faults, logging: true}
	w.spawn(p, func(ctx context.Context) { back, p.err = p.engine().WithdrawVersion(ctx, o) })
	w.wait()
	return back, p
}

// birth is the version that the next instance of pool a really boots from.
func birth(w *world) string {
	if s := w.pools[poolA].sticky; s != "" {
		return lastSegment(s)
	}
	return lastSegment(w.bootsFrom(w.pools[poolA]))
}

// updated is a pool that refers to its definition, a day after an update to the version that it
// returns.
func updated(t *testing.T) (*world, string) {
	t.Helper()
	w := pointing(1)
	if p := w.update(unset()); p.err != nil {
		t.Fatal(p.err)
	}
	v := kamino.VersionName(w.now)
	w.advance(w.now.Add(24 * time.Hour))
	return w, v
}

// strayed is updated where a new node booted from the version of before.
func strayed(t *testing.T) (*world, string) {
	t.Helper()
	w := pointing(1)
	if p := w.update(unset()); p.err != nil {
		t.Fatal(p.err)
	}
	w.pools[poolA].sticky = w.version("2026.03.05").ID
	w.advance(w.now.Add(11 * time.Minute))
	w.grow(w.pools[poolA], w.pools[poolA].capacity+1)
	w.advance(w.now.Add(24 * time.Hour))
	if w.status(t).Strayed == nil {
		t.Fatal("nobody sees that the pool does not follow its definition")
	}
	return w, kamino.VersionName(w.now.Add(-24 * time.Hour))
}

// waits adds a version that passed its proof and waits for kamino promote.
func (w *world) waits(name string) *simArtifact {
	v := w.addVersion(poolA, name)
	v.Excluded = true
	v.Tags = map[string]string{kamino.TagBuiltFrom: "a-1", kamino.TagReceipt: "x", kamino.TagRun: "r-1", kamino.TagOffer: "hidden", kamino.TagProof: "passed"}
	return v
}

// TestWithdrawalIsFinished: a bad version that a withdrawal, killed before its last write, left as
// what the definition stands for is withdrawn by auto-update alone.
func TestWithdrawalIsFinished(t *testing.T) {
	w, bad := updated(t)
	undo := kamino.WithdrawOptions{Pool: "a", Version: bad, Reason: "bad"}
	_, p := w.withdraw(undo)
	killed := 0
	for _, s := range p.log {
		if s.step != "mark" && s.step != "model" || !s.call.write {
			continue
		}
		w, _ := updated(t)
		w.withdraw(undo, fault{kind: worlds.KillBefore, at: s.at})
		w.pass(t)
		if len(w.leases[poolA].Ledger.RolledBack) == 0 {
			continue // nothing was decided
		}
		killed++
		w.advance(w.now.Add(time.Hour))
		ap, res := w.auto(unsetAuto())
		if got := birth(w); ap.err != nil || got != "2026.03.09" || w.version(bad).Tags[kamino.TagBad] == "" {
			t.Errorf("killed before %s: auto-update ended %v: %v %v; the next instance boots from %s", s, ap.err, res[0].Action, res[0].Why, got)
		}
		w.sound(t)
	}
	if killed == 0 {
		t.Error("it was never killed after it had decided")
	}
}

// TestNoWithdrawalByAnUnreliableDefinition: what takes a version back, or promotes one, writes the
// model of a pool whose nodes do not follow the definition, and does not forget that they do not.
func TestNoWithdrawalByAnUnreliableDefinition(t *testing.T) {
	tag := func(w *world) string {
		return w.artifacts[artifactKey(poolA, kamino.Definition, kamino.DefinitionName("a"))].Tags[kamino.TagPointer]
	}
	check := func(what string, w *world, want string, err error) {
		t.Helper()
		w.advance(w.now.Add(time.Minute))
		if named := lastSegment(w.pools[poolA].image); err != nil || named != want || tag(w) != "unreliable" || w.status(t).Strayed == nil {
			t.Errorf("%s ended %v: the model refers to %s, want %s; tag %q, strayed %v", what, err, named, want, tag(w), w.status(t).Strayed)
		}
		w.sound(t)
	}
	w, v := strayed(t)
	_, p := w.withdraw(kamino.WithdrawOptions{Pool: "a", Version: v, Reason: "bad"})
	check("withdraw", w, "2026.03.09", p.err)

	w, _ = strayed(t)
	w.waits("2026.03.19")
	_, err := w.promote(kamino.PromoteOptions{Pool: "a"})
	check("promote", w, "2026.03.19", err)

	w, _ = strayed(t)
	if _, p = w.withdraw(kamino.WithdrawOptions{Pool: "a", Version: "2026.03.01", Reason: "bad"}); p.err != nil || w.status(t).Strayed == nil {
		t.Errorf("withdrawal of an old version ended %v, strayed %v", p.err, w.status(t).Strayed)
	}
	if p := w.update(unset()); p.err != nil || tag(w) != "unreliable" {
		t.Errorf("the next update ended %v, tag %q", p.err, tag(w))
	}
}

// TestDistrustOutlivesItsWitness: what stands on the ledger counts after the instance that showed
// it is gone.
func TestDistrustOutlivesItsWitness(t *testing.T) {
	w, _ := strayed(t)
	log := &proc{logging: true}
	w.startUpdate(log, unset())
	w.wait()
	at := nth(t, log.log, "version", "SetTags", 1)
	w, _ = strayed(t)
	w.update(unset(), fault{kind: worlds.KillAfter, at: at})
	w.pass(t)
	for _, m := range w.machines {
		if strings.HasPrefix(m.Hostname, "a-new") {
			w.removeMachine(m)
		}
	}
	if _, err := w.rollback(t, kamino.RollbackOptions{Pool: "a", To: "2026.03.01"}); err != nil || lastSegment(w.pools[poolA].image) != "2026.03.01" {
		t.Errorf("the rollback ended %v; the model refers to %s", err, w.pools[poolA].image)
	}
	w.sound(t)
}

// TestPruneKeepsWhatThePoolMayStickTo: where the cloud resolves the definition at a write of the
// model only, what it stood for then is what new nodes boot from, however old it has become.
func TestPruneKeepsWhatThePoolMayStickTo(t *testing.T) {
	begin := func(sticky bool) *world {
		w := pointing(1)
		for _, m := range w.machines {
			m.Image = artifactID(poolA, kamino.Version, "2026.02.10")
		}
		if sticky {
			w.pools[poolA].sticky = w.version("2026.03.09").ID
		}
		return w
	}
	night := func(w *world) {
		w.advance(w.now.Add(24 * time.Hour))
		if p := w.update(unset()); p.err != nil {
			t.Fatal(p.err)
		}
	}
	w := begin(true)
	for range 5 {
		night(w)
	}
	if w.version("2026.03.09") == nil {
		t.Error("the version that the pool boots from was deleted")
	}
	w = begin(false)
	night(w)
	w.advance(w.now.Add(time.Hour))
	w.grow(w.pools[poolA], w.pools[poolA].capacity+1) // follows
	for range 4 {
		night(w)
	}
	if w.version("2026.03.09") != nil {
		t.Error("a version was kept although the pool follows its definition")
	}
}

// TestOwnDefinitionIsNoPin: somebody who lets the model name the definition has done what the
// next run would do.
func TestOwnDefinitionIsNoPin(t *testing.T) {
	w := aged(1)
	w.pools[poolA].image = artifactID(poolA, kamino.Definition, kamino.DefinitionName("a"))
	if pin := w.status(t).Pinned; pin != nil {
		t.Errorf("pinned: %v", pin)
	}
	for range 2 {
		if p := w.update(unset()); p.err != nil || lastSegment(w.pools[poolA].image) != kamino.DefinitionName("a") {
			t.Fatalf("the update ended %v; the model refers to %s", p.err, w.pools[poolA].image)
		}
		w.advance(w.now.Add(24 * time.Hour))
	}
	w.sound(t)
}

// TestAdoptedPinIsOver: an image that a person chose and then let kamino adopt is kamino's, though
// nothing had to be written.
func TestAdoptedPinIsOver(t *testing.T) {
	w := aged(1)
	byVersion := options("a-0")
	if p := w.update(byVersion); p.err != nil {
		t.Fatal(p.err)
	}
	l := w.leases[poolA]
	l.Ledger.Wrote = &kamino.WrittenModel{Image: artifactID(poolA, kamino.Version, "2026.03.05"), Seen: true}
	w.leases[poolA] = l
	if p := w.update(byVersion); p.err == nil {
		t.Fatal("a pin was overridden")
	}
	byVersion.AdoptModel = true
	if p := w.update(byVersion); p.err != nil || w.status(t).Pinned != nil {
		t.Errorf("the update that adopts ended %v; pinned %v", p.err, w.status(t).Pinned)
	}
}
