package kamino

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"
)

// ImageReference says how a model refers to an image.
type ImageReference string

// The ways to refer to an image: by the definition, which the model then names for good, and of
// which Kamino says what it stands for; or by the version, with a model written at each promotion.
// "" is by the definition, as long as new nodes are seen to follow it and nothing speaks against
// it. By a pointer is for providers alone, those without definitions: what their pools can refer to
// instead.
const (
	ByVersion    ImageReference = "version"
	ByDefinition ImageReference = "definition"
	ByPointer    ImageReference = "pointer"
)

// Options are what the user decides about a run.
type Options struct {
	Donor    string      // node name
	Patch    *PatchOrder // of runs that patch the node and make no image; nil for others
	NewNodes int         // how many instances to ask for at the end
	History  int         // how many versions that were promoted to keep, at least 2
	// KeepWithdrawn is how many versions to keep besides that were withdrawn, and as many that were
	// never offered.
	KeepWithdrawn int
	Replicas      int // of the version in the pool's region

	Grace        time.Duration // see DrainOptions.Grace
	DrainTimeout time.Duration // for the whole drain; 0 means nine grace periods
	Force        bool          // see DrainOptions.Force

	ImageReference ImageReference
	Today          Today    // what a version of the same day means
	Self           string   // node that this process runs on, never a donor
	PendingReboot  []Signal // what tells on a node of a reboot to come
	AllowSpot      bool     // take a spot instance as donor
	AdoptModel     bool     // replace an image that somebody else has put into the model
	ImageOnly      bool     // make a version, and never write the model
	// AcceptBootstrap offers a version whose instances the model's own bootstrap runs on: with
	// ImageOnly, which else leaves it hidden.
	AcceptBootstrap bool
	// RequireLabels must all be on the donor.
	RequireLabels []LabelDemand
	// Proof is what a version goes through before the pool's nodes boot from it.
	Proof Proving
	// SealPolicy says what may stay on the disk, as YAML (docs/agent.md). With
	// one, files that nothing explains refuse the seal; without, they are counted.
	SealPolicy []byte
	// back is of who takes a version back or names one: a next image that another pool shares
	// has to be mended in both.
	back bool
	// Settle is how long cluster-autoscaler is given to see the protection; two
	// of its scan intervals (10 s by default).
	Settle time.Duration
}

// Defaults are the original's, where it had the option.
func Defaults() Options {
	return Options{
		History: 3, KeepWithdrawn: 1, Replicas: 3, Grace: 5 * time.Minute,
		Settle: 20 * time.Second,
		Proof:  Proving{Mode: ProveCanary, For: 10 * time.Minute, Budget: 10 * time.Minute, Promote: PromoteAuto},
	}
}

// Validate checks the options by themselves.
func (o Options) Validate() error {
	switch {
	case o.Donor == "":
		return WithHint(fmt.Errorf("no donor named"), "name the node with --target-node; kubectl get nodes lists them")
	case strings.Contains(o.Donor, "/"):
		return WithHint(fmt.Errorf("invalid node name %q", o.Donor),
			"name the Node object, not its machine: kubectl get nodes -o custom-columns=NAME:.metadata.name,MACHINE:.spec.providerID")
	case o.History < 2:
		return WithHint(fmt.Errorf("history %d is too short: the version in use and one to roll back to must be kept", o.History),
			"use --max-history 2 or more")
	case o.KeepWithdrawn < 0:
		return WithHint(fmt.Errorf("invalid number of withdrawn versions to keep %d", o.KeepWithdrawn), "use --keep-withdrawn 0 or more")
	case o.NewNodes < 0:
		return WithHint(fmt.Errorf("invalid number of new nodes %d", o.NewNodes), "use --new-updated-nodes 0 or more")
	case o.ImageOnly && o.ImageReference == ByVersion:
		return WithHint(errors.New("a model that is not written cannot name a new version"), "leave out --image-reference, or --image-only")
	case o.ImageOnly && o.NewNodes > 0:
		return WithHint(errors.New("with an image only, no new nodes are asked for"), "leave out --new-updated-nodes, or --image-only")
	case o.AcceptBootstrap && !o.ImageOnly:
		return WithHint(errors.New("bootstrap is accepted for an image only"), "add --image-only")
	case o.Replicas < 1 || o.Replicas > 100:
		return WithHint(fmt.Errorf("%d replicas: a gallery keeps 1 to 100 in a region", o.Replicas), "use --replicas 1 to 100")
	case o.ImageReference != "" && o.ImageReference != ByVersion && o.ImageReference != ByDefinition:
		return WithHint(fmt.Errorf("image reference %q is unknown", o.ImageReference), "use --image-reference version or pointer")
	case o.Today != TodayOfDonor && o.Today != TodayOfAny && o.Today != TodayAgain:
		return fmt.Errorf("what a version of today means, %q, is unknown", o.Today)
	case len(o.SealPolicy) > SealPolicyMost:
		return WithHint(fmt.Errorf("seal policy of %d bytes is too large: at most %d", len(o.SealPolicy), SealPolicyMost),
			"let entries of verify.known name directories instead of files")
	}
	return o.Proof.validate()
}

func (o Options) drainTimeout() time.Duration {
	if o.DrainTimeout > 0 {
		return o.DrainTimeout
	}
	grace := o.Grace
	if grace < 0 {
		grace = Defaults().Grace
	}
	// The original tried three times for three grace periods each.
	return max(9*grace, time.Minute)
}

func (o Options) drainOptions() DrainOptions {
	return DrainOptions{Grace: o.Grace, Within: o.drainTimeout(), Force: o.Force}
}

// restrictedDomain holds the labels that a kubelet cannot set on its own Node:
// the admission plugin NodeRestriction forbids it, for the domain and those below
// (https://kubernetes.io/docs/reference/access-authn-authz/admission-controllers/#noderestriction).
const restrictedDomain = "node-restriction.kubernetes.io"

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
	case domain != restrictedDomain && !strings.HasSuffix(domain, "."+restrictedDomain):
		return LabelDemand{}, WithHint(fmt.Errorf("label %q proves nothing: a node can set it on itself", key),
			"use a key below %s, for instance %s/donor=true; kubectl label node NODE %[2]s/donor=true sets it", restrictedDomain, restrictedDomain)
	case !labelName.MatchString(name) || !labelValue.MatchString(value):
		return LabelDemand{}, WithHint(fmt.Errorf("invalid label %q", s), "use %s/NAME or %[1]s/NAME=VALUE", restrictedDomain)
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

func (l LabelDemand) on(n Node) bool {
	value, ok := n.Labels[l.Key]
	return ok && (l.Value == "" || value == l.Value)
}
