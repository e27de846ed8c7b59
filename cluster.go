package kamino

import (
	"context"
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
	// RemoveAgents deletes the pods of a run, whatever their tasks, at once and
	// without grace. Ones that do not exist are no error.
	RemoveAgents(ctx context.Context, run string) error

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
