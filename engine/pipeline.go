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
			When: r.inGallery, Look: r.lookGallery, Patient: true},
		{Name: kamino.StepDefinition, Original: "4", Does: "make sure that the image definition exists and matches the donor",
			When: r.inDefinition, Look: r.lookDefinition, Patient: true},
		{Name: kamino.StepVersion, Original: "5", Does: "look for an image version of today",
			Look: r.lookVersion, Patient: true},
		{Name: kamino.StepReuse, Original: "6", Does: "look for a sealed snapshot of today of this donor",
			When: r.imageMissing, Look: r.lookReuse, Patient: true, Limit: buildLimit},
		{Name: kamino.StepRehearse, Does: "dry-run what drain and seal need",
			When: r.donorUntouched, Look: r.lookRehearse},
		{Name: kamino.StepProtect, Original: "7", Does: "keep cluster-autoscaler from removing the donor", Back: "removed",
			When: r.donorNeeded, Look: r.lookProtect,
			Takes: "the donor's protection", Until: kamino.StepReturn},
		{Name: kamino.StepInventory, Does: "check why each file is on the donor's disk, and whether the disk may be sealed", Back: "pod removed",
			When: r.donorNeeded, Look: r.lookSurvey, Patient: true},
		{Name: kamino.StepHold, Does: "take the donor out of service, where its pool would replace a node that is off", Back: "put back in service",
			When: r.holdsDonor, Look: r.lookHold,
			Takes: "the donor out of service", Until: kamino.StepReturn},
		{Name: kamino.StepDrain, Original: "8", Does: "block the donor for new pods and evict its pods", Back: "unblocked",
			When: r.donorNeeded, Look: r.lookDrain, Notify: "Draining", Tells: taken, Limit: workflow.Unlimited, Shown: r.drainTimeout, Plan: r.planDrain,
			Takes: "the donor's block", Until: kamino.StepReturn},
		{Name: kamino.StepSeal, Does: "seal the donor's disk and wait for the receipt",
			When: r.donorNeeded, Look: r.lookSeal, Plan: r.planSeal,
			Takes: "the donor sealed and perhaps off", Until: kamino.StepReturn},
		{Name: kamino.StepStop, Original: "9", Does: "wait for the donor to be off", Back: "started",
			When: r.donorNeeded, Look: r.lookStop,
			Takes: "the donor off", Until: kamino.StepReturn},
		{Name: kamino.StepSnapshot, Original: "9", Does: "snapshot the donor's OS disk", Back: "deleted",
			When: r.donorNeeded, Look: r.lookSnapshot,
			Takes: "the snapshot", Until: kamino.StepClean},
		{Name: kamino.StepStart, Original: "10", Does: "start the donor and wait for its node",
			When: r.donorMarked, Look: r.lookStart, Limit: returnLimit, Stubborn: true},
		{Name: kamino.StepRelease, Does: "put the donor back in service", When: r.releasesDonor, Look: r.lookRelease, Limit: returnLimit, Stubborn: true},
		{Name: kamino.StepReturn, Original: "11, 12", Does: "remove the block and the protection",
			When: r.donorMarked, Look: r.lookReturn, Notify: "Returned", Limit: returnLimit, Stubborn: true, DonorBack: true},
		{Name: kamino.StepImage, Original: "13", Does: "build the image version from the snapshot", Back: "deleted when failed",
			When: r.imageUnready, Look: r.lookImage, Patient: true, Limit: buildLimit, Plan: r.planImage,
			Takes: "the image being built", Until: kamino.StepImage},
		{Name: kamino.StepLaunch, Does: "start one instance from the hidden version beside the pool", Back: "removed",
			When: r.provesCanary, Look: r.lookLaunch, Patient: true, Plan: r.planLaunch,
			Takes: "the canary", Until: kamino.StepRetire},
		{Name: kamino.StepJoin, Does: "wait for the canary's node, cordon it and remove its taint",
			When: r.provesCanary, Look: r.lookJoin, Patient: true, Limit: proofLimit},
		{Name: kamino.StepExamine, Does: "examine the canary: Ready in time, an identity of its own, and like its siblings",
			When: r.provesCanary, Look: r.lookExamine, Patient: true, Limit: workflow.Unlimited},
		{Name: kamino.StepModel, Original: "16, 17, 18", Does: "point the pool's model at the image, in one write", Back: "the former model is saved",
			When: r.promotes, Look: r.lookModel, Patient: true, Plan: r.planModel},
		{Name: kamino.StepRetire, Does: "remove the canary and its Node object",
			When: r.mayHaveCanary, Look: r.lookRetire, Patient: true, Spare: true},
		{Name: kamino.StepScaleOut, Does: "ask for new nodes",
			When: r.scaleOutWanted, Look: r.lookScaleOut, Patient: true, Plan: r.planScaleOut},
		{Name: kamino.StepClean, Original: "14", Does: "delete the snapshot",
			Look: r.lookClean, Patient: true, Spare: true, Limit: buildLimit},
		{Name: kamino.StepPrune, Original: "15", Does: "delete old image versions that nothing uses",
			Look: r.lookPrune, Patient: true, Spare: true, Plan: r.planPrune},
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
			Look: r.lookChoose},
		{Name: kamino.StepProtect, Does: "keep cluster-autoscaler from removing the node", Back: "removed",
			Look: r.lookProtect, Takes: "the node's protection", Until: kamino.StepReturn},
		{Name: kamino.StepCheck, Does: "check on the node that its packages can be upgraded: no interrupted upgrade, enough free space, a manager with the requested features", Back: "pod removed",
			Look: r.lookCheck, Patient: true},
		{Name: kamino.StepHold, Does: "take the node out of service, where its pool would replace a node that is off", Back: "put back in service",
			When: r.mayRelease, Look: r.lookHold, Takes: "the node out of service", Until: kamino.StepReturn},
		{Name: kamino.StepDrain, Does: "block the node for new pods and evict its pods", Back: "unblocked",
			Look: r.lookDrain, Notify: "Draining", Tells: patched, Limit: workflow.Unlimited, Shown: r.drainTimeout,
			Takes: "the node's block", Until: kamino.StepReturn},
		{Name: kamino.StepPatch, Does: "upgrade the node's packages with its own package manager",
			Look: r.lookPatch, Limit: patchLimit},
		{Name: kamino.StepReboot, Does: "restart the node if what was upgraded needs it", Back: "started",
			Look: r.lookReboot, Limit: workflow.Unlimited, Takes: "a node that may be restarting", Until: kamino.StepReturn},
		{Name: kamino.StepExamine, Does: "examine the node: Ready, healthy DaemonSet pods and units, the newest kernel",
			Look: r.lookPatched, Limit: workflow.Unlimited},
		{Name: kamino.StepSign, Does: "mark the node as patched, with kured's annotation",
			Look: r.lookSign},
		{Name: kamino.StepRelease, Does: "put the node back in service", When: r.mayRelease, Look: r.lookRelease, Limit: returnLimit, Stubborn: true},
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
		{Name: kamino.StepUnseal, Does: "remove the pods of the run", Look: r.lookPods, Limit: returnLimit, Stubborn: true, Takes: "a node that is being given back", Until: kamino.StepReturn},
		{Name: kamino.StepExamine, Does: "keep the node blocked if its packages were changed and nobody has examined it", When: r.patching, Look: r.lookBegun,
			Limit: returnLimit, Stubborn: true},
		{Name: kamino.StepStart, Does: "start the machine if it is off, and wait for its node", Look: r.lookStart,
			Limit: returnLimit, Stubborn: true},
		{Name: kamino.StepRelease, Does: "put the node back in service", When: r.mayRelease, Look: r.lookRelease, Limit: returnLimit, Stubborn: true},
		{Name: kamino.StepReturn, Does: "remove the block and the protection", Look: r.lookReturn,
			Notify: "Returned", Limit: returnLimit, Stubborn: true, DonorBack: true},
	}
}

// leftovers is the list of steps that clean up after a failed run.
func leftovers(r *Run) []Step {
	return []Step{
		{Name: kamino.StepFailedVersion, Ends: kamino.StepImage, Does: "delete the failed image version", Look: r.lookFailedVersion, Patient: true, Spare: true, Limit: buildLimit},
		{Name: kamino.StepClean, Does: "delete the snapshot", When: r.mayHaveSnapshot, Look: r.lookClean, Patient: true, Spare: true, Limit: buildLimit},
	}
}

// stayOn is the last check of the power of an adopted run's donor. The previous process may have
// been frozen with a request to switch the donor off in progress. Kamino cannot recall that
// request, and nobody else would notice.
func stayOn(r *Run) []Step {
	return []Step{{Name: kamino.StepStayOn, Does: "make sure that the machine of the adopted run still runs",
		When: func() bool { return r.held.Before.Instance != "" }, Look: r.lookOn, Limit: returnLimit, Stubborn: true}}
}

// canaryBack is the list of steps that remove the canary of a run that ends early.
func canaryBack(r *Run) []Step {
	return []Step{
		{Name: kamino.StepRetire, Does: "remove the canary and its Node object", When: r.mayHaveCanary, Look: r.lookRetire, Patient: true},
	}
}

// taken is the text of the event on a donor's node. One event covers everything until the donor is
// given back.
const taken = "the node is drained, its disk is sealed, and it is switched off, copied and started again"

const (
	// returnLimit is how long a run tries to bring the donor back before it notifies a person.
	returnLimit = time.Hour
	// buildLimit is how long the build and replication of a version may take.
	buildLimit = 6 * time.Hour
	// proofLimit is how long a run waits for a canary's node, whatever the boot budget.
	proofLimit = 3 * time.Hour
	// patchLimit is the limit of the step; the agent has its own limit for the package manager.
	patchLimit = 5 * time.Hour
)

// Step is a step of a run.
type Step = workflow.Step
