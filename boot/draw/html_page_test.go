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
  const stage = document.getElementById('stage'), key = k => stage.dispatchEvent(new KeyboardEvent('keydown', {key: k, bubbles: true, cancelable: true}));
  stage.focus(); out.focus = document.activeElement === stage;
  key('ArrowDown'); const one = tip.textContent; key('ArrowDown'); out.keys = !tip.hidden && tip.textContent !== one && one !== '' && document.querySelectorAll('#rows .hot').length === 1;
  key('ArrowUp'); out.back = tip.textContent === one;
  key('+'); key('+'); out.keyZoom = +svg.dataset.zoom; const was = document.querySelector('#grid text').textContent; key('ArrowRight'); out.panned = document.querySelector('#grid text').textContent !== was;
  key('0'); key('Escape'); out.escaped = tip.hidden && +svg.dataset.zoom === 1;
  out.named = document.getElementById('plot-title').textContent.includes('kubelet') && document.getElementById('plot-desc').textContent.includes('cloud-init');
  out.table = document.querySelectorAll('.units tbody tr').length;
  out.unnamed = [...document.querySelectorAll('button,input,summary,[tabindex="0"]')].filter(e => !(e.textContent.trim() || e.getAttribute('aria-label'))).length;
  document.querySelector('[data-show=all]').click(); out.pressed = document.querySelectorAll('[aria-pressed=true]').length; out.all = +svg.dataset.rows;
  document.querySelector('[data-show=chain]').click(); out.chain = +svg.dataset.rows;
  const find = document.getElementById('find');
  find.value = 'CLOUD-'; find.dispatchEvent(new Event('input')); out.found = +svg.dataset.rows;
  const pre = document.createElement('pre'); pre.id = 'probe'; pre.textContent = JSON.stringify(out); document.body.append(pre);
})();
</script>`

const pageErrors = `<script>window.probeErrors=[];addEventListener('error',e=>probeErrors.push(String(e.message)));console.error=(...a)=>probeErrors.push(a.join(' '));</script>`

var policy = regexp.MustCompile(`<meta http-equiv="Content-Security-Policy"[^>]*>`)

type probe struct {
	Errors                                           []string
	Drawn, Before, Zoomed, Zoom, Reset, Dragged, Fit float64
	Tip                                              string
	KeyZoom                                          float64
	Hot, Dep, Ticks, Some, All, Chain, Found         int
	Table, Unnamed, Pressed                          int
	TipGone, Focus, Keys, Back, Panned               bool
	Escaped, Named                                   bool
}

// openPage opens a page with the probe in it.
func openPage(t testing.TB, exe browser.Chromium, page []byte) probe {
	t.Helper()
	page = policy.ReplaceAll(page, nil) // the probe is no script of the page's
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
		{"keys choose a unit and tell of it", p.Focus && p.Keys && p.Back},
		{"keys zoom and move", p.KeyZoom > 2 && p.Panned},
		{"Escape and 0 end that", p.Escaped},
		{"the picture has a title and is told in words", p.Named},
		{"the rows that matter are a table too", p.Table == p.Some},
		{"each control has a name, one choice of rows is pressed", p.Unnamed == 0 && p.Pressed == 1},
	} {
		t.Run(c.what, func(t *testing.T) {
			if !c.ok {
				t.Errorf("%s: not so: %+v", c.what, p)
			}
		})
	}
	shots(t, exe, "boot", page)
}

func TestComparisonInBrowser(t *testing.T) {
	exe := browser.Find(t)
	var both [2]*boot.Analysis
	for i, o := range []sample.Options{{Name: "aks-generic-0a3f", Seed: 1, Parked: 1000e6}, {Name: "aks-clone-77b1", Seed: 2, Clone: true}} {
		a, err := boot.Analyze(sample.Node(o), boot.Options{})
		if err != nil {
			t.Fatal(err)
		}
		both[i] = a
	}
	var page bytes.Buffer
	if err := draw.Comparison(&page, both[0], both[1]); err != nil {
		t.Fatal(err)
	}
	shots(t, exe, "compare", page.Bytes())
}

// shots opens a page as it is, under its own policy, light, dark and narrow.
func shots(t *testing.T, exe browser.Chromium, name string, page []byte) {
	t.Helper()
	dir := t.TempDir()
	file := filepath.Join(dir, "page.html")
	if err := os.WriteFile(file, page, 0o644); err != nil {
		t.Fatal(err)
	}
	dom, log := exe.Run(t, "--dump-dom", "file://"+file)
	if i := bytes.Index(log, []byte("CONSOLE")); i >= 0 {
		t.Errorf("the console says: %.300s", log[i:])
	}
	if bytes.Contains(page, []byte("<script")) && !bytes.Contains(dom, []byte("data-zoom")) {
		t.Error("the page's policy keeps its own script from running")
	}
	if m := regexp.MustCompile(`<[^>]* style=`).Find(page); m != nil {
		t.Errorf("a style that the page's own policy forbids: %s", m)
	}
	frame := append(policy.ReplaceAll(page, nil), []byte(`<pre id="probe"></pre><script>
const f = document.createElement('iframe'); f.style.cssText = 'border:0;height:800px;width:360px';
f.srcdoc = document.head.outerHTML + document.querySelector('main').outerHTML; document.body.append(f);
f.onload = () => { document.getElementById('probe').textContent = 'overflows by ' + Math.max(0, f.contentDocument.documentElement.scrollWidth - 360); };
</script>`)...)
	narrow := filepath.Join(dir, "narrow.html")
	if err := os.WriteFile(narrow, frame, 0o644); err != nil {
		t.Fatal(err)
	}
	if dom, _ := exe.Run(t, "--virtual-time-budget=3000", "--dump-dom", "file://"+narrow); !bytes.Contains(dom, []byte("overflows by 0<")) {
		t.Errorf("at 360 px the page %s", regexp.MustCompile(`overflows by \d+`).Find(dom))
	}
	if keep := os.Getenv("KAMINO_SHOTS"); keep != "" {
		dir = keep
	}
	for kind, args := range map[string][]string{"light": {"--window-size=1500,1400"}, "dark": {"--window-size=1500,1400", "--force-dark-mode", "--blink-settings=preferredColorScheme=0"}, "narrow": {"--window-size=500,1400"}} {
		shot := filepath.Join(dir, name+"-"+kind+".png")
		exe.Run(t, append(args, "--screenshot="+shot, "file://"+file)...)
		least, colour, ground := 1500, [3]uint32{0xd1, 0x49, 0x0c}, uint32(0xff)
		if kind == "dark" {
			colour, ground = [3]uint32{0xe8, 0x66, 0x2e}, 0x0f
		}
		if kind == "narrow" {
			least = 300
		}
		checkShot(t, shot, colour, ground, least)
	}
}

// checkShot looks for the chain's colour in a screenshot, as a page that drew nothing has none, and
// for the ground at its corner.
func checkShot(t *testing.T, path string, colour [3]uint32, ground uint32, least int) {
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
			if r, g, b, _ := img.At(x, y).RGBA(); [3]uint32{r >> 8, g >> 8, b >> 8} == colour {
				chain++
			}
		}
	}
	if r, _, _, _ := img.At(2, 2).RGBA(); r>>8 != ground || chain < least {
		t.Errorf("%s: %d pixels in the colour of the critical chain, want %d; the ground is %#x, want %#x", path, chain, least, r>>8, ground)
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
		"compare": func(b *bytes.Buffer) error { return draw.Comparison(b, a, a) },
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			if err := write(&out); err != nil {
				t.Fatal(err)
			}
			if strings.Contains(out.String(), "<script>alert") {
				t.Errorf("%s: a name became markup", name)
			}
		})
	}
}
