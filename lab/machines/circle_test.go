package machines

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/xml"
	"io"
	"maps"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestCircle: three packages get a new version; one of three real machines is patched, becomes the
// image and is proved, and the autoscaler's next machine has them without asking for any.
func TestCircle(t *testing.T) {
	needVM(t)
	if os.Getenv("KAMINO_VM") != "all" {
		t.Skip("make test-vm-all plays the whole circle, too")
	}
	l := startLab(t, func(o *Options) { o.Nodes = 3 })
	ctx, cancel := context.WithTimeout(t.Context(), 110*time.Minute)
	defer cancel()
	c := Circle{Published: published}
	if err := (&Stage{Lab: l, Out: os.Stderr}).circle(ctx, &c); err != nil {
		t.Fatal(err)
	}
	for _, wrong := range c.Failures {
		t.Error(wrong)
	}
	told, _ := json.MarshalIndent(c, "", "  ")
	t.Logf("%s", told)
}

// closed is a circle of which all holds.
func closed() Circle {
	versions := func(v string) map[string]string {
		all := map[string]string{}
		for _, name := range Packages {
			all[name] = v
		}
		return all
	}
	return Circle{OK: true, Failures: []string{}, Accelerator: "tcg", Published: "2.0", Former: "2026.11.23", Version: "2026.11.2301", Patched: "pool1000001", Donor: "pool1000001",
		Restarted: true, Changed: slices.Clone(Packages), Before: slices.Clone(Packages), Acts: []Act{{"kamino patch", 93}},
		Nodes: []PoolNode{{Name: "pool1000000", Before: versions("1.0"), After: versions("1.0")},
			{Name: "pool1000001", Before: versions("1.0"), After: versions("2.0"), Rebooted: true, Requests: 6},
			{Name: "pool1000002", Before: versions("1.0"), After: versions("1.0")},
			{Name: "pool1000003", After: versions("2.0")}}}
}

// TestJudge: each thing that may go wrong with the circle is told, and nothing of a good one.
func TestJudge(t *testing.T) {
	if c := closed(); len(c.judge()) > 0 {
		t.Fatalf("of a good circle: %q", c.judge())
	}
	for want, spoil := range map[string]func(*Circle){
		"was not restarted":                               func(c *Circle) { c.Restarted = false },
		"chose pool1000002, and pool1000001 is patched":   func(c *Circle) { c.Donor = "pool1000002" },
		`the version is "2026.11.23", and was "2026.11.2`: func(c *Circle) { c.Version = c.Former },
		"the patch changed [lab-data lab-library], not":   func(c *Circle) { c.Changed = c.Changed[:2] },
		"before, status --diff names [], not":             func(c *Circle) { c.Before = nil },
		"afterwards status --diff names [lab-data]":       func(c *Circle) { c.After = []string{"lab-data"} },
		"there were 2 requests":                           func(c *Circle) { c.Later = 2 },
		"pool1000003 has lab-library 1.0, not 2.0":        func(c *Circle) { c.Nodes[3].After["lab-library"] = "1.0" },
		"pool1000003 has lab-tool , not 2.0":              func(c *Circle) { delete(c.Nodes[3].After, "lab-tool") },
		"pool1000003 sent 1 requests":                     func(c *Circle) { c.Nodes[3].Requests = 1 },
		"pool1000001 has lab-data 1.0, not 2.0":           func(c *Circle) { c.Nodes[1].After["lab-data"] = "1.0" },
		"pool1000001: rebooted is false":                  func(c *Circle) { c.Nodes[1].Rebooted = false },
		"pool1000001 sent 0 requests":                     func(c *Circle) { c.Nodes[1].Requests = 0 },
		"pool1000000: rebooted is true":                   func(c *Circle) { c.Nodes[0].Rebooted = true },
		"pool1000002 sent 3 requests":                     func(c *Circle) { c.Nodes[2].Requests = 3 },
		"pool1000000 has lab-data 2.0, not 1.0":           func(c *Circle) { c.Nodes[0].After["lab-data"] = "2.0" },
		"pool1000000 had lab-tool 2.0, not 1.0":           func(c *Circle) { c.Nodes[0].Before["lab-tool"] = "2.0" },
	} {
		c := closed()
		spoil(&c)
		if wrong := c.judge(); len(wrong) != 1 || !strings.Contains(wrong[0], want) {
			t.Errorf("want %q, got %q", want, wrong)
		}
	}
}

// TestRepository: a real apt-get finds the new versions in the lab's repository, takes them, and is
// counted.
func TestRepository(t *testing.T) {
	need(t, "apt-get")
	need(t, "dpkg-deb")
	repo, root := t.TempDir(), t.TempDir()
	r := &repository{dir: repo, asked: map[string]int{}}
	server := httptest.NewServer(r)
	defer server.Close()
	l := &Lab{packages: r}
	var status strings.Builder
	for _, name := range Packages {
		d := labPackage(name, "1.0", false)
		if err := writeDeb(repo, d); err != nil {
			t.Fatal(err)
		}
		status.WriteString(d.control() + "Status: install ok installed\n\n")
	}
	for name, text := range map[string]string{"sources.list": "deb [trusted=yes] " + server.URL + "/ ./\n", "status": status.String(), "etc/x": "", "lists/partial/x": "", "archives/partial/x": ""} {
		if err := replace(filepath.Join(root, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	options := []string{"-q", "-y", "-o", "Dir::Etc=" + root + "/etc", "-o", "Dir::Etc::sourcelist=" + root + "/sources.list", "-o", "Dir::State=" + root, "-o", "Dir::State::status=" + root + "/status",
		"-o", "Dir::Cache=" + root, "-o", "APT::Architecture=amd64", "-o", "APT::Sandbox::User=root", "-o", "Debug::NoLocking=1", "-o", "APT::Update::Error-Mode=any"}
	apt := func(words ...string) string {
		t.Helper()
		out, err := exec.Command("apt-get", append(slices.Clone(options), words...)...).CombinedOutput()
		if err != nil {
			t.Fatalf("apt-get %v: %v\n%s", words, err, out)
		}
		return string(out)
	}
	apt("update")
	if out := apt("--simulate", "dist-upgrade"); strings.Contains(out, "Inst ") {
		t.Errorf("before the new versions come:\n%s", out)
	}
	if err := l.Publish("2.0"); err != nil {
		t.Fatal(err)
	}
	before, _ := r.requests("127.0.0.1")
	apt("update")
	for _, name := range Packages {
		if out := apt("--simulate", "dist-upgrade"); !strings.Contains(out, "Inst "+name+" [1.0] (2.0 ") {
			t.Errorf("%s is not upgraded:\n%s", name, out)
		}
	}
	apt("--download-only", "dist-upgrade")
	found, err := filepath.Glob(filepath.Join(root, "archives", "*_2.0_amd64.deb"))
	if err != nil || len(found) != len(Packages) {
		t.Errorf("downloaded %v, %v", found, err)
	}
	its, all := r.requests("127.0.0.1")
	if its-before < 1+len(Packages) || all != its {
		t.Errorf("%d requests are counted of %d, before %d", its, all, before)
	}
	if other, _ := r.requests("10.1.0.13"); other != 0 {
		t.Errorf("who sent none has %d", other)
	}
}

// TestCirclePage: the page is whole by itself, and says of each node what it has, also of one that
// has what it should not.
func TestCirclePage(t *testing.T) {
	write := func(c Circle) string {
		t.Helper()
		var out bytes.Buffer
		if err := c.WritePage(&out); err != nil {
			t.Fatal(err)
		}
		if dir := os.Getenv("OUT"); dir != "" { // to look at
			name := map[bool]string{true: "circle.html", false: "circle-failed.html"}[c.OK]
			if err := os.WriteFile(filepath.Join(dir, name), out.Bytes(), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		for _, outside := range []string{"http://", "https://", "src=", "@import", "<script"} {
			if strings.Contains(out.String(), outside) {
				t.Errorf("the page asks for something: %s", outside)
			}
		}
		return out.String()
	}
	picture := func(page string) string {
		t.Helper()
		begin, end := strings.Index(page, "<svg"), strings.Index(page, "</svg>")
		if begin < 0 || end < 0 {
			t.Fatalf("no picture:\n%s", page)
		}
		svg := page[begin : end+len("</svg>")]
		for d := xml.NewDecoder(strings.NewReader(svg)); ; {
			if _, err := d.Token(); err == io.EOF {
				return svg
			} else if err != nil {
				t.Fatalf("the picture is no XML: %v\n%s", err, svg)
			}
		}
	}
	page := write(closed())
	svg := picture(page)
	for text, times := range map[string]int{"1.0 → 2.0</text>": 3, ">2.0</text>": 3, ">1.0</text>": 6, ">left alone</text>": 2, ">patched, then the donor</text>": 1, ">restarted</text>": 1,
		">not restarted</text>": 2, ">0 repository requests</text>": 3, ">0 requests after the patch</text>": 1, ">2026.11.2301</text>": 1, "wrong": 0} {
		if n := strings.Count(svg, text); n != times {
			t.Errorf("%q is there %d times, want %d:\n%s", text, n, times, svg)
		}
	}
	// The patched node stands third, beside the next.
	if a, b, c := strings.Index(svg, `y="132">pool1000002`), strings.Index(svg, `y="132">pool1000001`), strings.Index(svg, `y="132">pool1000003`); a < 0 || a > b || b > c {
		t.Errorf("the order is %d, %d, %d", a, b, c)
	}
	bad := closed()
	bad.OK, bad.Failures = false, []string{"pool1000003 has <lab-data> 1.0"}
	bad.Nodes[3].After = maps.Clone(bad.Nodes[3].After)
	bad.Nodes[3].After["lab-data"] = "1.0"
	page = write(bad)
	if svg := picture(page); strings.Count(svg, `wrong"`) != 1 || !strings.Contains(page, "The circle did not close") || !strings.Contains(page, "has &lt;lab-data&gt; 1.0") {
		t.Errorf("what is wrong is not told:\n%s", page)
	}
	// A story that ended early has no picture to show.
	if page := write(Circle{Failures: []string{"no machine became Ready"}}); strings.Contains(page, "<svg") || !strings.Contains(page, "no machine became Ready") {
		t.Error(page)
	}
}
