package kube

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
)

// daemonTolerates are the taints that the DaemonSet controller lets its pods tolerate
// (https://kubernetes.io/docs/concepts/workloads/controllers/daemonset/#taints-and-tolerations).
var daemonTolerates = []string{
	corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable, corev1.TaintNodeDiskPressure, corev1.TaintNodeMemoryPressure,
	corev1.TaintNodePIDPressure, corev1.TaintNodeUnschedulable, corev1.TaintNodeNetworkUnavailable,
}

// selects says whether a DaemonSet's pods belong on a node, as the DaemonSet controller decides it:
// by name, by labels and by taints (k8s.io/kubernetes v1.36.3, pkg/controller/daemon,
// NodeShouldRunDaemonPod).
func selects(spec *corev1.PodSpec, node *corev1.Node) bool {
	if spec.NodeName != "" && spec.NodeName != node.Name || !labels.SelectorFromSet(spec.NodeSelector).Matches(labels.Set(node.Labels)) {
		return false
	}
	if a := spec.Affinity; a != nil && a.NodeAffinity != nil && a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution != nil {
		terms := a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
		if !slices.ContainsFunc(terms, func(t corev1.NodeSelectorTerm) bool { return matches(t, node) }) {
			return false
		}
	}
	for i := range node.Spec.Taints {
		t := &node.Spec.Taints[i]
		if t.Effect == corev1.TaintEffectPreferNoSchedule || slices.Contains(daemonTolerates, t.Key) {
			continue
		}
		if !slices.ContainsFunc(spec.Tolerations, func(o corev1.Toleration) bool { return tolerates(o, t) }) {
			return false
		}
	}
	return true
}

// tolerates is the rule of
// https://kubernetes.io/docs/concepts/scheduling-eviction/taint-and-toleration/.
func tolerates(o corev1.Toleration, t *corev1.Taint) bool {
	return (o.Effect == "" || o.Effect == t.Effect) && (o.Key == "" || o.Key == t.Key) &&
		(o.Operator == corev1.TolerationOpExists || o.Key != "" && o.Value == t.Value)
}

// matches says whether a node fulfils all of a term; one that asks for nothing matches no node.
func matches(t corev1.NodeSelectorTerm, node *corev1.Node) bool {
	fulfils := func(list []corev1.NodeSelectorRequirement, have labels.Set) bool {
		for _, r := range list {
			operator := selection.Operator(strings.ToLower(string(r.Operator)))
			switch r.Operator {
			case corev1.NodeSelectorOpDoesNotExist:
				operator = selection.DoesNotExist
			case corev1.NodeSelectorOpGt:
				operator = selection.GreaterThan
			case corev1.NodeSelectorOpLt:
				operator = selection.LessThan
			}
			want, err := labels.NewRequirement(r.Key, operator, r.Values)
			if err != nil || !want.Matches(have) {
				return false
			}
		}
		return true
	}
	return len(t.MatchExpressions)+len(t.MatchFields) > 0 && fulfils(t.MatchExpressions, node.Labels) &&
		fulfils(t.MatchFields, labels.Set{"metadata.name": node.Name})
}
