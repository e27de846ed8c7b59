package kamino

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// AutoOptions are what the user decides about choosing donors by themselves.
type AutoOptions struct {
	Options                     // of each run; Donor is chosen
	Pools         []string      // names or IDs; none means all
	Rules         Rules         // Image, AnyPatch and Bad are filled in per pool
	MinCandidates int           // fewer: the pool is left alone
	MaxImageAge   time.Duration // an older image is renewed without newer patches; 0: never
	// MaxAway is how many donors may be away in the cluster at the same time,
	// those of other processes included; 0 means any number.
	MaxAway int
	// MaxNotReady is how many other nodes of the cluster may be NotReady when a
	// donor is taken. Cluster-autoscaler ignores a pool once three of its nodes
	// are not ready (--ok-total-unready-count,
	// https://github.com/kubernetes/autoscaler/blob/master/cluster-autoscaler/FAQ.md).
	MaxNotReady int
	// Patch, where set, patches nodes of each pool first; its pool and donor are filled in. What is
	// selected, made and proved then has the patches.
	Patch *PatchOptions
}

// AutoDefaults are the original's, where it had the option.
func AutoDefaults() AutoOptions {
	return AutoOptions{
		Options: Defaults(),
		Rules: Rules{
			PendingReboot: []Signal{KuredPendingReboot}, LastPatch: []Signal{KuredLastPatch, KaminoPatched}, MinReady: time.Minute,
		},
		MinCandidates: 1, MaxAway: 1, MaxNotReady: 2,
	}
}

// Validate checks the options by themselves.
func (o AutoOptions) Validate() error {
	run := o.Options
	run.Donor = "to be chosen"
	if err := run.Validate(); err != nil {
		return err
	}
	switch {
	case o.MinCandidates < 1:
		return WithHint(fmt.Errorf("invalid number of candidates %d", o.MinCandidates), "use --minimum-candidates 1 or more")
	case o.MaxImageAge < 0:
		return WithHint(fmt.Errorf("maximum age %s is negative", o.MaxImageAge), "use --maximum-image-age 0 for no maximum")
	case o.Rules.MinReady < 0:
		return WithHint(fmt.Errorf("minimum ready time %s is negative", o.Rules.MinReady), "use --minimum-ready-time 0 or more")
	case o.MaxAway < 0:
		return WithHint(fmt.Errorf("invalid number of donors away %d", o.MaxAway), "use --max-unavailable-pools 1 or more, or all")
	case o.MaxNotReady < 0:
		return WithHint(fmt.Errorf("invalid number of NotReady nodes %d", o.MaxNotReady), "use --max-not-ready 0 or more")
	}
	return o.validateRules()
}

func (o AutoOptions) validateRules() error {
	if len(o.Rules.LastPatch) == 0 || len(o.Rules.PendingReboot) == 0 {
		return WithHint(errors.New("selection needs a signal for the last patch and one for a pending reboot"),
			"use --last-patch-annotation and --pending-reboot-annotation")
	}
	for _, list := range [][]string{o.Pools, o.Rules.Ignore, o.Rules.IgnoreAnnotations, o.Rules.FineConditions} {
		for i, s := range list {
			if s == "" {
				return WithHint(errors.New("an empty name in a list"), "omit the flag instead")
			}
			if slices.Contains(list[:i], s) {
				return WithHint(fmt.Errorf("%q is given twice", s), "give it once")
			}
		}
	}
	return o.validateOverlaps()
}

// validateOverlaps refuses names that are given for two purposes.
func (o AutoOptions) validateOverlaps() error {
	for _, s := range slices.Concat(o.Rules.LastPatch, o.Rules.PendingReboot) {
		if slices.Contains(o.Rules.LastPatch, s) && slices.Contains(o.Rules.PendingReboot, s) {
			return WithHint(fmt.Errorf("%s is given for the last patch and for a pending reboot", s),
				"no patched node could ever be chosen: use two different ones")
		}
		if slices.Contains(o.Rules.IgnoreAnnotations, s.Annotation) {
			return WithHint(fmt.Errorf("annotation %s is both a signal and listed for nodes to ignore", s.Annotation),
				"remove it from --node-ignore-annotation")
		}
		if slices.Contains(o.Rules.FineConditions, s.Condition) {
			return WithHint(fmt.Errorf("condition %s is both a signal and listed to be ignored", s.Condition), "remove it from --ignore-condition")
		}
	}
	return nil
}

// run are the options of a run with a donor that nobody named. What an
// interrupted run had begun is gone on with.
func (p PoolPlan) run(o AutoOptions, donor string) Options {
	run := o.Options
	run.Donor = donor
	if run.Today != TodayAgain || Has(p.Why, "unfinished") {
		run.Today = TodayOfAny
	}
	return run
}

// Action is what auto-update does with a pool.
type Action string

// The actions.
const (
	DoNothing Action = "nothing"
	DoUpdate  Action = "update" // make a new prototype of the donor
	DoModel   Action = "model"  // point the model at the newest image, no donor needed
	DoFinish  Action = "finish" // go on with, or give back, what an ended process left
)

// PoolPlan is whether a pool needs a new prototype, why, and from which node.
type PoolPlan struct {
	Pool   PoolID `json:"pool"`
	Name   string `json:"name"`
	Action Action `json:"action"`
	// Why a new prototype is needed, or is not. Codes: no-image, patches, age,
	// model, pointer, unfinished, unproved, waiting, nothing.
	Why []Verdict `json:"why"`
	// Held says why nothing is done although it is needed. Codes:
	// too-few-candidates, refused, today, pinned, foreign-model, no-receipt, promote, paused,
	// image-only, error.
	Held []Verdict `json:"held"`
	// Paused holds whatever would begin in the whole cluster; nil while nothing does.
	Paused *Pause `json:"paused,omitempty"`
	// AfterResume is the action but for the pause, in a plan; donor, run and difference are its.
	AfterResume Action `json:"afterResume,omitempty"`

	Image      string      `json:"image,omitempty"` // newest good version
	Model      string      `json:"model"`           // what the model refers to
	Candidates []Candidate `json:"candidates"`
	// Patches are the nodes that would be patched before the donor is chosen, and those that come
	// next where one cannot be; nil without that.
	Patches []string `json:"patches,omitempty"`
	Donor   string   `json:"donor,omitempty"`
	Models  *Models  `json:"models,omitempty"` // as PoolStatus
	// Refusals are those of the run, where no other candidate would do better.
	Refusals []Refusal `json:"refusals,omitempty"`
	// Run is what the run with that donor would do.
	Run *Plan `json:"run,omitempty"`
	// ModelDiff is what changes with action model.
	ModelDiff []FieldChange `json:"modelDiff,omitempty"`
}

// PlanPools finds out what AutoUpdate would do with the same options, by reading
// only. A pool that cannot be read says so, and its error is joined to the one
// returned.
func (e *Engine) PlanPools(ctx context.Context, opts AutoOptions) ([]PoolPlan, error) {
	if err := opts.Validate(); err != nil {
		return nil, err
	}
	e, ctx = e.planning(), Looking(ctx)
	all, _, err := e.overviews(ctx, opts.Pools)
	if err != nil {
		return nil, err
	}
	plans, errs := make([]PoolPlan, len(all)), make([]error, len(all))
	paused, _ := e.Paused(ctx) // who may not read it is told by the run
	e.inTurn(len(all), noneUrgent, func(own *Engine, i int) {
		o := all[i]
		plans[i], errs[i] = o.decide(opts, e.now()), o.err
		if run := o.lease.Unfinished(e.now()); run != nil && run.Alive && plans[i].Action == DoFinish {
			plans[i].hold("held", "run %s (process %s) is active: its last heartbeat was %.0fs ago", run.Run, run.Process, run.Silence)
		}
		if err := own.detail(ctx, o, opts, &plans[i]); err != nil {
			errs[i] = err
			plans[i].hold("error", "%v", err)
		}
		after := plans[i]
		if plans[i].heldBy(paused); plans[i].Action != after.Action {
			plans[i].AfterResume, plans[i].Donor, plans[i].Run = after.Action, after.Donor, after.Run
		}
	})
	return plans, errors.Join(errs...)
}

// PoolView is what one read shows of a pool.
type PoolView struct {
	Status PoolStatus
	// Plan is what AutoUpdate would do, as far as that is known without a plan of the run: whether
	// the provider refuses the donor is not asked.
	Plan PoolPlan
	// Promoted is when the next image was promoted; zero where that is not known.
	Promoted time.Time
	Gone     bool // the pool does not exist any more
}

// Proven says whether the version passed its proof.
func (v VersionStatus) Proven() bool { return v.Proof == proofPassed }

// View reads one pool with its lease, and the nodes of the cluster. What cannot be read of the pool
// stands in the status, and is no error.
func (e *Engine) View(ctx context.Context, id PoolID, opts AutoOptions) (v PoolView, err error) {
	if err := opts.Validate(); err != nil {
		return v, err
	}
	o := overview{id: id}
	if o.nodes, err = e.nodesOf(ctx, id); err != nil {
		return v, err
	}
	if o.lease, err = e.Cluster.Lease(ctx, id); err != nil {
		return v, fmt.Errorf("read lease of pool %s: %w", id.Name(), err)
	}
	paused, err := e.Paused(ctx)
	if err != nil {
		return v, fmt.Errorf("read whether runs are paused: %w", err)
	}
	o.err = e.readOne(ctx, &o)
	o.versions = o.lease.Ledger.distrust(o.versions)
	v.Status, v.Plan = o.status(e.now(), opts.Rules.LastPatch), o.decide(opts, e.now())
	v.Status.Paused, v.Status.PausedBy, v.Status.PausedSince, v.Gone = paused.Reason, paused.By, paused.Since, o.gone
	v.Plan.heldBy(paused)
	if next := o.next(); next != nil {
		v.Promoted = o.promotedAt(next)
	}
	return v, nil
}

// detail adds what only further reads tell: the plan of the run, and whether
// the provider refuses the donor. The next candidate takes its place then.
func (e *Engine) detail(ctx context.Context, o overview, opts AutoOptions, p *PoolPlan) error {
	switch p.Action {
	case DoModel:
		if err := e.heed(ctx, &o); err != nil {
			return err
		}
		t := o.newest(opts)
		if err := e.comeToPoint(ctx, &o, &t, opts.ImageReference); err != nil {
			return err
		}
		next, err := e.Provider.NextImage(ctx, o.pool, t.spec())
		p.ModelDiff = next.Diff
		return err
	case DoUpdate, DoFinish:
	default:
		return nil
	}
	refused := 0
	for tries := 0; tries < maxTries && p.Donor != ""; refused++ {
		run := p.run(opts, p.Donor)
		plan, err := e.planRun(ctx, run, &o.lease)
		if err != nil {
			return fmt.Errorf("plan the run with donor %s: %w", p.Donor, err)
		}
		p.Run = plan
		switch {
		case len(plan.Refusals) == 0 || p.Action == DoFinish:
			return nil
		case stepRefused(plan.Refusals):
			for _, r := range plan.Refusals {
				p.hold("refused", "%s; %s", r.Why, r.Do)
			}
			p.Refusals = plan.Refusals
			return nil
		}
		if !ofNode(plan.Refusals) {
			tries++
		}
		p.refuse(plan.Refusals, opts.MinCandidates)
	}
	if p.Donor != "" {
		p.hold("refused", "%d candidates are refused", refused)
	}
	return nil
}

// maxTries is how many candidates are tried in one run. Those that are refused for their own pods
// or volumes do not count: there may be many, and another node is what helps.
const maxTries = 3

// refuse takes the donor off the candidates for the provider's reasons.
func (p *PoolPlan) refuse(refusals []Refusal, least int) {
	for i := range p.Candidates {
		c := &p.Candidates[i]
		if c.Node != p.Donor {
			continue
		}
		for _, r := range refusals {
			c.reject(r.Code, "%s", r)
		}
	}
	rank(p.Candidates)
	p.Donor, p.Run = "", nil
	left := ranked(p.Candidates)
	if len(left) < least {
		p.Refusals = refusals
		p.hold("too-few-candidates", "%d candidates found, at least %d required", len(left), least)
		return
	}
	p.Donor = left[0].Node
}

func (p *PoolPlan) because(code, text string, args ...any) {
	p.Why = append(p.Why, Verdict{code, fmt.Sprintf(text, args...)})
}

// hold says why nothing is done.
func (p *PoolPlan) hold(code, text string, args ...any) {
	p.Held = append(p.Held, Verdict{code, fmt.Sprintf(text, args...)})
	p.Action, p.Donor, p.Run = DoNothing, "", nil
}

// heldBy holds what would begin while the cluster is paused for a reason. What an ended run left is
// given back all the same.
func (p *PoolPlan) heldBy(paused Pause) {
	if paused.Reason == "" {
		return
	}
	if p.Paused = &paused; p.Action == DoUpdate || p.Action == DoModel {
		p.hold(CodePaused, "the cluster is paused: %s; %s", paused, howToResume)
	}
}

// Has says whether a code is among verdicts.
func Has(verdicts []Verdict, code string) bool {
	return slices.ContainsFunc(verdicts, func(v Verdict) bool { return v.Code == code })
}

// ranked lists the candidates that were not rejected, the best first.
func ranked(all []Candidate) []Candidate {
	if n := slices.IndexFunc(all, func(c Candidate) bool { return c.Rank == 0 }); n >= 0 {
		return all[:n]
	}
	return all
}
