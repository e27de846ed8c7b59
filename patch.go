package kamino

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Names of what a patch writes on a node.
const (
	// AnnotationPatch and AnnotationPatchLook are the node's answers to the orders of a run that
	// patches it: a PatchReport, compressed, with the nonce of the run.
	AnnotationPatch     = "kamino.dev/patch"
	AnnotationPatchLook = "kamino.dev/patch-look"
	// AnnotationPatchFailed is a PatchFailure as JSON, on a node that stays blocked.
	AnnotationPatchFailed = "kamino.dev/patch-failed"
	// TaintPatchFailed blocks a node that did not come back in order; its prefix is TaintBlock's.
	TaintPatchFailed = "status-taint.cluster-autoscaler.kubernetes.io/kamino-patch-failed"
	// LabelPatched tells when a node was patched, as PatchedFormat. A kubelet cannot write it on
	// its own node, nor register with it (admission plugin NodeRestriction,
	// https://kubernetes.io/docs/reference/access-authn-authz/admission-controllers/#noderestriction).
	LabelPatched = "kamino.node-restriction.kubernetes.io/patched"
	// PatchedFormat is RFC 3339 without the colons, which values of labels may not have.
	PatchedFormat = "2006-01-02T150405Z"
)

// RebootMode says when a patched node is restarted.
type RebootMode string

// The modes.
const (
	RebootAuto   RebootMode = "auto" // where what was upgraded needs it
	RebootAlways RebootMode = "always"
	RebootNever  RebootMode = "never"
)

// PatchOrder is what the user decides about a patch.
type PatchOrder struct {
	Manager string        // "" unattended-upgrades where it is installed, else the package manager
	Scope   string        // all, security, or "" for what the manager is configured for
	Held    string        // "upgrade": packages on hold too
	Phased  string        // always, never, or "": Ubuntu's phased updates
	Release string        // releasever of dnf
	RoomMiB int           // that the node's disk must have free; 0: 1024
	Within  time.Duration // for the package manager
	Reboot  RebootMode
	// Return is how long a node may take to boot before it is power-cycled, and again after that.
	Return time.Duration
	// Settle is how long the node must be in order before it is signed.
	Settle time.Duration
}

// PatchOptions are the options of Patch.
type PatchOptions struct {
	Options     // of each run; Donor names the one node to patch, "" chooses in Pool
	Order       PatchOrder
	Pool        string // name or ID
	Nodes       int    // to patch, one after the other
	Retries     int    // candidates to try besides, where one is refused or does not come back
	Rules       Rules
	MaxAway     int // see AutoOptions
	MaxNotReady int
}

// PatchDefaults patch one node.
func PatchDefaults() PatchOptions {
	all := AutoDefaults()
	o := PatchOptions{Options: all.Options, Nodes: 1, Retries: 1, MaxAway: 1, MaxNotReady: all.MaxNotReady,
		Order: PatchOrder{Within: time.Hour, Reboot: RebootAuto, Return: 10 * time.Minute, Settle: time.Minute}}
	o.Proof = Proving{Mode: ProveNone, Promote: PromoteAuto}
	return o
}

// Validate checks the options by themselves.
func (o PatchOptions) Validate() error {
	switch w := o.Order; {
	case o.Pool != "" && o.Donor != "":
		return WithHint(fmt.Errorf("--pool %s and --target-node %s are mutually exclusive", o.Pool, o.Donor), "use --pool for the best nodes of a pool, or --target-node for one node")
	case o.Pool+o.Donor == "":
		return WithHint(errors.New("no pool and no node named"), "use --pool or --target-node; kamino status lists the pools")
	case o.Nodes < 1 || o.Nodes > 3:
		return WithHint(fmt.Errorf("invalid number of nodes %d", o.Nodes), "use --nodes 1 to 3: the image renews the others")
	case o.Retries < 0:
		return WithHint(fmt.Errorf("invalid number of retries %d", o.Retries), "use --retries 0 or more")
	case w.Reboot != RebootAuto && w.Reboot != RebootAlways && w.Reboot != RebootNever:
		return WithHint(fmt.Errorf("invalid reboot mode %q", w.Reboot), "use --reboot auto, always or never")
	case w.Within < time.Minute || w.Within > 4*time.Hour:
		return WithHint(fmt.Errorf("invalid time limit %s", w.Within), "use --timeout 1m to 4h")
	case w.Return < time.Minute || w.Settle < 0:
		return WithHint(fmt.Errorf("invalid time for a boot %s or to be healthy %s", w.Return, w.Settle), "use --return 1m or more, and --min-ready 0 or more")
	}
	run := o.Options
	run.Donor = cmp.Or(o.Donor, "to be chosen")
	return run.Validate()
}

// PatchFailure is why a node stays blocked.
type PatchFailure struct {
	Run    string    `json:"run"`
	Reason string    `json:"reason"`
	At     time.Time `json:"at"`
}

// failedPatch says whether a node stays blocked after a run.
func (n Node) failedPatch(run string) bool {
	b := n.blocked()
	return b != nil && b.Run == run
}

// PatchReport is what the agent did, or saw; agent/patch has its writer.
type PatchReport struct {
	Boot        string         `json:"boot"` // ID of the boot in which this was so
	Manager     string         `json:"manager,omitempty"`
	Changed     []PackageMoved `json:"changed"`
	Kept        []string       `json:"kept,omitempty"`   // packages on hold
	Reboot      []string       `json:"reboot,omitempty"` // why the machine has to be restarted
	Running     string         `json:"runningKernel,omitempty"`
	Newest      string         `json:"newestKernel,omitempty"`
	FailedUnits []string       `json:"failedUnits,omitempty"`
	Failure     string         `json:"failure,omitempty"`
	Last        string         `json:"last,omitempty"` // the last lines of the package manager
	Seconds     float64        `json:"seconds,omitempty"`
}

// PackageMoved is a package whose version changed; "" is not installed.
type PackageMoved struct {
	Name string `json:"name"`
	Arch string `json:"architecture,omitempty"`
	From string `json:"from,omitempty"`
	To   string `json:"to,omitempty"`
}

// reportMost bounds a report, in bytes.
const reportMost = 4 << 20

// patchAnswer reads what the node wrote for an order of a run.
func (n Node) patchAnswer(annotation, run, nonce string) *PatchReport {
	var answer struct {
		Run, Nonce string
		Report     []byte
	}
	if readPlain([]byte(n.Annotations[annotation]), &answer) != nil || answer.Run != run || answer.Nonce != nonce {
		return nil
	}
	text, err := unpack(answer.Report, reportMost)
	if err != nil {
		return nil
	}
	var report PatchReport
	if json.Unmarshal(text, &report) != nil {
		return nil
	}
	last := strings.Split(strings.TrimRight(report.Last, "\r\n"), "\n") // the one text of several lines
	PlainAll(&last)
	PlainAll(&report)
	report.Last = strings.Join(last, "\n")
	return &report
}

// summary is one line for people.
func (p *PatchReport) summary() string {
	text := fmt.Sprintf("%d packages changed by %s", len(p.Changed), p.Manager)
	if len(p.Changed) == 0 {
		text = "nothing to upgrade, according to " + p.Manager
	}
	if len(p.Kept) > 0 {
		text += "; on hold: " + someOf(p.Kept)
	}
	if len(p.Reboot) > 0 {
		text += "; a reboot is needed: " + strings.Join(p.Reboot, "; ")
	}
	return text
}

// PatchResult is what Patch did with a pool.
type PatchResult struct {
	Pool  PoolID        `json:"pool"`
	Nodes []PatchedNode `json:"nodes"` // in the order in which they were taken
	// Candidates are the nodes that were considered; Rank is 0 of those that were not taken.
	Candidates []Candidate `json:"candidates"`
	Unfinished *Unfinished `json:"unfinishedRun,omitempty"` // of a plan: the run that has the pool
}

// PatchedNode is what was done with one node.
type PatchedNode struct {
	Node      string       `json:"node"`
	Run       string       `json:"run,omitempty"`
	Report    *PatchReport `json:"report,omitempty"`
	Restarted bool         `json:"restarted"`
	Cycled    bool         `json:"powerCycled,omitempty"`
	Signed    string       `json:"signed,omitempty"`  // when it was patched, as on its label
	Blocked   bool         `json:"blocked,omitempty"` // it did not come back in order and stays blocked
	Steps     []StepTime   `json:"steps,omitempty"`
	Warnings  []string     `json:"warnings,omitempty"`
	Error     string       `json:"error,omitempty"`
	Hints     []string     `json:"hints,omitempty"` // what to do about the error
}

// Patch upgrades the packages of a few nodes of a pool, the best candidates first, each with the
// care that a donor gets. A node that does not come back in order stays blocked, and the next
// candidate is tried.
func (e *Engine) Patch(ctx context.Context, opts PatchOptions) (PatchResult, error) {
	result, o, err := e.patchCandidates(ctx, opts)
	if err != nil {
		return result, err
	}
	t := &turns{most: opts.MaxAway, maxNotReady: opts.MaxNotReady, away: map[PoolID]bool{}, ours: map[PoolID]bool{o.id: o.lease.Holder != ""}}
	return result, e.patchIn(ctx, opts, t, o, &result)
}

// PlanPatch is Patch without doing anything: the candidates, by rank.
func (e *Engine) PlanPatch(ctx context.Context, opts PatchOptions) (PatchResult, error) {
	result, o, err := e.patchCandidates(ctx, opts)
	if err == nil {
		o.date(result.Candidates)
		result.Unfinished, err = o.unfinished(e.now()), e.refusePaused(ctx)
	}
	return result, err
}

func (e *Engine) patchCandidates(ctx context.Context, opts PatchOptions) (result PatchResult, o overview, err error) {
	if err := opts.Validate(); err != nil {
		return result, o, err
	}
	if _, ok := e.Cluster.(Patcher); !ok {
		return result, o, fmt.Errorf("patch: %w", ErrUnsupported)
	}
	pool := opts.Pool
	if opts.Donor != "" {
		n, err := e.namedNode(ctx, opts.Donor)
		if err != nil {
			return result, o, err
		}
		id, err := e.namedPool(ctx, n)
		if err != nil {
			return result, o, err
		}
		pool = string(id)
	}
	all, _, err := e.overviews(ctx, []string{pool})
	if err != nil {
		return result, o, err
	}
	if o = all[0]; o.err != nil {
		return result, o, o.err
	}
	result = PatchResult{Pool: o.id, Nodes: []PatchedNode{}, Candidates: SelectPatch(o.nodes, opts, e.now())}
	return result, o, nil
}

// date adds to candidates when they were patched, which has no part in who is patched next.
func (o overview) date(list []Candidate) {
	for i := range list {
		at := slices.IndexFunc(o.nodes, func(n Node) bool { return n.Name == list[i].Node })
		if at < 0 {
			continue
		}
		if patched, found, _ := lastPatch(o.nodes[at], AutoDefaults().Rules.LastPatch); found {
			list[i].Patched = patched.String()
		}
	}
}

func (e *Engine) patchIn(ctx context.Context, opts PatchOptions, t *turns, o overview, result *PatchResult) error {
	names := []string{}
	if u := o.lease.Record; o.lease.Holder != "" && u.Work == WorkPatch && u.Donor != "" {
		names = append(names, u.Donor) // what an ended process left is finished first
	}
	for _, c := range ranked(result.Candidates) {
		if !slices.Contains(names, c.Node) {
			names = append(names, c.Node)
		}
	}
	if opts.Donor != "" {
		names = []string{opts.Donor}
	}
	left, retries := opts.Nodes, opts.Retries
	var errs []error
	for _, name := range names {
		if left == 0 || len(errs) > 0 && retries < 0 {
			break
		}
		if err := t.wait(ctx, e, o); err != nil {
			return errors.Join(append(errs, err)...)
		}
		node, err := e.patchOne(ctx, opts, name)
		t.leave(o.id)
		result.Nodes = append(result.Nodes, node)
		if err == nil {
			left--
			continue
		}
		errs = append(errs, fmt.Errorf("node %s: %w", name, err))
		if ctx.Err() != nil || !nextMayDo(err) && !node.Blocked {
			if left == opts.Nodes {
				return errors.Join(errs...)
			}
			break // with the count: a refusal alone would say that nothing was changed
		}
		if !ofNode(Refusals(err)) {
			retries--
		}
	}
	switch {
	case left == 0:
		return nil // what went wrong before stands in the result
	case left < opts.Nodes || len(errs) == 0:
		errs = append(errs, fmt.Errorf("%d of %d nodes of pool %s patched", opts.Nodes-left, opts.Nodes, o.id.Name()))
	}
	return WithHint(errors.Join(errs...), "kamino patch --pool %s --dry-run shows why each node was chosen or not", o.id.Name())
}

// patchOne patches one node, or gives back all but the block of one that is not in order.
func (e *Engine) patchOne(ctx context.Context, opts PatchOptions, name string) (PatchedNode, error) {
	run := opts.Options
	run.Donor, run.Patch, run.PendingReboot, run.RequireLabels = name, &opts.Order, nil, nil
	r := e.newRun(run)
	err := r.exec(ctx, PatchPipeline())
	if err != nil {
		r.held.regain(ctx)
	}
	switch {
	case err == nil:
		err = r.stayedOn(ctx)
		err = errors.Join(err, r.release(context.WithoutCancel(ctx), func(l *Lease) {
			l.Ledger.passed(r.pastPatch(l.Record))
			l.Record = Record{}
		}))
	case r.held.lease != nil && !errors.Is(err, ErrLeaseLost):
		err = r.abandon(ctx, err)
	}
	out := r.empty.patch.PatchedNode
	if out.Blocked && ctx.Err() != nil {
		err = WithHint(err, "node %s stays blocked: kamino patch --target-node %s continues and examines it", name, name)
	}
	out.Node, out.Run, out.Steps, out.Warnings = name, r.held.run, r.result.Steps, append(out.Warnings, r.result.Warnings...)
	if err != nil {
		out.Error, out.Hints = err.Error(), Advice(err)
	}
	return out, err
}

// pastPatch is the run in the history of its pool.
func (r *Run) pastPatch(rec Record) PastRun {
	p, now := r.empty.patch, r.engine.date()
	past := PastRun{Run: r.held.run, Donor: r.donor.node.Name, Work: WorkPatch, Ended: now, Seconds: now.Sub(rec.Started).Seconds(), AwaySeconds: rec.away().Seconds()}
	if p.Report != nil {
		past.Packages = len(p.Report.Changed)
	}
	return past
}

// work is what the run does with the node that it takes.
func (r *Run) work() Work {
	switch {
	case r.opts.Patch != nil:
		return WorkPatch
	case r.opts.Version != "":
		return WorkProve
	}
	return ""
}
