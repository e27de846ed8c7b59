package kamino

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
)
