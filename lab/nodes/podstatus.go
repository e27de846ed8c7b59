package nodes

import (
	"context"
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
)

// Running is the status of a pod whose containers run, or are about to.
func (k *Kubelet) Running(pod *corev1.Pod, ready bool, restarts int32) corev1.PodStatus {
	now := metav1.NewTime(k.Now())
	status := corev1.PodStatus{Phase: corev1.PodRunning, HostIP: k.Network.node(k.Instance.ID), StartTime: &now}
	status.HostIPs = []corev1.HostIP{{IP: status.HostIP}}
	if pod.Status.StartTime != nil {
		status.StartTime = pod.Status.StartTime
	}
	status.PodIP = status.HostIP
	if !pod.Spec.HostNetwork {
		status.PodIP = k.Network.pod()
	}
	status.PodIPs = []corev1.PodIP{{IP: status.PodIP}}
	for _, c := range pod.Spec.InitContainers {
		status.InitContainerStatuses = append(status.InitContainerStatuses, corev1.ContainerStatus{
			Name: c.Name, Image: c.Image, ImageID: c.Image, Ready: true,
			State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Reason: "Completed", StartedAt: now,
				FinishedAt: now}},
		})
	}
	for _, c := range pod.Spec.Containers {
		container := corev1.ContainerStatus{
			Name: c.Name, Image: c.Image, ImageID: c.Image, Ready: ready, Started: &ready, RestartCount: restarts,
			State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: now}},
		}
		if !ready {
			container.State = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ContainerCreating"}}
		}
		status.ContainerStatuses = append(status.ContainerStatuses, container)
	}
	status.Conditions = podConditions(ready, "ContainersNotReady", now)
	return status
}

// Waiting is the status of a pod whose containers wait for a reason.
func (k *Kubelet) Waiting(pod *corev1.Pod, reason string) corev1.PodStatus {
	now := metav1.NewTime(k.Now())
	status := corev1.PodStatus{Phase: corev1.PodPending, HostIP: k.Network.node(k.Instance.ID), StartTime: &now,
		Conditions: podConditions(false, "ContainersNotReady", now)}
	for _, c := range pod.Spec.Containers {
		status.ContainerStatuses = append(status.ContainerStatuses, corev1.ContainerStatus{Name: c.Name, Image: c.Image,
			State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: "back-off"}}})
	}
	return status
}

// Ended is the status of a pod whose containers have ended for good.
func (k *Kubelet) Ended(pod *corev1.Pod, code int32, message string) corev1.PodStatus {
	now, phase := metav1.NewTime(k.Now()), corev1.PodSucceeded
	if code != 0 {
		phase = corev1.PodFailed
	}
	status := corev1.PodStatus{Phase: phase, Message: message, Conditions: podConditions(false, "Pod"+string(phase), now)}
	ended := corev1.ContainerStateTerminated{Reason: "Completed", Message: message, FinishedAt: now}
	if code != 0 {
		ended.ExitCode, ended.Reason = code, "Error"
	}
	for _, c := range pod.Spec.Containers {
		status.ContainerStatuses = append(status.ContainerStatuses, corev1.ContainerStatus{
			Name: c.Name, Image: c.Image, ImageID: c.Image, State: corev1.ContainerState{Terminated: &ended},
		})
	}
	return status
}

// Post reports the status of a pod, unless there is another of its name.
func (k *Kubelet) Post(ctx context.Context, pod *corev1.Pod, status corev1.PodStatus) error {
	patch, err := podPatch(pod, status)
	if err != nil {
		return err
	}
	_, err = k.Client.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.StrategicMergePatchType, patch,
		metav1.PatchOptions{}, "status")
	return err
}

// Remove deletes the object of a pod whose containers have ended, which only the kubelet of a bound
// pod may do without force.
func (k *Kubelet) Remove(ctx context.Context, pod *corev1.Pod) error {
	return k.Client.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name,
		metav1.DeleteOptions{GracePeriodSeconds: new(int64), Preconditions: metav1.NewUIDPreconditions(string(pod.UID))})
}

// podPatch is a strategic merge patch that merges conditions, as kubelet's does,
// and replaces addresses: the merge would keep those of the boot before.
func podPatch(pod *corev1.Pod, status corev1.PodStatus) ([]byte, error) {
	document, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&status)
	if err != nil {
		return nil, fmt.Errorf("encode pod status: %w", err)
	}
	for _, name := range []string{"podIPs", "hostIPs"} {
		if list, ok := document[name].([]any); ok {
			document[name] = append(list, map[string]any{"$patch": "replace"})
		}
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": pod.UID}, "status": document})
	if err != nil {
		return nil, fmt.Errorf("encode pod status: %w", err)
	}
	return patch, nil
}

func podConditions(ready bool, reason string, now metav1.Time) []corev1.PodCondition {
	list := []corev1.PodCondition{
		{Type: corev1.PodScheduled, Status: corev1.ConditionTrue, LastTransitionTime: now},
		{Type: corev1.PodReadyToStartContainers, Status: corev1.ConditionTrue, LastTransitionTime: now},
		{Type: corev1.PodInitialized, Status: corev1.ConditionTrue, LastTransitionTime: now},
		{Type: corev1.ContainersReady, Status: corev1.ConditionTrue, LastTransitionTime: now},
		{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: now},
	}
	if !ready {
		for i := range list[3:] {
			list[3+i].Status, list[3+i].Reason = corev1.ConditionFalse, reason
		}
	}
	return list
}
