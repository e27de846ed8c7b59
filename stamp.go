package kamino

import (
	"fmt"
	"regexp"
	"strings"
	"time"
)

// Stamp is a point in time that may be known only to the day.
type Stamp struct {
	time.Time
	Exact bool
}

// StartOfDay returns midnight before the stamp, in UTC.
func (s Stamp) StartOfDay() time.Time { return s.UTC().Truncate(24 * time.Hour) }

// Later compares two stamps: as times if both are times, else as days.
func (s Stamp) Later(t Stamp) bool {
	if s.Exact && t.Exact {
		return s.Time.After(t.Time)
	}
	return s.StartOfDay().After(t.StartOfDay())
}

// clockSkew is how far a node's clock may be ahead of ours.
const clockSkew = 5 * time.Minute

// farthestEast is the offset of the time zone in which a day begins first, UTC+14
// (https://data.iana.org/time-zones/tzdb/australasia, Pacific/Kiritimati).
const farthestEast = 14 * time.Hour

// Future reports whether the time is still to come, allowing for clocks and time zones.
func (s Stamp) Future(now time.Time) bool {
	if s.Exact {
		return s.Time.After(now.Add(clockSkew))
	}
	return s.StartOfDay().After(now.Add(farthestEast))
}

func (s Stamp) String() string {
	if s.Exact {
		return s.UTC().Format(time.RFC3339)
	}
	return s.UTC().Format(time.DateOnly)
}

var (
	timeInText = regexp.MustCompile(`[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt][0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]+)?([Zz]|[+-][0-9]{2}:[0-9]{2})`)
	dayInText  = regexp.MustCompile(`(^|[^0-9])([0-9]{4}-[0-9]{2}-[0-9]{2})([^0-9]|$)`)
)

// ParseStamp finds the first time (RFC 3339) or else the first date
// (YYYY-MM-DD) anywhere in a text.
func ParseStamp(text string) (Stamp, error) {
	// Most values are only a time, and thousands of nodes have one.
	if t, err := time.Parse(time.RFC3339, text); err == nil {
		return Stamp{t.UTC(), true}, nil
	}
	if t, err := time.Parse(PatchedFormat, text); err == nil {
		return Stamp{t.UTC(), true}, nil
	}
	for _, m := range timeInText.FindAllString(text, -1) {
		if t, err := time.Parse(time.RFC3339, strings.ToUpper(m)); err == nil {
			return Stamp{t.UTC(), true}, nil
		}
	}
	for _, m := range dayInText.FindAllStringSubmatch(text, -1) {
		if t, err := time.Parse(time.DateOnly, m[2]); err == nil {
			return Stamp{t, false}, nil
		}
	}
	return Stamp{}, fmt.Errorf("%q holds no date (RFC 3339 or YYYY-MM-DD)", text)
}
