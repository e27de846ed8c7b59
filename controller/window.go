package controller

import (
	"fmt"
	"slices"
	"time"
	_ "time/tzdata" // the image of this program has no time zones

	"kamino.dev/kamino/api/v1alpha1"
)

// window is when runs may start; nil: always.
type window struct {
	days       []time.Weekday // nil: every day
	start, end int            // minutes of the day
	zone       *time.Location
}

var weekdays = map[v1alpha1.Day]time.Weekday{"Sun": time.Sunday, "Mon": time.Monday, "Tue": time.Tuesday, "Wed": time.Wednesday,
	"Thu": time.Thursday, "Fri": time.Friday, "Sat": time.Saturday}

// parseWindow reads a window that the API server has validated; only the time zone can still be
// unknown.
func parseWindow(w *v1alpha1.Window) (*window, error) {
	if w == nil {
		return nil, nil
	}
	zone, err := time.LoadLocation(w.TimeZone)
	if err != nil || w.TimeZone == "Local" {
		return nil, fmt.Errorf("time zone %q is unknown: use a name of the IANA database, for instance Europe/Berlin", w.TimeZone)
	}
	out := &window{zone: zone}
	if out.start, err = minuteOf(w.Start); err != nil {
		return nil, err
	}
	if out.end, err = minuteOf(w.End); err != nil {
		return nil, err
	}
	for _, day := range w.Days {
		out.days = append(out.days, weekdays[day])
	}
	return out, nil
}

// minuteOf returns the minute of the day of a time of day.
func minuteOf(text string) (int, error) {
	at, err := time.Parse("15:04", text)
	if err != nil {
		return 0, fmt.Errorf("invalid time of day %q: use HH:MM", text)
	}
	return at.Hour()*60 + at.Minute(), nil
}

// sight is the state of a window at a moment.
type sight struct {
	open bool
	from time.Time // when it opened last, or opens next if it is closed; zero: it is always open
	to   time.Time // when it closes after that
}

// lookAhead is how many days contain the next opening of any window, even if a change of the clocks
// skips one.
const lookAhead = 15

func (w *window) at(now time.Time) sight {
	if w == nil {
		return sight{open: true}
	}
	today := now.In(w.zone)
	for n := -1; n < lookAhead; n++ {
		// Every day has one noon.
		day := time.Date(today.Year(), today.Month(), today.Day()+n, 12, 0, 0, 0, w.zone)
		if len(w.days) > 0 && !slices.Contains(w.days, day.Weekday()) {
			continue
		}
		from, to := w.moment(day, 0, w.start), w.moment(day, 0, w.end)
		if w.end <= w.start {
			to = w.moment(day, 1, w.end)
		}
		if from.Before(to) && now.Before(to) {
			return sight{open: !now.Before(from), from: from, to: to}
		}
	}
	return sight{}
}

// next returns the first moment from at on at which the window is open; zero if not known.
func (w *window) next(at time.Time) time.Time {
	if s := w.at(at); !s.open {
		return s.from
	}
	return at
}

// moment returns the first moment at which the clocks show a minute of the day, n days later. If
// the clocks skip that minute, it is the moment of the change.
func (w *window) moment(day time.Time, n, minutes int) time.Time {
	y, m, d := day.Date()
	at := time.Date(y, m, d+n, minutes/60, minutes%60, 0, 0, w.zone)
	since, until := at.ZoneBounds()
	shown, want := wall(at), time.Date(y, m, d+n, minutes/60, minutes%60, 0, 0, time.UTC)
	switch {
	case shown.After(want): // time.Date returns a moment on either side of the change
		return since
	case shown.Before(want):
		return until
	case since.IsZero():
		return at
	}
	_, before := since.Add(-time.Nanosecond).Zone()
	_, after := at.Zone()
	if first := at.Add(-time.Duration(before-after) * time.Second); first.Before(since) && wall(first).Equal(want) {
		return first
	}
	return at
}

// wall returns the time that the clocks show, as UTC.
func wall(t time.Time) time.Time {
	return time.Date(t.Year(), t.Month(), t.Day(), t.Hour(), t.Minute(), t.Second(), 0, time.UTC)
}
