package kamino

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

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

// VersionName is the name of the image version of a day, YYYY.MM.DD in UTC.
func VersionName(t time.Time) string { return t.UTC().Format("2006.01.02") }

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
	for i := range x {
		if x[i] != y[i] {
			if x[i] < y[i] {
				return -1
			}
			return 1
		}
	}
	return 0
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

// VersionDate is the day that a version name tells.
func VersionDate(name string) (time.Time, error) {
	v, ok := parseVersion(name)
	if !ok {
		return time.Time{}, fmt.Errorf("version %q is not YYYY.MM.DD", name)
	}
	d := time.Date(int(v[0]), time.Month(v[1]), int(v[2]), 0, 0, 0, 0, time.UTC)
	if VersionName(d) != fmt.Sprintf("%04d.%02d.%02d", v[0], v[1], v[2]) {
		return time.Time{}, fmt.Errorf("version %q is no day of the calendar", name)
	}
	return d, nil
}

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
)

// BuiltAtFormat is the layout of the tag BuiltAt.
const BuiltAtFormat = "2006-01-02 15:04:05.000000"
