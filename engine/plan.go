package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

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
	plan, err := e.planning().planRun(kamino.Looking(ctx), opts, nil)
	if err != nil {
		return nil, err
	}
	var paused *kamino.RefusedError
	if errors.As(e.refusePaused(ctx), &paused) { // a run reports if it may not read the pause
		plan.Refusals = append(plan.Refusals, paused.Refusals...)
	}
	return plan, nil
}

// planRun is Plan with the lease of the donor's pool, if that is known.
func (e *Engine) planRun(ctx context.Context, opts kamino.Options, lease *kamino.Lease) (*poolstate.Plan, error) {
	r := e.newRun(opts)
	r.held.Lease = lease
	r.plan = &poolstate.Plan{
		Refusals: []kamino.Refusal{}, Steps: []poolstate.PlannedStep{}, Evictions: []kamino.Pod{}, ModelDiff: []kamino.FieldChange{}, Prune: []string{},
	}
	if err := r.checkCredentials(ctx); err != nil {
		return nil, err
	}
	if err := r.planProbe(ctx); err != nil {
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
		return r.plan, r.planLease(ctx)
	}
	if err := r.planWorld(ctx); err != nil {
		return nil, err
	}
	if err := r.planDonor(ctx); err != nil {
		return nil, err
	}
	r.plan.Doubts = r.said()
	if len(r.plan.Refusals) > 0 {
		return r.plan, nil
	}
	for _, s := range updateSteps(r) {
		r.plan.Steps = append(r.plan.Steps, r.planStep(s))
	}
	byHand := !r.promotes()
	if r.plan.Waiting = byHand && (!r.image.preBuilt || r.image.version.Hidden()); byHand {
		r.plan.ModelDiff = []kamino.FieldChange{}
	}
	there := byHand && !r.provesCanary() && !r.ungated() || len(r.plan.ModelDiff) == 0 && !r.target().Offers()
	r.plan.Nothing = r.image.preBuilt && there && len(r.plan.Prune) == 0 && r.plan.Unfinished == nil
	return r.plan, nil
}

// planProbe checks the operator's Job as connect does. Credentials that only read may not create
// it, not even without effect.
func (r *Run) planProbe(ctx context.Context) error {
	if r.opts.Proof.Probe == nil {
		return nil
	}
	err := r.checkProof(ctx)
	if errors.Is(err, kamino.ErrForbidden) {
		r.doubt(kamino.StepConnect, "whether the probe would be admitted: "+err.Error())
		return nil
	}
	return err
}

func (r *Run) planStep(s Step) poolstate.PlannedStep {
	if s.When != nil && !s.When() {
		return poolstate.PlannedStep{Name: s.Name, Would: "not needed", Skip: true}
	}
	would := s.Does
	if peeked, ok := r.peeked[s.Name]; ok {
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
		return r.Allow == kamino.AllowAdopt || r.Code == kamino.CodeSealPod || r.Code == kamino.CodeNoCanary || slices.Contains(peekable, r.Code)
	})
}

// peek makes the looks of the peekable steps, which only read. An obstacle is a refusal of the
// plan.
func (r *Run) peek(ctx context.Context) error {
	for _, s := range updateSteps(r) {
		if !slices.Contains(peekable, s.Name) || s.When != nil && !s.When() {
			continue
		}
		next, err := s.Look(ctx)
		if err != nil && !kamino.Refusing(err) {
			return fmt.Errorf("%s: %w", s.Name, err)
		} else if err != nil {
			var refused *kamino.RefusedError
			if errors.As(err, &refused) {
				r.plan.Refusals = append(r.plan.Refusals, refused.Refusals...)
				continue
			}
			r.plan.Refusals = append(r.plan.Refusals, kamino.Refusal{Code: s.Name, Why: err.Error(), Do: kamino.AdviceOr(err, "kamino status shows what is there")})
			continue
		}
		r.peeked[s.Name] = planned(next)
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
func (r *Run) planDonor(ctx context.Context) error {
	if len(r.plan.Refusals) > 0 || !r.donorUntouched() {
		return nil
	}
	if v := r.withdrawnOf(r.donor.instance.VMID); v != nil { // the node's own report may be some minutes old
		digest := r.donor.node.Freshness().PackageDigest
		if same := r.sameAs(digest, r.donor.instance.VMID); same != nil {
			r.plan.Refusals = append(r.plan.Refusals, same.RefuseSame(r.donor.node.Name))
		} else if digest == "" {
			r.doubt(kamino.StepVersion, "whether the node still has the packages that version "+v.Name+" was made of, which is withdrawn: the run checks that before the drain, and refuses if so")
		}
	}
	r.plan.Refusals = append(r.plan.Refusals, r.empty.local...)
	stuck := slices.DeleteFunc(slices.Clone(r.plan.Evictions), func(p kamino.Pod) bool { return !p.Stuck })
	if len(kamino.Returning(stuck)) > 0 || len(stuck) > 0 && !r.opts.Force {
		r.plan.Refusals = append(r.plan.Refusals, kamino.RefuseStuck(stuck))
	}
	err := r.engine.Cluster.RehearseSeal(ctx, r.donor.node, r.sealOrder())
	var refused *kamino.RefusedError
	switch {
	case errors.As(err, &refused):
		r.plan.Refusals = append(r.plan.Refusals, refused.Refusals...)
	case errors.Is(err, kamino.ErrForbidden):
		r.doubt(kamino.StepRehearse, "whether the seal pod would be admitted: "+err.Error())
	case errors.Is(err, kamino.ErrNotFound):
		r.doubtAll(kamino.StepRehearse, []kamino.Warning{{Found: "whether the seal pod would be admitted: " + err.Error(), Do: kamino.AdviceOr(err, "")}})
	case err != nil:
		return fmt.Errorf("dry-run the seal of node %s: %w", r.donor.node.Name, err)
	}
	return nil
}

// planWorld reads what the later steps would find.
func (r *Run) planWorld(ctx context.Context) error {
	if err := r.planLease(ctx); err != nil {
		return err
	}
	lease := *r.held.Lease
	r.adopts()
	r.plan.ExpectedSeconds, r.plan.ExpectedAwaySeconds = lease.Ledger.Expected()
	r.peeked = map[string]string{}
	if err := r.peek(ctx); err != nil || len(r.plan.Refusals) > 0 {
		return err
	}
	if r.plan.ExpectedSeconds > 0 && r.provesCanary() {
		r.plan.ExpectedSeconds += r.proofExpected().Seconds()
	}
	versions, err := r.versions(ctx)
	if err != nil {
		return err
	}
	next, err := r.nextImage(ctx, r.pool, r.target())
	if err != nil {
		return err
	}
	r.plan.ModelDiff = append(r.plan.ModelDiff, next.Diff...)
	r.plan.Version = r.image.version.Name
	future := versions
	if !r.image.preBuilt {
		future = append([]kamino.Artifact{{Name: r.image.version.Name, State: kamino.Succeeded, Use: kamino.Use{InModel: true}}}, versions...)
	}
	after := lease.Ledger
	if !strings.EqualFold(r.pool.Model.Image, next.Image) {
		after.NoteSaved(kamino.SavedModel{Image: r.pool.Model.Image}, prototype(r.pool, versions))
	}
	for _, v := range Prunable(future, r.opts.History, keepWithdrawn, after) {
		r.plan.Prune = append(r.plan.Prune, v.Name)
	}
	if r.donorNeeded() {
		pods, err := r.engine.Cluster.Preview(ctx, r.donor.node, r.opts.DrainOptions())
		var refused *kamino.RefusedError
		if errors.As(err, &refused) {
			r.empty.local = refused.Refusals
		} else if err != nil {
			return fmt.Errorf("list the pods of node %s: %w", r.donor.node.Name, err)
		}
		r.plan.Evictions = append(r.plan.Evictions, pods...)
	}
	return nil
}

// planLease reads the pool's lease, if it is not known.
func (r *Run) planLease(ctx context.Context) error {
	if r.held.Lease == nil && r.pool.ID != "" {
		lease, err := r.engine.Cluster.Lease(ctx, r.pool.ID)
		if err != nil {
			return fmt.Errorf("read lease of pool %s: %w", r.pool.Name, err)
		}
		r.held.Lease = &lease
	}
	if r.held.Lease != nil {
		r.plan.Unfinished = r.held.Lease.Unfinished(r.engine.now())
	}
	return nil
}

// adopts reports whether the planned run would continue an interrupted run. Then the plan's looks
// are those of that run.
func (r *Run) adopts() bool {
	u := r.plan.Unfinished
	if u == nil || u.Alive || r.held.Adopted {
		return r.held.Adopted
	}
	if r.held.Run = u.Run; r.continues() {
		r.held.Adopted, r.held.Before = true, u.Record
	} else {
		r.held.Run = ""
	}
	return r.held.Adopted
}

func (r *Run) planDrain() string {
	n := len(r.plan.Evictions)
	if n == 0 {
		return "block the donor for new pods; no pod has to leave"
	}
	return "block the donor for new pods; " + kamino.DescribePods(r.plan.Evictions)
}

func (r *Run) planImage() string {
	if !r.inGallery() {
		return buildText(r.image.version.Name)
	}
	return fmt.Sprintf("%s with %d replicas", buildText(r.image.version.Name), r.opts.Replicas)
}

func (r *Run) planModel() string {
	if r.modelIsTheirs() {
		r.plan.ModelDiff = []kamino.FieldChange{}
	}
	offers := !r.opts.ImageOnly && r.image.reference == kamino.ByDefinition && (!r.image.preBuilt || r.target().Offers())
	switch {
	case len(r.plan.ModelDiff) == 0 && offers:
		return "offer version " + r.image.version.Name + " to new nodes; the model is up to date"
	case len(r.plan.ModelDiff) == 0:
		return "nothing: the model is up to date"
	}
	return describeDiff(r.pool, r.plan.ModelDiff)
}

func (r *Run) planScaleOut() string {
	return fmt.Sprintf("scale out from %d to %d", r.pool.Capacity, r.pool.Capacity+r.opts.NewNodes)
}

func (r *Run) planPrune() string {
	if len(r.plan.Prune) == 0 {
		return "nothing: no version is old and unused"
	}
	return "delete " + strings.Join(r.plan.Prune, ", ")
}

// readOnce is a provider that makes each read once and then answers from memory. A plan reads the
// same things for the judgement of the pool and for its steps, and pools share a gallery. It lives
// as long as one plan; a run never reads through it.
type readOnce struct {
	kamino.Provider

	mu   sync.Mutex
	read map[string]*reading
}

// reading is one read, for which concurrent callers wait.
type reading struct {
	once      sync.Once
	pool      kamino.Pool
	artifacts []kamino.Artifact
	doubts    []kamino.Warning
	err       error
}

func newReadOnce(p kamino.Provider) *readOnce {
	return &readOnce{Provider: p, read: map[string]*reading{}}
}

// planning returns an engine for plans, which makes each read once.
func (e *Engine) planning() *Engine {
	copied := *e
	copied.Provider = newReadOnce(e.Provider)
	return &copied
}

func (r *readOnce) reading(key string) *reading {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.read[key] == nil {
		r.read[key] = &reading{}
	}
	return r.read[key]
}

// Pool implements Provider.
func (r *readOnce) Pool(ctx context.Context, id kamino.PoolID) (kamino.Pool, error) {
	got := r.reading("pool\x00" + string(id))
	got.once.Do(func() { got.pool, got.err = r.Provider.Pool(ctx, id) })
	return got.pool, got.err
}

// Find implements Provider. Pools of a group share their gallery; all other artifacts are of one
// pool.
func (r *readOnce) Find(ctx context.Context, pool kamino.Pool, kind kamino.Kind, name string) ([]kamino.Artifact, error) {
	of := string(pool.ID)
	if kind == kamino.Gallery {
		of = pool.Group
	}
	got := r.reading(of + "\x00" + string(kind) + "\x00" + name)
	got.once.Do(func() { got.artifacts, got.err = r.Provider.Find(ctx, pool, kind, name) })
	return slices.Clone(got.artifacts), got.err
}

// Preflight implements Provider.
func (r *readOnce) Preflight(ctx context.Context) ([]kamino.Warning, error) {
	got := r.reading("preflight")
	got.once.Do(func() { got.doubts, got.err = r.Provider.Preflight(ctx) })
	return got.doubts, got.err
}
