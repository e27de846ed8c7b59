package read

import (
	"testing"
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

// FuzzRead gives any bytes to the readers, and what they make of it to all that prints and draws.
func FuzzRead(f *testing.F) {
	for _, text := range []string{smallDump, smallPlot, smallCapture, smallCloud, smallPlotList, smallDumpList} {
		if _, err := Bytes([]byte(text)); err != nil {
			f.Fatalf("this one should be readable: %v: %.60s", err, text)
		}
		f.Add([]byte(text))
	}
	f.Add(exportFormat(nodeJournal()[1:4]))
	f.Add(jsonFormat(nodeJournal()[1:4]))
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
		if err := c.Merge(&boot.Capture{Schema: boot.Schema}); err != nil {
			t.Error(err)
		}
	})
}

// FuzzMerge merges two records of the same boot, in both orders.
func FuzzMerge(f *testing.F) {
	f.Add([]byte(smallDump), []byte(smallCloud))
	f.Add(exportFormat(nodeJournal()[1:4]), []byte(smallDump))
	f.Add([]byte(smallCapture), []byte(smallDumpList))
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
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, read := range []func([]byte) (*boot.Capture, error){readCloudInitLog, readCloudInitDump} {
			c, err := read(data)
			if err != nil {
				continue
			}
			if _, err := everything.Of(c); err != nil && c.Validate() == nil {
				t.Error(err)
			}
		}
	})
}
