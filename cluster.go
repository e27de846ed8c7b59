package kamino

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Cluster is the port to Kubernetes. Reads are never served from a cache.
// Errors are those of [Provider].
type Cluster interface {
	// Node reads one node. ErrNotFound when there is none of that name.
	Node(ctx context.Context, name string) (Node, error)
	// Nodes reads all nodes, page by page.
	Nodes(context.Context) ([]Node, error)
	// Pulse is a kubelet's last sign of life, more closely than the node's status
	// tells it where the cluster knows.
	Pulse(context.Context, Node) (time.Time, error)
	// Mark writes our marks on a node. It touches nothing that is not ours, and
	// only the node of that UID: else ErrConflict.
	Mark(context.Context, Node, Mark) error
	// Unmark takes them off and gives back what stood there before, with the same care.
	Unmark(context.Context, Node) error

	// Preview lists the pods that a drain would evict, each with the budgets
	// that would not allow it now.
	Preview(context.Context, Node, DrainOptions) ([]Pod, error)
	// Rehearse tries, without effect, what drain and seal of a node need: an
	// eviction of each pod that must leave, and the creation of the seal pod for
	// this order. It returns the pods that no waiting would remove, as Stuck, and those
	// of which it is in doubt whether they will leave in time. An error is what would
	// stop the seal pod, or a right that is missing.
	Rehearse(context.Context, Node, SealOrder, DrainOptions) ([]Pod, error)
	// RehearseSeal tries, without effect, to create the seal pod of a run. A
	// *RefusedError with CodeSealPod: no node would get one. ErrForbidden: these
	// credentials may not ask; ErrNotFound: the cluster is not prepared.
	RehearseSeal(context.Context, Node, SealOrder) error
	// Evict makes one round of a drain: it asks for the eviction of every pod
	// that must leave and returns those that are still there.
	Evict(context.Context, Node, DrainOptions) ([]Pod, error)

	// StartAgent creates the pod of a run in which the agent does a task on the
	// node. One that exists already is no error. ErrUnsupported where pods of
	// TaskInventory are not admitted and those of TaskSeal are.
	StartAgent(context.Context, Node, Task, SealOrder) error
	// AgentPod reads the pod of a run that does a task; one that does not exist is no error.
	AgentPod(ctx context.Context, run string, task Task) (AgentPod, error)
	// RemoveAgents deletes the pods in which a run does these tasks, at once and without grace.
	// Ones that do not exist are no error.
	RemoveAgents(ctx context.Context, run string, tasks []Task) error

	// Lease reads the lease of a pool; a pool that never had one has a zero
	// Lease with that Pool and no Revision.
	Lease(context.Context, PoolID) (Lease, error)
	// Leases reads those of all pools, for finding runs that were left.
	Leases(context.Context) ([]Lease, error)
	// SetLease writes a lease if it is still at lease.Revision, else
	// ErrConflict, and returns it as it stands afterwards.
	SetLease(context.Context, Lease) (Lease, error)

	// Preflight returns ErrForbidden naming every right that a run with these
	// options uses and that is missing, or an error that says what must be installed
	// first. Doubts are as those of Provider.Preflight.
	Preflight(context.Context, DrainOptions) (doubts []string, err error)
}

// Recorder is a cluster that keeps events of a node for people to read.
type Recorder interface {
	// Record never fails a run; an event that cannot be written is lost.
	Record(ctx context.Context, node Node, reason, message string)
}

// Task is what the agent does in a pod on the donor; the name is that of its verb.
type Task string

const (
	// TaskSeal makes the disk fit to be cloned and switches the machine off.
	TaskSeal Task = "seal"
	// TaskInventory looks at the files of the disk while the node still serves its pods, and
	// refuses what the seal would refuse. It changes nothing but the host's memory, in which the
	// seal finds what was seen.
	TaskInventory Task = "inventory"
	// TaskPackages writes the list of the installed packages on the node. Only a Shelf makes it.
	TaskPackages Task = "packages"
	// TaskPatch upgrades the node's packages. Only a Patcher makes it and the next two, under the
	// verb patch.
	TaskPatch Task = "patch"
	// TaskReboot restarts the node if it still is in the boot that the order names.
	TaskReboot Task = "reboot"
	// TaskLook tells how the node stands.
	TaskLook Task = "look"
)

// DrainOptions say how hard a drain may push.
type DrainOptions struct {
	// Grace is what each pod gets at least to end; one that asks for more gets more.
	// Negative means that every pod gets what it asks for.
	Grace time.Duration
	// Within is the time of the whole drain, which no Grace may exceed; 0 means no
	// limit.
	Within time.Duration
	// Force deletes pods that no controller would bring back, and after the
	// drain's time is over deletes what the budgets still hold.
	Force bool
	// Overdue says that the time for evictions is over.
	Overdue bool
}

// Pod is a pod in the way of a drain.
type Pod struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// Reason says why it is still there: the budget that holds it, that it is
	// ending, or that only force would remove it.
	Reason string `json:"reason,omitempty"`
	// Stuck says that no waiting would remove it: only force would, if at all.
	Stuck bool `json:"stuck,omitempty"`
}

// String is namespace/name.
func (p Pod) String() string { return p.Namespace + "/" + p.Name }

// SealOrder is what the agent in a seal pod is told.
type SealOrder struct {
	Run string
	// Nonce is a random text that the receipt has to repeat: a receipt made
	// without having been asked, or by another node, does not know it. Empty in
	// runs that a kamino without nonces began.
	Nonce string
	// Policy is the run's seal policy as YAML, at most SealPolicyMost bytes; nil
	// where the run brings none.
	Policy []byte
	// Patch is what the agent is told in place of that by a run which patches, as JSON
	// (docs/agent.md, "Patch"); nil for others.
	Patch []byte
}

// SealPolicyMost bounds a seal policy, in bytes of YAML. It travels in an
// environment variable, of which Linux takes 128 KiB.
const SealPolicyMost = 64 << 10

// AgentPod is what is known of a pod in which the agent does a task.
type AgentPod struct {
	Exists  bool
	Started bool   // its container began to run: the disk may have been touched
	Failed  bool   // it ended without powering the machine off
	Done    bool   // it ended well
	Ousted  bool   // it failed because the node did not admit it, or killed it
	Refused bool   // it failed because of what is on the disk: another one would too
	Message string // why it is waiting, or the last words of a failed one
}

// Names of what Kamino writes on a node.
const (
	// AnnotationRun holds a Mark as JSON.
	AnnotationRun = "kamino.dev/run"
	// AnnotationReceipt holds the donor's Receipt as JSON; the node itself
	// writes it when its disk is sealed.
	AnnotationReceipt = "kamino.dev/receipt"
	// AnnotationSealFailure is the node's word on why it gave a run's seal up,
	// as {"run": ID, "error": TEXT}.
	AnnotationSealFailure = "kamino.dev/seal-failure"
	// AnnotationProtect keeps cluster-autoscaler from removing the node
	// (https://github.com/kubernetes/autoscaler/blob/master/cluster-autoscaler/FAQ.md).
	AnnotationProtect = "cluster-autoscaler.kubernetes.io/scale-down-disabled"
	// TaintBlock keeps new pods off the donor. A taint of our own, and not the
	// cordon, so that a person's cordon stays a person's. The prefix tells
	// cluster-autoscaler not to expect the taint on new nodes of the pool
	// (since 1.29, release notes of cluster-autoscaler-1.29.0).
	TaintBlock = "status-taint.cluster-autoscaler.kubernetes.io/kamino-donor"
	// TaintDeleting is what cluster-autoscaler puts on a node it is removing.
	TaintDeleting = "ToBeDeletedByClusterAutoscaler"
)

// Node is a Kubernetes node, freshly read.
type Node struct {
	Name          string            `json:"name"`
	UID           string            `json:"uid"`
	ProviderID    InstanceID        `json:"providerID"`
	OS            string            `json:"os"`
	Architecture  string            `json:"architecture"` // as Kubernetes says it: amd64, arm64
	SystemUUID    string            `json:"systemUUID"`
	BootID        string            `json:"bootID"` // new after every boot
	MachineID     string            `json:"-"`      // of /etc/machine-id
	ControlPlane  bool              `json:"controlPlane,omitempty"`
	Unschedulable bool              `json:"unschedulable,omitempty"`
	Deleting      bool              `json:"deleting,omitempty"`
	Ready         bool              `json:"ready"`
	ReadySince    time.Time         `json:"readySince,omitzero"`
	Heartbeat     time.Time         `json:"heartbeat,omitzero"` // by the node's clock
	Conditions    []Condition       `json:"conditions,omitempty"`
	Volumes       []string          `json:"volumes,omitempty"` // attached to the node or in use there
	Taints        []Taint           `json:"taints,omitempty"`
	Software      Software          `json:"-"`
	Labels        map[string]string `json:"-"`
	Annotations   map[string]string `json:"-"`
	Revision      string            `json:"-"`
	// Created is when the API server made the object, by its clock; the node
	// cannot write it.
	Created time.Time `json:"created,omitzero"`
}

// Condition is a condition of a node other than Ready.
type Condition struct {
	Type   string    `json:"type"`
	Status string    `json:"status"` // True, False or Unknown
	Since  time.Time `json:"since,omitzero"`
	Reason string    `json:"reason,omitempty"`
}

// Taint is a taint of a node.
type Taint struct {
	Key    string `json:"key"`
	Value  string `json:"value,omitempty"`
	Effect string `json:"effect"`
}

// Tainted says whether the node carries a taint of that key.
func (n Node) Tainted(key string) bool {
	for _, t := range n.Taints {
		if t.Key == key {
			return true
		}
	}
	return false
}

// MarkFormat is the format of marks that this program writes. One of a higher
// number was written by a newer program and is left alone.
const MarkFormat = 1

// Work is what a run does with the node that it takes; "" makes an image of its disk.
type Work string

// WorkPatch upgrades its packages, and restarts it where that needs it.
const WorkPatch Work = "patch"

// WorkWatch watches it as the first node of a version, and does nothing to it: the mark keeps
// cluster-autoscaler away, to which a new node without pods is the first to take.
const WorkWatch Work = "watch"

// Mark is what a run writes on its donor before it does anything to it. It is
// all that restitution needs.
type Mark struct {
	Format   int        `json:"format"`
	Run      string     `json:"run"`
	Epoch    int64      `json:"epoch"`
	Pool     PoolID     `json:"pool"`
	Instance InstanceID `json:"instance"`
	VMID     string     `json:"vmId"`
	BootID   string     `json:"bootID"` // of the boot that the run found
	Since    time.Time  `json:"since"`
	// Block says that the mark includes TaintBlock.
	Block bool `json:"block"`
	// Sealing says that the donor's disk may have been touched and the machine
	// may go off: it counts as returned only after a new boot.
	Sealing bool `json:"sealing"`
	// Held says that the donor may have been taken out of service; see Holder.
	Held bool `json:"held,omitempty"`
	// Work is what the run does with the node. With WorkPatch, Sealing says that the machine may be
	// restarted; its disk stays what it is.
	Work Work `json:"work,omitempty"`
	// Begun says that the node's packages may have been changed and nobody has seen since that it
	// is in order: who gives it back keeps it blocked. Sign takes it off. Only with WorkPatch.
	Begun bool `json:"begun,omitempty"`
	// Protection is what AnnotationProtect held before; nil when it was absent.
	Protection *string `json:"protection"`
}

// Mark reads the node's mark. Nil without error when there is none.
func (n Node) Mark() (*Mark, error) {
	text, ok := n.Annotations[AnnotationRun]
	if !ok {
		return nil, nil
	}
	var m Mark
	if err := json.Unmarshal([]byte(text), &m); err != nil || m.Run == "" {
		return nil, fmt.Errorf("node %s: annotation %s was not written by kamino: %q", n.Name, AnnotationRun, text)
	}
	if m.Format > MarkFormat {
		return nil, fmt.Errorf("node %s: annotation %s has format %d, written by a newer kamino (this one knows %d)",
			n.Name, AnnotationRun, m.Format, MarkFormat)
	}
	return &m, nil
}

// claim is what a node says of the run that has it, and only a claim: kubelets may write the
// annotations of their own nodes. One that names another machine or pool than the node's is an
// error.
func (n Node) claim(pool PoolID) (*Mark, error) {
	mark, err := n.markOrTaint(pool)
	if err != nil || mark == nil {
		return nil, err
	}
	if !strings.EqualFold(string(mark.Instance), string(n.ProviderID)) || !strings.EqualFold(string(mark.Pool), string(pool)) {
		return nil, fmt.Errorf("node %s: annotation %s names instance %s of pool %s, the node is instance %s",
			n.Name, AnnotationRun, mark.Instance, mark.Pool, n.ProviderID)
	}
	return mark, nil
}

// vouched says whether somebody else than the node's own kubelet tells that a run had it: the
// pool's lease, or the taint. A kubelet may not write taints on its node (admission plugin
// NodeRestriction,
// https://kubernetes.io/docs/reference/access-authn-authz/admission-controllers/#noderestriction).
func (n Node) vouched(mark Mark, lease Lease) bool {
	for _, t := range n.Taints {
		if t.Key == TaintBlock && t.Value == mark.Run {
			return true
		}
	}
	return lease.Holder == mark.Run || slices.ContainsFunc(lease.Ledger.Past, func(p PastRun) bool { return p.Run == mark.Run })
}

// taken is the mark of a run that has the node, as far as that can be believed: nil when there is
// none. A mark that says nothing was done to the machine yet needs no witness.
func (n Node) taken(pool PoolID, lease Lease) (*Mark, error) {
	mark, err := n.claim(pool)
	if err != nil || mark == nil {
		return nil, err
	}
	if (mark.Sealing || mark.Held) && !n.vouched(*mark, lease) {
		return nil, fmt.Errorf("node %s: annotation %s names run %s, of which neither the lease of pool %s nor a taint of the node knows",
			n.Name, AnnotationRun, mark.Run, pool.Name())
	}
	return mark, nil
}

// vmOf is the VM that a run had with the node. What its mark says is a claim: the lease of the run
// knows better, and after it the node, whose machine the mark was written for. A mark that names a
// VM which neither knows gives nobody's donor up.
func (n Node) vmOf(mark Mark, lease Lease) string {
	switch {
	case lease.Holder == mark.Run && lease.Record.VMID != "":
		return lease.Record.VMID
	case n.SystemUUID != "":
		return n.SystemUUID
	}
	return mark.VMID
}

// leftAlone is what to do about a mark that is not believed.
func leftAlone(node string) string {
	return fmt.Sprintf("if no run needs it: kubectl annotate node %s %s-", node, AnnotationRun)
}

// markOrTaint is the node's mark or, where somebody removed the annotation and left
// the taint, as much of a mark as the taint and the node tell. What the run did
// to the machine is not known then: it counts as touched.
func (n Node) markOrTaint(pool PoolID) (*Mark, error) {
	mark, err := n.Mark()
	if mark != nil || err != nil {
		return mark, err
	}
	for _, t := range n.Taints {
		if t.Key == TaintBlock && t.Value != "" {
			return &Mark{Format: MarkFormat, Run: t.Value, Pool: pool, Instance: n.ProviderID, VMID: n.SystemUUID, Block: true, Sealing: true, Held: true}, nil
		}
	}
	return nil, nil
}

// Receipt is the proof that a donor's disk was sealed for a run. The agent on
// the donor writes it.
type Receipt struct {
	Run      string    `json:"run"`
	Donor    string    `json:"donor"`
	SealedAt time.Time `json:"sealedAt"`
	VMID     string    `json:"vmId"`
	Hash     string    `json:"hash"`
	Nonce    string    `json:"nonce,omitempty"` // of the order that it answers
	// Policy is the SHA-256 in hex of the seal policy that the agent applied.
	Policy string `json:"policy,omitempty"`
	Freshness
	// SSHKeys are fingerprints of the public keys of the donor's SSH server, sorted: the first half
	// of the SHA-256 of each in hex.
	SSHKeys []string `json:"sshKeys,omitempty"`
	// Unknown tells of files that nothing explains; nil from agents that did not
	// look.
	Unknown *UnknownFiles `json:"unknown,omitempty"`
}

// UnknownFiles are the files on a sealed disk that no package, image, rule or
// policy explains.
type UnknownFiles struct {
	Mode   string `json:"mode"` // refuse or report
	Count  int    `json:"count"`
	Digest string `json:"digest,omitempty"` // over their names and contents
}

// Receipt reads the node's receipt; ok is false when there is none or it
// cannot be read.
func (n Node) Receipt() (r Receipt, ok bool) {
	err := json.Unmarshal([]byte(n.Annotations[AnnotationReceipt]), &r)
	return r, err == nil && r.Run != "" && r.Hash != ""
}
