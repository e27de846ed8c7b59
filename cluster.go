package kamino

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
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
	Preflight(context.Context, DrainOptions) (doubts []Doubt, err error)
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

// Drains evict pods. Part of [Cluster].
type Drains interface {
	// Preview lists the pods that a drain would evict, each with the budgets
	// that would not allow it now. A *RefusedError beside them, with CodeLocalVolume, names
	// the local volumes that a stop of the machine would destroy.
	Preview(context.Context, Node, DrainOptions) ([]Pod, error)
	// Rehearse tries, without effect, what drain and seal of a node need: an
	// eviction of each pod that must leave, and the creation of the seal pod for
	// this order. It returns the pods that no waiting would remove, as Stuck, and those
	// of which it is in doubt whether they will leave in time. An error is what would
	// stop the seal pod, a right that is missing, or, of an order that seals, a
	// *RefusedError with CodeLocalVolume.
	Rehearse(context.Context, Node, SealOrder, DrainOptions) ([]Pod, error)
	// RehearseSeal tries, without effect, to create the seal pod of a run. A
	// *RefusedError with CodeSealPod: no node would get one. ErrForbidden: these
	// credentials may not ask; ErrNotFound: the cluster is not prepared.
	RehearseSeal(context.Context, Node, SealOrder) error
	// Evict makes one round of a drain: it asks for the eviction of every pod
	// that must leave and returns those that are still there.
	Evict(context.Context, Node, DrainOptions) ([]Pod, error)
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

// Patcher is a Cluster on whose nodes a run can upgrade packages. Errors are those of [Provider].
type Patcher interface {
	// Daemons lists the pods of DaemonSets on a node.
	Daemons(context.Context, Node) ([]DaemonPod, error)
	// Sign writes on the node of that UID that it was patched, with kured's annotation beside the
	// label, and takes an earlier failure off with its taint, and Begun off its mark.
	Sign(context.Context, Node, time.Time) error
	// KeepBlocked puts TaintPatchFailed and AnnotationPatchFailed on the node of that UID.
	KeepBlocked(context.Context, Node, PatchFailure) error
}

// Shelf is a Cluster that keeps a DiskList for each image version, under the run that made it, and
// asks nodes for theirs. Errors are those of [Provider].
type Shelf interface {
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

// Examiner is a Cluster that can examine a canary's node, and knows the stop switch. Errors are
// those of [Provider].
type Examiner interface {
	// Examine reads what Kubernetes tells of a canary's node. A node that is not there is no error.
	Examine(context.Context, ExamineOrder) (ClusterSight, error)
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

// ClusterSight is what Kubernetes tells of a canary and of a node to compare it with.
type ClusterSight struct {
	Node     NodeSight // the canary's; UID "" when there is none
	Sibling  NodeSight // of the pool, the donor where it is there; UID "" when there is none
	Renewed  time.Time // when another kubelet than the canary's last renewed its lease, within a minute of now; zero: none
	Requests []CertificateRequest
	Daemons  []DaemonPod // one for each DaemonSet that selects the canary's node
	Starts   int         // how often its kubelet has started, as events tell
	Probe    ProbeState
}

// NodeSight is a node with what only an examination needs.
type NodeSight struct {
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

func (p ProbeState) runs() bool { return p.Started && !p.Done && !p.Failed }

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
	// TaskCheck refuses, while the node still serves its pods, what TaskPatch would refuse. It
	// changes nothing. Only a Patcher makes it and the next three, under the verb patch.
	TaskCheck Task = "check"
	// TaskPatch upgrades the node's packages.
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
	// Returns says that not even force would remove it for long: it tolerates TaintBlock, so that
	// its controller's next pod may come to the node again. Such a pod is never evicted. It is Stuck,
	// unless it ends by itself, as a Job's does.
	Returns bool `json:"returns,omitempty"`
}

// String is namespace/name.
func (p Pod) String() string { return p.Namespace + "/" + p.Name }

// SealOrder is what the agent in a seal pod is to do.
type SealOrder struct {
	Run string
	// Nonce is a random text that the receipt has to repeat: a receipt made
	// without having been asked, or by another node, does not know it. Empty where a
	// plan only tries whether the pod would be admitted.
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
	Name    string // NAMESPACE/NAME
	Node    string // that it is pinned to
	Nonce   string // of the order that it was made for
	Started bool   // its container began to run: the disk may have been touched
	Failed  bool   // it ended without powering the machine off
	Done    bool   // it ended well
	Ousted  bool   // it failed because the node did not admit it, or killed it
	Refused bool   // it failed because of what is on the disk: another one would too
	Message string // why it is waiting, or the last words of a failed one
}

// refuseForeign is an error where the pod is not the one that was made for an order on a node: a
// name is not an identity, and what a stranger's pod reports is not this run's.
func (p AgentPod) refuseForeign(node, nonce string) error {
	var why string
	switch {
	case !p.Exists || p.Node == node && p.Nonce == nonce:
		return nil
	case p.Node != node:
		why = "it is pinned to node " + p.Node + ", not to node " + node
	default:
		why = "its nonce is not the run's"
	}
	return WithHint(fmt.Errorf("pod %s is not this run's: %s", p.Name, why),
		"find out in the API server's audit log who made it, then run the command again; if it is still there: kubectl delete pod -n %s", strings.Replace(p.Name, "/", " ", 1))
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
	// Unknown tells of files that nothing explains; nil if the agent did not look.
	Unknown *UnknownFiles `json:"unknown,omitempty"`
	// Timing is of the donor's boot before the seal, where that is proved to be the first boot of a
	// machine that is no clone.
	Timing
}

// UnknownFiles are the files on a sealed disk that no package, image, rule or
// policy explains.
type UnknownFiles struct {
	Mode   string `json:"mode"` // refuse or report
	Count  int    `json:"count"`
	Digest string `json:"digest,omitempty"` // over their names and contents
}

// Receipt reads the node's receipt; ok is false if there is none or it cannot
// be read.
func (n Node) Receipt() (r Receipt, ok bool) {
	err := readPlain([]byte(n.Annotations[AnnotationReceipt]), &r)
	return r, err == nil && r.Run != "" && r.Hash != ""
}

// Timing is a boot by its phases, by the names of package boot. Phases overlap.
type Timing struct {
	// Phases are the seconds that each took; nil where they are not recorded.
	Phases map[string]float64 `json:"phases,omitempty"`
	// Starts are when each began, in seconds since the kernel's start; nil of agents that did not
	// tell.
	Starts map[string]float64 `json:"starts,omitempty"`
}

// A lease keeps no more of a boot than about 3 KB, whatever a node tells of it.
const (
	maxPhases    = 24
	maxPhaseName = 40
	maxBoot      = 24 * 60 * 60.0 // seconds
	maxFirmware  = 60 * 60.0      // seconds before the kernel's start
)

// namesPhase says whether a name may be a phase's: what JSON escapes, it makes up to six times as
// long on the lease.
func namesPhase(name string) bool {
	written, err := json.Marshal(name)
	return err == nil && len(written) == len(name)+len(`""`) && len(name) <= maxPhaseName && Plain(name) == name
}

// bounded is what of a node's word can be a boot; the first phases by name where there are too
// many.
func (t Timing) bounded() Timing {
	out := Timing{map[string]float64{}, map[string]float64{}}
	for _, name := range slices.Sorted(maps.Keys(t.Phases)) {
		took := t.Phases[name]
		if took < 0 || took > maxBoot || !namesPhase(name) || len(out.Phases) == maxPhases {
			continue
		}
		out.Phases[name] = took
		if start, told := t.Starts[name]; told && -maxFirmware <= start && start <= maxBoot {
			out.Starts[name] = start
		}
	}
	return out
}

// Waterfall is a boot of which is known when its phases began.
type Waterfall struct {
	Node string    `json:"node"`
	At   time.Time `json:"at"` // when it was noted
	Timing
}

// waterfall has the phases whose start is told; nil without any.
func (t Timing) waterfall(node string, at time.Time) *Waterfall {
	t = t.bounded()
	maps.DeleteFunc(t.Phases, func(name string, _ float64) bool { _, told := t.Starts[name]; return !told })
	if len(t.Phases) == 0 {
		return nil
	}
	return &Waterfall{node, at, t}
}

// Boots are those of a pool's last good canaries, newest first.
type Boots struct {
	Seconds []float64 `json:"seconds"` // from a machine that runs to its Ready node
	// Phases are as Timing's, of those whose agent told.
	Phases []map[string]float64 `json:"phases,omitempty"`
	// Generic is the boot of a machine of the original image, Clone that of the newest canary; nil
	// where none is recorded.
	Generic *Waterfall `json:"generic,omitempty"`
	Clone   *Waterfall `json:"clone,omitempty"`
}

// booted notes how many seconds a good canary took to be Ready, 0 where that is not known, and the
// phases of its boot.
func (l *Ledger) booted(seconds float64, t Timing, node string, at time.Time) {
	if seconds > 0 {
		l.Boots = keepNewest(seconds, l.Boots)
	}
	if phases := t.bounded().Phases; len(phases) > 0 {
		l.Phases = keepNewest(phases, l.Phases)
	}
	l.Clone = cmp.Or(t.waterfall(node, at), l.Clone)
}

func (l Ledger) knownBoots() *Boots {
	if len(l.Boots) == 0 && len(l.Phases) == 0 && l.Generic == nil {
		return nil
	}
	return &Boots{append([]float64{}, l.Boots...), l.Phases, l.Generic, l.Clone}
}
