package read

import (
	"bytes"
	"cmp"
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"

	"kamino.dev/kamino/boot"
)

// plotScale is systemd-analyze's: one pixel is 10 ms, and three decimals leave stamps exact to 10
// µs.
const plotScale = 10000

func sniffSVG(head []byte) bool {
	return head[0] == '<' && bytes.Contains(head, []byte("<svg"))
}

// readPlotSVG reads the picture of `systemd-analyze plot`: what people attach to issues. It has
// stamps but no dependencies.
func readPlotSVG(data []byte) (*boot.Capture, error) {
	if !bytes.Contains(data, []byte("systemd-analyze")) {
		return nil, errors.New("an SVG, but not one of `systemd-analyze plot`")
	}
	p := &plotReader{rows: map[string][]plotBar{}, c: &boot.Capture{}}
	dec := xml.NewDecoder(bytes.NewReader(data))
	dec.Strict = false
	for {
		tok, err := dec.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, errors.New("the SVG is cut off or not well formed: " + err.Error())
		}
		p.token(tok)
	}
	if len(p.c.Units) == 0 {
		return nil, errors.New("an SVG without a single unit's bar; is it complete?")
	}
	p.c.Note("read from a picture: stamps are exact to 10 µs, and there are no dependencies, so no chain; stamps after the end of startup were cut off by systemd")
	return p.c, nil
}

type plotBar struct {
	class    string
	from, to boot.Micros
}

type plotReader struct {
	c      *boot.Capture
	rows   map[string][]plotBar // bars by their y
	text   *xml.StartElement
	chars  strings.Builder
	legend bool
}

func (p *plotReader) token(tok xml.Token) {
	switch t := tok.(type) {
	case xml.StartElement:
		switch t.Name.Local {
		case "rect":
			p.bar(t)
		case "text":
			e := t.Copy()
			p.text = &e
			p.chars.Reset()
		case "g":
			// The legend is the group without the offset of the plot's own; only it starts after
			// the bars.
			p.legend = strings.HasPrefix(svgAttr(t, "transform"), "translate(20,100)") && len(p.c.Units) > 0
		}
	case xml.CharData:
		if p.text != nil {
			p.chars.Write(t)
		}
	case xml.EndElement:
		if t.Name.Local == "text" && p.text != nil {
			p.label(*p.text, strings.TrimSpace(p.chars.String()))
			p.text = nil
		}
	}
}

func (p *plotReader) bar(t xml.StartElement) {
	x, okX := svgMicros(svgAttr(t, "x"))
	w, okW := svgMicros(svgAttr(t, "width"))
	y := svgAttr(t, "y")
	class := svgAttr(t, "class")
	if !okX || !okW || y == "" || class == "" || class == "box" || p.legend {
		return
	}
	p.rows[y] = append(p.rows[y], plotBar{class, x, x + w})
}

// label takes a text: the label of the row whose bars came just before, or a line of the heading.
func (p *plotReader) label(t xml.StartElement, s string) {
	if p.legend || svgAttr(t, "class") == "sec" {
		return
	}
	if svgAttr(t, "class") == "" {
		p.heading(s)
		return
	}
	y, err := strconv.ParseFloat(svgAttr(t, "y"), 64)
	if err != nil {
		return
	}
	bars := p.rows[strconv.FormatFloat(y-14, 'f', 3, 64)]
	if len(bars) == 0 {
		return
	}
	m := &p.c.Manager
	switch s {
	case "firmware":
		m.Firmware = -bars[0].from
	case "loader":
		m.Loader = -bars[0].from
		m.Firmware = max(m.Firmware, m.Loader)
	case "kernel":
		// Its end is the initrd's or userspace's start.
	case "initrd":
		m.InitRD = max(bars[0].from, 1)
	case "systemd":
		p.systemd(bars)
	default:
		p.unit(s, bars)
	}
}

func (p *plotReader) systemd(bars []plotBar) {
	m := &p.c.Manager
	for _, b := range bars {
		switch b.class {
		case "active":
			m.Userspace, m.Finish = b.from, b.to
		case "security":
			m.SecurityStart, m.SecurityFinish = max(b.from, 1), b.to
		case "generators":
			m.GeneratorsStart, m.GeneratorsFinish = b.from, b.to
		case "unitsload":
			m.UnitsLoadStart, m.UnitsLoadFinish = b.from, b.to
		}
	}
	if m.Userspace > 0 && m.SecurityStart == 0 {
		m.SecurityStart = m.Userspace
	}
}

// unit reads a row. A bar of no width means that the transition never came before the end of
// startup.
func (p *plotReader) unit(label string, bars []plotBar) {
	name, length := label, ""
	if i := strings.LastIndex(label, " ("); i > 0 && strings.HasSuffix(label, ")") {
		name, length = label[:i], label[i+2:len(label)-1]
	}
	u := boot.Unit{ID: name}
	for _, b := range bars {
		switch b.class {
		case "activating":
			u.Activating = b.from
			u.Activated = b.to
		case "active":
			if b.to > b.from {
				u.Deactivating = b.to
			}
		case "deactivating":
			if b.to > b.from {
				u.Deactivated = b.to
			}
		}
	}
	if u.Activating < 0 || u.Activated < 0 || name == "" {
		return
	}
	if length == "" {
		u.Activated = u.Activating
	} else if took, ok := parseSpan(length); ok {
		p.byLabel(&u, took)
	}
	p.c.Units = append(p.c.Units, u)
}

// byLabel corrects a bar that systemd drew to the end of startup, because the unit had not been up by
// then: the label has the length that is true, if only to the millisecond. A shorter one is that of a
// oneshot that was done, and a longer one of a unit that was up later.
func (p *plotReader) byLabel(u *boot.Unit, took boot.Micros) {
	end := u.Activating + took
	switch bar := u.Activated; {
	case end > bar+labelTolerance:
		u.Activated = end
	case end < bar-labelTolerance:
		u.Stamps = boot.Stamps{Activating: u.Activating, Deactivated: end}
	}
}

// labelTolerance is what a label's cut to milliseconds and a bar's rounding can differ by.
const labelTolerance = boot.Micros(1100)

// heading reads the two lines above the plot: the host, and systemd-analyze's time.
func (p *plotReader) heading(s string) {
	if rest, ok := strings.CutPrefix(s, "Startup finished in "); ok {
		if _, line, ok := strings.Cut(rest, "\n"); ok {
			if target, _, ok := strings.Cut(line, " reached after "); ok {
				p.c.Units = append(p.c.Units, boot.Unit{ID: target, Names: []string{"default.target"}})
			}
		}
		return
	}
	before, inside, ok := strings.Cut(s, "(")
	if !ok {
		return
	}
	if f := strings.Fields(before); len(f) > 1 {
		p.c.Host.Name, p.c.Host.OS = f[len(f)-1], strings.Join(f[:len(f)-1], " ")
	}
	inside, after, _ := strings.Cut(inside, ")")
	if f := strings.Fields(inside); len(f) > 1 {
		p.c.Host.Kernel = f[1]
	}
	if f := strings.Fields(after); len(f) > 0 {
		p.c.Host.Architecture = f[0]
		p.c.Host.Virtualization = strings.Join(f[1:], " ")
	}
}

func svgAttr(t xml.StartElement, name string) string {
	for _, a := range t.Attr {
		if a.Name.Local == name {
			return a.Value
		}
	}
	return ""
}

func svgMicros(s string) (boot.Micros, bool) {
	f, err := strconv.ParseFloat(s, 64)
	if err != nil || math.IsNaN(f) || math.Abs(f) > float64(boot.MaxStamp)/plotScale/4 {
		return 0, false
	}
	return boot.Micros(math.Round(f * plotScale)), true
}

func sniffPlotJSON(head []byte) bool {
	return head[0] == '[' && bytes.Contains(head, []byte(`"activating"`)) && bytes.Contains(head, []byte(`"name"`))
}

// readPlotJSON reads `systemd-analyze plot --json=…` (systemd 253 and later): a list of units in
// µs, where stamps after the end of startup were replaced by that end, and a container's count from
// its userspace.
func readPlotJSON(data []byte) (*boot.Capture, error) {
	var rows []struct {
		Name                                             string
		Activated, Activating, Deactivated, Deactivating *uint64
		Time                                             *uint64
	}
	if err := json.Unmarshal(data, &rows); err != nil {
		return nil, jsonError(err)
	}
	c := &boot.Capture{}
	stamp := func(n *uint64) boot.Micros {
		if n == nil || *n > uint64(boot.MaxStamp) {
			return 0
		}
		return boot.Micros(*n)
	}
	var last boot.Micros
	for _, r := range rows {
		if r.Name == "" || stamp(r.Activating) == 0 {
			continue
		}
		u := boot.Unit{ID: r.Name, Stamps: boot.Stamps{Activating: stamp(r.Activating), Activated: stamp(r.Activated),
			Deactivating: stamp(r.Deactivating), Deactivated: stamp(r.Deactivated)}}
		last = max(last, u.Activated, u.Deactivated)
		if stamp(r.Time) == 0 {
			u.Activated = u.Activating
		}
		c.Units = append(c.Units, u)
	}
	if len(c.Units) == 0 {
		return nil, errors.New("a list without units that started")
	}
	// Every unit that stays up ends where startup ended, so the most frequent last stamp is that
	// end.
	c.Manager.Finish = last
	for i := range c.Units {
		if u := &c.Units[i]; u.Deactivating == last {
			u.Deactivating = 0
		}
		if u := &c.Units[i]; u.Deactivated == last {
			u.Deactivated = 0
		}
	}
	first := slices.MinFunc(c.Units, func(a, b boot.Unit) int { return cmp.Compare(a.Activating, b.Activating) })
	c.Manager.Userspace = first.Activating
	c.Manager.SecurityStart = first.Activating
	c.Note("read from `systemd-analyze plot --json`: no dependencies, so no chain; userspace is taken to start with the first unit")
	return c, nil
}
