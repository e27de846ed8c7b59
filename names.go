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

// Names that the original script gave, kept so that its users find their galleries, definitions and
// versions again.

// GalleryName is the name of a cluster's gallery: "SIG_" and the resource group (or cluster) name
// with "-" as "_". Galleries allow letters, digits, "_" and ".", at most 80 characters
// (https://learn.microsoft.com/azure/virtual-machines/shared-image-galleries), and their names are
// unique in a subscription. So a name that is cut, or that another group could have too (groups a-b
// and a_b), ends in a hash. A group that has a gallery of the former name keeps it.
func GalleryName(group string) string {
	plain := plainGallery(group)
	if len(plain) <= maxGallery && galleryChars(plain) == plain && !strings.Contains(group, "_") {
		return plain
	}
	return cutName(galleryChars(plain), group, maxGallery)
}

// FormerGalleryName is the name that the original script gave, if it differs from GalleryName; ""
// if it does not, or if no gallery can have it.
func FormerGalleryName(group string) string {
	plain := plainGallery(group)
	if plain == GalleryName(group) || len(plain) > maxGallery || galleryChars(plain) != plain {
		return ""
	}
	return plain
}

func plainGallery(group string) string { return "SIG_" + strings.ReplaceAll(group, "-", "_") }

// galleryChars replaces the characters that a gallery's name may not have.
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

// cutName makes a unique name: it ends in a hash of what it stands for, ignoring case.
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

// CanaryName is the name of a run's canary, and the prefix of its node's name. It has 15
// characters, the most that Azure documents for a prefix of computer names
// (virtualMachineProfile.osProfile.computerNamePrefix in armcompute). All have the same length, so
// none is the prefix of another.
func CanaryName(pool PoolID, run string) string {
	sum := sha256.Sum256([]byte(strings.ToLower(string(pool)) + "\n" + run))
	return "kamino-" + hex.EncodeToString(sum[:4])
}

// Publisher is the publisher of every image definition that Kamino creates.
const Publisher = "VMSS-Prototype-Pattern"

// BuiltAtFormat is the layout of the tag BuiltAt.
const BuiltAtFormat = "2006-01-02 15:04:05.000000"

// VersionName is the name of the first image version of a day, YYYY.MM.DD in UTC, in a month
// without a second version on any day; see NextVersion.
func VersionName(t time.Time) string { return t.UTC().Format(versionDay) }

const (
	versionDay = "2006.01.02"
	// lastDay is the highest third number of a name that is a day. A higher number is a day and two
	// more digits: 2201 is the 22nd, 01.
	lastDay = 31
	perDay  = 100
)

// errNamesOver: all names of a day are used.
var errNamesOver = errors.New("no version name is left for this day")

// NextVersion is the name of the next version of a day. The first is YYYY.MM.DD, the others are
// YYYY.MM.DDNN with NN from 01. Galleries compare the three numbers of a name, each of 32 bits
// (https://learn.microsoft.com/azure/virtual-machines/shared-image-galleries), so 2026.11.23 comes
// before 2026.11.2201. Therefore a month that has a name with NN continues with such names: the
// first of a later day is then YYYY.MM.DD00.
func NextVersion(existing []Version, day time.Time) (string, error) {
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

// parseVersionDay splits a name into its day and its NN, -1 for none.
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

// CompareVersions compares two version names number by number, not as text: 2024.9.30 comes before
// 2024.10.1. A name that is not a version comes before all versions; two such names compare as
// text.
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

// parseVersion reads Major.Minor.Patch, each a 32-bit number as galleries require.
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
