package controller

import (
	"reflect"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kamino.dev/kamino/kube"
)

// TestTrimNode: passes see of what is kept of a node what runs see of it, but its cached images and
// volumes.
func TestTrimNode(t *testing.T) {
	n := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: "1", ResourceVersion: "7", CreationTimestamp: metav1.NewTime(now),
			Labels: map[string]string{"a": "b", "c": ""}, Annotations: map[string]string{"weave.works/kured-reboot-in-progress": "x"}},
		Spec: corev1.NodeSpec{ProviderID: "azure:///x", Unschedulable: true, Taints: []corev1.Taint{{Key: "k", Effect: corev1.TaintEffectNoSchedule}}},
		Status: corev1.NodeStatus{
			NodeInfo: corev1.NodeSystemInfo{KernelVersion: "6.8", OSImage: "Debian", OperatingSystem: "linux", Architecture: "amd64", KubeletVersion: "v1", ContainerRuntimeVersion: "c",
				SystemUUID: "u", BootID: "b", MachineID: "m"},
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady", Message: "ready", LastTransitionTime: metav1.NewTime(now)},
				{Type: "Patched", Status: corev1.ConditionFalse, Reason: "Why"}},
		},
	}
	want := kube.NodeOf(n.DeepCopy())
	n.Status.Images = []corev1.ContainerImage{{Names: []string{"registry.example.com/a"}}}
	n.Status.VolumesInUse = []corev1.UniqueVolumeName{"v"}
	kept, err := trimNode(n)
	if got := kube.NodeOf(kept.(*corev1.Node)); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, %v\nwant %+v", got, err, want)
	}
}

// TestNodeChanges: what is known of nodes is read again after each change but a heartbeat, and what
// is there at the start asks for no passes.
func TestNodeChanges(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(*corev1.Node)
		want   bool
	}{
		"heartbeat": {func(n *corev1.Node) { n.Status.Conditions[0].LastHeartbeatTime = metav1.NewTime(now.Add(time.Hour)) }, false},
		"not Ready": {func(n *corev1.Node) { n.Status.Conditions[0].Status = corev1.ConditionFalse }, true},
		"other condition": {func(n *corev1.Node) {
			n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{Type: "Patched", Status: corev1.ConditionTrue})
		}, true},
		"condition of another name": {func(n *corev1.Node) { n.Status.Conditions[0].Type = "Patched" }, true},
		"another reason":            {func(n *corev1.Node) { n.Status.Conditions[0].Reason = "KubeletNotReady" }, true},
		"Ready since later": {func(n *corev1.Node) {
			n.Status.Conditions[0].LastTransitionTime = metav1.NewTime(now.Add(time.Minute))
		}, true},
		"another node of that name": {func(n *corev1.Node) { n.UID = "2" }, true},
		"label":                     {func(n *corev1.Node) { n.Labels = map[string]string{"a": "b"} }, true},
		"annotation":                {func(n *corev1.Node) { n.Annotations = map[string]string{"a": "b"} }, true},
		"boot":                      {func(n *corev1.Node) { n.Status.NodeInfo.BootID = "2" }, true},
		"cordon":                    {func(n *corev1.Node) { n.Spec.Unschedulable = true }, true},
		"deleted":                   {func(n *corev1.Node) { at := metav1.NewTime(now); n.DeletionTimestamp = &at }, true},
	} {
		t.Run(name, func(t *testing.T) {
			c := &census{}
			was := &corev1.Node{Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}}}
			is := was.DeepCopy()
			tt.change(is)
			if got := c.changed(was, is); got != tt.want || c.stale.Load() != tt.want {
				t.Errorf("%s: a pass %t, read again %t, want %t", name, got, c.stale.Load(), tt.want)
			}
		})
	}
	for initial, want := range map[bool]bool{true: false, false: true} {
		c := &census{}
		if got := c.came(initial); got != want || !c.stale.Load() {
			t.Errorf("a node that is there at the start: %t; a pass %t, read again %t", initial, got, c.stale.Load())
		}
	}
}
