package boot

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Analysis is what a capture says.
type Analysis struct {
	Host Host `json:"host"`
	// Since is what all stamps here count from: the start of the kernel, of the container or of the
	// soft reboot; of a record that does not know that, of userspace or of cloud-init.
	Since string `json:"since"`
	// Zero is the stamp that the chain's times count from: the start of userspace.
	Zero       Micros      `json:"zero"`
	Finished   bool        `json:"finished"`
	Parked     []Pause     `json:"parked,omitempty"`
	ParkedFor  Micros      `json:"parkedFor,omitempty"`
	Phases     []Phase     `json:"phases,omitempty"`
	Milestones []Milestone `json:"milestones,omitempty"`
	// Goal is the unit that the chain leads to: kubelet, else cloud-final, else the default target.
	Goal     string    `json:"goal,omitempty"`
	GoalAt   Milestone `json:"goalAt,omitzero"`
	Chain    *Link     `json:"chain,omitempty"`
	Segments []Segment `json:"segments,omitempty"`
	Costs    []Cost    `json:"costs,omitempty"`
	Remedies []Remedy  `json:"remedies,omitempty"`
	Blame    []Blame   `json:"blame,omitempty"`
	// Unended are units that had begun to start and had not ended when the record did.
	Unended []Milestone `json:"unended,omitempty"`
	Verdict []string    `json:"verdict,omitempty"`
	// Findings are remarks on the record: a container, a soft reboot, clock jumps, stamps that
	// contradict each other.
	Findings []string `json:"findings,omitempty"`

	asked   bool // for the goal, by name
	ordered bool // the record has ordering edges
}

// Blame is a unit and the time it took to start, the first time in this boot; or a task, which ran
// inside a unit.
type Blame struct {
	Unit    string `json:"unit"`
	Task    bool   `json:"task,omitempty"`
	Took    Micros `json:"took"`
	Net     Micros `json:"net"`
	Start   Micros `json:"start,omitempty"` // zero where the record has a length only
	OnChain bool   `json:"onChain,omitempty"`
	// Restarted tells that the unit ran again later; Later that these stamps are of such a run,
	// because the first is unknown.
	Restarted bool `json:"restarted,omitempty"`
	Later     bool `json:"later,omitempty"`
}

// Options choose what a chain leads to and how wide it is.
type Options struct {
	// Unit is the goal; empty means kubelet, else cloud-final, else the default target.
	Unit string
	// Fuzz also follows causes that were up at most so much before the latest one.
	Fuzz Micros
}

// Analyze looks at a capture. The only error is a unit that is asked for and is not there.
func Analyze(c *Capture, o Options) (*Analysis, error) {
	x := newIndex(c)
	c = x.c
	a := &Analysis{Host: c.Host, Since: x.since, Zero: c.Manager.Userspace, Finished: c.Manager.Finish > 0, Parked: x.pauses,
		asked: o.Unit != "", ordered: x.ordered}
	for _, p := range x.pauses {
		a.ParkedFor += p.To - p.From
	}
	a.Milestones = x.milestones()
	a.Phases = x.phases(a.Milestones)
	goal, ok := x.goal()
	if o.Unit != "" {
		if goal, ok = x.byName[o.Unit]; !ok {
			goal, ok = x.byName[o.Unit+".service"]
		}
		if !ok {
			return nil, fmt.Errorf("find unit %s: not in this capture; `kamino boot blame` lists those that are", o.Unit)
		}
		if x.first[goal].Began() == 0 {
			return nil, fmt.Errorf("find unit %s: it did not start in this boot", o.Unit)
		}
	}
	onChain := map[string]bool{}
	if !ok {
		goal = -1
	}
	a.Unended = x.unended(goal)
	if ok {
		a.Goal = c.Units[goal].ID
		a.Chain = x.chain(goal, o.Fuzz)
		at := x.first[goal].Began()
		if a.Goal != "kubelet.service" {
			at = max(x.first[goal].Done(), at)
		}
		a.GoalAt = Milestone{a.Goal, at, x.net(0, at), a.Goal}
		path := a.Chain.Path()
		for _, l := range path {
			onChain[l.Unit] = true
		}
		a.Segments = x.segments(a.Chain)
		a.Costs = x.costs(a.Segments)
		if len(path) > 1 && a.GoalEnded() { // what has no end cannot be replayed
			a.Remedies = x.remedies(goal, a.Chain)
		}
	}
	a.Blame = x.blame(onChain)
	gaveUp := x.timeoutVerdict(a.After())
	if x.heldBack(a.GoalAt.At) {
		a.Verdict = slices.Concat(a.unendedVerdict(), gaveUp, a.verdict())
	} else {
		a.Verdict = slices.Concat(a.unendedVerdict(), a.verdict(), gaveUp)
	}
	a.Findings = x.findings(a.chained())
	return a, nil
}

func (x *index) goal() (int, bool) {
	if i, ok := x.started("kubelet.service", "cloud-final.service", "default.target", "graphical.target", "multi-user.target"); ok {
		return i, true
	}
	best, found := 0, false
	for i, s := range x.first {
		if s.Done() > 0 && (!found || s.Done() > x.first[best].Done()) {
			best, found = i, true
		}
	}
	return best, found
}

func (x *index) blame(onChain map[string]bool) []Blame {
	var out []Blame
	for i := range x.c.Units {
		u, s := &x.c.Units[i], x.first[i]
		if s.Began() == 0 || s.Done() <= s.Began() {
			continue
		}
		out = append(out, Blame{Unit: u.ID, Took: s.Done() - s.Began(), Net: x.net(s.Began(), s.Done()), Start: s.Began(),
			OnChain: onChain[u.ID], Restarted: u.Restarted(), Later: u.First == nil && u.Restarts > 0})
	}
	for _, t := range x.c.Spans {
		if t.Kind == SpanTask && t.End > t.Start {
			out = append(out, Blame{Unit: t.Name, Task: true, Took: t.End - t.Start, Net: x.net(t.Start, t.End), Start: t.Start,
				OnChain: onChain[t.Name]})
		}
	}
	placed := make(map[string]bool, len(out))
	for _, b := range out {
		placed[b.Unit] = true
	}
	for _, l := range x.c.Lengths {
		if l.Took > 0 && !placed[l.Name] {
			out = append(out, Blame{Unit: l.Name, Task: strings.Contains(l.Name, "/"), Took: l.Took, Net: l.Took})
		}
	}
	slices.SortStableFunc(out, func(a, b Blame) int {
		return cmp.Or(cmp.Compare(b.Net, a.Net), cmp.Compare(b.Took, a.Took), cmp.Compare(a.Unit, b.Unit))
	})
	return out
}

func (x *index) findings(chained bool) []string {
	out := slices.Clone(x.c.Notes)
	m := x.c.Manager
	say := func(cond bool, format string, args ...any) {
		if cond {
			out = append(out, fmt.Sprintf(format, args...))
		}
	}
	say(m.Userspace > 0 && m.Finish == 0, "the boot had not finished when this was captured: later units are missing")
	say(x.since == sinceContainer, "a container, or a manager without a kernel of its own: there are no firmware, loader, kernel and initrd phases")
	say(x.since == sinceSoftReboot, "a soft reboot: the kernel and what came before belong to an earlier boot")
	say(x.older > 0, "left out: %s up before the %s began", Count(x.older, "unit"), x.since)
	for _, mark := range x.c.Marks {
		say(mark.Name == MarkClockJump, "clock jump at %s: %s", mark.At, mark.Detail)
		say(mark.Name == "suspend", "suspended at %s: the monotonic clock stood still", mark.At)
	}
	early, odd := 0, 0
	for i := range x.c.Units {
		s := x.first[i]
		if s.Began() > 0 && m.Userspace > 0 && s.Began() < m.Userspace {
			early++
		}
		if s.Activating > 0 && s.Done() == 0 && (s.Activated > 0 || s.Deactivated > 0) {
			odd++
		}
	}
	say(early > 0, "%s started before userspace (left over from the initrd or from an earlier run), with negative times",
		Count(early, "unit"))
	say(odd > 0, "restarting when captured, with stamps of two runs: %s", Count(odd, "unit"))
	say(!x.ordered && len(x.c.Units) > 0 && chained,
		"no ordering edges are known, so the chain is only what ran meanwhile; add `systemctl show --all '*'` of the same boot")
	say(!x.ordered && len(x.c.Units) > 0 && !chained,
		"no ordering edges are known, so there is no chain; add `systemctl show --all '*'` of the same boot")
	for _, e := range x.c.CloudInit.Errors {
		say(true, "cloud-init: %s", e)
	}
	return out
}
