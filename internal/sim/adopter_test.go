package sim

import (
	"fmt"
	"testing"
	"time"

	"kamino.dev/kamino"
	"kamino.dev/kamino/internal/worlds"
)

// nightly is an auto-update that proves its versions in the given way.
func nightly(mode kamino.ProveMode) kamino.AutoOptions {
	o := autoOptions()
	o.Proof = proving().Proof
	o.Proof.Mode = mode
	return o
}

// unprovedNext is what nodes boot from, where that is a version of ours that has passed nothing.
func (w *world) unprovedNext() string {
	v := w.version(birth(w))
	if v == nil || v.Tags[kamino.TagRun] == "" || v.Tags[kamino.TagProof] == "passed" {
		return ""
	}
	return v.Name
}

// kept fails where a withdrawn version is what nodes boot from.
func (w *world) kept(t *testing.T, what string) {
	t.Helper()
	if v := w.version(birth(w)); v == nil || v.Tags[kamino.TagBad] != "" {
		t.Errorf("%s: nodes boot from %s, %+v", what, birth(w), v)
	}
}

// TestAdopterKeepsProof: who takes over a run that was to prove its version proves it too, or
// leaves it hidden, whatever it was told.
func TestAdopterKeepsProof(t *testing.T) {
	o := proving()
	unproved := func() kamino.Options { return options("a-0") }
	for reference, begin := range byReference() {
		for _, sick := range []sickness{healthy, mute} {
			log := &proc{logging: true}
			w := begin(1)
			w.sick = sick
			w.startUpdate(log, o)
			w.wait()
			for _, s := range log.log {
				if !s.call.write || s.step == "lock" || s.step == "connect" {
					continue
				}
				for second, do := range map[string]func(*world) *proc{
					"a night":          func(w *world) *proc { p, _ := w.auto(nightly(kamino.ProveNone)); return p },
					"restore, a night": func(w *world) *proc { w.restore(); p, _ := w.auto(nightly(kamino.ProveNone)); return p },
					"the same command": func(w *world) *proc { return w.update(unproved()) },
				} {
					for _, kind := range []worlds.Fault{worlds.KillAfter, worlds.Interrupted} {
						if kind == worlds.Interrupted && (s.step != "image" || second == "the same command") { // there a person says so
							continue
						}
						w := begin(1)
						w.sick = sick
						w.startUpdate(&proc{faults: []fault{{kind: kind, at: s.at}}}, o)
						w.wait()
						w.advance(w.now.Add(10 * time.Minute))
						p := do(w)
						w.advance(w.now.Add(time.Minute))
						if got := w.unprovedNext(); got != "" {
							t.Errorf("%s, clones %q, %s at %s, then %s: %v; nodes boot from %s, which was not proved", reference, sick, kind, s, second, p.err, got)
						}
						w.kept(t, fmt.Sprintf("%s, %s at %s, then %s", reference, kind, s, second))
					}
				}
			}
		}
	}
}

// nameAgain is a day on which a person deletes a version that was withdrawn, and another one is
// made: instances that boot from the first may not be taken for instances of the second.
func nameAgain(begin func(uint64) *world) string {
	w, o := begin(1), options("a-0")
	if p := w.update(o); p.err != nil {
		return p.err.Error()
	}
	name := kamino.VersionName(w.now)
	w.advance(w.now.Add(time.Hour))
	if _, p := w.withdraw(kamino.WithdrawOptions{Pool: "a", Reason: "leaks a key"}); p.err != nil {
		return p.err.Error()
	}
	w.advance(w.now.Add(time.Minute))
	delete(w.artifacts, artifactKey(poolA, kamino.KindVersion, name)) // az sig image-version delete
	w.advance(w.now.Add(10 * time.Minute))
	o.Donor, o.Today = "a-2", kamino.TodayAgain
	p := w.update(o)
	w.advance(w.now.Add(time.Minute))
	return unless(p.err == nil && p.result.Version != name && birth(w) == p.result.Version,
		"the update ended %v and made version %s again, and nodes boot from %s", p.err, name, birth(w))
}
