package kamino

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Outcome is what a check, or all of them together, say of an image.
type Outcome string

// The outcomes. Failed is evidence from the clone itself; Inconclusive is what cloud, API server or
// registry are to blame for, or what nobody can tell. NotApplicable is what a check has nothing to
// compare with for: it neither passes nor convicts, and is told.
const (
	ProofPassed        Outcome = "pass"
	ProofFailed        Outcome = "fail"
	ProofInconclusive  Outcome = "inconclusive"
	ProofWaits         Outcome = "wait"
	ProofNotApplicable Outcome = "not applicable"
)

// Finding is what one check found.
type Finding struct {
	Check    string  `json:"check"`
	Outcome  Outcome `json:"outcome"`
	Evidence string  `json:"evidence"` // for people
}

// String is for terminals and tags, without the control characters that a node may have sent, those
// of eight bits included.
func (f Finding) String() string {
	return f.Check + ": " + Plain(f.Evidence)
}

// Bounds are the limits of an examination.
type Bounds struct {
	Boot    time.Duration            // from a machine that runs to a node that is Ready
	Bake    time.Duration            // for which it is watched from then on
	History time.Duration            // how long the pool's canaries took before, the median; 0: not known
	Phases  map[string]time.Duration // the same of each phase of their boot, by name
	Baked   []Baked                  // how they did once they were Ready
	Without []string                 // checks that are left out
}

// ProveMode says how a version is proved before it is what the pool's nodes boot from.
type ProveMode string

// The modes.
const (
	ProveCanary ProveMode = "canary" // by one instance beside the pool
	ProveNone   ProveMode = "none"
)

// PromoteMode says who makes a version that passed what the pool's nodes boot from.
type PromoteMode string

// The modes.
const (
	PromoteAuto   PromoteMode = "auto"
	PromoteManual PromoteMode = "manual" // a person, with kamino promote
)

// Proving is what the user decides about proofs.
type Proving struct {
	Mode   ProveMode
	For    time.Duration // how long a canary is watched once its node is Ready
	Budget time.Duration // for its boot, from a machine that runs to a node that is Ready
	// Times makes the budget so many times what good canaries of the pool usually took, once that
	// is known; 0: it is Budget.
	Times   float64
	Promote PromoteMode
	Probe   []byte   // a Job as YAML or JSON that must succeed on the canary; nil for none
	Without []string // checks that are left out
}

// Checks lists the names of the checks of a proof, in the order in which they are told.
func Checks() []string {
	return []string{"cloud", "identity", "apart", "certificate", "ready", "boot", "stable", "labels", "capacity", "pressure", "clock", "images",
		"daemonsets", "report", "units", "reboot", "probe"}
}

func (p Proving) validate() error {
	switch {
	case p.Mode != ProveCanary && p.Mode != ProveNone:
		return WithHint(fmt.Errorf("invalid proof mode %q", p.Mode), "use --prove canary or none")
	case p.Promote != PromoteAuto && p.Promote != PromoteManual:
		return WithHint(fmt.Errorf("invalid promotion mode %q", p.Promote), "use --promote auto or manual")
	case p.Mode != ProveNone && p.Budget < time.Minute:
		return WithHint(fmt.Errorf("boot budget %s is too short", p.Budget), "use --boot-budget 1m or more")
	case p.Times != 0 && !(p.Times >= 1 && p.Times <= 100):
		return WithHint(fmt.Errorf("invalid boot budget %gx", p.Times), "use --boot-budget 2x, or any factor from 1 to 100; or a time, as 10m")
	case p.For < 0 || p.For > 24*time.Hour:
		return WithHint(fmt.Errorf("invalid time for a proof: %s", p.For), "use --prove-for 0 to 24h")
	}
	for _, name := range p.Without {
		if !slices.Contains(Checks(), name) {
			return WithHint(fmt.Errorf("unknown check %q", name), "the checks are %s", strings.Join(Checks(), ", "))
		}
	}
	return nil
}

// validate checks the options of a proof by themselves.
func (o PromoteOptions) validate() error {
	if o.ImageReference != "" && o.ImageReference != ByVersion {
		return WithHint(fmt.Errorf("invalid image reference %q", o.ImageReference), "use version, or omit it: the model names the image definition then")
	}
	switch p := o.Proof; {
	case p == nil:
		return nil
	case p.Mode != ProveCanary:
		return WithHint(fmt.Errorf("%q cannot prove a version before its promotion", p.Mode), "use --prove canary, or omit it")
	case o.Version == "":
		return WithHint(errors.New("no version to prove is named"), "name it with --version: kamino status lists them")
	}
	return o.Proof.validate()
}

// ProofError says that a version was not promoted because of its proof. Failed: it is withdrawn.
// Inconclusive: it stays hidden, and the next run proves it again.
type ProofError struct {
	Version  string
	Outcome  Outcome
	Findings []Finding // the first is the reason
	// Kept says that new nodes boot from it all the same: no version could take its place.
	Kept bool
}

func (e *ProofError) Error() string {
	word := "the proof of version " + e.Version + " is inconclusive"
	if e.Outcome == ProofFailed {
		word = "version " + e.Version + " failed its proof"
	}
	return word + ": " + e.reason()
}

func (e *ProofError) reason() string {
	if len(e.Findings) == 0 {
		return "unknown reason"
	}
	return e.Findings[0].String()
}

// The reasons of Warning events on nodes.
const (
	EventProofFailed       = "KaminoProofFailed"
	EventProofInconclusive = "KaminoProofInconclusive"
	EventPatchFailed       = "KaminoPatchFailed"
	EventRunFailed         = "KaminoRunFailed"
	EventDonorAway         = "KaminoDonorAway"
)

// omit notes on a version that it becomes what new nodes boot from without the proof that it was to
// pass, before it does: else whoever comes next would go on with the proof, or take it back.
func (r *Run) omit(v Artifact) Next {
	v = v.with(TagProof, proofOmitted)
	return act(ActMarkVersion, "record on version "+v.Name+" that it is accepted without a proof", func(ctx context.Context) error {
		return r.engine.Provider.SetTags(ctx, r.pool, v)
	}).of(v.Name)
}

// proves: versions of this run are proved, one way or another.
func (r *Run) proves() bool {
	_, looks := r.engine.Cluster.(Examiner)
	return looks && r.proof.mode != ProveNone
}

// hide is a version as the run makes it that is hidden from birth.
func (r *Run) hide(v Artifact) Artifact {
	if v = v.offering(offerHidden); r.proves() {
		v.Tags[TagProof] = proofWanted
	}
	return v
}

// proof is what a run knows of the proof of its version.
type proof struct {
	mode     ProveMode // once it was decided; "" before
	fit      CanaryFit
	sight    Sight
	asked    time.Time             // when the cloud was last asked
	whole    time.Time             // when all of sight was last read
	seen     time.Time             // when the cluster's part of it was
	denied   error                 // why the cloud refused to make the canary
	listed   []Canary              // as the cloud last listed them
	listedAt time.Time             // when that was; zero once something was done to them
	absent   time.Time             // when no canary was listed any more
	leaves   bool                  // it was seen to be deleted
	shown    bool                  // it was listed: once its end was asked for and it is not any more, it is gone
	removed  map[string]bool       // canaries whose end this process has asked for
	machines map[InstanceID]string // canaries by their machines, as they were listed
	kept     map[string]string     // canaries that may not be removed, with the reason
	error    *ProofError           // how it ended, to be written on the version
	passed   bool
	findings []Finding // with which it passed
	blind    time.Time // since when reads fail that may work again; zero: they do not
}

// ofCanary says whether a pool is no pool but what a canary is made of: CanaryName.
func (p PoolID) ofCanary() bool {
	hash, ok := strings.CutPrefix(p.Name(), canaryPrefix)
	return ok && len(hash) == 8 && strings.Trim(hash, "0123456789abcdef") == ""
}

const canaryPrefix = "kamino-"

// HowToPromote is the command with which a person promotes a version.
func HowToPromote(pool, version string) string {
	return "kamino promote --pool " + pool + " --version " + version
}

// prover is the provider as one that makes canaries, with the cluster that examines them.
func (e *Engine) prover() (Prover, Examiner, bool) {
	prover, can := e.asked().(Prover)
	examiner, looks := e.Cluster.(Examiner)
	return prover, examiner, can && looks
}

// makesCanaries: the provider can, so there may be some.
func (r *Run) makesCanaries() bool { _, _, ok := r.engine.prover(); return ok }

// leftCanaries lists the canaries of a pool that runs left, by reading only.
func (r *Run) leftCanaries(ctx context.Context) ([]Left, error) {
	if !r.makesCanaries() {
		return nil, nil
	}
	list, err := r.listCanaries(ctx)
	if err != nil {
		return nil, err
	}
	left := make([]Left, len(list))
	for i, c := range list {
		left[i] = Left{Pool: r.pool.ID, Run: c.Run, Node: c.Hostname, What: "canary " + c.Name, kept: c.Name}
	}
	return left, nil
}

// ProvePipeline is the list of steps that prove a version which a person named, in order.
func ProvePipeline() []Step {
	return []Step{
		{Name: InConnect, Does: "check that the credentials work and that every needed action is allowed",
			Look: (*Run).lookConnect, Limit: 30 * time.Second},
		{Name: InValidate, Does: "check that a canary of the pool can be created",
			Look: (*Run).lookProvable, Limit: 30 * time.Second},
		{Name: InLock, Does: "take the pool's lease", Back: "released",
			Look: (*Run).lookFreeLock, Limit: 5 * time.Minute, Takes: "the lease"},
		{Name: InVersion, Does: "read the version", Look: (*Run).lookNamed, Patient: true},
		{Name: InLaunch, Does: "start one instance from the version beside the pool", Back: "removed",
			Look: (*Run).lookLaunch, Patient: true, Plan: (*Run).planLaunch, Takes: "the canary", Until: InRetire},
		{Name: InJoin, Does: "wait for the canary's node, cordon it and remove its taint",
			Look: (*Run).lookJoin, Patient: true, Limit: proofLimit},
		{Name: InExamine, Does: "examine the canary: Ready in time, itself, and as its siblings are",
			Look: (*Run).lookExamine, Patient: true, Limit: unlimited},
		{Name: InModel, Does: "make the version what the pool's next node boots from",
			Look: (*Run).lookModel, Patient: true},
		{Name: InRetire, Does: "remove the canary and its Node object", Look: (*Run).lookRetire, Patient: true, Spare: true},
	}
}

// proveNamed proves a version, and promotes it where it passes. What is left of a killed one is
// taken back by whoever comes next, as of any run.
func (e *Engine) proveNamed(ctx context.Context, o overview, t target, opts PromoteOptions) (Rollback, error) {
	back, err := e.point(ctx, o, t, nil, true)
	if err != nil {
		return back, err
	}
	run := t.options()
	run.ImageReference, run.Version, run.Unsealed, run.Proof, run.PendingReboot = opts.ImageReference, t.version.Name, opts.AcceptUnsealed, *opts.Proof, opts.PendingReboot
	r, began := e.newRun(run), e.now()
	if r.pool, back.Changed, back.Unproved = o.pool, true, false; opts.DryRun {
		r.held.lease = &o.lease
		_, err := r.lookProvable(ctx)
		back.Canary = r.planLaunch()
		return back, err
	}
	if err = r.exec(ctx, ProvePipeline()); err != nil {
		r.held.regain(ctx)
	}
	switch {
	case err == nil:
		back.ModelDiff, back.Proof = append(back.ModelDiff[:0], r.result.ModelDiff...), r.proved()
		err = r.release(context.WithoutCancel(ctx), func(l *Lease) {
			l.Ledger.promoted(t.name(), e.now())
			l.Ledger.passed(PastRun{Run: r.held.run, Work: WorkProve, Pointed: t.name(), Verb: VerbPromote, Ended: e.date(),
				Seconds: e.now().Sub(began).Seconds(), ProofSeconds: r.result.proofSeconds()})
			l.Record = Record{} // it did not fail
		})
	case r.held.lease != nil && !errors.Is(err, ErrLeaseLost):
		err = r.abandon(ctx, err)
	}
	back.Warnings = r.result.Warnings
	return back, r.afterPromotion(err)
}

// budget is for the boot of a pool's canary: a factor of what theirs usually took counts once that
// is known, and as one that no machine is too fast for.
func (p Proving) budget(l Ledger) time.Duration {
	if usual := usually(l.Boots); p.Times > 0 && usual > 0 {
		return max(time.Duration(p.Times*float64(usual)), time.Minute)
	}
	return p.Budget
}

// proofExpected is how long the proof of a version may be expected to take.
func (r *Run) proofExpected() time.Duration {
	boot := 5 * time.Minute
	if usual := usually(r.held.lease.Ledger.Boots); usual > 0 {
		boot = usual
	}
	return boot + r.opts.Proof.For
}
