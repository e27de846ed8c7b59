package view

import (
	"cmp"
	"fmt"
	"html"
	"slices"
	"strings"

	"kamino.dev/kamino"
	"kamino.dev/kamino/internal/render"
	"kamino.dev/kamino/poolstate"
)

// Dimensions of the picture of a pool's boots, in pixels.
const (
	bootWidth = 570
	bootLeft  = 150 // left end of the bars
	bootBars  = 240 // length of the longest bar
	bootRow   = 26
)

// bootBar is a boot, or one phase of it: its last duration in seconds, and the usual one.
type bootBar struct {
	name          string
	newest, usual float64
	known         int // number of boots that the usual duration is made of
}

func (b bootBar) text() string {
	if b.known < 2 {
		return Seconds(b.newest)
	}
	return fmt.Sprintf("%s; median of %d: %s", Seconds(b.newest), b.known, Seconds(b.usual))
}

// boots draws how long the pool's last good canaries took to be Ready nodes, and their phases; nil
// if nothing is known.
func boots(p poolstate.PoolStatus) *pageBoots {
	if p.Boots == nil || len(p.Boots.Seconds) == 0 {
		return nil
	}
	bars := bootRows(*p.Boots)
	longest := 0.0
	for _, bar := range bars {
		longest = max(longest, bar.newest, bar.usual)
	}
	wide := func(seconds float64) float64 {
		if longest <= 0 {
			return 0
		}
		return bootBars * seconds / longest
	}
	var b strings.Builder
	id, height := anchor(p), len(bars)*bootRow+6
	var lines []string
	for _, bar := range bars {
		lines = append(lines, bar.name+": "+bar.text())
	}
	fmt.Fprintf(&b, `<svg width="%d" height="%d" viewBox="0 0 %d %d" role="img" aria-labelledby="bt-%s bd-%s">`, bootWidth, height,
		bootWidth, height, id, id)
	fmt.Fprintf(&b, `<title id="bt-%s">Boots of clones of %s</title><desc id="bd-%s">%s.</desc>`, id, html.EscapeString(p.Name), id,
		html.EscapeString(strings.Join(lines, ". ")))
	for i, bar := range bars {
		y := i * bootRow
		class := "row"
		if i == 0 {
			class = "row strong"
		}
		fmt.Fprintf(&b, `<text class="%s" x="%d" y="%d">%s</text>`, class, bootLeft-10, y+17, html.EscapeString(tail(bar.name, 20)))
		if bar.known > 1 {
			fmt.Fprintf(&b, `<rect class="usual" x="%d" y="%d" width="%.1f" height="18" rx="2"/>`, bootLeft, y+4, wide(bar.usual))
		}
		fmt.Fprintf(&b, `<rect class="newest" x="%d" y="%d" width="%.1f" height="8" rx="2"/>`, bootLeft, y+9, wide(bar.newest))
		fmt.Fprintf(&b, `<text class="dim took" x="%.1f" y="%d">%s</text>`, bootLeft+8+wide(max(bar.newest, bar.usual)), y+17,
			html.EscapeString(bar.text()))
	}
	b.WriteString("</svg>")
	text := "From a machine that runs to its Ready node, of the newest canary that was good"
	if bars[0].known > 1 {
		text += fmt.Sprintf(" (narrow), and the median of the last %d (broad)", bars[0].known)
	}
	if len(bars) > 1 {
		text += ". Phases, where an agent reported them, are ordered by length: they overlap"
	} else {
		text += ". No agent reported phases"
	}
	v := &pageBoots{Pool: p.Name, Text: text + ".", SVG: render.Raw(b.String())}
	if p.Boots.Generic == nil {
		v.Besides = "No boot of a machine of the original image is recorded; a run records one when it seals a donor that is no clone and was never restarted. To compare a clone with one, write a record on each, as root, with kamino boot show -o capture:"
	}
	return v
}

// bootRows returns a row for the whole boot and one for each phase, the longest first. The newest
// phases are those of the last canary whose agent reported them.
func bootRows(b kamino.Boots) []bootBar {
	rows := []bootBar{{"boot", b.Seconds[0], middle(b.Seconds), len(b.Seconds)}}
	if len(b.Phases) == 0 {
		return rows
	}
	for name, newest := range b.Phases[0] {
		var all []float64
		for _, phases := range b.Phases {
			if seconds, ok := phases[name]; ok {
				all = append(all, seconds)
			}
		}
		rows = append(rows, bootBar{name, newest, middle(all), len(all)})
	}
	slices.SortFunc(rows[1:], func(x, y bootBar) int { return cmp.Or(cmp.Compare(y.newest, x.newest), cmp.Compare(x.name, y.name)) })
	return rows
}

// middle returns the median of at least one value.
func middle(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	n := len(sorted)
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}
