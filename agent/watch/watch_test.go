package watch

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"kamino.dev/kamino/agent/disk"
	"kamino.dev/kamino/agent/firstboot"
	"kamino.dev/kamino/agent/host"
	"kamino.dev/kamino/agent/nodeapi"
	"kamino.dev/kamino/agent/nodeconfig"
	"kamino.dev/kamino/agent/platform"
	"kamino.dev/kamino/agent/seal"
	"kamino.dev/kamino/agent/userdata"
)

// bench is one machine on a virtual clock: waiting moves it, and may change the world.
type bench struct {
	t        *testing.T
	w        *Watcher
	now      time.Time
	userData string
	code     int              // answer of IMDS, 0 is 200
	answer   http.HandlerFunc // of IMDS in the place of userData
	asked    int
	healthy  func() bool
	commands string
	node     node
	waits    []time.Duration
	onWait   func(n int)
}

type node struct {
	annotations, labels map[string]string
	removed             []string
	taints, untainted   []userdata.Taint
	fail                error
	forbidden           bool
	ready               func() (nodeapi.Ready, error) // nil: Ready
}

func (n *node) Ready(context.Context) (nodeapi.Ready, error) {
	if n.ready == nil {
		return nodeapi.Ready{True: true}, n.fail
	}
	return n.ready()
}

func (n *node) Annotate(_ context.Context, a map[string]string) error {
	n.annotations = a
	return n.fail
}

func (n *node) Label(_ context.Context, set map[string]string, remove []string) error {
	n.labels, n.removed = set, remove
	return n.fail
}

func (n *node) Taint(_ context.Context, set, remove []userdata.Taint) error {
	if n.forbidden {
		return nodeapi.ErrForbidden
	}
	n.taints, n.untainted = set, remove
	return n.fail
}

func newBench(t *testing.T) *bench {
	t.Helper()
	b := &bench{t: t, now: time.Date(2026, 11, 21, 0, 0, 0, 0, time.UTC), healthy: func() bool { return true }}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/healthz" {
			if !b.healthy() {
				w.WriteHeader(http.StatusInternalServerError)
			}
			return
		}
		b.asked++
		if b.code != 0 {
			w.WriteHeader(b.code)
			return
		}
		if b.answer != nil {
			b.answer(w, r)
			return
		}
		fmt.Fprint(w, base64.StdEncoding.EncodeToString([]byte(b.userData)))
	}))
	t.Cleanup(s.Close)
	d, err := disk.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	b.commands = filepath.Join(t.TempDir(), "commands")
	wait := func(ctx context.Context, pause time.Duration) error {
		b.waits = append(b.waits, pause)
		b.now = b.now.Add(pause)
		if b.onWait != nil {
			b.onWait(len(b.waits))
		}
		return ctx.Err()
	}
	b.w = &Watcher{Disk: d, Host: host.Recorder{Log: b.commands}, IMDS: platform.IMDS{Endpoint: s.URL, Client: platform.Direct(), Wait: wait}, Client: s.Client(),
		Settings: seal.Settings{Sources: []string{"imds://userData"}}, Log: slog.New(slog.DiscardHandler), Now: func() time.Time { return b.now }, Wait: wait,
		Interval: time.Minute, Health: s.URL + "/healthz", Deadline: 2 * time.Minute, Settle: 10 * time.Second,
		Node: func(context.Context) (Node, error) { return &b.node, nil }}
	b.file("usr/bin/kubelet", "program")
	b.file("usr/lib/systemd/system/kubelet.service", "[Service]\nExecStart=/usr/bin/kubelet --v=2\n")
	b.file("var/lib/kubelet/config.yaml", "kind: KubeletConfiguration\n")
	return b
}

func (b *bench) file(name, text string) {
	b.t.Helper()
	if err := b.w.Disk.WriteFile(name, []byte(text), 0o644); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) ran() string {
	data, _ := os.ReadFile(b.commands)
	return strings.Join(strings.Fields(strings.ReplaceAll(string(data), "systemctl ", "")), " ")
}

func (b *bench) once() firstboot.State {
	b.t.Helper()
	if err := b.w.Once(b.t.Context()); err != nil {
		b.t.Fatal(err)
	}
	s, err := firstboot.ReadState(b.w.Disk)
	if err != nil {
		b.t.Fatal(err)
	}
	return s
}

// start puts a first generation in force.
func (b *bench) start(text string) {
	b.t.Helper()
	b.userData = text
	if s := b.once(); s.Status != "Applied" {
		b.t.Fatalf("%+v", s)
	}
	_ = os.Remove(b.commands)
}

func doc(generation int, kubelet string) string {
	return fmt.Sprintf("apiVersion: kamino.dev/v1alpha1\nkind: NodeConfig\ngeneration: %d\njoin: {method: keep}\nkubelet: {%s}\n", generation, kubelet)
}

func TestNewGeneration(t *testing.T) {
	b := newBench(t)
	b.start(doc(1, "labels: {tier: web, old: x}, taints: [{key: a, effect: NoSchedule}]"))
	b.userData = doc(2, "config: {maxPods: 50}, labels: {tier: db}, taints: [{key: b, effect: NoSchedule}]")
	s := b.once()
	if s.Generation != 2 || s.Status != "Applied" || s.Error != "" || b.ran() != "daemon-reload restart kubelet.service" {
		t.Errorf("%+v after %q", s, b.ran())
	}
	if got := b.w.Disk.Text("var/lib/kubelet/config.yaml"); !strings.Contains(got, "maxPods: 50") || !strings.Contains(got, "key: b") {
		t.Errorf("kubelet's configuration: %s", got)
	}
	if b.node.labels["tier"] != "db" || !slices.Equal(b.node.removed, []string{"old"}) {
		t.Errorf("labels %v, removed %v", b.node.labels, b.node.removed)
	}
	if diff := cmp.Diff([]userdata.Taint{{Key: "b", Effect: "NoSchedule"}}, b.node.taints); diff != "" || len(b.node.untainted) != 1 || b.node.untainted[0].Key != "a" {
		t.Errorf("taints %v, removed %v", b.node.taints, b.node.untainted)
	}
	var told struct {
		Generation int
		Status     string
	}
	if err := json.Unmarshal([]byte(b.node.annotations[Annotation]), &told); err != nil || told.Generation != 2 || told.Status != "Applied" {
		t.Errorf("annotation %v, %v", b.node.annotations, err)
	}
	_ = os.Remove(b.commands)
	if b.once(); b.ran() != "" {
		t.Errorf("the same document again ran %q", b.ran())
	}
}

func TestTaintsForbidden(t *testing.T) {
	b := newBench(t)
	b.node.forbidden = true
	b.start(doc(1, ""))
	b.userData = doc(2, "taints: [{key: b, effect: NoSchedule}]")
	if s := b.once(); s.Status != "Applied" || !strings.Contains(s.Error, "when the node registers again") {
		t.Errorf("%+v", s)
	}
}

func TestAPIServerAway(t *testing.T) {
	b := newBench(t)
	b.start(doc(1, ""))
	b.node.fail = errors.New("connection refused")
	b.userData = doc(2, "labels: {tier: db}")
	if s := b.once(); s.Generation != 2 || s.Status != "Applied" || !strings.Contains(s.Error, "connection refused") {
		t.Errorf("%+v", s)
	}
}

// TestToldAnotherNode: somebody deletes the Node, and kubelet registers another, which has no
// annotation.
func TestToldAnotherNode(t *testing.T) {
	b := newBench(t)
	b.start(doc(1, ""))
	b.node.annotations = nil
	b.now = b.now.Add(2 * time.Hour)
	if b.once(); !strings.Contains(b.node.annotations[Annotation], `"status":"Applied"`) {
		t.Errorf("annotation %v", b.node.annotations)
	}
}

// TestStateUnreadable: the state on the disk is damaged. Nothing is applied, and the Node says why.
func TestStateUnreadable(t *testing.T) {
	b := newBench(t)
	b.start(doc(1, ""))
	b.file(firstboot.StatePath, "")
	b.userData = doc(2, "config: {maxPods: 50}")
	if err := b.w.Once(t.Context()); err == nil || b.ran() != "" || b.with("maxPods: 50") {
		t.Errorf("%v, ran %q", err, b.ran())
	}
	if text := b.node.annotations[Annotation]; !strings.Contains(text, `"status":"Unreadable"`) || !strings.Contains(text, "config.json") || !strings.Contains(text, "remove the file") {
		t.Errorf("annotation %s", text)
	}
	if err := b.w.Disk.Remove(firstboot.StatePath); err != nil {
		t.Fatal(err)
	}
	if s := b.once(); s.Status != "Applied" || s.Generation != 2 {
		t.Errorf("without it: %+v", s)
	}
}

// TestShareInTrial: the operator takes a generation away from this node while it is on trial there. A
// share that is raised does not try a document again that this node has refused.
func TestShareInTrial(t *testing.T) {
	b := newBench(t)
	b.start(doc(1, "config: {maxPods: 20}"))
	next := doc(2, "config: {maxPods: 99}")
	b.userData = "share: 100\n" + next
	ctx, cancel := context.WithCancel(t.Context())
	b.onWait = func(int) { cancel() }
	if err := b.w.Once(ctx); !errors.Is(err, context.Canceled) || !b.with("maxPods: 99") {
		t.Fatalf("%v, kubelet's configuration %s", err, b.w.Disk.Text("var/lib/kubelet/config.yaml"))
	}
	b.onWait = nil
	b.userData = "share: 0\n" + next
	if s := b.once(); s.Status != "Waiting" || s.Generation != 1 || s.Trial != nil || b.with("maxPods: 99") || b.w.Disk.Exists(nodeconfig.FormerPath) {
		t.Errorf("taken away: %+v", s)
	}
	b.healthy = func() bool { return !b.with("maxPods: 99") }
	b.userData = "share: 100\n" + next
	if s := b.once(); s.Status != "RolledBack" {
		t.Errorf("given again: %+v", s)
	}
	_ = os.Remove(b.commands)
	for _, share := range []string{"share: 0\n", "share: 100\n", ""} {
		b.userData = share + next
		if s := b.once(); s.Status != "RolledBack" || b.ran() != "" {
			t.Errorf("%q: %+v after %q", share, s, b.ran())
		}
	}
}

// TestTold: a state of which the API server did not hear is told at the next look, and then no
// more.
func TestTold(t *testing.T) {
	b := newBench(t)
	b.node.fail = errors.New("not registered yet")
	b.start(doc(1, ""))
	b.node.annotations, b.node.fail = nil, nil
	if b.once(); !strings.Contains(b.node.annotations[Annotation], `"status":"Applied"`) {
		t.Errorf("annotation %v", b.node.annotations)
	}
	b.node.annotations = nil
	if b.once(); b.node.annotations != nil {
		t.Error("told again")
	}
}

func TestLabelsRestartNothing(t *testing.T) {
	b := newBench(t)
	b.start(doc(1, "labels: {tier: web}"))
	b.userData = doc(2, "labels: {tier: db}")
	if s := b.once(); s.Generation != 2 || strings.Contains(b.ran(), "restart") {
		t.Errorf("%+v after %q", s, b.ran())
	}
}

// TestNodeIsChangedLater: labels and taints that the API server did not take are tried again, and
// those of the document before go, too.
func TestNodeIsChangedLater(t *testing.T) {
	b := newBench(t)
	b.start(doc(1, "labels: {tier: web}"))
	b.userData = doc(2, "labels: {zone: a}, taints: [{key: k, value: v, effect: NoSchedule}]")
	b.node.fail = context.Canceled // the agent is told to stop meanwhile
	if s := b.once(); s.Generation != 2 || !s.Pending || !strings.Contains(s.Error, "labels were not changed") {
		t.Fatalf("%+v", s)
	}
	b.node.fail, b.node.labels = nil, nil
	s := b.once()
	if s.Generation != 2 || s.Pending || s.Error != "" || b.node.labels["zone"] != "a" || !slices.Equal(b.node.removed, []string{"tier"}) || len(b.node.taints) != 1 {
		t.Errorf("%+v; the node has %+v", s, b.node)
	}
	if b.node.labels = nil; b.once().Pending || b.node.labels != nil {
		t.Error("labels were written once more")
	}
}

// dying is a Node in whose change the agent is killed.
type dying struct{ Node }

func (dying) Label(context.Context, map[string]string, []string) error { panic("killed") }

// TestKilledWhileTheNodeIsChanged: the trial has ended well, and the API server takes long to answer.
// However often the agent is killed meanwhile, that is not held against the document.
func TestKilledWhileTheNodeIsChanged(t *testing.T) {
	b := newBench(t)
	b.start(doc(1, "labels: {tier: web}"))
	b.userData = doc(2, "config: {maxPods: 50}, labels: {zone: a}")
	b.w.Node = func(context.Context) (Node, error) { return dying{&b.node}, nil }
	for range 3 {
		func() {
			defer func() {
				if recover() == nil {
					t.Error("the node was not changed")
				}
			}()
			_ = b.w.Once(t.Context()) // it dies
		}()
		if s, err := firstboot.ReadState(b.w.Disk); err != nil || s.Generation != 2 || s.Status != "Applied" || !s.Pending {
			t.Errorf("generation 2 is in force: %+v, %v", s, err)
		}
	}
	b.w.Node = func(context.Context) (Node, error) { return &b.node, nil }
	if s := b.once(); s.Generation != 2 || s.Status != "Applied" || s.Pending || b.node.labels["zone"] != "a" || !slices.Equal(b.node.removed, []string{"tier"}) || !b.with("maxPods: 50") {
		t.Errorf("%+v; the node has %+v", s, b.node)
	}
}

// TestFirstAndLastLabels: where the image's own unit starts kubelet rightly, the first label brings
// a drop-in and the last takes it away. Neither is a reason to restart kubelet.
func TestFirstAndLastLabels(t *testing.T) {
	b := newBench(t)
	b.file("usr/lib/systemd/system/kubelet.service", "[Service]\nExecStart=/usr/bin/kubelet --config=/"+nodeconfig.KubeletConfigPath+"\n")
	b.start(doc(1, "config: {maxPods: 20}"))
	_ = os.Remove(b.commands)
	for i, kubelet := range []string{"config: {maxPods: 20}, labels: {tier: db}", "config: {maxPods: 20}"} {
		b.userData = doc(2+i, kubelet)
		if s := b.once(); s.Status != "Applied" || b.w.Disk.Exists(nodeconfig.DropInPath) != (i == 0) || strings.Contains(b.ran(), "restart") {
			t.Errorf("%s: %+v after %q", kubelet, s, b.ran())
		}
	}
}

func TestRollback(t *testing.T) {
	b := newBench(t)
	b.start(doc(1, "config: {maxPods: 20}"))
	former := b.w.Disk.Text("var/lib/kubelet/config.yaml")
	b.healthy = func() bool { return !strings.Contains(b.w.Disk.Text("var/lib/kubelet/config.yaml"), "maxPods: 99") }
	b.userData = doc(2, "config: {maxPods: 99}")
	began := b.now
	s := b.once()
	if s.Generation != 1 || s.Status != "RolledBack" || !strings.Contains(s.Error, "not healthy within 2m0s") || b.w.Disk.Text("var/lib/kubelet/config.yaml") != former {
		t.Errorf("%+v", s)
	}
	if took := b.now.Sub(began); took < 2*time.Minute || took > 3*time.Minute {
		t.Errorf("took %s", took)
	}
	if b.ran() != "daemon-reload restart kubelet.service is-system-running daemon-reload restart kubelet.service" || b.w.Disk.Exists(nodeconfig.FormerPath) {
		t.Errorf("ran %q, on trial: %v", b.ran(), b.w.Disk.Exists(nodeconfig.FormerPath))
	}
	_ = os.Remove(b.commands)
	if b.once(); b.ran() != "" {
		t.Error("a document that did not work was tried again")
	}
	b.userData = doc(3, "config: {maxPods: 30}")
	if s := b.once(); s.Generation != 3 || s.Status != "Applied" || s.Offered != nil {
		t.Errorf("the next one: %+v", s)
	}
}

// TestModes: a configuration of kubelet that others may not read keeps its permissions, when a new
// generation is written and when a trial is taken back.
func TestModes(t *testing.T) {
	b := newBench(t)
	at := filepath.Join(b.w.Disk.Dir(), "var/lib/kubelet/config.yaml")
	b.start(doc(1, "config: {maxPods: 20}"))
	if err := os.Chmod(at, 0o600); err != nil {
		t.Fatal(err)
	}
	b.healthy = func() bool { return !b.with("maxPods: 99") }
	for i, kubelet := range []string{"config: {maxPods: 99}", "config: {maxPods: 30}"} {
		b.userData = doc(2+i, kubelet)
		s := b.once()
		if info, err := os.Stat(at); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v, %v", s.Status, info.Mode(), err, s)
		}
	}
}

// TestFlapping: healthy for less than Settle is not healthy.
func TestFlapping(t *testing.T) {
	b := newBench(t)
	b.start(doc(1, ""))
	probes := 0
	b.healthy = func() bool {
		probes++
		return probes%5 != 0 || !strings.Contains(b.w.Disk.Text("var/lib/kubelet/config.yaml"), "maxPods")
	}
	b.userData = doc(2, "config: {maxPods: 99}")
	if s := b.once(); s.Status != "RolledBack" {
		t.Errorf("%+v", s)
	}
}

// TestBroken: not even the former generation comes back.
func TestBroken(t *testing.T) {
	b := newBench(t)
	b.start(doc(1, ""))
	b.healthy = func() bool { return false }
	b.userData = doc(2, "config: {maxPods: 99}")
	if s := b.once(); s.Status != "Broken" || !strings.Contains(s.Error, "back at the former configuration") {
		t.Errorf("%+v", s)
	}
	if b.w.Disk.Exists(nodeconfig.FormerPath) || strings.Contains(b.w.Disk.Text("var/lib/kubelet/config.yaml"), "maxPods") {
		t.Error("the former files are not back")
	}
}

// TestNotRestored: a unit does not restart with the former files. They are kept until it does, a
// document in between is tried, and what is kept is what stood there before all trials.
func TestNotRestored(t *testing.T) {
	b := newBench(t)
	b.start(doc(1, "config: {maxPods: 20}"))
	former := b.w.Disk.Text("var/lib/kubelet/config.yaml")
	replies := filepath.Join(t.TempDir(), "replies")
	b.w.Host = host.Recorder{Log: b.commands, Replies: replies}
	fail := func(code string) {
		if err := os.WriteFile(replies, []byte("systemctl restart\t"+code+"\tno\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	fail("1")
	for generation := range 2 {
		b.userData = doc(2+generation, "config: {maxPods: 99}")
		if s := b.once(); s.Status != "Broken" || s.Generation != 1 || !b.w.Disk.Exists(nodeconfig.FormerPath) {
			t.Errorf("%+v", s)
		}
	}
	fail("0")
	if s := b.once(); s.Status != "Broken" || b.w.Disk.Exists(nodeconfig.FormerPath) || b.w.Disk.Text("var/lib/kubelet/config.yaml") != former {
		t.Errorf("%+v, kubelet's configuration %s", s, b.w.Disk.Text("var/lib/kubelet/config.yaml"))
	}
	b.userData = doc(4, "config: {maxPods: 30}")
	if s := b.once(); s.Status != "Applied" || s.Generation != 4 {
		t.Errorf("%+v", s)
	}
}

// TestRuntimeNotRestored: containerd did not restart with its former file. The next attempt
// restarts it again, although the file is back already.
func TestRuntimeNotRestored(t *testing.T) {
	b := newBench(t)
	b.start(doc(1, ""))
	replies := filepath.Join(t.TempDir(), "replies")
	b.w.Host = host.Recorder{Log: b.commands, Replies: replies}
	if err := os.WriteFile(replies, []byte("systemctl restart containerd\t1\tno\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	b.userData = doc(2, "") + "containerd: {config: 'version = 2'}\n"
	if s := b.once(); s.Status != "Broken" || b.w.Disk.Exists(nodeconfig.RuntimePath) || !b.w.Disk.Exists(nodeconfig.FormerPath) {
		t.Errorf("%+v", s)
	}
	if err := errors.Join(os.Remove(replies), os.WriteFile(replies, nil, 0o600), os.Remove(b.commands)); err != nil {
		t.Fatal(err)
	}
	if b.once(); b.ran() != "daemon-reload restart containerd.service restart kubelet.service" || b.w.Disk.Exists(nodeconfig.FormerPath) {
		t.Errorf("ran %q", b.ran())
	}
}

// TestEndless: however a trial is interrupted, a document is not tried without end.
func TestEndless(t *testing.T) {
	b := newBench(t)
	b.start(doc(1, ""))
	b.userData = doc(2, "config: {maxPods: 50}")
	b.w.Settle = time.Hour
	trials := 0
	for range 20 {
		ctx, cancel := context.WithCancel(t.Context())
		before := b.asked
		b.onWait = func(int) { cancel() }
		if err := b.w.Once(ctx); errors.Is(err, context.Canceled) {
			trials++
		}
		cancel()
		if b.asked == before {
			t.Fatal("the source was not asked")
		}
	}
	b.onWait = nil
	if s := b.once(); trials != trialsMost || s.Status != "RolledBack" || !strings.Contains(s.Error, "10 trials of this document were interrupted") || s.Offered.Generation != 2 {
		t.Errorf("%d trials, %+v", trials, s)
	}
}

// TestShare: a generation is for a share of the nodes. A node outside says so and keeps what it
// has; raising the share needs no new generation, and the same share of another begins with others.
func TestShare(t *testing.T) {
	b := newBench(t)
	b.start(doc(1, "config: {maxPods: 20}"))
	c := userdata.NodeConfig{Generation: 2, Share: new(int)}
	*c.Share = 30
	for b.w.Name = "n"; c.Takes(b.w.Name); {
		b.w.Name += "n"
	}
	next := doc(2, "config: {maxPods: 50}")
	b.userData = "share: 30\n" + next
	for range 2 {
		if s := b.once(); s.Status != "Waiting" || s.Generation != 1 || s.Offered == nil || s.Offered.Generation != 2 || b.ran() != "" || b.with("maxPods: 50") {
			t.Errorf("%+v after %q", s, b.ran())
		}
	}
	if !strings.Contains(b.node.annotations[Annotation], `"status":"Waiting"`) {
		t.Errorf("annotation %v", b.node.annotations)
	}
	b.userData = doc(1, "config: {maxPods: 20}")
	if s := b.once(); s.Status != "Applied" || s.Offered != nil {
		t.Errorf("taken away: %+v", s)
	}
	for _, share := range []string{"share: 30\n", "share: 100\n", "# for all now\n", "share: 0\n"} {
		b.userData = share + next
		if s := b.once(); share != "share: 30\n" && (s.Status != "Applied" || s.Generation != 2 || !b.with("maxPods: 50")) {
			t.Errorf("%s: %+v", share, s)
		}
	}
	if b.ran() != "daemon-reload restart kubelet.service" {
		t.Errorf("ran %q", b.ran())
	}
}

// TestAnswers: an answer of IMDS that is no document changes nothing on the node, and is told.
func TestAnswers(t *testing.T) {
	good := base64.StdEncoding.EncodeToString([]byte(doc(2, "config: {maxPods: 50}")))
	for name, tt := range map[string]struct {
		answer http.HandlerFunc
		status string // of the annotation; empty: the look did not end
	}{
		"forbidden": {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) }, "Unreadable"},
		"elsewhere": {func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/elsewhere" {
				fmt.Fprint(w, good)
				return
			}
			http.Redirect(w, r, "/elsewhere", http.StatusFound)
		}, "Unreadable"},
		"a page":         {func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "<html>sign in</html>") }, "Unreadable"},
		"half of it":     {func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, good[:len(good)/8*4]) }, "Invalid"},
		"cut in a group": {func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, good[:len(good)/8*4+1]) }, "Unreadable"},
		"huge":           {func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, strings.Repeat("YWFh", 1<<19)) }, "Invalid"},
		"less than it says": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", strconv.Itoa(len(good)+4))
			fmt.Fprint(w, good)
		}, ""},
		"throttled": {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTooManyRequests) }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.start(doc(1, "config: {maxPods: 20}"))
			former := b.w.Disk.Text("var/lib/kubelet/config.yaml")
			b.answer = tt.answer
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			began := len(b.waits)
			b.onWait = func(n int) {
				if n == began+5 {
					cancel()
				}
			}
			err := b.w.Once(ctx)
			if (err == nil) != (tt.status == "Invalid") || b.ran() != "" || b.w.Disk.Text("var/lib/kubelet/config.yaml") != former {
				t.Errorf("%v, ran %q", err, b.ran())
			}
			if tt.status != "" && !strings.Contains(b.node.annotations[Annotation], `"status":"`+tt.status) {
				t.Errorf("annotation %v", b.node.annotations)
			}
			b.answer, b.onWait, b.userData = nil, nil, doc(2, "config: {maxPods: 50}")
			if s := b.once(); s.Status != "Applied" || s.Generation != 2 {
				t.Errorf("the document afterwards: %+v", s)
			}
		})
	}
}

// TestTakenAway: the document that was refused is gone from the source, so nothing is refused.
func TestTakenAway(t *testing.T) {
	for name, before := range map[string]string{"Applied": doc(1, ""), "Image": ""} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			if before != "" {
				b.start(before)
			} else if err := firstboot.WriteState(b.w.Disk, firstboot.State{Status: firstboot.StatusImage}); err != nil {
				t.Fatal(err)
			}
			b.userData = "kind: Wrong\n"
			if s := b.once(); s.Status != "Invalid" {
				t.Fatalf("%+v", s)
			}
			b.userData = ""
			if s := b.once(); s.Status != name || s.Error != "" || s.Offered != nil || !strings.Contains(b.node.annotations[Annotation], `"status":"`+name) {
				t.Errorf("%+v, annotation %v", s, b.node.annotations)
			}
		})
	}
}

// TestAnnotation: whoever reads the Node's annotation learns which document was refused and why,
// and that a source cannot be read.
func TestAnnotation(t *testing.T) {
	b := newBench(t)
	b.start(doc(1, "config: {maxPods: 20}"))
	b.healthy = func() bool { return !strings.Contains(b.w.Disk.Text("var/lib/kubelet/config.yaml"), "maxPods: 99") }
	told := func() (a annotation) {
		if err := json.Unmarshal([]byte(b.node.annotations[Annotation]), &a); err != nil {
			t.Fatal(err)
		}
		return a
	}
	b.userData = doc(2, "config: {maxPods: 99}")
	b.once()
	if a := told(); a.Generation != 1 || a.Status != "RolledBack" || a.Offered == nil || a.Offered.Generation != 2 || !strings.HasPrefix(a.Offered.Hash, "sha256:") || !strings.Contains(a.Error, "not healthy") {
		t.Errorf("refused: %s", b.node.annotations[Annotation])
	}
	b.code = http.StatusForbidden
	for range 2 {
		if err := b.w.Once(t.Context()); err == nil {
			t.Fatal("a source that refuses is no error")
		}
		if a := told(); a.Generation != 1 || a.Status != "Unreadable" || !strings.Contains(a.Error, "status 403") || a.Offered != nil {
			t.Errorf("unreadable: %s", b.node.annotations[Annotation])
		}
		b.node.annotations = map[string]string{Annotation: b.node.annotations[Annotation]}
	}
	b.code = 0
	b.once()
	if a := told(); a.Status != "RolledBack" || a.Offered == nil {
		t.Errorf("readable again: %s", b.node.annotations[Annotation])
	}
	b.userData = doc(1, "config: {maxPods: 20}")
	b.once()
	if a := told(); a.Status != "Applied" || a.Offered != nil || a.Error != "" {
		t.Errorf("in force again: %s", b.node.annotations[Annotation])
	}
}

// TestKilledOnTrial: the agent died while a generation was on trial; the next one takes it back
// first.
func TestKilledOnTrial(t *testing.T) {
	b := newBench(t)
	b.start(doc(1, "config: {maxPods: 20}"))
	former := b.w.Disk.Text("var/lib/kubelet/config.yaml")
	c, err := userdata.Parse([]byte(doc(2, "config: {maxPods: 99}")))
	if err != nil {
		t.Fatal(err)
	}
	files, err := nodeconfig.Render(t.Context(), b.w.Disk, b.w.Host, c, false)
	if err != nil {
		t.Fatal(err)
	}
	if err := nodeconfig.KeepFormer(b.w.Disk, files); err != nil {
		t.Fatal(err)
	}
	if _, err := nodeconfig.Write(b.w.Disk, files); err != nil {
		t.Fatal(err)
	}
	if err := b.w.Recover(t.Context()); err != nil || b.w.Disk.Text("var/lib/kubelet/config.yaml") != former || b.w.Disk.Exists(nodeconfig.FormerPath) {
		t.Errorf("%v, configuration %s", err, b.w.Disk.Text("var/lib/kubelet/config.yaml"))
	}
	if !strings.Contains(b.ran(), "restart kubelet.service") {
		t.Errorf("ran %q", b.ran())
	}
}

// TestMachineGoesDownOnTrial: the machine is restarted during a trial, and systemd refuses a command
// before it asks the agent to stop. The document is not refused, and is in force after the restart.
func TestMachineGoesDownOnTrial(t *testing.T) {
	for _, refused := range []string{"daemon-reload", "restart kubelet.service"} {
		b := newBench(t)
		b.start(doc(1, "config: {maxPods: 20}"))
		b.userData = doc(2, "config: {maxPods: 99}")
		b.file("replies", "systemctl "+refused+"\t1\t\nsystemctl is-system-running\t1\tstopping\\n\n")
		b.w.Host = host.Recorder{Log: b.commands, Replies: filepath.Join(b.w.Disk.Dir(), "replies")}
		if s := b.once(); s.Offered != nil || s.Trial == nil || s.Trial.Stopped != 1 {
			t.Errorf("%s is refused: %+v", refused, s)
		}
		b.w.Host = host.Recorder{Log: b.commands}
		if s := b.once(); s.Status != "Applied" || s.Generation != 2 {
			t.Errorf("after the restart: %+v", s)
		}
	}
}

// TestRun: a poll a minute with jitter, back-off while IMDS fails, and far fewer requests than IMDS
// allows.
func TestRun(t *testing.T) {
	b := newBench(t)
	b.start(doc(1, ""))
	ctx, cancel := context.WithCancel(t.Context())
	b.waits, b.asked = nil, 0
	b.code = http.StatusNotFound // an absence, which is no error
	b.onWait = func(n int) {
		switch n {
		case 20:
			b.code = http.StatusBadRequest
		case 30:
			cancel()
		}
	}
	if err := b.w.Run(ctx); err != nil {
		t.Fatal(err)
	}
	different := map[time.Duration]bool{}
	for _, pause := range b.waits[:20] {
		different[pause] = true
		if pause < 48*time.Second || pause > 72*time.Second {
			t.Errorf("paused %s", pause)
		}
	}
	if len(different) < 10 || b.asked > 30 {
		t.Errorf("%d different pauses, %d requests", len(different), b.asked)
	}
	last := b.waits[len(b.waits)-1]
	if last < 12*time.Minute || last > 18*time.Minute {
		t.Errorf("after many errors paused %s", last)
	}
}
