package controller

import (
	"testing"
	"time"

	"kamino.dev/kamino/api/v1alpha1"
)

// TestWindow: when windows open and close, over midnight, by days, and on the days on which clocks
// are changed. In Berlin 02:00 becomes 03:00 on 2026-03-29, and 03:00 becomes 02:00 on 2026-10-25;
// in Santiago midnight becomes 01:00 on 2026-09-06.
func TestWindow(t *testing.T) {
	for name, tt := range map[string]struct {
		start, end, zone string
		days             []v1alpha1.Day
		now, from, to    string
		open             bool
	}{
		"before":                    {"02:00", "04:00", "UTC", nil, "2026-11-22T01:00:00Z", "2026-11-22T02:00:00Z", "2026-11-22T04:00:00Z", false},
		"at its start":              {"02:00", "04:00", "UTC", nil, "2026-11-22T02:00:00Z", "2026-11-22T02:00:00Z", "2026-11-22T04:00:00Z", true},
		"at its end":                {"02:00", "04:00", "UTC", nil, "2026-11-22T04:00:00Z", "2026-11-23T02:00:00Z", "2026-11-23T04:00:00Z", false},
		"over midnight, before it":  {"22:00", "02:00", "UTC", nil, "2026-11-22T23:00:00Z", "2026-11-22T22:00:00Z", "2026-11-23T02:00:00Z", true},
		"over midnight, after it":   {"22:00", "02:00", "UTC", nil, "2026-11-23T01:59:59Z", "2026-11-22T22:00:00Z", "2026-11-23T02:00:00Z", true},
		"its day began it":          {"22:00", "02:00", "UTC", []v1alpha1.Day{"Sat"}, "2026-11-22T01:00:00Z", "2026-11-21T22:00:00Z", "2026-11-22T02:00:00Z", true},
		"not its day":               {"22:00", "02:00", "UTC", []v1alpha1.Day{"Sat"}, "2026-11-22T23:00:00Z", "2026-11-28T22:00:00Z", "2026-11-29T02:00:00Z", false},
		"the zone's day":            {"00:30", "02:00", "Pacific/Auckland", []v1alpha1.Day{"Mon"}, "2026-11-22T12:00:00Z", "2026-11-22T11:30:00Z", "2026-11-22T13:00:00Z", true},
		"winter":                    {"02:00", "04:00", "Europe/Berlin", nil, "2026-01-01T00:00:00Z", "2026-01-01T01:00:00Z", "2026-01-01T03:00:00Z", false},
		"summer":                    {"02:00", "04:00", "Europe/Berlin", nil, "2026-07-01T00:00:00Z", "2026-07-01T00:00:00Z", "2026-07-01T02:00:00Z", true},
		"spring, start skipped":     {"02:30", "04:00", "Europe/Berlin", nil, "2026-03-29T00:30:00Z", "2026-03-29T01:00:00Z", "2026-03-29T02:00:00Z", false},
		"spring, end skipped":       {"01:00", "02:30", "Europe/Berlin", nil, "2026-03-29T00:30:00Z", "2026-03-29T00:00:00Z", "2026-03-29T01:00:00Z", true},
		"spring, all skipped":       {"02:15", "02:45", "Europe/Berlin", nil, "2026-03-29T00:30:00Z", "2026-03-30T00:15:00Z", "2026-03-30T00:45:00Z", false},
		"autumn, start shown twice": {"02:30", "04:00", "Europe/Berlin", nil, "2026-10-25T00:40:00Z", "2026-10-25T00:30:00Z", "2026-10-25T03:00:00Z", true},
		"autumn, end shown twice":   {"01:00", "02:30", "Europe/Berlin", nil, "2026-10-25T00:40:00Z", "2026-10-26T00:00:00Z", "2026-10-26T01:30:00Z", false},
		"autumn, open once":         {"02:15", "02:45", "Europe/Berlin", nil, "2026-10-25T01:20:00Z", "2026-10-26T01:15:00Z", "2026-10-26T01:45:00Z", false},
		"midnight skipped":          {"00:00", "03:00", "America/Santiago", nil, "2026-09-06T03:59:59Z", "2026-09-06T04:00:00Z", "2026-09-06T06:00:00Z", false},
		"a whole day":               {"22:00", "22:00", "UTC", nil, "2026-11-22T21:00:00Z", "2026-11-21T22:00:00Z", "2026-11-22T22:00:00Z", true},
		"to a midnight skipped":     {"22:00", "00:30", "America/Santiago", nil, "2026-09-06T03:00:00Z", "2026-09-06T02:00:00Z", "2026-09-06T04:00:00Z", true},
	} {
		t.Run(name, func(t *testing.T) {
			w, err := parseWindow(&v1alpha1.Window{Start: tt.start, End: tt.end, TimeZone: tt.zone, Days: tt.days})
			if err != nil {
				t.Fatal(err)
			}
			now, err := time.Parse(time.RFC3339, tt.now)
			if err != nil {
				t.Fatal(err)
			}
			got := w.at(now)
			if from, to := got.from.UTC().Format(time.RFC3339), got.to.UTC().Format(time.RFC3339); got.open != tt.open || from != tt.from || to != tt.to {
				t.Errorf("open %t, from %s to %s; want %t, %s to %s", got.open, from, to, tt.open, tt.from, tt.to)
			}
		})
	}
	if s := (*window)(nil).at(time.Now()); !s.open {
		t.Error("without a window it is not open")
	}
	if _, err := parseWindow(&v1alpha1.Window{Start: "01:00", End: "02:00", TimeZone: "Europe/Atlantis"}); err == nil {
		t.Error("an unknown time zone is known")
	}
}

// FuzzWindow: whatever the window and the zone, what is said to be open lies around now, and what
// is not lies ahead, within the days that are looked at.
func FuzzWindow(f *testing.F) {
	zones := []string{"UTC", "Europe/Berlin", "America/Santiago", "Australia/Lord_Howe", "Asia/Kathmandu", "Pacific/Apia", "Africa/Casablanca"}
	f.Add(uint8(1), uint16(150), uint16(165), uint8(0), int64(1774744200))
	f.Add(uint8(6), uint16(10), uint16(5), uint8(32), int64(1325203200))
	f.Fuzz(func(t *testing.T, zone uint8, start, end uint16, day uint8, at int64) {
		location, err := time.LoadLocation(zones[int(zone)%len(zones)])
		if err != nil {
			t.Fatal(err)
		}
		w := &window{start: int(start) % 1440, end: int(end) % 1440, zone: location}
		if day%8 < 7 {
			w.days = []time.Weekday{time.Weekday(day % 8)}
		}
		now := time.Unix(at%4102444800, 0)
		if s := w.at(now); w.start == w.end {
			return
		} else if !s.from.Before(s.to) || !now.Before(s.to) || s.open == now.Before(s.from) || s.to.Sub(s.from) > 26*time.Hour || s.from.Sub(now) > 15*24*time.Hour {
			t.Errorf("%v at %s: open %t from %s to %s", w, now.In(location), s.open, s.from, s.to)
		}
	})
}
