package sim

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"kamino.dev/kamino"
	"kamino.dev/kamino/engine"
	"kamino.dev/kamino/internal/worlds"
	"kamino.dev/kamino/poolstate"
)

// updateAsTold is an update by somebody who reads what a refusal says, and types
// it where the named donor is to be taken whatever was there before.
func (w *world) updateAsTold(o kamino.Options) *proc {
	p := w.update(o)
	var other *engine.OtherDonorError
	var refused *kamino.RefusedError
	if errors.As(p.err, &refused) && refused.Refusals[0].Code == "pinned" {
		o.AdoptModel = true
		p = w.update(o)
	}
	if errors.As(p.err, &refused) && refused.Refusals[0].Code == "pointer" { // a person excluded a version, too
		back := &proc{}
		w.spawn(back, func(ctx context.Context) {
			_, back.err = back.engine().Rollback(ctx, engine.RollbackOptions{Pool: poolA.Name(), To: lastSegment(w.pools[poolA].image)})
		})
		w.wait()
		w.advance(w.now.Add(time.Minute))
		p = w.update(o)
	}
	if errors.As(p.err, &other) || p.err != nil && (strings.Contains(p.err.Error(), "failed its proof: ") || strings.Contains(p.err.Error(), "was withdrawn (")) {
		o.Today = kamino.TodayAgain
		p = w.update(o)
	}
	return p
}

// auto runs one auto-update to its end.
func (w *world) auto(o kamino.AutoOptions, faults ...fault) (*proc, []engine.PoolResult) {
	var res []engine.PoolResult
	p := &proc{faults: faults}
	w.spawn(p, func(ctx context.Context) { res, p.err = p.engine().AutoUpdate(ctx, o) })
	w.wait()
	return p, res
}

func autoOptions() kamino.AutoOptions {
	o := kamino.AutoDefaults()
	o.Proof.Mode = kamino.ProveNone
	o.PendingReboot = o.Rules.PendingReboot
	return o
}

// patch is what a robot writes on a node that it has patched.
func (w *world) patch(node, at string) {
	w.nodes[node].Annotations[kamino.KuredLastPatch.Annotation] = at
}

func (w *world) version(name string) *simArtifact {
	return w.artifacts[artifactKey(poolA, kamino.KindVersion, name)]
}

// inUse is the version that the model refers to.
func (w *world) inUse(t *testing.T) *simArtifact {
	t.Helper()
	v := w.version(lastSegment(w.pools[poolA].image))
	if v == nil {
		t.Fatalf("the model refers to %s, which is no version", w.pools[poolA].image)
	}
	return v
}

// interruptedWith is a world in which a run with donor a-0 was told to end at a call.
func interruptedWith(t *testing.T, step, method string, kind worlds.Fault) *world {
	t.Helper()
	sites, _ := golden(t, aged)
	w := aged(1)
	w.update(options("a-0"), fault{kind: kind, at: nth(t, sites, step, method, 1)})
	if w.pools[poolA].image != artifactID(poolA, kamino.KindVersion, "2026.03.09") {
		t.Fatal("the interrupted run has changed the model")
	}
	return w
}

// TestOtherDonorsSnapshot: a snapshot of the donor of an interrupted run is no
// reason to give out that donor's disk when another one is named.
func TestOtherDonorsSnapshot(t *testing.T) {
	for _, donor := range []string{"a-0", "a-2"} {
		w := interruptedWith(t, "image", "Find image version", worlds.Interrupted)
		if w.artifacts[artifactKey(poolA, kamino.KindSnapshot, kamino.SnapshotName("a"))] == nil {
			t.Fatal("no snapshot is left")
		}
		p := w.update(options(donor))
		v := w.inUse(t)
		if p.err != nil || p.result.Donor != donor || v.Tags[kamino.TagBuiltFrom] != donor {
			t.Errorf("donor %s was named; the result says %q, the model boots the disk of %q: %v", donor, p.result.Donor, v.Tags[kamino.TagBuiltFrom], p.err)
		}
		if away := p.result.AwaySeconds > 0; away != (donor == "a-2") {
			t.Errorf("donor %s was away: %v", donor, away)
		}
		w.sound(t)
	}
}

// TestReplacedDonorsSnapshot: a node of the same name on another VM is another donor.
func TestReplacedDonorsSnapshot(t *testing.T) {
	w := interruptedWith(t, "image", "Find image version", worlds.Interrupted)
	w.ReplaceMachine("a-0")
	w.advance(w.now.Add(10 * time.Minute))
	p := w.update(options("a-0"))
	if v := w.inUse(t); p.err != nil || !kamino.SameVM(v.Tags[kamino.TagVM], w.machineOf(w.nodes["a-0"]).VMID) {
		t.Errorf("the model boots the disk of VM %q, the node runs on %q: %v", v.Tags[kamino.TagVM], w.machineOf(w.nodes["a-0"]).VMID, p.err)
	}
	w.sound(t)
}

// TestOtherDonorsVersion: nor is a version of today, whether it is being built or
// done. The refusal changes nothing, names both nodes, and says what to type.
func TestOtherDonorsVersion(t *testing.T) {
	for _, finished := range []bool{false, true} {
		w := interruptedInBuild(t)
		if finished {
			w.advance(w.now.Add(6 * time.Hour))
		}
		model := w.pools[poolA].image
		p := w.update(options("a-2"))
		var other *engine.OtherDonorError
		if !errors.As(p.err, &other) || other.BuiltFrom != "a-0" || other.Donor != "a-2" || !strings.Contains(kamino.Hint(p.err), "--again") {
			t.Fatalf("finished %v: %v, hint %q; the result says donor %q", finished, p.err, kamino.Hint(p.err), p.result.Donor)
		}
		if w.pools[poolA].image != model {
			t.Errorf("finished %v: the model refers to %s", finished, w.pools[poolA].image)
		}
		o := options("a-2")
		o.Today = kamino.TodayAgain
		p = w.update(o)
		if v := w.inUse(t); p.err != nil || v.Tags[kamino.TagBuiltFrom] != "a-2" || v.Name != "2026.03.1001" || p.result.Donor != "a-2" {
			t.Errorf("finished %v: the model refers to %s of %s, the result says %s: %v", finished, v.Name, v.Tags[kamino.TagBuiltFrom], p.result.Donor, p.err)
		}
		w.sound(t)
	}
}

// interruptedInBuild is a world in which a version of today is being built from
// a-0, and nobody holds the pool.
func interruptedInBuild(t *testing.T) *world {
	t.Helper()
	sites, _ := golden(t, aged)
	w := aged(1)
	w.update(options("a-0"), fault{kind: worlds.Interrupted, at: nth(t, sites, "image", "Create image version", 1) + 2})
	if v := w.version("2026.03.10"); v == nil || v.State != kamino.Creating || w.leases[poolA].Holder != "" {
		t.Fatalf("the version is %+v, the lease held by %q", v, w.leases[poolA].Holder)
	}
	return w
}

// TestOriginalsVersionOfToday: what the original made today has no receipt, and
// may hold the identity of its donor.
func TestOriginalsVersionOfToday(t *testing.T) {
	for _, state := range []kamino.State{kamino.Succeeded, kamino.Creating} {
		w := aged(1)
		v := w.addVersion(poolA, "2026.03.10")
		v.Tags, v.State = map[string]string{kamino.TagBuiltFrom: "a-0"}, state
		p := w.update(options("a-0"))
		if p.err == nil || !strings.Contains(p.err.Error(), "no seal receipt") || !strings.Contains(kamino.Hint(p.err), "--again") {
			t.Errorf("%s: %v, hint %q", state, p.err, kamino.Hint(p.err))
		}
		if name := lastSegment(w.pools[poolA].image); name != "2026.03.09" {
			t.Errorf("%s: the model refers to %s", state, name)
		}
	}
}

// TestAutoFinishesAnyVersion: where no person named the donor, a version that is
// being built is finished, and the result names the donor that it is of.
func TestAutoFinishesAnyVersion(t *testing.T) {
	w := interruptedInBuild(t)
	m, _ := w.donorOf("a-0")
	w.removeMachine(m)
	w.advance(w.now.Add(5 * time.Minute))
	w.patch("a-2", "2026-03-10T08:00:00Z")
	p, res := w.auto(autoOptions())
	if p.err != nil || len(res) != 1 || res[0].Result == nil || res[0].Result.Donor != "a-0" || res[0].Result.Version != "2026.03.10" {
		t.Errorf("auto-update: %+v, %v", res, p.err)
	}
	w.sound(t)
}

// rollback runs one rollback to its end.
func (w *world) rollback(t *testing.T, o engine.RollbackOptions, faults ...fault) (out engine.Rollback, err error) {
	t.Helper()
	p := &proc{faults: faults}
	w.spawn(p, func(ctx context.Context) { out, p.err = p.engine().Rollback(ctx, o) })
	w.wait()
	return out, p.err
}

// TestInterruptedLeaves: what an order to end leaves of a run is told, and in words.
func TestInterruptedLeaves(t *testing.T) {
	sites, _ := golden(t, aged)
	for _, tt := range []struct {
		step, method string
		left         []string
	}{
		{"drain", "Evict", nil},
		{"start", "SetPower on", []string{"the snapshot"}},
	} {
		w := aged(1)
		var left []string
		p := w.startUpdate(&proc{faults: []fault{{kind: worlds.Interrupted, at: nth(t, sites, tt.step, tt.method, 1)}},
			tune: func(e *engine.Engine) { e.Holds = func(_ kamino.PoolID, what []string) { left = what } }}, options("a-0"))
		w.wait()
		if p.err == nil || strings.Contains(p.err.Error(), "context canceled") || !strings.Contains(p.err.Error(), "interrupted") {
			t.Errorf("%s: %v", tt.step, p.err)
		}
		if !slices.Equal(left, tt.left) {
			t.Errorf("%s: what is left is told as %q, want %q", tt.step, left, tt.left)
		}
		w.restore()
		w.sound(t)
	}
}

// TestInterruptedPromoted: a run that ends before its time after it promoted its version says that
// new nodes boot from it, whatever step it was in; one that ends before says nothing of the kind.
func TestInterruptedPromoted(t *testing.T) {
	steps := map[string]bool{}
	for at := 0; ; at++ {
		w := aged(1)
		o := proving()
		o.NewNodes = 1
		p := w.update(o, fault{kind: worlds.Interrupted, at: at})
		if !p.interrupted {
			break
		}
		if p.err == nil {
			continue // it was at its end
		}
		before := []string{"connect", "validate", "lock", "recover", "gallery", "definition", "version", "reuse", "rehearse", "protect", "inventory", "drain",
			"hold", "seal", "stop", "snapshot", "start", "release", "return", "image", "launch", "join", "examine", "model"}
		var ended *kamino.StepError
		if !errors.As(p.err, &ended) {
			t.Fatalf("interrupted at %d: %v", at, p.err)
		}
		step := ended.Step
		after := !slices.Contains(before, step)
		if says := strings.Contains(p.err.Error(), "new nodes of pool a boot from it already"); says != after {
			t.Fatalf("interrupted at %d in %s: %v", at, step, p.err)
		}
		steps[step] = true
	}
	if !steps["retire"] || !steps["scale-out"] || !steps["examine"] {
		t.Errorf("interrupted in %v only", steps)
	}
}

// replacing is a world whose pools replace what is off in service.
func replacing(seed uint64) *world {
	w := aged(seed)
	w.replaces = true
	return w
}

// serve is a person who puts a node's machine back in service.
func (w *world) serve(node string) {
	w.machineOf(w.nodes[node]).held = ""
	w.pools[poolA].capacity, w.pools[poolA].revision = w.pools[poolA].capacity+1, w.next()
}

// TestServedBeforeSeal: a donor that somebody put back in service is not switched off: its pool
// would replace it.
func TestServedBeforeSeal(t *testing.T) {
	begin := replacing
	sites, _ := golden(t, begin)
	struck := 0
	for _, s := range sites {
		if s.call.method == "Seal" {
			break
		} else if s.step != "seal" || !s.call.write {
			continue
		}
		struck++
		w := begin(1)
		served := &rival{Rival: worlds.Rival{Name: "a person puts the donor in service"}, happen: func(w *world) { w.serve("a-0") }}
		p := w.update(goldenOptions(), fault{kind: worlds.RivalActs, at: s.at, rival: served})
		if p.err == nil || !strings.Contains(p.err.Error(), "in service") || kamino.Hint(p.err) == "" {
			t.Errorf("%s: %v, hint %q", s, p.err, kamino.Hint(p.err))
		}
		if m := w.machineOf(w.nodes["a-0"]); m.Power != kamino.PowerOn || m.Touched != "" {
			t.Errorf("%s: the donor is %s, its disk touched by %q", s, m.Power, m.Touched)
		}
		w.sound(t)
	}
	if struck == 0 {
		t.Error("no write of the seal was struck")
	}
}

// TestPlannedProbe: a plan looks at the operator's Job as the run does; whoever may only read is
// told that nobody knows whether it is admitted.
func TestPlannedProbe(t *testing.T) {
	for _, denied := range []error{nil, kamino.ErrForbidden, kamino.ErrNotFound} {
		w := aged(1)
		o := proving()
		o.Proof.Probe, w.proofDenied = []byte("a Job"), denied
		p := &proc{}
		var plan *poolstate.Plan
		w.spawn(p, func(ctx context.Context) { plan, p.err = p.engine().Plan(ctx, o) })
		w.wait()
		switch doubted := plan != nil && strings.Contains(strings.Join(plan.Doubts, "; "), "whether the probe would be admitted"); {
		case errors.Is(denied, kamino.ErrNotFound) != (p.err != nil), errors.Is(denied, kamino.ErrForbidden) != doubted:
			t.Errorf("%v: %v, %+v", denied, p.err, plan)
		}
	}
}
