package kube

import (
	"errors"
	"strings"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	k8stesting "k8s.io/client-go/testing"

	"kamino.dev/kamino"
)

// leaseIn is the API's object of a lease in a namespace.
func leaseIn(t *testing.T, namespace string, l kamino.Lease) *coordinationv1.Lease {
	t.Helper()
	object, err := writeLease(l)
	if err != nil {
		t.Fatal(err)
	}
	object.Namespace, object.UID, object.ResourceVersion = namespace, "u-1", "5"
	return object
}

// TestSecondFormerRun: two namespaces hold leases of a former version, and the run of the first is
// taken over. The process of the other, which may only be frozen, is fenced with the same write,
// and its run is found once the pool is free.
func TestSecondFormerRun(t *testing.T) {
	first, second := held(), held()
	first.Holder, second.Holder, second.Record.Donor = "r-first", "r-second", "n2"
	client := fake.NewClientset(leaseIn(t, "a-tools", first), leaseIn(t, "b-tools", second))
	c := NewForClient(client, Options{Former: []string{"a-tools", "b-tools"}})
	l, err := c.Lease(t.Context(), poolID)
	if err != nil || l.Holder != "r-first" {
		t.Fatalf("%+v, %v", l, err)
	}
	l.Process, l.Epoch = "host/2", l.Epoch+1
	if _, err = c.SetLease(t.Context(), l); err != nil {
		t.Fatal(err)
	}
	there, err := client.CoordinationV1().Leases("b-tools").Get(t.Context(), leaseName(poolID), metav1.GetOptions{})
	if err != nil || there.Annotations[annotationFormat] != "2" {
		t.Errorf("the process of the second run may write its lease still: %v, %v", there.Annotations, err)
	}
	// The fake gives what is created no resource version.
	here, err := client.CoordinationV1().Leases(kamino.SystemNamespace).Get(t.Context(), leaseName(poolID), metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	here.ResourceVersion = "9"
	if _, err := client.CoordinationV1().Leases(kamino.SystemNamespace).Update(t.Context(), here, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	now, err := c.Lease(t.Context(), poolID)
	if err != nil || now.Holder != "r-first" || now.Process != "host/2" {
		t.Fatalf("%+v, %v", now, err)
	}
	now.Holder, now.Process, now.Record = "", "", kamino.Record{}
	if _, err := c.SetLease(t.Context(), now); err != nil {
		t.Fatal(err)
	}
	if l, err := c.Lease(t.Context(), poolID); err != nil || l.Holder != "r-second" || l.Record.Donor != "n2" {
		t.Errorf("the second run is forgotten: %+v, %v", l, err)
	}
}

// TestJoinedLedgers: taking over a former ledger keeps which versions were rolled back and could
// not be marked, and what was written into the model, where the writer of the last model said so.
func TestJoinedLedgers(t *testing.T) {
	former := held()
	former.Holder, former.Record = "", kamino.Record{}
	former.Ledger.RolledBack = []string{"2026.11.20"}
	former.Ledger.Wrote = &kamino.WrittenModel{Image: "/v/2026.11.19", At: noon, Seen: true}
	c := NewForClient(fake.NewClientset(leaseIn(t, "kube-system", former)), Options{})
	l, err := c.Lease(t.Context(), poolID)
	if err != nil || len(l.Ledger.RolledBack) != 1 || l.Ledger.Wrote == nil {
		t.Errorf("rolled back %v, wrote %v, %v; the former ledger had both", l.Ledger.RolledBack, l.Ledger.Wrote, err)
	}
	// A version that kept no such entry wrote a newer image later: it is no person's pin.
	here := held()
	here.Holder, here.Record = "", kamino.Record{}
	here.Ledger.RolledBack = []string{"2026.11.20", "2026.11.21"}
	here.Ledger.Former = &kamino.SavedModel{At: noon, Image: "/v/2026.11.18"}
	here.Ledger.Wrote = &kamino.WrittenModel{Image: "/v/2026.11.19", At: noon, Seen: true}
	later := former
	later.Ledger.Wrote, later.Ledger.Former = nil, &kamino.SavedModel{At: noon.AddDate(0, 0, 1), Image: "/v/2026.11.19"}
	joined := joinLedgers(here.Ledger, later.Ledger)
	if joined.Wrote != nil || joined.Former != later.Ledger.Former || len(joined.RolledBack) != 2 {
		t.Errorf("joined: wrote %+v, former %+v, rolled back %v", joined.Wrote, joined.Former, joined.RolledBack)
	}
}

// TestOneBadLease: a lease that cannot be read is told for its pool, and hides no other's.
func TestOneBadLease(t *testing.T) {
	bad := held()
	bad.Pool = "/x/other"
	broken := leaseIn(t, kamino.SystemNamespace, bad)
	broken.Annotations[annotationFormat] = "9" // a newer version wrote it
	c := NewForClient(fake.NewClientset(leaseIn(t, kamino.SystemNamespace, held()), broken), Options{})
	all, err := c.Leases(t.Context())
	if err != nil || len(all) != 2 {
		t.Fatalf("%+v, %v", all, err)
	}
	for _, l := range all {
		if is := l.Pool == bad.Pool; is != (l.Err != nil) || is && (l.Holder != "" || l.Revision != "") {
			t.Errorf("%+v", l)
		}
	}
}

// TestBlockOfAnyEffect: the block's key counts as a mark whatever its effect, so it is taken off
// whatever its effect, however often it is there, and nothing else is.
func TestBlockOfAnyEffect(t *testing.T) {
	other := corev1.Taint{Key: "example.com/x", Effect: corev1.TaintEffectNoSchedule}
	block := func(e corev1.TaintEffect) corev1.Taint {
		return corev1.Taint{Key: kamino.TaintBlock, Value: "x", Effect: e}
	}
	for _, taints := range [][]corev1.Taint{
		{block(corev1.TaintEffectNoExecute), other},
		{other, block(corev1.TaintEffectPreferNoSchedule)},
		{block(corev1.TaintEffectNoExecute), other, block(corev1.TaintEffectNoSchedule), block(corev1.TaintEffectPreferNoSchedule)},
	} {
		c := NewForClient(fake.NewClientset(node(nil, taints...)), Options{})
		n, err := c.Node(t.Context(), "n1")
		if err != nil {
			t.Fatal(err)
		}
		if err := c.mark(t.Context(), n, nil); err != nil {
			t.Fatal(err)
		}
		if n, _ = c.Node(t.Context(), "n1"); n.Tainted(kamino.TaintBlock) || len(n.Taints) != 1 {
			t.Errorf("%v: after everything was taken off there are %v", taints, n.Taints)
		}
	}
}

// TestLeaseOfUnnamedNamespace: a lease in a namespace that nobody named is told for its pool where
// all are listed, as where the pool's is read.
func TestLeaseOfUnnamedNamespace(t *testing.T) {
	other := held()
	other.Pool = "/x/other"
	c := NewForClient(fake.NewClientset(leaseIn(t, "teama", held()), leaseIn(t, kamino.SystemNamespace, other)), Options{})
	all, err := c.Leases(t.Context())
	if err != nil || len(all) != 2 {
		t.Fatalf("%+v, %v", all, err)
	}
	for _, l := range all {
		if l.Pool == other.Pool {
			if l.Err != nil || l.Holder == "" {
				t.Errorf("the other pool: %+v", l)
			}
			continue
		}
		_, alone := c.Lease(t.Context(), poolID)
		if l.Err == nil || alone == nil || l.Err.Error() != alone.Error() || !strings.Contains(kamino.Hint(l.Err), "--namespace teama") || l.Holder != "" {
			t.Errorf("%+v; read alone: %v", l, alone)
		}
	}
}

// TestForbiddenIsNotGone: who may not list the leases of all namespaces is told of those here. Who
// could a moment ago is not told that the run which holds the pool in another one is gone.
func TestForbiddenIsNotGone(t *testing.T) {
	client := fake.NewClientset(leaseIn(t, "kube-system", held()))
	forbidden := true
	client.PrependReactor("list", "leases", func(a k8stesting.Action) (bool, runtime.Object, error) {
		if forbidden && a.GetNamespace() == metav1.NamespaceAll {
			return true, nil, apierrors.NewForbidden(coordinationv1.Resource("leases"), "", errors.New("no"))
		}
		return false, nil, nil
	})
	c := NewForClient(client, Options{})
	if l, err := c.Lease(t.Context(), poolID); err != nil || l.Holder != "" {
		t.Errorf("never allowed: %+v, %v", l, err)
	}
	forbidden = false
	if l, err := c.Lease(t.Context(), poolID); err != nil || l.Holder != held().Holder {
		t.Errorf("allowed: %+v, %v", l, err)
	}
	forbidden = true
	if l, err := c.Lease(t.Context(), poolID); !errors.Is(err, kamino.ErrForbidden) {
		t.Errorf("not allowed any more: %+v, %v", l, err)
	}
}
