package kamino

import (
	"context"
	"time"
)

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

// Now returns the present time. UTC would take its monotonic reading off
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

// now is for measuring, date for what is written down.
func (e *Engine) now() time.Time { return e.clock().Now() }

func (e *Engine) date() time.Time { return e.now().UTC() }

// elapsed is how much later b is than a, by the clock that says more: the monotonic one stands
// still while the machine is suspended, and the other may be set back. Both stand still in a VM
// that is paused.
func elapsed(a, b time.Time) time.Duration { return max(b.Sub(a), b.Round(0).Sub(a.Round(0))) }
