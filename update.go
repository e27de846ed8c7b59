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

// ImageReference says how a model refers to an image.
type ImageReference string

// The ways to refer to an image: by the definition, which the model then names for good, and of
// which Kamino says what it stands for; or by the version, with a model written at each promotion.
// "" is by the definition, as long as new nodes are seen to follow it and nothing speaks against
// it. By a pointer is for providers alone, those without definitions: what their pools can refer to
// instead.
const (
	ByVersion    ImageReference = "version"
	ByDefinition ImageReference = "definition"
	ByPointer    ImageReference = "pointer"
)

// Options are what the user decides about a run.
type Options struct {
	Donor    string      // node name
	Patch    *PatchOrder // of runs that patch the node and make no image; nil for others
	Version  string      // of runs that prove one which is there, and take no donor; "" for others
	NewNodes int         // how many instances to ask for at the end
	History  int         // how many versions that were promoted to keep, at least 2
	Replicas int         // of the version in the pool's region

	Grace        time.Duration // see DrainOptions.Grace
	DrainTimeout time.Duration // for the whole drain; 0 means nine grace periods
	Force        bool          // see DrainOptions.Force

	ImageReference ImageReference
	Today          Today    // what a version of the same day means
	Self           string   // node that this process runs on, never a donor
	PendingReboot  []Signal // what tells on a node of a reboot to come
	AllowSpot      bool     // take a spot instance as donor
	AdoptModel     bool     // replace an image that somebody else has put into the model
	Unsealed       bool     // prove a version without a seal receipt
	ImageOnly      bool     // make a version, and never write the model
	// RequireLabels must all be on the donor.
	RequireLabels []LabelDemand
	// Proof is what a version goes through before the pool's nodes boot from it.
	Proof Proving
	// SealPolicy says what may stay on the disk, as YAML (docs/agent.md). With
	// one, files that nothing explains refuse the seal; without, they are counted.
	SealPolicy []byte
	// back is of who takes a version back or names one: a next image that another pool shares
	// has to be mended in both.
	back bool
	// offers: a person named the version. With ImageOnly it is offered, and would be left hidden else.
	offers bool
	// Settle is how long cluster-autoscaler is given to see the protection: two of its scan
	// intervals. 0 means that no cluster-autoscaler runs: no wait is for its sake then.
	Settle time.Duration
}

// Defaults are the original's, where it had the option.
func Defaults() Options {
	return Options{
		History: 3, Replicas: 3, Grace: 5 * time.Minute,
		Settle: 20 * time.Second,
		Proof:  Proving{Mode: ProveCanary, For: 10 * time.Minute, Budget: 10 * time.Minute, Promote: PromoteAuto},
	}
}

// Validate checks the options by themselves.
func (o Options) Validate() error {
	switch {
	case o.Donor == "":
		return WithHint(fmt.Errorf("no donor named"), "name the node with --target-node; kubectl get nodes lists them")
	case strings.Contains(o.Donor, "/"):
		return WithHint(fmt.Errorf("invalid node name %q", o.Donor),
			"name the Node object, not its machine: kubectl get nodes -o custom-columns=NAME:.metadata.name,MACHINE:.spec.providerID")
	case o.History < 2:
		return WithHint(fmt.Errorf("history %d is too short: the version in use and one to roll back to must be kept", o.History),
			"use --max-history 2 or more")
	case o.NewNodes < 0:
		return WithHint(fmt.Errorf("invalid number of new nodes %d", o.NewNodes), "use --new-updated-nodes 0 or more")
	case o.ImageOnly && o.ImageReference == ByVersion:
		return WithHint(errors.New("a model that is not written cannot name a new version"), "omit --image-reference or --image-only")
	case o.ImageOnly && o.NewNodes > 0:
		return WithHint(errors.New("--image-only and --new-updated-nodes are mutually exclusive"), "omit one of them")
	case o.Replicas < 1 || o.Replicas > 100:
		return WithHint(fmt.Errorf("%d replicas: a gallery keeps 1 to 100 in a region", o.Replicas), "use --replicas 1 to 100")
	case o.ImageReference != "" && o.ImageReference != ByVersion && o.ImageReference != ByDefinition:
		return WithHint(fmt.Errorf("invalid image reference %q", o.ImageReference), "use --image-reference version or pointer")
	case o.Today != TodayOfDonor && o.Today != TodayOfAny && o.Today != TodayAgain:
		return fmt.Errorf("invalid mode %q for a version of today", o.Today)
	case len(o.SealPolicy) > SealPolicyMost:
		return WithHint(fmt.Errorf("seal policy of %d bytes is too large: at most %d", len(o.SealPolicy), SealPolicyMost),
			"let entries of verify.known name directories instead of files")
	}
	return o.Proof.validate()
}

func (o Options) drainTimeout() time.Duration {
	if o.DrainTimeout > 0 {
		return o.DrainTimeout
	}
	grace := o.Grace
	if grace < 0 {
		grace = Defaults().Grace
	}
	// The original tried three times for three grace periods each.
	return max(9*grace, time.Minute)
}

func (o Options) drainOptions() DrainOptions {
	return DrainOptions{Grace: o.Grace, Within: o.drainTimeout(), Force: o.Force}
}

// StepTime is how long a step of a finished run took.
type StepTime struct {
	Name    string  `json:"name"`
	Seconds float64 `json:"seconds"`
	Skipped bool    `json:"skipped,omitempty"`
}

// Result is what a run did.
type Result struct {
	Run         string        `json:"run"`
	Pool        PoolID        `json:"pool"`
	Donor       string        `json:"donor"`
	Version     string        `json:"version"`
	Image       string        `json:"image"` // ID of the version
	Changed     bool          `json:"changed"`
	Adopted     bool          `json:"adopted,omitempty"` // an unfinished run was taken over
	Steps       []StepTime    `json:"steps"`
	AwaySeconds float64       `json:"donorAwaySeconds"` // 0 if it is not known; of a run that was taken over since its disk began to be sealed
	ModelDiff   []FieldChange `json:"modelDiff"`
	Pruned      []string      `json:"pruned"`
	// Hidden: the version is not offered. Waiting: it is left to kamino promote. Owner writes the
	// model, and every new instance runs Extensions, where kamino does not write the model.
	Hidden     bool        `json:"hidden,omitempty"`
	Waiting    bool        `json:"waiting,omitempty"`
	Next       string      `json:"next,omitempty"` // the version, where the pool's next node boots from it
	Proof      *Proved     `json:"proof,omitempty"`
	Owner      *Owner      `json:"owner,omitempty"`
	Extensions []Extension `json:"extensions,omitempty"`
	// Warnings are what went wrong after the image was in use: things that are
	// left for the next run to clean up.
	Warnings []string `json:"warnings,omitempty"`
}

// Update takes a node as donor and makes its disk the image of its pool. On any
// failure, and when ctx ends, it gives back what it took before it returns; an
// error of giving back is joined to the first.
func (e *Engine) Update(ctx context.Context, opts Options) (Result, error) {
	if err := opts.Validate(); err != nil {
		return Result{}, err
	}
	r, err := e.attempt(ctx, opts)
	if r.held.adopted && r.held.lease == nil && errors.Is(err, errStartedSince) && ctx.Err() == nil {
		// What another process had left could not be gone on with. It is given
		// back, and nothing is in the way of a run of our own.
		r, err = e.attempt(ctx, opts)
	}
	var failed *StepError
	if errors.As(err, &failed) && (failed.Step == InConnect || failed.Step == InValidate) && ctx.Err() == nil {
		if undo := r.giveBackRefused(ctx); undo != nil {
			err = errors.Join(err, undo)
		}
	}
	return r.result, err
}

// attempt makes one run, to its end or until everything is given back.
func (e *Engine) attempt(ctx context.Context, opts Options) (*Run, error) {
	r := e.newRun(opts)
	started := e.now()
	err := r.exec(ctx, Pipeline())
	if err != nil {
		r.held.regain(ctx)
	}
	switch {
	case err == nil:
		err = r.stayedOn(ctx)
		err = errors.Join(err, r.finish(ctx, started))
	case r.held.lease != nil && !errors.Is(err, ErrLeaseLost):
		err = r.abandon(ctx, err)
	}
	if r.held.forgotten() {
		err = errors.Join(err, r.startForgotten(ctx))
	}
	r.fillResult()
	if err == nil {
		r.fillNext()
	}
	return r, r.afterPromotion(err)
}

// afterPromotion adds to what ended a run that its version is promoted, where that was done before
// and the version is not to blame.
func (r *Run) afterPromotion(err error) error {
	proof := (*ProofError)(nil)
	if err == nil || errors.As(err, &proof) || !r.promotedHere() || !r.promotes() || r.result.Hidden || r.modelIsTheirs() {
		return err
	}
	return fmt.Errorf("%w; version %s is promoted: new nodes of pool %s boot from it already", err, r.image.version.Name, r.pool.Name)
}

// finish writes the run into the ledger and frees the pool.
func (r *Run) finish(ctx context.Context, started time.Time) error {
	now := r.engine.now()
	return r.release(context.WithoutCancel(ctx), func(l *Lease) {
		l.Ledger.Owed = nil
		l.Ledger.goneOn()
		l.Ledger.promoted(r.image.version.Name, now)
		if w := l.Ledger.Wrote; r.image.whole && w != nil && strings.EqualFold(w.Image, r.pool.Model.Image) {
			l.Ledger.Wrote = &WrittenModel{Image: w.Image, At: w.At, Seen: true, Whole: true}
		}
		if r.donorUsed() || r.result.Changed {
			l.Ledger.passed(PastRun{Run: r.held.run, Donor: cmp.Or(r.image.version.Tags[TagBuiltFrom], r.donor.node.Name), Version: r.image.version.Name,
				Ended: now.UTC(), Seconds: now.Sub(started).Seconds(), AwaySeconds: r.awayFor().Seconds(), ProofSeconds: r.result.proofSeconds()})
		}
		l.Record = Record{} // it did not fail
	})
}

func (r *Run) fillResult() {
	r.result.Run, r.result.Pool = r.held.run, r.pool.ID
	// What was made before, by this run or another, tells whom it was made of.
	r.result.Donor = cmp.Or(r.image.version.Tags[TagBuiltFrom], r.donor.node.Name)
	r.result.Version, r.result.Image = r.image.version.Name, r.image.version.ID
	r.result.Adopted = r.held.adopted
	if r.modelIsTheirs() {
		r.result.Owner, r.result.Extensions = r.pool.Owner, r.pool.Model.Extensions
	}
	r.result.AwaySeconds = r.awayFor().Seconds()
}

// fillNext tells what a run that ended well leaves to the pool's next node.
func (r *Run) fillNext() {
	r.result.Waiting = r.image.version.hidden() && !r.promotes()
	if !r.result.Waiting && r.promotes() && !r.result.Hidden && !r.modelIsTheirs() {
		r.result.Next = r.image.version.Name
	}
	if r.proof.passed {
		r.result.Proof = r.proved()
	}
}

// proofSeconds is how long the steps of a run took that prove its version.
func (r Result) proofSeconds() (sum float64) {
	for _, s := range r.Steps {
		if slices.Contains([]string{InLaunch, InJoin, InExamine, InRetire}, s.Name) {
			sum += s.Seconds
		}
	}
	return sum
}

func (r *Run) donorUsed() bool { return !r.away.from.IsZero() && !r.away.to.IsZero() }

func (r *Run) awayFor() time.Duration {
	if !r.donorUsed() {
		return 0
	}
	return r.away.to.Sub(r.away.from)
}

// GiveBack gives back what an earlier run left in the pool of a node with which no run can be tried
// now. A run that lives is left alone; a node that is unknown or of no pool is no error.
func (e *Engine) GiveBack(ctx context.Context, donor string) error {
	return e.newRun(Options{Donor: donor}).giveBackRefused(ctx)
}

// giveBackRefused gives back what an earlier run left in the pool of a donor that this run may not
// take: what was taken is given back whatever has become of it since, and whatever right is missing
// that only a new run needs.
func (r *Run) giveBackRefused(ctx context.Context) error {
	if r.donor.node.Name == "" { // nothing was read yet
		var err error
		if r.donor.node, err = r.engine.Cluster.Node(ctx, r.opts.Donor); err != nil {
			return nil // the run's own error tells why
		}
	}
	id, err := r.engine.poolOf(ctx, r.donor.node)
	if err != nil || id == "" {
		return err
	}
	lease, err := r.engine.Cluster.Lease(ctx, id)
	if err != nil {
		return fmt.Errorf("read lease of pool %s: %w", id.Name(), err)
	}
	mark, err := r.donor.node.taken(id, lease)
	if lease.Holder == "" && (err != nil || mark == nil) {
		return nil
	}
	nodes, err := r.engine.nodesOf(ctx, id)
	if err != nil {
		return err
	}
	_, err = r.engine.clear(ctx, overview{id: id, lease: lease, nodes: nodes}, RestoreOptions{})
	if held := (*HeldError)(nil); errors.As(err, &held) {
		return nil // it lives, and gives back what it takes
	}
	return err
}

// abandon gives back everything after a failure. It goes on although ctx may
// have ended: that is when giving back matters most.
func (r *Run) abandon(ctx context.Context, cause error) error {
	interrupted := ctx.Err() != nil
	ctx = context.WithoutCancel(ctx)
	if r.refusedFirst(cause) {
		return errors.Join(cause, r.release(ctx, func(l *Lease) { l.Record = Record{} })) // no run of which to tell
	}
	r.held.givingBack = true
	if rec := r.held.lease.Record; r.held.adopted && rec.Donor != "" && !(rec.Donor == r.donor.node.Name && SameVM(rec.VMID, r.donor.instance.VMID)) {
		// The run that was adopted had another donor, and still has it.
		r.donor.node = Node{Name: rec.Donor}
		r.donor.instance = Instance{ID: rec.Instance, VMID: rec.VMID}
	}
	r.tell(Event{Kind: GivingBack, Percent: -1, Message: cause.Error()})
	errs := []error{cause}
	if err := r.held.persist(ctx, "write failure on", func(l *Lease) {
		l.Record.GivingBack, l.Record.Failure, l.Record.FailedAt, l.Record.Interrupted = true, cutText(cause.Error(), 5*maxFailure), failedStep(cause), interrupted
		if proof := (*ProofError)(nil); errors.As(cause, &proof) {
			l.Record.Proof = proof.Outcome
		}
	}); err != nil {
		if errors.Is(err, ErrLeaseLost) {
			return errors.Join(cause, err)
		}
		errs = append(errs, err)
	}
	if proof := (*ProofError)(nil); !interrupted && r.work() == "" && !errors.As(cause, &proof) { // of others there is one already
		r.warn(ctx, r.donor.node, EventRunFailed, "run "+r.held.run+" failed, and gives back what it took: "+cause.Error(), cause)
	}
	failed := r.giveBack(ctx, cause)
	left := r.exec(ctx, canaryBack())
	if failed == nil && !interrupted && r.work() == "" {
		failed = r.exec(ctx, leftovers())
	}
	failed = errors.Join(failed, left)
	if failed != nil {
		// The lease stays: whoever comes next adopts the run and gives back.
		r.warn(ctx, r.donor.node, EventDonorAway, "run "+r.held.run+" could not give back what it took: "+failed.Error(), nil)
		errs = append(errs, WithHint(fmt.Errorf("give back: %w", failed), "kamino restore"))
		return errors.Join(errs...)
	}
	_ = r.readVerdict(ctx) // what cannot be read is told by the run's own failure
	if err := r.release(ctx, nil); err != nil {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// giveBack gives the donor back, unless that is what has failed already: then
// a person is needed, and hears of it now.
func (r *Run) giveBack(ctx context.Context, cause error) error {
	if r.work() == WorkProve {
		return nil // it takes none
	}
	var s *StepError
	if errors.As(cause, &s) && (s.Step == InStart || s.Step == InReturn) && errors.Is(cause, errOverdue) {
		return errors.New("the donor did not come back in time")
	}
	return r.exec(ctx, restitution())
}

// startForgotten starts the donor of a run whose lease another run holds that does not know of it,
// as after a restore of etcd from a backup: nobody else would.
func (r *Run) startForgotten(ctx context.Context) error {
	rec := r.held.lease.Record
	// The run may have created its seal pod after the lease went back in time: it would seal the disk
	// under the other run.
	removed := r.engine.Cluster.RemoveAgents(context.WithoutCancel(ctx), r.held.run, agentTasks(r.patching(), true))
	if rec.Donor == r.held.lost.Record.Donor {
		return removed
	}
	r.held.before, r.held.lease = rec, nil
	return errors.Join(removed, r.exec(context.WithoutCancel(ctx), []Step{{Name: InStayOn, Does: "start the machine of this run, of which the run that holds the lease does not know",
		Look: (*Run).lookForgotten, Limit: returnLimit, Stubborn: true}}))
}

// lookForgotten starts a machine, and watches it for a while: one that is sealed switches itself
// off, and a node that was off a moment ago still shows that it is Ready. Only then the machine is
// put back in service.
func (r *Run) lookForgotten(ctx context.Context) (Next, error) {
	if r.runner.Spent() >= 2*guestHalt {
		return r.lookOn(ctx)
	}
	was := r.held.before
	next, err := r.lookPower(ctx, was.Donor, Instance{ID: was.Instance, VMID: was.VMID})
	if err == nil && next.kind == nextDone {
		return wait("a sealed machine to switch itself off"), nil
	}
	return next, err
}

// stayedOn looks at the donor of an adopted run once more before its lease is freed, and at the
// marks of a run whose lease went back in time: they may have come back with it.
func (r *Run) stayedOn(ctx context.Context) error {
	if !r.held.remade.IsZero() && r.donor.node.Name != "" && !r.held.givingBack {
		if err := r.exec(ctx, []Step{{Name: InReturn, Does: "remove the block and the protection if they came back", Look: (*Run).lookReturn, Limit: returnLimit, Stubborn: true}}); err != nil {
			return err
		}
	}
	if r.held.before.Instance == "" {
		return nil
	}
	return r.exec(ctx, stayOn())
}
