package kamino

import (
	"fmt"
	"slices"
	"time"
)

// Has says whether a code is among verdicts.
func Has(verdicts []Verdict, code string) bool {
	return slices.ContainsFunc(verdicts, func(v Verdict) bool { return v.Code == code })
}

// Rules say which nodes of a pool may become its donor.
type Rules struct {
	Self              string        // node that this process runs on
	Ignore            []string      // names of nodes
	IgnoreAnnotations []string      // a node that carries one of them is ignored
	PendingReboot     []Signal      // any of them: patches are not in effect yet
	LastPatch         []Signal      // when the node was patched; the latest counts
	MinReady          time.Duration // Ready for at least as long, by our clock
	RejectTainted     bool          // reject nodes with NoSchedule or NoExecute taints of others
	RequireLabels     []LabelDemand // a node that lacks one of them is rejected
	FineConditions    []string      // conditions that may be True

	// Image is the newest image of the pool: only nodes patched after it are
	// worth taking. Nil when there is none.
	Image *Artifact
	// AnyPatch lifts that condition: the image is to be renewed for its age.
	AnyPatch bool
	// Bad are versions that were withdrawn. A node that one was built from is
	// not taken again before it is patched.
	Bad []Artifact
}

// Candidate is a node that selection considered.
type Candidate struct {
	Node     string    `json:"node"`
	Rank     int       `json:"rank"` // 1 is the best; 0: rejected
	Patched  string    `json:"patched,omitempty"`
	ReadyFor string    `json:"readyFor,omitempty"` // whole minutes, as Go writes a duration
	Reasons  []Verdict `json:"reasons"`            // why it was rejected, all that apply
}

// Verdict is one reason against a node.
type Verdict struct {
	Code string `json:"code"` // stable, for programs
	Text string `json:"text"`
}

// Reject adds a reason against a node.
func (c *Candidate) Reject(code, text string, args ...any) {
	c.Reasons = append(c.Reasons, Verdict{code, fmt.Sprintf(text, args...)})
}
