package sim

import (
	"fmt"
	"testing"
	"time"

	"kamino.dev/kamino/internal/worlds"
)

// TestSlowWrites: Kubernetes takes long to write, and every write succeeds, from any write of a run
// on: the donor comes back although nobody mends it.
func TestSlowWrites(t *testing.T) {
	sites, _ := golden(t, aged)
	for _, d := range []time.Duration{11 * time.Second, 20 * time.Second, 29 * time.Second} {
		wrong := 0
		for _, s := range sites {
			if !s.call.write || !s.call.kube {
				continue
			}
			w := aged(1)
			r := &rival{Rival: worlds.Rival{Name: fmt.Sprintf("writes take %s", d)}, happen: func(w *world) { w.SlowWrites(d) }}
			began := w.now
			p := w.startUpdate(&proc{faults: []fault{{kind: worlds.RivalActs, at: s.at, rival: r}}}, goldenOptions())
			w.wait()
			took := w.now.Sub(began)
			w.audit.settled()
			if len(w.audit.violations) > 0 || took > 3*time.Hour {
				if wrong++; wrong < 4 {
					t.Errorf("writes take %s from %s on: after %s the run ended %v: %q", d, s, took.Round(time.Second), p.err, w.audit.violations)
				}
			}
		}
		t.Logf("writes take %s: %d sites go wrong", d, wrong)
	}
}
