package poolstate

import (
	"fmt"
	"slices"
	"time"

	"kamino.dev/kamino"
	"kamino.dev/kamino/selection"
)

// RunOf returns the options of a run whose donor no person named. It continues what an interrupted
// run began.
func (p PoolPlan) RunOf(o kamino.AutoOptions, donor string) kamino.Options {
	run := o.Options
	run.Donor = donor
	if run.Today != kamino.TodayAgain || kamino.Has(p.Why, kamino.CodeUnfinished) {
		run.Today = kamino.TodayOfAny
	}
	return run
}

// Action is what auto-update does with a pool.
type Action string

// The actions.
const (
	DoNothing Action = "nothing"
	DoUpdate  Action = "update" // make a new image of the donor
	DoModel   Action = "model"  // point the model at the newest image; no donor is needed
	DoFinish  Action = "finish" // continue or restore what an interrupted run left
)

// PoolPlan is whether a pool needs a new image, why, and from which donor.
type PoolPlan struct {
	Pool   kamino.PoolID `json:"pool"`
	Name   string        `json:"name"`
	Action Action        `json:"action"`
	// Why is why a new image is needed, or is not. Codes: no-image, patches, age, model, pointer,
	// unfinished, unproved, waiting, nothing.
	Why []kamino.Verdict `json:"why"`
	// Held is why nothing is done although it is needed. Codes: too-few-candidates, refused, today,
	// pinned, foreign-model, no-receipt, promote, paused, image-only, error.
	Held []kamino.Verdict `json:"held"`
	// Paused is the pause of the cluster, which holds new runs; nil if there is none.
	Paused *kamino.Pause `json:"paused,omitempty"`
	// AfterResume is the action without the pause, in a plan; donor, run and difference are those
	// of that action.
	AfterResume Action `json:"afterResume,omitempty"`

	Image      string             `json:"image,omitempty"` // newest good version
	Model      string             `json:"model"`           // what the model refers to
	Candidates []kamino.Candidate `json:"candidates"`
	// Patches are the nodes that would be patched before the donor is chosen, and the next
	// candidates; nil if none would be.
	Patches []string `json:"patches,omitempty"`
	Donor   string   `json:"donor,omitempty"`
	Models  *Models  `json:"models,omitempty"` // as in PoolStatus
	// Refusals are those of the run, if no other candidate would do better.
	Refusals []kamino.Refusal `json:"refusals,omitempty"`
	// Run is the plan of the run with that donor.
	Run *Plan `json:"run,omitempty"`
	// ModelDiff are the changes of the action model.
	ModelDiff []kamino.FieldChange `json:"modelDiff,omitempty"`
}

// PoolView is a pool as one read shows it.
type PoolView struct {
	Status PoolStatus
	// Plan is what AutoUpdate would do, as far as known without a plan of the run: the provider is
	// not asked whether it refuses the donor.
	Plan PoolPlan
	// Promoted is when the next image was promoted; zero if not known.
	Promoted time.Time
	Gone     bool // the pool does not exist any more
}

// Proven reports whether the version passed its proof.
func (v VersionStatus) Proven() bool { return v.Proof == kamino.TagProofPassed }

// MaxTries is how many candidates one run tries. Candidates that are refused for their own pods or
// volumes do not count: there may be many, and another node is the solution.
const MaxTries = 3

// Refuse removes the donor from the candidates for the provider's reasons.
func (p *PoolPlan) Refuse(refusals []kamino.Refusal, least int) {
	for i := range p.Candidates {
		c := &p.Candidates[i]
		if c.Node != p.Donor {
			continue
		}
		for _, r := range refusals {
			c.Reject(r.Code, "%s", r)
		}
	}
	selection.Rank(p.Candidates)
	p.Donor, p.Run = "", nil
	left := Ranked(p.Candidates)
	if len(left) < least {
		p.Refusals = refusals
		p.Hold(kamino.CodeTooFew, "%d candidates found, at least %d required", len(left), least)
		return
	}
	p.Donor = left[0].Node
}

func (p *PoolPlan) because(code kamino.Code, text string, args ...any) {
	p.Why = append(p.Why, kamino.Verdict{Code: code, Text: fmt.Sprintf(text, args...)})
}

// Hold adds a reason why nothing is done.
func (p *PoolPlan) Hold(code kamino.Code, text string, args ...any) {
	p.Held = append(p.Held, kamino.Verdict{Code: code, Text: fmt.Sprintf(text, args...)})
	p.Action, p.Donor, p.Run = DoNothing, "", nil
}

// HeldBy holds new runs while the cluster is paused. What an interrupted run left is restored
// nevertheless.
func (p *PoolPlan) HeldBy(paused kamino.Pause) {
	if paused.Reason == "" {
		return
	}
	if p.Paused = &paused; p.Action == DoUpdate || p.Action == DoModel {
		p.Hold(kamino.CodePaused, "the cluster is paused: %s; %s", paused, kamino.HowToResume)
	}
}

// Ranked returns the candidates that were not rejected, the best first.
func Ranked(all []kamino.Candidate) []kamino.Candidate {
	if n := slices.IndexFunc(all, func(c kamino.Candidate) bool { return c.Rank == 0 }); n >= 0 {
		return all[:n]
	}
	return all
}

// Plan is what an update would do, found out by reading only.
type Plan struct {
	Pool       kamino.PoolID        `json:"pool"`
	Donor      string               `json:"donor"`
	Instance   kamino.InstanceID    `json:"instance"`
	Version    string               `json:"version"`
	Nothing    bool                 `json:"nothingToDo"`
	Waiting    bool                 `json:"waiting,omitempty"` // only kamino promote promotes the version
	Refusals   []kamino.Refusal     `json:"refusals"`
	Doubts     []string             `json:"doubts,omitempty"` // what could not be found out
	Steps      []PlannedStep        `json:"steps"`
	Evictions  []kamino.Pod         `json:"evictions"`
	ModelDiff  []kamino.FieldChange `json:"modelDiff"`
	Prune      []string             `json:"prune"`
	Unfinished *kamino.Unfinished   `json:"unfinishedRun,omitempty"`
	// ExpectedSeconds is the expected duration of the run, the median of earlier runs; 0 if none is
	// known.
	ExpectedSeconds     float64 `json:"expectedSeconds"`
	ExpectedAwaySeconds float64 `json:"expectedAwaySeconds"`
}

// PlannedStep is a step of the pipeline, with what it would do now.
type PlannedStep struct {
	Name  string `json:"name"`
	Would string `json:"would"`
	Skip  bool   `json:"skip,omitempty"`
}

// HowToPromote returns the command with which a person promotes a version.
func HowToPromote(pool, version string) string {
	return "kamino promote --pool " + pool + " --version " + version
}

// HintAgain is the advice for making another version on the same day.
const HintAgain = "kamino update --target-node NODE --again makes another version of today"
