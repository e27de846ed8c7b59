package kamino

import (
	"context"
	"time"
)

// Clock is the one source of time of a run: nothing else here reads the time, waits or gives up by
// it. Tests put a virtual clock here, whose Sleep advances it.
type Clock interface {
	// Now is in UTC.
	Now() time.Time
	// Sleep returns after d, or earlier with the context's error.
	Sleep(ctx context.Context, d time.Duration) error
	// WithTimeout is [context.WithTimeout] by this clock. With which error the
	// context ends is the clock's business.
	WithTimeout(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc)
}

// WallClock is the time of this machine.
type WallClock struct{}

// Now returns the present time in UTC.
func (WallClock) Now() time.Time { return time.Now().UTC() }

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
