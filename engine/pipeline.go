package engine

import (
	"context"
	"time"

	"kamino.dev/kamino"
	"kamino.dev/kamino/workflow"
)

// Pipeline is the list of steps of an update, in order. The donor is back in the cluster before the
// long image build begins, and it comes back through the same first boot as every clone. So no
// image is published whose disk has not booted again once.
func Pipeline() []Step { return updateSteps(&Run{}) }

func updateSteps(r *Run) []Step {
	return []Step{
		{Name: kamino.StepConnect, Original: "1", Does: "check that the credentials work and that every needed action is allowed",
			Look: r.lookConnect, Limit: 30 * time.Second},
		{Name: kamino.StepValidate, Original: "2", Does: "check that the donor and its pool can be used",
			Look: r.lookValidate, Limit: 30 * time.Second},
		lockStep("take the pool's lease, or adopt an interrupted run", r.lookLock),
		{Name: kamino.StepRecover, Does: "give back what earlier runs of the pool left",
			Look: r.lookRecover, Limit: 2 * time.Hour},
		{Name: kamino.StepGallery, Original: "3", Does: "make sure that the gallery exists",
			When: r.image.inGallery, Look: r.image.lookGallery, Patient: true},
		{Name: kamino.StepDefinition, Original: "4", Does: "make sure that the image definition exists and matches the donor",
			When: r.image.inDefinition, Look: r.image.lookDefinition, Patient: true},
		{Name: kamino.StepVersion, Original: "5", Does: "look for an image version of today",
			Look: r.build.lookVersion, Patient: true},
		{Name: kamino.StepReuse, Original: "6", Does: "look for a sealed snapshot of today of this donor",
			When: r.image.missing, Look: r.lookReuse, Patient: true, Limit: buildLimit},
		{Name: kamino.StepRehearse, Does: "dry-run what drain and seal need",
			When: r.build.untouchedYet, Look: r.donor.lookRehearse},
		{Name: kamino.StepProtect, Original: "7", Does: "keep cluster-autoscaler from removing the donor", Back: "removed",
			When: r.build.needed, Look: r.donor.lookProtect,
			Takes: "the donor's protection", Until: kamino.StepReturn},
		{Name: kamino.StepInventory, Does: "check why each file is on the donor's disk, and whether the disk may be sealed",
			Back: "pod removed",
			When: r.build.needed, Look: r.donor.lookSurvey, Patient: true},
		{Name: kamino.StepHold, Does: "take the donor out of service, where its pool would replace a node that is off",
			Back: "put back in service",
			When: r.build.mustHold, Look: r.donor.lookHold,
			Takes: "the donor out of service", Until: kamino.StepReturn},
		{Name: kamino.StepDrain, Original: "8", Does: "block the donor for new pods and evict its pods", Back: "unblocked",
			When: r.build.needed, Look: r.donor.lookDrain, Notify: "Draining", Tells: taken, Limit: workflow.Unlimited,
			Shown: r.donor.drainTimeout, Plan: r.donor.planDrain,
			Takes: "the donor's block", Until: kamino.StepReturn},
		{Name: kamino.StepSeal, Does: "seal the donor's disk and wait for the receipt",
			When: r.build.needed, Look: r.donor.lookSeal, Plan: r.donor.planSeal,
			Takes: "the donor sealed and perhaps off", Until: kamino.StepReturn},
		{Name: kamino.StepStop, Original: "9", Does: "wait for the donor to be off", Back: "started",
			When: r.build.needed, Look: r.donor.lookStop,
			Takes: "the donor off", Until: kamino.StepReturn},
		{Name: kamino.StepSnapshot, Original: "9", Does: "snapshot the donor's OS disk", Back: "deleted",
			When: r.build.needed, Look: r.build.lookSnapshot,
			Takes: "the snapshot", Until: kamino.StepClean},
		{Name: kamino.StepStart, Original: "10", Does: "start the donor and wait for its node",
			When: r.build.marked, Look: r.donor.lookStart, Limit: returnLimit, Stubborn: true},
		{Name: kamino.StepRelease, Does: "put the donor back in service", When: r.build.mustRelease, Look: r.donor.lookRelease,
			Limit: returnLimit, Stubborn: true},
		{Name: kamino.StepReturn, Original: "11, 12", Does: "remove the block and the protection",
			When: r.build.marked, Look: r.lookReturn, Notify: "Returned", Limit: returnLimit, Stubborn: true, DonorBack: true},
		{Name: kamino.StepImage, Original: "13", Does: "build the image version from the snapshot", Back: "deleted when failed",
			When: r.image.unready, Look: r.build.lookImage, Patient: true, Limit: buildLimit, Plan: r.build.planImage,
			Takes: "the image being built", Until: kamino.StepImage},
		{Name: kamino.StepLaunch, Does: "start one instance from the hidden version beside the pool", Back: "removed",
			When: r.image.wanted, Look: r.canary.lookLaunch, Patient: true, Plan: r.canary.planLaunch,
			Takes: "the canary", Until: kamino.StepRetire},
		{Name: kamino.StepJoin, Does: "wait for the canary's node, cordon it and remove its taint",
			When: r.image.wanted, Look: r.canary.lookJoin, Patient: true, Limit: proofLimit},
		{Name: kamino.StepExamine, Does: "examine the canary: Ready in time, an identity of its own, and like its siblings",
			When: r.image.wanted, Look: r.canary.lookExamine, Patient: true, Limit: workflow.Unlimited},
		{Name: kamino.StepModel, Original: "16, 17, 18", Does: "point the pool's model at the image, in one write",
			Back: "the former model is saved",
			When: r.image.promotes, Look: r.pointer.lookModel, Patient: true, Plan: r.pointer.planModel},
		{Name: kamino.StepRetire, Does: "remove the canary and its Node object",
			When: r.canary.mayExist, Look: r.canary.lookRetire, Patient: true, Spare: true},
		{Name: kamino.StepScaleOut, Does: "ask for new nodes",
			When: r.pointer.scalesOut, Look: r.pointer.lookScaleOut, Patient: true, Plan: r.pointer.planScaleOut},
		{Name: kamino.StepClean, Original: "14", Does: "delete the snapshot",
			Look: r.build.lookClean, Patient: true, Spare: true, Limit: buildLimit},
		{Name: kamino.StepPrune, Original: "15", Does: "delete old image versions that nothing uses",
			Look: r.image.lookPrune, Patient: true, Spare: true, Plan: r.image.planPrune},
	}
}

// patchSteps is the list of steps that patch a node, in order.
func patchSteps(r *Run) []Step {
	return []Step{
		{Name: kamino.StepConnect, Does: "check that the credentials work and that every needed action is allowed",
			Look: r.lookConnect, Limit: 30 * time.Second},
		{Name: kamino.StepValidate, Does: "check that the node and its pool can be used",
			Look: r.lookValidate, Limit: 30 * time.Second},
		lockStep("take the pool's lease, or adopt an interrupted run", r.lookLock),
		{Name: kamino.StepRecover, Does: "give back what earlier runs of the pool left",
			Look: r.lookRecover, Limit: 2 * time.Hour},
		{Name: kamino.StepChoose, Does: "make sure that the pool can do without the node, and its pods can leave",
			Look: r.patch.lookChoose},
		{Name: kamino.StepProtect, Does: "keep cluster-autoscaler from removing the node", Back: "removed",
			Look: r.donor.lookProtect, Takes: "the node's protection", Until: kamino.StepReturn},
		{Name: kamino.StepCheck, Does: "check on the node that its packages can be upgraded: no interrupted upgrade, enough free space, a manager with the requested features", Back: "pod removed",
			Look: r.patch.lookCheck, Patient: true},
		{Name: kamino.StepHold, Does: "take the node out of service, where its pool would replace a node that is off",
			Back: "put back in service",
			When: r.donor.mayRelease, Look: r.donor.lookHold, Takes: "the node out of service", Until: kamino.StepReturn},
		{Name: kamino.StepDrain, Does: "block the node for new pods and evict its pods", Back: "unblocked",
			Look: r.donor.lookDrain, Notify: "Draining", Tells: patched, Limit: workflow.Unlimited, Shown: r.donor.drainTimeout,
			Takes: "the node's block", Until: kamino.StepReturn},
		{Name: kamino.StepPatch, Does: "upgrade the node's packages with its own package manager",
			Look: r.patch.lookPatch, Limit: patchLimit},
		{Name: kamino.StepReboot, Does: "restart the node if what was upgraded needs it", Back: "started",
			Look: r.patch.lookReboot, Limit: workflow.Unlimited, Takes: "a node that may be restarting", Until: kamino.StepReturn},
		{Name: kamino.StepExamine, Does: "examine the node: Ready, healthy DaemonSet pods and units, the newest kernel",
			Look: r.patch.lookPatched, Limit: workflow.Unlimited},
		{Name: kamino.StepSign, Does: "mark the node as patched, with kured's annotation",
			Look: r.patch.lookSign},
		{Name: kamino.StepRelease, Does: "put the node back in service", When: r.donor.mayRelease, Look: r.donor.lookRelease,
			Limit: returnLimit, Stubborn: true},
		{Name: kamino.StepReturn, Does: "remove the block and the protection",
			Look: r.lookReturn, Notify: "Returned", Limit: returnLimit, Stubborn: true, DonorBack: true},
	}
}

// patched is the text of the event on a node that is patched.
const patched = "the node is drained to upgrade its packages; it is restarted where they need it, and comes back then"

// lockStep takes the lease of the pool. It watches a live run for as long as its lease is valid.
func lockStep(does string, look func(context.Context) (workflow.Next, error)) Step {
	return Step{Name: kamino.StepLock, Does: does, Back: "released", Look: look, Limit: 5 * time.Minute,
		Shown: func() time.Duration { return kamino.LeaseDuration }, Takes: "the lease"}
}

const takeTheLease = "take the pool's lease"

// restitution is the list of steps that restore a donor. They need only the marks on the node or,
// for a node that Kubernetes has forgotten, the record on the lease.
func restitution(r *Run) []Step {
	return []Step{
		{Name: kamino.StepUnseal, Does: "remove the pods of the run", Look: r.donor.lookPods, Limit: returnLimit, Stubborn: true,
			Takes: "a node that is being given back", Until: kamino.StepReturn},
		{Name: kamino.StepExamine, Does: "keep the node blocked if its packages were changed and nobody has examined it",
			When: r.donor.patching, Look: r.patch.lookBegun,
			Limit: returnLimit, Stubborn: true},
		{Name: kamino.StepStart, Does: "start the machine if it is off, and wait for its node", Look: r.donor.lookStart,
			Limit: returnLimit, Stubborn: true},
		{Name: kamino.StepRelease, Does: "put the node back in service", When: r.donor.mayRelease, Look: r.donor.lookRelease,
			Limit: returnLimit, Stubborn: true},
		{Name: kamino.StepReturn, Does: "remove the block and the protection", Look: r.lookReturn,
			Notify: "Returned", Limit: returnLimit, Stubborn: true, DonorBack: true},
	}
}

// leftovers is the list of steps that clean up after a failed run.
func leftovers(r *Run) []Step {
	return []Step{
		{Name: kamino.StepFailedVersion, Ends: kamino.StepImage, Does: "delete the failed image version", Look: r.build.lookFailedVersion,
			Patient: true, Spare: true, Limit: buildLimit},
		{Name: kamino.StepClean, Does: "delete the snapshot", When: r.image.mayHaveSnapshot, Look: r.build.lookClean, Patient: true,
			Spare: true, Limit: buildLimit},
	}
}

// stayOn is the last check of the power of an adopted run's donor. The previous process may have
// been frozen with a request to switch the donor off in progress. Kamino cannot recall that
// request, and nobody else would notice.
func stayOn(r *Run) []Step {
	return []Step{{Name: kamino.StepStayOn, Does: "make sure that the machine of the adopted run still runs",
		When: func() bool { return r.held.Before.Instance != "" }, Look: r.donor.lookOn, Limit: returnLimit, Stubborn: true}}
}

// canaryBack is the list of steps that remove the canary of a run that ends early.
func canaryBack(r *Run) []Step {
	return []Step{
		{Name: kamino.StepRetire, Does: "remove the canary and its Node object", When: r.canary.mayExist,
			Look: r.canary.lookRetire, Patient: true},
	}
}

// taken is the text of the event on a donor's node. One event covers everything until the donor is
// given back.
const taken = "the node is drained, its disk is sealed, and it is switched off, copied and started again"

// ProvePipeline is the list of steps that prove a version which a person named, in order.
func ProvePipeline() []Step { return proveSteps(&Run{}) }

func proveSteps(r *Run) []Step {
	return []Step{
		{Name: kamino.StepConnect, Does: "check that the credentials work and that every needed action is allowed",
			Look: r.lookConnect, Limit: 30 * time.Second},
		{Name: kamino.StepValidate, Does: "check that a canary of the pool can be created",
			Look: r.canary.lookProvable, Limit: 30 * time.Second},
		lockStep(takeTheLease, r.lookFreeLock),
		{Name: kamino.StepVersion, Does: "read the version", Look: r.canary.lookNamed, Patient: true},
		{Name: kamino.StepLaunch, Does: "start one instance from the version beside the pool", Back: "removed",
			Look: r.canary.lookLaunch, Patient: true, Plan: r.canary.planLaunch, Takes: "the canary", Until: kamino.StepRetire},
		{Name: kamino.StepJoin, Does: "wait for the canary's node, cordon it and remove its taint",
			Look: r.canary.lookJoin, Patient: true, Limit: proofLimit},
		{Name: kamino.StepExamine, Does: "examine the canary: Ready in time, an identity of its own, and like its siblings",
			Look: r.canary.lookExamine, Patient: true, Limit: workflow.Unlimited},
		{Name: kamino.StepModel, Does: "make the version what the pool's next node boots from",
			Look: r.pointer.lookModel, Patient: true},
		{Name: kamino.StepRetire, Does: "remove the canary and its Node object", Look: r.canary.lookRetire, Patient: true, Spare: true},
	}
}

// sweep deletes failed versions, waits for those still being built, and then deletes their
// snapshot.
func sweep(r *Run) []Step {
	return []Step{
		{Name: kamino.StepRetire, Does: "remove canaries", When: r.canary.makesCanaries, Look: r.canary.lookRetire, Patient: true},
		{Name: kamino.StepFailedVersion, Does: "delete failed image versions", Look: r.restore.lookSweep, Patient: true,
			Limit: workflow.Unlimited},
		{Name: kamino.StepClean, Does: "delete the snapshot", When: r.restore.leftNone, Look: r.build.lookClean, Patient: true},
	}
}
