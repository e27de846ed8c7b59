package crash

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

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

// Files of a disk that matter here.
const (
	machineIDFile = "/etc/machine-id"
	receiptFile   = "/var/lib/kamino/receipt.json"
)

// machine is an instance and the kubelet on it.
type machine struct {
	id      string // ARM ID
	vm      string
	node    string
	on      bool
	kubelet bool
	lived   bool // its kubelet has run: until then it is nobody's donor
	boots   int
	beat    time.Time
	fate    worlds.Fate
	nonce   string // of the run whose canary it is; "" for a machine of the pool
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
			if gone.nonce != "" {
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
		m = &machine{id: in.ID, vm: in.VMID, node: strings.ToLower(in.ComputerName), nonce: w.nonceOf(in)}
		w.machines[key] = m
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
		w.postStatus(m, w.status(m, corev1.ConditionFalse))
		return
	}
	w.later(m, silence, func() { w.postStatus(m, w.status(m, corev1.ConditionUnknown)) })
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
	if !w.writeDisk(m, func(files map[string]string) {
		if files[machineIDFile] == "" {
			files[machineIDFile] = fmt.Sprintf("machine-id of boot %d of %s\n", m.boots, m.vm)
		}
		delete(files, receiptFile)
		nodes.Booted(files)
	}) {
		return
	}
	m.kubelet, m.lived = true, true
	w.register(m)
	w.dirty.nodes, w.tend = true, true
}

// writeDisk changes a machine's disk; false if the machine was deleted meanwhile.
func (w *World) writeDisk(m *machine, change func(map[string]string)) bool {
	return w.fleet.WriteDisk(m.id, change) == nil
}

// register makes the Node object or takes over the one of that name.
func (w *World) register(m *machine) {
	nodes := w.station.admin.CoreV1().Nodes()
	status := w.status(m, corev1.ConditionTrue)
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: m.node, Labels: map[string]string{corev1.LabelOSStable: "linux", corev1.LabelArchStable: "amd64",
			corev1.LabelHostname: m.node}},
		Spec:   corev1.NodeSpec{ProviderID: providerID(m.id)},
		Status: status,
	}
	if m.nonce != "" { // as the agent registers it, and reports
		w.canaries[m.node] = true
		report, err := json.Marshal(kamino.NodeReport{Nonce: m.nonce, At: w.clock.Now(), MachineID: m.vm})
		w.check("write report", err)
		node.Annotations = map[string]string{kamino.AnnotationReport: string(report)}
		node.Labels[kamino.LabelCanary] = ""
		node.Spec.Taints = []corev1.Taint{{Key: kamino.TaintCanary, Effect: corev1.TaintEffectNoSchedule}}
	}
	_, err := nodes.Create(w.ctx, node, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		w.postStatus(m, status)
	} else {
		w.check("create node", err)
	}
	w.heartbeat(m)
}

func (w *World) status(m *machine, ready corev1.ConditionStatus) corev1.NodeStatus {
	now := metav1.NewTime(w.clock.Now())
	s := corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready, Reason: "Simulated",
		LastHeartbeatTime: now, LastTransitionTime: now}}}
	if ready == corev1.ConditionTrue {
		s.NodeInfo = corev1.NodeSystemInfo{SystemUUID: m.vm, BootID: m.bootID(), OperatingSystem: "linux",
			Architecture: "amd64", KubeletVersion: "v1.36.3", MachineID: m.vm}
	}
	return s
}

func (w *World) postStatus(m *machine, status corev1.NodeStatus) {
	patch := map[string]any{"status": map[string]any{"conditions": status.Conditions}}
	if status.NodeInfo.BootID != "" {
		patch = map[string]any{"status": map[string]any{"conditions": status.Conditions, "nodeInfo": status.NodeInfo}}
	}
	raw, err := json.Marshal(patch)
	if err == nil {
		_, err = w.station.admin.CoreV1().Nodes().Patch(w.ctx, m.node, types.StrategicMergePatchType, raw, metav1.PatchOptions{}, "status")
	}
	w.check("report status", err)
	w.dirty.nodes = true
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
			w.heartbeat(m)
		}
	}
}

// heartbeat renews the node's lease.
func (w *World) heartbeat(m *machine) {
	m.beat = w.clock.Now()
	patch := fmt.Sprintf(`{"apiVersion":"coordination.k8s.io/v1","kind":"Lease","metadata":{"name":%q},"spec":{"holderIdentity":%q,"renewTime":%q}}`,
		m.node, m.node, m.beat.Format("2006-01-02T15:04:05.000000Z"))
	yes := true
	_, err := w.station.admin.CoordinationV1().Leases(corev1.NamespaceNodeLease).Patch(w.ctx, m.node, types.ApplyPatchType, []byte(patch),
		metav1.PatchOptions{FieldManager: "kubelet", Force: &yes})
	w.check("renew lease of node", err)
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
			w.later(m, podStopTime, func() { w.removePod(pod) })
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
			w.later(m, m.fate.Pace()*takes, func() { w.postEnd(pod, end) })
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

func (w *World) removePod(pod *corev1.Pod) {
	err := w.station.admin.CoreV1().Pods(pod.Namespace).Delete(w.ctx, pod.Name,
		metav1.DeleteOptions{GracePeriodSeconds: new(int64), Preconditions: metav1.NewUIDPreconditions(string(pod.UID))})
	w.check("remove pod", err)
	w.dirty.pods = true
}

// startSeal runs the seal pod, whose work ends with the machine's power.
func (w *World) startSeal(m *machine, pod *corev1.Pod) {
	if end, ended := m.fate.Seal(); ended {
		w.postEnd(pod, end)
		return
	}
	state := corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(w.clock.Now())}}
	if !w.postContainer(pod, corev1.PodRunning, state) {
		return // deleted before it began
	}
	w.later(m, m.fate.Pace()*sealTime, func() { w.seal(m, pod) })
}

// postEnd reports how a pod has ended.
func (w *World) postEnd(pod *corev1.Pod, end worlds.End) {
	switch {
	case end.Refused != "":
		w.postPod(pod, corev1.PodStatus{Phase: corev1.PodFailed, Reason: end.Refused, Message: end.Message})
	case end.Waiting != "":
		w.postContainer(pod, corev1.PodPending, corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: end.Waiting}})
	case end.ExitCode != 0:
		w.postContainer(pod, corev1.PodFailed, corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: int32(end.ExitCode), Message: end.Message}})
	default:
		w.postContainer(pod, corev1.PodSucceeded, corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Reason: "Completed"}})
	}
}

func (w *World) postContainer(pod *corev1.Pod, phase corev1.PodPhase, state corev1.ContainerState) bool {
	return w.postPod(pod, corev1.PodStatus{Phase: phase, ContainerStatuses: []corev1.ContainerStatus{{Name: pod.Spec.Containers[0].Name, Image: sealImage, State: state}}})
}

func (w *World) postPod(pod *corev1.Pod, status corev1.PodStatus) bool {
	raw, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": pod.UID}, "status": status})
	if err == nil {
		_, err = w.station.admin.CoreV1().Pods(pod.Namespace).Patch(w.ctx, pod.Name, types.StrategicMergePatchType, raw, metav1.PatchOptions{}, "status")
	}
	w.check("report pod", err)
	w.dirty.pods = true
	return err == nil
}

// sealNonce is what the order in the pod asks the receipt to repeat.
func sealNonce(pod *corev1.Pod) string {
	return podEnv(pod, "KAMINO_SEAL_NONCE")
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
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]string{key: text}}})
	if err == nil {
		_, err = w.station.admin.CoreV1().Nodes().Patch(w.ctx, m.node, types.MergePatchType, patch, metav1.PatchOptions{})
	}
	w.check("tell by node "+m.node, err)
	w.dirty.nodes = true
}

// seal does to the symbolic disk what the agent does to a real one: identity
// off, receipt on the disk and, with kubelet's credentials, on the node, power
// off. Deleting the pod at this point comes too late: the agent is detached.
func (w *World) seal(m *machine, pod *corev1.Pod) {
	if m.fate == worlds.SealHangs {
		return
	}
	run := strings.TrimPrefix(pod.Name, sealPrefix)
	if m.fate == worlds.SealTakenBack {
		w.takenBack(m, run)
		return
	}
	sum := sha256.Sum256([]byte(run + m.vm + fmt.Sprint(m.boots)))
	receipt := kamino.Receipt{Run: run, Donor: m.node, VMID: m.vm, Nonce: sealNonce(pod), SealedAt: w.clock.Now(), Hash: "sha256:" + hex.EncodeToString(sum[:])}
	text, err := json.Marshal(receipt)
	w.check("write receipt", err)
	if m.fate == worlds.SealForged {
		receipt.Nonce = ""
		text, err = json.Marshal(receipt)
		w.check("forge receipt", err)
	} else if !w.writeDisk(m, func(files map[string]string) {
		delete(files, machineIDFile)
		files[receiptFile] = string(text)
	}) {
		return
	}
	if m.fate != worlds.SealIsMute {
		w.tell(m, kamino.AnnotationReceipt, string(text))
	}
	if !w.shape.Mute {
		w.fleet.PowerOffFromGuest(m.id)
		return
	}
	// The kubelet was stopped by the seal; the machine stays on.
	m.kubelet = false
	w.later(m, silence, func() { w.postStatus(m, w.status(m, corev1.ConditionUnknown)) })
}
