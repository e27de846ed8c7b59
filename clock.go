package kamino

import (
	"context"
	"sync"
	"time"
)

// JustNow is the age up to which one read of the cloud may replace another: no longer than the
// usual time between a read and the act that follows it.
const JustNow = 2 * time.Second

// GoneAfter is how long a donor's instance or a version must be missing from reads and lists before
// it counts as gone. Microsoft's support names the replication between regions as the cause of 404s
// for resources that exist (https://github.com/hashicorp/terraform-provider-azurerm/issues/18268).
// How long they last is unverified.
const GoneAfter = 3 * time.Minute

// Clock is the only source of time of a run: nothing else reads the time, sleeps or sets a timeout.
// Tests use a virtual clock, whose Sleep advances it.
type Clock interface {
	// Now returns this machine's time, with its monotonic reading where there is one. Its zone is
	// not defined: UTC and JSON would remove the monotonic reading, so a caller converts the time
	// when it writes it down.
	Now() time.Time
	// Sleep returns after d, or earlier with the context's error.
	Sleep(ctx context.Context, d time.Duration) error
	// WithTimeout is [context.WithTimeout] by this clock. The clock decides with which error the
	// context ends.
	WithTimeout(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc)
}

// WallClock is the time of this machine.
type WallClock struct{}

// Now returns the present time, not in UTC: UTC would remove its monotonic reading
// (https://pkg.go.dev/time#hdr-Monotonic_Clocks), and setting the clock would move every deadline.
func (WallClock) Now() time.Time { return time.Now() }

// Sleep waits for d or for the end of ctx.
func (WallClock) Sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}

// WithTimeout is [context.WithTimeout].
func (WallClock) WithTimeout(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, d)
}

// LookAge is the greatest age of an observation that a run acts upon. A process that was frozen, or
// a cluster that answered late, has missed what happened meanwhile.
const LookAge = 10 * time.Second

// Elapsed returns how much later b is than a: the greater difference of the monotonic and the wall
// clock. The monotonic clock stands still while the machine is suspended; the wall clock may be set
// back. Both stand still in a VM that is paused.
func Elapsed(a, b time.Time) time.Duration { return max(b.Sub(a), b.Round(0).Sub(a.Round(0))) }

// seenKey is the context key of the values that a look has read.
type seenKey struct{}

// Looking begins a look: a Provider or a Cluster may answer a repeated read with this context from
// the first one. A context of a look is never passed to a call that changes something, but for the
// rounds of a drain; an act reads again.
func Looking(ctx context.Context) context.Context {
	return context.WithValue(ctx, seenKey{}, &sync.Map{})
}

// Seen returns the values that were read in the look of this context; nil outside of a look.
func Seen(ctx context.Context) *sync.Map {
	seen, _ := ctx.Value(seenKey{}).(*sync.Map)
	return seen
}
