package emulator

import "time"

// Clock is the only time the server knows. Now never goes back. AfterFunc calls f
// once, d after now, in any goroutine; stop forgets a call that has not begun.
type Clock interface {
	Now() time.Time
	AfterFunc(d time.Duration, f func()) (stop func())
}

// WallClock is the clock of this machine.
type WallClock struct{}

// Now is the present time in UTC.
func (WallClock) Now() time.Time { return time.Now().UTC() }

// AfterFunc is [time.AfterFunc].
func (WallClock) AfterFunc(d time.Duration, f func()) func() {
	timer := time.AfterFunc(d, f)
	return func() { timer.Stop() }
}
