package sim

import (
	"strings"
	"testing"
	"time"

	"kamino.dev/kamino"
)

// TestClockAhead: a machine whose clock is ahead makes a version. Under right clocks auto-update
// holds the pool with what to type, and does not report that nothing is needed.
func TestClockAhead(t *testing.T) {
	for name, begin := range map[string]func(uint64) *world{"by version": aged, "pointing": pointing} {
		t.Run(name, func(t *testing.T) {
			w := begin(1)
			o := options("a-0")
			first := w.startUpdate(&proc{skew: 40 * 24 * time.Hour}, o)
			w.wait()
			if first.err != nil {
				t.Fatal(first.err)
			}
			w.advance(w.now.Add(24 * time.Hour))
			w.nodes["a-1"].Annotations[kamino.KuredLastPatch.Annotation] = w.now.Format(time.RFC3339)
			p, results := w.auto(autoOptions())
			if p.err != nil || len(results) == 0 {
				t.Fatal(p.err, results)
			}
			if held := results[0].Held; !kamino.Has(held, "future") || !strings.Contains(held[0].Text, "delete version "+first.result.Version) {
				t.Errorf("the pool is held by %v, want the version of a later day", held)
			}
		})
	}
}
