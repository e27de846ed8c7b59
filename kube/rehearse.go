package kube

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kamino.dev/kamino"
)

// Rehearse creates the seal pod and evicts the node's pods with dryRun=All, which
// goes through authorization, admission and budgets and writes nothing
// (https://kubernetes.io/docs/reference/using-api/api-concepts/#dry-run). A budget that allows no
// eviction at the moment is no reason to stay away: a drain waits for it. One that never will
// is, and so is a pod that was deleted long ago and is still there. A webhook may deny today
// what it allows tomorrow (some move the pod themselves, and deny until it has gone), a
// workload may be scaled up, and a pod may end sooner than it asks for: these are doubts.
func (c *Cluster) Rehearse(ctx context.Context, node kamino.Node, order kamino.SealOrder, opts kamino.DrainOptions) ([]kamino.Pod, error) {
	dry := []string{metav1.DryRunAll}
	if c.opts.SealImage != "" { // else the command has refused, or only asks
		if err := c.RehearseSeal(ctx, node, order); err != nil {
			return nil, err
		}
	}
	all, err := c.podsOn(ctx, node)
	if err != nil {
		return nil, err
	}
	if order.Patch == nil { // a reboot keeps what a stop destroys
		if err := c.refuseLocal(ctx, node, all); err != nil {
			return nil, err
		}
	}
	pods := c.toLeave(all, node)
	round := drainRound{Cluster: c, push: opts, began: c.opts.Clock.Now(), dry: dry}
	budgets := map[string][]policyv1.PodDisruptionBudget{} // by namespace
	var out []kamino.Pod
	for i := range pods {
		hold, reason, err := round.rehearse(ctx, &pods[i], budgets)
		if err != nil {
			return nil, err
		}
		if hold >= doubtful {
			out = append(out, hold.of(&pods[i], reason))
		}
	}
	return out, nil
}

// rehearse tells whether a pod will leave: stuck, or doubtful, when it may not.
func (r *drainRound) rehearse(ctx context.Context, pod *corev1.Pod, budgets map[string][]policyv1.PodDisruptionBudget) (hold, string,
	error) {
	hold, reason, err := r.remove(ctx, pod)
	if err != nil {
		return hold, "", err
	}
	within, own := r.push.Within, pod.Spec.TerminationGracePeriodSeconds
	switch {
	case hold == blocked:
		for _, b := range selectingBudgets(pod, r.known(ctx, pod.Namespace, budgets)) {
			switch {
			case never(&b):
				hold, reason = stuck, neverReason(&b)
			case scarce(&b):
				hold, reason = doubtful, fmt.Sprintf(
					"the disruption budget %s requires %d of %d pods healthy, and allows an eviction only when more are",
					b.Name, b.Status.DesiredHealthy, b.Status.ExpectedPods)
			}
		}
	case hold == leaving && pod.DeletionTimestamp == nil && within > 0 && own != nil && time.Duration(*own)*time.Second > within:
		hold, reason = doubtful, fmt.Sprintf("its grace period is %s, and the time limit of the whole drain %s",
			time.Duration(*own)*time.Second, within)
	}
	if hold == stuck && r.push.Force && pod.DeletionTimestamp == nil {
		hold, reason = doubtful, "only force removes it, once the time for evictions is over: "+reason
	}
	return hold, reason, nil
}

// known are the budgets of a namespace, read once. Where they cannot be read a drain waits.
func (r *drainRound) known(ctx context.Context, namespace string,
	budgets map[string][]policyv1.PodDisruptionBudget) []policyv1.PodDisruptionBudget {
	if _, ok := budgets[namespace]; !ok {
		budgets[namespace], _ = r.budgets(ctx, namespace)
	}
	return budgets[namespace]
}

// RehearseSeal creates the pod of the order with dryRun=All: the one that seals, or that patches.
func (c *Cluster) RehearseSeal(ctx context.Context, node kamino.Node, order kamino.SealOrder) error {
	pod := c.sealPod(node, order)
	if order.Patch != nil {
		pod = c.patchPod(node, kamino.TaskPatch, order)
	}
	err := c.createAgent(ctx, inBoot(pod, node), metav1.CreateOptions{FieldManager: fieldManager, DryRun: []string{metav1.DryRunAll}})
	if errors.Is(err, kamino.ErrNotFound) { // of what a pod needs only its namespace is
		return unprepared(err)
	}
	return err
}

// noDryRun: a webhook with side effects refuses dry runs, which says nothing of
// the real request
// (https://kubernetes.io/docs/reference/access-authn-authz/extensible-admission-controllers/#side-effects).
func noDryRun(err error) bool {
	return apierrors.IsBadRequest(err) && strings.Contains(err.Error(), "does not support dry run")
}
