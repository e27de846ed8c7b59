package e2e

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kamino.dev/kamino"
	"kamino.dev/kamino/lab"
)

// photo is the state of Azure and of the cluster that a run could change: text
// by the name of each thing.
type photo map[string]string

// photograph looks at every ARM resource with the content of its disk, at every
// node but its status, and at all pods, leases of pools and events of Kamino.
func photograph(t *testing.T, l *lab.Lab) photo {
	t.Helper()
	p := photo{}
	for _, e := range l.Cloud.State() {
		p.add(t, "arm "+strings.ToLower(e.ID), e)
	}
	ctx, all := t.Context(), metav1.ListOptions{}
	nodes, err := l.Client.CoreV1().Nodes().List(ctx, all)
	if err != nil {
		t.Fatal(err)
	}
	for i := range nodes.Items {
		p.add(t, "node "+nodes.Items[i].Name, nodeText(&nodes.Items[i]))
	}
	pods, err := l.Client.CoreV1().Pods("").List(ctx, all)
	if err != nil {
		t.Fatal(err)
	}
	for _, pod := range pods.Items {
		p.add(t, "pod "+pod.Namespace+"/"+pod.Name, fmt.Sprint(pod.UID, pod.DeletionTimestamp, pod.Spec.NodeName))
	}
	leases, err := l.Client.CoordinationV1().Leases(kamino.SystemNamespace).List(ctx, all)
	if err != nil {
		t.Fatal(err)
	}
	for _, lease := range leases.Items {
		if lease.Labels["app.kubernetes.io/managed-by"] == "kamino" {
			p.add(t, "lease "+lease.Name, lease)
		}
	}
	events, err := l.Client.CoreV1().Events("").List(ctx, metav1.ListOptions{FieldSelector: "source=kamino"})
	if err != nil {
		t.Fatal(err)
	}
	for _, event := range events.Items {
		p.add(t, "event "+event.Name, event.Message)
	}
	return p
}

func (p photo) add(t *testing.T, name string, value any) {
	t.Helper()
	text, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	p[name] = string(text)
}

// differences between two photos; things whose name has one of the prefixes are passed over.
func (p photo) differences(later photo, except ...string) []string {
	names := map[string]bool{}
	for name := range p {
		names[name] = true
	}
	for name := range later {
		names[name] = true
	}
	var found []string
	for _, name := range slices.Sorted(maps.Keys(names)) {
		skip := slices.ContainsFunc(except, func(prefix string) bool { return strings.HasPrefix(name, prefix) })
		if !skip && p[name] != later[name] {
			found = append(found, fmt.Sprintf("%s\n  was %s\n  is  %s", name, p[name], later[name]))
		}
	}
	return found
}

// nodeText is what people see of a node in kubectl get node -o yaml, without
// status and without what the API server and the node lifecycle controller keep in it.
func nodeText(node *corev1.Node) *corev1.Node {
	node = node.DeepCopy()
	node.Status = corev1.NodeStatus{}
	node.ManagedFields, node.ResourceVersion, node.Generation = nil, "", 0
	node.Spec.Taints = slices.DeleteFunc(node.Spec.Taints, func(taint corev1.Taint) bool {
		return strings.HasPrefix(taint.Key, "node.kubernetes.io/") && taint.Key != corev1.TaintNodeUnschedulable
	})
	if len(node.Spec.Taints) == 0 {
		node.Spec.Taints = nil
	}
	return node
}
