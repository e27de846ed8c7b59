package kube

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	testclient "k8s.io/client-go/testing"

	"kamino.dev/kamino"
)

// noon is the time of all tests.
var noon = time.Date(2026, 3, 4, 12, 0, 0, 0, time.UTC)

func TestConvert(t *testing.T) {
	berlin := time.FixedZone("CET", 3600)
	got := NodeOf(&corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: "u1", ResourceVersion: "7", DeletionTimestamp: &metav1.Time{Time: noon},
			Labels: map[string]string{"a": "b"}, Annotations: map[string]string{"c": "d"}},
		Spec: corev1.NodeSpec{ProviderID: "azure:///x", Unschedulable: true,
			Taints: []corev1.Taint{{Key: "k", Value: "v", Effect: corev1.TaintEffectNoExecute}}},
		Status: corev1.NodeStatus{
			NodeInfo: corev1.NodeSystemInfo{OperatingSystem: "linux", Architecture: "arm64", SystemUUID: "S", BootID: "B",
				KernelVersion: "6.8.0-9", OSImage: "Ubuntu 24.04", KubeletVersion: "v1.36.3", ContainerRuntimeVersion: "containerd://2.1"},
			Images: []corev1.ContainerImage{{Names: []string{"r/a@sha256:1", "r/a:v1"}, SizeBytes: 7}, {SizeBytes: 8}},
			Conditions: []corev1.NodeCondition{
				{Type: corev1.NodeReady, Status: corev1.ConditionTrue,
					LastTransitionTime: metav1.NewTime(noon.In(berlin)), LastHeartbeatTime: metav1.NewTime(noon.Add(time.Minute).In(berlin))},
				{Type: corev1.NodeDiskPressure, Status: corev1.ConditionFalse, Reason: "KubeletHasNoDiskPressure",
					LastTransitionTime: metav1.NewTime(noon)},
			},
		},
	})
	want := kamino.Node{
		Name: "n1", UID: "u1", Revision: "7", ProviderID: "azure:///x", OS: "linux", Architecture: "arm64", SystemUUID: "S", BootID: "B",
		Unschedulable: true, Deleting: true, Ready: true, ReadySince: noon, Heartbeat: noon.Add(time.Minute),
		Software: kamino.Software{Kernel: "6.8.0-9", OS: "Ubuntu 24.04", Kubelet: "v1.36.3", Runtime: "containerd://2.1",
			Images: []kamino.CachedImage{{Name: "r/a@sha256:1", Bytes: 7}}},
		Conditions: []kamino.Condition{{Type: "DiskPressure", Status: "False", Since: noon, Reason: "KubeletHasNoDiskPressure"}},
		Taints:     []kamino.Taint{{Key: "k", Value: "v", Effect: "NoExecute"}},
		Labels:     map[string]string{"a": "b"}, Annotations: map[string]string{"c": "d"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestConvertUnready(t *testing.T) {
	for _, status := range []corev1.ConditionStatus{corev1.ConditionFalse, corev1.ConditionUnknown} {
		got := NodeOf(&corev1.Node{Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{
			{Type: corev1.NodeReady, Status: status, LastTransitionTime: metav1.NewTime(noon)}}}})
		if got.Ready || !got.ReadySince.IsZero() {
			t.Errorf("Ready=%s: got %v since %v", status, got.Ready, got.ReadySince)
		}
	}
}

func TestControlPlane(t *testing.T) {
	for _, tt := range []struct {
		key, value string
		want       bool
	}{
		{"node-role.kubernetes.io/control-plane", "", true},
		{"node-role.kubernetes.io/master", "true", true},
		{"kubernetes.io/role", "master", true},
		{"kubernetes.io/role", "agent", false},
		{"node-role.kubernetes.io/agent", "", false},
	} {
		t.Run(tt.key, func(t *testing.T) {
			n := NodeOf(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{tt.key: tt.value}}})
			if n.ControlPlane != tt.want {
				t.Errorf("%s=%s: got %v", tt.key, tt.value, n.ControlPlane)
			}
		})
	}
}

// TestVolumes: what is attached or in use, each once.
func TestVolumes(t *testing.T) {
	n := NodeOf(&corev1.Node{Status: corev1.NodeStatus{
		VolumesAttached: []corev1.AttachedVolume{{Name: "csi/a"}, {Name: "csi/b"}}, VolumesInUse: []corev1.UniqueVolumeName{"csi/b", "csi/c"}}})
	if want := []string{"csi/a", "csi/b", "csi/c"}; !slices.Equal(n.Volumes, want) {
		t.Errorf("got %v, want %v", n.Volumes, want)
	}
}

func TestPulse(t *testing.T) {
	lease := func(at time.Time) *coordinationv1.Lease {
		return &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-node-lease", Name: "n1"},
			Spec: coordinationv1.LeaseSpec{RenewTime: &metav1.MicroTime{Time: at}}}
	}
	node := kamino.Node{Name: "n1", Heartbeat: noon}
	for name, tt := range map[string]struct {
		client *fake.Clientset
		want   time.Time
	}{
		"lease is newer": {fake.NewClientset(lease(noon.Add(time.Second))), noon.Add(time.Second)},
		"lease is older": {fake.NewClientset(lease(noon.Add(-time.Hour))), noon},
		"no lease":       {fake.NewClientset(), noon},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := NewForClient(tt.client, Options{}).Pulse(t.Context(), node)
			if err != nil || !got.Equal(tt.want) {
				t.Errorf("%s: got %v, %v; want %v", name, got, err, tt.want)
			}
		})
	}
}

// TestNodesBare: a look that asks for no images keeps none of them, and keeps all else.
func TestNodesBare(t *testing.T) {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}, Status: corev1.NodeStatus{NodeInfo: corev1.NodeSystemInfo{KernelVersion: "6.8"},
		Images: []corev1.ContainerImage{{Names: []string{"registry.example.com/a@sha256:1"}, SizeBytes: 1}}}}
	c := NewForClient(fake.NewClientset(node), Options{})
	for images, ctx := range map[int]context.Context{1: t.Context(), 0: NodesBare(t.Context())} {
		nodes, err := c.Nodes(ctx)
		if err != nil || len(nodes) != 1 || nodes[0].Software.Kernel != "6.8" || len(nodes[0].Software.Images) != images {
			t.Errorf("%+v, %v; want %d images", nodes, err, images)
		}
	}
}

// TestNodesOnce: a command that only looks lists the nodes once, and again after a list that
// failed; every other lists them each time.
func TestNodesOnce(t *testing.T) {
	client, lists := fake.NewClientset(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", Labels: map[string]string{"a": "b"}}}), 0
	client.PrependReactor("list", "nodes", func(testclient.Action) (bool, runtime.Object, error) {
		lists++
		return lists == 1, nil, errors.New("later")
	})
	c := NewForClient(client, Options{})
	ctx := NodesOnce(t.Context())
	if _, err := c.Nodes(ctx); err == nil {
		t.Error("a list that failed is no list")
	}
	for range 2 {
		nodes, err := c.Nodes(ctx)
		if err != nil || len(nodes) != 1 || nodes[0].Labels["a"] != "b" {
			t.Fatalf("%v, %v", nodes, err)
		}
	}
	if lists != 2 {
		t.Errorf("%d lists, want 2", lists)
	}
	for range 2 {
		if _, err := c.Nodes(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if lists != 4 {
		t.Errorf("%d lists without NodesOnce, want 4", lists)
	}
}
