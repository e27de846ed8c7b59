package controller

import (
	"context"
	"log/slog"
)

// orderly filters the log of controller-runtime: at a normal end its manager stops leading and then
// logs that as the error "leader election lost".
type orderly struct {
	slog.Handler
	process context.Context
}

const lost = "leader election lost"

// Handle implements slog.Handler.
func (o orderly) Handle(ctx context.Context, r slog.Record) error {
	ended := false
	r.Attrs(func(a slog.Attr) bool {
		err, ok := a.Value.Any().(error)
		ended = ended || ok && err.Error() == lost
		return !ended
	})
	if ended && o.process.Err() != nil {
		r = slog.NewRecord(r.Time, slog.LevelInfo, "no longer leading: the process is being terminated", r.PC)
		if !o.Enabled(ctx, r.Level) {
			return nil
		}
	}
	return o.Handler.Handle(ctx, r)
}

// WithAttrs implements slog.Handler.
func (o orderly) WithAttrs(attrs []slog.Attr) slog.Handler {
	return orderly{o.Handler.WithAttrs(attrs), o.process}
}

// WithGroup implements slog.Handler.
func (o orderly) WithGroup(name string) slog.Handler {
	return orderly{o.Handler.WithGroup(name), o.process}
}
