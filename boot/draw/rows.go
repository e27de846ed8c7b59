package draw

import (
	"fmt"
	"html"
	"strings"

	"kamino.dev/kamino/boot"
)

// drawRowGrounds draws what lies under the grid: the light ground of the chain's rows.
func (s *scene) drawRowGrounds(b *strings.Builder, top float64, page bool) {
	if page {
		return // there the rows carry their own grounds, since they move
	}
	y := top
	for _, r := range s.rows {
		if !r.relevant {
			continue
		}
		if r.chain {
			fmt.Fprintf(b, `<rect x="0" y="%g" width="%g" height="%g" fill="#fff5ee"/>`, y, picWidth, rowHeight)
		}
		y += rowHeight
	}
	b.WriteString("\n")
}

// drawRows draws the units, and under them for the chain the lines from cause to effect.
func (s *scene) drawRows(b *strings.Builder, top float64, page bool) {
	at := make([]float64, len(s.rows))
	y := top
	for i, r := range s.rows {
		at[i] = y
		if r.relevant {
			y += rowHeight
		}
	}
	b.WriteString(`<g id="links" clip-path="url(#area)">`)
	for i, r := range s.rows {
		if r.cause >= 0 {
			s.drawLink(b, i, at[r.cause], at[i], page)
		}
	}
	fmt.Fprintf(b, "</g>\n<g id=\"rows\" data-top=\"%g\">\n", top)
	for i, r := range s.rows {
		if r.relevant {
			s.drawRow(b, i, at[i], page)
		}
	}
	b.WriteString("</g>\n")
}

// drawLink goes down from the end of a cause to its effect's row, and there over to its start.
func (s *scene) drawLink(b *strings.Builder, i int, from, to float64, page bool) {
	r := &s.rows[i]
	x0, x1 := s.axis.x(s.rows[r.cause].done), s.axis.x(r.start)
	x0 = min(x0, x1)
	y0, y1 := from+rowHeight/2+barHeight/2-2, to+rowHeight/2
	class, data := "link", ""
	if r.idle >= boot.IdleThreshold {
		class = "wait"
	}
	if page {
		data = fmt.Sprintf(` data-c="%d %d %.1f %.1f"`, r.cause, i, x0, x1)
	}
	fmt.Fprintf(b, `<g%s><path class="link" d="M%.1f %.1fV%.1f"/><path class="%s" d="M%.1f %.1fH%.1f"/></g>`, data, x0, y0,
		y1, class, x0, y1, x1)
}

func (s *scene) drawRow(b *strings.Builder, i int, y float64, page bool) {
	r := &s.rows[i]
	x0, x1 := s.axis.x(r.start), s.axis.x(r.done)
	class, room := "", 44
	if r.chain {
		class, room = "chain", 40
	}
	if class != "" {
		class = ` class="` + class + `"`
	}
	if page {
		class += fmt.Sprintf(` data-i="%d"`, i)
	}
	fmt.Fprintf(b, `<g%s transform="translate(0,%g)">`, class, y)
	if page { // the name stands on a ground of its own, under which zoomed bars vanish
		fmt.Fprintf(b, `<rect class="bg" width="%g" height="20"/>`, picWidth)
		s.drawBar(b, r, x0, x1)
		fmt.Fprintf(b, `<rect class="gut" width="%g" height="20"/>`, gutter-5)
	} else {
		fmt.Fprintf(b, `<title>%s</title>`, html.EscapeString(r.name))
		s.drawBar(b, r, x0, x1)
	}
	fmt.Fprintf(b, `<text class="n" text-anchor="end" x="%g" y="14">%s</text></g>`+"\n", gutter-12,
		html.EscapeString(boot.Shorten(r.name, room)))
}

// drawBar draws a bar with its length behind it, or a dot for what took no time.
func (s *scene) drawBar(b *strings.Builder, r *row, x0, x1 float64) {
	if r.done <= r.start {
		fmt.Fprintf(b, `<circle class="dot" cx="%.1f" cy="%g" r="3"/>`, x0, rowHeight/2)
		return
	}
	class := "bar"
	if r.task {
		class = "task"
	}
	for _, p := range s.solid(r) {
		fmt.Fprintf(b, `<rect class="%s" x="%.1f" y="%g" width="%.1f" height="%g"/>`, class, p[0], barTop, max(p[1]-p[0], 1.5), barHeight)
	}
	text := r.net.String()
	if r.parked > 0 {
		text += " + parked"
	}
	x, anchor := x1+6, ""
	if x+float64(len(text))*6 > picWidth {
		x, anchor = x0-6, ` text-anchor="end"`
	}
	fmt.Fprintf(b, `<text class="d"%s x="%.1f" y="14">%s</text>`, anchor, x, text)
}

// solid is a row's bar without the stretches in which the machine was parked.
func (s *scene) solid(r *row) [][2]float64 {
	at := r.start
	var out [][2]float64
	for _, p := range s.a.Parked {
		if p.To <= at || p.From >= r.done {
			continue
		}
		if p.From > at {
			out = append(out, [2]float64{s.axis.x(at), s.axis.x(p.From)})
		}
		at = min(p.To, r.done)
	}
	if at < r.done || len(out) == 0 {
		out = append(out, [2]float64{s.axis.x(at), s.axis.x(r.done)})
	}
	return out
}
