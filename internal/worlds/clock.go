package worlds

import (
	"time"
	"unsafe"
)

// began is a reading with a monotonic part, from which all others here are made.
var began = time.Now()

// Reading is what [time.Now] returns on a machine whose clock shows wall, and whose monotonic clock
// shows mono: the two part where somebody sets the clock, and where the machine is suspended.
// Package time has no way to make one. That the monotonic part of a Time lies in its second word is
// not promised by anybody; TestReading finds out.
func Reading(wall, mono time.Time) time.Time {
	t := began.Add(wall.Sub(began.Round(0)))
	(*[2]int64)(unsafe.Pointer(&t))[1] += int64(mono.Sub(wall)) // a Time is longer than two words
	return t
}
