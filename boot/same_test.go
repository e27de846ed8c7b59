package boot_test

import (
	"strings"
	"testing"

	"kamino.dev/kamino/boot"
)

// TestSameUnits: two records of exact times in which a unit that starts once came at two moments are of
// two boots. A unit that may have been restarted says nothing, nor does a rough time.
func TestSameUnits(t *testing.T) {
	text := func(u boot.Unit) *boot.Capture {
		c := machine(u)
		c.Manager = boot.Manager{FromUserspace: true}
		c.Sources = []string{"critical-chain"}
		return c
	}
	final := func() *boot.Capture { return text(svc("cloud-final.service", 48*sec, 101*sec)) }
	for name, tc := range map[string]struct {
		a, b *boot.Capture
		want string
	}{
		"another end":       {final(), text(svc("cloud-final.service", 49*sec, 170*sec)), "cloud-final.service was done at 1min 41s and 2min 50s"},
		"another beginning": {final(), text(svc("cloud-final.service", 20*sec, 101*sec)), "cloud-final.service began at 48s and 20s"},
		"the same":          {final(), text(svc("cloud-final.service", 48*sec+4e5, 101*sec)), ""},
		"another length":    {final(), &boot.Capture{Schema: boot.Schema, Lengths: []boot.Length{{Name: "cloud-final.service", Took: 8 * sec}}}, "cloud-final.service took 53s and 8s"},
		"the same length":   {final(), &boot.Capture{Schema: boot.Schema, Lengths: []boot.Length{{Name: "cloud-final.service", Took: 53 * sec}}}, ""},
		"no end yet":        {final(), text(boot.Unit{ID: "cloud-final.service", Stamps: boot.Stamps{Activating: 48 * sec}}), ""},
		"a restart":         {text(svc("kubelet.service", 48*sec, 49*sec)), text(svc("kubelet.service", 90*sec, 91*sec)), ""},
		"whole seconds": {final(), func() *boot.Capture {
			c := text(svc("cloud-final.service", 50*sec, 104*sec))
			c.Units[0].Coarse = true
			return c
		}(), ""},
		"a log without its beginning": {final(), func() *boot.Capture {
			c := text(svc("cloud-final.service", 20*sec, 73*sec))
			c.Sources = []string{"log"}
			return c
		}(), ""},
	} {
		t.Run(name, func(t *testing.T) {
			for _, err := range []error{tc.a.SameBoot(tc.b), tc.b.SameBoot(tc.a)} {
				if tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.Contains(err.Error(), "records of two boots, cloud-final.service")) {
					t.Errorf("judged %v, want %q", err, tc.want)
				}
			}
			if err := tc.a.SameBoot(tc.b); tc.want != "" && err != nil && !strings.Contains(err.Error(), tc.want) {
				t.Errorf("judged %v, want %q", err, tc.want)
			}
		})
	}
}
