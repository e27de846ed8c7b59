package kamino

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

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

// RefuseForeign is an error where the pod is not the one that was made for an order on a node: a
// name is not an identity, and what a stranger's pod reports is not this run's.
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

// Waterfall has the phases whose start is told; nil without any.
func (t Timing) Waterfall(node string, at time.Time) *Waterfall {
	t = t.bounded()
	maps.DeleteFunc(t.Phases, func(name string, _ float64) bool { _, told := t.Starts[name]; return !told })
	if len(t.Phases) == 0 {
		return nil
	}
	return &Waterfall{node, at, t}
}

// SealFailure is why the node gave up the seal of a run; empty if it did not.
func (n Node) SealFailure(run string) string {
	var failure struct{ Run, Error string }
	if err := readPlain([]byte(n.Annotations[AnnotationSealFailure]), &failure); err != nil || failure.Run != run {
		return ""
	}
	return failure.Error
}
