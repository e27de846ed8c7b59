package kamino

import "time"

// Pause is the state of the stop switch. Who set it and when is unknown if kubectl set it.
type Pause struct {
	Reason string    `json:"reason"` // "": nothing is held
	By     string    `json:"by,omitempty"`
	Since  time.Time `json:"since,omitzero"`
}

// String is for people; "" while nothing is held.
func (p Pause) String() string {
	text := Plain(p.Reason)
	if p.By != "" {
		text += " (by " + Plain(p.By) + ", since " + p.Since.UTC().Format(time.RFC3339) + ")"
	}
	return text
}

// HowToResume is what ends a pause.
const HowToResume = "kamino resume ends it"

// CodePaused is the code of the refusal of a run or a promotion while the cluster is paused.
const CodePaused = "paused"

// AnnotationPaused on the namespace kamino-system is the stop switch; it holds the reason.
// AnnotationPausedBy holds a Pause as JSON, which counts only where its reason is the same.
const (
	AnnotationPaused   = "kamino.dev/paused"
	AnnotationPausedBy = "kamino.dev/paused-by"
)
