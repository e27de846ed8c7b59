package crash

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"kamino.dev/kamino"
	"kamino.dev/kamino/azure/emulator"
)

// fill makes the objects that a world begins with.
func (w *World) fill() error {
	if err := w.station.clear(w.ctx); err != nil {
		return fmt.Errorf("clear the cluster: %w", err)
	}
	if err := w.makeModels(w.shape.Models); err != nil {
		return err
	}
	for _, in := range w.fleet.Instances() {
		m := w.newMachine(in)
		m.on, m.Boots = true, 1
		m.Booted()
		if w.donor == "" {
			w.donor = m.node
		} else if w.spare == "" {
			w.spare = m.node
		}
	}
	if w.shape.Old > 0 {
		if err := w.makeHistory(); err != nil {
			return err
		}
		if w.shape.Command != "" && (w.shape.Group != nil || w.shape.Tagged) {
			w.boots(kamino.VersionName(w.start.AddDate(0, 0, -1)))
		}
	}
	if w.shape.Group != nil { // the second is alone in its zone
		w.donor, w.spare = w.spare, w.donor
	}
	w.fleet.Subscribe(w.changed)
	if w.trouble != nil { // a node that could not be registered
		return w.trouble
	}
	if err := w.makePods(); err != nil {
		return err
	}
	if err := w.annotate(); err != nil {
		return err
	}
	if w.shape.Kept {
		if err := w.declare(); err != nil {
			return err
		}
	}
	return w.trouble
}

// makeModels lets the pool grow by an instance for each new model.
func (w *onAzure) makeModels(n int) error {
	id := w.scenario.PoolID(poolName)
	for i := range n {
		sku, _ := w.cloud.Document(id)["sku"].(map[string]any)
		sku = maps.Clone(sku)
		sku["capacity"] = intAt(sku, "capacity") + 1
		custom := base64.StdEncoding.EncodeToString(fmt.Appendf(nil, "#cloud-config\n# %d\n", i))
		if status := w.arm(http.MethodPatch, id, map[string]any{"sku": sku, "properties": map[string]any{
			"virtualMachineProfile": map[string]any{"osProfile": map[string]any{"customData": custom}}}}, nil); status >= 300 {
			return fmt.Errorf("make model %d: %d", i, status)
		}
		w.clock.virtual.Advance(30 * time.Second)
	}
	return nil
}

// managed selects what kamino keeps.
var managed = metav1.ListOptions{LabelSelector: "app.kubernetes.io/managed-by=kamino"}

// annotate puts a person's annotation on the donor, and remembers how the node was
// read before that, so that its first read can be stale.
func (w *World) annotate() error {
	path := "/api/v1/nodes/" + w.donor
	before, err := w.station.ask(w.ctx, http.MethodGet, w.station.serverURL.String()+path,
		http.Header{"Accept": {"application/vnd.kubernetes.protobuf,application/json"}}, nil)
	if err != nil {
		return fmt.Errorf("read node %s: %w", w.donor, err)
	}
	w.older[path] = &answers{now: before}
	notes := map[string]string{"example.com/owner": "a person"}
	if w.shape.Kept { // of two nodes that were never patched either could be the donor
		notes[kamino.KuredLastPatch.Annotation] = w.clock.Now().Format(time.RFC3339)
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": notes}})
	if err != nil {
		return fmt.Errorf("annotate node %s: %w", w.donor, err)
	}
	_, err = w.station.admin.CoreV1().Nodes().Patch(w.ctx, w.donor, types.MergePatchType, patch, metav1.PatchOptions{})
	if err != nil {
		return fmt.Errorf("annotate node %s: %w", w.donor, err)
	}
	return nil
}

// changed notes a change of the cloud; the world reacts when no process is busy.
func (w *World) changed(change emulator.Change) {
	w.changes.Lock()
	defer w.changes.Unlock()
	w.moved = true
	if isMachine(change.ID) && !slices.Contains(w.pending, change.ID) {
		w.pending = append(w.pending, change.ID)
	}
}

// clear deletes what a former world left in the cluster.
func (s *Station) clear(ctx context.Context) error {
	now := metav1.DeleteOptions{GracePeriodSeconds: new(int64)}
	all := metav1.ListOptions{}
	core := s.admin.CoreV1()
	return errors.Join(
		core.Pods(metav1.NamespaceDefault).DeleteCollection(ctx, now, all),
		core.Pods(kamino.SystemNamespace).DeleteCollection(ctx, now, all),
		s.admin.PolicyV1().PodDisruptionBudgets(metav1.NamespaceDefault).DeleteCollection(ctx, now, all),
		core.Nodes().DeleteCollection(ctx, now, all),
		s.admin.CoordinationV1().Leases(corev1.NamespaceNodeLease).DeleteCollection(ctx, now, all),
		s.admin.CoordinationV1().Leases(kamino.SystemNamespace).DeleteCollection(ctx, now, managed),
		s.protos.DeleteCollection(ctx, now, all),
		s.dropVolumes(ctx),
		s.dropLimits(ctx),
	)
}

// makePods puts three pods on the donor: of a Deployment behind a budget, of one
// without, and of a DaemonSet.
func (w *World) makePods() error {
	minimum := intstr.FromInt32(1)
	budgets := w.station.admin.PolicyV1().PodDisruptionBudgets(metav1.NamespaceDefault)
	budget, err := budgets.Create(w.ctx, &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec: policyv1.PodDisruptionBudgetSpec{MinAvailable: &minimum,
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}}}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("create budget: %w", err)
	}
	budget.Status = policyv1.PodDisruptionBudgetStatus{ObservedGeneration: budget.Generation, DisruptionsAllowed: 1, CurrentHealthy: 2,
		DesiredHealthy: 1, ExpectedPods: 2}
	if _, err := budgets.UpdateStatus(w.ctx, budget, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("write status of budget: %w", err)
	}
	for name, kind := range map[string]string{"web": "ReplicaSet", "batch": "ReplicaSet", "agent": "DaemonSet"} {
		yes := true
		pod, err := w.station.admin.CoreV1().Pods(metav1.NamespaceDefault).Create(w.ctx, &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": name},
				OwnerReferences: []metav1.OwnerReference{
					{APIVersion: "apps/v1", Kind: kind, Name: name, UID: "11111111-1111-1111-1111-111111111111", Controller: &yes}}},
			Spec: corev1.PodSpec{NodeName: w.donor, Containers: []corev1.Container{{Name: "main", Image: "registry.invalid/main:1"}}},
		}, metav1.CreateOptions{})
		if err != nil {
			return fmt.Errorf("create pod %s: %w", name, err)
		}
		pod.Status = corev1.PodStatus{Phase: corev1.PodRunning,
			Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}}
		if _, err := w.station.admin.CoreV1().Pods(metav1.NamespaceDefault).UpdateStatus(w.ctx, pod, metav1.UpdateOptions{}); err != nil {
			return fmt.Errorf("write status of pod %s: %w", name, err)
		}
	}
	return nil
}

// budgetAllows writes how many evictions the pods' budget allows, as the
// disruption controller would.
func (w *World) budgetAllows(n int32) {
	budgets := w.station.admin.PolicyV1().PodDisruptionBudgets(metav1.NamespaceDefault)
	budget, err := budgets.Get(w.ctx, "web", metav1.GetOptions{})
	if err == nil {
		budget.Status.DisruptionsAllowed = n
		_, err = budgets.UpdateStatus(w.ctx, budget, metav1.UpdateOptions{})
	}
	if !apierrors.IsNotFound(err) {
		w.check("write status of budget", err)
	}
}

// makeHistory gives the pool a gallery with versions of earlier days.
func (w *onAzure) makeHistory() error {
	group := fmt.Sprintf("/subscriptions/%s/resourceGroups/%s/providers/Microsoft.Compute", w.scenario.Subscription,
		w.scenario.ResourceGroup)
	gallery := group + "/galleries/" + kamino.GalleryName(w.scenario.ResourceGroup)
	definition := gallery + "/images/" + kamino.DefinitionName(poolName)
	source := group + "/snapshots/history"
	w.definition = definition
	var disk, node, of string
	for _, in := range w.cloud.Instances() {
		disk, node, of = in.OSDiskID, strings.ToLower(in.ComputerName), in.ID
	}
	location, pointer := w.scenario.Location, map[string]string{}
	if w.shape.Tagged {
		pointer[kamino.TagPointer] = kamino.TagPointerUnreliable
	}
	steps := []struct {
		method, path string
		body         any
	}{
		{http.MethodPut, gallery, map[string]any{"location": location}},
		{http.MethodPut, definition, map[string]any{"location": location, "tags": pointer,
			"properties": map[string]any{"osType": "Linux", "osState": "Generalized",
				"hyperVGeneration": "V2", "architecture": "x64", "identifier": map[string]string{"publisher": kamino.Publisher,
					"offer": poolName, "sku": "prototype"}}}},
		{http.MethodPut, source, map[string]any{"location": location,
			"properties": map[string]any{"hyperVGeneration": "V2", "creationData": map[string]string{
				"createOption": "Copy", "sourceResourceId": disk}}}},
	}
	add := func(name string, hidden bool, tags map[string]string) {
		steps = append(steps, struct {
			method, path string
			body         any
		}{http.MethodPut, definition + "/versions/" + name, map[string]any{"location": location, "tags": tags, "properties": map[string]any{
			"publishingProfile": map[string]any{"excludeFromLatest": hidden,
				"targetRegions": []any{map[string]any{"name": location, "regionalReplicaCount": 1, "storageAccountType": "Standard_LRS"}}},
			"storageProfile": map[string]any{"osDiskImage": map[string]any{"source": map[string]string{"id": source}}}}}})
	}
	add(kamino.VersionName(w.start.AddDate(0, 0, -2*w.shape.Old)), false, map[string]string{"team": "x"}) // somebody else's
	add(kamino.VersionName(w.start.AddDate(0, 0, -2*w.shape.Old-1)), false, ofFormerPool("old-node"))
	for i := range w.shape.Old {
		day := w.start.AddDate(0, 0, i-w.shape.Old)
		tags := map[string]string{kamino.TagBuiltFrom: node, kamino.TagBuiltAt: day.Format(kamino.BuiltAtFormat),
			kamino.TagOffer: "offered"}
		if w.shape.Command != "" { // what nobody sealed is no way back
			tags[kamino.TagReceipt] = "sha256:" + strings.Repeat("0", 64)
		}
		add(kamino.VersionName(day), false, tags)
		switch tags = maps.Clone(tags); i {
		case 0:
			tags[kamino.TagOffer] = "hidden"
			add(kamino.VersionName(day)+"01", true, tags)
		case 1:
			tags[kamino.TagOffer], tags[kamino.TagBad] = "withdrawn", "rolled back"
			add(kamino.VersionName(day)+"01", true, tags)
		}
	}
	if w.shape.hidden() {
		add(kamino.VersionName(w.start), true, map[string]string{"packer": "yes"})
	}
	steps = append(steps, struct {
		method, path string
		body         any
	}{http.MethodDelete, source, nil})
	if err := w.asSealed(w.machines[strings.ToLower(of)], func() error {
		for _, s := range steps {
			if status := w.arm(s.method, s.path, s.body, nil); status >= 300 {
				return fmt.Errorf("make history: %s %s: %d", s.method, s.path, status)
			}
			w.clock.virtual.Advance(30 * time.Second)
		}
		return nil
	}); err != nil {
		return err
	}
	if w.shape.Points {
		w.cloud.Change(w.scenario.PoolID(poolName), fmt.Sprintf(`{"properties":{"virtualMachineProfile":{"storageProfile":{"imageReference":{"id":%q,
			"publisher":null,"offer":null,"sku":null,"version":null}}}}}`, definition))
	}
	return nil
}

// arm is a call of somebody else at the cloud.
func (w *onAzure) arm(method, path string, content any, header map[string]string) int {
	return w.foreign(method, path, content, header).status
}

// ask is one whose answer matters.
func (w *onAzure) ask(method, path string, content map[string]any) (map[string]any, error) {
	var sent any
	if content != nil {
		sent = content
	}
	answer := w.foreign(method, path, sent, nil)
	if answer.status >= 300 {
		return nil, fmt.Errorf("%s %s: %d %s", method, path, answer.status, answer.body.String())
	}
	out := map[string]any{}
	if answer.body.Len() == 0 {
		return out, nil
	}
	err := json.Unmarshal(answer.body.Bytes(), &out)
	return out, err
}

func (w *onAzure) foreign(method, path string, content any, header map[string]string) *reply {
	answer := newReply()
	answer.status = http.StatusBadRequest
	raw, err := json.Marshal(content)
	if err != nil {
		return answer
	}
	if content == nil {
		raw = nil
	}
	version := "2024-11-01"
	if strings.Contains(path, "/galleries/") {
		version = "2024-03-03"
	} else if strings.Contains(path, "/snapshots/") {
		version = "2024-03-02"
	}
	r, err := http.NewRequestWithContext(w.ctx, method, w.station.cloudURL+path+"?api-version="+version, body(raw))
	if err != nil {
		return answer
	}
	r.Header.Set("Authorization", "Bearer "+w.cloud.Token())
	r.Header.Set("Content-Type", "application/json")
	for key, value := range header {
		r.Header.Set(key, value)
	}
	answer = newReply()
	w.cloud.ServeHTTP(answer, r)
	return answer
}
