package kube

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"

	"kamino.dev/kamino"
)

// serve makes a Cluster of New that talks to a handler.
func serve(t *testing.T, handler http.HandlerFunc) *Cluster {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	c, err := New(&rest.Config{Host: server.URL}, Options{Version: "1.2.3"})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func answer(t *testing.T, w http.ResponseWriter, code int, body any) {
	t.Helper()
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	if err := json.NewEncoder(w).Encode(body); err != nil {
		t.Error(err)
	}
}

func TestNodesPages(t *testing.T) {
	requests := 0
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		requests++
		q := r.URL.Query()
		if q.Get("limit") != "200" || q.Get("resourceVersion") != "" || r.UserAgent() != "kamino/1.2.3" ||
			!strings.HasPrefix(r.Header.Get("Accept"), "application/vnd.kubernetes.protobuf") {
			t.Errorf("request %s %v", r.URL, r.Header)
		}
		list := corev1.NodeList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "NodeList"},
			Items: []corev1.Node{{ObjectMeta: metav1.ObjectMeta{Name: "n" + q.Get("continue")}}}}
		if q.Get("continue") == "" {
			list.Continue = "2"
		}
		answer(t, w, http.StatusOK, list)
	})
	got, err := c.Nodes(t.Context())
	if err != nil || len(got) != 2 || got[0].Name != "n" || got[1].Name != "n2" || requests != 2 {
		t.Errorf("got %v, %v after %d requests", got, err, requests)
	}
}

// client-go would sleep and try again by itself.
func TestRetryAfterIsTheEnginesBusiness(t *testing.T) {
	for _, code := range []int{429, 503} {
		requests := 0
		c := serve(t, func(w http.ResponseWriter, _ *http.Request) {
			requests++
			w.Header().Set("Retry-After", "3600")
			reason := metav1.StatusReasonTooManyRequests
			if code == 503 {
				reason = metav1.StatusReasonServiceUnavailable
			}
			answer(t, w, code, metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: "Failure", Code: int32(code),
				Reason: reason, Details: &metav1.StatusDetails{RetryAfterSeconds: 3600}})
		})
		_, err := c.Node(t.Context(), "n1")
		var throttled *kamino.ThrottledError
		switch {
		case requests != 1:
			t.Errorf("%d: %d requests", code, requests)
		case code == 429 && (!errors.As(err, &throttled) || throttled.After != time.Hour):
			t.Errorf("%d: got %v", code, err)
		case code == 503 && !errors.Is(err, kamino.ErrUnavailable):
			t.Errorf("%d: got %v", code, err)
		}
	}
}

func TestUnreachable(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	host := listener.Addr().String()
	listener.Close()
	c, err := New(&rest.Config{Host: host}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Node(t.Context(), "n1"); !errors.Is(err, kamino.ErrUnavailable) || !strings.Contains(err.Error(), host) || kamino.Hint(err) == "" {
		t.Errorf("got %v, hint %q", err, kamino.Hint(err))
	}
	server := httptest.NewTLSServer(http.NotFoundHandler())
	defer server.Close()
	if c, err = New(&rest.Config{Host: server.URL}, Options{}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Node(t.Context(), "n1"); err == nil || errors.Is(err, kamino.ErrUnavailable) || !strings.Contains(kamino.Hint(err), "certificate-authority") {
		t.Errorf("foreign certificate: got %v, hint %q", err, kamino.Hint(err))
	}
}

func TestExplain(t *testing.T) {
	for name, tt := range map[string]struct{ err, want error }{
		"not found":      {apierrors.NewNotFound(podsResource, "a"), kamino.ErrNotFound},
		"conflict":       {apierrors.NewConflict(podsResource, "a", nil), kamino.ErrConflict},
		"already exists": {apierrors.NewAlreadyExists(podsResource, "a"), kamino.ErrConflict},
		"expired":        {apierrors.NewResourceExpired("old"), kamino.ErrConflict},
		"forbidden":      {apierrors.NewForbidden(podsResource, "a", errors.New("no")), kamino.ErrForbidden},
		"unauthorized":   {apierrors.NewUnauthorized("no"), kamino.ErrForbidden},
		"internal":       {apierrors.NewInternalError(errors.New("x")), kamino.ErrUnavailable},
		"timeout":        {apierrors.NewTimeoutError("x", 1), kamino.ErrUnavailable},
		"server timeout": {apierrors.NewServerTimeout(podsResource, "get", 1), kamino.ErrUnavailable},
		"unavailable":    {apierrors.NewServiceUnavailable("x"), kamino.ErrUnavailable},
		"proxy":          {apierrors.NewGenericServerResponse(502, "get", podsResource, "a", "x", 0, true), kamino.ErrUnavailable},
		"deadline":       {context.DeadlineExceeded, kamino.ErrUnavailable},
		"cancelled":      {context.Canceled, context.Canceled},
	} {
		t.Run(name, func(t *testing.T) {
			got := explain("get pods", tt.err)
			if !errors.Is(got, tt.want) || !errors.Is(got, tt.err) || got.Error() != tt.err.Error() {
				t.Errorf("%s: got %v", name, got)
			}
		})
	}
	for what, role := range map[string]string{
		"patch namespaces/kamino-system": "clusterrole=kamino-pause", "list nodes": "clusterrole=kamino-status", "list leases.coordination.k8s.io -n kamino-system": "clusterrole=kamino-status",
		"patch leases.coordination.k8s.io -n kamino-system": "role=kamino-run", "delete nodes": "clusterrole=kamino-prove", "delete pods --all-namespaces": "clusterrole=kamino-force",
	} {
		t.Run(what, func(t *testing.T) {
			if hint := kamino.Hint(explain(what, apierrors.NewForbidden(podsResource, "a", nil))); !strings.Contains(hint, "kubectl create ") || !strings.Contains(hint, " --"+role+" --user='USER'") || !strings.HasSuffix(hint, "kubectl auth can-i "+what) {
				t.Errorf("%s: hint %q", what, hint)
			} else if reads := strings.HasSuffix(role, "kamino-status"); reads != strings.Contains(hint, "also need: kubectl create clusterrolebinding kamino-run-USER --clusterrole=kamino-run --user='USER' && kubectl create rolebinding ") {
				t.Errorf("%s, which who updates reads first: hint %q", what, hint)
			}
		})
	}
	if hint := kamino.Hint(explain("get pods", apierrors.NewForbidden(podsResource, "a", nil))); !strings.HasSuffix(hint, "kubectl auth can-i get pods") {
		t.Errorf("hint %q", hint)
	}
	invalid := explain("x", apierrors.NewBadRequest("x"))
	for _, class := range []error{kamino.ErrUnavailable, kamino.ErrConflict, kamino.ErrNotFound, kamino.ErrForbidden} {
		if errors.Is(invalid, class) {
			t.Errorf("bad request is %v", class)
		}
	}
}

func TestRecord(t *testing.T) {
	client := fake.NewClientset()
	c := NewForClient(client, Options{Clock: &fixedClock{now: noon}, Process: "host/1"})
	for range 2 { // who adopts the run tells the same
		c.Record(t.Context(), kamino.Node{Name: "n1", UID: "u1"}, "run-1", "KaminoSealing", strings.Repeat("é", 1000))
	}
	list, err := client.CoreV1().Events("default").List(t.Context(), metav1.ListOptions{})
	if err != nil || len(list.Items) != 1 {
		t.Fatalf("events: %v, %v", list.Items, err)
	}
	e := list.Items[0]
	if e.InvolvedObject.UID != "n1" || e.InvolvedObject.Kind != "Node" || e.Reason != "KaminoSealing" || e.ReportingController != "kamino" ||
		e.ReportingInstance != "host/1" || len(e.Message) != maxMessage || !e.LastTimestamp.Time.Equal(noon) {
		t.Errorf("event: %+v", e)
	}
}

// TestEventType: what somebody should look at is a Warning.
func TestEventType(t *testing.T) {
	for reason, want := range map[string]string{kamino.EventProofFailed: "Warning", kamino.EventProofInconclusive: "Warning", kamino.EventPatchFailed: "Warning", kamino.EventRunFailed: "Warning", kamino.EventDonorAway: "Warning", "KaminoDraining": "Normal"} {
		t.Run(reason, func(t *testing.T) {
			if got := eventType(reason); got != want {
				t.Errorf("%s: %s, want %s", reason, got, want)
			}
		})
	}
}

// TestListExpires: etcd's compaction or another API server answers 410 to the second page. Each
// list is begun again, once.
func TestListExpires(t *testing.T) {
	for name, tt := range map[string]struct {
		object any
		list   func(*Cluster) (int, error)
	}{
		"nodes": {corev1.Node{}, func(c *Cluster) (int, error) { got, err := c.Nodes(t.Context()); return len(got), err }},
		"leases": {coordinationv1.Lease{}, func(c *Cluster) (int, error) {
			got, err := c.leases(t.Context(), metav1.ListOptions{})
			return len(got), err
		}},
		"pods": {pod("a"), func(c *Cluster) (int, error) {
			got, err := c.podsOn(t.Context(), kamino.Node{Name: "n1"})
			return len(got), err
		}},
		"budgets": {policyv1.PodDisruptionBudget{}, func(c *Cluster) (int, error) { got, err := c.budgets(t.Context(), ""); return len(got), err }},
		"volumes": {volume(localDisk, on(corev1.LabelHostname, "n1")), func(c *Cluster) (int, error) {
			var refused *kamino.RefusedError
			if err := c.refuseLocal(t.Context(), kamino.Node{Name: "n1"}, nil); !errors.As(err, &refused) {
				return 0, err
			}
			return len(refused.Refusals), nil
		}},
		"lists of packages": {corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: listName("r"), Labels: map[string]string{labelRun: "r"}, Annotations: map[string]string{annotationPool: "p"}}},
			func(c *Cluster) (int, error) { got, err := c.Lists(t.Context(), "p"); return len(got), err }},
	} {
		for gone := range 3 {
			t.Run(fmt.Sprintf("%s, %d times", name, gone), func(t *testing.T) {
				left := gone
				c := serve(t, func(w http.ResponseWriter, r *http.Request) {
					next := r.URL.Query().Get("continue")
					if next != "" && left > 0 {
						left--
						answer(t, w, http.StatusGone, metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: "Failure", Code: http.StatusGone,
							Reason: metav1.StatusReasonExpired, Message: "The provided continue parameter is too old to display a consistent list result."})
						return
					}
					meta := map[string]string{}
					if next == "" {
						meta["continue"] = "2"
					}
					answer(t, w, http.StatusOK, map[string]any{"metadata": meta, "items": []any{tt.object}})
				})
				switch n, err := tt.list(c); {
				case gone < 2 && (err != nil || n != 2):
					t.Errorf("%d of 2, %v", n, err)
				case gone == 2 && !errors.Is(err, kamino.ErrConflict):
					t.Errorf("%d, %v", n, err)
				}
			})
		}
	}
}

// TestEventName: names of nodes and prototypes have up to 253 characters, and any of them may be a
// dash or a dot but the last.
func TestEventName(t *testing.T) {
	for _, end := range []string{"a", "-", ".", "-.-"} {
		name := strings.Repeat("a", 200-len(end)) + end + strings.Repeat("b", 53)
		if bad := validation.NameIsDNSSubdomain(eventName(name, "run", "KaminoDonorAway"), false); len(bad) > 0 {
			t.Errorf("a name with %q before its 200th place: %v", end, bad)
		}
	}
}
