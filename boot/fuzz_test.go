package boot

import (
	"bytes"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
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
		if _, err := Read([]byte(text)); err != nil {
			f.Fatalf("this one should be readable: %v: %.60s", err, text)
		}
		f.Add([]byte(text))
	}
	f.Add(exportFormat(nodeJournal()[1:4]))
	f.Add(jsonFormat(nodeJournal()[1:4]))
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := Read(data)
		if err != nil {
			if c != nil {
				t.Error("an error and a capture")
			}
			return
		}
		if err := c.Validate(); err != nil {
			t.Fatalf("what was read is not valid: %v", err)
		}
		text, err := everything(c)
		if err != nil {
			t.Fatal(err)
		}
		if utf8.Valid(data) && !utf8.ValidString(text) {
			t.Error("valid text became invalid")
		}
		if err := c.Merge(&Capture{Schema: Schema}); err != nil {
			t.Error(err)
		}
	})
}

// FuzzDecode compares the fast reader of captures with encoding/json wherever it does not give up.
func FuzzDecode(f *testing.F) {
	f.Add([]byte(smallCapture))
	f.Add([]byte(`{"schema":"s","x":[1,{"y":"]"}],"units":[{"id":"a\\x2d.service","after":["b","\u00e9"],"remainsActive":true,"restarts":2,"cpu":7,"first":{}},{}],"notes":[]}`))
	f.Add([]byte(`{"Units":[{"ID":"x"}],"units":[{"id":"a","id":"b","activating":1.5}]} `))
	f.Fuzz(func(t *testing.T, data []byte) {
		var fast, slow Capture
		if !decodeFast(data, &fast) {
			return
		}
		if err := json.Unmarshal(data, &slow); err != nil {
			t.Fatalf("read what encoding/json refuses: %v", err)
		}
		if diff := cmp.Diff(slow, fast, cmp.AllowUnexported(Capture{})); diff != "" {
			t.Error(diff)
		}
	})
}

// TestDecodeFast: what is written is read by the fast reader, not only by the other.
func TestDecodeFast(t *testing.T) {
	for _, c := range []*Capture{read(t, realDump(t)), read(t, fixture(t, "real/container.json")), read(t, exportFormat(nodeJournal()))} {
		var b bytes.Buffer
		if err := c.Write(&b); err != nil {
			t.Fatal(err)
		}
		var got, want Capture
		if !decodeFast(b.Bytes(), &got) {
			t.Errorf("the fast reader gives up on a capture from %v", c.Sources)
		}
		if err := json.Unmarshal(b.Bytes(), &want); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got, cmp.AllowUnexported(Capture{})); diff != "" {
			t.Error(diff)
		}
	}
}

// FuzzMerge merges two records of the same boot, in both orders.
func FuzzMerge(f *testing.F) {
	f.Add([]byte(smallDump), []byte(smallCloud))
	f.Add(exportFormat(nodeJournal()[1:4]), []byte(smallDump))
	f.Add([]byte(smallCapture), []byte(smallDumpList))
	f.Fuzz(func(t *testing.T, one, two []byte) {
		for _, order := range [][2][]byte{{one, two}, {two, one}} {
			a, err := Read(order[0])
			if err != nil {
				return
			}
			b, err := Read(order[1])
			if err != nil {
				return
			}
			if a.Merge(b) != nil {
				return
			}
			if err := a.Validate(); err != nil {
				t.Fatalf("two valid records merged are not valid: %v", err)
			}
			if _, err := everything(a); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// FuzzNormalize: a name that was normalised stays, and none becomes empty.
func FuzzNormalize(f *testing.F) {
	for _, name := range []string{"kubelet.service", `dev-disk-by\x2duuid-4fa1.device`, "user@1000.service", `run-1\x2d2.mount`, "a@b@1.c"} {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, name string) {
		once := Normalize(name)
		if twice := Normalize(once); twice != once {
			t.Errorf("%q became %q and then %q", name, once, twice)
		}
		if name != "" && once == "" {
			t.Errorf("%q became nothing", name)
		}
	})
}

// FuzzTimespan reads a formatted length back: it is the length, cut to milliseconds if it has any.
func FuzzTimespan(f *testing.F) {
	for _, n := range []uint64{0, 1, 999, 1000, 59999999, 60000000, 1000410000, 1<<64 - 2, 1<<64 - 448000} {
		f.Add(n)
	}
	f.Fuzz(func(t *testing.T, n uint64) {
		if n == 1<<64-1 {
			return // "infinity"
		}
		s := timespan(n)
		var back uint64
		for _, word := range strings.Fields(s) {
			number := strings.TrimRightFunc(word, unicode.IsLetter)
			whole, fraction, _ := strings.Cut(number, ".")
			value, err := strconv.ParseUint(whole, 10, 64)
			if err != nil {
				t.Fatalf("timespan(%d) = %q: %v", n, s, err)
			}
			i := slices.IndexFunc(spanUnits, func(u spanUnit) bool { return u.suffix == strings.TrimPrefix(word, number) })
			if i < 0 && n > 0 {
				t.Fatalf("timespan(%d) = %q: what is %q?", n, s, word)
			}
			if n > 0 {
				back += value * spanUnits[i].usec
			}
			if fraction != "" {
				ms, err := strconv.ParseUint(fraction, 10, 64)
				if err != nil || len(fraction) != 3 {
					t.Fatalf("timespan(%d) = %q: fraction %q", n, s, fraction)
				}
				back += ms * 1000
			}
		}
		if back > n || n-back >= 1000 || n < 1000 && back != n {
			t.Errorf("timespan(%d) = %q, which is %d", n, s, back)
		}
	})
}
