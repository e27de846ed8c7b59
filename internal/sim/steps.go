package sim

import (
	"fmt"

	"kamino.dev/kamino"
)

// watch tells the auditor of the steps that a process, or a thread of one, says it is in (I15).
func (p *proc) watch(ev kamino.Event) {
	who := p.name
	if p.parent != nil {
		who = fmt.Sprintf("%s, thread %d", p.name, p.thread)
	}
	a := &p.w.audit
	switch ev.Kind {
	case kamino.EventStarted:
		a.judge.StepBegun(a.picture(&a.is), who, ev.Step, ev.Run)
	case kamino.EventDone:
		if p.w.vanishing() {
			return // the world showed nothing
		}
		a.judge.StepDone(a.picture(&a.is), who, ev.Step, ev.Run)
	}
}
