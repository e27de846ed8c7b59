package read

import (
	"regexp"
	"strings"
	"testing"
	"testing/fstest"

	"kamino.dev/kamino/boot"
)

const (
	// olderBoot and newerBoot are what a log has of PID 1 alone: grep 'systemd\[1\]' /var/log/syslog.
	olderBoot = `Jan 14 07:00:03 localhost systemd[1]: systemd 252.22-1~deb12u1 running in system mode (+PAM +AUDIT)
Jan 14 07:00:04 node-1 systemd[1]: Starting Wait for Network to be Configured...
Jan 14 07:02:04 node-1 systemd[1]: Finished Wait for Network to be Configured.
Jan 14 07:02:05 node-1 systemd[1]: Started kubelet: The Kubernetes Node Agent.
Jan 14 07:02:10 node-1 systemd[1]: Startup finished in 2s (kernel) + 2min 8s (userspace) = 2min 10s.
Jan 14 07:30:00 node-1 systemd[1]: systemd 252.22-1~deb12u1 running in system mode (+PAM +AUDIT)
Jan 14 07:30:01 node-1 systemd[1]: Started Daily apt download activities.
`
	newerBoot = `Jan 14 08:00:03 localhost systemd[1]: systemd 252.22-1~deb12u1 running in system mode (+PAM +AUDIT)
Jan 14 08:00:04 node-1 systemd[1]: Starting Wait for Network to be Configured...
Jan 14 08:00:09 node-1 systemd[1]: Finished Wait for Network to be Configured.
Jan 14 08:00:10 node-1 systemd[1]: Started kubelet: The Kubernetes Node Agent.
`
	newerEnd = "Jan 14 08:00:12 node-1 systemd[1]: Startup finished in 2s (kernel) + 10s (userspace) = 12s.\n"
	down     = "Jan 14 07:59:40 node-1 systemd[1]: Shutting down.\n"
)

// TestLogOfPID1: a log that lost all lines but those of PID 1 has no kernel's first line. The last boot
// counts where it is known when that began; systemd that was executed anew began none.
func TestLogOfPID1(t *testing.T) {
	monotonic := func(text string) string {
		return strings.NewReplacer("Jan 14 07:00:", "[    0.0000", "Jan 14 07:02:", "[  120.0000", "Jan 14 07:30:", "[ 1800.0000", "Jan 14 08:00:", "[    0.0000", " localhost", "] localhost", " node-1", "] node-1").Replace(text)
	}
	for name, tc := range map[string]struct {
		text string
		two  bool
		wait boot.Micros
	}{
		"one boot":           {olderBoot, false, 120 * sec},
		"both finished":      {olderBoot + newerBoot + newerEnd, true, 5 * sec},
		"the last hangs":     {olderBoot + down + newerBoot, true, 5 * sec},
		"times since kernel": {monotonic(olderBoot + newerBoot), true, 5},
		"newest first":       {backwards(olderBoot + "-- Boot " + strings.Repeat("0a", 16) + " --\n" + newerBoot), true, 5 * sec},
	} {
		t.Run(name, func(t *testing.T) {
			c := parse(t, []byte(tc.text))
			u := c.Unit("systemd-networkd-wait-online.service")
			if u == nil || u.Took() != tc.wait || u.Restarts > 0 {
				t.Errorf("the network is %+v, want %s", u, tc.wait)
			}
			if apt := c.Unit("Daily apt download activities"); (apt == nil) != tc.two {
				t.Errorf("what the boot before ran is %+v", apt)
			}
			if two := strings.Contains(strings.Join(c.Notes, " "), "the log holds 2 boots"); two != tc.two {
				t.Errorf("notes are %q", c.Notes)
			}
			if c.Host.BootID != "" || c.Host.Name != "node-1" {
				t.Errorf("host is %+v", c.Host)
			}
		})
	}
}

func backwards(text string) string {
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	for i, j := 0, len(lines)-1; i < j; i, j = i+1, j-1 {
		lines[i], lines[j] = lines[j], lines[i]
	}
	return strings.Join(lines, "\n") + "\n"
}

// TestTwoMachines: one file with the lines of two machines is refused, and names both. A machine that
// learns its name in the boot is one.
func TestTwoMachines(t *testing.T) {
	const kernel = "Jan 14 08:00:01 HOST kernel: [    0.000000] Linux version 6.1.0\n"
	of := func(host, text string) string {
		return strings.NewReplacer("HOST", host, "localhost", host, "node-1", host).Replace(text)
	}
	one, two := of("node-1", kernel+newerBoot), of("node-2", kernel+newerBoot)
	mixed := ""
	for i, line := range strings.SplitAfter(one, "\n") {
		mixed += line + strings.SplitAfter(two, "\n")[i]
	}
	const dump = "UserspaceTimestampMonotonic=1822671\nFinishTimestampMonotonic=47522671\n\nId=a.service\nInactiveExitTimestampMonotonic=500000\n\n"
	for name, tc := range map[string]struct{ text, want string }{
		"a central log":         {mixed, `two machines in one log, "node-1" and "node-2"`},
		"one after another":     {one + two, `two machines in one log, "node-1" and "node-2"`},
		"a domain":              {of("node-1.example", kernel) + one, ""},
		"a name that is new":    {of("debian", kernel) + one, `two machines`},
		"a name that it gets":   {of("localhost", kernel) + newerBoot, ""},
		"two dumps":             {dump + strings.ReplaceAll(dump, "1822671", "1999999"), "two boots in one text: userspace began at 1.822s in one and 1.999s in another"},
		"a later dump":          {dump + strings.ReplaceAll(dump, "47522671", "0"), ""},
		"another boot's name":   {of("golden", olderBoot) + one, ""},
		"one machine, two tags": {one + "Jan 14 08:00:11 node-2 kubelet[6]: x\nJan 14 08:00:11 node-1 systemd[1]: Started X.\n", ""},
	} {
		t.Run(name, func(t *testing.T) {
			c, err := Bytes([]byte(tc.text))
			if tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) || tc.want == "" && err != nil {
				t.Fatalf("read with %v, want %q", err, tc.want)
			}
			if named := err == nil && strings.Contains(strings.Join(c.Notes, " "), `another name, "golden"`); named != (name == "another boot's name") {
				t.Errorf("notes are %q", c.Notes)
			}
		})
	}
}

// TestCutLogs: a log that begins or ends within a line is read; so is one that Windows or PowerShell
// wrote.
func TestCutLogs(t *testing.T) {
	whole := parse(t, []byte(cloudText))
	for name, text := range map[string]string{
		"cut within a line":      "ta from DataSourceAzure\nTraceback (most recent call last):\n" + cloudText,
		"written by PowerShell":  utf16Of(cloudText),
		"written by rsyslog":     regexp.MustCompile(`(?m)^(\S+) (\S+),(\d+) - `).ReplaceAllString(cloudText, "${1}T${2}.${3}456+00:00 node-1 [CLOUDINIT] "),
		"its end lost":           cloudText + "2026-01-14 09:10:14,000 - util.py[DEB",
		"zeros where it was cut": strings.Repeat("\x00", 100) + "\n" + cloudText,
	} {
		t.Run(name, func(t *testing.T) {
			if c := parse(t, []byte(text)); len(c.Spans) != len(whole.Spans) || c.Sources[0] != "cloud-init-log" {
				t.Errorf("%d of %d spans, sources %v", len(c.Spans), len(whole.Spans), c.Sources)
			}
		})
	}
	if c := parse(t, []byte("x\n"+newerBoot+"Jan 14 08:00:11 n1 cloud-init[1]: util.py[DEBUG]: start: y\n")); c.Sources[0] != "log" {
		t.Errorf("a log of the machine is read as %v", c.Sources)
	}
	export := strings.ReplaceAll(string(exportFormat(nodeJournal())), "\n", "\r\n")
	if c := parse(t, []byte(export)); c.Host.BootID != "b00t" || c.Manager.Finish != 15*sec {
		t.Errorf("an export that Windows wrote: %+v, %+v", c.Host, c.Manager)
	}
	iso := "2026-01-14T08:00:00,000000+01:00 Linux version 6.1.0\n2026-01-14T08:00:01,250000+01:00 systemd[1]: Starting modprobe@fuse.service...\n" +
		"2026-01-14T08:00:01,300000+01:00 systemd[1]: Finished modprobe@fuse.service.\n2026-01-14T08:00:02,500000+01:00 e1000: eth0 NIC Link is Up\n"
	c := parse(t, []byte(iso))
	if u := c.Unit("modprobe@fuse.service"); u == nil || u.Took() != 50000 || c.Host.Name != "" {
		t.Errorf("dmesg --time-format iso: %+v, host %q", u, c.Host.Name)
	}
	if m, ok := c.Mark(boot.MarkLinkUp); !ok || m.At != 25e5 {
		t.Errorf("the link came up at %+v", m)
	}
}

// TestTextsInOneFile: who opens an issue pastes what several commands printed into it.
func TestTextsInOneFile(t *testing.T) {
	chain := "kubelet.service @8.100s\n└─systemd-networkd-wait-online.service @2.050s +5.001s\n"
	for name, text := range map[string]string{"the journal first": newerBoot + newerEnd + "\n" + chain, "the journal last": "My boot:\n" + chain + "\n" + newerBoot + newerEnd} {
		c := parse(t, []byte(text))
		if u := c.Unit("kubelet.service"); u == nil || len(u.After) != 1 || u.Began() != 101e5 || c.Manager.Finish != 12*sec {
			t.Errorf("%s: kubelet is %+v, manager %+v", name, u, c.Manager)
		}
	}
	blame := "-- Boot Record 01 --\n     34.07100s (modules-final/config-package-update-upgrade-install)\n     00.50000s (init-local/other)\n\n1 boot records analyzed\n"
	c := parse(t, []byte(cloudShow+blame))
	if notes := strings.Join(c.Notes, " "); len(c.Spans) != 6 || len(c.Lengths) != 2 || strings.Contains(notes, "boots") || strings.Contains(notes, "left out") {
		t.Errorf("%d spans, %d lengths, notes %q", len(c.Spans), len(c.Lengths), notes)
	}
	if _, err := Bytes([]byte(newerBoot + newerEnd + "Startup finished in 2s (kernel) + 50s (userspace) = 52s\n")); err == nil || !strings.Contains(err.Error(), "records of two boots") {
		t.Errorf("texts of two boots: %v", err)
	}
}

// TestLogWithoutHost: journalctl --no-hostname, and dmesg with priorities.
func TestLogWithoutHost(t *testing.T) {
	const dmesg = "P[    0.000000] Linux version 6.1.0\nP[    1.250000] systemd[1]: Starting a.service - A...\nP[    1.350000] systemd[1]: Started a.service - A.\nP[    2.000000] authpriv: x\n"
	for name, text := range map[string]string{
		"journal":    "Jan 14 08:00:00.000000 kernel: Linux version 6.1.0\nJan 14 08:00:01.250000 systemd[1]: Starting a.service - A...\nJan 14 08:00:01.350000 systemd[1]: Started a.service - A.\n",
		"dmesg -x":   strings.ReplaceAll(dmesg, "P[", "daemon:notice: ["),
		"dmesg -x ":  strings.ReplaceAll(dmesg, "P[", "kern  :info  : ["),
		"dmesg -r":   strings.ReplaceAll(dmesg, "P[", "<30>["),
		"dmesg -d":   strings.ReplaceAll(strings.ReplaceAll(dmesg, "P[", "["), "0]", "0 <    0.000000>]"),
		"dmesg of 6": strings.ReplaceAll(strings.ReplaceAll(dmesg, "P[", "["), "0] ", "0][    T1] "),
	} {
		c := parse(t, []byte(text))
		if u := c.Unit("a.service"); u == nil || u.Took() != 1e5 || u.Activating != 125e4 || c.Host.Name != "" {
			t.Errorf("%s: %+v, host %q", name, u, c.Host.Name)
		}
	}
}

// TestRotatedLog: the boot is in the log before the last rotation. The lines since then are not put where
// that boot began.
func TestRotatedLog(t *testing.T) {
	const later = "Jan 15 00:00:07 node-1 systemd[1]: Starting Rotate log files...\nJan 15 00:00:09 node-1 systemd[1]: Finished Rotate log files.\nJan 15 03:10:00 node-1 systemd[1]: Started kubelet: The Kubernetes Node Agent.\n"
	for name, tc := range map[string]struct{ older, newer, want string }{
		"the boot before":     {newerBoot + newerEnd, later, "without the beginning of a boot"},
		"a boot that hangs":   {newerBoot, later, "without the beginning of a boot"},
		"no boot at all":      {later, later, "without the beginning of a boot"},
		"a boot in each":      {olderBoot, newerBoot + newerEnd, "records of two boots"},
		"a chain of the boot": {"multi-user.target @44.309s\n└─kubelet.service @43.902s\n", later, "without the beginning of a boot"},
	} {
		t.Run(name, func(t *testing.T) {
			c, err := Dir(fstest.MapFS{"syslog": {Data: []byte(tc.newer)}, "syslog.1": {Data: []byte(tc.older)}})
			if err == nil || !strings.Contains(err.Error(), tc.want) || !strings.Contains(err.Error(), `"syslog.1"`) {
				t.Errorf("read with %v as %+v", err, c)
			}
		})
	}
	if c := parse(t, []byte(newerBoot+newerEnd+later)); c.Unit("kubelet.service").FirstStamps().Began() != 10*sec {
		t.Errorf("both in one file: %+v", c.Unit("kubelet.service"))
	}
}

// TestReportWithCatalog: sos of RHEL 7 and 8 has journalctl explain the messages.
func TestReportWithCatalog(t *testing.T) {
	c, err := Dir(fstest.MapFS{"sos_commands/logs/journalctl_--no-pager_--catalog_--boot": {Data: []byte(newerBoot + newerEnd)}, "sos_commands/logs/journalctl_--no-pager_--catalog_--boot_-1": {Data: []byte(olderBoot)}})
	if err != nil {
		t.Fatal(err)
	}
	if u := c.Unit("systemd-networkd-wait-online.service"); u == nil || u.Took() != 5*sec {
		t.Errorf("the network is %+v", u)
	}
}
