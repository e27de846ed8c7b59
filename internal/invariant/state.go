package invariant

import "time"

// State is what the invariants need of the world, at one moment. Its slices
// may be in any order. An Auditor keeps nothing of it but strings.
type State struct {
	Now       time.Time
	Pools     []Pool
	Machines  []Machine
	Nodes     []Node
	Artifacts []Artifact
	Leases    []Lease
	SealPods  []SealPod
	AgentPods []SealPod // those of all other tasks
	Pods      []Pod
	Canaries  []Canary
}

// Canary is an instance of a pool's recipe beside the pool.
type Canary struct {
	Name string // its node's name begins with it
	Pool string // that it is of
	Run  string
}

// Pool is a set of machines built from one model.
type Pool struct {
	ID       string
	Image    string // that the model refers to
	Next     string // that the next machine boots from, where the model names a definition; "": Image
	Revision string // changes with every write of the pool
	Capacity int
	// Refused: the pool is set up in a way that Kamino must not touch.
	Refused bool
	// Replaces: it replaces a machine in service that is off. Suspended: Kamino keeps it from
	// evening out what is missing.
	Replaces, Suspended bool
	Owned               bool // somebody else writes its model, and an image may be made for it that stays hidden
	// Person is the image that a person, or anything but Kamino, last wrote into
	// the model during the present run; "" when nobody did.
	Person string
}

// Power is what a machine does.
type Power string

// The power states. Between is everything that becomes another by itself.
const (
	On      Power = "on"
	Off     Power = "off"
	Between Power = "between"
)

// Machine is a VM of a pool.
type Machine struct {
	ID      string // instance; what the node's providerID says
	VM      string // changes when the instance is replaced under the same ID
	Pool    string
	Power   Power
	Kubelet bool   // runs and reports
	Touched string // run that took the identity off the disk; anything while the disk is not whole; "" when it is
	Sealed  string // run whose receipt is on the disk
	Receipt string // hash of that receipt
	Disk    string // OS disk, as snapshots name their source
	Image   string // ID of the image it booted from
	Service bool   // it is in service, where its pool replaces
	Served  bool   // somebody else put it there
	Local   bool   // a PersistentVolume of a claim has its data on a disk that a stop empties
	Ends    bool   // it is being deleted, which nothing takes back
	Reboots bool   // somebody else restarted it, and it is not up again

	Upgrading bool // its packages are being changed
	Unseen    bool // they may have been, and nobody has signed the node since
	InOrder   bool // the agent looked at it in its present boot, and it is in order
}

// Node is a node as Kubernetes shows it, raw.
type Node struct {
	Name          string
	ProviderID    string // ID of the machine
	SystemUUID    string // VM of the machine that last registered
	Pool          string
	Ready         bool
	Unschedulable bool
	Annotations   map[string]string
	Taints        []string // keys
}

// Kind of an artifact.
type Kind string

// The kinds that matter here.
const (
	Gallery    Kind = "gallery"
	Definition Kind = "definition"
	Snapshot   Kind = "snapshot"
	Version    Kind = "version"
)

// Artifact is a gallery, an image definition, a snapshot or an image version.
type Artifact struct {
	Kind   Kind
	Pool   string
	Name   string
	ID     string
	State  string // Creating, Succeeded, Failed or Deleting
	Ready  bool   // a snapshot is complete; a version is replicated in the pool's region
	Source string // disk of a snapshot, ID of the snapshot of a version
	Run    string // tag kamino-run
	Ours   bool   // made by Kamino, whichever version of it
	// Unfit: what booted from it was seen to be no node that works. The world knows.
	Unfit bool
	// Left: it was made to wait for a person, and none has promoted it.
	Left bool
	// Receipt is the tag kamino-receipt.
	Receipt string
}

// Lease is the lock of a pool with what stands on it.
type Lease struct {
	Pool     string
	Holder   string // run
	Process  string
	Epoch    int64
	Acts     []string
	DonorVM  string
	Former   string // image of the ledger's former model
	Original string // image of the ledger's original model
	Version  string // that the holder makes
}

// SealPod is a pod that seals a node.
type SealPod struct {
	Run    string
	Node   string
	Failed bool
}

// Pod is any other pod.
type Pod struct {
	Name string // namespace/name
	Node string
	// Stays: a drain leaves it alone, being of a DaemonSet or static.
	Stays bool
}

func (s *State) pool(id string) *Pool {
	for i := range s.Pools {
		if s.Pools[i].ID == id {
			return &s.Pools[i]
		}
	}
	return nil
}

func (s *State) lease(pool string) Lease {
	for _, l := range s.Leases {
		if l.Pool == pool {
			return l
		}
	}
	return Lease{Pool: pool}
}

func (s *State) node(name string) *Node {
	for i := range s.Nodes {
		if s.Nodes[i].Name == name {
			return &s.Nodes[i]
		}
	}
	return nil
}

func (s *State) machine(id string) *Machine {
	for i := range s.Machines {
		if s.Machines[i].ID == id {
			return &s.Machines[i]
		}
	}
	return nil
}

// behind is the machine that a node runs on; nil when it is gone or replaced.
func (s *State) behind(n *Node) *Machine {
	m := s.machine(n.ProviderID)
	if m == nil || m.VM != n.SystemUUID {
		return nil
	}
	return m
}

// on is the node of a machine; nil when Kubernetes has none.
func (s *State) on(m *Machine) *Node {
	for i := range s.Nodes {
		if n := &s.Nodes[i]; n.ProviderID == m.ID && n.SystemUUID == m.VM {
			return n
		}
	}
	return nil
}

func (s *State) artifact(kind Kind, id string) *Artifact {
	for i := range s.Artifacts {
		if a := &s.Artifacts[i]; a.Kind == kind && equalID(a.ID, id) {
			return a
		}
	}
	return nil
}
