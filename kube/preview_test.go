package kube

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/client-go/kubernetes/fake"

	"kamino.dev/kamino"
)

func TestPreview(t *testing.T) {
	always := policyv1.AlwaysAllow
	ready := func(p *corev1.Pod) {
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	}
	pending := func(p *corev1.Pod) { p.Status.Phase = corev1.PodPending }
	lenient := budget("lenient", 0)
	lenient.Spec.UnhealthyPodEvictionPolicy = &always
	elsewhere := budget("elsewhere", 0)
	elsewhere.Namespace = "other"
	const held = "the disruption budget b needs 2 healthy pods and has 1 now"
	for name, tt := range map[string]struct {
		pod     *corev1.Pod
		budgets []*policyv1.PodDisruptionBudget
		force   bool
		want    string
		stuck   bool
	}{
		"no budget":               {pod: pod("a", ready)},
		"budget elsewhere":        {pod: pod("a", ready), budgets: []*policyv1.PodDisruptionBudget{elsewhere}},
		"budget allows":           {pod: pod("a", ready), budgets: []*policyv1.PodDisruptionBudget{budget("b", 1)}},
		"budget holds":            {pod: pod("a", ready), budgets: []*policyv1.PodDisruptionBudget{budget("b", 0)}, want: held},
		"budget holds unready":    {pod: pod("a"), budgets: []*policyv1.PodDisruptionBudget{budget("b", 0)}, want: held},
		"lenient holds ready":     {pod: pod("a", ready), budgets: []*policyv1.PodDisruptionBudget{lenient}, want: "the disruption budget lenient needs 2 healthy pods and has 1 now"},
		"lenient lets unready go": {pod: pod("a"), budgets: []*policyv1.PodDisruptionBudget{lenient}},
		"pending":                 {pod: pod("a", pending), budgets: []*policyv1.PodDisruptionBudget{budget("b", 0)}},
		"several":                 {pod: pod("a", ready), budgets: []*policyv1.PodDisruptionBudget{budget("b", 1), budget("c", 1)}, want: severalReason(nil) + ": b, c", stuck: true},
		"no controller":           {pod: pod("a", bare, ready), want: reasonUnmanaged, stuck: true},
		"no controller, forced":   {pod: pod("a", bare, ready), force: true},
		"comes back":              {pod: pod("a", tolerating(corev1.Toleration{Operator: corev1.TolerationOpExists})), force: true, want: reasonReturns, stuck: true},
		"ending":                  {pod: pod("a", deleting(30, noon)), want: "ending"},
	} {
		t.Run(name, func(t *testing.T) {
			client := fake.NewClientset(tt.pod)
			for _, b := range tt.budgets {
				if err := client.Tracker().Add(b); err != nil {
					t.Fatal(err)
				}
			}
			got, err := NewForClient(client, Options{}).Preview(t.Context(), kamino.Node{Name: "n1"}, kamino.DrainOptions{Force: tt.force})
			want := []kamino.Pod{{Namespace: "shop", Name: "a", UID: "uid-of-pod", Controller: madeBy(tt.pod), Reason: tt.want, Stuck: tt.stuck, Returns: tt.want == reasonReturns}}
			if diff := cmp.Diff(want, got); err != nil || diff != "" {
				t.Error(err, diff)
			}
			if n := len(client.Actions()); n != 3 {
				t.Errorf("%d requests", n)
			}
		})
	}
}
