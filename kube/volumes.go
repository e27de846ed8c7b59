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
	v := &volumes{cluster: c, node: node, used: claimsOf(pods)}
	var all []corev1.PersistentVolume
	err := pages(ctx, c.api.volumes, metav1.ListOptions{}, "list persistentvolumes", func() { all = nil },
		func(list *corev1.PersistentVolumeList) {
			all = append(all, slices.DeleteFunc(list.Items, func(pv corev1.PersistentVolume) bool { return !v.near(&pv) })...)
		})
	if err != nil {
		return err
	}
	var found []kamino.Refusal
	for i := range all {
		is, err := v.local(ctx, &all[i])
		if err != nil {
			return err
		}
		if is {
			found = append(found, kamino.Refusal{Code: kamino.CodeLocalVolume, Why: v.why(&all[i]),
				Do: "choose another node; or move the data, and delete the claim and its volume"})
		}
	}
	if len(found) == 0 {
		return nil
	}
	return &kamino.RefusedError{Subject: "node " + node.Name, Refusals: found}
}

// volumes judges the PersistentVolumes of a cluster for one node.
type volumes struct {
	cluster *Cluster
	node    kamino.Node
	used    map[string]claimUse
	nodes   []kamino.Node // of the cluster, once something asked for them
}

func (v *volumes) useOf(pv *corev1.PersistentVolume) claimUse {
	return v.used[pv.Spec.ClaimRef.Namespace+"/"+pv.Spec.ClaimRef.Name]
}

// near says, without further reads, whether the data of a bound volume may be on the node's machine.
func (v *volumes) near(pv *corev1.PersistentVolume) bool {
	if pv.Spec.ClaimRef == nil || v.useOf(pv).ephemeral {
		return false
	}
	return v.mounted(pv) || pinned(pv, func(key, value string) bool { return v.names(value) || v.labels(key, value) })
}

// mounted says whether a pod of the node mounts a volume that is a path on a machine.
func (v *volumes) mounted(pv *corev1.PersistentVolume) bool {
	return v.useOf(pv).pod != "" && (pv.Spec.Local != nil || pv.Spec.HostPath != nil)
}

// local says whether the data of a volume is on the node's machine alone.
func (v *volumes) local(ctx context.Context, pv *corev1.PersistentVolume) (bool, error) {
	switch {
	case pinned(pv, func(_, value string) bool { return v.names(value) }):
		return true, nil
	case v.mounted(pv) && pv.Spec.HostPath != nil && pv.Spec.NodeAffinity == nil:
		shared, err := v.shared(ctx, pv)
		return !shared, err
	case v.mounted(pv):
		return true, nil
	}
	if v.nodes == nil {
		var err error
		if v.nodes, err = v.cluster.Nodes(ctx); err != nil {
			return false, err
		}
	}
	return pinned(pv, func(key, value string) bool {
		return v.names(value) || v.labels(key, value) &&
			!slices.ContainsFunc(v.nodes, func(n kamino.Node) bool { return n.Name != v.node.Name && n.Labels[key] == value })
	}), nil
}

// shared says whether a path that no node affinity ties to a machine is the same on several, as a
// network's file system is that each node has mounted there: the volume may be used by several
// nodes, or is.
func (v *volumes) shared(ctx context.Context, pv *corev1.PersistentVolume) (shared bool, err error) {
	if slices.Contains(pv.Spec.AccessModes, corev1.ReadWriteMany) || slices.Contains(pv.Spec.AccessModes, corev1.ReadOnlyMany) {
		return true, nil
	}
	claim := pv.Spec.ClaimRef
	err = pages(ctx, v.cluster.api.pods(claim.Namespace), metav1.ListOptions{}, "list pods -n "+claim.Namespace, func() { shared = false },
		func(list *corev1.PodList) {
			elsewhere := slices.DeleteFunc(list.Items, func(p corev1.Pod) bool {
				return p.Spec.NodeName == "" || p.Spec.NodeName == v.node.Name || finished(&p)
			})
			shared = shared || claimsOf(elsewhere)[claim.Namespace+"/"+claim.Name].pod != ""
		})
	return shared, err
}

// why says what keeps the node from being switched off.
func (v *volumes) why(pv *corev1.PersistentVolume) string {
	held := "claim " + pv.Spec.ClaimRef.Namespace + "/" + pv.Spec.ClaimRef.Name
	if use := v.useOf(pv); use.pod != "" {
		held += ", pod " + use.pod
	}
	return fmt.Sprintf("PersistentVolume %s (%s) keeps its data on this machine, and a stop can destroy that; --force does not lift this",
		pv.Name, held)
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

// names says whether a value is the node's name or host name.
func (v *volumes) names(value string) bool {
	return value == v.node.Name || value != "" && value == v.node.Labels[corev1.LabelHostname]
}

// ofMany are labels that many nodes have in common, although in a small cluster a value may be on
// one node only (https://kubernetes.io/docs/reference/labels-annotations-taints/).
var ofMany = []string{corev1.LabelTopologyZone, corev1.LabelTopologyRegion, corev1.LabelFailureDomainBetaZone,
	corev1.LabelFailureDomainBetaRegion,
	corev1.LabelOSStable, corev1.LabelArchStable, corev1.LabelInstanceTypeStable, corev1.LabelInstanceType}

// labels says whether the node has a label that may be its own. Drivers of a cloud's disks have the
// zone, the region or nothing under keys of theirs.
func (v *volumes) labels(key, value string) bool {
	return value != "" && v.node.Labels[key] == value &&
		!slices.ContainsFunc(ofMany, func(many string) bool { return key == many || value == v.node.Labels[many] })
}

// pinned says whether a volume can be used on one node alone: each term of its affinity has a
// requirement whose values all are that node's own. Volumes of a network have the zone there, if
// anything.
func pinned(pv *corev1.PersistentVolume, own func(key, value string) bool) bool {
	if pv.Spec.NodeAffinity == nil || pv.Spec.NodeAffinity.Required == nil {
		return false
	}
	names := func(r corev1.NodeSelectorRequirement) bool {
		return r.Operator == corev1.NodeSelectorOpIn && len(r.Values) > 0 &&
			!slices.ContainsFunc(r.Values, func(value string) bool { return !own(r.Key, value) })
	}
	terms := pv.Spec.NodeAffinity.Required.NodeSelectorTerms
	return len(terms) > 0 && !slices.ContainsFunc(terms, func(t corev1.NodeSelectorTerm) bool {
		return !slices.ContainsFunc(slices.Concat(t.MatchExpressions, t.MatchFields), names)
	})
}
