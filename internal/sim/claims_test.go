package sim

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"kamino.dev/kamino"
	"kamino.dev/kamino/engine"
	"kamino.dev/kamino/internal/worlds"
)

// leave writes on the lease of pool a that a run which has ended had a machine as donor.
func (w *world) leave(rec kamino.Record) {
	l := w.leases[poolA]
	l.Holder, l.Process, l.Record = "x", "dead", rec
	w.leases[poolA] = l
	w.advance(w.now.Add(time.Hour))
}

// TestRecordOfAnotherMachine: a lease record that names the machine of another node, or of another
// pool, does nothing to it, also where that machine is off because a person switched it off.
func TestRecordOfAnotherMachine(t *testing.T) {
	for _, host := range []string{"a-1", "b-0"} {
		for _, sealing := range []bool{false, true} {
			for _, command := range []string{"restore", "update"} {
				w := aged(1)
				w.tracing = true
				w.addPool(kamino.PoolID(groupID+"/scaleSets/b"), 1)
				other := w.nodes[host]
				w.halt(w.machineOf(other))
				w.leave(kamino.Record{Donor: "forgotten", Instance: other.ProviderID, VMID: other.SystemUUID, Sealing: sealing, Step: "stop"})
				var p *proc
				if command == "restore" {
					p = w.restore()
				} else {
					p = w.update(options("a-0"))
				}
				for _, line := range w.switches(host) {
					t.Errorf("%s, sealing %t: %s (%v)", command, sealing, line, p.err)
				}
				if p.err != nil || w.leases[poolA].Holder != "" {
					t.Errorf("%s, %s, sealing %t ended %v; the lease is held by %q", command, host, sealing, p.err, w.leases[poolA].Holder)
				}
			}
		}
	}
}

// moveNode makes the node object of the donor that of another machine, as where its VM was replaced
// by one of the same computer name. It returns the donor's machine, which is no node's any more.
func (w *world) moveNode() *machine {
	donor := w.machineOf(w.nodes["a-0"])
	w.removeNode(w.nodes["a-0"])
	m := w.addMachine(poolA, "a-9", baseLTS)
	w.nodes["a-0"] = w.nodes["a-9"]
	delete(w.nodes, "a-9")
	w.nodes["a-0"].Name, m.Hostname = "a-0", "a-0"
	return donor
}

// TestNodeMoved: the donor is off in its pool, and its node's name is another machine's now. It is
// started all the same: by a restore that has only the lease to go by, and by the run itself.
func TestNodeMoved(t *testing.T) {
	w := killed("Create snapshot", 1)
	w.advance(w.now.Add(time.Hour))
	m := w.moveNode()
	p := w.restore()
	w.advance(w.now.Add(time.Hour))
	if m.Power != kamino.PowerOn || p.err != nil || w.leases[poolA].Holder != "" {
		t.Errorf("restore ended %v with %+v; the donor's machine is %s, its lease held by %q", p.err, p.found, m.Power, w.leases[poolA].Holder)
	}

	sites, _ := golden(t, aged)
	w = aged(1)
	move := &rival{Rival: worlds.Rival{Name: "the node is another machine's"}, happen: func(w *world) { m = w.moveNode() }}
	p = w.update(options("a-0"), fault{kind: worlds.RivalActs, at: nth(t, sites, "snapshot", "Create snapshot", 1), rival: move})
	w.advance(w.now.Add(time.Hour))
	if m.Power != kamino.PowerOn {
		t.Errorf("the run ended %v; the donor's machine is %s, the lease held by %q", p.err, m.Power, w.leases[poolA].Holder)
	}
}

// TestWrongVMID: a donor's kubelet, or a hand that puts back an old annotation, writes another VM
// ID into the mark, or also into the node's status. As long as lease or node agree with the cloud
// on the VM, the donor is not given up.
func TestWrongVMID(t *testing.T) {
	const wrong = "99999999-0000-4000-8000-000000000000"
	for _, free := range []bool{true, false} {
		w := killed("Create snapshot", 1)
		w.advance(w.now.Add(time.Hour))
		n := w.nodes["a-0"]
		m := w.machineOf(n)
		mark, _ := n.Mark()
		mark.VMID = wrong
		w.forge("a-0", *mark)
		if l := w.leases[poolA]; free { // the taint is the witness
			l.Holder, l.Process, l.Record = "", "", kamino.Record{}
			w.leases[poolA] = l
		} else {
			n.SystemUUID = wrong
		}
		p := w.restore()
		w.advance(w.now.Add(time.Hour))
		if m.Power != kamino.PowerOn || p.err != nil {
			t.Errorf("lease free: %t: restore ended %v with %+v; the donor is %s, annotations %v, taints %v", free, p.err, p.found, m.Power, n.Annotations, n.Taints)
		}
	}
}

// TestReplacedDonor: a donor whose instance is another VM now is given up and its marks are taken
// off, with its lease and without.
func TestReplacedDonor(t *testing.T) {
	for _, free := range []bool{true, false} {
		w := killed("Create snapshot", 1)
		w.tracing = true
		w.advance(w.now.Add(time.Hour))
		if l := w.leases[poolA]; free {
			l.Holder, l.Process, l.Record = "", "", kamino.Record{}
			w.leases[poolA] = l
		}
		n := w.nodes["a-0"]
		w.ReplaceMachine("a-0")
		w.advance(w.now.Add(time.Hour))
		p := w.restore()
		if p.err != nil || n.Annotations[kamino.AnnotationRun] != "" || n.Tainted(kamino.TaintBlock) || len(w.switches("a-0")) > 2 {
			t.Errorf("lease free: %t: restore ended %v; annotations %v, taints %v, %v", free, p.err, n.Annotations, n.Taints, w.switches("a-0"))
		}
	}
}

// TestReplacedAtPod: another VM takes over the node's name while a pod of the agent starts or works,
// and the process is killed. The VM's kubelet runs the pod; the agent in it does nothing to the VM.
func TestReplacedAtPod(t *testing.T) {
	runs := map[string]func(w *world, logging bool, faults ...fault) *proc{
		"update": func(w *world, logging bool, faults ...fault) *proc {
			return w.startUpdate(&proc{logging: logging, faults: faults}, options("a-0"))
		},
		"patch": func(w *world, logging bool, faults ...fault) *proc {
			o := patchOptions()
			o.Pool, o.Donor = "", "a-0"
			p := w.startPatch(o, faults...)
			p.logging = logging
			return p.proc
		},
	}
	replace := &rival{Rival: worlds.Rival{Name: "the instance is replaced under the same name"}, happen: func(w *world) { w.ReplaceMachine("a-0") }}
	for name, start := range runs {
		w := aged(1)
		golden := start(w, true)
		w.wait()
		played := 0
		for _, s := range golden.log {
			if !slices.Contains([]string{"Survey", "Seal", "Patch"}, s.call.method) {
				continue
			}
			for at := s.at - 1; at < s.at+4; at++ {
				played++
				w := aged(1)
				p := start(w, false, fault{kind: worlds.RivalActs, at: at, rival: replace}, fault{kind: worlds.KillUnheard, at: at + 1})
				w.wait()
				w.advance(w.now.Add(time.Hour))
				w.restore()
				w.advance(w.now.Add(time.Hour))
				n := w.nodes["a-0"]
				if m := w.machineOf(n); m == nil || m.Boots != 1 || m.release != 0 || m.Power != kamino.PowerOn || n.Tainted(kamino.TaintBlock) {
					t.Errorf("%s, replaced at call %d, %s: ended %v; node %+v, machine %+v", name, at, s.call.method, p.err, n, m)
				}
				if wrong := w.over(); wrong != "" {
					t.Errorf("%s, replaced at call %d, %s: ended %v; %s", name, at, s.call.method, p.err, wrong)
				}
			}
		}
		if played < 10 {
			t.Errorf("%s: %d places", name, played)
		}
	}
}

// TestLastLook: one 404 of the last look at the donor of an adopted run, which a late request has
// switched off again, does not forget it.
func TestLastLook(t *testing.T) {
	w := killed("Create snapshot", 1)
	m := w.machineOf(w.nodes["a-0"])
	p := &proc{}
	p.tune = func(e *engine.Engine) { e.Provider = &late404{simProvider: e.Provider.(simProvider), w: w, m: m} }
	w.startUpdate(p, options("a-0"))
	w.wait()
	w.advance(w.now.Add(time.Hour))
	if m.Power != kamino.PowerOn || p.err != nil {
		t.Errorf("the run ended %v; the donor is %s, the lease held by %q", p.err, m.Power, w.leases[poolA].Holder)
	}
}

// late404 plays a late request that switches the donor off when the prototype is done, and answers
// the one read after it with 404.
type late404 struct {
	simProvider
	w    *world
	m    *machine
	off  bool
	told bool
}

func (l *late404) Promote(ctx context.Context, pool kamino.Pool, want kamino.Target) error {
	err := l.simProvider.Promote(ctx, pool, want)
	if !l.off {
		l.off = true
		_ = l.w.setPower(l.m, kamino.PowerOff, false)
	}
	return err
}

func (l *late404) Instance(ctx context.Context, id kamino.InstanceID) (kamino.Instance, error) {
	in, err := l.simProvider.Instance(ctx, id)
	if l.off && !l.told && id == l.m.ID {
		l.told = true
		return kamino.Instance{}, fmt.Errorf("instance %s: %w", id, kamino.ErrNotFound)
	}
	return in, err
}

// TestSweepBehindAFailure: a donor that a late request has switched off is found also where the
// cleaning up before that look fails.
func TestSweepBehindAFailure(t *testing.T) {
	w := killed("Create snapshot", 1)
	m := w.machineOf(w.nodes["a-0"])
	p := &proc{}
	p.tune = func(e *engine.Engine) {
		e.Provider = &lateUnlisted{unlisted: unlisted{e.Provider.(simProvider)}, w: w, m: m}
	}
	w.startRestore(p)
	w.wait()
	w.advance(w.now.Add(time.Hour))
	if m.Power != kamino.PowerOn || p.err == nil {
		t.Errorf("restore ended %v; the donor is %s, the lease held by %q", p.err, m.Power, w.leases[poolA].Holder)
	}
}

// lateUnlisted plays a late request that switches the donor off while the versions of its pool
// cannot be listed.
type lateUnlisted struct {
	unlisted
	w    *world
	m    *machine
	been bool // off and on again
}

func (l *lateUnlisted) SetPower(ctx context.Context, id kamino.InstanceID, want kamino.Power) error {
	l.been = l.been || want == kamino.PowerOn
	return l.simProvider.SetPower(ctx, id, want)
}

func (l *lateUnlisted) Find(ctx context.Context, pool kamino.Pool, kind kamino.Kind, name string) ([]kamino.Artifact, error) {
	if kind == kamino.KindVersion && name == "" && l.been && l.m.Kubelet {
		l.been = false
		_ = l.w.setPower(l.m, kamino.PowerOff, false)
	}
	return l.unlisted.Find(ctx, pool, kind, name)
}

// anothersMachine: a kubelet registers a node under a new name, with a bootstrap token or where its
// Node object was deleted, with the provider ID and the boot ID of another node's machine and with
// Kamino's own taint and mark, and is silent then. Nothing switches that machine.
func anothersMachine(command, uuid string) string {
	w := aged(1)
	w.tracing = true
	victim := w.nodes["a-1"]
	if uuid == "" {
		uuid = victim.SystemUUID
	}
	text, _ := json.Marshal(kamino.Mark{Format: 1, Run: "x", Pool: poolA, Instance: victim.ProviderID, VMID: victim.SystemUUID, BootID: victim.BootID, Block: true, Sealing: true})
	w.nodes["evil"] = &simNode{Node: kamino.Node{Name: "evil", UID: "uid-evil", ProviderID: victim.ProviderID, SystemUUID: uuid, BootID: victim.BootID, OS: "linux",
		Taints: []kamino.Taint{{Key: kamino.TaintBlock, Value: "x", Effect: "NoSchedule"}}, Annotations: map[string]string{kamino.AnnotationRun: string(text)}, Created: w.now, Revision: "1"}}
	var p *proc
	switch command {
	case "restore":
		p = w.restore()
	case "update":
		p = w.update(options("a-0"))
	default:
		p, _ = w.auto(autoOptions())
	}
	w.advance(w.now.Add(time.Minute))
	return unless(len(w.switches("a-1")) == 0, "%s switched another node's machine: %v (%v)", command, w.switches("a-1"), p.err)
}

func TestAnothersMachine(t *testing.T) {
	for _, command := range []string{"restore", "update", "auto-update"} {
		for _, uuid := range []string{"", "no UUID"} {
			if wrong := anothersMachine(command, uuid); wrong != "" {
				t.Errorf("%q: %s", uuid, wrong)
			}
		}
	}
}

// TestDonorOfAnothersMachine: a kubelet registers a node under a new name with the provider ID and
// the system UUID of another node's machine, Ready, freshly patched as it says. As donor it
// answers the seal with a receipt: it runs the pod, and so knows the nonce. The machine that is
// switched off and copied is the other one, and nobody has sealed its disk.
func TestDonorOfAnothersMachine(t *testing.T) {
	for _, command := range []string{"update", "auto-update"} {
		w := aged(1)
		w.tracing = true
		victim := w.nodes["a-1"]
		m := w.machineOf(victim)
		evil := *victim
		evil.Name, evil.UID, evil.Revision = "evil", "uid-evil", "1"
		evil.Annotations, evil.Labels = maps.Clone(victim.Annotations), maps.Clone(victim.Labels)
		if evil.Annotations == nil {
			evil.Annotations = map[string]string{}
		}
		evil.Annotations[kamino.KuredLastPatch.Annotation] = w.now.Add(-time.Hour).Format(time.RFC3339)
		evil.ReadySince = w.now.Add(-48 * time.Hour)
		w.nodes["evil"] = &evil
		forges := heard(func(ev kamino.Event) {
			if ev.Step == "seal" && ev.Kind == kamino.EventStarted {
				m.Kubelet = false // the world would run the pod on that machine; it runs on evil's
				w.after(30*time.Second, func() {
					l := w.leases[poolA]
					text, _ := json.Marshal(kamino.Receipt{Run: l.Holder, Donor: "evil", SealedAt: w.now, VMID: evil.SystemUUID, Hash: "sha256:forged", Nonce: l.Record.Nonce, Policy: l.Record.Policy})
					evil.Annotations = maps.Clone(evil.Annotations)
					evil.Annotations[kamino.AnnotationReceipt] = string(text)
					w.nodes["evil"].Annotations = evil.Annotations
					w.changeNode(w.nodes["evil"])
				})
			}
			if ev.Step == "start" && ev.Kind == kamino.EventStarted {
				w.after(5*time.Minute, func() { // and then tells of another boot
					w.nodes["evil"].BootID = "boot-evil"
					w.changeNode(w.nodes["evil"])
				})
			}
		})
		p := &proc{tune: forges}
		if command == "update" {
			w.startUpdate(p, options("evil"))
		} else {
			o := autoOptions()
			w.spawn(p, func(ctx context.Context) { _, p.err = p.engine().AutoUpdate(ctx, o) })
		}
		w.wait()
		w.advance(w.now.Add(time.Minute))
		for _, line := range w.switches("a-1") {
			t.Errorf("%s: the machine of node a-1 is switched: %s", command, line)
		}
		if m.Touched != "" || m.Sealed != "" {
			t.Fatal("it was sealed after all: the test plays nothing")
		}
		for _, v := range w.versions(poolA) {
			if v.Tags[kamino.TagBuiltFrom] == "evil" {
				t.Errorf("%s: version %s is made of the disk of node a-1, which nobody sealed; nodes boot from %s", command, v.Name, birth(w))
			}
		}
		if t.Failed() {
			t.Logf("%s ended %v", command, p.err)
		}
	}
}
