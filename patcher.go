package kamino

import (
	"context"
	"time"
)

// Patcher is a Cluster that can run patches on its nodes. Errors are those of [Provider].
type Patcher interface {
	// Daemons lists the pods of DaemonSets on a node.
	Daemons(context.Context, Node) ([]DaemonPod, error)
	// Sign records on the node of that UID that it was patched: the label, and kured's annotation.
	// It removes the taint of an earlier failure, and Begun from the node's mark.
	Sign(context.Context, Node, time.Time) error
	// KeepBlocked puts TaintPatchFailed and AnnotationPatchFailed on the node of that UID.
	KeepBlocked(context.Context, Node, PatchFailure) error
}

// Names of the annotations and taints that a patch writes on a node.
const (
	// AnnotationPatch and AnnotationPatchLook are the node's answers to a run that patches it: a
	// PatchReport, compressed, with the nonce of the run.
	AnnotationPatch     = "kamino.dev/patch"
	AnnotationPatchLook = "kamino.dev/patch-look"
	// AnnotationPatchFailed is a PatchFailure as JSON, on a node that stays blocked.
	AnnotationPatchFailed = "kamino.dev/patch-failed"
	// TaintPatchFailed blocks a node that did not come back healthy from a patch. Its prefix is
	// explained at TaintBlock.
	TaintPatchFailed = "status-taint.cluster-autoscaler.kubernetes.io/kamino-patch-failed"
)

// PatchOrder is how a node is to be patched.
type PatchOrder struct {
	Manager string        // "": unattended-upgrades if installed, else the package manager
	Scope   string        // all, security, or "" for the manager's own configuration
	Held    string        // "upgrade": also packages on hold
	Phased  string        // always, never, or "": Ubuntu's phased updates
	Release string        // releasever of dnf
	RoomMiB int           // free space that the node's disk must have; 0: 1024
	Within  time.Duration // time limit of the package manager
	Reboot  RebootMode
	// Return is how long a node may take to boot before it is power-cycled, and again after the
	// power cycle.
	Return time.Duration
	// Settle is how long the node must be in order before the patch is signed.
	Settle time.Duration
}
