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
	Architecture  string            `json:"architecture"` // as Kubernetes reports it: amd64, arm64
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
	// Twin is another node that shows the same machine, among the listed nodes; see twins.
	Twin string `json:"-"`
	// Created is when the API server made the object, by its clock. The node cannot write it.
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

// Tainted reports whether the node has a taint of that key.
func (n Node) Tainted(key string) bool {
	return slices.ContainsFunc(n.Taints, func(t Taint) bool { return t.Key == key })
}

// Appliance reports whether the node's system is a read-only image, without the writable root that
// a seal needs (https://github.com/bottlerocket-os/bottlerocket#security,
// https://www.talos.dev/latest/learn-more/philosophy).
func (n Node) Appliance() bool {
	return strings.HasPrefix(n.Software.OS, "Bottlerocket ") || strings.HasPrefix(n.Software.OS, "Talos ")
}

// NodeArchitecture translates Kubernetes' name of an architecture into that of galleries.
func NodeArchitecture(arch string) string {
	switch strings.ToLower(arch) {
	case "amd64", "x86_64":
		return "x64"
	case "arm64", "aarch64":
		return "Arm64"
	}
	return arch
}

// Serves reports whether pods may be scheduled on the node, and run there.
func (n Node) Serves() bool {
	return n.Ready && !n.Unschedulable && !n.Deleting && !slices.ContainsFunc(n.Taints, func(t Taint) bool {
		return t.Key == TaintBlock || t.Key == TaintPatchFailed || t.Key == TaintDeleting
	})
}

// RunsOn reports whether an instance is the machine of the node.
func (n Node) RunsOn(id InstanceID) bool { return n.ProviderID.Same(id) }

// CutOff reports whether a zone seems to have lost its network: at least as many of its nodes are
// NotReady (and older than a time) as are Ready. Then a new node that does not become Ready there
// is no evidence against its image.
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

// ZoneLabel is the label with a node's zone, set by cloud providers
// (https://kubernetes.io/docs/reference/labels-annotations-taints/#topologykubernetesiozone).
const ZoneLabel = "topology.kubernetes.io/zone"

// MarkFormat is the format of marks that this program writes. A mark of a higher format was written
// by a newer program and is left alone.
const MarkFormat = 1

// Work is the kind of a run; "" makes an image of the node's disk.
type Work string

// WorkPatch upgrades the node's packages, and restarts the node if needed.
const WorkPatch Work = "patch"

// WorkProve proves a version that a person named, and takes no node.
const WorkProve Work = "prove"

// Takes names the role of a run's node, in a word.
func (w Work) Takes() string {
	if w == "" {
		return "donor"
	}
	return "node"
}

// Mark is the annotation that a run writes on its donor before it changes anything. It is all that
// a restore needs.
type Mark struct {
	Format   int        `json:"format"`
	Run      string     `json:"run"`
	Epoch    int64      `json:"epoch"`
	Pool     PoolID     `json:"pool"`
	Instance InstanceID `json:"instance"`
	VMID     string     `json:"vmId"`
	BootID   string     `json:"bootID"` // the boot in which the run found the node
	Since    time.Time  `json:"since"`  // when the run marked the node
	// Block: the mark includes TaintBlock.
	Block bool `json:"block"`
	// Sealing: the donor's disk may have been changed and the machine may switch off. The donor
	// counts as returned only after a new boot.
	Sealing bool `json:"sealing"`
	// Held: the donor may have been taken out of service; see Standby.
	Held bool `json:"held,omitempty"`
	// Work is the kind of the run. With WorkPatch, Sealing means that the machine may be restarted;
	// its disk is not sealed.
	Work Work `json:"work,omitempty"`
	// Begun: the node's packages may have been changed, and no examination has passed since.
	// Whoever restores the node keeps it blocked. Sign removes the field. Only with WorkPatch.
	Begun bool `json:"begun,omitempty"`
	// Protection is the former value of AnnotationProtect; nil if it was absent.
	Protection *string `json:"protection"`

	Forgotten bool `json:"-"` // the mark is on no node: the tags of a snapshot name the donor
}

// Mark reads the node's mark; nil, without error, if there is none.
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

// Claimed reads the node's mark, which is only a claim: kubelets may write the annotations of their
// own nodes. A mark that names another machine or pool is an error.
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

// corroborated reports whether a witness other than the node's kubelet confirms that a run had the
// node: the pool's lease, or the taint. A kubelet may not change the taints of its node, but may
// register with any (admission plugin NodeRestriction,
// https://kubernetes.io/docs/reference/access-authn-authz/admission-controllers/#noderestriction).
func (n Node) corroborated(mark Mark, lease Lease) bool {
	for _, t := range n.Taints {
		if t.Key == TaintBlock && t.Value == mark.Run {
			return true
		}
	}
	return lease.Knows(mark.Run)
}

// OwnedBy returns the mark of the run that has the node, if it can be believed; nil if there is
// none. A mark that says the machine was not touched yet needs no witness.
func (n Node) OwnedBy(pool PoolID, lease Lease) (*Mark, error) {
	mark, err := n.Claimed(pool)
	if err != nil || mark == nil {
		return nil, err
	}
	if (mark.Sealing || mark.Held) && n.Twin != "" && !(lease.Holder == mark.Run && lease.Record.Donor == n.Name) {
		return nil, fmt.Errorf("node %s: node %s shows the same machine %s, and the lease of pool %s does not say whose it is", n.Name,
			n.Twin, n.ProviderID, pool.Name())
	}
	if (mark.Sealing || mark.Held) && !n.corroborated(*mark, lease) {
		return nil, fmt.Errorf("node %s: annotation %s names run %s, which is recorded neither on the lease of pool %s nor by a taint of the node",
			n.Name, AnnotationRun, mark.Run, pool.Name())
	}
	return mark, nil
}

// VMOf returns the VM that a run had with the node. The mark is only a claim: the run's lease
// counts first, then the node that the mark was written for. A VM that only the mark names is not
// believed, so no donor is given up for it.
func (n Node) VMOf(mark Mark, lease Lease) string {
	switch {
	case lease.Holder == mark.Run && lease.Record.VMID != "":
		return lease.Record.VMID
	case n.SystemUUID != "":
		return n.SystemUUID
	}
	return mark.VMID
}

// LeftAlone is the advice about a mark that is not trusted.
func LeftAlone(node string) string {
	return fmt.Sprintf("if no run needs it: kubectl annotate node %s %s-", node, AnnotationRun)
}

// markOrTaint returns the node's mark. If somebody removed the annotation and left the taint, it
// returns a mark made from the taint and the node, which counts as touched.
func (n Node) markOrTaint(pool PoolID) (*Mark, error) {
	mark, err := n.Mark()
	if mark != nil || err != nil {
		return mark, err
	}
	for _, t := range n.Taints {
		if t.Key == TaintBlock && t.Value != "" {
			return &Mark{Format: MarkFormat, Run: t.Value, Pool: pool, Instance: n.ProviderID, VMID: n.SystemUUID, Block: true,
				Sealing: true, Held: true}, nil
		}
	}
	return nil, nil
}

// Patches reports whether the mark is that of a patch.
func (m *Mark) Patches() bool { return m != nil && m.Work == WorkPatch }

// Patching names the run that patches a node, or did until its process ended.
func (m *Mark) Patching() string {
	text := fmt.Sprintf("patch run %s has had the node since %s", m.Run, m.Since.UTC().Format(time.RFC3339))
	if m.Begun {
		text += ", and its packages may have been changed"
	}
	return text
}

// Holds describes what a run has done to its node, for people.
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

// GoesOn is the advice about a node whose patch has not ended.
func GoesOn(node string) string {
	return "if its process has ended, kamino patch --target-node " + node +
		" continues, and kamino restore gives the node back, blocked if its packages may have been changed"
}

// BlockedNode is a node that did not come back healthy from a patch, or whose patch was
// interrupted. It stays blocked until a person decides.
type BlockedNode struct {
	Node   string    `json:"node"`
	Run    string    `json:"run,omitempty"`
	Reason string    `json:"reason,omitempty"`
	Since  time.Time `json:"since,omitzero"`
}

// Blocked returns the failure of a node that a patch left blocked; nil for any other node.
func (n Node) Blocked() *BlockedNode {
	if !n.Tainted(TaintPatchFailed) {
		return nil
	}
	var failure PatchFailure // stays zero if somebody removed the annotation
	_ = readPlain([]byte(n.Annotations[AnnotationPatchFailed]), &failure)
	return &BlockedNode{n.Name, failure.Run, failure.Reason, failure.At}
}

// String describes since when the node is blocked, by which run and why.
func (b BlockedNode) String() string {
	text := ""
	if !b.Since.IsZero() {
		text = "since " + b.Since.UTC().Format(time.RFC3339) + " "
	}
	return fmt.Sprintf("%sby patch run %s: %s", text, cmp.Or(b.Run, "unknown"), cmp.Or(b.Reason, "unknown reason"))
}

// Do is the advice about a blocked node.
func (b BlockedNode) Do() string {
	return fmt.Sprintf("kamino patch --target-node %s continues and examines it; if it is healthy as it is: kubectl taint node %[1]s %s-",
		b.Node, TaintPatchFailed)
}

// Refusal is the refusal of a node that a patch left blocked.
func (b BlockedNode) Refusal() Refusal {
	return Refusal{Code: CodePatchFailed, Why: "the node is blocked " + b.String(), Do: b.Do()}
}

// RestrictedDomain is the domain of the labels that a kubelet cannot set on its own Node, because
// the admission plugin NodeRestriction forbids it
// (https://kubernetes.io/docs/reference/access-authn-authz/admission-controllers/#noderestriction).
// Subdomains are included.
const RestrictedDomain = "node-restriction.kubernetes.io"

// LabelDemand is a label that a donor must have. A node's own kubelet can write everything else
// that selection reads of it, so a compromised node can make itself the best donor. This label must
// be set by somebody else.
type LabelDemand struct {
	Key   string `json:"key"`   // below node-restriction.kubernetes.io
	Value string `json:"value"` // empty: any
}

var (
	labelName  = regexp.MustCompile(`^[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$`)
	labelValue = regexp.MustCompile(`^([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?$`)
)

// ParseLabelDemand reads KEY or KEY=VALUE. The key must be one that nodes cannot set on themselves.
func ParseLabelDemand(s string) (LabelDemand, error) {
	key, value, _ := strings.Cut(s, "=")
	domain, name, _ := strings.Cut(key, "/")
	switch {
	case domain != RestrictedDomain && !strings.HasSuffix(domain, "."+RestrictedDomain):
		return LabelDemand{}, WithHint(fmt.Errorf("label %q proves nothing: a node can set it on itself", key),
			"use a key below %s, for instance %s/donor=true; kubectl label node NODE %[2]s/donor=true sets it", RestrictedDomain,
			RestrictedDomain)
	case !labelName.MatchString(name) || !labelValue.MatchString(value):
		return LabelDemand{}, WithHint(fmt.Errorf("invalid label %q", s), "use %s/NAME or %[1]s/NAME=VALUE", RestrictedDomain)
	}
	return LabelDemand{Key: key, Value: value}, nil
}

// String returns the text that ParseLabelDemand reads.
func (l LabelDemand) String() string {
	if l.Value == "" {
		return l.Key
	}
	return l.Key + "=" + l.Value
}

// On reports whether a node has the label.
func (l LabelDemand) On(n Node) bool {
	value, ok := n.Labels[l.Key]
	return ok && (l.Value == "" || value == l.Value)
}

// Places reports whether a value identifies the node or its place (name, zone, address, …).
// Bootstrap scripts put such values into labels of their own.
func (n Node) Places(value string) bool {
	id := string(n.ProviderID)
	return value != "" && slices.Contains([]string{n.Name, n.Labels[ZoneLabel], n.Labels["topology.kubernetes.io/region"], id,
		id[strings.LastIndex(id, "/")+1:]}, value)
}
