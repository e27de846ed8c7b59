package kamino

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Task is the work that the agent does in a pod on a node. Its value is the verb of kamino-agent.
type Task string

const (
	// TaskSeal makes the disk fit to be cloned and switches the machine off.
	TaskSeal Task = "seal"
	// TaskInventory checks the files of the disk while the node still serves its pods, and refuses
	// what the seal would refuse. It changes nothing but the host's memory, where the seal finds
	// the result.
	TaskInventory Task = "inventory"
	// TaskPackages writes the list of the installed packages on the node. Only a PackageStore
	// starts it.
	TaskPackages Task = "packages"
	// TaskCheck refuses, while the node still serves its pods, what TaskPatch would refuse. It
	// changes nothing. Only a Patcher starts it, TaskPatch, TaskReboot and TaskLook, all under the
	// verb patch.
	TaskCheck Task = "check"
	// TaskPatch upgrades the node's packages.
	TaskPatch Task = "patch"
	// TaskReboot restarts the node if it is still in the boot that the order names.
	TaskReboot Task = "reboot"
	// TaskLook reports the state of the node.
	TaskLook Task = "look"
)

// SealOrder is what a run passes to the agent in a pod.
type SealOrder struct {
	Run string
	// Nonce is a random text that the receipt repeats. So a receipt that was made earlier, or by
	// another node, is recognized. Empty where a plan only tries whether the pod would be admitted.
	Nonce string
	// Policy is the run's seal policy as YAML, at most SealPolicyMost bytes; nil if the run has
	// none.
	Policy []byte
	// Patch is the patch policy as JSON (docs/agent.md, "Patch"), in place of Policy; nil unless
	// the run patches.
	Patch []byte
}

// SealPolicyMost bounds a seal policy, in bytes of YAML. It travels in an
// environment variable, of which Linux takes 128 KiB.
const SealPolicyMost = 64 << 10

// AgentPod is the observed state of a pod in which the agent does a task.
type AgentPod struct {
	Exists  bool
	Name    string // NAMESPACE/NAME
	Node    string // the node that it is pinned to
	Nonce   string // nonce of the order that it was made for
	Started bool   // its container began to run, so the disk may have been changed
	Failed  bool   // it ended without switching the machine off
	Done    bool   // it succeeded
	Ousted  bool   // it failed because the node did not admit it, or killed it
	Refused bool   // it failed because of the disk, so another pod would fail too
	Message string // why it waits, or the last lines of a failed pod
}

// RefuseForeign returns an error if the pod was not made for this node and this nonce. Anybody may
// create a pod of the same name; its report is not this run's.
func (p AgentPod) RefuseForeign(node, nonce string) error {
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
		"find out in the API server's audit log who made it, then run the command again; if it is still there: kubectl delete pod -n %s",
		strings.Replace(p.Name, "/", " ", 1))
}

// Names of what Kamino writes on a node.
const (
	// AnnotationRun holds a Mark as JSON.
	AnnotationRun = "kamino.dev/run"
	// AnnotationReceipt holds the donor's Receipt as JSON; the node itself
	// writes it when its disk is sealed.
	AnnotationReceipt = "kamino.dev/receipt"
	// AnnotationSealFailure is written by the node when it gives up a run's seal, as {"run": ID,
	// "error": TEXT}.
	AnnotationSealFailure = "kamino.dev/seal-failure"
	// AnnotationProtect keeps cluster-autoscaler from removing the node
	// (https://github.com/kubernetes/autoscaler/blob/master/cluster-autoscaler/FAQ.md).
	AnnotationProtect = "cluster-autoscaler.kubernetes.io/scale-down-disabled"
	// TaintBlock keeps new pods off the donor. Kamino does not cordon, so a cordon is always a
	// person's. The prefix makes cluster-autoscaler not expect the taint on new nodes of the pool
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
	// Unknown counts the files that nothing explains; nil if the agent did not look.
	Unknown *UnknownFiles `json:"unknown,omitempty"`
	// Timing is the donor's boot before the seal, recorded only if it was the first boot of a
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

// Timing is the record of one boot by phase; package boot defines the names. Phases overlap.
type Timing struct {
	// Phases are the seconds that each phase took; nil if not recorded.
	Phases map[string]float64 `json:"phases,omitempty"`
	// Starts are when each phase began, in seconds since the kernel's start; nil if the agent did
	// not report them.
	Starts map[string]float64 `json:"starts,omitempty"`
}

// Limits of the boot record that a lease keeps, about 3 KB, whatever a node reports.
const (
	maxPhases    = 24
	maxPhaseName = 40
	maxBoot      = 24 * 60 * 60.0 // seconds
	maxFirmware  = 60 * 60.0      // seconds before the kernel's start
)

// namesPhase reports whether a text can be the name of a phase. Characters that JSON escapes take
// up to six times their length on the lease.
func namesPhase(name string) bool {
	written, err := json.Marshal(name)
	return err == nil && len(written) == len(name)+len(`""`) && len(name) <= maxPhaseName && Plain(name) == name
}

// bounded returns the phases that can be a boot. Of too many phases it keeps the first by name.
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

// Waterfall is a boot whose phases have known starts.
type Waterfall struct {
	Node string    `json:"node"`
	At   time.Time `json:"at"` // when it was recorded
	Timing
}

// Waterfall returns the phases whose start is known; nil if there are none.
func (t Timing) Waterfall(node string, at time.Time) *Waterfall {
	t = t.bounded()
	maps.DeleteFunc(t.Phases, func(name string, _ float64) bool { _, told := t.Starts[name]; return !told })
	if len(t.Phases) == 0 {
		return nil
	}
	return &Waterfall{node, at, t}
}

// SealFailure returns why the node gave up the seal of a run; "" if it did not.
func (n Node) SealFailure(run string) string {
	var failure struct{ Run, Error string }
	if err := readPlain([]byte(n.Annotations[AnnotationSealFailure]), &failure); err != nil || failure.Run != run {
		return ""
	}
	return failure.Error
}
