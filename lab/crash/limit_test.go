package crash

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"kamino.dev/kamino"
	"kamino.dev/kamino/internal/worlds"
	"kamino.dev/kamino/lab/labtest"
)

// TestLimits: whatever keeps pods out of Kamino's namespace does that here too, is named in the
// refusal, and ends.
func TestLimits(t *testing.T) {
	ctx := t.Context()
	rehearsed := func(want worlds.PodLimit) {
		t.Helper()
		labtest.Await(t, 30*time.Second, fmt.Sprintf("pods kept out by %q", want), func() string {
			err := station.leases.RehearseSeal(ctx, kamino.Node{Name: worlds.NoNode}, kamino.SealOrder{Run: "r-limits", Nonce: "n"})
			by, refused := worlds.PodLimit(""), (*kamino.RefusedError)(nil)
			if errors.As(err, &refused) {
				by, err = worlds.PodLimit(refused.Refusals[0].Field), nil
			}
			if err != nil || by != want {
				return fmt.Sprintf("kept out by %q, %v", by, err)
			}
			return ""
		})
	}
	rehearsed("")
	for _, by := range worlds.PodLimits() {
		if err := station.limitPods(ctx, by); err != nil {
			t.Fatal(err)
		}
		rehearsed(by)
		if err := station.dropLimits(ctx); err != nil {
			t.Fatal(err)
		}
		rehearsed("")
	}
}
