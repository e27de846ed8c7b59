// Package demo has what the demonstration needs beside the lab: a workload that
// must not suffer, and a witness that it did not.
package demo

import (
	"context"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"
)

// Workload is a Deployment whose pods are spread over the nodes, behind a
// PodDisruptionBudget of the same name.
type Workload struct {
	Name         string
	Namespace    string // "": default
	Replicas     int
	MinAvailable int               // of the budget; 0: Replicas-1
	NodeSelector map[string]string // nil: every node
}

// nameLabel marks the workload's pods.
const nameLabel = "app.kubernetes.io/name"

func (w Workload) withDefaults() Workload {
	if w.Namespace == "" {
		w.Namespace = metav1.NamespaceDefault
	}
	if w.MinAvailable == 0 {
		w.MinAvailable = w.Replicas - 1
	}
	return w
}

// Start creates the workload and returns when all replicas are available and
// the budget knows them: from then on it allows Replicas-MinAvailable disruptions.
func (w Workload) Start(ctx context.Context, client kubernetes.Interface) error {
	w = w.withDefaults()
	if _, err := client.AppsV1().Deployments(w.Namespace).Create(ctx, w.deployment(), metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("create deployment %s: %w", w.Name, err)
	}
	if _, err := client.PolicyV1().PodDisruptionBudgets(w.Namespace).Create(ctx, w.budget(), metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("create disruption budget %s: %w", w.Name, err)
	}
	ticker := time.NewTicker(100 * time.Millisecond)
	defer ticker.Stop()
	for {
		budget, err := client.PolicyV1().PodDisruptionBudgets(w.Namespace).Get(ctx, w.Name, metav1.GetOptions{})
		if err != nil {
			return fmt.Errorf("read disruption budget %s: %w", w.Name, err)
		}
		if int(budget.Status.CurrentHealthy) >= w.Replicas && budget.Status.ObservedGeneration == budget.Generation {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for workload %s: %d of %d replicas are available: %w", w.Name, budget.Status.CurrentHealthy,
				w.Replicas, ctx.Err())
		case <-ticker.C:
		}
	}
}

// Delete removes the workload; it may be gone already.
func (w Workload) Delete(ctx context.Context, client kubernetes.Interface) error {
	w = w.withDefaults()
	background := metav1.DeletePropagationBackground
	err := client.AppsV1().Deployments(w.Namespace).Delete(ctx, w.Name, metav1.DeleteOptions{PropagationPolicy: &background})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete deployment %s: %w", w.Name, err)
	}
	err = client.PolicyV1().PodDisruptionBudgets(w.Namespace).Delete(ctx, w.Name, metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete disruption budget %s: %w", w.Name, err)
	}
	return nil
}

func (w Workload) selector() *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: map[string]string{nameLabel: w.Name}}
}

func (w Workload) deployment() *appsv1.Deployment {
	replicas, grace := int32(w.Replicas), int64(5)
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: w.Name, Labels: w.selector().MatchLabels},
		Spec: appsv1.DeploymentSpec{
			Replicas: &replicas,
			Selector: w.selector(),
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: w.selector().MatchLabels},
				Spec: corev1.PodSpec{
					NodeSelector:                  w.NodeSelector,
					TerminationGracePeriodSeconds: &grace,
					TopologySpreadConstraints: []corev1.TopologySpreadConstraint{{
						MaxSkew: 1, TopologyKey: corev1.LabelHostname, WhenUnsatisfiable: corev1.ScheduleAnyway,
						LabelSelector: w.selector(),
					}},
					Containers: []corev1.Container{{Name: "server", Image: "registry.invalid/server:1"}}, // simulated: nobody pulls it
				},
			},
		},
	}
}

func (w Workload) budget() *policyv1.PodDisruptionBudget {
	atLeast := intstr.FromInt32(int32(w.MinAvailable))
	return &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Name: w.Name},
		Spec:       policyv1.PodDisruptionBudgetSpec{MinAvailable: &atLeast, Selector: w.selector()},
	}
}
