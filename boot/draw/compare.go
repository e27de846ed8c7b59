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
.cmp th{font-weight:500;text-align:right;color:var(--dim);font-size:12px;padding:4px 10px;border-bottom:1px solid var(--line)}
.cmp tbody th{font-weight:400;font-size:14px;color:var(--text)}
.cmp th:first-child{text-align:left;padding-left:0;width:38%;overflow-wrap:anywhere}
.cmp td{text-align:right;padding:4px 10px;border-bottom:1px solid var(--line);font-variant-numeric:tabular-nums;white-space:nowrap}
.cmp .bars{width:220px;padding:4px 0 4px 10px}
.cmp .zero{stroke:var(--edge)}.cmp rect.better{fill:var(--flag)}.cmp rect.worse{fill:var(--chain)}
td.better{color:var(--good);font-weight:600}td.worse{color:var(--chaintext);font-weight:600}
.lead{font-size:16px;margin:4px 0 22px}
#pair{display:block;width:100%;min-width:760px;max-width:1160px;height:auto;margin:4px 0 22px}
#pair .phase .bar{fill:var(--bar)}.goal{stroke:var(--flag);stroke-width:1.5}
`

// Comparison writes two boots side by side as a page that needs nothing but itself.
func Comparison(w io.Writer, from, to *boot.Analysis) error {
	c := boot.Compare(from, to)
	var b strings.Builder
	head(&b, "Boots of "+c.A.Name+" and "+c.B.Name, pictureStyle+pageStyle+compareStyle, "")
	fmt.Fprintf(&b, "<header><h1>Boots of %s</h1><p class=\"lead\">%s</p></header>\n<section class=\"cards\">",
		html.EscapeString(c.A.Name+" and "+c.B.Name), html.EscapeString(c.Verdict))
	for i, s := range []boot.Side{c.A, c.B} {
		fmt.Fprintf(&b, `<div class="card"><b>%s</b><span>%c · %s</span><small>%s net%s</small></div>`, shortMicros(s.Net), 'A'+rune(i),
			html.EscapeString(s.Name), html.EscapeString(s.Goal), s.Besides())
	}
	b.WriteString("</section>\n")
	waterfalls(&b, [2]boot.Side{c.A, c.B}, [2]*boot.Analysis{from, to})
	deltaTable(&b, "Milestones, since the kernel started, net of parking", c.Milestones, 99)
	deltaTable(&b, "On the critical chain", c.Chain, 25)
	deltaTable(&b, "Units", c.Units, 40)
	b.WriteString("<footer><p>Units are matched by name, without the identifiers of disks, mounts and instances. Drawn by kamino boot compare.</p></footer></main></body></html>\n")
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
	fmt.Fprintf(b, "<h2>%s</h2><div class=\"scroll\" tabindex=\"0\" role=\"group\" aria-label=\"%s\"><table class=\"cmp\"><thead><tr><th scope=\"col\">name</th><th scope=\"col\">A</th><th scope=\"col\">B</th><th scope=\"col\">change</th><td></td></tr></thead><tbody>", html.EscapeString(title), html.EscapeString(title))
	for i, d := range list {
		if i == most {
			fmt.Fprintf(b, `<tr><td colspan="5">and %d more</td></tr>`, len(list)-i)
			break
		}
		before, after, change := d.Texts()
		class := "better"
		if d.Change > 0 {
			class = "worse"
		}
		length := 105 * float64(max(d.Change, -d.Change)) / float64(max(widest, 1))
		x := 110.0
		if d.Change < 0 {
			x -= length
		}
		fmt.Fprintf(b, `<tr><th scope="row">%s</th><td>%s</td><td>%s</td><td class="%s">%s</td><td class="bars"><svg width="220" height="14" aria-hidden="true"><line class="zero" x1="110" x2="110" y1="0" y2="14"/><rect class="%s" x="%.1f" y="2" width="%.1f" height="10"/></svg></td></tr>`,
			html.EscapeString(d.Name), before, after, class, change, class, x, length)
	}
	b.WriteString("</tbody></table></div>\n")
}
