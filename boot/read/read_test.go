package read

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"kamino.dev/kamino/boot"
)

const sec = boot.Micros(1e6)

func fixture(t testing.TB, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// realDump is what `systemctl show; echo; systemctl show --all '*'` of systemd 252 printed about a
// random boot.
func realDump(t testing.TB) []byte {
	return slices.Concat(fixture(t, "real/manager.txt"), []byte("\n"), fixture(t, "real/units.txt"))
}

func parse(t testing.TB, data []byte) *boot.Capture {
	t.Helper()
	c, err := Bytes(data)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestReadShow prints from a dump what the real systemd-analyze printed about the same boot.
func TestReadShow(t *testing.T) {
	for variant, data := range map[string][]byte{
		"as printed": realDump(t), "with a byte order mark": append([]byte("\xef\xbb\xbf"), realDump(t)...),
		"with Windows line ends": bytes.ReplaceAll(realDump(t), []byte("\n"), []byte("\r\n")),
		"units first":            slices.Concat(fixture(t, "real/units.txt"), []byte("\n"), fixture(t, "real/manager.txt")),
	} {
		t.Run(variant, func(t *testing.T) {
			c := parse(t, data)
			for name, write := range map[string]func(*bytes.Buffer) error{
				"real/time.txt":  func(b *bytes.Buffer) error { return boot.CompatTime(b, c) },
				"real/blame.txt": func(b *bytes.Buffer) error { return boot.CompatBlame(b, c) },
				"real/chain.txt": func(b *bytes.Buffer) error { _, err := boot.CompatChain(b, c, 0); return err },
			} {
				var out bytes.Buffer
				if err := write(&out); err != nil {
					t.Fatalf("%s: %s: %v", variant, name, err)
				}
				if diff := cmp.Diff(string(fixture(t, name)), out.String()); diff != "" {
					t.Errorf("%s: %s: %s", variant, name, diff)
				}
			}
		})
	}
}

// TestRealContainer reads what the agent recorded of a real systemd 252 that had booted in a
// container, its journal included, and prints what the systemd-analyze of that container printed.
func TestRealContainer(t *testing.T) {
	c := parse(t, fixture(t, "real/container.json"))
	for name, write := range map[string]func(*bytes.Buffer) error{
		"time":  func(b *bytes.Buffer) error { return boot.CompatTime(b, c) },
		"blame": func(b *bytes.Buffer) error { return boot.CompatBlame(b, c) },
		"chain": func(b *bytes.Buffer) error { _, err := boot.CompatChain(b, c, 0); return err },
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			if err := write(&out); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(fixture(t, "real/container."+name+".txt")), out.String()); diff != "" {
				t.Errorf("%s: %s", name, diff)
			}
		})
	}
	a, err := boot.Analyze(c, boot.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if a.Since != "container" || a.GoalAt.At > 60*sec {
		t.Errorf("%s at %s after the %s", a.Goal, a.GoalAt.At, a.Since)
	}
}

func TestReadPlotSVG(t *testing.T) {
	want, got := parse(t, realDump(t)), parse(t, fixture(t, "real/plot.svg"))
	if got.Sources[0] != "plot-svg" {
		t.Fatalf("sources are %v", got.Sources)
	}
	near := func(a, b boot.Micros) bool { return max(a-b, b-a) <= 10 }
	if m, g := want.Manager, got.Manager; !near(m.Userspace, g.Userspace) || !near(m.Finish, g.Finish) || !near(m.Firmware, g.Firmware) {
		t.Errorf("manager is %+v, want %+v", g, m)
	}
	seen := 0
	for _, u := range want.Units {
		if g := got.Unit(u.ID); g != nil && u.Activated >= u.Activating && u.Activated <= want.Manager.Finish {
			seen++
			if !near(u.Activating, g.Activating) || !near(u.Activated, g.Activated) {
				t.Errorf("%s: %+v, want %+v", u.ID, g.Stamps, u.Stamps)
			}
		}
	}
	if seen < 15 {
		t.Errorf("only %d units compared", seen)
	}
	if len(got.Notes) == 0 {
		t.Error("nothing says that a picture has no dependencies")
	}
}

// TestReadPlotLabel: systemd draws what was not up when startup ended as if it had been starting until
// then. The label has the true length.
func TestReadPlotLabel(t *testing.T) {
	const svg = `<svg xmlns="http://www.w3.org/2000/svg"><!-- systemd-analyze --><g>
<rect class="active" x="100.000" y="0.000" width="3000.000" height="19"/><text class="left" x="5" y="14.000">systemd</text>
<rect class="activating" x="200.000" y="20.000" width="2900.000" height="19"/><rect class="active" x="3100.000" y="20.000" width="0" height="19"/><text class="left" x="5" y="34.000">once.service (1.250s)</text>
<rect class="activating" x="200.000" y="40.000" width="2900.000" height="19"/><rect class="active" x="3100.000" y="40.000" width="0" height="19"/><text class="left" x="5" y="54.000">late.service (1min 5.500s)</text>
<rect class="activating" x="200.000" y="60.000" width="116.472" height="19"/><rect class="active" x="316.472" y="60.000" width="2783" height="19"/><text class="left" x="5" y="74.000">exact.service (1.164s)</text>
</g></svg>`
	c := parse(t, []byte(svg))
	for id, want := range map[string]boot.Stamps{
		"once.service":  {Activating: 2 * sec, Deactivated: 3250000},
		"late.service":  {Activating: 2 * sec, Activated: 67500000},
		"exact.service": {Activating: 2 * sec, Activated: 3164720},
	} {
		if u := c.Unit(id); u == nil || u.Activating != want.Activating || u.Activated != want.Activated || want.Deactivated > 0 && u.Deactivated != want.Deactivated {
			t.Errorf("%s is %+v, want %+v", id, u, want)
		}
	}
}

func TestReadPlotJSON(t *testing.T) {
	c := parse(t, []byte(`[{"name":"-.slice","activated":1359000,"activating":1359000,"time":0,"deactivated":30000000,"deactivating":30000000},
		{"name":"a.service","activated":9000000,"activating":5000000,"time":4000000,"deactivated":30000000,"deactivating":30000000},
		{"name":"once.service","activated":8000000,"activating":6000000,"time":2000000,"deactivated":9500000,"deactivating":9000000},
		{"name":"idle.service","activated":null,"activating":null,"time":0,"deactivated":null,"deactivating":null}]`))
	if c.Manager.Userspace != 1359000 || c.Manager.Finish != 30*sec || len(c.Units) != 3 {
		t.Errorf("read %+v, %d units", c.Manager, len(c.Units))
	}
	if u := c.Unit("a.service"); u.Took() != 4*sec || u.Deactivated != 0 {
		t.Errorf("a.service is %+v", u.Stamps)
	}
	if u := c.Unit("once.service"); u.Deactivated != 95e5 {
		t.Errorf("once.service is %+v", u.Stamps)
	}
}

type journalLine map[string]string

func line(at boot.Micros, fields ...string) journalLine {
	l := journalLine{"__CURSOR": "c", "__REALTIME_TIMESTAMP": fmt.Sprint(int64(1700000000e6 + at)), "__MONOTONIC_TIMESTAMP": fmt.Sprint(int64(at)), "_BOOT_ID": "b00t", "_HOSTNAME": "node-1", "_PID": "1"}
	for i := 0; i < len(fields); i += 2 {
		l[fields[i]] = fields[i+1]
	}
	return l
}

// nodeJournal is a boot in which db.service is restarted, the link goes and comes, and kubelet gets
// ready.
func nodeJournal() []journalLine {
	return []journalLine{
		line(2*sec, "_BOOT_ID", "older", "MESSAGE_ID", msgUnitStarting, "UNIT", "gone.service"),
		line(3*sec, "MESSAGE_ID", msgUnitStarting, "UNIT", "db.service"),
		line(5*sec, "MESSAGE_ID", msgUnitStarted, "UNIT", "db.service"),
		line(6*sec, "MESSAGE", "eth0: Lost carrier", "SYSLOG_IDENTIFIER", "systemd-networkd", "_PID", "400"),
		line(8*sec, "MESSAGE", "eth0: Gained carrier", "SYSLOG_IDENTIFIER", "systemd-networkd", "_PID", "400"),
		line(9*sec, "MESSAGE", "time=\"x\" level=info msg=\"containerd successfully booted in 0.05s\"", "_SYSTEMD_UNIT", "containerd.service", "_PID", "500"),
		line(10*sec, "MESSAGE_ID", msgUnitStarting, "UNIT", "kubelet.service"),
		line(11*sec, "MESSAGE_ID", msgUnitStarted, "UNIT", "kubelet.service"),
		line(12*sec, "MESSAGE", "I0114 kubelet_node_status.go:78] \"Successfully registered node\" node=\"node-1\"", "SYSLOG_IDENTIFIER", "kubelet", "_PID", "600"),
		line(13*sec, "MESSAGE", "I0114 kubelet.go:1] \"Fast updating node status as it just became ready\"", "SYSLOG_IDENTIFIER", "kubelet", "_PID", "600"),
		line(13_500_000, "MESSAGE", `time="x" level=info msg="StartContainer for \"4b1d\""`, "_SYSTEMD_UNIT", "containerd.service", "_PID", "500"),
		line(13_600_000, "MESSAGE", `time="x" level=info msg="StartContainer for \"4b1d\" returns successfully"`, "_SYSTEMD_UNIT", "containerd.service", "_PID", "500"),
		line(13_700_000, "MESSAGE", `time="x" level=info msg="StartContainer for \"77aa\" returns successfully"`, "_SYSTEMD_UNIT", "containerd.service", "_PID", "500"),
		line(14*sec, "MESSAGE", "I0114 pod_startup_latency_tracker.go:1] \"Observed pod startup duration\"", "SYSLOG_IDENTIFIER", "kubelet", "_PID", "600"),
		line(15*sec, "MESSAGE_ID", msgStartupFinished, "KERNEL_USEC", "1000000", "INITRD_USEC", "500000", "USERSPACE_USEC", "13500000"),
		line(16*sec, "MESSAGE_ID", msgUnitStarting, "UNIT", "db.service"),
		line(17*sec, "MESSAGE_ID", msgUnitFailed, "UNIT", "db.service"),
	}
}

func exportFormat(lines []journalLine) []byte {
	var b bytes.Buffer
	for _, l := range lines {
		fmt.Fprintf(&b, "__CURSOR=%s\n", l["__CURSOR"])
		for k, v := range l {
			if k == "__CURSOR" {
				continue
			}
			if k == "MESSAGE" { // as the export format does with values that are not plain text
				fmt.Fprintf(&b, "%s\n", k)
				b.Write(binary.LittleEndian.AppendUint64(nil, uint64(len(v))))
				b.WriteString(v + "\n")
				continue
			}
			fmt.Fprintf(&b, "%s=%s\n", k, v)
		}
		b.WriteString("\n")
	}
	return b.Bytes()
}

func jsonFormat(lines []journalLine) []byte {
	var b bytes.Buffer
	for _, l := range lines {
		var parts []string
		for k, v := range l {
			if k == "MESSAGE" { // journalctl writes what is not UTF-8 as a list of bytes
				v = strings.ReplaceAll(fmt.Sprint([]byte(v)), " ", ",")
				parts = append(parts, fmt.Sprintf("%q:%s", k, v))
				continue
			}
			parts = append(parts, fmt.Sprintf("%q:%q", k, v))
		}
		fmt.Fprintf(&b, "{%s}\n", strings.Join(parts, ","))
	}
	return b.Bytes()
}

func TestReadJournal(t *testing.T) {
	for name, data := range map[string][]byte{"export": exportFormat(nodeJournal()), "json": jsonFormat(nodeJournal())} {
		c := parse(t, data)
		if c.Host.BootID != "b00t" || c.Host.Name != "node-1" || c.Unit("gone.service") != nil {
			t.Errorf("%s: another boot got in: %+v", name, c.Host)
		}
		if m := c.Manager; m.InitRD != sec || m.Userspace != 15e5 || m.Finish != 15*sec {
			t.Errorf("%s: manager is %+v", name, m)
		}
		db := c.Unit("db.service")
		if db == nil || db.First == nil || *db.First != (boot.Stamps{Activating: 3 * sec, Activated: 5 * sec}) || db.Restarts != 1 || db.ActiveState != "failed" {
			t.Errorf("%s: db.service is %+v, want its first activation kept", name, db)
		}
		for mark, at := range map[string]boot.Micros{boot.MarkLinkDown: 6 * sec, boot.MarkLinkUp: 8 * sec, boot.MarkRuntime: 9 * sec, boot.MarkRegistered: 12 * sec, boot.MarkReady: 13 * sec, boot.MarkContainer: 13_600_000, boot.MarkFirstPod: 14 * sec} {
			t.Run(mark, func(t *testing.T) {
				if m, ok := c.Mark(mark); !ok || m.At != at {
					t.Errorf("%s: mark %s is %+v, want %s", name, mark, m, at)
				}
			})
		}
	}
}

// TestReadJournalRestarts: a service of type simple is never said to be starting; each of its
// starts is another one.
func TestReadJournalRestarts(t *testing.T) {
	c := parse(t, exportFormat([]journalLine{
		line(3*sec, "MESSAGE_ID", msgUnitStarted, "UNIT", "getty.service"),
		line(7*sec, "MESSAGE_ID", msgUnitSuccess, "UNIT", "getty.service"),
		line(8*sec, "MESSAGE_ID", msgUnitStopped, "UNIT", "getty.service"),
		line(9*sec, "MESSAGE_ID", msgUnitStarted, "UNIT", "getty.service"),
		line(12*sec, "MESSAGE_ID", msgUnitStopped, "UNIT", "getty.service"),
		line(13*sec, "MESSAGE_ID", msgUnitStarted, "UNIT", "getty.service"),
	}))
	u := c.Unit("getty.service")
	want := boot.Stamps{Activating: 3 * sec, Activated: 3 * sec, Deactivated: 7 * sec}
	if u.First == nil || *u.First != want || u.Restarts != 2 || u.Stamps != (boot.Stamps{Activating: 13 * sec, Activated: 13 * sec}) {
		t.Errorf("getty.service is %+v, first %+v", u, u.First)
	}
}

// TestReadJournalTimeout: a job that PID 1 gave up is a moment of the boot, as each version of systemd
// writes it; what failed for want of it is not.
func TestReadJournalTimeout(t *testing.T) {
	for name, field := range map[string][]string{
		"today": {"JOB_RESULT", "timeout"}, "systemd 219": {"RESULT", "timeout"}, "the message alone": {"MESSAGE", "Timed out waiting for device dev-x.device."},
	} {
		t.Run(name, func(t *testing.T) {
			lines := []journalLine{
				line(2*sec, "MESSAGE_ID", msgUnitStarting, "UNIT", "dev-x.device"),
				line(92*sec, append([]string{"MESSAGE_ID", msgUnitFailed, "UNIT", "dev-x.device"}, field...)...),
				line(92*sec, "MESSAGE_ID", msgUnitFailed, "UNIT", "data.mount", "JOB_RESULT", "dependency"),
			}
			for _, data := range [][]byte{exportFormat(lines), jsonFormat(lines)} {
				c := parse(t, data)
				want := []boot.Mark{{Name: boot.MarkTimeout, At: 92 * sec, Detail: "dev-x.device", Source: "journal"}}
				if diff := cmp.Diff(want, c.Marks); diff != "" {
					t.Error(diff)
				}
				if u := c.Unit("dev-x.device"); u == nil || u.Result != "timeout" {
					t.Errorf("the device is %+v", u)
				}
			}
		})
	}
}

// TestTimeoutOfTwoRecords: a dump, in which systemd has no stamps of a device that never came, and the
// journal of the same boot name together what swap.target waited for, in either order.
func TestTimeoutOfTwoRecords(t *testing.T) {
	const dump = `UserspaceTimestampMonotonic=1500000
FinishTimestampMonotonic=99000000
SecurityStartTimestampMonotonic=1510000
UnitsLoadFinishTimestampMonotonic=1700000

Id=dev-x.device
ActiveState=inactive

Id=dev-x.swap
After=dev-x.device
ActiveState=inactive

Id=swap.target
After=dev-x.swap
InactiveExitTimestampMonotonic=92000000
ActiveEnterTimestampMonotonic=92000000

Id=kubelet.service
After=swap.target
InactiveExitTimestampMonotonic=95000000
ActiveEnterTimestampMonotonic=95200000
`
	journal := func() *boot.Capture {
		return parse(t, jsonFormat([]journalLine{
			line(18e5, "MESSAGE_ID", msgUnitStarting, "UNIT", "dev-x.device", "MESSAGE", "Expecting device dev-x.device..."),
			line(919e5, "MESSAGE_ID", msgUnitFailed, "UNIT", "dev-x.device", "JOB_RESULT", "timeout"),
			line(919e5, "MESSAGE_ID", msgUnitFailed, "UNIT", "dev-x.swap", "JOB_RESULT", "dependency"),
		}))
	}
	one, two := parse(t, []byte(dump)), journal()
	for _, err := range []error{one.Merge(journal()), two.Merge(parse(t, []byte(dump)))} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []*boot.Capture{one, two} {
		a, err := boot.Analyze(c, boot.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if top := a.Costs[0]; top.What != "dev-x.device (timed out)" || top.Net != 901e5 {
			t.Errorf("the most expensive is %+v", top)
		}
		if v := strings.Join(a.Verdict, " "); !strings.Contains(v, "systemd waited 1min 30.100s for /dev/x and gave up at 1min 31.900s after the kernel") {
			t.Errorf("verdict is %s", v)
		}
	}
}

func TestReadJournalClock(t *testing.T) {
	lines := nodeJournal()[1:]
	for _, l := range lines[5:] {
		real, err := strconv.ParseInt(l["__REALTIME_TIMESTAMP"], 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		l["__REALTIME_TIMESTAMP"] = fmt.Sprint(real + 3_600_000_000)
	}
	c := parse(t, exportFormat(lines))
	if m, ok := c.Mark(boot.MarkClockJump); !ok || m.At != 10*sec || !strings.Contains(m.Detail, "forward by about 1h") {
		t.Errorf("the jump is %+v, want one hour forward at 10 s", m)
	}
}

const cloudText = `2026-01-13 08:00:00,000 - util.py[DEBUG]: Cloud-init v. 23.4.4 running 'init-local' at Tue, 13 Jan 2026 08:00:00 +0000. Up 2.00 seconds.
2026-01-14 08:00:05,000 - util.py[DEBUG]: Cloud-init v. 23.4.4 running 'init-local' at Wed, 14 Jan 2026 08:00:05 +0000. Up 5.00 seconds.
2026-01-14 08:00:05,100 - handlers.py[DEBUG]: start: init-local/search-Azure: searching for local data from DataSourceAzure
2026-01-14 08:00:05,200 - azure.py[DEBUG]: PPS type: Running
2026-01-14 08:00:06,000 - handlers.py[DEBUG]: start: azure-ds/wait-for-media-disconnect-connect: wait
2026-01-14 08:10:06,000 - handlers.py[DEBUG]: finish: azure-ds/wait-for-media-disconnect-connect: SUCCESS: wait
2026-01-14 08:10:07,000 - handlers.py[DEBUG]: finish: init-local/search-Azure: SUCCESS: found
2026-01-14 08:10:07,500 - handlers.py[DEBUG]: finish: init-local: SUCCESS: searching for local datasources
2026-01-14 09:10:12,000 - util.py[DEBUG]: Cloud-init v. 23.4.4 running 'init' at Wed, 14 Jan 2026 09:10:12 +0000. Up 612.00 seconds.
2026-01-14 09:10:13,000 - handlers.py[DEBUG]: finish: init-network: SUCCESS: searching for network datasources
`

func TestReadCloudInitLog(t *testing.T) {
	c := parse(t, []byte(cloudText))
	if c.CloudInit.Version != "23.4.4" || c.CloudInit.PPSType != "Running" {
		t.Errorf("cloud-init is %+v", c.CloudInit)
	}
	want := map[string][2]boot.Micros{"init-local": {5 * sec, 6075e5}, "azure-ds/wait-for-media-disconnect-connect": {6 * sec, 606 * sec}, "init-network": {612 * sec, 613 * sec}}
	for _, s := range c.Spans {
		if w, ok := want[s.Name]; ok && (s.Start != w[0] || s.End != w[1]) {
			t.Errorf("%s is %s to %s, want %v", s.Name, s.Start, s.End, w)
		}
		delete(want, s.Name)
	}
	if len(want) > 0 {
		t.Errorf("not found: %v", want)
	}
	if m, ok := c.Mark(boot.MarkClockJump); !ok || m.At != 612*sec {
		t.Errorf("the clock was stepped by an hour between two stages, and the mark is %+v", m)
	}
}

// TestReadCloudInitSyslog: cloud-init.log of Amazon Linux 2 has syslog's stamps, without a year and in
// local time; each stage's banner has the rest. It goes on over New Year.
func TestReadCloudInitSyslog(t *testing.T) {
	const text = `Dec 31 %02d:59:50 HOSTcloud-init[2477]: util.py[DEBUG]: Cloud-init v. 19.3-45.amzn2 running 'init-local' at Sat, 31 Dec 2022 23:59:50 +0000. Up 7.20 seconds.
Dec 31 %02[1]d:59:51 HOSTcloud-init[2477]: handlers.py[DEBUG]: finish: init-local: SUCCESS: searching for local datasources
Dec 31 %02[1]d:59:55 HOSTcloud-init[2480]: util.py[DEBUG]: Cloud-init v. 19.3-45.amzn2 running 'modules:final' at Sat, 31 Dec 2022 23:59:55 +0000. Up 12.10 seconds.
Dec 31 %02[1]d:59:55 HOSTcloud-init[2480]: handlers.py[DEBUG]: start: modules-final/config-scripts-user: running config-scripts-user
%[2]s:30 HOSTcloud-init[2480]: handlers.py[DEBUG]: finish: modules-final/config-scripts-user: SUCCESS: ran
%[2]s:31 HOSTcloud-init[2480]: handlers.py[DEBUG]: finish: modules-final: SUCCESS: running modules for final
`
	for name, tc := range map[string]struct {
		hour int
		next string
		host string
	}{
		"UTC": {23, "Jan  1 00:00", ""}, "with a host": {23, "Jan  1 00:00", "ip-10-0-0-1 "}, "New York": {18, "Dec 31 19:00", ""}, "by another program": {23, "Jan  1 00:00", "[CLOUDINIT] "},
	} {
		t.Run(name, func(t *testing.T) {
			log := strings.ReplaceAll(fmt.Sprintf(text, tc.hour, tc.next), "HOST", tc.host)
			if strings.HasPrefix(tc.host, "[") {
				log = strings.NewReplacer("cloud-init[2477]: ", "", "cloud-init[2480]: ", "").Replace(log)
			}
			c := parse(t, []byte(log))
			want := map[string][2]boot.Micros{"init-local": {72e5, 82e5}, "modules-final": {121e5, 481e5}, "modules-final/config-scripts-user": {121e5, 471e5}}
			for _, s := range c.Spans {
				if w := want[s.Name]; s.Start != w[0] || s.End != w[1] {
					t.Errorf("%s is %s to %s, want %s to %s", s.Name, s.Start, s.End, w[0], w[1])
				}
			}
			if len(c.Spans) != len(want) {
				t.Errorf("spans are %+v", c.Spans)
			}
			if !strings.Contains(strings.Join(c.Notes, " "), "whole seconds") {
				t.Errorf("notes are %q", c.Notes)
			}
			if want := boot.Micros(1672531190e6 - 72e5); c.Manager.KernelRealtime != want {
				t.Errorf("the kernel started at %d, want %d", c.Manager.KernelRealtime, want)
			}
		})
	}
	if _, err := Bytes([]byte("Jul 21 08:52:28 cloud-init[1]: handlers.py[DEBUG]: start: init-local/x: y\n")); err == nil || !strings.Contains(err.Error(), "no stage and no event") {
		t.Errorf("a log without a banner has no year: %v", err)
	}
}

// TestReadCloudInitOld: cloud-init 0.7.5 does not say when a stage ends; its last line does.
func TestReadCloudInitOld(t *testing.T) {
	c := parse(t, []byte(`2022-07-21 08:52:28,000 - util.py[DEBUG]: Cloud-init v. 0.7.5 running 'init-local' at Thu, 21 Jul 2022 08:52:28 +0000. Up 7.00 seconds.
2022-07-21 08:52:29,500 - util.py[DEBUG]: Read 12 bytes from /proc/uptime
Jul 21 08:00:00 this is what a script printed
2022-07-21 08:52:31,000 - util.py[DEBUG]: Cloud-init v. 0.7.5 running 'modules:final' at Thu, 21 Jul 2022 08:52:31 +0000. Up 10.00 seconds.
2022-07-21 08:52:51,000 - util.py[DEBUG]: cloud-init mode 'modules' took 20.000 seconds
`))
	want := map[string][2]boot.Micros{"init-local": {7 * sec, 85e5}, "modules-final": {10 * sec, 30 * sec}}
	for _, s := range c.Spans {
		if w := want[s.Name]; s.Start != w[0] || s.End != w[1] {
			t.Errorf("%s is %s to %s, want %v", s.Name, s.Start, s.End, w)
		}
	}
	if len(c.Spans) != 2 || len(c.Notes) > 0 {
		t.Errorf("spans are %+v, notes %q", c.Spans, c.Notes)
	}
}

// TestReadCloudInitLocalTime: old versions wrote local time; the banner is in UTC.
func TestReadCloudInitLocalTime(t *testing.T) {
	c := parse(t, []byte("2022-07-21 10:52:28,000 - util.py[DEBUG]: Cloud-init v. 0.7.5 running 'init-local' at Thu, 21 Jul 2022 08:52:28 +0000. Up 7.20 seconds.\n"+
		"2022-07-21 10:52:29,500 - handlers.py[DEBUG]: finish: init-local: SUCCESS: x\n"))
	if want := boot.Micros(1658393548e6 - 72e5); c.Manager.KernelRealtime != want || c.Spans[0].End != 87e5 {
		t.Errorf("the kernel started at %d, want %d; spans %+v", c.Manager.KernelRealtime, want, c.Spans)
	}
}

func TestReadCloudInitDump(t *testing.T) {
	c := parse(t, []byte(`[{"name":"init-local","description":"starting","event_type":"start","origin":"cloudinit","timestamp":1700000005.5},
		{"name":"init-local","description":"done","event_type":"finish","origin":"cloudinit","result":"SUCCESS","timestamp":1700000007.5}]`))
	if s := c.Spans; len(s) != 1 || s[0].End-s[0].Start != 2*sec || s[0].Start != sec || len(c.Notes) == 0 {
		t.Fatalf("spans are %+v, notes %v", s, c.Notes)
	}
	dump := &boot.Capture{Schema: boot.Schema, Manager: boot.Manager{KernelRealtime: 1700000000e6}}
	if err := dump.Merge(c); err != nil {
		t.Fatal(err)
	}
	if s := dump.Spans[0]; s.Start != 55e5 || s.End != 75e5 {
		t.Errorf("merged with a dump the stage is %s to %s, want 5.5 s to 7.5 s", s.Start, s.End)
	}
}

// cloudOfDump is the cloud-init.log of realDump's boot.
const cloudOfDump = `2023-11-14 22:13:25,000 - util.py[DEBUG]: Cloud-init v. 23.4.4 running 'init-local' at Tue, 14 Nov 2023 22:13:25 +0000. Up 5.00 seconds.
2023-11-14 22:13:26,000 - handlers.py[DEBUG]: finish: init-local: SUCCESS: searching for local datasources
`

// TestReadFolderTwoBoots: a folder with records of two boots is refused by the names of both files; of
// a sosreport, whose log may be older, the log is left out.
func TestReadFolderTwoBoots(t *testing.T) {
	other := []byte(strings.NewReplacer("2023-11-14", "2022-11-14", "14 Nov 2023", "14 Nov 2022").Replace(cloudOfDump))
	loose := fstest.MapFS{"a.txt": {Data: realDump(t)}, "cloud-init.log": {Data: other}}
	if _, err := Dir(loose); err == nil || !strings.Contains(err.Error(), `"a.txt" and "cloud-init.log": records of two boots`) {
		t.Errorf("error is %v", err)
	}
	c, err := Dir(fstest.MapFS{
		"sos_commands/systemd/systemctl_show_--all":         {Data: fixture(t, "real/manager.txt")},
		"sos_commands/systemd/systemctl_show_service_--all": {Data: fixture(t, "real/units.txt")},
		"var/log/cloud-init.log":                            {Data: other},
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(c.Spans) > 0 || !strings.Contains(strings.Join(c.Notes, "\n"), `cloud-init.log" was skipped: merge captures: records of two boots`) {
		t.Errorf("%d spans, notes %q", len(c.Spans), c.Notes)
	}
}

func TestReadFolder(t *testing.T) {
	log := []byte(cloudOfDump)
	sos := fstest.MapFS{
		"sosreport-n/sos_commands/systemd/systemctl_show_--all":                {Data: fixture(t, "real/manager.txt")},
		"sosreport-n/sos_commands/systemd/systemctl_show_service_--all":        {Data: fixture(t, "real/units.txt")},
		"sosreport-n/sos_commands/systemd/systemctl_show_--all_broken":         {Data: nil},
		"sosreport-n/sos_commands/systemd/systemd-analyze_plot.svg":            {Data: fixture(t, "real/plot.svg")},
		"sosreport-n/var/log/cloud-init.log":                                   {Data: log},
		"sosreport-n/sos_commands/host/hostname":                               {Data: []byte("node-7\n")},
		"sosreport-n/sos_commands/kernel/uname_-a":                             {Data: []byte("Linux node-7 6.1.0-23-cloud-amd64 #1 SMP x86_64 GNU/Linux\n")},
		"sosreport-n/proc/sys/kernel/random/boot_id":                           {Data: []byte("0f1e2d3c\n")},
		"sosreport-n/sos_commands/systemd/systemctl_list-dependencies_default": {Data: []byte("default.target\n")},
	}
	c, err := Dir(sos)
	if err != nil {
		t.Fatal(err)
	}
	if c.Sources[0] != "sosreport" || c.Host.Name != "node-7" || c.Host.Kernel != "6.1.0-23-cloud-amd64" || c.Host.BootID != "0f1e2d3c" {
		t.Errorf("host is %+v, sources %v", c.Host, c.Sources)
	}
	if c.Manager.Finish == 0 || len(c.Units) < 30 || len(c.Spans) == 0 {
		t.Errorf("read %d units, %d spans, finish %s", len(c.Units), len(c.Spans), c.Manager.Finish)
	}
	if !strings.Contains(strings.Join(c.Notes, "\n"), "systemctl_show_--all_broken") {
		t.Errorf("the empty file is not told of: %q", c.Notes)
	}
	loose, err := Dir(fstest.MapFS{"node.txt": {Data: realDump(t)}, "cloud-init.log": {Data: log}, "README": {Data: []byte("hello")}})
	if err != nil || len(loose.Spans) == 0 || len(loose.Units) < 30 {
		t.Errorf("a folder with loose records: %v", err)
	}
	for name, dir := range map[string]fstest.MapFS{"empty": {}, "without records": {"README": {Data: []byte("hello")}}, "a sosreport without systemd": {"sos_commands/host/hostname": {Data: []byte("x")}}} {
		t.Run(name, func(t *testing.T) {
			if _, err := Dir(dir); err == nil {
				t.Errorf("%s: no error", name)
			}
		})
	}
}

// TestWriteRead: a capture document comes back as it was.
func TestWriteRead(t *testing.T) {
	want := parse(t, realDump(t))
	want.Spans = []boot.Span{{Name: "x", Kind: boot.SpanTask, Start: 1, End: 2}}
	want.Marks = []boot.Mark{{Name: boot.MarkReady, At: 5, Source: "journal"}}
	var b bytes.Buffer
	if err := want.Write(&b); err != nil {
		t.Fatal(err)
	}
	got, err := From(&b)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
