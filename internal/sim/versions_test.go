package sim

import (
	"maps"
	"strings"
	"testing"
	"time"

	"kamino.dev/kamino"
	"kamino.dev/kamino/engine"
	"kamino.dev/kamino/internal/worlds"
	"kamino.dev/kamino/poolstate"
)

// TestAgain: a second image of a day, after the first was rolled back; the
// message says how. The next day goes on in numbers that grow.
func TestAgain(t *testing.T) {
	w := aged(1)
	if p := w.update(options("a-0")); p.err != nil {
		t.Fatal(p.err)
	}
	if _, err := w.rollback(t, engine.RollbackOptions{Pool: "a"}); err != nil {
		t.Fatal(err)
	}
	p := w.update(options("a-2"))
	if p.err == nil || !strings.Contains(p.err.Error(), "was withdrawn") || !strings.Contains(kamino.Hint(p.err), "--again") || strings.Contains(kamino.Hint(p.err), "patch") {
		t.Fatalf("%v, hint %q", p.err, kamino.Hint(p.err))
	}
	if p := w.update(options("a-0")); p.err == nil || !strings.Contains(kamino.Hint(p.err), "kamino patch --target-node a-0, and then --again; or --again with another node") {
		t.Errorf("of the node that it was made of, which has the same packages: %v, hint %q", p.err, kamino.Hint(p.err))
	}
	o := options("a-2")
	o.Today = kamino.TodayAgain
	p = w.update(o)
	if v := w.inUse(t); p.err != nil || v.Name != "2026.03.1001" || p.result.Version != v.Name {
		t.Errorf("again: the model refers to %s: %v", v.Name, p.err)
	}
	if p := w.update(options("a-2")); p.err != nil || p.result.Changed {
		t.Errorf("without again there is nothing to do: %+v, %v", p.result, p.err)
	}
	w.advance(w.now.Add(24 * time.Hour))
	p = w.update(options("a-0"))
	if v := w.inUse(t); p.err != nil || v.Name != "2026.03.1100" {
		t.Errorf("the next day the model refers to %s: %v", v.Name, p.err)
	}
	w.sound(t)
}

// TestAgainKilled: a run with --again that was killed anywhere is gone on with,
// and makes one image, not two.
func TestAgainKilled(t *testing.T) {
	begin := func() *world {
		w := aged(1)
		if p := w.update(options("a-0")); p.err != nil {
			t.Fatal(p.err)
		}
		return w
	}
	o := options("a-0")
	o.Today = kamino.TodayAgain
	log := &proc{logging: true}
	w := begin()
	w.startUpdate(log, o)
	w.wait()
	if log.err != nil || w.inUse(t).Name != "2026.03.1001" {
		t.Fatalf("%s, %v", w.inUse(t).Name, log.err)
	}
	for _, s := range log.log {
		if !s.call.write {
			continue
		}
		w := begin()
		w.update(o, fault{kind: worlds.KillAfter, at: s.at})
		held := w.leases[poolA].Holder != ""
		w.advance(w.now.Add(time.Minute))
		p := w.update(o)
		want := "2026.03.1001"
		if !held && w.version("2026.03.1002") != nil { // it had ended
			want = "2026.03.1002"
		}
		if v := w.inUse(t); p.err != nil || v.Name != want {
			t.Errorf("killed at %s: the model refers to %s: %v", s, v.Name, p.err)
		}
		w.sound(t)
	}
}

// TestEmptyList: one empty list of versions, of a pool that had some, names no version as if there
// were none: its number would be below that of the others, and it would never be the latest.
func TestEmptyList(t *testing.T) {
	begin := func() *world {
		w, again := aged(1), options("a-0")
		again.Today = kamino.TodayAgain
		for _, o := range []kamino.Options{options("a-0"), again} {
			if p := w.update(o); p.err != nil {
				t.Fatal(p.err)
			}
		}
		w.advance(w.now.Add(24 * time.Hour))
		return w
	}
	log := &proc{logging: true}
	w := begin()
	w.startUpdate(log, options("a-2"))
	w.wait()
	want, lists := w.inUse(t).Name, 0
	if log.err != nil {
		t.Fatal(log.err)
	}
	for _, s := range log.log {
		if !s.call.list {
			continue
		}
		lists++
		w := begin()
		if p := w.update(options("a-2"), fault{kind: worlds.Empty, at: s.at}); p.err == nil && w.inUse(t).Name != want {
			t.Errorf("an empty list at %s: the model refers to %s, want %s", s, w.inUse(t).Name, want)
		}
		w.sound(t)
	}
	if lists < 3 {
		t.Errorf("a run lists %d times", lists)
	}
}

// TestAutoAgain: auto-update makes a second image of a day where it is told to
// and a node was patched since.
func TestAutoAgain(t *testing.T) {
	w := aged(1)
	w.advance(w.now.Add(time.Hour))
	w.patch("a-0", "2026-03-10T08:00:00Z")
	if p, res := w.auto(autoOptions()); p.err != nil || w.inUse(t).Name != "2026.03.10" {
		t.Fatalf("%+v, %v", res, p.err)
	}
	w.patch("a-2", "2026-03-10T12:00:00Z")
	w.advance(w.now.Add(3 * time.Hour))
	p, res := w.auto(autoOptions())
	if p.err != nil || !kamino.Has(res[0].Held, "today") {
		t.Errorf("%+v, %v", res, p.err)
	}
	o := autoOptions()
	o.Today = kamino.TodayAgain
	p, _ = w.auto(o)
	if v := w.inUse(t); p.err != nil || v.Name != "2026.03.1001" || v.Tags[kamino.TagBuiltFrom] != "a-2" {
		t.Errorf("the model refers to %s: %v", v.Name, p.err)
	}
	if p, res = w.auto(o); p.err != nil || res[0].Action != poolstate.DoNothing {
		t.Errorf("with nothing patched since: %+v, %v", res, p.err)
	}
	w.sound(t)
}

// TestAgainGoesOn: the same command with --again goes on with what it left, whether it was killed
// or told to end: a disk that has its snapshot, or its version, is not sealed a second time. Once
// that run has come to its end, --again makes another image.
func TestAgainGoesOn(t *testing.T) {
	again := options("a-0")
	again.Today = kamino.TodayAgain
	begin := func() *world {
		w := aged(1)
		if p := w.update(options("a-0")); p.err != nil {
			t.Fatal(p.err)
		}
		w.advance(w.now.Add(time.Hour))
		return w
	}
	log := &proc{logging: true}
	w := begin()
	w.startUpdate(log, again)
	w.wait()
	tried := 0
	for _, kind := range []worlds.Fault{worlds.KillAfter, worlds.Interrupted} {
		for _, s := range log.log {
			if kind == worlds.KillAfter && !s.call.write {
				continue
			}
			w := begin()
			p := w.update(again, fault{kind: kind, at: s.at})
			if p.err == nil && !p.crashed {
				continue // it was at its end
			}
			lease := w.leases[poolA]
			past := lease.Ledger.Past
			if lease.Holder == "" && (len(past) == 0 || past[0].Failure == "") {
				continue
			}
			shot := w.artifacts[artifactKey(poolA, kamino.KindSnapshot, kamino.SnapshotName("a"))]
			made := shot != nil && shot.State == kamino.Succeeded || w.version("2026.03.1001") != nil
			w.advance(w.now.Add(5 * time.Minute))
			w.tracing, w.trace = true, nil
			second := w.update(again)
			sealed := strings.Count(strings.Join(w.trace, "\n"), "is sealed")
			if second.err != nil || second.result.Version != "2026.03.1001" || w.version("2026.03.1002") != nil || w.inUse(t).Name != "2026.03.1001" {
				t.Errorf("%s at %s: version %s, the model refers to %s: %v", kind, s, second.result.Version, w.inUse(t).Name, second.err)
			}
			if made {
				tried++
			}
			if made && sealed > 0 {
				t.Errorf("%s at %s: the disk was sealed again", kind, s)
			}
			if third := w.update(again); third.err != nil || third.result.Version != "2026.03.1002" {
				t.Errorf("%s at %s: then once more: version %s: %v", kind, s, third.result.Version, third.err)
			}
			w.sound(t)
			if t.Failed() {
				t.Fatal("see above")
			}
		}
	}
	if tried < 20 {
		t.Errorf("only %d runs had made anything", tried)
	}
}

// TestMadeElsewhere: what docs/parts.md says of a version that somebody else made and hid, whatever
// tags it has: no promotion, night, withdrawal or rollback takes it, nor does a run of its own day;
// a rollback that names it does.
func TestMadeElsewhere(t *testing.T) {
	passed := map[string]string{kamino.TagOffer: "hidden", kamino.TagProof: "passed"}
	for name, tags := range map[string]map[string]string{
		"Packer's tags": {"packer": "yes"}, "the original's tags": {kamino.TagBuiltFrom: "builder"}, "tags of a proof": passed,
	} {
		for reference, begin := range byReference() {
			var v *simArtifact
			packed := func(day time.Time) *world {
				w := begin(1)
				w.watchNext()
				v = w.addVersion(poolA, kamino.VersionName(day))
				v.Excluded, v.Created, v.Tags = true, w.now, maps.Clone(tags)
				return w
			}
			later := begin(1).now.AddDate(0, 0, 1)
			w := packed(later)
			was := birth(w)
			for _, version := range []string{v.Name, ""} {
				if _, err := w.promote(engine.PromoteOptions{Pool: "a", Version: version}); err == nil || birth(w) != was {
					t.Errorf("%s, %s: promote %q ended %v; nodes boot from %s", name, reference, version, err, birth(w))
				}
			}
			w.patch("a-0", w.now.Add(-time.Hour).Format(time.RFC3339))
			for _, mode := range []kamino.ProveMode{kamino.ProveCanary, kamino.ProveNone} {
				night := autoOptions()
				night.Proof.Mode = mode
				if p, res := w.auto(night); birth(w) == v.Name {
					t.Errorf("%s, %s: a night with --prove %s ended %v, %+v; nodes boot from it", name, reference, mode, p.err, res)
				}
			}
			if _, p := w.withdraw(kamino.WithdrawOptions{Pool: "a", Reason: "slow"}); p.err != nil || birth(w) == v.Name {
				t.Errorf("%s, %s: a withdrawal ended %v; nodes boot from %s", name, reference, p.err, birth(w))
			}

			w = packed(later.AddDate(0, 0, -1))
			if p := w.update(options("a-0")); p.err == nil || birth(w) != was {
				t.Errorf("%s, %s: a run of the same day ended %v; nodes boot from %s", name, reference, p.err, birth(w))
			}
			if _, err := w.rollback(t, engine.RollbackOptions{Pool: "a", To: v.Name}); err != nil || birth(w) != v.Name {
				t.Errorf("%s, %s: a rollback to it ended %v; nodes boot from %s", name, reference, err, birth(w))
			}
		}
	}
}
