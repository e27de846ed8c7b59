package sim

import (
	"testing"
	"time"

	"kamino.dev/kamino"
	"kamino.dev/kamino/internal/worlds"
)

// TestInterruptedWhileRecording: a run is told to end while the seal of its donor, which is
// detached, still records the boot, with the kubelet on.
func TestInterruptedWhileRecording(t *testing.T) {
	for seed := range uint64(40) {
		p := &proc{logging: true}
		w := aged(seed)
		w.startUpdate(p, options("a-0"))
		w.wait()
		for _, s := range p.log {
			if s.step != "seal" {
				continue
			}
			w := aged(seed)
			w.update(options("a-0"), fault{kind: worlds.Interrupted, at: s.at})
			w.advance(w.now.Add(10 * time.Minute))
			m, n := w.machineOf(w.nodes["a-0"]), w.nodes["a-0"]
			if m.Power != kamino.PowerOn || !m.Kubelet {
				t.Fatalf("seed %d, interrupted at %s: ten minutes later the donor is %s, its kubelet runs: %t; its node has mark %q and taints %v", seed, s, m.Power, m.Kubelet, n.Annotations[kamino.AnnotationRun], n.Taints)
			}
		}
	}
}
