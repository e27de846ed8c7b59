package kube

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"

	"kamino.dev/kamino"
)

var _ kamino.Patcher = (*Cluster)(nil)

// patchName is the label value of pods that patch a node; those that restart it or look at it
// afterwards have a word more.
const (
	patchName    = "kamino-patch"
	patchOrders  = "KAMINO_PATCH_POLICY"
	patchCommand = "patch"
)

// patchPod is the seal pod with another command and order.
func (c *Cluster) patchPod(node string, task kamino.Task, order kamino.SealOrder) *corev1.Pod {
	pod := c.sealPod(node, order)
	pod.Name = podName(order.Run, task)
	pod.Labels[labelName] = strings.TrimSuffix(podName("", task), "-")
	box := &pod.Spec.Containers[0]
	box.Name = patchCommand
	box.Command = []string{"/kamino-agent", patchCommand, "--host-root", hostRoot, "--run", order.Run, "--donor", node}
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
	return c.edit(ctx, node, func(n kamino.Node) []change {
		changes := c.taintOff(n)
		changes = append(changes, withMap(n.Labels, "/metadata/labels")...)
		changes = append(changes, change{"add", "/metadata/labels/" + escaped(kamino.LabelPatched), at.UTC().Format(kamino.PatchedFormat)})
		changes = append(changes, withMap(n.Annotations, "/metadata/annotations")...)
		changes = append(changes, change{"add", annotation(kamino.KuredLastPatch.Annotation), at.UTC().Format(time.RFC3339)})
		if _, ok := n.Annotations[kamino.AnnotationPatchFailed]; ok {
			changes = append(changes, change{Op: "remove", Path: annotation(kamino.AnnotationPatchFailed)})
		}
		return changes
	})
}

// KeepBlocked implements kamino.Patcher.
func (c *Cluster) KeepBlocked(ctx context.Context, node kamino.Node, why kamino.PatchFailure) error {
	text, err := json.Marshal(why)
	if err != nil {
		return fmt.Errorf("keep node %s blocked: %w", node.Name, err)
	}
	return c.edit(ctx, node, func(n kamino.Node) []change {
		changes := append(withMap(n.Annotations, "/metadata/annotations"), change{"add", annotation(kamino.AnnotationPatchFailed), string(text)})
		taint := corev1.Taint{Key: kamino.TaintPatchFailed, Effect: corev1.TaintEffectNoSchedule}
		switch {
		case n.Tainted(kamino.TaintPatchFailed):
		case len(n.Taints) == 0:
			changes = append(changes, change{"add", "/spec/taints", []corev1.Taint{taint}})
		default:
			changes = append(changes, change{"add", "/spec/taints/-", taint})
		}
		return changes
	})
}

// taintOff takes off the block of an earlier failure, from the end: others keep their places.
func (c *Cluster) taintOff(n kamino.Node) (changes []change) {
	for i, t := range slices.Backward(n.Taints) {
		if t.Key == kamino.TaintPatchFailed {
			changes = append(changes, change{Op: "remove", Path: fmt.Sprintf("/spec/taints/%d", i)})
		}
	}
	return changes
}

func withMap(have map[string]string, path string) []change {
	if len(have) > 0 {
		return nil
	}
	return []change{{"add", path, map[string]string{}}}
}

// edit changes a node of that UID, written anew while others change it.
func (c *Cluster) edit(ctx context.Context, node kamino.Node, changes func(kamino.Node) []change) error {
	current, began := node, c.opts.Clock.Now()
	for range markTries {
		patch, err := json.Marshal(append([]change{{"test", "/metadata/uid", node.UID}, {"test", "/metadata/resourceVersion", current.Revision}}, changes(current)...))
		if err != nil {
			return fmt.Errorf("change node %s: %w", node.Name, err)
		}
		_, refused := c.api.nodes.Patch(ctx, node.Name, types.JSONPatchType, patch, metav1.PatchOptions{FieldManager: fieldManager})
		if !apierrors.IsInvalid(refused) && !apierrors.IsConflict(refused) || c.opts.Clock.Now().Sub(began) > markTime {
			return explain("patch nodes", refused)
		}
		revision := current.Revision
		if current, err = c.Node(ctx, node.Name); err != nil {
			return err
		}
		if current.UID != node.UID {
			return fmt.Errorf("node %s was replaced: %w", node.Name, kamino.ErrConflict)
		}
		if current.Revision == revision { // not because of a change
			return explain("patch nodes", refused)
		}
	}
	return fmt.Errorf("change node %s: it changed %d times meanwhile: %w", node.Name, markTries, kamino.ErrConflict)
}
