package kamino

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// AnnotationConfig tells, as JSON, which NodeConfig a node has in force and what became of the one
// that its source offers. The agent writes it with the node's own credential: it is a claim, and
// only shown.
const AnnotationConfig = "kamino.dev/config"

// ConfigStatus is what became of the NodeConfig that a node's source offers.
type ConfigStatus string

// The statuses that the agent writes (docs/agent.md, "In-place update").
const (
	ConfigApplied    ConfigStatus = "Applied"
	ConfigImage      ConfigStatus = "Image" // none was offered; the image's own is in force
	ConfigWaiting    ConfigStatus = "Waiting"
	ConfigInvalid    ConfigStatus = "Invalid"
	ConfigRolledBack ConfigStatus = "RolledBack"
	ConfigBroken     ConfigStatus = "Broken"
	ConfigUnreadable ConfigStatus = "Unreadable"
	ConfigUnknown    ConfigStatus = "Unknown" // the node writes another word
)

var configStatuses = []ConfigStatus{ConfigApplied, ConfigImage, ConfigWaiting, ConfigInvalid, ConfigRolledBack, ConfigBroken, ConfigUnreadable}

// NodeConfig is what a node tells of its configuration.
type NodeConfig struct {
	Node string `json:"node"`
	// Generation is the one in force; 0: the image's own.
	Generation int64        `json:"generation"`
	Status     ConfigStatus `json:"status"`
	// Offered is the generation that the status is about, where that is not in force; 0: unknown.
	Offered int64     `json:"offered,omitempty"`
	Reason  string    `json:"reason,omitempty"`
	Since   time.Time `json:"since,omitzero"`
}

// Failed reports whether the node refused what its source offers, or cannot read the source.
func (c NodeConfig) Failed() bool {
	return slices.Contains([]ConfigStatus{ConfigInvalid, ConfigRolledBack, ConfigBroken, ConfigUnreadable}, c.Status)
}

// String tells about a node whose configuration failed, for people.
func (c NodeConfig) String() string {
	what := "refused generation " + fmt.Sprint(c.Offered)
	switch {
	case c.Status == ConfigUnreadable:
		what = "cannot read its NodeConfig"
	case c.Offered == 0:
		what = "refused its NodeConfig"
	}
	return fmt.Sprintf("node %s %s (%s): %s", c.Node, what, c.Status, cmp.Or(c.Reason, "no reason given"))
}

// MaxConfigReason bounds a reason, in characters.
const MaxConfigReason = 300

// Config is what a node tells; nil where it tells nothing.
func (n Node) Config() *NodeConfig {
	var told struct {
		Generation int64        `json:"generation"`
		Status     ConfigStatus `json:"status"`
		Error      string       `json:"error"`
		At         string       `json:"at"`
		Offered    struct {
			Generation int64 `json:"generation"`
		} `json:"offered"`
	}
	text := n.Annotations[AnnotationConfig]
	if text == "" || readPlain([]byte(text), &told) != nil {
		return nil
	}
	if !slices.Contains(configStatuses, told.Status) {
		told.Status = ConfigUnknown
	}
	since, _ := time.Parse(time.RFC3339, told.At) // zero: the node does not say
	return &NodeConfig{Node: n.Name, Generation: told.Generation, Status: told.Status, Offered: told.Offered.Generation,
		Reason: CutText(told.Error, MaxConfigReason), Since: since.UTC()}
}
