package invariant

import "strings"

// noCanary: I29.
func noCanary(a *Auditor, s *State) {
	for _, c := range s.Canaries {
		a.Violate("I29", "canary %s of run %s is left", c.Name, c.Run)
	}
	for i := range s.Nodes {
		if n := &s.Nodes[i]; strings.HasPrefix(n.Name, "kamino-") {
			a.Violate("I29", "node %s of a canary is left", n.Name)
		}
	}
}

// oneSound: I30.
func oneSound(a *Auditor, s *State) {
	for _, p := range s.Pools {
		image := p.Next
		if image == "" {
			image = p.Image
		}
		if was, known := a.next[p.ID]; !known || equalID(was, image) {
			a.next[p.ID] = image
			continue
		}
		a.next[p.ID] = image
		v, run := s.artifact(Version, image), s.lease(p.ID).Holder
		if v == nil {
			continue
		}
		if v.Unfit {
			a.Violate("I30", "pool %s boots from version %s, whose canary was bad", p.ID, v.Name)
		}
		if v.Left {
			a.Violate("I30", "pool %s boots from version %s, which is left to a person", p.ID, v.Name)
		}
		if run == "" || v.Run != run {
			continue // a way back, or what an earlier run had made
		}
		if first := a.promoted[run]; first != "" && first != v.Name {
			a.Violate("I30", "run %s promotes version %s, and had promoted %s", run, v.Name, first)
		}
		a.promoted[run] = v.Name
	}
}
