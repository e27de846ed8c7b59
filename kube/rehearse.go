package kube

import (
	"context"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kamino.dev/kamino"
)

// Rehearse creates the seal pod, if there is an order, and evicts the node's pods with dryRun=All, which
// goes through authorization, admission and budgets and writes nothing
// (https://kubernetes.io/docs/reference/using-api/api-concepts/#dry-run). A budget that allows no
// eviction at the moment is no reason to stay away: a drain waits for it.
func (c *Cluster) Rehearse(ctx context.Context, node kamino.Node, order kamino.SealOrder, opts kamino.DrainOptions) ([]kamino.Pod, error) {
	dry := []string{metav1.DryRunAll}
	if c.opts.SealImage != "" && order.Run != "" { // without an image the command has refused, or only asks
		if err := c.rehearseSealPod(ctx, node, order); err != nil {
			return nil, err
		}
	}
	pods, err := c.podsToLeave(ctx, node.Name)
	if err != nil {
		return nil, err
	}
	round := drainRound{Cluster: c, push: opts, began: c.opts.Clock.Now(), dry: dry}
	var stuck []kamino.Pod
	for i := range pods {
		reason, hopeless, err := round.remove(ctx, &pods[i])
		if err != nil {
			return nil, err
		}
		if hopeless {
			stuck = append(stuck, kamino.Pod{Namespace: pods[i].Namespace, Name: pods[i].Name, Reason: reason, Stuck: true})
		}
	}
	return stuck, nil
}

func (c *Cluster) rehearseSealPod(ctx context.Context, node kamino.Node, order kamino.SealOrder) error {
	err := c.createPod(ctx, c.sealPod(node.Name, order), metav1.CreateOptions{FieldManager: fieldManager, DryRun: []string{metav1.DryRunAll}})
	if err != nil && noDryRun(err) {
		return nil
	}
	return err
}

// noDryRun: a webhook with side effects refuses dry runs, which says nothing of
// the real request (https://kubernetes.io/docs/reference/access-authn-authz/extensible-admission-controllers/#side-effects).
func noDryRun(err error) bool {
	return apierrors.IsBadRequest(err) && strings.Contains(err.Error(), "does not support dry run")
}
