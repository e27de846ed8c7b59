package boot

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
)

// Pool sums up the boots of many machines. Add keeps a few numbers of each, not the captures, so
// that a thousand fit easily. Every time is net of parking.
type Pool struct {
	boots      int
	parked     int
	milestones map[string]map[string][]Micros // by what they count from, and name
	chain      map[string]*chainStat
	totals     []poolBoot
	kinds      map[poolKind]int
}

// poolKind is what a boot's total is of. Only totals of one kind can be summed up.
type poolKind struct {
	goal, since string
	unended     bool // there is no total: the goal had not ended when the record did
}

func (k poolKind) measured() bool { return k.goal != "" && !k.unended }

func (k poolKind) compare(o poolKind) int {
	return cmp.Or(strings.Compare(k.goal, o.goal), strings.Compare(k.since, o.since))
}

type chainStat struct {
	on    int
	times []Micros
}

type poolBoot struct {
	name string
	kind poolKind
	net  Micros
}

// PoolReport is what a pool's boots have in common, and which do not.
type PoolReport struct {
	Boots      int         `json:"boots"`
	Parked     int         `json:"parked"`
	Goal       string      `json:"goal"`
	Since      string      `json:"since"` // what total and milestones count from
	Total      Spread      `json:"total"`
	Milestones []Spread    `json:"milestones,omitempty"`
	Chain      []OnChain   `json:"chain,omitempty"`
	Outliers   []Outlier   `json:"outliers,omitempty"`
	Other      []OtherGoal `json:"otherGoals,omitempty"`
}

// Spread is a time over many boots.
type Spread struct {
	Name   string `json:"name"`
	Boots  int    `json:"boots"`
	Median Micros `json:"median"`
	P90    Micros `json:"p90"`
	Most   Micros `json:"max"`
}

// OnChain is how often a unit is on the critical chain, and how long it then takes.
type OnChain struct {
	Spread
	Share float64 `json:"share"` // of all boots, 0 to 1
}

// Outlier is a boot far from the others: more than the median by three times the median distance
// from it (MAD, scaled to a standard deviation) and by at least a tenth.
type Outlier struct {
	Name string `json:"name"`
	Net  Micros `json:"net"`
	Over Micros `json:"over"` // above the median
}

// OtherGoal counts boots that were measured to another unit than most, or from another moment, or
// whose goal had not ended. They are in no total.
type OtherGoal struct {
	Goal    string `json:"goal"`
	Since   string `json:"since"`
	Unended bool   `json:"unended,omitempty"`
	Boots   int    `json:"boots"`
}

// Summary is the little of an analysis that a pool keeps.
type Summary struct {
	name       string
	kind       poolKind
	net        Micros
	parked     bool
	milestones []Milestone
	chain      map[string]Micros
}

// Summarize takes out of an analysis what a pool needs; name is for boots without a host name.
func Summarize(name string, a *Analysis) *Summary {
	s := &Summary{name: strings.Clone(cmp.Or(a.Host.Name, name)), kind: poolKind{strings.Clone(a.Goal), a.zeroPoint(), a.Goal != "" &&
		!a.GoalEnded()}, net: a.GoalAt.Net, parked: a.ParkedFor > 0, chain: chainTimes(a)}
	for _, m := range a.Milestones {
		s.milestones = append(s.milestones, Milestone{Name: m.Name, Net: m.Net})
	}
	return s
}

// Add takes a boot in.
func (p *Pool) Add(s *Summary) {
	if p.milestones == nil {
		p.milestones, p.chain, p.kinds = map[string]map[string][]Micros{}, map[string]*chainStat{}, map[poolKind]int{}
	}
	p.boots++
	if s.parked {
		p.parked++
	}
	from := p.milestones[s.kind.since]
	if from == nil {
		from = map[string][]Micros{}
		p.milestones[s.kind.since] = from
	}
	for _, m := range s.milestones {
		from[m.Name] = append(from[m.Name], m.Net)
	}
	for unit, t := range s.chain {
		st := p.chain[unit]
		if st == nil {
			st = &chainStat{}
			p.chain[unit] = st
		}
		st.on++
		st.times = append(st.times, t)
	}
	p.kinds[s.kind]++
	p.totals = append(p.totals, poolBoot{s.name, s.kind, s.net})
}

// Report sums up what was added.
func (p *Pool) Report() *PoolReport {
	r := &PoolReport{Boots: p.boots, Parked: p.parked}
	most := poolKind{since: sinceKernel}
	for kind, n := range p.kinds {
		if was := p.kinds[most]; kind.measured() && (!most.measured() || n > was || n == was && kind.compare(most) < 0) {
			most = kind
		}
	}
	r.Goal, r.Since = most.goal, most.since
	var times []Micros
	for _, b := range p.totals {
		if b.kind == most {
			times = append(times, b.net)
		}
	}
	r.Total = spread(r.Goal, times)
	for kind, n := range p.kinds {
		if kind != most {
			r.Other = append(r.Other, OtherGoal{kind.goal, kind.since, kind.unended, n})
		}
	}
	slices.SortFunc(r.Other, func(a, b OtherGoal) int {
		return cmp.Or(cmp.Compare(b.Boots, a.Boots), strings.Compare(a.Goal, b.Goal), strings.Compare(a.Since, b.Since))
	})
	for name, list := range p.milestones[most.since] {
		r.Milestones = append(r.Milestones, spread(name, list))
	}
	slices.SortFunc(r.Milestones, func(a, b Spread) int { return cmp.Or(cmp.Compare(a.Median, b.Median), strings.Compare(a.Name, b.Name)) })
	for name, st := range p.chain {
		r.Chain = append(r.Chain, OnChain{spread(name, st.times), float64(st.on) / float64(p.boots)})
	}
	slices.SortFunc(r.Chain, func(a, b OnChain) int {
		return cmp.Or(cmp.Compare(b.Share*float64(b.Median), a.Share*float64(a.Median)), strings.Compare(a.Name, b.Name))
	})
	r.Outliers = p.outliers(r, most, times)
	return r
}

func (p *Pool) outliers(r *PoolReport, most poolKind, times []Micros) []Outlier {
	if len(times) < 4 {
		return nil
	}
	away := make([]Micros, len(times))
	for i, t := range times {
		away[i] = absolute(t - r.Total.Median)
	}
	mad := spread("", away).Median
	limit := r.Total.Median + max(mad*45/10, r.Total.Median/10) // 3 × 1.4826 ≈ 4.5
	var out []Outlier
	for _, b := range p.totals {
		if b.kind == most && b.net > limit {
			out = append(out, Outlier{b.name, b.net, b.net - r.Total.Median})
		}
	}
	slices.SortStableFunc(out, func(a, b Outlier) int { return cmp.Compare(b.Net, a.Net) })
	return out
}

// spread sorts times in place.
func spread(name string, times []Micros) Spread {
	if len(times) == 0 {
		return Spread{Name: name}
	}
	slices.Sort(times)
	n := len(times)
	return Spread{name, n, (times[(n-1)/2] + times[n/2]) / 2, times[min(n-1, (n*9+9)/10-1)], times[n-1]}
}

// WriteText writes the report for people.
func (r *PoolReport) WriteText(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s", Count(r.Boots, "boot"))
	if r.Parked > 0 {
		fmt.Fprintf(&b, ", %d of them parked by the platform (all times are net of that)", r.Parked)
	}
	fmt.Fprintf(&b, "\n%s: median %s, p90 %s, slowest %s\n", cmp.Or(r.Goal, "no goal"), r.Total.Median, r.Total.P90, r.Total.Most)
	for _, o := range r.Other {
		switch boots := Count(o.Boots, "boot"); {
		case o.Unended:
			fmt.Fprintf(&b, "%s ended before %s had ended, not counted in that line\n", boots, o.Goal)
		case o.Since != r.Since:
			fmt.Fprintf(&b, "%s led to %s, counted from the start of %s instead of %s, not counted in that line\n", boots,
				cmp.Or(o.Goal, "nothing"), originOf(o.Since), originOf(r.Since))
		default:
			fmt.Fprintf(&b, "%s led to %s instead, not counted in that line\n", boots, cmp.Or(o.Goal, "nothing"))
		}
	}
	fmt.Fprintf(&b, "\n%-44s %6s %12s %12s %12s\n", "Milestones, since "+originOf(r.Since)+" started", "boots", "median", "p90", "max")
	for _, m := range r.Milestones {
		fmt.Fprintf(&b, "  %-42s %6d %12s %12s %12s\n", m.Name, m.Boots, m.Median, m.P90, m.Most)
	}
	fmt.Fprintf(&b, "\n%-44s %6s %12s %12s %12s\n", "On the critical chain", "share", "median", "p90", "max")
	for i, c := range r.Chain {
		if i == 20 {
			fmt.Fprintf(&b, "  and %d more\n", len(r.Chain)-i)
			break
		}
		fmt.Fprintf(&b, "  %-42s %5.0f%% %12s %12s %12s\n", Shorten(c.Name, 42), c.Share*100, c.Median, c.P90, c.Most)
	}
	if len(r.Outliers) > 0 {
		b.WriteString("\nOutliers\n")
		for _, o := range r.Outliers {
			fmt.Fprintf(&b, "  %-42s %12s   %s above the median\n", o.Name, o.Net, o.Over)
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}
