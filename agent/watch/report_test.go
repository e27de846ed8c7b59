package watch

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"kamino.dev/kamino/agent/host"
	"kamino.dev/kamino/agent/inventory"
	"kamino.dev/kamino/agent/platform"
)

// canary makes the machine an instance with tags.
func (b *bench) canary(tags string) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		b.asked++
		fmt.Fprintf(w, `{"compute":{"tagsList":[%s]}}`, tags)
	}))
	b.t.Cleanup(s.Close)
	b.w.IMDS = platform.IMDS{Endpoint: s.URL, Client: s.Client(), Wait: b.w.Wait}
}

// record is what kamino-agent capture wrote of a boot.
const record = `{"schema":"kamino.dev/boot-capture/v1","sources":["systemd"],"host":{"bootID":"12345678123442348234123456789abc"},
"manager":{"userspace":1000000,"finish":10000000},"units":[{"id":"kubelet.service","activating":4000000,"activated":6500000,"activeState":"active"}]}`

// TestReport: a canary tells what its Node does not show, again and again, and asks IMDS once.
func TestReport(t *testing.T) {
	b := newBench(t)
	b.canary(`{"name":"Kamino-Nonce","value":"n1"}`)
	replies := filepath.Join(t.TempDir(), "replies")
	if err := os.WriteFile(replies, []byte("systemctl list-units\t0\tz.service loaded failed failed Z\\ncri-containerd-5f1c.scope loaded failed failed C\\na.mount loaded failed failed A\n"+
		"systemctl show\t0\tNRestarts=0\\nId=a.service\\n\\nNRestarts=7\\nId=kubelet.service\\n\\nId=b.service\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	b.w.Host = host.Recorder{Replies: replies}
	b.file("etc/machine-id", "0123\n")
	b.file("etc/ssh/ssh_host_ed25519_key.pub", "ssh-ed25519 AAAA\n")
	b.file("proc/sys/kernel/random/boot_id", "12345678-1234-4234-8234-123456789abc\n")
	b.file("var/lib/kamino/boots/12345678123442348234123456789abc.json", record)
	b.file("run/reboot-required", "")
	b.file("var/lib/dpkg/status", "Package: a\nStatus: install ok installed\nArchitecture: amd64\nVersion: 1\n")
	ctx, cancel := context.WithCancel(t.Context())
	b.onWait = func(n int) {
		if n == 3 {
			cancel()
		}
	}
	b.w.Report(ctx)
	var r report
	if err := json.Unmarshal([]byte(b.node.annotations[ReportAnnotation]), &r); err != nil {
		t.Fatalf("annotations %v: %v", b.node.annotations, err)
	}
	if r.Nonce != "n1" || r.MachineID != "0123" || len(r.SSHKeys) != 1 || len(r.SSHKeys[0]) != 32 || len(r.PackageDigest) != 64 || !slices.Equal(r.FailedUnits, []string{"a.mount", "z.service"}) ||
		len(r.Restarts) != 1 || r.Restarts["kubelet.service"] != 7 || r.RebootPending != "/run/reboot-required" || !r.At.Equal(b.now.Add(-reportPause)) {
		t.Errorf("report %+v", r)
	}
	if len(r.Phases) != 2 || r.Phases["userspace"] != 9 || r.Phases["kubelet"] != 2.5 || r.Starts["userspace"] != 0 || r.Starts["kubelet"] != 3 {
		t.Errorf("phases %+v", r.Timing)
	}
	if b.asked != 1 || len(b.waits) != 3 || b.waits[0] != reportPause {
		t.Errorf("asked IMDS %d times, waited %v", b.asked, b.waits)
	}
}

// TestNoReport: no other machine reports, and none hides a system that cannot be asked.
func TestNoReport(t *testing.T) {
	b := newBench(t)
	b.canary(`{"name":"poolName","value":"p"}`)
	b.w.Report(t.Context())
	if b.node.annotations != nil || len(b.waits) > 0 {
		t.Errorf("a machine of the pool reported %v", b.node.annotations)
	}
	b.canary(`{"name":"kamino-nonce","value":"n1"}`)
	replies := filepath.Join(t.TempDir(), "replies")
	if err := os.WriteFile(replies, []byte("systemctl\t1\tno bus\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	b.w.Host = host.Recorder{Replies: replies}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	b.onWait = func(int) { cancel() }
	b.w.Report(ctx)
	if text := b.node.annotations[ReportAnnotation]; text != "" {
		t.Errorf("without systemd it reported %s", strings.TrimSpace(text))
	}
}

// TestFreshnessAnotherNode: somebody deletes the Node, and kubelet registers another.
func TestFreshnessAnotherNode(t *testing.T) {
	b := newBench(t)
	b.file("var/lib/dpkg/status", "Package: a\nStatus: install ok installed\nArchitecture: amd64\nVersion: 1\n")
	ctx, cancel := context.WithCancel(t.Context())
	var told []int // in which pauses the annotation was there
	b.onWait = func(n int) {
		if b.node.annotations[FreshnessAnnotation] != "" {
			told = append(told, n)
		}
		if b.node.annotations = nil; n == 10 {
			cancel()
		}
	}
	if b.w.Freshness(ctx); !slices.Equal(told, []int{1, 5, 9}) {
		t.Errorf("told in pauses %v, want each hour", told)
	}
}

// TestFreshness: a node tells how far it is patched, once, and again when that has changed or was
// not heard.
func TestFreshness(t *testing.T) {
	b := newBench(t)
	status := func(version string) {
		b.file("var/lib/dpkg/status", "Package: a\nStatus: install ok installed\nArchitecture: amd64\nVersion: "+version+"\n")
	}
	status("1")
	ctx, cancel := context.WithCancel(t.Context())
	var told []string
	b.onWait = func(n int) {
		told = append(told, b.node.annotations[FreshnessAnnotation])
		b.node.annotations = map[string]string{}
		switch n {
		case 2:
			status("2")
		case 3:
			cancel()
		}
	}
	b.w.Freshness(ctx)
	var first, third inventory.Facts
	if err := json.Unmarshal([]byte(told[0]), &first); err != nil || first.PackageCount != 1 || len(first.PackageDigest) != 64 {
		t.Errorf("told %q: %v", told[0], err)
	}
	if err := json.Unmarshal([]byte(told[2]), &third); err != nil || third.PackageDigest == first.PackageDigest || told[1] != "" {
		t.Errorf("told %q: %v", told, err)
	}
	if b.waits[0] != freshnessPause {
		t.Errorf("waited %v", b.waits)
	}
}
