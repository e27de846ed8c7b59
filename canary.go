package kamino

import (
	"context"
	"errors"
	"slices"
	"time"
)

// Prover is a Provider that can start one instance of a pool's recipe beside the pool, from a
// hidden version. Its methods return at once, may be repeated, and return the errors of Provider.
type Prover interface {
	// CanaryFit describes the canary that a pool would get, and why a canary is impossible. It only
	// reads.
	CanaryFit(context.Context, Pool) (CanaryFit, error)
	// Canaries lists the existing canaries of a pool, of any run, found by their tags. An empty
	// list is no error.
	Canaries(context.Context, Pool) ([]Canary, error)
	// LaunchCanary begins to create a canary. Repeated with the same order it changes nothing.
	// ErrConflict: a resource of that name exists and is not of this order. ErrBlocked: the cloud
	// refuses the instance whatever the image is.
	LaunchCanary(context.Context, Pool, CanaryOrder) error
	// RemoveCanary begins to delete a canary of the pool with all its resources. A canary that does
	// not exist is no error. ErrConflict: the resource is no canary of this pool; it is left alone.
	RemoveCanary(ctx context.Context, pool Pool, name string) error
	// Console reads the last lines of the canary's console. ErrUnsupported or ErrForbidden: it is
	// not readable, which fails no proof.
	Console(context.Context, Pool, Canary) ([]string, error)
	// PreflightCanary is Preflight for the rights that only a canary needs. ErrForbidden names the
	// missing rights.
	PreflightCanary(context.Context) (doubts []Warning, err error)
	// CanaryRights is the file of the documentation that grants the rights of a canary. It makes no
	// call.
	CanaryRights() string
}

// ErrBlocked is an error of a cloud that has no quota or capacity for the instance, or whose policy denies it. The
// error is no evidence against the image.
var ErrBlocked = errors.New("blocked by the cloud")

// CanaryOrder describes the canary that a run wants.
type CanaryOrder struct {
	Name    string    // CanaryName of pool and run
	Version string    // ID of the image version
	Run     string    // run ID
	Nonce   string    // repeated in the agent's report; "" where no report is wanted
	Expires time.Time // after this anybody may remove the canary
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
	// Blocked: Failure is the cloud's (quota, allocation, throttling, policy) and no evidence
	// against the image.
	Blocked bool `json:"blocked,omitempty"`

	// Instance is the spec.providerID of the canary's node; empty until known. Its PoolOf is never
	// the pool that the canary proves.
	Instance InstanceID `json:"instance,omitempty"`
	VMID     string     `json:"vmId,omitempty"`
	Hostname string     `json:"hostname,omitempty"`
	Power    Power      `json:"power,omitempty"`
	Zone     string     `json:"zone,omitempty"` // as Instance.Zone
}

// CanaryFit describes the canary that a pool would get.
type CanaryFit struct {
	Size     string    `json:"size"`               // the machine's type
	Kept     []string  `json:"kept,omitempty"`     // parts of the recipe that have an effect beyond the canary
	LeftOut  []string  `json:"leftOut,omitempty"`  // parts of the recipe that a canary cannot have
	Refusals []Refusal `json:"refusals,omitempty"` // why a canary is impossible
}

// TaintCanary is on a canary's node from its registration, with the effect NoSchedule. The agent's
// first boot sets it where the instance has TagCanary.
const TaintCanary = "kamino.dev/canary"

// LabelCanary is on a canary's node from its registration. No load balancer of the cloud sends
// traffic to a node with this label, whatever its value
// (https://kubernetes.io/docs/reference/labels-annotations-taints/#node-kubernetes-io-exclude-from-external-load-balancers).
const LabelCanary = "node.kubernetes.io/exclude-from-external-load-balancers"

// AnnotationReport holds the NodeReport of a canary's node as JSON. The agent writes it with the
// node's own credential, repeatedly while the instance has TagNonce.
const AnnotationReport = "kamino.dev/report"

// NodeReport is what a canary's agent reports and its Node object does not show. It is a claim of
// the image under proof: it can fail the image, and an omission does not pass it.
type NodeReport struct {
	Nonce     string    `json:"nonce"` // nonce of the canary's order
	At        time.Time `json:"at"`    // by the node's clock, with fractions of a second
	MachineID string    `json:"machineId"`
	// SSHKeys are as in Receipt.
	SSHKeys []string `json:"sshKeys,omitempty"`
	// FailedUnits are the failed units of systemd, sorted.
	FailedUnits []string `json:"failedUnits,omitempty"`
	// Restarts counts by unit how often systemd restarted a service since the boot. Services
	// without a restart are left out.
	Restarts map[string]int `json:"restarts,omitempty"`
	// RebootPending is why the node should be rebooted; "" if it need not be.
	RebootPending string `json:"rebootPending,omitempty"`
	// PackageDigest is as in Receipt.
	PackageDigest string `json:"packageDigest,omitempty"`
	Timing               // of the canary's boot, once it is recorded
}

// Baked is how a good canary did while a proof watched it.
type Baked struct {
	Seconds float64 `json:"seconds"` // since its node was Ready
	// Restarts counts by unit how often systemd restarted a service while the canary was watched.
	Restarts map[string]int `json:"restarts,omitempty"`
}

// MaxBaked is how many services of a node's report the ledger keeps.
const MaxBaked = 10

// Report reads the node's report. ok is false if there is none, if it cannot be read, or if it has
// another nonce.
func (n Node) Report(nonce string) (r NodeReport, ok bool) {
	err := readPlain([]byte(n.Annotations[AnnotationReport]), &r)
	return r, err == nil && nonce != "" && r.Nonce == nonce
}

// Lists reports whether a list has a canary of this name.
func Lists(list []Canary, name string) bool {
	return slices.ContainsFunc(list, func(c Canary) bool { return c.Name == name })
}

// TagProofAbandoned is shown for a version that is tagged as being proved while no run proves it.
// No tag has this value.
const TagProofAbandoned = "abandoned"

// Proved describes how a version passed its proof.
type Proved struct {
	By           ProveMode `json:"by"`
	Node         string    `json:"node"`
	ReadySeconds float64   `json:"readySeconds,omitempty"` // from the machine's start to its Ready node
	Checks       int       `json:"checks"`                 // number of checks that passed
	// Left are the checks, or parts of checks, that had nothing to compare with.
	Left []Finding `json:"notApplicable,omitempty"`
}
