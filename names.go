package kamino

import "strings"

// Names that the original Kamino gave, kept so that its users find their
// galleries, definitions and versions again.

// GalleryName is the name of a cluster's gallery: "SIG_" and the resource group
// (or cluster) name with "-" as "_", since galleries allow no dash
// (https://learn.microsoft.com/azure/virtual-machines/shared-image-galleries).
func GalleryName(group string) string {
	return "SIG_" + strings.ReplaceAll(group, "-", "_")
}

// DefinitionName is the name of a pool's image definition:
// "kamino-<pool>-prototype", where the pool's own name ends in "-vmss" on
// clusters of aks-engine.
func DefinitionName(pool string) string { return "kamino-" + pool + "-prototype" }

// SnapshotName is the name of a pool's one snapshot.
func SnapshotName(pool string) string { return "snapshot_" + pool }

// Publisher is the publisher of every image definition that Kamino creates.
const Publisher = "VMSS-Prototype-Pattern"

// Tags that Kamino puts on what it makes. BuiltFrom and BuiltAt are those of
// the original. Tag names hold no "/" because Azure forbids it
// (https://learn.microsoft.com/azure/azure-resource-manager/management/tag-resources).
const (
	TagBuiltFrom = "BuiltFrom"      // donor's node name
	TagBuiltAt   = "BuiltAt"        // BuiltAtFormat, UTC
	TagRun       = "kamino-run"     // run ID
	TagEpoch     = "kamino-epoch"   // epoch of the lease when it was made
	TagReceipt   = "kamino-receipt" // hash of the seal receipt
	TagParent    = "kamino-parent"  // image the donor itself came from
	TagBad       = "kamino-bad"     // why the version was rolled back
	TagVM        = "kamino-vm"      // donor's VM; absent on what earlier kaminos made
)

// BuiltAtFormat is the layout of the tag BuiltAt.
const BuiltAtFormat = "2006-01-02 15:04:05.000000"
