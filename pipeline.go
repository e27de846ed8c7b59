package kamino

import (
	"context"
	"sync"
	"time"
)

// The names of steps, as they stand on leases, in events and in errors.
const (
	InConnect       = "connect"
	InValidate      = "validate"
	InLock          = "lock"
	InRecover       = "recover"
	InGallery       = "gallery"
	InDefinition    = "definition"
	InVersion       = "version"
	InReuse         = "reuse"
	InRehearse      = "rehearse"
	InProtect       = "protect"
	InInventory     = "inventory"
	InDrain         = "drain"
	InHold          = "hold"
	InSeal          = "seal"
	InStop          = "stop"
	InSnapshot      = "snapshot"
	InStart         = "start"
	InRelease       = "release"
	InReturn        = "return"
	InImage         = "image"
	InLaunch        = "launch"
	InJoin          = "join"
	InExamine       = "examine"
	InRetire        = "retire"
	InModel         = "model"
	InScaleOut      = "scale-out"
	InWatch         = "watch"
	InClean         = "clean"
	InPrune         = "prune"
	InUnseal        = "unseal"
	InFailedVersion = "failed-version"
	InStayOn        = "stay-on"
	InMark          = "mark"
	InChoose        = "choose"
	InCheck         = "check"
	InPatch         = "patch"
	InReboot        = "reboot"
	InSign          = "sign"
)

// Pipeline is the list of steps of an update, in order. The donor is back in
// the cluster before the long image build begins, and it comes back through the
// same first boot as every clone: no image is published whose disk has not come
// back to life once.
func Pipeline() []Step {
	return []Step{
		{Name: InConnect, Original: "1", Does: "check that the credentials work and that every needed action is allowed",
			Look: (*Run).lookConnect, Limit: 30 * time.Second},
		{Name: InValidate, Original: "2", Does: "check that the donor and its pool can be used",
			Look: (*Run).lookValidate, Limit: 30 * time.Second},
		{Name: InLock, Does: "take the pool's lease, or adopt the run that an ended process left", Back: "released",
			Look: (*Run).lookLock, Limit: 5 * time.Minute, Shown: leaseDuration,
			Takes: "the lease"},
		{Name: InRecover, Does: "give back what earlier runs of the pool left",
			Look: (*Run).lookRecover, Limit: 2 * time.Hour},
		{Name: InGallery, Original: "3", Does: "make sure that the gallery exists",
			When: (*Run).inGallery, Look: (*Run).lookGallery, Patient: true},
		{Name: InDefinition, Original: "4", Does: "make sure that the image definition exists and matches the donor",
			When: (*Run).inDefinition, Look: (*Run).lookDefinition, Patient: true},
		{Name: InVersion, Original: "5", Does: "look for an image version of today",
			Look: (*Run).lookVersion, Patient: true},
		{Name: InReuse, Original: "6", Does: "look for a sealed snapshot of today of this donor",
			When: (*Run).imageMissing, Look: (*Run).lookReuse, Patient: true, Limit: buildLimit},
		{Name: InRehearse, Does: "dry-run what drain and seal need",
			When: (*Run).donorUntouched, Look: (*Run).lookRehearse},
		{Name: InProtect, Original: "7", Does: "keep cluster-autoscaler from removing the donor", Back: "removed",
			When: (*Run).donorNeeded, Look: (*Run).lookProtect,
			Takes: "the donor's protection", Until: InReturn},
		{Name: InInventory, Does: "check why each file is on the donor's disk, and whether the disk may be sealed", Back: "pod removed",
			When: (*Run).donorNeeded, Look: (*Run).lookSurvey, Patient: true},
		{Name: InHold, Does: "take the donor out of service, where its pool would replace a node that is off", Back: "put back in service",
			When: (*Run).holdsDonor, Look: (*Run).lookHold,
			Takes: "the donor out of service", Until: InReturn},
		{Name: InDrain, Original: "8", Does: "block the donor for new pods and evict its pods", Back: "unblocked",
			When: (*Run).donorNeeded, Look: (*Run).lookDrain, Notify: "Draining", Tells: taken, Limit: unlimited, Shown: (*Run).drainTimeout, Plan: (*Run).planDrain,
			Takes: "the donor's block", Until: InReturn},
		{Name: InSeal, Does: "seal the donor's disk and wait for the receipt",
			When: (*Run).donorNeeded, Look: (*Run).lookSeal, Plan: (*Run).planSeal,
			Takes: "the donor sealed and perhaps off", Until: InReturn},
		{Name: InStop, Original: "9", Does: "wait for the donor to be off", Back: "started",
			When: (*Run).donorNeeded, Look: (*Run).lookStop,
			Takes: "the donor off", Until: InReturn},
		{Name: InSnapshot, Original: "9", Does: "snapshot the donor's OS disk", Back: "deleted",
			When: (*Run).donorNeeded, Look: (*Run).lookSnapshot,
			Takes: "the snapshot", Until: InClean},
		{Name: InStart, Original: "10", Does: "start the donor and wait for its node",
			When: (*Run).donorMarked, Look: (*Run).lookStart, Limit: returnLimit, Stubborn: true},
		{Name: InRelease, Does: "put the donor back in service", When: (*Run).releasesDonor, Look: (*Run).lookRelease, Limit: returnLimit, Stubborn: true},
		{Name: InReturn, Original: "11, 12", Does: "remove the block and the protection",
			When: (*Run).donorMarked, Look: (*Run).lookReturn, Notify: "Returned", Limit: returnLimit, Stubborn: true, DonorBack: true},
		{Name: InImage, Original: "13", Does: "build the image version from the snapshot", Back: "deleted when failed",
			When: (*Run).imageUnready, Look: (*Run).lookImage, Patient: true, Limit: buildLimit, Plan: (*Run).planImage,
			Takes: "the image being built", Until: InImage},
		{Name: InLaunch, Does: "start one instance from the hidden version beside the pool", Back: "removed",
			When: (*Run).provesCanary, Look: (*Run).lookLaunch, Patient: true, Plan: (*Run).planLaunch,
			Takes: "the canary", Until: InRetire},
		{Name: InJoin, Does: "wait for the canary's node, cordon it and remove its taint",
			When: (*Run).provesCanary, Look: (*Run).lookJoin, Patient: true, Limit: proofLimit},
		{Name: InExamine, Does: "examine the canary: Ready in time, itself, and as its siblings are",
			When: (*Run).provesCanary, Look: (*Run).lookExamine, Patient: true, Limit: unlimited},
		{Name: InModel, Original: "16, 17, 18", Does: "point the pool's model at the image, in one write", Back: "the former model is saved",
			When: (*Run).promotes, Look: (*Run).lookModel, Patient: true, Plan: (*Run).planModel},
		{Name: InRetire, Does: "remove the canary and its Node object",
			When: (*Run).mayHaveCanary, Look: (*Run).lookRetire, Patient: true, Spare: true},
		{Name: InScaleOut, Does: "ask for new nodes",
			When: (*Run).scaleOutWanted, Look: (*Run).lookScaleOut, Patient: true, Plan: (*Run).planScaleOut},
		{Name: InClean, Original: "14", Does: "delete the snapshot",
			Look: (*Run).lookClean, Patient: true, Spare: true, Limit: buildLimit},
		{Name: InPrune, Original: "15", Does: "delete old image versions that nothing uses",
			Look: (*Run).lookPrune, Patient: true, Spare: true, Plan: (*Run).planPrune},
	}
}

// PatchPipeline is the list of steps that patch a node, in order.
func PatchPipeline() []Step {
	return []Step{
		{Name: InConnect, Does: "check that the credentials work and that every needed action is allowed",
			Look: (*Run).lookConnect, Limit: 30 * time.Second},
		{Name: InValidate, Does: "check that the node and its pool can be used",
			Look: (*Run).lookValidate, Limit: 30 * time.Second},
		{Name: InLock, Does: "take the pool's lease, or adopt the run that an ended process left", Back: "released",
			Look: (*Run).lookLock, Limit: 5 * time.Minute, Shown: leaseDuration, Takes: "the lease"},
		{Name: InRecover, Does: "give back what earlier runs of the pool left",
			Look: (*Run).lookRecover, Limit: 2 * time.Hour},
		{Name: InChoose, Does: "make sure that the pool can do without the node, and its pods can leave",
			Look: (*Run).lookChoose},
		{Name: InProtect, Does: "keep cluster-autoscaler from removing the node", Back: "removed",
			Look: (*Run).lookProtect, Takes: "the node's protection", Until: InReturn},
		{Name: InCheck, Does: "check on the node that its packages can be upgraded: none left half-way, enough room, a manager that can do what is asked", Back: "pod removed",
			Look: (*Run).lookCheck, Patient: true},
		{Name: InHold, Does: "take the node out of service, where its pool would replace a node that is off", Back: "put back in service",
			When: (*Run).mayRelease, Look: (*Run).lookHold, Takes: "the node out of service", Until: InReturn},
		{Name: InDrain, Does: "block the node for new pods and evict its pods", Back: "unblocked",
			Look: (*Run).lookDrain, Notify: "Draining", Tells: patched, Limit: unlimited, Shown: (*Run).drainTimeout,
			Takes: "the node's block", Until: InReturn},
		{Name: InPatch, Does: "upgrade the node's packages with its own package manager",
			Look: (*Run).lookPatch, Limit: patchLimit},
		{Name: InReboot, Does: "restart the node if what was upgraded needs it", Back: "started",
			Look: (*Run).lookReboot, Limit: unlimited, Takes: "a node that may be restarting", Until: InReturn},
		{Name: InExamine, Does: "examine the node: Ready, with its DaemonSets, units and kernel in order",
			Look: (*Run).lookPatched, Limit: unlimited},
		{Name: InSign, Does: "mark the node as patched, with kured's annotation",
			Look: (*Run).lookSign},
		{Name: InRelease, Does: "put the node back in service", When: (*Run).mayRelease, Look: (*Run).lookRelease, Limit: returnLimit, Stubborn: true},
		{Name: InReturn, Does: "remove the block and the protection",
			Look: (*Run).lookReturn, Notify: "Returned", Limit: returnLimit, Stubborn: true, DonorBack: true},
	}
}

// patched is the event on a node that is patched.
const patched = "the node is drained to upgrade its packages; it is restarted where they need it, and comes back then"

// restitution is the list of steps that give a donor back. They need nothing
// but the marks on the node, and for a node that is gone from Kubernetes the
// record on the lease.
func restitution() []Step {
	return []Step{
		{Name: InUnseal, Does: "remove the pods of the run", Look: (*Run).lookPods, Limit: returnLimit, Stubborn: true, Takes: "a node that is being given back", Until: InReturn},
		{Name: InExamine, Does: "keep the node blocked if its packages were changed and nobody has examined it", When: (*Run).patching, Look: (*Run).lookBegun,
			Limit: returnLimit, Stubborn: true},
		{Name: InStart, Does: "start the machine if it is off, and wait for its node", Look: (*Run).lookStart,
			Limit: returnLimit, Stubborn: true},
		{Name: InRelease, Does: "put the node back in service", When: (*Run).mayRelease, Look: (*Run).lookRelease, Limit: returnLimit, Stubborn: true},
		{Name: InReturn, Does: "remove the block and the protection", Look: (*Run).lookReturn,
			Notify: "Returned", Limit: returnLimit, Stubborn: true, DonorBack: true},
	}
}

// leftovers is the list of steps that clean up after a run that failed.
func leftovers() []Step {
	return []Step{
		{Name: InFailedVersion, Ends: InImage, Does: "delete the failed image version", Look: (*Run).lookFailedVersion, Patient: true, Spare: true, Limit: buildLimit},
		{Name: InClean, Does: "delete the snapshot", When: (*Run).mayHaveSnapshot, Look: (*Run).lookClean, Patient: true, Spare: true, Limit: buildLimit},
	}
}

// stayOn is the look at the power of an adopted run's donor at the end. The process that had the
// run before may have been frozen with a request to switch the donor off in its hands: nothing that
// Kamino can do recalls it, and nobody else would look.
func stayOn() []Step {
	return []Step{{Name: InStayOn, Does: "make sure that the machine of the run that was taken over still runs",
		When: func(r *Run) bool { return r.held.before.Instance != "" }, Look: (*Run).lookOn, Limit: returnLimit, Stubborn: true}}
}

// canaryBack removes the canary of a run that ends before its time.
func canaryBack() []Step {
	return []Step{
		{Name: InRetire, Does: "remove the canary and its Node object", When: (*Run).mayHaveCanary, Look: (*Run).lookRetire, Patient: true},
	}
}

// taken is the event on a donor's node: one tells of all that comes until it is given back.
const taken = "the node is drained, its disk is sealed, and it is switched off, copied and started again"

const (
	// returnLimit is how long a donor is brought back before a person is called.
	returnLimit = time.Hour
	// buildLimit is how long the build and replication of a version may take.
	buildLimit = 6 * time.Hour
	// proofLimit is how long a canary's node is waited for, whatever the boot budget.
	proofLimit = 3 * time.Hour
	// patchLimit is for the step, beyond the limit that the agent has for the package manager.
	patchLimit = 5 * time.Hour
)

// Step is a step of a run.
type Step = StepOf[*Run]

// seenKey finds what a look has read.
type seenKey struct{}

// Looking begins a look. What a Provider or a Cluster reads with the context it returns may be read
// once and returned again. Nothing is changed with such a context: what changes the world reads
// afresh.
func Looking(ctx context.Context) context.Context {
	return context.WithValue(ctx, seenKey{}, &sync.Map{})
}

// Seen is what was read in the look that a context belongs to; nil where it belongs to none.
func Seen(ctx context.Context) *sync.Map {
	seen, _ := ctx.Value(seenKey{}).(*sync.Map)
	return seen
}

// Act is something that a run does to the world, as it stands on the lease before it is done. What
// people read of it stands beside it, in words of its own.
type Act string

// The acts.
const (
	ActLease            Act = "take-lease"
	ActBegin            Act = "begin-run"
	ActGiveBack         Act = "give-back"
	ActCreateGallery    Act = "create-gallery"
	ActCreateDefinition Act = "create-definition"
	ActName             Act = "name-version"
	ActProtect          Act = "protect-node"
	ActBlock            Act = "block-node"
	ActSurvey           Act = "survey-disk"
	ActEvict            Act = "evict-pods"
	ActHolding          Act = "announce-hold"
	ActHold             Act = "hold-node"
	ActRelease          Act = "release-node"
	ActSealing          Act = "announce-seal"
	ActSeal             Act = "seal-disk"
	ActPowerOff         Act = "power-off"
	ActPowerOn          Act = "power-on"
	ActCreateSnapshot   Act = "create-snapshot"
	ActDeleteSnapshot   Act = "delete-snapshot"
	ActUnmark           Act = "unmark-node"
	ActUnseal           Act = "delete-seal-pod"
	ActCreateVersion    Act = "create-version"
	ActDeleteVersion    Act = "delete-version"
	ActMarkVersion      Act = "mark-version"
	ActModel            Act = "write-model"
	ActScaleOut         Act = "scale-out"
	ActLaunchCanary     Act = "launch-canary"
	ActAdmitCanary      Act = "admit-canary"
	ActProbe            Act = "start-probe"
	ActRemoveCanary     Act = "remove-canary"
	ActRemoveNode       Act = "remove-node"
	ActDeleteLists      Act = "delete-lists"
	ActCheck            Act = "check-node"
	ActPatching         Act = "announce-patch"
	ActPatch            Act = "patch-node"
	ActRestarting       Act = "announce-restart"
	ActRestart          Act = "restart-node"
	ActLook             Act = "look-at-node"
	ActSign             Act = "sign-node"
	ActKeepBlocked      Act = "keep-blocked"
)
