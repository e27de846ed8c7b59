// Package draw makes pictures of analysed boots: a plain SVG, a page that can be zoomed and asked,
// and a trace for Perfetto.
package draw

import (
	"fmt"
	"html"
	"io"
	"strings"
	"unicode/utf8"

	"kamino.dev/kamino/boot"
)

// Measures of the picture, in pixels.
const (
	picWidth   = 1320.0 // fits with the margins of the page into a window of 1400
	gutter     = 352.0  // unit names
	marginEnd  = 96.0   // lengths written behind the last bars
	rowHeight  = 20.0
	barHeight  = 11.0
	barTop     = 4.5 // (rowHeight - barHeight) / 2
	phaseTop   = 26.0
	phaseHigh  = 18.0
	flagTop    = 58.0 // milestones
	flagHigh   = 15.0
	flagLevels = 8
)

// pictureStyle is shared by the plain SVG and the page. The colours keep apart for the colour-blind
// (vermilion and blue) and reach a contrast of 4.5 to 1 where they carry text.
const pictureStyle = `
.t{font:12px ui-sans-serif,system-ui,"Segoe UI","DejaVu Sans",sans-serif;fill:#1f2937}
.n{font:12px ui-sans-serif,system-ui,"Segoe UI","DejaVu Sans",sans-serif;fill:#374151}
.d,.flagt,.brk{paint-order:stroke;stroke:#fff;stroke-width:3px;stroke-linejoin:round}
.d{font:11px ui-sans-serif,system-ui,"Segoe UI","DejaVu Sans",sans-serif;fill:#6b7280}
.x{font:11px ui-sans-serif,system-ui,"Segoe UI","DejaVu Sans",sans-serif;fill:#6b7280;text-anchor:middle}
.grid{stroke:#e5e7eb;stroke-width:1}
.bar{fill:#7fb3d9}.task{fill:#a9c9a4}.dot{fill:#5b8fb5}
.chain .bar{fill:#d1490c}.chain .task{fill:#e8833a}.chain .dot{fill:#d1490c}
.chain .n{font-weight:650;fill:#9a3412}.chain .d{fill:#9a3412}
.chain .d{stroke:#fff5ee}
.bg{fill:#fff;mix-blend-mode:multiply}.chain .bg{fill:#fff5ee}
.park{fill:url(#parked)}.idleband{fill:#f3f4f6}
.brk{stroke:#f1eef9}.brk.idle{stroke:#f3f4f6}
.brk{font:600 11px ui-sans-serif,system-ui,"Segoe UI","DejaVu Sans",sans-serif;fill:#4c3f8f;text-anchor:middle}
.brk.idle{fill:#4b5563;font-weight:500}
.link{stroke:#d1490c;stroke-width:1.4;fill:none}
.wait{stroke:#d1490c;stroke-width:1.6;stroke-dasharray:2 3;fill:none}
.flag{stroke:#0f766e;stroke-width:1;stroke-dasharray:3 3;stroke-opacity:.55}
.flagt{font:600 11px ui-sans-serif,system-ui,"Segoe UI","DejaVu Sans",sans-serif;fill:#0f5f59}
.ph{font:600 11px ui-sans-serif,system-ui,"Segoe UI","DejaVu Sans",sans-serif;fill:#1f2937}
`

var phaseFill = map[string]string{"firmware": "#c9ced6", "loader": "#dde1e7", "kernel": "#b9cbe0",
	"initrd": "#d3dfec", "userspace": "#e3efe6"}

// SVG draws the units that matter as a plain picture.
func SVG(w io.Writer, c *boot.Capture, a *boot.Analysis) error {
	s := newScene(c, a, gutter, picWidth-marginEnd)
	var b strings.Builder
	s.svg(&b, false)
	_, err := io.WriteString(w, strings.Map(inXML, b.String()))
	return err
}

// inXML replaces what no XML can have, not even escaped (https://www.w3.org/TR/xml/#charsets).
func inXML(r rune) rune {
	if r < ' ' && r != '\t' && r != '\n' && r != '\r' || r == '\ufffe' || r == '\uffff' {
		return utf8.RuneError
	}
	return r
}

// svg draws the scene; for the page with the numbers that the script works on.
func (s *scene) svg(b *strings.Builder, page bool) {
	visible := s.relevantCount()
	flags, levels := s.flags()
	top := flagTop + float64(levels)*flagHigh + 8
	height := top + float64(visible)*rowHeight + 26
	head := 0.0
	if !page {
		head = 44
		height += head + 66
	}
	fmt.Fprintf(b, `<svg id="plot" xmlns="http://www.w3.org/2000/svg" width="%g" height="%g" viewBox="0 0 %g %g" role="img" aria-labelledby="plot-title plot-desc"><title id="plot-title">%s</title><desc id="plot-desc">%s</desc>`,
		picWidth, height, picWidth, height, html.EscapeString(s.title()), html.EscapeString(s.inWords()))
	b.WriteString("\n")
	if !page {
		fmt.Fprintf(b, "<style>%s</style>\n<rect width=\"100%%\" height=\"100%%\" fill=\"#fff\"/>\n", pictureStyle)
	}
	fmt.Fprintf(b, `<defs><pattern id="parked" width="9" height="9" patternUnits="userSpaceOnUse" patternTransform="rotate(45)"><rect width="9" height="9" fill="#f1eef9"/><rect width="3" height="9" fill="#ddd6f0"/></pattern><pattern id="torn" x="-4" width="8" height="12" patternUnits="userSpaceOnUse"><path d="M4 0L7 3L1 9L4 12" fill="none" stroke="#8b7fb8" stroke-width="1.5"/></pattern><pattern id="tornidle" x="-4" width="8" height="12" patternUnits="userSpaceOnUse"><path d="M4 0L7 3L1 9L4 12" fill="none" stroke="#9ca3af" stroke-width="1.3"/></pattern><clipPath id="area"><rect x="%g" y="0" width="%g" height="100%%"/></clipPath></defs>`, gutter-4, picWidth-gutter+4)
	b.WriteString("\n")
	bottom := top + float64(visible)*rowHeight
	if !page {
		fmt.Fprintf(b, `<text x="24" y="30" style="font:600 17px ui-sans-serif,system-ui,'Segoe UI','DejaVu Sans',sans-serif" fill="#111827">%s</text><g transform="translate(0,%g)">`+"\n", html.EscapeString(s.title()), head)
	}
	s.drawRowGrounds(b, top, page)
	s.drawGrid(b, bottom)
	s.drawBreaks(b, phaseTop, bottom)
	s.drawPhases(b)
	s.drawFlags(b, flags, bottom)
	s.drawRows(b, top, page)
	if !page {
		s.legend(b, bottom+34)
		b.WriteString("</g>\n")
	}
	b.WriteString("</svg>\n")
}

// inWords tells what the picture shows to who does not see it.
func (s *scene) inWords() string {
	text := fmt.Sprintf("A waterfall of %d of %d units and tasks.", s.relevantCount(), len(s.rows))
	for _, m := range s.marks {
		text += fmt.Sprintf(" %s at %s.", m.Name, shortMicros(m.Net))
	}
	for i, c := range s.a.Costs {
		if i == 6 {
			break
		}
		text += fmt.Sprintf(" %s: %s.", c.What, c.Net)
	}
	return text
}

func (s *scene) drawGrid(b *strings.Builder, bottom float64) {
	b.WriteString(`<g id="grid" clip-path="url(#area)">`)
	for _, t := range s.axis.ticks(84) {
		fmt.Fprintf(b, `<line class="grid" x1="%.1f" x2="%.1f" y1="%g" y2="%g"/><text class="x" x="%.1f" y="16">%s</text>`, t.X, t.X, 20.0,
			bottom, t.X, t.Label)
	}
	b.WriteString("</g>\n")
}

// drawBreaks draws what was squeezed as bands with torn edges.
func (s *scene) drawBreaks(b *strings.Builder, top, bottom float64) {
	b.WriteString(`<g id="breaks" clip-path="url(#area)">`)
	for _, p := range s.axis.pieces {
		if p.Break == "" {
			continue
		}
		band, edge, class := "park", "torn", "brk"
		if p.Break == "idle" {
			band, edge, class = "idleband", "tornidle", "brk idle"
		}
		fmt.Fprintf(b, `<g class="break"><title>%s %s, squeezed</title><rect class="%s" data-b="%.1f %.1f" x="%.1f" y="%g" width="%.1f" height="%g"/>`, p.Break, p.To-p.From, band, p.X0, p.X1, p.X0, top, p.X1-p.X0, bottom-top)
		for _, x := range []float64{p.X0, p.X1} {
			fmt.Fprintf(b, `<g data-x="%.1f" transform="translate(%.1f,0)"><rect x="-4" y="%g" width="8" height="%g" fill="url(#%s)"/></g>`,
				x, x, top, bottom-top, edge)
		}
		middle := (p.X0 + p.X1) / 2
		fmt.Fprintf(b, `<g data-x="%.1f" transform="translate(%.1f,0)"><text class="%s" y="%g">%s</text><text class="%s" y="%g">%s</text></g></g>`,
			middle, middle, class, flagTop+3, p.Break, class, flagTop+18, shortSpan(p.To-p.From))
	}
	b.WriteString("</g>\n")
}

// shortSpan writes a length for a narrow place: whole seconds above ten of them.
func shortSpan(m boot.Micros) string {
	if m >= 10e6 {
		m = (m + 500000) / 1e6 * 1e6
	}
	return m.String()
}

func (s *scene) drawPhases(b *strings.Builder) {
	b.WriteString(`<g id="phases" clip-path="url(#area)">`)
	for _, p := range s.phases {
		x0, x1 := s.axis.x(p.Start), s.axis.x(p.End)
		title := fmt.Sprintf("%s %s", p.Name, p.Net)
		fmt.Fprintf(b, `<g class="phase"><title>%s</title><rect data-b="%.1f %.1f" x="%.1f" y="%g" width="%.1f" height="%g" fill="%s"/>`,
			title, x0, x1, x0, phaseTop, max(x1-x0, 1), phaseHigh, phaseFill[p.Name])
		label := title
		if float64(len(label))*7 > x1-x0 {
			label = p.Name
		}
		if float64(len(label))*7 <= x1-x0 {
			fmt.Fprintf(b, `<text class="ph" data-x="%.1f" transform="translate(%.1f,0)" x="6" y="%g">%s</text>`, x0, x0,
				phaseTop+13, label)
		}
		b.WriteString("</g>")
	}
	b.WriteString("</g>\n")
}

type flag struct {
	boot.Milestone
	x     float64
	level int
	left  bool
}

// flags puts the milestones' names on as many lines as they need not to overlap.
func (s *scene) flags() ([]flag, int) {
	var out []flag
	levels := 1
	var taken [flagLevels][][2]float64
	for _, m := range s.marks {
		if m.Name == boot.AtUserspace || m.Name == boot.AtDefault {
			continue
		}
		x := s.axis.x(m.At)
		f := flag{Milestone: m, x: x}
		width := float64(len(flagLabel(m)))*7.6 + 12
		from, to := x, x+width
		if to > picWidth-8 {
			f.left = true
			from, to = x-width, x
		}
		for f.level = 0; f.level < flagLevels-1; f.level++ {
			if free(taken[f.level], from, to) && s.clearOfBreaks(from, to, f.level) {
				break
			}
		}
		taken[f.level] = append(taken[f.level], [2]float64{from, to})
		levels = max(levels, f.level+1)
		out = append(out, f)
	}
	return out, max(levels, 2)
}

// clearOfBreaks keeps names off the two lines on which a break's length is written.
func (s *scene) clearOfBreaks(from, to float64, level int) bool {
	for _, p := range s.axis.pieces {
		if p.Break != "" && level < 2 && from < p.X1 && p.X0 < to {
			return false
		}
	}
	return true
}

func free(taken [][2]float64, from, to float64) bool {
	for _, t := range taken {
		if from < t[1] && t[0] < to {
			return false
		}
	}
	return true
}

func flagLabel(m boot.Milestone) string { return m.Name + " " + shortMicros(m.Net) }

// drawFlags draws all lines before all names, so that no line crosses a name.
func (s *scene) drawFlags(b *strings.Builder, flags []flag, bottom float64) {
	b.WriteString(`<g id="flags" clip-path="url(#area)">`)
	for _, f := range flags {
		y := flagTop + float64(f.level)*flagHigh
		fmt.Fprintf(b, `<g data-x="%.1f" transform="translate(%.1f,0)"><line class="flag" x1="0" x2="0" y1="%g" y2="%g"/></g>`, f.x,
			f.x, y-9, bottom)
	}
	for _, f := range flags {
		anchor, dx := "start", 4.0
		if f.left {
			anchor, dx = "end", -4
		}
		fmt.Fprintf(b, `<g data-x="%.1f" transform="translate(%.1f,0)"><title>%s: %s %s, net of parking (%s)</title><text class="flagt" text-anchor="%s" x="%g" y="%g">%s</text></g>`,
			f.x, f.x, html.EscapeString(f.Name), f.Net, s.a.After(), html.EscapeString(f.Source), anchor, dx,
			flagTop+float64(f.level)*flagHigh+2, html.EscapeString(flagLabel(f.Milestone)))
	}
	b.WriteString("</g>\n")
}

// shortMicros writes a moment with at most one decimal.
func shortMicros(m boot.Micros) string {
	if m < 60e6 {
		return fmt.Sprintf("%.1fs", float64(m)/1e6)
	}
	return fmt.Sprintf("%dmin %.1fs", m/60e6, float64(m%60e6)/1e6)
}

func (s *scene) legend(b *strings.Builder, y float64) {
	items := []struct{ shape, text string }{
		{`<rect x="0" y="-9" width="26" height="11" fill="#d1490c"/>`, "on the critical chain"},
		{`<rect x="0" y="-9" width="26" height="11" fill="#7fb3d9"/>`, "other unit starting"},
		{`<rect x="0" y="-9" width="26" height="11" fill="#a9c9a4"/>`, "task inside a unit"},
		{`<line class="wait" x1="0" x2="26" y1="-4" y2="-4"/>`, "chain idle: nothing known"},
		{`<rect class="park" x="0" y="-11" width="26" height="15"/>`, "parked by the platform (squeezed)"},
		{`<line class="flag" x1="13" x2="13" y1="-12" y2="4"/>`, "milestone, net of parking"},
	}
	x := 24.0
	for _, it := range items {
		fmt.Fprintf(b, `<g transform="translate(%g,%g)">%s<text class="d" x="34" y="1">%s</text></g>`, x, y, it.shape, it.text)
		x += 34 + float64(len(it.text))*6.4 + 22
	}
	b.WriteString("\n")
	note := fmt.Sprintf("%d of %d units and tasks; times since the %s started, net of parking", s.relevantCount(), len(s.rows), s.a.Since)
	if s.late > 0 {
		note += fmt.Sprintf("; left out: %s that started later", boot.Count(s.late, "unit"))
	}
	fmt.Fprintf(b, `<text class="d" x="%g" y="%g">%s</text>`+"\n", 24.0, y+24, note)
}

// title says in a line whose boot this is and how long it took.
func (s *scene) title() string {
	t := "Boot"
	if s.a.Host.Name != "" {
		t = s.a.Host.Name
	}
	if s.a.Goal != "" {
		verb := "done"
		if s.a.Goal == "kubelet.service" {
			verb = "started"
		}
		t += fmt.Sprintf(": %s %s %s %s", strings.TrimSuffix(s.a.Goal, ".service"), verb, shortMicros(s.a.GoalAt.Net), s.a.After())
	}
	if s.a.ParkedFor > 0 {
		t += fmt.Sprintf(", besides %s parked", shortSpan(s.a.ParkedFor))
	}
	return t
}

func (s *scene) relevantCount() int {
	n := 0
	for _, r := range s.rows {
		if r.relevant {
			n++
		}
	}
	return n
}
