package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"kamino.dev/kamino"
	"kamino.dev/kamino/poolstate"
	"kamino.dev/kamino/workflow"
)

// Plan finds out what Update would do with the same options. Refusals are part of the plan and no
// error.
func (e *Engine) Plan(ctx context.Context, opts kamino.Options) (*poolstate.Plan, error) {
	if err := opts.Validate(); err != nil {
		return nil, err
	}
	plan, err := planRun(kamino.Looking(ctx), e.planning(), opts, nil)
	if err != nil {
		return nil, err
	}
	var paused *kamino.RefusedError
	if errors.As(e.refusePaused(ctx), &paused) { // a run reports if it may not read the pause
		plan.Refusals = append(plan.Refusals, paused.Refusals...)
	}
	return plan, nil
}

// dryRun finds out what a run would do.
type dryRun struct {
	*Run

	peeked map[string]string // step -> what it would do
	local  []kamino.Refusal  // the local volumes of the donor
}

// planRun is Plan with the lease of the donor's pool, if that is known.
func planRun(ctx context.Context, e *Engine, opts kamino.Options, lease *kamino.Lease) (*poolstate.Plan, error) {
	r := newRun(e, opts)
	r.held.Lease = lease
	r.plan = &poolstate.Plan{
		Refusals: []kamino.Refusal{}, Steps: []poolstate.PlannedStep{}, Evictions: []kamino.Pod{}, ModelDiff: []kamino.FieldChange{},
		Prune: []string{},
	}
	if err := r.checkCredentials(ctx); err != nil {
		return nil, err
	}
	if err := r.canary.planProbe(ctx); err != nil {
		return nil, err
	}
	_, err := r.lookValidate(ctx)
	r.plan.Doubts = r.said()
	var refused *kamino.RefusedError
	if errors.As(err, &refused) {
		r.plan.Refusals = refused.Refusals
	} else if err != nil {
		return nil, err
	}
	r.plan.Pool, r.plan.Donor, r.plan.Instance = r.pool.ID, opts.Donor, r.donor.instance.ID
	if refused != nil { // an interrupted run may hold the cause
		return r.plan, r.dry.planLease(ctx)
	}
	if err := r.dry.planWorld(ctx); err != nil {
		return nil, err
	}
	if err := r.dry.planDonor(ctx); err != nil {
		return nil, err
	}
	r.plan.Doubts = r.said()
	if len(r.plan.Refusals) > 0 {
		return r.plan, nil
	}
	for _, s := range updateSteps(r) {
		r.plan.Steps = append(r.plan.Steps, r.dry.planStep(s))
	}
	byHand := !r.image.promotes()
	if r.plan.Waiting = byHand && (!r.image.preBuilt || r.image.version.Hidden()); byHand {
		r.plan.ModelDiff = []kamino.FieldChange{}
	}
	there := byHand && !r.image.wanted() && !r.build.ungated() || len(r.plan.ModelDiff) == 0 && !r.pointer.target().Offers()
	r.plan.Nothing = r.image.preBuilt && there && len(r.plan.Prune) == 0 && r.plan.Unfinished == nil
	return r.plan, nil
}

func (p *dryRun) planStep(s Step) poolstate.PlannedStep {
	if s.When != nil && !s.When() {
		return poolstate.PlannedStep{Name: s.Name, Would: "not needed", Skip: true}
	}
	would := s.Does
	if peeked, ok := p.peeked[s.Name]; ok {
		would = peeked
	} else if s.Plan != nil {
		would = s.Plan()
	}
	return poolstate.PlannedStep{Name: s.Name, Would: would}
}

// peekable are the steps that decide what is left to do today.
var peekable = []string{kamino.StepGallery, kamino.StepDefinition, kamino.StepVersion, kamino.StepReuse}

// stepRefused reports whether the refusals are those of a step, which another donor would not
// change.
func stepRefused(refusals []kamino.Refusal) bool {
	return slices.ContainsFunc(refusals, func(r kamino.Refusal) bool {
		return r.Allow == kamino.AllowAdopt || r.Code == kamino.CodeSealPod || r.Code == kamino.CodeNoCanary ||
			slices.Contains(peekable, string(r.Code))
	})
}

// peek makes the looks of the peekable steps, which only read. An obstacle is a refusal of the
// plan.
func (p *dryRun) peek(ctx context.Context) error {
	for _, s := range updateSteps(p.Run) {
		if !slices.Contains(peekable, s.Name) || s.When != nil && !s.When() {
			continue
		}
		next, err := s.Look(ctx)
		if err != nil && !kamino.Refusing(err) {
			return fmt.Errorf("%s: %w", s.Name, err)
		} else if err != nil {
			var refused *kamino.RefusedError
			if errors.As(err, &refused) {
				p.plan.Refusals = append(p.plan.Refusals, refused.Refusals...)
				continue
			}
			p.plan.Refusals = append(p.plan.Refusals,
				kamino.Refusal{Code: kamino.Code(s.Name), Why: err.Error(), Do: kamino.AdviceOr(err, "kamino status shows what is there")})
			continue
		}
		p.peeked[s.Name] = planned(next)
	}
	return nil
}

// nothingToDo is the prefix of a plan's step that has nothing to do.
const nothingToDo = "nothing: "

// planned describes the result of a look for a plan.
func planned(n workflow.Next) string {
	switch n.Kind {
	case workflow.NextAct:
		return n.What
	case workflow.NextWait:
		return "wait for " + n.What
	}
	return nothingToDo + n.What
}

// planDonor finds out whether the donor could be drained and sealed, as far as possible without a
// rehearsal. Credentials that only read may not create the seal pod, not even without effect.
func (p *dryRun) planDonor(ctx context.Context) error {
	if len(p.plan.Refusals) > 0 || !p.build.untouchedYet() {
		return nil
	}
	if v := p.donor.withdrawnOf(p.donor.instance.VMID); v != nil { // the node's own report may be some minutes old
		digest := p.donor.node.Freshness().PackageDigest
		if same := p.donor.sameAs(digest, p.donor.instance.VMID); same != nil {
			p.plan.Refusals = append(p.plan.Refusals, same.RefuseSame(p.donor.node.Name))
		} else if digest == "" {
			p.doubt(kamino.StepVersion, "whether the node still has the packages that version "+v.Name+
				" was made of, which is withdrawn: the run checks that before the drain, and refuses if so")
		}
	}
	p.plan.Refusals = append(p.plan.Refusals, p.local...)
	stuck := slices.DeleteFunc(slices.Clone(p.plan.Evictions), func(pod kamino.Pod) bool { return !pod.Stuck })
	if len(kamino.Returning(stuck)) > 0 || len(stuck) > 0 && !p.opts.Force {
		p.plan.Refusals = append(p.plan.Refusals, kamino.RefuseStuck(stuck))
	}
	err := p.engine.Cluster.RehearseSeal(ctx, p.donor.node, p.donor.sealOrder())
	var refused *kamino.RefusedError
	switch {
	case errors.As(err, &refused):
		p.plan.Refusals = append(p.plan.Refusals, refused.Refusals...)
	case errors.Is(err, kamino.ErrForbidden):
		p.doubt(kamino.StepRehearse, "whether the seal pod would be admitted: "+err.Error())
	case errors.Is(err, kamino.ErrNotFound):
		p.doubtAll(kamino.StepRehearse, []kamino.Warning{{Found: "whether the seal pod would be admitted: " + err.Error(),
			Do: kamino.AdviceOr(err, "")}})
	case err != nil:
		return fmt.Errorf("dry-run the seal of node %s: %w", p.donor.node.Name, err)
	}
	return nil
}

// planWorld reads what the later steps would find.
func (p *dryRun) planWorld(ctx context.Context) error {
	if err := p.planLease(ctx); err != nil {
		return err
	}
	lease := *p.held.Lease
	p.adopts()
	p.plan.ExpectedSeconds, p.plan.ExpectedAwaySeconds = lease.Ledger.Expected()
	p.peeked = map[string]string{}
	if err := p.peek(ctx); err != nil || len(p.plan.Refusals) > 0 {
		return err
	}
	if p.plan.ExpectedSeconds > 0 && p.image.wanted() {
		p.plan.ExpectedSeconds += p.canary.proofExpected().Seconds()
	}
	versions, err := p.image.versions(ctx)
	if err != nil {
		return err
	}
	next, err := p.pointer.nextImage(ctx, p.pool, p.pointer.target())
	if err != nil {
		return err
	}
	p.plan.ModelDiff = append(p.plan.ModelDiff, next.Diff...)
	p.plan.Version = p.image.version.Name
	future := versions
	if !p.image.preBuilt {
		future = append([]kamino.Version{kamino.ParseVersion(kamino.Artifact{Name: p.image.version.Name, State: kamino.Succeeded,
			Use: kamino.Use{InModel: true}})}, versions...)
	}
	after := lease.Ledger
	if !strings.EqualFold(p.pool.Model.Image, next.Image) {
		after.NoteSaved(kamino.SavedModel{Image: p.pool.Model.Image}, prototype(p.pool, versions))
	}
	for _, v := range Prunable(future, p.opts.History, keepWithdrawn, after) {
		p.plan.Prune = append(p.plan.Prune, v.Name)
	}
	if p.build.needed() {
		pods, err := p.engine.Cluster.Preview(ctx, p.donor.node, p.opts.DrainOptions())
		var refused *kamino.RefusedError
		if errors.As(err, &refused) {
			p.local = refused.Refusals
		} else if err != nil {
			return fmt.Errorf("list the pods of node %s: %w", p.donor.node.Name, err)
		}
		p.plan.Evictions = append(p.plan.Evictions, pods...)
	}
	return nil
}

// planLease reads the pool's lease, if it is not known.
func (p *dryRun) planLease(ctx context.Context) error {
	if p.held.Lease == nil && p.pool.ID != "" {
		lease, err := p.engine.Cluster.Lease(ctx, p.pool.ID)
		if err != nil {
			return fmt.Errorf("read lease of pool %s: %w", p.pool.Name, err)
		}
		p.held.Lease = &lease
	}
	if p.held.Lease != nil {
		p.plan.Unfinished = p.held.Lease.Unfinished(p.engine.now())
	}
	return nil
}

// adopts reports whether the planned run would continue an interrupted run. Then the plan's looks
// are those of that run.
func (p *dryRun) adopts() bool {
	u := p.plan.Unfinished
	if u == nil || u.Alive || p.held.Adopted {
		return p.held.Adopted
	}
	if p.held.Run = u.Run; p.donor.continues() {
		p.held.Adopted, p.held.Before = true, u.Record
	} else {
		p.held.Run = ""
	}
	return p.held.Adopted
}
