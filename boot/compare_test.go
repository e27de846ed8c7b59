package boot_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"kamino.dev/kamino/boot"
	"kamino.dev/kamino/boot/draw"
	"kamino.dev/kamino/boot/internal/sample"
)

const sec = boot.Micros(1e6)

func analysis(t testing.TB, c *boot.Capture) *boot.Analysis {
	t.Helper()
	return analyze(t, c, boot.Options{})
}

func delta(list []boot.Delta, name string) *boot.Delta {
	for i := range list {
		if list[i].Name == name {
			return &list[i]
		}
	}
	return nil
}

// TestCompareOrdinaryWithClone compares what the project is about: a node that cloud-init and a
// script made with one that booted from an image.
func TestCompareOrdinaryWithClone(t *testing.T) {
	before := analysis(t, sample.Node(sample.Options{Name: "old", Seed: 1, Parked: 1000 * sec}))
	after := analysis(t, sample.Node(sample.Options{Name: "new", Seed: 2, Clone: true}))
	c := boot.Compare(before, after)
	kubelet := delta(c.Milestones, boot.AtKubelet)
	if kubelet == nil || kubelet.Change != *kubelet.B-*kubelet.A || -kubelet.Change < 40*sec || -kubelet.Change > 90*sec {
		t.Fatalf("kubelet is %+v; parking of 1000 s must not count", kubelet)
	}
	if c.A.Parked != 1000*sec || c.B.Parked != 0 {
		t.Errorf("parked %s and %s", c.A.Parked, c.B.Parked)
	}
	if d := delta(c.Chain, "cloud-init.service"); d == nil || d.B != nil || d.Change != -*d.A {
		t.Errorf("cloud-init.service left the chain, and the comparison says %+v", d)
	}
	if want := fmt.Sprintf("kubelet.service comes %s sooner in new", -kubelet.Change); !strings.HasPrefix(c.Verdict, want) {
		t.Errorf("verdict is %q, want %q", c.Verdict, want)
	}
	for i := 1; i < len(c.Units); i++ {
		if a, b := c.Units[i-1].Change, c.Units[i].Change; max(a, -a) < max(b, -b) {
			t.Errorf("units are not sorted by change: %s before %s", a, b)
		}
	}
}

// TestCompareMatchesNames: the same thing has other identifiers on another machine.
func TestCompareMatchesNames(t *testing.T) {
	one := func(stage, disk string, took boot.Micros) *boot.Analysis {
		return analysis(t, &boot.Capture{Manager: boot.Manager{Userspace: sec, SecurityStart: sec, Finish: 60 * sec}, Units: []boot.Unit{
			{ID: "kubelet.service", After: []string{stage}, Stamps: boot.Stamps{Activating: 10*sec + took, Activated: 11*sec + took}},
			{ID: stage, After: []string{disk}, Stamps: boot.Stamps{Activating: 5 * sec, Activated: 5*sec + took}},
			{ID: disk, Stamps: boot.Stamps{Activating: 2 * sec, Activated: 4 * sec}},
		}})
	}
	c := boot.Compare(one("cloud-init.service", "systemd-fsck@dev-disk-by\\x2duuid-4fa1c7be.service", 2*sec), one("cloud-init-network.service", "systemd-fsck@dev-disk-by\\x2duuid-0be2aa11.service", 3*sec))
	if len(c.Units) != 1 || c.Units[0].Name != "cloud-init.service" || c.Units[0].Change != sec {
		t.Errorf("units are %+v, want only cloud-init.service, slower by 1 s", c.Units)
	}
	if same := boot.Compare(one("a.service", "b.mount", sec), one("a.service", "b.mount", sec)); len(same.Units)+len(same.Chain) != 0 || !strings.Contains(same.Verdict, "at the same time") {
		t.Errorf("equal boots differ: %+v", same)
	}
}

func TestCompareJSONAndHTML(t *testing.T) {
	from, to := analysis(t, sample.Node(sample.Options{Name: "old", Seed: 1})), analysis(t, sample.Node(sample.Options{Name: "new", Seed: 2, Clone: true}))
	c := boot.Compare(from, to)
	data, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	var back boot.Comparison
	if err := json.Unmarshal(data, &back); err != nil || len(back.Units) != len(c.Units) {
		t.Errorf("JSON does not come back: %v", err)
	}
	var page bytes.Buffer
	if err := draw.Comparison(&page, from, to); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"cloud-final.service", "Milestones", `class="better"`, "Waterfalls of the boots of old and new", "B · new", "kubelet.service from "} {
		if !strings.Contains(page.String(), want) {
			t.Errorf("the page lacks %q", want)
		}
	}
}

// TestPool: of ninety ordinary nodes and ten slow ones the median is ordinary and the slow ones are
// named.
func TestPool(t *testing.T) {
	var p boot.Pool
	for i := range 100 {
		o := sample.Options{Name: fmt.Sprintf("node-%02d", i), Seed: uint64(i)}
		if i%3 == 0 {
			o.Parked = boot.Micros(i+1) * sec
		}
		c := sample.Node(o)
		if i%25 == 7 { // slow to get its network
			for j := range c.Units {
				u := &c.Units[j]
				if u.Activating > 12*sec {
					u.Activating += 120 * sec
					u.Activated += 120 * sec
				}
			}
		}
		p.Add(boot.Summarize("file", analysis(t, c)))
	}
	r := p.Report()
	if r.Boots != 100 || r.Parked != 34 || r.Goal != "kubelet.service" {
		t.Errorf("report is of %d boots, %d parked, to %s", r.Boots, r.Parked, r.Goal)
	}
	if r.Total.Median > 70*sec || r.Total.Median > r.Total.P90 || r.Total.P90 > r.Total.Most || r.Total.Most < 150*sec {
		t.Errorf("total is %+v", r.Total)
	}
	var names []string
	for _, o := range r.Outliers {
		names = append(names, o.Name)
	}
	if got := strings.Join(names, " "); len(names) != 4 || !strings.Contains(got, "node-07") || !strings.Contains(got, "node-82") {
		t.Errorf("outliers are %s, want nodes 07, 32, 57, 82", got)
	}
	for _, c := range r.Chain {
		if c.Share < 0 || c.Share > 1 || c.Name == "cloud-init.service" && c.Share != 1 {
			t.Errorf("%s is on the chain of %.2f of all boots", c.Name, c.Share)
		}
	}
}

func TestPoolStatistics(t *testing.T) {
	var p boot.Pool
	for i := 1; i <= 10; i++ {
		c := &boot.Capture{Manager: boot.Manager{Userspace: sec, SecurityStart: sec, Finish: 60 * sec}, Units: []boot.Unit{{ID: "kubelet.service", Stamps: boot.Stamps{Activating: boot.Micros(i) * sec, Activated: boot.Micros(i) * sec}}}}
		p.Add(boot.Summarize(fmt.Sprint(i), analysis(t, c)))
	}
	odd := &boot.Capture{Units: []boot.Unit{{ID: "cloud-final.service", Stamps: boot.Stamps{Activating: sec, Activated: 900 * sec}}}}
	p.Add(boot.Summarize("odd", analysis(t, odd)))
	r := p.Report()
	if r.Total.Boots != 10 || r.Total.Median != 55*sec/10 || r.Total.P90 != 9*sec || r.Total.Most != 10*sec {
		t.Errorf("of 1 to 10 s: %+v, want median 5.5 s, p90 9 s", r.Total)
	}
	if len(r.Other) != 1 || r.Other[0] != (boot.OtherGoal{Goal: "cloud-final.service", Since: "kernel", Boots: 1}) {
		t.Errorf("boots to another goal: %+v", r.Other)
	}
	var empty boot.Pool
	if r := empty.Report(); r.Boots != 0 || len(r.Outliers) != 0 {
		t.Errorf("an empty pool: %+v", r)
	}
}
