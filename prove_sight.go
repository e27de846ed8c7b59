package kamino

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
)

// Sight is all that is read of a canary, at about the same time.
type Sight struct {
	Now      time.Time
	Launched time.Time // when it was asked for, as far as this process knows
	Running  time.Time // when the cloud was first seen to say that it runs; zero: not yet
	// Exact says that it was seen not to run shortly before Running: that is when it began.
	Exact bool
	Ready time.Time // since when its node is seen to be Ready, or was first; zero: never
	// ReadyAs is since when its node said that it is Ready when it first was: its own word, which
	// only its boot is measured by.
	ReadyAs time.Time
	Canary  Canary    // the cloud's word, as it was last heard; Name "" before
	Gone    time.Time // since when the cloud lists it no more; zero: it does
	Stray   string    // a node of another name that shows the canary's machine, or did: two kubelets write it in turn
	// Bare says that its node had no taint of canaries when it was seen first, and no cordon.
	Bare   bool
	Others []Node // the other nodes of the cluster
	Peers  []Node // those of them that are Ready nodes of the pool, and not cordoned
	// Before are the machine IDs of nodes by name, before the canary's node was among them.
	Before   map[string]string
	Console  []string          // its last lines, where they can be read
	Nonce    string            // that the report of its agent has to repeat
	Donor    string            // the node that the image was made of in this run; "" when it may have changed since
	Sealed   map[string]string // tags of the version, of which some tell what was on the sealed disk
	Unsealed bool              // the version has no receipt, by whomever it was made
	// Restarts are those of its first report after it was Ready.
	Restarts map[string]int
	Reboots  []Signal // what tells of a reboot that is pending
	ClusterSight

	shown string // the VM that the node with the canary's provider ID showed first
}

// vm is the canary's VM; "" while neither the cloud nor its node tells.
func (s Sight) vm() string { return cmp.Or(s.Canary.VMID, s.shown) }

// boot is how long it took from a machine that runs to a node that is Ready: by the node's own word
// where that can be, else by when that was seen.
func (s Sight) boot() time.Duration {
	if s.ReadyAs.After(s.Running) && s.ReadyAs.Before(s.Ready) {
		return s.ReadyAs.Sub(s.Running)
	}
	return max(s.Ready.Sub(s.Running), 0)
}

// there says whether the canary's node can be judged: it is Ready, or was.
func (s Sight) there() bool { return !s.Ready.IsZero() && s.Node.UID != "" }

// settled is when a Ready node must have all that it needs, counted from Ready.
func (b Bounds) settled() time.Duration { return max(b.Boot, b.Bake) }

// slowest is how long may take what usually takes a while.
func (b Bounds) slowest(usual time.Duration) time.Duration {
	return 2*usual + max(time.Minute, b.Boot/4)
}

// late says whether what a Ready node must have by and by is overdue.
func (s Sight) late(b Bounds) bool { return s.Now.Sub(s.Ready) > b.settled() }

// byAndBy is the outcome of what a Ready node has to have in the end.
func (s Sight) byAndBy(b Bounds, over Outcome, evidence string) (Outcome, string) {
	if s.late(b) {
		return over, evidence
	}
	return ProofWaits, fmt.Sprintf("%s (the verdict is %s if that lasts until %s after Ready)", evidence, over, b.settled())
}

// heard says whether a silence speaks against the canary: the cloud says that it runs, and the
// kubelets of other nodes reach the API server. Whether its provisioning has ended says nothing:
// Azure leaves that at Creating for 40 minutes where no guest reports (docs/azure.md).
func (s Sight) heard() bool {
	return s.Gone.IsZero() && s.Canary.State != Failed && s.Canary.Power == PowerOn && !s.Renewed.IsZero()
}

// leaving tells that the canary's machine is off, or is being taken away, by whomever: nothing that
// it shows from then on speaks against its image. Outcome "": it is not.
func (s Sight) leaving() (Outcome, string) {
	c := s.Canary
	switch {
	case !s.Gone.IsZero() && s.Now.Sub(s.Gone) < goneAfter:
		return ProofWaits, "the canary, which the cloud does not list, to be listed or to be confirmed gone"
	case !s.Gone.IsZero():
		return ProofInconclusive, "the canary is gone from the cloud: somebody deleted it"
	case c.State == Deleting:
		return ProofInconclusive, "somebody is deleting the canary"
	case !s.Running.IsZero() && c.State != Failed && c.Instance == "":
		return ProofInconclusive, "the cloud shows no machine of the canary any more"
	case c.Power == PowerOff:
		return ProofInconclusive, "the canary is off, and Kamino did not switch it off" + s.lastLines()
	case s.Node.Deleting:
		return ProofInconclusive, "somebody is deleting its node " + s.Node.Name
	case s.Node.Tainted(TaintDeleting):
		return ProofInconclusive, "cluster-autoscaler is deleting its node " + s.Node.Name
	}
	return "", ""
}

// unheeded says whether the canary asks for a certificate that was denied, or that nobody approves,
// for any node.
func (s Sight) unheeded() bool {
	return slices.ContainsFunc(s.Requests, func(r CertificateRequest) bool { return !r.OthersApproved || r.Denied })
}

// owed says whether a node that is not Ready has a DaemonSet's pod that waits for an image, which
// may be that of the network plugin, or for an object: that may be why. Its kubelet and its runtime
// work, then.
func (s Sight) owed() bool {
	return slices.ContainsFunc(s.Daemons, func(d DaemonPod) bool { return d.Asked && !d.Ready })
}

// lastLines is the end of the console, where it can be read.
func (s Sight) lastLines() string {
	if n := len(s.Console); n > 0 {
		return "; its console ends with: " + strings.Join(s.Console[max(0, n-3):], " | ")
	}
	return ""
}

// unless is an outcome of a node that was made since the canary was asked for. One that is older
// was left by something else, and goes.
func (s Sight) unless(out Outcome, b Bounds, evidence string) (Outcome, string) {
	if s.Node.Created.Before(s.Launched) && !s.overdue(b) {
		return ProofWaits, evidence
	}
	return out, evidence
}

// overdue says whether the canary has run for longer than it may need to boot.
func (s Sight) overdue(b Bounds) bool {
	return !s.Running.IsZero() && s.Now.Sub(s.Running) > b.Boot
}

// Between two looks at all there is, only the canary's node is read: the cloud lets a set be read a
// few times a minute, and a proof takes many minutes.
const (
	wholeSight = 2 * time.Minute
	cloudSight = time.Minute
)

// examine looks at the canary and judges it. A verdict is of a sight in which everything is fresh.
func (r *Run) examine(ctx context.Context) (Outcome, []Finding, error) {
	out, findings, err := r.look(ctx)
	now, p := r.engine.now(), &r.proof
	switch {
	case !transient(err):
		p.blind = time.Time{}
	case p.blind.IsZero():
		p.blind = now
	case now.Sub(p.blind) > max(r.opts.Proof.Budget, r.opts.Proof.For):
		return ProofInconclusive, []Finding{{"cloud", ProofInconclusive, "the cloud or the API server does not answer: " + err.Error()}}, nil
	}
	return out, findings, err
}

// look is examine where everything answers.
func (r *Run) look(ctx context.Context) (Outcome, []Finding, error) {
	p, now := &r.proof, r.engine.now()
	bounds := Bounds{Boot: r.opts.Proof.budget(r.held.lease.Ledger), Bake: r.opts.Proof.For, History: usually(r.held.lease.Ledger.Boots),
		Phases: r.held.lease.Ledger.usualPhases(), Baked: r.held.lease.Ledger.Baked, Without: r.opts.Proof.Without}
	read := r.glance
	if now.Sub(p.whole) > wholeSight {
		read = r.sightWhole
	}
	if err := read(ctx); err != nil {
		return "", nil, err
	}
	out, findings := Judge(p.sight, bounds)
	if out != ProofWaits && r.engine.now().Sub(p.whole) > justNow {
		if err := r.sightWhole(ctx); err != nil {
			return "", nil, err
		}
		out, findings = Judge(p.sight, bounds)
	}
	return out, findings, nil
}

// glance reads the canary's node, and the cloud while it makes the machine.
func (r *Run) glance(ctx context.Context) error {
	p := &r.proof
	if p.sight.Running.IsZero() || r.engine.now().Sub(p.asked) > cloudSight {
		if err := r.sightCloud(ctx); err != nil {
			return err
		}
	}
	if p.sight.Now = r.engine.now(); p.sight.Canary.Hostname == "" {
		return nil
	}
	n, err := r.engine.Cluster.Node(ctx, p.sight.Canary.Hostname)
	if err != nil && !errors.Is(err, ErrNotFound) {
		return fmt.Errorf("read node %s: %w", p.sight.Canary.Hostname, err)
	}
	if n.UID == "" { // perhaps under another name, which two kubelets write in turn
		if err := r.sightOthers(ctx); err != nil {
			return err
		}
	}
	was := p.sight.Ready
	p.sight.sawNode(n)
	if was.IsZero() && !p.sight.Ready.IsZero() {
		p.whole = time.Time{} // there is more to see from now on
	}
	if p.sight.Probe.runs() && p.sight.Now.Sub(p.seen) > lookAge {
		_, examiner, _ := r.engine.prover()
		return r.sightCluster(ctx, examiner) // only the API server is asked when the probe ends
	}
	return nil
}

// sawNode notes the canary's node as it was just read, and since when it is Ready.
func (s *Sight) sawNode(n Node) {
	if s.Node.UID != n.UID && SameVM(n.SystemUUID, s.vm()) {
		s.Bare = !n.Unschedulable && !n.Tainted(TaintCanary)
	}
	if s.Node.Node = n; n.Ready {
		s.Node.NotReady = ""
	}
	if s.shown == "" && s.Canary.Instance != "" && n.runsOn(s.Canary.Instance) {
		s.shown = n.SystemUUID
	}
	if s.Ready.IsZero() && n.Ready && SameVM(n.SystemUUID, s.vm()) {
		s.Ready, s.ReadyAs = s.Now, n.ReadySince
	}
}

// sightCloud reads what the cloud says of the canary.
func (r *Run) sightCloud(ctx context.Context) error {
	list, err := r.canaries(ctx)
	if err != nil {
		return err
	}
	s, name := &r.proof.sight, r.canaryName()
	asked := r.proof.asked
	r.proof.asked = r.proof.listedAt
	if s.Launched.IsZero() {
		s.Launched = r.held.lease.Record.CanarySince
	}
	i := slices.IndexFunc(list, func(c Canary) bool {
		// A set that has lost the machine that was seen is none: that was evicted, or deleted. One
		// that Failed tells why.
		same := s.Canary.Instance == "" || c.Instance == "" && c.State == Failed || c.Instance.same(s.Canary.Instance) && (c.VMID == s.Canary.VMID || SameVM(c.VMID, s.Canary.VMID))
		return c.Name == name && c.State != Deleting && same
	})
	switch {
	case i >= 0:
		s.Canary, s.Gone = list[i], time.Time{}
	case s.Gone.IsZero():
		s.Gone = r.proof.asked
	}
	s.runs(asked, r.proof.asked)
	return nil
}

// runs notes when the machine was first seen to run, and whether the look before that, at which it
// did not, was shortly before.
func (s *Sight) runs(before, now time.Time) {
	if s.Running.IsZero() && s.Canary.Power == PowerOn && s.Canary.Instance != "" {
		s.Running, s.Exact = now, !before.IsZero() && now.Sub(before) <= exactWithin
	}
}

// exactWithin is how exactly a boot has to be measured to count in the pool's history.
const exactWithin = 30 * time.Second

// sightWhole reads all that there is to see.
func (r *Run) sightWhole(ctx context.Context) error {
	p := &r.proof
	prover, examiner, _ := r.engine.prover()
	if err := r.sightCloud(ctx); err != nil {
		return err
	}
	s := &p.sight
	s.Nonce, s.Reboots, s.Sealed = r.held.lease.Record.Nonce, r.opts.PendingReboot, r.image.version.Tags
	s.Unsealed = s.Sealed[TagReceipt] == ""
	if s.Before == nil {
		if err := r.sightBefore(ctx); err != nil {
			return err
		}
	}
	if s.Canary.Hostname != "" {
		if err := r.sightCluster(ctx, examiner); err != nil {
			return err
		}
	}
	if p.mode == ProveCanary && (s.Node.UID == "" || !s.Node.Ready) {
		if lines, err := prover.Console(ctx, r.pool, s.Canary); err == nil {
			s.Console = lines
		}
	}
	if report, ok := s.Node.Report(s.Nonce); ok && s.Restarts == nil && !s.Ready.IsZero() {
		if s.Restarts = report.Restarts; s.Restarts == nil {
			s.Restarts = map[string]int{}
		}
	}
	s.Now = r.engine.now()
	p.whole = s.Now
	return nil
}

// sightBefore notes the machine IDs that nodes have before the canary's is among them; none where
// it is already.
func (r *Run) sightBefore(ctx context.Context) error {
	nodes, err := r.engine.Cluster.Nodes(ctx)
	if err != nil {
		return fmt.Errorf("list nodes: %w", err)
	}
	s := &r.proof.sight
	s.Before = map[string]string{}
	if slices.ContainsFunc(nodes, func(n Node) bool { return n.Name == s.Canary.Hostname }) {
		return nil
	}
	for _, n := range nodes {
		s.Before[n.Name] = n.MachineID
	}
	return nil
}

// sightOthers reads the other nodes, of which one may show the canary's machine.
func (r *Run) sightOthers(ctx context.Context) error {
	s := &r.proof.sight
	nodes, err := r.engine.Cluster.Nodes(ctx)
	if err != nil {
		return fmt.Errorf("list nodes: %w", err)
	}
	s.Others = nil
	for _, n := range nodes {
		if n.Name == s.Canary.Hostname {
			continue
		}
		s.Others = append(s.Others, n)
		if SameVM(n.SystemUUID, s.vm()) {
			s.Stray = n.Name
		}
	}
	return nil
}

func (r *Run) sightCluster(ctx context.Context, examiner Examiner) error {
	if err := r.sightOthers(ctx); err != nil {
		return err
	}
	s := &r.proof.sight
	s.Donor, s.Peers = "", nil
	sibling, tags := "", r.image.version.Tags
	for _, n := range s.Others {
		if n.Name == tags[TagBuiltFrom] && tags[TagRun] == r.held.run && SameVM(n.SystemUUID, tags[TagVM]) {
			s.Donor = n.Name
		}
		pool, err := r.engine.poolOf(ctx, n)
		if err != nil {
			return err
		}
		if pool != r.pool.ID || !n.Ready || n.Unschedulable {
			continue
		}
		if s.Peers = append(s.Peers, n); sibling == "" || n.Name == s.Donor {
			sibling = n.Name
		}
	}
	seen, err := examiner.Examine(ctx, ExamineOrder{Run: r.held.run, Node: s.Canary.Hostname, Sibling: sibling, Since: s.Launched, Probe: r.opts.Proof.Probe, Nonce: r.probeNonce()})
	if err != nil {
		return fmt.Errorf("examine node %s: %w", s.Canary.Hostname, err)
	}
	had := s.Node.Node
	s.ClusterSight, s.Now = seen, r.engine.now()
	r.proof.seen = s.Now
	s.Node.Node = had // what was seen of it before
	s.sawNode(seen.Node.Node)
	return nil
}

// labelSize is what cloud providers tell of a node's machine
// (https://kubernetes.io/docs/reference/labels-annotations-taints/#nodekubernetesioinstance-type). A
// group of several sizes has nodes that are compared in all but that.
const labelSize = "node.kubernetes.io/instance-type"

// sized says whether the canary's machine is of its sibling's size, as far as their nodes tell.
func (s Sight) sized() bool {
	n, o := s.Node, s.Sibling
	if size := o.Labels[labelSize]; size != "" || n.Labels[labelSize] != "" {
		return n.Labels[labelSize] == size
	}
	return near(n.CPU, o.CPU) && near(n.Memory, o.Memory)
}

func near(have, was int64) bool { return math.Abs(float64(have-was)) <= 0.05*float64(was) }

// ofTaint is what a taint says that no sibling has: nothing of the image, where the pod of a
// DaemonSet is missing that may be the one to take it off, as those of networks and volumes do.
func (s Sight) ofTaint() Outcome {
	if slices.ContainsFunc(s.Daemons, func(d DaemonPod) bool { return !d.Ready }) {
		return ProofInconclusive
	}
	return ProofFailed
}
