package invariant

import (
	"encoding/json"
	"strings"
)

// claim is a step that a process says it is in: whether the world has shown what the step promises
// at any moment since it began.
type claim struct {
	step, run string
	held      bool
}

// donor is what a run marked.
type donor struct{ node, machine, vm string }

// StepBegun tells that a process began a step of a run; run may be "" until it is known.
// who is the process, or its thread: each is in one step at a time.
func (a *Auditor) StepBegun(s *State, who, step, run string) {
	a.init()
	a.observe(s)
	a.claims[who] = &claim{step: step, run: run, held: a.holds(s, step, run)}
}

// StepDone checks the step that a process began and reports as done (I15).
func (a *Auditor) StepDone(s *State, who, step, run string) {
	a.init()
	a.observe(s)
	if c := a.claims[who]; c != nil && c.step == step {
		a.Step(who, step, c.held || a.holds(s, step, run))
	}
	delete(a.claims, who)
}

// follow looks at the claims of all processes after every change.
func (a *Auditor) follow(s *State) {
	for _, c := range a.claims {
		c.held = c.held || a.holds(s, c.step, c.run)
	}
}

// holds says whether a step of a run has reached what it is for. Steps that only read promise
// nothing, and of a donor that is no more nobody can want anything.
func (a *Auditor) holds(s *State, step, run string) bool {
	if promise := promises[step]; promise != nil {
		return promise(s, run)
	}
	d, marked := a.whose[run]
	n, m := s.node(d.node), s.machine(d.machine)
	here := n != nil && m != nil && m.VM == d.vm && n.SystemUUID == d.vm
	switch step {
	case "protect":
		return marked && (!here || n.Annotations[annotationProtect] != "" && n.Annotations[annotationRun] != "")
	case "drain":
		for _, p := range s.Pods {
			if p.Node == d.node && !p.Stays {
				return !here
			}
		}
		return !here || n.blocked()
	case "hold":
		return marked && (!here || !m.Service)
	case "release":
		if n != nil {
			if mark, ok := a.markOf(n); ok && mark.Run != run {
				return true // another run has the node now
			}
		}
		return !marked || m == nil || m.VM != d.vm || m.Service
	case "seal":
		// Whether the receipt still is true, the next steps find out.
		return marked && !here || n != nil && receiptOf(n) == run || m != nil && m.Sealed == run
	case "stop":
		return marked && !here || m != nil && m.Power == Off
	case "start":
		if n != nil {
			if mark, ok := a.markOf(n); ok && mark.Run != run {
				return true // another run has the node now
			}
		}
		return !marked || m == nil || m.VM != d.vm || m.Power == On && (m.Touched == "" && (m.Kubelet || m.Reboots) || n != nil && n.kept())
	case "return":
		return !a.marked(s, run)
	}
	return true
}

// promises are those that need no donor.
var promises = map[string]func(s *State, run string) bool{
	"gallery":    func(s *State, _ string) bool { return s.made(Gallery) },
	"definition": func(s *State, _ string) bool { return s.made(Definition) },
	"snapshot": func(s *State, run string) bool {
		v := s.snapshotOf(run)
		return v != nil && v.State == "Succeeded" && v.Ready
	},
	// Another run's stays, and the step says so.
	"clean": func(s *State, run string) bool {
		v := s.snapshotOf(run)
		return v == nil || v.State == "Deleting"
	},
	"image": func(s *State, run string) bool {
		l := s.heldBy(run)
		if l == nil || l.Version == "" {
			return true
		}
		v := s.version(l.Pool, l.Version)
		return v != nil && v.State == "Succeeded" && v.Ready
	},
	"model": func(s *State, run string) bool {
		l := s.heldBy(run)
		if l == nil || l.Version == "" {
			return true
		}
		v, p := s.version(l.Pool, l.Version), s.pool(l.Pool)
		return v != nil && p != nil && (p.Owned || equalID(p.Image, v.ID) || equalID(p.Next, v.ID))
	},
}

// marked says whether a run has left its mark on any node.
func (a *Auditor) marked(s *State, run string) bool {
	for i := range s.Nodes {
		n := &s.Nodes[i]
		m, ok := a.markOf(n)
		if ok && m.Run == run && !a.IsForged(n.Name, n.Annotations[annotationRun]) {
			return true
		}
		if !ok && n.blocked() && n.Name == a.whose[run].node {
			return true
		}
	}
	return false
}

// receiptOf is the run whose receipt a node carries.
func receiptOf(n *Node) string {
	var receipt struct {
		Run string `json:"run"`
	}
	_ = json.Unmarshal([]byte(n.Annotations[annotationReceipt]), &receipt) // no receipt, no run
	return receipt.Run
}

// heldBy is the lease that a run holds; nil when it holds none.
func (s *State) heldBy(run string) *Lease {
	for i := range s.Leases {
		if s.Leases[i].Holder == run && run != "" {
			return &s.Leases[i]
		}
	}
	return nil
}

func (s *State) made(kind Kind) bool {
	for i := range s.Artifacts {
		if s.Artifacts[i].Kind == kind && s.Artifacts[i].State == "Succeeded" {
			return true
		}
	}
	return false
}

// snapshotOf is the snapshot that a run made.
func (s *State) snapshotOf(run string) *Artifact {
	for i := range s.Artifacts {
		if v := &s.Artifacts[i]; v.Kind == Snapshot && v.Run == run {
			return v
		}
	}
	return nil
}

func (s *State) version(pool, name string) *Artifact {
	for i := range s.Artifacts {
		if v := &s.Artifacts[i]; v.Kind == Version && v.Name == name && strings.EqualFold(v.Pool, pool) {
			return v
		}
	}
	return nil
}
