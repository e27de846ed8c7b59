package kube

import (
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes/fake"
	ktesting "k8s.io/client-go/testing"

	"kamino.dev/kamino"
)

// limited is a budget that allows nothing now.
func limited(most string, expected, desired int32) *policyv1.PodDisruptionBudget {
	b := budget("b", 0)
	b.Status.ExpectedPods, b.Status.DesiredHealthy, b.Status.CurrentHealthy = expected, desired, desired
	if most != "" {
		n := intstr.Parse(most)
		b.Spec.MaxUnavailable = &n
	}
	return b
}

// wanting is a budget of minAvailable that allows nothing now.
func wanting(least string) *policyv1.PodDisruptionBudget {
	b, n := limited("", 0, 0), intstr.Parse(least)
	b.Spec.MinAvailable = &n
	return b
}

func finalizer(p *corev1.Pod) { p.Finalizers = []string{"x.example/hold"} }

func grace(d time.Duration) func(*corev1.Pod) {
	seconds := int64(d / time.Second)
	return func(p *corev1.Pod) { p.Spec.TerminationGracePeriodSeconds = &seconds }
}

// TestRehearse: what can never leave is found out before the first eviction, what may not is a
// doubt, and what a drain waits for is neither.
func TestRehearse(t *testing.T) {
	full := budgetError("The disruption budget b needs 1 healthy pods and has 1 currently", 0)
	webhook := apierrors.NewForbidden(podsResource, "a", errors.New(`admission webhook "w" denied the request: not now`))
	noDry := apierrors.NewBadRequest(`admission webhook "w" does not support dry run`)
	const within = 45 * time.Minute
	for name, tt := range map[string]struct {
		answer  error
		objects []runtime.Object
		force   bool
		stuck   bool
		want    string // part of the reason; "": nothing is in the way
	}{
		"leaves":                                {objects: []runtime.Object{pod("a")}},
		"budget that allows none now":           {answer: full, objects: []runtime.Object{pod("a"), limited("1", 3, 2)}},
		"budget with maxUnavailable 0":          {answer: full, objects: []runtime.Object{pod("a"), limited("0", 0, 0)}, stuck: true, want: "never allows an eviction"},
		"budget with maxUnavailable 0%":         {answer: full, objects: []runtime.Object{pod("a"), limited("0%", 3, 3)}, stuck: true, want: "never allows an eviction"},
		"budget with minAvailable 100%":         {answer: full, objects: []runtime.Object{pod("a"), wanting("100%")}, stuck: true, want: "never allows an eviction"},
		"budget with minAvailable 0":            {answer: full, objects: []runtime.Object{pod("a"), wanting("0")}},
		"budget that wants all pods":            {answer: full, objects: []runtime.Object{pod("a"), limited("", 1, 1)}, want: "requires 1 of 1 pods healthy"},
		"budget with maxUnavailable 0, forced":  {answer: full, objects: []runtime.Object{pod("a"), limited("0", 1, 1)}, force: true, want: "only force removes it"},
		"budget that is not known":              {answer: full, objects: []runtime.Object{pod("a")}},
		"several budgets, forced":               {answer: several, objects: []runtime.Object{pod("a")}, force: true, want: "only force removes it"},
		"webhook denies":                        {answer: webhook, objects: []runtime.Object{pod("a")}, want: "not now"},
		"webhook without dry run":               {answer: noDry, objects: []runtime.Object{pod("a")}},
		"ending":                                {objects: []runtime.Object{pod("a", deleting(30, noon.Add(-time.Minute)), finalizer)}},
		"ended a day ago, finalizer":            {objects: []runtime.Object{pod("a", deleting(30, noon.Add(-24*time.Hour)), finalizer)}, stuck: true, want: "should have ended 24h0m0s ago; finalizers x.example/hold"},
		"ended a day ago, finalizer, forced":    {objects: []runtime.Object{pod("a", deleting(30, noon.Add(-24*time.Hour)), finalizer)}, force: true, stuck: true, want: "finalizers"},
		"ended a day ago, kubelet mute":         {objects: []runtime.Object{pod("a", deleting(30, noon.Add(-24*time.Hour)))}, stuck: true, want: "should have ended"},
		"ended a day ago, kubelet mute, forced": {objects: []runtime.Object{pod("a", deleting(30, noon.Add(-24*time.Hour)))}, force: true},
		"webhook answers 409":                   {answer: conflict("a failover is running"), objects: []runtime.Object{pod("a")}, want: "a failover is running"},
		"comes back":                            {objects: []runtime.Object{pod("a", tolerating(corev1.Toleration{Operator: corev1.TolerationOpExists}))}, stuck: true, want: kamino.TaintBlock},
		"comes back, forced":                    {objects: []runtime.Object{pod("a", tolerating(corev1.Toleration{Operator: corev1.TolerationOpExists}))}, force: true, stuck: true, want: kamino.TaintBlock},
		"asks for more than the drain has":      {objects: []runtime.Object{pod("a", grace(2*time.Hour))}, want: "grace period is 2h0m0s, and the time limit of the whole drain 45m0s"},
		"asks for all that the drain has":       {objects: []runtime.Object{pod("a", grace(within))}},
	} {
		t.Run(name, func(t *testing.T) {
			client := fake.NewClientset(tt.objects...)
			client.PrependReactor("create", "pods", func(a ktesting.Action) (bool, runtime.Object, error) {
				return a.GetSubresource() == "eviction", nil, tt.answer
			})
			c := NewForClient(client, Options{Clock: &fixedClock{now: noon}})
			opts := kamino.DrainOptions{Grace: 300 * time.Second, Within: within, Force: tt.force}
			got, err := c.Rehearse(t.Context(), kamino.Node{Name: "n1"}, kamino.SealOrder{Run: "r"}, opts)
			switch {
			case err != nil:
				t.Error(err)
			case tt.want == "" && len(got) > 0:
				t.Errorf("in the way: %+v", got)
			case tt.want != "" && (len(got) != 1 || got[0].Stuck != tt.stuck || !strings.Contains(got[0].Reason, tt.want)):
				t.Errorf("got %+v, want stuck %t and %q", got, tt.stuck, tt.want)
			}
		})
	}
}
