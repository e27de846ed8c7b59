package kubetest

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"kamino.dev/kamino"
	"kamino.dev/kamino/kube"
)

func lease(pool, holder string, epoch int64) kamino.Lease {
	return kamino.Lease{
		Pool: kamino.PoolID("/subscriptions/s/resourceGroups/g/" + pool), Holder: holder, Process: "host/1", Epoch: epoch,
		Renewed: time.Now().UTC().Truncate(time.Microsecond), Duration: kamino.LeaseDuration,
		Record: kamino.Record{Donor: "n1", Step: "drain", Intent: `say "hi"`},
		Ledger: kamino.Ledger{Former: &kamino.SavedModel{At: time.Now().UTC(), Image: "i", Saved: json.RawMessage(`{"a":[1]}`)}},
	}
}

func TestLease(t *testing.T) {
	s := newSubject(t, kube.Options{})
	want := lease("pool-1", "r1", 1)
	none, err := s.Lease(t.Context(), want.Pool)
	if diff := cmp.Diff(kamino.Lease{Pool: want.Pool}, none); err != nil || diff != "" {
		t.Fatal(err, diff)
	}
	s.cost(t, 1)
	first, err := s.SetLease(t.Context(), want)
	if err != nil {
		t.Fatal(err)
	}
	s.cost(t, 1)
	want.Revision = first.Revision
	if diff := cmp.Diff(want, first); diff != "" || first.Revision == "" {
		t.Error(diff)
	}
	if _, err := s.SetLease(t.Context(), lease("pool-1", "r2", 1)); !errors.Is(err, kamino.ErrConflict) {
		t.Errorf("created twice: %v", err)
	}
	object := annotate(t, first.Pool, "person/note", "mine")
	second := first
	second.Holder, second.Epoch = "r2", 2
	if _, err := s.SetLease(t.Context(), second); !errors.Is(err, kamino.ErrConflict) {
		t.Errorf("written over what changed: %v", err)
	}
	s.cost(t, 2)
	if second, err = s.Lease(t.Context(), first.Pool); err != nil {
		t.Fatal(err)
	}
	second.Holder, second.Process, second.Record, second.Epoch = "", "", kamino.Record{}, 3
	freed, err := s.SetLease(t.Context(), second)
	if err != nil {
		t.Fatal(err)
	}
	s.cost(t, 2)
	second.Revision = freed.Revision
	if diff := cmp.Diff(second, freed); diff != "" {
		t.Error(diff)
	}
	got, err := admin.CoordinationV1().Leases(kamino.SystemNamespace).Get(t.Context(), object, metav1.GetOptions{})
	if err != nil || got.Annotations["person/note"] != "mine" || got.Spec.HolderIdentity != nil || *got.Spec.LeaseTransitions != 3 {
		t.Errorf("lease: %+v, %v", got, err)
	}
	if err := admin.CoordinationV1().Leases(kamino.SystemNamespace).Delete(t.Context(), object, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.SetLease(t.Context(), freed); !errors.Is(err, kamino.ErrConflict) {
		t.Errorf("written although deleted: %v", err)
	}
}

// annotate writes an annotation on the lease of a pool, and returns its name.
func annotate(t *testing.T, pool kamino.PoolID, key, value string) string {
	t.Helper()
	leases := admin.CoordinationV1().Leases(kamino.SystemNamespace)
	list, err := leases.List(t.Context(), metav1.ListOptions{LabelSelector: "app.kubernetes.io/managed-by=kamino"})
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range list.Items {
		if l.Annotations["kamino.dev/pool"] != string(pool) {
			continue
		}
		patch, _ := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]string{key: value}}})
		if _, err := leases.Patch(t.Context(), l.Name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
		return l.Name
	}
	t.Fatalf("no lease of pool %s in %v", pool, list.Items)
	return ""
}

// A newer program's lease is neither read nor, for want of a revision, written.
func TestLeaseOfNewerProgram(t *testing.T) {
	s := newSubject(t, kube.Options{})
	l, err := s.SetLease(t.Context(), lease("pool-2", "r1", 1))
	if err != nil {
		t.Fatal(err)
	}
	all, err := s.Leases(t.Context())
	if err != nil || len(all) != 1 || all[0].Pool != l.Pool {
		t.Errorf("leases: %+v, %v", all, err)
	}
	annotate(t, l.Pool, "kamino.dev/format", "99")
	if _, err := s.Lease(t.Context(), l.Pool); err == nil || !strings.Contains(err.Error(), "newer kamino") {
		t.Errorf("read: %v", err)
	}
	if _, err := s.SetLease(t.Context(), l); !errors.Is(err, kamino.ErrConflict) {
		t.Errorf("written at its former revision: %v", err)
	}
	l.Revision = ""
	if _, err := s.SetLease(t.Context(), l); !errors.Is(err, kamino.ErrConflict) {
		t.Errorf("written as new: %v", err)
	}
}

func TestSeal(t *testing.T) {
	s := newSubject(t, kube.Options{SealImage: sealImage})
	makeNode(t, cordoned("sealed"))
	n := s.node(t, "sealed")
	for range 2 {
		if err := s.StartAgent(t.Context(), n, kamino.TaskSeal, kamino.SealOrder{Run: "r1"}); err != nil {
			t.Fatal(err)
		}
		s.cost(t, 1)
	}
	got, err := s.AgentPod(t.Context(), "r1", kamino.TaskSeal)
	if diff := cmp.Diff(kamino.AgentPod{Exists: true, Name: "kamino-system/kamino-seal-r1", Node: "sealed", Message: "pending"}, got); err != nil || diff != "" {
		t.Error(err, diff)
	}
	s.cost(t, 1)
	sealStatus(t, `{"phase":"Pending","containerStatuses":[{"name":"seal","image":"reg/kamino:1","imageID":"",
			"state":{"waiting":{"reason":"ErrImagePull","message":"not found"}}}]}`)
	got, err = s.AgentPod(t.Context(), "r1", kamino.TaskSeal)
	if err != nil || !got.Failed || got.Started || got.Message != "pending, ErrImagePull: not found, image reg/kamino:1" {
		t.Errorf("no image: %+v, %v", got, err)
	}
	sealStatus(t, `{"phase":"Running","containerStatuses":[{"name":"seal","image":"reg/kamino:1","imageID":"",
			"state":{"running":{"startedAt":"2026-03-04T12:00:00Z"}}}]}`)
	if got, err = s.AgentPod(t.Context(), "r1", kamino.TaskSeal); err != nil || got.Failed || !got.Started {
		t.Errorf("running: %+v, %v", got, err)
	}
	for range 2 {
		if err := s.RemoveAgents(t.Context(), "r1", []kamino.Task{kamino.TaskSeal, kamino.TaskInventory}); err != nil {
			t.Fatal(err)
		}
	}
	// Gone at once, although no kubelet confirms it.
	if got, err = s.AgentPod(t.Context(), "r1", kamino.TaskSeal); err != nil || got.Exists {
		t.Errorf("deleted: %+v, %v", got, err)
	}
}

func sealStatus(t *testing.T, status string) {
	t.Helper()
	_, err := admin.CoreV1().Pods(kamino.SystemNamespace).Patch(t.Context(), "kamino-seal-r1", types.StrategicMergePatchType,
		[]byte(`{"status":`+status+`}`), metav1.PatchOptions{}, "status")
	if err != nil {
		t.Fatal(err)
	}
}

// A namespace with a Pod Security Standard does not admit the seal pod; the
// hint says what to do.
func TestSealPodSecurity(t *testing.T) {
	enforce := func(level string) {
		t.Helper()
		patch := `{"metadata":{"labels":{"pod-security.kubernetes.io/enforce":` + level + `}}}`
		_, err := admin.CoreV1().Namespaces().Patch(context.WithoutCancel(t.Context()), kamino.SystemNamespace, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
		if err != nil {
			t.Error(err)
		}
	}
	enforce(`"baseline"`)
	t.Cleanup(func() { enforce("null") })
	s := newSubject(t, kube.Options{SealImage: sealImage})
	err := s.StartAgent(t.Context(), kamino.Node{Name: "n"}, kamino.TaskSeal, kamino.SealOrder{Run: "r1"})
	refused := (*kamino.RefusedError)(nil)
	if !errors.As(err, &refused) || !strings.Contains(refused.Refusals[0].Do, "must be privileged") {
		t.Errorf("got %v", err)
	}
}
