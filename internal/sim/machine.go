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
	notReadyTime = 40 * time.Second // node-monitor-grace-period
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
	born    time.Time
	bootID  string
	boots   int // generation of everything that a power cycle interrupts
	reboot  int // the value of boots when somebody else restarted it last
	kubelet bool
	touched string // run that took the identity off the disk
	sealed  string // run whose receipt is on the disk
	spares  int    // start requests that fail for want of capacity
	fate    worlds.Fate
	gone    bool
	forger  bool           // its kubelet has forged a mark and fallen silent
	model   int            // of its pool, that it was made by
	held    kamino.Holding // "": in service
	local   bool           // a claim is bound to a volume on its own disk
	patchState
}

type simNode struct {
	kamino.Node
	frozen time.Time // last sign of life of a kubelet that stopped
}

type simSealPod struct {
	kamino.AgentPod
	node  string
	nonce string
	// policy is the SHA-256 of the policy that its order brought.
	policy string
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
	m := &machine{Instance: kamino.Instance{
		ID: id, Pool: pool, VMID: fmt.Sprintf("00000000-0000-4000-8000-%012d", n), Hostname: host, Power: kamino.PowerOn,
		Disk: fmt.Sprintf("/disks/%s-%d", host, n), Image: image, Machine: kamino.Machine{Generation: "V2", Architecture: "x64", SecurityType: "Standard"},
	}, born: w.now}
	if p := w.pools[pool]; p != nil {
		m.model = p.model
	}
	w.machines[id] = m
	w.booted(m)
	return m
}

// booted is the kubelet's first report of a boot.
func (w *world) booted(m *machine) {
	m.boots++
	m.bootID = fmt.Sprintf("boot-%d", w.next())
	m.kubelet, m.touched, m.sealed, m.pending = true, "", "", m.former && m.release > 0
	n := w.nodes[m.Hostname]
	if n == nil {
		n = &simNode{Node: kamino.Node{
			Name: m.Hostname, UID: fmt.Sprintf("uid-%d", w.next()), OS: "linux", Architecture: "amd64",
			ProviderID: m.ID, Annotations: map[string]string{}, Labels: map[string]string{},
		}}
		w.nodes[m.Hostname] = n
	}
	n.SystemUUID, n.BootID, n.MachineID, n.Ready, n.ReadySince = m.VMID, m.bootID, m.VMID, true, w.now
	w.changeNode(n)
}

func (w *world) changeNode(n *simNode) {
	n.Revision = fmt.Sprint(w.next())
	w.backUpNode(n)
}

// machineOf is the machine that a node runs on; nil when it is gone.
func (w *world) machineOf(n *simNode) *machine {
	m := w.machines[n.ProviderID]
	if m == nil || m.VMID != n.SystemUUID {
		return nil
	}
	return m
}

// silence stops the kubelet; the node controller notices later.
func (w *world) silence(m *machine) {
	if !m.kubelet {
		return
	}
	m.kubelet = false
	boots := m.boots
	if n := w.nodes[m.Hostname]; n != nil {
		n.frozen = w.now.Truncate(beat)
	}
	w.after(notReadyTime, func() {
		if n := w.nodes[m.Hostname]; n != nil && m.boots == boots && n.SystemUUID == m.VMID && !m.kubelet {
			n.Ready = false
			w.changeNode(n)
			w.happened("node %s is not Ready", m.Hostname)
		}
	})
}

// halt switches a machine off at once, as its guest does.
func (w *world) halt(m *machine) {
	w.silence(m)
	m.boots++
	m.Power = kamino.PowerOff
	boots := m.boots
	// silence's timer belongs to the former generation.
	w.after(notReadyTime, func() {
		if n := w.nodes[m.Hostname]; n != nil && m.boots == boots && n.SystemUUID == m.VMID && n.Ready {
			n.Ready = false
			w.changeNode(n)
			w.happened("node %s is not Ready", m.Hostname)
		}
	})
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
	was := m.Power
	m.Power = kamino.PowerBetween
	m.boots++
	boots := m.boots
	if want == kamino.PowerOff {
		w.after(m.fate.Pace()*powerOffTime, func() {
			if m.boots != boots {
				return
			}
			if fails {
				m.Power, m.Failure = was, "OperationFailed"
				return
			}
			w.halt(m)
		})
		return nil
	}
	pace := m.fate.Pace()
	w.after(pace*powerOnTime, func() {
		if m.boots != boots {
			return
		}
		if fails {
			m.Power, m.Failure = was, "AllocationFailed"
			return
		}
		m.Power, m.Failure = kamino.PowerOn, ""
		// From here on the disk is being written to: what was sealed is not.
		m.touched, m.sealed = "boot", ""
		w.happened("machine %s is on", m.Hostname)
		w.after(pace*bootTime, func() {
			if m.boots == boots && m.fate != worlds.NeverBoots && !m.gone {
				w.booted(m)
				w.happened("node %s has booted", m.Hostname)
			}
		})
	})
	return nil
}

// shown is what package kube makes of a pod that ended so.
func shown(e worlds.End) kamino.AgentPod {
	out := kamino.AgentPod{Exists: true, Failed: e != worlds.End{}, Done: e == worlds.End{}, Ousted: e.Refused != "", Started: e.Refused+e.Waiting == "",
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

// runSeal plays the seal pod and the agent: pulled, started, detached from the
// pod, kubelet stopped, sealed, reported, off.
func (w *world) runSeal(run string, pod *simSealPod) {
	n := w.nodes[pod.node]
	m := w.machineOf(n)
	if m == nil {
		return
	}
	boots, fate := m.boots, m.fate
	here := func() bool { return m.boots == boots && !m.gone }
	present := func() bool { return here() && w.sealPods[run] == pod }
	w.after(fate.Pace()*3*time.Second, func() {
		if !present() || !m.kubelet {
			return
		}
		if end, ended := fate.Seal(); ended {
			pod.AgentPod = shown(end)
			return
		}
		w.after(time.Second, func() {
			if present() {
				w.detached(m, kamino.Receipt{Run: run, Nonce: pod.nonce, Policy: pod.policy}, here)
			}
		})
		// The kubelet tells late, or never when the seal has stopped it by then.
		w.after(time.Duration(w.rng.IntN(4)*3)*time.Second, func() {
			if present() && m.kubelet {
				pod.Started = true
			}
		})
	})
}

// recordGenericWithin is how long an agent may record the donor's boot before its seal stops
// anything (agent/generic.go).
const recordGenericWithin = 10 * time.Second

func (w *world) detached(m *machine, receipt kamino.Receipt, here func() bool) {
	run := receipt.Run
	fate := m.fate
	m.touched = run
	if m.working != "" {
		w.audit.violate("I32", "the disk of %s is sealed while run %s upgrades its packages", m.Hostname, m.working)
	}
	w.happened("seal of %s is detached", m.Hostname)
	recording := time.Duration(w.rng.IntN(2)) * recordGenericWithin // only a first boot is recorded
	w.after(recording+time.Second+time.Duration(w.rng.IntN(9000))*time.Millisecond, func() {
		if here() {
			w.silence(m)
		}
	})
	if fate == worlds.SealHangs {
		return
	}
	w.after(recording+fate.Pace()*12*time.Second, func() {
		if !here() {
			return
		}
		if fate == worlds.SealTakenBack {
			w.takenBack(m, run)
			return
		}
		if fate != worlds.SealForged {
			m.sealed = run
		}
		w.reportSeal(m, receipt, here, fate)
	})
}

// takenBack is a seal that gave up: the donor is as it was, and its node says why.
func (w *world) takenBack(m *machine, run string) {
	m.kubelet, m.touched = true, ""
	w.happened("seal of %s is taken back", m.Hostname)
	n := w.nodes[m.Hostname]
	if n == nil || n.SystemUUID != m.VMID {
		return
	}
	n.Ready = true
	text, _ := json.Marshal(map[string]string{"run": run, "error": worlds.Failure})
	n.Annotations[kamino.AnnotationSealFailure] = string(text)
	w.changeNode(n)
}

// sshKey is the fingerprint of its host key: a seal removes the key, and the next boot makes one.
func (m *machine) sshKey() string { return "SHA256:" + m.Hostname }

// genericBoot and cloneBoot are what agents tell of first boots.
var (
	genericBoot = kamino.Timing{Phases: map[string]float64{"kernel": 2, "Ready": 30}, Starts: map[string]float64{"kernel": 0, "Ready": 60}}
	cloneBoot   = kamino.Timing{Phases: map[string]float64{"kernel": 2, "Ready": 10}, Starts: map[string]float64{"kernel": 0, "Ready": 12}}
)

// reportSeal writes the receipt, again and again while the API is away.
func (w *world) reportSeal(m *machine, r kamino.Receipt, here func() bool, fate worlds.Fate) {
	if !here() {
		return
	}
	if w.now.Before(w.apiAway) {
		w.after(10*time.Second, func() { w.reportSeal(m, r, here, fate) })
		return
	}
	if n := w.nodes[m.Hostname]; n != nil && n.SystemUUID == m.VMID && fate != worlds.SealIsMute {
		if fate == worlds.SealForged {
			r.Nonce = ""
		}
		r.Donor, r.SealedAt, r.VMID, r.Hash = m.Hostname, w.now, m.VMID, "sha256:"+m.bootID
		if m.boots == 1 && m.Image == baseLTS {
			r.Timing = genericBoot
		}
		r.SSHKeys = []string{m.sshKey()}
		if w.listed {
			r.PackageDigest = m.digest()
		}
		text, _ := json.Marshal(r)
		n.Annotations[kamino.AnnotationReceipt] = string(text)
		w.changeNode(n)
	}
	w.happened("disk of %s is sealed", m.Hostname)
	w.after(2*time.Second, func() {
		if here() {
			w.halt(m)
		}
	})
}

// readNode is a node as the API server shows it.
func (w *world) readNode(n *simNode) kamino.Node {
	out := n.Node
	out.Annotations = maps.Clone(n.Annotations)
	out.Taints = slices.Clone(n.Taints)
	out.Heartbeat = n.frozen
	if m := w.machineOf(n); m != nil && m.kubelet {
		out.Heartbeat = w.now.Truncate(beat)
	}
	return out
}

// removeMachine deletes a VM for good, and later its node.
func (w *world) removeMachine(m *machine) {
	m.gone = true
	m.boots++
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
