package kamino

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Sight is all that is read of a canary, at about the same time.
type Sight struct {
	Now      time.Time
	Launched time.Time // when it was asked for, as far as this process knows
	Running  time.Time // when the cloud was first seen to say that it runs; zero: not yet
	Ready    time.Time // since when its node is Ready, or was first; zero: never
	// ReadyAs is since when its node said that it is Ready when it first was, by the node's clock.
	ReadyAs time.Time
	Canary  Canary    // the cloud's word, as it was last heard; Name "" before
	Gone    time.Time // since when the cloud lists it no more; zero: it does
	Stray   string    // a node of another name that shows the canary's machine
	Others  []Node    // the other nodes of the cluster
	Console []string  // its last lines, where they can be read
	Nonce   string    // that the report of its agent has to repeat
	Donor   string    // the node that the image was made of
	// Restarts are those of its first report after it was Ready.
	Restarts map[string]int
	Reboots  []Signal // what tells of a reboot that is pending
	ClusterSight
}

// ClusterSight is what Kubernetes tells of a canary and of a node to compare it with.
type ClusterSight struct {
	Node     NodeSight // the canary's; UID "" when there is none
	Sibling  NodeSight // of the pool, the donor where it is there; UID "" when there is none
	Renewed  bool      // another kubelet than the canary's renewed its lease within a minute
	Requests []CertificateRequest
	Daemons  []DaemonPod // one for each DaemonSet that selects the canary's node
	Starts   int         // how often its kubelet has started, as events tell
	Probe    ProbeState
}

// NodeSight is a node with what only an examination needs.
type NodeSight struct {
	Node
	Pulse    time.Time         // last sign of life, by the node's clock
	NotReady string            // why it is not, "" when it is
	Versions map[string]string // of kubelet, container runtime and kernel
	CPU      int64             // capacity, in thousandths
	Memory   int64             // capacity, in bytes
	MaxPods  int64             // capacity
	Images   []string          // cached, one name of each
	Own      map[string]string // labels that its kubelet set; nil where that cannot be told
}

// CertificateRequest is a certificate signing request for a node that is not approved.
type CertificateRequest struct {
	Name, Signer string
	Made         time.Time
	Denied       bool
	// OthersApproved: after this one was made, another node's of the same signer was approved.
	OthersApproved bool
}

// DaemonPod is a DaemonSet that selects a node, with its pod there.
type DaemonPod struct {
	Set    string // namespace/name
	Ready  bool
	Pull   bool   // it waits for an image
	Reason string // why it is not Ready, for people
}

// ProbeState is how far the operator's probe has come.
type ProbeState struct {
	Wanted, Started, Done, Failed bool
	Pull                          bool // it waits for an image
	Reason                        string
}

// there says whether the canary's node can be judged: it is Ready, or was.
func (s Sight) there() bool { return !s.Ready.IsZero() && s.Node.UID != "" }

// late says whether what a Ready node must have by and by is overdue.
func (s Sight) late(b Bounds) bool { return s.Now.Sub(s.Ready) > max(b.Boot, b.Bake) }

// byAndBy is the outcome of what a Ready node has to have in the end.
func (s Sight) byAndBy(b Bounds, over Outcome, evidence string) (Outcome, string) {
	if s.late(b) {
		return over, evidence
	}
	return ProofWaits, evidence
}

// heard says whether a silence speaks against the canary: the cloud says that it runs, and the
// kubelets of other nodes reach the API server.
func (s Sight) heard() bool {
	return s.Gone.IsZero() && s.Canary.State == Succeeded && s.Canary.Power == PowerOn && s.Renewed
}

// unheeded says whether the canary asks for a certificate that nobody approves, for any node.
func (s Sight) unheeded() bool {
	return slices.ContainsFunc(s.Requests, func(r CertificateRequest) bool { return !r.OthersApproved && !r.Denied })
}

// lastLines is the end of the console, where it can be read.
func (s Sight) lastLines() string {
	if n := len(s.Console); n > 0 {
		return "; its console ends with: " + strings.Join(s.Console[max(0, n-3):], " | ")
	}
	return ""
}

// Examiner is a Cluster that can look at a canary's node as at no other, and knows the stop switch.
// Errors are those of [Provider].
type Examiner interface {
	// Examine reads what Kubernetes tells of a canary's node. A node that is not there is no error.
	Examine(context.Context, ExamineOrder) (ClusterSight, error)
	// AdmitCanary cordons a canary's node and takes TaintCanary off, in one write that is
	// conditional on the node: so the pods of DaemonSets land on it, and no others.
	AdmitCanary(context.Context, Node) error
	// RemoveNode deletes a Node object of that UID. One that is gone is no error.
	RemoveNode(context.Context, Node) error
	// PreflightProof returns ErrForbidden naming every right that a proof uses besides and that is
	// missing. With a probe it tries, without effect, to create it: a *RefusedError where it is no
	// Job, or the API server takes no such one.
	PreflightProof(ctx context.Context, probe []byte) error
	// StartProbe creates the probe of a run on a node. One that exists already is no error.
	StartProbe(ctx context.Context, run string, node Node, probe []byte) error
	// RemoveProbe deletes the probe of a run with its pods. One that is not there is no error.
	RemoveProbe(ctx context.Context, run string, probe []byte) error
	// Paused is why new runs and promotions are held in the whole cluster; "" when they are not.
	Paused(context.Context) (reason string, err error)
	// Pause writes that reason; "" takes it away.
	Pause(ctx context.Context, reason string) error
}

// ExamineOrder says whose sight is wanted.
type ExamineOrder struct {
	Run     string
	Node    string    // of the canary
	Sibling string    // the node to compare it with; "" none
	Since   time.Time // before which nothing of a node of that name was the canary's
	Probe   []byte    // of the run; nil for none
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
		return ProofInconclusive, []Finding{{"cloud", ProofInconclusive, "cloud or API server do not answer: " + err.Error()}}, nil
	}
	return out, findings, err
}

// look is examine where everything answers.
func (r *Run) look(ctx context.Context) (Outcome, []Finding, error) {
	p, now := &r.proof, r.engine.now()
	bounds := Bounds{Boot: r.opts.Proof.Budget, Bake: r.opts.Proof.For, History: r.held.lease.Ledger.usualBoot(), Without: r.opts.Proof.Without}
	if p.mode == ProvePool {
		bounds.Without = slices.Concat(bounds.Without, noReport)
	}
	read := r.glance
	if now.Sub(p.whole) > wholeSight {
		read = r.sightWhole
	}
	if err := read(ctx); err != nil {
		return "", nil, err
	}
	out, findings := Judge(p.sight, bounds)
	if out != ProofWaits && r.engine.now().Sub(p.whole) > lookAge {
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
	was := p.sight.Ready
	p.sight.sawNode(n)
	if was.IsZero() && !p.sight.Ready.IsZero() {
		p.whole = time.Time{} // there is more to see from now on
	}
	return nil
}

// sawNode notes the canary's node as it was just read, and since when it is Ready.
func (s *Sight) sawNode(n Node) {
	if s.Node.Node = n; n.Ready {
		s.Node.NotReady = ""
	}
	if s.Ready.IsZero() && n.Ready && SameVM(n.SystemUUID, s.Canary.VMID) {
		s.ReadyAs = n.ReadySince
		if s.Ready = n.ReadySince; s.Ready.Before(s.Running) || s.Ready.After(s.Now) {
			s.Ready = s.Now
		}
	}
}

// sightCloud reads what the cloud says of the canary, or of the pool's node that stands for one.
func (r *Run) sightCloud(ctx context.Context) error {
	if r.proof.mode == ProvePool {
		return r.sightNewborn(ctx)
	}
	prover, _, _ := r.engine.prover()
	list, err := prover.Canaries(ctx, r.pool)
	if err != nil {
		return fmt.Errorf("list canaries of pool %s: %w", r.pool.Name, err)
	}
	s, name := &r.proof.sight, r.canaryName()
	r.proof.asked = r.engine.now()
	if s.Launched.IsZero() {
		s.Launched = r.held.lease.Record.CanarySince
	}
	i := slices.IndexFunc(list, func(c Canary) bool { return c.Name == name && c.State != Deleting })
	switch {
	case i >= 0:
		s.Canary, s.Gone = list[i], time.Time{}
	case s.Gone.IsZero():
		s.Gone = r.proof.asked
	}
	if s.Running.IsZero() && s.Canary.Power == PowerOn && s.Canary.VMID != "" {
		s.Running = r.proof.asked
	}
	return nil
}

// sightWhole reads all that there is to see.
func (r *Run) sightWhole(ctx context.Context) error {
	p := &r.proof
	prover, examiner, _ := r.engine.prover()
	if err := r.sightCloud(ctx); err != nil {
		return err
	}
	s := &p.sight
	s.Nonce, s.Reboots, s.Donor = r.held.lease.Record.Nonce, r.opts.PendingReboot, r.image.version.Tags[TagBuiltFrom]
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

func (r *Run) sightCluster(ctx context.Context, examiner Examiner) error {
	s := &r.proof.sight
	nodes, err := r.engine.Cluster.Nodes(ctx)
	if err != nil {
		return fmt.Errorf("list nodes: %w", err)
	}
	s.Others, s.Stray = nil, ""
	sibling := ""
	for _, n := range nodes {
		if n.Name == s.Canary.Hostname {
			continue
		}
		s.Others = append(s.Others, n)
		if SameVM(n.SystemUUID, s.Canary.VMID) {
			s.Stray = n.Name
		}
		if pool, err := r.engine.Provider.PoolOf(n.ProviderID); err == nil && pool == r.pool.ID && n.Ready && !n.Unschedulable && (sibling == "" || n.Name == s.Donor) {
			sibling = n.Name
		}
	}
	seen, err := examiner.Examine(ctx, ExamineOrder{Run: r.held.run, Node: s.Canary.Hostname, Sibling: sibling, Since: s.Launched, Probe: r.opts.Proof.Probe})
	if err != nil {
		return fmt.Errorf("examine node %s: %w", s.Canary.Hostname, err)
	}
	s.ClusterSight, s.Now = seen, r.engine.now()
	s.sawNode(seen.Node.Node)
	return nil
}

// sightNewborn reads the first instance of the pool that boots from the version.
func (r *Run) sightNewborn(ctx context.Context) error {
	s, now := &r.proof.sight, r.engine.now()
	if r.proof.asked = now; s.Launched.IsZero() {
		s.Launched = now
	}
	if s.Canary.Instance == "" {
		born, err := r.engine.newborn(ctx, r.pool, r.image.version.ID, &r.proof.elders)
		if err != nil || len(born) == 0 {
			return err
		}
		s.Canary = canaryOf(born[0])
	}
	in, err := r.engine.Provider.Instance(ctx, s.Canary.Instance)
	switch {
	case errors.Is(err, ErrNotFound) && s.Gone.IsZero():
		s.Gone = now
	case errors.Is(err, ErrNotFound):
	case err != nil:
		return fmt.Errorf("read instance %s: %w", s.Canary.Instance, err)
	default:
		s.Canary, s.Gone = canaryOf(in), time.Time{}
	}
	if s.Running.IsZero() && s.Canary.Power == PowerOn {
		s.Running = now
	}
	return nil
}

// canaryOf is an instance of the pool that stands for a canary.
func canaryOf(in Instance) Canary {
	return Canary{Name: lastSegment(string(in.ID)), State: Succeeded, Instance: in.ID, VMID: in.VMID, Hostname: in.Hostname, Power: in.Power}
}

// newborn lists the instances of a pool that boot from an image. What an instance boots from is
// read once: elders are those that boot from another one.
func (e *Engine) newborn(ctx context.Context, pool Pool, image string, elders *map[InstanceID]bool) (born []Instance, err error) {
	ids, err := e.Provider.Instances(ctx, pool)
	if err != nil {
		return nil, fmt.Errorf("list the instances of pool %s: %w", pool.Name, err)
	}
	if *elders == nil {
		*elders = map[InstanceID]bool{}
	}
	slices.Sort(ids)
	for _, id := range ids {
		if (*elders)[id] {
			continue
		}
		in, err := e.Provider.Instance(ctx, id)
		if errors.Is(err, ErrNotFound) {
			continue
		} else if err != nil {
			return nil, fmt.Errorf("read instance %s: %w", id, err)
		}
		if strings.EqualFold(in.Image, image) {
			born = append(born, in)
		} else {
			(*elders)[id] = true
		}
	}
	return born, nil
}
