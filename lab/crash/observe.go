package crash

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	nodeutil "k8s.io/kubernetes/pkg/util/node"

	"kamino.dev/kamino"
	"kamino.dev/kamino/azure/emulator"
	"kamino.dev/kamino/internal/invariant"
	"kamino.dev/kamino/internal/worlds"
	"kamino.dev/kamino/lab/nodes"
)

// ask makes one request of kube-apiserver and reads the whole answer.
func (s *Station) ask(ctx context.Context, method, url string, header http.Header, content []byte) (*reply, error) {
	req, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(content))
	if err != nil {
		return nil, err
	}
	for _, key := range []string{"Content-Type", "Accept", "User-Agent"} {
		req.Header[key] = header[key]
	}
	resp, err := s.toServer.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	out := newReply()
	out.status, out.header = resp.StatusCode, resp.Header
	_, err = io.Copy(&out.body, resp.Body)
	return out, err
}

func body(content []byte) io.ReadCloser { return io.NopCloser(bytes.NewReader(content)) }

func vmIDIn(content []byte) string {
	var doc struct {
		Properties struct {
			VMID string `json:"vmId"`
		} `json:"properties"`
	}
	_ = json.Unmarshal(content, &doc) // no JSON, no ID
	return doc.Properties.VMID
}

// refresh reads what may have changed. It makes new slices, so that a copy of
// the state stays what it was. mu is held.
func (w *World) refresh() {
	w.state.Now = w.clock.Now()
	w.changes.Lock()
	moved := w.moved
	w.moved = false
	w.changes.Unlock()
	if moved || w.state.Pools == nil || w.shape.Group != nil { // groups change without a word
		w.readCloud()
	} else {
		w.readKubelets()
	}
	dirty := w.dirty
	w.dirty = dirt{}
	err := error(nil)
	if dirty.nodes {
		err = errors.Join(err, w.readNodes())
	}
	if dirty.pods {
		err = errors.Join(err, w.readPods())
	}
	if dirty.leases {
		err = errors.Join(err, w.readLeases())
	}
	if err != nil && w.trouble == nil {
		w.trouble = fmt.Errorf("look at the world: %w", err)
	}
}

// readKubelets takes over which kubelets run.
func (w *World) readKubelets() {
	w.state.Machines = slices.Clone(w.state.Machines)
	for i := range w.state.Machines {
		m := &w.state.Machines[i]
		room := w.machines[strings.TrimPrefix(m.ID, azureScheme)] // on AWS it has no other name
		m.Kubelet, m.Local = room != nil && room.Kubelet, room != nil && room.local
		w.readPatch(m, room)
	}
}

// readPatch takes over what a patch does to a machine.
func (w *World) readPatch(m *invariant.Machine, room *machine) {
	if room != nil && w.shape.Patch {
		m.Upgrading, m.Unseen, m.InOrder = room.Working(), room.Unseen, w.inOrder(room)
	}
}

func (w *World) readNodes() error {
	list, err := w.station.admin.CoreV1().Nodes().List(w.ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	nodes := make([]invariant.Node, 0, len(list.Items))
	for i := range list.Items {
		n := &list.Items[i]
		node := invariant.Node{Name: n.Name, ProviderID: strings.ToLower(n.Spec.ProviderID), SystemUUID: n.Status.NodeInfo.SystemUUID,
			Pool:          w.poolOf(n.Spec.ProviderID),
			Unschedulable: n.Spec.Unschedulable, Annotations: n.Annotations, Ready: nodeutil.IsNodeReady(n)}
		if w.canaries[n.Name] && !strings.HasPrefix(n.Name, canaryPrefix) { // as invariants know them
			node.Name = canaryPrefix + n.Name
		}
		for _, t := range n.Spec.Taints {
			node.Taints = append(node.Taints, t.Key)
		}
		nodes = append(nodes, node)
	}
	w.state.Nodes = nodes
	return nil
}

func (w *World) readPods() error {
	list, err := w.station.admin.CoreV1().Pods("").List(w.ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	w.state.SealPods, w.state.AgentPods, w.state.Pods = nil, nil, nil
	for i := range list.Items {
		p := &list.Items[i]
		if p.Spec.NodeName == worlds.NoNode { // somebody else's: what of it is left is nobody's debt
			continue
		}
		if run, ok := strings.CutPrefix(p.Name, sealPrefix); ok {
			w.state.SealPods = append(w.state.SealPods,
				invariant.SealPod{Run: run, Node: p.Spec.NodeName, Failed: p.Status.Phase == corev1.PodFailed})
			continue
		}
		if looks := agentPod.MatchString(p.Name); looks || strings.HasPrefix(p.Name, patchPrefix) {
			run := strings.TrimPrefix(agentPod.ReplaceAllString(p.Name, ""), patchPrefix)
			w.state.AgentPods = append(w.state.AgentPods,
				invariant.SealPod{Run: run, Node: p.Spec.NodeName, Failed: p.Status.Phase == corev1.PodFailed})
			continue
		}
		owner := metav1.GetControllerOf(p)
		w.state.Pods = append(w.state.Pods, invariant.Pod{Name: p.Namespace + "/" + p.Name, Node: p.Spec.NodeName, Stays: owner != nil &&
			owner.Kind == "DaemonSet" || strings.HasPrefix(p.Name, comesPrefix)})
	}
	return nil
}

func (w *World) readLeases() error {
	list, err := w.station.leases.Leases(w.ctx)
	if err != nil {
		return err
	}
	w.state.Leases = nil
	for _, l := range list {
		w.state.Leases = append(w.state.Leases, leaseOf(l))
	}
	return nil
}

// processOf is the name of a process without the random end that the command gives it, which nobody
// outside knows.
func processOf(name string) string {
	if at := strings.LastIndex(name, "-"); at > strings.LastIndex(name, "/") && strings.Contains(name, "/") {
		return name[:at]
	}
	return name
}

func leaseOf(l kamino.Lease) invariant.Lease {
	out := invariant.Lease{Pool: string(l.Pool), Holder: l.Holder, Process: processOf(l.Process), Epoch: l.Epoch,
		Acts: texts(l.Record.Acts), DonorVM: l.Record.VMID, Version: l.Record.Version}
	if l.Ledger.Former != nil {
		out.Former = l.Ledger.Former.Image
	}
	if l.Ledger.Original != nil {
		out.Original = l.Ledger.Original.Image
	}
	return out
}

// takeLease reads a pool's lease from the answer to a write, which saves asking
// for it; false if the answer is something else.
func (w *World) takeLease(answer []byte) bool {
	object, _, err := scheme.Codecs.UniversalDeserializer().Decode(answer, nil, nil)
	l, ok := object.(*coordinationv1.Lease)
	if err != nil || !ok || l.Namespace != kamino.SystemNamespace || l.Annotations["kamino.dev/pool"] == "" {
		return false
	}
	lease := kamino.Lease{Pool: kamino.PoolID(l.Annotations["kamino.dev/pool"]), Process: l.Annotations["kamino.dev/process"]}
	if json.Unmarshal([]byte(l.Annotations["kamino.dev/record"]), &lease.Record) != nil ||
		json.Unmarshal([]byte(l.Annotations["kamino.dev/ledger"]), &lease.Ledger) != nil {
		return false
	}
	if l.Spec.HolderIdentity != nil {
		lease.Holder = *l.Spec.HolderIdentity
	}
	if l.Spec.LeaseTransitions != nil {
		lease.Epoch = int64(*l.Spec.LeaseTransitions)
	}
	// There is one pool.
	w.state.Leases = []invariant.Lease{leaseOf(lease)}
	return true
}

// readCloud reads pools, machines and artifacts from the emulator's documents.
func (w *onAzure) readCloud() {
	w.state.Pools, w.state.Machines, w.state.Artifacts, w.state.Canaries = []invariant.Pool{}, nil, nil, nil
	latest := invariant.Artifact{Name: "0.0.0"}
	for _, e := range w.cloud.State() {
		lower := strings.ToLower(e.ID)
		switch set := strings.HasSuffix(strings.ToLower(e.Type), "virtualmachinescalesets"); {
		case set && textAt(e.Document, "tags", kamino.TagCanary) != "":
			w.state.Canaries = append(w.state.Canaries, invariant.Canary{Name: kamino.PoolID(lower).Name(), Pool: w.pool,
				Run: textAt(e.Document, "tags", kamino.TagRun)})
		case set:
			image, _ := at(e.Document, "properties", "virtualMachineProfile", "storageProfile", "imageReference").(map[string]any)
			w.state.Pools = append(w.state.Pools, invariant.Pool{ID: lower, Image: imageText(image), Revision: textAt(e.Document, "etag"),
				Capacity: intAt(e.Document, "sku", "capacity"), Person: w.person, Owned: w.owned,
				Refused: w.owned && !pointsAt(imageText(image)) || textAt(e.Document, "properties", "upgradePolicy", "mode") != "Manual"})
		case strings.Contains(lower, "/galleries/"), strings.Contains(lower, "/snapshots/"):
			a := artifactOf(e, w.pool)
			w.state.Artifacts = append(w.state.Artifacts, a)
			if hidden, _ := at(e.Document, "properties", "publishingProfile", "excludeFromLatest").(bool); !hidden &&
				a.Kind == invariant.Version &&
				textAt(e.Document, "properties", "provisioningState") != "Creating" && a.State != "Failed" &&
				kamino.CompareVersions(a.Name, latest.Name) > 0 {
				latest = a
			}
		}
	}
	for i := range w.state.Pools { // there is one definition
		if p := &w.state.Pools[i]; strings.HasPrefix(strings.ToLower(latest.ID), strings.ToLower(p.Image)+"/versions/") {
			p.Next = latest.ID
		}
	}
	for _, in := range w.fleet.Instances() {
		w.state.Machines = append(w.state.Machines, w.machineState(in))
	}
}

// poolOf is the scale set of an instance.
func (w *onAzure) poolOf(instance string) string {
	set, _, _ := strings.Cut(strings.TrimPrefix(strings.ToLower(instance), "azure://"), "/virtualmachines/")
	return set
}

func (w *World) machineState(in emulator.Instance) invariant.Machine {
	m := invariant.Machine{Service: w.inService(in), ID: machineID(in.ID), VM: w.vmOf(in.VMID), Pool: w.poolOf(in.ID), Disk: in.OSDiskID,
		Image: in.ImageID, Power: invariant.Between}
	switch in.PowerState {
	case emulator.PowerRunning:
		m.Power = invariant.On
	case emulator.PowerStopped, emulator.PowerDeallocated:
		m.Power = invariant.Off
	}
	room := w.machines[strings.ToLower(in.ID)]
	if room != nil {
		m.Kubelet, m.Served, m.Local = room.Kubelet && m.Power == invariant.On, room.served, room.local
		w.readPatch(&m, room)
	}
	files, err := w.fleet.ReadDisk(in.ID)
	if err != nil {
		return m
	}
	var receipt kamino.Receipt
	if json.Unmarshal([]byte(files[nodes.ReceiptFile]), &receipt) == nil {
		m.Sealed, m.Receipt = receipt.Run, receipt.Hash
	}
	if files[nodes.MachineIDFile] == "" && room != nil && room.boot != nil {
		m.Touched = receipt.Run
		if m.Touched == "" {
			m.Touched = "half a seal"
		}
	}
	return m
}

// made says whether Kamino made an artifact of this pool, as its tags tell.
func made(tag func(string) string) bool {
	return tag(kamino.TagPoolUID) != formerPool && (tag(kamino.TagRun) != "" || tag(kamino.TagBuiltFrom) != "")
}

// formerPool is the ID of an earlier pool that had the pool's name.
const formerPool = "11111111-2222-3333-4444-555555555555"

// ofFormerPool are the tags of a version that Kamino made of that pool, and promoted.
func ofFormerPool(node string) map[string]string {
	return map[string]string{kamino.TagRun: "of-another-cluster", kamino.TagPoolUID: formerPool, kamino.TagBuiltFrom: node,
		kamino.TagOffer: "offered",
		kamino.TagProof: "passed", kamino.TagReceipt: "sha256:" + strings.Repeat("1", 64)}
}

func artifactOf(e emulator.StateEntry, pool string) invariant.Artifact {
	tags, _ := e.Document["tags"].(map[string]any)
	tag := func(name string) string { s, _ := tags[name].(string); return s }
	a := invariant.Artifact{Kind: invariant.Version, Pool: pool, ID: e.ID, Name: e.ID[strings.LastIndexByte(e.ID, '/')+1:],
		State: textAt(e.Document, "properties", "provisioningState"), Run: tag(kamino.TagRun), Receipt: tag(kamino.TagReceipt),
		Ours: made(tag)}
	switch lower := strings.ToLower(e.ID); {
	case strings.Contains(lower, "/snapshots/"):
		a.Kind = invariant.Snapshot
		a.Source = textAt(e.Document, "properties", "creationData", "sourceResourceId")
	case !strings.Contains(lower, "/images/"):
		a.Kind = invariant.Gallery
	case !strings.Contains(lower, "/versions/"):
		a.Kind = invariant.Definition
	default:
		a.Source = textAt(e.Document, "properties", "storageProfile", "osDiskImage", "source", "id")
		if a.Source == "" {
			a.Source = textAt(e.Document, "properties", "storageProfile", "source", "id")
		}
	}
	if a.State == "Updating" {
		// What was made serves while its tags or flags change; a snapshot is not ready before.
		if a.State = "Succeeded"; a.Kind == invariant.Snapshot {
			a.State = "Creating"
		}
	}
	a.Ready = a.State == "Succeeded"
	return a
}

// pointsAt says whether a model refers to the pool's definition.
func pointsAt(image string) bool {
	return strings.HasSuffix(strings.ToLower(image), "/images/"+strings.ToLower(kamino.DefinitionName(poolName)))
}

// at walks down a document.
func at(doc any, path ...string) any {
	for _, name := range path {
		next, _ := doc.(map[string]any)
		doc = next[name]
	}
	return doc
}

func textAt(doc any, path ...string) string { s, _ := at(doc, path...).(string); return s }

func intAt(doc any, path ...string) int {
	switch n := at(doc, path...).(type) {
	case float64:
		return int(n)
	case int:
		return n
	case int64:
		return int(n)
	}
	return 0
}

func texts(acts []kamino.Act) []string {
	out := make([]string, len(acts))
	for i, a := range acts {
		out[i] = string(a)
	}
	return out
}
