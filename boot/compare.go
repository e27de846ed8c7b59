package boot

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
)

// Comparison is two boots side by side; every time is net of parking.
type Comparison struct {
	A Side `json:"a"`
	B Side `json:"b"`
	// Since is what the times of both count from; empty where they count from different moments.
	Since string `json:"since,omitempty"`
	// Milestones, Chain and Units list differences: milestones in the order of time, the others
	// largest first.
	Milestones []Delta `json:"milestones,omitempty"`
	Chain      []Delta `json:"chain,omitempty"`
	Units      []Delta `json:"units,omitempty"`
	Verdict    string  `json:"verdict"`
}

// Side names one of the two boots.
type Side struct {
	Name   string `json:"name"`
	Boot   string `json:"boot,omitempty"`
	Goal   string `json:"goal,omitempty"`
	Net    Micros `json:"net"`
	Parked Micros `json:"parked,omitempty"`
}

// Delta is one thing in both boots; a nil side does not have it.
type Delta struct {
	Name string  `json:"name"`
	A    *Micros `json:"a,omitempty"`
	B    *Micros `json:"b,omitempty"`
	// Change is B minus A, a missing side counting as zero where that makes sense (work that is
	// gone), else zero.
	Change Micros `json:"change"`
}

// leastChange is the difference below which two units are taken to be as fast as each other.
const leastChange = Micros(50 * 1000)

// Compare says what got faster or slower from a to b.
func Compare(a, b *Analysis) *Comparison {
	a, b = sameZero(a, b)
	c := &Comparison{A: sideOf(a, "A"), B: sideOf(b, "B"), Since: a.Origin()}
	if a.zeroPoint() == b.zeroPoint() {
		c.Milestones = compareMilestones(a, b)
	} else {
		c.Since = ""
	}
	c.Chain = deltas(chainTimes(a), chainTimes(b), 1)
	c.Units = deltas(unitTimes(a), unitTimes(b), leastChange)
	if c.Verdict = c.notJudged(a, b); c.Verdict != "" {
		return c
	}
	goal := "startup"
	if a.Goal == b.Goal && a.Goal != "" {
		goal = a.Goal
	}
	switch d := b.GoalAt.Net - a.GoalAt.Net; {
	case d < 0:
		c.Verdict = fmt.Sprintf("%s comes %s sooner in %s (%s instead of %s).", goal, -d, c.B.Name, b.GoalAt.Net, a.GoalAt.Net)
	case d > 0:
		c.Verdict = fmt.Sprintf("%s comes %s later in %s (%s instead of %s).", goal, d, c.B.Name, b.GoalAt.Net, a.GoalAt.Net)
	default:
		c.Verdict = fmt.Sprintf("%s comes at the same time.", goal)
	}
	if a.Goal != b.Goal {
		c.Verdict += fmt.Sprintf(" The goals differ: %s and %s.", a.Goal, b.Goal)
	}
	return c
}

// zeroPoint is what the analysis counts from, as far as that matters between boots: whatever has no
// kernel of its own began with its own start, as a machine does with its kernel's.
func (a *Analysis) zeroPoint() string {
	if a.Since == sinceUserspace || a.Since == sinceCloudInit {
		return a.Since
	}
	return sinceKernel
}

// FromStart tells whether the analysis counts from the boot's own start.
func (a *Analysis) FromStart() bool { return a.zeroPoint() == sinceKernel }

// sameZero makes both analyses count from the start of userspace, where one does and the other knows
// when that was.
func sameZero(a, b *Analysis) (*Analysis, *Analysis) {
	switch {
	case a.zeroPoint() == sinceUserspace:
		return a, b.fromUserspace()
	case b.zeroPoint() == sinceUserspace:
		return a.fromUserspace(), b
	}
	return a, b
}

func (a *Analysis) fromUserspace() *Analysis {
	if a.zeroPoint() != sinceKernel || a.Zero == 0 {
		return a
	}
	late := *a
	late.Since, late.Zero = sinceUserspace, 0
	move := func(m *Milestone) { m.At, m.Net = m.At-a.Zero, m.Net-a.Net(0, a.Zero) }
	if a.Goal != "" {
		move(&late.GoalAt)
	}
	late.Milestones = slices.Clone(a.Milestones)
	for i := range late.Milestones {
		move(&late.Milestones[i])
	}
	return &late
}

// notJudged says why the two cannot be compared as wholes, where that is so.
func (c *Comparison) notJudged(a, b *Analysis) string {
	for _, s := range []struct {
		name string
		a    *Analysis
	}{{c.A.Name, a}, {c.B.Name, b}} {
		if s.a.Goal == "" {
			return fmt.Sprintf("Not judged: the record of %s does not say when a unit started.", s.name)
		}
		if !s.a.GoalEnded() {
			return fmt.Sprintf("Not judged: %s had not ended in %s when the record ended.", s.a.Goal, s.name)
		}
	}
	if a.zeroPoint() != b.zeroPoint() {
		return fmt.Sprintf("Not judged: %s counts from the start of %s, %s from that of %s; add `systemctl show` or the journal of the same boot.", c.A.Name, a.Origin(), c.B.Name, b.Origin())
	}
	return ""
}

func sideOf(a *Analysis, fallback string) Side {
	return Side{Name: cmp.Or(a.Host.Name, fallback), Boot: a.Host.BootID, Goal: a.Goal, Net: a.GoalAt.Net, Parked: a.ParkedFor}
}

func compareMilestones(a, b *Analysis) []Delta {
	var out []Delta
	for _, m := range a.Milestones {
		d := Delta{Name: m.Name, A: &m.Net}
		if n, ok := milestone(b.Milestones, m.Name); ok {
			d.B, d.Change = &n.Net, n.Net-m.Net
		}
		out = append(out, d)
	}
	for _, m := range b.Milestones {
		if _, ok := milestone(a.Milestones, m.Name); !ok {
			out = append(out, Delta{Name: m.Name, B: &m.Net})
		}
	}
	slices.SortStableFunc(out, func(x, y Delta) int { return cmp.Compare(earliest(x), earliest(y)) })
	return out
}

func earliest(d Delta) Micros {
	switch {
	case d.B != nil && d.A != nil:
		return min(*d.A, *d.B)
	case d.A != nil:
		return *d.A
	}
	return *d.B
}

// chainTimes are the segments of the chain by normalised name; idle time before a unit is a segment
// of its own.
func chainTimes(a *Analysis) map[string]Micros {
	out := map[string]Micros{}
	for _, s := range a.Segments {
		name := Normalize(s.Unit)
		if s.Idle {
			name = "idle before " + name
		}
		out[name] += s.Net
	}
	return out
}

func unitTimes(a *Analysis) map[string]Micros {
	out := map[string]Micros{}
	for _, u := range a.Blame {
		out[Normalize(u.Unit)] += u.Net
	}
	return out
}

func deltas(a, b map[string]Micros, least Micros) []Delta {
	var out []Delta
	for name, x := range a {
		d := Delta{Name: name, A: &x, Change: -x}
		if y, ok := b[name]; ok {
			d.B, d.Change = &y, y-x
		}
		out = append(out, d)
	}
	for name, y := range b {
		if _, ok := a[name]; !ok {
			out = append(out, Delta{Name: name, B: &y, Change: y})
		}
	}
	out = slices.DeleteFunc(out, func(d Delta) bool {
		return d.Change > -least && d.Change < least
	})
	slices.SortFunc(out, func(x, y Delta) int {
		return cmp.Or(cmp.Compare(absolute(y.Change), absolute(x.Change)), strings.Compare(x.Name, y.Name))
	})
	return out
}

func absolute(m Micros) Micros { return max(m, -m) }

// WriteText writes the comparison for people.
func (c *Comparison) WriteText(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "A  %s  %s net%s\nB  %s  %s net%s\n\n%s\n", c.A.Name, c.A.Net, c.A.Besides(), c.B.Name, c.B.Net,
		c.B.Besides(), c.Verdict)
	for _, part := range []struct {
		title string
		list  []Delta
		most  int
	}{
		{"Milestones, since " + c.Since + " started, net of parking", c.Milestones, 99},
		{"On the critical chain", c.Chain, 15},
		{"Units", c.Units, 15},
	} {
		if len(part.list) == 0 {
			continue
		}
		fmt.Fprintf(&b, "\n%-52s %13s %13s %14s\n", part.title, "A", "B", "change")
		for i, d := range part.list {
			if i == part.most {
				fmt.Fprintf(&b, "  and %d more\n", len(part.list)-i)
				break
			}
			x, y, change := d.Texts()
			fmt.Fprintf(&b, "  %-50s %13s %13s %14s\n", Shorten(d.Name, 50), x, y, change)
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// Besides tells of the parked time, which Net leaves out: ", besides 16min parked", or nothing.
func (s Side) Besides() string {
	if s.Parked == 0 {
		return ""
	}
	return ", besides " + s.Parked.String() + " parked"
}

// Texts are both sides and the change as a table shows them.
func (d Delta) Texts() (a, b, change string) { return side(d.A), side(d.B), d.change() }

func side(m *Micros) string {
	if m == nil {
		return "–"
	}
	return m.String()
}

func (d Delta) change() string {
	switch {
	case d.A == nil && d.B != nil && d.Change == 0, d.A != nil && d.B == nil && d.Change == 0:
		return ""
	case d.Change == 0:
		return "="
	case d.Change > 0:
		return "+" + d.Change.String()
	}
	return "−" + (-d.Change).String()
}
