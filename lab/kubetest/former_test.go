package kubetest

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kamino.dev/kamino"
	"kamino.dev/kamino/kube"
)

// formerLease puts a lease where the former version would have: its format did not change. It is
// of a pool named after the test, in a namespace of the test's own.
func formerLease(t *testing.T, namespace string, l kamino.Lease) *coordinationv1.Lease {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	writer := newSubject(t, kube.Options{})
	if _, err := writer.SetLease(ctx, l); err != nil {
		t.Fatal(err)
	}
	leases, err := admin.CoordinationV1().Leases(kamino.SystemNamespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, object := range leases.Items {
		if object.Annotations["kamino.dev/pool"] != string(l.Pool) {
			continue
		}
		if err := admin.CoordinationV1().Leases(kamino.SystemNamespace).Delete(ctx, object.Name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		made, err := admin.CoordinationV1().Leases(namespace).Create(ctx, &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Name: object.Name, Labels: object.Labels, Annotations: object.Annotations}, Spec: object.Spec}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { // both, so that other tests find no lease
			_ = admin.CoordinationV1().Leases(namespace).Delete(ctx, made.Name, metav1.DeleteOptions{})
			_ = admin.CoordinationV1().Leases(kamino.SystemNamespace).Delete(ctx, made.Name, metav1.DeleteOptions{})
		})
		return made
	}
	t.Fatalf("no lease of %s", l.Pool)
	return nil
}

func makeNamespace(t *testing.T, name string) {
	t.Helper()
	space := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if _, err := admin.CoreV1().Namespaces().Create(t.Context(), space, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

func write(t *testing.T, s *subject, l kamino.Lease) kamino.Lease {
	t.Helper()
	got, err := s.SetLease(t.Context(), l)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func read(t *testing.T, s *subject, pool kamino.PoolID) kamino.Lease {
	t.Helper()
	got, err := s.Lease(t.Context(), pool)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// A run of the former version is seen, taken over with its ledger, and cannot be gone on with
// where it was; its seal pod is found and removed.
func TestFormerLease(t *testing.T) {
	makeNamespace(t, "tools")
	made := formerLease(t, "tools", lease("moved", "r-old", 7))
	makeNode(t, cordoned("moved"))
	pod, err := admin.CoreV1().Pods("tools").Create(t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "kamino-seal-r-old", Labels: map[string]string{"app.kubernetes.io/name": "kamino-seal", "kamino.dev/run": "r-old"}},
		Spec:       corev1.PodSpec{NodeName: "moved", Containers: []corev1.Container{{Name: "seal", Image: "i"}}}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	s := newSubject(t, kube.Options{Former: []string{"tools"}})
	l := read(t, s, lease("moved", "", 0).Pool)
	if l.Holder != "r-old" || l.Epoch != 7 || l.Record.Step != "drain" || l.Ledger.Former == nil {
		t.Fatalf("the former run shows as %+v", l)
	}
	n := s.node(t, "moved")
	if left, err := s.Evict(t.Context(), n, kamino.DrainOptions{}); err != nil || len(left) > 0 {
		t.Errorf("a drain removes the former seal pod: %v, %v", left, err)
	}
	if seen, err := s.AgentPod(t.Context(), "r-old", kamino.TaskSeal); err != nil || !seen.Exists {
		t.Errorf("former seal pod: %+v, %v", seen, err)
	}
	l.Process, l.Epoch = "host/2", 8
	adopted := write(t, s, l)
	if adopted.Holder != "r-old" || adopted.Ledger.Former == nil {
		t.Errorf("adopted: %+v", adopted)
	}
	if again := read(t, s, l.Pool); again.Revision != adopted.Revision || again.Process != "host/2" {
		t.Errorf("read again: %+v", again)
	}
	// The former process would write so, and its kind leaves alone what is newer than it knows.
	made.Annotations["kamino.dev/process"] = "host/1"
	if _, err := admin.CoordinationV1().Leases("tools").Update(t.Context(), made, metav1.UpdateOptions{}); err == nil {
		t.Error("the former process can go on")
	}
	now, err := admin.CoordinationV1().Leases("tools").Get(t.Context(), made.Name, metav1.GetOptions{})
	if err != nil || now.Annotations["kamino.dev/format"] != "2" {
		t.Errorf("retired lease: %v %v", now.Annotations, err)
	}
	if err := s.RemoveAgents(t.Context(), "r-old", []kamino.Task{kamino.TaskSeal, kamino.TaskInventory}); err != nil {
		t.Fatal(err)
	}
	if _, err := admin.CoreV1().Pods("tools").Get(t.Context(), pod.Name, metav1.GetOptions{}); err == nil {
		t.Error("the former seal pod is still there")
	}
}

// A process that died between the two writes of a take-over leaves nothing behind that the next
// would not see.
func TestFormerLeaseHalfMoved(t *testing.T) {
	made := formerLease(t, "kube-system", lease("half", "r-old", 3))
	s := newSubject(t, kube.Options{})
	seen := read(t, s, lease("half", "", 0).Pool)
	made.Annotations["kamino.dev/moved"], made.Annotations["kamino.dev/format"] = made.ResourceVersion, "2"
	if _, err := admin.CoordinationV1().Leases("kube-system").Update(t.Context(), made, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.SetLease(t.Context(), seen); !errors.Is(err, kamino.ErrConflict) {
		t.Errorf("written although the former lease changed: %v", err)
	}
	l := read(t, s, seen.Pool)
	if l.Holder != "r-old" || l.Record.Donor != "n1" {
		t.Fatalf("the half moved run shows as %+v", l)
	}
	if got := write(t, s, l); got.Holder != "r-old" {
		t.Errorf("moved: %+v", got)
	}
}

// Ledgers of several namespaces become one, and a lease in a namespace that nobody named is
// neither believed nor passed over.
func TestFormerLedgers(t *testing.T) {
	makeNamespace(t, "ops")
	made := func(at time.Time, holder, image string) kamino.Lease {
		l := lease("ledgers", holder, 2)
		l.Ledger = kamino.Ledger{Original: &kamino.SavedModel{At: at, Image: "original-" + image, Saved: []byte("{}")},
			Former: &kamino.SavedModel{At: at, Image: image, Saved: []byte("{}")}, Past: []kamino.PastRun{{Run: image, Ended: at}}}
		return l
	}
	noon := time.Date(2026, 3, 4, 12, 0, 0, 0, time.UTC)
	formerLease(t, "kube-system", made(noon, "", "first"))
	formerLease(t, "ops", made(noon.Add(time.Hour), "", "second"))
	laptop := newSubject(t, kube.Options{})
	pool := lease("ledgers", "", 0).Pool
	if _, err := laptop.Lease(t.Context(), pool); !errors.Is(err, kamino.ErrForbidden) || !strings.Contains(kamino.Hint(err), "--namespace ops") {
		t.Errorf("a namespace that nobody named: %v, hint %q", err, kamino.Hint(err))
	}
	s := newSubject(t, kube.Options{Former: []string{"ops"}})
	l := read(t, s, pool)
	if l.Holder != "" || l.Ledger.Original.Image != "original-first" || l.Ledger.Former.Image != "second" || len(l.Ledger.Past) != 2 || l.Ledger.Past[0].Run != "second" {
		t.Fatalf("joined: %+v %+v", l, l.Ledger)
	}
	all, err := s.Leases(t.Context())
	if err != nil || len(all) != 1 || all[0].Revision != l.Revision {
		t.Errorf("leases: %+v, %v", all, err)
	}
	l.Holder, l.Process, l.Epoch = "r-new", "host/2", 3
	l = write(t, s, l)
	// A laptop sees the run, and needs to name no namespace any more.
	if got := read(t, laptop, pool); got.Holder != "r-new" || got.Ledger.Former.Image != "second" {
		t.Errorf("from a laptop: %+v", got)
	}
}

// An account that may only read elsewhere takes over too, and sees when a former version uses
// the lease once more. One that may not even list elsewhere works here.
func TestFormerLeaseReadOnly(t *testing.T) {
	reads := rbacv1.PolicyRule{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, Verbs: []string{"get", "list"}}
	grant(t, "reads-leases", "", reads)
	writes := rbacv1.PolicyRule{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, Verbs: []string{"get", "list", "create", "patch"}}
	grant(t, "reads-leases", kamino.SystemNamespace, writes)
	grant(t, "knows-here", kamino.SystemNamespace, writes)
	for _, name := range []string{"reads-leases", "knows-here"} {
		bindBase(t, name, "kamino-run") // which grants no leases: the policy kamino-own asks for it
	}
	made := formerLease(t, "kube-system", lease("read-only", "r-old", 3))
	s := newSubjectOf(t, "reads-leases", kube.Options{})
	l := read(t, s, lease("read-only", "", 0).Pool)
	l.Process, l.Epoch = "host/2", 4
	l = write(t, s, l)
	if now := read(t, s, l.Pool); now.Revision != l.Revision || now.Process != "host/2" {
		t.Fatalf("taken over: %+v", now)
	}
	l.Holder, l.Process, l.Record, l.Epoch = "", "", kamino.Record{}, 5
	l = write(t, s, l)
	made.Annotations["kamino.dev/process"] = "host/3"
	if _, err := admin.CoordinationV1().Leases("kube-system").Update(t.Context(), made, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if now := read(t, s, l.Pool); now.Holder != "r-old" || now.Process != "host/3" || now.Epoch != 5 {
		t.Errorf("a former version at work shows as %+v", now)
	}
	here := newSubjectOf(t, "knows-here", kube.Options{})
	if now := read(t, here, l.Pool); now.Revision != l.Revision {
		t.Errorf("without a look elsewhere: %+v", now)
	}
}

// grant gives a user one rule, in one namespace or with "" everywhere.
func grant(t *testing.T, name, namespace string, rule rbacv1.PolicyRule) {
	t.Helper()
	ctx, meta := t.Context(), metav1.ObjectMeta{Name: name}
	subjects := []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: name}}
	var err, bound error
	if namespace == "" {
		_, err = admin.RbacV1().ClusterRoles().Create(ctx, &rbacv1.ClusterRole{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{rule}}, metav1.CreateOptions{})
		_, bound = admin.RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{ObjectMeta: meta, Subjects: subjects,
			RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name}}, metav1.CreateOptions{})
	} else {
		_, err = admin.RbacV1().Roles(namespace).Create(ctx, &rbacv1.Role{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{rule}}, metav1.CreateOptions{})
		_, bound = admin.RbacV1().RoleBindings(namespace).Create(ctx, &rbacv1.RoleBinding{ObjectMeta: meta, Subjects: subjects,
			RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name}}, metav1.CreateOptions{})
	}
	if err := errors.Join(err, bound); err != nil {
		t.Fatal(err)
	}
}
