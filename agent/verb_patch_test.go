package agent

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"kamino.dev/kamino/agent/nodeapi"
	"kamino.dev/kamino/agent/patch"
)

// patchHost is a host whose systemd has one unit, or none.
type patchHost struct {
	t      *testing.T
	ctx    context.Context // nil: the test's
	root   string
	state  []string // that systemd tells, one after the other; the last stays
	ran    []string
	onEnd  func()
	beside int                 // so often systemd tells of a unit of another run
	told   []map[string]string // annotations
	answer *httptest.Server
}

func newPatchHost(t *testing.T, state ...string) *patchHost {
	t.Helper()
	h := &patchHost{t: t, root: t.TempDir(), state: state}
	h.answer = httptest.NewTLSServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		var change struct {
			Metadata struct{ Annotations map[string]string }
		}
		if err := json.NewDecoder(r.Body).Decode(&change); err != nil {
			t.Error(err)
		}
		h.told = append(h.told, change.Metadata.Annotations)
	}))
	t.Cleanup(h.answer.Close)
	h.write("proc/sys/kernel/random/boot_id", "boot-1\n")
	h.write("proc/sys/kernel/osrelease", "6.1.0-30-amd64\n")
	h.write("usr/bin/apt-get", "")
	h.write("var/lib/dpkg/status", "Package: alpha\nStatus: install ok installed\nArchitecture: amd64\nVersion: 1\n\n")
	h.write(nodeapi.Paths[0], kubeconfigOf(h.answer))
	return h
}

func (h *patchHost) write(name, text string) {
	h.t.Helper()
	at := filepath.Join(h.root, name)
	if err := errors.Join(os.MkdirAll(filepath.Dir(at), 0o755), os.WriteFile(at, []byte(text), 0o600)); err != nil {
		h.t.Fatal(err)
	}
}

// patch runs the verb as a pod does.
func (h *patchHost) patch(policy patch.Policy) error {
	text, err := json.Marshal(policy)
	if err != nil {
		h.t.Fatal(err)
	}
	h.t.Setenv(patch.PolicyEnv, string(text))
	h.t.Setenv(nonceEnv, "n0nce")
	e := &env{out: new(bytes.Buffer), err: new(bytes.Buffer), log: slog.New(slog.DiscardHandler), newHost: newHost, inHost: h.exec}
	ctx := h.ctx
	if ctx == nil {
		ctx = h.t.Context()
	}
	return runPatch(ctx, e, []string{"--host-root", h.root, "--run", "r1", "--donor", "n1"})
}

func (h *patchHost) exec(_ context.Context, out, _ io.Writer, name string, args ...string) error {
	line := strings.Join(append([]string{name}, args...), " ")
	h.ran = append(h.ran, line)
	switch {
	case strings.HasPrefix(line, "systemctl show --property=ActiveState"):
		state := h.state[0]
		if len(h.state) > 1 {
			h.state = h.state[1:]
		} else if h.onEnd != nil {
			h.onEnd()
		}
		fmt.Fprintln(out, state)
	case strings.HasPrefix(line, "systemctl list-units") && strings.HasSuffix(line, " kamino-patch-*.service"):
		if h.beside > 0 {
			h.beside--
			fmt.Fprintln(out, "kamino-patch-r0.service loaded active running Kamino: patch for run r0")
		}
	case strings.HasPrefix(line, "systemctl list-units"):
		fmt.Fprintln(out, "cron.service loaded failed failed Regular background program")
	}
	return nil
}

// report is what was told last under an annotation.
func (h *patchHost) report(annotation string) (r patch.Report) {
	h.t.Helper()
	if len(h.told) == 0 {
		h.t.Fatal("nothing was told")
	}
	var answer patchAnswer
	if err := json.Unmarshal([]byte(h.told[len(h.told)-1][annotation]), &answer); err != nil || answer.Run != "r1" || answer.Nonce != "n0nce" {
		h.t.Fatalf("%v, %v", h.told, err)
	}
	z, err := gzip.NewReader(bytes.NewReader(answer.Report))
	if err != nil {
		h.t.Fatal(err)
	}
	if err := json.NewDecoder(z).Decode(&r); err != nil {
		h.t.Fatal(err)
	}
	return r
}

func kubeconfigOf(s *httptest.Server) string {
	ca := base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}))
	return "clusters:\n- cluster: {server: '" + s.URL + "', certificate-authority-data: " + ca + "}\nusers:\n- user: {token: x}\n"
}

func (h *patchHost) started() bool {
	return slices.ContainsFunc(h.ran, func(l string) bool { return strings.HasPrefix(l, "/usr/bin/systemd-run") })
}

const unitResult = `{"run":"r1","boot":"boot-1","manager":"apt","changed":[{"name":"alpha","from":"1","to":"2"}]}`

// TestPatchByUnit: a pod starts the host's unit, from a copy of this program, and tells its result.
func TestPatchByUnit(t *testing.T) {
	h := newPatchHost(t, "inactive", "activating", "inactive")
	h.onEnd = func() { h.write("run/kamino/patch-r1.json", unitResult) }
	if err := h.patch(patch.Policy{Seconds: 60, RoomMiB: 1}); err != nil {
		t.Fatal(err)
	}
	if r := h.report(patchAnnotation); len(r.Changed) != 1 || r.Changed[0].To != "2" {
		t.Errorf("%+v", r)
	}
	i := slices.IndexFunc(h.ran, func(l string) bool { return strings.HasPrefix(l, "/usr/bin/systemd-run") })
	want := "/usr/bin/systemd-run --unit=kamino-patch-r1.service --description=Kamino: patch for run r1 --collect --no-block --property=KillMode=mixed " +
		`--property=RuntimeMaxSec=660 --property=ExecStopPost=-/opt/kamino/patch/r1/kamino-agent patch --root=/ --run=r1 --hold --property=ExecStopPost=/bin/rm -rf /opt/kamino/patch/r1 --setenv=KAMINO_SEAL_NONCE=n0nce --setenv=KAMINO_PATCH_POLICY={"seconds":60,"roomMiB":1} ` +
		"/opt/kamino/patch/r1/kamino-agent patch --root=/ --run=r1 --donor=n1"
	if i < 0 || h.ran[i] != want {
		t.Errorf("ran\n%s\nwant\n%s", strings.Join(h.ran, "\n"), want)
	}
	if info, err := os.Stat(filepath.Join(h.root, "opt/kamino/patch/r1/kamino-agent")); err != nil || info.Mode().Perm() != 0o755 {
		t.Errorf("%v, %v", info, err)
	}
}

// TestPatchAlone: a unit that another run has left works still: nothing is put on hold under it,
// and no second one started, before it has ended.
func TestPatchAlone(t *testing.T) {
	h := newPatchHost(t, "inactive", "activating", "inactive")
	h.beside = 1
	h.onEnd = func() { h.write("run/kamino/patch-r1.json", unitResult) }
	h.write("var/lib/dpkg/status", "Package: kubelet\nStatus: install ok installed\nArchitecture: amd64\nVersion: 1\n\n")
	h.write("var/lib/kamino/patch-holds", "kubelet\n")
	if err := h.patch(patch.Policy{RoomMiB: 1}); err != nil {
		t.Fatal(err)
	}
	var asked []int
	for i, line := range h.ran {
		if strings.HasSuffix(line, " kamino-patch-*.service") {
			asked = append(asked, i)
		}
	}
	hold := slices.IndexFunc(h.ran, func(l string) bool { return strings.Contains(l, "apt-mark hold kubelet") })
	start := slices.IndexFunc(h.ran, func(l string) bool { return strings.HasPrefix(l, "/usr/bin/systemd-run") })
	if len(asked) != 2 || hold < asked[1] || start < hold {
		t.Errorf("ran %q", h.ran)
	}
}

// TestPatchFoundAgain: a pod that comes later finds the unit by its name, or its result, and starts
// no second one.
func TestPatchFoundAgain(t *testing.T) {
	h := newPatchHost(t, "active", "active", "inactive")
	h.onEnd = func() { h.write("run/kamino/patch-r1.json", unitResult) }
	if err := h.patch(patch.Policy{}); err != nil || h.started() {
		t.Fatalf("%v, ran %q", err, h.ran)
	}
	h.ran = nil
	if err := h.patch(patch.Policy{}); err != nil || len(h.ran) > 0 || len(h.told) != 2 {
		t.Errorf("%v, ran %q, told %d", err, h.ran, len(h.told))
	}
}

// TestPatchRefused: what cannot be patched is refused in the pod, whose last words a run reads, and
// no unit is started.
func TestPatchRefused(t *testing.T) {
	h := newPatchHost(t, "inactive")
	h.write("var/lib/dpkg/status", "Package: alpha\nStatus: install ok half-configured\nArchitecture: amd64\nVersion: 1\n\n")
	err := h.patch(patch.Policy{})
	if e := (&env{err: new(bytes.Buffer)}); e.exit("patch", err) != exitFound || !strings.Contains(err.Error(), "alpha is half-configured") || h.started() || len(h.told) > 0 {
		t.Errorf("%v, ran %q", err, h.ran)
	}
	lost := newPatchHost(t, "inactive")
	if err := lost.patch(patch.Policy{RoomMiB: 1}); err == nil || !strings.Contains(err.Error(), "ended without a result") {
		t.Errorf("%v", err)
	}
}

// TestPatchCheck: what an upgrade would refuse is refused by itself, once no other run's unit works
// on the node; nothing is started, put on hold or told.
func TestPatchCheck(t *testing.T) {
	h := newPatchHost(t, "inactive")
	h.beside = 1
	h.write("var/lib/kamino/patch-holds", "alpha\n")
	check := patch.Policy{Task: patch.TaskCheck, RoomMiB: 1}
	if err := h.patch(check); err != nil || len(h.ran) != 2 || len(h.told) > 0 {
		t.Errorf("%v, ran %q, told %d", err, h.ran, len(h.told))
	}
	for name, sick := range map[string]func(h *patchHost) patch.Policy{
		"less than 1073741824": func(*patchHost) patch.Policy { return patch.Policy{Task: patch.TaskCheck, RoomMiB: 1 << 30} },
		"manager apt": func(*patchHost) patch.Policy {
			return patch.Policy{Task: patch.TaskCheck, RoomMiB: 1, Manager: patch.Unattended}
		},
		"alpha is half-configured": func(h *patchHost) patch.Policy {
			h.write("var/lib/dpkg/status", "Package: alpha\nStatus: install ok half-configured\nArchitecture: amd64\nVersion: 1\n\n")
			return check
		},
	} {
		h := newPatchHost(t, "inactive")
		err := h.patch(sick(h))
		if e := (&env{err: new(bytes.Buffer)}); e.exit("patch", err) != exitFound || !strings.Contains(err.Error(), name) || h.started() || len(h.told) > 0 {
			t.Errorf("%s: %v, ran %q", name, err, h.ran)
		}
	}
}

// TestPatchCheckLate: a check that waits for another run's unit for too long refuses the node and
// names the unit; the run would drain a node of which it heard nothing.
func TestPatchCheckLate(t *testing.T) {
	h := newPatchHost(t, "inactive")
	h.beside = 2
	var cancel context.CancelFunc
	h.ctx, cancel = context.WithDeadline(t.Context(), time.Unix(1, 0))
	defer cancel()
	err := h.patch(patch.Policy{Task: patch.TaskCheck, RoomMiB: 1})
	if e := (&env{err: new(bytes.Buffer)}); e.exit("patch", err) != exitFound || !strings.Contains(err.Error(), "unit kamino-patch-r0.service patches this node for another run") || h.started() {
		t.Errorf("%v, ran %q", err, h.ran)
	}
}

// TestPatchLook: the look goes to an annotation of its own, and changes nothing.
func TestPatchLook(t *testing.T) {
	h := newPatchHost(t, "inactive")
	h.write("boot/vmlinuz-6.1.0-30-amd64", "")
	if err := h.patch(patch.Policy{Task: patch.TaskLook}); err != nil {
		t.Fatal(err)
	}
	r := h.report(lookAnnotation)
	if r.Boot != "boot-1" || !slices.Equal(r.FailedUnits, []string{"cron.service"}) || r.Newest != r.Running || len(r.Reboot) > 0 || h.started() {
		t.Errorf("%+v", r)
	}
}

// TestPatchReboot: the machine is restarted in the boot that was meant, and in no other.
func TestPatchReboot(t *testing.T) {
	h := newPatchHost(t, "inactive")
	if err := h.patch(patch.Policy{Task: patch.TaskReboot, Boot: "boot-0"}); err != nil || len(h.ran) > 0 {
		t.Errorf("%v, ran %q", err, h.ran)
	}
	if err := h.patch(patch.Policy{Task: patch.TaskReboot}); err != nil || len(h.ran) > 0 {
		t.Errorf("%v, ran %q", err, h.ran)
	}
	if err := h.patch(patch.Policy{Task: patch.TaskReboot, Boot: "boot-1"}); err != nil || !slices.Equal(h.ran, []string{"systemctl reboot"}) {
		t.Errorf("%v, ran %q", err, h.ran)
	}
}
