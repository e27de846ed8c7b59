package kamino

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// check is a row of the table: what is looked at, the limit in words, and how it is judged.
type check struct {
	name, limit string
	judge       func(Sight, Bounds) (Outcome, string)
}

// checks is the table, a row for each of [Checks]. A failure of any row is one of the whole; the first is named first.
var checks = []check{
	{"cloud", "the machine is made and runs", judgeCloud},
	{"identity", "machine, host name, machine ID, SSH host keys and provider ID are its own", judgeIdentity},
	{"apart", "its node registered with the taint of canaries, and out of load balancers", judgeApart},
	{"certificate", "its certificates are approved as those of other nodes", judgeCertificate},
	{"ready", "its node is Ready within the boot budget", judgeReady},
	{"boot", "it and each phase of it not slower than twice the median of earlier canaries and a quarter of the budget", judgeBoot},
	{"stable", "Ready, with one start of the kubelet, for the whole time", judgeStable},
	{"labels", "those that the kubelet of a sibling sets, and a sibling's taints", judgeLabels},
	{"capacity", "that of a sibling, and the donor's versions", judgeCapacity},
	{"pressure", "no condition but Ready is True that is not on a sibling", judgePressure},
	{"clock", "within a minute of those of other nodes", judgeClock},
	{"images", "half of the images that the donor has cached", judgeImages},
	{"daemonsets", "a Ready pod of each that selects the node", judgeDaemons},
	{"report", "its agent reports, with the run's nonce and the packages of the sealed disk", judgeReport},
	{"units", "no failed unit, and none that is started again more often than on earlier canaries", judgeUnits},
	{"reboot", "none is pending", judgeReboot},
	{"probe", "the operator's probe succeeds", judgeProbe},
}

// Judge goes through the table. It is a pure function: the same sight has the same verdict. The
// first finding is the reason for it.
func Judge(s Sight, b Bounds) (Outcome, []Finding) {
	if out, why := s.leaving(); out != "" && !slices.Contains(b.Without, "cloud") {
		return out, []Finding{{"cloud", out, why}}
	}
	found := map[Outcome][]Finding{}
	for _, c := range checks {
		if slices.Contains(b.Without, c.name) {
			continue
		}
		out, evidence := c.judge(s, b)
		found[out] = append(found[out], Finding{c.name, out, evidence})
	}
	for _, out := range []Outcome{ProofFailed, ProofInconclusive, ProofWaits} {
		if len(found[out]) > 0 {
			return out, found[out]
		}
	}
	if left := s.Ready.Add(b.Bake).Sub(s.Now); left > 0 {
		left = min((left + 30*time.Second - 1).Truncate(30*time.Second), b.Bake) // not a line for each second
		return ProofWaits, []Finding{{"stable", ProofWaits, fmt.Sprintf("the canary to stay healthy for another %s", left)}}
	}
	if s.Node.UID == "" { // whatever is left out: an image that showed no node has proved nothing
		out := ProofWaits
		if s.overdue(b) || s.Running.IsZero() && s.Now.Sub(s.Launched) > createLimit+b.Boot {
			out = ProofInconclusive
		}
		return out, []Finding{{"identity", out, "the canary's node to register"}}
	}
	return ProofPassed, slices.Concat(found[ProofPassed], []Finding{{"stable", ProofPassed, "examined"}}, found[ProofNotApplicable], s.uncompared(b))
}

// createLimit is how long a cloud may take to make a machine.
const createLimit = 20 * time.Minute

func judgeCloud(s Sight, _ Bounds) (Outcome, string) {
	c := s.Canary
	switch {
	case c.State == Failed && c.Blocked:
		return ProofInconclusive, "the cloud did not create it: " + c.Failure
	case c.State == Failed:
		return ProofFailed, "the cloud abandoned it: " + cmp.Or(c.Failure, "no reason given") + s.lastLines()
	case s.Running.IsZero() && s.Now.Sub(s.Launched) > createLimit:
		return ProofInconclusive, fmt.Sprintf("the cloud has not created it within %s", createLimit)
	case s.Running.IsZero():
		return ProofWaits, "the cloud to create the canary"
	}
	return ProofPassed, "runs as " + string(c.Instance)
}

func judgeIdentity(s Sight, b Bounds) (Outcome, string) {
	n := s.Node
	switch {
	case s.Stray != "" && !SameVM(n.SystemUUID, s.vm()) && !s.overdue(b): // a kubelet may write any machine into its own node
		return ProofWaits, "the canary's node, while node " + s.Stray + " shows its machine"
	case s.Stray != "" && !SameVM(n.SystemUUID, s.vm()) && s.heard():
		return ProofFailed, fmt.Sprintf("node %s shows the machine of the canary, which is %s", s.Stray, s.Canary.Hostname)
	case n.UID == "":
		return ProofPassed, "no node yet"
	case n.SystemUUID == "":
		return ProofPassed, "its node does not report yet on which machine it runs" // it is not Ready either
	case s.vm() != "" && !SameVM(n.SystemUUID, s.vm()):
		return s.unless(ProofFailed, b, fmt.Sprintf("node %s runs on machine %s, the canary is %s", n.Name, n.SystemUUID, s.vm()))
	case n.ProviderID == "" && s.there():
		return s.byAndBy(b, ProofInconclusive, "the node has no provider ID: no cloud controller manager has initialised it")
	case n.ProviderID != "" && !n.runsOn(s.Canary.Instance):
		return ProofFailed, fmt.Sprintf("node %s has the provider ID %s, the canary is %s", n.Name, n.ProviderID, s.Canary.Instance)
	}
	r, _ := n.Report(s.Nonce)
	if r.MachineID != "" && n.MachineID != "" && r.MachineID != n.MachineID {
		return s.byAndBy(b, ProofFailed, fmt.Sprintf("its kubelet reports machine ID %s, and its disk has %s", n.MachineID, r.MachineID))
	}
	for _, key := range strings.Fields(s.Sealed[TagSSHKeys]) {
		if slices.Contains(r.SSHKeys, key) {
			return ProofFailed, fmt.Sprintf("its SSH host key %s is one that node %s had", key, s.Sealed[TagBuiltFrom])
		}
	}
	out, evidence := ProofPassed, "its own"
	for _, o := range append(slices.Clone(s.Others), s.Sibling.Node) {
		switch same := o.UID != n.UID && o.MachineID != "" && o.MachineID == n.MachineID; {
		case same && s.Before[o.Name] == o.MachineID:
			return ProofFailed, fmt.Sprintf("machine ID %s is that of node %s, too", o.MachineID, o.Name)
		case same: // whose it was first was not seen: a kubelet may write any into its own node
			out, evidence = ProofInconclusive, fmt.Sprintf("node %s shows its machine ID %s, too, and may have taken it", o.Name, o.MachineID)
		}
	}
	return out, evidence
}

// judgeApart: ordinary pods on a node that nobody has examined, or traffic to it, are what a proof
// is there to avoid. Without the label alone nothing convicts the image: somebody may have taken it
// off.
func judgeApart(s Sight, _ Bounds) (Outcome, string) {
	_, out := s.Node.Labels[LabelCanary]
	switch {
	case s.Node.UID == "" || !SameVM(s.Node.SystemUUID, s.vm()):
		return ProofPassed, "no node yet"
	case s.Bare && s.Unsealed:
		return ProofInconclusive, fmt.Sprintf("node %s registered without the taint %s, as an image without Kamino's agent does", s.Node.Name, TaintCanary)
	case s.Bare:
		return ProofFailed, fmt.Sprintf("node %s registered without the taint %s", s.Node.Name, TaintCanary)
	case !out:
		return ProofInconclusive, fmt.Sprintf("node %s has no label %s: traffic may come to it", s.Node.Name, LabelCanary)
	}
	return ProofPassed, "tainted, and out of load balancers"
}

// requestTime is how long an approver is given.
const requestTime = 2 * time.Minute

func judgeCertificate(s Sight, b Bounds) (Outcome, string) {
	for _, r := range s.Requests {
		what := fmt.Sprintf("certificate signing request %s (%s)", r.Name, r.Signer)
		switch old := s.Now.Sub(r.Made) > requestTime; {
		case r.Foreign: // proves nothing against it, though it may be the node's own
		case r.Denied: // by an approver, which may know the pool's names only
			return s.byAndBy(b, ProofInconclusive, what+" was denied")
		case r.OthersApproved && old:
			return ProofFailed, what + " is pending, and another node's was approved meanwhile"
		case r.OthersApproved:
			return ProofWaits, what + " to be approved"
		case !s.there() && s.overdue(b):
			return ProofInconclusive, what + " is pending, and so are all others: the approver may be down"
		}
	}
	return ProofPassed, "none is pending"
}

func judgeReady(s Sight, b Bounds) (Outcome, string) {
	switch {
	case !s.Ready.IsZero():
		return ProofPassed, fmt.Sprintf("Ready %s after the machine started", s.boot().Round(time.Second))
	case s.Running.IsZero() || !s.overdue(b):
		return ProofWaits, "the canary's node to be Ready"
	case s.unheeded():
		return ProofInconclusive, "its certificate is not approved, and no other is"
	case s.Node.UID != "" && s.owed():
		return ProofInconclusive, fmt.Sprintf("node %s is not Ready within %s, and pods of DaemonSets wait there for images, or for what else others owe them%s", s.Node.Name, b.Boot, inBrackets(s.Node.NotReady))
	case s.dark():
		return ProofInconclusive, fmt.Sprintf("no node is Ready within %s, and either no other kubelet reports, or most nodes of its zone are not Ready, or the cloud does not say that the machine runs", b.Boot)
	case s.Node.UID == "":
		return ProofFailed, fmt.Sprintf("no node has registered within %s of the machine's start", b.Boot) + s.lastLines()
	}
	return ProofFailed, fmt.Sprintf("node %s is not Ready within %s of the machine's start%s", s.Node.Name, b.Boot, inBrackets(s.Node.NotReady)) + s.lastLines()
}

func judgeBoot(s Sight, b Bounds) (Outcome, string) {
	if !s.there() || b.History == 0 && len(b.Phases) == 0 {
		return ProofPassed, "no history to compare with"
	}
	slow, over := "", time.Duration(0) // of the phases the one that is most beyond its limit
	report, _ := s.Node.Report(s.Nonce)
	for _, name := range slices.Sorted(maps.Keys(b.Phases)) {
		took := time.Duration(report.Phases[name] * float64(time.Second))
		if more := took - b.slowest(b.Phases[name]); more > over {
			slow, over = fmt.Sprintf("phase %s took %s, usually %s", name, took.Round(time.Second), b.Phases[name].Round(time.Second)), more
		}
	}
	took, most := s.boot(), b.slowest(b.History)
	slower := b.History > 0 && took > most
	evidence := fmt.Sprintf("Ready %s after the machine started; the pool's canaries take %s, at most %s is allowed", took.Round(time.Second), b.History.Round(time.Second), most.Round(time.Second))
	switch {
	case slower && len(report.Phases) == 0 && len(b.Phases) > 0 && !slices.Contains(b.Without, "report") && !s.late(b):
		return ProofWaits, evidence + "; its agent has not reported yet which phase of the boot was slow"
	case slower:
		return ProofFailed, evidence + inBrackets(slow)
	case slow != "":
		return ProofFailed, slow
	case b.History == 0:
		return ProofPassed, "each phase as usual"
	}
	return ProofPassed, fmt.Sprintf("%s, usually %s", took.Round(time.Second), b.History.Round(time.Second))
}

func judgeStable(s Sight, _ Bounds) (Outcome, string) {
	switch {
	case s.Ready.IsZero():
		return ProofPassed, "not Ready yet"
	case !s.Node.Ready && s.dark():
		return ProofInconclusive, "the canary does not report, and either no other kubelet does, or most nodes of its zone are not Ready, or the cloud does not say that the machine runs"
	case s.Node.UID == "":
		return ProofInconclusive, "its node was Ready, and somebody deleted its object" // no kubelet does
	case !s.Node.Ready:
		return s.unlessShaken(s.Now, fmt.Sprintf("its node was Ready and no longer is%s", inBrackets(s.Node.NotReady))+s.lastLines())
	case s.Node.ReadySince.After(s.ReadyAs.Add(lookAge)):
		return s.unlessShaken(s.Node.ReadySince, fmt.Sprintf("its node became Ready a second time, at %s", s.Node.ReadySince.Format(time.TimeOnly)))
	case s.Starts > 1:
		return ProofFailed, fmt.Sprintf("its kubelet has started %d times", s.Starts)
	}
	return ProofPassed, "Ready for " + s.Now.Sub(s.Ready).Round(time.Second).String()
}

// shakenWithin is how far apart nodes become Ready again after an outage, each at its own pace
// (https://kubernetes.io/docs/concepts/architecture/nodes/#node-heartbeats).
const shakenWithin = 2 * time.Minute

// unlessShaken is a failure, but where a node that is older than the canary became Ready at about
// the same time, after the canary first was: both may have lost the control plane or the network.
func (s Sight) unlessShaken(at time.Time, evidence string) (Outcome, string) {
	for _, n := range append(slices.Clone(s.Others), s.Sibling.Node) {
		if n.Created.Before(s.Launched) && n.ReadySince.After(s.ReadyAs) && at.Sub(n.ReadySince).Abs() < shakenWithin {
			return ProofInconclusive, fmt.Sprintf("%s, and node %s at %s, too: the control plane may have been away", evidence, n.Name, n.ReadySince.Format(time.TimeOnly))
		}
	}
	return ProofFailed, evidence
}

// perNode are labels that differ from node to node, or that are set by others than the kubelet's
// own configuration.
func perNode(key string) bool {
	domain, _, _ := strings.Cut(key, "/")
	return key == "kubernetes.io/hostname" || strings.HasSuffix(key, "kubernetes.io/instance-type") || domain == "topology.kubernetes.io" || strings.HasPrefix(domain, "topology.") ||
		domain == "failure-domain.beta.kubernetes.io" || strings.HasSuffix(domain, "kamino.dev") || strings.HasSuffix(domain, restrictedDomain)
}

// taintsOfKubernetes begin what it makes itself of a cordon and of conditions, which other checks
// look at
// (https://kubernetes.io/docs/concepts/scheduling-eviction/taint-and-toleration/, by condition).
const taintsOfKubernetes = "node.kubernetes.io/"

func judgeLabels(s Sight, b Bounds) (Outcome, string) {
	if !s.there() || s.Sibling.UID == "" {
		return ProofPassed, "nothing to compare with"
	}
	for _, key := range slices.Sorted(maps.Keys(s.Sibling.Own)) {
		want := s.Sibling.Own[key]
		if got, ok := s.Node.Labels[key]; !perNode(key) && (!ok || got != want) && !(s.Node.places(got) && s.Sibling.places(want)) {
			return s.byAndBy(b, s.ofLabel(key, want), fmt.Sprintf("label %s is %q, on node %s it is %q", key, got, s.Sibling.Name, want))
		}
	}
	for _, t := range s.Node.Taints {
		passing := t.Effect == "PreferNoSchedule" || t.Key == TaintBlock || t.Key == TaintCanary || strings.HasPrefix(t.Key, taintsOfKubernetes)
		if !passing && !s.Sibling.Tainted(t.Key) {
			return s.byAndBy(b, s.ofTaint(), fmt.Sprintf("taint %s is on it, and not on node %s", t.Key, s.Sibling.Name))
		}
	}
	return ProofPassed, "as on node " + s.Sibling.Name
}

// ofLabel is what a label says that the canary has otherwise than its sibling. A node may write its
// own labels, and the nodes of one pool may differ: it is the image's fault where all nodes of the
// pool have it so, and more than one of them or the donor does.
func (s Sight) ofLabel(key, want string) Outcome {
	differs := func(n Node) bool { return n.Labels[key] != want }
	if slices.ContainsFunc(s.Peers, differs) || s.Sibling.Name != s.Donor && len(s.Peers) < 2 {
		return ProofInconclusive
	}
	return ProofFailed
}

func judgeCapacity(s Sight, b Bounds) (Outcome, string) {
	n, o := s.Node, s.Sibling
	if !s.there() || o.UID == "" {
		return ProofPassed, "nothing to compare with"
	}
	for _, c := range []struct {
		what      string
		have, was int64
	}{{"millicores of CPU", n.CPU, o.CPU}, {"bytes of memory", n.Memory, o.Memory}, {"pods", n.MaxPods, o.MaxPods}} {
		if !near(c.have, c.was) && n.Labels[labelSize] == o.Labels[labelSize] {
			out := ProofFailed
			if o.Name != s.Donor || !s.sized() {
				out = ProofInconclusive // what any other node writes of itself convicts nobody, nor does another size
			}
			return s.byAndBy(b, out, fmt.Sprintf("capacity is %d %s, on node %s it is %d", c.have, c.what, o.Name, c.was))
		}
	}
	if o.Name != s.Donor {
		return ProofPassed, "as on node " + o.Name
	}
	for _, what := range slices.Sorted(maps.Keys(o.Versions)) {
		if have, was := n.Versions[what], o.Versions[what]; have != was {
			return s.byAndBy(b, ProofFailed, fmt.Sprintf("%s %s, on the donor %s", what, have, was))
		}
	}
	return ProofPassed, "as on the donor"
}

func judgePressure(s Sight, b Bounds) (Outcome, string) {
	if !s.there() {
		return ProofPassed, "not Ready yet"
	}
	for _, k := range s.Node.Conditions {
		signal := func(r Signal) bool { return r.Condition == k.Type }
		same := func(o Condition) bool { return o.Type == k.Type && o.Status == k.Status }
		if k.Status != "True" || slices.ContainsFunc(s.Reboots, signal) || slices.ContainsFunc(s.Sibling.Conditions, same) {
			continue
		}
		if k.Type == "NetworkUnavailable" { // a controller's word: it gives the node its route
			return s.byAndBy(b, ProofInconclusive, fmt.Sprintf("no controller has given it a route%s", inBrackets(k.Reason)))
		}
		// A kubelet keeps a pressure that is over for five minutes (--eviction-pressure-transition-period).
		return s.byAndBy(b, ProofFailed, fmt.Sprintf("condition %s is True%s", k.Type, inBrackets(k.Reason)))
	}
	return ProofPassed, "none"
}

// clockLimit is how far a clock may be from another's, with the ten seconds between two renewals
// of a kubelet's lease in it.
const clockLimit = time.Minute

func judgeClock(s Sight, _ Bounds) (Outcome, string) {
	if !s.there() || s.Node.Pulse.IsZero() || s.Renewed.IsZero() {
		return ProofPassed, "nothing to compare with"
	}
	// Of two clocks that differ nobody knows which is wrong: it must be out of step with a
	// sibling's, too, where that is heard of.
	off, beside := s.Node.Pulse.Sub(s.Renewed), s.Renewed
	if !s.Sibling.Pulse.IsZero() {
		beside = s.Sibling.Pulse
	}
	switch {
	case off > clockLimit && s.Node.Pulse.Sub(beside) > clockLimit:
		return ProofFailed, fmt.Sprintf("it is %s ahead of those of other nodes", off.Round(time.Second))
	case off < -clockLimit && s.Node.Pulse.Sub(beside) < -clockLimit && s.Node.Ready && s.Now.Sub(s.Ready) > clockLimit:
		return ProofFailed, fmt.Sprintf("it is %s behind those of other nodes", -off.Round(time.Second))
	}
	return ProofPassed, "in sync"
}

func judgeImages(s Sight, b Bounds) (Outcome, string) {
	if s.Unsealed {
		return ProofNotApplicable, "the version has no donor whose images could be cached"
	}
	if !s.there() || s.Sibling.UID == "" || s.Sibling.Name != s.Donor || len(s.Sibling.Images) == 0 {
		return ProofPassed, "nothing to compare with"
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
		return s.byAndBy(b, ProofFailed, evidence)
	}
	return ProofPassed, evidence
}

func judgeDaemons(s Sight, b Bounds) (Outcome, string) {
	if !s.there() {
		return ProofPassed, "not Ready yet"
	}
	for _, d := range s.Daemons {
		if d.Ready {
			continue
		}
		over := ProofInconclusive
		if d.Beside && !d.Owed && !s.Node.Tainted(TaintCanary) && (s.sized() || !d.Unplaced) { // else it may not land: the run could not admit it, or the node is too small
			over = ProofFailed
		}
		return s.byAndBy(b, over, fmt.Sprintf("DaemonSet %s has no Ready pod there%s", d.Set, inBrackets(d.Reason)))
	}
	return ProofPassed, fmt.Sprintf("%d, each with a Ready pod", len(s.Daemons))
}

func judgeReport(s Sight, b Bounds) (Outcome, string) {
	if !s.there() {
		return ProofPassed, "not Ready yet"
	}
	r, ok := s.Node.Report(s.Nonce)
	if !ok {
		return s.byAndBy(b, ProofInconclusive, "its agent has not reported")
	}
	if was := s.Sealed[TagPackages]; was != "" && r.PackageDigest != "" && r.PackageDigest != was { // perhaps its first boot installs some
		return s.byAndBy(b, ProofInconclusive, "the packages on its disk are not those that were sealed")
	}
	return ProofPassed, "of " + r.At.Format(time.TimeOnly)
}

func judgeUnits(s Sight, b Bounds) (Outcome, string) {
	r, ok := s.Node.Report(s.Nonce)
	if !ok {
		return ProofPassed, "not reported"
	}
	if len(r.FailedUnits) > 0 {
		return ProofFailed, "failed: " + someOf(r.FailedUnits)
	}
	again := s.again()
	for _, unit := range slices.Sorted(maps.Keys(again)) {
		if n, most := again[unit], b.restarts(unit, s.Now.Sub(s.Ready).Seconds()); n > most {
			return ProofFailed, fmt.Sprintf("systemd started %s again since the node was Ready: %d, limit %d", unit, n, most)
		}
	}
	return ProofPassed, "none failed"
}

func judgeReboot(s Sight, _ Bounds) (Outcome, string) {
	if !s.there() {
		return ProofPassed, "not Ready yet"
	}
	if r, ok := s.Node.Report(s.Nonce); ok && r.RebootPending != "" {
		return ProofFailed, "a reboot is pending: " + r.RebootPending
	}
	for _, signal := range s.Reboots {
		if v, ok := signal.on(s.Node.Node); ok {
			return ProofFailed, fmt.Sprintf("%s=%s", signal, v)
		}
	}
	return ProofPassed, "none"
}
