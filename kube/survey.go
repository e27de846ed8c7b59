package kube

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kamino.dev/kamino"
)

// surveyName is the label value of the pods that look at a donor's disk before it is drained.
const surveyName = "kamino-inventory"

// createBeside creates a pod of a run that looks at the node beside its pods. One that exists
// already is no error.
func (c *Cluster) createBeside(ctx context.Context, pod *corev1.Pod, node kamino.Node, order kamino.SealOrder) error {
	if c.opts.SealImage == "" {
		return ErrNoSealImage
	}
	err := c.createPod(ctx, pod, metav1.CreateOptions{FieldManager: fieldManager})
	// A policy's refusal is Invalid, a right that is missing Forbidden
	// (https://kubernetes.io/docs/reference/kubernetes-api/policy-resources/validating-admission-policy-v1/,
	// reason).
	if !apierrors.IsInvalid(err) && !apierrors.IsForbidden(err) {
		return err
	}
	if err := c.RehearseSeal(ctx, node, order); err != nil {
		return err
	}
	return &fault{kamino.ErrUnsupported, fmt.Errorf(
		"the cluster's admission policies do not allow pod %s, run `kamino init` to update them: %w", pod.Name, err)}
}

// surveyPod is the seal pod with another command.
func (c *Cluster) surveyPod(node kamino.Node, order kamino.SealOrder) *corev1.Pod {
	pod := beside(c.sealPod(node, order))
	pod.Name, pod.Labels[labelName] = podName(order.Run, kamino.TaskInventory), surveyName
	box := &pod.Spec.Containers[0]
	box.Name = "inventory"
	box.Command = []string{"/kamino-agent", "inventory", "--host-root", hostRoot, "--run", order.Run, "--donor", node.Name}
	return pod
}

// beside lets a pod ask for nothing and have no priority: the kubelet would end pods that still
// work to make room for it, and where memory is short it is the first to go.
func beside(pod *corev1.Pod) *corev1.Pod {
	pod.Spec.PriorityClassName, pod.Spec.Containers[0].Resources = "", corev1.ResourceRequirements{}
	return pod
}
