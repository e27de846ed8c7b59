package sim

import (
	"context"
	"time"

	"kamino.dev/kamino"
	"kamino.dev/kamino/internal/invariant"
	"kamino.dev/kamino/internal/worlds"
)

// audit shows the world to the invariants: its state at every change, a call
// before it takes effect.
type audit struct {
	w          *world
	judge      invariant.Auditor
	was, is    invariant.State
	wasLeases  invariant.State // leases only
	isLeases   invariant.State
	violations []string
	off        bool // where only the end of runs is looked at
}

var kinds = map[kamino.Kind]invariant.Kind{kamino.KindGallery: invariant.Gallery, kamino.KindDefinition: invariant.Definition,
	kamino.KindSnapshot: invariant.Snapshot, kamino.KindVersion: invariant.Version}

func (a *audit) begin(w *world) {
	a.w = w
	a.judge.Report = func(v invariant.Violation) {
		w.say("  !!! %s", v)
		if len(a.violations) < 5 {
			a.violations = append(a.violations, v.String())
		}
	}
}

func (a *audit) violate(id, format string, args ...any) { a.judge.Violate(id, format, args...) }

// spans is how long donors were away.
func (a *audit) spans() []time.Duration {
	var out []time.Duration
	for _, s := range a.judge.Spans() {
		out = append(out, s.Took)
	}
	return out
}

// picture draws the world. It reuses the slices of into.
func (a *audit) picture(into *invariant.State) *invariant.State {
	w := a.w
	s := into
	s.Pools, s.Machines, s.Nodes, s.Artifacts = s.Pools[:0], s.Machines[:0], s.Nodes[:0], s.Artifacts[:0]
	s.SealPods, s.AgentPods, s.Pods, s.Canaries = s.SealPods[:0], s.AgentPods[:0], s.Pods[:0], s.Canaries[:0]
	for _, c := range w.canaries {
		s.Canaries = append(s.Canaries, invariant.Canary{Name: c.Name, Pool: string(c.pool), Run: c.Run})
	}
	for id, p := range w.pools {
		pool := invariant.Pool{ID: string(id), Image: p.image, Next: w.bootsFrom(p), Revision: p.revisionText(), Capacity: p.capacity,
			Refused: len(p.refusals) > 0, Owned: p.owner != nil,
			Replaces: w.replaces, Suspended: p.suspended}
		if p.personRun != "" && p.personRun == w.standing(id).Holder {
			pool.Person = p.byPerson
		}
		s.Pools = append(s.Pools, pool)
	}
	for id, m := range w.machines {
		machine := invariant.Machine{ID: string(id), VM: m.VMID, Pool: string(m.Pool), Power: invariant.Power(m.Power),
			Kubelet: m.Kubelet, Touched: m.Touched, Sealed: m.Sealed, Disk: m.Disk, Image: m.Image, Service: m.held == "" ||
				m.held == kamino.InService, Local: m.local,
			Reboots:   !m.Kubelet && m.Boots > 0 && m.reboot == m.Boots,
			Upgrading: m.Working(), Unseen: m.Unseen || m.ill(), InOrder: !m.ill() && !m.pending && m.Looked == m.BootID}
		if m.Sealed != "" {
			machine.Receipt = "sha256:" + m.BootID
		}
		s.Machines = append(s.Machines, machine)
	}
	for _, n := range w.nodes {
		s.Nodes = append(s.Nodes, pictureNode(n, s.Nodes))
	}
	for _, v := range w.artifacts {
		made := pictureArtifact(v.Artifact, v.pool, kinds[v.Kind])
		made.Unfit = v.proved && v.sick != healthy
		made.Left = v.Tags[kamino.TagPromote] == string(kamino.PromoteManual) && !w.promotedByHand
		s.Artifacts = append(s.Artifacts, made)
	}
	a.leases(s)
	for run, p := range w.sealPods {
		if p.node == worlds.NoNode || p.again { // somebody else's: what of it is left is nobody's debt
			continue
		}
		s.SealPods = append(s.SealPods, invariant.SealPod{Run: run, Node: p.node, Failed: p.Failed})
	}
	for _, pods := range []map[string]*simSealPod{w.surveys, w.patches} {
		for run, p := range pods {
			if p.node != worlds.NoNode && !p.again {
				s.AgentPods = append(s.AgentPods, invariant.SealPod{Run: run, Node: p.node, Failed: p.Failed})
			}
		}
	}
	for _, p := range w.pods {
		s.Pods = append(s.Pods, invariant.Pod{Name: p.String(), Node: p.node, Stays: p.daemon || p.comes})
	}
	return s
}

func (a *audit) leases(s *invariant.State) *invariant.State {
	s.Now, s.Leases = a.w.now, s.Leases[:0]
	for _, l := range a.w.allLeases() {
		lease := invariant.Lease{Pool: string(l.Pool), Holder: l.Holder, Process: l.Process, Epoch: l.Epoch, Acts: texts(l.Record.Acts),
			DonorVM: l.Record.VMID, Version: l.Record.Version}
		if l.Ledger.Former != nil {
			lease.Former = l.Ledger.Former.Image
		}
		if l.Ledger.Original != nil {
			lease.Original = l.Ledger.Original.Image
		}
		s.Leases = append(s.Leases, lease)
	}
	return s
}

func texts(acts []kamino.Act) []string {
	out := make([]string, len(acts))
	for i, a := range acts {
		out[i] = string(a)
	}
	return out
}

// lease is before and after for writes of leases, which are by far the most:
// nothing else has to be looked at.
func (a *audit) lease(p *proc, pool kamino.PoolID, write func()) {
	c := invariant.Call{Process: p.name, Verb: invariant.SetLease, Pool: string(pool)}
	a.judge.Before(a.leases(&a.wasLeases), c)
	write()
	a.judge.After(&a.wasLeases, a.leases(&a.isLeases), c)
}

// pictureNode reuses the taints of the node that had the place before.
func pictureNode(n *simNode, before []invariant.Node) invariant.Node {
	out := invariant.Node{Name: n.Name, ProviderID: string(n.ProviderID), SystemUUID: n.SystemUUID,
		Ready: n.Ready, Unschedulable: n.Unschedulable, Annotations: n.Annotations}
	pool, _ := simProvider{}.PoolOf(context.Background(), n.ProviderID)
	out.Pool = string(pool)
	if i := len(before); i < cap(before) {
		out.Taints = before[:i+1][i].Taints[:0]
	}
	for _, t := range n.Taints {
		out.Taints = append(out.Taints, t.Key)
	}
	return out
}

func pictureArtifact(v kamino.Artifact, pool kamino.PoolID, kind invariant.Kind) invariant.Artifact {
	return invariant.Artifact{Kind: kind, Pool: string(pool), Name: v.Name, ID: v.ID, State: string(v.State), Ready: v.Ready,
		Source: v.Source, Run: v.Tags[kamino.TagRun], Receipt: v.Tags[kamino.TagReceipt], Ours: !v.OfFormer &&
			(v.Tags[kamino.TagRun] != "" || v.Tags[kamino.TagBuiltFrom] != "")}
}

func (a *audit) check() {
	if !a.off {
		a.judge.Changed(a.picture(&a.is))
	}
}

// person records how a node stands after somebody else has changed it.
func (a *audit) person(node string) { a.judge.Person(a.picture(&a.is), node) }

func (a *audit) before(c invariant.Call) invariant.Call {
	if !a.off {
		a.judge.Before(a.picture(&a.was), c)
	}
	return c
}

func (a *audit) after(c invariant.Call) {
	if !a.off {
		a.judge.After(&a.was, a.picture(&a.is), c)
	}
}

// settled checks the end, once started machines have had the time to boot.
func (a *audit) settled() {
	a.w.advance(a.w.now.Add(30 * time.Minute))
	a.judge.Settled(a.picture(&a.is))
}

func (p *proc) onNode(n kamino.Node, verb invariant.Verb) invariant.Call {
	pool, _ := p.provider().PoolOf(context.Background(), n.ProviderID)
	return invariant.Call{Process: p.name, Verb: verb, Pool: string(pool), Node: n.Name, Force: p.force}
}

func markVerb(m *kamino.Mark) invariant.Verb {
	if m == nil {
		return invariant.Unmark
	}
	return invariant.Mark
}

func (p *proc) auditSeal(n kamino.Node, run string, verb invariant.Verb) {
	c := p.onNode(n, verb)
	c.Run = run
	if n.ProviderID == "" { // the node is gone from Kubernetes
		for _, l := range p.w.allLeases() {
			if l.Holder == run {
				c.Pool = string(l.Pool)
			}
		}
	}
	p.w.audit.before(c)
}

func (p *proc) auditPower(m *machine, want kamino.Power) {
	c := invariant.Call{Process: p.name, Verb: invariant.PowerOn, Pool: string(m.Pool), Machine: string(m.ID), SeenVM: p.seenVM[m.ID]}
	if want == kamino.PowerOff {
		c.Verb = invariant.PowerOff
	}
	p.w.audit.before(c)
}

func (p *proc) auditCreate(pool kamino.PoolID, want kamino.Artifact) {
	verbs := map[kamino.Kind]invariant.Verb{kamino.KindGallery: invariant.CreateGallery, kamino.KindDefinition: invariant.CreateDefinition,
		kamino.KindSnapshot: invariant.CreateSnapshot, kamino.KindVersion: invariant.CreateVersion}
	c := invariant.Call{Process: p.name, Verb: verbs[want.Kind], Pool: string(pool), Made: pictureArtifact(want, pool, kinds[want.Kind])}
	for id, m := range p.w.machines {
		if m.Disk == want.Source && p.seenOff[id] && m.Power != kamino.PowerOff {
			c.Raced = true
		}
	}
	p.w.audit.before(c)
}

// auditOffer: what a person took out of latest is moved past only by who was told to, or had not
// read of it: versions have no revision, so that the write cannot be conditional (I10).
func (p *proc) auditOffer(pool *simPool, version string) {
	w := p.w
	if points := pool.image != w.bootsFrom(pool); points && !w.excluded.IsZero() && p.listed.After(w.excluded) && !p.adopts {
		w.audit.violate("I10", "%s offers version %s, and had read that somebody took another out of latest", p.name, version)
	}
	w.excluded = time.Time{}
}

func (p *proc) auditModel(pool *simPool, revision, image string, diff []kamino.FieldChange) {
	c := invariant.Call{Process: p.name, Verb: invariant.SetModel, Pool: string(pool.id), Target: image, Revision: revision}
	for _, d := range diff {
		c.Fields = append(c.Fields, d.Field)
	}
	p.w.audit.before(c)
}
