package crash

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kamino.dev/kamino"
	"kamino.dev/kamino/agent/patch"
	"kamino.dev/kamino/azure/emulator"
	"kamino.dev/kamino/internal/invariant"
	"kamino.dev/kamino/internal/worlds"
	"kamino.dev/kamino/lab/nodes"
)

// How long machines take, on the world's clock.
const (
	bootTime     = 8 * time.Second
	podStartTime = 2 * time.Second
	podStopTime  = 2 * time.Second
	surveyTime   = 30 * time.Second // longer than cluster-autoscaler is given
	beatTime     = 10 * time.Second // between two heartbeats, as kubelet's default
	forgetTime   = 15 * time.Second // until the Node of a deleted VM is deleted
	canaryStays  = 20 * time.Minute // until that of a canary is, of which whoever made it shall not rely on others
)

// times are those of its machines.
var times = worlds.Times{Boot: bootTime, PodStart: podStartTime, Survey: surveyTime, Seal: 2 * time.Second, Upgrade: managerTime}

// machine is an instance and the kubelet on it. It implements [worlds.Host].
type machine struct {
	worlds.Guest
	w      *World
	id     string // ARM ID
	vm     string
	node   string
	on     bool
	boot   *nodes.Kubelet // the last that came up; nil before the first
	beat   time.Time
	canary bool // not of the pool
	served bool // somebody has put it in service, which kamino wants out of it
	local  bool // a claim is bound to a volume on its own disk
}

// newMachine is a machine that is off.
func (w *World) newMachine(in emulator.Instance) *machine {
	m := &machine{w: w, id: in.ID, vm: in.VMID, node: strings.ToLower(in.ComputerName), canary: in.Tags[kamino.TagCanary] != ""}
	m.Guest = worlds.Guest{Host: m, Times: times}
	w.machines[strings.ToLower(in.ID)] = m
	if w.shape.Patch {
		w.writeDisk(m, sources)
	}
	return m
}

// react does what kubelets and controllers do about what has happened. No
// process is busy meanwhile.
func (w *World) react() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.changes.Lock()
	ids := w.pending
	w.pending = nil
	w.changes.Unlock()
	if len(ids) == 0 && w.dirty == (dirt{}) && !w.tend && !w.beatDue() {
		return
	}
	for _, id := range ids {
		w.power(id)
	}
	if w.tend || w.dirty.pods {
		w.tend = false
		w.tendPods()
	}
	w.beats()
	w.refresh()
	w.audit.Changed(&w.state)
	w.judgeNext()
}

// check keeps the first failure of the harness's own calls; objects may be gone
// and pods replaced, which is no failure.
func (w *World) check(what string, err error) {
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) && w.trouble == nil && w.ctx.Err() == nil {
		w.trouble = fmt.Errorf("%s: %w", what, err)
	}
}

// power follows an instance of the cloud.
func (w *World) power(id string) {
	key := strings.ToLower(id)
	in, exists := w.fleet.Instance(id)
	in.VMID = w.vmOf(in.VMID)
	m := w.machines[key]
	if !exists || m != nil && m.vm != in.VMID {
		if gone := m; gone != nil {
			delete(w.machines, key)
			gone.Boots++
			gone.on, gone.Kubelet, gone.Gone = false, false, true
			stays := forgetTime
			if gone.canary {
				stays = canaryStays
			}
			w.clock.virtual.AfterFunc(stays, func() { w.forget(gone) })
		}
		m = nil
	}
	if !exists {
		return
	}
	if m == nil {
		m = w.newMachine(in)
	}
	on := in.PowerState == emulator.PowerRunning
	switch {
	case on && !m.on && in.State != "Creating":
		m.on = true
		m.On()
	case !on && m.on:
		m.on = false
		m.Cut(in.PowerState == emulator.PowerStopping)
	}
}

// tellNode notes that something was written on a node.
func (w *World) tellNode(what string, err error) {
	w.check(what, err)
	w.dirty.nodes = true
}

// Up implements worlds.Host: what the disk lacks is made anew first.
func (m *machine) Up() bool {
	w := m.w
	in, ok := w.fleet.Instance(m.id)
	if !ok {
		return false // deleted meanwhile
	}
	in.VMID = m.vm
	boot, err := nodes.Machine{Cloud: w.fleet, Instance: in, Client: w.station.admin, Network: &w.network, Now: w.clock.Now}.Boot()
	if err != nil {
		return false
	}
	m.boot, m.BootID = boot, boot.Boot().ID
	if m.canary {
		w.canaries[m.node] = true
	}
	w.register(m)
	w.tend = true
	return true
}

// After, Draw, Happened, Violate and what follows implement worlds.Host. Nothing here is by chance.
func (m *machine) After(d time.Duration, do func()) {
	m.w.clock.virtual.AfterFunc(d, func() {
		m.w.mu.Lock()
		defer m.w.mu.Unlock()
		do()
	})
}

func (m *machine) Draw(int) int { return 0 }

func (m *machine) Happened(format string, args ...any) {
	m.w.trace("machine "+m.node+": "+format, args...)
}

func (m *machine) Violate(id, format string, args ...any) {
	m.w.audit.Violate(id, m.node+": "+format, args...)
}

func (m *machine) Shows(sign worlds.Sign) {
	switch sign {
	case worlds.Leaves:
		m.w.tellNode("leave", m.boot.Leave(m.w.ctx))
	case worlds.Silent:
		m.w.tellNode("find silent", m.boot.FallSilent(m.w.ctx))
	case worlds.Resumed:
		m.w.tellNode("resume", m.boot.Report(m.w.ctx))
	}
}

func (m *machine) Tell(key, text string) bool {
	if m.w.clock.Now().Before(m.w.apiAway) {
		return false
	}
	m.w.tellNode("tell by node "+m.node, m.boot.Annotate(m.w.ctx, map[string]string{key: text}))
	return true
}

func (m *machine) SwitchesOff() {
	if !m.w.shape.Mute {
		m.w.fleet.PowerOffFromGuest(m.id)
	}
}

func (m *machine) VM() string { return m.vm }

func (m *machine) Stuck() (stuck bool) {
	m.w.writeDisk(m, func(files map[string]string) { stuck = nodes.Stuck(files) })
	return stuck
}

func (m *machine) SealDisk(o worlds.Order, forged bool) (map[string]string, bool) {
	if forged {
		text, err := json.Marshal(kamino.Receipt{Run: o.Run, Policy: o.Policy, Donor: m.node, VMID: m.vm, SealedAt: m.w.clock.Now(),
			Hash: "sha256:" + strings.Repeat("0", 64)})
		m.w.check("forge receipt", err)
		return map[string]string{kamino.AnnotationReceipt: string(text)}, true
	}
	notes, err := m.boot.Seal(o.Run, o.Nonce, o.Policy)
	return notes, err == nil // else the machine was deleted
}

// register makes the node, with the report of a canary's agent.
func (w *World) register(m *machine) {
	w.tellNode("register node", m.boot.Register(w.ctx))
	w.tellNode("report", m.boot.Introduce(w.ctx))
	m.beat = w.clock.Now()
}

// writeDisk changes a machine's disk; false if the machine was deleted meanwhile.
func (w *World) writeDisk(m *machine, change func(map[string]string)) bool {
	return w.fleet.WriteDisk(m.id, change) == nil
}

// beatDue tells whether a kubelet has something to say that anybody listens to.
func (w *World) beatDue() bool {
	for _, m := range w.machines {
		if m.Kubelet && w.listened(m) && w.clock.Now().Sub(m.beat) >= beatTime {
			return true
		}
	}
	return false
}

// listened: only the pulse of the donor of a run, and of nodes that carry our marks, is ever read,
// but for a proof's sake all are.
func (w *World) listened(m *machine) bool {
	if len(w.state.Canaries) > 0 {
		return true
	}
	if m.node == w.donor && w.lease().Holder != "" {
		return true
	}
	return slices.ContainsFunc(w.state.Nodes, func(n invariant.Node) bool {
		return n.Name == m.node &&
			n.Annotations[kamino.AnnotationRun] != ""
	})
}

func (w *World) beats() {
	for _, m := range w.machines {
		if m.Kubelet && w.listened(m) && w.clock.Now().Sub(m.beat) >= beatTime {
			m.beat = w.clock.Now()
			w.check("renew lease of node", m.boot.Beat(w.ctx))
		}
	}
}

// forget deletes the Node of a machine that is gone with its pods, as the cloud
// node lifecycle controller and the pod garbage collector do, unless another machine has taken it
// over.
func (w *World) forget(m *machine) {
	w.mu.Lock()
	defer w.mu.Unlock()
	nodes := w.station.admin.CoreV1().Nodes()
	n, err := nodes.Get(w.ctx, m.node, metav1.GetOptions{})
	if err != nil || !strings.EqualFold(n.Status.NodeInfo.SystemUUID, m.vm) || w.machines[strings.ToLower(m.id)] != nil {
		w.check("read node", err)
		return
	}
	w.check("delete node", nodes.Delete(w.ctx, m.node, metav1.DeleteOptions{}))
	// The pod garbage collector removes pods of nodes that are no more.
	for _, namespace := range []string{metav1.NamespaceDefault, kamino.SystemNamespace} {
		w.check("delete pods", w.station.admin.CoreV1().Pods(namespace).DeleteCollection(w.ctx,
			metav1.DeleteOptions{GracePeriodSeconds: new(int64)},
			metav1.ListOptions{FieldSelector: "spec.nodeName=" + m.node}))
	}
	w.dirty.nodes, w.dirty.pods = true, true
}

// tendPods lets kubelets do what was asked of pods: end, or seal.
func (w *World) tendPods() {
	list, err := w.station.admin.CoreV1().Pods("").List(w.ctx, metav1.ListOptions{})
	w.check("list pods", err)
	if err != nil {
		return
	}
	for i := range list.Items {
		pod := &list.Items[i]
		m := w.machineNamed(pod.Spec.NodeName)
		if m == nil || !m.Kubelet {
			continue
		}
		uid := string(pod.UID) + " " + m.vm // a machine that has taken over the name runs it again
		switch {
		case pod.DeletionTimestamp != nil && !w.pods["end "+uid]:
			w.pods["end "+uid] = true
			m.Later(podStopTime, func() {
				w.check("remove pod", m.boot.Remove(w.ctx, pod))
				w.dirty.pods = true
				if strings.HasPrefix(pod.Name, comesPrefix) && w.coming {
					w.comes(m)
				}
			})
		case !w.pods[uid] && pod.Status.Phase != corev1.PodSucceeded && pod.Status.Phase != corev1.PodFailed:
			w.pods[uid] = true
			if order, ok := orderOf(pod); ok {
				m.Play(&agentsPod{m, pod}, order)
			}
		}
	}
}

// orderOf is what a pod of the agent is for; false: it is none.
func orderOf(pod *corev1.Pod) (o worlds.Order, ok bool) {
	for _, t := range []struct {
		prefix string
		task   kamino.Task
	}{{sealPrefix, kamino.TaskSeal}, {surveyPrefix, kamino.TaskInventory}, {listPrefix, kamino.TaskPackages},
		{patchPrefix + "reboot-", kamino.TaskReboot},
		{patchPrefix + "look-", kamino.TaskLook}, {patchPrefix + "check-", kamino.TaskCheck}, {patchPrefix, kamino.TaskPatch}} {
		if run, ok := strings.CutPrefix(pod.Name, t.prefix); ok {
			o = worlds.Order{Task: t.task, Run: run, Nonce: nodes.Nonce(pod), Machine: nodes.MeantVM(pod), Within: nodes.MeantBoot(pod),
				Policy: nodes.PodEnv(pod, patch.PolicyEnv)}
			if t.task == kamino.TaskSeal {
				o.Policy = nodes.SealPolicy(pod)
			}
			policy, err := patch.ParsePolicy(nodes.PodEnv(pod, patch.PolicyEnv))
			o.Boot = policy.Boot
			return o, err == nil
		}
	}
	return o, false
}

// agentsPod is a pod of the agent on a machine. It implements [worlds.Pod].
type agentsPod struct {
	m *machine
	*corev1.Pod
}

// now is the pod as it stands, nil where it is no more.
func (p *agentsPod) now() *corev1.Pod {
	pod, err := p.m.w.station.admin.CoreV1().Pods(p.Namespace).Get(p.m.w.ctx, p.Name, metav1.GetOptions{})
	p.m.w.check("read pod", err)
	if err != nil || pod.UID != p.UID {
		return nil
	}
	return pod
}

// There implements worlds.Pod.
func (p *agentsPod) There() bool {
	pod := p.now()
	return pod != nil && pod.DeletionTimestamp == nil
}

// Starts implements worlds.Pod.
func (p *agentsPod) Starts() { p.m.w.postPod(p.m, p.Pod, p.m.boot.Running(p.Pod, true, 0)) }

// Ends implements worlds.Pod.
func (p *agentsPod) Ends(end worlds.End) {
	pod, boot := p.now(), p.m.boot
	switch {
	case pod == nil || pod.Status.Phase == corev1.PodFailed || pod.Status.Phase == corev1.PodSucceeded:
	case end.Refused != "":
		p.m.w.postPod(p.m, pod, corev1.PodStatus{Phase: corev1.PodFailed, Reason: end.Refused, Message: end.Message})
	case end.Waiting != "":
		p.m.w.postPod(p.m, pod, boot.Waiting(pod, end.Waiting))
	default:
		p.m.w.postPod(p.m, pod, boot.Ended(pod, int32(end.ExitCode), end.Message))
	}
}

func (w *World) machineNamed(node string) *machine {
	for _, m := range w.machines {
		if m.node == node {
			return m
		}
	}
	return nil
}

func (w *World) postPod(m *machine, pod *corev1.Pod, status corev1.PodStatus) {
	w.check("report pod", m.boot.Post(w.ctx, pod, status))
	w.dirty.pods = true
}

// asSealed lets a disk be copied as a seal leaves it.
func (w *World) asSealed(m *machine, copied func() error) error {
	was, err := w.fleet.ReadDisk(m.id)
	if err != nil {
		return err
	}
	if _, err := m.boot.Seal("run-0", "", ""); err != nil {
		return err
	}
	err = copied()
	w.writeDisk(m, func(files map[string]string) {
		clear(files)
		maps.Copy(files, was)
	})
	return err
}
