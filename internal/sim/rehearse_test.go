package sim

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

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

// TestLocalVolume: whatever a drain keeps and a stop destroys is found before the drain, force or
// not, and the plan names it.
func TestLocalVolume(t *testing.T) {
	for _, force := range []bool{false, true} {
		w := aged(1)
		w.BindVolume("a-0")
		o := options("a-0")
		o.Force = force
		var plan *kamino.Plan
		planned := &proc{}
		w.spawn(planned, func(ctx context.Context) { plan, planned.err = planned.engine().Plan(ctx, o) })
		if w.wait(); planned.err != nil || plan == nil || !slices.ContainsFunc(plan.Refusals, func(r kamino.Refusal) bool { return r.Code == kamino.CodeLocalVolume }) {
			t.Errorf("the plan: %+v, %v", plan, planned.err)
		}
		p := w.update(o)
		var step *kamino.StepError
		if !errors.As(p.err, &step) || step.Step != "rehearse" || !step.Refused || w.writes > 0 {
			t.Errorf("force %v: it ended %v after %d writes", force, p.err, w.writes)
		}
		w.sound(t)
	}
}

// TestPodComesBack: a pod that tolerates the block is refused by name before the drain, force or
// not. One that comes while the donor is drained ends the drain at once, and not after its limit.
func TestPodComesBack(t *testing.T) {
	for _, force := range []bool{false, true} {
		for _, step := range []string{"rehearse", "drain", "seal"} {
			w, o, began := aged(1), options("a-0"), time.Time{}
			o.Force = force
			p := &proc{tune: func(e *kamino.Engine) {
				report := e.Report
				e.Report = func(ev kamino.Event) {
					report(ev)
					if ev.Step == step && began.IsZero() {
						began = w.now
						w.PodComesBack("a-0")
					}
				}
			}}
			w.startUpdate(p, o)
			w.wait()
			if p.err == nil || !strings.Contains(p.err.Error(), "net-operator-") || w.now.Sub(began) > 5*time.Minute {
				t.Errorf("it came at %s, force %v: it ended after %s: %v", step, force, w.now.Sub(began), p.err)
			}
			w.release()
			w.sound(t)
		}
	}
}
