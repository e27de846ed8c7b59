package kamino

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"
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
	// Twin is another node that shows the same machine, as far as nodes were listed; see twins.
	Twin string `json:"-"`
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
	return slices.ContainsFunc(n.Taints, func(t Taint) bool { return t.Key == key })
}

// Appliance says whether the node's system is a read-only image, without the writable root that a
// seal needs
// (https://github.com/bottlerocket-os/bottlerocket#security, https://www.talos.dev/latest/learn-more/philosophy).
func (n Node) Appliance() bool {
	return strings.HasPrefix(n.Software.OS, "Bottlerocket ") || strings.HasPrefix(n.Software.OS, "Talos ")
}

// NodeArchitecture is Kubernetes' word for an architecture in the words of
// galleries.
func NodeArchitecture(arch string) string {
	switch strings.ToLower(arch) {
	case "amd64", "x86_64":
		return "x64"
	case "arm64", "aarch64":
		return "Arm64"
	}
	return arch
}

// Serves says whether pods may be scheduled on the node, and run there.
func (n Node) Serves() bool {
	return n.Ready && !n.Unschedulable && !n.Deleting && !slices.ContainsFunc(n.Taints, func(t Taint) bool {
		return t.Key == TaintBlock || t.Key == TaintPatchFailed || t.Key == TaintDeleting
	})
}

// RunsOn says whether an instance is the machine of the node.
func (n Node) RunsOn(id InstanceID) bool { return n.ProviderID.Same(id) }

// CutOff says whether a zone looks as if it had lost its network: what does not come up there says
// nothing of its image. Nodes that are Ready tell otherwise, however young they are, and nodes that
// are not tell of it where they are from before.
func CutOff(zone string, nodes []Node, before time.Time) bool {
	dark, ready := 0, 0
	for _, n := range nodes {
		switch {
		case zone == "" || n.Labels[ZoneLabel] != zone:
		case n.Ready:
			ready++
		case n.Created.Before(before):
			dark++
		}
	}
	return dark > 0 && ready <= dark
}

// ZoneLabel is what cloud providers tell of a node's zone
// (https://kubernetes.io/docs/reference/labels-annotations-taints/#topologykubernetesiozone).
const ZoneLabel = "topology.kubernetes.io/zone"

// MarkFormat is the format of marks that this program writes. One of a higher
// number was written by a newer program and is left alone.
const MarkFormat = 1

// Work is what a run does with the node that it takes; "" makes an image of its disk.
type Work string

// WorkPatch upgrades its packages, and restarts it where that needs it.
const WorkPatch Work = "patch"

// WorkProve proves a version that a person named, and takes no node.
const WorkProve Work = "prove"

// Takes is what a run's node is to it, in a word.
func (w Work) Takes() string {
	if w == "" {
		return "donor"
	}
	return "node"
}

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

	Forgotten bool `json:"-"` // it stands on no node: a snapshot's tags name the donor
}

// Mark reads the node's mark. Nil without error when there is none.
func (n Node) Mark() (*Mark, error) {
	text, ok := n.Annotations[AnnotationRun]
	if !ok {
		return nil, nil
	}
	var m Mark
	if err := readPlain([]byte(text), &m); err != nil || m.Run == "" {
		return nil, fmt.Errorf("node %s: annotation %s was not written by kamino: %q", n.Name, AnnotationRun, text)
	}
	if m.Format > MarkFormat {
		return nil, fmt.Errorf("node %s: annotation %s has format %d, written by a newer kamino (this one knows %d)",
			n.Name, AnnotationRun, m.Format, MarkFormat)
	}
	return &m, nil
}

// Claimed is what a node says of the run that has it, and only a claim: kubelets may write the
// annotations of their own nodes. One that names another machine or pool than the node's is an
// error.
func (n Node) Claimed(pool PoolID) (*Mark, error) {
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

// corroborated says whether somebody else than the node's own kubelet tells that a run had it: the
// pool's lease, or the taint. A kubelet may not change taints of its node, but register with any
// (admission plugin NodeRestriction,
// https://kubernetes.io/docs/reference/access-authn-authz/admission-controllers/#noderestriction).
func (n Node) corroborated(mark Mark, lease Lease) bool {
	for _, t := range n.Taints {
		if t.Key == TaintBlock && t.Value == mark.Run {
			return true
		}
	}
	return lease.Knows(mark.Run)
}

// OwnedBy is the mark of a run that has the node, as far as that can be believed: nil when there is
// none. A mark that says nothing was done to the machine yet needs no witness.
func (n Node) OwnedBy(pool PoolID, lease Lease) (*Mark, error) {
	mark, err := n.Claimed(pool)
	if err != nil || mark == nil {
		return nil, err
	}
	if (mark.Sealing || mark.Held) && n.Twin != "" && !(lease.Holder == mark.Run && lease.Record.Donor == n.Name) {
		return nil, fmt.Errorf("node %s: node %s shows the same machine %s, and the lease of pool %s does not say whose it is", n.Name, n.Twin, n.ProviderID, pool.Name())
	}
	if (mark.Sealing || mark.Held) && !n.corroborated(*mark, lease) {
		return nil, fmt.Errorf("node %s: annotation %s names run %s, which is recorded neither on the lease of pool %s nor by a taint of the node",
			n.Name, AnnotationRun, mark.Run, pool.Name())
	}
	return mark, nil
}

// VMOf is the VM that a run had with the node. What its mark says is a claim: the lease of the run
// knows better, and after it the node, whose machine the mark was written for. A mark that names a
// VM which neither knows gives nobody's donor up.
func (n Node) VMOf(mark Mark, lease Lease) string {
	switch {
	case lease.Holder == mark.Run && lease.Record.VMID != "":
		return lease.Record.VMID
	case n.SystemUUID != "":
		return n.SystemUUID
	}
	return mark.VMID
}

// LeftAlone is what to do about a mark that is not trusted.
func LeftAlone(node string) string {
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

// Patches says whether the mark is that of a patch.
func (m *Mark) Patches() bool { return m != nil && m.Work == WorkPatch }

// Patching tells which run patches a node, or did until its process ended.
func (m *Mark) Patching() string {
	text := fmt.Sprintf("patch run %s has the node since %s", m.Run, m.Since.UTC().Format(time.RFC3339))
	if m.Begun {
		text += ", and its packages may have been changed"
	}
	return text
}

// Holds is what a run has done to its node, for people.
func (m *Mark) Holds() string {
	what := "protected"
	if m.Block {
		what += ", blocked"
	}
	if m.Patches() {
		what += ": " + m.Patching()
	} else if m.Sealing {
		what += ", perhaps sealed and off"
	}
	return what
}

// GoesOn is what can be typed about a node whose patch has not ended.
func GoesOn(node string) string {
	return "if its process has ended, kamino patch --target-node " + node + " continues, and kamino restore gives the node back, blocked if its packages may have been changed"
}

// BlockedNode is a node that did not come back in order from a patch, or whose patch was
// interrupted: it stays blocked, for a person.
type BlockedNode struct {
	Node   string    `json:"node"`
	Run    string    `json:"run,omitempty"`
	Reason string    `json:"reason,omitempty"`
	Since  time.Time `json:"since,omitzero"`
}

// Blocked is what stands on a node that a patch left blocked; nil for any other.
func (n Node) Blocked() *BlockedNode {
	if !n.Tainted(TaintPatchFailed) {
		return nil
	}
	var failure PatchFailure // the zero one where somebody removed the annotation
	_ = readPlain([]byte(n.Annotations[AnnotationPatchFailed]), &failure)
	return &BlockedNode{n.Name, failure.Run, failure.Reason, failure.At}
}

// String says since when, by which run and why, for people.
func (b BlockedNode) String() string {
	text := ""
	if !b.Since.IsZero() {
		text = "since " + b.Since.UTC().Format(time.RFC3339) + " "
	}
	return fmt.Sprintf("%sby patch run %s: %s", text, cmp.Or(b.Run, "unknown"), cmp.Or(b.Reason, "unknown reason"))
}

// Do is what can be typed about it.
func (b BlockedNode) Do() string {
	return fmt.Sprintf("kamino patch --target-node %s continues and examines it; if it is healthy as it is: kubectl taint node %[1]s %s-", b.Node, TaintPatchFailed)
}

// Refusal refuses a node that a patch left blocked.
func (b BlockedNode) Refusal() Refusal {
	return Refusal{Code: "patch-failed", Why: "the node is blocked " + b.String(), Do: b.Do()}
}

// RestrictedDomain holds the labels that a kubelet cannot set on its own Node:
// the admission plugin NodeRestriction forbids it, for the domain and those below
// (https://kubernetes.io/docs/reference/access-authn-authz/admission-controllers/#noderestriction).
const RestrictedDomain = "node-restriction.kubernetes.io"

// LabelDemand is a label that a donor has to carry. Everything else that
// selection reads of a node can be written by that node's own kubelet, so a
// compromised node can make itself the best donor; with a label of this kind
// somebody else has to vouch for it.
type LabelDemand struct {
	Key   string `json:"key"`   // below node-restriction.kubernetes.io
	Value string `json:"value"` // empty: any
}

var (
	labelName  = regexp.MustCompile(`^[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$`)
	labelValue = regexp.MustCompile(`^([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?$`)
)

// ParseLabelDemand reads KEY or KEY=VALUE. The key must be one that nodes cannot
// set on themselves.
func ParseLabelDemand(s string) (LabelDemand, error) {
	key, value, _ := strings.Cut(s, "=")
	domain, name, _ := strings.Cut(key, "/")
	switch {
	case domain != RestrictedDomain && !strings.HasSuffix(domain, "."+RestrictedDomain):
		return LabelDemand{}, WithHint(fmt.Errorf("label %q proves nothing: a node can set it on itself", key),
			"use a key below %s, for instance %s/donor=true; kubectl label node NODE %[2]s/donor=true sets it", RestrictedDomain, RestrictedDomain)
	case !labelName.MatchString(name) || !labelValue.MatchString(value):
		return LabelDemand{}, WithHint(fmt.Errorf("invalid label %q", s), "use %s/NAME or %[1]s/NAME=VALUE", RestrictedDomain)
	}
	return LabelDemand{Key: key, Value: value}, nil
}

// String is what ParseLabelDemand reads.
func (l LabelDemand) String() string {
	if l.Value == "" {
		return l.Key
	}
	return l.Key + "=" + l.Value
}

// On says whether a node has the label.
func (l LabelDemand) On(n Node) bool {
	value, ok := n.Labels[l.Key]
	return ok && (l.Value == "" || value == l.Value)
}

// Places says whether a value tells where a node is, or which it is: bootstrap scripts put that
// into labels of their own.
func (n Node) Places(value string) bool {
	id := string(n.ProviderID)
	return value != "" && slices.Contains([]string{n.Name, n.Labels[ZoneLabel], n.Labels["topology.kubernetes.io/region"], id, id[strings.LastIndex(id, "/")+1:]}, value)
}
