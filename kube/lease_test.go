package kube

import (
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/kubernetes/fake"
	ktesting "k8s.io/client-go/testing"
	"sigs.k8s.io/yaml"

	"kamino.dev/kamino"
	"kamino.dev/kamino/internal/golden"
)

const poolID = kamino.PoolID("/subscriptions/s/resourceGroups/G/providers/Microsoft.Compute/virtualMachineScaleSets/k8s-Agent_1-vmss")

func TestLeaseName(t *testing.T) {
	if got, want := leaseName(poolID), "kamino-k8s-agent-1-vmss-"; !strings.HasPrefix(got, want) || len(got) != len(want)+8 {
		t.Errorf("got %q", got)
	}
	if leaseName(poolID) != leaseName(kamino.PoolID(strings.ToUpper(string(poolID)))) {
		t.Error("the name depends on the case of the ID")
	}
	if leaseName("/a/pool") == leaseName("/b/pool") {
		t.Error("two pools, one name")
	}
	for _, id := range []kamino.PoolID{"/x/" + kamino.PoolID(strings.Repeat("long-", 60)), "/x/___", "/x/", "", "/x/" + kamino.PoolID(strings.Repeat("a", 39)+"--b")} {
		if problems := validation.IsDNS1123Subdomain(leaseName(id)); len(problems) > 0 {
			t.Errorf("%q: %v", leaseName(id), problems)
		}
	}
}

func held() kamino.Lease {
	return kamino.Lease{
		Pool: poolID, Holder: "r1", Process: "host/1", Epoch: 7, Renewed: noon, Duration: time.Minute,
		Record: kamino.Record{Donor: "n1", Step: "drain", Sealing: true, Started: noon},
		Ledger: kamino.Ledger{Original: &kamino.SavedModel{At: noon, Image: "i", Saved: json.RawMessage(`{"a":1}`)}},
	}
}

func TestLease(t *testing.T) {
	client := fake.NewClientset()
	c := NewForClient(client, Options{})
	none, err := c.Lease(t.Context(), poolID)
	if diff := cmp.Diff(kamino.Lease{Pool: poolID}, none); err != nil || diff != "" {
		t.Fatal(err, diff)
	}
	write := func(l kamino.Lease) kamino.Lease {
		t.Helper()
		got, err := c.SetLease(t.Context(), l)
		if err != nil {
			t.Fatal(err)
		}
		read, err := c.Lease(t.Context(), poolID)
		if diff := cmp.Diff(got, read); err != nil || diff != "" {
			t.Fatal(err, diff)
		}
		got.Revision = l.Revision
		if diff := cmp.Diff(l, got); diff != "" {
			t.Fatal(diff)
		}
		return read
	}
	write(held())
	free := held()
	free.Revision, free.Holder, free.Process, free.Record = "1", "", "", kamino.Record{}
	write(free)
	object, err := client.CoordinationV1().Leases(kamino.SystemNamespace).Get(t.Context(), leaseName(poolID), metav1.GetOptions{})
	if err != nil || object.Spec.HolderIdentity != nil || *object.Spec.LeaseTransitions != 7 {
		t.Errorf("free lease: %v %+v", err, object.Spec)
	}
	all, err := c.Leases(t.Context())
	if err != nil || len(all) != 1 || all[0].Pool != poolID {
		t.Errorf("leases: %v, %v", all, err)
	}
}

func TestSetLeaseConflicts(t *testing.T) {
	leases := schema.GroupResource{Group: "coordination.k8s.io", Resource: "leases"}
	for name, tt := range map[string]struct {
		verb, revision string
		answer         error
	}{
		"created meanwhile": {"create", "", apierrors.NewAlreadyExists(leases, "l")},
		"changed meanwhile": {"patch", "5", apierrors.NewConflict(leases, "l", nil)},
		"deleted meanwhile": {"patch", "5", apierrors.NewNotFound(leases, "l")},
	} {
		t.Run(name, func(t *testing.T) {
			client := fake.NewClientset()
			client.PrependReactor(tt.verb, "leases", func(a ktesting.Action) (bool, runtime.Object, error) {
				if p, ok := a.(ktesting.PatchAction); ok && !strings.Contains(string(p.GetPatch()), `"resourceVersion":"5"`) {
					t.Errorf("%s: unconditional patch %s", name, p.GetPatch())
				}
				return true, nil, tt.answer
			})
			l := held()
			l.Revision = tt.revision
			if _, err := NewForClient(client, Options{}).SetLease(t.Context(), l); !errors.Is(err, kamino.ErrConflict) {
				t.Errorf("%s: got %v", name, err)
			}
		})
	}
}

// Neither a lease of a newer program nor anything that is not a lease of ours is read, so
// neither is written over.
func TestLeaseNotOurs(t *testing.T) {
	for name, change := range map[string]func(map[string]string){
		"newer format": func(a map[string]string) { a[annotationFormat] = "2" },
		"no format":    func(a map[string]string) { delete(a, annotationFormat) },
		"broken":       func(a map[string]string) { a[annotationRecord] = "?" },
		"broken too":   func(a map[string]string) { delete(a, annotationLedger) },
		"other pool":   func(a map[string]string) { a[annotationPool] = "/x" },
	} {
		t.Run(name, func(t *testing.T) {
			object, err := writeLease(held())
			if err != nil {
				t.Fatal(err)
			}
			object.Namespace = kamino.SystemNamespace
			change(object.Annotations)
			c := NewForClient(fake.NewClientset(object), Options{})
			if l, err := c.Lease(t.Context(), poolID); err == nil {
				t.Errorf("%s: read as %+v", name, l)
			}
			if _, err := c.SetLease(t.Context(), held()); !errors.Is(err, kamino.ErrConflict) {
				t.Errorf("%s: written over: %v", name, err)
			}
		})
	}
}

// TestLongLease: saved models with long settings fit, as they are stored compressed; where a lease
// is too large all the same, the error says so.
func TestLongLease(t *testing.T) {
	l := held()
	l.Ledger.Former = &kamino.SavedModel{At: noon, Image: "i", Saved: json.RawMessage(`{"script":"` + strings.Repeat("echo the same again; ", 10_000) + `"}`)}
	object, err := writeLease(l)
	if err != nil {
		t.Fatal(err)
	}
	if n := len(object.Annotations[annotationLedger]); n > 16<<10 {
		t.Errorf("the ledger takes %d bytes", n)
	}
	got, err := readLease(object)
	if diff := cmp.Diff(l.Ledger, got.Ledger); err != nil || diff != "" {
		t.Error(err, diff)
	}
	c := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		answer(t, w, http.StatusUnprocessableEntity, metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: "Failure", Code: 422, Reason: metav1.StatusReasonInvalid,
			Message: `Lease.coordination.k8s.io "kamino-x" is invalid: metadata.annotations: Too long: may not be more than 262144 bytes`})
	})
	if _, err := c.SetLease(t.Context(), held()); !errors.Is(err, kamino.ErrTooLarge) {
		t.Errorf("%v", err)
	}
}

// TestOneBadLease: a lease that cannot be read is an error of its pool, and hides no other's.
func TestOneBadLease(t *testing.T) {
	bad := held()
	bad.Pool = "/x/other"
	client := fake.NewClientset()
	for _, l := range []kamino.Lease{held(), bad} {
		object, err := writeLease(l)
		if err != nil {
			t.Fatal(err)
		}
		if l.Pool == bad.Pool {
			object.Annotations[annotationFormat] = "9" // a newer version wrote it
		}
		if _, err := client.CoordinationV1().Leases(kamino.SystemNamespace).Create(t.Context(), object, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	c := NewForClient(client, Options{})
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

// TestLeaseFormat freezes the object that a lease is. From the first release on a change of the
// golden file may only add lines.
func TestLeaseFormat(t *testing.T) {
	object, err := writeLease(held())
	if err != nil {
		t.Fatal(err)
	}
	text, err := yaml.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	golden.Check(t, "testdata/lease.yaml", string(text))
	written, err := os.ReadFile("testdata/lease.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var read coordinationv1.Lease
	if err := yaml.Unmarshal(written, &read); err != nil {
		t.Fatal(err)
	}
	got, err := readLease(&read)
	if diff := cmp.Diff(held(), got); err != nil || diff != "" {
		t.Error(err, diff)
	}
}
