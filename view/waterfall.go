package view

import (
	"cmp"
	"fmt"
	"html"
	"maps"
	"slices"
	"strings"

	"kamino.dev/kamino"
	"kamino.dev/kamino/internal/render"
	"kamino.dev/kamino/poolstate"
)

// Dimensions of the two waterfalls, in pixels.
const (
	fallBars = 520 // length of the longest boot
	fallWide = bootLeft + fallBars + 150
	fallRow  = 20
	fallHead = 26
)

// fall is the boot of one of the picture's two machines.
type fall struct {
	what, class string
	*kamino.Waterfall
}

// waterfalls draws the boot of a generic machine above that of a clone, to one scale. Nil if
// neither has phases with known starts.
func waterfalls(p poolstate.PoolStatus) *pagePicture {
	if p.Boots == nil {
		return nil
	}
	var falls []fall
	from, to := 0.0, 0.0
	for _, f := range []fall{{"generic machine", "usual", p.Boots.Generic}, {"clone", "newest", p.Boots.Clone}} {
		if f.Waterfall == nil {
			continue
		}
		falls = append(falls, f)
		for name, start := range f.Starts {
			from, to = min(from, start), max(to, f.end(name))
		}
	}
	if len(falls) == 0 || to <= from {
		return nil
	}
	at := func(seconds float64) float64 { return bootLeft + fallBars*(seconds-from)/(to-from) }
	var rows strings.Builder
	words, y := []string{compared(p.Boots)}, 0
	for _, f := range falls {
		title := fmt.Sprintf("%s %s, %s", f.what, f.Node, Instant(f.At))
		words = append(words, title+": "+f.words())
		fmt.Fprintf(&rows, `<text class="strong took" x="0" y="%d">%s</text>`, y+18, html.EscapeString(title))
		y += fallHead
		for _, name := range f.order() {
			fmt.Fprintf(&rows, `<text class="row" x="%d" y="%d">%s</text>`, bootLeft-10, y+14, html.EscapeString(tail(name, 20)))
			fmt.Fprintf(&rows, `<rect class="%s" x="%.1f" y="%d" width="%.1f" height="12" rx="2"/>`, f.class, at(f.Starts[name]), y+4,
				max(at(f.end(name))-at(f.Starts[name]), 1))
			fmt.Fprintf(&rows, `<text class="dim took" x="%.1f" y="%d">%s</text>`, at(f.end(name))+8, y+14,
				html.EscapeString(Seconds(f.Phases[name])))
			y += fallRow
		}
		y += 8
	}
	id := anchor(p)
	return &pagePicture{Pool: p.Name, Text: words[0], SVG: render.Raw(fmt.Sprintf(
		`<svg width="%d" height="%d" viewBox="0 0 %d %d" role="img" aria-labelledby="wt-%s wd-%s"><title id="wt-%s">Boots of a generic machine and of a clone of %s</title><desc id="wd-%s">%s</desc>%s</svg>`,
		fallWide, y, fallWide, y, id, id, id, html.EscapeString(p.Name), id, html.EscapeString(strings.Join(words, " ")), rows.String()))}
}

// end returns when a phase ended, since the kernel's start.
func (f fall) end(name string) float64 { return f.Starts[name] + f.Phases[name] }

// order returns the phases by their starts.
func (f fall) order() []string {
	return slices.SortedFunc(maps.Keys(f.Starts), func(a, b string) int {
		return cmp.Or(cmp.Compare(f.Starts[a], f.Starts[b]), cmp.Compare(a, b))
	})
}

func (f fall) words() string {
	var out []string
	for _, name := range f.order() {
		out = append(out, fmt.Sprintf("%s from %.1fs to %.1fs", name, f.Starts[name], f.end(name)))
	}
	return strings.Join(out, ", ") + "."
}

// goals are the phases that end a boot, best first. Two boots are compared by the first that both
// have.
var goals = []string{"Ready", "registered", "kubelet", "userspace"}

// compared describes by how much the clone is faster.
func compared(b *kamino.Boots) string {
	switch {
	case b.Clone == nil:
		return "The boot of a clone is not recorded yet: the agent of a canary reports it."
	case b.Generic == nil:
		return "No boot of a generic machine is recorded."
	}
	generic, clone := fall{Waterfall: b.Generic}, fall{Waterfall: b.Clone}
	for _, name := range goals {
		_, inGeneric := generic.Phases[name]
		if _, inClone := clone.Phases[name]; !inGeneric || !inClone {
			continue
		}
		was, is := generic.end(name), clone.end(name)
		more, word := was-is, "earlier"
		if more < 0 {
			more, word = -more, "later"
		}
		return fmt.Sprintf("From the start of the kernel to the end of phase %s the generic machine took %s and the clone %s: %s %s.", name,
			Seconds(was), Seconds(is), Seconds(more), word)
	}
	return "The two boots have no phase in common by which they are compared."
}
