package sim

import (
	"context"
	"strings"
	"testing"
	"time"

	"kamino.dev/kamino"
	"kamino.dev/kamino/engine"
	"kamino.dev/kamino/internal/worlds"
)

func (w *world) withdraw(o kamino.WithdrawOptions, faults ...fault) (back engine.Rollback, p *proc) {
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
	if p := w.update(options("a-0")); p.err != nil {
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
	if p := w.update(options("a-0")); p.err != nil {
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
		ap, res := w.auto(autoOptions())
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
		return w.artifacts[artifactKey(poolA, kamino.KindDefinition, kamino.DefinitionName("a"))].Tags[kamino.TagPointer]
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
	_, err := w.promote(engine.PromoteOptions{Pool: "a"})
	check("promote", w, "2026.03.19", err)

	w, _ = strayed(t)
	if _, p = w.withdraw(kamino.WithdrawOptions{Pool: "a", Version: "2026.03.01", Reason: "bad"}); p.err != nil || w.status(t).Strayed == nil {
		t.Errorf("withdrawal of an old version ended %v, strayed %v", p.err, w.status(t).Strayed)
	}
	if p := w.update(options("a-0")); p.err != nil || tag(w) != "unreliable" {
		t.Errorf("the next update ended %v, tag %q", p.err, tag(w))
	}
}

// TestDistrustOutlivesItsWitness: what stands on the ledger counts after the instance that showed
// it is gone.
func TestDistrustOutlivesItsWitness(t *testing.T) {
	w, _ := strayed(t)
	log := &proc{logging: true}
	w.startUpdate(log, options("a-0"))
	w.wait()
	at := nth(t, log.log, "version", "SetTags", 1)
	w, _ = strayed(t)
	w.update(options("a-0"), fault{kind: worlds.KillAfter, at: at})
	w.pass(t)
	for _, m := range w.machines {
		if strings.HasPrefix(m.Hostname, "a-new") {
			w.removeMachine(m)
		}
	}
	if _, err := w.rollback(t, engine.RollbackOptions{Pool: "a", To: "2026.03.01"}); err != nil || lastSegment(w.pools[poolA].image) != "2026.03.01" {
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
			m.Image = artifactID(poolA, kamino.KindVersion, "2026.02.10")
		}
		if sticky {
			w.pools[poolA].sticky = w.version("2026.03.09").ID
		}
		return w
	}
	night := func(w *world) {
		w.advance(w.now.Add(24 * time.Hour))
		if p := w.update(options("a-0")); p.err != nil {
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
	w := untagged(1)
	w.pools[poolA].image = artifactID(poolA, kamino.KindDefinition, kamino.DefinitionName("a"))
	if pin := w.status(t).Pinned; pin != nil {
		t.Errorf("pinned: %v", pin)
	}
	for range 2 {
		if p := w.update(options("a-0")); p.err != nil || lastSegment(w.pools[poolA].image) != kamino.DefinitionName("a") {
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
	l.Ledger.Wrote = &kamino.WrittenModel{Image: artifactID(poolA, kamino.KindVersion, "2026.03.05"), Seen: true}
	w.leases[poolA] = l
	if p := w.update(byVersion); p.err == nil {
		t.Fatal("a pin was overridden")
	}
	byVersion.AdoptModel = true
	if p := w.update(byVersion); p.err != nil || w.status(t).Pinned != nil {
		t.Errorf("the update that adopts ended %v; pinned %v", p.err, w.status(t).Pinned)
	}
}

// TestExcludedByAPersonIsNoTarget: a version that a person excluded is not what a withdrawal goes
// back to.
func TestExcludedByAPersonIsNoTarget(t *testing.T) {
	w, bad := updated(t)
	w.version("2026.03.09").Excluded = true
	_, p := w.withdraw(kamino.WithdrawOptions{Pool: "a", Version: bad, Reason: "bad"})
	if got := birth(w); p.err != nil || got != "2026.03.05" || !w.version("2026.03.09").Excluded {
		t.Errorf("the withdrawal ended %v; the next instance boots from %s", p.err, got)
	}
}

// TestMarksThatFailAreRemembered: where the marks are what is rolled back, one that fails leaves
// the rest on the ledger, and slow ones are waited for.
func TestMarksThatFailAreRemembered(t *testing.T) {
	undo := engine.RollbackOptions{Pool: "a", To: "2026.03.01"}
	log := &proc{logging: true}
	w := pointing(1)
	w.spawn(log, func(ctx context.Context) { _, log.err = log.engine().Rollback(ctx, undo) })
	w.wait()
	at := nth(t, log.log, "mark", "Withdraw", 2)
	w = pointing(1)
	_, err := w.rollback(t, undo, fault{kind: worlds.Forbidden, at: at})
	if left := w.leases[poolA].Ledger.RolledBack; err == nil || len(left) != 1 || left[0] != "2026.03.09" {
		t.Errorf("the rollback ended %v; the ledger distrusts %v", err, left)
	}
	w.advance(w.now.Add(time.Hour))
	if p, _ := w.auto(autoOptions()); p.err != nil || birth(w) != "2026.03.01" {
		t.Errorf("auto-update ended %v; the next instance boots from %s", p.err, birth(w))
	}
	for _, s := range log.log {
		if s.step != "mark" || s.call.method != "Find image version" {
			continue
		}
		w := pointing(1)
		slow := &rival{Rival: worlds.Rival{Name: "a write takes ten minutes"}, happen: func(w *world) {
			v := w.version("2026.03.05")
			v.shown, v.settle = v.Excluded, w.now.Add(10*time.Minute)
		}}
		if _, err := w.rollback(t, undo, fault{kind: worlds.RivalActs, at: s.at, rival: slow}); err != nil {
			t.Errorf("slow at %s: %v", s, err)
		}
	}
}

// TestRollbackTellsTheTruth: a rollback that succeeds has made the definition stand for its target,
// whatever was offered meanwhile.
func TestRollbackTellsTheTruth(t *testing.T) {
	undo := engine.RollbackOptions{Pool: "a", To: "2026.03.01"}
	log := &proc{logging: true}
	w := pointing(1)
	w.spawn(log, func(ctx context.Context) { _, log.err = log.engine().Rollback(ctx, undo) })
	w.wait()
	last := 0 // list: what comes after it is as after the rollback
	for i, s := range log.log {
		if s.step == "mark" && s.call.list {
			last = i
		}
	}
	for _, s := range log.log[:last+1] {
		if s.step == "" {
			continue
		}
		w := pointing(1)
		r := &rival{Rival: worlds.Rival{Name: "a run offers another"}, happen: func(w *world) {
			v := w.addVersion(poolA, "2026.03.10")
			v.Tags[kamino.TagOffer], v.Tags[kamino.TagRun] = "offered", "r-9"
		}}
		_, err := w.rollback(t, undo, fault{kind: worlds.RivalActs, at: s.at, rival: r})
		w.advance(w.now.Add(time.Minute))
		if got := birth(w); err == nil && got != "2026.03.01" {
			t.Errorf("at %s: the rollback succeeded, and the next instance boots from %s", s, got)
		}
	}
}

// TestMigrationBesideARival: a pool that comes to point never boots from a version that somebody
// offered between kamino's offer and its write of the model, and what a person excluded there stays
// so.
func TestMigrationBesideARival(t *testing.T) {
	log := &proc{logging: true}
	w := untagged(1)
	w.startUpdate(log, options("a-0"))
	w.wait()
	written := nth(t, log.log, "model", "Promote", 2)
	for _, s := range log.log {
		if s.step != "model" || s.at >= written {
			continue
		}
		w := untagged(1)
		w.watchNext()
		r := &rival{Rival: worlds.Rival{Name: "a newer one is published"}, happen: func(w *world) { w.addVersion(poolA, "2026.04.01").Tags = map[string]string{} }}
		p := w.update(options("a-0"), fault{kind: worlds.RivalActs, at: s.at, rival: r})
		if got := strings.Join(w.turns(), " "); strings.Contains(got, "2026.04.01") {
			t.Errorf("published at %s: the run ended %v; the next instance boots from %s", s, p.err, got)
		}
		w = untagged(1)
		excluded := ""
		r = &rival{Rival: worlds.Rival{Name: "a person excludes it"}, happen: func(w *world) {
			if v := w.version(kamino.VersionName(w.now)); v.Tags[kamino.TagOffer] == "offered" {
				v.Excluded, excluded = true, v.Name
			}
		}}
		p = w.update(options("a-0"), fault{kind: worlds.RivalActs, at: s.at, rival: r})
		if excluded != "" && (p.err == nil || !w.version(excluded).Excluded) {
			t.Errorf("excluded at %s: the run ended %v, excluded %t", s, p.err, w.version(excluded).Excluded)
		}
	}
}

// TestNoFalseDistrust: neither a clock that is behind nor a pin that was lifted makes a definition
// unreliable.
func TestNoFalseDistrust(t *testing.T) {
	w := pointing(1)
	w.grow(w.pools[poolA], w.pools[poolA].capacity+1)
	w.advance(w.now.Add(20 * time.Minute))
	if p := w.update(options("a-0")); p.err != nil {
		t.Fatal(p.err)
	}
	l := w.leases[poolA]
	behind := *l.Ledger.Promoted
	behind.At = behind.At.Add(-time.Hour) // as a machine writes it down whose clock is an hour behind
	l.Ledger.Promoted = &behind
	w.leases[poolA] = l
	w.advance(w.now.Add(24 * time.Hour))
	if s := w.status(t).Strayed; s != nil {
		t.Errorf("a clock that is behind: %v", s)
	}
	w, v := updated(t)
	w.version(v).Excluded = true
	if p := w.update(options("a-0")); p.err == nil {
		t.Fatal("the pin was overridden")
	}
	w.grow(w.pools[poolA], w.pools[poolA].capacity+1)
	w.advance(w.now.Add(time.Hour))
	w.version(v).Excluded = false
	w.advance(w.now.Add(24 * time.Hour))
	if s := w.status(t).Strayed; s != nil {
		t.Errorf("a pin that was lifted: %v", s)
	}
}

// TestDisputed: a version that is offered, and in one of its regions not, is nobody's target, and
// stands in no pointer's way while newer ones are offered.
func TestDisputed(t *testing.T) {
	w := untagged(1)
	w.version("2026.02.10").Disputed = true
	if p := w.update(options("a-0")); p.err != nil || lastSegment(w.pools[poolA].image) != kamino.DefinitionName("a") {
		t.Errorf("an old one: the update ended %v; the model refers to %s", p.err, w.pools[poolA].image)
	}
	w = pointing(1)
	w.version("2026.03.05").Disputed = true
	if back, err := w.rollback(t, engine.RollbackOptions{Pool: "a", To: "2026.03.05"}); err == nil {
		t.Errorf("a rollback to one succeeded: %+v", back)
	}
	w, bad := updated(t)
	w.version("2026.03.09").Disputed = true
	if _, p := w.withdraw(kamino.WithdrawOptions{Pool: "a", Version: bad, Reason: "bad"}); p.err == nil || birth(w) != bad {
		t.Errorf("a withdrawal ended %v; the next instance boots from %s", p.err, birth(w))
	}
}

// TestOwnedPoolIsToldOnly: where somebody else writes the model, a definition that new nodes do not
// follow is told by the next run and by status: it gets no tag, and the model is not written.
func TestOwnedPoolIsToldOnly(t *testing.T) {
	w := pointing(1)
	pool := w.pools[poolA]
	pool.owner = &kamino.Owner{Name: "capz"}
	image, models := pool.image, pool.model
	if p := w.update(options("a-0")); p.err != nil {
		t.Fatal(p.err)
	}
	pool.sticky = w.version("2026.03.05").ID
	w.advance(w.now.Add(11 * time.Minute))
	w.grow(pool, pool.capacity+1)
	w.advance(w.now.Add(24 * time.Hour))
	if w.status(t).Strayed == nil {
		t.Error("status does not tell")
	}
	told := ""
	p := w.startUpdate(&proc{tune: heard(func(ev kamino.Event) {
		if ev.Kind == kamino.EventWarning {
			told += ev.Message
		}
	})}, options("a-0"))
	w.wait()
	if p.err != nil || !strings.Contains(told, "an instance created") {
		t.Errorf("the run ended %v, and told %q", p.err, told)
	}
	if v := kamino.VersionName(w.now); pool.image != image || pool.model != models || w.definition().Tags[kamino.TagPointer] != "" || w.version(v).Excluded {
		t.Errorf("the model names %s, written %d times; tags of the definition %v; version %+v", pool.image, pool.model-models, w.definition().Tags, w.version(v))
	}
	w.sound(t)
}

// TestWithdrawalOfAnotherWritesNoModel: what the next instance boots from stays as it is,
// extensions that somebody added included, also where the model refers to no version.
func TestWithdrawalOfAnotherWritesNoModel(t *testing.T) {
	w, _ := updated(t)
	w.pools[poolA].exts = append(w.pools[poolA].exts, "policy")
	revision := w.pools[poolA].revision
	if _, p := w.withdraw(kamino.WithdrawOptions{Pool: "a", Version: "2026.03.01", Reason: "old"}); p.err != nil || w.pools[poolA].revision != revision ||
		w.version("2026.03.01").Tags[kamino.TagBad] != "old" {
		t.Errorf("ended %v; the model was written: %t", p.err, w.pools[poolA].revision != revision)
	}
	w = aged(1)
	w.pools[poolA].image = baseLTS
	if _, p := w.withdraw(kamino.WithdrawOptions{Pool: "a", Version: "2026.03.09", Reason: "bad"}); p.err != nil || w.pools[poolA].image != baseLTS ||
		w.version("2026.03.09").Tags[kamino.TagBad] != "bad" {
		t.Errorf("beside the original: ended %v; %v", p.err, w.version("2026.03.09").Tags)
	}
}
