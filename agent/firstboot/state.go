package firstboot

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"kamino.dev/kamino/agent/disk"
	"kamino.dev/kamino/agent/nodeconfig"
	"kamino.dev/kamino/agent/seal"
	"kamino.dev/kamino/agent/userdata"
)

// What became of a node's configuration.
const (
	StatusImage   = "Image"   // no document was found: the image's own configuration
	StatusApplied = "Applied" // the document of Generation and Hash
	// The others are about State.Offered; the document before it, or the image's own configuration,
	// is in force.
	StatusWaiting    = "Waiting"    // this node is not in the share of nodes that take it
	StatusInvalid    = "Invalid"    // refused before it was tried
	StatusRolledBack = "RolledBack" // tried, and taken back
	StatusBroken     = "Broken"     // tried and taken back, and the node is not healthy afterwards
)

// State is the content of StatePath.
type State struct {
	Generation int64  `json:"generation"`
	Hash       string `json:"hash"`
	Source     string `json:"source"`
	Status     string `json:"status"`
	Error      string `json:"error,omitempty"`
	// Offered is the document that the source had last, where that is not the one in force.
	Offered *Offer   `json:"offered,omitempty"`
	Trial   *Trial   `json:"trial,omitempty"`
	Labels  []string `json:"labels,omitempty"` // keys that the agent set on the node
	// Taints that the agent set on the node.
	Taints []userdata.Taint `json:"taints,omitempty"`
	// Pending: the Node does not have all labels and taints of the document yet.
	Pending bool      `json:"pending,omitempty"`
	At      time.Time `json:"at"` // since when Status is true
}

// Offer names a document that is not in force.
type Offer struct {
	Generation int64  `json:"generation,omitempty"` // 0: it could not be read
	Hash       string `json:"hash"`
}

// Trial counts the trials of a document that have no end yet. A trial is counted before it begins,
// because a document may end the machine. The agent cannot know why it was asked to stop: by a
// person, or because the document made the machine restart. So two deaths refuse a document, an
// orderly stop counts as nothing, and ten trials without an end are the limit.
type Trial struct {
	Hash  string `json:"hash"`
	Begun int    `json:"begun"`
	// Stopped counts the trials that ended because the agent was asked to stop.
	Stopped int `json:"stopped,omitempty"`
	// What was right before the trial, and must be with the document: the Node's condition Ready,
	// that the container runtime's socket listens, and that the runtime answers there and is well.
	Ready     bool `json:"ready,omitempty"`
	Listens   bool `json:"listens,omitempty"`
	RuntimeOK bool `json:"runtimeOK,omitempty"`
}

// Refused reports whether the document of that hash was refused.
func (s State) Refused(hash string) bool {
	return s.Offered != nil && s.Offered.Hash == hash &&
		slices.Contains([]string{StatusInvalid, StatusRolledBack, StatusBroken}, s.Status)
}

// Newer is why a running node refuses a document before it tries it; nil where it does not.
func (s State) Newer(c *userdata.NodeConfig) error {
	if c.Generation <= s.Generation {
		return fmt.Errorf("generation %d is not newer than %d, which is in force", c.Generation, s.Generation)
	}
	return nil
}

// Joins is why no clone of a sealed disk can join with a document; nil where it can.
func Joins(settings seal.Settings, c *userdata.NodeConfig) error {
	if c.Join.Method == userdata.JoinKeep && settings.Join != seal.JoinKeep {
		return errors.New("join.method keep, but the donor's own credential was removed when it was sealed; use another method")
	}
	return nil
}

// Applied is the state in which c is in force.
func Applied(doc nodeconfig.Document, c *userdata.NodeConfig, now time.Time) State {
	return State{Generation: c.Generation, Hash: doc.Hash(), Source: doc.Source, Status: StatusApplied, At: now.UTC(),
		Labels: slices.Sorted(maps.Keys(c.Kubelet.Labels)), Taints: c.Kubelet.Taints}
}

// ReadState reads the configuration in force; the zero value when there is none.
func ReadState(d *disk.Disk) (s State, err error) {
	data, err := d.ReadFile(StatePath, disk.Small)
	if err != nil {
		return State{}, nil
	}
	if err := json.Unmarshal(data, &s); err != nil {
		return State{}, fmt.Errorf("decode /%s: %w; remove the file, and the agent takes the document that is offered", StatePath, err)
	}
	return s, nil
}

// WriteState replaces it.
func WriteState(d *disk.Disk, s State) error {
	data, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return err
	}
	return d.WriteFile(StatePath, append(data, '\n'), 0o644)
}
