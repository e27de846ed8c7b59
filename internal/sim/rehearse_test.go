package sim

import (
	"errors"
	"testing"

	"kamino.dev/kamino"
)

// TestHopelessDrain: one pod that only force would remove ends the run before any other pod is
// evicted, before the donor is marked, and auto-update takes the next candidate.
func TestHopelessDrain(t *testing.T) {
	w := aged(1)
	pods := len(w.pods)
	w.pods = append(w.pods, &simPod{Pod: kamino.Pod{Namespace: "default", Name: "bare"}, node: "a-0", bare: true})
	p := w.update(options("a-0"))
	var step *kamino.StepError
	if !errors.As(p.err, &step) || step.Step != "rehearse" || !step.Refused {
		t.Fatalf("got %v", p.err)
	}
	if past := w.leases[poolA].Ledger.Past; len(past) > 0 {
		t.Errorf("what was refused is a run: %+v", past)
	}
	for _, pod := range w.pods {
		if pod.ending {
			t.Errorf("pod %s was evicted", pod)
		}
	}
	if len(w.pods) != pods+1 || len(w.nodes["a-0"].Annotations[kamino.AnnotationRun]) > 0 || w.nodes["a-0"].Tainted(kamino.TaintBlock) {
		t.Errorf("%d pods of %d; the donor: %v", len(w.pods), pods+1, w.nodes["a-0"].Annotations)
	}
	if w.leases[poolA].Holder != "" {
		t.Errorf("the lease is held by %s", w.leases[poolA].Holder)
	}
	o := options("a-0")
	o.Force = true
	if p := w.update(o); p.err != nil {
		t.Errorf("with force: %v", p.err)
	}
	w.sound(t)
}
