package kubetest

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"kamino.dev/kamino"
	"kamino.dev/kamino/kube"
)

// The node is marked, blocked, sealed and given back, while a person's marks
// stand on it and a kubelet reports: afterwards it is as it was.
func TestMark(t *testing.T) {
	s := newSubject(t, kube.Options{})
	added := metav1.Now()
	before := makeNode(t, &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "marked", Annotations: map[string]string{
			"person/note": "mine", kamino.AnnotationProtect: "false", kamino.AnnotationReceipt: "{}"}},
		Spec: corev1.NodeSpec{Unschedulable: true,
			Taints: []corev1.Taint{{Key: "person/taint", Value: "x", Effect: corev1.TaintEffectNoSchedule, TimeAdded: &added}}},
	})
	if len(before.Spec.Taints) != 2 {
		t.Fatalf("want the person's and the cordon's taint: %v", before.Spec.Taints)
	}
	former := "false"
	m := kamino.Mark{Format: kamino.MarkFormat, Run: "r1", Epoch: 1, Since: time.Now().UTC(), Protection: &former}
	twice := func(write func(kamino.Node) error) {
		t.Helper()
		n := s.node(t, "marked")
		if err := write(n); err != nil {
			t.Fatal(err)
		}
		s.cost(t, 1)
		if err := write(s.node(t, "marked")); err != nil {
			t.Fatalf("the same again: %v", err)
		}
		s.cost(t, 0)
	}
	mark := func(n kamino.Node) error { return s.Mark(t.Context(), n, m) }
	check := func(protect string, blocked bool) {
		t.Helper()
		n := s.node(t, "marked")
		got, err := n.Mark()
		if err != nil || !cmp.Equal(got, &m, cmp.AllowUnexported(m)) || n.Annotations[kamino.AnnotationProtect] != protect || n.Tainted(kamino.TaintBlock) != blocked {
			t.Fatalf("mark %+v, %v; annotations %v, taints %v", got, err, n.Annotations, n.Taints)
		}
	}
	twice(mark)
	check("true", false)
	m.Block = true
	twice(mark)
	check("true", true)

	// Read, then somebody else writes, then we write: seen, and tried again.
	stale := s.node(t, "marked")
	touch(t, "marked")
	m.Sealing = true
	if err := s.Mark(t.Context(), stale, m); err != nil {
		t.Fatal(err)
	}
	s.cost(t, 3)
	check("true", true)

	twice(func(n kamino.Node) error { return s.Unmark(t.Context(), n) })
	after, err := admin.CoreV1().Nodes().Get(t.Context(), "marked", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	delete(before.Annotations, kamino.AnnotationReceipt)
	if diff := cmp.Diff(before.Spec, after.Spec); diff != "" {
		t.Errorf("spec: %s", diff)
	}
	if diff := cmp.Diff(before.Annotations, after.Annotations); diff != "" {
		t.Errorf("annotations: %s", diff)
	}
}

// touch changes a node as a kubelet does: its resource version grows.
func touch(t *testing.T, name string) {
	t.Helper()
	patch := `{"metadata":{"labels":{"touched":"` + strings.ReplaceAll(time.Now().UTC().Format("150405.000000"), ".", "-") + `"}}}`
	if _, err := admin.CoreV1().Nodes().Patch(t.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
}

func TestMarkReplacedNode(t *testing.T) {
	s := newSubject(t, kube.Options{})
	makeNode(t, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "replaced"}})
	old := s.node(t, "replaced")
	removeNode(t, "replaced")
	if err := s.Mark(t.Context(), old, kamino.Mark{Format: 1, Run: "r1"}); !errors.Is(err, kamino.ErrNotFound) {
		t.Errorf("gone: got %v", err)
	}
	makeNode(t, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "replaced"}})
	if err := s.Mark(t.Context(), old, kamino.Mark{Format: 1, Run: "r1"}); !errors.Is(err, kamino.ErrConflict) {
		t.Errorf("replaced: got %v", err)
	}
	if n := s.node(t, "replaced"); len(n.Annotations[kamino.AnnotationRun]) > 0 {
		t.Errorf("the new node was marked: %v", n.Annotations)
	}
}

func TestNodes(t *testing.T) {
	s := newSubject(t, kube.Options{})
	made := makeNode(t, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "listed"}, Spec: corev1.NodeSpec{ProviderID: "azure:///x"}})
	all, err := s.Nodes(t.Context())
	s.cost(t, 1)
	i := slices.IndexFunc(all, func(n kamino.Node) bool { return n.Name == "listed" })
	if err != nil || i < 0 {
		t.Fatalf("nodes: %v, %v", all, err)
	}
	one := s.node(t, "listed")
	one.Revision = all[i].Revision
	if diff := cmp.Diff(one, all[i]); diff != "" || !one.Ready || one.ReadySince.IsZero() || one.UID != string(made.UID) {
		t.Errorf("%+v: %s", one, diff)
	}
	if _, err := s.Node(t.Context(), "nobody"); !errors.Is(err, kamino.ErrNotFound) {
		t.Errorf("unknown node: %v", err)
	}
}

func TestPulse(t *testing.T) {
	s := newSubject(t, kube.Options{})
	makeNode(t, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "alive"}})
	renewed := metav1.NewMicroTime(time.Now().Add(time.Hour).UTC().Truncate(time.Microsecond))
	_, err := admin.CoordinationV1().Leases("kube-node-lease").Create(t.Context(), &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: "alive"}, Spec: coordinationv1.LeaseSpec{RenewTime: &renewed}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	n := s.node(t, "alive")
	if at, err := s.Pulse(t.Context(), n); err != nil || !at.Equal(renewed.Time) {
		t.Errorf("pulse %v, %v; want %v", at, err, renewed)
	}
	s.cost(t, 1)
}

func TestNotAllowed(t *testing.T) {
	s := newSubjectOf(t, "nobody", kube.Options{})
	_, err := s.Nodes(t.Context())
	if !errors.Is(err, kamino.ErrForbidden) || !strings.Contains(err.Error(), "nodes is forbidden") ||
		!strings.Contains(kamino.Hint(err), "kubectl auth can-i list nodes") {
		t.Errorf("got %v, hint %q", err, kamino.Hint(err))
	}
	makeNode(t, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "protected"}})
	makePod(t, "protected", "protected", func(p *corev1.Pod) { p.OwnerReferences = nil })
	if _, err := s.Evict(t.Context(), kamino.Node{Name: "protected"}, kamino.DrainOptions{}); !errors.Is(err, kamino.ErrForbidden) {
		t.Errorf("evict: %v", err)
	}
}

func TestRecord(t *testing.T) {
	s := newSubject(t, kube.Options{Process: "host/1"})
	makeNode(t, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "eventful"}})
	s.Record(t.Context(), s.node(t, "eventful"), "run-1", "KaminoSealing", "seal the disk")
	s.cost(t, 1)
	s.Record(t.Context(), s.node(t, "eventful"), "run-1", "KaminoSealing", "seal the disk")
	// The selector of kubectl describe node.
	list, err := admin.CoreV1().Events("").List(t.Context(), metav1.ListOptions{FieldSelector: "involvedObject.uid=eventful,reason=KaminoSealing"})
	if err != nil || len(list.Items) != 1 || list.Items[0].Message != "seal the disk" || list.Items[0].ReportingController != "kamino" {
		t.Errorf("events: %+v, %v", list.Items, err)
	}
}
