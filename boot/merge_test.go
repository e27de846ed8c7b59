package boot_test

import (
	"strings"
	"testing"

	"kamino.dev/kamino/boot"
)

// TestMergeKeepsSystemdsStamps: what the journal saw of a unit that systemd has forgotten does not
// count as systemd's word, in whatever order the two come.
func TestMergeKeepsSystemdsStamps(t *testing.T) {
	dump := func() *boot.Capture {
		c := machine(svc("a.service", 3*sec, 9*sec), boot.Unit{ID: "forgotten.service"})
		c.Sources = []string{boot.SourceShow}
		return c
	}
	journal := func() *boot.Capture {
		return &boot.Capture{Schema: boot.Schema, Sources: []string{"journal"}, Units: []boot.Unit{svc("a.service", 3*sec+20, 9*sec+30), svc("forgotten.service", 4*sec, 5*sec), svc("gone.service", 6*sec, 7*sec)}}
	}
	one, two := dump(), journal()
	if err := one.Merge(journal()); err != nil {
		t.Fatal(err)
	}
	if err := two.Merge(dump()); err != nil {
		t.Fatal(err)
	}
	for _, c := range []*boot.Capture{one, two} {
		if u := c.Unit("a.service"); u.Stamps != (boot.Stamps{Activating: 3 * sec, Activated: 9 * sec}) || u.First != nil {
			t.Errorf("a.service is %+v", u)
		}
		for _, id := range []string{"forgotten.service", "gone.service"} {
			if u := c.Unit(id); u.Stamps != (boot.Stamps{}) || u.FirstStamps().Took() != sec {
				t.Errorf("%s is %+v, first %+v", id, u.Stamps, u.First)
			}
		}
	}
}

func TestMergeRefusesAnotherBoot(t *testing.T) {
	a, b := machine(), machine()
	a.Host.BootID, b.Host.BootID = "0f1e-2d3c", "ffff"
	if err := a.Merge(b); err == nil || !strings.Contains(err.Error(), "kamino boot compare") {
		t.Errorf("error is %v", err)
	}
	b.Host.BootID = "0F1E2D3C"
	if err := a.Merge(b); err != nil {
		t.Errorf("the same boot written in another way: %v", err)
	}
}
