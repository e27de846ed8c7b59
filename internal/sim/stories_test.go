package sim

import (
	"context"
	"fmt"
	"testing"
	"time"

	"kamino.dev/kamino"
	"kamino.dev/kamino/engine"
	"kamino.dev/kamino/internal/worlds"
)

// stories are what no single fault tells: how a pool or a donor stands before anything happens.
// Each returns what went wrong, "" nothing.
var stories = []struct {
	name string
	play func() string
}{
	{"a donor whose disk does not fit its pool", func() string {
		w, asked, p := aged(1), 0, &proc{}
		p.tune = func(e *engine.Engine) {
			e.Provider = fitting{simProvider{p}, []kamino.Refusal{{Code: "fit", Field: "diskControllerType", Value: "NVMe", Why: "w", Do: "d"}}, nil, &asked}
		}
		w.startUpdate(p, options("a-0"))
		w.wait()
		return unless(p.err != nil && w.writes == 0, "the run ended %v after %d writes", p.err, w.writes)
	}},
	{"a donor that is about to be rebooted", func() string {
		w := aged(1)
		w.nodes["a-0"].Annotations[kamino.KuredPendingReboot.Annotation] = "now"
		o := options("a-0")
		o.PendingReboot = []kamino.Signal{kamino.KuredPendingReboot}
		p := w.update(o)
		return unless(p.err != nil && w.writes == 0, "the run ended %v after %d writes", p.err, w.writes)
	}},
	{"a donor that is off, and a reboot that it cannot do", func() string {
		w := killed("Create snapshot", 1)
		w.advance(w.now.Add(time.Hour))
		w.nodes["a-0"].Annotations[kamino.KuredPendingReboot.Annotation] = "now"
		w.audit.person("a-0")
		o := options("a-0")
		o.PendingReboot = []kamino.Signal{kamino.KuredPendingReboot}
		p := w.update(o)
		return unless(p.err == nil && p.result.Changed, "the run ended %v", p.err)
	}},
	{"a snapshot of another disk, with the tags of a run that was", func() string { return copiedTags("a-2", true) }},
	{"a snapshot of a run that the ledger does not know", func() string { return copiedTags("a-0", false) }},
	{"a version that is left to a person, and a night without that option", func() string {
		w, o := aged(1), proving()
		o.Proof.Promote = kamino.PromoteManual
		was := w.pools[poolA].image
		p := w.update(o)
		night := autoOptions()
		night.Proof = proving().Proof
		again, _ := w.auto(night)
		return unless(p.err == nil && again.err == nil && w.pools[poolA].image == was && len(w.audit.violations) == 0,
			"the run ended %v, the night %v, and the pool refers to %s, not to %s", p.err, again.err, w.pools[poolA].image, was)
	}},
	{"a cluster that was made anew under the names of a former one", madeAnew},
	{"a model that a person chose, and a lease that was deleted", chosenAndForgotten},
	{"a name that a deleted version had, by version", func() string { return nameAgain(aged) }},
	{"a name that a deleted version had, pointing", func() string { return nameAgain(pointing) }},
	{"a node that registers with another node's machine, and a taint of a run", func() string { return anothersMachine("restore", "") }},
	{"a withdrawal that is repeated", func() string {
		w := pointing(1)
		again := kamino.WithdrawOptions{Pool: "a", Reason: "leaks a key"}
		w.withdraw(again)
		w.advance(w.now.Add(time.Minute))
		_, p := w.withdraw(again)
		w.advance(w.now.Add(time.Minute))
		return unless(p.err == nil && birth(w) == "2026.03.05", "repeated, it ended %v; nodes boot from %s", p.err, birth(w))
	}},
	{"a rollback that is repeated", func() string {
		w := pointing(1)
		for range 2 {
			p := &proc{}
			w.spawn(p, func(ctx context.Context) { _, p.err = p.engine().Rollback(ctx, engine.RollbackOptions{Pool: "a"}) })
			if w.wait(); p.err != nil {
				return p.err.Error()
			}
			w.advance(w.now.Add(time.Minute))
		}
		return unless(birth(w) == "2026.03.05", "nodes boot from %s", birth(w))
	}},
	{"a version without a receipt before one that is withdrawn", func() string {
		w := aged(1)
		delete(w.version("2026.03.05").Tags, kamino.TagReceipt)
		_, p := w.withdraw(kamino.WithdrawOptions{Pool: "a", Reason: "bad"})
		return unless(birth(w) != "2026.03.05", "it ended %v; nodes boot from %s", p.err, birth(w))
	}},
	{"a version that waits, is promoted, and withdrawn by another", func() string {
		w := aged(1)
		v := w.waits("2026.03.19")
		w.between(func() {
			v.Artifact = kamino.ParseVersion(v.Artifact).Offered().Artifact
			w.pools[poolA].image, w.pools[poolA].revision = v.ID, w.next()
		}, func(ctx context.Context, e *engine.Engine) error {
			_, err := e.WithdrawVersion(ctx, kamino.WithdrawOptions{Pool: "a", Version: v.Name, Reason: "bad"})
			return err
		})
		return unless(v.Tags[kamino.TagBad] == "", "nodes boot from %s, and it is withdrawn: %v", birth(w), v.Tags)
	}},
	{"a pause while a version is promoted by hand", func() string {
		w := aged(1)
		w.waits("2026.03.19")
		p := w.between(func() { w.paused = "an incident" }, func(ctx context.Context, e *engine.Engine) error {
			_, err := e.PromoteVersion(ctx, engine.PromoteOptions{Pool: "a"})
			return err
		})
		return unless(p.err != nil && birth(w) == "2026.03.09", "it ended %v; nodes boot from %s", p.err, birth(w))
	}},
	{"a version that a person proves by its name, whose node joins and is bad", func() string {
		w, v := packed(aged(1), true)
		w.sickAs(flaps)
		p := w.prove(named(v.Name))
		return unless(p.err != nil && birth(w) == "2026.03.09" && v.Tags[kamino.TagBad] != "", "it ended %v; nodes boot from %s, version %v", p.err, birth(w), v.Tags)
	}},
	{"a process that is killed before its version was proved, and another without a proof", func() string {
		w, p := aged(1), &proc{}
		p.tune = heard(func(ev kamino.Event) { p.dying = p.dying || ev.Step == "launch" })
		w.startUpdate(p, proving())
		w.wait()
		again := w.update(options("a-0"))
		return unless(w.unprovedNext() == "", "it ended %v; nodes boot from %s, which was not proved", again.err, birth(w))
	}},
	{"a list that lacks the newest version for two minutes", func() string {
		w := aged(1)
		v := w.addVersion(poolA, "2026.03.1001")
		w.pools[poolA].image = v.ID
		l := w.leases[poolA]
		l.Ledger.Wrote = &kamino.WrittenModel{Image: v.ID, Seen: true}
		w.leases[poolA] = l
		o := options("a-0")
		o.Today = kamino.TodayAgain
		p := w.startUpdate(&proc{tune: heard(func(ev kamino.Event) {
			if ev.Step == "version" && ev.Kind == kamino.EventStarted {
				v.hidden = w.now.Add(2 * time.Minute)
			}
		})}, o)
		w.wait()
		return unless(p.err == nil && birth(w) == "2026.03.1002", "it ended %v; nodes boot from %s", p.err, birth(w))
	}},
	{"a hidden version of somebody else with a later name, and one of ours that waits", func() string {
		w := aged(1)
		v := w.addVersion(poolA, "2099.01.01")
		v.Excluded, v.Tags = true, map[string]string{"team": "x"}
		w.waits("2026.03.10")
		o := autoOptions()
		o.Proof = proving().Proof
		o.Proof.Promote = kamino.PromoteManual
		p, res := w.auto(o)
		return unless(p.err == nil && kamino.Has(res[0].Held, "promote"), "a night ended %v: %+v", p.err, res)
	}},
	{"a version that was rolled back, and a night", func() string {
		w := aged(1)
		if p := w.update(options("a-0")); p.err != nil {
			return p.err.Error()
		}
		p := &proc{}
		w.spawn(p, func(ctx context.Context) { _, p.err = p.engine().Rollback(ctx, engine.RollbackOptions{Pool: "a"}) })
		w.wait()
		back := w.pools[poolA].image
		w.advance(w.now.Add(time.Hour))
		night, _ := w.auto(autoOptions())
		return unless(p.err == nil && w.pools[poolA].image == back, "rolled back (%v) to %s, the pool refers to %s after a night (%v)", p.err, back, w.pools[poolA].image, night.err)
	}},
	{"a record of a run that was, which names the machine of another node", func() string {
		w := aged(1)
		w.tracing = true
		w.halt(w.machineOf(w.nodes["a-1"]))
		w.leave(kamino.Record{Donor: "forgotten", Instance: w.nodes["a-1"].ProviderID, VMID: w.nodes["a-1"].SystemUUID, Sealing: true, Step: "stop"})
		w.restore()
		return unless(len(w.switches("a-1")) == 0, "a restore: %s", w.switches("a-1"))
	}},
	{"a snapshot that the original script made of the donor", func() string {
		w := fresh(1) // without other versions that name no run, which it could have become
		w.Script("a-0")
		w.advance(w.now.Add(time.Hour))
		p := w.update(options("a-0"))
		v := w.version(kamino.VersionName(w.now))
		return unless(p.err == nil && v != nil && v.Tags[kamino.TagReceipt] != "", "the run ended %v, version %+v", p.err, v)
	}},
	{"a build that fails twice", func() string {
		w := aged(1)
		var fails []fault
		for range 2 {
			log := &proc{logging: true, faults: fails}
			again := aged(1)
			again.startUpdate(log, options("a-0"))
			again.wait()
			fails = append(fails, fault{kind: worlds.OperationFailed, at: lastCall(log, "Create image version")})
		}
		p := w.update(options("a-0"), fails...)
		w.advance(w.now.Add(time.Hour))
		v := w.version(kamino.VersionName(w.now))
		return unless(p.err != nil && (v == nil || v.State != kamino.Failed), "the run ended %v and left version %+v", p.err, v)
	}},
	{"a person starts the donor when its snapshot is asked for", func() string {
		log := &proc{logging: true}
		w := aged(1)
		w.startUpdate(log, options("a-0"))
		w.wait()
		w = aged(1)
		starts := &rival{Rival: worlds.Rival{Name: "a person starts the donor"}, happen: func(w *world) { w.StartMachine("a-0") }}
		w.update(options("a-0"), fault{kind: worlds.RivalActs, at: lastCall(log, "Create snapshot"), rival: starts})
		return ofKind(w.audit.violations, "")
	}},
	{"a run that proves its version", func() string {
		w := aged(1)
		p := w.update(proving())
		return unless(p.err == nil, "the run ended %v", p.err)
	}},
	{"a clock that is set forward while a canary is made", func() string {
		log := &proc{logging: true}
		w := aged(1)
		w.startUpdate(log, proving())
		w.wait()
		for _, s := range log.log {
			if s.step != "launch" && s.step != "join" {
				continue
			}
			w := aged(1)
			set := &rival{Rival: worlds.Rival{Name: "an hour forward", Jump: time.Hour}, happen: func(*world) {}}
			if p := w.update(proving(), fault{kind: worlds.RivalActs, at: s.at, rival: set}); p.err != nil {
				return fmt.Sprintf("at %s: %v", s, p.err)
			}
		}
		return ""
	}},
	{"a pool that somebody owns, with a bootstrap of its own", func() string {
		w := pointing(1)
		pool := w.pools[poolA]
		pool.owner, pool.exts = &kamino.Owner{Name: "somebody"}, []string{"bootstrap"}
		models := pool.model
		p := w.update(options("a-0"))
		return unless(p.err == nil && pool.model == models, "the run ended %v; the model was written %d times", p.err, pool.model-models)
	}},
	{"twelve nights of a pool that points", func() string {
		w := pointing(1)
		models := w.pools[poolA].model
		for night := range 12 {
			if p := w.update(options("a-0")); p.err != nil {
				return fmt.Sprintf("night %d: %v", night, p.err)
			}
			w.advance(w.now.Add(24 * time.Hour))
		}
		return unless(w.pools[poolA].model == models, "the model was written %d times", w.pools[poolA].model-models)
	}},
}

// lastCall is the number of the last call of a method.
func lastCall(p *proc, method string) int {
	at := -1
	for _, s := range p.log {
		if s.call.method == method {
			at = s.at
		}
	}
	return at
}

func unless(good bool, format string, args ...any) string {
	if good {
		return ""
	}
	return fmt.Sprintf(format, args...)
}

// TestStories: all of them end well.
func TestStories(t *testing.T) {
	for _, s := range stories {
		if wrong := s.play(); wrong != "" {
			t.Errorf("%s: %s", s.name, wrong)
		}
	}
}

// copiedTags is a run in a pool whose snapshot is that of another disk, or of a run that the ledger
// does not know, whatever its tags say: it is not promoted.
func copiedTags(of string, known bool) string {
	w := aged(1)
	donor := w.machineOf(w.nodes["a-0"])
	snapshot := kamino.SnapshotName("a")
	w.artifacts[artifactKey(poolA, kamino.KindSnapshot, snapshot)] = &simArtifact{pool: poolA, Artifact: kamino.Artifact{
		Kind: kamino.KindSnapshot, Name: snapshot, ID: artifactID(poolA, kamino.KindSnapshot, snapshot), State: kamino.Succeeded, Ready: true, Percent: 100,
		Created: w.now, Source: w.machineOf(w.nodes[of]).Disk,
		Tags: map[string]string{kamino.TagBuiltFrom: "a-0", kamino.TagVM: donor.VMID, kamino.TagReceipt: "deadbeef", kamino.TagRun: "r-earlier",
			kamino.TagEpoch: "7", kamino.TagBuiltAt: w.now.UTC().Format(kamino.BuiltAtFormat)}}}
	if l := w.leases[poolA]; known {
		l.Ledger.Past = []kamino.PastRun{{Run: "r-earlier", Donor: "a-0", Failure: "f", Step: "image"}}
		w.leases[poolA] = l
	}
	p := w.update(options("a-0"))
	v := w.version(kamino.VersionName(w.now))
	return unless(p.err == nil && v != nil && v.Tags[kamino.TagRun] != "r-earlier" && w.pools[poolA].image == v.ID && p.result.AwaySeconds > 0,
		"the run ended %v, version %+v, away %.0f s", p.err, v, p.result.AwaySeconds)
}
