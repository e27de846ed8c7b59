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
	// Mark writes our marks on a node, or takes them off when mark is nil and
	// gives back what stood there before. It touches nothing that is not ours,
	// and only the node of that UID: else ErrConflict.
	Mark(ctx context.Context, node Node, mark *Mark) error
	// Evict makes one round of a drain: it asks for the eviction of every pod
	// that must leave and returns those that are still there.
	Evict(ctx context.Context, node Node, opts DrainOptions) ([]Pod, error)
	// Rehearse tries, without effect, what drain and seal of a node need: an
	// eviction of each pod that must leave, and the creation of the seal pod for
	// this order, which may be the zero SealOrder for none. It returns the pods that
	// no waiting would remove, as Stuck, and those of which it is in doubt whether they
	// will leave in time. An error is what would stop the seal pod, or a right that is
	// missing.
	Rehearse(ctx context.Context, node Node, order SealOrder, opts DrainOptions) ([]Pod, error)
	// SealPod reads the seal pod of a run.
	SealPod(ctx context.Context, node Node, run string) (SealPod, error)
	// Seal creates the seal pod of a run on the node. One that exists already is
	// no error.
	Seal(ctx context.Context, node Node, order SealOrder) error
	// RemoveSealPod deletes the seal pod of a run, and the pod of its inventory
	// (Surveyor), at once, without grace. One that does not exist is no error.
	RemoveSealPod(ctx context.Context, node Node, run string) error
	// Lease reads the lease of a pool; a pool that never had one has a zero
	// Lease with that Pool and no Revision.
	Lease(context.Context, PoolID) (Lease, error)
	// SetLease writes a lease if it is still at lease.Revision, else
	// ErrConflict, and returns it as it stands afterwards.
	SetLease(context.Context, Lease) (Lease, error)
}

// Recorder is a cluster that keeps events of a node for people to read.
type Recorder interface {
	// Record never fails a run; an event that cannot be written is lost.
	Record(ctx context.Context, node Node, reason, message string)
}

// ClusterPreflighter is a cluster that can tell beforehand whether a run lacks
// something there.
type ClusterPreflighter interface {
	// Preflight returns ErrForbidden naming every right that a run with these
	// options uses and that is missing, or an error that says what must be installed
	// first. Doubts are as those of [Preflighter].
	Preflight(context.Context, DrainOptions) (doubts []string, err error)
}

// Previewer is a cluster that can tell what a drain would do.
type Previewer interface {
	// Preview lists the pods that a drain would evict, each with the budgets
	// that would not allow it now.
	Preview(ctx context.Context, node Node, opts DrainOptions) ([]Pod, error)
}

// SealRehearser is a cluster that can tell whether a seal pod would be admitted.
type SealRehearser interface {
	// RehearseSeal tries, without effect, to create the seal pod of a run. A
	// *RefusedError with CodeSealPod: no node would get one. ErrForbidden: these
	// credentials may not ask; ErrNotFound: the cluster is not prepared.
	RehearseSeal(ctx context.Context, node Node, order SealOrder) error
}

// Pulser is a cluster that knows a kubelet's last sign of life more closely
// than the node's status does.
type Pulser interface {
	Pulse(ctx context.Context, node Node) (time.Time, error)
}

// Leases is a cluster that can list the leases of all pools, for finding runs
// that were left.
type Leases interface {
	Leases(context.Context) ([]Lease, error)
}

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

// SealPod is what is known of the pod that seals a donor.
type SealPod struct {
	Exists  bool
	Started bool   // its container began to run: the disk may have been touched
	Failed  bool   // it ended without powering the machine off
	Done    bool   // it ended well
	Ousted  bool   // it failed because the node did not admit it, or killed it
	Refused bool   // it failed because of what is on the disk: another one would too
	Message string // why it is waiting, or the last words of a failed one
}
