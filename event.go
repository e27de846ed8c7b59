package kamino

import "time"

// EventKind is the kind of an Event.
type EventKind string

// The kinds of events, in the order in which a step can send them.
const (
	EventStarted    EventKind = "started"
	EventActed      EventKind = "acted"   // about to do what Message describes
	EventWaiting    EventKind = "waiting" // waiting for what Message describes
	EventRetry      EventKind = "retry"   // a call failed; the step looks again
	EventSkipped    EventKind = "skipped"
	EventDone       EventKind = "done"
	EventFailed     EventKind = "failed"
	EventRefused    EventKind = "refused" // failed before its first change, because of an obstacle that the same command would meet again
	EventWarning    EventKind = "warning"
	EventGivingBack EventKind = "giving back"
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
	// Limit is the longest that a wait may last, in nanoseconds from the step's start; 0 if not
	// known.
	Limit   time.Duration `json:"limit,omitempty"`
	Percent int           `json:"percent"` // as the provider reports it; -1 if it reports none
	Message string        `json:"message,omitempty"`
}

// The reasons of Warning events on nodes.
const (
	EventProofFailed       = "KaminoProofFailed"
	EventProofInconclusive = "KaminoProofInconclusive"
	EventPatchFailed       = "KaminoPatchFailed"
	EventRunFailed         = "KaminoRunFailed"
	EventDonorAway         = "KaminoDonorAway"
)

// StepTime is how long a step of a finished run took.
type StepTime struct {
	Name    string  `json:"name"`
	Seconds float64 `json:"seconds"`
	Skipped bool    `json:"skipped,omitempty"`
}
