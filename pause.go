package kamino

import "time"

// Pause is the state of the stop switch. If kubectl set it, who set it and when are unknown.
type Pause struct {
	Reason string    `json:"reason"` // "": new runs are not held
	By     string    `json:"by,omitempty"`
	Since  time.Time `json:"since,omitzero"`
}

// String describes the pause for people; "" if there is none.
func (p Pause) String() string {
	text := Plain(p.Reason)
	if p.By != "" {
		text += " (by " + Plain(p.By) + ", since " + p.Since.UTC().Format(time.RFC3339) + ")"
	}
	return text
}

// HowToResume is the advice that ends a pause.
const HowToResume = "kamino resume ends it"

// AnnotationPaused on the namespace kamino-system is the stop switch; its value is the reason.
// AnnotationPausedBy holds a Pause as JSON, which counts only if it has the same reason.
const (
	AnnotationPaused   = "kamino.dev/paused"
	AnnotationPausedBy = "kamino.dev/paused-by"
)
