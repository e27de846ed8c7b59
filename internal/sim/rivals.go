package sim

import (
	"encoding/json"
	"maps"
	"slices"
	"time"

	"kamino.dev/kamino"
)

// rival is something that others do while a run goes on.
type rival struct {
	name   string
	happen func(w *world, p *proc)
	pause  time.Duration // how long the struck process is frozen, its call in flight
	mend   func(w *world)

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

// rivals lists them; donor is the node that the walk's first process uses.
func rivals(donor, other string) []*rival {
	onDonor := func(do func(w *world, m *machine, n *simNode)) func(*world, *proc) {
		return func(w *world, _ *proc) {
			if m, n := w.donorOf(donor); n != nil && m != nil {
				do(w, m, n)
			}
		}
	}
	second := func(name string) func(*world, *proc) {
		return func(w *world, _ *proc) { w.startUpdate(&proc{}, options(name)) }
	}
	out := []*rival{
		{name: "a second kamino, same donor", happen: second(donor)},
		{name: "a second kamino, other donor", happen: second(other)},
		{name: "a second kamino while this process is frozen", happen: second(other), pause: 4 * time.Minute},
		{name: "a second kamino, same donor, while this process is frozen", happen: second(donor), pause: 4 * time.Minute},
		{name: "a restore while this process is frozen", happen: func(w *world, _ *proc) { w.startRestore(&proc{}) }, pause: 4 * time.Minute},
		{name: "a restore", happen: func(w *world, _ *proc) { w.startRestore(&proc{}) }},
		{name: "this process is frozen for a while", happen: func(*world, *proc) {}, pause: 4 * time.Minute},
		{name: "this process is frozen for a moment", happen: func(*world, *proc) {}, pause: 20 * time.Second},
		{name: "the donor's VM is deleted", happen: onDonor(func(w *world, m *machine, n *simNode) { w.removeMachine(m) })},
		{name: "cluster-autoscaler deletes the donor", happen: onDonor(scaleDown)},
		{name: "the instance is replaced under the same name", happen: onDonor(replace)},
		{name: "the instance is replaced while this process is frozen", happen: onDonor(replace), pause: time.Minute},
		{name: "the node object is deleted", happen: onDonor(func(w *world, m *machine, n *simNode) { w.deleteNodeObject(m, n) })},
	}
	out = append(out, forgers(donor, other)...)
	return append(out, strangers(onDonor)...)
}

// forgers write what only Kamino should write, and delete what it needs.
func forgers(donor, other string) []*rival {
	on := func(forge func(w *world, m *machine, n *simNode)) func(*world, *proc) {
		return func(w *world, _ *proc) {
			if m, n := w.donorOf(other); n != nil && m != nil && n.Annotations[kamino.AnnotationRun] == "" && len(n.Taints) == 0 {
				forge(w, m, n)
			}
		}
	}
	return []*rival{
		{name: rivalLeaseDeleted, happen: (*world).deleteLease,
			// Before it is taken nothing is lost; and between its last write and that of the model
			// the way back is nowhere for a moment.
			unharmed: func(s site) bool { return s.call.method != "SetModel" }},
		{name: rivalForgedMark, mend: (*world).unforge, happen: on(func(w *world, m *machine, n *simNode) {
			// It falls silent, as a sealed machine does.
			w.forge(n.Name, kamino.Mark{Format: 1, Run: "forged", Pool: poolA, Instance: m.ID, VMID: m.VMID, BootID: m.bootID, Sealing: true})
			w.silence(m)
		})},
		{name: rivalForeignMark, mend: (*world).unforge, happen: on(func(w *world, m *machine, n *simNode) {
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
func (w *world) deleteLease(*proc) {
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

// strangers are persons, autoscalers, the cloud and the weather.
func strangers(onDonor func(func(*world, *machine, *simNode)) func(*world, *proc)) []*rival {
	fate := func(f sealFate) func(*world, *proc) {
		return onDonor(func(w *world, m *machine, n *simNode) { m.sealing = f })
	}
	return []*rival{
		{name: "a person cordons", happen: onDonor(func(w *world, m *machine, n *simNode) { w.cordon(n, true) })},
		{name: "a person uncordons", happen: onDonor(func(w *world, m *machine, n *simNode) { w.cordon(n, false) })},
		{name: "a person changes the model's image", happen: func(w *world, _ *proc) { w.personSetsModel() }},
		{name: "the pool becomes one that must not be touched", happen: refusePool, mend: func(w *world) { w.pools[poolA].refusals = nil }},
		{name: "an autoscaler takes a node out of the count", happen: func(w *world, _ *proc) { w.shrink(w.pools[poolA]) }},
		{name: "an autoscaler adds a node", happen: func(w *world, _ *proc) { w.grow(w.pools[poolA], w.pools[poolA].capacity+1) }},
		{name: "a budget never yields", happen: onDonor(holdPods), mend: func(w *world) { w.release() }},
		{name: "this process is suspended for 14 hours", happen: func(*world, *proc) {}, pause: 14 * time.Hour, alone: true},
		{name: "midnight", happen: func(*world, *proc) {}, midnight: true},
		{name: "the API is away for two minutes", happen: func(w *world, _ *proc) { w.apiAway = w.now.Add(2 * time.Minute) }},
		{name: "the node does not come back", happen: onDonor(func(w *world, m *machine, n *simNode) { m.dead = true }),
			mend: func(w *world) { w.repair() }},
		{name: "no capacity to start", happen: onDonor(func(w *world, m *machine, n *simNode) { m.spares = 3 })},
		{name: "the seal fails", happen: fate(sealFails), mend: func(w *world) { w.repair() }},
		{name: "the inventory refuses the disk", happen: fate(sealRefused), mend: func(w *world) { w.repair() }},
		{name: "there is no room for the inventory", happen: fate(sealCrowded)},
		{name: "the seal hangs", happen: fate(sealHangs), mend: func(w *world) { w.repair() }},
		{name: "the seal sends no receipt", happen: fate(sealIsMute), mend: func(w *world) { w.repair() }},
		{name: "the node forges its receipt", happen: fate(sealForged), mend: func(w *world) { w.repair() }},
		{name: "the seal pod has no image", happen: fate(sealNoImage), mend: func(w *world) { w.repair() }},
		{name: "a person deletes the seal pod", happen: func(w *world, _ *proc) { clear(w.sealPods); clear(w.surveys); w.happened("seal pods deleted") }},
		{name: "a person removes our annotation", happen: onDonor(func(w *world, m *machine, n *simNode) {
			n.Annotations = maps.Clone(n.Annotations)
			if mark, err := n.Mark(); err != nil || mark == nil {
				return
			} else if delete(n.Annotations, kamino.AnnotationProtect); mark.Protection != nil {
				n.Annotations[kamino.AnnotationProtect] = *mark.Protection
			}
			delete(n.Annotations, kamino.AnnotationRun)
			w.audit.person(n.Name)
			w.changeNode(n)
			w.happened("a person removes our annotation from %s", n.Name)
		})},
		{name: "a person removes our taint", happen: onDonor(func(w *world, m *machine, n *simNode) {
			n.Taints = slices.DeleteFunc(slices.Clone(n.Taints), func(t kamino.Taint) bool { return t.Key == kamino.TaintBlock })
			w.audit.person(n.Name)
			w.changeNode(n)
			w.happened("a person removes our taint from %s", n.Name)
		})},
		{name: "a person starts the donor", happen: onDonor(personStarts)},
		{name: "a person deletes the snapshot", happen: func(w *world, _ *proc) { w.dropSnapshots() }},
		{name: "the build fails for want of ZRS", happen: func(w *world, _ *proc) { w.pools[poolA].noZRS = 2 }},
		{name: "the version is refused for want of ZRS", happen: func(w *world, _ *proc) { w.pools[poolA].noZRS = 1 }},
	}
}

func scaleDown(w *world, m *machine, n *simNode) {
	if n.Annotations[kamino.AnnotationProtect] == "true" {
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

// replace gives the instance a new VM, which registers under the same name: the
// node object stays, with its marks.
func replace(w *world, m *machine, n *simNode) {
	m.gone = true
	m.boots++
	delete(w.machines, m.ID)
	w.happened("machine %s is deleted", m.Hostname)
	w.after(2*time.Second, func() {
		fresh := w.addMachine(m.Pool, m.Hostname, w.pools[m.Pool].image)
		w.happened("machine %s is now VM %s", m.Hostname, fresh.VMID)
	})
}

// deleteNodeObject deletes the Node; a kubelet that runs registers again.
func (w *world) deleteNodeObject(m *machine, n *simNode) {
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

func (w *world) cordon(n *simNode, yes bool) {
	n.Unschedulable = yes
	w.audit.person(n.Name)
	w.changeNode(n)
	w.happened("a person cordons %s: %v", n.Name, yes)
}

// protect is a person's own annotation against the autoscaler.
func (w *world) protect(name, value string) {
	w.nodes[name].Annotations[kamino.AnnotationProtect] = value
	w.audit.person(name)
}

func refusePool(w *world, _ *proc) {
	p := w.pools[poolA]
	p.revision, p.refusals = w.next(), []kamino.Refusal{{Code: "upgrade-policy", Field: "properties.upgradePolicy.mode", Value: "Automatic"}}
	w.happened("somebody sets the upgrade policy to Automatic")
}

func (w *world) shrink(p *simPool) {
	p.capacity, p.revision, p.busy = p.capacity-1, w.next(), w.now.Add(poolTime)
	w.happened("capacity of %s is %d", p.id.Name(), p.capacity)
}

func (w *world) personSetsModel() {
	p := w.pools[poolA]
	was := p.image
	if p.image, p.revision = "canonical:ubuntu:24_04-lts:latest", w.next(); p.image == was {
		p.image = "canonical:ubuntu:26_04-lts:latest"
	}
	p.byPerson, p.personRun = p.image, w.standing(poolA).Holder
	w.happened("a person changes the model")
}

func holdPods(w *world, m *machine, n *simNode) {
	for _, p := range w.pods {
		if p.node == n.Name && !p.daemon {
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
		stuck := m.dead && m.touched == "boot"
		m.dead, m.sealing, m.spares = false, sealWorks, 0
		if stuck && m.Power == kamino.PowerOn {
			w.booted(m)
			w.happened("node %s is repaired", m.Hostname)
		}
	}
}

func personStarts(w *world, m *machine, n *simNode) {
	if m.Power == kamino.PowerOff {
		_ = w.setPower(m, kamino.PowerOn, false)
		w.happened("a person starts %s", m.Hostname)
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
