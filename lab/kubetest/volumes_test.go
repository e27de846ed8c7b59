package kubetest

import (
	"context"
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"kamino.dev/kamino"
	"kamino.dev/kamino/kube"
)

// TestLocalVolume: a driver's volume that is tied to a label which one node has keeps that node
// from being a donor, and no other node. The shipped role suffices to find out.
func TestLocalVolume(t *testing.T) {
	const key = "topology.example.com/machine"
	s := newSubject(t, kube.Options{})
	for _, name := range []string{"with-volume", "without-volume"} {
		n := cordoned(name)
		n.Labels = map[string]string{key: "id-of-" + name}
		makeNode(t, n)
	}
	volumes := admin.CoreV1().PersistentVolumes()
	if _, err := volumes.Create(t.Context(), &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "of-a-driver"}, Spec: corev1.PersistentVolumeSpec{
		Capacity: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain, StorageClassName: "local", ClaimRef: &corev1.ObjectReference{Namespace: "default", Name: "data-of-a-driver"},
		PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: "disks.example.com", VolumeHandle: "v"}},
		NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{
			{Key: key, Operator: corev1.NodeSelectorOpIn, Values: []string{"id-of-with-volume"}}}}}}},
	}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		_, err := volumes.Patch(ctx, "of-a-driver", types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
		if err := errors.Join(err, volumes.Delete(ctx, "of-a-driver", metav1.DeleteOptions{})); err != nil {
			t.Error(err)
		}
	})
	for name, want := range map[string]bool{"with-volume": true, "without-volume": false} {
		_, err := s.Rehearse(t.Context(), s.node(t, name), kamino.SealOrder{Run: "r"}, kamino.DrainOptions{Force: true})
		var refused *kamino.RefusedError
		if got := errors.As(err, &refused) && refused.Refusals[0].Code == kamino.CodeLocalVolume; got != want || !want && err != nil {
			t.Errorf("node %s: %v", name, err)
		}
	}
}
