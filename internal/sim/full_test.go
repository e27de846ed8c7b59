package sim

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"kamino.dev/kamino"
)

// full is a world in which the pool's lease is as long as the API server takes, but for some bytes:
// it has a long history.
func full(room int) func(uint64) *world {
	return func(seed uint64) *world {
		w := aged(seed)
		l := w.leases[poolA]
		for i := range 20 {
			at := w.now.Add(-time.Duration(i+30) * time.Hour)
			l.Ledger.Past = append(l.Ledger.Past, kamino.PastRun{Run: fmt.Sprintf("past-%d", i), Donor: "a-1", Ended: at, Failure: strings.Repeat("x", 400), Step: "drain"})
			l.Ledger.Boots = append(l.Ledger.Boots, 30)
		}
		w.leases[poolA] = l
		w.leaseRoom = l.Size() + room
		return w
	}
}

// TestFullLease: however little room the lease has, the run ends well: it drops old history.
func TestFullLease(t *testing.T) {
	met := counts{}
	for room := 0; room < 2000; room += 25 {
		w := full(room)(1)
		p := w.update(goldenOptions())
		w.audit.settled()
		if p.err != nil || len(w.audit.violations) > 0 {
			t.Fatalf("%d bytes left: %v, %q", room, p.err, w.audit.violations)
		}
		met.add(w.hits)
	}
	met.require(t, []string{cellLeaseFull})
}

// TestLargeModel: a model that could not be saved in the end is refused before the donor is taken;
// one that can be compressed is saved.
func TestLargeModel(t *testing.T) {
	for _, tt := range []struct {
		name    string
		setting func(int) string
		refused bool
	}{
		{"a script of 200 KiB", func(n int) string { return strings.Repeat("echo the same line again; ", n/26) }, false},
		{"200 KiB that cannot be compressed", noise, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := aged(1)
			w.pools[poolA].exts = append(w.pools[poolA].exts, tt.setting(300<<10))
			p := w.update(options("a-0"))
			w.audit.settled()
			refused := (*kamino.RefusedError)(nil)
			if got := errors.As(p.err, &refused); got != tt.refused || !got && p.err != nil {
				t.Errorf("the run ended %.300v", p.err)
			}
			if size := w.leases[poolA].Size(); size > 256<<10 {
				t.Errorf("the lease has %d bytes", size)
			}
			if pods := len(w.pods); tt.refused && pods != len(aged(1).pods) || len(w.audit.violations) > 0 {
				t.Errorf("%.500q", w.audit.violations)
			}
		})
	}
}

// noise is a text that cannot be compressed much.
func noise(n int) string {
	var b strings.Builder
	for x := uint64(1); b.Len() < n; x = x*6364136223846793005 + 1442695040888963407 {
		fmt.Fprintf(&b, "%016x", x)
	}
	return b.String()
}
