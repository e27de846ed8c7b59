package boot

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Pause is a stretch in which the machine was parked: started in advance by the platform
// ("pre-provisioned"), it waited for the customer that it would belong to. That is not slowness;
// every aggregate is net of it.
type Pause struct {
	From Micros `json:"from"`
	To   Micros `json:"to"`
	Unit string `json:"unit,omitempty"`
	// Evidence says how it is known: "cloud-init span …", "link came back", "long and idle",
	// "long".
	Evidence string `json:"evidence"`
}

const (
	// parkedLength is from where on cloud-init's local stage is taken to have been parked: it has
	// no network yet, and works for single seconds.
	parkedLength = Micros(60 * 1000 * 1000)
	// parkedCPU is the share of CPU time below which such a stage counts as idle.
	parkedCPU = 10 // percent
)

// findPauses believes, in this order, what cloud-init says, what the network link did, and what the
// clock and the CPU show. Suspended time needs no finding: the monotonic clock stands still in it.
func findPauses(c *Capture) []Pause {
	var found []Pause
	for _, s := range c.Spans {
		if s.Kind != SpanPause {
			continue
		}
		end := s.End
		if u := c.Unit(s.Unit); end == 0 && u != nil {
			end = u.FirstStamps().Done()
		}
		if end > s.Start {
			found = append(found, Pause{s.Start, end, s.Unit, "cloud-init span " + s.Name})
		}
	}
	if len(found) > 0 {
		return mergePauses(found)
	}
	u := c.Unit("cloud-init-local.service")
	if u == nil {
		return nil
	}
	s := u.FirstStamps()
	if s.Took() < parkedLength {
		return nil
	}
	for _, m := range c.Marks {
		if m.Name == MarkLinkUp && m.At > s.Began()+parkedLength && m.At <= s.Done() {
			return []Pause{{s.Began(), m.At, u.ID, "network link came back inside the unit (" + strings.TrimSpace(m.Source) + ")"}}
		}
	}
	if u.CPU*100 > s.Took()*parkedCPU {
		return nil // it was busy: that is slowness
	}
	evidence := "long, CPU time unknown"
	if u.CPU > 0 {
		evidence = fmt.Sprintf("long and idle: %s of CPU in %s", u.CPU, s.Took())
	}
	return []Pause{{s.Began(), s.Done(), u.ID, evidence}}
}

// mergePauses joins overlapping ones, so that no second is counted twice.
func mergePauses(p []Pause) []Pause {
	slices.SortFunc(p, func(a, b Pause) int { return cmp.Compare(a.From, b.From) })
	out := p[:1]
	for _, q := range p[1:] {
		if last := &out[len(out)-1]; q.From <= last.To {
			last.To = max(last.To, q.To)
		} else {
			out = append(out, q)
		}
	}
	return out
}
