package crash

import (
	"slices"
	"sync"
	"time"

	"kamino.dev/kamino/azure/emulator"
)

// Clock is the time of a world. It stands still while any process is busy. When
// all sleep, the world reacts to what they have done, and time moves to the next
// thing that is due: a timer of cloud and machines, or the end of a sleep. One
// process wakes at a time, so that the same world makes the same calls.
type Clock struct {
	virtual *emulator.VirtualClock
	react   func()

	mu     sync.Mutex
	busy   int
	serial int
	asleep []*sleeper
}

type sleeper struct {
	wake   time.Time
	serial int
	ring   chan struct{}
}

func newClock(start time.Time) *Clock {
	return &Clock{virtual: emulator.NewVirtualClock(start), react: func() {}}
}

// Now is the time of the world, in UTC.
func (c *Clock) Now() time.Time { return c.virtual.Now() }

// kick wakes the first process when none is busy.
func (c *Clock) kick() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.busy == 0 {
		c.step()
	}
}

// leave ends the part of a busy process.
func (c *Clock) leave() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.busy--
	if c.busy == 0 {
		c.step()
	}
}

// sleep lets a busy process wait for d.
func (c *Clock) sleep(d time.Duration) {
	c.mu.Lock()
	ring := c.lie(d)
	c.busy--
	if c.busy == 0 {
		c.step()
	}
	c.mu.Unlock()
	<-ring
}

// enqueue makes a process that will be busy when everybody else sleeps; the
// caller waits for the ring in another goroutine.
func (c *Clock) enqueue() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.lie(0)
}

func (c *Clock) lie(d time.Duration) <-chan struct{} {
	c.serial++
	s := &sleeper{wake: c.virtual.Now().Add(max(d, 0)), serial: c.serial, ring: make(chan struct{})}
	c.asleep = append(c.asleep, s)
	return s.ring
}

// step moves time until a sleeper wakes. Nobody is busy, and mu is held.
func (c *Clock) step() {
	if len(c.asleep) == 0 {
		return
	}
	next := slices.MinFunc(c.asleep, func(a, b *sleeper) int {
		if d := a.wake.Compare(b.wake); d != 0 {
			return d
		}
		return a.serial - b.serial
	})
	c.moveTo(next.wake)
	c.asleep = slices.DeleteFunc(c.asleep, func(s *sleeper) bool { return s == next })
	c.busy++
	close(next.ring)
}

// moveTo lets the world react, before and after everything that falls due.
func (c *Clock) moveTo(end time.Time) {
	for {
		c.react()
		at, ok := c.virtual.Next()
		now := c.virtual.Now()
		if !ok || at.After(end) {
			if end.After(now) {
				c.virtual.Advance(end.Sub(now))
				c.react()
			}
			return
		}
		c.virtual.Advance(max(at.Sub(now), 0))
	}
}

// pass lets time go by while no process exists.
func (c *Clock) pass(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.moveTo(c.virtual.Now().Add(d))
}
