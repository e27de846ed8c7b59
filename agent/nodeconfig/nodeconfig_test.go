package nodeconfig

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"kamino.dev/kamino/agent/disk"
	"kamino.dev/kamino/agent/disk/disktest"
	"kamino.dev/kamino/agent/host"
)

const ca = `-----BEGIN CERTIFICATE-----
MIIBgTCCASegAwIBAgIUJg5HspX3lt/y/3NdwjbkQwea4+owCgYIKoZIzj0EAwIw
FTETMBEGA1UEAwwKa3ViZXJuZXRlczAgFw0yNjExMjExMTE4MTdaGA8yMTI2MTAy
ODExMTgxN1owFTETMBEGA1UEAwwKa3ViZXJuZXRlczBZMBMGByqGSM49AgEGCCqG
SM49AwEHA0IABErORuCbr+fk9nF6aY5MhPD/z432wwVS8e51L0mXoy/Yiks8r8k6
KCoMNt7H7ZdGz57l4R/fOhpa8wbg1PP+7nCjUzBRMB0GA1UdDgQWBBTS4/xYMP1a
pEGoaPK4m45SIphBATAfBgNVHSMEGDAWgBTS4/xYMP1apEGoaPK4m45SIphBATAP
BgNVHRMBAf8EBTADAQH/MAoGCCqGSM49BAMCA0gAMEUCIDM1DTiftswCakOZ5OYF
qSoviOZ6uPsLFI4fJWMnod0DAiEA+RFGmP/5UiU+GgUUMpCo7w6Vbdmg1LC8He/N
xS0aUZE=
-----END CERTIFICATE-----`

func head(rest string) string {
	return "apiVersion: kamino.dev/v1alpha1\nkind: NodeConfig\ngeneration: 1\n" + rest
}

var cluster = "cluster:\n  endpoint: https://10.0.0.1:6443\n  ca: |\n    " + strings.ReplaceAll(ca, "\n", "\n    ") + "\n"

func TestParse(t *testing.T) {
	keep := head("join: {method: keep}\n")
	token := "join: {method: bootstrapToken, token: abcdef.0123456789abcdef}\n"
	for text, want := range map[string]string{
		keep:                  "",
		head(cluster + token): "",
		head(cluster + "join: {method: file, file: /opt/t}\n"):                                                                                       "",
		head(cluster + "join: {method: command, command: [/opt/t, -x]}\n"):                                                                           "",
		keep + "kubelet: {labels: {a/b: c, node.kubernetes.io/x: y}, taints: [{key: a, effect: NoExecute}], args: [--v=4], version: v1.36.3-rc.1}\n": "",
		"":                          "the document is empty",
		keep + "surprise: 1\n":      "line 5: unknown field surprise",
		keep + "---\n" + keep:       "more than one document",
		"\xff\xfe":                  "not UTF-8",
		strings.Repeat("#", Most+1): "65537 bytes are more than 65536",
		strings.Replace(keep, "v1alpha1", "v2", 1):                 `"kamino.dev/v2"`,
		strings.Replace(keep, "generation: 1", "generation: 0", 1): "generation: 0 is not positive",
		keep + "share: 0\n":             "",
		keep + "share: 100\n":           "",
		keep + "share: 101\n":           "share: 101 is not a percentage",
		keep + "share: -1\n":            "share: -1 is not a percentage",
		keep + "share: some\n":          "line 5",
		head(""):                        `join.method: "" is not one of keep`,
		head("join: {method: token}\n"): "join.method",
		head("join: {method: keep, token: abcdef.0123456789abcdef}\n"):    "join.token: belongs to method bootstrapToken",
		head(cluster + "join: {method: bootstrapToken}\n"):                "join.token: required",
		head(cluster + "join: {method: bootstrapToken, token: secret}\n"): "join.token: not of the form",
		head(cluster + "join: {method: file, file: ../t}\n"):              "join.file",
		head(cluster + "join: {method: command, command: [get]}\n"):       "join.command[0]",
		head(token): `cluster.endpoint: ""`,
		head("cluster: {endpoint: 'http://x', ca: x}\n" + token):                    "cluster.endpoint",
		head("cluster: {endpoint: 'https://u:p@x', ca: x}\n" + token):               "cluster.endpoint",
		head("cluster: {endpoint: 'https://x', ca: '!'}\n" + token):                 "cluster.ca: neither PEM nor",
		head("cluster: {endpoint: 'https://x', ca: eA==}\n" + token):                "cluster.ca: no certificate",
		head(strings.ReplaceAll(cluster, "CERTIFICATE", "PRIVATE KEY") + token):     "cluster.ca: contains a PRIVATE KEY",
		head("cluster: {dns: [here]}\njoin: {method: keep}\n"):                      "cluster.dns[0]",
		head("cluster: {domain: Cluster_Local}\njoin: {method: keep}\n"):            "cluster.domain",
		keep + "kubelet: {version: latest}\n":                                       "kubelet.version",
		keep + "kubelet: {config: {clusterDNS: [1.2.3.4]}}\n":                       "kubelet.config.clusterDNS: not allowed here; write cluster.dns",
		keep + "kubelet: {config: {providerID: x}}\n":                               "kubelet.config.providerID",
		keep + "kubelet: {args: ['--a=b c']}\n":                                     "kubelet.args[0]",
		keep + "kubelet: {args: ['--x=$(reboot)']}\n":                               "kubelet.args[0]",
		keep + "kubelet: {args: [--kubeconfig=/x]}\n":                               "kubelet.args[0]: --kubeconfig is the agent's",
		keep + "kubelet: {labels: {node-role.kubernetes.io/master: ''}}\n":          "may not set this label",
		keep + "kubelet: {labels: {'a b': c}}\n":                                    "kubelet.labels",
		keep + "kubelet: {labels: {a: 'b c'}}\n":                                    "kubelet.labels: value",
		keep + "kubelet: {taints: [{key: a, effect: NoWay}]}\n":                     "kubelet.taints[0].effect",
		keep + "kubelet: {taints: [{key: '', effect: NoSchedule}]}\n":               "kubelet.taints[0].key",
		keep + "kubelet: {taints: [{key: a, value: 'x\"y', effect: NoSchedule}]}\n": "kubelet.taints[0].value",
		keep + "kubelet: {labels: [a]}\n":                                           "line 5",
	} {
		t.Run(text, func(t *testing.T) {
			c, err := Parse([]byte(text))
			switch {
			case want == "" && (err != nil || c == nil):
				t.Errorf("%q: %v", text, err)
			case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
				t.Errorf("%q: %v, want %q", text, err, want)
			}
		})
	}
}

// TestOneError: of several mistakes always the same one is told. A node that reads the document
// again every minute would else report another one each time.
func TestOneError(t *testing.T) {
	for text, want := range map[string]string{
		"join: {method: keep, command: [/x], file: /x, token: x}\n":                                     "join.token",
		"join: {method: keep}\nkubelet: {labels: {a: 'b c', b: 'b c', c: 'b c'}}\n":                     `value "b c" of a`,
		"join: {method: keep}\nkubelet: {config: {providerID: x, clusterDNS: [x], clusterDomain: x}}\n": "kubelet.config.providerID",
	} {
		for range 50 {
			if _, err := Parse([]byte(head(text))); err == nil || !strings.Contains(err.Error(), want) {
				t.Fatalf("%s: %v, want one about %q", text, err, want)
			}
		}
	}
}

func TestMerge(t *testing.T) {
	d := disktest.New(t, map[string]string{KubeletConfigPath: "maxPods: 110\nevictionHard: {memory.available: 100Mi, nodefs.available: 10%}\nfeatureGates: {A: true}\n", "usr/bin/kubelet": "x"})
	c := &NodeConfig{Join: Join{Method: JoinKeep}, Cluster: Cluster{DNS: []string{"10.0.0.10"}, Domain: "c.local"},
		Kubelet: Kubelet{Config: map[string]any{"maxPods": 30, "evictionHard": map[string]any{"memory.available": "500Mi"}, "featureGates": nil}}}
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

// FuzzParse: whatever comes as userData is refused with an error or becomes files without a way out
// of its unit.
func FuzzParse(f *testing.F) {
	f.Add([]byte(head("join: {method: keep}\n")))
	f.Add([]byte(head(cluster + "join: {method: bootstrapToken, token: abcdef.0123456789abcdef}\nkubelet: {version: v1.36.3, labels: {a: b}, args: [--v=4], config: {a: {b: [1]}}}\ncontainerd: {config: 'version = 2'}\n")))
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
		c, err := Parse(data)
		if err != nil {
			return
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
			c := &NodeConfig{Join: Join{Method: JoinToken, Token: credential}}
			got, err := c.bootstrap(t.Context(), nil, nil)
			if want == "" && (err != nil || string(got) != credential+"\n") || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
				t.Errorf("%q, %v", got, err)
			}
		})
	}
}

// TestTakes: a share is about that part of the nodes, grows by nodes only, and begins elsewhere with
// each generation.
func TestTakes(t *testing.T) {
	in := func(generation int64, share int) (names []string) {
		for i := range 1000 {
			name := fmt.Sprintf("k8s-pool1-28346-vmss%06d", i)
			if c := (&NodeConfig{Generation: generation, Share: &share}); c.Takes(name) {
				names = append(names, name)
			}
		}
		return names
	}
	var last []string
	for _, share := range []int{0, 1, 10, 50, 99, 100} {
		names := in(7, share)
		if len(names) < share*10-60 || len(names) > share*10+60 || share%100 == 0 && len(names) != share*10 {
			t.Errorf("%d of 1000 nodes are in a share of %d %%", len(names), share)
		}
		for _, name := range last {
			if !slices.Contains(names, name) {
				t.Errorf("%s is in a smaller share than %d", name, share)
			}
		}
		last = names
	}
	if other := in(8, 10); slices.Equal(in(7, 10), other) {
		t.Error("two generations begin with the same nodes")
	}
	if !(&NodeConfig{Generation: 1}).Takes("n") {
		t.Error("a document without a share is for all")
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
