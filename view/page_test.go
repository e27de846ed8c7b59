package view

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"kamino.dev/kamino"
	"kamino.dev/kamino/internal/bench"
	"kamino.dev/kamino/internal/browser"
	"kamino.dev/kamino/poolstate"
)

// pageOf is the page of one pool after a change.
func pageOf(t *testing.T, change func(*poolstate.PoolStatus)) string {
	t.Helper()
	at := time.Date(2026, 11, 20, 3, 0, 0, 0, time.UTC)
	p := poolstate.PoolStatus{Name: "pool1", Model: "m", Nodes: 3, Ready: 3, Capacity: 3, Next: "2026.11.11",
		Versions: []poolstate.VersionStatus{{Name: "2026.11.11", State: kamino.Succeeded, Ready: true, Phase: kamino.PhasePromoted, Instances: 2, BuiltFrom: "n1"}}}
	if change != nil {
		change(&p)
	}
	var b bytes.Buffer
	if err := Page(&b, []poolstate.PoolStatus{p}, at); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// TestPageSays: what somebody who was woken must know stands in the headline or in a notice, with
// what to type.
func TestPageSays(t *testing.T) {
	at := time.Date(2026, 11, 20, 3, 0, 0, 0, time.UTC)
	run := func(alive bool, since time.Time) *kamino.Unfinished {
		u := &kamino.Unfinished{Run: "r1", Process: "host/1", Alive: alive, Heartbeat: at.Add(-5 * time.Minute), Silence: 300}
		u.Donor, u.Step, u.Started, u.AwaySince = "n2", "stop", at.Add(-30*time.Minute), since
		return u
	}
	for _, tt := range []struct {
		name   string
		change func(*poolstate.PoolStatus)
		want   []string
	}{
		{"all well", nil, []string{`<header class="good">`, "No donor is away", "boots from 2026.11.11"}},
		{"donor away, run works", func(p *poolstate.PoolStatus) { p.Unfinished = run(true, at.Add(-12*time.Minute)) },
			[]string{`<header class="good">`, "A donor is away: n2", "donor n2 has been away for 12m", "run r1 is at step stop, last heartbeat 5m0s ago", `aria-current="step"`, `<li class="done" title="check that`}},
		{"donor away, run dead", func(p *poolstate.PoolStatus) { p.Unfinished = run(false, at.Add(-2*time.Hour)) },
			[]string{`<header class="bad">`, "A donor is away: n2", "its run has probably ended", "kamino update --target-node n2", "kamino restore", "interrupted"}},
		{"donor away, run dead, paused", func(p *poolstate.PoolStatus) {
			p.Paused, p.Unfinished = "incident 7", run(false, at.Add(-2*time.Hour))
		}, []string{"kamino resume &amp;&amp; kamino update --target-node n2", "kamino restore"}},
		{"donor back, run dead", func(p *poolstate.PoolStatus) {
			p.Unfinished = run(false, at.Add(-2*time.Hour))
			p.Unfinished.AwayEnds = at.Add(-time.Hour)
		}, []string{`<header class="bad">`, "No donor is away", "a run was interrupted"}},
		{"pool unreadable", func(p *poolstate.PoolStatus) { p.Error = "403: may not read" }, []string{"Not every pool can be read", "403: may not read"}},
		{"paused", func(p *poolstate.PoolStatus) { p.Paused = "incident 7" }, []string{`<header class="warn">`, "incident 7", "kamino resume"}},
		{"waits for a person", func(p *poolstate.PoolStatus) { p.Versions[0].Phase = kamino.PhaseWaiting }, []string{"passed its proof and waits", "kamino promote --pool pool1"}},
		{"nodes on a bad image", func(p *poolstate.PoolStatus) {
			p.Versions[0].Phase, p.Versions[0].Bad = kamino.PhaseWithdrawn, "kubelet never Ready"
		}, []string{"2 nodes run from version 2026.11.11, which was withdrawn", "kubelet never Ready", `class="cross"`}},
		{"nodes not Ready", func(p *poolstate.PoolStatus) { p.Ready = 1 }, []string{"2 of 3 nodes are not Ready"}},
		{"canary left", func(p *poolstate.PoolStatus) {
			p.Canaries = []kamino.Canary{{Name: "kamino-1", Expires: at.Add(-time.Hour)}}
		}, []string{"canary kamino-1 was left behind", "kamino restore"}},
		{"last run failed", func(p *poolstate.PoolStatus) {
			p.Runs = []kamino.PastRun{{Run: "r0", Ended: at, Failure: "drain: no"}}
		}, []string{"the last run failed", "drain: no"}},
		{"boots", func(p *poolstate.PoolStatus) {
			p.Boots = &kamino.Boots{Seconds: []float64{60, 40, 44}, Phases: []map[string]float64{{"kernel": 2, "kubelet": 30}, {"kubelet": 20}}}
		}, []string{"Boots of clones", "median of the last 3", "boot: 1m00s; median of 3: 44s. kubelet: 30s; median of 2: 25s. kernel: 2.0s.", `<rect class="newest" x="150" y="9" width="240.0"`,
			`<rect class="usual" x="150" y="4" width="176.0"`, "kamino boot compare"}},
		{"waterfalls", func(p *poolstate.PoolStatus) {
			p.Boots = twoBoots()
		}, []string{`to the end of phase Ready the generic machine took 1m32s and the clone 24s: 1m08s earlier.`, `generic machine k8s-vmss000001, 2026-11-01T03:00:00Z: firmware from -2.0s to -0.5s, kernel from 0.0s to 2.1s,`, `clone kamino-1`,
			`<rect class="usual" x="161.1" y="50" width="11.6"`, `<rect class="usual" x="580.4" y="130" width="89.6"`, `<rect class="newest" x="161.1" y="184" width="10.5"`}},
		{"a generic machine alone", func(p *poolstate.PoolStatus) {
			p.Boots = twoBoots()
			p.Boots.Clone = nil
		}, []string{"The boot of a clone is not recorded yet", "generic machine k8s-vmss000001"}},
		{"a clone alone", func(p *poolstate.PoolStatus) {
			p.Boots = twoBoots()
			p.Boots.Generic = nil
		}, []string{"No boot of a generic machine is recorded.", "No boot of a machine of the original image is recorded", "kamino boot compare"}},
		{"a clone that is slower", func(p *poolstate.PoolStatus) {
			p.Boots = twoBoots()
			p.Boots.Generic, p.Boots.Clone = p.Boots.Clone, p.Boots.Generic
		}, []string{"and the clone 1m32s: 1m08s later."}},
		{"boots that cannot be compared", func(p *poolstate.PoolStatus) {
			p.Boots = &kamino.Boots{Generic: aBoot("n1", "kernel", 0, 2), Clone: aBoot("n2", "agent", 1, 2)}
		}, []string{"no phase in common"}},
		{"boots whose agents told nothing", func(p *poolstate.PoolStatus) { p.Boots = &kamino.Boots{Seconds: []float64{41.25}} },
			[]string{"boot: 41s.", "No agent reported phases", `width="240.0"`}},
		{"parent", func(p *poolstate.PoolStatus) {
			p.Versions = append(p.Versions, poolstate.VersionStatus{Name: "2026.11.12", Phase: kamino.PhaseHidden, Parent: "def/versions/2026.11.11"})
		}, []string{`<path class="edge" d="M`, "2026.11.12: hidden"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			page := pageOf(t, tt.change)
			for _, want := range tt.want {
				if !strings.Contains(page, want) {
					t.Errorf("%q is not in the page:\n%s", want, page[strings.Index(page, "<main>"):])
				}
			}
		})
	}
}

// boot is one of phases: name, start and length of each.
func aBoot(node string, phases ...any) *kamino.Waterfall {
	w := &kamino.Waterfall{Node: node, At: time.Date(2026, 11, 1, 3, 0, 0, 0, time.UTC), Timing: kamino.Timing{Phases: map[string]float64{}, Starts: map[string]float64{}}}
	number := func(v any) float64 {
		if whole, ok := v.(int); ok {
			return float64(whole)
		}
		return v.(float64)
	}
	for i := 0; i < len(phases); i += 3 {
		w.Starts[phases[i].(string)], w.Phases[phases[i].(string)] = number(phases[i+1]), number(phases[i+2])
	}
	return w
}

func twoBoots() *kamino.Boots {
	return &kamino.Boots{Seconds: []float64{41.25},
		Generic: aBoot("k8s-vmss000001", "firmware", -2, 1.5, "kernel", 0, 2.1, "userspace", 2.1, 73, "cloud-init network", 5.5, 4.2, "kubelet", 70, 1, "Ready", 75.8, 16.2),
		Clone:   aBoot("kamino-1", "kernel", 0, 1.9, "userspace", 1.9, 14, "agent identity", 3, .8, "kubelet", 9, 1, "Ready", 14, 10)}
}

// TestPageHostile: what others name or write becomes no markup, and nothing is loaded from
// elsewhere.
func TestPageHostile(t *testing.T) {
	evil := `</svg></script><script>alert(1)</script><img src=x onerror=alert(1)>"'&`
	page := pageOf(t, func(p *poolstate.PoolStatus) {
		p.Name, p.Model, p.Next, p.Paused, p.RollbackTarget = evil, evil, evil, evil, evil
		p.Versions[0].Name, p.Versions[0].BuiltFrom, p.Versions[0].Parent, p.Versions[0].Bad = evil, evil, evil, evil
		p.Runs = []kamino.PastRun{{Run: evil, Donor: evil, Failure: evil}}
		p.Boots = &kamino.Boots{Seconds: []float64{1}, Phases: []map[string]float64{{evil: 1}}, Generic: aBoot(evil, evil, 0, 1)}
		p.Unfinished = &kamino.Unfinished{Run: evil, Process: evil}
		p.Unfinished.Donor, p.Unfinished.Step, p.Unfinished.Intent = evil, evil, evil
	})
	if strings.Contains(page, "<script") || strings.Contains(page, "<img") {
		t.Error("a name became markup")
	}
	if m := regexp.MustCompile(`(?i)(src|href)=["']?(https?:)?//|@import|url\(`).FindString(page); m != "" {
		t.Errorf("the page refers to something outside: %s", m)
	}
	if m := regexp.MustCompile(`<[^>]* style=`).FindString(page); m != "" {
		t.Errorf("a style that the page's own policy forbids: %s", m)
	}
}

// TestPageSameNames: elements of pools of one name, as scale sets of two resource groups, have IDs
// of their own: else links and text alternatives lead to the wrong pool.
func TestPageSameNames(t *testing.T) {
	pools := manyPools(2)
	pools[0].Pool, pools[1].Pool = "/rg1/x/p1", "/rg2/x/p1"
	pools[0].Name, pools[1].Name = "p1", "p1"
	var b strings.Builder
	if err := Page(&b, pools, time.Date(2026, 11, 20, 3, 0, 0, 0, time.UTC)); err != nil {
		t.Fatal(err)
	}
	count := map[string]int{}
	for _, m := range regexp.MustCompile(` id="([^"]+)"`).FindAllStringSubmatch(b.String(), -1) {
		if count[m[1]]++; count[m[1]] == 2 {
			t.Errorf("two elements have the ID %s", m[1])
		}
	}
	for _, m := range regexp.MustCompile(` (?:aria-labelledby="|href="#)([^"]+)"`).FindAllStringSubmatch(b.String(), -1) {
		for _, id := range strings.Fields(m[1]) {
			if count[id] == 0 {
				t.Errorf("no element has the ID %s, to which another refers", id)
			}
		}
	}
	if len(count) < 10 {
		t.Errorf("the page shows little: %v", count)
	}
}

// manyPools are n pools with a history.
func manyPools(n int) (pools []poolstate.PoolStatus) {
	at := time.Date(2026, 11, 20, 3, 0, 0, 0, time.UTC)
	age, misses := 3.4, 1.2
	for i := range n {
		p := poolstate.PoolStatus{Name: fmt.Sprintf("k8s-pool%02d-12345678-vmss", i), Model: "kamino-pool/versions/2026.11.18", Nodes: 40, Ready: 40, Capacity: 40, Next: "2026.11.18", NextAgeDays: &age, MissesDays: &misses, RollbackTarget: "2026.11.11"}
		for j, life := range []kamino.Phase{kamino.PhasePromoted, kamino.PhaseWithdrawn, kamino.PhasePromoted, kamino.PhasePromoted, kamino.PhaseWaiting} {
			v := poolstate.VersionStatus{Name: fmt.Sprintf("2026.11.%02d", 4+7*j/2), State: kamino.Succeeded, Ready: true, Phase: life, BuiltFrom: fmt.Sprintf("k8s-pool%02d-12345678-vmss00000%d", i, j), BuiltAt: at.AddDate(0, 0, -20+3*j).Format(kamino.BuiltAtFormat)}
			if j > 0 {
				v.Parent = "kamino-pool/versions/" + p.Versions[max(j-1-j/3, 0)].Name
			}
			if life == kamino.PhaseWithdrawn {
				v.Bad = "daemonsets: calico-node has no Ready pod on the canary"
			} else {
				v.Instances = 3 * j
			}
			p.Versions = append(p.Versions, v)
		}
		p.Next, p.Versions[3].InModel = p.Versions[3].Name, true
		p.Runs = []kamino.PastRun{{Run: "r-5", Donor: "n1", Version: p.Next, Ended: at.AddDate(0, 0, -2), Seconds: 1400, AwaySeconds: 210}, {Run: "r-4", Donor: "n3", Ended: at.AddDate(0, 0, -3), Seconds: 33, Failure: "drain: node n3 cannot be drained"}}
		p.Boots = twoBoots()
		p.Boots.Seconds = []float64{58.2, 41, 44.5, 39.8}
		for _, late := range []float64{14, 0, 1} {
			p.Boots.Phases = append(p.Boots.Phases, map[string]float64{"kernel": 2.1, "initrd": 3.4, "userspace": 30 + late, "cloud-init network": 4.2, "agent identity": .8, "container runtime": 2.9, "kubelet": 1.2, "registered": 6 + late, "Ready": 9.5})
		}
		pools = append(pools, p)
	}
	return pools
}

// TestPageInBrowser opens the page in a real browser: narrow and dark, with fifty pools, and asks
// the page itself.
func TestPageInBrowser(t *testing.T) {
	chromium := browser.Find(t)
	at := time.Date(2026, 11, 20, 3, 0, 0, 0, time.UTC)
	pools := manyPools(50)
	u := &kamino.Unfinished{Run: "20261120-0230-ab3d", Process: "laptop/77", Heartbeat: at.Add(-40 * time.Minute), Silence: 2400}
	u.Donor, u.Step, u.Intent, u.Started, u.AwaySince = "k8s-pool00-12345678-vmss000002", "stop", "wait for the donor to be off", at.Add(-50*time.Minute), at.Add(-43*time.Minute)
	pools[0].Unfinished = u
	var page bytes.Buffer
	if err := Page(&page, pools, at); err != nil {
		t.Fatal(err)
	}
	// The policy forbids scripts that are not the page's own: the probe brings its own policy.
	probed := regexp.MustCompile(`<meta http-equiv="Content-Security-Policy"[^>]*>`).ReplaceAll(page.Bytes(), nil)
	probed = bytes.Replace(probed, []byte("</body>"), []byte(`<pre id="probe"></pre><script>
const say = [];
for (const w of [360, 1280]) {
  const f = document.createElement('iframe'); f.style.cssText = 'border:0;height:800px;width:' + w + 'px'; f.srcdoc = document.querySelector('head').outerHTML + document.querySelector('main').outerHTML; document.body.append(f);
  f.onload = () => {
    const d = f.contentDocument;
    say.push(w + ' overflows by ' + Math.max(0, d.documentElement.scrollWidth - w));
    if (w === 1280) {
      const stops = [...d.querySelectorAll('a[href],summary,[tabindex="0"]')];
      say.push('stops ' + stops.length, 'unnamed ' + stops.filter(e => !(e.textContent.trim() || e.getAttribute('aria-label'))).length);
      stops[stops.length - 1].focus(); say.push('focus ' + (d.activeElement === stops[stops.length - 1]));
      const s = d.querySelector('summary'); s.click(); say.push('opens ' + s.parentElement.open);
      say.push('pictures ' + d.querySelectorAll('svg[role=img] > title').length, 'broken links ' + [...d.querySelectorAll('a[href^="#"]')].filter(a => !d.getElementById(a.getAttribute('href').slice(1))).length);
      say.push('doubled ids ' + ([...d.querySelectorAll('[id]')].length - new Set([...d.querySelectorAll('[id]')].map(e => e.id)).size));
    }
    document.getElementById('probe').textContent = say.join('; ');
  };
}
</script></body>`), 1)
	dir := t.TempDir()
	write := func(name string, body []byte) string {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, body, 0o644); err != nil {
			t.Fatal(err)
		}
		return file
	}
	dom, _ := chromium.Run(t, "--virtual-time-budget=5000", "--dump-dom", "file://"+write("probed.html", probed))
	m := regexp.MustCompile(`<pre id="probe">(.*?)</pre>`).FindSubmatch(dom)
	if m == nil {
		t.Fatal("the probe did not come to its end")
	}
	for _, want := range []string{"360 overflows by 0", "1280 overflows by 0", "unnamed 0", "focus true", "opens true", "pictures 150", "broken links 0", "doubled ids 0"} {
		if !strings.Contains(string(m[1]), want) {
			t.Errorf("%q is not so: %s", want, m[1])
		}
	}
	var one bytes.Buffer
	if err := Page(&one, pools[:1], at); err != nil {
		t.Fatal(err)
	}
	file := write("page.html", one.Bytes())
	if _, log := chromium.Run(t, "--dump-dom", "file://"+file); bytes.Contains(log, []byte("CONSOLE")) {
		t.Errorf("the console says: %s", log)
	}
	for name, args := range map[string][]string{"light": {"--window-size=1280,1500"}, "dark": {"--window-size=1280,1500", "--force-dark-mode", "--blink-settings=preferredColorScheme=0"}, "narrow": {"--window-size=500,1400"}} {
		t.Run(name, func(t *testing.T) {
			shot := filepath.Join(dir, name+".png")
			if keep := os.Getenv("KAMINO_SHOTS"); keep != "" {
				shot = filepath.Join(keep, "status-"+name+".png")
			}
			chromium.Run(t, append(args, "--screenshot="+shot, "file://"+file)...)
			if info, err := os.Stat(shot); err != nil || info.Size() < 20_000 {
				t.Errorf("%s: no picture: %v", name, err)
			}
		})
	}
}

// TestBenchPage measures how long the page of fifty pools takes to be written and then to be laid
// out in a browser.
func TestBenchPage(t *testing.T) {
	bench.Need(t)
	chromium := browser.Find(t)
	var page bytes.Buffer
	began := time.Now()
	if err := Page(&page, manyPools(50), time.Date(2026, 11, 20, 3, 0, 0, 0, time.UTC)); err != nil {
		t.Fatal(err)
	}
	written := time.Since(began)
	probed := regexp.MustCompile(`<meta http-equiv="Content-Security-Policy"[^>]*>`).ReplaceAll(page.Bytes(), nil)
	probed = bytes.Replace(probed, []byte("</body>"), []byte(`<pre id="probe"></pre><script>
document.body.getBoundingClientRect();
for (const s of document.querySelectorAll('svg')) s.getBBox();
document.getElementById('probe').textContent = performance.now() - performance.getEntriesByType('navigation')[0].responseEnd;
</script></body>`), 1)
	file := filepath.Join(t.TempDir(), "page.html")
	if err := os.WriteFile(file, probed, 0o644); err != nil {
		t.Fatal(err)
	}
	dom, _ := chromium.Run(t, "--window-size=1280,1500", "--dump-dom", "file://"+file)
	m := regexp.MustCompile(`<pre id="probe">([0-9.]+)</pre>`).FindSubmatch(dom)
	if m == nil {
		t.Fatal("the probe did not come to its end")
	}
	shown, err := strconv.ParseFloat(string(m[1]), 64)
	if err != nil {
		t.Fatal(err)
	}
	bench.Figure("status-page-50-pools", written.Seconds()+shown/1000, "s", 1)
}
