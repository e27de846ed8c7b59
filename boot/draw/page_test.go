package draw_test

import (
	"bytes"
	"encoding/json"
	"image/png"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"kamino.dev/kamino/boot"
	"kamino.dev/kamino/boot/draw"
	"kamino.dev/kamino/boot/internal/sample"
	"kamino.dev/kamino/internal/browser"
)

// pageProbe uses the page as a person would and writes what it saw into the document.
const pageProbe = `<script>
(() => {
  const out = {errors: window.probeErrors};
  const svg = document.getElementById('plot'), tip = document.getElementById('tip');
  document.body.getBoundingClientRect(); svg.getBBox();
  out.drawn = performance.now() - performance.getEntriesByType('navigation')[0].responseEnd;
  const fire = (e, type, x, y, o) => e.dispatchEvent(new MouseEvent(type, {bubbles: true, clientX: x, clientY: y, button: 0, ...o}));
  const row = name => [...document.getElementById('rows').children].find(g => g.querySelector('.n').textContent === name);
  const r = row('cloud-init.service');
  fire(r.querySelector('.bar'), 'mousemove', 500, 400);
  out.tip = tip.hidden ? '' : tip.textContent;
  out.hot = document.querySelectorAll('#rows .hot').length;
  out.dep = document.querySelectorAll('#rows .dep').length;
  fire(svg, 'mouseleave', 0, 0);
  out.tipGone = tip.hidden;
  const width = () => +r.querySelector('.bar').getAttribute('width');
  out.before = width();
  document.getElementById('in').click();
  out.zoomed = width(); out.zoom = +svg.dataset.zoom;
  document.getElementById('reset').click();
  out.reset = width();
  const box = svg.getBoundingClientRect(), at = x => box.left + x * box.width / 1320;
  fire(svg, 'mousedown', at(700), box.top + 200); fire(window, 'mousemove', at(900), box.top + 200); fire(window, 'mouseup', at(900), box.top + 200);
  out.dragged = +svg.dataset.zoom;
  out.ticks = document.querySelectorAll('#grid text').length;
  fire(svg, 'dblclick', at(800), box.top + 200);
  out.fit = +svg.dataset.zoom;
  out.some = +svg.dataset.rows;
  document.querySelector('[data-show=all]').click(); out.all = +svg.dataset.rows;
  document.querySelector('[data-show=chain]').click(); out.chain = +svg.dataset.rows;
  const find = document.getElementById('find');
  find.value = 'CLOUD-'; find.dispatchEvent(new Event('input')); out.found = +svg.dataset.rows;
  const pre = document.createElement('pre'); pre.id = 'probe'; pre.textContent = JSON.stringify(out); document.body.append(pre);
})();
</script>`

const pageErrors = `<script>window.probeErrors=[];addEventListener('error',e=>probeErrors.push(String(e.message)));console.error=(...a)=>probeErrors.push(a.join(' '));</script>`

type probe struct {
	Errors                                           []string
	Drawn, Before, Zoomed, Zoom, Reset, Dragged, Fit float64
	Tip                                              string
	Hot, Dep, Ticks, Some, All, Chain, Found         int
	TipGone                                          bool
}

// openPage opens a page with the probe in it.
func openPage(t testing.TB, exe browser.Chromium, page []byte) probe {
	t.Helper()
	page = bytes.Replace(page, []byte("</head>"), []byte(pageErrors+"</head>"), 1)
	page = bytes.Replace(page, []byte("</body>"), []byte(pageProbe+"</body>"), 1)
	path := filepath.Join(t.TempDir(), "page.html")
	if err := os.WriteFile(path, page, 0o644); err != nil {
		t.Fatal(err)
	}
	dom, log := exe.Run(t, "--window-size=1500,1400", "--dump-dom", "file://"+path)
	if i := bytes.Index(log, []byte("CONSOLE")); i >= 0 {
		t.Errorf("the console says: %.300s", log[i:])
	}
	m := regexp.MustCompile(`(?s)<pre id="probe">(.*?)</pre>`).FindSubmatch(dom)
	if m == nil {
		t.Fatalf("the page's script did not come to its end; log: %s", log)
	}
	var p probe
	text := strings.NewReplacer("&lt;", "<", "&gt;", ">", "&amp;", "&").Replace(string(m[1]))
	if err := json.Unmarshal([]byte(text), &p); err != nil {
		t.Fatal(err)
	}
	return p
}

func parkedPage(t testing.TB, o sample.Options) []byte {
	t.Helper()
	c := sample.Node(o)
	a, err := boot.Analyze(c, boot.Options{})
	if err != nil {
		t.Fatal(err)
	}
	var page bytes.Buffer
	if err := draw.HTML(&page, c, a); err != nil {
		t.Fatal(err)
	}
	return page.Bytes()
}

func TestPageInBrowser(t *testing.T) {
	exe := browser.Find(t)
	page := parkedPage(t, sample.Options{Name: "aks-nodepool1-0a3f", Seed: 1, Parked: 1000e6})
	p := openPage(t, exe, page)
	for _, c := range []struct {
		what string
		ok   bool
	}{
		{"no script errors", len(p.Errors) == 0},
		{"hover tells the unit and what it waited for", strings.Contains(p.Tip, "cloud-init.service") && strings.Contains(p.Tip, "waited for systemd-networkd-wait-online.service")},
		{"hover marks the row and its dependencies", p.Hot == 1 && p.Dep >= 2},
		{"the hint goes away", p.TipGone},
		{"zoom makes bars longer", p.Zoom > 1 && p.Zoomed > p.Before*1.2},
		{"fit undoes zoom", p.Reset == p.Before && p.Fit == 1},
		{"dragging zooms to the stretch", p.Dragged > 4},
		{"the axis has ticks after zooming", p.Ticks >= 3},
		{"rows can be chosen", p.Chain > 10 && p.Chain < p.Some && p.Some < p.All && p.All >= 180},
		{"rows can be found", p.Found == 4},
	} {
		if !c.ok {
			t.Errorf("%s: not so: %+v", c.what, p)
		}
	}
	shot := filepath.Join(t.TempDir(), "page.png")
	file := filepath.Join(t.TempDir(), "page.html")
	if err := os.WriteFile(file, page, 0o644); err != nil {
		t.Fatal(err)
	}
	exe.Run(t, "--window-size=1500,1400", "--screenshot="+shot, "file://"+file)
	checkShot(t, shot)
}

// checkShot looks for the chain's colour in a screenshot: a page that drew nothing has none.
func checkShot(t *testing.T, path string) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	img, err := png.Decode(f)
	if err != nil {
		t.Fatal(err)
	}
	chain := 0
	for y := img.Bounds().Min.Y; y < img.Bounds().Max.Y; y++ {
		for x := img.Bounds().Min.X; x < img.Bounds().Max.X; x++ {
			if r, g, b, _ := img.At(x, y).RGBA(); r>>8 == 0xd1 && g>>8 == 0x49 && b>>8 == 0x0c {
				chain++
			}
		}
	}
	if chain < 2000 {
		t.Errorf("%d pixels in the colour of the critical chain, want more", chain)
	}
}

func TestPageSize(t *testing.T) {
	page := parkedPage(t, sample.Options{Name: "big", Seed: 3, Units: 1000})
	if len(page) > 500_000 {
		t.Errorf("a page of 1,000 units has %d bytes, the bound is 500,000", len(page))
	}
	for _, remote := range []string{"http://", "https://", "src=", "@import", "url(//"} {
		text := strings.ReplaceAll(string(page), "http://www.w3.org/2000/svg", "")
		if i := strings.Index(text, remote); i >= 0 {
			t.Errorf("the page refers to something outside: %.80s", text[i:])
		}
	}
}

// TestPageHostileNames puts markup into every name.
func TestPageHostileNames(t *testing.T) {
	evil := `</script><script>alert(1)</script>"'&.service`
	c := sample.Node(sample.Options{Name: evil, Seed: 1})
	c.Units[5].ID = evil
	c.Spans[len(c.Spans)-1].Name = evil
	c.Notes = []string{evil}
	a, err := boot.Analyze(c, boot.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for name, write := range map[string]func(*bytes.Buffer) error{
		"page":    func(b *bytes.Buffer) error { return draw.HTML(b, c, a) },
		"picture": func(b *bytes.Buffer) error { return draw.SVG(b, c, a) },
		"compare": func(b *bytes.Buffer) error { return draw.Comparison(b, boot.Compare(a, a)) },
	} {
		var out bytes.Buffer
		if err := write(&out); err != nil {
			t.Fatal(err)
		}
		if strings.Contains(out.String(), "<script>alert") {
			t.Errorf("%s: a name became markup", name)
		}
	}
}
