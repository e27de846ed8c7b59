package invariant

import (
	"testing"
	"time"
)

// TestStepPromises: a step that is reported done in a world which shows the contrary is a breach,
// and one that the world showed at any moment of the step is none.
func TestStepPromises(t *testing.T) {
	for _, c := range []struct {
		step   string
		kept   func(*State)
		broken func(*State)
	}{
		{"protect", func(s *State) { s.Nodes[0].Annotations[annotationProtect] = "true" }, func(s *State) { delete(s.Nodes[0].Annotations, annotationProtect) }},
		{"drain", nil, func(s *State) { s.Pods = append(s.Pods, Pod{Name: "default/web", Node: "n0"}) }},
		{"drain", nil, func(s *State) { s.Nodes[0].Taints = nil }},
		{"hold", nil, func(s *State) { s.Machines[0].Service = true }},
		{"release", func(s *State) { s.Machines[0].Service = true }, func(s *State) { s.Machines[0].Service = false }},
		{"seal", func(s *State) { s.Machines[0].Sealed = "run" }, func(s *State) {
			s.Machines[0].Sealed = "earlier"
			delete(s.Nodes[0].Annotations, annotationReceipt)
		}},
		{"stop", func(s *State) { s.Machines[0].Power = Off }, func(s *State) { s.Machines[0].Power = Between }},
		{"snapshot", nil, func(s *State) { s.Artifacts[3].Ready = false }},
		{"snapshot", nil, func(s *State) { s.Artifacts[3].Run = "another" }},
		{"start", func(s *State) { s.Machines[0].Power, s.Machines[0].Touched, s.Machines[0].Kubelet = On, "", true }, func(s *State) { s.Machines[0].Kubelet = false }},
		{"return", rest, nil},
		{"clean", func(s *State) { s.Artifacts[3].State = "Deleting" }, func(s *State) { s.Artifacts[3].State = "Succeeded" }},
		{"gallery", func(s *State) { s.Artifacts = append(s.Artifacts, Artifact{Kind: Gallery, State: "Succeeded"}) }, nil},
		{"image", func(s *State) { s.Leases[0].Version = s.Artifacts[0].Name }, func(s *State) { s.Leases[0].Version = "2026.03.11" }},
		{"model", func(s *State) { s.Leases[0].Version, s.Pools[0].Image = s.Artifacts[0].Name, s.Artifacts[0].ID },
			func(s *State) { s.Leases[0].Version, s.Pools[0].Image = s.Artifacts[0].Name, "another" }},
	} {
		t.Run(c.step, func(t *testing.T) {
			with := func(change func(*State)) *State {
				s := sound()
				if change != nil {
					change(s)
				}
				return s
			}
			reports := func(during func(*State)) []Violation {
				var a Auditor
				a.Changed(sound()) // where the mark stands
				a.StepBegun(with(c.broken), "p", c.step, "run")
				if during != nil {
					a.follow(with(during))
				}
				a.StepDone(with(c.broken), "p", c.step, "run")
				var out []Violation
				for _, v := range a.Violations() {
					if v.ID == "I15" {
						out = append(out, v)
					}
				}
				return out
			}
			kept := c.kept
			if kept == nil {
				kept = func(*State) {}
			}
			if v := reports(kept); len(v) > 0 {
				t.Errorf("shown meanwhile: %v", v)
			}
			if v := reports(nil); len(v) != 1 {
				t.Errorf("never shown: %v", v)
			}
		})
	}
}

// TestStepOfNobody: of a donor that is no more nobody can want anything.
func TestStepOfNobody(t *testing.T) {
	gone := sound()
	gone.Now = gone.Now.Add(time.Hour)
	gone.Machines, gone.Nodes, gone.Pods = gone.Machines[1:], gone.Nodes[1:], nil
	var a Auditor
	a.Changed(sound())
	for _, step := range []string{"protect", "drain", "seal", "stop", "start", "return"} {
		a.StepBegun(gone, "p", step, "run")
		a.StepDone(gone, "p", step, "run")
	}
	for _, v := range a.Violations() {
		if v.ID == "I15" {
			t.Error(v)
		}
	}
}
