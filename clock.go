package kamino

import (
	"context"
	"sync"
	"time"
)

// JustNow is how old a read of the cloud may be that stands for another one: less than passes
// between a read and what is done about it anyway.
const JustNow = 2 * time.Second

// GoneAfter is how long something that is known to be there must be missing, from reads and from
// lists, before that is believed: a donor's instance, or a version. Microsoft's support names the
// replication between regions as the cause of 404s for resources that exist
// (https://github.com/hashicorp/terraform-provider-azurerm/issues/18268); for how long they last no
// source was found (unverified).
const GoneAfter = 3 * time.Minute

// Clock is the one source of time of a run: nothing else here reads the time, waits or gives up by
// it. Tests put a virtual clock here, whose Sleep advances it.
type Clock interface {
	// Now is this machine's time, with its monotonic reading where there is one. UTC, as JSON,
	// takes that off: so the zone is anybody's, and who writes a time down converts it.
	Now() time.Time
	// Sleep returns after d, or earlier with the context's error.
	Sleep(ctx context.Context, d time.Duration) error
	// WithTimeout is [context.WithTimeout] by this clock. With which error the
	// context ends is the clock's business.
	WithTimeout(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc)
}

// WallClock is the time of this machine.
type WallClock struct{}

// Now returns the present time. UTC would remove its monotonic reading
// (https://pkg.go.dev/time#hdr-Monotonic_Clocks), and who sets the clock would move every deadline.
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

// LookAge is how old a look may be when it is acted upon: a process that was
// frozen, or a cluster that answered late, has missed what happened meanwhile.
const LookAge = 10 * time.Second

// Elapsed is how much later b is than a, by the clock that says more: the monotonic one stands
// still while the machine is suspended, and the other may be set back. Both stand still in a VM
// that is paused.
func Elapsed(a, b time.Time) time.Duration { return max(b.Sub(a), b.Round(0).Sub(a.Round(0))) }

// seenKey finds what a look has read.
type seenKey struct{}

// Looking begins a look. What a Provider or a Cluster reads with the context it returns may be read
// once and returned again. Nothing is changed with such a context: what changes the world reads
// afresh.
func Looking(ctx context.Context) context.Context {
	return context.WithValue(ctx, seenKey{}, &sync.Map{})
}

// Seen is what was read in the look that a context belongs to; nil where it belongs to none.
func Seen(ctx context.Context) *sync.Map {
	seen, _ := ctx.Value(seenKey{}).(*sync.Map)
	return seen
}
