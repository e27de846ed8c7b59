package kube

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"

	"kamino.dev/kamino"
)

// Preview lists the pods that a drain would remove, with the budgets that would
// not allow it now. It only reads. A *kamino.RefusedError beside them names the local volumes.
func (c *Cluster) Preview(ctx context.Context, node kamino.Node, opts kamino.DrainOptions) ([]kamino.Pod, error) {
	all, err := c.podsOn(ctx, node)
	if err != nil {
		return nil, err
	}
	refused := c.refuseLocal(ctx, node, all)
	if r := (*kamino.RefusedError)(nil); refused != nil && !errors.As(refused, &r) {
		return nil, refused
	}
	pods := c.toLeave(all, node)
	if len(pods) == 0 {
		return nil, refused
	}
	budgets, err := c.budgets(ctx, metav1.NamespaceAll)
	if err != nil {
		return nil, err
	}
	out := make([]kamino.Pod, 0, len(pods))
	for i := range pods {
		hold, reason := preview(&pods[i], budgets, opts, c.opts.Clock.Now())
		out = append(out, hold.of(&pods[i], reason))
	}
	return out, refused
}

func preview(pod *corev1.Pod, budgets []policyv1.PodDisruptionBudget, opts kamino.DrainOptions, now time.Time) (hold, string) {
	switch {
	case pod.DeletionTimestamp != nil:
		return ending(pod, opts, now)
	case returns(pod):
		return back(pod)
	case unmanaged(pod) && !opts.Force:
		return stuck, reasonUnmanaged
	case finished(pod) || pod.Status.Phase == corev1.PodPending:
		return leaving, "" // budgets do not protect what does not run
	}
	selecting := selectingBudgets(pod, budgets)
	switch {
	case len(selecting) > 1:
		return stuck, severalReason(selecting)
	case len(selecting) == 1 && selecting[0].Status.DisruptionsAllowed <= 0 && !evictableUnready(pod, &selecting[0]):
		b := selecting[0]
		if never(&b) {
			return stuck, neverReason(&b)
		}
		return blocked, fmt.Sprintf("the disruption budget %s needs %d healthy pods and has %d now",
			b.Name, b.Status.DesiredHealthy, b.Status.CurrentHealthy)
	}
	return leaving, ""
}

// never says whether a budget allows an eviction at no scale: no pod may be unavailable.
func never(b *policyv1.PodDisruptionBudget) bool {
	if most := b.Spec.MaxUnavailable; most != nil {
		n, err := intstr.GetScaledValueFromIntOrPercent(most, 100, true) // the API rounds up
		return err == nil && n == 0
	}
	least := b.Spec.MinAvailable
	if least == nil || least.Type != intstr.String {
		return false
	}
	n, err := intstr.GetScaledValueFromIntOrPercent(least, 100, true)
	return err == nil && n >= 100
}

func neverReason(b *policyv1.PodDisruptionBudget) string {
	return "the disruption budget " + b.Name + " never allows an eviction: none of its pods may be unavailable"
}

// scarce says whether a budget wants as many healthy pods as there are to be, and allows an
// eviction only once there are more.
func scarce(b *policyv1.PodDisruptionBudget) bool {
	s := b.Status
	return s.ObservedGeneration >= b.Generation && s.ExpectedPods > 0 && s.DesiredHealthy >= s.ExpectedPods
}

// evictableUnready: an unready pod whose budget does not mind
// (https://kubernetes.io/docs/tasks/run-application/configure-pdb/#unhealthy-pod-eviction-policy).
func evictableUnready(pod *corev1.Pod, b *policyv1.PodDisruptionBudget) bool {
	if podReady(pod) {
		return false
	}
	policy := b.Spec.UnhealthyPodEvictionPolicy
	return policy != nil && *policy == policyv1.AlwaysAllow ||
		b.Status.DesiredHealthy > 0 && b.Status.CurrentHealthy >= b.Status.DesiredHealthy
}

// budgets lists disruption budgets, page by page.
func (c *Cluster) budgets(ctx context.Context, namespace string) ([]policyv1.PodDisruptionBudget, error) {
	var out []policyv1.PodDisruptionBudget
	err := pages(ctx, c.api.budgets(namespace), metav1.ListOptions{}, "list poddisruptionbudgets.policy --all-namespaces",
		func() { out = nil }, func(list *policyv1.PodDisruptionBudgetList) {
			out = append(out, list.Items...)
		})
	if err != nil {
		return nil, err
	}
	return out, nil
}

func selectingBudgets(pod *corev1.Pod, all []policyv1.PodDisruptionBudget) []policyv1.PodDisruptionBudget {
	var out []policyv1.PodDisruptionBudget
	for _, b := range all {
		selector, err := metav1.LabelSelectorAsSelector(b.Spec.Selector)
		if err == nil && b.Namespace == pod.Namespace && selector.Matches(labels.Set(pod.Labels)) {
			out = append(out, b)
		}
	}
	return out
}

// reasonSeveral names the budgets of a pod that has several. Their names are
// help, not needed: where they cannot be read, the reason does without.
func (c *Cluster) reasonSeveral(ctx context.Context, pod *corev1.Pod) string {
	all, err := c.budgets(ctx, pod.Namespace)
	if err != nil {
		return severalReason(nil)
	}
	return severalReason(selectingBudgets(pod, all))
}

func severalReason(budgets []policyv1.PodDisruptionBudget) string {
	const why = "matched by several PodDisruptionBudgets; the eviction API refuses such pods"
	if len(budgets) == 0 {
		return why
	}
	names := make([]string, len(budgets))
	for i, b := range budgets {
		names[i] = b.Name
	}
	return why + ": " + strings.Join(names, ", ")
}
