package poolstate

import "kamino.dev/kamino"

// Leftover is something that an interrupted run left behind.
type Leftover struct {
	Pool   kamino.PoolID `json:"pool"`
	Run    string        `json:"run"`
	Node   string        `json:"node,omitempty"`
	What   string        `json:"what"`             // for people
	Done   string        `json:"done,omitempty"`   // what was done about it
	Reason string        `json:"reason,omitempty"` // why nothing was done

	Kept  string `json:"-"` // its name in a list of what may stay: a canary, a version
	Begun bool   `json:"-"` // a node whose packages may have been changed: it stays blocked
}

// Repaired explains what a restore means for a node whose packages may have been changed; "" for
// any other leftover.
func (l Leftover) Repaired(word string) string {
	if !l.Begun {
		return ""
	}
	return word + ", and blocked: kamino patch --target-node " + l.Node + " continues"
}
