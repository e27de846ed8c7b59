package kamino

import (
	"fmt"
	"slices"
	"time"
)

// Has reports whether the verdicts include a code.
func Has(verdicts []Verdict, code Code) bool {
	return slices.ContainsFunc(verdicts, func(v Verdict) bool { return v.Code == code })
}

// Rules define which nodes of a pool may become its donor.
type Rules struct {
	Self              string        // the node that this process runs on
	Ignore            []string      // names of nodes that are ignored
	IgnoreAnnotations []string      // annotations; a node with any of them is ignored
	PendingReboot     []Signal      // if any is on a node, its patches are not in effect yet
	LastPatch         []Signal      // places of the patch time; the latest time counts
	MinReady          time.Duration // how long the node must have been Ready, by our clock
	RejectTainted     bool          // reject nodes with NoSchedule or NoExecute taints of others
	RequireLabels     []LabelDemand // labels that a donor must have
	FineConditions    []string      // conditions that may be True

	// Image is the newest image of the pool; nil if there is none. Only a node patched after it is
	// worth taking.
	Image *Version
	// AnyPatch allows nodes without newer patches, because the image is renewed for its age.
	AnyPatch bool
	// Bad are the withdrawn versions. A node that such a version was built from is not taken again
	// before it is patched.
	Bad []Version
}

// Candidate is a node that selection considered.
type Candidate struct {
	Node     string    `json:"node"`
	Rank     int       `json:"rank"` // 1 is the best; 0: rejected
	Patched  string    `json:"patched,omitempty"`
	ReadyFor string    `json:"readyFor,omitempty"` // whole minutes, as Go writes a duration
	Reasons  []Verdict `json:"reasons"`            // all the reasons why it was rejected
}

// Verdict is a reason why a node is rejected.
type Verdict struct {
	Code Code   `json:"code"` // stable, for programs
	Text string `json:"text"`
}

// Reject adds a reason why the node is rejected.
func (c *Candidate) Reject(code Code, text string, args ...any) {
	c.Reasons = append(c.Reasons, Verdict{code, fmt.Sprintf(text, args...)})
}
