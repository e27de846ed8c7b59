package kamino

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
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
// used.
func GalleryName(group string) string {
	plain := plainGallery(group)
	if len(plain) <= maxGallery && galleryChars(plain) == plain && !strings.Contains(group, "_") {
		return plain
	}
	return cutName(galleryChars(plain), group, maxGallery)
}

// FormerGalleryName is the name that the original gave, where
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

// CanaryName is the name of a run's canary, and what the name of its node begins with. It has 15
// characters, the most that Azure documents for a prefix of computer names
// (virtualMachineProfile.osProfile.computerNamePrefix in armcompute), and never is another's
// beginning: all have the same length.
func CanaryName(pool PoolID, run string) string {
	sum := sha256.Sum256([]byte(strings.ToLower(string(pool)) + "\n" + run))
	return "kamino-" + hex.EncodeToString(sum[:4])
}

// Publisher is the publisher of every image definition that Kamino creates.
const Publisher = "VMSS-Prototype-Pattern"

// Tags that Kamino puts on what it makes. BuiltFrom and BuiltAt are those of
// the original. Tag names hold no "/" because Azure forbids it
// (https://learn.microsoft.com/azure/azure-resource-manager/management/tag-resources).
const (
	TagBuiltFrom = "BuiltFrom"        // donor's node name
	TagBuiltAt   = "BuiltAt"          // BuiltAtFormat, UTC
	TagRun       = "kamino-run"       // run ID
	TagEpoch     = "kamino-epoch"     // epoch of the lease when it was made
	TagReceipt   = "kamino-receipt"   // hash of the seal receipt
	TagParent    = "kamino-parent"    // image the donor itself came from
	TagBad       = "kamino-bad"       // why the version was withdrawn
	TagOffer     = "kamino-offer"     // hidden, proving, offered or withdrawn
	TagProof     = "kamino-proof"     // how its proof ended; see proofWanted
	TagPromote   = "kamino-promote"   // PromoteManual: while it is hidden, only a person promotes it
	TagBootstrap = "kamino-bootstrap" // bootstrapUnaccepted: hidden until somebody accepts what its instances would run
	TagPointer   = "kamino-pointer"   // of an image definition: pointerUnreliable
	TagVM        = "kamino-vm"        // donor's VM; absent on what the original made
	TagPolicy    = "kamino-policy"    // SHA-256 of the seal policy
	// Files on the image that nothing explains: how many, whether such were
	// refused or reported, and a digest over their names and contents.
	TagUnknown       = "kamino-unknown"
	TagUnknownMode   = "kamino-unknown-mode"
	TagUnknownDigest = "kamino-unknown-digest"
	TagPackages      = "kamino-packages" // SHA-256 of the packages on the disk, as Freshness.PackageDigest
	// What else a node of the image begins with; see Freshness and Software.
	TagPackageCount = "kamino-package-count"
	TagPatched      = "kamino-patched" // RFC 3339
	TagKernel       = "kamino-kernel"
	TagOS           = "kamino-os"
	TagKubelet      = "kamino-kubelet"
	TagRuntime      = "kamino-runtime"
	TagImages       = "kamino-images" // container images in the cache of the donor, those its kubelet lists
	TagImageBytes   = "kamino-image-bytes"
	TagSSHKeys      = "kamino-ssh-keys" // of the donor, as Receipt.SSHKeys, with spaces between
	// A canary's, of which the agent reads those of its own instance.
	TagCanary  = "kamino-canary"  // name of the image version that it is to prove
	TagPool    = "kamino-pool"    // name of the pool that it is of
	TagPoolUID = "kamino-pool-id" // Pool.UID of the pool that a snapshot or a version was made of
	TagExpires = "kamino-expires" // RFC 3339: when anybody may remove it
	TagNonce   = "kamino-nonce"   // what the agent's report repeats
)

// BuiltAtFormat is the layout of the tag BuiltAt.
const BuiltAtFormat = "2006-01-02 15:04:05.000000"

// VersionName is the name of the first image version of a day, YYYY.MM.DD in
// UTC, in a month that has no second one of any day; see NextVersion.
func VersionName(t time.Time) string { return t.UTC().Format(versionDay) }

const (
	versionDay = "2006.01.02"
	// lastDay is the highest third number of a name that is a day. Higher ones
	// are a day and two digits more: 2201 is the 22nd, 01.
	lastDay = 31
	perDay  = 100
)

// errNamesOver: a day has used up its names.
var errNamesOver = errors.New("no version name is left for this day")

// NextVersion is the name of the next version of a day. The first is YYYY.MM.DD,
// the others are YYYY.MM.DDNN with NN from 01. Galleries compare the three
// numbers of a name, each of 32 bits
// (https://learn.microsoft.com/azure/virtual-machines/shared-image-galleries),
// so 2026.11.23 comes before 2026.11.2201. Therefore a month that has a name
// with NN continues with such names: the first of a later day is then
// YYYY.MM.DD00.
func NextVersion(existing []Artifact, day time.Time) (string, error) {
	day = day.UTC()
	long, next := false, 0
	for _, v := range existing {
		at, number, err := parseVersionDay(v.Name)
		if err != nil || at.Year() != day.Year() || at.Month() != day.Month() {
			continue
		}
		long = long || number >= 0
		if at.Day() == day.Day() {
			next = max(next, number+1, 1)
		}
	}
	switch {
	case next >= perDay:
		return "", fmt.Errorf("%s: %w", VersionName(day), errNamesOver)
	case next == 0 && !long:
		return VersionName(day), nil
	}
	return fmt.Sprintf("%s%02d", VersionName(day), next), nil
}

// VersionDate is the day in a version's name.
func VersionDate(name string) (time.Time, error) {
	day, _, err := parseVersionDay(name)
	return day, err
}

// parseVersionDay takes a name apart: its day, and the NN after it, -1 for none.
func parseVersionDay(name string) (day time.Time, number int, err error) {
	v, ok := parseVersion(name)
	if !ok {
		return time.Time{}, 0, fmt.Errorf("version %q is not YYYY.MM.DD", name)
	}
	d, number := int(v[2]), -1
	if d > lastDay {
		d, number = d/perDay, d%perDay
	}
	day = time.Date(int(v[0]), time.Month(v[1]), d, 0, 0, 0, 0, time.UTC)
	if VersionName(day) != fmt.Sprintf("%04d.%02d.%02d", v[0], v[1], d) {
		return time.Time{}, 0, fmt.Errorf("version %q is not a valid date", name)
	}
	return day, number, nil
}

// OfDay says whether a version is one of that day.
func (a Artifact) OfDay(day time.Time) bool {
	at, err := VersionDate(a.Name)
	return err == nil && VersionName(at) == VersionName(day)
}

// NewestOfDay is the newest version of a day; nil when there is none.
func NewestOfDay(newestFirst []Artifact, day time.Time) *Artifact {
	return First(newestFirst, func(v Artifact) bool { return v.OfDay(day) })
}

// Outnumbered is a version of an earlier day whose name counts as later, as when
// something that knows no NN made version 2026.11.24 after 2026.11.2301; nil
// when there is none. Such a version is never the latest, and is not deleted as
// an old one.
func (a Artifact) Outnumbered(by []Artifact) *Artifact {
	day, err := VersionDate(a.Name)
	if err != nil {
		return nil
	}
	return First(by, func(v Artifact) bool {
		at, err := VersionDate(v.Name)
		return err == nil && at.Before(day) && CompareVersions(v.Name, a.Name) > 0
	})
}

// CompareVersions compares two version names number by number, never as text:
// 2024.9.30 comes before 2024.10.1. A name that is no version comes before all
// that are; two such names compare as text.
func CompareVersions(a, b string) int {
	x, okA := parseVersion(a)
	y, okB := parseVersion(b)
	switch {
	case !okA && !okB:
		return strings.Compare(a, b)
	case !okA:
		return -1
	case !okB:
		return 1
	}
	return slices.Compare(x[:], y[:])
}

// parseVersion reads Major.Minor.Patch, each a 32-bit number as galleries
// demand.
func parseVersion(s string) (v [3]uint64, ok bool) {
	parts := strings.Split(s, ".")
	if len(parts) != 3 {
		return v, false
	}
	for i, p := range parts {
		n, err := strconv.ParseUint(p, 10, 31)
		if err != nil {
			return v, false
		}
		v[i] = n
	}
	return v, true
}

// LastSegment is the name at the end of an ID with slashes.
func LastSegment(id string) string { return LastSegments(id, 1) }

// LastSegments keeps the last n segments of an ID with slashes.
func LastSegments(id string, n int) string {
	parts := strings.Split(id, "/")
	return strings.Join(parts[max(0, len(parts)-n):], "/")
}
