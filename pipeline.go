package kamino

import (
	"slices"
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
		{Name: InConnect, Seed: "1", Does: "check that the credentials work and that every needed action is allowed",
			Look: (*Run).lookConnect, Limit: 30 * time.Second},
		{Name: InValidate, Seed: "2", Does: "check that the donor and its pool can be used",
			Look: (*Run).lookValidate, Limit: 30 * time.Second},
		{Name: InLock, Does: "take the pool's lease, or adopt the run that an ended process left", Back: "released",
			Look: (*Run).lookLock, Limit: 5 * time.Minute,
			Takes: "the lease"},
		{Name: InRecover, Does: "give back what earlier runs of the pool left",
			Look: (*Run).lookRecover, Limit: 2 * time.Hour},
		{Name: InGallery, Seed: "3", Does: "make sure that the gallery exists",
			When: (*Run).inGallery, Look: (*Run).lookGallery, Patient: true},
		{Name: InDefinition, Seed: "4", Does: "make sure that the image definition exists and matches the donor",
			When: (*Run).inDefinition, Look: (*Run).lookDefinition, Patient: true},
		{Name: InVersion, Seed: "5", Does: "look for an image version of today",
			Look: (*Run).lookVersion, Patient: true},
		{Name: InReuse, Seed: "6", Does: "look for a sealed snapshot of today of this donor",
			When: (*Run).imageMissing, Look: (*Run).lookReuse, Patient: true, Limit: buildLimit},
		{Name: InRehearse, Does: "try without effect what drain and seal need",
			When: (*Run).donorUntouched, Look: (*Run).lookRehearse},
		{Name: InProtect, Seed: "7", Does: "keep cluster-autoscaler from removing the donor", Back: "removed",
			When: (*Run).donorNeeded, Look: (*Run).lookProtect,
			Takes: "the donor's protection", Until: InReturn},
		{Name: InInventory, Does: "look why each file is on the donor's disk, and whether it may be sealed", Back: "pod removed",
			When: (*Run).donorNeeded, Look: (*Run).lookSurvey, Patient: true},
		{Name: InDrain, Seed: "8", Does: "block the donor for new pods and evict its pods", Back: "unblocked",
			When: (*Run).donorNeeded, Look: (*Run).lookDrain, Notify: "Draining", Tells: taken, Limit: unlimited, Plan: (*Run).planDrain,
			Takes: "the donor's block", Until: InReturn},
		{Name: InHold, Does: "take the donor out of service, where its pool would replace a node that is off", Back: "put back in service",
			When: (*Run).holdsDonor, Look: (*Run).lookHold,
			Takes: "the donor out of service", Until: InReturn},
		{Name: InSeal, Does: "make the donor's disk fit to be cloned and wait for the receipt",
			When: (*Run).donorNeeded, Look: (*Run).lookSeal, Plan: (*Run).planSeal,
			Takes: "the donor sealed and perhaps off", Until: InReturn},
		{Name: InStop, Seed: "9", Does: "wait for the donor to be off", Back: "started",
			When: (*Run).donorNeeded, Look: (*Run).lookStop,
			Takes: "the donor off", Until: InReturn},
		{Name: InSnapshot, Seed: "9", Does: "snapshot the donor's OS disk", Back: "deleted",
			When: (*Run).donorNeeded, Look: (*Run).lookSnapshot,
			Takes: "the snapshot", Until: InClean},
		{Name: InStart, Seed: "10", Does: "start the donor and wait for its node",
			When: (*Run).donorMarked, Look: (*Run).lookStart, Limit: returnLimit, Stubborn: true},
		{Name: InRelease, Does: "put the donor back in service", When: (*Run).releasesDonor, Look: (*Run).lookRelease, Limit: returnLimit, Stubborn: true},
		{Name: InReturn, Seed: "11, 12", Does: "take off the block and the protection",
			When: (*Run).donorMarked, Look: (*Run).lookReturn, Notify: "Returned", Limit: returnLimit, Stubborn: true, DonorBack: true},
		{Name: InImage, Seed: "13", Does: "build the image version from the snapshot", Back: "deleted when failed",
			When: (*Run).imageUnready, Look: (*Run).lookImage, Patient: true, Limit: buildLimit, Plan: (*Run).planImage,
			Takes: "the image being built", Until: InImage},
		{Name: InLaunch, Does: "start one instance from the hidden version beside the pool", Back: "removed",
			When: (*Run).provesCanary, Look: (*Run).lookLaunch, Patient: true, Plan: (*Run).planLaunch,
			Takes: "the canary", Until: InRetire},
		{Name: InJoin, Does: "wait for the canary's node, cordon it and take its taint off",
			When: (*Run).provesCanary, Look: (*Run).lookJoin, Patient: true, Limit: proofLimit},
		{Name: InExamine, Does: "examine the canary: Ready in time, itself, and as its siblings are",
			When: (*Run).provesCanary, Look: (*Run).lookExamine, Patient: true, Limit: unlimited},
		{Name: InModel, Seed: "16, 17, 18", Does: "point the pool's model at the image, in one conditional write", Back: "the former model is saved",
			When: (*Run).promotes, Look: (*Run).lookModel, Patient: true, Plan: (*Run).planModel},
		{Name: InRetire, Does: "remove the canary and its Node object",
			When: (*Run).mayHaveCanary, Look: (*Run).lookRetire, Patient: true, Spare: true},
		{Name: InScaleOut, Does: "ask for new nodes",
			When: (*Run).scaleOutWanted, Look: (*Run).lookScaleOut, Patient: true, Plan: (*Run).planScaleOut},
		{Name: InWatch, Does: "watch the first node of the new version, and withdraw that if it is bad",
			When: (*Run).watches, Look: (*Run).lookWatch, Patient: true, Limit: unlimited,
			Takes: "the protection of the node that is watched", Until: InWatch},
		{Name: InClean, Seed: "14", Does: "delete the snapshot",
			Look: (*Run).lookClean, Patient: true, Spare: true, Limit: buildLimit},
		{Name: InPrune, Seed: "15", Does: "delete old image versions that nothing uses",
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
			Look: (*Run).lookLock, Limit: 5 * time.Minute, Takes: "the lease"},
		{Name: InRecover, Does: "give back what earlier runs of the pool left",
			Look: (*Run).lookRecover, Limit: 2 * time.Hour},
		{Name: InChoose, Does: "make sure that the pool can do without the node, and its pods can leave",
			Look: (*Run).lookChoose},
		{Name: InProtect, Does: "keep cluster-autoscaler from removing the node", Back: "removed",
			Look: (*Run).lookProtect, Takes: "the node's protection", Until: InReturn},
		{Name: InHold, Does: "take the node out of service, where its pool would replace a node that is off", Back: "put back in service",
			When: (*Run).mayRelease, Look: (*Run).lookHold, Takes: "the node out of service", Until: InReturn},
		{Name: InDrain, Does: "block the node for new pods and evict its pods", Back: "unblocked",
			Look: (*Run).lookDrain, Notify: "Draining", Tells: patched, Limit: unlimited,
			Takes: "the node's block", Until: InReturn},
		{Name: InPatch, Does: "upgrade the node's packages by its own package manager",
			Look: (*Run).lookPatch, Limit: patchLimit},
		{Name: InReboot, Does: "restart the node if what was upgraded needs it", Back: "started",
			Look: (*Run).lookReboot, Limit: unlimited, Takes: "a node that may be restarting", Until: InReturn},
		{Name: InExamine, Does: "examine the node: Ready, with its DaemonSets, units and kernel in order",
			Look: (*Run).lookPatched, Limit: unlimited},
		{Name: InSign, Does: "write on the node that it is patched, for select and for kured's readers",
			Look: (*Run).lookSign},
		{Name: InRelease, Does: "put the node back in service", When: (*Run).mayRelease, Look: (*Run).lookRelease, Limit: returnLimit, Stubborn: true},
		{Name: InReturn, Does: "take off the block and the protection",
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
		{Name: InUnseal, Does: "remove the pods of the run", Look: (*Run).lookPods, Limit: returnLimit, Stubborn: true, Takes: "a donor that is being given back", Until: InReturn},
		{Name: InExamine, Does: "keep the node blocked if its packages were changed and nobody has examined it", When: (*Run).patching, Look: (*Run).lookBegun,
			Limit: returnLimit, Stubborn: true},
		{Name: InStart, Does: "start the donor and wait for its node", Look: (*Run).lookStart,
			Limit: returnLimit, Stubborn: true},
		{Name: InRelease, Does: "put the donor back in service", When: (*Run).mayRelease, Look: (*Run).lookRelease, Limit: returnLimit, Stubborn: true},
		{Name: InReturn, Does: "take off the block and the protection", Look: (*Run).lookReturn,
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
	return []Step{{Name: InStayOn, Does: "make sure that the donor of the run that was taken over still runs",
		When: func(r *Run) bool { return r.held.before.Instance != "" }, Look: (*Run).lookOn, Limit: returnLimit, Stubborn: true}}
}

// canaryBack removes the canary of a run that ends before its time, and the protection of a node
// that it watched.
func canaryBack() []Step {
	return []Step{
		{Name: InWatch, Does: "take the protection off the node that was watched", When: (*Run).mayShield, Look: (*Run).lookUnshield, Limit: returnLimit, Stubborn: true},
		{Name: InRetire, Does: "remove the canary and its Node object", When: (*Run).mayHaveCanary, Look: (*Run).lookRetire, Patient: true},
	}
}

// taken is the event on a donor's node: one tells of all that comes until it is given back.
const taken = "the node is drained to make an image of its disk, which is sealed then; the node is switched off, copied, and started again"

const (
	defaultLimit = 30 * time.Minute
	// returnLimit is how long a donor is brought back before a person is called.
	returnLimit = time.Hour
	// buildLimit is how long the build and replication of a version may take.
	buildLimit = 6 * time.Hour
	// proofLimit is how long a canary's node is waited for, whatever the boot budget.
	proofLimit = 3 * time.Hour
	// patchLimit is for the step, beyond the limit that the agent has for the package manager.
	patchLimit = 5 * time.Hour
	// unlimited steps count their time themselves. The limit is for a world that
	// never answers, in which they cannot.
	unlimited = 24 * time.Hour
)

// bootSight compares the boot that a donor's node shows with the one that its mark names.
type bootSight int

const (
	bootMarked   bootSight = iota // the same: what Kubernetes shows is from before the donor was touched
	bootFresh                     // another one, and another than when the machine was seen off
	bootOther                     // another one than the marked, or the mark is gone
	bootUnmarked                  // the mark names none, as where only the taint is left of it
	bootUnknown                   // neither mark nor node name one, as where Kubernetes forgot the node
)

// sight is what giving back sees of a donor that may have been sealed or switched off.
type sight struct {
	power   Power
	ready   bool // its node is Ready, and is that of this machine
	boot    bootSight
	started bool // it was seen off, or this run asked it to start: only the boot is missing
	sealed  bool // a receipt of the run, or a seal pod that ran: the disk may be sealed
}

// wayBack is what brings a donor back.
type wayBack int

const (
	backNow       wayBack = iota // nothing: it is back
	switchOn                     // start the machine
	awaitPower                   // wait until it is on or off
	awaitBoot                    // wait for the node to show another boot
	awaitReady                   // wait for the node to be Ready
	hearNode                     // back, once its kubelet is heard of: Ready may be of the past
	hearKubelet                  // never went, if its kubelet is heard of for longer than a seal leaves it
	switchOffSoon                // sealed and hanging: off after two minutes, for the next boot mends the disk
	switchOffLate                // the same after a silence that no boot lasts, where nobody knows what was sealed
)

// backRow is a row of the table; what it leaves out is any.
type backRow struct {
	power   []Power
	ready   []bool
	boot    []bootSight
	started []bool
	sealed  []bool
	what    wayBack
}

func is[T any](values ...T) []T { return values }

// waysBack is the table. Exactly one row fits every sight. A start is waited for and never undone,
// or a slow boot would be ended again and again.
var waysBack = []backRow{
	{power: is(PowerOff), what: switchOn},
	{power: is(PowerBetween), what: awaitPower},

	{power: is(PowerOn), ready: is(true), boot: is(bootFresh), what: backNow},
	{power: is(PowerOn), ready: is(true), boot: is(bootOther, bootUnmarked), what: hearNode},
	// What is shown is the old boot: has the machine just been started, did it never go off, or is
	// it still going?
	{power: is(PowerOn), ready: is(true), boot: is(bootMarked, bootUnknown), started: is(true), what: awaitBoot},
	{power: is(PowerOn), ready: is(true), boot: is(bootMarked, bootUnknown), started: is(false), sealed: is(false), what: hearKubelet},
	{power: is(PowerOn), ready: is(true), boot: is(bootMarked), started: is(false), sealed: is(true), what: switchOffSoon},
	{power: is(PowerOn), ready: is(true), boot: is(bootUnknown), started: is(false), sealed: is(true), what: switchOffLate},

	{power: is(PowerOn), ready: is(false), started: is(true), what: awaitReady},
	{power: is(PowerOn), ready: is(false), boot: is(bootFresh, bootOther), started: is(false), what: awaitReady},
	// It was not seen to boot, and may hang half sealed: then only its next boot mends the disk.
	{power: is(PowerOn), ready: is(false), boot: is(bootMarked), started: is(false), what: switchOffSoon},
	{power: is(PowerOn), ready: is(false), boot: is(bootUnmarked, bootUnknown), started: is(false), what: switchOffLate},
}

// decide finds the row that fits. It is a pure function.
func (s sight) decide() wayBack {
	for _, row := range waysBack {
		if row.fits(s) {
			return row.what
		}
	}
	return awaitReady // a test keeps it from coming here
}

func (row backRow) fits(s sight) bool {
	return anyOr(row.power, s.power) && anyOr(row.ready, s.ready) && anyOr(row.boot, s.boot) &&
		anyOr(row.started, s.started) && anyOr(row.sealed, s.sealed)
}

func anyOr[T comparable](list []T, v T) bool { return len(list) == 0 || slices.Contains(list, v) }
