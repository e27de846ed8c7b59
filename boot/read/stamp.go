package read

import (
	"fmt"
	"strconv"
	"strings"
	"sync"
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

// months are the names that glibc shortens the months to, in languages in which logs are often seen:
// journalctl writes its short form in the language of whoever calls it.
var months = [12]string{
	"jan janv jän ene gen sty янв led oca 1月 1월", "feb févr fev lut фев úno şub 2月 2월", "mar mars märz mär mrz mrt мар bře 3月 3월",
	"apr april avr avril abr kwi апр dub nis 4月 4월", "may mai maj mag mei мая май kvě 5月 5월", "jun juni juin giu cze июн čen haz 6月 6월",
	"jul juli juil lug lip июл čec tem 7月 7월", "aug août ago sie авг srp ağu 8月 8월", "sep sept set wrz сен zář eyl 9月 9월",
	"oct okt ott out paź окт říj eki 10月 10월", "nov lis ноя kas 11月 11월", "dec dez des déc dic gru дек pro ara 12月 12월",
}

var monthsByName = sync.OnceValue(func() map[string]int {
	all := map[string]int{}
	for i, names := range months {
		for _, name := range strings.Fields(names) {
			all[name] = i + 1
		}
	}
	return all
})

// monthOf is the number of a month that is called so, by its first letters in any case.
func monthOf(name string) (int, error) {
	if n := monthsByName()[strings.ToLower(name)]; n > 0 {
		return n, nil
	}
	return 0, fmt.Errorf("no month is called %q", name)
}

// credibleTime says whether a wall clock is one that a machine with systemd can have had.
func credibleTime(t time.Time) bool { return t.Year() >= 1970 && t.Year() < 2200 }

// spanUnits are the units of systemd's lengths of time, in microseconds (systemd.time(7)).
var spanUnits = map[string]float64{
	"y": 31557600e6, "month": 2629800e6, "w": 604800e6, "d": 86400e6, "h": 3600e6, "min": 60e6, "s": 1e6, "ms": 1e3,
	"us": 1, "µs": 1, "μs": 1,
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
