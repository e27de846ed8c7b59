package sim

import (
	"strings"
	"testing"

	"kamino.dev/kamino"
	"kamino.dev/kamino/internal/worlds"
)

// TestTakenBack: a donor whose seal gave up, and which works again, is not switched off to be
// mended.
func TestTakenBack(t *testing.T) {
	for seed := range uint64(20) { // whether the pod is seen to start before the seal stops the kubelet is chance
		takenBack(t, aged(seed))
	}
}

func takenBack(t *testing.T, w *world) {
	t.Helper()
	m := w.machineOf(w.nodes["a-0"])
	m.Fate = worlds.SealTakenBack
	boot := m.BootID
	p := w.update(options("a-0"))
	n := w.nodes["a-0"]
	if p.err == nil || !strings.Contains(p.err.Error(), worlds.Failure) {
		t.Errorf("the run ended with %v", p.err)
	}
	if m.BootID != boot || m.Power != kamino.PowerOn {
		t.Errorf("the donor is %s, in boot %s, and was in %s", m.Power, m.BootID, boot)
	}
	if n.Annotations[kamino.AnnotationRun] != "" || n.Tainted(kamino.TaintBlock) || !n.Ready {
		t.Errorf("the node has %v and %v, Ready %t", n.Annotations, n.Taints, n.Ready)
	}
	w.sound(t)
}
