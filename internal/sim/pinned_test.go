package sim

import (
	"fmt"
	"testing"
	"time"

	"kamino.dev/kamino"
)

// TestPinnedComesBack: a controller that makes its pod for one node, by spec.nodeName, asks no
// scheduler and needs no toleration: the pod comes back to the donor as often as it is evicted. The
// run ends soon, as with a pod that tolerates the block.
func TestPinnedComesBack(t *testing.T) {
	w := aged(1)
	back := 0
	w.evicted = func() {
		for _, p := range w.pods {
			if p.node == "a-0" && p.Namespace == "storage" {
				return
			}
		}
		back++
		w.pods = append(w.pods, &simPod{Pod: kamino.Pod{Namespace: "storage", Name: fmt.Sprint("instance-manager-", back)}, node: "a-0"})
	}
	began := w.now
	p := w.update(goldenOptions())
	if took := w.now.Sub(began); back > 5 || took > 15*time.Minute {
		t.Errorf("it came back %d times in %s; the run ended %v", back, took, p.err)
	}
}
