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
// each where they are there, and at most 7 more.
func (c *Cluster) Examine(ctx context.Context, order kamino.ExamineOrder) (out kamino.ClusterObservation, err error) {
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
	if out.Daemons, err = c.daemons(ctx, node, order.Sibling); err != nil {
		return out, err
	}
	if out.Starts, err = c.starts(ctx, node, order.Since); err != nil || order.Probe == nil {
		return out, err
	}
	out.Probe, err = c.probe(ctx, order)
	return out, err
}

// nodeSight reads a node and its kubelet's lease; one that is not there is no error.
func (c *Cluster) nodeSight(ctx context.Context, name string) (out kamino.NodeObservation, n *corev1.Node, err error) {
	n, err = c.api.nodes.Get(ctx, name, metav1.GetOptions{})
	if err = explain("get nodes", err); errors.Is(err, kamino.ErrNotFound) {
		return out, nil, nil
	} else if err != nil {
		return out, nil, err
	}
	out.Node = NodeOf(n)
	info, capacity := n.Status.NodeInfo, n.Status.Capacity
	out.Versions = map[string]string{"kubelet": info.KubeletVersion, "container runtime": info.ContainerRuntimeVersion,
		"kernel": info.KernelVersion}
	out.CPU, out.Memory, out.MaxPods = capacity.Cpu().MilliValue(), capacity.Memory().Value(), capacity.Pods().Value()
	for _, cond := range n.Status.Conditions {
		if cond.Type == corev1.NodeReady && cond.Status != corev1.ConditionTrue {
			out.NotReady = joinWords(cond.Reason, cond.Message)
		}
	}
	for _, image := range out.Node.Software.Images {
		out.Images = append(out.Images, image.Name)
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
		if entry.Manager != "kubelet" || entry.FieldsV1 == nil || json.Unmarshal(entry.FieldsV1.GetRawBytes(), &written) != nil {
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

// othersRenew is when the newest of the leases of other nodes' kubelets was renewed, where one
// was within a minute of now; else zero: none of them reaches the API server. One page of them
// tells that of a cluster of any size.
func (c *Cluster) othersRenew(ctx context.Context, node string) (newest time.Time, err error) {
	now, opts := c.opts.Clock.Now(), metav1.ListOptions{Limit: pageSize}
	list, err := c.api.leases(corev1.NamespaceNodeLease).List(ctx, opts)
	if err != nil {
		return newest, explain("list leases.coordination.k8s.io -n "+corev1.NamespaceNodeLease, err)
	}
	for _, l := range list.Items {
		if at := l.Spec.RenewTime; l.Name != node && at != nil && now.Sub(at.Time).Abs() < renewedWithin && at.After(newest) {
			newest = at.UTC()
		}
	}
	return newest, nil
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
		out = append(out, kamino.CertificateRequest{Name: r.Name, Signer: r.Spec.SignerName, Made: r.CreationTimestamp.UTC(),
			Denied: denied, Foreign: foreign(r, node),
			OthersApproved: approved[r.Spec.SignerName].After(r.CreationTimestamp.Time)})
	}
	return out, nil
}

// foreign says whether a request was made by somebody who is neither the node itself nor one that
// asks for its first certificate: anybody who may create requests can write any subject into one.
// The API server writes who asks, and in which groups
// (https://kubernetes.io/docs/reference/access-authn-authz/kubelet-tls-bootstrapping/).
func foreign(r *certificatesv1.CertificateSigningRequest, node string) bool {
	return r.Spec.Username != "system:node:"+node && !slices.Contains(r.Spec.Groups, "system:bootstrappers")
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
func (c *Cluster) daemons(ctx context.Context, node *corev1.Node, sibling string) (out []kamino.DaemonPod, err error) {
	sets, err := c.api.daemonSets(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, explain("list daemonsets.apps --all-namespaces", err)
	}
	here, err := c.podsWhere(ctx, fields.OneTermEqualSelector("spec.nodeName", node.Name))
	if err != nil {
		return nil, err
	}
	var beside, unbound []corev1.Pod
	asked := false
	if sibling != "" {
		if beside, err = c.podsWhere(ctx, fields.OneTermEqualSelector("spec.nodeName", sibling)); err != nil {
			return nil, err
		}
	}
	for i := range sets.Items {
		set := &sets.Items[i]
		if set.DeletionTimestamp != nil || !selects(&set.Spec.Template.Spec, node) {
			continue
		}
		pod := podOf(set, here, func(p *corev1.Pod) bool { return p.Spec.NodeName == node.Name })
		if pod == nil && !asked {
			asked = true
			if unbound, err = c.podsWhere(ctx, fields.OneTermEqualSelector("spec.nodeName", "")); err != nil {
				return nil, err
			}
		}
		if pod == nil {
			pod = podOf(set, unbound, func(p *corev1.Pod) bool { return p.Spec.NodeName == "" && selects(&p.Spec, node) })
		}
		out = append(out, daemonPod(set, pod, podOf(set, beside, func(p *corev1.Pod) bool { return p.Spec.NodeName == sibling })))
	}
	return out, nil
}

func (c *Cluster) podsWhere(ctx context.Context, field fields.Selector) ([]corev1.Pod, error) {
	list, err := c.api.pods(metav1.NamespaceAll).List(ctx, metav1.ListOptions{FieldSelector: field.String()})
	if err != nil {
		return nil, explain("list pods --all-namespaces", err)
	}
	return list.Items, nil
}

// podOf is the pod of a DaemonSet that is where it should be, one that is Ready before others; nil
// for none.
func podOf(set *appsv1.DaemonSet, pods []corev1.Pod, where func(*corev1.Pod) bool) (found *corev1.Pod) {
	for i := range pods {
		pod := &pods[i]
		owner := metav1.GetControllerOf(pod)
		if owner != nil && owner.UID == set.UID && pod.DeletionTimestamp == nil && where(pod) && (found == nil || !podReady(found)) {
			found = pod
		}
	}
	return found
}

func podReady(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(cond corev1.PodCondition) bool {
		return cond.Type == corev1.PodReady && cond.Status == corev1.ConditionTrue
	})
}

// daemonPod is what a DaemonSet's pod on a node shows, compared with the sibling's.
func daemonPod(set *appsv1.DaemonSet, pod, beside *corev1.Pod) kamino.DaemonPod {
	out := kamino.DaemonPod{Set: set.Namespace + "/" + set.Name}
	if pod == nil {
		out.Owed, out.Reason = true, "it has no pod"
		return out
	}
	if podReady(pod) {
		out.Ready = true
		return out
	}
	const revision = appsv1.ControllerRevisionHashLabelKey
	out.Beside = beside != nil && podReady(beside) && beside.Labels[revision] == pod.Labels[revision]
	out.Reason, out.Owed = waitsFor(pod)
	out.Asked = out.Owed
	if pod.Spec.NodeName == "" {
		out.Unplaced = slices.ContainsFunc(pod.Status.Conditions, func(cond corev1.PodCondition) bool {
			return cond.Type == corev1.PodScheduled && cond.Reason == corev1.PodReasonUnschedulable
		})
		out.Owed = !out.Unplaced
	}
	return out
}

// owedReasons are a kubelet's words for what others owe a container
// (k8s.io/kubernetes v1.36.3, pkg/kubelet/images/types.go and pkg/kubelet/kuberuntime).
var owedReasons = []string{"ErrImagePull", "ImagePullBackOff", "ErrImageNeverPull", "InvalidImageName", "RegistryUnavailable",
	"SignatureValidationFailed", "CreateContainerConfigError"}

// waitsFor is why a pod is not Ready, and whether it waits for what others owe it.
func waitsFor(pod *corev1.Pod) (why string, owed bool) {
	words := []string{"pod " + pod.Name + " is " + strings.ToLower(string(pod.Status.Phase))}
	for _, cond := range pod.Status.Conditions {
		if cond.Type == corev1.PodScheduled && cond.Status == corev1.ConditionFalse {
			words = append(words, joinWords(cond.Reason, cond.Message))
		}
	}
	for _, s := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		switch {
		case s.State.Waiting != nil:
			words = append(words, joinWords(s.State.Waiting.Reason, s.State.Waiting.Message))
			owed = owed || slices.Contains(owedReasons, s.State.Waiting.Reason)
		case s.State.Terminated != nil && s.State.Terminated.ExitCode != 0:
			words = append(words, joinWords(fmt.Sprintf("exit code %d", s.State.Terminated.ExitCode), s.State.Terminated.Reason))
		}
	}
	return kamino.Plain(strings.Join(words, ", ")), owed
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
