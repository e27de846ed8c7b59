package kubetest

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"kamino.dev/kamino"
	"kamino.dev/kamino/kube"
)

// laterClock is the wall clock, some time ahead.
type laterClock struct {
	kamino.WallClock
	ahead time.Duration
}

func (c *laterClock) Now() time.Time { return c.WallClock.Now().Add(c.ahead) }

// adopt makes a ReplicaSet that adopts the pods of an app. Those that it makes
// in place of evicted ones find no node.
func adopt(t *testing.T, app string, count int32) {
	t.Helper()
	labels := map[string]string{"app": app}
	sets := admin.AppsV1().ReplicaSets("default")
	_, err := sets.Create(t.Context(), &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{Name: app},
		Spec: appsv1.ReplicaSetSpec{Replicas: &count, Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: corev1.PodSpec{NodeSelector: map[string]string{"nowhere": "true"}, Containers: []corev1.Container{{Name: "c", Image: "i"}}}}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := sets.Delete(context.WithoutCancel(t.Context()), app, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
	eventually(t, "the pods to be adopted", func() bool {
		pods, err := admin.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{LabelSelector: "app=" + app})
		return err == nil && len(pods.Items) == int(count) && !slices.ContainsFunc(pods.Items, func(p corev1.Pod) bool {
			return metav1.GetControllerOf(&p) == nil
		})
	})
}

// protect makes a disruption budget of an app.
func protect(t *testing.T, name, app string, atLeast int, allows int32) {
	t.Helper()
	budgets := admin.PolicyV1().PodDisruptionBudgets("default")
	available := intstr.FromInt(atLeast)
	_, err := budgets.Create(t.Context(), &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       policyv1.PodDisruptionBudgetSpec{MinAvailable: &available, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := budgets.Delete(context.WithoutCancel(t.Context()), name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
	eventually(t, "the budget to be counted", func() bool {
		b, err := budgets.Get(t.Context(), name, metav1.GetOptions{})
		return err == nil && b.Status.ObservedGeneration == b.Generation && b.Status.DisruptionsAllowed == allows && b.Status.CurrentHealthy > 0
	})
}

func of(app string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Labels["app"] = app }
}

func cordoned(name string) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.NodeSpec{Unschedulable: true}}
}

// evict makes a round and compares what is left: name to reason.
func (s *subject) evict(t *testing.T, opts kamino.DrainOptions, requests int, want map[string]string) {
	t.Helper()
	left, err := s.Evict(t.Context(), kamino.Node{Name: "drained"}, opts)
	if err != nil {
		t.Fatal(err)
	}
	s.cost(t, requests)
	got := map[string]string{}
	for _, p := range left {
		got[p.Name] = p.Reason
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("pods left: %s", diff)
	}
}

func TestEvict(t *testing.T) {
	clock := &laterClock{}
	s := newSubject(t, kube.Options{Clock: clock})
	makeNode(t, cordoned("drained"))
	makePod(t, "drained", "web-1", of("web"))
	makePod(t, "drained", "web-2", of("web"))
	makePod(t, "drained", "twice", of("twice"))
	makePod(t, "drained", "alone", nil)
	adopt(t, "web", 2)
	adopt(t, "twice", 1)
	protect(t, "web", "web", 1, 1)
	protect(t, "one", "twice", 0, 1)
	protect(t, "two", "twice", 0, 1)
	if err := s.RemoveAgents(t.Context(), "drain", []kamino.Task{kamino.TaskSeal, kamino.TaskInventory}); err != nil {
		t.Fatal(err)
	}
	s.cost(t, 2) // the seal pod and the inventory's

	pods, err := s.Preview(t.Context(), kamino.Node{Name: "drained"}, kamino.DrainOptions{})
	s.cost(t, 3) // pods, volumes, budgets
	const several = "matched by several PodDisruptionBudgets; the eviction API refuses such pods: one, two"
	const unmanaged = "no controller would recreate it"
	if diff := cmp.Diff([]kamino.Pod{
		{Namespace: "default", Name: "alone", Reason: unmanaged, Stuck: true},
		{Namespace: "default", Name: "twice", Reason: several, Stuck: true},
		{Namespace: "default", Name: "web-1"},
		{Namespace: "default", Name: "web-2"},
	}, pods, cmpopts.IgnoreFields(kamino.Pod{}, "UID", "Controller")); err != nil || diff != "" {
		t.Fatal(err, diff)
	}

	held := "The disruption budget web needs 1 healthy pods and has 1 currently"
	// The list, three evictions, and the list of budgets for the reason of one.
	patient := kamino.DrainOptions{Grace: 30 * time.Second}
	left, err := s.Evict(t.Context(), kamino.Node{Name: "drained"}, patient)
	if err != nil || len(left) != 4 || left[2].Reason != "ending" || !strings.HasPrefix(left[3].Reason, "The disruption budget web ") {
		t.Fatalf("first round: %+v, %v", left, err)
	}
	s.cost(t, 5)
	eventually(t, "the budget to be counted anew", func() bool {
		b, err := admin.PolicyV1().PodDisruptionBudgets("default").Get(t.Context(), "web", metav1.GetOptions{})
		return err == nil && b.Status.DisruptionsAllowed == 0 && b.Status.CurrentHealthy == 1 && b.Status.ObservedGeneration == b.Generation
	})
	s.evict(t, patient, 4, map[string]string{"web-1": "ending", "web-2": held, "twice": several, "alone": unmanaged})
	endPod(t, "default", "web-1")
	s.evict(t, patient, 4, map[string]string{"web-2": held, "twice": several, "alone": unmanaged})

	// With force the pod that nobody brings back leaves; budgets still hold.
	forced := kamino.DrainOptions{Grace: 30 * time.Second, Force: true}
	s.evict(t, forced, 5, map[string]string{"web-2": held, "twice": several, "alone": "ending"})
	overdue := kamino.DrainOptions{Force: true, Overdue: true}
	told := "deleted with a grace of 1s"
	s.evict(t, overdue, 4, map[string]string{"web-2": told, "twice": told, "alone": told})
	s.evict(t, overdue, 1, map[string]string{"web-2": "ending", "twice": "ending", "alone": "ending"})
	clock.ahead = time.Minute
	told = "deleted with a grace of 0s"
	s.evict(t, overdue, 4, map[string]string{"web-2": told, "twice": told, "alone": told})
	s.evict(t, overdue, 1, map[string]string{})
}

// Whose pods stay: those of DaemonSets, at no request each, and the seal pod.
func TestEvictLeaves(t *testing.T) {
	s := newSubject(t, kube.Options{SealImage: sealImage})
	makeNode(t, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "drained", Labels: map[string]string{"daemons": "here"}}})
	labels := map[string]string{"app": "daemon"}
	daemons := admin.AppsV1().DaemonSets("default")
	_, err := daemons.Create(t.Context(), &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Name: "daemon"},
		Spec: appsv1.DaemonSetSpec{Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: corev1.PodSpec{NodeSelector: map[string]string{"daemons": "here"}, Containers: []corev1.Container{{Name: "c", Image: "i"}}}}}},
		metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := daemons.Delete(context.WithoutCancel(t.Context()), "daemon", metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
	eventually(t, "the daemon", func() bool {
		pods, err := admin.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{FieldSelector: "spec.nodeName=drained"})
		if err != nil || len(pods.Items) != 1 {
			return false
		}
		runPod(t, &pods.Items[0])
		return true
	})
	n := kamino.Node{Name: "drained"}
	if err := s.StartAgent(t.Context(), n, kamino.TaskSeal, kamino.SealOrder{Run: "stays"}); err != nil {
		t.Fatal(err)
	}
	s.cost(t, 1)
	s.evict(t, kamino.DrainOptions{Force: true, Overdue: true}, 1, map[string]string{})
	if err := s.RemoveAgents(t.Context(), "stays", []kamino.Task{kamino.TaskSeal, kamino.TaskInventory}); err != nil {
		t.Fatal(err)
	}
}

// What Evict relies on: a request for one pod never meets another of its name.
func TestEvictionIsForOnePod(t *testing.T) {
	makeNode(t, cordoned("twins"))
	makePod(t, "twins", "twin", nil)
	another := metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions("another")}
	err := admin.PolicyV1().Evictions("default").Evict(t.Context(), &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "twin"}, DeleteOptions: &another})
	if !apierrors.IsConflict(err) {
		t.Errorf("evict: %v", err)
	}
	if err := admin.CoreV1().Pods("default").Delete(t.Context(), "twin", another); !apierrors.IsConflict(err) {
		t.Errorf("delete: %v", err)
	}
}

// A rehearsal goes through admission and budgets and leaves everything as it was.
func TestRehearse(t *testing.T) {
	s := newSubject(t, kube.Options{SealImage: sealImage})
	makeNode(t, cordoned("rehearsed"))
	makePod(t, "rehearsed", "calm", of("calm"))
	makePod(t, "rehearsed", "held", of("held"))
	makePod(t, "rehearsed", "both", of("both"))
	makePod(t, "rehearsed", "bare", nil)
	adopt(t, "calm", 1)
	adopt(t, "held", 1)
	adopt(t, "both", 1)
	protect(t, "holds", "held", 1, 0) // a drain waits for it, and for somebody to scale up
	protect(t, "one", "both", 0, 1)
	protect(t, "two", "both", 0, 1)
	n := kamino.Node{Name: "rehearsed"}
	stuck := func(opts kamino.DrainOptions) []string {
		t.Helper()
		pods, err := s.Rehearse(t.Context(), n, kamino.SealOrder{Run: "rehearsed", Nonce: "n"}, opts)
		if err != nil {
			t.Fatal(err)
		}
		names := []string{}
		for _, p := range pods {
			if !p.Stuck {
				p.Name += " perhaps"
			}
			names = append(names, p.Name+": "+p.Reason)
		}
		return names
	}
	several := "both: matched by several PodDisruptionBudgets; the eviction API refuses such pods: one, two"
	scarce := "held perhaps: the disruption budget holds requires 1 of 1 pods healthy, and allows an eviction only when more are"
	if diff := cmp.Diff([]string{"bare: no controller would recreate it", several, scarce}, stuck(kamino.DrainOptions{Grace: time.Minute})); diff != "" {
		t.Error(diff)
	}
	forced := strings.Replace(several, "both:", "both perhaps: only force removes it, once the time for evictions is over:", 1)
	if diff := cmp.Diff([]string{forced, scarce}, stuck(kamino.DrainOptions{Grace: time.Minute, Force: true})); diff != "" {
		t.Error("with force: ", diff)
	}
	pods, err := admin.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{FieldSelector: "spec.nodeName=rehearsed"})
	if err != nil || len(pods.Items) != 4 {
		t.Errorf("%d pods are left of 4, %v", len(pods.Items), err)
	}
	for _, p := range pods.Items {
		if p.DeletionTimestamp != nil {
			t.Errorf("pod %s was evicted", p.Name)
		}
	}
	if pod, err := s.AgentPod(t.Context(), "rehearsed", kamino.TaskSeal); err != nil || pod.Exists {
		t.Errorf("the seal pod exists: %+v, %v", pod, err)
	}
}
