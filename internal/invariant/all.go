package invariant

// Invariant is one promise, with the functions that check it.
type Invariant struct {
	ID   string
	Says string

	changed func(*Auditor, *State)
	before  func(*Auditor, *State, Call)
	after   func(a *Auditor, was, is *State, c Call)
	settled func(*Auditor, *State)
}

// All lists the invariants. Those without functions here are checked through a
// method of Auditor of their own, because they need more than a State.
var All = []Invariant{
	{ID: "I1", Says: "restitution: in the end every donor runs, whole and without our marks",
		settled: restitution},
	{ID: "I2", Says: "a donor that is away is blocked, and unblocked only once it is back",
		changed: awayIsBlocked, before: blockedUntilBack},
	{ID: "I3", Says: "what others set is never changed",
		before: foreignArtifact, after: foreignNode, settled: foreignKept},
	{ID: "I4", Says: "a snapshot is taken only of a disk that is sealed, off and emptied of pods",
		before: sealedAndOff},
	{ID: "I5", Says: "a version is made of a sealed and complete snapshot, and used only when replicated",
		before: readyImage},
	{ID: "I6", Says: "the model refers to an image that exists",
		changed: modelExists},
	{ID: "I7", Says: "no version goes that a model, an instance or the way back uses, nor the newest, nor the last but one",
		before: unusedVersion},
	{ID: "I8", Says: "the former model is saved before it is replaced, and never lost",
		before: savedModel, after: ledgerKept},
	{ID: "I9", Says: "epochs only grow; a process that lost the lease has one call in flight at most",
		before: fenced, after: epochGrows},
	{ID: "I10", Says: "a model is written conditionally, only what is ours of it, and never over another's choice",
		before: conditional},
	{ID: "I11", Says: "at most one donor per pool is away or blocked, and no more in the cluster than allowed",
		changed: oneDonor},
	{ID: "I12", Says: "pods leave by eviction from the blocked donor alone; those that stay are left",
		before: eviction, after: podsStay},
	{ID: "I13", Says: "what is about to be done stands on the lease, and on the node before its disk is touched",
		before: intended},
	{ID: "I14", Says: "at most one snapshot, one good version and one seal pod per run; a snapshot outlives what is built from it",
		changed: oneOfEach, before: sourceKept},
	{ID: "I15", Says: "a step is done only when the world shows it"}, // Auditor.Step
	{ID: "I16", Says: "in the end no snapshot, seal pod, failed version or lease is left",
		settled: nothingLeft},
	{ID: "I17", Says: "a new version is later than all there ever were, by number; the name of a good one is never used again",
		before: laterVersion},
	{ID: "I18", Says: "every run ends in time"},                    // Auditor.Ended
	{ID: "I19", Says: "where nothing is left, nothing is written"}, // Auditor.Idle
	{ID: "I20", Says: "nothing is called before its Retry-After",
		before: retryAfter},
	{ID: "I23", Says: "a VM that is not the donor is never acted upon, whatever its name",
		before: sameDonor},
	{ID: "I27", Says: "credentials go to Azure alone"}, // Auditor.Request
	{ID: "I28", Says: "a pool that is refused is not touched",
		before: refusedUntouched},
	{ID: "I29", Says: "in the end no canary is left, nor the node of one",
		settled: noCanary},
	{ID: "I30", Says: "no image whose canary was bad, or that is left to a person, becomes what a pool boots from; a run promotes one version at most",
		changed: oneSound},
	{ID: "I31", Says: "no donor is off in service where its pool replaces such a node; in the end all are in service, as their nodes were Ready before",
		changed: heldWhileOff, before: readyBeforeService, settled: nothingHeld},
	{ID: "I32", Says: "a node is patched only as it says itself, and stays blocked until it was seen to be in order",
		before: patchAsked, settled: patchedKept},
	{ID: "I33", Says: "no local volume is ever destroyed: a machine that has one is neither sealed nor switched off",
		changed: localKept, before: localUnsealed},
}

// Find tells what an invariant says.
func Find(id string) (Invariant, bool) {
	for _, i := range All {
		if i.ID == id {
			return i, true
		}
	}
	return Invariant{}, false
}
