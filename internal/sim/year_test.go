package sim

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"kamino.dev/kamino"
)

// TestYear is why pools point: a pool of twenty nodes gets a new image every night. Where a
// twentieth of the nodes is replaced a day, or one node is added a night, a model a night ends at
// the limit of ten; a pointer that is moved never does.
func TestYear(t *testing.T) {
	for _, tt := range []struct {
		name   string
		tagged bool
		add    bool
		nights int // until the limit; 365: never
	}{
		{"by version, churn", true, false, 10},
		{"by version, one node a night", true, true, 10},
		{"by pointer, churn", false, false, 365},
		{"by pointer, one node a night", false, true, 365},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			night, err := year(tt.tagged, tt.add)
			if night > tt.nights || night < tt.nights-2 || night < 365 && !errors.Is(err, errTenModels) || night == 365 && err != nil {
				t.Errorf("in night %d: %v", night, err)
			}
		})
	}
}

// year plays nights until a run fails, which is returned with it, or a year has passed.
func year(tagged, add bool) (night int, err error) {
	w := newWorld(1)
	w.tagged, w.audit.off = tagged, true
	p := w.addPool(poolA, 20)
	for ; night < 365; night++ {
		run := w.update(options("a-0"))
		fresh := kamino.VersionName(w.now)
		if run.err != nil {
			return night, run.err
		}
		if next := lastSegment(w.bootsFrom(p)); next != fresh {
			return night, fmt.Errorf("the next instance boots from %s, not from %s", next, fresh)
		}
		if gone := w.nodes[fmt.Sprintf("a-%d", 1+night%19)]; !add {
			w.removeMachine(w.machineOf(gone))
			w.advance(w.now.Add(time.Minute))
			w.addMachine(poolA, gone.Name, w.bootsFrom(p))
		} else {
			w.grow(p, p.capacity+1)
		}
		w.advance(w.now.Truncate(24 * time.Hour).Add(34 * time.Hour))
	}
	return night, nil
}
