package boot

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Tidy removes duplicate units (the later mention of a unit fills what the earlier one lacks), sorts
// spans and marks, and removes from every text what a terminal obeys.
func (c *Capture) Tidy() {
	c.plain()
	seen := make(map[string]int, len(c.Units))
	kept := c.Units[:0]
	for _, u := range c.Units {
		if i, ok := seen[u.ID]; ok {
			kept[i].fill(&u)
			continue
		}
		seen[u.ID] = len(kept)
		kept = append(kept, u)
	}
	c.Units = kept
	measured := map[string]bool{}
	c.Lengths = slices.DeleteFunc(c.Lengths, func(l Length) bool {
		again := measured[l.Name]
		measured[l.Name] = true
		return again
	})
	slices.SortStableFunc(c.Spans, func(a, b Span) int { return cmp.Compare(a.Start, b.Start) })
	c.Spans = dropRepeats(c.Spans)
	slices.SortStableFunc(c.Marks, func(a, b Mark) int { return cmp.Compare(a.At, b.At) })
	c.Marks = slices.Compact(c.Marks)
	written := map[string]bool{}
	c.Marks = slices.DeleteFunc(c.Marks, func(m Mark) bool { // a later look converts a file's time by the clocks as they then are
		if m.Source != SourceFileTime {
			return false
		}
		again := written[m.Name]
		written[m.Name] = true
		return again
	})
}

// dropRepeats keeps one of the spans that two looks at the same task gave, the one that has ended
// if one has.
func dropRepeats(spans []Span) []Span {
	last := map[string]int{} // index of the latest of a name
	kept := spans[:0]
	for _, s := range spans {
		key := s.Kind + "\x00" + s.Name
		if i, ok := last[key]; ok && s.Start-kept[i].Start <= sameStart &&
			(kept[i].End == 0 || s.End == 0 || absolute(s.End-kept[i].End) <= sameStart) {
			if kept[i].End == 0 {
				kept[i] = s
			}
			continue
		}
		last[key] = len(kept)
		kept = append(kept, s)
	}
	return kept
}

// sameStart is how far two records of the same start may be apart: the journal's entry and
// systemd's own stamp.
const sameStart = Micros(100 * 1000)

// fill takes from o what u does not know.
func (u *Unit) fill(o *Unit) {
	if u.Stamps == (Stamps{}) {
		u.Stamps, u.Coarse = o.Stamps, o.Coarse
	}
	if mine, first := u.FirstStamps().Began(), o.FirstStamps(); first.Began() > 0 && (mine == 0 || first.Began()+sameStart < mine) {
		u.First = &first
	}
	u.Restarts = max(u.Restarts, o.Restarts)
	u.CPU = max(u.CPU, o.CPU)
	u.RemainsActive = u.RemainsActive || o.RemainsActive
	u.ActiveState = cmp.Or(u.ActiveState, o.ActiveState)
	u.Result = cmp.Or(u.Result, o.Result)
	for _, l := range []struct{ to, from *[]string }{
		{&u.Names, &o.Names}, {&u.After, &o.After}, {&u.Wants, &o.Wants}, {&u.Requires, &o.Requires}, {&u.TriggeredBy, &o.TriggeredBy},
	} {
		if len(*l.to) == 0 {
			*l.to = *l.from
		}
	}
}

// MergeEarlier adds an earlier look at the same boot by the same means. Stamps that systemd has
// forgotten since then become first activations.
func (c *Capture) MergeEarlier(o *Capture) error {
	o.demote()
	return c.Merge(o)
}

// demote makes the stamps of all units those of their first activation only: [Unit.Stamps] is what
// systemd said last.
func (c *Capture) demote() {
	for i := range c.Units {
		if u := &c.Units[i]; u.Stamps != (Stamps{}) {
			first := u.FirstStamps()
			u.First, u.Stamps = &first, Stamps{}
		}
	}
}

// bySystemd tells whether the stamps are systemd's own.
func (c *Capture) bySystemd() bool {
	return slices.Contains(c.Sources, SourceSystemd) || slices.Contains(c.Sources, SourceShow)
}

// Sources whose stamps are systemd's own.
const (
	SourceSystemd = "systemd"
	SourceShow    = "systemctl-show"
)

// NoteNoManager is the note of a record of units without their manager; a merge that brings the
// manager takes it away.
const NoteNoManager = "the dump has no manager block: phases are unknown; add the output of plain `systemctl show`"

// NoteFloating is the note of spans that are not tied to the kernel's start.
const NoteFloating = "cloud-init's stamps are not tied to the start of the kernel: times count from its first event; add cloud-init.log or `systemctl show`"

// Merge adds what another record of the same boot knows: a `systemctl show` dump and that boot's
// cloud-init.log, say. What c knows already stays, but systemd's own stamps go before those that
// others saw. Records that are not of one boot are refused, as [Capture.SameBoot] says.
func (c *Capture) Merge(o *Capture) error {
	if err := c.SameBoot(o); err != nil {
		return fmt.Errorf("merge captures: %w", err)
	}
	if c.NoStart || o.NoStart {
		return errors.New("merge captures: a log without the beginning of a boot, whose times nothing ties to another record; omit it, or put the lines of the log before it into the same file")
	}
	switch mine, theirs := c.bySystemd(), o.bySystemd(); {
	case mine && !theirs:
		o.demote()
	case theirs && !mine:
		first := *c
		if err := o.Merge(&first); err != nil {
			return err
		}
		*c = *o
		return nil
	}
	o.land(c)
	c.land(o)
	switch {
	case c.Floating > FloatNowhere && o.Floating > FloatNowhere:
		o.ShiftSpans(o.Floating - c.Floating)
	case c.Floating > 0 && o.placed(): // nothing ties them; the note says so
		c.Floating = 0
	}
	if err := c.align(o); err != nil {
		return fmt.Errorf("merge captures: %w", err)
	}
	c.preferExact(o)
	for _, s := range o.Sources {
		if !slices.Contains(c.Sources, s) {
			c.Sources = append(c.Sources, s)
		}
	}
	h, g := &c.Host, o.Host
	for _, f := range []struct {
		to   *string
		from string
	}{
		{&h.Name, g.Name}, {&h.BootID, g.BootID}, {&h.Kernel, g.Kernel}, {&h.OS, g.OS}, {&h.Architecture, g.Architecture},
		{&h.Virtualization, g.Virtualization}, {&h.VMID, g.VMID}, {&h.Image, g.Image},
		{&c.CloudInit.Version, o.CloudInit.Version}, {&c.CloudInit.Datasource, o.CloudInit.Datasource},
		{&c.CloudInit.PPSType, o.CloudInit.PPSType}, {&c.CloudInit.Status, o.CloudInit.Status},
	} {
		*f.to = cmp.Or(*f.to, f.from)
	}
	if c.Manager.Userspace == 0 {
		was := c.Manager
		c.Manager = o.Manager
		c.Manager.KernelRealtime = cmp.Or(was.KernelRealtime, o.Manager.KernelRealtime)
		c.Manager.Finish = cmp.Or(o.Manager.Finish, was.Finish)
	}
	if c.TakenAt.IsZero() {
		c.TakenAt = o.TakenAt
	}
	c.CloudInit.Errors = append(c.CloudInit.Errors, o.CloudInit.Errors...)
	c.Units = append(c.Units, o.Units...)
	c.Spans = append(c.Spans, o.Spans...)
	c.Marks = append(c.Marks, o.Marks...)
	c.Lengths = append(c.Lengths, o.Lengths...)
	for _, n := range o.Notes {
		c.Note("%s", n)
	}
	if c.Manager.Userspace > 0 {
		c.Notes = slices.DeleteFunc(c.Notes, func(n string) bool { return n == NoteNoManager })
	}
	c.Tidy()
	return nil
}

// align makes two records count from one moment, the kernel's start where either knows how long that
// took.
func (c *Capture) align(o *Capture) error {
	if c.Manager.FromUserspace == o.Manager.FromUserspace {
		return nil
	}
	late, other := c, o
	if o.Manager.FromUserspace {
		late, other = o, c
	}
	switch userspace := other.Manager.Userspace; {
	case !other.placed():
		other.Manager.FromUserspace = true
	case userspace == 0:
		return errors.New("one record counts from the start of userspace and the other from the kernel's, and neither knows how long the kernel took; give one at a time, or add `systemctl show`")
	default:
		late.shift(userspace)
		late.Manager = Manager{}
	}
	return nil
}

// coarseSlack is how far a stamp in whole seconds may be from the exact one of the same moment: both it
// and the moment from which that record counts were cut.
const coarseSlack = Micros(2 * 1000 * 1000)

// preferExact takes away the times in whole seconds of which the other record has the exact ones.
func (c *Capture) preferExact(o *Capture) {
	mine := make(map[string]*Unit, len(c.Units))
	for i := range c.Units {
		mine[c.Units[i].ID] = &c.Units[i]
	}
	for i := range o.Units {
		exact, coarse := &o.Units[i], mine[o.Units[i].ID]
		if coarse == nil || coarse.Coarse == exact.Coarse {
			continue
		}
		if exact.Coarse {
			exact, coarse = coarse, exact
		}
		if coarse.First != nil && coarse.Stamps != (Stamps{}) { // of two starts
			continue
		}
		e, k := exact.FirstStamps(), coarse.FirstStamps()
		if e.Began() == 0 || k.Began() == 0 || absolute(e.Began()-k.Began()) > coarseSlack {
			continue
		}
		if e.Done() == 0 && k.Done() > 0 && exact.First == nil { // the exact record is the earlier one
			exact.Activated = max(k.Done(), e.Began())
		}
		coarse.Stamps, coarse.First = Stamps{}, nil
	}
	c.dropCoarseMarks(o)
	o.dropCoarseMarks(c)
}

// dropCoarseMarks removes the marks of a record in whole seconds that another one has.
func (c *Capture) dropCoarseMarks(o *Capture) {
	exact := func(u Unit) bool { return !u.Coarse }
	if len(c.Units) == 0 || slices.ContainsFunc(c.Units, exact) || !slices.ContainsFunc(o.Units, exact) {
		return
	}
	c.Marks = slices.DeleteFunc(c.Marks, func(m Mark) bool {
		return slices.ContainsFunc(o.Marks, func(n Mark) bool { return n.Name == m.Name && absolute(n.At-m.At) <= coarseSlack })
	})
}

// placed tells whether the record has any stamp.
func (c *Capture) placed() bool {
	return c.Floating == 0 && len(c.Spans) > 0 || len(c.Marks) > 0 || c.Manager.Finish > 0 ||
		slices.ContainsFunc(c.Units, func(u Unit) bool { return u.FirstStamps() != (Stamps{}) })
}

// shift moves all stamps of units, spans and marks.
func (c *Capture) shift(by Micros) {
	move := func(s *Stamps) {
		for _, m := range []*Micros{&s.Activating, &s.Activated, &s.Deactivating, &s.Deactivated} {
			if *m > 0 {
				*m = min(*m+by, MaxStamp)
			}
		}
	}
	for i := range c.Units {
		move(&c.Units[i].Stamps)
		if c.Units[i].First != nil {
			move(c.Units[i].First)
		}
	}
	for i := range c.Marks {
		c.Marks[i].At = min(c.Marks[i].At+by, MaxStamp)
	}
	c.ShiftSpans(by)
}

// land ties floating spans to the clock of another record, by the kernel's wall time or by the unit
// of cloud-init's first stage.
func (c *Capture) land(on *Capture) {
	if c.Floating == 0 {
		return
	}
	u := on.Unit("cloud-init-local.service")
	switch {
	case on.Manager.KernelRealtime > 0 && c.Floating > FloatNowhere:
		c.ShiftSpans(c.Floating - on.Manager.KernelRealtime)
	case u != nil && u.FirstStamps().Began() > 0:
		c.ShiftSpans(u.FirstStamps().Began() - floatStart)
	default:
		return
	}
	c.Floating, c.Manager.FromUserspace = 0, on.Manager.FromUserspace
	c.Notes = slices.DeleteFunc(c.Notes, func(n string) bool { return n == NoteFloating })
}

func plainID(id string) string { return strings.ToLower(strings.ReplaceAll(id, "-", "")) }

// ShiftSpans moves all spans by a length, keeping them after the record's zero.
func (c *Capture) ShiftSpans(by Micros) {
	for i := range c.Spans {
		s := &c.Spans[i]
		s.Start = min(max(s.Start+by, 1), MaxStamp)
		if s.End > 0 {
			s.End = min(max(s.End+by, s.Start), MaxStamp)
		}
	}
}
