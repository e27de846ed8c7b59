package crash

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"kamino.dev/kamino"
	"kamino.dev/kamino/azure/emulator"
	"kamino.dev/kamino/internal/invariant"
	"kamino.dev/kamino/internal/worlds"
	"kamino.dev/kamino/lab/nodes"
)

var _ worlds.World = (*World)(nil)

// on does something to the machine of a node, if there is one. mu is held meanwhile.
func (w *World) on(node string, do func(*machine)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if m := w.machineNamed(node); m != nil {
		do(m)
	}
}

// Update and what follows make this a [worlds.World].
func (w *World) Update(donor string) {
	o := w.options()
	o.Donor = donor
	w.work(w.prepare(nil), o)
}

// Restore implements worlds.World.
func (w *World) Restore() { w.restore(w.prepare(nil)) }

// SetFate implements worlds.World.
func (w *World) SetFate(node string, f worlds.Fate) { w.on(node, func(m *machine) { m.Fate = f }) }

// DeleteMachine implements worlds.World.
func (w *World) DeleteMachine(node string) { w.on(node, w.cloud.deleteMachine) }

func (w *onAzure) startMachine(m *machine) { w.arm(http.MethodPost, m.id+"/start", nil, nil) }

func (w *onAzure) deleteMachine(m *machine) { w.arm(http.MethodDelete, m.id, nil, nil) }

// ScaleDown implements worlds.World.
func (w *World) ScaleDown(node string) {
	spared := true
	w.EditNode(node, func(n *kamino.Node) bool {
		if spared = n.Annotations[kamino.AnnotationProtect] == "true"; !spared {
			n.Taints = append(n.Taints, kamino.Taint{Key: kamino.TaintDeleting, Value: "1", Effect: "NoSchedule"})
		}
		return !spared
	})
	if spared {
		return
	}
	w.on(node, func(m *machine) {
		w.clock.virtual.AfterFunc(30*time.Second, func() {
			w.mu.Lock()
			defer w.mu.Unlock()
			if w.machines[strings.ToLower(m.id)] == m {
				w.deleteMachine(m)
			}
		})
	})
}

// ReplaceMachine implements worlds.World: the fresh VM takes over the Node object.
func (w *World) ReplaceMachine(node string) { w.on(node, w.cloud.replaceMachine) }

func (w *onAzure) replaceMachine(m *machine) {
	in, ok := w.cloud.Instance(m.id)
	if !ok {
		return
	}
	w.replaced[in.VMID] = strings.Replace(in.VMID, in.VMID[:8], "99999999", 1)
	w.writeDisk(m, func(files map[string]string) {
		clear(files)
		files[nodes.MachineIDFile] = "machine-id of the replacement\n"
		if w.shape.Patch {
			sources(files)
		}
	})
	m.vm, m.Guest = w.vmOf(in.VMID), worlds.Guest{Host: m, Times: times, Boots: m.Boots + 1}
	if m.on {
		m.On()
		return
	}
	// A new VM is switched on.
	w.arm(http.MethodPost, m.id+"/start", nil, nil)
}

// StartMachine implements worlds.World.
func (w *World) StartMachine(node string) {
	w.on(node, func(m *machine) {
		if in, ok := w.fleet.Instance(m.id); ok && (in.PowerState == emulator.PowerStopped || in.PowerState == emulator.PowerDeallocated) {
			w.startMachine(m)
		}
	})
}

// DeleteNode implements worlds.World. A kubelet does not notice before somebody restarts it; one
// that was stopped by a seal meanwhile stays silent until the next boot.
func (w *World) DeleteNode(node string) {
	w.on(node, func(m *machine) {
		w.check("delete node", w.station.admin.CoreV1().Nodes().Delete(w.ctx, node, metav1.DeleteOptions{}))
		w.dirty.nodes = true
		w.refresh()
		w.audit.Person(&w.state, node)
		if m.Kubelet {
			m.Later(time.Second, func() {
				if m.Kubelet {
					w.register(m)
				}
			})
		}
	})
}

// EditNode implements worlds.World: what an edit can change is unschedulable, annotations, labels
// and taints.
func (w *World) EditNode(node string, edit func(*kamino.Node) bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	have, err := w.station.admin.CoreV1().Nodes().Get(w.ctx, node, metav1.GetOptions{})
	if err != nil {
		w.check("read node", err)
		return
	}
	n := kamino.Node{Name: node, Unschedulable: have.Spec.Unschedulable, Annotations: have.Annotations, Labels: have.Labels}
	for _, t := range have.Spec.Taints {
		n.Taints = append(n.Taints, kamino.Taint{Key: t.Key, Value: t.Value, Effect: string(t.Effect)})
	}
	if !edit(&n) {
		return
	}
	taints := []map[string]string{}
	for _, t := range n.Taints {
		taints = append(taints, map[string]string{"key": t.Key, "value": t.Value, "effect": t.Effect})
	}
	patch, err := json.Marshal([]map[string]any{
		{"op": "test", "path": "/metadata/resourceVersion", "value": have.ResourceVersion},
		{"op": "add", "path": "/metadata/annotations", "value": n.Annotations},
		{"op": "add", "path": "/metadata/labels", "value": n.Labels},
		{"op": "add", "path": "/spec/taints", "value": taints},
		{"op": "add", "path": "/spec/unschedulable", "value": n.Unschedulable},
	})
	if err == nil {
		_, err = w.station.admin.CoreV1().Nodes().Patch(w.ctx, node, types.JSONPatchType, patch, metav1.PatchOptions{})
	}
	w.check("edit node", err)
	w.dirty.nodes = true
	w.refresh()
	w.audit.Person(&w.state, node)
}

// PutBack implements worlds.World.
func (w *World) PutBack(node string) {
	w.gitOps.Store(true)
	worlds.PutBack(w, node, func() bool { return !w.gitOps.Load() })
}

// SwapDisk implements worlds.World. What is on the new disk boots as a node of its own.
func (w *World) SwapDisk(node string) {
	w.on(node, func(m *machine) {
		in, ok := w.fleet.Instance(m.id)
		i := slices.IndexFunc(w.state.Nodes, func(n invariant.Node) bool { return n.Name == node })
		off := in.PowerState == emulator.PowerStopped || in.PowerState == emulator.PowerDeallocated
		switch {
		case !ok || i < 0 || !off && w.state.Nodes[i].Annotations[kamino.AnnotationRun] == "":
		case !off:
			w.clock.virtual.AfterFunc(2*time.Second, func() { w.SwapDisk(node) })
		default:
			w.cloud.swapDisk(m)
			w.writeDisk(m, func(files map[string]string) {
				clear(files)
				files[nodes.MachineIDFile] = "machine-id of another disk\n"
				if w.shape.Patch {
					sources(files)
				}
			})
			w.changes.Lock()
			w.moved = true
			w.changes.Unlock()
			w.refresh()
		}
	})
}

func (w *onAzure) swapDisk(m *machine) { w.cloud.SwapDisk(m.id) }

// HoldPods implements worlds.World: there is one budget.
func (w *World) HoldPods(string) { w.budgetAllows(0) }

// volumeName is the PersistentVolume on a node's own disk; comesPrefix begins the names of pods
// that come back.
const (
	volumeName  = "local-pv"
	comesPrefix = "net-operator-"
)

// BindVolume implements worlds.World.
func (w *World) BindVolume(node string) {
	w.on(node, func(m *machine) {
		i := slices.IndexFunc(w.state.Nodes, func(n invariant.Node) bool { return n.Name == node })
		if i < 0 || !m.Kubelet || slices.Contains(w.state.Nodes[i].Taints, kamino.TaintBlock) {
			return
		}
		_, err := w.station.admin.CoreV1().PersistentVolumes().Create(w.ctx,
			&corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: volumeName}, Spec: corev1.PersistentVolumeSpec{
				Capacity:                      corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")},
				AccessModes:                   []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
				PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain, StorageClassName: "local",
				ClaimRef: &corev1.ObjectReference{Kind: "PersistentVolumeClaim", Namespace: metav1.NamespaceDefault,
					Name: "data-db-0"},
				PersistentVolumeSource: corev1.PersistentVolumeSource{Local: &corev1.LocalVolumeSource{Path: "/mnt/nvme0"}},
				NodeAffinity: &corev1.VolumeNodeAffinity{
					Required: &corev1.NodeSelector{
						NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{
							{Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: []string{node}}}}}}},
			}}, metav1.CreateOptions{})
		w.check("bind volume", err)
		m.local = err == nil
		w.readKubelets()
	})
}

// dropVolumes deletes the volumes, which no controller protects here.
func (s *Station) dropVolumes(ctx context.Context) error {
	volumes := s.admin.CoreV1().PersistentVolumes()
	_, err := volumes.Patch(ctx, volumeName, types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
	if err == nil {
		err = volumes.Delete(ctx, volumeName, metav1.DeleteOptions{})
	}
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// PodComesBack implements worlds.World.
func (w *World) PodComesBack(node string) {
	w.on(node, func(m *machine) {
		if m.Kubelet {
			w.coming = true
			w.comes(m)
			w.refresh()
		}
	})
}

// comes lets the scheduler put such a pod on a machine's node. mu is held.
func (w *World) comes(m *machine) {
	yes := true
	pods := w.station.admin.CoreV1().Pods(metav1.NamespaceDefault)
	pod, err := pods.Create(w.ctx, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{GenerateName: comesPrefix, OwnerReferences: []metav1.OwnerReference{
			{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "net-operator", UID: "22222222-2222-2222-2222-222222222222",
				Controller: &yes}}},
		Spec: corev1.PodSpec{NodeName: m.node, Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
			Containers: []corev1.Container{{Name: "main", Image: "registry.invalid/main:1"}}},
	}, metav1.CreateOptions{})
	if err == nil {
		pod.Status = corev1.PodStatus{Phase: corev1.PodRunning}
		_, err = pods.UpdateStatus(w.ctx, pod, metav1.UpdateOptions{})
	}
	w.check("create pod", err)
	w.dirty.pods = true
}

// moveAway is what persons do about volumes and pods that keep a node from being a donor. mu is
// held.
func (w *World) moveAway() {
	w.coming = false
	w.check("drop volumes", w.station.dropVolumes(w.ctx))
	for _, p := range w.state.Pods {
		if namespace, name, _ := strings.Cut(p.Name, "/"); strings.HasPrefix(name, comesPrefix) {
			if err := w.station.admin.CoreV1().Pods(namespace).Delete(w.ctx, name,
				metav1.DeleteOptions{GracePeriodSeconds: new(int64)}); !apierrors.IsNotFound(err) {
				w.check("delete pod", err)
			}
		}
	}
	for _, m := range w.machines {
		m.local = false
	}
	w.dirty.pods = true
	w.readKubelets()
}

// Conflict implements worlds.World.
func (w *World) Conflict(d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.conflicts = w.clock.Now().Add(d)
}

// LimitPods implements worlds.World.
func (w *World) LimitPods(by worlds.PodLimit) {
	w.check("keep pods out by "+string(by), w.station.limitPods(w.ctx, by))
}

// CutAPI implements worlds.World.
func (w *World) CutAPI(d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.apiAway = w.clock.Now().Add(d)
}

// SlowWrites implements worlds.World.
func (w *World) SlowWrites(d time.Duration) { w.slowWrites.Store(int64(d)) }

const personsImage = "Canonical:ubuntu-24_04-lts:server:latest"

// SetImage implements worlds.World.
func (w *onAzure) SetImage() {
	parts := strings.Split(personsImage, ":")
	w.arm(http.MethodPatch, w.scenario.PoolID(poolName),
		map[string]any{"properties": map[string]any{"virtualMachineProfile": map[string]any{
			"storageProfile": map[string]any{"imageReference": map[string]string{"publisher": parts[0], "offer": parts[1], "sku": parts[2],
				"version": parts[3]}}}}}, nil)
	w.mu.Lock()
	defer w.mu.Unlock()
	// Before the run has looked at the model, it finds what the person wrote there.
	if w.lease().Holder != "" {
		w.person = personsImage
	}
	w.changes.Lock()
	w.moved = true
	w.changes.Unlock()
	w.refresh()
}

// Resize implements worlds.World.
func (w *onAzure) Resize(by int) {
	id := w.scenario.PoolID(poolName)
	doc := w.cloud.Document(id)
	w.arm(http.MethodPatch, id, map[string]any{"sku": map[string]any{"name": textAt(doc, "sku", "name"),
		"capacity": intAt(doc, "sku", "capacity") + by}}, nil)
}

// Size implements worlds.World.
func (w *onAzure) Size() int {
	return intAt(w.cloud.Document(w.scenario.PoolID(poolName)), "sku", "capacity")
}

// Reboot implements worlds.World.
func (w *World) Reboot(node string) {
	w.on(node, func(m *machine) {
		if m.on && m.Kubelet {
			m.Restart(true)
			w.refresh()
			w.audit.Person(&w.state, node)
		}
	})
}

// Forge implements worlds.World.
func (w *World) Forge(node string) {
	w.on(node, func(m *machine) {
		i := slices.IndexFunc(w.state.Nodes, func(n invariant.Node) bool { return n.Name == node })
		if i < 0 || !m.Kubelet || w.state.Nodes[i].Annotations[kamino.AnnotationRun] != "" || len(w.state.Nodes[i].Taints) > 0 {
			return
		}
		text, err := json.Marshal(kamino.Mark{Format: 1, Run: "forged", Pool: kamino.PoolID(w.pool),
			Instance: kamino.InstanceID(nodes.ProviderID(m.id)),
			VMID:     m.vm, BootID: m.boot.Boot().ID, Sealing: true})
		w.check("forge mark", err)
		w.audit.Forged(node, string(text))
		m.Tell(kamino.AnnotationRun, string(text))
		w.forged = m
		m.Silence()
	})
}

// unforge is a person who takes a forged mark off, and starts the kubelet of who forged it.
func (w *World) unforge() {
	m := w.forged
	if m == nil {
		return
	}
	w.forged = nil
	w.EditNode(m.node, func(n *kamino.Node) bool { delete(n.Annotations, kamino.AnnotationRun); return true })
	w.mu.Lock()
	defer w.mu.Unlock()
	if m.on && !m.Kubelet {
		m.Restart(false)
	}
}

// Exclude implements worlds.World.
func (w *onAzure) Exclude() {
	var newest, id string
	for _, e := range w.cloud.State() {
		a := artifactOf(e, w.pool)
		hidden, _ := at(e.Document, "properties", "publishingProfile", "excludeFromLatest").(bool)
		if a.Kind == invariant.Version && strings.Contains(strings.ToLower(e.ID), "/versions/") && a.Ready && !hidden &&
			(newest == "" || kamino.CompareVersions(a.Name, newest) > 0) {
			newest, id = a.Name, e.ID
		}
	}
	if id != "" {
		w.cloud.Change(id, `{"properties":{"publishingProfile":{"excludeFromLatest":true}}}`)
	}
}

// Refuse implements worlds.World.
func (w *onAzure) Refuse() { w.setPool(`{"properties":{"upgradePolicy":{"mode":"Automatic"}}}`, false) }

// Own implements worlds.World. That CAPZ writes its image back is the emulator's to play.
func (w *onAzure) Own() {
	tags, err := json.Marshal(map[string]any{"tags": emulator.CAPZTags("blue")})
	w.check("write tags", err)
	w.setPool(string(tags), true)
}

// setPool changes the pool, and says whether it has an owner from now on.
func (w *onAzure) setPool(change string, owned bool) {
	w.cloud.Change(w.scenario.PoolID(poolName), change)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.owned = owned
	w.changes.Lock()
	w.moved = true
	w.changes.Unlock()
	w.refresh()
	w.audit.Changed(&w.state)
}

// allowed mends what those did who have more rights than Kamino.
func (w *onAzure) allowed() {
	w.cloud.SetRoles(clientID, roles(w.scenario)...)
	w.cloud.SetPolicies()
	w.cloud.Lock(w.group(), "keep", "")
	tags := map[string]any{}
	for name := range emulator.CAPZTags("blue") {
		tags[name] = nil
	}
	if w.shape.Owned {
		clear(tags)
	}
	if policy := textAt(w.cloud.Document(w.scenario.PoolID(poolName)), "properties", "upgradePolicy", "mode"); w.owned ||
		policy != "Manual" {
		text, err := json.Marshal(map[string]any{"tags": tags,
			"properties": map[string]any{"upgradePolicy": map[string]any{"mode": "Manual"}}})
		w.check("write tags", err)
		w.setPool(string(text), w.shape.Owned)
	}
}

func (w *onAzure) group() string {
	return fmt.Sprintf("/subscriptions/%s/resourceGroups/%s", w.scenario.Subscription, w.scenario.ResourceGroup)
}

// Revoke implements worlds.World.
func (w *onAzure) Revoke() { w.cloud.SetRoles(clientID) }

// Lock implements worlds.World.
func (w *onAzure) Lock() { w.cloud.Lock(w.group(), "keep", "CanNotDelete") }

// Deny implements worlds.World.
func (w *onAzure) Deny() {
	w.cloud.SetPolicies(emulator.Policy{Name: "no images", Type: "Microsoft.Compute/galleries/**"},
		emulator.Policy{Name: "no snapshots", Type: "Microsoft.Compute/snapshots"})
}

// DeleteLease implements worlds.World.
func (w *World) DeleteLease() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.check("delete lease", w.station.admin.CoordinationV1().Leases(kamino.SystemNamespace).DeleteCollection(w.ctx,
		metav1.DeleteOptions{}, managed))
	w.audit.LeaseDeleted(w.pool, w.clock.Now())
	w.dirty.leases = true
	w.refresh()
}

const (
	// mostOfAnnotations is what all of an object may have together
	// (https://kubernetes.io/docs/concepts/overview/working-with-objects/annotations/).
	mostOfAnnotations = 256 << 10
	// filling is an annotation of others.
	filling = "example.com/filling"
)

// FullLease implements worlds.World.
func (w *World) FullLease(room int) {
	w.fillLease(func(size int) any { return strings.Repeat("x", max(mostOfAnnotations-size-room, 0)) })
}

// fillLease writes the annotation of others on the leases, by the size of their annotations without
// it; nil removes it.
func (w *World) fillLease(content func(size int) any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	leases := w.station.admin.CoordinationV1().Leases(kamino.SystemNamespace)
	list, err := leases.List(w.ctx, managed)
	if err != nil {
		w.check("list leases", err)
		return
	}
	for _, l := range list.Items {
		size := len(filling)
		for key, value := range l.Annotations {
			if key != filling {
				size += len(key) + len(value)
			}
		}
		patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]any{filling: content(size)}}})
		if err == nil {
			_, err = leases.Patch(w.ctx, l.Name, types.MergePatchType, patch, metav1.PatchOptions{})
		}
		w.check("write the annotation of others on the lease", err)
	}
	w.dirty.leases = true
	w.refresh()
}

// backup is what the cluster held of Kamino before the first run.
type backup struct {
	leases []coordinationv1.Lease
	nodes  []corev1.Node
}

func (w *World) backUp() error {
	leases, err := w.station.admin.CoordinationV1().Leases(metav1.NamespaceAll).List(w.ctx, managed)
	if err != nil {
		return fmt.Errorf("list leases: %w", err)
	}
	list, err := w.station.admin.CoreV1().Nodes().List(w.ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("list nodes: %w", err)
	}
	w.backup = backup{leases.Items, list.Items}
	return nil
}

// RestoreEtcd implements worlds.World.
func (w *World) RestoreEtcd() {
	w.DeleteLease()
	w.DeletePods()
	for i := range w.backup.leases {
		l := w.backup.leases[i].DeepCopy()
		l.UID, l.ResourceVersion = "", ""
		_, err := w.station.admin.CoordinationV1().Leases(l.Namespace).Create(w.ctx, l, metav1.CreateOptions{})
		w.check("create lease", err)
	}
	for _, then := range w.backup.nodes {
		now, err := w.station.admin.CoreV1().Nodes().Get(w.ctx, then.Name, metav1.GetOptions{})
		if err != nil || now.UID != then.UID {
			continue
		}
		w.EditNode(then.Name, func(n *kamino.Node) bool {
			n.Annotations, n.Labels, n.Taints = then.Annotations, then.Labels, nil
			for _, t := range then.Spec.Taints {
				n.Taints = append(n.Taints, kamino.Taint{Key: t.Key, Value: t.Value, Effect: string(t.Effect)})
			}
			return true
		})
	}
}

// DeletePods implements worlds.World.
func (w *World) DeletePods() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.check("delete pods", w.station.admin.CoreV1().Pods(kamino.SystemNamespace).DeleteCollection(w.ctx,
		metav1.DeleteOptions{GracePeriodSeconds: new(int64)}, metav1.ListOptions{}))
	w.dirty.pods = true
	w.refresh()
}

// Squat implements worlds.World.
func (w *World) Squat() {
	w.mu.Lock()
	defer w.mu.Unlock()
	run := w.lease().Holder
	if run == "" {
		return
	}
	for _, task := range []kamino.Task{kamino.TaskSeal, kamino.TaskInventory, kamino.TaskCheck, kamino.TaskPatch,
		kamino.TaskReboot, kamino.TaskLook} {
		w.check("make a pod of a stranger's", w.station.leases.StartAgent(w.ctx, kamino.Node{Name: worlds.NoNode}, task,
			kamino.SealOrder{Run: run, Patch: []byte("{}")}))
	}
	pods := w.station.admin.CoreV1().Pods(kamino.SystemNamespace)
	list, err := pods.List(w.ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=" + worlds.NoNode})
	w.check("list the pods of a stranger's", err)
	for i := range list.Items {
		list.Items[i].Status.Phase = corev1.PodSucceeded
		_, err := pods.UpdateStatus(w.ctx, &list.Items[i], metav1.UpdateOptions{})
		w.check("end a pod of a stranger's", err)
	}
	w.dirty.pods = true
	w.refresh()
}

func (w *onAzure) snapshot() string {
	return w.group() + "/providers/Microsoft.Compute/snapshots/" + kamino.SnapshotName(poolName)
}

// DeleteSnapshot implements worlds.World.
func (w *onAzure) DeleteSnapshot() { w.arm(http.MethodDelete, w.snapshot(), nil, nil) }

// Script implements worlds.World.
func (w *onAzure) Script(node string) {
	w.on(node, func(m *machine) {
		in, ok := w.cloud.Instance(m.id)
		if _, taken := w.cloud.Document(w.snapshot())["id"]; ok && !taken {
			w.arm(http.MethodPut, w.snapshot(), map[string]any{"location": w.scenario.Location,
				"tags": map[string]string{kamino.TagBuiltFrom: node},
				"properties": map[string]any{"hyperVGeneration": "V2",
					"creationData": map[string]string{"createOption": "Copy", "sourceResourceId": in.OSDiskID}}}, nil)
		}
	})
}

// After implements worlds.World.
func (w *World) After(d time.Duration, do func()) { w.clock.virtual.AfterFunc(d, do) }

// mend is what persons do about budgets and machines that do not come back: the cause is mended,
// and who stands there without a kubelet boots.
func (w *World) mend() {
	w.budgetAllows(1)
	w.SlowWrites(0)
	w.gitOps.Store(false)
	w.check("let pods in", w.station.dropLimits(w.ctx))
	w.fillLease(func(int) any { return nil })
	w.allowed()
	w.unforge()
	w.reconcile()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mendPackages()
	w.moveAway()
	for _, m := range w.machines {
		stuck := (m.Fate == worlds.NeverBoots || w.shape.Patch) && m.on && !m.Kubelet
		if m.Fate = worlds.Healthy; stuck {
			m.Restart(false)
		}
	}
}

// mended says that a person has put the model back, or that the run which it
// disturbed is over: the next run may replace what stands there.
func (w *World) mended() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.person = ""
	w.changes.Lock()
	w.moved = true
	w.changes.Unlock()
}

// freshDonor chooses another donor where the first one is gone.
func (w *World) freshDonor() kamino.Options {
	o := w.options()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.dirty.nodes = true
	w.refresh()
	if w.donorGone() {
		o.Donor = w.spare
	}
	for _, n := range w.state.Nodes { // the spare may be gone as well, where a group acts by itself
		if w.shape.Group != nil && n.Ready && n.Pool == w.pool && w.machineNamed(o.Donor) == nil {
			o.Donor = n.Name
		}
	}
	o.AdoptModel = true // whoever runs it again means it, whatever a person chose meanwhile
	return o
}
