package invariant

import (
	"slices"
	"strings"
	"time"
)

// foreign is what of a node is not ours.
type foreign struct {
	cordoned   bool
	protection string // "=value", "" when absent
	rest       string // other annotations and taints
	known      bool
}

// foreignOf takes our marks off a node, as unmarking would.
func (a *Auditor) foreignOf(n *Node) foreign {
	f := foreign{cordoned: n.Unschedulable, known: true}
	if v, ok := n.Annotations[annotationProtect]; ok {
		f.protection = "=" + v
	}
	if m, ok := a.markOf(n); ok && f.protection == "=true" {
		f.protection = ""
		if m.Protection != nil {
			f.protection = "=" + *m.Protection
		}
	}
	var rest []string
	for key, value := range n.Annotations {
		switch key {
		case annotationRun, annotationReceipt, annotationFailure, annotationProtect:
		case "kamino.dev/packages", "kamino.dev/patch", "kamino.dev/patch-look", "kamino.dev/patch-failed",
			"weave.works/kured-most-recent-reboot-needed":
		default:
			rest = append(rest, key+"="+value)
		}
	}
	for _, t := range n.Taints {
		// Those of Kubernetes itself come and go with the node's state.
		if t != taintBlock && t != taintKept && !strings.HasPrefix(t, "node.kubernetes.io/") {
			rest = append(rest, "taint "+t)
		}
	}
	if len(rest) > 0 {
		slices.Sort(rest)
		f.rest = strings.Join(rest, "\n")
	}
	return f
}

// Person tells that somebody but Kamino has changed a node: how it stands in s
// is how it must stand in the end.
func (a *Auditor) Person(s *State, node string) {
	a.init()
	if n := s.node(node); n != nil {
		a.persons[node] = a.foreignOf(n)
		a.freed[node], a.changed[node] = !n.blocked(), s.Now
	} else {
		delete(a.persons, node)
	}
}

// Meddled says whether others changed the node so lately that nobody can have seen it yet.
func (a *Auditor) Meddled(node string, now time.Time) bool {
	at, known := a.changed[node]
	return known && now.Sub(at) <= lookAge
}

// Freed says whether a person took the block off the node.
func (a *Auditor) Freed(node string) bool { return a.freed[node] }

// Forged tells that a node's own kubelet wrote an annotation of Kamino's. Nobody is a donor for
// what it says, and it is a person's to take off.
func (a *Auditor) Forged(node, text string) {
	a.init()
	a.forged[node] = text
}

// IsForged says whether that is what the node forged.
func (a *Auditor) IsForged(node, text string) bool { return text != "" && a.forged[node] == text }

// foreignNode compares nodes before and after a call.
func foreignNode(a *Auditor, was, is *State, c Call) {
	if c.Verb != Mark && c.Verb != Unmark {
		return
	}
	for i := range was.Nodes {
		then := &was.Nodes[i]
		now := is.node(then.Name)
		if now == nil {
			continue
		}
		if x, y := a.foreignOf(then), a.foreignOf(now); x != y {
			a.Violate("I3", "%s changes what is not ours on node %s: %+v becomes %+v", c.Process, then.Name, x, y)
		}
	}
}

// foreignKept compares nodes with what persons left there.
func foreignKept(a *Auditor, s *State) {
	for i := range s.Nodes {
		n := &s.Nodes[i]
		have, want := a.foreignOf(n), a.persons[n.Name]
		if want.known && have != want || !want.known && (have.cordoned || have.protection != "") {
			a.Violate("I3", "node %s: what is not ours is %+v in the end, others left %+v", n.Name, have, want)
		}
	}
}

func (n *Node) blocked() bool { return slices.Contains(n.Taints, taintBlock) }

// kept: it did not come back in order from a patch, and stays blocked for a person.
func (n *Node) kept() bool { return slices.Contains(n.Taints, taintKept) }

const taintKept = "status-taint.cluster-autoscaler.kubernetes.io/kamino-patch-failed"

// restitution: I1.
func restitution(a *Auditor, s *State) {
	for i := range s.Machines {
		m := &s.Machines[i]
		if m.Power != On || m.Touched != "" || !m.Kubelet {
			a.Violate("I1", "machine %s stays away: power %s, kubelet %v, disk touched by %q", m.ID, m.Power, m.Kubelet, m.Touched)
		}
	}
	for i := range s.Nodes {
		n := &s.Nodes[i]
		m, marked := a.markOf(n)
		if a.IsForged(n.Name, n.Annotations[annotationRun]) && !n.blocked() {
			continue
		}
		// A mark of a newer program, or of another, is left alone.
		if foreignMark := n.Annotations[annotationRun] != "" && (!marked || m.Format > 1); foreignMark {
			continue
		}
		if marked || n.blocked() {
			a.Violate("I1", "node %s stays marked by %q, blocked %v", n.Name, m.Run, n.blocked())
		}
	}
}

// awayIsBlocked: I2 at every moment.
func awayIsBlocked(a *Auditor, s *State) {
	for i := range s.Machines {
		m := &s.Machines[i]
		if !a.isAway(m) {
			continue
		}
		if n := s.on(m); n != nil && !n.blocked() && !n.kept() && !a.freed[n.Name] {
			a.Violate("I2", "machine %s is away and its node is not blocked", m.ID)
		}
	}
}

// blockedUntilBack: I2 before calls.
func blockedUntilBack(a *Auditor, s *State, c Call) {
	switch c.Verb {
	case PowerOff:
		m := s.machine(c.Machine)
		if m == nil {
			return
		}
		if n := s.on(m); n != nil && !n.blocked() && !n.kept() && !a.freed[n.Name] {
			a.Violate("I2", "%s switches %s off, which is not blocked", c.Process, m.ID)
		}
	case Seal:
		if n := s.node(c.Node); n == nil || !n.blocked() && !a.freed[n.Name] {
			a.Violate("I2", "%s seals node %s, which is not blocked", c.Process, c.Node)
		}
	case Unmark:
		a.unmarking(s, c)
	}
}

// unseen is how long a node that others reboot is still shown Ready: node-monitor-grace-period is
// 40 s before Kubernetes 1.32
// (https://kubernetes.io/docs/reference/command-line-tools-reference/kube-controller-manager/).
const unseen = time.Minute

func (a *Auditor) unmarking(s *State, c Call) {
	n := s.node(c.Node)
	if n == nil {
		return
	}
	m := s.behind(n)
	if m == nil || m.Ends {
		return
	}
	others := m.Power == On && m.Touched == "" && s.Now.Sub(a.changed[n.Name]) <= unseen // have just rebooted it
	if !others && !n.kept() && (m.Power != On || !m.Kubelet || m.Touched != "" || !n.Ready) {
		a.Violate("I2", "%s unmarks node %s: power %s, kubelet %v, disk touched by %q, Ready %v",
			c.Process, n.Name, m.Power, m.Kubelet, m.Touched, n.Ready)
	}
	for _, pod := range s.SealPods {
		if pod.Node == n.Name && !pod.Failed {
			a.Violate("I2", "%s unmarks node %s while the seal pod of %s is there", c.Process, n.Name, pod.Run)
		}
	}
}

// oneDonor: I11.
func oneDonor(a *Auditor, s *State) {
	total := 0
	for _, p := range s.Pools {
		blocked, away := 0, 0
		for i := range s.Machines {
			if m := &s.Machines[i]; m.Pool == p.ID && a.isAway(m) {
				away++
			}
		}
		for i := range s.Nodes {
			if n := &s.Nodes[i]; n.Pool == p.ID && n.blocked() && s.machine(n.ProviderID) != nil {
				blocked++
			}
		}
		if dropped, ok := a.dropped[p.ID]; ok && away == 2 && s.Now.Sub(dropped) <= forgottenBack {
			away = 1 // the run that the lease forgot still starts its donor
		}
		if blocked > 1 || away > 1 {
			a.Violate("I11", "pool %s has %d donors blocked, %d away", p.ID, blocked, away)
		}
		total += max(blocked, away)
	}
	if a.MaxAway > 0 && total > a.MaxAway {
		a.Violate("I11", "%d donors are away in the cluster, at most %d may", total, a.MaxAway)
	}
}

// eviction: I12.
func eviction(a *Auditor, s *State, c Call) {
	if c.Verb != Evict && c.Verb != DeletePod {
		return
	}
	if c.Verb == DeletePod && !c.Force {
		a.Violate("I12", "%s deletes pod %s past its budget, which nobody asked for", c.Process, c.Pod)
	}
	for _, p := range s.Pods {
		if p.Name != c.Pod || c.Pod == "" {
			continue
		}
		if p.Stays {
			a.Violate("I12", "%s removes pod %s, which a drain leaves alone", c.Process, c.Pod)
		}
		if p.Node != c.Node {
			a.Violate("I12", "%s removes pod %s of node %s in the drain of %s", c.Process, c.Pod, p.Node, c.Node)
		}
	}
	if n := s.node(c.Node); n != nil && !n.blocked() && !a.freed[n.Name] && a.stale[c.Process] == 0 {
		a.Violate("I12", "%s evicts pods of node %s, which is not blocked", c.Process, c.Node)
	}
}

// podsStay: a seal never begins while pods run that have to leave (I4), and
// eviction alone empties a node (I12); here that no other call does.
func podsStay(a *Auditor, was, is *State, c Call) {
	if c.Verb == Evict || c.Verb == DeletePod || len(is.Pods) >= len(was.Pods) {
		return
	}
	a.Violate("I12", "pods went by call %s of %s: %d were there, %d are", c.Verb, c.Process, len(was.Pods), len(is.Pods))
}

// sameDonor: I23.
func sameDonor(a *Auditor, s *State, c Call) {
	switch c.Verb {
	case PowerOff, PowerOn:
		// The one call of a frozen process that was still under way, after another
		// gave the donor back: a machine that is on stays on.
		if m := s.machine(c.Machine); c.Verb == PowerOn && m != nil && m.VM == c.SeenVM && m.Power == On {
			return
		}
		if _, taken := a.taken[c.SeenVM]; c.Verb == PowerOn && taken {
			return // by a run of which marks and lease may tell no more
		}
		if c.SeenVM != "" && a.stale[c.Process] == 0 && !a.donors(s, c.Pool)[c.SeenVM] {
			a.Violate("I23", "%s: %s %s, last seen as VM %s, which is no donor", c.Process, c.Verb, c.Machine, c.SeenVM)
		}
	case Seal:
		n := s.node(c.Node)
		if n == nil {
			return
		}
		if m, ok := a.markOf(n); ok && m.VM != "" && m.VM != n.SystemUUID && a.stale[c.Process] == 0 {
			a.Violate("I23", "%s seals node %s, which now runs on VM %s; the donor is %s", c.Process, c.Node, n.SystemUUID, m.VM)
		}
	}
}

// donors are the VMs that leases and marks of a pool name.
func (a *Auditor) donors(s *State, pool string) map[string]bool {
	out := map[string]bool{s.lease(pool).DonorVM: true}
	for i := range s.Nodes {
		n := &s.Nodes[i]
		if m, ok := a.markOf(n); ok && a.IsForged(n.Name, n.Annotations[annotationRun]) {
			continue
		} else if ok {
			out[m.VM] = true
		} else if n.blocked() {
			out[n.SystemUUID] = true // somebody removed the annotation
		}
	}
	return out
}

// localKept: I33 at every moment.
func localKept(a *Auditor, s *State) {
	for i := range s.Machines {
		if m := &s.Machines[i]; m.Local && m.Power == Off {
			a.Violate("I33", "machine %s is off, and the data of its local volume lost", m.ID)
		}
	}
}

// localUnsealed: I33 before calls.
func localUnsealed(a *Auditor, s *State, c Call) {
	if n := s.node(c.Node); c.Verb == Seal && n != nil {
		if m := s.behind(n); m != nil && m.Local {
			a.Violate("I33", "%s seals machine %s, which has a local volume", c.Process, m.ID)
		}
	}
}
