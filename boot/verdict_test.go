package boot_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"kamino.dev/kamino/boot"
)

// cloudInitOnly is what cloud-init.log alone says of a boot, stamps in whole seconds.
func cloudInitOnly() *boot.Capture {
	stage := func(name, unit string, from, to boot.Micros) boot.Span {
		return boot.Span{Name: name, Kind: boot.SpanStage, Unit: unit, Start: from, End: to, Source: "cloud-init"}
	}
	return &boot.Capture{Schema: boot.Schema, Sources: []string{"cloud-init-log"}, Spans: []boot.Span{
		stage("init-local", "cloud-init-local.service", 7*sec, 8*sec),
		stage("init-network", "cloud-init.service", 9*sec, 14*sec), // one second after the next began
		stage("modules-config", "cloud-config.service", 13*sec, 135e5),
		stage("modules-final", "cloud-final.service", 15*sec, 51*sec),
		{Name: "modules-final/config-package-update-upgrade-install", Kind: boot.SpanTask, Unit: "cloud-final.service", Start: 15*sec + 1e4, End: 49*sec + 8e4, Source: "cloud-init"},
		{Name: "modules-final/config-scripts-user", Kind: boot.SpanTask, Unit: "cloud-final.service", Start: 49*sec + 1e5, End: 503e5, Source: "cloud-init"},
	}}
}

// TestCloudInitLogAlone: the log of cloud-init is a record: it has a chain, a verdict with the module
// that took the time, a blame and a time.
func TestCloudInitLogAlone(t *testing.T) {
	a := analyze(t, cloudInitOnly(), boot.Options{})
	if got, want := mainPath(a), "cloud-final.service < cloud-config.service < cloud-init.service < cloud-init-local.service"; got != want {
		t.Errorf("chain is %s, want %s", got, want)
	}
	var show, blame, time strings.Builder
	for _, err := range []error{a.WriteText(&show), a.WriteBlame(&blame), a.WriteTime(&time)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, want := range []string{
		"Most expensive on the way: cloud-final.service 36s (34.070s of it modules-final/config-package-update-upgrade-install); not in this record, before cloud-init-local.service 7s",
		"counted from the start of the kernel;", fmt.Sprintf("%-18s %14s", "cloud-init final", "36s"), "idle 7s: not in this record",
	} {
		if !strings.Contains(show.String(), want) {
			t.Errorf("show does not have %q:\n%s", want, show.String())
		}
	}
	if !strings.Contains(blame.String(), "34.070s   modules-final/config-package-update-upgrade-install") {
		t.Errorf("blame is\n%s", blame.String())
	}
	if text := time.String(); !strings.Contains(text, fmt.Sprintf("%-22s %14s", "cloud-init final", "36s")) || strings.Contains(text, "not finished") {
		t.Errorf("time is\n%s", text)
	}
}

// TestStagesOfRecords: a stage that a record of units has is not made of the log's, whatever the unit
// is called.
func TestStagesOfRecords(t *testing.T) {
	c := machine(svc("kubelet.service", 20*sec, 21*sec, "cloud-init-network.service"), svc("cloud-init-network.service", 9*sec, 20*sec))
	c.Spans = cloudInitOnly().Spans[:3]
	a := analyze(t, c, boot.Options{})
	if got, want := mainPath(a), "kubelet.service < cloud-init-network.service"; got != want {
		t.Errorf("chain is %s, want %s", got, want)
	}
	if len(c.Units) != 2 {
		t.Errorf("the capture was changed: %+v", c.Units)
	}
}

// TestRemedyNames: what would help is said in the words of the machine that it is about.
func TestRemedyNames(t *testing.T) {
	final := []boot.Unit{svc("net.service", 3*sec, 9*sec), svc("cloud-final.service", 12*sec, 25*sec, "net.service")}
	agent := svc("walinuxagent.service", 10*sec, 10*sec)
	boots := map[string]struct {
		units    []boot.Unit
		spans    []boot.Span
		virtual  string
		has, not string
	}{
		"kubeadm in user data": {append(final, svc("kubelet.service", 20*sec, 21*sec, "net.service")), nil, "amazon", "script in user data (kubeadm", "CSE"},
		"kubeadm on Azure":     {append(final, agent, svc("kubelet.service", 20*sec, 21*sec, "net.service")), nil, "microsoft", "script in user data (kubeadm", "CSE"},
		"the agent's extension": {append(final, agent, svc("kubelet.service", 33*sec, 34*sec, "net.service")), []boot.Span{{Name: "AKS.CSE.x", Kind: boot.SpanTask, Unit: agent.ID, Start: 30 * sec, End: 335e5}},
			"microsoft", "extension script (CSE)", "kubeadm"},
		"after cloud-final with the agent": {append(final, agent, svc("kubelet.service", 33*sec, 34*sec, "net.service")), nil, "microsoft", "extension script (CSE)", "kubeadm"},
		"an image for Azure":               {[]boot.Unit{svc("cloud-init.service", 3*sec, 9*sec), svc("ephemeral-disk-warning.service", 25*sec, 25*sec), svc("kubelet.service", 10*sec, 11*sec, "cloud-init.service")}, nil, "", "userData instead of customData", "CSE"},
		"cloud-init on EC2":                {[]boot.Unit{svc("cloud-init.service", 3*sec, 9*sec), svc("cloud-final.service", 12*sec, 25*sec, "cloud-init.service"), svc("kubelet.service", 26*sec, 27*sec, "cloud-final.service")}, nil, "amazon", "configuration without cloud-init", "customData"},
		"nodeadm": {[]boot.Unit{svc("nodeadm-config.service", 10*sec, 30*sec, "net.service"), svc("net.service", 3*sec, 9*sec), svc("kubelet.service", 31*sec, 32*sec, "nodeadm-config.service")}, nil,
			"amazon", "Would save 20s: configure the node without nodeadm", "CSE"},
	}
	for name, tc := range boots {
		t.Run(name, func(t *testing.T) {
			c := machine(tc.units...)
			c.Spans, c.Host.Virtualization, c.Manager.Finish = tc.spans, tc.virtual, 40*sec
			verdict := strings.Join(analyze(t, c, boot.Options{}).Verdict, "\n")
			if !strings.Contains(verdict, tc.has) || strings.Contains(verdict, tc.not) {
				t.Errorf("the verdict has to have %q and not %q:\n%s", tc.has, tc.not, verdict)
			}
		})
	}
}

// TestLongestWithoutChain: a picture does not say what waited for what; the verdict names what took
// longest.
func TestLongestWithoutChain(t *testing.T) {
	c := machine(svc("multi-user.target", 25*sec, 25*sec), svc("kdump.service", 5*sec, 20*sec), svc("systemd-udev-settle.service", 2*sec, 158e5), svc("quick.service", 2*sec, 2*sec+1e4))
	verdict := strings.Join(analyze(t, c, boot.Options{}).Verdict, "\n")
	if !strings.Contains(verdict, "Longest to start, whether or not anything waited for them: kdump.service 15s; systemd-udev-settle.service 13.800s.") || strings.Contains(verdict, "Most expensive") {
		t.Errorf("the verdict is\n%s", verdict)
	}
}

// TestSameBoot: records of two machines or two boots do not go together, and the error names what
// contradicts; what may differ in one boot does not matter.
func TestSameBoot(t *testing.T) {
	const kernel = 1700000000e6
	for name, tc := range map[string]struct {
		a, b func(*boot.Capture)
		want string
	}{
		"boot IDs":         {func(c *boot.Capture) { c.Host.BootID = "0f1e" }, func(c *boot.Capture) { c.Host.BootID = "ffff" }, "two boots, 0f1e and ffff"},
		"equal boot IDs":   {func(c *boot.Capture) { c.Host.BootID, c.Host.Name = "0f1e", "a" }, func(c *boot.Capture) { c.Host.BootID, c.Host.Name = "0F1E", "b" }, ""},
		"VMs":              {func(c *boot.Capture) { c.Host.VMID = "i-1" }, func(c *boot.Capture) { c.Host.VMID = "i-2" }, "two machines, i-1 and i-2"},
		"hosts":            {func(c *boot.Capture) { c.Host.Name = "node-1" }, func(c *boot.Capture) { c.Host.Name = "node-2" }, "two machines, node-1 and node-2"},
		"host and domain":  {func(c *boot.Capture) { c.Host.Name = "ip-1" }, func(c *boot.Capture) { c.Host.Name = "IP-1.ec2.internal" }, ""},
		"a name that none": {func(c *boot.Capture) { c.Host.Name = "localhost" }, func(c *boot.Capture) { c.Host.Name = "node-2" }, ""},
		"kernels":          {func(c *boot.Capture) { c.Host.Kernel = "6.1.0" }, func(c *boot.Capture) { c.Host.Kernel = "6.1.2" }, "kernel 6.1.0 and kernel 6.1.2"},
		"a year between":   {func(c *boot.Capture) { c.Manager.KernelRealtime = kernel }, func(c *boot.Capture) { c.Manager.KernelRealtime = kernel + 365*86400e6 }, "kernel started at 2023-11-14 22:13:20 and 2024-11-13 22:13:20"},
		"clocks of a boot": {func(c *boot.Capture) { c.Manager.KernelRealtime = kernel }, func(c *boot.Capture) { c.Manager.KernelRealtime = kernel + 90*sec }, ""},
		"a clock that was set": {func(c *boot.Capture) { c.Manager.KernelRealtime = kernel }, func(c *boot.Capture) {
			c.Manager.KernelRealtime = kernel + 7200e6
			c.Marks = []boot.Mark{{Name: boot.MarkClockJump, At: 5 * sec}}
		}, ""},
		"cloud-init of another boot": {func(c *boot.Capture) { c.Manager.KernelRealtime = kernel }, func(c *boot.Capture) { c.Manager, c.Floating = boot.Manager{}, kernel-86400e6 }, "cloud-init began at 2023-11-13 22:13:21"},
		"cloud-init of this boot":    {func(c *boot.Capture) { c.Manager.KernelRealtime = kernel }, func(c *boot.Capture) { c.Manager, c.Floating = boot.Manager{}, kernel+5*sec }, ""},
		"systemd's stamps":           {func(*boot.Capture) {}, func(c *boot.Capture) { c.Manager.Userspace += 5000 }, "two boots, userspace began 1s and 1.005s after the kernel"},
		"the journal's stamps": {func(*boot.Capture) {}, func(c *boot.Capture) {
			c.Manager.Userspace, c.Sources = c.Manager.Userspace+5000, []string{"journal"}
		}, ""},
		"the end of startup":     {func(*boot.Capture) {}, func(c *boot.Capture) { c.Manager.Finish, c.Sources = 40*sec, []string{"journal"} }, "startup finished 30s and 40s after the kernel"},
		"one that had not ended": {func(*boot.Capture) {}, func(c *boot.Capture) { c.Manager.Finish = 0 }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			a, b := machine(svc("a.service", 2*sec, 3*sec)), machine(svc("b.service", 2*sec, 3*sec))
			a.Sources, b.Sources = []string{boot.SourceShow}, []string{boot.SourceShow}
			tc.a(a)
			tc.b(b)
			for _, err := range []error{a.SameBoot(b), a.Merge(b)} {
				if tc.want == "" && err != nil {
					t.Fatal(err)
				}
				if tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want) || !strings.Contains(err.Error(), "kamino boot compare")) {
					t.Errorf("error is %v, want %q in it", err, tc.want)
				}
			}
		})
	}
}

// TestRemediesWithoutKubelet: of a record without kubelet no time of kubelet is promised, and a time
// that is not known is not in the document.
func TestRemediesWithoutKubelet(t *testing.T) {
	verdict := strings.Join(analyze(t, cloudInitOnly(), boot.Options{}).Verdict, "\n")
	if strings.Contains(verdict, "kubelet at") || strings.Contains(verdict, "start kubelet") || !strings.Contains(verdict, "what waits for cloud-final at ") || !strings.Contains(verdict, "kubelet is not in this record") {
		t.Errorf("the verdict is\n%s", verdict)
	}
	lengths := &boot.Capture{Schema: boot.Schema, Lengths: []boot.Length{{Name: "a.service", Took: sec}}}
	document, err := json.Marshal(analyze(t, lengths, boot.Options{}))
	if err != nil {
		t.Fatal(err)
	}
	for _, not := range []string{`"start":`, `"goalAt":`} {
		if strings.Contains(string(document), not) {
			t.Errorf("a length has %s: %s", not, document)
		}
	}
}
