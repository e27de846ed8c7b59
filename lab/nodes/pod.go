package nodes

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
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
func (k *player) adopt(ctx context.Context) error {
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
func (k *player) catchUp() {
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
func (k *player) podSeen(pod *corev1.Pod) {
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
func (k *player) podGone(pod *corev1.Pod) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if w := k.pods[pod.UID]; w != nil {
		w.cancel()
		delete(k.pods, pod.UID)
	}
}

// endPods forgets all pods and waits until none of their goroutines is left.
// Their context has ended, so once the lock was held no pod can start.
func (k *player) endPods() {
	k.mu.Lock()
	clear(k.pods)
	k.mu.Unlock()
	k.work.Wait()
}

// runPod is the life of a pod on this kubelet.
func (k *player) runPod(ctx context.Context, w *podWorker) error {
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
			if err := k.post(ctx, pod, k.Running(pod, false, restarts(pod))); err != nil {
				return err
			}
		}
		if stop, err := k.start(ctx, w); stop || err != nil {
			return err
		}
		if reason := k.Behaviour.waits(pod); reason != "" {
			if err := k.post(ctx, pod, k.Waiting(pod, reason)); err != nil {
				return err
			}
			break
		}
		count := restarts(pod)
		if survivor {
			count++
		}
		if err := k.post(ctx, pod, k.Running(pod, true, count)); err != nil {
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
func (k *player) job(ctx context.Context, pod *corev1.Pod) error {
	if !ownedBy(pod, "Job") {
		return nil
	}
	phase := corev1.PodSucceeded
	if k.Behaviour.Jobs == Fails {
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
	if ownedBy(pod, "DaemonSet") {
		return b.Daemons
	}
	return ""
}

// start lets the time of image pull and container start pass; stop is true if
// the pod was deleted meanwhile and is gone.
func (k *player) start(ctx context.Context, w *podWorker) (stop bool, err error) {
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

// terminate lets containers end and removes the pod's object.
func (k *player) terminate(ctx context.Context, w *podWorker) error {
	stop := min(k.fleet.latencies.PodStop, w.grace)
	if err := k.fleet.wait(ctx, stop); err != nil {
		return nil // power went first
	}
	return k.retry(ctx, func(ctx context.Context) error { return unlessGone(k.Remove(ctx, w.pod)) })
}

// finish reports a pod whose containers have ended for good.
func (k *player) finish(ctx context.Context, pod *corev1.Pod, phase corev1.PodPhase, message string) error {
	code := int32(0)
	if phase == corev1.PodFailed {
		code = 1
	}
	return k.post(ctx, pod, k.Ended(pod, code, message))
}

func (k *player) post(ctx context.Context, pod *corev1.Pod, status corev1.PodStatus) error {
	return k.retry(ctx, func(ctx context.Context) error { return unlessGone(k.Post(ctx, pod, status)) })
}

// unlessGone: of a pod that is gone meanwhile, or in whose place there is another of its name,
// nothing is left to be done.
func unlessGone(err error) error {
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return err
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
