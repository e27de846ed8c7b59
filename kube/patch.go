package kube

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"

	"kamino.dev/kamino"
)

var _ kamino.Patcher = (*Cluster)(nil)

// patchName is the label value of pods that patch a node; those that check it before, restart
// it, or look at it afterwards have a word more.
const (
	patchName    = "kamino-patch"
	checkName    = patchName + "-check"
	patchOrders  = "KAMINO_PATCH_POLICY"
	patchCommand = "patch"
)

// patchPod is the seal pod with another command and order.
func (c *Cluster) patchPod(node kamino.Node, task kamino.Task, order kamino.SealOrder) *corev1.Pod {
	pod := c.sealPod(node, order)
	pod.Name = podName(order.Run, task)
	pod.Labels[labelName] = agentNames[task]
	box := &pod.Spec.Containers[0]
	box.Name = patchCommand
	box.Command = []string{"/kamino-agent", patchCommand, "--host-root", hostRoot, "--run", order.Run, "--donor", node.Name}
	box.Env = append(box.Env, corev1.EnvVar{Name: patchOrders, Value: string(order.Patch)})
	return pod
}

// Daemons implements kamino.Patcher: 1 request. A DaemonSet that has no pod on the node is not
// seen.
func (c *Cluster) Daemons(ctx context.Context, node kamino.Node) (out []kamino.DaemonPod, err error) {
	pods, err := c.podsWhere(ctx, fields.OneTermEqualSelector("spec.nodeName", node.Name))
	if err != nil {
		return nil, err
	}
	for i := range pods {
		pod := &pods[i]
		owner := metav1.GetControllerOf(pod)
		if owner == nil || owner.Kind != "DaemonSet" || pod.DeletionTimestamp != nil {
			continue
		}
		one := kamino.DaemonPod{Set: pod.Namespace + "/" + owner.Name, Ready: podReady(pod)}
		if !one.Ready {
			one.Reason, one.Owed = waitsFor(pod)
		}
		out = append(out, one)
	}
	return out, nil
}

// Sign implements kamino.Patcher. kured's annotation is what it writes when a reboot was needed
// (https://kured.dev/docs/configuration/, --annotate-nodes), in the format of RFC 3339.
func (c *Cluster) Sign(ctx context.Context, node kamino.Node, at time.Time) error {
	return c.write(ctx, node, func(n kamino.Node) ([]byte, error) {
		if n.BootID != node.BootID || n.SystemUUID != node.SystemUUID {
			return nil, fmt.Errorf("sign node %s: it has booted since it was examined: %w", n.Name, kamino.ErrConflict)
		}
		changes := untaint(n, kamino.TaintPatchFailed)
		changes = append(changes, withMap(n.Labels, "/metadata/labels")...)
		changes = append(changes, change{"add", "/metadata/labels/" + escaped(kamino.LabelPatched), at.UTC().Format(kamino.PatchedFormat)})
		changes = append(changes, withMap(n.Annotations, "/metadata/annotations")...)
		changes = append(changes, change{"add", annotation(kamino.KuredLastPatch.Annotation), at.UTC().Format(time.RFC3339)})
		if _, ok := n.Annotations[kamino.AnnotationPatchFailed]; ok {
			changes = append(changes, change{Op: "remove", Path: annotation(kamino.AnnotationPatchFailed)})
		}
		if mark, err := n.Mark(); err == nil && mark != nil && mark.Begun {
			mark.Begun = false
			text, err := json.Marshal(mark)
			if err != nil {
				return nil, err
			}
			changes = append(changes, change{"replace", annotation(kamino.AnnotationRun), string(text)})
		}
		return ifStill(n, changes)
	})
}

// KeepBlocked implements kamino.Patcher.
func (c *Cluster) KeepBlocked(ctx context.Context, node kamino.Node, why kamino.PatchFailure) error {
	text, err := json.Marshal(why)
	if err != nil {
		return fmt.Errorf("keep node %s blocked: %w", node.Name, err)
	}
	return c.write(ctx, node, func(n kamino.Node) ([]byte, error) {
		changes := append(withMap(n.Annotations, "/metadata/annotations"),
			change{"add", annotation(kamino.AnnotationPatchFailed), string(text)})
		if !n.Tainted(kamino.TaintPatchFailed) {
			changes = append(changes, withTaint(n, corev1.Taint{Key: kamino.TaintPatchFailed, Effect: corev1.TaintEffectNoSchedule}))
		}
		return ifStill(n, changes)
	})
}
