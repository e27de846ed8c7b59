package agent

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
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
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"kamino.dev/kamino/agent/disk"
	"kamino.dev/kamino/agent/host"
	"kamino.dev/kamino/agent/nodeapi"
	"kamino.dev/kamino/agent/seal"
	"kamino.dev/kamino/internal/treefile"
)

// apiServer is one that keeps what it is told, in one list with the commands of the host.
func apiServer(t *testing.T, code int) (client *nodeapi.Client, h host.Host, events func() string) {
	t.Helper()
	log := filepath.Join(t.TempDir(), "events")
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		f, err := os.OpenFile(log, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
		if err == nil {
			_, err = f.Write(append(body, '\n'))
			err = errors.Join(err, f.Close())
		}
		if err != nil {
			t.Error(err)
		}
		w.WriteHeader(code)
	}))
	t.Cleanup(s.Close)
	ca := base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}))
	d, err := disk.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	kubeconfig := "clusters:\n- cluster: {server: '" + s.URL + "', certificate-authority-data: " + ca + "}\nusers:\n- user: {token: x}\n"
	if err := d.WriteFile(nodeapi.Paths[0], []byte(kubeconfig), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := nodeapi.Load(d)
	if err != nil {
		t.Fatal(err)
	}
	if client, err = c.Client(t.Context(), "n1", func(ctx context.Context, _ time.Duration) error { return ctx.Err() }); err != nil {
		t.Fatal(err)
	}
	return client, host.Recorder{Log: log}, func() string {
		data, _ := os.ReadFile(log)
		return string(data)
	}
}

func verbFor(t *testing.T) *sealVerb {
	t.Helper()
	return &sealVerb{env: &env{out: new(bytes.Buffer), err: new(bytes.Buffer), log: slog.New(slog.DiscardHandler)}, run: "r1", powerOff: true}
}

func emptyDisk(t *testing.T) *disk.Disk {
	t.Helper()
	d, err := disk.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	return d
}

// TestPackagesBeforeReceipt: the list of packages, which fits, is on the Node before the receipt,
// and repeats the nonce.
func TestPackagesBeforeReceipt(t *testing.T) {
	node, h, events := apiServer(t, http.StatusOK)
	d := emptyDisk(t)
	var status strings.Builder
	for i := range 900 {
		fmt.Fprintf(&status, "Package: package-%d\nStatus: install ok installed\nArchitecture: amd64\nVersion: 1:%d.%d-%d+deb12u1\n\n", i*7919, i, i*i, i%7)
	}
	if err := d.WriteFile("var/lib/dpkg/status", []byte(status.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := verbFor(t).finish(t.Context(), d, h, node, seal.Receipt{Run: "r1", Nonce: "n0nce", Hash: "sha256:1"}); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(events()), "\n")
	if len(lines) != 3 || !strings.Contains(lines[1], "kamino.dev/receipt") || lines[2] != "poweroff" {
		t.Fatalf("%q", lines)
	}
	var patch struct {
		Metadata struct{ Annotations map[string]string }
	}
	var told packageList
	if err := errors.Join(json.Unmarshal([]byte(lines[0]), &patch), json.Unmarshal([]byte(patch.Metadata.Annotations[packagesAnnotation]), &told)); err != nil {
		t.Fatal(err)
	}
	z, err := gzip.NewReader(bytes.NewReader(told.List))
	if err != nil {
		t.Fatal(err)
	}
	list, err := io.ReadAll(z)
	sum := sha256.Sum256(list)
	if err != nil || hex.EncodeToString(sum[:]) != told.PackageDigest || told.PackageCount != 900 || told.Run != "r1" || told.Nonce != "n0nce" {
		t.Errorf("%d bytes, %+v, %v", len(list), told.Facts, err)
	}
	if _, err := listPackages(emptyDisk(t), "r1", "n"); err == nil {
		t.Error("a disk without packages has a list")
	}
}

// TestReceiptBeforePower: the receipt is on the Node, without its rules, before the machine goes
// off.
func TestReceiptBeforePower(t *testing.T) {
	node, h, events := apiServer(t, http.StatusOK)
	r := seal.Receipt{Run: "r1", Hash: "sha256:1", Rules: []seal.RuleCount{{ID: "a"}, {ID: "b"}}}
	if err := verbFor(t).finish(t.Context(), emptyDisk(t), h, node, r); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(events()), "\n")
	if len(lines) != 2 || lines[1] != "poweroff" || !strings.Contains(lines[0], `\"run\":\"r1\"`) || !strings.Contains(lines[0], `\"ruleCount\":2`) ||
		!strings.Contains(lines[0], `"kamino.dev/seal-failure":null`) || strings.Contains(lines[0], `\"rules\"`) {
		t.Errorf("%q", lines)
	}
}

// TestNobodyIsTold: a sealed machine has no identity to run under, so it goes off all the same, and
// says what to do.
func TestNobodyIsTold(t *testing.T) {
	node, h, events := apiServer(t, http.StatusNotFound)
	err := verbFor(t).finish(t.Context(), emptyDisk(t), h, node, seal.Receipt{Run: "r1"})
	if err == nil || !strings.Contains(err.Error(), "comes back as the first clone") || !strings.HasSuffix(events(), "poweroff\n") {
		t.Errorf("%v after %q", err, events())
	}
}

func TestFailureIsTold(t *testing.T) {
	node, _, events := apiServer(t, http.StatusOK)
	verbFor(t).tell(t.Context(), node, errors.New("no space left on "+strings.Repeat("x", 5000)))
	got := events()
	if !strings.Contains(got, `"kamino.dev/seal-failure":"{\"error\":\"no space left on xxx`) || !strings.Contains(got, `\"run\":\"r1\"`) || len(got) > 2200 {
		t.Errorf("%d bytes: %.200s", len(got), got)
	}
}

func TestUsage(t *testing.T) {
	for line, want := range map[string]struct {
		code int
		text string
	}{
		"":                 {0, "Usage: kamino-agent VERB"},
		"help":             {0, "in-place"},
		"version":          {0, "dev"},
		"sael":             {2, `unknown verb "sael"`},
		"seal -h":          {0, "-free-space"},
		"unseal extra":     {2, `kamino-agent unseal: unexpected argument "extra"; kamino-agent unseal -h`},
		"boot --nothing":   {2, "flag provided but not defined"},
		"unseal --root /x": {1, "open root /x: no such file or directory; give the directory"},
		"watch --imds x y": {2, "not of the form http://HOST"},
		"boot --imds ::":   {2, "not of the form http://HOST"},
		"rules":            {0, "kubelet-pki"},
		// What only tests may do is not in the program.
		"seal --omit-rule ssh-host-keys": {2, "flag provided but not defined"},
		"seal --interrupt-after logs":    {2, "flag provided but not defined"},
		// Neither does --detach begin what it would not carry on.
		"seal --run r1 --detach --dry-run":    {1, "exclude each other"},
		"seal --run r1 --detach --no-install": {1, "exclude each other"},
		"seal --run r1 --detach -o json":      {1, "exclude each other"},
	} {
		t.Run(line, func(t *testing.T) {
			var out bytes.Buffer
			args := strings.Fields(line)
			if strings.HasPrefix(line, "seal --run") {
				args = append(args, "--root", t.TempDir())
			}
			code := Main(t.Context(), args, &out, &out)
			text := strings.ReplaceAll(out.String(), "apply new configurations in place", "in-place")
			if code != want.code || !strings.Contains(text, want.text) {
				t.Errorf("%q: exit code %d, want %d: %s", line, code, want.code, out.String())
			}
		})
	}
}

// donor is a node's disk of its own, and the commands that its host is given.
func donor(t *testing.T) (*disk.Disk, host.Recorder) {
	t.Helper()
	root := filepath.Join(t.TempDir(), "root")
	tree, err := treefile.Read("testdata/bases/debian12-kubeadm.txtar")
	if err := errors.Join(err, tree.Unpack(root)); err != nil {
		t.Fatal(err)
	}
	d, err := disk.Open(root)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	return d, host.Recorder{Log: filepath.Join(filepath.Dir(root), "commands")}
}

// TestStuckBehindTheReceipt: what fails when the receipt is written starts nothing again: the
// machine goes off, and its boot mends it. A mount that appears among what was set aside cannot be
// removed by anybody.
func TestStuckBehindTheReceipt(t *testing.T) {
	d, h := donor(t)
	stuck := d.Host("var/lib/kamino/aside/stuck")
	if err := os.MkdirAll(stuck, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mount("none", stuck, "tmpfs", 0, "size=64k"); err != nil {
		t.Fatal(err) // needs root, as the seal itself
	}
	mounted := true
	t.Cleanup(func() {
		if mounted {
			_ = syscall.Unmount(stuck, syscall.MNT_DETACH)
		}
	})
	v := verbFor(t)
	v.noAgent, v.free, v.donor = true, seal.FreeNone, "n1"
	err := v.seal(t.Context(), d, h)
	commands, rerr := os.ReadFile(h.Log)
	if err == nil || rerr != nil || !d.Exists(seal.ReceiptPath) {
		t.Fatalf("not stuck behind the receipt: %v, %v", err, rerr)
	}
	if strings.Contains(string(commands), "systemctl start") || !strings.HasSuffix(string(commands), "poweroff\n") {
		t.Errorf("on a sealed disk:\n%s", commands)
	}
	if err := syscall.Unmount(stuck, 0); err != nil {
		t.Fatal(err)
	}
	mounted = false
	if left, err := seal.Mend(d); err != nil || len(left) > 0 || d.Exists("var/lib/kamino/aside") {
		t.Errorf("the boot does not mend it: %v, %v", left, err)
	}
}

// afterScan is a log whose first warning, which a scan gives of a fact that it could not look for,
// does something.
type afterScan struct {
	slog.Handler
	once *sync.Once
	do   func()
}

func (a afterScan) Enabled(context.Context, slog.Level) bool { return true }

func (a afterScan) Handle(_ context.Context, r slog.Record) error {
	if r.Message == "skipped" {
		a.once.Do(a.do)
	}
	return nil
}

// TestWrittenSinceTheScan: what a process that was not stopped writes between the scan and the end
// is found before the receipt is told: the machine goes off without it.
func TestWrittenSinceTheScan(t *testing.T) {
	d, h := donor(t)
	v := verbFor(t)
	v.noAgent, v.free, v.donor, v.host = true, seal.FreeNone, "n1", "ab" // too short a name to look for
	v.log = slog.New(afterScan{slog.DiscardHandler, new(sync.Once), func() {
		if err := d.WriteFile("home/u/.bash_history", []byte("curl -H 'Authorization: Bearer 0123456789abcdef0123456789abcdef'\n"), 0o600); err != nil {
			t.Error(err)
		}
	}})
	err := v.seal(t.Context(), d, h)
	commands, rerr := os.ReadFile(h.Log)
	if rerr != nil || !d.Exists("home/u/.bash_history") || !d.Exists(seal.ReceiptPath) {
		t.Fatalf("nothing was written to a sealed disk: %v, %v", err, rerr)
	}
	if err == nil || !strings.Contains(err.Error(), ".bash_history") || strings.Contains(string(commands), "systemctl start") || !strings.HasSuffix(string(commands), "poweroff\n") {
		t.Errorf("%v, after\n%s", err, commands)
	}
}

// TestNoLeverInTheProgram: the environment has no say in whether commands are executed, and where
// they are written.
func TestNoLeverInTheProgram(t *testing.T) {
	log := filepath.Join(t.TempDir(), "commands")
	t.Setenv("KAMINO_COMMANDS_LOG", log)
	d, _ := donor(t)
	var out bytes.Buffer
	if code := Main(t.Context(), []string{"seal", "--root", d.Dir(), "--run", "r1", "--donor", "n1", "--no-install", "--free-space", "none"}, &out, &out); code != 0 {
		t.Fatalf("exit code %d: %s", code, out.String())
	}
	if data, err := os.ReadFile(log); err == nil {
		t.Errorf("commands were written to the environment's file:\n%s", data)
	}
}

// TestDetachCarriesEverything: what the seal pod was told, the host's unit is told as well.
func TestDetachCarriesEverything(t *testing.T) {
	d, h := donor(t)
	config := filepath.Join(t.TempDir(), "seal.yaml")
	if err := os.WriteFile(config, []byte("apiVersion: kamino.dev/v1alpha1\nkind: SealConfig\nsources: [file:///etc/kamino/nodeconfig.yaml]\n"+
		"rules:\n- {id: ours, paths: [/srv/ours], action: remove, why: ours}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	nodeConfig := "apiVersion: kamino.dev/v1alpha1\nkind: NodeConfig\ngeneration: 1\ncluster:\n  endpoint: https://10.0.0.1:6443\n  ca: |\n    " +
		strings.ReplaceAll(d.Text("etc/kubernetes/pki/ca.crt"), "\n", "\n    ") + "\njoin: {method: file, file: /opt/join/token}\n"
	if err := d.WriteFile("etc/kamino/nodeconfig.yaml", []byte(nodeConfig), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("KAMINO_SEAL_NONCE", "n0nce")
	var out bytes.Buffer
	args := []string{"seal", "--host-root", d.Dir(), "--run", "r1", "--donor", "n1", "--detach", "--poweroff", "--config", config, "--host-name", "donor-7",
		"--addresses", "10.0.0.4,10.0.0.5", "--join", "fresh", "--free-space", "trim", "--imds", "http://127.0.0.1:9", "--wireserver", "http://127.0.0.1:8", "--imds-timeout", "3s"}
	if code := MainOn(t.Context(), h, args, &out, &out); code != 0 {
		t.Fatalf("exit code %d: %s", code, out.String())
	}
	commands, err := os.ReadFile(h.Log)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"--root=/ ", "--run=r1", "--donor=n1", "--poweroff", "--config=/run/kamino/seal-r1.yaml", "--host-name=donor-7", "--addresses=10.0.0.4,10.0.0.5",
		"--join=fresh", "--free-space=trim", "--imds=http://127.0.0.1:9", "--wireserver=http://127.0.0.1:8", "--imds-timeout=3s", "--nonce=n0nce"} {
		if !strings.Contains(string(commands), want) {
			t.Errorf("%s is not carried:\n%s", want, commands)
		}
	}
	if got := d.Text("run/kamino/seal-r1.yaml"); !strings.Contains(got, "id: ours") {
		t.Errorf("the configuration is not at the host: %q", got)
	}
}

// TestUserDataExecutesNothing: to look at a configuration is not to run it.
func TestUserDataExecutesNothing(t *testing.T) {
	d, h := donor(t)
	ca := d.Text("etc/kubernetes/pki/ca.crt")
	file := filepath.Join(t.TempDir(), "nodeconfig.yaml")
	text := "apiVersion: kamino.dev/v1alpha1\nkind: NodeConfig\ngeneration: 1\ncluster:\n  endpoint: https://10.0.0.1:6443\n  ca: |\n    " +
		strings.ReplaceAll(ca, "\n", "\n    ") + "\njoin: {method: command, command: [/bin/touch, /PWNED]}\nkubelet: {version: v1.36.0}\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args, runs, says string
		code             int
	}{
		{"", "", "not executed without --run: /bin/touch /PWNED", 0},
		{"--run", "/bin/touch /PWNED\n", "join method command gave an empty credential", 1},
	} {
		t.Run(c.args, func(t *testing.T) {
			_ = os.Remove(h.Log) // of the turn before
			var out bytes.Buffer
			code := MainOn(t.Context(), h, append([]string{"userdata", "--root", d.Dir(), "--file", file}, strings.Fields(c.args)...), &out, &out)
			commands, _ := os.ReadFile(h.Log)
			if string(commands) != c.runs || code != c.code || !strings.Contains(out.String(), c.says) {
				t.Errorf("userdata %s: exit code %d, ran %q:\n%s", c.args, code, commands, out.String())
			}
		})
	}
}
