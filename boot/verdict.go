package boot

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Cost is time on the way to the goal that one cause has.
type Cost struct {
	What string `json:"what"`
	Net  Micros `json:"net"`
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
			out = append(out, Cost{n, sum[n]})
		}
	}
	slices.SortStableFunc(out, func(a, b Cost) int { return cmp.Compare(b.Net, a.Net) })
	return out
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
	needs   []edge // what its unit file orders it after
}

var cloudInitAll = []string{"cloud-init-local.service", "cloud-init-network.service", "cloud-init.service", "cloud-init-main.service", "cloud-config.service", "cloud-final.service"}

// remedies replays the boot with the three proposals, one upon the other. Where neither kubelet nor
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
	const withoutCloudInit = "userData instead of customData, so that cloud-init is off the path"
	plan, ok := x.plan(goal, chain)
	if !ok {
		was = x.simulate(skip).unit(goal).done
		mark(cloudInitAll...)
		step(withoutCloudInit, x.simulate(skip).unit(goal).done)
		return out
	}
	reach := func(viaOutside bool) Micros {
		s := x.simulate(skip)
		switch {
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
	mark("cloud-final.service")
	step("start kubelet before cloud-final", reach(true))
	step("start kubelet without the extension script (CSE)", reach(false))
	mark(cloudInitAll...)
	step(withoutCloudInit, reach(false))
	return out
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
				p.outside = x.byName[l.Unit]
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
	if a.GoalAt.Net == a.GoalAt.At {
		out = append(out, fmt.Sprintf("%s %s %s.", what, a.GoalAt.At, a.After()))
	} else {
		out = append(out, fmt.Sprintf("%s %s %s, of which the machine was parked %s: %s net.", what, a.GoalAt.At, a.After(), a.GoalAt.At-a.GoalAt.Net, a.GoalAt.Net))
	}
	if n := min(3, len(a.Costs)); n > 0 {
		var parts []string
		for _, c := range a.Costs[:n] {
			parts = append(parts, fmt.Sprintf("%s %s", c.What, c.Net))
		}
		out = append(out, "Most expensive on the way: "+strings.Join(parts, "; ")+".")
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
			out = append(out, "Neither cloud-init nor an extension script is on the way: the known remedies would save nothing here.")
		case len(a.Remedies) == 1:
			out = append(out, fmt.Sprintf("Then %s would come at %s net. %s", a.Goal, last, estimate))
		default:
			out = append(out, fmt.Sprintf("Together %s: kubelet at %s net. %s", total, last, estimate))
		}
	}
	return out
}

// Count is a number of things in words: "1 unit", "2 units".
func Count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
