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
	sealTime     = 2 * time.Second
	surveyTime   = 30 * time.Second // longer than cluster-autoscaler is given
	beatTime     = 10 * time.Second // between two heartbeats, as kubelet's default
	silence      = 40 * time.Second // after which a node is not Ready, as the default of Kubernetes
	forgetTime   = 15 * time.Second // until the Node of a deleted VM is deleted
	canaryStays  = 20 * time.Minute // until that of a canary is, of which whoever made it shall not rely on others
)

// machine is an instance and the kubelet on it.
type machine struct {
	id      string // ARM ID
	vm      string
	node    string
	on      bool
	kubelet bool           // it runs
	boot    *nodes.Kubelet // the last that came up; nil before the first
	boots   int
	beat    time.Time
	fate    worlds.Fate
	canary  bool // not of the pool
	served  bool // somebody has put it in service, which kamino wants out of it
	local   bool // a claim is bound to a volume on its own disk
	patchState
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

// later lets a machine act when its time has come, unless it lost power meanwhile.
func (w *World) later(m *machine, d time.Duration, act func()) {
	boots := m.boots
	w.clock.virtual.AfterFunc(d, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if m.boots == boots {
			act()
		}
	})
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
			gone.boots++
			gone.on, gone.kubelet = false, false
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
		m = &machine{id: in.ID, vm: in.VMID, node: strings.ToLower(in.ComputerName), canary: in.Tags[kamino.TagCanary] != ""}
		w.machines[key] = m
		if w.shape.Patch {
			w.writeDisk(m, sources)
		}
	}
	on := in.PowerState == emulator.PowerRunning
	switch {
	case on && !m.on && in.State != "Creating":
		m.on = true
		m.boots++
		w.later(m, m.fate.Pace()*bootTime, func() { w.booted(m) })
	case !on && m.on:
		w.off(m, in.PowerState == emulator.PowerStopping)
	}
}

// off ends a kubelet: one that is asked to shut down says so, one whose power is
// cut is found silent.
func (w *World) off(m *machine, asked bool) {
	was := m.kubelet
	m.on, m.kubelet = false, false
	m.boots++
	if !was {
		return
	}
	if asked {
		w.tellNode("leave", m.boot.Leave(w.ctx))
		return
	}
	w.silent(m)
}

// silent lets the node lifecycle controller find that nothing was heard of a node.
func (w *World) silent(m *machine) {
	w.later(m, silence, func() { w.tellNode("find silent", m.boot.FallSilent(w.ctx)) })
}

// tellNode notes that something was written on a node.
func (w *World) tellNode(what string, err error) {
	w.check(what, err)
	w.dirty.nodes = true
}

// booted is a kubelet that starts: what the disk lacks is made anew first.
func (w *World) booted(m *machine) {
	if m.fate == worlds.NeverBoots {
		return
	}
	stuck := false
	w.writeDisk(m, func(files map[string]string) { stuck = nodes.Stuck(files) })
	if stuck {
		return
	}
	w.comeUp(m)
	w.dirty.nodes, w.tend = true, true
}

// comeUp lets the kubelet of a machine register its node.
func (w *World) comeUp(m *machine) {
	in, ok := w.fleet.Instance(m.id)
	if !ok {
		return // deleted meanwhile
	}
	in.VMID = m.vm
	boot, err := nodes.Machine{Cloud: w.fleet, Instance: in, Client: w.station.admin, Network: &w.network, Now: w.clock.Now}.Boot()
	if err != nil {
		return
	}
	m.boot, m.kubelet = boot, true
	if m.canary {
		w.canaries[m.node] = true
	}
	w.register(m)
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
		if m.kubelet && w.listened(m) && w.clock.Now().Sub(m.beat) >= beatTime {
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
	return slices.ContainsFunc(w.state.Nodes, func(n invariant.Node) bool { return n.Name == m.node && n.Annotations[kamino.AnnotationRun] != "" })
}

func (w *World) beats() {
	for _, m := range w.machines {
		if m.kubelet && w.listened(m) && w.clock.Now().Sub(m.beat) >= beatTime {
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
		w.check("delete pods", w.station.admin.CoreV1().Pods(namespace).DeleteCollection(w.ctx, metav1.DeleteOptions{GracePeriodSeconds: new(int64)},
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
		uid := string(pod.UID)
		switch {
		case m == nil || !m.kubelet:
		case pod.DeletionTimestamp != nil && !w.pods["end "+uid]:
			w.pods["end "+uid] = true
			w.later(m, podStopTime, func() {
				w.check("remove pod", m.boot.Remove(w.ctx, pod))
				w.dirty.pods = true
				if strings.HasPrefix(pod.Name, comesPrefix) && w.coming {
					w.comes(m)
				}
			})
		case strings.HasPrefix(pod.Name, patchPrefix):
			w.tendPatch(m, pod)
		case strings.HasPrefix(pod.Name, sealPrefix) && !w.pods[uid]:
			w.pods[uid] = true
			w.later(m, podStartTime, func() { w.startSeal(m, pod) })
		case agentPod.MatchString(pod.Name) && !w.pods[uid]: // it looks only
			w.pods[uid] = true
			end, takes := m.fate.Survey(), podStartTime
			if end.Refused+end.Waiting == "" {
				takes += surveyTime
			}
			w.later(m, m.fate.Pace()*takes, func() { w.postEnd(m, pod, end) })
		}
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

// startSeal runs the seal pod, whose work ends with the machine's power.
func (w *World) startSeal(m *machine, pod *corev1.Pod) {
	if end, ended := m.fate.Seal(); ended {
		w.postEnd(m, pod, end)
		return
	}
	if !w.postPod(m, pod, m.boot.Running(pod, true, 0)) {
		return // deleted before it began
	}
	w.later(m, m.fate.Pace()*sealTime, func() { w.seal(m, pod) })
}

// postEnd reports how a pod has ended.
func (w *World) postEnd(m *machine, pod *corev1.Pod, end worlds.End) {
	switch {
	case end.Refused != "":
		w.postPod(m, pod, corev1.PodStatus{Phase: corev1.PodFailed, Reason: end.Refused, Message: end.Message})
	case end.Waiting != "":
		w.postPod(m, pod, m.boot.Waiting(pod, end.Waiting))
	default:
		w.postPod(m, pod, m.boot.Ended(pod, int32(end.ExitCode), end.Message))
	}
}

func (w *World) postPod(m *machine, pod *corev1.Pod, status corev1.PodStatus) bool {
	err := m.boot.Post(w.ctx, pod, status)
	w.check("report pod", err)
	w.dirty.pods = true
	return err == nil
}

// takenBack is a seal that gave up before it wrote anything that lasts: the kubelet runs again, and
// the node says why.
func (w *World) takenBack(m *machine, run string) {
	text, err := json.Marshal(map[string]string{"run": run, "error": worlds.Failure})
	w.check("write failure", err)
	w.tell(m, kamino.AnnotationSealFailure, string(text))
}

// tell writes on the node what the agent tells with kubelet's credentials.
func (w *World) tell(m *machine, key, text string) {
	w.tellNode("tell by node "+m.node, m.boot.Annotate(w.ctx, map[string]string{key: text}))
}

// seal lets the agent seal the disk and switch the machine off. Deleting the pod at this point
// comes too late: the agent is detached.
func (w *World) seal(m *machine, pod *corev1.Pod) {
	if m.fate == worlds.SealHangs {
		return
	}
	run := strings.TrimPrefix(pod.Name, sealPrefix)
	if m.fate == worlds.SealTakenBack {
		w.takenBack(m, run)
		return
	}
	var notes map[string]string
	if m.fate == worlds.SealForged { // nothing is sealed, and no nonce repeated
		text, err := json.Marshal(kamino.Receipt{Run: run, Donor: m.node, VMID: m.vm, SealedAt: w.clock.Now(), Hash: "sha256:" + strings.Repeat("0", 64)})
		w.check("forge receipt", err)
		notes = map[string]string{kamino.AnnotationReceipt: string(text)}
	} else {
		var err error
		if notes, err = m.boot.SealFor(pod); err != nil {
			return // the machine was deleted
		}
	}
	if m.fate != worlds.SealIsMute {
		w.tellNode("tell of the seal", m.boot.Annotate(w.ctx, notes))
	}
	if !w.shape.Mute {
		w.fleet.PowerOffFromGuest(m.id)
		return
	}
	// The kubelet was stopped by the seal; the machine stays on.
	m.kubelet = false
	w.silent(m)
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
