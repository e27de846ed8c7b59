package boot_test

import (
	"strings"
	"testing"

	"kamino.dev/kamino/boot"
)

// zeroBoots are boots that differ in what is known of their beginning and end; kubelet starts 20s after
// userspace in all that have it.
func zeroBoots() map[string]*boot.Capture {
	kernel := machine(svc("kubelet.service", 22*sec, 23*sec, "net.service"), svc("net.service", 3*sec, 21*sec))
	kernel.Manager = boot.Manager{Userspace: 2 * sec, SecurityStart: 2 * sec, Finish: 30 * sec}
	userspace := machine(svc("kubelet.service", 20*sec, 21*sec, "net.service"), svc("net.service", 1*sec, 19*sec))
	userspace.Manager = boot.Manager{FromUserspace: true}
	short := machine(svc("kubelet.service", 20*sec, 21*sec))
	short.Manager = boot.Manager{} // when userspace began is not known
	cloud := cloudInitOnly()
	cloud.Floating = boot.FloatNowhere
	hung := machine(boot.Unit{ID: "cloud-final.service", Stamps: boot.Stamps{Activating: 9 * sec}})
	hung.Manager.Finish = 0
	lengths := &boot.Capture{Schema: boot.Schema, Lengths: []boot.Length{{Name: "a.service", Took: sec}}}
	all := map[string]*boot.Capture{"kernel": kernel, "userspace": userspace, "short": short, "cloud": cloud, "hung": hung, "lengths": lengths}
	for name, c := range all {
		c.Host.Name = name
	}
	return all
}

// TestCompareZero: boots that count from different moments are compared from one where that is known,
// and else not judged; nor is a boot without an end.
func TestCompareZero(t *testing.T) {
	all := zeroBoots()
	for pair, want := range map[[2]string]string{
		{"kernel", "userspace"}:  "kubelet.service comes at the same time.",
		{"userspace", "kernel"}:  "kubelet.service comes at the same time.",
		{"short", "userspace"}:   "Not judged: short counts from the start of the kernel, userspace from that of userspace",
		{"kernel", "cloud"}:      "Not judged: kernel counts from the start of the kernel, cloud from that of cloud-init",
		{"kernel", "hung"}:       "Not judged: cloud-final.service had not ended in hung",
		{"lengths", "kernel"}:    "Not judged: the record of lengths does not say when a unit started.",
		{"userspace", "lengths"}: "Not judged: the record of lengths",
	} {
		a, b := analyze(t, all[pair[0]], boot.Options{}), analyze(t, all[pair[1]], boot.Options{})
		c := boot.Compare(a, b)
		if !strings.HasPrefix(c.Verdict, want) {
			t.Errorf("%s is %q, want %q", pair, c.Verdict, want)
		}
		if judged := !strings.Contains(c.Verdict, "count"); !judged && len(c.Milestones) > 0 {
			t.Errorf("%s has milestones of two zero points: %v", pair, c.Milestones)
		}
		for _, d := range c.Milestones {
			if d.Name == "kubelet started" && d.A != nil && d.B != nil && d.Change != 0 {
				t.Errorf("%s: kubelet differs by %s", pair, d.Change)
			}
		}
	}
}

// TestPoolZero: a total has the boots of one zero point that have an end; the others are counted beside
// it.
func TestPoolZero(t *testing.T) {
	all := zeroBoots()
	var p boot.Pool
	for _, name := range []string{"kernel", "kernel", "userspace", "hung", "hung", "hung", "lengths", "lengths", "lengths"} {
		p.Add(boot.Summarize(name, analyze(t, all[name], boot.Options{})))
	}
	r := p.Report()
	if r.Goal != "kubelet.service" || r.Since != "kernel" || r.Total.Boots != 2 || r.Total.Most != 22*sec {
		t.Errorf("the total is %+v of %s since %s", r.Total, r.Goal, r.Since)
	}
	for _, m := range r.Milestones {
		if m.Name == "kubelet started" && (m.Boots != 2 || m.Most != 22*sec) {
			t.Errorf("milestones of two zero points: %+v", m)
		}
	}
	var text strings.Builder
	if err := r.WriteText(&text); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"3 boots ended before cloud-final.service had ended", "3 boots led to nothing instead", "1 boot led to kubelet.service, counted from the start of userspace instead of the kernel",
	} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("the report does not say %q:\n%s", want, text.String())
		}
	}
}
