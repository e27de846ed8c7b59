package kamino

import (
	"context"
	"time"
)

// Cluster is the port to Kubernetes. Reads are never served from a cache.
// Errors are those of [Provider].
type Cluster interface {
	Nodes
	Drains
	AgentPods
	Leases

	// Preflight returns ErrForbidden naming every right that a run with these
	// options uses and that is missing, or an error that says what must be installed
	// first. Doubts are as those of Provider.Preflight.
	Preflight(context.Context, DrainOptions) (doubts []Warning, err error)
}

// Nodes are the nodes of the cluster, and the marks of runs on them. Part of [Cluster].
type Nodes interface {
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
}

// AgentPods are the pods in which the agent works on a node. Part of [Cluster].
type AgentPods interface {
	// StartAgent creates the pod of a run in which the agent does a task on the
	// node. One that exists already is no error. ErrUnsupported where pods of
	// TaskInventory are not admitted and those of TaskSeal are.
	StartAgent(context.Context, Node, Task, SealOrder) error
	// AgentPod reads the pod that has the name of a run's pod for a task; one that does not exist
	// is no error. Whose it is only its Node and Nonce tell.
	AgentPod(ctx context.Context, run string, task Task) (AgentPod, error)
	// RemoveAgents deletes the pods in which a run does these tasks, at once and without grace.
	// Ones that do not exist are no error.
	RemoveAgents(ctx context.Context, run string, tasks []Task) error
}

// Leases hold what each pool and its run must remember. Part of [Cluster].
type Leases interface {
	// Lease reads the lease of a pool; a pool that never had one has a zero
	// Lease with that Pool and no Revision.
	Lease(context.Context, PoolID) (Lease, error)
	// Leases reads those of all pools, for finding runs that were left.
	Leases(context.Context) ([]Lease, error)
	// SetLease writes a lease if it is still at lease.Revision, else
	// ErrConflict, and returns it as it stands afterwards.
	SetLease(context.Context, Lease) (Lease, error)
}

// Recorder is a cluster that keeps events of a node for people to read.
type Recorder interface {
	// Record never fails a run; an event that cannot be written is lost. A run has one of each
	// reason on a node, also where it was adopted and does a step again.
	Record(ctx context.Context, node Node, run, reason, message string)
}

// PackageStore is a Cluster that keeps a DiskList for each image version, under the run that made it, and
// asks nodes for theirs. Errors are those of [Provider].
type PackageStore interface {
	// SaveList keeps the list of a run. One that is there already stays; it is an error where it is
	// of other packages or another pool.
	SaveList(ctx context.Context, pool PoolID, run string, list DiskList) error
	// List reads it. ErrNotFound: there is none.
	List(ctx context.Context, run string) (DiskList, error)
	// Lists are the runs of a pool of which there are lists.
	Lists(ctx context.Context, pool PoolID) (runs []string, err error)
	// DeleteList deletes one; one that does not exist is no error.
	DeleteList(ctx context.Context, run string) error
	// AskPackages creates the pod in which the agent writes AnnotationPackages on the node. One of
	// that run that exists is replaced.
	AskPackages(ctx context.Context, node Node, order SealOrder) error
	// ForgetPackages removes that pod and the annotation, where they are of the order's nonce.
	ForgetPackages(ctx context.Context, node Node, order SealOrder) error
}
