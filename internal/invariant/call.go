package invariant

import "time"

// Verb is what a mutating call does.
type Verb string

// The verbs. Read stands for every call that changes nothing; only its rate is
// looked at.
const (
	Read             Verb = "read"
	PowerOn          Verb = "power on"
	PowerOff         Verb = "power off"
	CreateGallery    Verb = "create gallery"
	CreateDefinition Verb = "create definition"
	CreateSnapshot   Verb = "create snapshot"
	CreateVersion    Verb = "create version"
	DeleteArtifact   Verb = "delete artifact"
	MarkVersion      Verb = "mark version" // tags and exclusion from latest
	SetModel         Verb = "set model"
	SetCapacity      Verb = "set capacity"
	Mark             Verb = "mark"   // our marks on a node
	Unmark           Verb = "unmark" // off
	Survey           Verb = "survey" // create the pod of the inventory
	Seal             Verb = "seal"   // create the seal pod
	Unseal           Verb = "unseal"
	Evict            Verb = "evict"
	DeletePod        Verb = "delete pod" // past the budgets
	SetLease         Verb = "set lease"
	LaunchCanary     Verb = "launch canary"
	RemoveCanary     Verb = "remove canary"
	AdmitCanary      Verb = "admit canary" // cordon its node and take its taint off
	RemoveNode       Verb = "remove node"  // the object of a canary's node
	Hold             Verb = "hold"         // out of service
	Release          Verb = "release"      // back in service
	CheckNode        Verb = "check"        // create the pod that says whether packages can be upgraded
	Patch            Verb = "patch"        // create the pod that upgrades packages
	Restart          Verb = "restart"      // the one that restarts the machine
	LookAt           Verb = "look at"      // the one that looks at it afterwards
	Sign             Verb = "sign"         // write that it was patched
	KeepBlocked      Verb = "keep blocked" // write that it did not come back in order
)

// Call is a call that a process makes. Fields that do not belong to its verb
// are empty.
type Call struct {
	Process string // as it stands on leases
	Verb    Verb
	Pool    string
	Node    string   // Mark, Unmark, Survey, Seal, Unseal, Evict, DeletePod
	Pod     string   // Evict, DeletePod: namespace/name
	Run     string   // Survey, Seal, Unseal
	Machine string   // PowerOn, PowerOff, Hold, Release: ID
	SeenVM  string   // of the same: the VM that the process last read there; "" skips the check
	Made    Artifact // CreateSnapshot, CreateVersion, as asked for
	Target  string   // DeleteArtifact: ID; SetModel: image
	Kind    Kind     // DeleteArtifact
	// Raced: what the process had read was right, and somebody changed it before
	// this call arrived. With the verbs of patches that is all. No service takes a condition with CreateSnapshot, so such
	// a snapshot may be made, but nothing may be made of it. With SetModel: the
	// cloud takes no condition, and the call before this one was the read.
	Raced bool
	// Revision is the condition that SetModel and SetCapacity carry, "" none.
	Revision  string
	Fields    []string // SetModel: what of the pool's document it writes
	Instances int      // SetCapacity
	Lease     Lease    // SetLease, as it will stand
	Force     bool     // the user asked for force
	// Checked is how long ago the references to a version that is to be deleted
	// were read.
	Checked   time.Duration
	Held      string // Patch: what of packages on hold is asked for
	KeepsMark bool   // Unmark: something else of ours comes off
	// Bucket names what is throttled together; "" is never throttled.
	Bucket string
}

// givesBack tells the calls that are harmless whoever makes them.
func (c Call) givesBack() bool {
	return c.Verb == PowerOn || c.Verb == Unmark || c.Verb == Unseal || c.Verb == Release
}

// intents are the acts one of which must stand on the lease before a call.
var intents = map[Verb][]string{
	PowerOff:         {"power-off"},
	PowerOn:          {"power-on"},
	CreateGallery:    {"create-gallery"},
	CreateDefinition: {"create-definition"},
	CreateSnapshot:   {"create-snapshot"},
	CreateVersion:    {"create-version"},
	DeleteArtifact:   nil, // of the kind
	MarkVersion:      {"mark-version"},
	SetModel:         {"write-model"},
	SetCapacity:      {"scale-out"},
	Mark:             {"protect-node", "block-node", "announce-seal", "announce-hold", "announce-patch", "announce-restart"},
	Unmark:           {"unmark-node"},
	Survey:           {"survey-disk"},
	Seal:             {"seal-disk"},
	Unseal:           {"delete-seal-pod"},
	Evict:            {"evict-pods"},
	DeletePod:        {"evict-pods"},
	LaunchCanary:     {"launch-canary"},
	RemoveCanary:     {"remove-canary"},
	AdmitCanary:      {"admit-canary"},
	RemoveNode:       {"remove-node"},
	Hold:             {"hold-node"},
	Release:          {"release-node"},
	Patch:            {"patch-node"},
	Restart:          {"restart-node"},
	CheckNode:        {"check-node"},
	LookAt:           {"look-at-node"},
	Sign:             {"sign-node"},
	KeepBlocked:      {"keep-blocked"},
}
