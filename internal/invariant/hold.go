package invariant

// heldWhileOff: I31 at every moment, in pools that replace what is off in service.
func heldWhileOff(a *Auditor, s *State) {
	for i := range s.Machines {
		m := &s.Machines[i]
		if p := s.pool(m.Pool); p != nil && p.Replaces && m.Power == Off && m.Service && !m.Served {
			a.Violate("I31", "machine %s is off and in service: its pool replaces it", m.ID)
		}
	}
}

// readyBeforeService: I31 before calls.
func readyBeforeService(a *Auditor, s *State, c Call) {
	if n := s.node(c.Node); c.Verb == Seal && n != nil {
		if m := s.behind(n); m != nil && m.Service && s.pool(m.Pool) != nil && s.pool(m.Pool).Replaces {
			a.Violate("I31", "%s seals the disk of machine %s, which is in service", c.Process, m.ID)
		}
	}
	m := s.machine(c.Machine)
	if m != nil && m.Power == On && m.Touched == "" {
		// A node that others have just rebooted is Ready until its kubelet was silent long enough.
		if n := s.on(m); n != nil && s.Now.Sub(a.changed[n.Name]) <= unseen {
			return
		}
	}
	if c.Verb == Release && m != nil && (m.Power != On || !m.Kubelet || m.Touched != "") {
		a.Violate("I31", "%s puts machine %s back in service: power %s, kubelet %v, disk touched by %q", c.Process, m.ID, m.Power,
			m.Kubelet, m.Touched)
	}
}

// nothingHeld: I31 in the end.
func nothingHeld(a *Auditor, s *State) {
	for i := range s.Machines {
		if m := &s.Machines[i]; !m.Service && s.pool(m.Pool) != nil && s.pool(m.Pool).Replaces {
			a.Violate("I31", "machine %s stays out of service", m.ID)
		}
	}
	for i := range s.Pools {
		if p := &s.Pools[i]; p.Suspended {
			a.Violate("I31", "what was suspended in pool %s stays so", p.ID)
		}
	}
}
