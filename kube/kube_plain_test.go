package kube

import (
	"errors"
	"slices"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"

	"kamino.dev/kamino"
	"kamino.dev/kamino/internal/hostile"
)

// TestPlain: whatever a node, a pod or another object of the API says in any of its fields, nothing
// that a terminal obeys comes out of this package.
func TestPlain(t *testing.T) {
	var node corev1.Node
	hostile.Fill(&node)
	node.Annotations = map[string]string{"a": hostile.Text, kamino.AnnotationFreshness: "{\n\t\"kernel\": \"" + hostile.Text + "\"}"}
	node.Labels = map[string]string{"l": hostile.Text}
	node.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "kubelet", FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{"f:labels":{"f:l":{}}}}`)}}
	var pod corev1.Pod
	hostile.Fill(&pod)
	var lease coordinationv1.Lease
	hostile.Fill(&lease)
	record := `{"donor":"a\u001b[31mEVIL\u202e\u2028","step":"EVIL\u009b","failure":"EVIL\nrow"}`
	lease.Annotations = map[string]string{annotationFormat: "1", annotationPool: hostile.Text, annotationProcess: hostile.Text,
		annotationRecord: record, annotationLedger: `{"past":[{"run":"EVIL\u001b","failure":"\u0007EVIL"}]}`}
	held, err := readLease(&lease)
	if err != nil {
		t.Fatal(err)
	}
	waits, _ := waitsFor(&pod)
	for name, out := range map[string]any{
		"node":        NodeOf(&node),
		"agent pod":   readAgentPod(&pod),
		"waiting pod": waits,
		"lease":       held,
		"pause":       pauseOf(map[string]string{kamino.AnnotationPaused: hostile.Text}),
		"paused by":   pauseOf(map[string]string{kamino.AnnotationPaused: "EVIL\x1b", kamino.AnnotationPausedBy: `{"reason":"EVIL\u001b","by":"a\u202e"}`}),
		"refusal":     explain("get nodes", apierrors.NewForbidden(schema.GroupResource{Resource: "nodes"}, hostile.Text, errors.New(hostile.Text))).Error(),
		"no answer":   explain("get nodes", errors.New(hostile.Text)).Error(),
		"webhook":     explain("evict", apierrors.NewBadRequest(hostile.Text)).Error(),
	} {
		if hostile.Reached(out) == 0 {
			t.Errorf("%s: nothing of the hostile text arrived in %+v", name, out)
		}
		for _, bad := range hostile.Find(out) {
			t.Errorf("%s%s", name, bad)
		}
	}
}

// TestListKeepsNames: an image's name with a newline stays one name in the list of a version, and a
// list that somebody else wrote is read without what a terminal obeys.
func TestListKeepsNames(t *testing.T) {
	client := fake.NewClientset()
	c := NewForClient(client, Options{})
	node := NodeOf(&corev1.Node{Status: corev1.NodeStatus{Images: []corev1.ContainerImage{{Names: []string{hostile.Text}, SizeBytes: 7}, {Names: []string{"b\n9 c"}}}}})
	if err := c.SaveList(t.Context(), "/p/A", "r1", kamino.DiskList{Images: node.Software.Images}); err != nil {
		t.Fatal(err)
	}
	if got, err := c.List(t.Context(), "r1"); err != nil || !slices.Equal(got.Images, node.Software.Images) {
		t.Errorf("saved %+v, read %+v, %v", node.Software.Images, got.Images, err)
	}
	foreign := &corev1.ConfigMap{Data: map[string]string{"packages": "EVIL\x1b 1 amd64", "images": "1 EVIL\x1b\u202e"}}
	foreign.Name = listName("r2")
	if _, err := client.CoreV1().ConfigMaps(kamino.SystemNamespace).Create(t.Context(), foreign, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	got, err := c.List(t.Context(), "r2")
	if err != nil || hostile.Reached(got) != 2 {
		t.Errorf("%+v, %v", got, err)
	}
	for _, bad := range hostile.Find(got) {
		t.Error(bad)
	}
}
