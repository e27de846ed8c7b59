package sim

import (
	"encoding/json"
	"maps"
	"slices"
	"time"

	"kamino.dev/kamino"
	"kamino.dev/kamino/internal/worlds"
)

var _ worlds.World = (*world)(nil)

// rival is something that others do while a run goes on.
type rival struct {
	name   string
	happen func(w *world)
	pause  time.Duration // how long the struck process is frozen, its call in flight

	midnight bool // the world begins so that midnight is then
	// unharmed: the run must end well all the same, wherever that was possible.
	unharmed func(site) bool
	alone    bool // nobody is there to give the donor back for long
}

// donorOf is the machine and node that stand for the donor of the walks.
func (w *world) donorOf(name string) (*machine, *simNode) {
	n := w.nodes[name]
	if n == nil {
		return nil, nil
	}
	return w.machineOf(n), n
}

// rivals lists them; donor is the node that the walk's first process uses. First those of both
// worlds, then what only this one has: forgers, whom the other's API server would not stop either,
// and a cloud that can be short of everything.
func rivals(donor, other string) []*rival {
	var out []*rival
	for _, r := range worlds.Rivals() {
		out = append(out, &rival{name: r.Name, pause: r.Freeze, happen: func(w *world) { r.Act(w, donor, other) }})
	}
	out = append(out, forgers(donor, other)...)
	return append(out, weather(donor)...)
}

// forgers write what only Kamino should write, and delete what it needs.
func forgers(donor, other string) []*rival {
	on := func(forge func(w *world, m *machine, n *simNode)) func(*world) {
		return func(w *world) {
			if m, n := w.donorOf(other); n != nil && m != nil && n.Annotations[kamino.AnnotationRun] == "" && len(n.Taints) == 0 {
				forge(w, m, n)
			}
		}
	}
	return []*rival{
		{name: rivalLeaseDeleted, happen: (*world).deleteLease,
			// Before it is taken nothing is lost; and between its last write and that of the model
			// the way back is nowhere for a moment.
			unharmed: func(s site) bool { return s.call.method != "Promote" }},
		{name: rivalForgedMark, happen: on(func(w *world, m *machine, n *simNode) {
			// It falls silent, as a sealed machine does.
			w.forge(n.Name, kamino.Mark{Format: 1, Run: "forged", Pool: poolA, Instance: m.ID, VMID: m.VMID, BootID: m.bootID, Sealing: true})
			w.silence(m)
		})},
		{name: rivalForeignMark, happen: on(func(w *world, m *machine, n *simNode) {
			victim := w.bystander(donor, other)
			run := w.standing(poolA).Holder
			if past := w.standing(poolA).Ledger.Past; len(past) > 0 {
				run = past[0].Run
			}
			if victim != nil && run != "" {
				w.forge(n.Name, kamino.Mark{Format: 1, Run: run, Pool: poolA, Instance: victim.ID, VMID: victim.VMID, BootID: m.bootID, Sealing: true})
			}
		})},
	}
}

const (
	rivalLeaseDeleted = "a person deletes the lease"
	rivalForgedMark   = "a node forges a mark"
	rivalForeignMark  = "a node forges a mark that names another machine"
)

// deleteLease is a person's kubectl delete lease.
func (w *world) deleteLease() {
	if w.standing(poolA).Holder != "" {
		w.hit(rivalLeaseDeleted)
	}
	delete(w.leases, poolA)
	delete(w.elsewhere, poolA)
	w.audit.judge.LeaseDeleted(string(poolA), w.now)
	w.leaseDeleted = true
	w.happened("a person deletes the lease")
}

// bystander is the machine of a node that is neither of the two.
func (w *world) bystander(donor, other string) *machine {
	for _, name := range []string{"a-0", "a-1", "a-2"} {
		if n := w.nodes[name]; n != nil && name != donor && name != other {
			return w.machineOf(n)
		}
	}
	return nil
}

// forge writes a mark on a node, as its kubelet may do.
func (w *world) forge(node string, m kamino.Mark) {
	text, _ := json.Marshal(m)
	n := w.nodes[node]
	n.Annotations = maps.Clone(n.Annotations)
	n.Annotations[kamino.AnnotationRun] = string(text)
	w.changeNode(n)
	w.audit.judge.Forged(node, string(text))
	w.hit("forged: " + m.Run)
	w.happened("node %s forges a mark", node)
}

// unforge is a person who takes forged marks off, and starts the kubelets of who forged them.
func (w *world) unforge() {
	for _, n := range w.nodes {
		m := w.machineOf(n)
		if !w.audit.judge.IsForged(n.Name, n.Annotations[kamino.AnnotationRun]) || m == nil {
			continue
		}
		n.Annotations = maps.Clone(n.Annotations)
		delete(n.Annotations, kamino.AnnotationRun)
		w.changeNode(n)
		if !m.kubelet && m.Power == kamino.PowerOn && m.touched == "" {
			w.booted(m)
		}
		w.happened("a person takes the forged mark off node %s", n.Name)
	}
}

// weather is what befalls nobody in particular.
func weather(donor string) []*rival {
	nothing := func(*world) {}
	return []*rival{
		{name: "the pool becomes one that must not be touched", happen: (*world).refusePool},
		{name: "this process is suspended for 14 hours", happen: nothing, pause: 14 * time.Hour, alone: true},
		{name: "midnight", happen: nothing, midnight: true},
		{name: "no capacity to start", happen: func(w *world) {
			if m, _ := w.donorOf(donor); m != nil {
				m.spares = 3
			}
		}},
		{name: "a person deletes the seal pod", happen: func(w *world) { clear(w.sealPods); clear(w.surveys); w.happened("seal pods deleted") }},
		{name: "a person deletes the snapshot", happen: (*world).dropSnapshots},
		{name: "the build fails for want of ZRS", happen: func(w *world) { w.pools[poolA].noZRS = 2 }},
		{name: "the version is refused for want of ZRS", happen: func(w *world) { w.pools[poolA].noZRS = 1 }},
	}
}

// Update, Restore and what follows make this a [worlds.World].
func (w *world) Update(donor string) { w.startUpdate(&proc{}, options(donor)) }

// Restore implements worlds.World.
func (w *world) Restore() { w.startRestore(&proc{}) }

// SetFate implements worlds.World.
func (w *world) SetFate(node string, f worlds.Fate) {
	if m, _ := w.donorOf(node); m != nil {
		m.fate = f
	}
}

// DeleteMachine implements worlds.World.
func (w *world) DeleteMachine(node string) {
	if m, _ := w.donorOf(node); m != nil {
		w.removeMachine(m)
	}
}

// ScaleDown implements worlds.World.
func (w *world) ScaleDown(node string) {
	m, n := w.donorOf(node)
	if m == nil || n.Annotations[kamino.AnnotationProtect] == "true" {
		return
	}
	n.Taints = append(n.Taints, kamino.Taint{Key: kamino.TaintDeleting, Value: "", Effect: "NoSchedule"})
	w.audit.person(n.Name)
	w.changeNode(n)
	w.happened("cluster-autoscaler takes node %s", n.Name)
	w.after(30*time.Second, func() {
		if !m.gone {
			w.removeMachine(m)
		}
	})
}

// ReplaceMachine implements worlds.World: the new VM registers under the same name, the node object
// stays, with its marks.
func (w *world) ReplaceMachine(node string) {
	m, _ := w.donorOf(node)
	if m == nil {
		return
	}
	m.gone = true
	m.boots++
	delete(w.machines, m.ID)
	w.happened("machine %s is deleted", m.Hostname)
	w.after(2*time.Second, func() {
		fresh := w.addMachine(m.Pool, m.Hostname, w.pools[m.Pool].image)
		w.happened("machine %s is now VM %s", m.Hostname, fresh.VMID)
	})
}

// StartMachine implements worlds.World.
func (w *world) StartMachine(node string) {
	if m, _ := w.donorOf(node); m != nil && m.Power == kamino.PowerOff {
		_ = w.setPower(m, kamino.PowerOn, false) // it is off
		w.happened("a person starts %s", m.Hostname)
	}
}

// DeleteNode implements worlds.World.
func (w *world) DeleteNode(node string) {
	m, n := w.donorOf(node)
	if m == nil {
		return
	}
	boot := m.bootID
	w.removeNode(n)
	w.audit.person(n.Name)
	if !m.kubelet {
		return
	}
	// A kubelet does not notice before it is restarted; somebody restarts it.
	// Should its disk be sealed meanwhile, it stays silent until the next boot.
	w.after(time.Second, func() {
		if m.kubelet && m.bootID == boot && w.nodes[m.Hostname] == nil && m.touched == "" {
			boots := m.boots
			w.booted(m)
			m.bootID, m.boots = boot, boots
			w.nodes[m.Hostname].BootID = boot
			w.happened("node object %s is registered again", m.Hostname)
		}
	})
}

// EditNode implements worlds.World.
func (w *world) EditNode(node string, edit func(*kamino.Node) bool) {
	_, n := w.donorOf(node)
	if n == nil {
		return
	}
	n.Annotations, n.Taints = maps.Clone(n.Annotations), slices.Clone(n.Taints)
	if !edit(&n.Node) {
		return
	}
	w.audit.person(n.Name)
	w.changeNode(n)
	w.happened("a person edits node %s", n.Name)
}

// protect is a person's own annotation against the autoscaler.
func (w *world) protect(name, value string) {
	w.nodes[name].Annotations[kamino.AnnotationProtect] = value
	w.audit.person(name)
}

func (w *world) refusePool() {
	p := w.pools[poolA]
	p.revision, p.refusals = w.next(), []kamino.Refusal{{Code: "upgrade-policy", Field: "properties.upgradePolicy.mode", Value: "Automatic"}}
	w.happened("somebody sets the upgrade policy to Automatic")
}

// Resize implements worlds.World.
func (w *world) Resize(by int) {
	p := w.pools[poolA]
	if by > 0 {
		w.grow(p, p.capacity+by)
		return
	}
	p.capacity, p.revision, p.busy = p.capacity+by, w.next(), w.now.Add(poolTime)
	w.happened("capacity of %s is %d", p.id.Name(), p.capacity)
}

// SetImage implements worlds.World.
func (w *world) SetImage() {
	p := w.pools[poolA]
	was := p.image
	if p.image, p.revision = "canonical:ubuntu:24_04-lts:latest", w.next(); p.image == was {
		p.image = "canonical:ubuntu:26_04-lts:latest"
	}
	p.byPerson, p.personRun = p.image, w.standing(poolA).Holder
	w.happened("a person changes the model")
}

// CutAPI implements worlds.World.
func (w *world) CutAPI(d time.Duration) { w.apiAway = w.now.Add(d) }

// HoldPods implements worlds.World.
func (w *world) HoldPods(node string) {
	for _, p := range w.pods {
		if p.node == node && !p.daemon {
			p.held = true
		}
	}
}

func (w *world) release() {
	for _, p := range w.pods {
		p.held = false
	}
}

// mend ends everything that persons would have to mend.
func (w *world) mend() {
	w.release()
	w.pools[poolA].refusals = nil
	w.unforge()
	w.apiAway, w.blindUntil = time.Time{}, time.Time{}
	w.repair()
	w.advance(w.now.Add(2 * time.Minute))
	w.repair()
	w.advance(w.now.Add(time.Minute))
}

// repair is what a person does to machines that do not come back: power them
// off and on again with whatever was broken mended.
func (w *world) repair() {
	for _, m := range w.machines {
		stuck := m.fate == worlds.NeverBoots && m.touched == "boot"
		m.fate, m.spares = worlds.Healthy, 0
		if stuck && m.Power == kamino.PowerOn {
			w.booted(m)
			w.happened("node %s is repaired", m.Hostname)
		}
	}
}

func (w *world) dropSnapshots() {
	for key, a := range w.artifacts {
		if a.Kind != kamino.Snapshot {
			continue
		}
		for _, v := range w.artifacts {
			if v.State == kamino.Creating && v.Source == a.ID {
				v.State, v.Failure = kamino.Failed, "source snapshot is gone"
			}
		}
		delete(w.artifacts, key)
		w.happened("a person deletes snapshot %s", a.Name)
	}
}
