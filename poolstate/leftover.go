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

	Kept  string `json:"-"` // what it is called among what may stay: a canary, a version
	Begun bool   `json:"-"` // a node whose packages may have been changed: it stays blocked
}

// Repaired tells of a node whose packages may have been changed what giving back means; "" for all
// else.
func (l Leftover) Repaired(word string) string {
	if !l.Begun {
		return ""
	}
	return word + ", and blocked: kamino patch --target-node " + l.Node + " continues"
}
