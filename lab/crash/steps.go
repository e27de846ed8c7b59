package crash

import (
	"slices"
	"strings"

	"kamino.dev/kamino"
	"kamino.dev/kamino/internal/invariant"
)

// postconditions say what the world must have shown, at any moment of a step,
// before the step may be called done (I15). Steps that only read have none.
var postconditions = map[string]func(*World) bool{
	"lock":    func(w *World) bool { return w.lease().Holder != "" },
	"protect": func(w *World) bool { return w.donorGone() || w.donorNode().Annotations[kamino.AnnotationProtect] != "" },
	"drain": func(w *World) bool {
		n := w.donorNode()
		return w.donorGone() || slices.Contains(n.Taints, kamino.TaintBlock) && !slices.ContainsFunc(w.state.Pods, func(p invariant.Pod) bool {
			return p.Node == n.Name && !p.Stays
		})
	},
	"seal":     func(w *World) bool { return w.donorGone() || w.donorNode().Annotations[kamino.AnnotationReceipt] != "" },
	"stop":     func(w *World) bool { return w.donorGone() || w.donorMachine().Power == invariant.Off },
	"snapshot": func(w *World) bool { return w.has(invariant.Snapshot, "Succeeded") },
	"return":   func(w *World) bool { return w.donorGone() || w.donorNode().Annotations[kamino.AnnotationRun] == "" },
	"image":    func(w *World) bool { return w.has(invariant.Version, "Succeeded") },
	"clean":    func(w *World) bool { return !w.has(invariant.Snapshot, "") || w.has(invariant.Snapshot, "Deleting") },
	"model": func(w *World) bool {
		return slices.ContainsFunc(w.state.Pools, func(p invariant.Pool) bool { return strings.Contains(p.Image, "/galleries/") })
	},
}

func (w *World) lease() invariant.Lease {
	for _, l := range w.state.Leases {
		return l
	}
	return invariant.Lease{}
}

func (w *World) donorNode() invariant.Node {
	for _, n := range w.state.Nodes {
		if n.Name == w.donor {
			return n
		}
	}
	return invariant.Node{}
}

func (w *World) donorMachine() invariant.Machine {
	n := w.donorNode()
	for _, m := range w.state.Machines {
		if m.ID == n.ProviderID {
			return m
		}
	}
	return invariant.Machine{}
}

// donorGone: its node or machine is no more.
func (w *World) donorGone() bool { return w.donorNode().Name == "" || w.donorMachine().ID == "" }

// has tells whether there is an artifact of ours in a state; "" is any.
func (w *World) has(kind invariant.Kind, state string) bool {
	return slices.ContainsFunc(w.state.Artifacts, func(a invariant.Artifact) bool {
		return a.Kind == kind && a.Ours && (state == "" || a.State == state)
	})
}

// watchSteps notes which processes' steps are as their postconditions want. mu is held.
func (w *World) watchSteps() {
	for _, p := range w.processes {
		p.mu.Lock()
		if post := postconditions[p.step]; !p.held && (post == nil || post(w)) {
			p.held = true
		}
		p.mu.Unlock()
	}
}

// stepDone checks a step that a process calls done.
func (w *World) stepDone(p *Process, step string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.refresh()
	w.watchSteps()
	p.mu.Lock()
	held := p.held
	p.mu.Unlock()
	w.audit.Step(p.Name, step, held)
}
