package nodeconfig

import (
	"context"
	"encoding/base64"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"kamino.dev/kamino/agent/disk"
	"kamino.dev/kamino/agent/disk/disktest"
	"kamino.dev/kamino/agent/host"
	"kamino.dev/kamino/agent/userdata"
	"kamino.dev/kamino/internal/treefile"
)

func head(rest string) string {
	return "apiVersion: kamino.dev/v1alpha1\nkind: NodeConfig\ngeneration: 1\n" + rest
}

func TestMerge(t *testing.T) {
	d := disktest.New(t, map[string]string{KubeletConfigPath: "maxPods: 110\nevictionHard: {memory.available: 100Mi, nodefs.available: 10%}\nfeatureGates: {A: true}\n", "usr/bin/kubelet": "x"})
	c := &userdata.NodeConfig{Join: userdata.Join{Method: userdata.JoinKeep}, Cluster: userdata.Cluster{DNS: []string{"10.0.0.10"}, Domain: "c.local"},
		Kubelet: userdata.Kubelet{Config: map[string]any{"maxPods": 30, "evictionHard": map[string]any{"memory.available": "500Mi"}, "featureGates": nil}}}
	for range 2 { // from the same base each time
		files, err := Render(t.Context(), d, host.Recorder{}, c, true)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Write(d, files); err != nil {
			t.Fatal(err)
		}
	}
	var got map[string]any
	if err := yaml.Unmarshal([]byte(d.Text(KubeletConfigPath)), &got); err != nil {
		t.Fatal(err)
	}
	eviction, _ := got["evictionHard"].(map[string]any)
	if got["maxPods"] != 30 || eviction["memory.available"] != "500Mi" || eviction["nodefs.available"] != "10%" || got["featureGates"] != nil || got["clusterDomain"] != "c.local" {
		t.Errorf("merged: %v", got)
	}
}

// TestExecStart: the command line is the last one of the units as systemd reads them.
func TestExecStart(t *testing.T) {
	d := disktest.New(t, map[string]string{
		"usr/lib/systemd/system/kubelet.service":                            "[Service]\nExecStart=/usr/bin/kubelet\n",
		"usr/lib/systemd/system/kubelet.service.d/10-kubeadm.conf":          "[Service]\nExecStart=\nExecStart=/usr/bin/kubelet --of-package\n",
		"etc/systemd/system/kubelet.service.d/10-kubeadm.conf":              "[Service]\nExecStart=\nExecStart=/usr/bin/kubelet --of-operator \\\n  --v=2\n",
		"etc/systemd/system/kubelet.service.d/05-early.conf":                "[Service]\nExecStart=/x\n",
		"etc/systemd/system/kubelet.service.d/" + filepath.Base(DropInPath): "[Service]\nExecStart=/ours\n",
	})
	if got := execStart(d); !slices.Equal(got, []string{"/usr/bin/kubelet", "--of-operator", "--v=2"}) {
		t.Errorf("%q", got)
	}
}

func TestFind(t *testing.T) {
	d := disktest.New(t, map[string]string{"etc/kamino/nodeconfig.yaml": "from file\n", "empty": " \n"})
	sources := []string{"imds://userData", "file:///gone", "file:///empty", "file:///etc/kamino/nodeconfig.yaml"}
	answer := func(data string, err error) func(context.Context) ([]byte, error) {
		return func(context.Context) ([]byte, error) { return []byte(data), err }
	}
	if doc, err := Find(t.Context(), sources, d, answer("from imds", nil)); err != nil || doc.Source != sources[0] {
		t.Errorf("%+v, %v", doc, err)
	}
	if doc, err := Find(t.Context(), sources, d, answer("", nil)); err != nil || doc.Source != sources[3] {
		t.Errorf("%+v, %v", doc, err)
	}
	if _, err := Find(t.Context(), sources[:3], d, answer("", nil)); !errors.Is(err, ErrNone) {
		t.Errorf("nothing anywhere: %v", err)
	}
	if _, err := Find(t.Context(), sources, d, answer("", errors.New("slow"))); err == nil || errors.Is(err, ErrNone) {
		t.Errorf("a source that cannot be asked must not be passed over: %v", err)
	}
	if _, err := Find(t.Context(), []string{"https://x"}, d, nil); err == nil || !strings.Contains(err.Error(), "not imds://userData") {
		t.Errorf("%v", err)
	}
}

// FuzzRender: whatever comes as userData is refused with an error or becomes files without a way out
// of its unit.
func FuzzRender(f *testing.F) {
	f.Add([]byte(head("join: {method: keep}\n")))
	base, err := treefile.Read("../testdata/bases/debian12-kubeadm.txtar")
	if err != nil {
		f.Fatal(err)
	}
	ca := []byte(base.Text("etc/kubernetes/pki/ca.crt"))
	f.Add([]byte(head("cluster: {endpoint: 'https://10.0.0.1:6443', ca: " + base64.StdEncoding.EncodeToString(ca) + "}\n" +
		"join: {method: bootstrapToken, token: abcdef.0123456789abcdef}\nkubelet: {version: v1.36.3, labels: {a: b}, args: [--v=4], config: {a: {b: [1]}}}\ncontainerd: {config: 'version = 2'}\n")))
	f.Add([]byte("a: &a [*a]\n"))
	f.Add([]byte(head("join: {method: keep}\nkubelet: {config: {? [a] : b}}\n")))
	dir := f.TempDir()
	if err := errors.Join(os.MkdirAll(filepath.Join(dir, "usr/bin"), 0o755), os.WriteFile(filepath.Join(dir, "usr/bin/kubelet"), []byte("x"), 0o755)); err != nil {
		f.Fatal(err)
	}
	d, err := disk.Open(dir)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		_ = Document{Data: data}.Hash()
		c, err := userdata.Parse(data)
		if err != nil {
			return
		}
		if g := userdata.Generation(data); g != c.Generation {
			t.Errorf("generation %d of one document, and %d", c.Generation, g)
		}
		c.Kubelet.Version = "" // would be asked for on the disk
		files, err := Render(t.Context(), d, host.Recorder{}, c, false)
		if err != nil {
			return
		}
		for _, file := range files {
			if file.Path != DropInPath {
				continue
			}
			for i, line := range strings.Split(strings.TrimSpace(string(file.Data)), "\n") {
				if i > 3 || i == 3 && !strings.HasPrefix(line, "ExecStart=/usr/bin/kubelet") {
					t.Errorf("drop-in has a line %q from %q", line, data)
				}
			}
		}
	})
}

func TestGiven(t *testing.T) {
	for command, args := range map[string]map[string]bool{
		"kubelet --config=/a --v=2":        {"--config=/a": true, "--config=/b": false, "--conf=/a": false, "--cert-dir=/a": false, "--v": false},
		"kubelet --config=/a --config=/b":  {"--config=/a": false, "--config=/b": true},
		"kubelet --config=/a --config /b":  {"--config=/a": false},
		"kubelet --config=/a $MORE":        {"--config=/a": false},
		"kubelet $MORE --config=/a":        {"--config=/a": true},
		"--config=/a":                      {"--config=/a": false}, // the program itself
		"":                                 {"--config=/a": false},
		"kubelet --enable-server --node=x": {"--enable-server": false}, // its value may be the next word
	} {
		t.Run(command, func(t *testing.T) {
			for arg, want := range args {
				if got := given(strings.Fields(command), arg); got != want {
					t.Errorf("%q has %s: %v", command, arg, got)
				}
			}
		})
	}
}

// TestBootstrapKubeconfig: what a command prints is taken for a kubeconfig however it is written.
func TestBootstrapKubeconfig(t *testing.T) {
	for credential, want := range map[string]string{
		"apiVersion: v1\nkind: Config":        "",
		"apiVersion: v1\nkind: \"Config\"":    "",
		`{"apiVersion":"v1","kind":"Config"}`: "",
		`{"kind": "Config"}`:                  "",
		"# kind: Config\nkind: Secret":        "neither a token nor a kubeconfig",
		"an error: no token":                  "neither a token nor a kubeconfig",
	} {
		t.Run(credential, func(t *testing.T) {
			c := &userdata.NodeConfig{Join: userdata.Join{Method: userdata.JoinToken, Token: credential}}
			got, err := bootstrap(t.Context(), nil, nil, c)
			if want == "" && (err != nil || string(got) != credential+"\n") || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
				t.Errorf("%q, %v", got, err)
			}
		})
	}
}

// TestHash: a document is the same as long as it configures the same.
func TestHash(t *testing.T) {
	hash := func(text string) string { return Document{Data: []byte(text)}.Hash() }
	base := head("join: {method: keep}\nkubelet: {config: {maxPods: 20, share: 1}}\n")
	for _, same := range []string{"share: 10\n" + base, base + "share: 100\n", "# a comment\n" + base, base + "\n\n",
		`{"kind":"NodeConfig","apiVersion":"kamino.dev/v1alpha1","share":5,"generation":1,"kubelet":{"config":{"share":1,"maxPods":20}},"join":{"method":"keep"}}`} {
		if hash(same) != hash(base) {
			t.Errorf("another document: %s", same)
		}
	}
	seen := map[string]string{hash(base): base}
	for _, other := range []string{strings.Replace(base, "generation: 1", "generation: 2", 1), strings.Replace(base, "maxPods: 20", "maxPods: 21", 1), strings.Replace(base, "share: 1", "share: 2", 1),
		base + "x: 1\n", base + "---\n", base + "---\nx: 1\n", base + "join: {}\n", "", "text", "- a", "? [a]\n: b", "a: [", "a: .nan"} {
		if was, is := seen[hash(other)]; is {
			t.Errorf("%q is the same as %q", other, was)
		}
		seen[hash(other)] = other
	}
}
