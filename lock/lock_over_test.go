package lock

import (
	"testing"
	"time"

	"kamino.dev/kamino"
)

// TestLastActOver: waitForActs and lookRemains (package engine) take the last act of a run that lost
// its lease for over LeaseDuration after somebody else took it. An act may begin on an announcement that
// is LookAge old, or SlowWrite where writes are slow, and may take ActLimit from then on.
func TestLastActOver(t *testing.T) {
	clock := &stoppedClock{now: time.Date(2026, 3, 10, 10, 0, 0, 0, time.UTC)}
	for _, age := range []time.Duration{0, kamino.LookAge - 1, kamino.SlowWrite - 1} {
		h := Lock{Clock: clock, Lease: &kamino.Lease{}, leased: clock.now.Add(-age)}
		if over := age + h.ActLimit(); over > kamino.LeaseDuration {
			t.Errorf("an act that begins %s after the last write may last until %s after it; others wait %s", age, over, kamino.LeaseDuration)
		}
	}
}
