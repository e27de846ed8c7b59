package boot_test

import (
	"regexp"
	"strings"
	"testing"

	"kamino.dev/kamino/boot"
	"kamino.dev/kamino/boot/internal/everything"
)

// absurd finds numbers that only an underflow or a stamp taken for a length can make: years.
var absurd = regexp.MustCompile(`\d+y |-?\d{17,}`)

// TestOddBoots: boots that are odd but real come to a result, with a remark that says what is odd.
func TestOddBoots(t *testing.T) {
	base := func(change func(*boot.Manager)) *boot.Capture {
		c := machine(svc("kubelet.service", 10*sec, 11*sec, "a.service"), svc("a.service", 3*sec, 9*sec))
		change(&c.Manager)
		return c
	}
	circle := machine(svc("kubelet.service", 10*sec, 11*sec, "a.service"), svc("a.service", 9*sec, 9*sec, "b.service"), svc("b.service", 9*sec, 9*sec, "a.service"))
	early := machine(svc("kubelet.service", 10*sec, 11*sec, "initrd.mount"), svc("initrd.mount", 5e5, 6e5))
	again := svc("a.service", 25*sec, 9*sec)
	for name, tc := range map[string]struct {
		boot   *boot.Capture
		remark string
	}{
		"not finished":                {base(func(m *boot.Manager) { m.Finish = 0 }), "had not finished"},
		"container":                   {base(func(m *boot.Manager) { m.SecurityStart = 0 }), "a container"},
		"soft reboot":                 {base(func(m *boot.Manager) { m.SoftReboots, m.ShutdownStart = 1, 5e5 }), "a soft reboot"},
		"all stamps zero":             {base(func(m *boot.Manager) { *m = boot.Manager{} }), ""},
		"finish before userspace":     {base(func(m *boot.Manager) { m.Finish = 1 }), ""},
		"initrd after userspace":      {base(func(m *boot.Manager) { m.InitRD = 20 * sec }), ""},
		"loader longer than firmware": {base(func(m *boot.Manager) { m.Firmware, m.Loader = sec, 9*sec }), ""},
		"nothing in it":               {&boot.Capture{Schema: boot.Schema}, ""},
		"circle":                      {circle, ""},
		"unit before userspace":       {early, "started before userspace"},
		"restarting":                  {machine(svc("kubelet.service", 10*sec, 11*sec, "a.service"), again), "stamps of two runs"},
		"no edges":                    {machine(svc("kubelet.service", 10*sec, 11*sec)), "no ordering edges"},
		"clock jump": {&boot.Capture{Schema: boot.Schema, Units: []boot.Unit{svc("a.service", 3, 9, "b")}, Marks: []boot.Mark{{Name: boot.MarkClockJump, At: 5 * sec, Detail: "wall clock moved back by about 1h"}}},
			"moved back by about 1h"},
		"suspended":                         {&boot.Capture{Schema: boot.Schema, Units: []boot.Unit{svc("a.service", 3, 9, "b")}, Marks: []boot.Mark{{Name: "suspend", At: 5 * sec}}}, "stood still"},
		"a pause that ends before it began": {&boot.Capture{Schema: boot.Schema, Units: []boot.Unit{svc("a.service", 3, 9)}, Spans: []boot.Span{{Name: "x", Kind: boot.SpanPause, Start: 9, End: 3}}}, ""},
		"a span of the whole time":          {&boot.Capture{Schema: boot.Schema, Units: []boot.Unit{svc("kubelet.service", 9, 9)}, Spans: []boot.Span{{Name: "x", Kind: boot.SpanPause, Start: 0, End: boot.MaxStamp}}}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			text, err := everything.Of(tc.boot)
			if err != nil {
				t.Fatal(err)
			}
			if tc.remark != "" && !strings.Contains(text, tc.remark) {
				t.Errorf("nothing says %q", tc.remark)
			}
			if bad := absurd.FindString(text); bad != "" && !strings.HasPrefix(name, "a span of") {
				t.Errorf("an absurd number: %q", bad)
			}
		})
	}
}
