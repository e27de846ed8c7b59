package kamino

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"unicode"
)

// Names that the original Kamino gave, kept so that its users find their
// galleries, definitions and versions again.

// GalleryName is the name of a cluster's gallery: "SIG_" and the resource group
// (or cluster) name with "-" as "_", since galleries allow letters, digits, "_"
// and "." only, at most 80 of them
// (https://learn.microsoft.com/azure/virtual-machines/shared-image-galleries).
// Names of galleries are unique in a subscription: of groups a-b and a_b the
// second has its name made longer by a hash, as has one that is cut or holds
// other characters. Where the group has a gallery of the former name, that one is
// gone on with.
func GalleryName(group string) string {
	plain := plainGallery(group)
	if len(plain) <= maxGallery && galleryChars(plain) == plain && !strings.Contains(group, "_") {
		return plain
	}
	return cutName(galleryChars(plain), group, maxGallery)
}

// FormerGalleryName is the name that earlier kaminos and the original gave, where
// GalleryName gives another; "" where it does not, or where no gallery can have it.
func FormerGalleryName(group string) string {
	plain := plainGallery(group)
	if plain == GalleryName(group) || len(plain) > maxGallery || galleryChars(plain) != plain {
		return ""
	}
	return plain
}

func plainGallery(group string) string { return "SIG_" + strings.ReplaceAll(group, "-", "_") }

// galleryChars replaces what no name of a gallery may hold.
func galleryChars(s string) string {
	return strings.Map(func(r rune) rune {
		if r < unicode.MaxASCII && (unicode.IsLetter(r) || unicode.IsDigit(r) || r == '.') {
			return r
		}
		return '_'
	}, s)
}

// Limits of Azure's names, in characters.
const (
	maxGallery    = 80
	maxDefinition = 80
	maxOffer      = 64
)

// cutName makes a name that nothing else has: it ends in a hash of what it
// stands for, which counts without case.
func cutName(name, of string, most int) string {
	sum := sha256.Sum256([]byte(strings.ToLower(of)))
	tail := "_" + hex.EncodeToString(sum[:5])
	return name[:min(len(name), most-len(tail))] + tail
}

// DefinitionName is the name of a pool's image definition:
// "kamino-<pool>-prototype", where the pool's own name ends in "-vmss" on
// clusters of aks-engine.
func DefinitionName(pool string) string {
	name := "kamino-" + pool + "-prototype"
	if len(name) > maxDefinition {
		return cutName(name, pool, maxDefinition)
	}
	return name
}

// OfferName is the offer of the image definitions of a resource group.
func OfferName(group string) string {
	if len(group) > maxOffer {
		return cutName(group, group, maxOffer)
	}
	return group
}

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
	TagPolicy    = "kamino-policy"  // SHA-256 of the seal policy
	// Files on the image that nothing explains: how many, whether such were
	// refused or reported, and a digest over their names and contents.
	TagUnknown       = "kamino-unknown"
	TagUnknownMode   = "kamino-unknown-mode"
	TagUnknownDigest = "kamino-unknown-digest"
)

// BuiltAtFormat is the layout of the tag BuiltAt.
const BuiltAtFormat = "2006-01-02 15:04:05.000000"
