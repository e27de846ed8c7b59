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

// again counts by unit how often systemd started a service again since the first report after the
// node was Ready, as NRestarts does.
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

// Baked is how the canary did so far; false where its agent does not tell, or too much.
func (s Observation) Baked() (kamino.Baked, bool) {
	b := kamino.Baked{Seconds: s.Now.Sub(s.Ready).Seconds(), Restarts: s.again()}
	return b, s.There() && s.Restarts != nil && len(b.Restarts) <= kamino.MaxBaked
}

// restarts is how often systemd may have started a service again on a canary that has been Ready
// for so long: twice as often as on any good one. Where three of those were watched for as long and
// it never did, that is none; else one, since some services end once after their first work.
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

// uncompared are the parts of checks for which a version without a seal receipt tells nothing.
func (s Observation) uncompared(b Bounds) (left []kamino.Finding) {
	if !s.Unsealed {
		return nil
	}
	for _, f := range []kamino.Finding{
		{Check: "identity", Outcome: kamino.ProofNotApplicable, Evidence: "the SSH host keys of the machine that the version was made of are unknown, so the canary's cannot be compared"},
		{Check: "capacity", Outcome: kamino.ProofNotApplicable, Evidence: "the version has no donor to compare it with"},
		{Check: "report", Outcome: kamino.ProofNotApplicable, Evidence: "no receipt lists the packages on the version's disk"},
	} {
		if !slices.Contains(b.Without, f.Check) {
			left = append(left, f)
		}
	}
	return left
}

// dark says whether the canary's silence tells nothing of its image.
func (s Observation) dark() bool {
	return !s.heard() || kamino.CutOff(s.Canary.Zone, s.Others, s.Launched)
}

// Observation is all that is read of a canary, at about the same time.
type Observation struct {
	Now      time.Time
	Launched time.Time // when it was asked for, as far as this process knows
	Running  time.Time // when the cloud was first seen to say that it runs; zero: not yet
	// Exact says that it was seen not to run shortly before Running: that is when it began.
	Exact bool
	Ready time.Time // since when its node is seen to be Ready, or was first; zero: never
	// ReadyAs is since when its node said that it is Ready when it first was: its own word, which
	// only its boot is measured by.
	ReadyAs time.Time
	Canary  kamino.Canary // the cloud's word, as it was last heard; Name "" before
	Gone    time.Time     // since when the cloud lists it no more; zero: it does
	Stray   string        // a node of another name that shows the canary's machine, or did: two kubelets write it in turn
	// Bare says that its node had no taint of canaries when it was seen first, and no cordon.
	Bare   bool
	Others []kamino.Node // the other nodes of the cluster
	Peers  []kamino.Node // those of them that are Ready nodes of the pool, and not cordoned
	// Before are the machine IDs of nodes by name, before the canary's node was among them.
	Before   map[string]string
	Console  []string          // its last lines, where they can be read
	Nonce    string            // that the report of its agent has to repeat
	Donor    string            // the node that the image was made of in this run; "" when it may have changed since
	Sealed   map[string]string // tags of the version, of which some tell what was on the sealed disk
	Unsealed bool              // the version has no receipt, by whomever it was made
	// Restarts are those of its first report after it was Ready.
	Restarts map[string]int
	Reboots  []kamino.Signal // what tells of a reboot that is pending
	kamino.ClusterObservation

	shown string // the VM that the node with the canary's provider ID showed first
}

// VM is the canary's VM; "" while neither the cloud nor its node tells.
func (s Observation) VM() string { return cmp.Or(s.Canary.VMID, s.shown) }

// Boot is how long it took from a machine that runs to a node that is Ready: by the node's own word
// where that can be, else by when that was seen.
func (s Observation) Boot() time.Duration {
	if s.ReadyAs.After(s.Running) && s.ReadyAs.Before(s.Ready) {
		return s.ReadyAs.Sub(s.Running)
	}
	return max(s.Ready.Sub(s.Running), 0)
}

// There says whether the canary's node can be judged: it is Ready, or was.
func (s Observation) There() bool { return !s.Ready.IsZero() && s.Node.UID != "" }

// settled is when a Ready node must have all that it needs, counted from Ready.
func (b Bounds) settled() time.Duration { return max(b.Boot, b.Bake) }

// slowest is how long may take what usually takes a while.
func (b Bounds) slowest(usual time.Duration) time.Duration {
	return 2*usual + max(time.Minute, b.Boot/4)
}

// late says whether what a Ready node must have by and by is overdue.
func (s Observation) late(b Bounds) bool { return s.Now.Sub(s.Ready) > b.settled() }

// byAndBy is the outcome of what a Ready node has to have in the end.
func (s Observation) byAndBy(b Bounds, over kamino.Outcome, evidence string) (kamino.Outcome, string) {
	if s.late(b) {
		return over, evidence
	}
	return kamino.ProofWaits, fmt.Sprintf("%s (the verdict is %s if that lasts until %s after Ready)", evidence, over, b.settled())
}

// heard says whether a silence speaks against the canary: the cloud says that it runs, and the
// kubelets of other nodes reach the API server. Whether its provisioning has ended says nothing:
// Azure leaves that at Creating for 40 minutes where no guest reports (docs/azure.md).
func (s Observation) heard() bool {
	return s.Gone.IsZero() && s.Canary.State != kamino.Failed && s.Canary.Power == kamino.PowerOn && !s.Renewed.IsZero()
}

// leaving tells that the canary's machine is off, or is being taken away, by whomever: nothing that
// it shows from then on speaks against its image. Outcome "": it is not.
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

// Unheeded says whether the canary asks for a certificate that was denied, or that nobody approves,
// for any node.
func (s Observation) Unheeded() bool {
	return slices.ContainsFunc(s.Requests, func(r kamino.CertificateRequest) bool { return !r.OthersApproved || r.Denied })
}

// Owed says whether a node that is not Ready has a DaemonSet's pod that waits for an image, which
// may be that of the network plugin, or for an object: that may be why. Its kubelet and its runtime
// work, then.
func (s Observation) Owed() bool {
	return slices.ContainsFunc(s.Daemons, func(d kamino.DaemonPod) bool { return d.Asked && !d.Ready })
}

// lastLines is the end of the console, where it can be read.
func (s Observation) lastLines() string {
	if n := len(s.Console); n > 0 {
		return "; its console ends with: " + strings.Join(s.Console[max(0, n-3):], " | ")
	}
	return ""
}

// unless is an outcome of a node that was made since the canary was asked for. One that is older
// was left by something else, and goes.
func (s Observation) unless(out kamino.Outcome, b Bounds, evidence string) (kamino.Outcome, string) {
	if s.Node.Created.Before(s.Launched) && !s.overdue(b) {
		return kamino.ProofWaits, evidence
	}
	return out, evidence
}

// overdue says whether the canary has run for longer than it may need to boot.
func (s Observation) overdue(b Bounds) bool {
	return !s.Running.IsZero() && s.Now.Sub(s.Running) > b.Boot
}

// Between two looks at all there is, only the canary's node is read: the cloud lets a set be read a
// few times a minute, and a proof takes many minutes.
const (
	WholeObservation = 2 * time.Minute
	CloudObservation = time.Minute
)

// SawNode notes the canary's node as it was just read, and since when it is Ready.
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

// Runs notes when the machine was first seen to run, and whether the look before that, at which it
// did not, was shortly before.
func (s *Observation) Runs(before, now time.Time) {
	if s.Running.IsZero() && s.Canary.Power == kamino.PowerOn && s.Canary.Instance != "" {
		s.Running, s.Exact = now, !before.IsZero() && now.Sub(before) <= exactWithin
	}
}

// exactWithin is how exactly a boot has to be measured to count in the pool's history.
const exactWithin = 30 * time.Second

// labelSize is what cloud providers tell of a node's machine
// (https://kubernetes.io/docs/reference/labels-annotations-taints/#nodekubernetesioinstance-type). A
// group of several sizes has nodes that are compared in all but that.
const labelSize = "node.kubernetes.io/instance-type"

// sized says whether the canary's machine is of its sibling's size, as far as their nodes tell.
func (s Observation) sized() bool {
	n, o := s.Node, s.Sibling
	if size := o.Labels[labelSize]; size != "" || n.Labels[labelSize] != "" {
		return n.Labels[labelSize] == size
	}
	return near(n.CPU, o.CPU) && near(n.Memory, o.Memory)
}

func near(have, was int64) bool { return math.Abs(float64(have-was)) <= 0.05*float64(was) }

// ofTaint is what a taint says that no sibling has: nothing of the image, where the pod of a
// DaemonSet is missing that may be the one to take it off, as those of networks and volumes do.
func (s Observation) ofTaint() kamino.Outcome {
	if slices.ContainsFunc(s.Daemons, func(d kamino.DaemonPod) bool { return !d.Ready }) {
		return kamino.ProofInconclusive
	}
	return kamino.ProofFailed
}
