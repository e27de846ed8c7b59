package invariant

import (
	"slices"
	"testing"
	"time"
)

const (
	pool   = "/pools/a"
	image1 = "/galleries/g/images/i/versions/2026.3.9"
	image2 = "/galleries/g/images/i/versions/2026.03.10"
	image0 = "/galleries/g/images/i/versions/2026.03.01"
	snap   = "/snapshots/s"
)

// sound is a world in which a run has its donor off, sealed and blocked, and
// everything is as it should be.
func sound() *State {
	return &State{
		Now:   time.Date(2026, 3, 10, 10, 0, 0, 0, time.UTC),
		Pools: []Pool{{ID: pool, Image: image1, Revision: "7", Capacity: 2}},
		Machines: []Machine{
			{ID: "m0", VM: "vm0", Pool: pool, Power: Off, Touched: "run", Sealed: "run", Receipt: "hash", Disk: "disk0"},
			{ID: "m1", VM: "vm1", Pool: pool, Power: On, Kubelet: true, Disk: "disk1", Image: image1},
		},
		Nodes: []Node{
			{Name: "n0", ProviderID: "m0", SystemUUID: "vm0", Pool: pool, Taints: []string{taintBlock},
				Annotations: map[string]string{annotationRun: `{"run":"run","vmId":"vm0","sealing":true,"begun":true}`, annotationProtect: "true"}},
			{Name: "n1", ProviderID: "m1", SystemUUID: "vm1", Pool: pool, Ready: true},
		},
		Artifacts: []Artifact{
			{Kind: Version, Pool: pool, Name: "2026.03.01", ID: image0, State: "Succeeded", Ready: true, Ours: true, Run: "r1"},
			{Kind: Version, Pool: pool, Name: "2026.02.01", ID: image0 + "x", State: "Succeeded", Ready: true, Ours: true, Run: "r0"},
			{Kind: Version, Pool: pool, Name: "2026.3.9", ID: image1, State: "Succeeded", Ready: true, Ours: true, Run: "r2"},
			{Kind: Snapshot, Pool: pool, Name: "s", ID: snap, State: "Succeeded", Ready: true, Ours: true, Run: "run", Receipt: "hash", Source: "disk0"},
		},
		Leases: []Lease{{Pool: pool, Holder: "run", Process: "p", Epoch: 3, Acts: []string{"anything"}, DonorVM: "vm0", Former: image0, Original: "canonical"}},
		Pods:   []Pod{{Name: "kube-system/proxy", Node: "n0", Stays: true}, {Name: "default/web", Node: "n1"}},
	}
}

// at is the sound world with something changed.
func at(change func(*State)) *State {
	s := sound()
	change(s)
	return s
}

func intent(text string) *State {
	return at(func(s *State) { s.Leases[0].Acts = []string{text} })
}

// broken breaks each invariant in one way or more; none may break another.
var broken = []struct {
	id, how string
	do      func(*Auditor)
}{
	{"I1", "a machine stays off", func(a *Auditor) {
		a.Settled(at(func(s *State) { rest(s); s.Machines[0].Power = Off }))
	}},
	{"I1", "a node stays blocked", func(a *Auditor) {
		a.Settled(at(func(s *State) { rest(s); s.Nodes[0].Taints = []string{taintBlock} }))
	}},
	{"I1", "back too late", func(a *Auditor) {
		s := sound()
		a.Changed(s)
		rest(s)
		s.Now = s.Now.Add(time.Hour)
		a.Changed(s)
		a.Restored(sound().Now.Add(time.Minute), 20*time.Minute)
	}},
	{"I2", "away without block", func(a *Auditor) { a.Changed(at(func(s *State) { s.Nodes[0].Taints = nil })) }},
	{"I2", "switched off without block", func(a *Auditor) {
		a.Before(at(func(s *State) { s.Leases[0].Acts = []string{"power-off"}; s.Nodes[0].Taints = nil }),
			Call{Process: "p", Verb: PowerOff, Pool: pool, Machine: "m0", SeenVM: "vm0"})
	}},
	{"I2", "unmarked too early", func(a *Auditor) {
		a.Before(intent("unmark-node"), Call{Process: "p", Verb: Unmark, Pool: pool, Node: "n0"})
	}},
	{"I3", "a foreign snapshot is deleted", func(a *Auditor) {
		a.Before(at(func(s *State) { s.Leases[0].Acts = []string{"delete-snapshot"}; s.Artifacts[3].Ours = false }),
			Call{Process: "p", Verb: DeleteArtifact, Pool: pool, Kind: Snapshot, Target: snap})
	}},
	{"I3", "a call uncordons", func(a *Auditor) {
		a.After(at(func(s *State) { s.Nodes[0].Unschedulable = true }), sound(), Call{Process: "p", Verb: Unmark, Pool: pool, Node: "n0"})
	}},
	{"I3", "a protection is not given back", func(a *Auditor) {
		s := at(func(s *State) { rest(s); s.Nodes[0].Annotations = map[string]string{annotationProtect: "false"} })
		a.Person(s, "n0")
		s.Nodes[0].Annotations = nil
		a.Settled(s)
	}},
	{"I4", "sealed with pods", func(a *Auditor) {
		a.Before(at(func(s *State) { s.Leases[0].Acts = []string{"seal-disk"}; s.Pods[1].Node = "n0" }),
			Call{Process: "p", Verb: Seal, Pool: pool, Node: "n0", Run: "run"})
	}},
	{"I4", "a snapshot of another receipt", func(a *Auditor) {
		a.Before(intent("create-snapshot"), Call{Process: "p", Verb: CreateSnapshot, Pool: pool,
			Made: Artifact{Kind: Snapshot, Source: "disk0", Run: "run", Receipt: "older"}})
	}},
	{"I4", "built from a snapshot of a disk in use", func(a *Auditor) {
		s := at(func(s *State) { s.Leases[0].Acts, s.Machines[0].Power = []string{"create-snapshot"}, Between })
		a.Before(s, Call{Process: "p", Verb: CreateSnapshot, Pool: pool, Raced: true,
			Made: Artifact{Kind: Snapshot, Name: "s", Source: "disk0", Run: "run", Receipt: "hash"}})
		if len(a.Violations()) == 0 {
			a.Before(intent("create-version"), Call{Process: "p", Verb: CreateVersion, Pool: pool, Made: made()})
		}
	}},
	{"I5", "built from half a snapshot", func(a *Auditor) {
		a.Before(at(func(s *State) { s.Leases[0].Acts = []string{"create-version"}; s.Artifacts[3].Ready = false }),
			Call{Process: "p", Verb: CreateVersion, Pool: pool, Made: made()})
	}},
	{"I5", "the model is pointed at a version that is not replicated", func(a *Auditor) {
		a.Before(at(func(s *State) {
			s.Leases[0].Acts, s.Leases[0].Former = []string{"write-model"}, image1
			s.Artifacts[0].Ready = false
		}), Call{Process: "p", Verb: SetModel, Pool: pool, Target: image0, Revision: "7"})
	}},
	{"I6", "the model's version fails", func(a *Auditor) {
		a.Changed(sound())
		a.Changed(at(func(s *State) { s.Artifacts[2].State = "Failed" }))
	}},
	{"I7", "the newest goes", func(a *Auditor) {
		a.Before(at(func(s *State) {
			s.Leases[0].Acts = []string{"delete-version"}
			s.Pools[0].Image = image0
			s.Machines[1].Image = ""
		}),
			Call{Process: "p", Verb: DeleteArtifact, Pool: pool, Kind: Version, Target: image1})
	}},
	{"I7", "the way back goes", func(a *Auditor) {
		a.Before(intent("delete-version"), Call{Process: "p", Verb: DeleteArtifact, Pool: pool, Kind: Version, Target: image0})
	}},
	{"I7", "on old knowledge", func(a *Auditor) {
		a.Before(intent("delete-version"), Call{Process: "p", Verb: DeleteArtifact, Pool: pool, Kind: Version, Target: image0 + "x", Checked: time.Minute})
	}},
	{"I8", "the former model is not saved", func(a *Auditor) {
		a.Before(intent("write-model"), Call{Process: "p", Verb: SetModel, Pool: pool, Target: image0, Revision: "7"})
	}},
	{"I8", "the original is lost", func(a *Auditor) {
		a.After(sound(), at(func(s *State) { s.Leases[0].Original = "" }), Call{Process: "p", Verb: SetLease, Pool: pool})
	}},
	{"I8", "the original is overwritten", func(a *Auditor) {
		a.After(sound(), at(func(s *State) { s.Leases[0].Original += "-other" }), Call{Process: "p", Verb: SetLease, Pool: pool})
	}},
	{"I9", "without the lease", func(a *Auditor) {
		a.Before(sound(), Call{Process: "q", Verb: Evict, Pool: pool, Node: "n0"})
	}},
	{"I9", "the epoch goes back", func(a *Auditor) {
		a.After(sound(), at(func(s *State) { s.Leases[0].Epoch = 2 }), Call{Process: "p", Verb: SetLease, Pool: pool})
	}},
	{"I10", "an unconditional write", func(a *Auditor) {
		a.Before(at(func(s *State) { s.Leases[0].Acts, s.Leases[0].Former = []string{"write-model"}, image1 }),
			Call{Process: "p", Verb: SetModel, Pool: pool, Target: image0})
	}},
	{"I10", "the size of machines is written", func(a *Auditor) {
		a.Before(at(func(s *State) { s.Leases[0].Acts, s.Leases[0].Former = []string{"write-model"}, image1 }),
			Call{Process: "p", Verb: SetModel, Pool: pool, Target: image0, Revision: "7", Fields: []string{"imageReference", "sku.capacity"}})
	}},
	{"I11", "two donors", func(a *Auditor) {
		a.Changed(at(func(s *State) { s.Nodes[1].Taints = []string{taintBlock} }))
	}},
	{"I12", "deleted past a budget", func(a *Auditor) {
		a.Before(intent("evict-pods"), Call{Process: "p", Verb: DeletePod, Pool: pool, Node: "n0", Pod: "default/x"})
	}},
	{"I12", "a pod of another node", func(a *Auditor) {
		a.Before(intent("evict-pods"), Call{Process: "p", Verb: Evict, Pool: pool, Node: "n0", Pod: "default/web"})
	}},
	{"I13", "no intent", func(a *Auditor) {
		a.Before(sound(), Call{Process: "p", Verb: PowerOn, Pool: pool, Machine: "m0", SeenVM: "vm0"})
	}},
	{"I13", "a snapshot is deleted where a seal pod was announced", func(a *Auditor) {
		a.Before(intent("delete-seal-pod"), Call{Process: "p", Verb: DeleteArtifact, Pool: pool, Kind: Snapshot, Target: snap})
	}},
	{"I14", "two seal pods", func(a *Auditor) {
		a.Changed(at(func(s *State) { s.SealPods = []SealPod{{Run: "run", Node: "n0"}, {Run: "run2", Node: "n0"}} }))
	}},
	{"I14", "the source of a build goes", func(a *Auditor) {
		a.Before(at(func(s *State) {
			s.Leases[0].Acts = []string{"delete-snapshot"}
			s.Artifacts = append(s.Artifacts, Artifact{Kind: Version, State: "Creating", Source: snap})
		}), Call{Process: "p", Verb: DeleteArtifact, Pool: pool, Kind: Snapshot, Target: snap})
	}},
	{"I15", "a step that never held", func(a *Auditor) { a.Step("p", "stop", false) }},
	{"I16", "a snapshot is left", func(a *Auditor) {
		a.Settled(at(func(s *State) { snapshot := s.Artifacts[3]; rest(s); s.Artifacts = append(s.Artifacts, snapshot) }))
	}},
	{"I16", "a snapshot is left two days after its lease was deleted", func(a *Auditor) {
		late := at(func(s *State) { snapshot := s.Artifacts[3]; rest(s); s.Artifacts = append(s.Artifacts, snapshot) })
		a.LeaseDeleted(pool, late.Now.Add(-48*time.Hour))
		a.Settled(late)
	}},
	{"I16", "an inventory's pod is left", func(a *Auditor) {
		a.Settled(at(func(s *State) { rest(s); s.AgentPods = []SealPod{{Run: "run", Node: "n0"}} }))
	}},
	{"I17", "an earlier number", func(a *Auditor) {
		m := made()
		m.Name = "2026.3.8"
		a.Before(intent("create-version"), Call{Process: "p", Verb: CreateVersion, Pool: pool, Made: m})
	}},
	{"I17", "the name of one that is gone", func(a *Auditor) {
		a.Changed(at(func(s *State) {
			s.Artifacts = append(s.Artifacts, Artifact{Kind: Version, Pool: pool, Name: "2026.03.10", ID: image2, State: "Succeeded", Run: "x"})
		}))
		a.Before(intent("create-version"), Call{Process: "p", Verb: CreateVersion, Pool: pool, Made: made()})
	}},
	{"I18", "too long", func(a *Auditor) { a.Ended("p", time.Hour, time.Minute) }},
	{"I19", "writes for nothing", func(a *Auditor) { a.Idle("p", 1) }},
	{"I20", "too early", func(a *Auditor) {
		a.Throttled("p", "instance", sound().Now.Add(time.Minute))
		a.Before(sound(), Call{Process: "p", Verb: Read, Bucket: "instance"})
	}},
	{"I23", "the machine was replaced", func(a *Auditor) {
		a.Before(intent("power-on"), Call{Process: "p", Verb: PowerOn, Pool: pool, Machine: "m0", SeenVM: "vm9"})
	}},
	{"I27", "credentials go elsewhere", func(a *Auditor) {
		a.Hosts = []string{"management.azure.com"}
		a.Request("example.com", true)
	}},
	{"I28", "a refused pool", func(a *Auditor) {
		refused := at(func(s *State) {
			s.Leases[0].Acts, s.Leases[0].Former, s.Pools[0].Refused = []string{"write-model"}, image1, true
		})
		a.Before(refused, Call{Process: "p", Verb: SetModel, Pool: pool, Target: image0, Revision: "7"})
	}},
	{"I29", "a canary is left", func(a *Auditor) {
		a.Settled(at(func(s *State) { rest(s); s.Canaries = []Canary{{Name: "kamino-00000000", Pool: pool, Run: "run"}} }))
	}},
	{"I29", "the node of a canary is left", func(a *Auditor) {
		a.Settled(at(func(s *State) { rest(s); s.Nodes = append(s.Nodes, Node{Name: "kamino-00000000000000"}) }))
	}},
	{"I30", "a bad image becomes the pool's", func(a *Auditor) {
		a.Changed(sound())
		a.Changed(at(func(s *State) { s.Pools[0].Image = image0; s.Artifacts[0].Unfit = true }))
	}},
	{"I30", "what is left to a person becomes the pool's", func(a *Auditor) {
		a.Changed(sound())
		a.Changed(at(func(s *State) { s.Pools[0].Image = image0; s.Artifacts[0].Left = true }))
	}},
	{"I30", "a run promotes two", func(a *Auditor) {
		moves := func(image string, artifact int) {
			a.Changed(at(func(s *State) {
				s.Pools[0].Image, s.Leases[0].Holder = image, "r9"
				s.Artifacts[artifact].Run = "r9"
			}))
		}
		a.Changed(sound())
		a.next[pool] = "elsewhere"
		moves(image1, 2)
		moves(image0, 0)
	}},
	{"I32", "patched without a word on the node", func(a *Auditor) {
		a.Before(at(func(s *State) {
			s.Leases[0].Acts, s.Nodes[0].Annotations = []string{"patch-node"}, map[string]string{annotationRun: `{"run":"run","vmId":"vm0"}`}
		}), Call{Process: "p", Verb: Patch, Pool: pool, Node: "n0", Run: "run"})
	}},
	{"I32", "signed unseen", func(a *Auditor) {
		a.Before(intent("sign-node"), Call{Process: "p", Verb: Sign, Pool: pool, Node: "n0", Run: "run"})
	}},
	{"I32", "not examined, and not blocked", func(a *Auditor) {
		a.Settled(at(func(s *State) { rest(s); s.Machines[0].Unseen = true }))
	}},
	{"I33", "off with a local volume", func(a *Auditor) {
		a.Changed(at(func(s *State) { s.Machines[0].Local = true }))
	}},
	{"I31", "off in service", func(a *Auditor) {
		a.Changed(at(func(s *State) { s.Pools[0].Replaces, s.Machines[0].Service = true, true }))
	}},
	{"I31", "sealed in service", func(a *Auditor) {
		a.Before(at(func(s *State) {
			s.Leases[0].Acts, s.Pools[0].Replaces, s.Machines[0].Service = []string{"seal-disk"}, true, true
		}), Call{Process: "p", Verb: Seal, Pool: pool, Node: "n0", Run: "run"})
	}},
	{"I31", "back in service before it is Ready", func(a *Auditor) {
		a.Before(at(func(s *State) { s.Leases[0].Acts, s.Machines[0].Power = []string{"release-node"}, On }), Call{Process: "p", Verb: Release, Pool: pool, Machine: "m0", SeenVM: "vm0"})
	}},
	{"I31", "stays out of service", func(a *Auditor) {
		a.Settled(at(func(s *State) { rest(s); s.Pools[0].Replaces, s.Machines[0].Service = true, true }))
	}},
	{"I31", "what was suspended stays so", func(a *Auditor) { a.Settled(at(func(s *State) { rest(s); s.Pools[0].Suspended = true })) }},
}

// rest brings the sound world to rest.
func rest(s *State) {
	s.Machines[0] = Machine{ID: "m0", VM: "vm0", Pool: pool, Power: On, Kubelet: true}
	s.Nodes[0].Annotations, s.Nodes[0].Taints, s.Nodes[0].Ready = nil, nil, true
	s.Artifacts = s.Artifacts[:3]
	s.Leases[0].Holder, s.Leases[0].Process = "", ""
}

func made() Artifact {
	return Artifact{Kind: Version, Pool: pool, Name: "2026.03.10", ID: image2, Source: snap, Run: "run", Receipt: "hash"}
}

// TestBroken: every invariant can be broken, and is then named alone.
func TestBroken(t *testing.T) {
	left := map[string]bool{}
	for _, i := range All {
		left[i.ID] = true
	}
	for _, b := range broken {
		a := &Auditor{}
		b.do(a)
		ids := map[string]bool{}
		for _, v := range a.Violations() {
			ids[v.ID] = true
		}
		if len(ids) != 1 || !ids[b.id] {
			t.Errorf("%s, %s: found %v", b.id, b.how, a.Violations())
		}
		delete(left, b.id)
	}
	for id := range left {
		t.Errorf("%s is never broken", id)
	}
}

// TestSound: a world in order breaks nothing, whatever is looked at.
func TestSound(t *testing.T) {
	a := &Auditor{MaxAway: 1}
	a.Changed(sound())
	for verb, acts := range intents {
		if verb == Unmark || verb == Release || verb == PowerOff || verb == DeletePod {
			continue // the donor of this world is away already
		}
		s := at(func(s *State) { s.Leases[0].Acts = append([]string{"something-else", "delete-version"}, acts...) })
		c := Call{Process: "p", Verb: verb, Pool: pool, Node: "n0", Run: "run", Machine: "m0", SeenVM: "vm0",
			Made: made(), Revision: "7", Instances: 3, Kind: Version, Target: image0 + "x"}
		if verb == CreateSnapshot {
			c.Made.Source = "disk0"
		}
		s.Machines[0].InOrder = verb == Sign
		if verb == SetModel {
			s.Leases[0].Former, c.Target = image1, image0
		}
		a.Before(s, c)
		a.After(s, s, c)
	}
	a.Settled(at(rest))
	if v := a.Violations(); len(v) > 0 {
		t.Error(v)
	}
	if spans := a.Spans(); len(spans) != 1 || spans[0].VM != "vm0" {
		t.Errorf("donors were away: %v", spans)
	}
}

func TestLater(t *testing.T) {
	names := []string{"not one", "2024.9.30", "2024.10.1", "2026.02.28", "2026.3.1", "2026.12.31", "2027.01.01"}
	for i, a := range names {
		for j, b := range names {
			if later(a, b) != (i > j) {
				t.Errorf("%s later than %s: %v", a, b, i <= j)
			}
		}
	}
	ids := make([]string, len(All))
	for i := range All {
		ids[i] = All[i].ID
		if All[i].Says == "" {
			t.Errorf("%s says nothing", ids[i])
		}
	}
	if slices.Sort(ids); len(slices.Compact(ids)) != 28 {
		t.Errorf("%d invariants, want I1 to I20, I23, I27 to I33", len(ids))
	}
}
