package nodes_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"kamino.dev/kamino"
	"kamino.dev/kamino/azure/emulator"
	"kamino.dev/kamino/lab/nodes"
)

// checkCanary: the machine of a canary whose disk was sealed registers with the taint and reports,
// with the label of the pool that its disk is of; behaviour is what others see of it.
func checkCanary(t *testing.T, w *world, version string) {
	t.Helper()
	w.fleet.Behave(func(i emulator.Instance) nodes.Behaviour {
		if i.Tags[kamino.TagCanary] == "" {
			return nodes.Behaviour{}
		}
		return nodes.Behaviour{Units: []string{"a.service"}, Pressure: corev1.NodeDiskPressure, Clock: time.Hour, NoImages: true}
	})
	name := kamino.CanaryName(kamino.PoolID(w.id), "run")
	doc := w.cloud.Document(w.id)
	properties := doc["properties"].(map[string]any)
	profile := properties["virtualMachineProfile"].(map[string]any)
	profile["storageProfile"].(map[string]any)["imageReference"] = map[string]any{"id": version}
	profile["osProfile"].(map[string]any)["computerNamePrefix"] = name
	body, err := json.Marshal(map[string]any{"location": doc["location"], "properties": properties, "sku": map[string]any{"name": "Standard_D2s_v3", "capacity": 1},
		"tags": map[string]any{kamino.TagCanary: "2026.1.1", kamino.TagNonce: "n"}})
	if err != nil {
		t.Fatal(err)
	}
	w.arm.do(http.MethodPut, w.id[:strings.LastIndexByte(w.id, '/')+1]+name, string(body))
	node := name + "000000"
	w.await("the canary reports", func() string {
		if n := w.get(node); n == nil || n.Annotations[kamino.AnnotationReport] == "" {
			return "no report yet"
		}
		return ""
	})
	n, sibling := w.get(node), w.get(w.node(0))
	if taint := (corev1.Taint{Key: kamino.TaintCanary, Effect: corev1.TaintEffectNoSchedule}); !hasTaint(n, taint) || hasTaint(sibling, taint) {
		t.Errorf("taints are %v, those of an ordinary node %v", n.Spec.Taints, sibling.Spec.Taints)
	}
	if n.Labels["agentpool"] != w.pool || len(n.Status.Images) != 0 || len(sibling.Status.Images) == 0 || sibling.Annotations[kamino.AnnotationReport] != "" {
		t.Errorf("the canary has labels %v and %d images, an ordinary node %d and report %q", n.Labels, len(n.Status.Images), len(sibling.Status.Images), sibling.Annotations[kamino.AnnotationReport])
	}
	var r kamino.NodeReport
	if err := json.Unmarshal([]byte(n.Annotations[kamino.AnnotationReport]), &r); err != nil || r.Nonce != "n" || len(r.FailedUnits) != 1 || time.Until(r.At) < 50*time.Minute {
		t.Errorf("report %+v, %v", r, err)
	}
	pressed := false
	for _, c := range n.Status.Conditions {
		pressed = pressed || c.Type == corev1.NodeDiskPressure && c.Status == corev1.ConditionTrue
	}
	if !pressed {
		t.Errorf("status %+v", n.Status)
	}
}

func hasTaint(n *corev1.Node, want corev1.Taint) bool {
	for _, t := range n.Spec.Taints {
		if t.MatchTaint(&want) {
			return true
		}
	}
	return false
}
