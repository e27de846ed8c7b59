package kube

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	ktesting "k8s.io/client-go/testing"

	"kamino.dev/kamino"
)

// TestGraceIsAMinimum: an eviction never shortens what a pod asks for, except where the
// drain itself has less time.
func TestGraceIsAMinimum(t *testing.T) {
	const unset = -1
	for name, tt := range map[string]struct {
		own, grace, within, want int64 // seconds
	}{
		"shorter than the minimum":    {own: 30, grace: 300, within: 2700, want: 300},
		"longer than the minimum":     {own: 3600, grace: 300, within: 7200, want: 3600},
		"longer than the drain":       {own: 3600, grace: 300, within: 2700, want: 2700},
		"minimum longer than drain":   {own: 30, grace: 300, within: 60, want: 60},
		"no limit":                    {own: 3600, grace: 300, want: 3600},
		"pod without one":             {own: unset, grace: 300, within: 2700, want: 300},
		"no minimum":                  {own: 30, grace: 0, within: 60, want: 30},
		"the pod's own":               {own: 30, grace: -1, within: 2700, want: unset},
		"the pod's own, a longer one": {own: 3600, grace: -1, within: 60, want: unset},
	} {
		t.Run(name, func(t *testing.T) {
			client := fake.NewClientset(pod("a", func(p *corev1.Pod) {
				if tt.own != unset {
					p.Spec.TerminationGracePeriodSeconds = &tt.own
				}
			}))
			var sent []int64
			client.PrependReactor("create", "pods", func(a ktesting.Action) (bool, runtime.Object, error) {
				if e, ok := a.(ktesting.CreateAction).GetObject().(*policyv1.Eviction); ok {
					got := int64(unset)
					if s := e.DeleteOptions.GracePeriodSeconds; s != nil {
						got = *s
					}
					sent = append(sent, got)
				}
				return true, nil, nil
			})
			opts := kamino.DrainOptions{Grace: time.Duration(tt.grace) * time.Second, Within: time.Duration(tt.within) * time.Second}
			if _, err := NewForClient(client, Options{Clock: &fixedClock{now: noon}}).Evict(t.Context(), kamino.Node{Name: "n1"}, opts); err != nil {
				t.Fatal(err)
			}
			if len(sent) != 1 || sent[0] != tt.want {
				t.Errorf("evictions with grace %v, want one with %d", sent, tt.want)
			}
		})
	}
}
