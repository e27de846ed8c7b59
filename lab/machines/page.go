package machines

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"slices"
	"strings"
)

// The parts of the page; each stands in it whole, so that it needs nothing but itself.
var (
	//go:embed page/circle.tmpl
	circleText string
	//go:embed page/circle.css
	circleStyle string

	circlePage = template.Must(template.New("circle").Parse(circleText))
)

// Measures of the picture, in pixels; the rest of them stands in the template.
const (
	cardStep  = 190
	cardWide  = 170
	cardInset = 12
	rowTop    = 180
	rowStep   = 22
)

type (
	circleView struct {
		Circle
		Style         template.CSS
		Packages      []string
		Before, After string
		Cards         []card
	}
	card struct {
		Name, Short, Role, Boot, Asked string
		X, Left                        int
		New                            bool
		Rows                           []row
	}
	row struct {
		Name, Text     string
		New, Stale     bool
		Left, Right, Y int
	}
)

// WritePage writes the circle as one HTML page that needs nothing but itself: a picture of the
// nodes, what was patched where, and what the next one has.
func (c Circle) WritePage(w io.Writer) error {
	v := circleView{Circle: c, Style: template.CSS(circleStyle), Packages: Packages, Before: strings.Join(c.Before, ", "),
		After: strings.Join(c.After, ", ")}
	nodes := slices.Clone(c.Nodes)
	// The patched one stands beside the next, which is the last.
	if at := slices.IndexFunc(nodes, func(n PoolNode) bool { return n.Name == c.Patched }); at >= 0 && len(nodes) > 1 {
		nodes = slices.Insert(slices.Delete(slices.Clone(nodes), at, at+1), len(nodes)-2, nodes[at])
	}
	for i, n := range nodes {
		v.Cards = append(v.Cards, c.card(n, i, i == len(nodes)-1))
	}
	return circlePage.Execute(w, v)
}

func (c Circle) card(n PoolNode, at int, next bool) card {
	k := card{Name: n.Name, Short: n.Name, X: at * cardStep, Left: at*cardStep + cardInset, New: next ||
		n.Name == c.Patched, Role: "left alone",
		Boot: "not restarted", Asked: fmt.Sprintf("%d repository requests", n.Requests)}
	const most = 18
	if r := []rune(n.Name); len(r) > most { // the end tells nodes apart
		k.Short = "…" + string(r[len(r)-most+1:])
	}
	switch {
	case next:
		k.Role, k.Boot = "the next machine", "booted from the image"
	case n.Name == c.Patched:
		k.Role = "patched, then the donor"
	}
	if n.Rebooted {
		k.Boot = "restarted"
	}
	for i, name := range Packages {
		r := row{Name: name, Text: n.After[name], New: n.After[name] == c.Published, Left: k.Left, Right: k.X + cardWide - cardInset,
			Y: rowTop + i*rowStep}
		if was := n.Before[name]; was != "" && was != r.Text {
			r.Text = was + " → " + r.Text
		}
		r.Stale = r.New != k.New
		k.Rows = append(k.Rows, r)
	}
	return k
}
