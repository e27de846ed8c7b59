package kamino

import (
	"context"
	"time"
)

// Examiner is a Cluster that can examine a canary's node, and that has the stop switch (Pause).
// Errors are those of [Provider].
type Examiner interface {
	// Examine reads everything that Kubernetes knows about a canary's node. A node that does not
	// exist is no error.
	Examine(context.Context, ExamineOrder) (ClusterObservation, error)
	// AdmitCanary cordons a canary's node and removes TaintCanary, in one write that is conditional
	// on the node. So only the pods of DaemonSets start on it.
	AdmitCanary(context.Context, Node) error
	// RemoveNode deletes a Node object of that UID. A node that is gone is no error.
	RemoveNode(context.Context, Node) error
	// PreflightProof returns ErrForbidden, naming every missing right that a proof uses. With a
	// probe it tries, without effect, to create it; a *RefusedError: it is not a Job, or the API
	// server does not accept it.
	PreflightProof(ctx context.Context, probe []byte) error
	// StartProbe creates a probe on a node. An existing probe with the same nonce is no error.
	StartProbe(ctx context.Context, p Probed, node Node, probe []byte) error
	// ProbeNamespace returns the namespace of a probe. A run writes it down before it starts the
	// probe.
	ProbeNamespace(probe []byte) (string, error)
	// RemoveProbe deletes a probe with its pods. A probe that does not exist is no error; one with
	// another nonce is left alone.
	RemoveProbe(context.Context, Probed) error
	// Paused returns the stop switch of the cluster: why new runs and promotions are held; zero if
	// they are not.
	Paused(context.Context) (Pause, error)
	// Pause sets the stop switch with a reason, who set it and when; "" clears it.
	Pause(ctx context.Context, reason string) error
}

// Probed is a probe that a run has started, or is about to.
type Probed struct {
	Run       string `json:"run"`
	Namespace string `json:"namespace"`
	// Nonce is on the probe's Job. A Job of the same name without it is somebody else's.
	Nonce string `json:"nonce,omitempty"`
}

// ExamineOrder names the canary that is to be examined.
type ExamineOrder struct {
	Run     string
	Node    string    // of the canary
	Sibling string    // the node to compare the canary with; "" for none
	Since   time.Time // anything older about a node of that name is not the canary's
	Probe   []byte    // probe of the run; nil for none
	Nonce   string    // of the started probe; "" if none was started
}

// ClusterObservation is what Kubernetes shows of a canary and of a node to compare it with.
type ClusterObservation struct {
	Node     NodeObservation // the canary's node; UID "" if there is none
	Sibling  NodeObservation // a node of the pool, preferably the donor; UID "" if there is none
	Renewed  time.Time       // when another kubelet last renewed its lease, within a minute of now; zero if none did
	Requests []CertificateRequest
	Daemons  []DaemonPod // one for each DaemonSet that selects the canary's node
	Starts   int         // how often the canary's kubelet has started, by its events
	Probe    ProbeState
}

// NodeObservation is a node with the details that only an examination needs.
type NodeObservation struct {
	Node
	Pulse    time.Time         // last sign of life, by the node's clock
	NotReady string            // why it is not Ready; "" if it is
	Versions map[string]string // of kubelet, container runtime and kernel
	CPU      int64             // capacity, in thousandths
	Memory   int64             // capacity, in bytes
	MaxPods  int64             // capacity
	Images   []string          // cached, one name of each
	Own      map[string]string // labels set by its kubelet; nil if that is not known
}

// CertificateRequest is a certificate signing request for a node that is not approved.
type CertificateRequest struct {
	Name, Signer string
	Made         time.Time
	Denied       bool
	Foreign      bool // requested by somebody else than the node, or by a node without a certificate
	// OthersApproved: another node's request to the same signer was approved after this one was
	// made.
	OthersApproved bool
}

// DaemonPod is a DaemonSet that selects a node, with its pod there.
type DaemonPod struct {
	Set    string // namespace/name
	Ready  bool
	Beside bool // the pod of this DaemonSet on the sibling is Ready, and of the same revision
	// Unplaced: the scheduler finds no room for it on the node.
	Unplaced bool
	Owed     bool   // the pod waits for others: to be created, to be scheduled, for an image, a Secret…
	Asked    bool   // the pod waits for an image or an object that its kubelet has requested
	Reason   string // why it is not Ready, for people
}

// ProbeState is the progress of the operator's probe.
type ProbeState struct {
	Wanted, Started, Done, Failed bool
	Owed                          bool // the probe waits for others: an image, a Secret…
	Reason                        string
}

// Runs reports whether a probe was started and has not ended.
func (p ProbeState) Runs() bool { return p.Started && !p.Done && !p.Failed }
