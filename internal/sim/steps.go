package sim

import "kamino.dev/kamino"

// claim is a step that a process says it is in: whether the world has shown
// what the step promises at any moment since it began.
type claim struct {
	step, run string
	held      bool
}

// watch checks that a step which a process reports as done was so (I15).
func (p *proc) watch(ev kamino.Event) {
	switch ev.Kind {
	case kamino.StepStarted:
		p.claim = claim{step: ev.Step, run: ev.Run}
		p.claim.held = p.w.holds(p.claim)
	case kamino.StepDone:
		p.claim.run = ev.Run // the lock step learns it
		if p.claim.step == ev.Step {
			p.w.audit.judge.Step(p.name, ev.Step, p.claim.held || p.w.holds(p.claim))
		}
		p.claim = claim{}
	}
}

// claims looks at the claims of all processes after every change.
func (w *world) claims() {
	for _, p := range w.procs {
		if p.claim.step != "" && !p.claim.held {
			p.claim.held = w.holds(p.claim)
		}
	}
}

// holds says whether a step of the run has reached what it is for. The world
// knows every donor by the mark that its run wrote.
func (w *world) holds(c claim) bool {
	switch c.step {
	case "image", "model", "clean", "gallery", "definition":
		return w.cloudHolds(c)
	}
	donor, marked := w.donors[c.run]
	n := w.nodes[donor.node]
	m := w.machines[donor.machine]
	here := n != nil && m != nil && m.VMID == donor.vm && n.SystemUUID == donor.vm
	switch c.step {
	case "protect":
		return marked && n != nil && n.Annotations[kamino.AnnotationProtect] == "true" && n.Annotations[kamino.AnnotationRun] != ""
	case "drain":
		for _, p := range w.pods {
			if p.node == donor.node && !p.daemon {
				return false
			}
		}
		return !here || n.Tainted(kamino.TaintBlock)
	case "seal":
		if n != nil {
			if receipt, ok := n.Receipt(); ok && receipt.Run == c.run {
				return true // whether it still is true, the next steps find out
			}
		}
		return m != nil && m.sealed == c.run
	case "stop":
		return m != nil && m.Power == kamino.PowerOff
	case "snapshot":
		s := w.artifacts[artifactKey(poolA, kamino.Snapshot, kamino.SnapshotName(poolA.Name()))]
		return s != nil && s.State == kamino.Succeeded && s.Ready && s.Tags[kamino.TagRun] == c.run
	case "start":
		if n != nil {
			if mark, err := n.Mark(); err == nil && mark != nil && mark.Run != c.run {
				return true // another run has the node now
			}
		}
		gone := m == nil || m.VMID != donor.vm
		return !marked || gone || m.Power == kamino.PowerOn && m.touched == "" && m.kubelet
	case "return":
		for _, n := range w.nodes {
			if w.markedBy(n, c.run) {
				return false
			}
		}
	}
	return true
}

func (w *world) cloudHolds(c claim) bool {
	made := func(kind kamino.Kind, name string) bool {
		a := w.artifacts[artifactKey(poolA, kind, name)]
		return a != nil && a.State == kamino.Succeeded
	}
	switch c.step {
	case "gallery":
		return made(kamino.Gallery, galleryA)
	case "definition":
		return made(kamino.Definition, kamino.DefinitionName(poolA.Name()))
	case "clean":
		s := w.artifacts[artifactKey(poolA, kamino.Snapshot, kamino.SnapshotName(poolA.Name()))]
		// Another run's stays, and the step says so.
		return s == nil || s.State == kamino.Deleting || w.now.Before(s.hidden) || s.Tags[kamino.TagRun] != c.run
	}
	// The version of the run stands on the lease.
	name := w.standing(poolA).Record.Version
	if w.standing(poolA).Holder != c.run || name == "" {
		return true
	}
	v := w.artifacts[artifactKey(poolA, kamino.Version, name)]
	if c.step == "model" {
		return v != nil && w.pools[poolA].image == v.ID
	}
	return v != nil && v.State == kamino.Succeeded && v.Ready
}

// donor is what a run marked.
type donor struct {
	node, vm string
	machine  kamino.InstanceID
}
