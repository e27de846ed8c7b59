package kamino

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// AnnotationConfig holds, as JSON, which NodeConfig a node uses and the status of the one that its
// source offers. The agent writes it with the node's own credential, so it is a claim and only
// shown.
const AnnotationConfig = "kamino.dev/config"

// ConfigStatus is the status of the NodeConfig that a node's source offers.
type ConfigStatus string

// The statuses that the agent writes (docs/agent.md, "In-place update").
const (
	ConfigApplied    ConfigStatus = "Applied"
	ConfigImage      ConfigStatus = "Image" // none was offered; the image's own configuration is used
	ConfigWaiting    ConfigStatus = "Waiting"
	ConfigInvalid    ConfigStatus = "Invalid"
	ConfigRolledBack ConfigStatus = "RolledBack"
	ConfigBroken     ConfigStatus = "Broken"
	ConfigUnreadable ConfigStatus = "Unreadable"
	ConfigUnknown    ConfigStatus = "Unknown" // the node reports a status that this program does not know
)

var configStatuses = []ConfigStatus{ConfigApplied, ConfigImage, ConfigWaiting, ConfigInvalid, ConfigRolledBack,
	ConfigBroken, ConfigUnreadable}

// NodeConfig is what a node reports about its configuration.
type NodeConfig struct {
	Node string `json:"node"`
	// Generation is the generation in use; 0: the image's own.
	Generation int64        `json:"generation"`
	Status     ConfigStatus `json:"status"`
	// Offered is the generation that the status is about, if it is not in use; 0: unknown.
	Offered int64     `json:"offered,omitempty"`
	Reason  string    `json:"reason,omitempty"`
	Since   time.Time `json:"since,omitzero"`
}

// Failed reports whether the node refused what its source offers, or cannot read the source.
func (c NodeConfig) Failed() bool {
	return slices.Contains([]ConfigStatus{ConfigInvalid, ConfigRolledBack, ConfigBroken, ConfigUnreadable}, c.Status)
}

// String describes a node whose configuration failed.
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

// MaxConfigReason is the greatest length of a reason, in characters.
const MaxConfigReason = 300

// Config reads what a node reports about its configuration; nil if it reports nothing.
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
	since, _ := time.Parse(time.RFC3339, told.At) // zero if the node does not report it
	return &NodeConfig{Node: n.Name, Generation: told.Generation, Status: told.Status, Offered: told.Offered.Generation,
		Reason: CutText(told.Error, MaxConfigReason), Since: since.UTC()}
}
