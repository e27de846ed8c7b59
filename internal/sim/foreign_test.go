package sim

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"kamino.dev/kamino"
	"kamino.dev/kamino/engine"
	"kamino.dev/kamino/internal/worlds"
)

// packed is a world with a version that somebody else made, newer than what the pool boots from.
func packed(w *world, hidden bool) (*world, *simArtifact) {
	v := w.addVersion(poolA, kamino.VersionName(w.now))
	v.Excluded, v.Created, v.Tags = hidden, w.now, map[string]string{"packer": "yes"}
	w.watchNext()
	return w, v
}

// named proves a version by its name, as kamino promote --prove canary --accept-unsealed does.
func named(version string) engine.PromoteOptions {
	proof := proving().Proof
	return engine.PromoteOptions{Pool: "a", Version: version, Proof: &proof, AcceptUnsealed: true}
}

// promoteProc is a process that promotes.
type promoteProc struct {
	*proc
	back engine.Rollback
}

func (w *world) prove(o engine.PromoteOptions, faults ...fault) *promoteProc {
	p := &promoteProc{proc: &proc{faults: faults, logging: true}}
	w.spawn(p.proc, func(ctx context.Context) {
		p.back, p.err = p.engine().PromoteVersion(ctx, o)
		p.left()
	})
	w.wait()
	return p
}

// untouched says what of a version changed that Kamino has no right to.
func untouched(v *simArtifact, hidden bool) string {
	if v.Tags["packer"] != "yes" || kamino.ParseVersion(v.Artifact).Ours() || v.Excluded != hidden {
		return fmt.Sprintf("tags %v, excluded %t", v.Tags, v.Excluded)
	}
	return ""
}

// provedStory plays the proof of somebody else's version, killed or disturbed at each call, and
// what may come after it. It returns what went wrong first.
func provedStory(begin func(uint64) *world, sick sickness, kinds []worlds.Fault, next func(*world, *simArtifact) string) string {
	log, _ := packed(begin(1), true)
	log.sickAs(sick)
	first := log.prove(named(kamino.VersionName(log.now)))
	for _, s := range first.log {
		for _, kind := range kinds {
			if !kind.Fits(s.call.is()) || kind == worlds.Throttled && s.step == "" { // a look at the pool asks the next service
				continue
			}
			w, v := packed(begin(1), true)
			w.sickAs(sick)
			w.prove(named(v.Name), fault{kind: kind, at: s.at})
			w.advance(w.now.Add(time.Minute))
			wrong := next(w, v)
			w.audit.settled()
			if wrong = strings.Join(append([]string{wrong}, w.audit.violations...), "; "); strings.Trim(wrong, "; ") != "" {
				return fmt.Sprintf("%s at %s: %s", kind, s, wrong)
			}
		}
	}
	return ""
}

// sickAs makes the clones of all versions of today sick.
func (w *world) sickAs(sick sickness) {
	w.version(kamino.VersionName(w.now)).sick = sick
}

var proofKills = []worlds.Fault{worlds.KillBefore, worlds.KillUnheard, worlds.KillAfter}

// onceMore is the same command again: it ends as if nothing had been.
func onceMore(w *world, v *simArtifact) string {
	p := w.prove(named(v.Name))
	return unless(p.err == nil && slices.Equal(w.turns(), []string{"2026.03.09", v.Name}) && untouched(v, false) == "" && v.Tags[kamino.TagProof] == "passed",
		"the same again ended %v; the next instance boots from %v, version %v", p.err, w.turns(), v.Tags)
}

// convicted is the same command again, of a bad version. That it failed is told.
func convicted(w *world, v *simArtifact) string {
	p := w.prove(named(v.Name))
	if !slices.ContainsFunc(w.standing(poolA).Ledger.Past, func(p kamino.PastRun) bool { return p.Proof == kamino.ProofFailed && !p.Interrupted }) {
		return fmt.Sprintf("the ledger tells of no proof that failed: %+v", w.standing(poolA).Ledger.Past)
	}
	return unless(p.err != nil && slices.Equal(w.turns(), []string{"2026.03.09"}) && v.Tags[kamino.TagBad] != "" && v.Excluded,
		"the same again ended %v; the next instance boots from %v, version %v", p.err, w.turns(), v.Tags)
}

// tookBack is a restore, after which new nodes boot from what they booted from, or from what was
// proved.
func tookBack(w *world, v *simArtifact) string {
	p := w.restore()
	got := w.turns()
	proved := len(got) == 1 || v.Tags[kamino.TagProof] == "passed"
	return unless(p.err == nil && proved && w.standing(poolA).Holder == "", "restore ended %v; the next instance boots from %v, version %v", p.err, got, v.Tags)
}

// overtaken is an update of the pool, which makes a version of its own, and nothing of the other.
func overtaken(w *world, v *simArtifact) string {
	before := w.turns()
	o := options("a-0")
	o.Today = kamino.TodayAgain
	p := w.update(o)
	return unless(p.err == nil && birth(w) != v.Name && len(w.turns()) == len(before)+1, "the update ended %v; the next instance boots from %v, before from %v", p.err, w.turns(), before)
}

var foreignStories = []struct {
	name string
	play func() string
}{
	{"a version made elsewhere is proved and promoted, wherever that is killed", func() string {
		return provedStory(aged, healthy, proofKills, onceMore)
	}},
	{"the same in a pool that refers to its definition", func() string {
		return provedStory(pointing, healthy, proofKills, onceMore)
	}},
	{"a bad version made elsewhere is withdrawn, wherever that is killed", func() string {
		return provedStory(pointing, mute, proofKills, convicted)
	}},
	{"a restore after a proof that was killed", func() string {
		return provedStory(aged, healthy, proofKills, tookBack)
	}},
	{"a version made elsewhere that nobody accepted as it is", func() string {
		w, v := packed(aged(1), true)
		o := named(v.Name)
		o.AcceptUnsealed = false
		p := w.prove(o)
		return unless(p.err != nil && w.writes == 0 && birth(w) != v.Name, "it ended %v after %d writes; nodes boot from %s", p.err, w.writes, birth(w))
	}},
	{"an update after a proof that was killed", func() string {
		return provedStory(aged, healthy, proofKills, overtaken)
	}},
}

func init() { stories = append(stories, foreignStories...) }

// TestForeignLies: whatever the cloud or Kubernetes lies about during the proof, the same command
// again ends well, or did at once.
func TestForeignLies(t *testing.T) {
	kinds := []worlds.Fault{worlds.LostReply, worlds.Absent, worlds.LateCreate, worlds.ServerError, worlds.Conflict, worlds.Throttled, worlds.FalseSuccess}
	for name, begin := range byReference() {
		if wrong := provedStory(begin, healthy, kinds, onceMore); wrong != "" {
			t.Errorf("%s: %s", name, wrong)
		}
	}
}

// TestForeignProved: a version that somebody else made is proved by a canary before it is promoted,
// what has nothing to compare with is told, nothing else of the version is written, and the pool
// goes on as with any other.
func TestForeignProved(t *testing.T) {
	for name, begin := range byReference() {
		w, v := packed(begin(1), true)
		p := w.prove(named(v.Name))
		if p.err != nil || !p.back.Changed || p.back.Unproved || p.back.To != v.Name || p.back.Proof == nil || untouched(v, false) != "" {
			t.Fatalf("%s: %v, %+v, version %+v", name, p.err, p.back, v.Artifact)
		}
		var left []string
		for _, f := range p.back.Proof.Left {
			left = append(left, f.Check)
		}
		if slices.Sort(left); !slices.Equal(left, []string{"capacity", "identity", "images", "report"}) || p.back.Proof.Checks != len(kamino.Checks())-2 {
			t.Errorf("%s: %d checks passed, not applicable: %v", name, p.back.Proof.Checks, left)
		}
		if got := w.turns(); !slices.Equal(got, []string{"2026.03.09", v.Name}) {
			t.Errorf("%s: the next instance boots from %v", name, got)
		}
		past := w.standing(poolA).Ledger.Past
		if len(past) != 1 || past[0].Work != kamino.WorkProve || past[0].Pointed != v.Name || past[0].Verb != kamino.VerbPromote || past[0].Failure != "" {
			t.Errorf("%s: the ledger has %+v", name, past)
		}
		before := w.writes
		if again := w.prove(named(v.Name)); again.err != nil || again.back.Changed || w.writes != before {
			t.Errorf("%s: the same again ended %v, %+v", name, again.err, again.back)
		}
		w.advance(w.now.Add(24 * time.Hour))
		o := options("a-0")
		if later := w.update(o); later.err != nil || birth(w) != kamino.VersionName(w.now) {
			t.Errorf("%s: the update of the next day ended %v", name, later.err)
		}
		if _, p := w.withdraw(kamino.WithdrawOptions{Pool: "a", Reason: "slow"}); p.err != nil || birth(w) == v.Name {
			t.Errorf("%s: a withdrawal ended %v and went back to what has no receipt: %s", name, p.err, birth(w))
		}
		w.sound(t)
	}
}

// TestForeignBad: one whose canary is bad is withdrawn with the reason, and the pool never boots
// from it; one of which nothing is known stays neither promoted nor withdrawn.
func TestForeignBad(t *testing.T) {
	for name, begin := range byReference() {
		for sick, check := range map[sickness]string{mute: "ready", flaps: "stable", twin: "identity", lacking: "daemonsets", noQuota: "cloud"} {
			w, v := packed(begin(1), true)
			if v.sick = sick; sick == noQuota {
				w.sick = noQuota
			}
			p := w.prove(named(v.Name))
			var proof *kamino.ProofError
			if !errors.As(p.err, &proof) || proof.Findings[0].Check != check {
				t.Fatalf("%s, %s: %v", name, sick, p.err)
			}
			bad := sick != noQuota
			if got := w.turns(); !slices.Equal(got, []string{"2026.03.09"}) || bad != (v.Tags[kamino.TagBad] != "") || untouched(v, true) != "" {
				t.Errorf("%s, %s: the next instance boots from %v, version %+v", name, sick, got, v.Tags)
			}
			past := w.standing(poolA).Ledger.Past
			if len(past) != 1 || past[0].Work != kamino.WorkProve || past[0].Version != v.Name || !strings.Contains(past[0].Failure, check) {
				t.Errorf("%s, %s: the ledger has %+v", name, sick, past)
			}
			for _, mode := range []kamino.ProveMode{kamino.ProveCanary, kamino.ProveNone} {
				night := autoOptions()
				night.Proof.Mode = mode
				if p, res := w.auto(night); birth(w) != "2026.03.09" {
					t.Errorf("%s, %s: a night ended %v, %+v; nodes boot from %s", name, sick, p.err, res, birth(w))
				}
			}
			w.sound(t)
			w.sick, v.sick = healthy, healthy
			if again := w.prove(named(v.Name)); (again.err != nil) != bad || bad == (birth(w) == v.Name) {
				t.Errorf("%s, %s: the same again ended %v; nodes boot from %s", name, sick, again.err, birth(w))
			}
		}
	}
}

// TestForeignRefused: what a person has to say first is refused before anything is written, and no
// proof takes the place of what new nodes boot from already.
func TestForeignRefused(t *testing.T) {
	for name, c := range map[string]struct {
		set  func(*world, *simArtifact, *engine.PromoteOptions)
		want string
	}{
		"without a receipt":    {func(_ *world, _ *simArtifact, o *engine.PromoteOptions) { o.AcceptUnsealed = false }, "--accept-unsealed"},
		"without a name":       {func(_ *world, _ *simArtifact, o *engine.PromoteOptions) { o.Version = "" }, "--version"},
		"without a proof":      {func(_ *world, _ *simArtifact, o *engine.PromoteOptions) { o.Proof.Mode = kamino.ProveNone }, "--prove canary"},
		"withdrawn":            {func(_ *world, v *simArtifact, _ *engine.PromoteOptions) { v.Tags[kamino.TagBad] = "slow" }, "kamino rollback"},
		"older":                {func(w *world, _ *simArtifact, o *engine.PromoteOptions) { o.Version = "2026.03.05" }, "kamino rollback"},
		"paused":               {func(w *world, _ *simArtifact, _ *engine.PromoteOptions) { w.paused = "incident" }, "kamino resume"},
		"the next one already": {func(_ *world, v *simArtifact, _ *engine.PromoteOptions) { v.Excluded = false }, "exclude this one"},
	} {
		w, v := packed(pointing(1), true)
		o := named(v.Name)
		proof := *o.Proof
		o.Proof = &proof
		c.set(w, v, &o)
		was, tags := birth(w), maps.Clone(v.Tags)
		p := w.prove(o)
		if text := fmt.Sprint(p.err) + kamino.Hint(p.err); p.err == nil || !strings.Contains(text, c.want) || birth(w) != was || !maps.Equal(tags, v.Tags) || w.writes != 0 {
			t.Errorf("%s: it ended %v (%s) after %d writes; nodes boot from %s, version %v", name, p.err, kamino.Hint(p.err), w.writes, birth(w), v.Tags)
		}
	}
}

// TestForeignRetired: what of the canary could not be removed at the end is told, and removed by
// the same command, which has nothing else to do.
func TestForeignRetired(t *testing.T) {
	log, v := packed(pointing(1), true)
	tried := 0
	for _, s := range log.prove(named(v.Name)).log {
		if s.step != "retire" || !s.call.write {
			continue
		}
		w, v := packed(pointing(1), true)
		p := w.prove(named(v.Name), fault{kind: worlds.Forbidden, at: s.at})
		if p.err != nil || len(p.back.Warnings) == 0 {
			continue // it got by
		}
		tried++
		again := w.prove(named(v.Name))
		if again.err != nil || birth(w) != v.Name || w.standing(poolA).Ledger.Canary != "" {
			t.Errorf("403 at %s: the same again ended %v", s, again.err)
		}
		w.sound(t)
	}
	if tried == 0 {
		t.Error("nothing was left at any call")
	}
}

// TestForeignWaits: a version of which somebody, or a killed run, has just changed the tags is
// waited for and not refused.
func TestForeignWaits(t *testing.T) {
	w, v := packed(aged(1), true)
	v.Ready = false // as Azure shows one whose tags were just written
	w.after(2*time.Minute, func() { v.Ready = true })
	if p := w.prove(named(v.Name)); p.err != nil || birth(w) != v.Name {
		t.Errorf("it ended %v; nodes boot from %s", p.err, birth(w))
	}
	w.sound(t)
}

// TestForeignDryRun: a dry run tells what the proof would start, and writes nothing.
func TestForeignDryRun(t *testing.T) {
	w, v := packed(aged(1), true)
	o := named(v.Name)
	o.DryRun = true
	if p := w.prove(o); p.err != nil || !p.back.Changed || p.back.Unproved || !strings.Contains(p.back.Canary, "start one instance (small)") || len(p.back.ModelDiff) == 0 || w.writes != 0 {
		t.Errorf("%v, %+v after %d writes", p.err, p.back, w.writes)
	}
}

// TestForeignMadeAnew: one that is made anew under its name once it was proved is not promoted.
func TestForeignMadeAnew(t *testing.T) {
	for name, begin := range byReference() {
		log, v := packed(begin(1), true)
		log.tagged = false
		method := map[string]string{"by version": "Find image version", "pointing": "Promote"}[name]
		at := nth(t, log.prove(named(v.Name)).log, "model", method, 1)
		w, v := packed(begin(1), true)
		w.tagged = false
		other := &rival{Rival: worlds.Rival{Name: "the version is made anew"}, happen: func(*world) { v.Tags = map[string]string{"packer": "yes"} }}
		if p := w.prove(named(v.Name), fault{kind: worlds.RivalActs, at: at, rival: other}); p.err == nil || !slices.Equal(w.turns(), []string{"2026.03.09"}) {
			t.Errorf("%s: it ended %v; the next instance boots from %v", name, p.err, w.turns())
		}
		w.sound(t)
	}
}
