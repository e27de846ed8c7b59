package selection

import (
	"cmp"

	"kamino.dev/kamino"
)

// RefuseNode returns the reasons against a node as donor that Kubernetes shows. With midRun, for
// the donor of an unfinished run, it omits the effects of the run itself: such a donor may be off
// and blocked.
func RefuseNode(n kamino.Node, o kamino.Options, midRun bool) []kamino.Refusal {
	var out []kamino.Refusal
	add := func(code kamino.Code, field, value, why, do string) {
		out = append(out, kamino.Refusal{Code: code, Field: field, Value: value, Why: why, Do: do})
	}
	if n.ProviderID == "" {
		add("no-provider-id", "spec.providerID", "", "the VM behind the node cannot be found without it",
			"choose a node that a cloud controller manager has initialised")
	}
	if n.OS != "linux" {
		add(kamino.CodeOS, "status.nodeInfo.operatingSystem", n.OS, "only Linux disks can be sealed", "choose a Linux node")
	}
	if n.Appliance() {
		add(kamino.CodeOS, "status.nodeInfo.osImage", n.Software.OS,
			"its system is read-only and cannot store what gives a clone its own identity", "choose a pool of another distribution")
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
	if n.Tainted(kamino.TaintDeleting) {
		add("scale-down", "spec.taints", kamino.TaintDeleting, "cluster-autoscaler is deleting the node", "choose another node")
	}
	if b := n.Blocked(); b != nil && o.Patch == nil { // a person who names the node for a patch wants it repaired
		out = append(out, b.Refusal())
	}
	for _, l := range o.RequireLabels {
		if !l.On(n) {
			add("label", "metadata.labels", l.Key, "the label "+l.String()+" is required of donors, and the node lacks it",
				"choose another node, or, if you trust this one: kubectl label node "+n.Name+" "+l.Key+"="+cmp.Or(l.Value, "true"))
		}
	}
	for _, s := range o.PendingReboot {
		if v, ok := s.On(n); ok && !midRun {
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
