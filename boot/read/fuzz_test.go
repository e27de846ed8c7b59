package read

import (
	"bytes"
	"strings"
	"testing"
	"testing/fstest"
	"unicode/utf8"

	"kamino.dev/kamino/boot"
	"kamino.dev/kamino/boot/internal/everything"
)

// The corpora are small, so that the fuzzer does not spend its time on making them smaller.
const (
	smallDump = `UserspaceTimestampMonotonic=1822671
FinishTimestampMonotonic=47522671
SecurityStartTimestampMonotonic=1826882
FirmwareTimestampMonotonic=9000000
LoaderTimestampMonotonic=4000000

Id=kubelet.service
Names=kubelet.service "dev-a\\x2db.device"
After=a.service cloud-init-local.service
TriggeredBy=k.timer
InactiveExitTimestamp=Wed 2026-01-14 08:00:05 UTC
InactiveExitTimestampMonotonic=35755671
ActiveEnterTimestampMonotonic=47458671

Id=cloud-init-local.service
After=a.service
CPUUsageNSec=18446744073709551615
NRestarts=2
InactiveExitTimestampMonotonic=2000000
ActiveEnterTimestampMonotonic=92000000

Id=a.service
After=kubelet.service a.service
InactiveExitTimestampMonotonic=500000
InactiveEnterTimestampMonotonic=2500000
`
	smallPlot = `<svg width="1" xmlns="http://www.w3.org/2000/svg"><!-- This file is a systemd-analyze SVG file. -->
<text x="20" y="30">Debian GNU/Linux 12 (bookworm) node-1 (Linux 6.1.0 #1) x86-64 kvm</text>
<text x="20" y="50">Startup finished in 1.276s (firmware) + 35.937s (userspace) = 41.832s
a.service reached after 5s in userspace.</text><g transform="translate(263.287,100)"><rect class="box" x="0" y="0" width="9" height="9"/>
<rect class="firmware" x="-100.0" y="0.000" width="100" height="19"/><text class="left" x="5" y="14.000">firmware</text>
<rect class="active" x="100.000" y="20.000" width="3000.000" height="19"/><rect class="security" x="101" y="20.000" width="2" height="19"/><text class="left" x="5" y="34.000">systemd</text>
<rect class="activating" x="493.177" y="40.000" width="116.472" height="19"/><rect class="active" x="609.649" y="40.000" width="10" height="19"/><text class="left" x="5" y="54.000">a.service (1.164s)</text></g></svg>`
	smallCapture = `{"schema":"kamino.dev/boot-capture/v1","manager":{"userspace":2,"finish":9007199254740992,"firmware":9007199254740992},
"units":[{"id":"kubelet.service","activating":5,"after":["a","b"]},{"id":"a","names":["b"],"activated":3,"first":{"activating":1}}],
"spans":[{"name":"p","kind":"pause","unit":"a","start":1},{"name":"t","kind":"task","start":2,"end":6}],"marks":[{"name":"node-ready","at":7}]}`
	smallCloud = `2026-01-14 08:00:05,000 - util.py[DEBUG]: Cloud-init v. 23.4.4 running 'init-local' at x. Up 5.00 seconds.
2026-01-14 08:00:06,000 - handlers.py[DEBUG]: start: azure-ds/_poll_imds: wait
2026-01-14 08:10:06,000 - handlers.py[DEBUG]: finish: azure-ds/_poll_imds: SUCCESS: wait
`
	smallPlotList = `[{"name":"a.service","activated":9000000,"activating":5000000,"time":4000000,"deactivated":30000000,"deactivating":30000000}]`
	smallDumpList = `[{"name":"init-local","event_type":"start","timestamp":1700000005.5},{"name":"init-local","event_type":"finish","timestamp":1700000007.5}]`
)

const (
	smallChain = "a.target @9s\n├─kubelet.service @5s +4s\n│ └─c.service @1s +2s\n│   └─...\n└─late.socket @12s +1s\n  └─c.service @1s +2s\n"
	smallTimes = "Startup finished in 1.466s (kernel) + 20.980s (userspace) = 22.446s\na.target reached after 9s in userspace\n  1min 5ms kubelet.service\n"
	smallShow  = "-- Boot Record 01 --\nStarting stage: init-local\n|`->no cache found @00.00500s +00.01000s\nFinished stage: (init-local) 00.82400 seconds\n     00.38300s (init-local/x)\n"
	smallLog   = "Jan 14 08:00:02 n kernel: [    0.500000] Linux version 6\nJan 14 08:00:03 n systemd[1]: Starting Kubelet...\nJan 14 08:00:05 n systemd[1]: Timed out waiting for device /dev/x.\n" +
		"Jan 14 08:00:05 n systemd[1]: Startup finished in 1s (kernel) + 2s (userspace) = 3s.\n"
	smallDmesg  = "[    0.000000] Linux version 6\n[    1.250000] systemd[1]: Starting a.service - A...\n[    1.300000] systemd[1]: Started a.service - A.\n"
	smallSyslog = "Dec 31 23:59:50 cloud-init[1]: util.py[DEBUG]: Cloud-init v. 19.3 running 'init-local' at Sat, 31 Dec 2022 23:59:50 +0000. Up 7.20 seconds.\n" +
		"Jan  1 00:00:01 cloud-init[1]: handlers.py[DEBUG]: finish: init-local: SUCCESS: x\n"
)

// FuzzRead gives any bytes to the readers, and what they make of it to all that prints and draws.
func FuzzRead(f *testing.F) {
	for _, text := range []string{smallDump, smallPlot, smallCapture, smallCloud, smallPlotList, smallDumpList, smallChain, smallTimes, smallShow, smallLog, smallDmesg, smallSyslog} {
		if _, err := Bytes([]byte(text)); err != nil {
			f.Fatalf("this one should be readable: %v: %.60s", err, text)
		}
		f.Add([]byte(text))
	}
	f.Add(exportFormat(nodeJournal()[1:4]))
	f.Add(jsonFormat(nodeJournal()[1:4]))
	f.Add([]byte("Jan 14 08:00:03 n systemd[1]: Starting Ku"))
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := Bytes(data)
		if err != nil {
			if c != nil {
				t.Error("an error and a capture")
			}
			return
		}
		if err := c.Validate(); err != nil {
			t.Fatalf("what was read is not valid: %v", err)
		}
		text, err := everything.Of(c)
		if err != nil {
			t.Fatal(err)
		}
		if utf8.Valid(data) && !utf8.ValidString(text) {
			t.Error("valid text became invalid")
		}
		if err := c.Merge(&boot.Capture{Schema: boot.Schema}); (err != nil) != c.NoStart { // a log without a boot's beginning goes with nothing else
			t.Errorf("merged with an empty record: %v", err)
		}
	})
}

// FuzzMerge merges two records of the same boot, in both orders.
func FuzzMerge(f *testing.F) {
	f.Add([]byte(smallDump), []byte(smallCloud))
	f.Add(exportFormat(nodeJournal()[1:4]), []byte(smallDump))
	f.Add([]byte(smallCapture), []byte(smallDumpList))
	f.Add([]byte(smallChain), []byte(smallDump))
	f.Add([]byte(smallShow), []byte(smallChain))
	f.Add([]byte(smallLog), []byte(smallCloud))
	f.Fuzz(func(t *testing.T, one, two []byte) {
		for _, order := range [][2][]byte{{one, two}, {two, one}} {
			a, err := Bytes(order[0])
			if err != nil {
				return
			}
			b, err := Bytes(order[1])
			if err != nil {
				return
			}
			if a.Merge(b) != nil {
				return
			}
			if err := a.Validate(); err != nil {
				t.Fatalf("two valid records merged are not valid: %v", err)
			}
			if _, err := everything.Of(a); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// FuzzCloudInit gives any text to the reader of cloud-init's log alone: FuzzRead's bytes are hardly
// ever taken for one.
func FuzzCloudInit(f *testing.F) {
	f.Add([]byte(smallCloud))
	f.Add([]byte("2026-01-14 08:00:05,000 - util.py[DEBUG]: Cloud-init v. 23.4.4 running 'modules:final' at x. Up 1e9 seconds.\n"))
	f.Add([]byte(smallSyslog))
	fuzzReaders(f, readCloudInitLog, readCloudInitDump)
}

// FuzzAnalyzeText gives any text to the reader of what systemd-analyze prints.
func FuzzAnalyzeText(f *testing.F) {
	f.Add([]byte(smallChain))
	f.Add([]byte(smallTimes))
	fuzzReaders(f, readAnalyzeText)
}

// FuzzCloudInitText gives any text to the reader of what cloud-init analyze prints.
func FuzzCloudInitText(f *testing.F) {
	f.Add([]byte(smallShow))
	fuzzReaders(f, readCloudInitText)
}

// FuzzLog gives any text to the reader of what journalctl prints and syslog writes.
func FuzzLog(f *testing.F) {
	f.Add([]byte(smallLog))
	f.Add([]byte(smallDmesg))
	f.Add([]byte("2026-01-14T08:00:05.123456+01:00 n systemd[1]: Finished x.mount - X.\n-- Boot 00000000000000000000000000000000 --\n"))
	f.Add([]byte("<30>1 2026-01-14T08:00:05.123456Z n systemd 1 - [a b=\"\\\"]\"] \ufeffFinished x.mount - X.\n<6>1 - - kernel - - -\n<30>Jan 14 08:00:05 n systemd[1]: x\n"))
	fuzzReaders(f, readLog)
}

// FuzzShow gives any text to the reader of what systemctl show prints.
func FuzzShow(f *testing.F) {
	f.Add([]byte(smallDump))
	f.Add([]byte("Id=a\nNames=\"\\\nAfter=\"a b\n\nUserspaceTimestampMonotonic=1\nKernelTimestamp=Wed 2026-01-14 08:00:05 UTC\n"))
	fuzzReaders(f, readShow)
}

// FuzzPlot gives any text to the readers of the picture of systemd-analyze plot and of its numbers.
func FuzzPlot(f *testing.F) {
	f.Add([]byte(smallPlot))
	f.Add([]byte(smallPlotList))
	fuzzReaders(f, readPlotSVG, readPlotJSON)
}

// FuzzJournal gives any bytes to the readers of the two forms in which journalctl prints whole entries.
func FuzzJournal(f *testing.F) {
	f.Add(exportFormat(nodeJournal()[1:4]))
	f.Add(jsonFormat(nodeJournal()[1:4]))
	f.Add([]byte("__MONOTONIC_TIMESTAMP=1\nMESSAGE\n\xff\xff\xff\xff\xff\xff\xff\x7fx\n\n"))
	fuzzReaders(f, readJournalExport, readJournalJSON)
}

// FuzzReport: a report that somebody sent is read or refused, whatever is in its files.
func FuzzReport(f *testing.F) {
	f.Add([]byte(smallDump), []byte(smallPlot), []byte(smallLog), []byte(smallCloud), []byte("node-1\n"))
	f.Add([]byte(""), []byte(""), []byte(smallDmesg), []byte(smallSyslog), []byte("\x1b[31m\n"))
	f.Fuzz(func(t *testing.T, show, plot, log, cloud, host []byte) {
		for name, fsys := range map[string]fstest.MapFS{
			"sosreport": {"sos_commands/systemd/systemctl_show_--all": {Data: show}, "sos_commands/systemd/systemd-analyze_plot.svg": {Data: plot},
				"sos_commands/logs/journalctl_--no-pager_--boot": {Data: log}, "var/log/cloud-init.log": {Data: cloud}, "etc/hostname": {Data: host}, "uname": {Data: host}},
			"eks-log-collector": {"a/var_log/messages": {Data: log}, "a/var_log/cloud-init.log": {Data: cloud}, "a/hostname": {Data: host}, "beside": {Data: show}},
			"folder":            {"show.txt": {Data: show}, "plot.svg": {Data: plot}, "syslog": {Data: log}, "cloud-init.log": {Data: cloud}, "a/b": {Data: host}},
		} {
			c, err := Dir(fsys)
			if err != nil {
				continue
			}
			if err := c.Validate(); err != nil {
				t.Fatalf("%s: what was read is not valid: %v", name, err)
			}
			if strings.Contains(c.Host.Name+c.Host.Kernel, "\x1b") {
				t.Errorf("%s: host %q", name, c.Host)
			}
			if _, err := everything.Of(c); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
}

// fuzzReaders runs all that there is on what readers make of any bytes.
func fuzzReaders(f *testing.F, readers ...func([]byte) (*boot.Capture, error)) {
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(bytes.TrimLeft(data, " \t\r\n")) == 0 {
			return // refused before a reader is chosen
		}
		for _, read := range readers {
			c, err := read(data)
			if err != nil {
				continue
			}
			c.Schema = boot.Schema
			if c.Tidy(); c.Validate() != nil {
				continue
			}
			if _, err := everything.Of(c); err != nil {
				t.Error(err)
			}
		}
	})
}

// FuzzUnpack: what gzip packed is read as what it is of, and no packed bytes do harm.
func FuzzUnpack(f *testing.F) {
	f.Add([]byte("\x08\x00\x00\x00\x00\x00\x00\xff\x01\x00\x00\xff\xff\x00\x00\x00\x00\x00\x00\x00\x00"))
	f.Fuzz(func(t *testing.T, data []byte) {
		out, err := unpack(append([]byte("\x1f\x8b"), data...))
		if err == nil && len(out) > boot.MaxDocument+1 {
			t.Errorf("%d bytes", len(out))
		}
		_ = explained(ErrUnknownFormat, out)
	})
}
