package worlds

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"maps"
	"slices"
	"time"

	"kamino.dev/kamino"
)

// Guest is the one model of what runs inside a machine: its boots and its kubelet, the agent's pods,
// the seal and the unit of a patch that those leave on the host. Power, pods and time come in by its
// methods; what comes of them goes out to its [Host]. It knows neither cloud nor Kubernetes, and no
// time but the host's.
type Guest struct {
	Host
	Times
	Fate    Fate
	Gone    bool   // its machine was deleted
	Boots   int    // generation of all that ends with the power
	BootID  string // of the last boot that came up; the host gives it
	Kubelet bool   // runs
	Touched string // run that took the identity off the disk, or "boot" while that comes back
	Sealed  string // run whose receipt is on the disk
	Looked  string // boot in which the agent looked at the machine last
	Unseen  bool   // its packages may have been changed since somebody signed it

	ups      int // starts of the kubelet
	unit     *unit
	pods     []Pod // of patches, in this boot
	restarts map[string]int
}

// Times are how long things take on a machine that is not slow.
type Times struct {
	Boot     time.Duration // from power on to a kubelet that runs
	PodStart time.Duration // from a pod that is there to a container that runs
	Survey   time.Duration // of an inventory
	Seal     time.Duration
	Upgrade  time.Duration // of packages
}

// silence is for how long nothing is heard of a node that is not Ready
// (--node-monitor-grace-period was 40 s before Kubernetes 1.32).
const silence = 40 * time.Second

// Host is the world of a guest.
type Host interface {
	After(d time.Duration, do func())
	Draw(n int) int // a number below n, by chance
	Happened(format string, args ...any)
	Violate(id, format string, args ...any)

	VM() string                 // the machine's UUID
	Up() bool                   // a kubelet starts in a new boot, and registers its node; false: the machine is gone
	Shows(Sign)                 // of the kubelet
	Tell(key, text string) bool // annotates the node with the kubelet's credentials; false: nobody answers
	SwitchesOff()               // the guest does, not the cloud
	Stuck() bool                // the boot that has begun does not come up

	// SealDisk seals the disk, and returns what is told of that. forged: nothing is sealed, and told
	// is what a node can make up that does not know the nonce. false: the machine is gone.
	SealDisk(o Order, forged bool) (map[string]string, bool)

	// Of packages. An answer is what the node's annotation has.
	CheckPackages() error     // refuses what an interrupted change left
	BeginUpgrade(Order) error // the same, or the change begins: until Upgrade the disk is half-way
	Upgrade(Order) (answer string)
	Look(Order) (answer string)
}

// Sign is what is seen of a kubelet from outside.
type Sign int

// The signs.
const (
	Stopped Sign = iota // it was stopped without a word
	Leaves              // it stops, and says that its node is not Ready
	Silent              // nothing was heard of it for so long that its node is not Ready
	Resumed             // it runs again, in the same boot
)

// Pod is one of the agent's, as the node's kubelet has it. What is reported of one that is there no
// more, or has ended, is lost.
type Pod interface {
	There() bool
	Starts() // its container runs
	Ends(End)
}

// Order is what a pod of the agent is for.
type Order struct {
	Task       kamino.Task
	Run, Nonce string
	Machine    string // UUID of the machine that it is for; "" any
	Within     string // the boot that it is for; "" any
	Policy     string // of a seal its digest, of a patch its text
	Boot       string // which a restart is to end
}

// unit works on the host: it outlives the pod that started it, and not the boot.
type unit struct {
	run    string
	boots  int
	pod    Pod // the last that has found it
	answer string
}

// Later lets the guest act when its time has come, unless the boot has ended by then.
func (g *Guest) Later(d time.Duration, act func()) {
	boots := g.Boots
	g.After(d, func() {
		if g.Boots == boots && !g.Gone {
			act()
		}
	})
}

// On gives the machine power. From here on the disk is written to: what was sealed is not any more.
func (g *Guest) On() {
	g.Boots++
	g.Touched, g.Sealed = "boot", ""
	g.boot()
}

// Cut takes the power away. asked: the guest was asked to shut down, and its kubelet may say so.
func (g *Guest) Cut(asked bool) {
	if asked && g.Kubelet && g.Draw(2) == 0 {
		g.Kubelet = false
		g.Shows(Leaves)
	}
	g.Silence()
	g.Boots++
}

// Restart is a reboot from inside, of which the cloud hears nothing.
func (g *Guest) Restart(asked bool) {
	g.Cut(asked)
	g.boot()
}

func (g *Guest) boot() {
	g.Later(g.Fate.Pace()*g.Boot, func() {
		if g.Fate != NeverBoots && !g.Stuck() {
			g.Booted()
			g.Happened("its node has booted")
		}
	})
}

// Booted is a kubelet that starts in a new boot, whatever kept it from that before. Pods of the boot
// before are reported as ended.
func (g *Guest) Booted() {
	g.ups++
	g.Touched, g.Sealed = "", ""
	if g.Kubelet = g.Up(); !g.Kubelet {
		return
	}
	for _, p := range g.pods {
		p.Ends(End{ExitCode: 137, Message: "containers ended with the machine"})
	}
	g.pods = nil
}

// Silence stops the kubelet without a word; the node controller notices later.
func (g *Guest) Silence() {
	if !g.Kubelet {
		return
	}
	g.Kubelet = false
	g.Shows(Stopped)
	ups := g.ups
	g.After(silence, func() {
		if g.ups == ups && !g.Kubelet && !g.Gone {
			g.Shows(Silent)
		}
	})
}

// Play is the life of a pod of the agent, and of what it leaves on the host.
func (g *Guest) Play(p Pod, o Order) {
	patches := o.Task != kamino.TaskSeal && o.Task != kamino.TaskInventory && o.Task != kamino.TaskPackages
	if patches {
		g.pods = append(g.pods, p)
	}
	g.in(p, g.Fate.Pace()*g.PodStart, func() {
		if end := g.Fate.Starts(o.Task); end != (End{}) {
			p.Ends(end)
			return
		}
		p.Starts()
		if o.Machine != "" && !kamino.SameVM(o.Machine, g.VM()) {
			p.Ends(End{ExitCode: 1, Message: "this pod is for machine " + o.Machine + ", but runs on machine " + g.VM()})
			return
		}
		if o.Within != "" && o.Within != g.BootID {
			p.Ends(End{ExitCode: 1, Message: "this pod is for boot " + o.Within + " of the machine, which is in boot " + g.BootID + " now"})
			return
		}
		switch o.Task {
		case kamino.TaskSeal:
			g.in(p, time.Second, func() { g.seal(o) })
		case kamino.TaskCheck:
			g.check(p)
		case kamino.TaskReboot:
			if g.BootID == o.Boot {
				g.restart(p, o)
				return
			}
			p.Ends(End{})
		case kamino.TaskLook:
			g.Looked = g.BootID
			g.tell(kamino.AnnotationPatchLook, g.Look(o), func() { p.Ends(End{}) })
		case kamino.TaskPatch:
			g.upgrade(p, o)
		default:
			g.in(p, g.Fate.Pace()*g.Survey, func() { p.Ends(g.Fate.Ends(o.Task)) })
		}
	})
}

// in goes on with a pod after a while, if it and its kubelet are still there.
func (g *Guest) in(p Pod, d time.Duration, act func()) {
	g.Later(d, func() {
		if g.Kubelet && p.There() {
			act()
		}
	})
}

// tell writes on the node, again and again while nobody answers.
func (g *Guest) tell(key, text string, then func()) {
	if !g.Tell(key, text) {
		g.Later(10*time.Second, func() { g.tell(key, text, then) })
		return
	}
	then()
}

// recordGenericWithin is how long an agent may record the donor's boot before its seal stops
// anything (agent/generic.go).
const recordGenericWithin = 10 * time.Second

// seal is the agent, detached from its pod: from here on it does not matter whether that is deleted.
// It stops the kubelet, seals the disk, says so, and switches the machine off.
func (g *Guest) seal(o Order) {
	g.Touched = o.Run
	if g.Working() {
		g.Violate("I32", "a disk is sealed while run %s upgrades its packages", g.unit.run)
	}
	g.Happened("its seal is detached")
	recording := time.Duration(g.Draw(2)) * recordGenericWithin // only a first boot is recorded
	g.Later(recording+time.Second+time.Duration(g.Draw(9000))*time.Millisecond, g.Silence)
	if g.Fate == SealHangs {
		return
	}
	g.Later(recording+g.Fate.Pace()*g.Seal, func() {
		g.Silence()
		if g.Fate == SealTakenBack {
			g.takeBack(o)
			return
		}
		forged := g.Fate == SealForged
		if !forged {
			g.Sealed = o.Run
		}
		if notes, ok := g.SealDisk(o, forged); ok && g.Fate == SealIsMute {
			g.report(nil)
		} else if ok {
			g.report(notes)
		}
	})
}

// report tells one note after the other, the receipt last, and switches the machine off.
func (g *Guest) report(notes map[string]string) {
	for _, key := range slices.Sorted(maps.Keys(notes)) {
		text := notes[key]
		delete(notes, key)
		g.tell(key, text, func() { g.report(notes) })
		return
	}
	g.Happened("its disk is sealed")
	g.Later(2*time.Second, g.SwitchesOff)
}

// takeBack is a seal that gave up: the donor is as it was, and its node says why.
func (g *Guest) takeBack(o Order) {
	g.ups++
	g.Kubelet, g.Touched = true, ""
	g.Happened("its seal is taken back")
	g.Shows(Resumed)
	text, _ := json.Marshal(map[string]string{"run": o.Run, "error": Failure}) // strings can be encoded
	g.tell(kamino.AnnotationSealFailure, string(text), func() {})
}

// Working says whether a unit changes the machine's packages.
func (g *Guest) Working() bool {
	return g.unit != nil && g.unit.boots == g.Boots && g.unit.answer == ""
}

// check refuses what an upgrade would refuse, once no other run's unit works.
func (g *Guest) check(p Pod) {
	if g.Working() {
		g.in(p, g.PodStart, func() { g.check(p) })
		return
	}
	p.Ends(refused(g.CheckPackages()))
}

// refused is how a pod of the agent ends that refuses to work (docs/agent.md, exit codes).
func refused(err error) End {
	if err == nil {
		return End{}
	}
	return End{ExitCode: 3, Message: err.Error()}
}

// upgrade finds the unit of a run, or starts it.
func (g *Guest) upgrade(p Pod, o Order) {
	mine := g.unit != nil && g.unit.run == o.Run && g.unit.boots == g.Boots
	switch {
	case mine && g.Working():
		g.unit.pod = p
		return
	case mine:
		g.tell(kamino.AnnotationPatch, g.unit.answer, func() { p.Ends(End{}) })
		return
	case g.Working(): // whose locks are waited for
		g.in(p, g.PodStart, func() { g.upgrade(p, o) })
		return
	}
	if err := g.BeginUpgrade(o); err != nil {
		p.Ends(refused(err))
		return
	}
	u := &unit{run: o.Run, boots: g.Boots, pod: p}
	g.unit, g.Unseen = u, true
	if g.Draw(4) == 1 { // the container runtime is upgraded, and its containers end
		g.Later(20*time.Second, func() { p.Ends(End{ExitCode: 137}) })
	}
	g.Later(g.Fate.Pace()*g.Times.Upgrade, func() {
		u.answer = g.Host.Upgrade(o)
		g.Happened("its packages are upgraded")
		g.tell(kamino.AnnotationPatch, u.answer, func() { u.pod.Ends(End{}) })
	})
}

// restart is what a run asked for. Whether its pod is seen to end before is chance.
func (g *Guest) restart(p Pod, o Order) {
	if g.restarts == nil {
		g.restarts = map[string]int{}
	}
	if g.restarts[o.Run]++; g.restarts[o.Run] > 1 {
		g.Violate("I32", "a machine is restarted %d times by run %s", g.restarts[o.Run], o.Run)
	}
	if g.Draw(2) == 1 {
		p.Ends(End{})
	}
	g.Restart(true)
}

// Pack is an answer of the agent as its annotation has it.
func Pack(run, nonce, name string, content []byte) string {
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	_, _ = z.Write(content) // neither fails: a buffer takes everything
	_ = z.Close()
	text, _ := json.Marshal(map[string]any{"run": run, "nonce": nonce, name: packed.Bytes()}) // can be encoded
	return string(text)
}
