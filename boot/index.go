package boot

import (
	"cmp"
	"slices"
)

const (
	// edgeTolerance is how much later than its dependant's start a dependency may have become
	// active and still be what was waited for: PID 1 stamps the two in one turn of its loop, in
	// either order.
	edgeTolerance = Micros(1000)
	// IdleThreshold is the gap from which a chain shows that nothing known happened.
	IdleThreshold = Micros(100 * 1000)
	// presumeThreshold is the gap from which kubelet is presumed to have been started from outside
	// systemd's ordering.
	presumeThreshold = Micros(2 * 1000 * 1000)
)

// index is a capture made ready for questions.
type index struct {
	c      *Capture
	since  string         // what its stamps count from
	older  int            // units of an earlier life
	byName map[string]int // unit IDs and aliases
	first  []Stamps       // per unit: stamps of the first activation
	pauses []Pause
	// ordered tells whether any ordering edge is known.
	ordered  bool
	timeouts []timeout
	caused   []causeList // per unit: causes, once asked for
	seen     []int       // per unit: for which unit it was last found as a cause, plus one
}

type causeList struct {
	known bool
	edges []edge
}

func newIndex(c *Capture) *index {
	c, since, older := c.fromOwnStart()
	c = c.withStages()
	x := &index{c: c, since: since, older: older, byName: make(map[string]int, len(c.Units)), first: make([]Stamps, len(c.Units)),
		caused: make([]causeList, len(c.Units)), seen: make([]int, len(c.Units))}
	for i := range c.Units {
		x.first[i] = c.Units[i].FirstStamps()
		x.byName[c.Units[i].ID] = i
		x.ordered = x.ordered || len(c.Units[i].After) > 0
	}
	for i := range c.Units {
		for _, n := range c.Units[i].Names {
			if _, taken := x.byName[n]; !taken {
				x.byName[n] = i
			}
		}
	}
	x.pauses = findPauses(c)
	x.timeouts = x.findTimeouts()
	return x
}

// edge is a reason why a unit did not start earlier.
type edge struct {
	unit int
	kind string
	done Micros
}

// causes are the units that u can have waited for: ordering and trigger edges to units that were
// up, for the first time, before u began, latest first. What became active only after that cannot
// have been waited for, however the unit files are written. The list is shared: callers only read
// it.
func (x *index) causes(i int) []edge {
	l := &x.caused[i]
	if !l.known {
		l.known, l.edges = true, x.findCauses(i)
	}
	return l.edges
}

func (x *index) findCauses(i int) []edge {
	u := &x.c.Units[i]
	began := x.first[i].Began()
	if began == 0 {
		return nil
	}
	out := make([]edge, 0, len(u.After)+len(u.TriggeredBy))
	add := func(name, kind string) {
		j, ok := x.byName[name]
		if !ok || j == i {
			return
		}
		done := x.first[j].Done()
		if done == 0 || done > began+edgeTolerance {
			return
		}
		if x.seen[j] == i+1 {
			return
		}
		x.seen[j] = i + 1
		out = append(out, edge{j, kind, done})
	}
	for _, d := range u.After {
		add(d, LinkAfter)
	}
	for _, d := range u.TriggeredBy {
		add(d, LinkTrigger)
	}
	slices.SortStableFunc(out, func(a, b edge) int {
		return cmp.Or(cmp.Compare(b.done, a.done), cmp.Compare(x.first[b.unit].Began(), x.first[a.unit].Began()))
	})
	return out
}

// started finds the first of several names that was started in this boot.
func (x *index) started(names ...string) (int, bool) {
	for _, n := range names {
		if i, ok := x.byName[n]; ok && x.first[i].Began() > 0 {
			return i, true
		}
	}
	return 0, false
}

// net is the length of a stretch without what of it was parked.
func (x *index) net(from, to Micros) Micros { return netOf(x.pauses, from, to) }

// Net is the length of a stretch of the analysed boot without what of it was parked.
func (a *Analysis) Net(from, to Micros) Micros { return netOf(a.Parked, from, to) }

func netOf(pauses []Pause, from, to Micros) Micros {
	length := max(to-from, 0)
	for _, p := range pauses {
		length -= max(min(to, p.To)-max(from, p.From), 0)
	}
	return max(length, 0)
}
