package kamino

// Code is the reason of a verdict or of a refusal, for programs. Codes are stable.
type Code string

// The codes of verdicts about a pool that more than one place knows.
const (
	CodeUnfinished   Code = "unfinished" // a run has not ended
	CodeModel        Code = "model"      // the model does not refer to the newest good version
	CodeUnproved     Code = "unproved"
	CodeWaiting      Code = "waiting" // a version passed its proof
	CodePatches      Code = "patches" // nodes were patched after the image
	CodeAge          Code = "age"     // the image is too old
	CodePromote      Code = "promote" // a person has to promote a version
	CodeImageOnly    Code = "image-only"
	CodeForeignModel Code = "foreign-model" // somebody else may have set the image
	CodeNoReceipt    Code = "no-receipt"    // a version has no seal receipt
	CodeFuture       Code = "future"        // a version was made by a run whose clock was ahead
	CodeToday        Code = "today"         // an image version of today exists already
	CodeTooFew       Code = "too-few-candidates"
	CodePinned       Code = "pinned" // somebody else chose the image
	CodeRefused      Code = "refused"
	CodeError        Code = "error" // the pool could not be read
	CodePaused       Code = "paused"
	// CodeNoImage: the pool has no version yet; of a refusal, the image that the pool's next instance
	// boots from does not exist.
	CodeNoImage Code = "no-image"
)

// The codes of nodes, in verdicts and refusals, that more than one place knows.
const (
	CodeNoPatch     Code = "no-patch"  // none of the signals of a patch
	CodeBadImage    Code = "bad-image" // a withdrawn version was made of the node
	CodePatchFailed Code = "patch-failed"
	CodePatch       Code = "patch" // the packages of the node could not be upgraded
	CodeMachine     Code = "machine"
	CodeHeld        Code = "held"
	CodeDonor       Code = "donor"
	CodeSpot        Code = "spot" // the provider may take the machine away at any time
	CodeOS          Code = "os"
	// CodeLocalVolume: the machine stores the data of a PersistentVolume. A drain keeps that data, a
	// stop destroys it. No option lifts the refusal.
	CodeLocalVolume Code = "local-volume"
	CodeReturns     Code = "returning-pods" // pods would come back after an eviction
	CodeSealPod     Code = "seal-pod"       // the image of the seal pod is unknown, or not admitted on any node
	CodeNoCanary    Code = "no-canary"      // the version cannot be proved by a canary
)

// The codes of refusals that concern only taking donors or promoting. A withdrawal or a rollback
// ignores them, and CodeNoImage: a pool must be able to return to a former image, most of all while
// a bad one is rolled out.
const (
	CodeShared    Code = "shared" // the pool's next image is also that of another pool
	CodeRefresh   Code = "refresh"
	CodeSuspended Code = "suspended"
	CodeWarmPool  Code = "warm-pool"
	CodeRepairs   Code = "automatic-repairs"
)

var notOfGoingBack = []Code{CodeShared, CodeRefresh, CodeSuspended, CodeWarmPool, CodeRepairs, CodeNoImage}

// The codes of refusals that both clouds know.
const (
	CodeOwner     Code = "owner" // somebody else manages the pool
	CodeOwned     Code = "owned" // somebody else writes the model
	CodeEphemeral Code = "ephemeral"
	CodeFit       Code = "fit" // the donor does not fit the model or the definition
)
