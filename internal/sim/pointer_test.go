package sim

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"kamino.dev/kamino"
	"kamino.dev/kamino/engine"
	"kamino.dev/kamino/internal/sweep"
	"kamino.dev/kamino/internal/worlds"
)

// pointing is the world of aged whose pool refers to the definition.
func pointing(seed uint64) *world {
	w := aged(seed)
	w.tagged = false
	definition := artifactID(poolA, kamino.KindDefinition, kamino.DefinitionName("a"))
	w.pools[poolA].image = definition
	l := w.leases[poolA]
	l.Ledger.Wrote = &kamino.WrittenModel{Image: definition, Seen: true}
	w.leases[poolA] = l
	w.watchNext()
	return w
}

// tagged is the world of pointing whose definition somebody tags; untagged is that of aged whose
// definition nobody has tagged.
func tagged(seed uint64) *world   { w := pointing(seed); w.tagged = true; return w }
func untagged(seed uint64) *world { w := aged(seed); w.tagged = false; return w }

// turns lists what the next instance of pool a would have booted from, in turn.
func (w *world) turns() []string {
	var out []string
	for _, image := range w.booting[poolA] {
		out = append(out, lastSegment(image))
	}
	return out
}

// TestPointerUpdate: the next image changes once, from old to new, in a pool that refers to the
// definition, in one that comes to, and in one that leaves it; killed at each call, and run again.
func TestPointerUpdate(t *testing.T) {
	for _, tt := range []struct {
		name    string
		world   func(uint64) *world
		written bool // the model is
	}{
		{"moves the pointer", pointing, false},
		{"comes to point", untagged, true},
		{"goes by version again", tagged, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			o := options("a-0")
			w := tt.world(1)
			image, revision := w.pools[poolA].image, w.pools[poolA].revision
			p := &proc{logging: true}
			w.startUpdate(p, o)
			w.wait()
			fresh := kamino.VersionName(w.now)
			w.sound(t)
			if v := w.version(fresh); p.err != nil || v == nil || v.Excluded || v.Tags[kamino.TagOffer] != "offered" {
				t.Fatalf("the update ended %v, version %+v", p.err, v)
			}
			nth(t, p.log, "model", "Promote", 1) // it was hidden until then
			if got := w.turns(); !slices.Equal(got, []string{"2026.03.09", fresh}) {
				t.Fatalf("the next instance boots from %v", got)
			}
			if changed := w.pools[poolA].revision != revision || w.pools[poolA].image != image; changed != tt.written {
				t.Errorf("the model was written: %t", changed)
			}
			trials := faultsIn(p.log, []worlds.Fault{worlds.KillBefore, worlds.KillUnheard, worlds.KillAfter, worlds.LostReply}, "image", "model", "clean")
			for i := range sweep.Cases(t, len(trials), 5*time.Second, func(i int) string { return trials[i].what() }) {
				x := trials[i]
				killedUpdate(t, tt.world(1), o, fault{kind: x.kind, at: x.site.at}, x.site)
			}
		})
	}
}

func killedUpdate(t *testing.T, w *world, o kamino.Options, f fault, s site) {
	t.Helper()
	w.watchNext()
	w.startUpdate(&proc{faults: []fault{f}}, o)
	w.wait()
	second := w.update(o)
	fresh := kamino.VersionName(w.now)
	if got := w.turns(); second.err != nil || !slices.Equal(got, []string{"2026.03.09", fresh}) {
		t.Errorf("%s at %s: the run after it ended %v; the next instance boots from %v", f.kind, s, second.err, got)
	}
	w.sound(t)
}

// TestPointerRollback: a rollback moves the pointer in one step, however many versions lie between,
// and writes no model; killed at each write the next instance boots from old or new.
func TestPointerRollback(t *testing.T) {
	undo := engine.RollbackOptions{Pool: "a", To: "2026.03.01"}
	begin := func() *world {
		w := pointing(1)
		w.version("2026.03.01").Excluded = true
		w.version("2026.03.01").Tags[kamino.TagBad] = "rolled back once"
		return w
	}
	play := func(w *world, faults ...fault) *proc {
		p := &proc{logging: true, faults: faults}
		w.spawn(p, func(ctx context.Context) { _, p.err = p.engine().Rollback(ctx, undo) })
		w.wait()
		return p
	}
	want := []string{"2026.03.09", "2026.03.01"}
	w := begin()
	revision := w.pools[poolA].revision
	p := play(w)
	if got := w.turns(); p.err != nil || !slices.Equal(got, want) || w.pools[poolA].revision != revision {
		t.Fatalf("the rollback ended %v; the next instance boots from %v; model written: %t", p.err, got, w.pools[poolA].revision != revision)
	}
	w.sound(t)
	for _, kind := range []worlds.Fault{worlds.KillBefore, worlds.KillUnheard, worlds.KillAfter, worlds.LostReply, worlds.FalseFailure, worlds.Unknown, worlds.Forbidden, worlds.ServerError} {
		for _, s := range p.log {
			if !kind.Fits(s.call.is()) || s.step == "" { // pools are read by several at once then
				continue
			}
			w := begin()
			play(w, fault{kind: kind, at: s.at})
			w.pass(t)
			w.advance(w.now.Add(time.Minute)) // writes that are under way end
			second := play(w)
			w.advance(w.now.Add(time.Minute))
			if got := w.turns(); second.err != nil || !slices.Equal(got, want) {
				t.Errorf("%s at %s: the rollback after it ended %v; the next instance boots from %v", kind, s, second.err, got)
			}
			w.sound(t)
		}
	}
	forward := engine.RollbackOptions{Pool: "a", To: "2026.03.09"}
	if _, err := w.rollback(t, forward); err != nil || !slices.Equal(w.turns(), append(want, "2026.03.09")) {
		t.Errorf("going forward ended %v: %v", err, w.turns())
	}
}

// pass lets a lease that a dead process holds go.
func (w *world) pass(t *testing.T) {
	t.Helper()
	if w.leases[poolA].Holder == "" {
		return
	}
	p := &proc{}
	w.spawn(p, func(ctx context.Context) {
		_, p.err = p.engine().Restore(ctx, engine.RestoreOptions{Pools: []string{"a"}})
	})
	w.wait()
}

// TestPointerNeverStandsForNothing: a target that goes away meanwhile leaves the present image.
func TestPointerNeverStandsForNothing(t *testing.T) {
	w := pointing(1)
	p := &proc{logging: true}
	w.spawn(p, func(ctx context.Context) {
		_, p.err = p.engine().Rollback(ctx, engine.RollbackOptions{Pool: "a", To: "2026.03.05"})
	})
	w.wait()
	at := nth(t, p.log, "mark", "Find image version", 1)
	w = pointing(1)
	gone := &rival{Rival: worlds.Rival{Name: "the target is deleted"}, happen: func(w *world) {
		delete(w.artifacts, artifactKey(poolA, kamino.KindVersion, "2026.03.05"))
	}}
	_, err := w.rollback(t, engine.RollbackOptions{Pool: "a", To: "2026.03.05"}, fault{kind: worlds.RivalActs, at: at, rival: gone})
	if err == nil || !slices.Equal(w.turns(), []string{"2026.03.09"}) {
		t.Errorf("ended %v; the next instance boots from %v", err, w.turns())
	}
}

// TestPointerPins: a version that a person excludes or includes is a pin; what Kamino moved is
// none.
func TestPointerPins(t *testing.T) {
	made := func() (*world, string) {
		w := pointing(1)
		if p := w.update(options("a-0")); p.err != nil {
			t.Fatal(p.err)
		}
		first := kamino.VersionName(w.now)
		w.advance(w.now.Add(25 * 60 * 60 * 1e9))
		return w, first
	}
	for _, tt := range []struct {
		name   string
		person func(*world, string)
		pins   bool
	}{
		{"excludes the present one", func(w *world, v string) { w.version(v).Excluded = true }, true},
		{"includes a later one of their own", func(w *world, _ string) {
			w.addVersion(poolA, "2026.03.1005").Tags = map[string]string{"packer": "yes"}
		}, true},
		{"includes a later one that kamino hid", func(w *world, _ string) { w.waits("2026.03.1005").Excluded = false }, true},
		{"includes an earlier one", func(w *world, _ string) { w.waits("2026.03.08").Excluded = false }, false},
		{"nobody", func(*world, string) {}, false},
	} {
		name := tt.name
		w, first := made()
		tt.person(w, first)
		p := w.update(options("a-0"))
		if refused := p.err != nil && strings.Contains(p.err.Error(), "set by someone else"); refused != tt.pins || !refused && p.err != nil {
			t.Errorf("%s: the next update ended %v", name, p.err)
		}
		o := options("a-0")
		o.AdoptModel = true
		if p := w.update(o); p.err != nil {
			t.Errorf("%s: an update that adopts ended %v", name, p.err)
		}
	}
	w, _ := made()
	if _, err := w.rollback(t, engine.RollbackOptions{Pool: "a"}); err != nil {
		t.Fatal(err)
	}
	if p := w.update(options("a-0")); p.err != nil {
		t.Errorf("after a rollback the update ended %v", p.err)
	}
}

// TestPointerDistrusted: where new nodes do not follow the definition, the next run marks it and
// writes the model by version, as does auto-update without a donor; only a person who removes the
// tag lets it be trusted again.
func TestPointerDistrusted(t *testing.T) {
	begin := func(sticky bool, born time.Duration) *world {
		w := pointing(1)
		if sticky {
			w.pools[poolA].sticky = w.bootsFrom(w.pools[poolA])
		}
		o := options("a-0")
		if p := w.update(o); p.err != nil {
			t.Fatal(p.err)
		}
		w.advance(w.now.Add(born - joinTime))
		w.grow(w.pools[poolA], w.pools[poolA].capacity+1)
		w.advance(w.now.Add(24 * time.Hour))
		return w
	}
	tag := func(w *world) string {
		return w.artifacts[artifactKey(poolA, kamino.KindDefinition, kamino.DefinitionName("a"))].Tags[kamino.TagPointer]
	}
	unset := options("a-0")
	auto := autoOptions()
	for _, tt := range []struct {
		name   string
		sticky bool
		born   time.Duration
		auto   bool
		points bool // in the end
	}{
		{"follows", false, 11 * time.Minute, false, true},
		{"does not follow, too early to tell", true, 9 * time.Minute, false, true},
		{"does not follow", true, 11 * time.Minute, false, false},
		{"does not follow, auto-update", true, 11 * time.Minute, true, false},
	} {
		w := begin(tt.sticky, tt.born)
		if told := w.status(t).Strayed != nil; told == tt.points {
			t.Errorf("%s: status tells of it: %t", tt.name, told)
		}
		var err error
		if tt.auto {
			p, _ := w.auto(auto)
			err = p.err
		} else {
			err = w.update(unset).err
		}
		named := lastSegment(w.pools[poolA].image)
		if points := named == kamino.DefinitionName("a"); err != nil || points != tt.points || (tag(w) == "unreliable") == tt.points {
			t.Errorf("%s: the run ended %v, the model refers to %s, the definition has the tag %q", tt.name, err, named, tag(w))
		}
		w.sound(t)
		if tt.points {
			continue
		}
		w.grow(w.pools[poolA], w.pools[poolA].capacity+1)
		w.advance(w.now.Add(time.Hour))
		for _, m := range w.machines {
			if strings.HasPrefix(m.Hostname, "a-new1") && m.Image != w.pools[poolA].image {
				t.Errorf("%s: by version again, a new node boots from %s", tt.name, m.Image)
			}
		}
		w.advance(w.now.Add(24 * time.Hour))
		if p := w.update(unset); p.err != nil || w.inUse(t).Name != kamino.VersionName(w.now) || w.status(t).Strayed == nil {
			t.Errorf("%s: the next night ended %v", tt.name, p.err)
		}
		w.advance(w.now.Add(24 * time.Hour))
		delete(w.definition().Tags, kamino.TagPointer) // by a person
		if p := w.update(unset); p.err != nil || tag(w) != "" || lastSegment(w.pools[poolA].image) != kamino.DefinitionName("a") || w.status(t).Strayed != nil {
			t.Errorf("%s: without the tag the run ended %v, the definition has the tag %q", tt.name, p.err, tag(w))
		}
		w.sound(t)
	}
}

// TestPinForAnHour: a person excludes what was promoted, the pool scales out, and the person takes
// that back, all between two runs. The instance looks as if the pool did not follow its definition,
// until a later one has.
func TestPinForAnHour(t *testing.T) {
	w := pointing(1)
	if p := w.update(options("a-0")); p.err != nil {
		t.Fatal(p.err)
	}
	v := kamino.VersionName(w.now)
	for _, excluded := range []bool{true, false} {
		w.advance(w.now.Add(time.Hour))
		w.flag(w.version(v), excluded)
		w.advance(w.now.Add(time.Minute))
		w.grow(w.pools[poolA], w.pools[poolA].capacity+1)
	}
	w.advance(w.now.Add(20 * time.Hour))
	if s := w.status(t).Strayed; s != nil {
		t.Errorf("the pool followed its definition all the time, and status says that it did not: %s", s)
	}
	w.patch("a-2", w.now.Format(time.RFC3339))
	p, _ := w.auto(autoOptions())
	if d := w.artifacts[artifactKey(poolA, kamino.KindDefinition, kamino.DefinitionName("a"))]; p.err != nil || d.Tags[kamino.TagPointer] != "" || w.pools[poolA].image != d.ID {
		t.Errorf("%v: the definition has the tag %q, the model refers to %s", p.err, d.Tags[kamino.TagPointer], lastSegment(w.pools[poolA].image))
	}
}

// TestPointerMigration: a pool that goes by version comes to point by a run that nobody told how,
// as long as its definition stands for what the model names; a run that went by version and was
// killed before somebody removed the tag is finished in the same way.
func TestPointerMigration(t *testing.T) {
	unset := options("a-0")
	for _, tt := range []struct {
		name   string
		change func(*world)
		points bool
	}{
		{"latest is what the model names", func(*world) {}, true},
		{"latest is another one", func(w *world) { w.addVersion(poolA, "2026.03.09").Excluded = true }, false},
		{"a person excluded all", func(w *world) {
			for _, v := range w.versions(poolA) {
				w.version(v.Name).Excluded = true
			}
		}, false},
		{"a region contradicts", func(w *world) { w.version("2026.03.09").Disputed = true }, false},
	} {
		w := untagged(1)
		tt.change(w)
		w.watchNext()
		p := w.update(unset)
		fresh := kamino.VersionName(w.now)
		named := lastSegment(w.pools[poolA].image)
		if points := named == kamino.DefinitionName("a"); p.err != nil || points != tt.points || !slices.Equal(w.turns(), []string{"2026.03.09", fresh}) {
			t.Errorf("%s: the run ended %v, the model refers to %s, the next instance boots from %v", tt.name, p.err, named, w.turns())
		}
		w.sound(t)
	}
	log := &proc{logging: true}
	w := aged(1)
	w.startUpdate(log, options("a-0"))
	w.wait()
	for _, s := range log.log {
		if !s.call.write {
			continue
		}
		w := aged(1)
		w.watchNext()
		w.update(options("a-0"), fault{kind: worlds.KillAfter, at: s.at})
		w.tagged = false
		w.advance(w.now.Add(time.Minute))
		p := w.update(unset)
		if got := w.turns(); p.err != nil || !slices.Equal(got, []string{"2026.03.09", kamino.VersionName(w.now)}) {
			t.Errorf("by version until %s: the run after it ended %v; the next instance boots from %v", s, p.err, got)
		}
		w.sound(t)
	}
}

// TestPromotedByName: a version that was promoted by name, by a run that ended before it was
// offered, counts as promoted: it can be gone back to, and does not count as one that was never
// offered.
func TestPromotedByName(t *testing.T) {
	w := tagged(1)
	byVersion := options("a-0")
	p := &proc{logging: true}
	w.startUpdate(p, byVersion)
	w.wait()
	offered := nth(t, p.log, "model", "Promote", 2)
	w = tagged(1)
	w.update(byVersion, fault{kind: worlds.KillBefore, at: offered})
	first := kamino.VersionName(w.now)
	w.pass(t)
	w.grow(w.pools[poolA], w.pools[poolA].capacity+1)
	w.advance(w.now.Add(25 * time.Hour))
	if v := w.version(first); v == nil || v.Tags[kamino.TagOffer] != "hidden" || w.inUse(t).Name != first {
		t.Fatalf("version %+v, model %s", v, w.pools[poolA].image)
	}
	if p := w.update(byVersion); p.err != nil {
		t.Fatal(p.err)
	}
	if s := w.status(t); s.RollbackTarget != first {
		t.Errorf("a rollback would go to %s, want %s", s.RollbackTarget, first)
	}
	w.sound(t)
}

// TestImageOnly: the model of a pool that somebody else owns is never written. An image is made on
// request and hidden until a person promotes it by its name; once the owner's recipe names the definition,
// runs and rollbacks move versions only.
func TestImageOnly(t *testing.T) {
	w := aged(1)
	pool := w.pools[poolA]
	pool.owner, pool.exts = &kamino.Owner{Name: "somebody"}, []string{"bootstrap"}
	image, revision := pool.image, pool.revision
	unset := options("a-0")
	if p := w.update(unset); p.err == nil || p.result.Changed {
		t.Fatalf("an ordinary run ended %v", p.err)
	}
	only := unset
	only.ImageOnly = true
	p := w.update(only)
	fresh := kamino.VersionName(w.now)
	if v := w.version(fresh); p.err != nil || v == nil || !v.Excluded || !p.result.Hidden || p.result.Owner != pool.owner || len(p.result.Extensions) != 1 {
		t.Fatalf("the run ended %v, %+v; version %+v", p.err, p.result, v)
	}
	if back, err := w.promote(engine.PromoteOptions{Pool: "a", Version: fresh}); err != nil || w.version(fresh).Excluded || !back.Offered {
		t.Fatalf("promoted by its name: %v, %+v; version %+v", err, back, w.version(fresh))
	}
	if pool.image != image || pool.revision != revision {
		t.Fatalf("the model was written: %s", pool.image)
	}
	pool.image = artifactID(poolA, kamino.KindDefinition, kamino.DefinitionName("a")) // by its owner
	w.watchNext()
	w.advance(w.now.Add(24 * time.Hour))
	p = w.update(unset)
	next := kamino.VersionName(w.now)
	if p.err != nil || !slices.Equal(w.turns(), []string{"2026.03.09", fresh, next}) {
		t.Errorf("an ordinary run ended %v; the next instance boots from %v", p.err, w.turns())
	}
	if _, err := w.rollback(t, engine.RollbackOptions{Pool: "a"}); err != nil || !slices.Equal(w.turns(), []string{"2026.03.09", fresh, next, fresh}) {
		t.Errorf("a rollback ended %v; the next instance boots from %v", err, w.turns())
	}
	if pool.revision != revision || len(pool.exts) != 1 {
		t.Errorf("the model was written: %+v", pool)
	}
	w.sound(t)
}

// TestWithdrawnMeanwhile: no node boots from a version that somebody withdraws while it is being
// promoted, in a pool that points and in one that comes to.
func TestWithdrawnMeanwhile(t *testing.T) {
	for name, begin := range map[string]func(uint64) *world{"points": pointing, "by version": untagged} {
		log := &proc{logging: true}
		w := begin(1)
		w.startUpdate(log, options("a-0"))
		w.wait()
		for _, s := range log.log {
			if s.step != "model" {
				continue
			}
			w := begin(1)
			w.watchNext()
			withdrawn := false
			rival := &rival{Rival: worlds.Rival{Name: "the version is withdrawn"}, happen: func(w *world) {
				if v := w.version(kamino.VersionName(w.now)); w.bootsFrom(w.pools[poolA]) != v.ID {
					withdrawn = true
					v.Artifact = kamino.ParseVersion(v.Artifact).Withdrawn(kamino.Bad{Reason: "somebody"}).Artifact
				}
			}}
			p := w.update(options("a-0"), fault{kind: worlds.RivalActs, at: s.at, rival: rival})
			if got := w.turns(); withdrawn && !slices.Equal(got, []string{"2026.03.09"}) {
				t.Errorf("%s, withdrawn at %s: the run ended %v; the next instance boots from %v", name, s, p.err, got)
			}
		}
	}
}
