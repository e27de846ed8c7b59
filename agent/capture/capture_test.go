package capture

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"kamino.dev/kamino/agent/capture/internal/fakesystemd"
	"kamino.dev/kamino/boot"
	"kamino.dev/kamino/boot/read"
)

// machine is a root directory with a systemd in it that can be asked.
type machine struct {
	root    string
	systemd *fakesystemd.Server
}

func newMachine(t *testing.T, c *boot.Capture) *machine {
	t.Helper()
	m := &machine{root: t.TempDir(), systemd: &fakesystemd.Server{}}
	m.systemd.Set(c)
	m.file(t, "proc/sys/kernel/random/boot_id", "0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0\n")
	m.file(t, "proc/sys/kernel/hostname", "node-1\n")
	m.file(t, "etc/os-release", "ID=debian\nPRETTY_NAME=\"Debian GNU/Linux 12 (bookworm)\"\n")
	m.file(t, "run/systemd/.keep", "")
	// A socket's path may have 108 bytes, which a temporary folder of a test can exceed; a short
	// link leads there.
	short, err := os.MkdirTemp("", "k")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(short) })
	link := filepath.Join(short, "r")
	if err := os.Symlink(m.root, link); err != nil {
		t.Fatal(err)
	}
	m.root = link
	l, err := net.Listen("unix", filepath.Join(m.root, "run/systemd/private"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() { _ = m.systemd.Serve(l) }() // ends with the listener
	return m
}

func (m *machine) file(t *testing.T, path, text string) {
	t.Helper()
	path = filepath.Join(m.root, path)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func (m *machine) boot(t *testing.T, id string) {
	t.Helper()
	m.file(t, "proc/sys/kernel/random/boot_id", id+"\n")
}

// record runs a capture and reads what it wrote.
func (m *machine) record(t *testing.T, o Options) (*boot.Capture, string) {
	t.Helper()
	o.Root = m.root
	var out bytes.Buffer
	if err := Run(t.Context(), o, &out); err != nil {
		t.Fatal(err)
	}
	path := strings.TrimSpace(out.String())
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	c, err := read.Bytes(data)
	if err != nil {
		t.Fatal(err)
	}
	return c, path
}

// testClock is a clock that only sleeping moves; what happens while it sleeps is the test's.
type testClock struct {
	now    time.Time
	sleeps int
	during func(sleep int)
}

func (c *testClock) Now() time.Time { return c.now }

func (c *testClock) Sleep(ctx context.Context, d time.Duration) error {
	c.sleeps++
	c.now = c.now.Add(d)
	if c.during != nil {
		c.during(c.sleeps)
	}
	return ctx.Err()
}

func started(id string, at, took boot.Micros) boot.Unit {
	return boot.Unit{ID: id, ActiveState: "active", Stamps: boot.Stamps{Activating: at, Activated: at + took}}
}

func finished(units ...boot.Unit) *boot.Capture {
	return &boot.Capture{Manager: boot.Manager{Version: "252", Userspace: 2e6, SecurityStart: 2.1e6, Finish: 20e6}, Units: units}
}

func TestRunRecords(t *testing.T) {
	m := newMachine(t, finished(started("a.service", 3e6, 1e6)))
	c, path := m.record(t, Options{})
	if want := filepath.Join(m.root, DefaultDir, "0f1e2d3c4b5a69788796a5b4c3d2e1f0.json"); path != want {
		t.Errorf("record is %s, want %s", path, want)
	}
	if c.Host.Name != "node-1" || c.Host.OS != "Debian GNU/Linux 12 (bookworm)" || c.Host.Kernel == "" {
		t.Errorf("host is %+v", c.Host)
	}
	if u := c.Unit("a.service"); u == nil || u.Took() != 1e6 || c.Manager.Finish != 20e6 {
		t.Errorf("record lacks what systemd said: %+v %+v", c.Manager, c.Units)
	}
}

// TestRunKeepsTen makes fourteen boots and expects the newest ten, whatever lies beside them.
func TestRunKeepsTen(t *testing.T) {
	m := newMachine(t, finished(started("a.service", 3e6, 1e6)))
	clock := &testClock{now: time.Date(2026, 1, 14, 8, 0, 0, 0, time.UTC)}
	m.file(t, DefaultDir+"/torn.json", "{")
	m.file(t, DefaultDir+"/notes.txt", "keep me")
	for i := range 14 {
		m.boot(t, fmt.Sprintf("boot%02d", i))
		clock.now = clock.now.Add(time.Hour)
		m.record(t, Options{Clock: clock})
	}
	files, err := filepath.Glob(filepath.Join(m.root, DefaultDir, "*"))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, f := range files {
		names = append(names, filepath.Base(f))
	}
	want := []string{"boot04.json", "boot05.json", "boot06.json", "boot07.json", "boot08.json", "boot09.json", "boot10.json", "boot11.json", "boot12.json", "boot13.json", "notes.txt"}
	if !slices.Equal(names, want) {
		t.Errorf("kept %v, want %v", names, want)
	}
}

// TestRunSameBootTwice: what systemd forgot since, and the stamps before a restart, stay in the
// record.
func TestRunSameBootTwice(t *testing.T) {
	m := newMachine(t, finished(started("oneshot.service", 3e6, 1e6), started("kubelet.service", 9e6, 1e6)))
	m.record(t, Options{})
	m.systemd.Set(finished(started("kubelet.service", 900e6, 1e6)))
	c, _ := m.record(t, Options{})
	if c.Unit("oneshot.service") == nil {
		t.Error("the unit that systemd collected is gone from the record")
	}
	u := c.Unit("kubelet.service")
	if u == nil || u.First == nil || u.First.Activating != 9e6 || u.Activating != 900e6 {
		t.Errorf("kubelet is %+v, want the first start at 9 s kept", u)
	}
	files, _ := filepath.Glob(filepath.Join(m.root, DefaultDir, "*.json"))
	if len(files) != 1 {
		t.Errorf("two captures of one boot made %d records", len(files))
	}
}

// TestRunWaits: the first record is on disk after the delay, and is made better until startup has
// finished.
func TestRunWaits(t *testing.T) {
	unfinished := finished(started("a.service", 3e6, 1e6))
	unfinished.Manager.Finish = 0
	m := newMachine(t, unfinished)
	clock := &testClock{now: time.Unix(1e9, 0)}
	clock.during = func(sleep int) {
		if files, _ := filepath.Glob(filepath.Join(m.root, DefaultDir, "*.json")); (len(files) == 1) != (sleep > 1) {
			t.Errorf("in pause %d the records are %v", sleep, files)
		}
		if sleep == 3 {
			m.systemd.Set(finished(started("a.service", 3e6, 1e6)))
		}
	}
	c, _ := m.record(t, Options{Clock: clock, Wait: time.Minute, Delay: firstPause})
	if clock.sleeps != 3 || c.Manager.Finish == 0 {
		t.Errorf("looked %d times, finish %s; want 3 times until startup had finished", clock.sleeps, c.Manager.Finish)
	}
	m.systemd.Set(unfinished)
	m.boot(t, "another")
	clock = &testClock{now: time.Unix(1e9, 0)}
	m.record(t, Options{Clock: clock, Wait: time.Minute, Delay: firstPause})
	if clock.sleeps != 5 {
		t.Errorf("looked %d times in a minute, want 5, ever more seldom", clock.sleeps)
	}
	m.boot(t, "undelayed")
	clock = &testClock{now: time.Unix(1e9, 0), during: func(int) {
		if files, _ := filepath.Glob(filepath.Join(m.root, DefaultDir, "undelayed.json")); len(files) != 1 {
			t.Errorf("without a delay nothing is recorded while waiting: %v", files)
		}
	}}
	m.record(t, Options{Clock: clock, Wait: time.Minute})
	if clock.sleeps == 0 {
		t.Error("it did not wait")
	}
}

// TestRunAfterReboot: kubelet says nothing of pods that ran before. A container that has run for a
// minute ends the wait.
func TestRunAfterReboot(t *testing.T) {
	m := newMachine(t, finished(started("kubelet.service", 3e6, 1e6)))
	for _, c := range []struct {
		name, mark string
		want       int // looks
	}{
		{"nothing", "", 13},
		{"a pod", boot.MarkFirstPod, 1},
		{"a container", boot.MarkContainer, 6},
	} {
		t.Run(c.name, func(t *testing.T) {
			id := strings.ReplaceAll(c.name, " ", "")
			m.boot(t, id)
			if c.mark != "" {
				earlier := finished()
				earlier.Schema, earlier.Host.BootID, earlier.Marks = boot.Schema, id, []boot.Mark{{Name: c.mark, At: 9e6}}
				var data bytes.Buffer
				if err := earlier.Write(&data); err != nil {
					t.Fatal(err)
				}
				m.file(t, DefaultDir+"/"+id+".json", data.String())
			}
			clock := &testClock{now: time.Unix(1e9, 0)}
			m.record(t, Options{Clock: clock, Wait: 5 * time.Minute, Delay: firstPause})
			if clock.sleeps != c.want {
				t.Errorf("with %s it looked %d times in %s, want %d", c.name, clock.sleeps, clock.now.Sub(time.Unix(1e9, 0)), c.want)
			}
		})
	}
}

func TestRunInterrupted(t *testing.T) {
	unfinished := finished()
	unfinished.Manager.Finish = 0
	m := newMachine(t, unfinished)
	for pause, want := range []string{"nothing is recorded", "what was seen is in " + m.root} {
		ctx, cancel := context.WithCancel(t.Context())
		clock := &testClock{now: time.Unix(1e9, 0), during: func(sleep int) {
			if sleep > pause {
				cancel()
			}
		}}
		err := Run(ctx, Options{Root: m.root, Clock: clock, Wait: time.Hour, Delay: firstPause}, &bytes.Buffer{})
		cancel()
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("interrupted in pause %d the error is %v, want %q", pause+1, err, want)
		}
	}
}

func TestLiveWithoutSystemd(t *testing.T) {
	if _, err := os.Stat("/run/dbus/system_bus_socket"); err == nil {
		t.Skip("there is a system bus here, which is asked when the private socket is not there")
	}
	_, err := Live(t.Context(), Options{Root: t.TempDir()})
	if err == nil || !strings.HasPrefix(err.Error(), "connect to systemd: ") {
		t.Errorf("error is %v, want one that says what it was about", err)
	}
}

func TestImageVersion(t *testing.T) {
	m := newMachine(t, finished(started("a.service", 3e6, 1e6)))
	const image = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/galleries/kamino/images/pool1/versions/2026.01.14"
	imds := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Metadata") != "true" || r.URL.Path != "/metadata/instance/compute" {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"vmId": "b1", "storageProfile": map[string]any{"imageReference": map[string]any{"id": image}}})
	}))
	defer imds.Close()
	c, _ := m.record(t, Options{Metadata: imds.URL})
	if c.Host.Image != image || c.Host.VMID != "b1" {
		t.Errorf("host is %+v, want image %s", c.Host, image)
	}
	imds.Close()
	m.boot(t, "without")
	c, _ = m.record(t, Options{Metadata: imds.URL})
	if c.Host.Image != "" || !strings.Contains(strings.Join(c.Notes, "\n"), "the image version is unknown") {
		t.Errorf("without IMDS: image %q, notes %q", c.Host.Image, c.Notes)
	}
}
