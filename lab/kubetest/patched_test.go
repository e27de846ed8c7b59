package kubetest

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"kamino.dev/kamino"
	"kamino.dev/kamino/kube"
)

// A kubelet cannot say of its node that it was patched: neither as it registers, nor later, nor by
// its status; and it cannot take off what Kamino wrote. All else that a kubelet writes there is
// admitted, so that what refuses the label is the label.
func TestPatchedLabelOfAKubelet(t *testing.T) {
	const name, value = "patched", "2026-01-02T030405Z"
	cfg := rest.CopyConfig(config)
	cfg.Impersonate = rest.ImpersonationConfig{UserName: "system:node:" + name, Groups: []string{"system:nodes", "system:authenticated"}}
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	nodes := client.CoreV1().Nodes()
	of := func(labels map[string]string) *corev1.Node {
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}
	}
	refused := func(what string, err error) {
		t.Helper()
		if !apierrors.IsForbidden(err) {
			t.Errorf("%s: %v, want forbidden", what, err)
		}
	}
	_, err = nodes.Create(t.Context(), of(map[string]string{kamino.LabelPatched: value}), metav1.CreateOptions{})
	refused("registered with the label", err)
	t.Cleanup(func() { removeNode(t, name) })
	if _, err := nodes.Create(t.Context(), of(nil), metav1.CreateOptions{}); err != nil {
		t.Fatalf("registered without it: %v", err)
	}
	write := func(label, value string, subresource ...string) error {
		body := fmt.Appendf(nil, `{"metadata":{"labels":{%q:%s}}}`, label, value)
		_, err := nodes.Patch(t.Context(), name, types.MergePatchType, body, metav1.PatchOptions{}, subresource...)
		return err
	}
	update := func(labels map[string]string) error {
		n, err := nodes.Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		n.Labels = labels
		_, err = nodes.Update(t.Context(), n, metav1.UpdateOptions{})
		return err
	}
	for _, subresource := range [][]string{nil, {"status"}} {
		refused(fmt.Sprintf("patched with the label %q", subresource), write(kamino.LabelPatched, `"`+value+`"`, subresource...))
		if err := write("example.com/of-the-node", `"x"`, subresource...); err != nil {
			t.Errorf("another label %q: %v", subresource, err)
		}
	}
	refused("updated with the label", update(map[string]string{kamino.LabelPatched: value}))

	s, at := newSubject(t, kube.Options{}), time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	if err := s.Sign(t.Context(), s.node(t, name), at); err != nil {
		t.Fatalf("signed by Kamino: %v", err)
	}
	signed := s.node(t, name).Labels[kamino.LabelPatched]
	if signed != at.Format(kamino.PatchedFormat) {
		t.Errorf("signed %q", signed)
	}
	refused("the label changed", write(kamino.LabelPatched, `"2027-01-02T030405Z"`))
	refused("the label taken off", write(kamino.LabelPatched, "null"))
	refused("the label updated away", update(nil))
	if got := s.node(t, name).Labels[kamino.LabelPatched]; got != signed {
		t.Errorf("label %q, want %q", got, signed)
	}
}
