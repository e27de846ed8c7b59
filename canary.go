package kamino

import (
	"context"
	"errors"
	"slices"
	"time"
)

// Prover is a Provider that can start one instance of a pool's recipe beside the pool, from a
// version that is hidden yet. Its methods answer at once, may be repeated without harm, and have
// the errors of Provider.
type Prover interface {
	// CanaryFit tells what a canary of the pool would be, and why it cannot be had at all. It
	// only reads.
	CanaryFit(context.Context, Pool) (CanaryFit, error)
	// Canaries lists the canaries of a pool that exist, of any run, found by their tags. None is
	// no error.
	Canaries(context.Context, Pool) ([]Canary, error)
	// LaunchCanary begins to create a canary. Repeated with the same order it changes nothing; a
	// thing of that name that is not the order's is ErrConflict. ErrBlocked where the cloud
	// refuses it whatever the image is.
	LaunchCanary(context.Context, Pool, CanaryOrder) error
	// RemoveCanary begins to delete a canary of the pool with all that belongs to it. One that
	// does not exist is no error; what is no canary of the pool is left alone: ErrConflict.
	RemoveCanary(ctx context.Context, pool Pool, name string) error
	// Console reads the last lines of the canary's console. ErrUnsupported or ErrForbidden where
	// it is not readable: it is evidence, never required.
	Console(context.Context, Pool, Canary) ([]string, error)
	// PreflightCanary is Preflight for the rights that only a canary needs. ErrForbidden names
	// them.
	PreflightCanary(context.Context) (doubts []Warning, err error)
	// CanaryRights is the file of the documentation that grants those rights. It makes no call.
	CanaryRights() string
}

// ErrBlocked is that the cloud has no quota or capacity for the instance, or a policy denies it. It
// says nothing of the image.
var ErrBlocked = errors.New("blocked by the cloud")

// CanaryOrder says which canary is wanted.
type CanaryOrder struct {
	Name    string    // CanaryName of pool and run
	Version string    // ID of the image version
	Run     string    // run ID
	Nonce   string    // what the agent's report repeats; "" where no report is wanted
	Expires time.Time // when anybody may remove it
}

// Canary is one instance of a pool's recipe with a hidden version, freshly read.
type Canary struct {
	Name    string    `json:"name"`
	Version string    `json:"version"` // ID of the image version that it boots from
	Run     string    `json:"run"`
	Expires time.Time `json:"expires"`
	// State is Creating until the cloud has made the instance, whatever its guest does; then
	// Succeeded or Failed.
	State   State  `json:"state"`
	Failure string `json:"failure,omitempty"` // why it Failed, in the provider's words
	// Blocked says that Failure is the cloud's (quota, allocation, throttling, policy) and tells
	// nothing of the image.
	Blocked bool `json:"blocked,omitempty"`

	// Empty until known. Instance is what its node has as spec.providerID; its PoolOf is never the
	// pool that the canary is of.
	Instance InstanceID `json:"instance,omitempty"`
	VMID     string     `json:"vmId,omitempty"`
	Hostname string     `json:"hostname,omitempty"`
	Power    Power      `json:"power,omitempty"`
	Zone     string     `json:"zone,omitempty"` // as of an Instance
}

// CanaryFit is what a canary of a pool would be.
type CanaryFit struct {
	Size     string    `json:"size"`               // the machine's type
	Kept     []string  `json:"kept,omitempty"`     // of the recipe, what reaches beyond the canary
	LeftOut  []string  `json:"leftOut,omitempty"`  // of the recipe, what a canary cannot have
	Refusals []Refusal `json:"refusals,omitempty"` // why there can be none
}

// TaintCanary is on a canary's node from its first second, with the effect NoSchedule: the agent's
// first boot registers the node with it where the instance has TagCanary.
const TaintCanary = "kamino.dev/canary"

// LabelCanary is on a canary's node from its first second as well: no load balancer of the cloud
// sends traffic to a node that has it, whatever its value is
// (https://kubernetes.io/docs/reference/labels-annotations-taints/#node-kubernetes-io-exclude-from-external-load-balancers).
const LabelCanary = "node.kubernetes.io/exclude-from-external-load-balancers"

// AnnotationReport holds the NodeReport of a canary's node as JSON. The agent writes it with the
// node's own credential, again and again while the instance has TagNonce.
const AnnotationReport = "kamino.dev/report"

// NodeReport is what a canary says of itself that its Node does not show. It is a claim of the
// image that is on trial: it can convict, and what it leaves out acquits nothing.
type NodeReport struct {
	Nonce     string    `json:"nonce"` // of the order that it answers
	At        time.Time `json:"at"`    // by the node's clock, with fractions of a second
	MachineID string    `json:"machineId"`
	// SSHKeys are as Receipt's.
	SSHKeys []string `json:"sshKeys,omitempty"`
	// FailedUnits are systemd's, sorted.
	FailedUnits []string `json:"failedUnits,omitempty"`
	// Restarts counts by unit how often systemd started a service again since the boot; services
	// that it did not are left out.
	Restarts map[string]int `json:"restarts,omitempty"`
	// RebootPending is why the node says that it should be rebooted; "" where it does not.
	RebootPending string `json:"rebootPending,omitempty"`
	// PackageDigest is as Receipt's.
	PackageDigest string `json:"packageDigest,omitempty"`
	Timing               // of its boot, once that is recorded
}

// Baked is how a good canary did while it was watched.
type Baked struct {
	Seconds float64 `json:"seconds"` // since its node was Ready
	// Restarts counts by unit how often systemd started a service again meanwhile.
	Restarts map[string]int `json:"restarts,omitempty"`
}

// MaxBaked is of how many services the ledger takes a node's word.
const MaxBaked = 10

// Report reads the node's report; ok is false when there is none, it cannot be read, or it answers
// another order.
func (n Node) Report(nonce string) (r NodeReport, ok bool) {
	err := readPlain([]byte(n.Annotations[AnnotationReport]), &r)
	return r, err == nil && nonce != "" && r.Nonce == nonce
}

// Lists says whether a list has the canary of a name.
func Lists(list []Canary, name string) bool {
	return slices.ContainsFunc(list, func(c Canary) bool { return c.Name == name })
}

// TagProofAbandoned is told of a version that is tagged as being proved, where nobody does that any
// more. No tag says so.
const TagProofAbandoned = "abandoned"

// Proved tells how a version passed its proof.
type Proved struct {
	By           ProveMode `json:"by"`
	Node         string    `json:"node"`
	ReadySeconds float64   `json:"readySeconds,omitempty"` // from a machine that runs to its Ready node
	Checks       int       `json:"checks"`                 // that passed
	// Left are the checks, or the parts of them, that had nothing to compare with.
	Left []Finding `json:"notApplicable,omitempty"`
}
