package emulator

import (
	"sort"
	"sync"
	"time"
)

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

// VirtualClock stands still until Advance moves it.
type VirtualClock struct {
	mu     sync.Mutex
	now    time.Time
	serial int
	timers map[int]*alarm
}

type alarm struct {
	serial int
	at     time.Time
	f      func()
}

// NewVirtualClock starts a virtual clock at the given time.
func NewVirtualClock(start time.Time) *VirtualClock {
	return &VirtualClock{now: start.UTC(), timers: map[int]*alarm{}}
}

// Now is the time Advance has reached.
func (c *VirtualClock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// AfterFunc runs f in the goroutine that calls Advance.
func (c *VirtualClock) AfterFunc(d time.Duration, f func()) func() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.serial++
	serial := c.serial
	c.timers[serial] = &alarm{serial: serial, at: c.now.Add(max(d, 0)), f: f}
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.timers, serial)
	}
}

// Advance moves the clock by d and runs what falls due on the way, in the order
// of time and then of creation, each at its own time.
func (c *VirtualClock) Advance(d time.Duration) {
	c.mu.Lock()
	end := c.now.Add(d)
	c.mu.Unlock()
	for {
		c.mu.Lock()
		next := c.earliest()
		if next == nil || next.at.After(end) {
			if end.After(c.now) {
				c.now = end
			}
			c.mu.Unlock()
			return
		}
		delete(c.timers, next.serial)
		if next.at.After(c.now) {
			c.now = next.at
		}
		c.mu.Unlock()
		next.f()
	}
}

// Next says when the earliest waiting call falls due; ok is false when none waits.
func (c *VirtualClock) Next() (at time.Time, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if next := c.earliest(); next != nil {
		return next.at, true
	}
	return time.Time{}, false
}

func (c *VirtualClock) earliest() *alarm {
	due := make([]*alarm, 0, len(c.timers))
	for _, a := range c.timers {
		due = append(due, a)
	}
	if len(due) == 0 {
		return nil
	}
	sort.Slice(due, func(i, j int) bool {
		if due[i].at.Equal(due[j].at) {
			return due[i].serial < due[j].serial
		}
		return due[i].at.Before(due[j].at)
	})
	return due[0]
}
