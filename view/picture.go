package view

import (
	"fmt"
	"html"
	"slices"
	"strings"

	"kamino.dev/kamino"
	"kamino.dev/kamino/boot"
	"kamino.dev/kamino/internal/render"
	"kamino.dev/kamino/poolstate"
)

// Dimensions of the picture of a pool's versions, in pixels.
const (
	lineStep   = 150 // distance of two versions
	lineLeft   = 70
	lineAxis   = 70
	lineRadius = 11
	lineHeight = 170
)

// lineage draws the versions of a pool by name, oldest first: the donor of each, the image of that
// donor, the state, how many nodes run it, and which version is next. Nil if there are none.
func lineage(p poolstate.PoolStatus) *pagePicture {
	versions := slices.Clone(p.Versions)
	slices.SortStableFunc(versions, func(a, b poolstate.VersionStatus) int { return kamino.CompareVersions(a.Name, b.Name) })
	if len(versions) == 0 {
		return nil
	}
	x := func(i int) int { return lineLeft + i*lineStep }
	width := x(len(versions)-1) + lineLeft
	var b strings.Builder
	id := anchor(p)
	fmt.Fprintf(&b, `<svg width="%d" height="%d" viewBox="0 0 %d %d" role="img" aria-labelledby="t-%s d-%s">`, width, lineHeight,
		width, lineHeight, id, id)
	fmt.Fprintf(&b, `<title id="t-%s">Versions of %s</title><desc id="d-%s">%s</desc>`, id, html.EscapeString(p.Name), id,
		html.EscapeString(lineageText(p, versions)))
	for i, v := range versions {
		if from := parentOf(versions, v); from >= 0 && from < i {
			lift := min(18+14*(i-from), 60)
			fmt.Fprintf(&b, `<path class="edge" d="M%d %dQ%d %d %d %d"/>`, x(from), lineAxis-lineRadius-2, (x(from)+x(i))/2,
				lineAxis-lineRadius-lift, x(i), lineAxis-lineRadius-2)
		} else if v.Parent != "" {
			fmt.Fprintf(&b, `<path class="edge" stroke-dasharray="2 4" d="M%d %dH%d"/>`, x(i)-42, lineAxis, x(i)-lineRadius-2)
		}
	}
	for i, v := range versions {
		drawVersion(&b, x(i), v, v.Name == p.Next)
	}
	b.WriteString("</svg>")
	return &pagePicture{Pool: p.Name, SVG: render.Raw(b.String())}
}

func drawVersion(b *strings.Builder, x int, v poolstate.VersionStatus, next bool) {
	class := map[kamino.Phase]string{kamino.PhasePromoted: "promoted", kamino.PhaseHidden: "hollow", kamino.PhaseProving: "proving",
		kamino.PhaseWaiting: "waiting", kamino.PhaseBuilding: "building", kamino.PhaseWithdrawn: "gone",
		kamino.PhaseFailed: "gone"}[v.Phase]
	fmt.Fprintf(b, `<g><title>%s</title>`, html.EscapeString(versionText(v, next)))
	if next {
		fmt.Fprintf(b, `<circle class="next" cx="%d" cy="%d" r="%d"/><text class="next" x="%d" y="%d">next</text>`, x, lineAxis,
			lineRadius+5, x, lineAxis-46)
	}
	fmt.Fprintf(b, `<circle class="%s" cx="%d" cy="%d" r="%d"/>`, class, x, lineAxis, lineRadius)
	if class == "gone" {
		fmt.Fprintf(b, `<path class="cross" d="M%d %dl10 10m0-10l-10 10"/>`, x-5, lineAxis-5)
	}
	fmt.Fprintf(b, `<text class="strong" x="%d" y="%d">%s</text>`, x, lineAxis+34, html.EscapeString(v.Name))
	fmt.Fprintf(b, `<text class="dim" x="%d" y="%d">%s</text>`, x, lineAxis+51, html.EscapeString(versionState(v)))
	if v.BuiltFrom != "" {
		fmt.Fprintf(b, `<text class="dim" x="%d" y="%d">%s</text>`, x, lineAxis+68, html.EscapeString(tail(v.BuiltFrom, 18)))
	}
	if v.Instances > 0 {
		wide := min(10+4*v.Instances, 110)
		fmt.Fprintf(b, `<rect class="nodes" x="%d" y="%d" width="%d" height="5" rx="2"/><text class="dim" x="%d" y="%d">%s</text>`,
			x-wide/2, lineAxis+76, wide, x, lineAxis+96, boot.Count(v.Instances, "node"))
	}
	b.WriteString("</g>")
}

// parentOf returns the index of the version that the donor of a version booted from; -1 if it is
// not in the list.
func parentOf(versions []poolstate.VersionStatus, v poolstate.VersionStatus) int {
	parent := v.Parent[strings.LastIndexByte(v.Parent, '/')+1:]
	return slices.IndexFunc(versions, func(o poolstate.VersionStatus) bool { return parent != "" && o.Name == parent })
}

// lineageText describes the picture.
func lineageText(p poolstate.PoolStatus, versions []poolstate.VersionStatus) string {
	var lines []string
	for _, v := range versions {
		lines = append(lines, versionText(v, v.Name == p.Next))
	}
	return strings.Join(lines, ". ") + "."
}

func versionText(v poolstate.VersionStatus, next bool) string {
	text := v.Name + ": " + versionState(v)
	if next {
		text += ", the next node boots from it"
	}
	if v.BuiltFrom != "" {
		text += ", made from " + v.BuiltFrom
	}
	if v.Parent != "" {
		text += ", whose image was " + Short(v.Parent)
	}
	if v.Instances > 0 {
		text += ", " + nodesRun(v.Instances) + " it"
	}
	if v.Bad != "" {
		text += ", " + v.Bad
	}
	return text
}

// tail keeps the end of a name, where nodes of one pool differ.
func tail(name string, n int) string {
	r := []rune(name)
	if len(r) <= n {
		return name
	}
	return "…" + string(r[len(r)-n+1:])
}
