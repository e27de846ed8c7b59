package draw

import (
	"cmp"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"html"
	"io"
	"slices"
	"strings"

	"kamino.dev/kamino/boot"
)

//go:embed page.css
var pageStyle string

//go:embed page.js
var pageScript string

// pageRow is a row as the page's script sees it; arrays keep a thousand of them small.
type pageRow struct {
	name         string
	start, done  boot.Micros
	net, parked  boot.Micros
	idle         boot.Micros
	flags, after int
	note         string
	cause        int
	deps         []int
}

// MarshalJSON writes [name, start, done, net, parked, idle, flags, ordering edges, note, cause,
// [dependencies…]].
func (r pageRow) MarshalJSON() ([]byte, error) {
	deps := r.deps
	if deps == nil {
		deps = []int{}
	}
	return json.Marshal([]any{r.name, r.start, r.done, r.net, r.parked, r.idle, r.flags, r.after, r.note, r.cause, deps})
}

const (
	rowChain    = 1
	rowTask     = 2
	rowRelevant = 4
)

// HTML writes a page that needs nothing but itself: the verdict, and a waterfall that can be
// zoomed, filtered and asked for dependencies.
func HTML(w io.Writer, c *boot.Capture, a *boot.Analysis) error {
	s := newScene(c, a, gutter, picWidth-marginEnd)
	var b strings.Builder
	data, err := s.pageData()
	if err != nil {
		return fmt.Errorf("write page: %w", err)
	}
	script := fmt.Sprintf("const D=%s;\n%s", data, pageScript)
	head(&b, s.title(), pictureStyle+pageStyle, script)
	s.pageHead(&b)
	s.pageTools(&b)
	b.WriteString(`<div id="stage" tabindex="0" role="group" aria-label="waterfall; up and down choose a unit and tell of it, left and right move in time, plus and minus zoom, 0 fits, Escape ends">`)
	s.svg(&b, true)
	b.WriteString("</div><div id=\"tip\" role=\"status\" hidden></div>\n")
	s.pageTable(&b)
	s.pageFoot(&b)
	fmt.Fprintf(&b, "</main><script>%s</script>\n</body></html>\n", script)
	_, err = io.WriteString(w, b.String())
	return err
}

// head begins a page that may run its own script and style and nothing else
// (https://www.w3.org/TR/CSP3/); "" is no script.
func head(b *strings.Builder, title, style, script string) {
	hash := func(text string) string {
		sum := sha256.Sum256([]byte(text))
		return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
	}
	policy := "default-src 'none'; base-uri 'none'; form-action 'none'; style-src " + hash(style)
	if script != "" {
		policy += "; script-src " + hash(script)
	}
	fmt.Fprintf(b, "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n"+
		"<meta http-equiv=\"Content-Security-Policy\" content=\"%s\">\n<title>%s</title>\n<style>%s</style></head><body><main>\n", policy,
		html.EscapeString(title), style)
}

// pageTable tells what the waterfall shows in words: of the rows that are shown at first.
func (s *scene) pageTable(b *strings.Builder) {
	fmt.Fprintf(b, "<details><summary>The waterfall as a table (%s)</summary><div class=\"scroll\" tabindex=\"0\" role=\"group\" aria-label=\"units, scrolls sideways\"><table class=\"units\">"+
		"<thead><tr><th scope=\"col\">Unit</th><th scope=\"col\">Began</th><th scope=\"col\">Took</th><th scope=\"col\">Parked besides</th><th scope=\"col\">Critical chain</th><th scope=\"col\">Waited for</th></tr></thead><tbody>\n",
		boot.Count(s.relevantCount(), "row"))
	for _, r := range s.rows {
		if !r.relevant {
			continue
		}
		parked, chain, cause := "-", "-", "-"
		if r.parked > 0 {
			parked = r.parked.String()
		}
		if r.chain {
			chain = "yes"
		}
		if r.cause >= 0 {
			cause = s.rows[r.cause].name
		}
		fmt.Fprintf(b, "<tr><th scope=\"row\">%s</th><td>%s</td><td>%s</td><td>%s</td><td>%s</td><td>%s</td></tr>\n",
			html.EscapeString(r.name), s.a.Net(0, r.start), r.net, parked, chain, html.EscapeString(cause))
	}
	b.WriteString("</tbody></table></div></details>\n")
}

func (s *scene) pageData() ([]byte, error) {
	rows := make([]pageRow, len(s.rows))
	for i, r := range s.rows {
		p := pageRow{name: r.name, start: r.start, done: r.done, net: r.net, parked: r.parked, idle: r.idle, after: r.after, note: r.note,
			cause: r.cause, deps: r.deps}
		for _, f := range []struct {
			on  bool
			bit int
		}{{r.chain, rowChain}, {r.task, rowTask}, {r.relevant, rowRelevant}} {
			if f.on {
				p.flags |= f.bit
			}
		}
		rows[i] = p
	}
	pieces := make([][]any, len(s.axis.pieces))
	for i, p := range s.axis.pieces {
		pieces[i] = []any{p.From, p.To, p.X0, p.X1, p.Break, p.Parked}
	}
	// encoding/json escapes <, > and &, so that no name can end the script.
	return json.Marshal(map[string]any{"rows": rows, "pieces": pieces, "zero": s.a.Zero, "left": gutter, "right": picWidth - marginEnd,
		"width": picWidth, "rowHeight": rowHeight, "barTop": barTop, "barHeight": barHeight})
}

func (s *scene) pageHead(b *strings.Builder) {
	a := s.a
	known := slices.DeleteFunc([]string{a.Host.OS, a.Host.Kernel, a.Host.Virtualization, a.Host.Image, shortBoot(a.Host.BootID)},
		func(s string) bool { return s == "" })
	fmt.Fprintf(b, "<header><h1>%s</h1><p class=\"sub\">%s</p></header>\n<section class=\"cards\">", html.EscapeString(s.title()),
		html.EscapeString(strings.Join(known, " · ")))
	card := func(label, value, hint, class string) {
		fmt.Fprintf(b, `<div class="card %s"><b>%s</b><span>%s</span><small>%s</small></div>`, class, html.EscapeString(value),
			html.EscapeString(label), html.EscapeString(hint))
	}
	for _, m := range a.Milestones {
		switch m.Name {
		case boot.AtKubelet, boot.AtReady, boot.AtFirstPod, boot.AtFinish, boot.AtNetwork:
			hint := a.After()
			if m.Net != m.At {
				hint = "net; " + shortMicros(m.At) + " with parking"
			}
			card(m.Name, shortMicros(m.Net), hint, "")
		}
	}
	if a.ParkedFor > 0 {
		card("parked by the platform", shortSpan(a.ParkedFor), a.Parked[0].Evidence, "parked")
	}
	b.WriteString("</section>\n<section class=\"verdict\"><div><h2>Where the time went</h2>")
	s.costBars(b)
	b.WriteString("</div><div><h2>What would help</h2><ol>")
	helped := false
	for _, r := range a.Remedies {
		if r.Saves > 0 {
			helped = true
			fmt.Fprintf(b, `<li><b>−%s</b> %s <small>%s then at %s</small></li>`, r.Saves, html.EscapeString(r.Name),
				html.EscapeString(goalName(a)), shortMicros(r.Reaches))
		}
	}
	b.WriteString("</ol>")
	switch {
	case helped:
		b.WriteString(`<p class="fine">Each on top of the ones before; this boot replayed with its own lengths and waits. An estimate, not a measurement.</p>`)
	case len(a.Remedies) > 0:
		fmt.Fprintf(b, `<p>%s.</p>`, boot.NoRemedy)
	default:
		fmt.Fprintf(b, `<p>No way to %s is known from this record.</p>`, html.EscapeString(goalName(a)))
	}
	b.WriteString("</div></section>\n")
}

// costBars draws the most expensive steps, longest first.
func (s *scene) costBars(b *strings.Builder) {
	var most boot.Micros
	for _, c := range s.a.Costs {
		most = max(most, c.Net)
	}
	b.WriteString(`<table class="costs">`)
	for i, c := range s.a.Costs {
		if i == 6 {
			break
		}
		fmt.Fprintf(b, `<tr><th scope="row">%s</th><td><svg aria-hidden="true"><rect width="%.1f%%" height="12" rx="2"/></svg></td><td>%s</td></tr>`,
			html.EscapeString(boot.Shorten(c.What, 52)), 100*float64(c.Net)/float64(max(most, 1)), c.Net)
	}
	b.WriteString("</table>")
}

func (s *scene) pageTools(b *strings.Builder) {
	fmt.Fprintf(b, `<nav><div class="seg" role="group" aria-label="rows"><button data-show="chain" aria-pressed="false">Critical chain</button><button data-show="some" aria-pressed="true">What matters (%d)</button><button data-show="all" aria-pressed="false">All (%d)</button></div>`+
		`<input id="find" type="search" placeholder="filter units" aria-label="filter units"><div class="seg" role="group" aria-label="zoom"><button id="out" aria-label="zoom out">−</button><button id="reset">fit</button><button id="in" aria-label="zoom in">+</button><button id="earlier" aria-label="earlier">←</button><button id="later" aria-label="later">→</button></div>`+
		`<span class="hint">drag to zoom · shift and drag to move · double click to fit · hover, or arrow keys, for dependencies</span>`+
		`<span class="key"><i class="k1"></i>critical chain <i class="k2"></i>unit starting <i class="k3"></i>task <i class="k4"></i>parked</span></nav>`+"\n", s.relevantCount(), len(s.rows))
}

func (s *scene) pageFoot(b *strings.Builder) {
	b.WriteString(`<footer>`)
	if s.late > 0 {
		fmt.Fprintf(b, "<p>Left out: %s that started later than this picture ends.</p>", boot.Count(s.late, "unit"))
	}
	for _, f := range s.a.Findings {
		fmt.Fprintf(b, "<p>%s</p>", html.EscapeString(f))
	}
	since := "Times count from the start of " + s.a.Origin()
	if s.a.ParkedFor > 0 {
		since += " and omit the " + s.a.ParkedFor.String() + " in which the platform had parked the machine"
	}
	fmt.Fprintf(b, "<p>%s. Drawn by kamino boot plot.</p></footer>\n", since)
}

func shortBoot(id string) string {
	if len(id) > 8 {
		return "boot " + id[:8]
	}
	return id
}

// goalName is what the boot led to, as people call it.
func goalName(a *boot.Analysis) string {
	return cmp.Or(strings.TrimSuffix(a.Goal, ".service"), "the end of the boot")
}
