package sim

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"kamino.dev/kamino"
	"kamino.dev/kamino/internal/worlds"
)

// pointing is the world of aged whose pool refers to the definition.
func pointing(seed uint64) *world {
	w := aged(seed)
	definition := artifactID(poolA, kamino.Definition, kamino.DefinitionName("a"))
	w.pools[poolA].image = definition
	l := w.leases[poolA]
	l.Ledger.Wrote = &kamino.WrittenModel{Image: definition, Seen: true}
	w.leases[poolA] = l
	w.watchNext()
	return w
}

// turns lists what the next instance of pool a would have booted from, in turn.
func (w *world) turns() []string {
	var out []string
	for _, image := range w.booting[poolA] {
		out = append(out, lastSegment(image))
	}
	return out
}

func pointerOptions() kamino.Options {
	o := options("a-0")
	o.ImageReference = kamino.ByDefinition
	return o
}

// TestPointerUpdate: the next image changes once, from old to new, in a pool that refers to the
// definition, in one that comes to, and in one that leaves it; killed at each call, and run again.
func TestPointerUpdate(t *testing.T) {
	for _, tt := range []struct {
		name    string
		world   func(uint64) *world
		by      kamino.ImageReference
		written bool // the model is
	}{
		{"moves the pointer", pointing, kamino.ByDefinition, false},
		{"comes to point", aged, kamino.ByDefinition, true},
		{"goes by version again", pointing, kamino.ByVersion, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			o := pointerOptions()
			o.ImageReference = tt.by
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
			nth(t, p.log, "model", "SetVersion", 1) // it was hidden until then
			if got := w.turns(); !slices.Equal(got, []string{"2026.03.09", fresh}) {
				t.Fatalf("the next instance boots from %v", got)
			}
			if changed := w.pools[poolA].revision != revision || w.pools[poolA].image != image; changed != tt.written {
				t.Errorf("the model was written: %t", changed)
			}
			for _, kind := range []worlds.Fault{worlds.KillBefore, worlds.KillUnheard, worlds.KillAfter, worlds.LostReply} {
				for _, s := range p.log {
					if kind.Fits(s.call.is()) && slices.Contains([]string{"image", "model", "clean"}, s.step) {
						killedUpdate(t, tt.world(1), o, fault{kind: kind, at: s.at}, s)
					}
				}
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
	undo := kamino.RollbackOptions{Pool: "a", To: "2026.03.01"}
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
	forward := kamino.RollbackOptions{Pool: "a", To: "2026.03.09"}
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
		_, p.err = p.engine().Restore(ctx, kamino.RestoreOptions{Pools: []string{"a"}})
	})
	w.wait()
}

// TestPointerNeverStandsForNothing: a target that goes away meanwhile leaves the present image.
func TestPointerNeverStandsForNothing(t *testing.T) {
	w := pointing(1)
	p := &proc{logging: true}
	w.spawn(p, func(ctx context.Context) {
		_, p.err = p.engine().Rollback(ctx, kamino.RollbackOptions{Pool: "a", To: "2026.03.05"})
	})
	w.wait()
	at := nth(t, p.log, "mark", "Find image version", 1)
	w = pointing(1)
	gone := &rival{name: "the target is deleted", happen: func(w *world) {
		delete(w.artifacts, artifactKey(poolA, kamino.Version, "2026.03.05"))
	}}
	_, err := w.rollback(t, kamino.RollbackOptions{Pool: "a", To: "2026.03.05"}, fault{kind: worlds.RivalActs, at: at, rival: gone})
	if err == nil || !slices.Equal(w.turns(), []string{"2026.03.09"}) {
		t.Errorf("ended %v; the next instance boots from %v", err, w.turns())
	}
}

// TestPointerPins: a version that a person excludes or includes is a pin; what Kamino moved is
// none.
func TestPointerPins(t *testing.T) {
	made := func() (*world, string) {
		w := pointing(1)
		if p := w.update(pointerOptions()); p.err != nil {
			t.Fatal(p.err)
		}
		first := kamino.VersionName(w.now)
		w.advance(w.now.Add(25 * 60 * 60 * 1e9))
		return w, first
	}
	for name, person := range map[string]func(*world, string){
		"excludes the present one": func(w *world, v string) { w.version(v).Excluded = true },
		"nobody":                   nil,
	} {
		w, first := made()
		if person != nil {
			person(w, first)
		}
		p := w.update(pointerOptions())
		if refused := p.err != nil && strings.Contains(p.err.Error(), "somebody chose it"); refused != (person != nil) {
			t.Errorf("%s: the next update ended %v", name, p.err)
		}
		o := pointerOptions()
		o.AdoptModel = true
		if p := w.update(o); p.err != nil {
			t.Errorf("%s: an update that adopts ended %v", name, p.err)
		}
	}
	w, _ := made()
	if _, err := w.rollback(t, kamino.RollbackOptions{Pool: "a"}); err != nil {
		t.Fatal(err)
	}
	if p := w.update(pointerOptions()); p.err != nil {
		t.Errorf("after a rollback the update ended %v", p.err)
	}
}
