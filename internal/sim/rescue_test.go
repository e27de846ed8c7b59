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
	"kamino.dev/kamino/poolstate"
)

// What the engine promises, told once more: a referee does not ask the player.
const (
	goneAfter  = 3 * time.Minute // until an instance that is neither found nor listed counts as gone
	detachTime = 2 * time.Minute // how long the seal waits for volumes to be detached
	guestHalt  = time.Minute     // how long a machine that was told to go off by its guest may take
)

// away tells what is wrong with a donor that nobody could find any more: off, and nothing on its
// node or its lease says why.
func (w *world) forgotten(name string) string {
	n := w.nodes[name]
	m, l := w.machineOf(n), w.leases[poolA]
	if m.Power == kamino.PowerOn || n.Annotations[kamino.AnnotationRun] != "" && n.Tainted(kamino.TaintBlock) || l.Holder != "" {
		return ""
	}
	return fmt.Sprintf("%s is %s, its annotations are %v and its taints %v, its lease is free", name, m.Power, n.Annotations, n.Taints)
}

// TestOne404: one read of what is there that is answered 404 ends no donor's rescue, in a run and
// in a restore.
func TestOne404(t *testing.T) {
	sites, _ := golden(t, aged)
	for _, s := range sites {
		if s.call.kube || s.call.write {
			continue
		}
		w := aged(1)
		p := w.update(options("a-0"), fault{kind: worlds.Absent, at: s.at})
		if why := w.forgotten("a-0"); why != "" {
			t.Errorf("404 at %s, the run ended %v: %s", s, p.err, why)
		}
	}
	for at := range 40 {
		w := killed("Create snapshot", 1)
		w.advance(w.now.Add(time.Hour))
		p := w.restore(fault{kind: worlds.Absent, at: at})
		if why := w.forgotten("a-0"); why != "" {
			t.Errorf("404 at call %d, restore ended %v: %s", at, p.err, why)
		}
		if p := w.restore(); p.err != nil {
			t.Errorf("404 at call %d of the first restore, the second: %v", at, p.err)
		}
		w.sound(t)
	}
}

// TestBlindRestore: credentials that see nothing take nothing off. The error says what to type.
func TestBlindRestore(t *testing.T) {
	w := killed("Create snapshot", 1)
	w.advance(w.now.Add(time.Hour))
	marks, holder := maps.Clone(w.nodes["a-0"].Annotations), w.leases[poolA].Holder
	w.blindUntil = w.now.Add(24 * time.Hour)
	p := w.restore()
	if n := w.nodes["a-0"]; p.err == nil || !maps.Equal(n.Annotations, marks) || !n.Tainted(kamino.TaintBlock) || w.leases[poolA].Holder != holder {
		t.Errorf("restore ended %v; node %v %v, lease held by %q", p.err, n.Annotations, n.Taints, w.leases[poolA].Holder)
	}
	if p.err != nil && !strings.Contains(kamino.Hint(p.err), "credentials") {
		t.Errorf("the hint is %q", kamino.Hint(p.err))
	}
	w.blindUntil = time.Time{}
	if p := w.restore(); p.err != nil {
		t.Error(p.err)
	}
	w.sound(t)
}

// TestPoolGone: a pool that is not found keeps its marks, until a person says that it was deleted
// for good; one that is there is never given up.
func TestPoolGone(t *testing.T) {
	give := func(w *world, o engine.RestoreOptions) *proc {
		p := &proc{}
		w.spawn(p, func(ctx context.Context) { p.found, p.err = p.engine().Restore(ctx, o) })
		w.wait()
		return p
	}
	word := engine.RestoreOptions{Pools: []string{"a"}, PoolIsGone: true}
	w := killed("Create snapshot", 1)
	w.advance(w.now.Add(time.Hour))
	n, epoch := w.nodes["a-0"], w.leases[poolA].Epoch
	if p := give(w, word); p.err == nil || n.Annotations[kamino.AnnotationRun] == "" || w.leases[poolA].Epoch != epoch {
		t.Errorf("a pool that is there was given up: %v, %+v", p.err, p.found)
	}
	clear(w.machines)
	delete(w.pools, poolA)
	p := give(w, engine.RestoreOptions{})
	if n.Annotations[kamino.AnnotationRun] == "" || p.err == nil || !strings.Contains(kamino.Hint(p.err), "kamino restore --pool a --pool-is-gone") {
		t.Errorf("restore of a pool that is not found: %v, hint %q, annotations %v", p.err, kamino.Hint(p.err), n.Annotations)
	}
	if p := give(w, word); p.err != nil || len(p.found) == 0 || p.found[0].Done == "" {
		t.Errorf("the user says that it is gone: %v, %+v", p.err, p.found)
	}
	if n.Annotations[kamino.AnnotationRun] != "" || n.Tainted(kamino.TaintBlock) || w.leases[poolA].Holder != "" {
		t.Errorf("the node has %v, %v; the lease is held by %q", n.Annotations, n.Taints, w.leases[poolA].Holder)
	}
	for _, o := range []engine.RestoreOptions{{PoolIsGone: true}, {Pools: []string{"a", "b"}, PoolIsGone: true}, {Pools: []string{"nosuch"}}} {
		if p := give(w, o); p.err == nil || kamino.Hint(p.err) == "" {
			t.Errorf("%+v: %v", o, p.err)
		}
	}
}

// TestInstanceGone: an instance that was deleted is given up after some minutes, and one that its
// pool lists never is.
func TestInstanceGone(t *testing.T) {
	w := killed("Create snapshot", 1)
	w.advance(w.now.Add(time.Hour))
	m := w.machineOf(w.nodes["a-0"])
	delete(w.machines, m.ID) // and Kubernetes keeps the node
	begun := w.now
	p := w.restore()
	if took := w.now.Sub(begun); p.err != nil || took < kamino.LeaseDuration+goneAfter || took > kamino.LeaseDuration+goneAfter+time.Minute {
		t.Errorf("restore took %s: %v, %+v", took, p.err, p.found)
	}
	if n := w.nodes["a-0"]; n.Annotations[kamino.AnnotationRun] != "" {
		t.Errorf("node has %v", n.Annotations)
	}

	w = killed("Create snapshot", 1)
	w.advance(w.now.Add(time.Hour))
	var faults []fault
	for at := range 400 { // for minutes every read of the instance fails, and the list shows it
		faults = append(faults, fault{kind: worlds.Unread, at: at})
	}
	begun = w.now
	if p := w.restore(faults...); p.err != nil || w.now.Sub(begun) < kamino.LeaseDuration+goneAfter+time.Minute {
		t.Errorf("restore took %s: %v", w.now.Sub(begun), p.err)
	}
	w.sound(t)
}

// switches lists the calls on the power of a machine.
func (w *world) switches(host string) (out []string) {
	for _, line := range w.trace {
		if strings.Contains(line, "switches "+host+" o") {
			out = append(out, line)
		}
	}
	return out
}

// TestForgedMark: a mark makes Kamino do nothing to a VM that is not that node's, and one that no
// run of the pool wrote does nothing to the power of the node's own.
func TestForgedMark(t *testing.T) {
	for name, forge := range map[string]func(w *world, own, other *simNode) kamino.Mark{
		"another machine": func(w *world, own, other *simNode) kamino.Mark {
			return kamino.Mark{Format: 1, Run: "x", Pool: poolA, Instance: other.ProviderID, VMID: other.SystemUUID, BootID: own.BootID, Sealing: true}
		},
		"another machine of the same VM id": func(w *world, own, other *simNode) kamino.Mark {
			return kamino.Mark{Format: 1, Run: "x", Pool: poolA, Instance: other.ProviderID, VMID: own.SystemUUID, BootID: own.BootID, Sealing: true}
		},
		"another pool": func(w *world, own, other *simNode) kamino.Mark {
			return kamino.Mark{Format: 1, Run: "x", Pool: "/no/such/pool", Instance: own.ProviderID, VMID: own.SystemUUID, BootID: own.BootID, Sealing: true}
		},
		"a run that never was": func(w *world, own, other *simNode) kamino.Mark {
			return kamino.Mark{Format: 1, Run: "x", Pool: poolA, Instance: own.ProviderID, VMID: own.SystemUUID, BootID: own.BootID, Sealing: true}
		},
	} {
		t.Run(name, func(t *testing.T) {
			for command, run := range map[string]func(*world) *proc{
				"restore": func(w *world) *proc { return w.restore() },
				"update":  func(w *world) *proc { return w.update(options("a-2")) },
			} {
				w := aged(1)
				w.tracing = true
				own, other := w.nodes["a-1"], w.nodes["a-0"]
				w.forge("a-1", forge(w, own, other))
				w.machineOf(own).Silence() // as if it were sealed
				w.advance(w.now.Add(time.Hour))
				leases := len(w.leases)
				p := run(w)
				for _, host := range []string{"a-0", "a-1"} {
					for _, line := range w.switches(host) {
						t.Errorf("%s: %s", command, line)
					}
				}
				if len(w.leases) != leases {
					t.Errorf("%s makes a lease for a pool that a mark names: %v", command, w.leases)
				}
				if p.err != nil {
					t.Errorf("%s: %v", command, p.err)
				}
				if command == "restore" && (len(p.found) != 1 || p.found[0].Node != "a-1" || p.found[0].Reason == "" || p.found[0].Done != "") {
					t.Errorf("restore says %+v", p.found)
				}
			}
		})
	}
}

// TestCopiedRecord: a lease record that names the machine of another node does nothing to it.
func TestCopiedRecord(t *testing.T) {
	for _, donor := range []string{"forgotten", "a-2"} {
		for _, command := range []string{"restore", "update"} {
			w := aged(1)
			w.tracing = true
			other := w.nodes["a-1"]
			l := w.leases[poolA]
			l.Holder, l.Process, l.Record = "x", "dead", kamino.Record{Donor: donor, Instance: other.ProviderID, VMID: other.SystemUUID, Sealing: true, Step: "stop"}
			w.leases[poolA] = l
			w.machineOf(other).Silence()
			w.advance(w.now.Add(time.Hour))
			var p *proc
			if command == "restore" {
				p = w.restore()
			} else {
				p = w.update(options("a-0"))
			}
			for _, line := range w.switches("a-1") {
				t.Errorf("%s, donor %s: %s", command, donor, line)
			}
			if p.err != nil {
				t.Errorf("%s, donor %s: %v", command, donor, p.err)
			}
		}
	}
}

// crowded are options of an auto-update that other nodes' troubles do not stop.
func crowded() kamino.AutoOptions {
	o := autoOptions()
	o.MaxNotReady = 10
	return o
}

// TestMarksWithoutLease: a marked node whose lease is free is unfinished business, for auto-update
// and for status.
func TestMarksWithoutLease(t *testing.T) {
	w := killed("Create snapshot", 1)
	w.advance(w.now.Add(time.Hour))
	l := w.leases[poolA]
	l.Holder, l.Process, l.Record = "", "", kamino.Record{}
	w.leases[poolA] = l
	p := &proc{}
	var status []poolstate.PoolStatus
	w.spawn(p, func(ctx context.Context) { status, p.err = p.engine().Status(ctx, nil, nil) })
	w.wait()
	if p.err != nil || len(status) != 1 || status[0].Unfinished == nil || status[0].Unfinished.Donor != "a-0" {
		t.Errorf("status says %+v, %v", status, p.err)
	}
	p, results := w.auto(crowded())
	if m := w.machineOf(w.nodes["a-0"]); p.err != nil || m.Power != kamino.PowerOn || w.nodes["a-0"].Annotations[kamino.AnnotationRun] != "" {
		t.Errorf("auto-update did %+v, %v; the donor is %s, %v", results, p.err, m.Power, w.nodes["a-0"].Annotations)
	}
	w.sound(t)
}

// TestRefusedGivesBack: a run that may not go on with its donor gives it back all the same.
func TestRefusedGivesBack(t *testing.T) {
	reboot := func(w *world) {
		w.nodes["a-0"].Annotations[kamino.KuredPendingReboot.Annotation] = "2026-03-10T10:00:00Z"
	}
	deleting := func(w *world) {
		w.nodes["a-0"].Taints = append(w.nodes["a-0"].Taints, kamino.Taint{Key: kamino.TaintDeleting, Value: "", Effect: "NoSchedule"})
	}
	for name, change := range map[string]func(*world){"a reboot is pending": reboot, "it is being deleted": deleting, "the pool is refused": (*world).Refuse} {
		for _, command := range []string{"auto-update", "update"} {
			w := killed("Create snapshot", 1)
			w.advance(w.now.Add(time.Hour))
			change(w)
			w.audit.person("a-0")
			var p *proc
			if command == "update" {
				o := options("a-0")
				o.PendingReboot = []kamino.Signal{kamino.KuredPendingReboot}
				p = w.update(o)
			} else {
				p, _ = w.auto(crowded())
			}
			w.advance(w.now.Add(time.Hour))
			if m := w.machineOf(w.nodes["a-0"]); m.Power != kamino.PowerOn || w.nodes["a-0"].Annotations[kamino.AnnotationRun] != "" || w.leases[poolA].Holder != "" {
				t.Errorf("%s, %s ended %v; the donor is %s, its lease held by %q", name, command, p.err, m.Power, w.leases[poolA].Holder)
			}
		}
	}
}

// locked is a provider whose resource group has a lock against deleting.
type locked struct{ simProvider }

func (s locked) Delete(ctx context.Context, pool kamino.Pool, a kamino.Artifact) error {
	if a.Kind == kamino.KindSnapshot {
		return errors.New("ScopeLocked: the scope cannot perform delete operation because following scope(s) are locked")
	}
	return s.simProvider.Delete(ctx, pool, a)
}

// TestLockedGroup: a snapshot that cannot be deleted keeps no good image from being used, and the
// lease of nobody.
func TestLockedGroup(t *testing.T) {
	w := aged(1)
	p := &proc{}
	p.tune = func(e *engine.Engine) { e.Provider = locked{simProvider{p}} }
	w.startUpdate(p, options("a-0"))
	w.wait()
	if p.err != nil || !strings.HasSuffix(w.pools[poolA].image, kamino.VersionName(w.now)) || w.leases[poolA].Holder != "" {
		t.Errorf("the run ended %v, the model refers to %s, the lease is held by %q", p.err, w.pools[poolA].image, w.leases[poolA].Holder)
	}
}

// halfway is a provider that twice reports as throttled the deletion of a version that is not
// listed any more: a part of it is left.
type halfway struct {
	simProvider
	asked map[string]int
}

func (s halfway) Delete(ctx context.Context, pool kamino.Pool, a kamino.Artifact) error {
	if err := s.simProvider.Delete(ctx, pool, a); err != nil || a.Kind != kamino.KindVersion {
		return err
	}
	if s.asked[a.Name]++; s.asked[a.Name] < 3 {
		return &kamino.ThrottledError{After: time.Minute, Err: errors.New("a part of version " + a.Name)}
	}
	return nil
}

// TestPruneUntilAcknowledged: that an old version is not listed any more does not mean that all of
// it is deleted; only the provider's word does.
func TestPruneUntilAcknowledged(t *testing.T) {
	w := aged(1)
	var asked map[string]int
	for range 5 {
		asked = map[string]int{}
		p := &proc{}
		p.tune = func(e *engine.Engine) { e.Provider = halfway{simProvider{p}, asked} }
		w.startUpdate(p, options("a-0"))
		w.wait()
		if p.err != nil || len(p.result.Pruned) != len(asked) {
			t.Errorf("the run ended %v; pruned: %q, asked for: %v", p.err, p.result.Pruned, asked)
		}
		for v, times := range asked {
			if times != 3 {
				t.Errorf("the deletion of %s was asked for %d times", v, times)
			}
		}
		w.advance(w.now.Add(24 * time.Hour))
	}
	if len(asked) == 0 {
		t.Error("no version was pruned")
	}
}

// TestPruneReadsAgain: a list that lacks the versions that are known to be there is read again
// before nothing is found to be old.
func TestPruneReadsAgain(t *testing.T) {
	sites, _ := golden(t, aged)
	found := 0
	for _, s := range sites {
		if s.step != "prune" || s.call.method != "Find image version" {
			continue
		}
		found++
		p := aged(1).update(goldenOptions(), fault{kind: worlds.Empty, at: s.at})
		if p.err != nil || len(p.result.Pruned) != 2 {
			t.Errorf("%s was answered by none: the run ended %v and pruned %q", s, p.err, p.result.Pruned)
		}
	}
	if found == 0 {
		t.Error("no list of versions was read")
	}
	// The run has seen a version of its own, whatever the ledger knows.
	before := func(seed uint64) *world {
		w := aged(seed)
		w.leases = map[kamino.PoolID]kamino.Lease{}
		w.pools[poolA].image = baseLTS
		return w
	}
	sites, _ = golden(t, before)
	p := before(1).update(goldenOptions(), fault{kind: worlds.Empty, at: nth(t, sites, "prune", "Find image version", 1)})
	if len(p.result.Pruned) == 0 {
		t.Errorf("the run that made the pool's first promotion ended %v and pruned nothing", p.err)
	}
}

// TestLateVersion: a version whose making was acknowledged, and which no read shows yet, keeps the
// snapshot that it is built from, whatever ends the run.
func TestLateVersion(t *testing.T) {
	sites, _ := golden(t, aged)
	at := nth(t, sites, "image", "Find image version", 2)
	met := 0
	for k := 1; k < 12; k++ {
		w := aged(1)
		p := &proc{logging: true, faults: []fault{{kind: worlds.Forbidden, at: at}, {kind: worlds.Empty, at: at + k}}}
		w.startUpdate(p, goldenOptions())
		w.wait()
		if i := slices.IndexFunc(p.log, func(s site) bool { return s.at == at+k }); i >= 0 && p.log[i].step == "failed-version" {
			met++
		}
		w.sound(t)
	}
	if met == 0 {
		t.Error("no read was answered by none while the run gave back")
	}
}

// TestAdopterKnowsThatNoneWasMade: where no version of a pool was ever made, whoever adopts a run
// whose donor is off does not wait for the list to show one, whatever failed before that run.
func TestAdopterKnowsThatNoneWasMade(t *testing.T) {
	sites, _ := golden(t, fresh)
	refused := fault{kind: worlds.Forbidden, at: nth(t, sites, "drain", "Evict", 1)}
	for name, begin := range map[string]func(uint64) *world{"nothing": fresh, "a run in its drain": func(seed uint64) *world {
		w := fresh(seed)
		w.update(goldenOptions(), refused)
		w.advance(w.now.Add(time.Hour))
		return w
	}} {
		sites, _ := golden(t, begin)
		w := begin(1)
		w.update(goldenOptions(), fault{kind: worlds.KillAfter, at: nth(t, sites, "snapshot", "Create snapshot", 1)})
		if m := w.machineOf(w.nodes["a-0"]); m.Power != kamino.PowerOff {
			t.Fatalf("%s failed before: the donor is %s", name, m.Power)
		}
		p := w.update(goldenOptions())
		i := slices.IndexFunc(p.result.Steps, func(s kamino.StepTime) bool { return s.Name == "version" })
		if p.err != nil || p.result.Steps[i].Seconds > 60 {
			t.Errorf("%s failed before: the adopter ended %v and took %.0f s to name the version", name, p.err, p.result.Steps[i].Seconds)
		}
		w.sound(t)
	}
}

// TestLateOff: a request to switch the donor off that a frozen process sends long after its run was
// adopted is found at the run's end.
func TestLateOff(t *testing.T) {
	for late := 2 * time.Minute; late < 12*time.Minute; late += time.Minute {
		w := killed("Create snapshot", 1)
		m := w.machineOf(w.nodes["a-0"])
		w.after(late, func() {
			_ = w.setPower(m, kamino.PowerOff, false)
			w.happened("a late request switches %s off", m.Hostname)
		})
		if p := w.update(options("a-0")); p.err != nil {
			t.Errorf("after %s: %v", late, p.err)
		}
		w.advance(w.now.Add(time.Hour))
		if n := w.nodes["a-0"]; m.Power != kamino.PowerOn || !n.Ready || n.Tainted(kamino.TaintBlock) || w.leases[poolA].Holder != "" {
			t.Errorf("after %s: the machine is %s, its node Ready %v, taints %v; the lease is held by %q", late, m.Power, n.Ready, n.Taints, w.leases[poolA].Holder)
		}
	}
}

// TestVolumesDetached: the seal waits until the volumes of the pods that left are detached, and not
// for ever.
func TestVolumesDetached(t *testing.T) {
	for late, want := range map[time.Duration]time.Duration{45 * time.Second: 45 * time.Second, 30 * time.Minute: detachTime} {
		w := aged(1)
		n := w.nodes["a-0"]
		n.Volumes = []string{"kubernetes.io/csi/disk.csi.azure.com^pvc-1"}
		var emptied, sealed time.Time
		var look func()
		look = func() {
			stays := func(p *simPod) bool { return p.node == "a-0" && !p.daemon }
			if emptied.IsZero() && !slices.ContainsFunc(w.pods, stays) {
				emptied = w.now
				w.after(late, func() { n.Volumes = nil; w.changeNode(n) })
			}
			if sealed.IsZero() && len(w.sealPods) > 0 {
				sealed = w.now
			}
			if sealed.IsZero() {
				w.after(time.Second, look)
			}
		}
		look()
		p := w.update(options("a-0"))
		if waited := sealed.Sub(emptied); p.err != nil || waited < want || waited > want+20*time.Second {
			t.Errorf("volumes that are detached after %s: the seal began after %s, want about %s; %v", late, waited, want, p.err)
		}
	}
}

// manyKilled is a world of pools whose runs were killed with their donors sealed and off.
func manyKilled(pools int) *world {
	w := newWorld(1)
	for i := range pools {
		id := kamino.PoolID(fmt.Sprintf("%s/scaleSets/p%02d", groupID, i))
		w.addPool(id, 2)
		n := w.nodes[fmt.Sprintf("p%02d-0", i)]
		m := w.machineOf(n)
		run := fmt.Sprintf("run-%d", i)
		w.forge(n.Name, kamino.Mark{Format: 1, Run: run, Pool: id, Instance: n.ProviderID, VMID: m.VMID, BootID: n.BootID, Block: true, Sealing: true})
		n.Taints = []kamino.Taint{{Key: kamino.TaintBlock, Value: run, Effect: "NoSchedule"}}
		w.leases[id] = kamino.Lease{Pool: id, Holder: run, Process: "dead", Epoch: 1, Revision: "1", Record: kamino.Record{
			Donor: n.Name, Instance: n.ProviderID, VMID: m.VMID, Sealing: true, Step: "stop", Acts: []kamino.Act{kamino.ActPowerOff}}}
		m.Touched, m.Sealed = run, run
		w.halt(m)
	}
	w.advance(w.now.Add(time.Hour))
	return w
}

// TestManyKilled: what fifteen killed runs left is given back side by side, by restore and by
// auto-update, which waits for no turn of donors that are away already.
func TestManyKilled(t *testing.T) {
	const pools = 15
	for command, run := range map[string]func(w *world) *proc{
		"restore":     func(w *world) *proc { return w.restore() },
		"auto-update": func(w *world) *proc { p, _ := w.auto(crowded()); return p },
	} {
		w := manyKilled(pools)
		begun := w.now
		back := map[string]time.Duration{}
		var look func()
		look = func() {
			for name, n := range w.nodes {
				if m := w.machineOf(n); back[name] == 0 && m.Kubelet && m.Touched == "" {
					back[name] = w.now.Sub(begun)
				}
			}
			if w.now.Sub(begun) < time.Hour {
				w.after(time.Second, look)
			}
		}
		look()
		p := run(w)
		var took time.Duration
		for name, n := range w.nodes {
			if m := w.machineOf(n); m.Power != kamino.PowerOn || n.Annotations[kamino.AnnotationRun] != "" || n.Tainted(kamino.TaintBlock) {
				t.Errorf("%s: node %s is %s, %v, %v", command, name, m.Power, n.Annotations, n.Taints)
			}
			took = max(took, back[name])
		}
		bound := 90*time.Second + powerOnTime + bootTime
		if took > bound || p.err != nil && command == "restore" {
			t.Errorf("%s: the last donor was back after %s, more than %s: %v", command, took, bound, p.err)
		}
		t.Logf("%s: the donors of %d killed pools were back in %s", command, pools, took)
	}
}

// TestDonorIsBack: a run says that no donor is away once its own is back, and not when it has given
// back what another left: that one's turn is not its own.
func TestDonorIsBack(t *testing.T) {
	w := killed("Create snapshot", 1)
	w.advance(w.now.Add(time.Hour))
	p := &proc{}
	told := 0
	p.tune = func(e *engine.Engine) {
		e.DonorBack = func(pool kamino.PoolID) {
			told++
			if n := w.nodes["a-2"]; pool != poolA || w.artifacts[artifactKey(poolA, kamino.KindSnapshot, kamino.SnapshotName("a"))] == nil || n.Annotations[kamino.AnnotationRun] != "" {
				t.Errorf("told that the donor of %s is back: node a-2 has %v", pool, n.Annotations)
			}
		}
	}
	w.startUpdate(p, options("a-2"))
	w.wait()
	if p.err != nil || told != 1 || p.result.Donor != "a-2" {
		t.Errorf("told %d times, %v; donor %s", told, p.err, p.result.Donor)
	}
	w.sound(t)
}
