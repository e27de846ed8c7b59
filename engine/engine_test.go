package engine

import (
	"testing"
	"time"
)

// TestWallClockMeasures: the clock of commands carries a monotonic reading, and what is written
// down is in UTC and carries none.
func TestWallClockMeasures(t *testing.T) {
	e := &Engine{}
	if now := e.now(); now == now.Round(0) {
		t.Errorf("%s has no monotonic reading: who sets the clock moves every deadline", now)
	}
	if date := e.date(); date != date.Round(0) || date.Location() != time.UTC {
		t.Errorf("%s is written down", date)
	}
}
