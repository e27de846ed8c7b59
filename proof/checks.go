// Package proof judges a canary: an [Observation] of it and the [Bounds] for it give a verdict with
// findings. It is pure: its results depend on its arguments only.
package proof

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"kamino.dev/kamino"
)

// Bounds are the limits of an examination.
type Bounds struct {
	Boot    time.Duration            // limit from the machine's start to its Ready node
	Bake    time.Duration            // how long the canary is watched after that
	History time.Duration            // the median boot of the pool's earlier canaries; 0 if not known
	Phases  map[string]time.Duration // the median of each phase of those boots, by name
	Baked   []kamino.Baked           // observations of earlier canaries after they were Ready
	Without []string                 // names of the checks that are skipped
}

// check is a row of the table of checks: what is checked, the limit in words, and the function that
// judges it.
type check struct {
	name, limit string
	judge       func(Observation, Bounds) (kamino.Outcome, string)
}

// checks is the table, one row for each of [kamino.Checks]. If any row fails, the proof fails; the
// first failure is its reason.
var checks = []check{
	{"cloud", "the machine is made and runs", judgeCloud},
	{"identity", "machine, host name, machine ID, SSH host keys and provider ID are its own", judgeIdentity},
	{"apart", "its node registered with the canary taint, and is excluded from load balancers", judgeApart},
	{"certificate", "its certificates are approved as those of other nodes", judgeCertificate},
	{"ready", "its node is Ready within the boot budget", judgeReady},
	{"boot", "the boot and each phase take at most twice the median of earlier canaries plus a quarter of the budget", judgeBoot},
	{"stable", "the node stayed Ready, and kubelet started once", judgeStable},
	{"labels", "the kubelet labels and the taints of a sibling", judgeLabels},
	{"capacity", "the capacity of a sibling, and the donor's versions", judgeCapacity},
	{"pressure", "no condition but Ready is True that is not on a sibling", judgePressure},
	{"clock", "within a minute of those of other nodes", judgeClock},
	{"images", "at least half of the donor's cached images", judgeImages},
	{"daemonsets", "a Ready pod of each that selects the node", judgeDaemons},
	{"report", "its agent reports, with the run's nonce and the packages of the sealed disk", judgeReport},
	{"units", "no failed unit, and none that restarts more often than on earlier canaries", judgeUnits},
	{"reboot", "none is pending", judgeReboot},
	{"probe", "the operator's probe succeeds", judgeProbe},
}

// Judge applies the table of checks to an observation. It is a pure function. The first finding is
// the reason of the outcome.
func Judge(s Observation, b Bounds) (kamino.Outcome, []kamino.Finding) {
	if out, why := s.leaving(); out != "" && !slices.Contains(b.Without, "cloud") {
		return out, []kamino.Finding{{Check: "cloud", Outcome: out, Evidence: why}}
	}
	found := map[kamino.Outcome][]kamino.Finding{}
	for _, c := range checks {
		if slices.Contains(b.Without, c.name) {
			continue
		}
		out, evidence := c.judge(s, b)
		found[out] = append(found[out], kamino.Finding{Check: c.name, Outcome: out, Evidence: evidence})
	}
	for _, out := range []kamino.Outcome{kamino.ProofFailed, kamino.ProofInconclusive, kamino.ProofWaits} {
		if len(found[out]) > 0 {
			return out, found[out]
		}
	}
	if left := s.Ready.Add(b.Bake).Sub(s.Now); left > 0 {
		left = min((left + 30*time.Second - 1).Truncate(30*time.Second), b.Bake) // in steps of 30 s, not a new line each second
		return kamino.ProofWaits, []kamino.Finding{
			{Check: "stable", Outcome: kamino.ProofWaits, Evidence: fmt.Sprintf("the canary to stay healthy for another %s", left)}}
	}
	if s.Node.UID == "" { // whatever is skipped: an image that showed no node has proved nothing
		out := kamino.ProofWaits
		if s.overdue(b) || s.Running.IsZero() && s.Now.Sub(s.Launched) > CreateLimit+b.Boot {
			out = kamino.ProofInconclusive
		}
		return out, []kamino.Finding{{Check: "identity", Outcome: out, Evidence: "the canary's node to register"}}
	}
	return kamino.ProofPassed, slices.Concat(found[kamino.ProofPassed],
		[]kamino.Finding{{Check: "stable", Outcome: kamino.ProofPassed, Evidence: "examined"}},
		found[kamino.ProofNotApplicable], s.uncompared(b))
}

// CreateLimit is how long a cloud may take to create a machine.
const CreateLimit = 20 * time.Minute

func judgeCloud(s Observation, _ Bounds) (kamino.Outcome, string) {
	c := s.Canary
	switch {
	case c.State == kamino.Failed && c.Blocked:
		return kamino.ProofInconclusive, "the cloud did not create it: " + c.Failure
	case c.State == kamino.Failed:
		return kamino.ProofFailed, "the cloud abandoned it: " + cmp.Or(c.Failure, "no reason given") + s.lastLines()
	case s.Running.IsZero() && s.Now.Sub(s.Launched) > CreateLimit:
		return kamino.ProofInconclusive, fmt.Sprintf("the cloud has not created it within %s", CreateLimit)
	case s.Running.IsZero():
		return kamino.ProofWaits, "the cloud to create the canary"
	}
	return kamino.ProofPassed, "runs as " + string(c.Instance)
}

func judgeIdentity(s Observation, b Bounds) (kamino.Outcome, string) {
	n := s.Node
	switch {
	case s.Stray != "" && !kamino.SameVM(n.SystemUUID, s.VM()) && !s.overdue(b): // a kubelet may write any machine into its own node
		return kamino.ProofWaits, "the canary's node, while node " + s.Stray + " shows its machine"
	case s.Stray != "" && !kamino.SameVM(n.SystemUUID, s.VM()) && s.heard():
		return kamino.ProofFailed, fmt.Sprintf("node %s shows the machine of the canary, which is %s", s.Stray, s.Canary.Hostname)
	case n.UID == "":
		return kamino.ProofPassed, "no node yet"
	case n.SystemUUID == "":
		return kamino.ProofPassed, "its node does not report yet on which machine it runs" // it is not Ready either
	case s.VM() != "" && !kamino.SameVM(n.SystemUUID, s.VM()):
		return s.unless(kamino.ProofFailed, b, fmt.Sprintf("node %s runs on machine %s, the canary is %s", n.Name, n.SystemUUID, s.VM()))
	case n.ProviderID == "" && s.There():
		return s.byAndBy(b, kamino.ProofInconclusive, "the node has no provider ID: no cloud controller manager has initialised it")
	case n.ProviderID != "" && !n.RunsOn(s.Canary.Instance):
		return kamino.ProofFailed, fmt.Sprintf("node %s has the provider ID %s, the canary is %s", n.Name, n.ProviderID, s.Canary.Instance)
	}
	r, _ := n.Report(s.Nonce)
	if r.MachineID != "" && n.MachineID != "" && r.MachineID != n.MachineID {
		return s.byAndBy(b, kamino.ProofFailed, fmt.Sprintf("its kubelet reports machine ID %s, and its disk has %s",
			n.MachineID, r.MachineID))
	}
	for _, key := range strings.Fields(s.Sealed[kamino.TagSSHKeys]) {
		if slices.Contains(r.SSHKeys, key) {
			return kamino.ProofFailed, fmt.Sprintf("its SSH host key %s is one that node %s had", key, s.Sealed[kamino.TagBuiltFrom])
		}
	}
	out, evidence := kamino.ProofPassed, "its own"
	for _, o := range append(slices.Clone(s.Others), s.Sibling.Node) {
		switch same := o.UID != n.UID && o.MachineID != "" && o.MachineID == n.MachineID; {
		case same && s.Before[o.Name] == o.MachineID:
			return kamino.ProofFailed, fmt.Sprintf("machine ID %s is that of node %s, too", o.MachineID, o.Name)
		case same: // it is unknown which was first: a kubelet may write any into its own node
			out, evidence = kamino.ProofInconclusive, fmt.Sprintf("node %s shows its machine ID %s, too, and may have taken it",
				o.Name, o.MachineID)
		}
	}
	return out, evidence
}

// judgeApart checks the canary taint and label: a proof must keep ordinary pods and traffic off a
// node that nobody has examined. A missing label alone does not fail the image, because somebody
// may have removed it.
func judgeApart(s Observation, _ Bounds) (kamino.Outcome, string) {
	_, out := s.Node.Labels[kamino.LabelCanary]
	switch {
	case s.Node.UID == "" || !kamino.SameVM(s.Node.SystemUUID, s.VM()):
		return kamino.ProofPassed, "no node yet"
	case s.Bare && s.Unsealed:
		return kamino.ProofInconclusive, fmt.Sprintf("node %s registered without the taint %s, as an image without Kamino's agent does",
			s.Node.Name, kamino.TaintCanary)
	case s.Bare:
		return kamino.ProofFailed, fmt.Sprintf("node %s registered without the taint %s", s.Node.Name, kamino.TaintCanary)
	case !out:
		return kamino.ProofInconclusive, fmt.Sprintf("node %s has no label %s: traffic may come to it", s.Node.Name, kamino.LabelCanary)
	}
	return kamino.ProofPassed, "tainted, and out of load balancers"
}

// requestTime is how long an approver may take.
const requestTime = 2 * time.Minute

func judgeCertificate(s Observation, b Bounds) (kamino.Outcome, string) {
	for _, r := range s.Requests {
		what := fmt.Sprintf("certificate signing request %s (%s)", r.Name, r.Signer)
		switch old := s.Now.Sub(r.Made) > requestTime; {
		case r.Foreign: // no evidence against the canary, though the request may be its own
		case r.Denied: // the approver may know only the names of the pool
			return s.byAndBy(b, kamino.ProofInconclusive, what+" was denied")
		case r.OthersApproved && old:
			return kamino.ProofFailed, what + " is pending, and another node's was approved meanwhile"
		case r.OthersApproved:
			return kamino.ProofWaits, what + " to be approved"
		case !s.There() && s.overdue(b):
			return kamino.ProofInconclusive, what + " is pending, and so are all others: the approver may be down"
		}
	}
	return kamino.ProofPassed, "none is pending"
}

func judgeReady(s Observation, b Bounds) (kamino.Outcome, string) {
	switch {
	case !s.Ready.IsZero():
		return kamino.ProofPassed, fmt.Sprintf("Ready %s after the machine started", s.Boot().Round(time.Second))
	case s.Running.IsZero() || !s.overdue(b):
		return kamino.ProofWaits, "the canary's node to be Ready"
	case s.Unheeded():
		return kamino.ProofInconclusive, "its certificate is not approved, and no other is"
	case s.Node.UID != "" && s.Owed():
		return kamino.ProofInconclusive, fmt.Sprintf(
			"node %s is not Ready within %s: pods of DaemonSets wait for an image, a Secret or a ConfigMap%s", s.Node.Name, b.Boot,
			kamino.InBrackets(s.Node.NotReady))
	case s.dark():
		return kamino.ProofInconclusive, fmt.Sprintf(
			"no node is Ready within %s, and the image is not blamed: the control plane, the zone or the cloud's API appears to be down",
			b.Boot)
	case s.Node.UID == "":
		return kamino.ProofFailed, fmt.Sprintf("no node has registered within %s of the machine's start", b.Boot) + s.lastLines()
	}
	return kamino.ProofFailed, fmt.Sprintf("node %s is not Ready within %s of the machine's start%s", s.Node.Name, b.Boot,
		kamino.InBrackets(s.Node.NotReady)) + s.lastLines()
}

func judgeBoot(s Observation, b Bounds) (kamino.Outcome, string) {
	if !s.There() || b.History == 0 && len(b.Phases) == 0 {
		return kamino.ProofPassed, "no history to compare with"
	}
	slow, over := "", time.Duration(0) // of the phases, the one farthest beyond its limit
	report, _ := s.Node.Report(s.Nonce)
	for _, name := range slices.Sorted(maps.Keys(b.Phases)) {
		took := time.Duration(report.Phases[name] * float64(time.Second))
		if more := took - b.slowest(b.Phases[name]); more > over {
			slow, over = fmt.Sprintf("phase %s took %s, usually %s", name, took.Round(time.Second), b.Phases[name].Round(time.Second)), more
		}
	}
	took, most := s.Boot(), b.slowest(b.History)
	slower := b.History > 0 && took > most
	evidence := fmt.Sprintf("Ready %s after the machine started; the pool's canaries take %s, at most %s is allowed",
		took.Round(time.Second), b.History.Round(time.Second), most.Round(time.Second))
	switch {
	case slower && len(report.Phases) == 0 && len(b.Phases) > 0 && !slices.Contains(b.Without, "report") && !s.late(b):
		return kamino.ProofWaits, evidence + "; its agent has not reported yet which phase of the boot was slow"
	case slower:
		return kamino.ProofFailed, evidence + kamino.InBrackets(slow)
	case slow != "":
		return kamino.ProofFailed, slow
	case b.History == 0:
		return kamino.ProofPassed, "each phase as usual"
	}
	return kamino.ProofPassed, fmt.Sprintf("%s, usually %s", took.Round(time.Second), b.History.Round(time.Second))
}

func judgeStable(s Observation, _ Bounds) (kamino.Outcome, string) {
	switch {
	case s.Ready.IsZero():
		return kamino.ProofPassed, "not Ready yet"
	case !s.Node.Ready && s.dark():
		return kamino.ProofInconclusive, "the canary does not report, and either no other kubelet does, or most nodes of its zone are not Ready, or the cloud does not say that the machine runs"
	case s.Node.UID == "":
		return kamino.ProofInconclusive, "its node was Ready, and somebody deleted its object" // a kubelet does not do that
	case !s.Node.Ready:
		return s.unlessShaken(s.Now, fmt.Sprintf("its node was Ready and no longer is%s", kamino.InBrackets(s.Node.NotReady))+s.lastLines())
	case s.Node.ReadySince.After(s.ReadyAs.Add(kamino.LookAge)):
		return s.unlessShaken(s.Node.ReadySince, fmt.Sprintf("its node became Ready a second time, at %s",
			s.Node.ReadySince.Format(time.TimeOnly)))
	case s.Starts > 1:
		return kamino.ProofFailed, fmt.Sprintf("its kubelet has started %d times", s.Starts)
	}
	return kamino.ProofPassed, "Ready for " + s.Now.Sub(s.Ready).Round(time.Second).String()
}

// shakenWithin is how far apart nodes become Ready again after an outage
// (https://kubernetes.io/docs/concepts/architecture/nodes/#node-heartbeats).
const shakenWithin = 2 * time.Minute

// unlessShaken is a failure, unless a node older than the canary became Ready again at about the
// same time, after the canary first was. Then both may have lost the control plane or the network.
func (s Observation) unlessShaken(at time.Time, evidence string) (kamino.Outcome, string) {
	for _, n := range append(slices.Clone(s.Others), s.Sibling.Node) {
		if n.Created.Before(s.Launched) && n.ReadySince.After(s.ReadyAs) && at.Sub(n.ReadySince).Abs() < shakenWithin {
			return kamino.ProofInconclusive, fmt.Sprintf("%s, and node %s at %s, too: the control plane may have been away", evidence,
				n.Name, n.ReadySince.Format(time.TimeOnly))
		}
	}
	return kamino.ProofFailed, evidence
}

// perNode reports whether a label differs from node to node, or is set by another program than the
// kubelet.
func perNode(key string) bool {
	domain, _, _ := strings.Cut(key, "/")
	return key == "kubernetes.io/hostname" || strings.HasSuffix(key, "kubernetes.io/instance-type") || domain == "topology.kubernetes.io" ||
		strings.HasPrefix(domain, "topology.") ||
		domain == "failure-domain.beta.kubernetes.io" || strings.HasSuffix(domain, "kamino.dev") ||
		strings.HasSuffix(domain, kamino.RestrictedDomain)
}

// taintsOfKubernetes is the prefix of the taints that Kubernetes derives from cordons and
// conditions, which other checks cover
// (https://kubernetes.io/docs/concepts/scheduling-eviction/taint-and-toleration/, by condition).
const taintsOfKubernetes = "node.kubernetes.io/"

func judgeLabels(s Observation, b Bounds) (kamino.Outcome, string) {
	if !s.There() || s.Sibling.UID == "" {
		return kamino.ProofPassed, "nothing to compare with"
	}
	for _, key := range slices.Sorted(maps.Keys(s.Sibling.Own)) {
		want := s.Sibling.Own[key]
		if got, ok := s.Node.Labels[key]; !perNode(key) && (!ok || got != want) && !(s.Node.Places(got) && s.Sibling.Places(want)) {
			return s.byAndBy(b, s.ofLabel(key, want), fmt.Sprintf("label %s is %q, on node %s it is %q", key, got, s.Sibling.Name, want))
		}
	}
	for _, t := range s.Node.Taints {
		passing := t.Effect == "PreferNoSchedule" || t.Key == kamino.TaintBlock || t.Key == kamino.TaintCanary ||
			strings.HasPrefix(t.Key, taintsOfKubernetes)
		if !passing && !s.Sibling.Tainted(t.Key) {
			return s.byAndBy(b, s.ofTaint(), fmt.Sprintf("taint %s is on it, and not on node %s", t.Key, s.Sibling.Name))
		}
	}
	return kamino.ProofPassed, "as on node " + s.Sibling.Name
}

// ofLabel is the outcome of a label that differs from the sibling's. A node may write its own
// labels, and nodes of one pool may differ. The image is to blame if all nodes of the pool have the
// other value, and these are the donor or more than one node.
func (s Observation) ofLabel(key, want string) kamino.Outcome {
	differs := func(n kamino.Node) bool { return n.Labels[key] != want }
	if slices.ContainsFunc(s.Peers, differs) || s.Sibling.Name != s.Donor && len(s.Peers) < 2 {
		return kamino.ProofInconclusive
	}
	return kamino.ProofFailed
}

func judgeCapacity(s Observation, b Bounds) (kamino.Outcome, string) {
	n, o := s.Node, s.Sibling
	if !s.There() || o.UID == "" {
		return kamino.ProofPassed, "nothing to compare with"
	}
	for _, c := range []struct {
		what      string
		have, was int64
	}{{"millicores of CPU", n.CPU, o.CPU}, {"bytes of memory", n.Memory, o.Memory}, {"pods", n.MaxPods, o.MaxPods}} {
		if !near(c.have, c.was) && n.Labels[labelSize] == o.Labels[labelSize] {
			out := kamino.ProofFailed
			if o.Name != s.Donor || !s.sized() {
				out = kamino.ProofInconclusive // what other nodes write about themselves, or another size, is no evidence against the image
			}
			return s.byAndBy(b, out, fmt.Sprintf("capacity is %d %s, on node %s it is %d", c.have, c.what, o.Name, c.was))
		}
	}
	if o.Name != s.Donor {
		return kamino.ProofPassed, "as on node " + o.Name
	}
	for _, what := range slices.Sorted(maps.Keys(o.Versions)) {
		if have, was := n.Versions[what], o.Versions[what]; have != was {
			return s.byAndBy(b, kamino.ProofFailed, fmt.Sprintf("%s %s, on the donor %s", what, have, was))
		}
	}
	return kamino.ProofPassed, "as on the donor"
}

func judgePressure(s Observation, b Bounds) (kamino.Outcome, string) {
	if !s.There() {
		return kamino.ProofPassed, "not Ready yet"
	}
	for _, k := range s.Node.Conditions {
		signal := func(r kamino.Signal) bool { return r.Condition == k.Type }
		same := func(o kamino.Condition) bool { return o.Type == k.Type && o.Status == k.Status }
		if k.Status != "True" || slices.ContainsFunc(s.Reboots, signal) || slices.ContainsFunc(s.Sibling.Conditions, same) {
			continue
		}
		if k.Type == "NetworkUnavailable" { // a controller sets it when it gives the node its route
			return s.byAndBy(b, kamino.ProofInconclusive, fmt.Sprintf("no controller has given it a route%s", kamino.InBrackets(k.Reason)))
		}
		// A kubelet keeps a pressure that has ended for five minutes
		// (--eviction-pressure-transition-period).
		return s.byAndBy(b, kamino.ProofFailed, fmt.Sprintf("condition %s is True%s", k.Type, kamino.InBrackets(k.Reason)))
	}
	return kamino.ProofPassed, "none"
}

// clockLimit is how far two clocks may differ, including the ten seconds between two renewals of a
// kubelet's lease.
const clockLimit = time.Minute

func judgeClock(s Observation, _ Bounds) (kamino.Outcome, string) {
	if !s.There() || s.Node.Pulse.IsZero() || s.Renewed.IsZero() {
		return kamino.ProofPassed, "nothing to compare with"
	}
	// Of two clocks that differ, either may be wrong. So the canary's must differ from a sibling's
	// as well, if there is one.
	off, beside := s.Node.Pulse.Sub(s.Renewed), s.Renewed
	if !s.Sibling.Pulse.IsZero() {
		beside = s.Sibling.Pulse
	}
	switch {
	case off > clockLimit && s.Node.Pulse.Sub(beside) > clockLimit:
		return kamino.ProofFailed, fmt.Sprintf("it is %s ahead of those of other nodes", off.Round(time.Second))
	case off < -clockLimit && s.Node.Pulse.Sub(beside) < -clockLimit && s.Node.Ready && s.Now.Sub(s.Ready) > clockLimit:
		return kamino.ProofFailed, fmt.Sprintf("it is %s behind those of other nodes", -off.Round(time.Second))
	}
	return kamino.ProofPassed, "in sync"
}

func judgeImages(s Observation, b Bounds) (kamino.Outcome, string) {
	if s.Unsealed {
		return kamino.ProofNotApplicable, "the version has no donor whose images could be cached"
	}
	if !s.There() || s.Sibling.UID == "" || s.Sibling.Name != s.Donor || len(s.Sibling.Images) == 0 {
		return kamino.ProofPassed, "nothing to compare with"
	}
	have := 0
	for _, image := range s.Sibling.Images {
		if slices.Contains(s.Node.Images, image) {
			have++
		}
	}
	evidence := fmt.Sprintf("%d of the %d images of the donor are cached", have, len(s.Sibling.Images))
	if 2*have < len(s.Sibling.Images) {
		// A kubelet lists its images every 30 s, on a slow machine after minutes
		// (pkg/kubelet/images/image_gc_manager.go, read in v1.36).
		return s.byAndBy(b, kamino.ProofFailed, evidence)
	}
	return kamino.ProofPassed, evidence
}

func judgeDaemons(s Observation, b Bounds) (kamino.Outcome, string) {
	if !s.There() {
		return kamino.ProofPassed, "not Ready yet"
	}
	for _, d := range s.Daemons {
		if d.Ready {
			continue
		}
		over := kamino.ProofInconclusive
		// otherwise the pod may not start: the run could not admit it, or the node is too small
		if d.Beside && !d.Owed && !s.Node.Tainted(kamino.TaintCanary) && (s.sized() || !d.Unplaced) {
			over = kamino.ProofFailed
		}
		return s.byAndBy(b, over, fmt.Sprintf("DaemonSet %s has no Ready pod there%s", d.Set, kamino.InBrackets(d.Reason)))
	}
	return kamino.ProofPassed, fmt.Sprintf("%d, each with a Ready pod", len(s.Daemons))
}

func judgeReport(s Observation, b Bounds) (kamino.Outcome, string) {
	if !s.There() {
		return kamino.ProofPassed, "not Ready yet"
	}
	r, ok := s.Node.Report(s.Nonce)
	if !ok {
		return s.byAndBy(b, kamino.ProofInconclusive, "its agent has not reported")
	}
	// its first boot may install packages
	if was := s.Sealed[kamino.TagPackages]; was != "" && r.PackageDigest != "" && r.PackageDigest != was {
		return s.byAndBy(b, kamino.ProofInconclusive, "the packages on its disk are not those that were sealed")
	}
	return kamino.ProofPassed, "of " + r.At.Format(time.TimeOnly)
}

func judgeUnits(s Observation, b Bounds) (kamino.Outcome, string) {
	r, ok := s.Node.Report(s.Nonce)
	if !ok {
		return kamino.ProofPassed, "not reported"
	}
	if len(r.FailedUnits) > 0 {
		return kamino.ProofFailed, "failed: " + kamino.SomeOf(r.FailedUnits)
	}
	again := s.again()
	for _, unit := range slices.Sorted(maps.Keys(again)) {
		if n, most := again[unit], b.restarts(unit, s.Now.Sub(s.Ready).Seconds()); n > most {
			return kamino.ProofFailed, fmt.Sprintf("systemd started %s again since the node was Ready: %d, limit %d", unit, n, most)
		}
	}
	return kamino.ProofPassed, "none failed"
}

func judgeReboot(s Observation, _ Bounds) (kamino.Outcome, string) {
	if !s.There() {
		return kamino.ProofPassed, "not Ready yet"
	}
	if r, ok := s.Node.Report(s.Nonce); ok && r.RebootPending != "" {
		return kamino.ProofFailed, "a reboot is pending: " + r.RebootPending
	}
	for _, signal := range s.Reboots {
		if v, ok := signal.On(s.Node.Node); ok {
			return kamino.ProofFailed, fmt.Sprintf("%s=%s", signal, v)
		}
	}
	return kamino.ProofPassed, "none"
}
