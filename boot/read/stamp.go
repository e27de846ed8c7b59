package read

import (
	"strconv"
	"strings"
	"time"

	"kamino.dev/kamino/boot"
)

// nearYear gives a stamp without a year the year that brings it nearest to a known moment: a log goes
// on over New Year.
func nearYear(t, known time.Time) time.Time {
	var best time.Time
	for year := known.Year() - 1; year <= known.Year()+1; year++ {
		c := time.Date(year, t.Month(), t.Day(), t.Hour(), t.Minute(), t.Second(), t.Nanosecond(), time.UTC)
		if best.IsZero() || c.Sub(known).Abs() < best.Sub(known).Abs() {
			best = c
		}
	}
	return best
}

// credibleTime says whether a wall clock is one that a machine with systemd can have had.
func credibleTime(t time.Time) bool { return t.Year() >= 1970 && t.Year() < 2200 }

// spanUnits are the units of systemd's lengths of time, in microseconds (systemd.time(7)).
var spanUnits = map[string]float64{
	"y": 31557600e6, "month": 2629800e6, "w": 604800e6, "d": 86400e6, "h": 3600e6, "min": 60e6, "s": 1e6, "ms": 1e3, "us": 1, "µs": 1, "μs": 1,
}

// parseSpan reads a length as systemd prints it: "16min 40.410s", "270ms", "0".
func parseSpan(s string) (boot.Micros, bool) {
	parts := strings.Fields(s)
	if len(parts) == 1 && parts[0] == "0" {
		return 0, true
	}
	var sum float64
	for _, part := range parts {
		digits := strings.IndexFunc(part, func(r rune) bool { return r != '.' && (r < '0' || r > '9') })
		if digits <= 0 {
			return 0, false
		}
		unit, ok := spanUnits[part[digits:]]
		n, err := strconv.ParseFloat(part[:digits], 64)
		if !ok || err != nil {
			return 0, false
		}
		sum += n * unit
	}
	if len(parts) == 0 || sum > float64(boot.MaxStamp) {
		return 0, false
	}
	return boot.Micros(sum + 0.5), true
}
