package capture

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"kamino.dev/kamino/boot"
)

// wall is a time of this machine's boot as a log writes it.
func wall(at boot.Micros, layout string) string {
	return time.UnixMicro(int64(wallOffset(time.Now()) + at)).UTC().Format(layout)
}

func span(c *boot.Capture, name string) *boot.Span {
	for i := range c.Spans {
		if c.Spans[i].Name == name {
			return &c.Spans[i]
		}
	}
	return nil
}

// near: the two clocks are not read at the same moment, and logs have milliseconds.
func near(a, b boot.Micros) bool { return a-b < 50e3 && b-a < 50e3 }

func TestExtensionSources(t *testing.T) {
	m := newMachine(t, finished(started("walinuxagent.service", 3e6, 1e6)))
	const event = "2006-01-02 15:04:05.000"
	m.file(t, "var/log/azure/Microsoft.Azure.Extensions.CustomScript/events/1700000000000.json", fmt.Sprintf(
		`{"Timestamp":%q,"OperationId":%q,"Version":"1.23","TaskName":"AKS.CSE.ensureKubelet","EventLevel":"Informational"}`, wall(9e6, event), wall(11e6, event)))
	m.file(t, "var/log/azure/Microsoft.Azure.Extensions.CustomScript/events/torn.json", `{"Timestamp":`)
	m.file(t, "var/log/azure/cluster-provision.log", strings.Join([]string{
		"+ ensureContainerd",
		fmt.Sprintf(`++ jq -n --arg Timestamp '%s' --arg OperationId '%s' --arg Version 1.23 --arg TaskName AKS.CSE.ensureContainerd --arg EventLevel Informational --arg Message 'Completed: x'`, wall(5e6, event), wall(8e6, event)),
		fmt.Sprintf(`++ jq -n --arg Timestamp '%s' --arg OperationId '%s' --arg Version 1.23 --arg TaskName AKS.CSE.ensureKubelet --arg EventLevel Informational`, wall(9e6, event), wall(11e6, event)),
	}, "\n"))
	const agent = "2006-01-02T15:04:05.000000Z"
	m.file(t, "var/log/waagent.log", strings.Join([]string{
		"2020-01-01T00:00:00.000000Z INFO ExtHandler [Microsoft.Azure.Extensions.CustomScript-2.1.10] Enable extension: [bin/shim enable]",
		"2020-01-01T00:01:00.000000Z INFO ExtHandler [Microsoft.Azure.Extensions.CustomScript-2.1.10] Command: bin/shim enable",
		wall(4e6, agent) + " INFO ExtHandler [Microsoft.Azure.Extensions.CustomScript-2.1.10] Target handler state: enabled [incarnation_1]",
		wall(45e5, agent) + " INFO ExtHandler [Microsoft.Azure.Extensions.CustomScript-2.1.10] Enable extension: [bin/shim enable]",
		wall(46e5, agent) + " INFO ExtHandler [Microsoft.Azure.Monitor-1.0.1] Command: bin/shim enable",
		wall(12e6, agent) + " INFO ExtHandler [Microsoft.Azure.Extensions.CustomScript-2.1.10] Command: bin/shim enable",
		"[stdout]",
	}, "\n"))
	c, _ := m.record(t, Options{})
	for _, want := range []boot.Span{
		{Name: "AKS.CSE.ensureContainerd", Start: 5e6, End: 8e6}, {Name: "AKS.CSE.ensureKubelet", Start: 9e6, End: 11e6},
		{Name: "Microsoft.Azure.Extensions.CustomScript enable", Start: 45e5, End: 12e6},
	} {
		got := span(c, want.Name)
		if got == nil || !near(got.Start, want.Start) || !near(got.End, want.End) || got.Kind != boot.SpanTask || got.Unit != "walinuxagent.service" {
			t.Errorf("%s is %+v, want %s to %s in walinuxagent.service", want.Name, got, want.Start, want.End)
		}
	}
	if len(c.Spans) != 3 {
		t.Errorf("%d spans, want 3: a task that the trace repeats, or of an earlier boot, does not count: %+v", len(c.Spans), c.Spans)
	}
}

func TestCloudInitSources(t *testing.T) {
	const stamp = "2006-01-02 15:04:05,000"
	m := newMachine(t, finished(started("cloud-init-local.service", 3e6, 5e6)))
	m.file(t, "var/log/cloud-init.log", strings.Join([]string{
		wall(3e6, stamp) + " - util.py[DEBUG]: Cloud-init v. 23.4.4 running 'init-local' at Wed, 14 Jan 2026 08:00:00 +0000. Up 3.00 seconds.",
		wall(4e6, stamp) + " - handlers.py[DEBUG]: start: azure-ds/_wait_for_pps_running_reuse: waiting",
		wall(7e6, stamp) + " - handlers.py[DEBUG]: finish: azure-ds/_wait_for_pps_running_reuse: SUCCESS: waiting",
		wall(8e6, stamp) + " - handlers.py[DEBUG]: finish: init-local: SUCCESS: searching",
	}, "\n"))
	m.file(t, "run/cloud-init/status.json", fmt.Sprintf(`{"v1":{"datasource":"DataSourceAzure","stage":null,"init-local":{"start":1,"finished":2},
		"init":{"start":9.5,"finished":12.25,"errors":[]},"modules-config":{"start":%s,"finished":%s},"modules-final":{"start":null,"finished":null}}}`, epoch(13e6), epoch(14e6)))
	m.file(t, "run/cloud-init/result.json", `{"v1":{"datasource":"DataSourceAzure [seed=/dev/sr0]","errors":["no route to host"]}}`)
	c, _ := m.record(t, Options{})
	if c.CloudInit.Version != "23.4.4" || c.CloudInit.Status != "done" || len(c.CloudInit.Errors) != 1 || c.CloudInit.Datasource != "DataSourceAzure [seed=/dev/sr0]" {
		t.Errorf("cloud-init is %+v", c.CloudInit)
	}
	for _, want := range []boot.Span{
		{Name: "init-local", Kind: boot.SpanStage, Start: 3e6, End: 8e6}, {Name: "azure-ds/_wait_for_pps_running_reuse", Kind: boot.SpanPause, Start: 4e6, End: 7e6},
		{Name: "init-network", Kind: boot.SpanStage, Start: 95e5, End: 1225e4}, {Name: "modules-config", Kind: boot.SpanStage, Start: 13e6, End: 14e6},
	} {
		if got := span(c, want.Name); got == nil || got.Kind != want.Kind || !near(got.Start, want.Start) || !near(got.End, want.End) {
			t.Errorf("%s is %+v, want %s to %s", want.Name, got, want.Start, want.End)
		}
	}
	if got := span(c, "modules-final"); got != nil {
		t.Errorf("a stage that has not begun is there: %+v", got)
	}
}

func epoch(at boot.Micros) string {
	return fmt.Sprintf("%.3f", float64(wallOffset(time.Now())+at)/1e6)
}

func TestNetworkPluginFile(t *testing.T) {
	m := newMachine(t, finished(started("kubelet.service", 3e6, 1e6)))
	for name, at := range map[string]boot.Micros{"05-old.conflist": -5e6, "10-calico.conflist": 25e6} {
		m.file(t, "etc/cni/net.d/"+name, "{}")
		when := time.UnixMicro(int64(wallOffset(time.Now()) + at))
		if err := os.Chtimes(filepath.Join(m.root, "etc/cni/net.d", name), when, when); err != nil {
			t.Fatal(err)
		}
	}
	c, _ := m.record(t, Options{})
	mark, ok := c.Mark(boot.MarkCNIReady)
	if !ok || !near(mark.At, 25e6) || !strings.Contains(mark.Detail, "10-calico.conflist") {
		t.Errorf("the network plugin's mark is %+v, want 25 s by its newest file", mark)
	}
	again, _ := m.record(t, Options{})
	marks := slices.DeleteFunc(again.Marks, func(m boot.Mark) bool { return m.Name != boot.MarkCNIReady })
	if len(marks) != 1 || !near(marks[0].At, 25e6) {
		t.Errorf("after a second look the network plugin's marks are %+v, want one", marks)
	}
	if err := os.Remove(filepath.Join(m.root, "etc/cni/net.d/10-calico.conflist")); err != nil {
		t.Fatal(err)
	}
	m.boot(t, "stale")
	c, _ = m.record(t, Options{})
	if mark, ok := c.Mark(boot.MarkCNIReady); ok {
		t.Errorf("a configuration from before this boot made a mark: %+v", mark)
	}
}

// TestFarFuture: a stamp that no boot can have leaves out what has it, and not the record.
func TestFarFuture(t *testing.T) {
	m := newMachine(t, finished(started("walinuxagent.service", 3e6, 1e6)))
	m.file(t, "var/log/azure/x/events/1.json", fmt.Sprintf(`{"Timestamp":%q,"OperationId":"9999-01-01 00:00:00.000","TaskName":"far"}`, wall(9e6, "2006-01-02 15:04:05.000")))
	m.file(t, "var/log/azure/x/events/2.json", fmt.Sprintf(`{"Timestamp":%q,"OperationId":%q,"TaskName":"near"}`, wall(9e6, "2006-01-02 15:04:05.000"), wall(10e6, "2006-01-02 15:04:05.000")))
	m.file(t, "run/cloud-init/status.json", `{"v1":{"init":{"start":9.5,"finished":99999999999},"modules-final":{"start":10.5,"finished":12}}}`)
	m.file(t, "etc/cni/net.d/10-far.conflist", "{}")
	far := unix.Timespec{Sec: time.Date(2400, 1, 1, 0, 0, 0, 0, time.UTC).Unix()} // os.Chtimes knows no time after 2262
	if err := unix.UtimesNanoAt(unix.AT_FDCWD, filepath.Join(m.root, "etc/cni/net.d/10-far.conflist"), []unix.Timespec{far, far}, 0); err != nil {
		t.Fatal(err)
	}
	c, _ := m.record(t, Options{})
	if span(c, "far") != nil || span(c, "near") == nil || span(c, "init-network") != nil || span(c, "modules-final") == nil {
		t.Errorf("spans are %+v", c.Spans)
	}
	if mark, ok := c.Mark(boot.MarkCNIReady); ok {
		t.Errorf("a file of 2400 made a mark: %+v", mark)
	}
}
