package read

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"
	"unicode/utf16"

	"github.com/google/go-cmp/cmp"

	"kamino.dev/kamino/boot"
)

// publishedFile is one of the texts, or of the dumps of the same boots, that the original published.
func publishedFile(t *testing.T, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("..", "testdata", "published", name))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func analysed(t *testing.T, c *boot.Capture, unit string) *boot.Analysis {
	t.Helper()
	a, err := boot.Analyze(c, boot.Options{Unit: unit})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// steps are a chain's units with the times that systemd-analyze prints, from userspace.
func steps(a *boot.Analysis) []string {
	var out []string
	for _, l := range a.Chain.Path() {
		out = append(out, fmt.Sprintf("%s @%s +%s", l.Unit, l.Start-a.Zero, l.Took))
	}
	return out
}

// TestReadCriticalChain: the text of systemd-analyze critical-chain says of the published boots what
// their dumps say, however it was copied.
func TestReadCriticalChain(t *testing.T) {
	for _, tc := range []struct{ text, dump, unit string }{
		{"docker", "docker", ""}, {"preprovisioned", "preprovisioned", ""}, {"walinuxagent", "cloud-final", "walinuxagent.service"}, {"cloud-final", "cloud-final", ""},
	} {
		text := string(publishedFile(t, tc.text+".chain"))
		want := steps(analysed(t, parse(t, publishedFile(t, tc.dump+".show")), tc.unit))
		for copied, change := range map[string]func(string) string{
			"as printed":    func(s string) string { return s },
			"with a prompt": func(s string) string { return "# systemd-analyze critical-chain\n" + s + "# \n" },
			"from an issue": func(s string) string {
				return "My node is slow:\n\n```\n    " + strings.ReplaceAll(s, "\n", "\n    ") + "\n```\n"
			},
			"from Windows":     func(s string) string { return strings.ReplaceAll(s, "\n", "\r\n") },
			"from a web page":  func(s string) string { return strings.ReplaceAll(s, "  ", "\u00a0 ") },
			"from a terminal":  func(s string) string { return strings.ReplaceAll(s, "└─", "└─\x1b[0;1;31m") },
			"from a mail":      func(s string) string { return "> " + strings.ReplaceAll(s, "\n", "\n> ") },
			"from PowerShell":  utf16Of,
			"with a remark":    func(s string) string { return strings.ReplaceAll(s, "s\n", "s  ← here\n") },
			"without UTF-8":    func(s string) string { return strings.ReplaceAll(s, "└─", "`-") },
			"without its head": func(s string) string { _, rest, _ := strings.Cut(s, "\n\n"); return rest },
			"packed":           func(s string) string { return packed(t, s) },
		} {
			t.Run(tc.text+" "+copied, func(t *testing.T) {
				c := parse(t, []byte(change(text)))
				a := analysed(t, c, tc.unit)
				got := steps(a)
				n := len(want)
				if tc.text == "cloud-final" { // its own beginning is not in the text
					n--
				}
				if diff := cmp.Diff(want[:n], got[:min(n, len(got))]); diff != "" {
					t.Error(diff)
				}
				if a.Since != "userspace" || !strings.Contains(strings.Join(a.Verdict, " "), "after the start of userspace") {
					t.Errorf("since %s: %q", a.Since, a.Verdict)
				}
				if !strings.Contains(strings.Join(a.Findings, "\n"), "systemctl show --all") {
					t.Errorf("nothing says what is missing: %q", a.Findings)
				}
			})
		}
	}
}

// utf16Of is what PowerShell writes of what a program printed.
func utf16Of(s string) string {
	out := []byte("\xff\xfe")
	for _, unit := range utf16.Encode([]rune(strings.ReplaceAll(s, "\n", "\r\n"))) {
		out = append(out, byte(unit), byte(unit>>8))
	}
	return string(out)
}

func packed(t *testing.T, s string) string {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	if _, err := z.Write([]byte(s)); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// TestReadAnalyzeReal: what the real systemd-analyze 252 printed about a boot, all three texts in one
// file, says what the dump says.
func TestReadAnalyzeReal(t *testing.T) {
	c := parse(t, bytes.Join([][]byte{fixture(t, "real/time.txt"), fixture(t, "real/blame.txt"), fixture(t, "real/chain.txt")}, []byte("\n")))
	dump := parse(t, realDump(t))
	if diff := cmp.Diff([]string{"critical-chain", "blame", "time"}, c.Sources); diff != "" {
		t.Error(diff)
	}
	if m, d := c.Manager, dump.Manager; max(d.Userspace-m.Userspace, m.Userspace-d.Userspace) > 2000 || max(m.Finish-d.Finish, d.Finish-m.Finish) > 3000 {
		t.Errorf("manager is %+v, want %+v", m, d)
	}
	rows := strings.Count(string(fixture(t, "real/blame.txt")), "\n")
	if a := analysed(t, c, ""); len(c.Lengths) < rows-1 || len(a.Blame) < rows-1 {
		t.Errorf("%d of %d rows were read, blame has %d", len(c.Lengths), rows, len(a.Blame))
	}
}

// TestReadAnalyzeText: what the texts do not say is not made up.
func TestReadAnalyzeText(t *testing.T) {
	blame := parse(t, []byte("       2min 84ms systemd-networkd-wait-online.service\n          1.157s docker.service\n           385ms systemd-journal-flush.service\n"))
	want := []boot.Length{{Name: "systemd-networkd-wait-online.service", Took: 120084000}, {Name: "docker.service", Took: 1157000}, {Name: "systemd-journal-flush.service", Took: 385000}}
	if diff := cmp.Diff(want, blame.Lengths); diff != "" || len(blame.Units) > 0 {
		t.Errorf("%s, units %+v", diff, blame.Units)
	}
	if v := strings.Join(analysed(t, blame, "").Verdict, " "); !strings.Contains(v, "not when") || !strings.Contains(v, "systemd-networkd-wait-online.service 2min 84ms; docker.service 1.157s") {
		t.Errorf("verdict is %s", v)
	}
	if a := analysed(t, parse(t, []byte("Startup finished in 2.345s (userspace) \n")), ""); a.Phases[0].Gross != 2345000 || a.Since != "userspace" {
		t.Errorf("a container's time: %+v", a.Phases)
	}
	false1 := parse(t, []byte("a.target @9s\n└─late.socket @12s +1s\n  └─sysinit.target @8s\n    └─b.service @1s +7s\n"))
	if got := strings.Join(steps(analysed(t, false1, "a.target")), " "); got != "b.service @1s +7s sysinit.target @8s +0 a.target @9s +0" || !strings.Contains(strings.Join(false1.Notes, " "), "late.socket came up after a.target") {
		t.Errorf("an edge to what came up later: %s, %q", got, false1.Notes)
	}
	branches := parse(t, []byte("a.target @9s\n├─b.service @5s +4s\n│ └─c.service @1s +2s\n│   └─...\n└─d.service @6s +2s\n  └─c.service @1s +2s\n"))
	for unit, after := range map[string]string{"a.target": "b.service d.service", "b.service": "c.service", "d.service": "c.service", "c.service": ""} {
		if got := strings.Join(branches.Unit(unit).After, " "); got != after {
			t.Errorf("%s is after %q, want %q", unit, got, after)
		}
	}
	cut := parse(t, []byte("a.target @9s\n└─dev-disk-by\\x2duu>\n  └─b.service @1s +7s\n"))
	if got := strings.Join(cut.Unit("a.target").After, " "); got != "b.service" {
		t.Errorf("below a line that a pager cut: a.target is after %q", got)
	}
	old := parse(t, []byte("a.target @9s\n└─b.mount @584542y 2w 2d 20h 1min 48.551s +36ms\n"))
	if u := old.Unit("b.mount"); u.Activating != 1 {
		t.Errorf("a unit of the initrd is %+v", u)
	}
	for name, text := range map[string]string{
		"two chains": string(publishedFile(t, "docker.chain")) + string(publishedFile(t, "preprovisioned.chain")),
		"two blames": "1min 2.345s kubelet.service\n 1h 2min 3s x.service\n\n59.100s kubelet.service\n",
		"two times":  "Startup finished in 1.2s (kernel) + 20.9s (userspace) = 22.1s\nmulti-user.target reached after 20s in userspace\nStartup finished in 1.3s (kernel) + 60s (userspace) = 1min 1.3s\n",
	} {
		if _, err := Bytes([]byte(text)); err == nil || !strings.Contains(err.Error(), "two boots in one text: ") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestMergeAnalyzeText: the texts go together with each other and with a dump.
func TestMergeAnalyzeText(t *testing.T) {
	chain, dump := parse(t, publishedFile(t, "docker.chain")), parse(t, publishedFile(t, "docker.show"))
	blame := parse(t, []byte("16.639s systemd-networkd-wait-online.service\n90ms other.service\n"))
	if err := chain.Merge(blame); err != nil {
		t.Fatal(err)
	}
	if a := analysed(t, chain, ""); a.Since != "userspace" || len(chain.Lengths) != 2 || a.Chain.Unit != "graphical.target" {
		t.Errorf("since %s, %+v", a.Since, chain.Lengths)
	}
	if err := chain.Merge(dump); err != nil {
		t.Fatal(err)
	}
	if u := chain.Unit("docker.service"); u.Activated != 22437215 || chain.Manager.FromUserspace {
		t.Errorf("docker.service is %+v, manager %+v", u, chain.Manager)
	}
	counted, late := parse(t, publishedFile(t, "docker.chain")), &boot.Capture{Schema: boot.Schema, Units: []boot.Unit{{ID: "x.service", Stamps: boot.Stamps{Activating: sec, Activated: 2 * sec}}}}
	if err := counted.Merge(late); err == nil || !strings.Contains(err.Error(), "neither knows how long the kernel took") {
		t.Errorf("two records without a common zero: %v", err)
	}
}

const cloudShow = `-- Boot Record 01 --
The total time elapsed since completing an event is printed after the "@" character.
The time the event takes is printed after the "+" character.

Starting stage: init-local
|` + "`" + `->no cache found @00.00500s +00.00000s
|` + "`" + `->found local data from DataSourceEc2Local @00.01400s +00.38300s
Finished stage: (init-local) 00.82400 seconds

Starting stage: modules-final
|` + "`" + `->config-package-update-upgrade-install ran successfully @05.00000s +34.07000s
|` + "`" + `->config-scripts-user ran successfully @39.07000s +01.20000s
Finished stage: (modules-final) 35.60000 seconds

Total Time: 36.42400 seconds

1 boot records analyzed
`

// TestReadCloudInitShow reads the text of cloud-init analyze, and says what is in it and what not.
func TestReadCloudInitShow(t *testing.T) {
	c := parse(t, []byte(cloudShow))
	var got []string
	for _, s := range c.Spans {
		got = append(got, fmt.Sprintf("%s %s %s %s", s.Kind, s.Name, s.Start, s.End-s.Start))
	}
	want := []string{"stage init-local 1.005s 824ms", "task init-local/no cache found 1.005s 0", "task init-local/found local data from DataSourceEc2Local 1.014s 383ms",
		"stage modules-final 6s 35.600s", "task modules-final/config-package-update-upgrade-install 6s 34.070s", "task modules-final/config-scripts-user 40.070s 1.200s"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	a := analysed(t, c, "")
	if v := strings.Join(a.Verdict, " "); a.Since != "cloud-init" || !strings.Contains(v, "cloud-final.service 35.600s (34.070s of it modules-final/config-package-update-upgrade-install)") || !strings.Contains(v, "after the start of cloud-init") {
		t.Errorf("since %s: %s", a.Since, v)
	}
	blame := parse(t, []byte("-- Boot Record 01 --\n     34.07000s (modules-final/config-package-update-upgrade-install)\n     00.38300s (init-local/search-Ec2Local)\n"))
	if len(blame.Lengths) != 2 || blame.Lengths[0] != (boot.Length{Name: "modules-final/config-package-update-upgrade-install", Took: 34070000}) {
		t.Errorf("blame is %+v", blame.Lengths)
	}
	twice := parse(t, []byte(cloudShow+strings.ReplaceAll(cloudShow, "+34.07000s", "+30.00000s")))
	if s := twice.Spans[len(twice.Spans)-2]; s.End-s.Start != 30*sec || !strings.Contains(strings.Join(twice.Notes, " "), "2 boots") {
		t.Errorf("of two boots: %+v, notes %q", s, twice.Notes)
	}
	divided := parse(t, []byte(cloudShow+"-- Boot Record 02 --\nStarting stage: azure-ds/x\n|`->y @00.00000s +00.00100s\nFinished stage: (azure-ds/x) 00.01200 seconds\n"))
	if len(divided.Spans) != len(c.Spans) || !strings.Contains(strings.Join(divided.Notes, " "), "1 record after it") {
		t.Errorf("of a boot that was divided: %d spans, notes %q", len(divided.Spans), divided.Notes)
	}
	dump := parse(t, []byte("UserspaceTimestampMonotonic=1000000\nFinishTimestampMonotonic=90000000\n\nId=cloud-init-local.service\nInactiveExitTimestampMonotonic=7000000\nActiveEnterTimestampMonotonic=8000000\n"))
	if err := dump.Merge(c); err != nil {
		t.Fatal(err)
	}
	if s := dump.Spans[0]; s.Start != 7005000 {
		t.Errorf("merged with a dump, the first stage begins at %s, want 7.005s", s.Start)
	}
}

// logText is a boot as a log has it; STAMP5 is the stamp five seconds after the kernel.
const logText = `STAMP0 node-1 kernel: Linux version 6.1.0
STAMP2 node-1 systemd[1]: Starting Wait for Network to be Configured...
STAMP3 node-1 systemd-networkd[400]: eth0: Lost carrier
STAMP6 node-1 systemd-networkd[400]: eth0: Gained carrier
STAMP9 node-1 systemd[1]: Finished Wait for Network to be Configured.
STAMP9 node-1 systemd[1]: Reached target Network is Online.
STAMP10 node-1 systemd[1]: Starting containerd.service - containerd container runtime...
STAMP11 node-1 containerd[500]: time="x" level=info msg="containerd successfully booted in 0.05s"
STAMP11 node-1 systemd[1]: Started containerd.service - containerd container runtime.
STAMP12 node-1 systemd[1]: Started kubelet: The Kubernetes Node Agent.
STAMP13 node-1 kubelet[600]: I0114 08:00:00.0 600 kubelet_node_status.go:78] "Successfully registered node" node="node-1"
STAMP91 node-1 systemd[1]: Timed out waiting for device /dev/disk/by-uuid/ab-12.
STAMP91 node-1 systemd[1]: Dependency failed for /data.
STAMP95 node-1 systemd[1]: Startup finished in 1s (kernel) + 500ms (initrd) + 1min 33.500s (userspace) = 1min 35s.
STAMP99 node-1 systemd[4242]: Startup finished in 50ms.
`

// TestReadLog reads the text that journalctl prints and syslog writes, in all their forms.
func TestReadLog(t *testing.T) {
	at := func(n int) time.Time {
		return time.Date(2026, 1, 14, 8, 0, 0, 0, time.UTC).Add(time.Duration(n) * time.Second)
	}
	for name, stamp := range map[string]func(n int) string{
		"short":           func(n int) string { return at(n).Format("Jan 02 15:04:05") },
		"syslog":          func(n int) string { return at(n).Format("Jan _2 15:04:05") },
		"short-precise":   func(n int) string { return at(n).Format("Jan 02 15:04:05.000000") },
		"short-iso":       func(n int) string { return at(n).Format("2006-01-02T15:04:05-0700") },
		"short-iso-exact": func(n int) string { return at(n).Format("2006-01-02T15:04:05.000000-07:00") },
		"RFC 5424":        func(n int) string { return at(n).Format("2006-01-02T15:04:05.000000Z07:00") },
		"short-full":      func(n int) string { return at(n).Format("Mon 2006-01-02 15:04:05 UTC") },
		"another zone":    func(n int) string { return at(n).Format("Mon 2006-01-02 15:04:05 CET") },
		"a nameless zone": func(n int) string { return at(n).Format("Mon 2006-01-02 15:04:05 -03") },
		"French":          func(n int) string { return at(n).Format("janv. 02 15:04:05") },
		"Chinese":         func(n int) string { return at(n).Format("1月 02 15:04:05") },
		"Russian":         func(n int) string { return at(n).Format("янв 02 15:04:05.000000") },
		"short-delta":     func(n int) string { return fmt.Sprintf("[%5d.%06d <    1.000000 >]", n, 0) },
		"short-unix":      func(n int) string { return fmt.Sprintf("%d.000000", at(n).Unix()) },
		"with-unit":       func(n int) string { return at(n).Format("Mon 2006-01-02 15:04:05 MST") },
		"short-monotonic": func(n int) string { return fmt.Sprintf("[%5d.%06d]", n, 0) },
		"over New Year":   func(n int) string { return at(n - 13*86400 - 8*3600 - 5).Format("Jan 02 15:04:05") },
	} {
		t.Run(name, func(t *testing.T) {
			text := logText
			for _, n := range []int{99, 95, 91, 13, 12, 11, 10, 9, 6, 3, 2, 0} {
				text = strings.ReplaceAll(text, fmt.Sprintf("STAMP%d ", n), stamp(n)+" ")
			}
			if name == "with-unit" {
				text = strings.NewReplacer("systemd[1]", "init.scope[1]", "kubelet[", "kubelet.service[", "containerd[", "containerd.service[", "networkd[", "networkd.service[").Replace(text)
			}
			indented := "My node is slow, and this is what it says:\n\n    $ journalctl\n    " + strings.ReplaceAll(text, "\n", "\n    ")
			lines := strings.SplitAfter(text, "\n")
			slices.Reverse(lines)
			zeros, catalog := strings.Repeat("\x00", 512)+text, strings.ReplaceAll(text, "Online.\n", "Online.\n░░ Subject: A start job for unit network-online.target has finished\n-- The job identifier is 12.\n")
			for _, text := range []string{text, utf16Of(text), "\ufeff" + text, zeros, catalog, indented, strings.Join(lines, ""), "-- Logs begin at Mon 2026-01-12 08:00:00 UTC, end at Mon 2026-01-19 08:00:00 UTC. --\n" + text, packed(t, text)} {
				c := parse(t, []byte(text))
				if m := c.Manager; m.InitRD != sec || m.Userspace != 15e5 || m.Finish != 95*sec || m.FromUserspace {
					t.Errorf("manager is %+v", m)
				}
				for id, want := range map[string]boot.Stamps{
					"systemd-networkd-wait-online.service": {Activating: 2 * sec, Activated: 9 * sec}, "network-online.target": {Activating: 9 * sec, Activated: 9 * sec},
					"containerd.service": {Activating: 10 * sec, Activated: 11 * sec}, "kubelet.service": {Activating: 12 * sec, Activated: 12 * sec},
				} {
					if u := c.Unit(id); u == nil || u.Stamps != want {
						t.Errorf("%s is %+v, want %+v", id, u, want)
					}
				}
				for mark, want := range map[string]boot.Micros{boot.MarkLinkDown: 3 * sec, boot.MarkLinkUp: 6 * sec, boot.MarkRuntime: 11 * sec, boot.MarkRegistered: 13 * sec, boot.MarkTimeout: 91 * sec} {
					if m, ok := c.Mark(mark); !ok || m.At != want {
						t.Errorf("mark %s is %+v, want %s", mark, m, want)
					}
				}
				if m, _ := c.Mark(boot.MarkTimeout); m.Detail != `dev-disk-by\x2duuid-ab\x2d12.device` {
					t.Errorf("timed out: %q", m.Detail)
				}
				if c.Host.Name != "node-1" {
					t.Errorf("host is %q", c.Host.Name)
				}
				if v := strings.Join(analysed(t, c, "").Verdict, " "); !strings.Contains(v, "gave up at 1min 31s") {
					t.Errorf("verdict is %s", v)
				}
				if !strings.Contains(strings.Join(c.Notes, " "), "journalctl -b -o export") {
					t.Errorf("nothing says what has more: %q", c.Notes)
				}
			}
		})
	}
}

// TestReadLogBoots: of several boots the last counts; syslog's kernel lines say when it began.
func TestReadLogBoots(t *testing.T) {
	const older, newer = "Jan 14 07:00:00 node-1 kernel: Linux version 6.1.0\nJan 14 07:00:02 node-1 systemd[1]: Started Old.\n",
		"Jan 14 08:00:02 node-1 kernel: [    0.000000] Linux version 6.1.0\nJan 14 08:00:02 node-1 kernel: [    1.500000] e1000: eth0 NIC Link is Up\n" +
			"Jan 14 08:00:03 node-1 systemd[1]: Starting New...\nJan 14 08:00:05 node-1 systemd[1]: Started New.\n"
	id := strings.Repeat("0a", 16)
	for name, text := range map[string]string{
		"the kernel's version": older + newer, "a line of journalctl": older + "-- Reboot --\n" + newer, "a boot ID": "-- Boot " + strings.Repeat("0b", 16) + " --\n" + older + "-- Boot " + id + " --\n" + newer,
	} {
		t.Run(name, func(t *testing.T) {
			c := parse(t, []byte(text))
			if c.Unit("Old") != nil || c.Unit("New") == nil || !strings.Contains(strings.Join(c.Notes, " "), "2 boots") {
				t.Fatalf("units %+v, notes %q", c.Units, c.Notes)
			}
			if want := (boot.Stamps{Activating: 25e5, Activated: 45e5}); c.Unit("New").Stamps != want {
				t.Errorf("New is %+v, want %+v: the kernel began 1.5 s before 08:00:02", c.Unit("New").Stamps, want)
			}
			if m, ok := c.Mark(boot.MarkLinkUp); !ok || m.At != 15e5 {
				t.Errorf("the link came up at %+v", m)
			}
			if (c.Host.BootID == id) != (name == "a boot ID") {
				t.Errorf("boot ID is %q", c.Host.BootID)
			}
		})
	}
	c := parse(t, []byte("Jan 14 08:00:02 node-1 systemd[1]: Starting New...\nJan 14 08:00:05 node-1 systemd[1]: Started New.\n"))
	if a := analysed(t, c, ""); a.Since != "userspace" || c.Unit("New").Activated != 3*sec {
		t.Errorf("without the kernel: since %s, %+v", a.Since, c.Unit("New"))
	}
	c = parse(t, []byte("[    0.000000] Linux version 6.1.0\n[    1.250000] systemd[1]: Starting modprobe@fuse.service...\n[    1.300000] systemd[1]: Finished modprobe@fuse.service.\n[    2.500000] e1000: eth0 NIC Link is Up\n"))
	if u := c.Unit("modprobe@fuse.service"); u == nil || u.Took() != 50000 || c.Host.Name != "" {
		t.Errorf("dmesg: %+v, host %q", u, c.Host.Name)
	}
}

// TestNamed: what no reader takes is named, with what to give instead.
func TestNamed(t *testing.T) {
	tar := append([]byte("report/hostname"), make([]byte, 512)...)
	copy(tar[257:], "ustar\x00")
	tar = append(tar, logText+"\na.target @9s\n└─b.service @1s +7s\n"...) // a file of it that would be read by itself
	for name, tc := range map[string]struct{ data, what, how string }{
		"tar.gz":               {packed(t, string(tar)), "a tar archive", "give its folder"},
		"zip":                  {"PK\x03\x04rest", "a zip archive", "give its folder"},
		"xz":                   {"\xfd7zXZ\x00rest", "packed by xz", "xz -d"},
		"zstd":                 {"\x28\xb5\x2f\xfdrest", "packed by zstd", "zstd -d"},
		"gzip twice":           {packed(t, packed(t, "x")), "packed by gzip twice", "gzip -d"},
		"binary journal":       {"LPKSHHRH\x00\x00", "a binary journal", "journalctl --file"},
		"serial console":       {"[    1.000000] systemd[1]: Detected virtualization amazon.\n[\x1b[0;32m  OK  \x1b[0m] Started \x1b[0;1;39mDispatch\x1b[0m.\n", "the text of a serial console", "journalctl -b -o export"},
		"plain console":        {"Debian GNU/Linux\n[  OK  ] Reached target Swap.\n", "the text of a serial console", "journalctl -b -o export"},
		"waagent.log":          {"2026/01/14 08:00:05.123456 INFO Daemon Azure Linux Agent Version: 2.9\n", "waagent.log", "journalctl -b -o export"},
		"waagent.log today":    {"2026-01-14T08:00:05.123456Z INFO Daemon Daemon Azure Linux Agent Version: 2.9\n", "waagent.log", "journalctl -b -o export"},
		"output":               {"Cloud-init v. 23.4 running 'init-local' at Thu, 21 Jul 2022 08:52:28 +0000. Up 7.20 seconds.\nci-info: x\n", "cloud-init-output.log", "/var/log/cloud-init.log"},
		"cloud-init boot":      {"-- Most Recent Boot Record --\n    Kernel Started at: 2026-01-14 08:00:00\n", "cloud-init analyze boot", "cloud-init analyze show"},
		"not finished":         {"Bootup is not yet finished (org.freedesktop.systemd1.Manager.FinishTimestampMonotonic=0).\n", "has not finished", "systemctl list-jobs"},
		"systemd-analyze dump": {"Manager: systemd 252\n-> Unit kubelet.service:\n\tDescription: x\n", "systemd-analyze dump", "systemctl show"},
		"verbose":              {"Wed 2026-01-14 08:00:00.000000 UTC [s=1;i=2;b=3]\n    _BOOT_ID=0123456789abcdef0123456789abcdef\n    MESSAGE=x\n", "journalctl -o verbose", "journalctl -b -o export"},
		"cat":                  {"Starting Wait for Network to be Configured...\nStarted OpenSSH server.\n", "messages of systemd without times", "journalctl -b -o export"},
		"dot":                  {"digraph systemd {\n\t\"a\"->\"b\" [color=\"green\"];\n}\n", "systemd-analyze dot", "systemctl show"},
		"systemctl status":     {"● kubelet.service - kubelet: The Kubernetes Node Agent\n   Loaded: loaded\n", "the text of systemctl", "systemctl show"},
		"an empty journal":     {"-- No entries --\n", "a journal without entries", "journalctl -b -o export"},
		"kubelet":              {"I0114 08:00:05.123456     600 server.go:1] x\n", "a log of kubelet", "journalctl -b -o export"},
		"the kernel alone":     {"[    0.000000] Linux version 6.1.0\n[    1.000000] e1000: x\n", "no message of systemd", "journalctl -b -o export"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Bytes([]byte(tc.data))
			if err == nil || !errors.Is(err, ErrUnknownFormat) || !strings.Contains(err.Error(), tc.what) || !strings.Contains(err.Error(), tc.how) {
				t.Errorf("error is %v, want %q and %q in it", err, tc.what, tc.how)
			}
		})
	}
	torn := packed(t, strings.Repeat(logText, 10))
	if _, err := Bytes([]byte(torn[:len(torn)/2])); err == nil || !strings.Contains(err.Error(), "was the file cut off?") {
		t.Errorf("a gzip that was cut: %v", err)
	}
}

// TestReadCollector reads the folder of eks-log-collector, of which nothing is followed out.
func TestReadCollector(t *testing.T) {
	messages := strings.NewReplacer("STAMP", "Jan 14 08:00:0").Replace("STAMP2 ip-1 kernel: [    0.000000] Linux version 5.10\nSTAMP2 ip-1 systemd: Starting Kubelet...\nSTAMP4 ip-1 systemd: Started Kubelet.\n")
	c, err := Dir(fstest.MapFS{
		"eks_i-1/var_log/messages":       {Data: []byte(messages)},
		"eks_i-1/var_log/cloud-init.log": {Data: []byte(cloudOfDump)},
		"eks_i-1/kernel/uname.txt":       {Data: []byte("Linux ip-1 5.10.1 #1 SMP x86_64\n")},
		"eks_i-1/kubelet/kubelet.log":    {Data: []byte("-- No entries --\n")},
	})
	if err != nil {
		t.Fatal(err)
	}
	if u := c.Unit("kubelet.service"); u == nil || u.Took() != 2*sec || len(c.Spans) == 0 || c.Sources[0] != "eks-log-collector" || c.Host.Kernel != "5.10.1" {
		t.Errorf("kubelet.service is %+v, %d spans, sources %v, host %+v", u, len(c.Spans), c.Sources, c.Host)
	}
	if _, err := Dir(fstest.MapFS{"var_log/cloud-init-output.log": {Data: []byte("x")}}); err == nil || !strings.Contains(err.Error(), "neither messages nor syslog") {
		t.Errorf("an empty one: %v", err)
	}
}

// rsyslogText is how rsyslog of Debian 12 and of Ubuntu 24.04 writes a boot to syslog.
const rsyslogText = `2024-05-01T10:10:31.004412+00:00 ip-10-0-1-7 systemd[1]: Reached target reboot.target - System Reboot.
2024-05-01T10:10:31.006810+00:00 ip-10-0-1-7 systemd[1]: Shutting down.
2024-05-01T10:11:03.482113+00:00 ip-10-0-1-7 kernel: Linux version 6.8.0-1008-aws (buildd@lcy02-amd64-086) (x86_64-linux-gnu-gcc-13 (Ubuntu 13.2.0-23ubuntu4) 13.2.0) #8-Ubuntu SMP
2024-05-01T10:11:03.482190+00:00 ip-10-0-1-7 kernel: Command line: BOOT_IMAGE=/vmlinuz-6.8.0-1008-aws root=PARTUUID=6a1b7a5a-8a7e-4bd8-a3e5-6b4f0e1c9d2f ro console=tty1 console=ttyS0
2024-05-01T10:11:03.483377+00:00 ip-10-0-1-7 systemd[1]: Finished systemd-modules-load.service - Load Kernel Modules.
2024-05-01T10:11:04.112207+00:00 ip-10-0-1-7 (udev-worker)[271]: eth0: Process '/usr/lib/udev/x' failed with exit code 1.
2024-05-01T10:11:05.120004+00:00 ip-10-0-1-7 systemd[1]: Starting systemd-networkd-wait-online.service - Wait for Network to be Configured...
2024-05-01T10:11:06.801233+00:00 ip-10-0-1-7 systemd-networkd[402]: ens5: Gained carrier
2024-05-01T10:11:11.620504+00:00 ip-10-0-1-7 systemd[1]: Finished systemd-networkd-wait-online.service - Wait for Network to be Configured.
2024-05-01T10:11:11.620771+00:00 ip-10-0-1-7 systemd[1]: Reached target network-online.target - Network is Online.
2024-05-01T10:11:12.001002+00:00 ip-10-0-1-7 cloud-init[611]: Cloud-init v. 24.1.3-0ubuntu3 running 'init' at Wed, 01 May 2024 10:11:11 +0000. Up 9.12 seconds.
2024-05-01T10:11:14.310000+00:00 ip-10-0-1-7 systemd[1]: Started kubelet.service - kubelet: The Kubernetes Node Agent.
2024-05-01T10:11:15.000119+00:00 ip-10-0-1-7 kubelet[1203]: I0501 10:11:15.000003    1203 kubelet_node_status.go:78] "Successfully registered node" node="ip-10-0-1-7"
2024-05-01T10:11:24.928113+00:00 ip-10-0-1-7 systemd[1]: Startup finished in 1.466s (kernel) + 20.980s (userspace) = 22.446s.
`

// TestReadRsyslog reads syslog with stamps of RFC 3339, and the same lines as RFC 5424 and RFC 3164 send them.
func TestReadRsyslog(t *testing.T) {
	line := regexp.MustCompile(`(?m)^(\S+) (\S+) ([^\s\[]+?)(?:\[(\d+)\])?: (.*)$`)
	sent := func(data, mark string) string {
		return line.ReplaceAllStringFunc(rsyslogText, func(text string) string {
			m := line.FindStringSubmatch(text)
			if m[4] == "" {
				m[4] = "-"
			}
			return "<30>1 " + strings.Join(m[1:5], " ") + " - " + data + " " + mark + m[5]
		})
	}
	want := parse(t, []byte(rsyslogText))
	if m := want.Manager; m.Userspace != 1466000 || m.Finish != 22446000 || m.FromUserspace || want.Host.Name != "ip-10-0-1-7" {
		t.Errorf("manager %+v, host %q", m, want.Host.Name)
	}
	for id, stamps := range map[string]boot.Stamps{
		"systemd-networkd-wait-online.service": {Activating: 2637891, Activated: 9138391}, "network-online.target": {Activating: 9138658, Activated: 9138658}, "kubelet.service": {Activating: 11827887, Activated: 11827887},
	} {
		if u := want.Unit(id); u == nil || u.Stamps != stamps || u.Coarse {
			t.Errorf("%s is %+v, want %+v", id, u, stamps)
		}
	}
	if m, ok := want.Mark(boot.MarkRegistered); !ok || m.At != 12518006 {
		t.Errorf("registered at %+v", m)
	}
	if notes := strings.Join(want.Notes, " "); !strings.Contains(notes, "2 boots") || !strings.Contains(notes, "exact to 1 µs") {
		t.Errorf("notes are %q", notes)
	}
	for name, text := range map[string]string{
		"RFC 5424":                     sent("-", ""),
		"with structured data":         sent(`[origin software="rsyslogd" x="a\"] b"][z@1 y="\\"]`, "\ufeff"),
		"forwarded":                    regexp.MustCompile(`(?m)^2024`).ReplaceAllString(rsyslogText, "<30>2024"),
		"lines that have no time":      "<13>1 - - root - - - a mark\n" + sent("-", "") + "<13>1 - ip-10-0-1-7 su - ID47 -\n",
		"the name is not known at all": strings.ReplaceAll(sent("-", ""), " ip-10-0-1-7 ", " - "),
	} {
		t.Run(name, func(t *testing.T) {
			got := parse(t, []byte(text))
			if name == "the name is not known at all" && got.Host.Name == "" {
				got.Host.Name = "ip-10-0-1-7"
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
	old := parse(t, []byte(regexp.MustCompile(`(?m)^2024-05-01T(\S+)\.\d+\S+`).ReplaceAllString(rsyslogText, "<30>May  1 $1")))
	if u := old.Unit("systemd-networkd-wait-online.service"); u == nil || u.Took() != 6*sec || !u.Coarse {
		t.Errorf("RFC 3164 with priorities: %+v", u)
	}
}
