package sim

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"kamino.dev/kamino"
	"kamino.dev/kamino/engine"
	"kamino.dev/kamino/poolstate"
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
		var plan *poolstate.Plan
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
			p := &proc{tune: func(e *engine.Engine) {
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

// TestJobThatTolerates: the drain waits for a Job's pod that tolerates the block, and evicts it
// never. One that comes after the drain ends the run before the seal.
func TestJobThatTolerates(t *testing.T) {
	for step, ends := range map[string]bool{"rehearse": true, "drain": true, "seal": false} {
		w, began := aged(1), time.Time{}
		p := &proc{tune: func(e *engine.Engine) {
			report := e.Report
			e.Report = func(ev kamino.Event) {
				report(ev)
				if ev.Step != step || !began.IsZero() {
					return
				}
				began = w.now
				pod := &simPod{Pod: kamino.Pod{Namespace: "default", Name: "backup"}, node: "a-0", comes: true, job: true}
				w.pods = append(w.pods, pod)
				w.after(20*time.Minute, func() {
					w.pods = slices.DeleteFunc(w.pods, func(o *simPod) bool { return o == pod })
					w.happened("pod %s has done its work", pod)
				})
			}
		}}
		w.startUpdate(p, options("a-0"))
		w.wait()
		if took := w.now.Sub(began); (p.err == nil) != ends || ends && took < 20*time.Minute {
			t.Errorf("it came at %s: the run ended after %s: %v", step, took, p.err)
		}
		w.release()
		w.sound(t)
	}
}

// TestRefusedByTheDozen: candidates that are refused for their own volumes and pods are no tries.
// The first that is not refused becomes the donor, in the plan and in the run.
func TestRefusedByTheDozen(t *testing.T) {
	const last = 11
	for name, strike := range map[string]func(*world, string){
		"volumes": (*world).BindVolume, "pods": (*world).PodComesBack,
		"other pods": func(w *world, node string) {
			w.pods = append(w.pods, &simPod{Pod: kamino.Pod{Namespace: "default", Name: "bare-" + node}, node: node, bare: true})
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(1)
			w.addPool(poolA, last+1)
			for i := range last + 1 {
				node := fmt.Sprintf("a-%d", i)
				w.patch(node, w.now.Add(-time.Duration(i+1)*time.Hour).Format(time.RFC3339)) // the last is the worst
				if i < last {
					strike(w, node)
				}
			}
			w.advance(w.now.Add(time.Hour))
			var plans []poolstate.PoolPlan
			planned := &proc{}
			w.spawn(planned, func(ctx context.Context) { plans, planned.err = planned.engine().PlanPools(ctx, autoOptions()) })
			w.wait()
			p, results := w.auto(autoOptions())
			if planned.err != nil || len(plans) != 1 || len(results) != 1 {
				t.Fatalf("%+v, %v; %+v, %v", plans, planned.err, results, p.err)
			}
			if name == "other pods" {
				if tried := len(results[0].Failed); p.err == nil || tried != 3 {
					t.Errorf("%d candidates were tried, and it ended %v", tried, p.err)
				}
				return
			}
			if want := fmt.Sprintf("a-%d", last); plans[0].Donor != want || p.err != nil || results[0].Donor != want || len(results[0].Failed) != last {
				t.Errorf("the donor is %q in the plan (%v), and %q in the run after %d others, which ended %v; want %s",
					plans[0].Donor, plans[0].Held, results[0].Donor, len(results[0].Failed), p.err, want)
			}
		})
	}
}
