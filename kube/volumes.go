package kube

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kamino.dev/kamino"
)

// refuseLocal returns a *kamino.RefusedError that names every local volume of a node, or nil. A
// local volume is a PersistentVolume of a claim whose data is on the node's machine. A drain keeps
// it, and so does a reboot; a stop of the machine destroys what is on an instance store or on a
// temporary disk (https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/instance-store-lifetime.html,
// https://learn.microsoft.com/azure/virtual-machines/states-billing).
func (c *Cluster) refuseLocal(ctx context.Context, node kamino.Node, pods []corev1.Pod) error {
	used := claimsOf(pods)
	var found []kamino.Refusal
	err := pages(ctx, c.api.volumes, metav1.ListOptions{}, "list persistentvolumes", func() { found = nil }, func(list *corev1.PersistentVolumeList) {
		for i := range list.Items {
			if why := local(&list.Items[i], node, used); why != "" {
				found = append(found, kamino.Refusal{Code: kamino.CodeLocalVolume, Why: why,
					Do: "choose another node; or move the data, and delete the claim and its volume"})
			}
		}
	})
	if err != nil || len(found) == 0 {
		return err
	}
	return &kamino.RefusedError{Subject: "node " + node.Name, Refusals: found}
}

// local says why a volume keeps a node from being switched off; "" where it does not.
func local(v *corev1.PersistentVolume, node kamino.Node, used map[string]claimUse) string {
	if v.Spec.ClaimRef == nil {
		return ""
	}
	claim := v.Spec.ClaimRef.Namespace + "/" + v.Spec.ClaimRef.Name
	use := used[claim]
	mounted := use.pod != "" && (v.Spec.Local != nil || v.Spec.HostPath != nil)
	if use.ephemeral || !mounted && !pinned(v, node) {
		return ""
	}
	held := "claim " + claim
	if use.pod != "" {
		held += ", pod " + use.pod
	}
	return fmt.Sprintf("PersistentVolume %s (%s) keeps its data on this machine, and a stop can destroy that; --force does not lift this", v.Name, held)
}

// claimUse is how pods of a node use a claim.
type claimUse struct {
	pod       string // namespace/name of one that mounts it
	ephemeral bool   // it is deleted with its pod, so that no drain keeps its data
}

// claimsOf maps the claims that pods mount, as namespace/name, to their use.
func claimsOf(pods []corev1.Pod) map[string]claimUse {
	out := map[string]claimUse{}
	for i := range pods {
		p := &pods[i]
		for _, v := range p.Spec.Volumes {
			switch {
			case v.PersistentVolumeClaim != nil:
				out[p.Namespace+"/"+v.PersistentVolumeClaim.ClaimName] = claimUse{pod: p.Namespace + "/" + p.Name}
			case v.Ephemeral != nil: // https://kubernetes.io/docs/concepts/storage/ephemeral-volumes/#persistentvolumeclaim-naming
				out[p.Namespace+"/"+p.Name+"-"+v.Name] = claimUse{pod: p.Namespace + "/" + p.Name, ephemeral: true}
			}
		}
	}
	return out
}

// pinned says whether a volume can be used on this node alone: each term of its affinity names the
// node's name or host name, under whatever key its driver has. Volumes of a network have the zone
// there, if anything.
func pinned(v *corev1.PersistentVolume, node kamino.Node) bool {
	if v.Spec.NodeAffinity == nil || v.Spec.NodeAffinity.Required == nil {
		return false
	}
	names := func(r corev1.NodeSelectorRequirement) bool {
		return r.Operator == corev1.NodeSelectorOpIn && len(r.Values) > 0 && !slices.ContainsFunc(r.Values, func(value string) bool {
			return value != node.Name && value != node.Labels[corev1.LabelHostname]
		})
	}
	terms := v.Spec.NodeAffinity.Required.NodeSelectorTerms
	return len(terms) > 0 && !slices.ContainsFunc(terms, func(t corev1.NodeSelectorTerm) bool {
		return !slices.ContainsFunc(slices.Concat(t.MatchExpressions, t.MatchFields), names)
	})
}
