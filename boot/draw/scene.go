package draw

import (
	"cmp"
	"slices"

	"kamino.dev/kamino/boot"
)

// scene is an analysis laid out for drawing: what both the plain SVG and the page show.
type scene struct {
	a      *boot.Analysis
	axis   *axis
	phases []boot.Phase
	rows   []row
	marks  []boot.Milestone
	// left out: units that started after the end of the picture, and those that never started.
	late int
	end  boot.Micros
}

// row is a unit or a task.
type row struct {
	name         string
	task         bool
	start, done  boot.Micros
	net          boot.Micros
	chain        bool
	relevant     bool // shown at first, and in the plain SVG
	cause        int  // row that it waited for last, or -1
	deps         []int
	after        int // all ordering edges
	parked, idle boot.Micros
	note         string
}

const (
	// maxRelevant is how many rows are shown at first.
	maxRelevant = 48
	// maxDeps bounds the dependencies that a row remembers: the latest.
	maxDeps = 24
	// maxRows bounds the page; the units that took least are left out first.
	maxRows = 3000
)

// newScene lays out a capture over x0 to x1 pixels.
func newScene(c *boot.Capture, a *boot.Analysis, x0, x1 float64) *scene {
	x := boot.NewTimeline(c)
	s := &scene{a: a, marks: a.Milestones}
	s.end = s.lastMoment()
	onChain := map[string]*boot.Link{}
	if a.Chain != nil {
		for _, l := range a.Chain.Path() {
			onChain[l.Unit] = l
		}
	}
	unitRow := s.addUnits(x, onChain)
	s.addTasks(x, onChain)
	s.choose()
	s.sort(x, unitRow)
	s.causes(a.Chain)
	from := boot.Micros(0)
	for _, p := range a.Phases {
		from = min(from, p.Start)
		switch p.Name {
		case "firmware", "loader", "kernel", "initrd", "userspace":
			s.phases = append(s.phases, p)
		}
	}
	if x.Manager.SecurityStart == 0 && x.Manager.Userspace > 0 {
		from = x.Manager.Userspace // a container has no kernel of its own
	}
	s.axis = newAxis(from, s.end, s.breaks(from), x0, x1)
	return s
}

// lastMoment is where the picture ends: a bit after the last milestone, the end of startup and the
// goal.
func (s *scene) lastMoment() boot.Micros {
	end := s.a.GoalAt.At
	for _, m := range s.a.Milestones {
		end = max(end, m.At)
	}
	if s.a.Chain != nil {
		end = max(end, s.a.Chain.Done)
	}
	return end + max(s.a.Net(0, end)/50, 1000)
}

// addUnits returns which row belongs to which unit of the capture.
func (s *scene) addUnits(x *boot.Timeline, onChain map[string]*boot.Link) map[int]int {
	rowOf := map[int]int{}
	for i := range x.Units {
		st := x.First[i]
		if st.Began() == 0 {
			continue
		}
		if st.Began() > s.end {
			s.late++
			continue
		}
		u := &x.Units[i]
		r := row{name: u.ID, start: st.Began(), done: min(max(st.Done(), st.Began()), s.end), cause: -1, after: len(u.After)}
		r.net = s.a.Net(r.start, r.done)
		r.parked = r.done - r.start - r.net
		if l := onChain[u.ID]; l != nil {
			r.chain, r.idle = true, l.Idle
		}
		switch {
		case u.ActiveState == "failed":
			r.note = "failed"
		case u.First != nil && u.Restarted():
			r.note = "restarted since"
		case u.Restarts > 0:
			r.note = "a later run: the first was not captured"
		}
		rowOf[i] = len(s.rows)
		s.rows = append(s.rows, r)
	}
	return rowOf
}

func (s *scene) addTasks(x *boot.Timeline, onChain map[string]*boot.Link) {
	for _, t := range x.Spans {
		if t.Kind != boot.SpanTask || t.Start > s.end || t.End == 0 {
			continue
		}
		r := row{name: t.Name, task: true, start: t.Start, done: min(t.End, s.end), cause: -1, note: t.Unit}
		r.net = s.a.Net(r.start, r.done)
		if l := onChain[t.Name]; l != nil && l.Task {
			r.chain, r.idle = true, l.Idle
		}
		s.rows = append(s.rows, r)
	}
}

// choose marks the chain and the rows that took longest.
func (s *scene) choose() {
	order := make([]int, len(s.rows))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int {
		ra, rb := s.rows[a], s.rows[b]
		if ra.chain != rb.chain {
			if ra.chain {
				return -1
			}
			return 1
		}
		return cmp.Compare(rb.net, ra.net)
	})
	for n, i := range order {
		s.rows[i].relevant = s.rows[i].chain || (n < maxRelevant && s.rows[i].net >= 5000)
		if n >= maxRows {
			s.rows[i].name = ""
		}
	}
}

// sort orders rows by time and then resolves dependencies to rows.
func (s *scene) sort(x *boot.Timeline, rowOf map[int]int) {
	order := make([]int, 0, len(s.rows))
	for i := range s.rows {
		if s.rows[i].name != "" {
			order = append(order, i)
		}
	}
	slices.SortStableFunc(order, func(a, b int) int {
		return cmp.Or(cmp.Compare(s.rows[a].start, s.rows[b].start), cmp.Compare(s.rows[a].done, s.rows[b].done))
	})
	to := make(map[int]int, len(order))
	rows := make([]row, len(order))
	for n, i := range order {
		to[i] = n
		rows[n] = s.rows[i]
	}
	for unit, i := range rowOf {
		n, ok := to[i]
		if !ok {
			continue
		}
		for _, cause := range x.Causes(unit) {
			if d, ok := rowOf[cause]; ok && len(rows[n].deps) < maxDeps {
				if m, ok := to[d]; ok {
					rows[n].deps = append(rows[n].deps, m)
				}
			}
		}
	}
	s.rows = rows
}

// causes joins the chain's rows.
func (s *scene) causes(chain *boot.Link) {
	if chain == nil {
		return
	}
	byName := map[string]int{}
	for i, r := range s.rows {
		if r.chain {
			byName[r.name] = i
		}
	}
	path := chain.Path()
	for i := 1; i < len(path); i++ {
		to, ok := byName[path[i].Unit]
		from, ok2 := byName[path[i-1].Unit]
		if ok && ok2 {
			s.rows[to].cause = from
		}
	}
}

// breaks are the stretches that the axis squeezes.
func (s *scene) breaks(from boot.Micros) []piece {
	var out, busy []piece
	for _, p := range s.a.Parked {
		if p.To-p.From >= longParked {
			out = append(out, piece{From: p.From, To: p.To, Break: "parked"})
		}
		busy = append(busy, piece{From: p.From, To: p.To})
	}
	for _, r := range s.rows {
		busy = append(busy, piece{From: r.start, To: r.done})
	}
	for _, m := range s.marks {
		if m.Name != boot.AtFinish {
			busy = append(busy, piece{From: m.At, To: m.At})
		}
	}
	for _, p := range s.phases {
		if p.Name != "userspace" {
			busy = append(busy, piece{From: p.Start, To: p.End})
		}
	}
	out = append(out, quiet(busy, from, s.end)...)
	slices.SortFunc(out, func(a, b piece) int { return cmp.Compare(a.From, b.From) })
	return out
}
