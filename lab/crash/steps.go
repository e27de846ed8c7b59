package crash

import (
	"slices"

	"kamino.dev/kamino"
	"kamino.dev/kamino/internal/invariant"
)

// hear follows the steps of the pipeline, and tells the auditor of them (I15).
func (p *Process) hear(ev kamino.Event) {
	w := p.world
	switch ev.Kind {
	case kamino.EventStarted:
		p.mu.Lock()
		p.step = ev.Step
		p.mu.Unlock()
		w.claim((*invariant.Auditor).StepBegun, p, ev)
	case kamino.EventDone:
		if w.clock.Now().Before(w.vanished) {
			break // the world showed nothing
		}
		w.claim((*invariant.Auditor).StepDone, p, ev)
	}
	w.trace("%s %s %s: %s", p.Name, ev.Step, ev.Kind, ev.Message)
}

func (w *World) claim(tell func(*invariant.Auditor, *invariant.State, string, string, string), p *Process, ev kamino.Event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.refresh()
	tell(&w.audit, &w.state, p.Name, ev.Step, ev.Run)
}

// look shows the auditor the world as it stands.
func (w *World) look() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.refresh()
	w.audit.Changed(&w.state)
}

func (w *World) lease() invariant.Lease {
	for _, l := range w.state.Leases {
		return l
	}
	return invariant.Lease{}
}

// donorGone: its node or machine is no more.
func (w *World) donorGone() bool {
	i := slices.IndexFunc(w.state.Nodes, func(n invariant.Node) bool { return n.Name == w.donor })
	return i < 0 || !slices.ContainsFunc(w.state.Machines, func(m invariant.Machine) bool { return m.ID == w.state.Nodes[i].ProviderID })
}
