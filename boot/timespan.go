package boot

import (
	"fmt"
	"strconv"
)

type spanUnit struct {
	suffix string
	usec   uint64
	digits int // decimals that remain when the fraction is cut to milliseconds
}

var spanUnits = []spanUnit{
	{"y", 31557600000000, 0},
	{"month", 2629800000000, 0},
	{"w", 604800000000, 0},
	{"d", 86400000000, 0},
	{"h", 3600000000, 0},
	{"min", 60000000, 0},
	{"s", 1000000, 3},
	{"ms", 1000, 0},
	{"us", 1, 0},
}

// timespan formats t microseconds as systemd's format_timespan does with an accuracy of one
// millisecond (src/basic/time-util.c): below a minute three truncated decimals, above it split into
// units, and below a millisecond the microseconds, because something has to be shown. It works on
// unsigned numbers because compat output must show systemd's underflows.
func timespan(t uint64) string {
	if t == 1<<64-1 {
		return "infinity"
	}
	if t == 0 {
		return "0"
	}
	var out []byte
	for _, u := range spanUnits {
		if t == 0 || (t < 1000 && len(out) > 0) {
			break
		}
		if t < u.usec {
			continue
		}
		if len(out) > 0 {
			out = append(out, ' ')
		}
		a, b := t/u.usec, t%u.usec
		out = strconv.AppendUint(out, a, 10)
		if t < 60000000 && b > 0 && u.digits > 0 {
			out = fmt.Appendf(out, ".%03d", b/1000)
			b = 0
		}
		out = append(out, u.suffix...)
		t = b
	}
	return string(out)
}
