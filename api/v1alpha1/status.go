package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// NodePrototypeStatus is what was found of a prototype. Nothing in it depends on the time at which
// it was looked at, so that a pool in which nothing happens is not written.
type NodePrototypeStatus struct {
	// ObservedGeneration is that of the spec that this status was made for.
	//
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Pool is the name of the pool that was found.
	//
	// +optional
	Pool string `json:"pool,omitempty"`
	// Image is the newest version that could be promoted.
	//
	// +optional
	Image string `json:"image,omitempty"`
	// Next is the image that the next node would boot from.
	//
	// +optional
	Next *Image `json:"next,omitempty"`
	// Candidate is the node that would be the donor of the next run.
	//
	// +optional
	Candidate string `json:"candidate,omitempty"`
	// Donor is the node that a run has now.
	//
	// +optional
	Donor string `json:"donor,omitempty"`
	// Run is the one that is at work, of the controller or of a command.
	//
	// +optional
	Run *Run `json:"run,omitempty"`
	// Withdrawn are the versions that were taken back, newest first.
	//
	// +listType=map
	// +listMapKey=version
	// +kubebuilder:validation:MaxItems=50
	// +optional
	Withdrawn []Withdrawn `json:"withdrawn,omitempty"`
	// Behind is what the next node would lack of the best node that runs.
	//
	// +optional
	Behind *Behind `json:"behind,omitempty"`
	// NextRun is when the next run may start, as far as is known.
	//
	// +optional
	NextRun *metav1.Time `json:"nextRun,omitempty"`
	// Conditions: Ready, Progressing, Proven, Stale, Refused, Pinned, ConfigFailed and Paused.
	//
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// Image is a version, and where it came from.
type Image struct {
	Version string `json:"version"`
	// Built is when.
	//
	// +optional
	Built *metav1.Time `json:"built,omitempty"`
	// From is the node whose disk it is.
	//
	// +optional
	From string `json:"from,omitempty"`
	// +optional
	Run string `json:"run,omitempty"`
}

// Run is a run that is at work.
type Run struct {
	ID string `json:"id"`
	// +optional
	Step string `json:"step,omitempty"`
	// Since is when it began.
	//
	// +optional
	Since *metav1.Time `json:"since,omitempty"`
	// Percent of the step, where that is known.
	//
	// +optional
	Percent *int32 `json:"percent,omitempty"`
	// Version that it makes.
	//
	// +optional
	Version string `json:"version,omitempty"`
	// Process that drives it.
	//
	// +optional
	Process string `json:"process,omitempty"`
}

// Withdrawn is a version that was taken back.
type Withdrawn struct {
	Version string `json:"version"`
	// +optional
	Reason string `json:"reason,omitempty"`
}

// Behind compares the next image with the best node that runs.
type Behind struct {
	Node string `json:"node"`
	// Days of patches that the next node would lack, rounded up; absent where nobody tells.
	//
	// +optional
	Days *int32 `json:"days,omitempty"`
	// Packages: same, differ or unknown.
	Packages string `json:"packages"`
	// Differs are kernel, OS, kubelet and runtime, where they are not the same.
	//
	// +listType=atomic
	// +optional
	Differs []string `json:"differs,omitempty"`
}

// The types of conditions.
const (
	// ConditionReady: the prototype is kept as its spec says. Its reason is the state in a word.
	ConditionReady = "Ready"
	// ConditionProgressing: a run is active.
	ConditionProgressing = "Progressing"
	// ConditionProven: the next image passed its proof.
	ConditionProven = "Proven"
	// ConditionStale: the next image should be rebuilt.
	ConditionStale = "Stale"
	// ConditionRefused: no run may take a node of the pool.
	ConditionRefused = "Refused"
	// ConditionPinned: somebody else chose what the pool's next node boots from.
	ConditionPinned = "Pinned"
	// ConditionConfigFailed: nodes refused what their NodeConfig's source offers, or cannot read it.
	ConditionConfigFailed = "ConfigFailed"
	// ConditionPaused: new runs and promotions are held, in the whole cluster or by spec.suspend.
	ConditionPaused = "Paused"
)

// The reasons of Ready.
const (
	ReasonUpToDate     = "UpToDate" // nothing is needed
	ReasonRunning      = "Running"  // a run is active
	ReasonNeedsRun     = "NeedsRun" // a run is due
	ReasonWindow       = "OutsideWindow"
	ReasonTurn         = "WaitingForTurn" // too many donors are away
	ReasonBackOff      = "RunFailed"      // the last run failed, and the next waits
	ReasonHeld         = "Held"           // something is needed, and may not be done
	ReasonAwaits       = "AwaitsPromotion"
	ReasonRefused      = "Refused"
	ReasonOwned        = "Owned" // another program writes the pool's recipe
	ReasonPinned       = "Pinned"
	ReasonPaused       = "Paused"
	ReasonSuspended    = "Suspended"
	ReasonConflict     = "Conflict" // two prototypes for one pool
	ReasonPoolNotFound = "PoolNotFound"
	ReasonAmbiguous    = "AmbiguousPool"
	ReasonInvalid      = "InvalidSpec"
	ReasonUnreadable   = "Unreadable" // the pool could not be read
	ReasonPromotion    = "PromotionFailed"
	ReasonUnfit        = "NewNodesNotReady" // and no version can take the place of theirs
)
