package kamino

import "time"

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
	// Warnings are what went wrong after the image was in use: things that are
	// left for the next run to clean up.
	Warnings []string `json:"warnings,omitempty"`
}
