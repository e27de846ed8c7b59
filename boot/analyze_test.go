package boot_test

import (
	"slices"
	"strings"
	"testing"

	"kamino.dev/kamino/boot"
)

// svc is a unit that was up at a time after it had taken a while.
func svc(id string, began, up boot.Micros, after ...string) boot.Unit {
	return boot.Unit{ID: id, ActiveState: "active", After: after, Stamps: boot.Stamps{Activating: began, Activated: up}}
}

// machine is a boot with userspace from 1 s and the end of startup at 30 s.
func machine(units ...boot.Unit) *boot.Capture {
	return &boot.Capture{Schema: boot.Schema, Manager: boot.Manager{Userspace: sec, SecurityStart: sec + 1, Finish: 30 * sec}, Units: units}
}

func analyze(t testing.TB, c *boot.Capture, o boot.Options) *boot.Analysis {
	t.Helper()
	a, err := boot.Analyze(c, o)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// mainPath is the main path of the chain, goal first, with what kind of link led to each.
func mainPath(a *boot.Analysis) string {
	var out []string
	for _, l := range slices.Backward(a.Chain.Path()) {
		name := l.Unit
		if l.Kind != boot.LinkRoot && l.Kind != boot.LinkAfter {
			name = "(" + l.Kind + ") " + name
		}
		out = append(out, name)
	}
	return strings.Join(out, " < ")
}

// TestPublishedBoots checks what was published about these boots.
func TestPublishedBoots(t *testing.T) {
	parked := analyze(t, readFile(t, "published", "preprovisioned.show"), boot.Options{})
	if want := boot.Micros(1000410000); parked.ParkedFor != want || parked.GoalAt.At-parked.GoalAt.Net != want {
		t.Errorf("the pre-provisioned machine was parked %s, of its goal's time %s; want %s", parked.ParkedFor, parked.GoalAt.At-parked.GoalAt.Net, want)
	}
	if c := parked.Costs[0]; c.What != "cloud-init.service" {
		t.Errorf("most expensive is %+v, want cloud-init.service: parking is no slowness", c)
	}
	final := analyze(t, readFile(t, "published", "cloud-final.show"), boot.Options{})
	var saves []boot.Micros
	for _, r := range final.Remedies {
		saves = append(saves, r.Saves)
	}
	// 11.703 s of cloud-final; from basic.target to multi-user.target, most of it cloud-config;
	// cloud-init's first two stages.
	if want := []boot.Micros{11703000, 2729000, 26314000}; !slices.Equal(saves, want) {
		t.Errorf("remedies save %v, want %v", saves, want)
	}
	docker := analyze(t, readFile(t, "published", "docker.show"), boot.Options{})
	if docker.ParkedFor != 0 || docker.Costs[0] != (boot.Cost{What: "systemd-networkd-wait-online.service", Net: 16639000}) {
		t.Errorf("the first example: parked %s, most expensive %+v", docker.ParkedFor, docker.Costs[0])
	}
}

// TestStrictChain is about what systemd-analyze's chain gets wrong or leaves out.
func TestStrictChain(t *testing.T) {
	restarted := svc("db.service", 500*sec, 501*sec)
	restarted.First, restarted.Restarts = &boot.Stamps{Activating: 4 * sec, Activated: 9 * sec}, 1
	triggered := svc("job.service", 40*sec, 41*sec, "sysinit.target")
	triggered.TriggeredBy = []string{"job.timer"}
	cse := boot.Span{Name: "AKS.CSE.ensureKubelet", Kind: boot.SpanTask, Unit: "walinuxagent.service", Start: 20 * sec, End: 24 * sec}
	for _, tc := range []struct {
		name  string
		boot  *boot.Capture
		spans []boot.Span
		unit  string
		want  string
	}{
		{"a dependency that came up later was not waited for", machine(svc("kubelet.service", 10*sec, 11*sec, "late.mount", "net.service"), svc("late.mount", 12*sec, 15*sec), svc("net.service", 3*sec, 9*sec)), nil, "",
			"kubelet.service < net.service"},
		{"stamps in one turn of PID 1's loop may be the wrong way round", machine(svc("kubelet.service", 10*sec, 11*sec, "net.service"), svc("net.service", 3*sec, 10*sec+900)), nil, "",
			"kubelet.service < net.service"},
		{"what comes after the end of startup counts", machine(svc("kubelet.service", 50*sec, 51*sec, "late.service", "early.service"), svc("late.service", 31*sec, 495e5), svc("early.service", 3*sec, 9*sec)), nil, "",
			"kubelet.service < late.service"},
		{"a unit's trigger is a cause", machine(triggered, svc("job.timer", 39*sec, 399e5), svc("sysinit.target", 5*sec, 5*sec)), nil, "job.service",
			"job.service < (trigger) job.timer"},
		{"a restarted unit counts by its first activation", machine(svc("kubelet.service", 10*sec, 11*sec, "db.service"), restarted), nil, "",
			"kubelet.service < db.service"},
		{"a oneshot that is done was waited for", machine(svc("kubelet.service", 10*sec, 11*sec, "once.service"), boot.Unit{ID: "once.service", Stamps: boot.Stamps{Activating: 5 * sec, Deactivated: 9 * sec}}), nil, "",
			"kubelet.service < once.service"},
		{"circles end", machine(svc("kubelet.service", 10*sec, 10*sec, "a.service"), svc("a.service", 10*sec, 10*sec, "kubelet.service")), nil, "",
			"kubelet.service < a.service < kubelet.service"},
		{"a task that ran when kubelet started, started it", machine(svc("kubelet.service", 23*sec, 24*sec, "net.service"), svc("net.service", 3*sec, 9*sec), svc("walinuxagent.service", 10*sec, 10*sec)), []boot.Span{cse}, "",
			"kubelet.service < (during) AKS.CSE.ensureKubelet < (inside) walinuxagent.service"},
		{"but not another unit beside it", machine(svc("cron.service", 205e5, 21*sec, "net.service"), svc("net.service", 3*sec, 19*sec)), []boot.Span{cse}, "cron.service",
			"cron.service < net.service"},
		{"cloud-init's scripts start kubelet", machine(svc("kubelet.service", 20*sec, 21*sec, "net.service"), svc("net.service", 3*sec, 9*sec), svc("cloud-final.service", 12*sec, 25*sec)), nil, "",
			"kubelet.service < (during) cloud-final.service"},
		{"the agent runs extensions after cloud-final", machine(svc("kubelet.service", 29*sec, 30*sec, "net.service"), svc("net.service", 3*sec, 9*sec), svc("cloud-final.service", 12*sec, 25*sec)), nil, "",
			"kubelet.service < (presumed) cloud-final.service"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tc.boot.Spans = tc.spans
			if got := mainPath(analyze(t, tc.boot, boot.Options{Unit: tc.unit})); got != tc.want {
				t.Errorf("chain is\n%s, want\n%s", got, tc.want)
			}
		})
	}
}

func TestChainShowsIdleTime(t *testing.T) {
	a := analyze(t, machine(svc("kubelet.service", 11*sec, 12*sec, "net.service"), svc("net.service", 3*sec, 95e5)), boot.Options{})
	if a.Chain.Idle != 15e5 {
		t.Errorf("idle before kubelet is %s, want 1.500s", a.Chain.Idle)
	}
	var b strings.Builder
	if err := a.WriteChain(&b); err != nil || !strings.Contains(b.String(), "idle 1.500s") {
		t.Errorf("the text does not say so: %s", b.String())
	}
	if s := a.Segments; len(s) != 4 || !s[0].Idle || s[0].Net != 2*sec || !s[2].Idle || s[2].Net != 15e5 {
		t.Errorf("segments are %+v", s)
	}
}

func TestChainFuzz(t *testing.T) {
	c := machine(svc("kubelet.service", 11*sec, 12*sec, "net.service", "disk.service", "old.service"), svc("net.service", 3*sec, 9*sec), svc("disk.service", 3*sec, 85e5), svc("old.service", 3*sec, 4*sec))
	for fuzz, want := range map[boot.Micros]int{0: 1, 4e5: 1, 5e5: 2, 60e6: 3} {
		if got := len(analyze(t, c, boot.Options{Fuzz: fuzz}).Chain.Next); got != want {
			t.Errorf("with fuzz %s kubelet waited for %d, want %d", fuzz, got, want)
		}
	}
}

func TestUnknownGoal(t *testing.T) {
	c := machine(svc("a.service", 3*sec, 4*sec), boot.Unit{ID: "never.service"})
	for unit, want := range map[string]string{"nosuch.service": "not in this capture", "never.service": "did not start"} {
		if _, err := boot.Analyze(c, boot.Options{Unit: unit}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %q", unit, err, want)
		}
	}
}

func TestPauses(t *testing.T) {
	local := func(took, cpu boot.Micros) boot.Unit {
		u := svc("cloud-init-local.service", 2*sec, 2*sec+took)
		u.CPU = cpu
		return u
	}
	pause := func(name string, from, to boot.Micros) boot.Span {
		return boot.Span{Name: "azure-ds/" + name, Kind: boot.SpanPause, Unit: "cloud-init-local.service", Start: from, End: to}
	}
	for _, tc := range []struct {
		name     string
		unit     boot.Unit
		spans    []boot.Span
		marks    []boot.Mark
		want     boot.Micros
		evidence string
	}{
		{"cloud-init's span says it", local(100*sec, 0), []boot.Span{pause("_wait_for_pps_running_reuse", 5*sec, 90*sec)}, nil, 85 * sec, "cloud-init span azure-ds/_wait_for_pps_running_reuse"},
		{"a span inside another counts once", local(100*sec, 0), []boot.Span{pause("_wait_for_pps_running_reuse", 5*sec, 90*sec), pause("_poll_imds", 80*sec, 95*sec)}, nil, 90 * sec, "cloud-init span"},
		{"a span that has not ended ends with its unit", local(100*sec, 0), []boot.Span{pause("_poll_imds", 5*sec, 0)}, nil, 97 * sec, "cloud-init span"},
		{"short spans are believed, too", local(8*sec, 0), []boot.Span{pause("_poll_imds", 5*sec, 7*sec)}, nil, 2 * sec, "cloud-init span"},
		{"the link came back", local(100*sec, 0), nil, []boot.Mark{{Name: boot.MarkLinkUp, At: 3 * sec}, {Name: boot.MarkLinkUp, At: 92 * sec, Source: "journal"}}, 90 * sec, "network link came back"},
		{"long and idle", local(100*sec, sec), nil, nil, 100 * sec, "long and idle: 1s of CPU in 1min 40s"},
		{"long, but nobody knows", local(100*sec, 0), nil, nil, 100 * sec, "CPU time unknown"},
		{"long and busy is slow", local(100*sec, 40*sec), nil, nil, 0, ""},
		{"short is not parked", local(59*sec, 0), nil, nil, 0, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := machine(tc.unit, svc("kubelet.service", 110*sec, 111*sec, "cloud-init-local.service"))
			c.Spans, c.Marks = tc.spans, tc.marks
			a := analyze(t, c, boot.Options{})
			if a.ParkedFor != tc.want {
				t.Fatalf("parked %s, want %s", a.ParkedFor, tc.want)
			}
			if a.GoalAt.At != 110*sec || a.GoalAt.Net != 110*sec-tc.want {
				t.Errorf("kubelet at %s gross, %s net", a.GoalAt.At, a.GoalAt.Net)
			}
			if tc.want > 0 && !strings.Contains(a.Parked[0].Evidence, tc.evidence) {
				t.Errorf("evidence is %q, want %q", a.Parked[0].Evidence, tc.evidence)
			}
		})
	}
}

// TestRemedyInsideScript: kubelet that cloud-final's script starts comes no later than that script
// without cloud-final.
func TestRemedyInsideScript(t *testing.T) {
	c := machine(svc("kubelet.service", 20*sec, 21*sec, "net.service"), svc("net.service", 3*sec, 9*sec), svc("cloud-final.service", 12*sec, 25*sec, "net.service"))
	a := analyze(t, c, boot.Options{})
	if r := a.Remedies[0]; r.Saves != 8*sec || r.Reaches != 12*sec {
		t.Errorf("without cloud-final: saves %s, kubelet at %s; want 8s, 12s", r.Saves, r.Reaches)
	}
	if r := a.Remedies[1]; r.Saves != 3*sec || r.Reaches != 9*sec {
		t.Errorf("without script: saves %s, kubelet at %s; want 3s, 9s", r.Saves, r.Reaches)
	}
}

func TestNormalize(t *testing.T) {
	for in, want := range map[string]string{
		"cloud-init-network.service": "cloud-init.service", "cloud-init.service": "cloud-init.service", "waagent.service": "walinuxagent.service",
		`dev-disk-by\x2duuid-4fa1c7be\x2d0001.device`:              `dev-disk-by\x2duuid-*.device`,
		`systemd-fsck@dev-disk-by\x2duuid-4fa1c7be.service`:        "systemd-fsck@*.service",
		`sys-devices-virtual-misc-vmbus\x21hv_kvp.device`:          `sys-devices-virtual-misc-vmbus\x21hv_kvp.device`,
		"sys-devices-pci0000:00-0000:00:1f.2-block.device":         "sys-devices-pci*:*-*:*:*f.*-block.device",
		`run-containerd-io.containerd-3f2a9b8c7d6e5f40\x2d1.mount`: `run-containerd-io.containerd-*\x2d*.mount`,
		"user@1000.service":     "user@*.service",
		"session-3.scope":       "session-*.scope",
		"kubelet.service":       "kubelet.service",
		"modprobe@fuse.service": "modprobe@fuse.service",
		`var-lib-kubelet-pods-0a1b2c3d\x2d0000\x2d1111\x2d2222\x2d333344445555.mount`: "var-lib-kubelet-pods-*.mount",
	} {
		t.Run(in, func(t *testing.T) {
			if got := boot.Normalize(in); got != want {
				t.Errorf("Normalize(%q) = %q, want %q", in, got, want)
			}
		})
	}
}

// TestOwnStart: the time of a container and of a soft reboot does not count from the start of a
// kernel that was up before.
func TestOwnStart(t *testing.T) {
	const day = 86400 * sec
	old := svc("leftover.mount", 5*sec, 6*sec)
	units := []boot.Unit{svc("kubelet.service", day+10*sec, day+11*sec, "a.service", "leftover.mount"), svc("a.service", day+3*sec, day+9*sec), old}
	for name, tc := range map[string]struct {
		manager boot.Manager
		since   string
		at      boot.Micros
	}{
		"container":           {boot.Manager{Userspace: day, Finish: day + 20*sec}, "container", 10 * sec},
		"soft reboot":         {boot.Manager{Userspace: day, SecurityStart: day + 1, Finish: day + 20*sec, SoftReboots: 1, ShutdownStart: day - 2*sec}, "soft reboot", 12 * sec},
		"soft reboot, no end": {boot.Manager{Userspace: day, SecurityStart: day + 1, Finish: day + 20*sec, SoftReboots: 3}, "soft reboot", 10 * sec},
		"machine":             {boot.Manager{Userspace: sec, SecurityStart: sec, Finish: day + 20*sec}, "kernel", day + 10*sec},
	} {
		t.Run(name, func(t *testing.T) {
			c := &boot.Capture{Schema: boot.Schema, Manager: tc.manager, Units: units, Marks: []boot.Mark{{Name: boot.MarkReady, At: day + 15*sec}}}
			a := analyze(t, c, boot.Options{})
			if a.Since != tc.since || a.GoalAt.At != tc.at {
				t.Errorf("%s: kubelet %s after the %s, want %s after the %s", name, a.GoalAt.At, a.Since, tc.at, tc.since)
			}
			if i := slices.IndexFunc(a.Milestones, func(m boot.Milestone) bool { return m.Name == boot.AtReady }); i < 0 || a.Milestones[i].At != tc.at+5*sec {
				t.Errorf("%s: milestones %+v", name, a.Milestones)
			}
			if got := strings.Contains(strings.Join(a.Findings, "\n"), "1 unit up before the "+tc.since); got != (tc.since != "kernel") {
				t.Errorf("%s: remarks are %q", name, a.Findings)
			}
			if c.Manager != tc.manager || c.Units[0].Activating != day+10*sec {
				t.Errorf("%s: the capture was changed", name)
			}
		})
	}
}
