// Package selection ranks the nodes of a pool as donors of its image, or as nodes to patch. It is
// pure: its results depend on its arguments only.
package selection

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"kamino.dev/kamino"
)

// Select judges every node of a pool and ranks those that may become its donor: by the day of the
// newest patch (programs stamp the same patches on different nodes hours apart), then by the
// longest time Ready, then by name. The candidates come first, in the order of their rank, then the
// rejected nodes by name.
func Select(nodes []kamino.Node, rules kamino.Rules, now time.Time) []kamino.Candidate {
	all := make([]judged, 0, len(nodes))
	for _, n := range nodes {
		j := judged{Rules: rules, Candidate: kamino.Candidate{Node: n.Name, Reasons: []kamino.Verdict{}}}
		j.role(n)
		j.health(n, now)
		j.patches(n, now)
		all = append(all, j)
	}
	slices.SortFunc(all, func(a, b judged) int {
		return cmp.Or(cmp.Compare(b.day, a.day), cmp.Compare(b.ready, a.ready), strings.Compare(a.Node, b.Node))
	})
	out := make([]kamino.Candidate, 0, len(all))
	for _, j := range all {
		out = append(out, j.Candidate)
	}
	Rank(out)
	return out
}

// SelectPatch judges every node of a pool, or the node that the options name, as a node to patch.
func SelectPatch(nodes []kamino.Node, o kamino.PatchOptions, now time.Time) []kamino.Candidate {
	rules := o.Rules
	rules.AnyPatch, rules.Image, rules.Bad, rules.PendingReboot, rules.Self = true, nil, nil, nil, o.Self
	if o.Donor != "" {
		nodes = slices.DeleteFunc(slices.Clone(nodes), func(n kamino.Node) bool { return n.Name != o.Donor })
		for i := range nodes { // a person may use a patch to repair it
			nodes[i].Taints = slices.DeleteFunc(slices.Clone(nodes[i].Taints),
				func(t kamino.Taint) bool { return t.Key == kamino.TaintPatchFailed })
		}
	}
	return Select(nodes, rules, now)
}

// Rank numbers the candidates without a reason against them, in their order, and moves the others
// behind them, by name.
func Rank(all []kamino.Candidate) {
	slices.SortStableFunc(all, func(a, b kamino.Candidate) int {
		if len(a.Reasons) > 0 && len(b.Reasons) > 0 {
			return strings.Compare(a.Node, b.Node)
		}
		return cmp.Compare(min(len(a.Reasons), 1), min(len(b.Reasons), 1))
	})
	for i := range all {
		if all[i].Rank = 0; len(all[i].Reasons) == 0 {
			all[i].Rank = i + 1
		}
	}
}

// judged is a node under judgement by rules.
type judged struct {
	kamino.Rules
	kamino.Candidate
	day   int64 // day of its patch, in seconds since 1970
	ready time.Duration
}

// Twins sets Node.Twin of each node whose machine another node shows too. A kubelet may register
// with any provider ID; the admission plugin NodeRestriction does not check it. Nobody can tell
// which of the two nodes runs on the machine, so neither is a donor.
func Twins(nodes []kamino.Node) []kamino.Node {
	out, first := slices.Clone(nodes), map[string]int{}
	for i, n := range out {
		id := strings.ToLower(string(n.ProviderID))
		if at, seen := first[id]; seen && id != "" {
			out[i].Twin, out[at].Twin = out[at].Name, n.Name
		} else {
			first[id] = i
		}
	}
	return out
}

// role checks what the node is and what others do with it.
func (j *judged) role(n kamino.Node) {
	if n.Name == j.Self && j.Self != "" {
		j.Reject("self", "this process runs on it")
	}
	if slices.Contains(j.Ignore, n.Name) {
		j.Reject("ignored", "listed to be ignored")
	}
	for _, a := range j.IgnoreAnnotations {
		if v, ok := n.Annotations[a]; ok {
			j.Reject("ignored", "annotation %s=%s", a, v)
		}
	}
	if n.Twin != "" {
		j.Reject(kamino.CodeMachine, "node %s shows the same machine", n.Twin)
	}
	if n.ControlPlane {
		j.Reject("control-plane", "a control plane node")
	}
	if n.OS != "" && n.OS != "linux" {
		j.Reject(kamino.CodeOS, "runs %s", n.OS)
	} else if n.Appliance() {
		j.Reject(kamino.CodeOS, "runs %s, which is read-only", n.Software.OS)
	}
	if n.Unschedulable {
		j.Reject("cordoned", "cordoned")
	}
	if n.Deleting {
		j.Reject("deleting", "being deleted")
	}
	if mark, err := n.Mark(); mark.Patches() {
		j.Reject(kamino.CodeDonor, "%s", mark.Patching())
	} else if mark != nil {
		j.Reject(kamino.CodeDonor, "donor of run %s", mark.Run)
	} else if err != nil {
		j.Reject(kamino.CodeDonor, "%s", err.Error())
	}
	for _, l := range j.RequireLabels {
		if !l.On(n) {
			j.Reject("label", "lacks label %s", l)
		}
	}
	for _, t := range n.Taints {
		switch {
		case t.Key == kamino.TaintDeleting:
			j.Reject("scale-down", "cluster-autoscaler is deleting it")
		case t.Key == kamino.TaintPatchFailed:
			b := n.Blocked()
			j.Reject(kamino.CodePatchFailed, "blocked %s; kamino patch --target-node %s continues", b, n.Name)
		case j.RejectTainted && t.Effect != "PreferNoSchedule" && foreignTaint(n, t):
			j.Reject("tainted", "taint %s:%s", t.Key, t.Effect)
		}
	}
}

// foreignTaint reports whether a taint is a reason of its own. Kamino's taints, and those that
// Kubernetes derives from conditions and cordons, are covered by other reasons.
func foreignTaint(n kamino.Node, t kamino.Taint) bool {
	return t.Key != kamino.TaintBlock && t.Key != kamino.TaintPatchFailed && !strings.HasPrefix(t.Key, "node.kubernetes.io/") &&
		(!n.ControlPlane || !strings.HasPrefix(t.Key, "node-role.kubernetes.io/"))
}

// health checks Ready and all other conditions.
func (j *judged) health(n kamino.Node, now time.Time) {
	if !n.Ready {
		j.Reject("not-ready", "not Ready")
	} else {
		j.ready = readyTime(n, now)
		j.ReadyFor = j.ready.Truncate(time.Minute).String()
		if j.ready < j.MinReady {
			j.Reject("ready-too-short", "Ready for %s, less than %s", j.ready.Truncate(time.Second), j.MinReady)
		}
	}
	for _, k := range n.Conditions {
		if k.Status != "True" || k.Type == "Ready" || slices.Contains(j.FineConditions, k.Type) || j.isSignal(k.Type) {
			continue
		}
		// The pressures of the kubelet and the conditions of the
		// node-problem-detector are all True when something is wrong.
		j.Reject("condition", "condition %s is True%s", k.Type, kamino.InBrackets(k.Reason))
	}
	for _, s := range j.PendingReboot {
		if v, ok := s.On(n); ok {
			j.Reject("pending-reboot", "%s=%s", s, v)
		}
	}
}

// readyTime returns how long the node has been Ready. A kubelet writes its own conditions with
// their times, so the result is limited by the age of the Node object, and a time in the future
// counts as zero.
func readyTime(n kamino.Node, now time.Time) time.Duration {
	since := n.ReadySince
	if since.Before(n.Created) {
		since = n.Created
	}
	return max(now.Sub(since), 0)
}

func (j *judged) isSignal(condition string) bool {
	is := func(s kamino.Signal) bool { return s.Condition == condition }
	return slices.ContainsFunc(j.PendingReboot, is) || slices.ContainsFunc(j.LastPatch, is)
}

// patches checks when the node was patched.
func (j *judged) patches(n kamino.Node, now time.Time) {
	patched, found, problems := LastPatch(n, j.LastPatch)
	j.Reasons = append(j.Reasons, problems...)
	if found {
		j.Patched = patched.String()
		j.day = min(patched.StartOfDay().Unix(), kamino.Stamp{Time: now}.StartOfDay().Unix()) // a time in the future gives no advantage
	}
	switch {
	case found && patched.Future(now):
		j.Reject("patch-in-future", "patched at %s, which is in the future", patched)
	case j.AnyPatch:
	case !found && len(problems) == 0:
		j.Reject(kamino.CodeNoPatch, "has none of %s", joinSignals(j.LastPatch))
	case found && j.Image != nil:
		if built, ok := j.Image.Built(); ok && !patched.Later(built) {
			j.Reject("no-newer-patch", "patched at %s, not after image %s (%s)", j.Patched, j.Image.Name, built)
		}
	}
	for _, v := range j.Bad {
		built, ok := v.Built()
		digest, was := n.Freshness().PackageDigest, v.Packages
		switch {
		case v.Donor != n.Name:
		case digest != "" && digest == was:
			j.Reject(kamino.CodeBadImage, "version %s, which was withdrawn, was built from it with the same packages", v.Name)
		case digest != "" && was != "": // the disk differs from that of the bad version
		case !ok || !found || !patched.Later(built):
			j.Reject(kamino.CodeBadImage, "version %s, which was withdrawn, was built from it", v.Name)
		}
	}
}

// LastPatch returns the latest time of any of the signals. A value that cannot be read is a reason
// against the node.
func LastPatch(n kamino.Node, signals []kamino.Signal) (last kamino.Stamp, found bool, problems []kamino.Verdict) {
	for _, s := range signals {
		v, ok := s.On(n)
		if !ok {
			continue
		}
		at, err := kamino.ParseStamp(v)
		if err != nil {
			problems = append(problems, kamino.Verdict{Code: "patch-unreadable", Text: fmt.Sprintf("%s: %v", s, err)})
			continue
		}
		if !found || at.Later(last) {
			last, found = at, true
		}
	}
	return last, found, problems
}

func joinSignals(signals []kamino.Signal) string {
	words := make([]string, len(signals))
	for i, s := range signals {
		words[i] = s.String()
	}
	return strings.Join(words, ", ")
}
