package choose

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	nodeutil "k8s.io/kubernetes/pkg/util/node"

	"kamino.dev/kamino"
	"kamino.dev/kamino/poolstate"
)

// donorWatch counts how many nodes carry a run's mark at the same time.
type donorWatch struct {
	mu      sync.Mutex
	marked  map[string]bool
	highest int
}

// watchDonors counts until the context ends.
func watchDonors(ctx context.Context, t *testing.T) *donorWatch {
	t.Helper()
	d := &donorWatch{marked: map[string]bool{}}
	w, err := shared.Client.CoreV1().Nodes().Watch(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		for ev := range w.ResultChan() {
			n, ok := ev.Object.(*corev1.Node)
			if !ok {
				continue
			}
			d.mu.Lock()
			delete(d.marked, n.Name)
			if _, ok := n.Annotations[kamino.AnnotationRun]; ok && ev.Type != watch.Deleted {
				d.marked[n.Name] = true
			}
			d.highest = max(d.highest, len(d.marked))
			d.mu.Unlock()
		}
	}()
	return d
}

func (d *donorWatch) most() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.highest
}

// No more donors are away at the same time than are allowed, though images are
// built together.
func TestDonorsAway(t *testing.T) {
	for _, test := range []struct {
		name  string
		ahead time.Duration // runs of one day would find the image of the other
		most  int           // allowed; 0 is any number
		want  int
	}{
		{"one by one", 0, 1, 1},
		{"all at once", 2 * day, 0, 2},
	} {
		t.Run(test.name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			donors := watchDonors(ctx, t)
			e := newEngine(t, test.ahead)
			var mu sync.Mutex
			building, together := map[string]bool{}, 0
			e.Report = func(ev kamino.Event) {
				mu.Lock()
				defer mu.Unlock()
				switch {
				case ev.Step == "image" && ev.Kind == kamino.EventStarted:
					building[ev.Pool] = true
				case ev.Step == "image":
				default:
					together = max(together, len(building))
				}
				if ev.Step == "image" && ev.Kind == kamino.EventDone {
					delete(building, ev.Pool)
				}
			}
			opts := kamino.AutoDefaults()
			opts.Proof.Mode = kamino.ProveNone
			opts.Pools, opts.Rules.MinReady, opts.MaxAway = []string{"k8s-a-vmss", "k8s-b-vmss"}, 0, test.most
			opts.Grace = time.Second
			for _, p := range opts.Pools {
				patch(t, p, time.Hour-test.ahead)
			}
			results, err := e.AutoUpdate(ctx, opts)
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range results {
				if r.Action != poolstate.DoUpdate || r.Result == nil {
					t.Errorf("pool %s: %+v", r.Name, r)
				}
			}
			if got := donors.most(); got != test.want {
				t.Errorf("%d donors were away at the same time, want %d", got, test.want)
			}
			if test.most == 1 && together == 0 {
				t.Error("no pool went on while the image of the other was built")
			}
		})
	}
}

// A candidate that cannot be drained is given back, and the next one is taken.
func TestNextCandidate(t *testing.T) {
	const pool = "k8s-a-vmss"
	e := newEngine(t, 4*day)
	opts := kamino.AutoDefaults()
	opts.Proof.Mode = kamino.ProveNone
	opts.Pools, opts.Rules.MinReady, opts.Grace = []string{pool}, 0, time.Second
	patch(t, pool, -4*day+time.Hour)
	plans, err := e.PlanPools(t.Context(), opts)
	if err != nil || len(plans) != 1 || plans[0].Action != poolstate.DoUpdate {
		t.Fatalf("plan: %+v, %v", plans, err)
	}
	first := plans[0].Donor
	// A pod without a controller leaves only by force.
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "alone", Namespace: "default"},
		Spec: corev1.PodSpec{NodeName: first, Containers: []corev1.Container{{Name: "c", Image: "registry.invalid/c"}}}}
	if _, err := shared.Client.CoreV1().Pods("default").Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = shared.Client.CoreV1().Pods("default").Delete(context.Background(), "alone", *metav1.NewDeleteOptions(0))
	})
	plans, err = e.PlanPools(t.Context(), opts)
	if err != nil || plans[0].Donor == first {
		t.Errorf("the plan still takes %s: %v", plans[0].Donor, err)
	}
	at := slices.IndexFunc(plans[0].Candidates, func(c kamino.Candidate) bool { return c.Node == first })
	if at < 0 || len(plans[0].Candidates[at].Reasons) != 1 || !strings.Contains(plans[0].Candidates[at].Reasons[0].Text, "alone") {
		t.Errorf("the plan does not tell of the pod: %+v", plans[0].Candidates)
	}
	results, err := e.AutoUpdate(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	r := results[0]
	if len(r.Failed) != 1 || r.Failed[0].Donor != first || !strings.Contains(r.Failed[0].Error, "alone") || r.Donor == first || r.Result == nil {
		t.Errorf("result: %+v", r)
	}
	n, err := shared.Client.CoreV1().Nodes().Get(t.Context(), first, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, marked := n.Annotations[kamino.AnnotationRun]; marked || len(n.Spec.Taints) > 0 || !nodeutil.IsNodeReady(n) {
		t.Errorf("the first candidate was not given back: %v, taints %v", n.Annotations, n.Spec.Taints)
	}
}
