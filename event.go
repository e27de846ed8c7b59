package kamino

import (
	"slices"
	"time"
)

// EventKind says what an Event tells.
type EventKind string

// The kinds of events, in the order in which a step can send them.
const (
	StepStarted EventKind = "started"
	StepActed   EventKind = "acted"   // about to do what Message says
	StepWaiting EventKind = "waiting" // for what Message says
	StepRetry   EventKind = "retry"   // a call failed and will be looked at again
	StepSkipped EventKind = "skipped"
	StepDone    EventKind = "done"
	StepFailed  EventKind = "failed"
	StepRefused EventKind = "refused" // failed before its first change, by what the same command would meet again
	Warned      EventKind = "warning"
	GivingBack  EventKind = "giving back"
)

// Event is one thing that happened in a run, for progress output and logs.
type Event struct {
	Time    time.Time     `json:"time"`
	Pool    string        `json:"pool,omitempty"`
	Run     string        `json:"run,omitempty"`
	Kind    EventKind     `json:"kind"`
	Step    string        `json:"step,omitempty"`
	Number  int           `json:"number,omitempty"` // of the step, from 1
	Total   int           `json:"total,omitempty"`
	Elapsed time.Duration `json:"elapsed"` // since the step started, in nanoseconds
	// Limit is how long a wait may last at most, in nanoseconds from the step's start; 0 where that
	// is not known.
	Limit   time.Duration `json:"limit,omitempty"`
	Percent int           `json:"percent"` // as the provider reports it; -1 when it reports none
	Message string        `json:"message,omitempty"`
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
	// Hidden: the version is not offered. Owner is who writes the model, and Extensions what every
	// new instance runs, where kamino does not write the model.
	Hidden     bool        `json:"hidden,omitempty"`
	Owner      *Owner      `json:"owner,omitempty"`
	Extensions []Extension `json:"extensions,omitempty"`
	// Warnings are what went wrong after the image was in use: things that are
	// left for the next run to clean up.
	Warnings []string `json:"warnings,omitempty"`
}

// hold is something that a run has taken and must give back, in words for people.
type hold struct {
	what  string
	until string // the step that gives it back; "" none before the lease is free
}

// holds is what a run holds now. Runs that give back in the name of another share its list.
type holds struct{ list []hold }

// adoptedHold is what a run holds that was taken over, before its steps have told more.
var adoptedHold = hold{"what its former process had taken, perhaps the donor", InReturn}

// takes notes what a step takes once it has acted, or has found it done by the process that had the
// run before.
func (r *Run) takes(s Step) {
	if r.held.adopted && s.Name == InLock {
		r.holds.add(adoptedHold)
	}
	if s.Takes != "" {
		r.holds.add(hold{s.Takes, s.Until})
	}
	r.tellHolds()
}

// passed drops what a step gives back that is done or not needed, and tells who waits for it that
// the donor is back.
func (r *Run) passed(s Step) {
	r.holds.drop(func(h hold) bool { return h.until == s.Name || h.until == s.Ends })
	r.tellHolds()
	if s.DonorBack && r.engine.DonorBack != nil {
		r.engine.DonorBack(r.pool.ID)
	}
}

// freed drops what only the freeing of the lease gives back.
func (r *Run) freed() {
	r.holds.list = slices.DeleteFunc(r.holds.list, func(one hold) bool { return one.until == "" })
	r.tellHolds()
}

func (h *holds) add(one hold) {
	if !slices.Contains(h.list, one) {
		h.list = append(h.list, one)
	}
}

func (h *holds) drop(over func(hold) bool) {
	h.list = slices.DeleteFunc(h.list, func(one hold) bool { return one.until != "" && over(one) })
}

func (r *Run) tellHolds() {
	if r.engine == nil || r.engine.Holds == nil {
		return
	}
	what := make([]string, len(r.holds.list))
	for i, h := range r.holds.list {
		what[i] = h.what
	}
	r.engine.Holds(r.pool.ID, what)
}
