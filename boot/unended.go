package boot

import (
	"cmp"
	"fmt"
	"slices"
)

// maxUnended bounds the lines about units that had not ended.
const maxUnended = 3

// unended lists the units that had begun to start and had neither come up nor failed when the record
// ended, those that waited longest first. After the end of startup only the goal counts: of the
// others the record then lacks the line that says so, or they began later.
func (x *index) unended(goal int) []Milestone {
	var out []Milestone
	for i := range x.c.Units {
		u, s := &x.c.Units[i], x.first[i]
		if s.Activating == 0 || s.Activated > 0 || s.Deactivated > 0 || x.c.Manager.Finish > 0 && i != goal || x.timedOut(u.ID) {
			continue
		}
		out = append(out, Milestone{u.ID, s.Activating, x.net(0, s.Activating), u.ID})
	}
	slices.SortStableFunc(out, func(a, b Milestone) int { return cmp.Compare(a.At, b.At) })
	return out
}

// GoalEnded tells whether the record has the moment that the goal is measured to: the beginning of
// kubelet, the end of any other unit.
func (a *Analysis) GoalEnded() bool {
	hung := func(m Milestone) bool { return m.Name == a.Goal }
	return a.Goal != "" && (a.Goal == "kubelet.service" || !slices.ContainsFunc(a.Unended, hung))
}

// unendedVerdict names what the boot hung at when the record ended; the goal has a line of its own.
func (a *Analysis) unendedVerdict() []string {
	list := slices.Clone(a.Unended)
	if !a.GoalEnded() {
		list = slices.DeleteFunc(list, func(m Milestone) bool { return m.Name == a.Goal })
	}
	var out []string
	for n, m := range list {
		if n == maxUnended {
			out = append(out, fmt.Sprintf("And %s more that had not ended.", Count(len(list)-n, "unit")))
			break
		}
		out = append(out, a.notEnded(m))
	}
	return out
}

func (a *Analysis) notEnded(m Milestone) string {
	return fmt.Sprintf("%s began %s %s and had not ended when the record ended.", m.Name, m.At, a.After())
}
