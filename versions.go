package kamino

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

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

// NextVersion is the name of the next version of a day. The first is
// YYYY.MM.DD, the others are YYYY.MM.DDNN with NN from 01. Galleries compare the
// three numbers of a name, each of 32 bits
// (https://learn.microsoft.com/azure/virtual-machines/shared-image-galleries),
// so 2026.11.23 comes before 2026.11.2201. Therefore a month that has a name
// with NN goes on with such: the first of a later day is then YYYY.MM.DD00.
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

// VersionDate is the day that a version name tells.
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
		return time.Time{}, 0, fmt.Errorf("version %q is no day of the calendar", name)
	}
	return day, number, nil
}

// ofDay says whether a version is one of that day.
func (a Artifact) ofDay(day time.Time) bool {
	at, err := VersionDate(a.Name)
	return err == nil && VersionName(at) == VersionName(day)
}

// newestOfDay is the newest version of a day; nil when there is none.
func newestOfDay(newestFirst []Artifact, day time.Time) *Artifact {
	for i, v := range newestFirst {
		if v.ofDay(day) {
			return &newestFirst[i]
		}
	}
	return nil
}

// outnumbered is a version of an earlier day whose name counts as later, as when
// something that knows no NN made version 2026.11.24 after 2026.11.2301; nil
// when there is none. Such a version is never the latest, and is not deleted as
// an old one.
func (a Artifact) outnumbered(by []Artifact) *Artifact {
	day, err := VersionDate(a.Name)
	if err != nil {
		return nil
	}
	for i, v := range by {
		at, err := VersionDate(v.Name)
		if err == nil && at.Before(day) && CompareVersions(v.Name, a.Name) > 0 {
			return &by[i]
		}
	}
	return nil
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
