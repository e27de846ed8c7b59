package kamino

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Prover is a Provider that can start one instance of a pool's recipe beside the pool, from a
// version that is hidden yet. Its methods answer at once, may be repeated without harm, and have
// the errors of Provider.
type Prover interface {
	// CanaryFit tells what a canary of the pool would be, and why it cannot be had at all. It
	// only reads.
	CanaryFit(context.Context, Pool) (CanaryFit, error)
	// Canaries lists the canaries of a pool that exist, of any run, found by their tags. None is
	// no error.
	Canaries(context.Context, Pool) ([]Canary, error)
	// LaunchCanary begins to create a canary. Repeated with the same order it changes nothing; a
	// thing of that name that is not the order's is ErrConflict. ErrBlocked where the cloud
	// refuses it whatever the image is.
	LaunchCanary(context.Context, Pool, CanaryOrder) error
	// RemoveCanary begins to delete a canary of the pool with all that belongs to it. One that
	// does not exist is no error; what is no canary of the pool is left alone: ErrConflict.
	RemoveCanary(ctx context.Context, pool Pool, name string) error
	// Console reads the last lines of the canary's console. ErrUnsupported or ErrForbidden where
	// it is not readable: it is evidence, never required.
	Console(context.Context, Pool, Canary) ([]string, error)
	// PreflightCanary is Preflight for the rights that only a canary needs. ErrForbidden names
	// them.
	PreflightCanary(context.Context) (doubts []Doubt, err error)
	// CanaryRights is the file of the documentation that grants those rights. It makes no call.
	CanaryRights() string
}

// ErrBlocked is that the cloud has no quota or capacity for the instance, or a policy denies it. It
// says nothing of the image.
var ErrBlocked = errors.New("blocked by the cloud")

// CanaryOrder says which canary is wanted.
type CanaryOrder struct {
	Name    string    // CanaryName of pool and run
	Version string    // ID of the image version
	Run     string    // run ID
	Nonce   string    // what the agent's report repeats; "" where no report is wanted
	Expires time.Time // when anybody may remove it
}

// Canary is one instance of a pool's recipe with a hidden version, freshly read.
type Canary struct {
	Name    string    `json:"name"`
	Version string    `json:"version"` // ID of the image version that it boots from
	Run     string    `json:"run"`
	Expires time.Time `json:"expires"`
	// State is Creating until the cloud has made the instance, whatever its guest does; then
	// Succeeded or Failed.
	State   State  `json:"state"`
	Failure string `json:"failure,omitempty"` // why it Failed, in the provider's words
	// Blocked says that Failure is the cloud's (quota, allocation, throttling, policy) and tells
	// nothing of the image.
	Blocked bool `json:"blocked,omitempty"`

	// Empty until known. Instance is what its node has as spec.providerID; its PoolOf is never the
	// pool that the canary is of.
	Instance InstanceID `json:"instance,omitempty"`
	VMID     string     `json:"vmId,omitempty"`
	Hostname string     `json:"hostname,omitempty"`
	Power    Power      `json:"power,omitempty"`
	Zone     string     `json:"zone,omitempty"` // as of an Instance
}

// CanaryFit is what a canary of a pool would be.
type CanaryFit struct {
	Size     string    `json:"size"`               // the machine's type
	Kept     []string  `json:"kept,omitempty"`     // of the recipe, what reaches beyond the canary
	LeftOut  []string  `json:"leftOut,omitempty"`  // of the recipe, what a canary cannot have
	Refusals []Refusal `json:"refusals,omitempty"` // why there can be none
}

// TaintCanary is on a canary's node from its first second, with the effect NoSchedule: the agent's
// first boot registers the node with it where the instance has TagCanary.
const TaintCanary = "kamino.dev/canary"

// LabelCanary is on a canary's node from its first second as well: no load balancer of the cloud
// sends traffic to a node that has it, whatever its value is
// (https://kubernetes.io/docs/reference/labels-annotations-taints/#node-kubernetes-io-exclude-from-external-load-balancers).
const LabelCanary = "node.kubernetes.io/exclude-from-external-load-balancers"

// AnnotationReport holds the NodeReport of a canary's node as JSON. The agent writes it with the
// node's own credential, again and again while the instance has TagNonce.
const AnnotationReport = "kamino.dev/report"

// NodeReport is what a canary says of itself that its Node does not show. It is a claim of the
// image that is on trial: it can convict, and what it leaves out acquits nothing.
type NodeReport struct {
	Nonce     string    `json:"nonce"` // of the order that it answers
	At        time.Time `json:"at"`    // by the node's clock, with fractions of a second
	MachineID string    `json:"machineId"`
	// SSHKeys are as Receipt's.
	SSHKeys []string `json:"sshKeys,omitempty"`
	// FailedUnits are systemd's, sorted.
	FailedUnits []string `json:"failedUnits,omitempty"`
	// Restarts counts by unit how often systemd started a service again since the boot; services
	// that it did not are left out.
	Restarts map[string]int `json:"restarts,omitempty"`
	// RebootPending is why the node says that it should be rebooted; "" where it does not.
	RebootPending string `json:"rebootPending,omitempty"`
	// PackageDigest is as Receipt's.
	PackageDigest string `json:"packageDigest,omitempty"`
	Timing               // of its boot, once that is recorded
}

// Baked is how a good canary did while it was watched.
type Baked struct {
	Seconds float64 `json:"seconds"` // since its node was Ready
	// Restarts counts by unit how often systemd started a service again meanwhile.
	Restarts map[string]int `json:"restarts,omitempty"`
}

// maxBaked is of how many services the ledger takes a node's word.
const maxBaked = 10

// again counts by unit how often systemd started a service again since the first report after the
// node was Ready, as NRestarts does.
func (s Sight) again() map[string]int {
	counts := map[string]int{}
	r, _ := s.Node.Report(s.Nonce)
	for unit, n := range r.Restarts {
		if n -= s.Restarts[unit]; s.Restarts != nil && n > 0 {
			counts[unit] = n
		}
	}
	return counts
}

// baked is how the canary did so far; false where its agent does not tell, or too much.
func (s Sight) baked() (Baked, bool) {
	b := Baked{Seconds: s.Now.Sub(s.Ready).Seconds(), Restarts: s.again()}
	return b, s.there() && s.Restarts != nil && len(b.Restarts) <= maxBaked
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

// Report reads the node's report; ok is false when there is none, it cannot be read, or it answers
// another order.
func (n Node) Report(nonce string) (r NodeReport, ok bool) {
	err := readPlain([]byte(n.Annotations[AnnotationReport]), &r)
	return r, err == nil && nonce != "" && r.Nonce == nonce
}

// removeCanary removes the first of the canaries that may go and shall.
func (r *Run) removeCanary(prover Prover, list []Canary, shall func(Canary) bool) (Next, bool) {
	for _, c := range list {
		r.proof.machines[c.Instance] = c.Name
		switch {
		case !shall(c):
		case !r.mayRemove(c):
			why := fmt.Sprintf("belongs to run %s, which is not recorded on the lease of the pool: it is kept until it expires at %s", c.Run, c.Expires.Format(time.RFC3339))
			r.proof.kept[c.Name] = why
			r.doubt(InRetire, "canary "+c.Name+" "+why)
		case c.State == Deleting:
			r.proof.leaves = true
			return wait("canary " + c.Name + " to be deleted"), true
		default:
			r.proof.shown = true
			return r.removal(prover, c.Name, c.Run), true
		}
	}
	return Next{}, false
}

// removeUnlisted removes the canary that stands on the lease by its name, once, where no list shows
// it: a list may lack what a process asked for that was killed.
func (r *Run) removeUnlisted(prover Prover, list []Canary) (Next, bool) {
	name := r.held.lease.Record.Canary
	if !r.knownCanary(name) || r.proof.removed[name] || lists(list, name) {
		return Next{}, false
	}
	return r.removal(prover, name, r.held.run), true
}

func lists(list []Canary, name string) bool {
	return slices.ContainsFunc(list, func(c Canary) bool { return c.Name == name })
}

func (r *Run) removal(prover Prover, name, run string) Next {
	return act(ActRemoveCanary, "remove canary "+name+" of run "+run, func(ctx context.Context) error {
		r.proof.listedAt = time.Time{}
		err := prover.RemoveCanary(ctx, r.pool, name)
		if err == nil {
			r.proof.removed[name] = true
		}
		return err
	}).of(name).then("canary "+name+" to be deleted", 0)
}

// removeProbe deletes the operator's probe that this run, or one that it took the place of, has
// started.
func (r *Run) removeProbe(ctx context.Context) error {
	p := r.held.lease.Record.Probe
	examiner, looks := r.engine.Cluster.(Examiner)
	if p == nil || !looks {
		return nil
	}
	if err := examiner.RemoveProbe(ctx, *p); err != nil {
		return fmt.Errorf("delete the probe of run %s: %w", p.Run, err)
	}
	return nil
}

// knownCanary says whether a name is that of a canary of this run, or of one that has certainly
// ended. What a lease says of a canary is a claim, as a mark is.
func (r *Run) knownCanary(name string) bool {
	return name == r.canaryName() || slices.ContainsFunc(r.held.lease.Ledger.Past, func(p PastRun) bool { return name == CanaryName(r.pool.ID, p.Run) })
}

// canaryOfNode is the name of the canary whose node it can only be: by its own name, which is the
// canary's and six characters, and by its provider ID, where it has one.
func (r *Run) canaryOfNode(ctx context.Context, n Node) (name string, ok bool) {
	const suffix = 6 // https://learn.microsoft.com/azure/virtual-machine-scale-sets/virtual-machine-scale-sets-instance-ids
	name = n.Name[:max(0, len(n.Name)-suffix)]
	if n.ProviderID == "" {
		return name, PoolID(name).ofCanary()
	}
	if !PoolID(name).ofCanary() {
		return r.canaryByMachine(ctx, n)
	}
	set, err := r.engine.Provider.PoolOf(ctx, n.ProviderID)
	return name, err == nil && strings.EqualFold(set.Name(), name)
}

// canaryByMachine is for clouds that name nodes their own way: a machine that was listed as a
// canary, or a node that answers the order of this run, or of the one that left its canary, and is
// of no pool.
func (r *Run) canaryByMachine(ctx context.Context, n Node) (name string, ok bool) {
	if name, ok = r.proof.machines[n.ProviderID]; ok {
		return name, true
	}
	l := r.held.lease
	if _, own := n.Report(l.Record.Nonce); own {
		name = r.canaryName()
	} else if _, left := n.Report(l.Ledger.CanaryNonce); left {
		name = l.Ledger.Canary
	} else {
		return "", false
	}
	_, err := r.engine.Provider.PoolOf(ctx, n.ProviderID)
	return name, errors.Is(err, ErrUnsupported)
}

// mayRemove: the canary's run is this one or has certainly ended, or its time is over.
func (r *Run) mayRemove(c Canary) bool {
	l := r.held.lease
	ended := slices.ContainsFunc(l.Ledger.Past, func(p PastRun) bool { return p.Run == c.Run })
	return c.Run == r.held.run || c.Name == l.Record.Canary && r.knownCanary(c.Name) || ended || !c.Expires.After(r.engine.now())
}

func judgeProbe(s Sight, b Bounds) (Outcome, string) {
	p := s.Probe
	switch {
	case !p.Wanted || !s.there():
		return ProofPassed, "none wanted"
	case p.Failed:
		return ProofFailed, "it failed" + inBrackets(p.Reason)
	case p.Done:
		return ProofPassed, "it succeeded"
	case !p.Started:
		return s.byAndBy(b, ProofInconclusive, "it was not started")
	case p.Owed:
		return s.byAndBy(b, ProofInconclusive, "it waits for something that does not exist"+inBrackets(p.Reason))
	}
	return s.byAndBy(b, ProofFailed, "it has not ended"+inBrackets(p.Reason))
}

// proofAbandoned is told of a version that is tagged as being proved, where nobody does that any
// more. No tag says so.
const proofAbandoned = "abandoned"

// proves: a canary of the version is there, or a run that lives is about to make or remove one.
func (o overview) proves(v Artifact, now time.Time) bool {
	u := o.lease.Unfinished(now)
	return u != nil && u.Alive && u.Version == v.Name ||
		slices.ContainsFunc(o.canaries, func(c Canary) bool { return strings.EqualFold(c.Version, v.ID) })
}

// Proved tells how a version passed its proof.
type Proved struct {
	By           ProveMode `json:"by"`
	Node         string    `json:"node"`
	ReadySeconds float64   `json:"readySeconds,omitempty"` // from a machine that runs to its Ready node
	Checks       int       `json:"checks"`                 // that passed
	// Left are the checks, or the parts of them, that had nothing to compare with.
	Left []Finding `json:"notApplicable,omitempty"`
}

// proved tells how the version of a run passed.
func (r *Run) proved() *Proved {
	without, s, passed := r.opts.Proof.Without, r.proof.sight, map[string]bool{}
	p := &Proved{By: r.proof.mode, Node: cmp.Or(s.Node.Name, s.Canary.Hostname), ReadySeconds: s.boot().Seconds()}
	for _, f := range r.proof.findings {
		if passed[f.Check] = passed[f.Check] || f.Outcome == ProofPassed; f.Outcome == ProofNotApplicable {
			p.Left = append(p.Left, f)
		}
	}
	p.Checks = len(slices.DeleteFunc(Checks(), func(name string) bool {
		return slices.Contains(without, name) || name == "probe" && r.opts.Proof.Probe == nil || !passed[name]
	}))
	return p
}

// uncompared are the parts of checks for which a version without a seal receipt tells nothing.
func (s Sight) uncompared(b Bounds) (left []Finding) {
	if !s.Unsealed {
		return nil
	}
	for _, f := range []Finding{
		{"identity", ProofNotApplicable, "the SSH host keys of the machine that the version was made of are unknown, so the canary's cannot be compared"},
		{"capacity", ProofNotApplicable, "the version has no donor to compare it with"},
		{"report", ProofNotApplicable, "no receipt lists the packages on the version's disk"},
	} {
		if !slices.Contains(b.Without, f.Check) {
			left = append(left, f)
		}
	}
	return left
}

// justNow is how old a read of the cloud may be that stands for another one: less than passes
// between a read and what is done about it anyway.
const justNow = 2 * time.Second

// canaries lists the pool's, unless that was done just now, and nothing was done to them since.
func (r *Run) canaries(ctx context.Context) ([]Canary, error) {
	p := &r.proof
	if elapsed(p.listedAt, r.engine.now()) <= justNow {
		return p.listed, nil
	}
	list, err := r.listCanaries(ctx)
	if err == nil {
		p.listed, p.listedAt = list, r.engine.now()
	}
	return list, err
}

func (r *Run) listCanaries(ctx context.Context) ([]Canary, error) {
	prover, _, _ := r.engine.prover()
	list, err := prover.Canaries(ctx, r.pool)
	if err != nil {
		return nil, fmt.Errorf("list canaries of pool %s: %w", r.pool.Name, err)
	}
	return list, nil
}

// retireLeft removes the canary, or its Node object, that the proof before could not.
func (e *Engine) retireLeft(ctx context.Context, o overview) error {
	return e.underLease(ctx, o.pool, []Step{{Name: InRetire, Does: "remove canaries", When: (*Run).makesCanaries, Look: (*Run).lookRetire, Patient: true}}, nil)
}

// lookProvable makes sure that the version which a person named can be proved beside the pool.
func (r *Run) lookProvable(ctx context.Context) (Next, error) {
	return done("a canary can be created"), r.chooseProof(ctx)
}

// lookNamed reads, under the lease, the version that a person named.
func (r *Run) lookNamed(ctx context.Context) (Next, error) {
	o, err := r.overviewNow(ctx)
	if err != nil {
		return Next{}, err
	}
	i := indexOf(o.versions, r.opts.Version)
	if i < 0 && r.runner.Spent() < goneAfter {
		return wait("version " + r.opts.Version + ", which is not listed, to be listed or to be confirmed gone"), nil
	} else if i < 0 {
		return Next{}, fmt.Errorf("version %s is gone: there is nothing to prove", r.opts.Version)
	}
	r.pool = o.pool
	if err := r.refusePinned(ctx, o.versions); err != nil {
		return Next{}, err
	} else if err := o.provable(o.versions[i]); err != nil {
		return Next{}, inTheWay{err}
	}
	t := target{version: &o.versions[i], points: r.opts.offers || r.opts.ImageReference != ByVersion && o.follows(""), offered: r.opts.offers}
	if err := r.engine.comeToPoint(ctx, &o, &t, r.opts.ImageReference); err != nil {
		return Next{}, err
	}
	r.image.reference = t.spec().Reference
	r.image.version, r.image.preBuilt, r.image.there = o.versions[i], true, true
	if o.versions[i].Tags[TagReceipt] == "" {
		r.doubt(InVersion, "whether the disk of version "+r.opts.Version+" holds the identity and the secrets of the machine that it was made of: it has no seal receipt")
	}
	return done(r.opts.Version + " is there"), nil
}

// provable says why a version cannot be proved before new nodes boot from it.
func (o overview) provable(v Artifact) error {
	now := o.next()
	switch {
	case v.Tags[TagBad] != "":
		return WithHint(fmt.Errorf("version %s of pool %s is withdrawn: %s", v.Name, o.pool.Name, v.Tags[TagBad]),
			"to use it all the same: kamino rollback --pool %s --to %s", o.pool.Name, v.Name)
	case now != nil && now.Name == v.Name:
		return WithHint(fmt.Errorf("new nodes of pool %s already boot from version %s: it can no longer be proved first", o.pool.Name, v.Name),
			"go back to another one, or exclude this one from latest, and then prove it; kamino status lists the versions")
	case now != nil && CompareVersions(now.Name, v.Name) > 0:
		return WithHint(fmt.Errorf("version %s of pool %s is older than %s, which new nodes boot from", v.Name, o.pool.Name, now.Name),
			"kamino rollback --pool %s --to %s goes back to it", o.pool.Name, v.Name)
	}
	return nil
}
