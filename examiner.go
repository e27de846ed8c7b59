package kamino

import (
	"context"
	"time"
)

// Examiner is a Cluster that can examine a canary's node, and knows the stop switch. Errors are
// those of [Provider].
type Examiner interface {
	// Examine reads what Kubernetes tells of a canary's node. A node that is not there is no error.
	Examine(context.Context, ExamineOrder) (ClusterObservation, error)
	// AdmitCanary cordons a canary's node and takes TaintCanary off, in one write that is
	// conditional on the node: so the pods of DaemonSets land on it, and no others.
	AdmitCanary(context.Context, Node) error
	// RemoveNode deletes a Node object of that UID. One that is gone is no error.
	RemoveNode(context.Context, Node) error
	// PreflightProof returns ErrForbidden naming every right that a proof uses besides and that is
	// missing. With a probe it tries, without effect, to create it: a *RefusedError where it is no
	// Job, or the API server takes no such one.
	PreflightProof(ctx context.Context, probe []byte) error
	// StartProbe creates a probe on a node. One that exists already is no error, if it has the
	// nonce.
	StartProbe(ctx context.Context, p Probed, node Node, probe []byte) error
	// ProbeNamespace is that of a probe, which is written down before it is started.
	ProbeNamespace(probe []byte) (string, error)
	// RemoveProbe deletes a probe with its pods. One that is not there is no error, and one that
	// has another nonce is left alone.
	RemoveProbe(context.Context, Probed) error
	// Paused is why new runs and promotions are held in the whole cluster; zero when they are not.
	Paused(context.Context) (Pause, error)
	// Pause writes that reason, who gives it and when; "" takes it away.
	Pause(ctx context.Context, reason string) error
}

// Probed is a probe that a run has started, or is about to.
type Probed struct {
	Run       string `json:"run"`
	Namespace string `json:"namespace"`
	// Nonce is on its Job: another Job of the same name is somebody else's.
	Nonce string `json:"nonce,omitempty"`
}

// ExamineOrder says which canary is to be examined.
type ExamineOrder struct {
	Run     string
	Node    string    // of the canary
	Sibling string    // the node to compare it with; "" none
	Since   time.Time // before which nothing of a node of that name was the canary's
	Probe   []byte    // of the run; nil for none
	Nonce   string    // of the probe that was started; "" when none was
}

// ClusterObservation is what Kubernetes tells of a canary and of a node to compare it with.
type ClusterObservation struct {
	Node     NodeObservation // the canary's; UID "" when there is none
	Sibling  NodeObservation // of the pool, the donor where it is there; UID "" when there is none
	Renewed  time.Time       // when another kubelet than the canary's last renewed its lease, within a minute of now; zero: none
	Requests []CertificateRequest
	Daemons  []DaemonPod // one for each DaemonSet that selects the canary's node
	Starts   int         // how often its kubelet has started, as events tell
	Probe    ProbeState
}

// NodeObservation is a node with what only an examination needs.
type NodeObservation struct {
	Node
	Pulse    time.Time         // last sign of life, by the node's clock
	NotReady string            // why it is not, "" when it is
	Versions map[string]string // of kubelet, container runtime and kernel
	CPU      int64             // capacity, in thousandths
	Memory   int64             // capacity, in bytes
	MaxPods  int64             // capacity
	Images   []string          // cached, one name of each
	Own      map[string]string // labels that its kubelet set; nil where that cannot be told
}

// CertificateRequest is a certificate signing request for a node that is not approved.
type CertificateRequest struct {
	Name, Signer string
	Made         time.Time
	Denied       bool
	Foreign      bool // somebody else than the node, or a node without a certificate, asked for it
	// OthersApproved: after this one was made, another node's of the same signer was approved.
	OthersApproved bool
}

// DaemonPod is a DaemonSet that selects a node, with its pod there.
type DaemonPod struct {
	Set    string // namespace/name
	Ready  bool
	Beside bool // the sibling's pod of it is Ready, and of the same revision
	// Unplaced: the scheduler finds no room for it on the node.
	Unplaced bool
	Owed     bool   // it waits for what others owe it: to be made, to be scheduled, an image, a Secret…
	Asked    bool   // it does, and for an image or an object that its kubelet has asked for
	Reason   string // why it is not Ready, for people
}

// ProbeState is how far the operator's probe has come.
type ProbeState struct {
	Wanted, Started, Done, Failed bool
	Owed                          bool // it waits for what others owe it: an image, a Secret…
	Reason                        string
}

// Runs says whether a probe was started and has not ended.
func (p ProbeState) Runs() bool { return p.Started && !p.Done && !p.Failed }
