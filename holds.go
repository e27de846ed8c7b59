package kamino

import "slices"

// hold is something that a run has taken and must give back, in words for people.
type hold struct {
	what  string
	until string // the step that gives it back; "" none before the lease is free
}

// holds is what a run holds now. Runs that give back in the name of another share its list.
type holds struct{ list []hold }

// adoptedHold is what a run holds that was taken over, before its steps have told more.
var adoptedHold = hold{"what its former process had taken, perhaps the donor", InReturn}

// takes notes what a step takes once it has acted, or has found it done by the process that had the
// run before.
func (r *Run) takes(s Step) {
	if r.adopted && s.Name == InLock {
		r.holds.add(adoptedHold)
	}
	if s.Takes != "" {
		r.holds.add(hold{s.Takes, s.Until})
	}
	r.tellHolds()
}

// passed drops what a step gives back that is done or not needed, and tells who waits for it that
// the donor is back.
func (r *Run) passed(s Step) {
	r.holds.drop(func(h hold) bool { return h.until == s.Name || h.until == s.Ends })
	r.tellHolds()
	if s.DonorBack && r.DonorBack != nil {
		r.DonorBack(r.pool.ID)
	}
}

func (h *holds) add(one hold) {
	if !slices.Contains(h.list, one) {
		h.list = append(h.list, one)
	}
}

func (h *holds) drop(over func(hold) bool) {
	h.list = slices.DeleteFunc(h.list, func(one hold) bool { return one.until != "" && over(one) })
}

func (r *Run) tellHolds() {
	if r.Engine == nil || r.Holds == nil {
		return
	}
	what := make([]string, len(r.holds.list))
	for i, h := range r.holds.list {
		what[i] = h.what
	}
	r.Holds(r.pool.ID, what)
}
