package proof

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"kamino.dev/kamino"
)

// again counts by unit how often systemd restarted a service (NRestarts) since the first report
// after the node was Ready.
func (s Observation) again() map[string]int {
	counts := map[string]int{}
	r, _ := s.Node.Report(s.Nonce)
	for unit, n := range r.Restarts {
		if n -= s.Restarts[unit]; s.Restarts != nil && n > 0 {
			counts[unit] = n
		}
	}
	return counts
}

// Baked returns the observation of the canary so far; false if its agent reports nothing, or too
// many services.
func (s Observation) Baked() (kamino.Baked, bool) {
	b := kamino.Baked{Seconds: s.Now.Sub(s.Ready).Seconds(), Restarts: s.again()}
	return b, s.There() && s.Restarts != nil && len(b.Restarts) <= kamino.MaxBaked
}

// restarts is how often systemd may restart a service on a canary that has been Ready for this many
// seconds: twice as often as on any good canary. It is zero if three of those were watched for as
// long and the service never restarted; otherwise one, because some services end once after their
// first work.
func (b Bounds) restarts(unit string, seconds float64) int {
	usual, known := 0, 0
	for _, good := range b.Baked {
		usual = max(usual, good.Restarts[unit])
		if good.Seconds >= 0.9*seconds {
			known++
		}
	}
	if usual == 0 && known < 3 {
		return 1
	}
	return 2 * usual
}

func judgeProbe(s Observation, b Bounds) (kamino.Outcome, string) {
	p := s.Probe
	switch {
	case !p.Wanted || !s.There():
		return kamino.ProofPassed, "none wanted"
	case p.Failed:
		return kamino.ProofFailed, "it failed" + kamino.InBrackets(p.Reason)
	case p.Done:
		return kamino.ProofPassed, "it succeeded"
	case !p.Started:
		return s.byAndBy(b, kamino.ProofInconclusive, "it was not started")
	case p.Owed:
		return s.byAndBy(b, kamino.ProofInconclusive, "it waits for something that does not exist"+kamino.InBrackets(p.Reason))
	}
	return s.byAndBy(b, kamino.ProofFailed, "it has not ended"+kamino.InBrackets(p.Reason))
}

// uncompared returns the parts of checks that have nothing to compare with, because the version has
// no seal receipt.
func (s Observation) uncompared(b Bounds) (left []kamino.Finding) {
	if !s.Unsealed {
		return nil
	}
	for _, f := range []kamino.Finding{
		{Check: "identity", Outcome: kamino.ProofNotApplicable,
			Evidence: "the SSH host keys of the machine that the version was made of are unknown, so the canary's cannot be compared"},
		{Check: "capacity", Outcome: kamino.ProofNotApplicable, Evidence: "the version has no donor to compare it with"},
		{Check: "report", Outcome: kamino.ProofNotApplicable, Evidence: "no receipt lists the packages on the version's disk"},
	} {
		if !slices.Contains(b.Without, f.Check) {
			left = append(left, f)
		}
	}
	return left
}

// dark reports whether the canary's silence is no evidence against its image.
func (s Observation) dark() bool {
	return !s.heard() || kamino.CutOff(s.Canary.Zone, s.Others, s.Launched)
}

// Observation is everything that was read of a canary at about the same time.
type Observation struct {
	Now      time.Time
	Launched time.Time // when this process requested the canary, as far as it knows
	Running  time.Time // when the cloud first reported that the machine runs; zero: not yet
	// Exact: the machine was seen not to run shortly before Running, so its start is known.
	Exact bool
	Ready time.Time // since when its node was seen Ready, or when it first was; zero: never
	// ReadyAs is the time of the condition Ready when the node first was Ready, by the node's
	// clock. It is used only to measure the boot.
	ReadyAs time.Time
	Canary  kamino.Canary // as the cloud last reported it; Name "" before that
	Gone    time.Time     // since when the cloud does not list it; zero: it is listed
	Stray   string        // a node of another name that shows the canary's machine, or did: two kubelets write it in turn
	// Bare: when the node was first seen, it had neither the canary taint nor a cordon.
	Bare   bool
	Others []kamino.Node // the other nodes of the cluster
	Peers  []kamino.Node // those of Others that are Ready, in the pool and not cordoned
	// Before are the machine IDs of nodes by name, read before the canary's node existed.
	Before   map[string]string
	Console  []string          // last lines of its console, if readable
	Nonce    string            // the report of its agent must repeat it
	Donor    string            // the node that the image was made of in this run; "" if the node may have changed since
	Sealed   map[string]string // tags of the version, some of which describe the sealed disk
	Unsealed bool              // the version has no receipt, whoever made it
	// Restarts are those in its first report after it was Ready.
	Restarts map[string]int
	Reboots  []kamino.Signal // places that announce a pending reboot
	kamino.ClusterObservation

	shown string // the VM that the node with the canary's provider ID showed first
}

// VM returns the canary's VM; "" while neither the cloud nor its node shows it.
func (s Observation) VM() string { return cmp.Or(s.Canary.VMID, s.shown) }

// Boot returns how long the boot took, from the machine's start to its Ready node: by the node's
// clock where possible, else by when Ready was seen.
func (s Observation) Boot() time.Duration {
	if s.ReadyAs.After(s.Running) && s.ReadyAs.Before(s.Ready) {
		return s.ReadyAs.Sub(s.Running)
	}
	return max(s.Ready.Sub(s.Running), 0)
}

// There reports whether the canary's node can be judged: it is Ready, or was.
func (s Observation) There() bool { return !s.Ready.IsZero() && s.Node.UID != "" }

// settled is when a Ready node must have everything it needs, counted from Ready.
func (b Bounds) settled() time.Duration { return max(b.Boot, b.Bake) }

// slowest is the limit of something that usually takes this long.
func (b Bounds) slowest(usual time.Duration) time.Duration {
	return 2*usual + max(time.Minute, b.Boot/4)
}

// late reports whether the time has passed within which a Ready node must have everything it needs.
func (s Observation) late(b Bounds) bool { return s.Now.Sub(s.Ready) > b.settled() }

// byAndBy is a waiting outcome until a Ready node must have everything it needs, then the outcome
// over.
func (s Observation) byAndBy(b Bounds, over kamino.Outcome, evidence string) (kamino.Outcome, string) {
	if s.late(b) {
		return over, evidence
	}
	return kamino.ProofWaits, fmt.Sprintf("%s (the verdict is %s if that lasts until %s after Ready)", evidence, over, b.settled())
}

// heard reports whether the canary's silence is evidence against it: the cloud reports that it
// runs, and the kubelets of other nodes reach the API server. The end of its provisioning does not
// count: Azure reports Creating for 40 minutes if no guest reports (docs/azure.md).
func (s Observation) heard() bool {
	return s.Gone.IsZero() && s.Canary.State != kamino.Failed && s.Canary.Power == kamino.PowerOn && !s.Renewed.IsZero()
}

// leaving reports that the canary's machine is off, or is being removed by anybody. What it shows
// from then on is no evidence against its image. Outcome "": it is not leaving.
func (s Observation) leaving() (kamino.Outcome, string) {
	c := s.Canary
	switch {
	case !s.Gone.IsZero() && s.Now.Sub(s.Gone) < kamino.GoneAfter:
		return kamino.ProofWaits, "the canary (not listed; confirming that it was deleted)"
	case !s.Gone.IsZero():
		return kamino.ProofInconclusive, "the canary is gone from the cloud: somebody deleted it"
	case c.State == kamino.Deleting:
		return kamino.ProofInconclusive, "somebody is deleting the canary"
	case !s.Running.IsZero() && c.State != kamino.Failed && c.Instance == "":
		return kamino.ProofInconclusive, "the cloud shows no machine of the canary any more"
	case c.Power == kamino.PowerOff:
		return kamino.ProofInconclusive, "the canary is off, and Kamino did not switch it off" + s.lastLines()
	case s.Node.Deleting:
		return kamino.ProofInconclusive, "somebody is deleting its node " + s.Node.Name
	case s.Node.Tainted(kamino.TaintDeleting):
		return kamino.ProofInconclusive, "cluster-autoscaler is deleting its node " + s.Node.Name
	}
	return "", ""
}

// Unheeded reports whether the canary's certificate request was denied, or whether nobody approves
// requests of any node.
func (s Observation) Unheeded() bool {
	return slices.ContainsFunc(s.Requests, func(r kamino.CertificateRequest) bool { return !r.OthersApproved || r.Denied })
}

// Owed reports whether a node that is not Ready has a DaemonSet's pod that waits for an object or
// for an image, which may be that of the network plugin. Then its kubelet and its runtime work.
func (s Observation) Owed() bool {
	return slices.ContainsFunc(s.Daemons, func(d kamino.DaemonPod) bool { return d.Asked && !d.Ready })
}

// lastLines returns the end of the console, if readable.
func (s Observation) lastLines() string {
	if n := len(s.Console); n > 0 {
		return "; its console ends with: " + strings.Join(s.Console[max(0, n-3):], " | ")
	}
	return ""
}

// unless returns the outcome, but waits (until the boot is overdue) while the node is older than
// the request for the canary: such a node is a leftover and will be removed.
func (s Observation) unless(out kamino.Outcome, b Bounds, evidence string) (kamino.Outcome, string) {
	if s.Node.Created.Before(s.Launched) && !s.overdue(b) {
		return kamino.ProofWaits, evidence
	}
	return out, evidence
}

// overdue reports whether the canary has run for longer than its boot may take.
func (s Observation) overdue(b Bounds) bool {
	return !s.Running.IsZero() && s.Now.Sub(s.Running) > b.Boot
}

// Between two complete observations only the canary's node is read: the cloud allows few reads of a
// scale set a minute, and a proof takes many minutes.
const (
	WholeObservation = 2 * time.Minute
	CloudObservation = time.Minute
)

// SawNode records the canary's node as it was just read, and since when it is Ready.
func (s *Observation) SawNode(n kamino.Node) {
	if s.Node.UID != n.UID && kamino.SameVM(n.SystemUUID, s.VM()) {
		s.Bare = !n.Unschedulable && !n.Tainted(kamino.TaintCanary)
	}
	if s.Node.Node = n; n.Ready {
		s.Node.NotReady = ""
	}
	if s.shown == "" && s.Canary.Instance != "" && n.RunsOn(s.Canary.Instance) {
		s.shown = n.SystemUUID
	}
	if s.Ready.IsZero() && n.Ready && kamino.SameVM(n.SystemUUID, s.VM()) {
		s.Ready, s.ReadyAs = s.Now, n.ReadySince
	}
}

// Runs records when the machine was first seen to run, and whether the previous look, which saw it
// not running, was shortly before.
func (s *Observation) Runs(before, now time.Time) {
	if s.Running.IsZero() && s.Canary.Power == kamino.PowerOn && s.Canary.Instance != "" {
		s.Running, s.Exact = now, !before.IsZero() && now.Sub(before) <= exactWithin
	}
}

// exactWithin is how exactly a boot must be measured to count in the pool's history.
const exactWithin = 30 * time.Second

// labelSize is the label with the size of a node's machine, set by cloud providers
// (https://kubernetes.io/docs/reference/labels-annotations-taints/#nodekubernetesioinstance-type).
// In a group of several sizes, nodes are compared in everything but the size.
const labelSize = "node.kubernetes.io/instance-type"

// sized reports whether the canary's machine has its sibling's size, as far as their nodes show it.
func (s Observation) sized() bool {
	n, o := s.Node, s.Sibling
	if size := o.Labels[labelSize]; size != "" || n.Labels[labelSize] != "" {
		return n.Labels[labelSize] == size
	}
	return near(n.CPU, o.CPU) && near(n.Memory, o.Memory)
}

func near(have, was int64) bool { return math.Abs(float64(have-was)) <= 0.05*float64(was) }

// ofTaint is the outcome of a taint that no sibling has. It is no evidence against the image if a
// DaemonSet's pod is missing that may have to remove the taint, as those of networks and volumes
// do.
func (s Observation) ofTaint() kamino.Outcome {
	if slices.ContainsFunc(s.Daemons, func(d kamino.DaemonPod) bool { return !d.Ready }) {
		return kamino.ProofInconclusive
	}
	return kamino.ProofFailed
}
