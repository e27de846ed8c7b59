package sim

import (
	"context"
	"errors"
	"testing"

	"kamino.dev/kamino"
	"kamino.dev/kamino/engine"
)

// sharing is a provider whose pool boots from what another pool boots from too.
type sharing struct{ simProvider }

func (s sharing) Pool(ctx context.Context, id kamino.PoolID) (kamino.Pool, error) {
	pool, err := s.simProvider.Pool(ctx, id)
	pool.Refusals = append(pool.Refusals, kamino.Refusal{Code: kamino.CodeShared, Field: "ImageId", Value: "/golden/ami", Why: "another group names it", Do: "give it its own"})
	return pool, err
}

// TestShared: in a pool whose next image is that of another pool too nothing is promoted, and a
// bad image can be left.
func TestShared(t *testing.T) {
	for _, tt := range []struct {
		name    string
		refused bool
		want    string // what new nodes boot from
		do      func(context.Context, *engine.Engine) error
	}{
		{"update", true, "2026.03.09", func(ctx context.Context, e *engine.Engine) error {
			_, err := e.Update(ctx, options("a-0"))
			return err
		}},
		{"promote", true, "2026.03.09", func(ctx context.Context, e *engine.Engine) error {
			_, err := e.PromoteVersion(ctx, engine.PromoteOptions{Pool: "a", Version: "2026.03.19"})
			return err
		}},
		{"withdraw", false, "2026.03.05", func(ctx context.Context, e *engine.Engine) error {
			_, err := e.WithdrawVersion(ctx, kamino.WithdrawOptions{Pool: "a", Reason: "leaks a key"})
			return err
		}},
		{"rollback", false, "2026.03.05", func(ctx context.Context, e *engine.Engine) error {
			_, err := e.Rollback(ctx, engine.RollbackOptions{Pool: "a", To: "2026.03.05"})
			return err
		}},
	} {
		for reference, begin := range byReference() {
			t.Run(tt.name+" "+reference, func(t *testing.T) {
				w, p := begin(1), &proc{}
				w.waits("2026.03.19")
				p.tune = func(e *engine.Engine) { e.Provider = sharing{e.Provider.(simProvider)} }
				w.spawn(p, func(ctx context.Context) { p.err = tt.do(ctx, p.engine()) })
				w.wait()
				refused := (*kamino.RefusedError)(nil)
				if got := birth(w); errors.As(p.err, &refused) != tt.refused || !tt.refused && p.err != nil || got != tt.want {
					t.Errorf("it ended %v; new nodes boot from %s, want %s", p.err, got, tt.want)
				}
			})
		}
	}
}
