package boot

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// NoRemedy says that no known change would help.
const NoRemedy = "Neither cloud-init, nodeadm nor a script is on the way: the known remedies would save nothing here"

// Cost is time on the way to the goal that one cause has.
type Cost struct {
	What string `json:"what"`
	Net  Micros `json:"net"`
	// Inside is the longest task inside that unit, where it took a quarter of the time or more.
	Inside    string `json:"inside,omitempty"`
	InsideNet Micros `json:"insideNet,omitempty"`
}

// String is the cost as the verdict has it.
func (c Cost) String() string {
	text := c.What + " " + c.Net.String()
	if c.Inside != "" {
		text += fmt.Sprintf(" (%s of it %s)", c.InsideNet, c.Inside)
	}
	return text
}

// Remedy is a change that the original's description proposes, and what it would save
// here.
type Remedy struct {
	Name string `json:"name"`
	// Saves is net of parked time, after the remedies before it in the list have been applied.
	Saves Micros `json:"saves"`
	// Reaches is when kubelet would start then, or the chain's other goal be done: net time from
	// the kernel's start.
	Reaches Micros `json:"reaches"`
}

// costs sums the segments of the main path by cause, most expensive first.
func (x *index) costs(segments []Segment) []Cost {
	sum := map[string]Micros{}
	var order []string
	for _, s := range segments {
		name := x.costName(s)
		if _, ok := sum[name]; !ok {
			order = append(order, name)
		}
		sum[name] += s.Net
	}
	out := make([]Cost, 0, len(order))
	for _, n := range order {
		if sum[n] > 0 {
			c := Cost{What: n, Net: sum[n]}
			if task, length := x.longestInside(n); length >= IdleThreshold && length*4 >= c.Net {
				c.Inside, c.InsideNet = task, length
			}
			out = append(out, c)
		}
	}
	slices.SortStableFunc(out, func(a, b Cost) int { return cmp.Compare(b.Net, a.Net) })
	return out
}

// longestInside is the longest task that ran inside a unit.
func (x *index) longestInside(unit string) (name string, length Micros) {
	for _, s := range x.c.Spans {
		if s.Kind != SpanTask || s.End == 0 || Normalize(s.Unit) != Normalize(unit) {
			continue
		}
		if n := x.net(s.Start, s.End); n > length {
			name, length = s.Name, n
		}
	}
	return name, length
}

// costName joins an extension's tasks, which are many and short, into one.
func (x *index) costName(s Segment) string {
	for _, t := range x.c.Spans {
		if t.Kind == SpanTask && t.Name == s.Unit && isAgentUnit(t.Unit) {
			if s.Idle {
				return "waiting around extension scripts"
			}
			return "extension scripts"
		}
	}
	switch {
	case s.Idle:
		return cmp.Or(s.Why, "nothing known") + ", before " + s.Unit
	case x.timedOut(s.Unit):
		return s.Unit + " (timed out)"
	}
	return s.Unit
}

// simulation replays a boot with some units taking no time: every unit starts as long after its
// latest cause as it did.
type simulation struct {
	*index
	skip map[int]bool
	at   []replayed
}

// replayed is when a unit would begin and be done, net of parking.
type replayed struct {
	began, done Micros
	busy, known bool
}

func (x *index) simulate(skip map[int]bool) *simulation {
	return &simulation{index: x, skip: skip, at: make([]replayed, len(x.first))}
}

func (s *simulation) unit(i int) replayed {
	if s.at[i].known {
		return s.at[i]
	}
	began, done := s.first[i].Began(), max(s.first[i].Done(), s.first[i].Began())
	if s.at[i].busy { // a circle of units of no length: leave it where it was
		return replayed{began: s.net(0, began), done: s.net(0, done)}
	}
	s.at[i].busy = true
	r := replayed{began: s.net(0, began), known: true}
	if causes := s.causes(i); len(causes) > 0 {
		r.began = s.latest(causes) + s.net(causes[0].done, began)
	}
	r.done = r.began
	if !s.skip[i] {
		r.done += s.net(began, done)
	}
	s.at[i] = r
	return r
}

func (s *simulation) latest(causes []edge) Micros {
	var base Micros
	for _, e := range causes {
		base = max(base, s.unit(e.unit).done)
	}
	return base
}

// moment is when something would come that really came at a time during or after unit i.
func (s *simulation) moment(i int, at Micros) Micros {
	r := s.unit(i)
	switch done := s.first[i].Done(); {
	case at >= done:
		return r.done + s.net(done, at)
	case s.skip[i]:
		return r.began
	}
	return r.began + s.net(s.first[i].Began(), at)
}

// goalPlan says how the start of kubelet (or of what would start it) hangs on the rest.
type goalPlan struct {
	at      Micros // when, really
	outside int    // unit that it waited for outside the unit files, or -1
	during  bool   // that unit was still starting then
	needs   []edge // what its unit file orders it after
}

var cloudInitAll = []string{"cloud-init-local.service", "cloud-init-network.service", "cloud-init.service", "cloud-init-main.service",
	"cloud-config.service", "cloud-final.service"}

// remedies replays the boot with the proposals, one upon the other. Where neither kubelet nor
// cloud-final is known, only the last of them can be judged, by the unit that the chain leads to.
func (x *index) remedies(goal int, chain *Link) []Remedy {
	skip := map[int]bool{}
	mark := func(names ...string) {
		for _, n := range names {
			if i, ok := x.byName[n]; ok {
				skip[i] = true
			}
		}
	}
	var out []Remedy
	was := Micros(0)
	step := func(name string, now Micros) {
		now = min(now, was)
		out = append(out, Remedy{name, was - now, now})
		was = now
	}
	plan, ok := x.plan(goal, chain)
	reach := func(viaOutside bool) Micros {
		s := x.simulate(skip)
		switch {
		case !ok:
			return s.unit(goal).done
		case viaOutside && plan.outside >= 0:
			return s.moment(plan.outside, plan.at)
		case len(plan.needs) == 0:
			return x.net(0, plan.at)
		case plan.outside >= 0: // it would start as soon as what it is ordered after is there
			return s.latest(plan.needs)
		}
		return s.latest(plan.needs) + x.net(plan.needs[0].done, plan.at)
	}
	was = reach(true)
	if ok {
		mark("cloud-final.service")
		first, script := "start kubelet before cloud-final", x.withoutScript(plan)
		if x.c.Units[goal].ID != "kubelet.service" {
			first, script = "start what waits for cloud-final before it", strings.Replace(script, "kubelet", "it", 1)
		}
		step(first, reach(true))
		step(script, reach(false))
	}
	if _, found := x.started(nodeadmUnits...); found {
		mark(nodeadmUnits...)
		step("configure the node without nodeadm (nodeadm-config, nodeadm-run)", reach(false))
	}
	mark(cloudInitAll...)
	if x.onAzure() {
		step("userData instead of customData, so that cloud-init is off the path", reach(false))
	} else {
		step("read the node's configuration without cloud-init, so that cloud-init is off the path", reach(false))
	}
	return out
}

// nodeadmUnits are those of EKS that configure a node before kubelet (awslabs/amazon-eks-ami, nodeadm).
var nodeadmUnits = []string{"nodeadm-config.service", "nodeadm-run.service"}

// withoutScript names the script that starts kubelet: that of an extension where the record has one,
// else what user data runs.
func (x *index) withoutScript(plan goalPlan) string {
	_, agent := x.started(agentNames...)
	_, extension := x.extension()
	if extension > 0 || agent && !plan.during {
		return "start kubelet without the extension script (CSE)"
	}
	return "start kubelet by its unit file instead of a script in user data (kubeadm, Cluster API, kOps)"
}

// onAzure tells whether the record is one of a machine on Azure.
func (x *index) onAzure() bool {
	_, agent := x.started(append(hyperV, agentNames...)...)
	_, extension := x.extension()
	source := func(s Span) bool { return strings.HasPrefix(s.Name, "azure-ds/") }
	return agent || extension > 0 || x.c.Host.Virtualization == "microsoft" || x.c.CloudInit.PPSType != "" ||
		slices.ContainsFunc(x.c.Spans, source)
}

// plan finds the unit on which the goal hangs outside its unit file. A machine without kubelet is
// judged as if cloud-final's end were what starts it, and as if it needed network, runtime and
// basic.target.
func (x *index) plan(goal int, chain *Link) (goalPlan, bool) {
	p := goalPlan{outside: -1}
	if x.c.Units[goal].ID == "kubelet.service" {
		p.at = x.first[goal].Began()
		p.needs = x.causes(goal)
		for l := chain; len(l.Next) > 0; {
			l = &l.Next[0]
			if l.Kind == LinkAfter && !l.Task || l.Kind == LinkTrigger || l.Kind == LinkTimeout {
				break
			}
			if !l.Task {
				p.outside, p.during = x.byName[l.Unit], l.Kind == LinkDuring
				break
			}
		}
		return p, true
	}
	if x.c.Units[goal].ID != "cloud-final.service" {
		return p, false
	}
	p.at, p.outside = x.first[goal].Done(), goal
	for _, names := range [][]string{networkUnits, runtimeUnits, {"basic.target"}} {
		if i, ok := x.started(names...); ok && x.first[i].Done() > 0 && x.first[i].Done() <= p.at {
			p.needs = append(p.needs, edge{i, LinkAfter, x.first[i].Done()})
		}
	}
	slices.SortFunc(p.needs, func(a, b edge) int { return cmp.Compare(b.done, a.done) })
	return p, true
}

// verdict says in words what costs most and what would help.
func (a *Analysis) verdict() []string {
	if a.Goal == "" && len(a.Blame) > 0 {
		return append([]string{"The record says how long units took, not when, so nothing can be said about what the boot waited for."},
			a.longest()...)
	}
	if a.Goal == "" {
		return []string{"No unit is known to have started, so nothing can be said about what the boot waited for."}
	}
	var out []string
	what := "kubelet started"
	if a.Goal != "kubelet.service" {
		what = a.Goal + " was done"
	}
	if a.Goal != "kubelet.service" && a.Goal != "cloud-final.service" && !a.asked {
		out = append(out, "Neither kubelet nor cloud-final is in this record; what follows is about "+a.Goal+".")
	}
	if !a.GoalEnded() {
		out = append(out, a.notEnded(a.GoalAt))
	} else if a.GoalAt.Net == a.GoalAt.At {
		out = append(out, fmt.Sprintf("%s %s %s.", what, a.GoalAt.At, a.After()))
	} else {
		out = append(out, fmt.Sprintf("%s %s %s, of which the machine was parked %s: %s net.", what, a.GoalAt.At, a.After(),
			a.GoalAt.At-a.GoalAt.Net, a.GoalAt.Net))
	}
	if n := min(3, len(a.Costs)); n > 0 && (len(a.Chain.Next) > 0 || len(a.Segments) > 1) {
		var parts []string
		for _, c := range a.Costs[:n] {
			parts = append(parts, c.String())
		}
		out = append(out, "Most expensive on the way: "+strings.Join(parts, "; ")+".")
	}
	if !a.ordered {
		out = append(out, a.longest()...)
	}
	if len(a.Remedies) > 0 {
		var total Micros
		for _, r := range a.Remedies {
			total += r.Saves
			if r.Saves == 0 {
				continue
			}
			out = append(out, fmt.Sprintf("Would save %s: %s.", r.Saves, r.Name))
		}
		const estimate = "(Replayed with the lengths and waits of this boot; an estimate, not a measurement.)"
		switch last := a.Remedies[len(a.Remedies)-1].Reaches; {
		case total == 0:
			out = append(out, NoRemedy+".")
		case len(a.Remedies) == 1:
			out = append(out, fmt.Sprintf("Then %s would come at %s net. %s", a.Goal, last, estimate))
		case a.Goal == "cloud-final.service":
			out = append(out, fmt.Sprintf("Together %s: what waits for cloud-final at %s net; kubelet is not in this record. %s", total,
				last, estimate))
		case a.Goal == "kubelet.service":
			out = append(out, fmt.Sprintf("Together %s: kubelet at %s net. %s", total, last, estimate))
		default:
			out = append(out, fmt.Sprintf("Together %s: %s at %s net. %s", total, a.Goal, last, estimate))
		}
	}
	return out
}

// longest names what took longest, for a record that does not say what waited for what.
func (a *Analysis) longest() []string {
	var parts []string
	for _, u := range a.Blame {
		if len(parts) < 3 && u.Net >= IdleThreshold {
			parts = append(parts, fmt.Sprintf("%s %s", u.Unit, u.Net))
		}
	}
	if len(parts) == 0 {
		return nil
	}
	return []string{"Longest to start, whether or not anything waited for them: " + strings.Join(parts, "; ") + "."}
}

// Count is a number of things in words: "1 unit", "2 units".
func Count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
