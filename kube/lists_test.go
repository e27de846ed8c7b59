package kube

import (
	"errors"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"

	"kamino.dev/kamino"
)

// TestLists: a list is kept as it was first given, belongs to its pool, and goes alone.
func TestLists(t *testing.T) {
	c := NewForClient(fake.NewClientset(), Options{})
	list := kamino.DiskList{Packages: []string{"a 1 amd64", "b 2 all"}, Images: []kamino.CachedImage{{Name: "r/a b@sha256:1", Bytes: 7}}}
	for _, of := range []struct{ pool, run string }{{"/p/A", "r1"}, {"/p/A", "r2"}, {"/p/B", "r3"}} {
		t.Run(of.pool, func(t *testing.T) {
			if err := c.SaveList(t.Context(), kamino.PoolID(of.pool), of.run, list); err != nil {
				t.Fatal(err)
			}
		})
	}
	if err := c.SaveList(t.Context(), "/p/A", "r1", kamino.DiskList{Packages: list.Packages}); err != nil {
		t.Errorf("kept twice: %v", err)
	}
	for what, err := range map[string]error{ // somebody else's, under the run's name
		"other packages": c.SaveList(t.Context(), "/p/A", "r1", kamino.DiskList{Packages: []string{"a 2 amd64"}}),
		"another pool's": c.SaveList(t.Context(), "/p/B", "r1", list),
	} {
		if err == nil || !strings.Contains(err.Error(), "ConfigMap kamino-system/kamino-packages-r1 is not this run's") {
			t.Errorf("%s: %v", what, err)
		}
	}
	got, err := c.List(t.Context(), "r1")
	if err != nil || !slices.Equal(got.Packages, list.Packages) || !slices.Equal(got.Images, list.Images) {
		t.Errorf("%+v, %v", got, err)
	}
	for range 2 { // twice is the same as once
		if err := c.DeleteList(t.Context(), "r1"); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := c.List(t.Context(), "r1"); !errors.Is(err, kamino.ErrNotFound) {
		t.Errorf("deleted, %v", err)
	}
	if runs, err := c.Lists(t.Context(), "/P/a"); err != nil || !slices.Equal(runs, []string{"r2"}) {
		t.Errorf("lists of the pool %q, %v", runs, err)
	}
}

// TestAskPackages: the pod is the inventory's with another verb, replaces one that was left, ends
// by itself, and goes with the annotation.
func TestAskPackages(t *testing.T) {
	client := fake.NewClientset(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", Annotations: map[string]string{"mine": "x"}}})
	c := NewForClient(client, Options{SealImage: "reg/kamino:1"})
	n := kamino.Node{Name: "n1"}
	for _, nonce := range []string{"old", "new"} {
		if err := c.AskPackages(t.Context(), n, kamino.SealOrder{Run: "diff-1", Nonce: nonce}); err != nil {
			t.Fatal(err)
		}
	}
	pod, err := client.CoreV1().Pods(kamino.SystemNamespace).Get(t.Context(), "kamino-packages-diff-1", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	box := pod.Spec.Containers[0]
	if got := strings.Join(box.Command, " "); got != "/kamino-agent packages --host-root /host --run diff-1 --donor n1" || box.Env[0].Value != "new" {
		t.Errorf("command %q, env %v", got, box.Env)
	}
	if limit := pod.Spec.ActiveDeadlineSeconds; limit == nil || *limit != 300 || !isAgent(pod, "") {
		t.Errorf("a pod that does not end, or holds a drain up: %+v", pod.Spec)
	}
	if got, err := c.AgentPod(t.Context(), "diff-1", kamino.TaskPackages); err != nil || !got.Exists {
		t.Errorf("%+v, %v", got, err)
	}
	annotate := func(nonce string) {
		text := `{"metadata":{"annotations":{"kamino.dev/packages":"{\"run\":\"diff-1\",\"nonce\":\"` + nonce + `\"}"}}}`
		if _, err := client.CoreV1().Nodes().Patch(t.Context(), "n1", types.MergePatchType, []byte(text), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	annotate("new")
	if err := c.ForgetPackages(t.Context(), n, kamino.SealOrder{Run: "diff-1", Nonce: "old"}); err != nil {
		t.Fatal(err)
	}
	if got, err := c.AgentPod(t.Context(), "diff-1", kamino.TaskPackages); err != nil || !got.Exists || got.Nonce != "new" {
		t.Errorf("another's pod was removed: %+v, %v", got, err)
	}
	if got, err := c.Node(t.Context(), "n1"); err != nil || got.Annotations[kamino.AnnotationPackages] == "" {
		t.Errorf("another's list was removed: %v, %v", got.Annotations, err)
	}
	if err := c.ForgetPackages(t.Context(), n, kamino.SealOrder{Run: "diff-1", Nonce: "new"}); err != nil {
		t.Fatal(err)
	}
	node, err := client.CoreV1().Nodes().Get(t.Context(), "n1", metav1.GetOptions{})
	if err != nil || len(node.Annotations) != 1 {
		t.Errorf("annotations %v, %v", node.Annotations, err)
	}
	if got, err := c.AgentPod(t.Context(), "diff-1", kamino.TaskPackages); err != nil || got.Exists {
		t.Errorf("left: %+v, %v", got, err)
	}
	if err := NewForClient(client, Options{}).AskPackages(t.Context(), n, kamino.SealOrder{}); !errors.Is(err, ErrNoSealImage) {
		t.Errorf("without an image: %v", err)
	}
}
