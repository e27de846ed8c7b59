package nodes

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
)

// podWorker is one pod on one kubelet: its containers run until it is deleted.
type podWorker struct {
	pod     *corev1.Pod // as first seen
	cancel  context.CancelFunc
	leave   sync.Once
	leaving chan struct{} // closed when the API server wants the pod gone
	grace   time.Duration
}

// adopt takes over the pods that are bound to the node already, as the API
// server knows them: the informer may not yet have what the last boot reported.
func (k *kubelet) adopt(ctx context.Context) error {
	bound, err := k.fleet.client.CoreV1().Pods(metav1.NamespaceAll).List(ctx, metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector("spec.nodeName", k.node).String(),
	})
	if err != nil {
		return fmt.Errorf("list pods of node %s: %w", k.node, err)
	}
	for i := range bound.Items {
		k.podSeen(&bound.Items[i])
	}
	return nil
}

// catchUp takes what the informer learned before this kubelet began to listen.
func (k *kubelet) catchUp() {
	bound, err := k.fleet.pods.GetIndexer().ByIndex(byNode, k.node)
	if err != nil {
		k.fleet.logger.Error("node cannot list its pods", "node", k.node, "error", err)
		return
	}
	for _, object := range bound {
		k.podSeen(object.(*corev1.Pod))
	}
}

// podSeen starts a pod, or begins its end.
func (k *kubelet) podSeen(pod *corev1.Pod) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.ctx.Err() != nil {
		return
	}
	w := k.pods[pod.UID]
	if w == nil {
		if isTerminal(pod) && pod.DeletionTimestamp == nil {
			return
		}
		ctx, cancel := context.WithCancel(k.ctx)
		w = &podWorker{pod: pod, cancel: cancel, leaving: make(chan struct{})}
		k.pods[pod.UID] = w
		k.work.Go(func() {
			defer cancel()
			if err := k.runPod(ctx, w); err != nil && ctx.Err() == nil {
				k.fleet.logger.Error("pod went wrong", "node", k.node, "pod", pod.Name, "error", err)
			}
		})
	}
	if pod.DeletionTimestamp != nil {
		w.leave.Do(func() {
			if pod.DeletionGracePeriodSeconds != nil {
				w.grace = time.Duration(*pod.DeletionGracePeriodSeconds) * time.Second
			}
			close(w.leaving)
		})
	}
}

// podGone ends a pod whose object exists no more.
func (k *kubelet) podGone(pod *corev1.Pod) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if w := k.pods[pod.UID]; w != nil {
		w.cancel()
		delete(k.pods, pod.UID)
	}
}

// endPods forgets all pods and waits until none of their goroutines is left.
// Their context has ended, so once the lock was held no pod can start.
func (k *kubelet) endPods() {
	k.mu.Lock()
	clear(k.pods)
	k.mu.Unlock()
	k.work.Wait()
}

// runPod is the life of a pod on this kubelet.
func (k *kubelet) runPod(ctx context.Context, w *podWorker) error {
	pod := w.pod
	survivor := pod.Status.Phase == corev1.PodRunning // of an earlier boot, or of another claimant of this node
	switch {
	case isTerminal(pod):
	case survivor && pod.Spec.RestartPolicy == corev1.RestartPolicyNever:
		if err := k.finish(ctx, pod, corev1.PodFailed, "containers ended with the machine"); err != nil {
			return err
		}
	default:
		if survivor {
			if err := k.postPod(ctx, pod, false, restarts(pod)); err != nil {
				return err
			}
		}
		if stop, err := k.start(ctx, w); stop || err != nil {
			return err
		}
		if reason := k.behaviour.waits(pod); reason != "" {
			if err := k.waiting(ctx, pod, reason); err != nil {
				return err
			}
			break
		}
		count := restarts(pod)
		if survivor {
			count++
		}
		if err := k.postPod(ctx, pod, true, count); err != nil {
			return err
		}
		if err := k.job(ctx, pod); err != nil {
			return err
		}
		if isList(pod) {
			if err := k.list(ctx, pod); err != nil {
				return err
			}
		}
		if isSurvey(pod) || isList(pod) {
			if err := k.finish(ctx, pod, corev1.PodSucceeded, ""); err != nil {
				return err
			}
		}
		if isPatch(pod) {
			if err := k.playPatch(ctx, pod); err != nil {
				return err
			}
		}
		if isSeal(pod) {
			if err := k.seal(ctx, pod); err != nil {
				k.fleet.logger.Error("seal failed", "node", k.node, "pod", pod.Name, "error", err)
				if err := k.finish(ctx, pod, corev1.PodFailed, err.Error()); err != nil {
					return err
				}
			}
		}
	}
	select {
	case <-ctx.Done():
		return nil
	case <-w.leaving:
		return k.terminate(ctx, w)
	}
}

// job lets pods of Jobs end.
func (k *kubelet) job(ctx context.Context, pod *corev1.Pod) error {
	if !ownedBy(pod, "Job") || k.behaviour.Jobs == Hangs {
		return nil
	}
	phase := corev1.PodSucceeded
	if k.behaviour.Jobs == Fails {
		phase = corev1.PodFailed
	}
	return k.finish(ctx, pod, phase, "")
}

func ownedBy(pod *corev1.Pod, kind string) bool {
	owner := metav1.GetControllerOf(pod)
	return owner != nil && owner.Kind == kind
}

// waits is the reason for which the containers of a pod wait on such a machine; "": they run.
func (b Behaviour) waits(pod *corev1.Pod) string {
	switch {
	case ownedBy(pod, "DaemonSet"):
		return b.Daemons
	case ownedBy(pod, "Job") && b.Jobs != Fails && b.Jobs != Hangs:
		return b.Jobs
	}
	return ""
}

// start lets the time of image pull and container start pass; stop is true if
// the pod was deleted meanwhile and is gone.
func (k *kubelet) start(ctx context.Context, w *podWorker) (stop bool, err error) {
	starting, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-w.leaving:
			cancel()
		case <-starting.Done():
		}
	}()
	if err := k.fleet.wait(starting, k.fleet.latencies.PodStart); err == nil {
		return false, nil
	}
	if ctx.Err() != nil {
		return true, nil
	}
	return true, k.terminate(ctx, w)
}

// terminate lets containers end and removes the pod's object, which only the
// kubelet of a bound pod may do without force.
func (k *kubelet) terminate(ctx context.Context, w *podWorker) error {
	stop := min(k.fleet.latencies.PodStop, w.grace)
	if err := k.fleet.wait(ctx, stop); err != nil {
		return nil // power went first
	}
	return k.retry(ctx, func(ctx context.Context) error {
		err := k.fleet.client.CoreV1().Pods(w.pod.Namespace).Delete(ctx, w.pod.Name, metav1.DeleteOptions{
			GracePeriodSeconds: new(int64), Preconditions: metav1.NewUIDPreconditions(string(w.pod.UID)),
		})
		if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
			return nil // gone already, or another pod of that name
		}
		return err
	})
}

// postPod reports a running pod.
func (k *kubelet) postPod(ctx context.Context, pod *corev1.Pod, ready bool, restarts int32) error {
	now := metav1.Now()
	status := corev1.PodStatus{Phase: corev1.PodRunning, HostIP: k.machine.addresses.node, StartTime: &now}
	status.HostIPs = []corev1.HostIP{{IP: status.HostIP}}
	if pod.Status.StartTime != nil {
		status.StartTime = pod.Status.StartTime
	}
	status.PodIP = status.HostIP
	if !pod.Spec.HostNetwork {
		status.PodIP = k.fleet.addresses.pod()
	}
	status.PodIPs = []corev1.PodIP{{IP: status.PodIP}}
	for _, c := range pod.Spec.InitContainers {
		status.InitContainerStatuses = append(status.InitContainerStatuses, corev1.ContainerStatus{
			Name: c.Name, Image: c.Image, ImageID: c.Image, Ready: true,
			State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Reason: "Completed", StartedAt: now, FinishedAt: now}},
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
	return k.patchPod(ctx, pod, status)
}

// finish reports a pod whose containers have ended for good.
func (k *kubelet) finish(ctx context.Context, pod *corev1.Pod, phase corev1.PodPhase, message string) error {
	code := int32(0)
	if phase == corev1.PodFailed {
		code = 1
	}
	return k.ended(ctx, pod, code, message)
}

// ended is the same by the exit code.
func (k *kubelet) ended(ctx context.Context, pod *corev1.Pod, code int32, message string) error {
	now, phase := metav1.Now(), corev1.PodSucceeded
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
	return k.patchPod(ctx, pod, status)
}

func (k *kubelet) patchPod(ctx context.Context, pod *corev1.Pod, status corev1.PodStatus) error {
	patch, err := podPatch(pod, status)
	if err != nil {
		return err
	}
	return k.retry(ctx, func(ctx context.Context) error {
		_, err := k.fleet.client.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
		if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
			return nil // gone meanwhile: nothing to report
		}
		return err
	})
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

func restarts(pod *corev1.Pod) int32 {
	if len(pod.Status.ContainerStatuses) == 0 {
		return 0
	}
	return pod.Status.ContainerStatuses[0].RestartCount
}

func isTerminal(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}
