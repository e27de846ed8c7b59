package draw

import (
	"cmp"
	"fmt"
	"html"
	"slices"
	"strings"

	"kamino.dev/kamino/boot"
)

// Measures of the picture of two boots, in pixels.
const (
	pairWidth = 1160.0
	pairLeft  = 290.0 // where time begins
	pairEnd   = 90.0  // lengths written behind the last bars
	pairRow   = 19.0
	pairMost  = 14 // rows of each boot
)

// pairBar is a bar of one of two boots, net of parking.
type pairBar struct {
	name, class string
	from, to    boot.Micros
}

// waterfalls draws two boots below each other on one axis: the phases of each, and what its
// critical chain was waiting for. Both are net of parking, and begin where the kernel does.
func waterfalls(b *strings.Builder, sides [2]boot.Side, both [2]*boot.Analysis) {
	var bars [2][]pairBar
	var end boot.Micros = 1
	rows := 0
	for i, a := range both {
		bars[i] = pairBars(a)
		for _, bar := range bars[i] {
			end = max(end, bar.to)
		}
		end = max(end, a.GoalAt.Net)
		rows += len(bars[i]) + 2
	}
	x := func(t boot.Micros) float64 {
		return pairLeft + (pairWidth-pairLeft-pairEnd)*float64(t)/float64(end)
	}
	height := 26 + float64(rows)*pairRow
	words := ""
	for i, a := range both {
		words += fmt.Sprintf("%c, %s: %s after %s. ", 'A'+rune(i), sides[i].Name, goalName(a), a.GoalAt.Net)
		for _, bar := range bars[i] {
			words += fmt.Sprintf("%s from %s for %s. ", bar.name, shortMicros(bar.from), bar.to-bar.from)
		}
	}
	fmt.Fprintf(b, `<h2>Both on one axis, net of parking</h2><div class="scroll" tabindex="0" role="group" aria-label="waterfalls of both boots, scrolls sideways"><svg id="pair" width="%g" height="%g" viewBox="0 0 %g %g" role="img" aria-labelledby="pair-title pair-desc">`, pairWidth, height, pairWidth, height)
	fmt.Fprintf(b, `<title id="pair-title">Waterfalls of the boots of %s and %s</title><desc id="pair-desc">%s</desc>`,
		html.EscapeString(sides[0].Name), html.EscapeString(sides[1].Name), html.EscapeString(strings.TrimSpace(words)))
	for _, t := range newAxis(0, end, nil, pairLeft, pairWidth-pairEnd).ticks(90) {
		fmt.Fprintf(b, `<line class="grid" x1="%.1f" x2="%.1f" y1="20" y2="%g"/><text class="x" x="%.1f" y="14">%s</text>`, t.X, t.X,
			height, t.X, t.Label)
	}
	y := 26.0
	for i, a := range both {
		top := y
		fmt.Fprintf(b, `<text class="ph" x="0" y="%g">%c · %s</text>`, y+14, 'A'+rune(i),
			html.EscapeString(boot.Shorten(sides[i].Name, 34)))
		y += pairRow
		for _, bar := range bars[i] {
			fmt.Fprintf(b, `<g class="%s"><title>%s</title><text class="n" text-anchor="end" x="%g" y="%g">%s</text><rect class="bar" x="%.1f" y="%g" width="%.1f" height="11" rx="1"/><text class="d" x="%.1f" y="%g">%s</text></g>`,
				bar.class, html.EscapeString(bar.name), pairLeft-10, y+13, html.EscapeString(boot.Shorten(bar.name, 34)),
				x(bar.from), y+4, max(x(bar.to)-x(bar.from), 1.5), max(x(bar.to), x(bar.from)+1.5)+6, y+13, bar.to-bar.from)
			y += pairRow
		}
		fmt.Fprintf(b, `<line class="goal" x1="%.1f" x2="%.1f" y1="%g" y2="%g"/><text class="flagt" text-anchor="end" x="%.1f" y="%g">%s %s</text>`,
			x(a.GoalAt.Net), x(a.GoalAt.Net), top+4, y, x(a.GoalAt.Net)-5, top+14, html.EscapeString(goalName(a)),
			shortMicros(a.GoalAt.Net))
		y += pairRow
	}
	b.WriteString("</svg></div>\n")
}

// pairBars are the phases of a boot until userspace, and the steps of its critical chain that took
// longest, in the order of time.
func pairBars(a *boot.Analysis) []pairBar {
	var bars []pairBar
	for _, p := range a.Phases {
		if p.Name == "kernel" || p.Name == "initrd" {
			from := a.Net(0, p.Start)
			bars = append(bars, pairBar{p.Name, "phase", from, from + p.Net})
		}
	}
	if a.Chain == nil {
		return bars
	}
	var steps []pairBar
	for _, l := range a.Chain.Path() {
		if l.Net > 0 {
			from := a.Net(0, l.Start)
			steps = append(steps, pairBar{l.Unit, "chain", from, from + l.Net})
		}
	}
	slices.SortStableFunc(steps, func(p, q pairBar) int { return cmp.Compare(q.to-q.from, p.to-p.from) })
	steps = steps[:min(len(steps), pairMost-len(bars))]
	slices.SortStableFunc(steps, func(p, q pairBar) int { return cmp.Or(cmp.Compare(p.from, q.from), cmp.Compare(p.to, q.to)) })
	return append(bars, steps...)
}
