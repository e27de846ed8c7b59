package kamino

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// audit watches the world: the numbers are those of the project's list of
// invariants. State is checked at every change, a call before it takes effect.
type audit struct {
	w          *world
	violations []string
	stale      map[string]int // calls of a process that had lost the lease
	away       map[string]time.Time
	spans      []time.Duration // how long donors were away
	foreign    map[string]foreignMarks
	asked      []string // runs that scaled out
	shrunk     bool     // an autoscaler took the capacity down
	hushed     map[string]bool
}

// foreignMarks is what persons left on a node.
type foreignMarks struct {
	cordon     bool
	protection *string
}

func (a *audit) violate(id, format string, args ...any) {
	line := id + ": " + fmt.Sprintf(format, args...)
	a.w.say("  !!! %s", line)
	if a.hushed[id] || len(a.violations) >= 5 {
		return
	}
	a.violations = append(a.violations, line)
}

// isAway says whether a run took the machine away and it is not back.
func isAway(m *machine) bool { return m.ours && (m.Power != PowerOn || m.touched != "") }

// check holds whenever anything has changed.
func (a *audit) check() {
	blocked, away := map[PoolID]int{}, map[PoolID]int{}
	for _, m := range a.w.machines {
		a.clock(m)
		if !isAway(m) {
			continue
		}
		away[m.Pool]++
		if n := a.w.nodes[m.Hostname]; n != nil && n.SystemUUID == m.VMID && !n.Tainted(TaintBlock) {
			a.violate("I2", "machine %s is away and its node is not blocked", m.Hostname)
		}
	}
	for _, n := range a.w.nodes {
		if m := a.w.machines[n.ProviderID]; m != nil && n.Tainted(TaintBlock) {
			blocked[m.Pool]++
		}
	}
	for id, p := range a.w.pools {
		if blocked[id] > 1 || away[id] > 1 {
			a.violate("I11", "pool %s has %d donors blocked, %d away", id.Name(), blocked[id], away[id])
		}
		a.checkModel(p)
	}
	pods := map[string]int{}
	for _, pod := range a.w.sealPods {
		if pods[pod.node]++; pods[pod.node] > 1 {
			a.violate("I14", "%d seal pods on node %s", pods[pod.node], pod.node)
		}
	}
}

func (a *audit) checkModel(p *simPool) {
	if p.image == baseLTS || p.image == p.byPerson || !strings.Contains(p.image, "/versions/") {
		return
	}
	v := a.w.artifacts[artifactKey(p.id, Version, lastSegment(p.image))]
	if v == nil || v.State != Succeeded {
		a.violate("I6", "the model of %s refers to %s, which cannot be used", p.id.Name(), lastSegment(p.image))
	}
}

// clock measures how long a donor is away.
func (a *audit) clock(m *machine) {
	since, was := a.away[m.VMID]
	switch {
	case isAway(m) && !was:
		a.away[m.VMID] = a.w.now
	case !isAway(m) && was:
		a.spans = append(a.spans, a.w.now.Sub(since))
		delete(a.away, m.VMID)
	}
}

// intents is how the intent on the lease must begin before a call.
var intents = map[string][]string{
	"SetPower off": {"switch the donor off", "switch the machine off"}, "SetPower on": {"start the donor"},
	"Create gallery": {"create gallery"}, "Create image definition": {"create image definition"},
	"Create snapshot": {"snapshot disk"}, "Create image version": {"build version"}, "Delete": {"delete"},
	"SetModel": {"write the model"}, "SetCapacity": {"scale out"},
	"Mark": {"annotate the node", "block the node", "write on the node"}, "Unmark": {"take off"},
	"Seal": {"seal the disk"}, "Unseal": {"delete the seal pod"}, "Evict": {"evict"},
}

// intent checks I13 and I9: what is about to be done stands on the lease, and
// the lease is this process's. A process that lost it has one call in flight at
// most; restitution is harmless and does not count.
func (a *audit) intent(p *proc, pool PoolID, method string) {
	l := a.w.leases[pool]
	if l.Process != p.name {
		if restitution := method == "SetPower on" || method == "Unmark" || method == "Unseal"; restitution {
			return
		}
		if a.stale[p.name]++; a.stale[p.name] > 1 || l.Process == "" && l.Epoch == 0 {
			a.violate("I9", "%s makes call %s although process %q holds the lease", p.name, method, l.Process)
		}
		return
	}
	for _, want := range intents[method] {
		if strings.HasPrefix(l.Record.Intent, want) {
			return
		}
	}
	a.violate("I13", "%s makes call %s; the intent on the lease is %q", p.name, method, l.Record.Intent)
}

func (a *audit) power(p *proc, m *machine, want Power) {
	a.intent(p, m.Pool, "SetPower "+string(want))
	expected := []string{a.w.leases[m.Pool].Record.VMID}
	for _, n := range a.w.nodes {
		if mark, err := n.Mark(); err == nil && mark != nil {
			expected = append(expected, mark.VMID)
		}
	}
	if seen := p.seenVM[m.ID]; want == PowerOff && !slices.Contains(expected, seen) && a.stale[p.name] == 0 {
		a.violate("I23", "%s switches %s off, last seen as VM %s, which is no donor", p.name, m.Hostname, seen)
	}
	if n := a.w.nodes[m.Hostname]; want == PowerOff && n != nil && n.SystemUUID == m.VMID && !n.Tainted(TaintBlock) {
		a.violate("I2", "%s switches %s off, which is not blocked", p.name, m.Hostname)
	}
}

func (a *audit) mark(p *proc, n *simNode, mark *Mark) {
	pool, _ := p.provider().PoolOf(n.ProviderID)
	m := a.w.machineOf(n)
	if mark != nil {
		a.intent(p, pool, "Mark")
		return
	}
	a.intent(p, pool, "Unmark")
	if m == nil || m.dead {
		return
	}
	if m.Power != PowerOn || !m.kubelet || m.touched != "" || !n.Ready {
		a.violate("I2", "%s unmarks node %s: power %s, kubelet %v, disk touched by %q, Ready %v",
			p.name, n.Name, m.Power, m.kubelet, m.touched, n.Ready)
	}
	for run, pod := range a.w.sealPods {
		if pod.node == n.Name && !pod.Failed {
			a.violate("I2", "%s unmarks node %s while the seal pod of %s is there", p.name, n.Name, run)
		}
	}
}

func (a *audit) seal(p *proc, n Node, run string, want bool) {
	pool, _ := p.provider().PoolOf(n.ProviderID)
	if !want {
		a.intent(p, pool, "Unseal")
		return
	}
	a.intent(p, pool, "Seal")
	have := a.w.nodes[n.Name]
	if have == nil || !have.Tainted(TaintBlock) {
		a.violate("I2", "%s seals node %s, which is not blocked", p.name, n.Name)
	}
	if mark, _ := have.Mark(); mark == nil || !mark.Sealing {
		a.violate("I13", "%s seals node %s, whose mark does not say so", p.name, n.Name)
	}
	for _, pod := range a.w.pods {
		if pod.node == n.Name && !pod.daemon && !pod.forceOnly {
			a.violate("I4", "%s seals node %s, where pod %s still runs", p.name, n.Name, pod.Name)
		}
	}
}

func (a *audit) evict(p *proc, n Node, opts DrainOptions) {
	pool, _ := p.provider().PoolOf(n.ProviderID)
	a.intent(p, pool, "Evict")
	have := a.w.nodes[n.Name]
	if have != nil && !have.Tainted(TaintBlock) && a.stale[p.name] == 0 {
		a.violate("I12", "%s evicts pods of node %s, which is not blocked", p.name, n.Name)
	}
}

func (a *audit) create(p *proc, pool PoolID, want Artifact) {
	a.intent(p, pool, "Create "+string(want.Kind))
	switch want.Kind {
	case Snapshot:
		a.snapshot(p, want)
	case Version:
		for _, v := range a.w.artifacts {
			if v.pool == pool && v.Kind == Version && CompareVersions(v.Name, want.Name) >= 0 {
				a.violate("I17", "%s creates version %s although %s exists", p.name, want.Name, v.Name)
			}
		}
		src := a.w.artifacts[artifactKey(pool, Snapshot, lastSegment(want.Source))]
		if src == nil || src.State != Succeeded || !src.Ready {
			a.violate("I5", "%s builds version %s from a snapshot that is not complete", p.name, want.Name)
		}
	}
}

func (a *audit) snapshot(p *proc, want Artifact) {
	for _, m := range a.w.machines {
		if m.Disk != want.Source {
			continue
		}
		if m.Power != PowerOff || m.sealed != want.Tags[TagRun] || want.Tags[TagReceipt] != "sha256:"+m.bootID {
			a.violate("I4", "%s takes a snapshot of %s: power %s, sealed by %q, receipt %s", p.name, m.Hostname, m.Power, m.sealed, want.Tags[TagReceipt])
		}
	}
}

func (a *audit) delete(p *proc, v *simArtifact) {
	if !v.Ours() {
		a.violate("I3", "%s deletes %s, which is not ours", p.name, v.Name)
	}
	newest, good := "", 0
	for _, o := range a.w.versions(v.pool) {
		if o.State == Creating && o.Source == v.ID {
			a.violate("I14", "%s deletes snapshot %s while version %s is built from it", p.name, v.Name, o.Name)
		}
		if o.State == Succeeded {
			good++
			if newest == "" {
				newest = o.Name
			}
		}
	}
	if v.Kind != Version || v.State != Succeeded {
		return
	}
	former := a.w.leases[v.pool].Ledger.Former
	if v.Name == newest || good <= 2 || former != nil && former.Image == v.ID {
		a.violate("I7", "%s deletes version %s: newest %s, %d good, former %+v", p.name, v.Name, newest, good, former)
	}
}

func (a *audit) model(p *proc, pool *simPool, want ModelSpec) {
	a.intent(p, pool.id, "SetModel")
	v := a.w.artifacts[artifactKey(pool.id, Version, lastSegment(want.Image))]
	if v == nil || v.State != Succeeded || !v.Ready {
		a.violate("I5", "%s points the model at %s, which is not ready", p.name, lastSegment(want.Image))
	}
	ledger := a.w.leases[pool.id].Ledger
	if pool.image != want.Image && (ledger.Former == nil || ledger.Former.Image != pool.image) {
		a.violate("I8", "%s replaces model image %s, which was not saved", p.name, pool.image)
	}
	if pool.image == baseLTS && (ledger.Original == nil || ledger.Original.Image != baseLTS) {
		a.violate("I8", "%s replaces the original model, which was not saved", p.name)
	}
	if pool.personRun != "" && pool.personRun == a.w.leases[pool.id].Holder && pool.image == pool.byPerson {
		a.violate("I10", "%s overwrites what a person wrote during the run", p.name)
	}
}

func (a *audit) capacity(p *proc, pool *simPool, instances int) {
	a.intent(p, pool.id, "SetCapacity")
	run := a.w.leases[pool.id].Holder
	if instances <= pool.capacity || slices.Contains(a.asked, run) && !a.shrunk {
		a.violate("I10", "%s sets the capacity of %s from %d to %d", p.name, pool.id.Name(), pool.capacity, instances)
	}
	a.asked = append(a.asked, run)
}

// lease checks that the epoch never goes back, and that a ledger never loses
// the way back.
func (a *audit) lease(p *proc, was, is Lease) {
	if is.Epoch < was.Epoch || is.Epoch == was.Epoch && is.Process != was.Process && is.Holder != "" {
		a.violate("I9", "%s writes epoch %d over %d, process %q over %q", p.name, is.Epoch, was.Epoch, is.Process, was.Process)
	}
	if was.Ledger.Original != nil && is.Ledger.Original == nil {
		a.violate("I8", "%s loses the original model", p.name)
	}
}

// settled checks what must hold once nothing goes wrong any more and the last
// process has ended well: I1, I3, I16.
func (a *audit) settled() {
	a.w.advance(a.w.now.Add(30 * time.Minute))
	for _, m := range a.w.machines {
		if m.Power != PowerOn || m.touched != "" || !m.kubelet {
			a.violate("I1", "machine %s stays away: power %s, kubelet %v, disk touched by %q", m.Hostname, m.Power, m.kubelet, m.touched)
		}
	}
	for _, n := range a.w.nodes {
		_, marked := n.Annotations[AnnotationRun]
		if marked || n.Tainted(TaintBlock) {
			a.violate("I1", "node %s stays marked: annotation %v, taint %v", n.Name, marked, n.Tainted(TaintBlock))
		}
		f := a.foreign[n.Name]
		have, ok := n.Annotations[AnnotationProtect]
		if ok != (f.protection != nil) || ok && have != *f.protection {
			a.violate("I3", "node %s: protection is %q (%v), a person left %v", n.Name, have, ok, f.protection)
		}
		if n.Unschedulable != f.cordon {
			a.violate("I3", "node %s: cordoned %v, a person left %v", n.Name, n.Unschedulable, f.cordon)
		}
	}
	for _, v := range a.w.artifacts {
		if v.Kind == Snapshot || v.Kind == Version && v.State == Failed {
			a.violate("I16", "%s %s is left, %s", v.Kind, v.Name, v.State)
		}
	}
	for run := range a.w.sealPods {
		a.violate("I16", "seal pod of %s is left", run)
	}
	for _, l := range a.w.leases {
		if l.Holder != "" {
			a.violate("I16", "lease of %s is held by %s", l.Pool.Name(), l.Holder)
		}
	}
}
