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

// Durations of the world, of the order that the reference documents give.
const (
	callTime     = 50 * time.Millisecond
	powerOnTime  = 15 * time.Second
	powerOffTime = 20 * time.Second
	bootTime     = 25 * time.Second
	podTime      = 3 * time.Second  // until a pod starts
	beat         = 10 * time.Second // renewal of a kubelet's lease
	copyTime     = 2 * time.Minute  // of a snapshot
	buildTime    = 10 * time.Minute // of an image version
	deleteTime   = 10 * time.Second
	poolTime     = 5 * time.Second // of a write of a pool
	joinTime     = 90 * time.Second
)

// machine is a VM with its OS disk.
type machine struct {
	kamino.Instance
	worlds.Guest
	w        *world
	born     time.Time
	switches int            // operations on its power
	reboot   int            // the value of Boots when somebody else restarted it last
	spares   int            // start requests that fail because the cloud has no room
	forger   bool           // its kubelet has forged a mark and fallen silent
	model    int            // of its pool, that it was made by
	held     kamino.Holding // "": in service
	local    bool           // a claim is bound to a volume on its own disk
	patchState
}

// times are those of its machines.
var times = worlds.Times{Boot: bootTime, PodStart: podTime, Survey: surveyTime - podTime, Seal: 12 * time.Second, Upgrade: managerTime}

// newMachine is a machine that has power.
func (w *world) newMachine(in kamino.Instance) *machine {
	m := &machine{Instance: in, w: w, born: w.now}
	m.Guest = worlds.Guest{Host: m, Times: times, Boots: 1}
	w.machines[in.ID] = m
	return m
}

type simNode struct {
	kamino.Node
	frozen time.Time // last sign of life of a kubelet that stopped
}

// simSealPod is a pod of the agent. It implements [worlds.Pod].
type simSealPod struct {
	kamino.AgentPod
	w     *world
	pods  map[string]*simSealPod // where it is
	key   string
	node  string
	nonce string
	order worlds.Order
	ended time.Time
	on    *machine // that has run it last, in the boot of that number
	boots int
	again bool // a restored etcd has brought it back, and no run knows it
	late  bool // its kubelet tells late that it runs, or never when the seal has stopped it by then
}

// There implements worlds.Pod.
func (p *simSealPod) There() bool { return p.pods[p.key] == p }

// Starts implements worlds.Pod.
func (p *simSealPod) Starts() {
	if !p.late {
		p.Started = true
		return
	}
	p.w.after(time.Duration(p.w.rng.IntN(4)*3)*time.Second, func() {
		if m := p.w.machineOf(p.w.nodes[p.node]); p.There() && m != nil && m.Kubelet && !p.Done && !p.Failed {
			p.Started = true
		}
	})
}

// Ends implements worlds.Pod.
func (p *simSealPod) Ends(end worlds.End) {
	if p.There() && !p.Done && !p.Failed {
		p.AgentPod, p.ended = shown(end), p.w.now
		p.w.happened("pod %s ended: %s", p.key, p.Message)
	}
}

// play lets the machine of a new pod play it.
func (w *world) play(pods map[string]*simSealPod, key string, pod *simSealPod, node kamino.Node, task kamino.Task,
	order kamino.SealOrder, boot string) {
	pod.w, pod.pods, pod.key, pod.late = w, pods, key, task == kamino.TaskSeal
	if task != kamino.TaskSeal && task != kamino.TaskPatch {
		node.BootID = "" // the others change nothing, or name their boot themselves
	}
	pod.order = worlds.Order{Task: task, Machine: node.SystemUUID, Within: node.BootID, Run: order.Run, Nonce: order.Nonce,
		Policy: policySum(order.Policy), Boot: boot}
	pods[key] = pod
	if m := w.machineOf(w.nodes[pod.node]); m != nil {
		m.run(pod)
	}
	w.etcd.pods = append(w.etcd.pods, &storedPod{at: w.now, pods: pods, key: key, pod: pod, began: pod.AgentPod})
}

// run plays a pod, once in each boot.
func (m *machine) run(pod *simSealPod) {
	if pod.on != m || pod.boots != m.Boots {
		pod.on, pod.boots = m, m.Boots
		m.Play(pod, pod.order)
	}
}

// inherit lets a machine that has taken over a node's name play the pods that are pinned to it, as
// its kubelet does with each that has not ended: it knows of no container.
func (m *machine) inherit() {
	for _, pods := range []map[string]*simSealPod{m.w.sealPods, m.w.surveys, m.w.patches} {
		for _, key := range slices.Sorted(maps.Keys(pods)) {
			if pod := pods[key]; pod.node == m.Hostname && pod.order.Task != "" && !pod.Done && !pod.Failed {
				m.run(pod)
			}
		}
	}
}

type simPod struct {
	kamino.Pod
	node   string
	daemon bool
	bare   bool // no controller would recreate it
	held   bool // a disruption budget holds it
	comes  bool // it tolerates every taint, and another one comes when it is evicted
	job    bool // it ends by itself
	ending bool
}

// addMachine makes a machine that runs and whose node is Ready.
func (w *world) addMachine(pool kamino.PoolID, host, image string) *machine {
	id := kamino.InstanceID(fmt.Sprintf("azure://%s/virtualMachines/%s", pool, host))
	n := w.next()
	if w.replaces {
		id += kamino.InstanceID(fmt.Sprintf("-%d", n))
	}
	m := w.newMachine(kamino.Instance{
		ID: id, Pool: pool, VMID: fmt.Sprintf("00000000-0000-4000-8000-%012d", n), Hostname: host, Power: kamino.PowerOn,
		Disk: fmt.Sprintf("/disks/%s-%d", host, n), Image: image, Machine: kamino.Machine{Generation: "V2", Architecture: "x64",
			SecurityType: "Standard"},
	})
	if p := w.pools[pool]; p != nil {
		m.model = p.model
	}
	m.Booted()
	return m
}

// Up implements worlds.Host.
func (m *machine) Up() bool {
	m.BootID = fmt.Sprintf("boot-%d", m.w.next())
	m.pending = m.former && m.release > 0
	m.register()
	return true
}

// register is the kubelet's first report of a boot.
func (m *machine) register() {
	w, n := m.w, m.w.nodes[m.Hostname]
	if n == nil {
		n = &simNode{Node: kamino.Node{
			Name: m.Hostname, UID: fmt.Sprintf("uid-%d", w.next()), OS: "linux", Architecture: "amd64",
			ProviderID: m.ID, Annotations: map[string]string{}, Labels: map[string]string{},
		}}
		w.nodes[m.Hostname] = n
	}
	n.SystemUUID, n.BootID, n.MachineID, n.Ready, n.ReadySince = m.VMID, m.BootID, m.VMID, true, w.now
	w.changeNode(n)
}

// node is the one that shows the machine; nil when none does.
func (m *machine) node() *simNode {
	if n := m.w.nodes[m.Hostname]; n != nil && n.SystemUUID == m.VMID {
		return n
	}
	return nil
}

func (w *world) changeNode(n *simNode) {
	n.Revision = fmt.Sprint(w.next())
	w.backUpNode(n)
}

// machineOf is the machine that a node runs on; nil when either is gone.
func (w *world) machineOf(n *simNode) *machine {
	if n == nil {
		return nil
	}
	m := w.machines[n.ProviderID]
	if m == nil || m.VMID != n.SystemUUID {
		return nil
	}
	return m
}

// After, Draw, Happened, Violate and what follows implement worlds.Host.
func (m *machine) After(d time.Duration, do func()) { m.w.after(d, do) }

func (m *machine) Draw(n int) int { return m.w.rng.IntN(n) }

func (m *machine) Happened(format string, args ...any) {
	m.w.happened("machine "+m.Hostname+": "+format, args...)
}

func (m *machine) Violate(id, format string, args ...any) {
	m.w.audit.violate(id, m.Hostname+": "+format, args...)
}

func (m *machine) Shows(sign worlds.Sign) {
	n := m.node()
	if n == nil {
		return
	}
	if sign == worlds.Stopped || sign == worlds.Leaves {
		n.frozen = m.w.now.Truncate(beat)
	}
	if ready := sign == worlds.Resumed; sign != worlds.Stopped && n.Ready != ready {
		n.Ready = ready
		m.w.changeNode(n)
		m.w.happened("node %s is Ready: %t", m.Hostname, ready)
	}
}

func (m *machine) Tell(key, text string) bool {
	if m.w.now.Before(m.w.apiAway) {
		return false
	}
	if n := m.node(); n != nil {
		n.Annotations = maps.Clone(n.Annotations)
		n.Annotations[key] = text
		m.w.changeNode(n)
	}
	return true
}

func (m *machine) SwitchesOff() { m.w.halt(m) }

// halt switches a machine off at once, as its guest does.
func (w *world) halt(m *machine) { w.cut(m, false) }

func (w *world) cut(m *machine, asked bool) {
	m.switches++
	m.Power = kamino.PowerOff
	m.Cut(asked)
	w.happened("machine %s went off", m.Hostname)
}

// setPower begins to switch a machine. fails: the operation ends Failed.
func (w *world) setPower(m *machine, want kamino.Power, fails bool) error {
	if m.Power == kamino.PowerBetween {
		return fmt.Errorf("switch %s %s: %w", m.Hostname, want, kamino.ErrInProgress)
	}
	if m.Power == want {
		return nil
	}
	if want == kamino.PowerOn && m.spares > 0 {
		m.spares--
		fails = true
	}
	was, takes := m.Power, powerOnTime
	if m.Power = kamino.PowerBetween; want == kamino.PowerOff {
		takes = powerOffTime
	}
	m.switches++
	switches := m.switches
	w.after(m.Fate.Pace()*takes, func() {
		switch {
		case m.switches != switches || m.Gone:
		case fails && want == kamino.PowerOff:
			m.Power, m.Failure = was, "OperationFailed"
		case fails:
			m.Power, m.Failure = was, "AllocationFailed"
		case want == kamino.PowerOff:
			w.cut(m, true)
		default:
			m.Power, m.Failure = kamino.PowerOn, ""
			m.On()
			w.happened("machine %s is on", m.Hostname)
		}
	})
	return nil
}

// shown is what package kube makes of a pod that ended so.
func shown(e worlds.End) kamino.AgentPod {
	out := kamino.AgentPod{Exists: true, Failed: e != worlds.End{}, Done: e == worlds.End{}, Ousted: e.Refused != "" || e.ExitCode >= 128,
		Started: e.Refused+e.Waiting == "",
		Refused: e.ExitCode == 3}
	switch {
	case e.Refused != "":
		out.Message = "failed, " + e.Refused
	case e.Waiting != "":
		out.Message = e.Waiting
	case e.ExitCode != 0:
		out.Message = fmt.Sprintf("failed, exit code %d: %s", e.ExitCode, e.Message)
	default:
		out.Message = "succeeded, exit code 0"
	}
	return out
}

// sshKey is the fingerprint of its host key: a seal removes the key, and the next boot makes one.
func (m *machine) sshKey() string { return "SHA256:" + m.Hostname }

// genericBoot and cloneBoot are what agents tell of first boots.
var (
	genericBoot = kamino.Timing{Phases: map[string]float64{"kernel": 2, "Ready": 30}, Starts: map[string]float64{"kernel": 0, "Ready": 60}}
	cloneBoot   = kamino.Timing{Phases: map[string]float64{"kernel": 2, "Ready": 10}, Starts: map[string]float64{"kernel": 0, "Ready": 12}}
)

// SealDisk implements worlds.Host.
func (m *machine) SealDisk(o worlds.Order, forged bool) (map[string]string, bool) {
	if forged {
		o.Nonce = ""
	}
	r := kamino.Receipt{Run: o.Run, Nonce: o.Nonce, Policy: o.Policy, Donor: m.Hostname, SealedAt: m.w.now, VMID: m.VMID,
		Hash: "sha256:" + m.BootID, SSHKeys: []string{m.sshKey()}}
	if m.Boots == 1 && m.Image == baseLTS {
		r.Timing = genericBoot
	}
	if m.w.listed {
		r.PackageDigest = m.digest()
	}
	text, _ := json.Marshal(r)
	return map[string]string{kamino.AnnotationReceipt: string(text)}, true
}

// readNode is a node as the API server shows it.
func (w *world) readNode(n *simNode) kamino.Node {
	out := n.Node
	out.Annotations = maps.Clone(n.Annotations)
	out.Taints = slices.Clone(n.Taints)
	out.Heartbeat = n.frozen
	if m := w.machineOf(n); m != nil && m.Kubelet {
		out.Heartbeat = w.now.Truncate(beat)
	}
	return out
}

// removeMachine deletes a VM for good, and later its node.
func (w *world) removeMachine(m *machine) {
	m.Gone = true
	m.Boots++
	delete(w.machines, m.ID)
	w.happened("machine %s is deleted", m.Hostname)
	w.after(20*time.Second, func() {
		if n := w.nodes[m.Hostname]; n != nil && n.SystemUUID == m.VMID {
			w.removeNode(n)
		}
	})
}

func (w *world) removeNode(n *simNode) {
	delete(w.nodes, n.Name)
	for _, pods := range []map[string]*simSealPod{w.sealPods, w.surveys, w.patches} {
		for run, pod := range pods {
			if pod.node == n.Name {
				delete(pods, run)
			}
		}
	}
	w.happened("node object %s is deleted", n.Name)
}
