package kube

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kamino.dev/kamino"
)

// pageSize of lists: some 200 nodes of 15 kB, which decoded take 10 MB.
const pageSize = 200

// page is a page of a list.
type page[L any] interface {
	*L
	GetContinue() string
}

// pages reads a list page by page. The API server answers 410 to a page whose list began before
// etcd's last compaction, or on a server that failed over
// (https://kubernetes.io/docs/reference/using-api/api-concepts/#retrieving-large-results-sets-in-chunks):
// pages then calls again, which forgets what was read, and begins a second time, but not a third.
func pages[T, L any, P page[L]](ctx context.Context, of objects[T, L], opts metav1.ListOptions, what string,
	again func(), read func(P)) error {
	opts.Limit = pageSize
	for first := true; ; {
		list, err := of.List(ctx, opts)
		if first && opts.Continue != "" && (apierrors.IsResourceExpired(err) || apierrors.IsGone(err)) {
			first, opts.Continue = false, ""
			again()
			continue
		} else if err != nil {
			return explain(what, err)
		}
		read(list)
		if opts.Continue = P(list).GetContinue(); opts.Continue == "" {
			return nil
		}
	}
}

// Node reads one node.
func (c *Cluster) Node(ctx context.Context, name string) (kamino.Node, error) {
	n, err := c.api.nodes.Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return kamino.Node{}, explain("get nodes", err)
	}
	return NodeOf(n), nil
}

// Nodes reads all nodes, page by page.
func (c *Cluster) Nodes(ctx context.Context) ([]kamino.Node, error) {
	if once, _ := ctx.Value(onceKey{}).(*once); once != nil {
		return once.nodes(func() ([]kamino.Node, error) { return c.readNodes(ctx) })
	}
	return c.readNodes(ctx)
}

type onceKey struct{}

// once keeps the nodes that were read with a context.
type once struct {
	mu   sync.Mutex
	read []kamino.Node
}

// NodesOnce returns a context with which the nodes are read once, for commands that only look: in a
// cluster of thousands of nodes a second list is half of what such a command costs.
func NodesOnce(ctx context.Context) context.Context {
	return context.WithValue(ctx, onceKey{}, &once{})
}

type bareKey struct{}

// NodesBare returns a context with which lists of nodes omit cached images, for commands that
// need none: most of what a node with 50 images takes of memory.
func NodesBare(ctx context.Context) context.Context {
	return context.WithValue(ctx, bareKey{}, true)
}

func (o *once) nodes(read func() ([]kamino.Node, error)) ([]kamino.Node, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.read == nil {
		all, err := read()
		if err != nil {
			return nil, err
		}
		o.read = all
	}
	return slices.Clip(o.read), nil
}

func (c *Cluster) readNodes(ctx context.Context) ([]kamino.Node, error) {
	var out []kamino.Node
	// No resource version: the list is as new as etcd, never from the watch cache's past.
	texts, bare := shared{}, ctx.Value(bareKey{}) != nil
	err := pages(ctx, c.api.nodes, metav1.ListOptions{}, "list nodes", func() { out = nil }, func(list *corev1.NodeList) {
		for i := range list.Items {
			if bare {
				list.Items[i].Status.Images = nil
			}
			node := NodeOf(&list.Items[i])
			texts.software(&node.Software)
			texts.pairs(node.Labels)
			out = append(out, node)
		}
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// shared holds texts that many nodes have, once.
type shared map[string]string

// mostShared is how many texts are remembered: where there are more, most are of one node alone,
// and what remembers them takes more than they do.
const mostShared = 20_000

func (s shared) text(t *string) {
	if one, ok := s[*t]; ok {
		*t = one
		return
	}
	if len(s) < mostShared {
		s[*t] = *t
	}
}

// pairs shares the labels of nodes, most of which all nodes of a pool have.
func (s shared) pairs(of map[string]string) {
	for key, value := range of {
		s.text(&key)
		s.text(&value)
		of[key] = value // a map takes the new key for an equal one
	}
}

func (s shared) software(of *kamino.Software) {
	for _, t := range []*string{&of.Kernel, &of.OS, &of.Kubelet, &of.Runtime} {
		s.text(t)
	}
	for i := range of.Images {
		s.text(&of.Images[i].Name)
	}
}

// software is what the kubelet tells of the node; of an image's names it puts the one by digest
// first.
func software(n *corev1.Node) kamino.Software {
	info := n.Status.NodeInfo
	out := kamino.Software{Kernel: info.KernelVersion, OS: info.OSImage, Kubelet: info.KubeletVersion,
		Runtime: info.ContainerRuntimeVersion}
	for _, image := range n.Status.Images {
		if len(image.Names) > 0 {
			out.Images = append(out.Images, kamino.CachedImage{Name: image.Names[0], Bytes: image.SizeBytes})
		}
	}
	return out
}

// controlPlaneLabels mark nodes of the control plane: that of kubeadm, the one
// it used until Kubernetes 1.24, and that of aks-engine
// (https://kubernetes.io/docs/reference/labels-annotations-taints/).
var controlPlaneLabels = []struct{ key, value string }{
	{key: "node-role.kubernetes.io/control-plane"},
	{key: "node-role.kubernetes.io/master"},
	{key: "kubernetes.io/role", value: "master"},
}

// noControlPlane keeps a pod off the nodes of the control plane, also one that is
// pinned to a node: kubelet admits none whose affinity excludes its node
// (https://kubernetes.io/docs/concepts/scheduling-eviction/assign-pod-node/).
func noControlPlane() *corev1.Affinity {
	var not corev1.NodeSelectorTerm
	for _, l := range controlPlaneLabels {
		r := corev1.NodeSelectorRequirement{Key: l.key, Operator: corev1.NodeSelectorOpDoesNotExist}
		if l.value != "" {
			r.Operator, r.Values = corev1.NodeSelectorOpNotIn, []string{l.value}
		}
		not.MatchExpressions = append(not.MatchExpressions, r)
	}
	return &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
		NodeSelectorTerms: []corev1.NodeSelectorTerm{not}}}}
}

// NodeOf is a node as the engine sees it. A kubelet may write anything into its node, and the API
// server checks little of it: each text is made plain here, for all who show it.
func NodeOf(n *corev1.Node) kamino.Node {
	out := kamino.Node{
		Name:          n.Name,
		UID:           string(n.UID),
		ProviderID:    kamino.InstanceID(n.Spec.ProviderID),
		OS:            n.Status.NodeInfo.OperatingSystem,
		Architecture:  n.Status.NodeInfo.Architecture,
		SystemUUID:    n.Status.NodeInfo.SystemUUID,
		BootID:        n.Status.NodeInfo.BootID,
		MachineID:     n.Status.NodeInfo.MachineID,
		Unschedulable: n.Spec.Unschedulable,
		Deleting:      n.DeletionTimestamp != nil,
		Software:      software(n),
		Labels:        n.Labels,
		Annotations:   n.Annotations,
		Revision:      n.ResourceVersion,
		Created:       n.CreationTimestamp.UTC(),
	}
	for _, l := range controlPlaneLabels {
		if v, ok := n.Labels[l.key]; ok && (l.value == "" || v == l.value) {
			out.ControlPlane = true
		}
	}
	for _, cond := range n.Status.Conditions {
		if cond.Type != corev1.NodeReady {
			out.Conditions = append(out.Conditions, kamino.Condition{Type: string(cond.Type), Status: string(cond.Status),
				Since: cond.LastTransitionTime.UTC(), Reason: cond.Reason})
			continue
		}
		out.Heartbeat = cond.LastHeartbeatTime.UTC()
		if out.Ready = cond.Status == corev1.ConditionTrue; out.Ready {
			out.ReadySince = cond.LastTransitionTime.UTC()
		}
	}
	for _, v := range n.Status.VolumesAttached {
		out.Volumes = append(out.Volumes, string(v.Name))
	}
	for _, v := range n.Status.VolumesInUse {
		if !slices.Contains(out.Volumes, string(v)) {
			out.Volumes = append(out.Volumes, string(v))
		}
	}
	for _, t := range n.Spec.Taints {
		out.Taints = append(out.Taints, kamino.Taint{Key: t.Key, Value: t.Value, Effect: string(t.Effect)})
	}
	kamino.PlainAll(&out)
	return out
}

// Pulse reads when the node's kubelet last renewed its lease: every 10 s, where
// the status of a node in which nothing changes is written every 5 minutes
// (https://kubernetes.io/docs/concepts/architecture/nodes/#heartbeats). It falls back to
// the status. The time is by the node's clock.
func (c *Cluster) Pulse(ctx context.Context, node kamino.Node) (time.Time, error) {
	lease, err := c.api.leases(corev1.NamespaceNodeLease).Get(ctx, node.Name, metav1.GetOptions{})
	if err = explain("get leases.coordination.k8s.io -n "+corev1.NamespaceNodeLease, err); errors.Is(err, kamino.ErrNotFound) {
		return node.Heartbeat, nil
	} else if err != nil {
		return time.Time{}, err
	}
	if lease.Spec.RenewTime == nil || lease.Spec.RenewTime.Time.Before(node.Heartbeat) {
		return node.Heartbeat, nil
	}
	return lease.Spec.RenewTime.UTC(), nil
}
