package sim

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"kamino.dev/kamino"
	"kamino.dev/kamino/internal/worlds"
)

var _ worlds.World = (*world)(nil)

// rival is something that others do while a run goes on.
type rival struct {
	worlds.Rival
	happen func(w *world)

	midnight bool // the world begins so that midnight is then
	alone    bool // nobody is there to give the donor back for long
}

// harms says whether a run that meets it at a site may fail. Between the last write of a lease and
// that of the model the way back is nowhere for a moment, if the lease is deleted then.
func (r *rival) harms(s site) bool { return !r.Unharmed || s.call.method == "Promote" }

// donorOf is the machine and node that stand for the donor of the walks.
func (w *world) donorOf(name string) (*machine, *simNode) {
	n := w.nodes[name]
	if n == nil {
		return nil, nil
	}
	return w.machineOf(n), n
}

// rivals lists them; donor is the node that the walk's first process uses. First those of both
// worlds, then what only this one has: a forger who knows of a third node, and a cloud that can be
// short of everything.
func rivals(donor, other string) []*rival {
	var out []*rival
	for _, r := range worlds.Rivals() {
		out = append(out, &rival{Rival: r, happen: func(w *world) { r.Act(w, donor, other) }})
	}
	own := func(name string, happen func(*world)) *rival {
		return &rival{Rival: worlds.Rival{Name: name}, happen: happen}
	}
	nothing := func(*world) {}
	long, midnight := own("this process is suspended for 14 hours", nothing), own("midnight", nothing)
	long.Freeze, long.alone, midnight.midnight = 14*time.Hour, true, true
	return append(out, long, midnight,
		own("etcd is restored from a backup of a minute ago", func(w *world) { w.restoreEtcd(w.now.Add(-time.Minute)) }),
		own(rivalForeignMark, func(w *world) { w.forgeForeign(donor, other) }),
		own("no capacity to start", func(w *world) {
			if m, _ := w.donorOf(donor); m != nil {
				m.spares = 3
			}
		}),
		own("the build fails for want of ZRS", func(w *world) { w.pools[poolA].noZRS = 2 }),
		own("the version is refused for want of ZRS", func(w *world) { w.pools[poolA].noZRS = 1 }))
}

const (
	rivalLeaseDeleted = "a person deletes the lease"
	rivalDiskSwapped  = "the OS disk of a donor that is off is replaced"
	rivalEtcdRestored = "the lease goes back in time"
	rivalForeignMark  = "a node forges a mark that names another machine"
)

// unmarked is a node, and its machine, that no run has.
func (w *world) unmarked(node string) (*machine, *simNode) {
	if m, n := w.donorOf(node); m != nil && n.Annotations[kamino.AnnotationRun] == "" && len(n.Taints) == 0 {
		return m, n
	}
	return nil, nil
}

// Forge implements worlds.World: it falls silent, as a sealed machine does.
func (w *world) Forge(node string) {
	if m, n := w.unmarked(node); m != nil {
		w.forge(n.Name, kamino.Mark{Format: 1, Run: "forged", Pool: poolA, Instance: m.ID, VMID: m.VMID, BootID: m.BootID, Sealing: true})
		m.Silence()
		m.forger = true
	}
}

// forgeForeign lets a node write the mark of a run that was, with another node's machine in it.
func (w *world) forgeForeign(donor, other string) {
	m, n := w.unmarked(other)
	victim := w.bystander(donor, other)
	run := w.standing(poolA).Holder
	if past := w.standing(poolA).Ledger.Past; len(past) > 0 {
		run = past[0].Run
	}
	if m != nil && victim != nil && run != "" {
		w.forge(n.Name, kamino.Mark{Format: 1, Run: run, Pool: poolA, Instance: victim.ID, VMID: victim.VMID,
			BootID: m.BootID, Sealing: true})
	}
}

// DeleteLease implements worlds.World.
func (w *world) DeleteLease() {
	if w.standing(poolA).Holder != "" {
		w.hit(rivalLeaseDeleted)
	}
	delete(w.leases, poolA)
	w.audit.judge.LeaseDeleted(string(poolA), w.now)
	w.leaseDeleted = true
	w.happened("a person deletes the lease")
}

// SwapDisk implements worlds.World: VM, Node object, receipt and boot ID stay.
func (w *world) SwapDisk(node string) {
	m, n := w.donorOf(node)
	if m == nil || m.Power == kamino.PowerOn && n.Annotations[kamino.AnnotationRun] == "" {
		return
	}
	if m.Power != kamino.PowerOff {
		w.after(time.Second, func() { w.SwapDisk(node) })
		return
	}
	w.detachedDisks[m.Disk] = true
	w.hit(rivalDiskSwapped)
	m.Disk, m.Sealed = fmt.Sprintf("/disks/%s-%d", m.Hostname, w.next()), ""
	w.happened("the OS disk of %s is replaced", m.Hostname)
}

// PutBack implements worlds.World.
func (w *world) PutBack(node string) {
	w.gitOps = true
	worlds.PutBack(w, node, func() bool { return !w.gitOps })
}

// Size implements worlds.World.
func (w *world) Size() int { return w.pools[poolA].capacity }

// FullLease implements worlds.World.
func (w *world) FullLease(room int) {
	if l, ok := w.leases[poolA]; ok {
		w.leaseRoom, w.filled = l.Size()+room, true
		w.happened("others fill the lease, but for %d bytes", room)
	}
}

// SlowWrites implements worlds.World.
func (w *world) SlowWrites(d time.Duration) { w.slowWrites = d }

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
		forged := w.audit.judge.IsForged(n.Name, n.Annotations[kamino.AnnotationRun])
		if m == nil || !forged && !m.forger {
			continue
		}
		m.forger = false
		if forged {
			n.Annotations = maps.Clone(n.Annotations)
			delete(n.Annotations, kamino.AnnotationRun)
			w.changeNode(n)
		}
		if !m.Kubelet && m.Power == kamino.PowerOn && m.Touched == "" {
			m.Booted()
		}
		w.happened("a person takes the forged mark off node %s", n.Name)
	}
}

// Update, Restore and what follows make this a [worlds.World].
func (w *world) Update(donor string) { w.startUpdate(&proc{}, options(donor)) }

// Restore implements worlds.World.
func (w *world) Restore() { w.startRestore(&proc{}) }

// SetFate implements worlds.World.
func (w *world) SetFate(node string, f worlds.Fate) {
	if m, _ := w.donorOf(node); m != nil {
		m.Fate = f
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
		if !m.Gone {
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
	m.Gone = true
	m.Boots++
	delete(w.machines, m.ID)
	w.happened("machine %s is deleted", m.Hostname)
	if n := w.nodes[node]; w.replaces { // the new one has another ID, and a node of its own
		w.removeNode(n)
		w.audit.person(node)
	}
	w.after(2*time.Second, func() {
		fresh := w.addMachine(m.Pool, m.Hostname, w.pools[m.Pool].image)
		fresh.inherit()
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
	boot := m.BootID
	w.removeNode(n)
	w.audit.person(n.Name)
	if !m.Kubelet {
		return
	}
	// A kubelet does not notice before it is restarted; somebody restarts it.
	// Should its disk be sealed meanwhile, it stays silent until the next boot.
	w.after(time.Second, func() {
		if m.Kubelet && m.BootID == boot && w.nodes[m.Hostname] == nil && m.Touched == "" {
			m.register()
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
	n.Annotations, n.Labels, n.Taints = maps.Clone(n.Annotations), maps.Clone(n.Labels), slices.Clone(n.Taints)
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
	p.model++
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
	if w.gitOps = false; w.filled {
		w.leaseRoom, w.filled = 0, false
	}
	for _, p := range w.pods {
		p.held = false
	}
	w.conflicts = time.Time{}
	w.pods = slices.DeleteFunc(w.pods, func(p *simPod) bool { return p.comes })
	for _, m := range w.machines {
		m.local = false
	}
}

// BindVolume implements worlds.World.
func (w *world) BindVolume(node string) {
	if m, n := w.donorOf(node); m != nil && m.Kubelet && m.Touched == "" && !n.Tainted(kamino.TaintBlock) {
		m.local = true
		w.hit(cellBound)
		w.happened("a claim is bound to a disk of node %s", node)
	}
}

// PodComesBack implements worlds.World.
func (w *world) PodComesBack(node string) {
	if m, _ := w.donorOf(node); m != nil && m.Kubelet && m.Touched == "" {
		w.comes(node)
	}
}

func (w *world) comes(node string) {
	w.pods = append(w.pods, &simPod{Pod: kamino.Pod{Namespace: "kube-system", Name: fmt.Sprintf("net-operator-%d", w.next())},
		node: node, comes: true})
	w.happened("pod %s comes to node %s", w.pods[len(w.pods)-1].Name, node)
}

// Conflict implements worlds.World.
func (w *world) Conflict(d time.Duration) { w.conflicts = w.now.Add(d) }

// cellBound: a claim was bound to the donor's disk.
const cellBound = "bound to the donor's disk"
