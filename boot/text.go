package boot

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// WriteText writes the whole analysis for people.
func (a *Analysis) WriteText(w io.Writer) error {
	var b strings.Builder
	a.head(&b)
	if len(a.Phases) > 0 {
		b.WriteString("\nPhases\n")
		for _, p := range a.Phases {
			fmt.Fprintf(&b, "  %-18s %14s", p.Name, p.Net)
			if p.Net != p.Gross {
				fmt.Fprintf(&b, "   (%s with parking)", p.Gross)
			}
			b.WriteString("\n")
		}
	}
	if len(a.Milestones) > 0 {
		fmt.Fprintf(&b, "\nMilestones, since %s started\n", a.Origin())
		for _, m := range a.Milestones {
			fmt.Fprintf(&b, "  %-22s %14s", m.Name, m.Net)
			if m.Net != m.At {
				fmt.Fprintf(&b, "   (%s with parking)", m.At)
			}
			b.WriteString("\n")
		}
	}
	if a.Chain != nil {
		b.WriteString("\n")
		a.chainText(&b)
	}
	b.WriteString("\nVerdict\n")
	for _, v := range a.Verdict {
		b.WriteString("  " + v + "\n")
	}
	if len(a.Findings) > 0 {
		b.WriteString("\nRemarks\n")
		for _, f := range a.Findings {
			b.WriteString("  " + f + "\n")
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func (a *Analysis) head(b *strings.Builder) {
	h := a.Host
	for _, line := range [][2]string{
		{"Machine", strings.Join(fields(h.Name, h.OS, h.Kernel, h.Architecture, h.Virtualization), ", ")},
		{"Boot", h.BootID}, {"Image", h.Image},
	} {
		if line[1] != "" {
			fmt.Fprintf(b, "%-8s %s\n", line[0], line[1])
		}
	}
	if a.ParkedFor > 0 {
		fmt.Fprintf(b, "%-8s %s (%s); all times below are net of it unless they say otherwise\n", "Parked", a.ParkedFor,
			a.Parked[0].Evidence)
	}
}

func fields(list ...string) []string {
	out := list[:0]
	for _, s := range list {
		if s != "" {
			out = append(out, s)
		}
	}
	return out
}

// WriteTime writes phases and totals in a line, and the parked time in another.
func (a *Analysis) WriteTime(w io.Writer) error {
	var parts []string
	var gross, net Micros
	for _, p := range a.Phases {
		switch p.Name {
		case "firmware", "loader", "kernel", "initrd", "userspace":
			parts = append(parts, fmt.Sprintf("%s (%s)", p.Net, p.Name))
			gross, net = gross+p.Gross, net+p.Net
		}
	}
	var b strings.Builder
	if len(parts) == 0 {
		b.WriteString("How long the kernel and userspace took is not known.\n")
		for _, p := range a.Phases {
			fmt.Fprintf(&b, "%-22s %14s\n", p.Name, p.Net)
		}
	} else {
		fmt.Fprintf(&b, "%s = %s\n", strings.Join(parts, " + "), net)
	}
	if a.ParkedFor > 0 {
		fmt.Fprintf(&b, "parked %s besides (%s): %s in all\n", a.ParkedFor, a.Parked[0].Evidence, gross)
	}
	for _, m := range a.Milestones {
		fmt.Fprintf(&b, "%-22s %14s %s\n", m.Name, m.Net, a.After())
	}
	if len(parts) > 0 && !a.Finished {
		b.WriteString("startup has not finished\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// WriteBlame writes units, and tasks inside them, by the time they took, longest first, without those that took less than a
// millisecond.
func (a *Analysis) WriteBlame(w io.Writer) error {
	var b strings.Builder
	for _, u := range a.Blame {
		if u.Took < 1000 {
			continue
		}
		mark := " "
		if u.OnChain && a.chained() {
			mark = "*"
		}
		fmt.Fprintf(&b, "%14s %s %s", u.Net, mark, u.Unit)
		if u.Net != u.Took {
			fmt.Fprintf(&b, "  (%s with parking)", u.Took)
		}
		if u.Later {
			b.WriteString("  (a later run; the first was not captured)")
		} else if u.Restarted {
			b.WriteString("  (restarted since; this is the first run)")
		}
		b.WriteString("\n")
	}
	if a.chained() {
		b.WriteString("\n* on the critical chain to " + a.Goal + "\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// WriteChain writes the critical chain as a tree: what waited above, what it waited for below.
func (a *Analysis) WriteChain(w io.Writer) error {
	var b strings.Builder
	if a.Chain == nil {
		b.WriteString("No unit is known to have started.\n")
	} else {
		a.chainText(&b)
	}
	for _, f := range a.Findings {
		b.WriteString("note: " + f + "\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// chained tells whether there is a chain, and not just its goal in a record without ordering edges.
func (a *Analysis) chained() bool { return a.Chain != nil && (a.ordered || len(a.Chain.Next) > 0) }

func (a *Analysis) chainText(b *strings.Builder) {
	parking := ""
	if a.ParkedFor > 0 {
		parking = ", with parking"
	}
	from := "userspace"
	if a.Zero == 0 {
		from = "the start of " + a.Origin()
	}
	if a.chained() {
		fmt.Fprintf(b, "Critical chain to %s (@ began, counted from %s%s; + took; each waited for the one below)\n", a.Goal, from, parking)
	} else {
		fmt.Fprintf(b, "What %s waited for is not known (@ began, counted from %s%s; + took)\n", a.Goal, from, parking)
	}
	a.link(b, a.Chain, "", "")
}

func (a *Analysis) link(b *strings.Builder, l *Link, head, below string) {
	name := l.Unit
	switch l.Kind {
	case LinkTrigger, LinkDuring, LinkInside, LinkPresume, LinkTimeout:
		name = "(" + l.Kind + ") " + name
	}
	fmt.Fprintf(b, "%s%s @%s", head, name, l.Start-a.Zero)
	if l.Took > 0 {
		fmt.Fprintf(b, " +%s", l.Took)
	}
	if l.Net != l.Took {
		fmt.Fprintf(b, ", of it parked %s", l.Took-l.Net)
	}
	if l.First && l.Restarts > 0 {
		fmt.Fprintf(b, " (first of %d starts)", l.Restarts+1)
	}
	if l.Seen {
		b.WriteString(" …\n")
		return
	}
	b.WriteString("\n")
	if l.Idle >= IdleThreshold {
		fmt.Fprintf(b, "%s· idle %s: %s\n", below, l.Idle, cmp.Or(l.Why, "nothing known kept it"))
	}
	if l.Loading >= IdleThreshold {
		fmt.Fprintf(b, "%s· %s: %s (generators, unit files)\n", below, l.Loading, systemdItself)
	}
	for i := range l.Next {
		next, under := "└─", "  "
		if i < len(l.Next)-1 {
			next, under = "├─", "│ "
		}
		a.link(b, &l.Next[i], below+next, below+under)
	}
}

// Shorten cuts a name to n characters in its middle, where unit names say least.
func Shorten(name string, n int) string {
	if utf8.RuneCountInString(name) <= n {
		return name
	}
	r := []rune(name)
	tail := n * 2 / 5
	return string(r[:n-tail-1]) + "…" + string(r[len(r)-tail:])
}
