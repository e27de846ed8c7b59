package userdata

import (
	"fmt"
	"slices"
	"strings"
	"testing"
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
