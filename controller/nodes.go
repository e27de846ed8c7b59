package controller

import (
	"context"
	"fmt"
	"slices"
	"unique"

	corev1 "k8s.io/api/core/v1"

	"k8s.io/apimachinery/pkg/api/equality"

	"kamino.dev/kamino"
	"kamino.dev/kamino/kube"
)

// sightseer is the cluster with nodes from an informer. Passes read it. Runs do not, because what
// they do must depend on the present state.
type sightseer struct {
	*kube.Cluster
	informed objects
}

// Nodes implements kamino.Cluster. The nodes share memory with the informer.
func (s sightseer) Nodes(ctx context.Context) ([]kamino.Node, error) {
	all, err := s.informed.Nodes(ctx)
	if err != nil {
		return nil, fmt.Errorf("list nodes: %w", err)
	}
	out := make([]kamino.Node, 0, len(all))
	for _, n := range all {
		out = append(out, kube.NodeOf(n))
	}
	return out, nil
}

// members is the cluster as a pass of one pool reads it, with the nodes of that pool only.
type members struct {
	viewed
	nodes []kamino.Node
}

// viewed is the part of a cluster that a view reads.
type viewed interface {
	kamino.Cluster
	kamino.Examiner // for the pause of the cluster
}

// Nodes implements kamino.Cluster.
func (m members) Nodes(context.Context) ([]kamino.Node, error) { return m.nodes, nil }

// trimNode removes what no pass reads from the informer's copy of a node, and stores equal texts of
// many nodes once. Of a node with 50 images in its cache a twentieth remains.
func trimNode(object any) (any, error) {
	n, ok := object.(*corev1.Node)
	if !ok {
		return object, nil
	}
	n.ManagedFields = nil
	delete(n.Annotations, kamino.AnnotationPackages)
	delete(n.Annotations, corev1.LastAppliedConfigAnnotation)
	n.Spec.PodCIDR, n.Spec.PodCIDRs = "", nil
	info, conditions := n.Status.NodeInfo, slices.Clone(n.Status.Conditions) // a copy, because the decoded slice has spare room
	n.Status = corev1.NodeStatus{NodeInfo: info, Conditions: conditions}
	n.Labels, n.Annotations = sharedPairs(n.Labels), sharedPairs(n.Annotations)
	share(&n.Status.NodeInfo.KernelVersion, &n.Status.NodeInfo.OSImage, &n.Status.NodeInfo.ContainerRuntimeVersion,
		&n.Status.NodeInfo.KubeletVersion,
		&n.Status.NodeInfo.OperatingSystem, &n.Status.NodeInfo.Architecture)
	for i := range conditions {
		c := &conditions[i]
		c.Message = ""
		share((*string)(&c.Type), (*string)(&c.Status), &c.Reason)
	}
	return n, nil
}

// share makes equal texts share their memory.
func share(texts ...*string) {
	for _, t := range texts {
		*t = unique.Make(*t).Value()
	}
}

func sharedPairs(of map[string]string) map[string]string {
	out := make(map[string]string, len(of))
	for key, value := range of {
		share(&key, &value)
		out[key] = value
	}
	return out
}

// came records that a node exists, and reports whether a pass follows. The first passes see the
// nodes of the first list anyway.
func (c *census) came(initial bool) bool {
	c.stale.Store(true)
	return !initial
}

// changed records a change of a node, and reports whether it matters for a pool. A heartbeat does
// not.
func (c *census) changed(was, is *corev1.Node) bool {
	if !differ(was, is) {
		return false
	}
	c.stale.Store(true)
	return true
}

func differ(was, is *corev1.Node) bool {
	return was.UID != is.UID || (was.DeletionTimestamp == nil) != (is.DeletionTimestamp == nil) ||
		was.Status.NodeInfo != is.Status.NodeInfo ||
		!slices.EqualFunc(was.Status.Conditions, is.Status.Conditions, sameCondition) || !equality.Semantic.DeepEqual(was.Spec, is.Spec) ||
		!equality.Semantic.DeepEqual(was.Labels, is.Labels) || !equality.Semantic.DeepEqual(was.Annotations, is.Annotations)
}

func sameCondition(a, b corev1.NodeCondition) bool {
	return a.Type == b.Type && a.Status == b.Status && a.Reason == b.Reason && a.LastTransitionTime.Equal(&b.LastTransitionTime)
}
