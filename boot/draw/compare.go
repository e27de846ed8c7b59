package draw

import (
	"fmt"
	"html"
	"io"
	"strings"

	"kamino.dev/kamino/boot"
)

const compareStyle = `
.cmp{border-collapse:collapse;width:100%;max-width:1100px;margin:6px 0 26px}
.cmp th{font-weight:650;text-align:right;color:#6b7280;font-size:12px;padding:4px 10px;border-bottom:1px solid #e5e7eb}
.cmp th:first-child,.cmp td:first-child{text-align:left;padding-left:0;width:38%;overflow-wrap:anywhere}
.cmp td{text-align:right;padding:4px 10px;border-bottom:1px solid #f3f4f6;font-variant-numeric:tabular-nums;white-space:nowrap}
.cmp td:first-child{white-space:normal}
.cmp .bars{width:220px;padding:4px 0 4px 10px}
.better{color:#0f5f59;font-weight:600}.worse{color:#9a3412;font-weight:600}
.lead{font-size:16px;margin:4px 0 22px}
`

// Comparison writes two boots side by side as a page that needs nothing but itself.
func Comparison(w io.Writer, c *boot.Comparison) error {
	var b strings.Builder
	title := html.EscapeString(c.A.Name + " and " + c.B.Name)
	fmt.Fprintf(&b, "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width,initial-scale=1\"><title>Boots of %s</title>\n<style>%s%s</style></head><body>\n<header><h1>Boots of %s</h1><p class=\"lead\">%s</p></header>\n<section class=\"cards\">",
		title, pageStyle, compareStyle, title, html.EscapeString(c.Verdict))
	for i, s := range []boot.Side{c.A, c.B} {
		fmt.Fprintf(&b, `<div class="card"><b>%s</b><span>%c · %s</span><small>%s net%s</small></div>`, shortMicros(s.Net), 'A'+rune(i), html.EscapeString(s.Name), html.EscapeString(s.Goal), s.Besides())
	}
	b.WriteString("</section>\n")
	deltaTable(&b, "Milestones, since the kernel started, net of parking", c.Milestones, 99)
	deltaTable(&b, "On the critical chain", c.Chain, 25)
	deltaTable(&b, "Units", c.Units, 40)
	b.WriteString("<footer><p>Units are matched by name, without the identifiers of disks, mounts and instances. Drawn by kamino boot compare.</p></footer></body></html>\n")
	_, err := io.WriteString(w, b.String())
	return err
}

func deltaTable(b *strings.Builder, title string, list []boot.Delta, most int) {
	if len(list) == 0 {
		return
	}
	var widest boot.Micros
	for _, d := range list {
		widest = max(widest, max(d.Change, -d.Change))
	}
	fmt.Fprintf(b, "<h2>%s</h2><table class=\"cmp\"><tr><th></th><th>A</th><th>B</th><th>change</th><th></th></tr>", html.EscapeString(title))
	for i, d := range list {
		if i == most {
			fmt.Fprintf(b, `<tr><td colspan="5">and %d more</td></tr>`, len(list)-i)
			break
		}
		before, after, change := d.Texts()
		class, colour := "better", "#0f766e"
		if d.Change > 0 {
			class, colour = "worse", "#d1490c"
		}
		length := 105 * float64(max(d.Change, -d.Change)) / float64(max(widest, 1))
		x := 110.0
		if d.Change < 0 {
			x -= length
		}
		fmt.Fprintf(b, `<tr><td>%s</td><td>%s</td><td>%s</td><td class="%s">%s</td><td class="bars"><svg width="220" height="14" aria-hidden="true"><line x1="110" x2="110" y1="0" y2="14" stroke="#d1d5db"/><rect x="%.1f" y="2" width="%.1f" height="10" fill="%s"/></svg></td></tr>`,
			html.EscapeString(d.Name), before, after, class, change, x, length, colour)
	}
	b.WriteString("</table>\n")
}
