package sim

import (
	"fmt"
	"slices"
	"strings"

	"kamino.dev/kamino"
	"kamino.dev/kamino/engine"
	"kamino.dev/kamino/internal/sim/mutants"
)

// Defect is a known bad behaviour that tests must notice. It is put around the ports of an engine,
// or it is a mutant: a patch of the engine itself.
type Defect struct {
	Name string
	Like string // the original's defect that it translates, "" when it is another
	What string
	By   string // the invariant that must find it; "" any
	Work string // the command that it spoils, "" an update
	Sim  bool   // what it needs is in this package's world only

	ports func() *tampering // what it does to the ports, fresh for every process; nil for a mutant
}

// Defects lists the defects of the ports and the engine's mutants. The mutants are there in
// binaries only that were built with the overlay of package mutants.
func Defects() []Defect {
	out := slices.Clone(portDefects)
	for _, m := range mutants.All() {
		if m.In != "" { // the provider's own tests notice it
			continue
		}
		out = append(out, Defect{Name: m.Name, Like: m.Like, What: m.What, By: m.By, Work: m.Work, Sim: m.Sim})
	}
	slices.SortStableFunc(out, func(a, b Defect) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// switchedOn is the defect that all engines have; nil, as a rule, none.
var switchedOn *Defect

// Switch switches one defect on and all others off; nil switches all off. It must not be called
// while an engine runs.
func Switch(d *Defect) error {
	switchedOn = d
	mutant := ""
	if d != nil && d.ports == nil {
		mutant = d.Name
	}
	if err := mutants.Switch(mutant); err != nil {
		return fmt.Errorf("defect %s: %w", d.Name, err)
	}
	return nil
}

// Tamper puts the defect that is switched on, if it is one of the ports, around those of an engine
// that is about to be used by a process of its own.
func Tamper(e *engine.Engine) {
	if switchedOn != nil && switchedOn.ports != nil {
		switchedOn.ports().around(e)
	}
}

// around puts a tampering around the ports of an engine.
func (t *tampering) around(e *engine.Engine) {
	t.process = e.Process
	prover, _ := e.Provider.(kamino.Prover)
	examiner, _ := e.Cluster.(kamino.Examiner)
	patcher, _ := e.Cluster.(kamino.Patcher)
	holder, _ := e.Provider.(kamino.Standby)
	provider := faultyProvider{e.Provider, prover, t}
	if e.Provider = provider; holder != nil {
		e.Provider = faultyHolder{provider, holder}
	}
	e.Cluster = faultyCluster{e.Cluster, examiner, patcher, t}
	if t.clock != 0 || t.wall {
		e.Clock = wrongClock{e.Clock, t}
	}
}
