package sim

import (
	"context"
	"errors"
	"strings"
	"testing"

	"kamino.dev/kamino"
	"kamino.dev/kamino/engine"
)

// fitting is a provider that knows more of machines and images.
type fitting struct {
	simProvider
	refusals []kamino.Refusal
	doubts   []kamino.Warning
	asked    *int
}

func (f fitting) Fit(context.Context, kamino.Pool, kamino.Instance, *kamino.Artifact) ([]kamino.Refusal, []kamino.Warning, error) {
	*f.asked++
	return f.refusals, f.doubts, nil
}

func (f fitting) Preflight(context.Context) ([]kamino.Warning, error) { return f.doubts, nil }

// TestFitRefusesBeforeAnythingIsTouched: what the provider knows to be in the way
// of the image ends a run in validate, and another donor may be tried.
func TestFitRefusesBeforeAnythingIsTouched(t *testing.T) {
	w := aged(1)
	w.tracing = true
	asked, p := 0, &proc{}
	p.tune = func(e *engine.Engine) {
		e.Provider = fitting{simProvider{p}, []kamino.Refusal{{Code: "fit", Field: "diskControllerType", Value: "NVMe", Why: "w", Do: "d"}}, nil, &asked}
	}
	w.startUpdate(p, options("a-0"))
	w.wait()
	var refused *kamino.RefusedError
	if !errors.As(p.err, &refused) || refused.Refusals[0].Field != "diskControllerType" || asked != 1 {
		t.Errorf("asked %d times, got %v, want it refused, and another donor to be tried", asked, p.err)
	}
	n := w.nodes["a-0"]
	if l := w.leases[poolA]; l.Holder != "" || n.Annotations[kamino.AnnotationRun] != "" || len(n.Taints) > 0 {
		t.Errorf("something was touched: lease %+v, annotations %v, taints %v", l, n.Annotations, n.Taints)
	}
}

// TestDefinitionThatDoesNotFit is found out in validate too.
func TestDefinitionThatDoesNotFit(t *testing.T) {
	w := aged(1)
	w.artifacts[artifactKey(poolA, kamino.KindDefinition, kamino.DefinitionName("a"))].SecurityType = "TrustedLaunch"
	p := w.update(options("a-0"))
	var step *kamino.StepError
	if !errors.As(p.err, &step) || step.Step != "validate" || !strings.Contains(p.err.Error(), "can never be changed") {
		t.Errorf("got %v, want a refusal of validate", p.err)
	}
}

// TestDoubtsAreTold: what cannot be found out is a warning, told once, and the run
// goes on.
func TestDoubtsAreTold(t *testing.T) {
	w := untagged(1)
	asked, p, told := 0, &proc{}, []kamino.Event{}
	p.tune = func(e *engine.Engine) {
		e.Provider = fitting{simProvider{p}, nil, []kamino.Warning{{Found: "locks are not known"}}, &asked}
		report := e.Report
		e.Report = func(ev kamino.Event) {
			if ev.Kind == kamino.EventWarning {
				told = append(told, ev)
			}
			if report != nil {
				report(ev)
			}
		}
	}
	w.startUpdate(p, options("a-0"))
	w.wait()
	if p.err != nil || len(told) != 1 || told[0].Message != "locks are not known" || told[0].Step != "connect" {
		t.Errorf("got %v and warnings %v, want one and a run that ends well", p.err, told)
	}
}
