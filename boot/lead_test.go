package boot_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"kamino.dev/kamino/boot"
)

// deviceBoot is a boot in which local-fs.target, or swap.target, came late because systemd waited 90 s
// for a device that the machine does not have.
func deviceBoot(target string, change func(*boot.Capture)) *boot.Capture {
	c := machine(
		svc("kubelet.service", 97*sec, 98*sec, "containerd.service"),
		svc("containerd.service", 95*sec, 96*sec, target, "emergency.service"),
		svc(target, 92*sec, 92*sec, "data.mount"),
		boot.Unit{ID: "data.mount", After: []string{`systemd-fsck@dev-x.service`, "dev-x.device"}},
	)
	c.Manager.UnitsLoadFinish, c.Manager.Finish = 15e5, 99*sec
	change(c)
	return c
}

// TestTimeBeforeChain: a chain prints and names the time before its first unit, and the verdict knows
// it: what systemd gave up waiting for, whoever says so, else what never came.
func TestTimeBeforeChain(t *testing.T) {
	stamps := boot.Stamps{Activating: 17e5, Deactivated: 915e5}
	for name, tc := range map[string]struct {
		change        func(*boot.Capture)
		chain, costly string
	}{
		"the journal says that a job timed out": {
			func(c *boot.Capture) {
				c.Marks = []boot.Mark{{Name: boot.MarkTimeout, At: 915e5, Detail: "dev-x.device", Source: "journal"}}
			},
			"(timed out) dev-x.device @500ms +1min 30s", "dev-x.device (timed out) 1min 30s",
		},
		"the device's own stamps": {
			func(c *boot.Capture) {
				c.Units = append(c.Units, boot.Unit{ID: "dev-x.device", ActiveState: "inactive", Stamps: stamps})
			},
			"(timed out) dev-x.device @700ms +1min 29.800s", "dev-x.device (timed out) 1min 29.800s",
		},
		"the journal has when the job began, too": {
			func(c *boot.Capture) {
				c.Units = append(c.Units, boot.Unit{ID: "dev-x.device", First: &stamps})
				c.Marks = []boot.Mark{{Name: boot.MarkTimeout, At: 915e5, Detail: "dev-x.device", Source: "journal"}}
			},
			"(timed out) dev-x.device @700ms +1min 29.800s", "dev-x.device (timed out) 1min 29.800s",
		},
		"a device without stamps": {
			func(c *boot.Capture) { c.Units = append(c.Units, boot.Unit{ID: "dev-x.device"}) },
			"· idle 1min 30.500s: dev-x.device never came", "dev-x.device never came, before %s 1min 30.500s",
		},
		"a device that systemd has forgotten": {
			func(*boot.Capture) {}, "· idle 1min 30.500s: dev-x.device never came", "dev-x.device never came, before %s 1min 30.500s",
		},
		"nobody knows why": {
			func(c *boot.Capture) { c.Units[2].After = []string{"other.service"} },
			"· idle 1min 30.500s: nothing known kept it", "nothing known, before %s 1min 30.500s",
		},
		"systemd itself": {
			func(c *boot.Capture) { c.Manager.UnitsLoadFinish = 91 * sec },
			"· 1min 30s: systemd's own start", "systemd's own start 1min 30s",
		},
		"a job that timed out long before": {
			func(c *boot.Capture) {
				c.Units[2].After = nil
				c.Marks = []boot.Mark{{Name: boot.MarkTimeout, At: 40 * sec, Detail: "dev-y.device", Source: "journal"}}
			},
			"· idle 1min 30.500s: nothing known kept it", "nothing known, before %s 1min 30.500s",
		},
	} {
		for _, target := range []string{"local-fs.target", "swap.target"} {
			t.Run(name+" "+target, func(t *testing.T) {
				a := analyze(t, deviceBoot(target, tc.change), boot.Options{})
				var b strings.Builder
				if err := a.WriteChain(&b); err != nil {
					t.Fatal(err)
				}
				if !strings.Contains(b.String(), tc.chain) {
					t.Errorf("the chain does not say %q:\n%s", tc.chain, b.String())
				}
				want := tc.costly
				if strings.Contains(want, "%s") {
					want = fmt.Sprintf(want, target)
				}
				verdict := strings.Join(a.Verdict, "\n")
				if !strings.Contains(verdict, "Most expensive on the way: "+want) {
					t.Errorf("the verdict does not begin with %q:\n%s", want, verdict)
				}
				gaveUp := strings.Contains(verdict, "gave up at") && strings.Contains(verdict, "/etc/fstab")
				if known := strings.Contains(name, "job") || strings.Contains(name, "own stamps"); known != gaveUp {
					t.Errorf("what systemd gave up is told: %t, want %t:\n%s", gaveUp, known, verdict)
				}
				var sum boot.Micros
				for _, s := range a.Segments {
					sum += s.Net
				}
				if want := a.Chain.Done - sec; sum != want {
					t.Errorf("the segments are %s long, want %s: all from the start of userspace", sum, want)
				}
			})
		}
	}
}

// TestTimeBeforeChainElsewhere: neither a record without ordering edges nor a short stretch claims to
// know what came before.
func TestTimeBeforeChainElsewhere(t *testing.T) {
	a := analyze(t, machine(svc("kubelet.service", 20*sec, 21*sec)), boot.Options{})
	if a.Chain.Idle != 0 || len(a.Segments) != 1 {
		t.Errorf("without edges: idle %s, segments %+v", a.Chain.Idle, a.Segments)
	}
	a = analyze(t, machine(svc("kubelet.service", 20*sec, 21*sec, "a.service"), svc("a.service", 4*sec, 20*sec, "dev-x.device")), boot.Options{})
	if c := a.Costs; !slices.Contains(c, boot.Cost{What: "nothing known, before a.service", Net: 3 * sec}) {
		t.Errorf("a short stretch: %+v", c)
	}
	units := machine(svc("kubelet.service", 20*sec, 21*sec, "a.service"), svc("a.service", 4*sec, 20*sec, "b.service"))
	units.Manager = boot.Manager{}
	if c := analyze(t, units, boot.Options{}).Costs; !slices.Contains(c, boot.Cost{What: "not in this record, before a.service", Net: 4 * sec}) {
		t.Errorf("units without their manager: %+v", c)
	}
}
