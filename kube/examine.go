package kube

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"

	"kamino.dev/kamino"
)

// Examine reads what the API server tells of a canary's node: 3 requests for it and its sibling
// each where they are there, and 5 more.
func (c *Cluster) Examine(ctx context.Context, order kamino.ExamineOrder) (out kamino.ClusterSight, err error) {
	order.Since = order.Since.Truncate(time.Second) // as Kubernetes writes times
	var node *corev1.Node
	if out.Node, node, err = c.nodeSight(ctx, order.Node); err != nil {
		return out, err
	}
	if order.Sibling != "" {
		if out.Sibling, _, err = c.nodeSight(ctx, order.Sibling); err != nil {
			return out, err
		}
	}
	if out.Renewed, err = c.othersRenew(ctx, order.Node); err != nil {
		return out, err
	}
	if out.Requests, err = c.requests(ctx, order.Node, order.Since); err != nil || node == nil {
		return out, err
	}
	if out.Daemons, err = c.daemons(ctx, node); err != nil {
		return out, err
	}
	if out.Starts, err = c.starts(ctx, node, order.Since); err != nil || order.Probe == nil {
		return out, err
	}
	out.Probe, err = c.probe(ctx, order)
	return out, err
}

// nodeSight reads a node and its kubelet's lease; one that is not there is no error.
func (c *Cluster) nodeSight(ctx context.Context, name string) (out kamino.NodeSight, n *corev1.Node, err error) {
	n, err = c.api.nodes.Get(ctx, name, metav1.GetOptions{})
	if err = explain("get nodes", err); errors.Is(err, kamino.ErrNotFound) {
		return out, nil, nil
	} else if err != nil {
		return out, nil, err
	}
	out.Node = convert(n)
	info, capacity := n.Status.NodeInfo, n.Status.Capacity
	out.Versions = map[string]string{"kubelet": info.KubeletVersion, "container runtime": info.ContainerRuntimeVersion, "kernel": info.KernelVersion}
	out.CPU, out.Memory, out.MaxPods = capacity.Cpu().MilliValue(), capacity.Memory().Value(), capacity.Pods().Value()
	for _, cond := range n.Status.Conditions {
		if cond.Type == corev1.NodeReady && cond.Status != corev1.ConditionTrue {
			out.NotReady = joinWords(cond.Reason, cond.Message)
		}
	}
	for _, image := range n.Status.Images {
		if len(image.Names) > 0 {
			out.Images = append(out.Images, image.Names[0]) // the kubelet puts that by digest first
		}
	}
	out.Own = ownLabels(n)
	out.Pulse, err = c.Pulse(ctx, out.Node)
	return out, n, err
}

// ownLabels are the labels that the node's kubelet set, as the API server notes who wrote what
// (https://kubernetes.io/docs/reference/using-api/server-side-apply/#field-management). What a
// person or a controller wrote on a node says nothing of its image.
func ownLabels(n *corev1.Node) map[string]string {
	own := map[string]string{}
	for _, entry := range n.ManagedFields {
		var written struct {
			Metadata struct {
				Labels map[string]json.RawMessage `json:"f:labels"`
			} `json:"f:metadata"`
		}
		if entry.Manager != "kubelet" || entry.FieldsV1 == nil || json.Unmarshal(entry.FieldsV1.Raw, &written) != nil {
			continue
		}
		for field := range written.Metadata.Labels {
			if key, ok := strings.CutPrefix(field, "f:"); ok {
				own[key] = n.Labels[key]
			}
		}
	}
	return own
}

// renewedWithin is how old the newest lease of the other kubelets may be: they renew them every ten
// seconds (https://kubernetes.io/docs/concepts/architecture/nodes/#heartbeats).
const renewedWithin = time.Minute

// othersRenew says whether another kubelet than that of a node reaches the API server.
func (c *Cluster) othersRenew(ctx context.Context, node string) (bool, error) {
	now, opts := c.opts.Clock.Now(), metav1.ListOptions{Limit: pageSize}
	list, err := c.api.leases(corev1.NamespaceNodeLease).List(ctx, opts)
	if err != nil {
		return false, explain("list leases.coordination.k8s.io -n "+corev1.NamespaceNodeLease, err)
	}
	for _, l := range list.Items {
		if l.Name != node && l.Spec.RenewTime != nil && now.Sub(l.Spec.RenewTime.Time).Abs() < renewedWithin {
			return true, nil
		}
	}
	return false, nil
}

// requests lists the certificate signing requests for a node that are not approved.
func (c *Cluster) requests(ctx context.Context, node string, since time.Time) (out []kamino.CertificateRequest, err error) {
	list, err := c.api.requests.List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, explain("list certificatesigningrequests.certificates.k8s.io", err)
	}
	approved := map[string]time.Time{} // when one of another node was, by signer
	for i := range list.Items {
		r := &list.Items[i]
		if at, ok := decided(r, certificatesv1.CertificateApproved); ok && subject(r) != node && at.After(approved[r.Spec.SignerName]) {
			approved[r.Spec.SignerName] = at
		}
	}
	for i := range list.Items {
		r := &list.Items[i]
		_, fine := decided(r, certificatesv1.CertificateApproved)
		if fine || subject(r) != node || r.CreationTimestamp.Time.Before(since) {
			continue
		}
		_, denied := decided(r, certificatesv1.CertificateDenied)
		out = append(out, kamino.CertificateRequest{Name: r.Name, Signer: r.Spec.SignerName, Made: r.CreationTimestamp.UTC(), Denied: denied,
			OthersApproved: approved[r.Spec.SignerName].After(r.CreationTimestamp.Time)})
	}
	return out, nil
}

func decided(r *certificatesv1.CertificateSigningRequest, how certificatesv1.RequestConditionType) (time.Time, bool) {
	for _, cond := range r.Status.Conditions {
		if cond.Type == how && cond.Status != corev1.ConditionFalse {
			return cond.LastUpdateTime.Time, true
		}
	}
	return time.Time{}, false
}

// subject is the node that a certificate is asked for: kubelets ask for the common name
// system:node:NAME
// (https://kubernetes.io/docs/reference/access-authn-authz/certificate-signing-requests/#kubernetes-signers).
func subject(r *certificatesv1.CertificateSigningRequest) string {
	block, _ := pem.Decode(r.Spec.Request)
	if block == nil {
		return ""
	}
	request, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		return ""
	}
	return strings.TrimPrefix(request.Subject.CommonName, "system:node:")
}

// daemons lists the DaemonSets that select a node, each with its pod there.
func (c *Cluster) daemons(ctx context.Context, node *corev1.Node) (out []kamino.DaemonPod, err error) {
	sets, err := c.api.daemonSets(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, explain("list daemonsets.apps --all-namespaces", err)
	}
	pods, err := c.api.pods(metav1.NamespaceAll).List(ctx, metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("spec.nodeName", node.Name).String()})
	if err != nil {
		return nil, explain("list pods --all-namespaces", err)
	}
	for i := range sets.Items {
		set := &sets.Items[i]
		if set.DeletionTimestamp == nil && selects(&set.Spec.Template.Spec, node) {
			out = append(out, daemonPod(set, pods.Items))
		}
	}
	return out, nil
}

func daemonPod(set *appsv1.DaemonSet, pods []corev1.Pod) kamino.DaemonPod {
	out := kamino.DaemonPod{Set: set.Namespace + "/" + set.Name, Reason: "no pod was made"}
	for i := range pods {
		pod := &pods[i]
		if owner := metav1.GetControllerOf(pod); owner == nil || owner.UID != set.UID || pod.DeletionTimestamp != nil {
			continue
		}
		ready := func(cond corev1.PodCondition) bool {
			return cond.Type == corev1.PodReady && cond.Status == corev1.ConditionTrue
		}
		if out.Ready = slices.ContainsFunc(pod.Status.Conditions, ready); out.Ready {
			return kamino.DaemonPod{Set: out.Set, Ready: true}
		}
		out.Reason, out.Pull = waitsFor(pod)
	}
	return out
}

// waitsFor is why a pod is not Ready, and whether it waits for an image.
func waitsFor(pod *corev1.Pod) (why string, pull bool) {
	words := []string{"pod " + pod.Name + " is " + strings.ToLower(string(pod.Status.Phase))}
	for _, s := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		switch {
		case s.State.Waiting != nil:
			words = append(words, joinWords(s.State.Waiting.Reason, s.State.Waiting.Message))
			pull = pull || slices.Contains([]string{"ErrImagePull", "ImagePullBackOff"}, s.State.Waiting.Reason)
		case s.State.Terminated != nil && s.State.Terminated.ExitCode != 0:
			words = append(words, joinWords(fmt.Sprintf("exit code %d", s.State.Terminated.ExitCode), s.State.Terminated.Reason))
		}
	}
	return strings.Join(words, ", "), pull
}

// starts counts how often the node's kubelet started, as its events of this machine tell.
func (c *Cluster) starts(ctx context.Context, node *corev1.Node, since time.Time) (count int, err error) {
	list, err := c.api.events(metav1.NamespaceDefault).List(ctx, metav1.ListOptions{
		FieldSelector: "involvedObject.kind=Node,involvedObject.name=" + node.Name + ",reason=Starting"})
	if err != nil {
		return 0, explain("list events -n "+metav1.NamespaceDefault, err)
	}
	for _, e := range list.Items {
		if e.Source.Component == "kubelet" && e.Reason == "Starting" && !e.LastTimestamp.Time.Before(since) {
			count += max(int(e.Count), 1)
		}
	}
	return count, nil
}
