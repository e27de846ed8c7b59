package kamino

import (
	"context"
	"time"
)

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

// Names of what a patch writes on a node.
const (
	// AnnotationPatch and AnnotationPatchLook are the node's answers to the orders of a run that
	// patches it: a PatchReport, compressed, with the nonce of the run.
	AnnotationPatch     = "kamino.dev/patch"
	AnnotationPatchLook = "kamino.dev/patch-look"
	// AnnotationPatchFailed is a PatchFailure as JSON, on a node that stays blocked.
	AnnotationPatchFailed = "kamino.dev/patch-failed"
	// TaintPatchFailed blocks a node that did not come back in order; its prefix is TaintBlock's.
	TaintPatchFailed = "status-taint.cluster-autoscaler.kubernetes.io/kamino-patch-failed"
)

// PatchOrder is what the user decides about a patch.
type PatchOrder struct {
	Manager string        // "" unattended-upgrades where it is installed, else the package manager
	Scope   string        // all, security, or "" for what the manager is configured for
	Held    string        // "upgrade": packages on hold too
	Phased  string        // always, never, or "": Ubuntu's phased updates
	Release string        // releasever of dnf
	RoomMiB int           // that the node's disk must have free; 0: 1024
	Within  time.Duration // for the package manager
	Reboot  RebootMode
	// Return is how long a node may take to boot before it is power-cycled, and again after that.
	Return time.Duration
	// Settle is how long the node must be in order before it is signed.
	Settle time.Duration
}
