package kamino

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// refuseNode lists what speaks against a node as donor, as far as Kubernetes
// can tell. A donor of an unfinished run may well be off and blocked: midRun
// leaves out what the run itself causes.
func refuseNode(n Node, o Options, midRun bool) []Refusal {
	var out []Refusal
	add := func(code, field, value, why, do string) {
		out = append(out, Refusal{Code: code, Field: field, Value: value, Why: why, Do: do})
	}
	if n.ProviderID == "" {
		add("no-provider-id", "spec.providerID", "", "the VM behind the node cannot be found without it",
			"choose a node that a cloud controller manager has initialised")
	}
	if n.OS != "linux" {
		add("os", "status.nodeInfo.operatingSystem", n.OS, "only Linux disks can be sealed", "choose a Linux node")
	}
	if n.ControlPlane {
		add("control-plane", "metadata.labels", "node-role.kubernetes.io/control-plane",
			"a control plane node holds state of the cluster", "choose a worker node")
	}
	if n.Name == o.Self && o.Self != "" {
		add("self", "NODE_ID", o.Self, "this process runs on that node and would end with it",
			"choose another node, or run elsewhere (chart value kamino.scheduleOnControlPlane)")
	}
	if n.Deleting {
		add("deleting", "metadata.deletionTimestamp", "set", "the node is being deleted", "choose another node")
	}
	if n.Tainted(TaintDeleting) {
		add("scale-down", "spec.taints", TaintDeleting, "cluster-autoscaler is deleting the node", "choose another node")
	}
	for _, l := range o.RequireLabels {
		if !l.on(n) {
			add("label", "metadata.labels", l.Key, "the label "+l.String()+" is required of donors, and the node lacks it",
				"choose another node, or, if you trust this one: kubectl label node "+n.Name+" "+l.Key+"="+cmp.Or(l.Value, "true"))
		}
	}
	for _, s := range o.PendingReboot {
		if v, ok := s.on(n); ok && !midRun {
			add("pending-reboot", s.String(), v, "a reboot is pending, so patches are not in effect yet",
				"wait for the reboot, or choose another node")
		}
	}
	if !n.Ready && !midRun {
		add("not-ready", "status.conditions[Ready]", "not True", "only a working node may become a prototype",
			"wait until it is Ready, or choose another node")
	}
	return out
}

// refuse joins the refusals of node, instance and pool that the options do not
// lift.
func (r *Run) refuse(midRun bool) error {
	all := refuseNode(r.node, r.Options, midRun)
	if !SameVM(r.instance.VMID, r.node.SystemUUID) {
		all = append(all, Refusal{Code: "identity", Field: "status.nodeInfo.systemUUID", Value: r.node.SystemUUID,
			Why: fmt.Sprintf("instance %s is VM %s, not the machine that the node runs on", r.instance.ID, r.instance.VMID),
			Do:  "look whether the instance was replaced under the same name; if so, delete the stale Node object"})
	}
	all = append(all, r.instance.Refusals...)
	all = append(all, r.pool.Refusals...)
	kept := r.unlifted(all)
	if len(kept) == 0 {
		return nil
	}
	return &RefusedError{Subject: "node " + r.node.Name, Refusals: kept}
}

// unlifted leaves out the refusals that an option overrides.
func (o Options) unlifted(list []Refusal) []Refusal {
	return slices.DeleteFunc(slices.Clone(list), func(f Refusal) bool {
		return f.Allow == "allow-spot" && o.AllowSpot || f.Allow == allowAdopt && o.AdoptModel
	})
}

// nodeArchitecture is Kubernetes' word for an architecture in the words of
// galleries.
func nodeArchitecture(arch string) string {
	switch strings.ToLower(arch) {
	case "amd64", "x86_64":
		return "x64"
	case "arm64", "aarch64":
		return "Arm64"
	}
	return arch
}

func refuseUnknown(node string) error {
	return &RefusedError{Subject: fmt.Sprintf("node %q", node), Refusals: []Refusal{{Code: "unknown-node",
		Why: "not found: the cluster has no node of that name",
		Do:  "kubectl get nodes lists the nodes; if a run left this one off and Kubernetes forgot it: kamino restore"}}}
}

func refuseMark(node string, err error) error {
	return &RefusedError{Subject: "node " + node, Refusals: []Refusal{{Code: "mark", Why: err.Error(), Do: leftAlone(node)}}}
}

// CodeSealPod is the code of the refusal of a seal pod that no donor could have: its image is
// not known, or not admitted.
const CodeSealPod = "seal-pod"

// refuseStuck is the refusal of a node for pods that no waiting removes.
func refuseStuck(pods []Pod) Refusal {
	return Refusal{Code: "drain", Why: "the node cannot be drained: " + describePods(pods) + "; nothing was evicted",
		Do: "give these pods a controller or fix their budgets, choose another node, or use --force to delete them"}
}

// inTheWay is what a look met that the same command would meet again until somebody changes what
// the message names. A read that failed is none: services and credentials come right by
// themselves (a role of Azure takes minutes to be in effect).
type inTheWay struct{ error }

func (e inTheWay) Unwrap() error { return e.error }

// refusing says whether an error of a look is a refusal.
func refusing(err error) bool {
	var refused *RefusedError
	var held *HeldError
	var met inTheWay
	return errors.As(err, &refused) || errors.As(err, &held) || errors.As(err, &met)
}

// refusedFirst says whether a run was refused that has taken nothing: it began itself, and not even
// a mark stands on its donor.
func (r *Run) refusedFirst(err error) bool {
	var step *StepError
	if !errors.As(err, &step) || !step.Refused || r.adopted {
		return false
	}
	mark, markErr := r.node.claim(r.pool.ID)
	return mark == nil && markErr == nil && !r.lease.Record.Sealing
}
