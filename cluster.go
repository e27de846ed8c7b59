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

	// Preflight returns ErrForbidden, naming every missing right that a run with these options
	// uses, or an error that says what must be installed first. Doubts are as in
	// Provider.Preflight.
	Preflight(context.Context, DrainOptions) (doubts []Warning, err error)
}

// Nodes are the nodes of the cluster, and the marks of runs on them. Part of [Cluster].
type Nodes interface {
	// Node reads one node. ErrNotFound when there is none of that name.
	Node(ctx context.Context, name string) (Node, error)
	// Nodes reads all nodes, page by page.
	Nodes(context.Context) ([]Node, error)
	// Pulse returns a kubelet's last sign of life, more precisely than the node's status where the
	// cluster has it.
	Pulse(context.Context, Node) (time.Time, error)
	// Mark writes a run's marks on a node and changes nothing else. ErrConflict: the node of that
	// name has another UID.
	Mark(context.Context, Node, Mark) error
	// Unmark removes a run's marks and restores what stood there before. ErrConflict as for Mark.
	Unmark(context.Context, Node) error
}

// AgentPods are the pods in which the agent works on a node. Part of [Cluster].
type AgentPods interface {
	// StartAgent creates the pod in which the agent does a task of a run on the node. A pod that
	// exists already is no error. ErrUnsupported: pods of TaskInventory are not admitted although
	// those of TaskSeal are.
	StartAgent(context.Context, Node, Task, SealOrder) error
	// AgentPod reads the pod with the name that a run's pod for a task has. A pod that does not
	// exist is no error. Only Node and Nonce prove that the pod is the run's.
	AgentPod(ctx context.Context, run string, task Task) (AgentPod, error)
	// RemoveAgents deletes the pods in which a run does these tasks, at once and without grace. A
	// pod that does not exist is no error.
	RemoveAgents(ctx context.Context, run string, tasks []Task) error
}

// Leases are the records of all pools and of their runs. Part of [Cluster].
type Leases interface {
	// Lease reads the lease of a pool. For a pool without one it returns a zero Lease with that
	// Pool and no Revision.
	Lease(context.Context, PoolID) (Lease, error)
	// Leases reads the leases of all pools, to find unfinished runs.
	Leases(context.Context) ([]Lease, error)
	// SetLease writes a lease if it is still at lease.Revision, and returns the stored lease. Else
	// ErrConflict.
	SetLease(context.Context, Lease) (Lease, error)
}

// Recorder is a cluster that keeps events of a node for people to read.
type Recorder interface {
	// Record writes an event. An event that cannot be written is lost; it never fails a run. A run
	// has one event of each reason on a node, also where it was adopted and repeats a step.
	Record(ctx context.Context, node Node, run, reason, message string)
}

// PackageStore is a Cluster that keeps a DiskList for each image version, under the run that made
// it, and that can ask a node for its list. Errors are those of [Provider].
type PackageStore interface {
	// SaveList keeps the list of a run. A list that exists stays. It is an error if that list has
	// other packages or another pool.
	SaveList(ctx context.Context, pool PoolID, run string, list DiskList) error
	// List reads the list of a run. ErrNotFound: there is none.
	List(ctx context.Context, run string) (DiskList, error)
	// Lists returns the runs of a pool that have a list.
	Lists(ctx context.Context, pool PoolID) (runs []string, err error)
	// DeleteList deletes the list of a run. A list that does not exist is no error.
	DeleteList(ctx context.Context, run string) error
	// AskPackages creates the pod in which the agent writes AnnotationPackages on the node. An
	// existing pod of that run is replaced.
	AskPackages(ctx context.Context, node Node, order SealOrder) error
	// ForgetPackages removes the pod of AskPackages and the annotation, if they have the order's
	// nonce.
	ForgetPackages(ctx context.Context, node Node, order SealOrder) error
}
