package agent_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// kubeconfigOf is a kubeconfig with a certificate of that subject, and its key.
func kubeconfigOf(t *testing.T, subject pkix.Name) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: subject, NotAfter: time.Now().Add(time.Hour)}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	text := func(kind string, der []byte) string {
		return base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
	}
	ca := text("CERTIFICATE", cert)
	return fmt.Sprintf("apiVersion: v1\nkind: Config\nclusters:\n- name: c\n  cluster: {server: 'https://10.0.0.1:6443', certificate-authority-data: %s}\n"+
		"users:\n- name: u\n  user: {client-certificate-data: %s, client-key-data: %s}\ncontexts:\n- name: x\n  context: {cluster: c, user: u}\ncurrent-context: x\n",
		ca, ca, text("EC PRIVATE KEY", der))
}

// TestWhoseCredentialTravels: only what somebody said may, and never the node's own.
func TestWhoseCredentialTravels(t *testing.T) {
	node := pkix.Name{CommonName: "system:node:n1", Organization: []string{"system:nodes"}}
	admin := pkix.Name{CommonName: "kubernetes-admin", Organization: []string{"system:masters"}}
	pool := pkix.Name{CommonName: "client", Organization: []string{"system:masters"}}
	const head = "apiVersion: kamino.dev/v1alpha1\nkind: SealConfig\n"
	const disk = "/etc/kamino/seal.yaml"
	for _, c := range []struct {
		about        string
		first, other pkix.Name
		own, policy  string
		code         int
		says         string
		travels      bool
	}{
		{"nobody said anything, the node's own", node, node, "", "", 0, "", false},
		{"an administrator's", admin, admin, "", "", 1, "CN=kubernetes-admin,O=system:masters", false},
		{"an administrator's, under a policy", admin, admin, "", head + "verify: {unknown: report}\n", 1, "Use join: keep", false},
		{"a person's", pkix.Name{CommonName: "jane@corp.example", Organization: []string{"sre"}}, node, "", "", 1, "CN=jane@corp.example", false},
		{"the pool's, said to stay", pool, pool, head + "join: keep\n", "", 0, "", true},
		{"the pool's, the policy says so", pool, pool, "", head + "join: keep\nverify: {unknown: report}\n", 0, "", true},
		{"the pool's, the disk says so beside a policy", pool, pool, head + "join: keep\n", head + "verify: {unknown: report}\n", 1, "only stricter", false},
		{"the node's own, said to stay", node, node, head + "join: keep\n", "", 1, "is this node's own (CN=system:node:n1", false},
		{"the node's own beside the pool's, said to stay", pool, node, head + "join: keep\n", "", 1, "var/lib/kubelet/kubeconfig is this node's own", false},
		{"the pool's, said to go", pool, pool, head + "join: fresh\n", "", 0, "", false},
	} {
		t.Run(c.about, func(t *testing.T) {
			root := filepath.Join(t.TempDir(), "root")
			for name, text := range map[string]string{"etc/hostname": "n1\n", "etc/machine-id": "0123456789abcdef0123456789abcdef\n",
				"etc/kubernetes/kubelet.conf": kubeconfigOf(t, c.first), "var/lib/kubelet/kubeconfig": kubeconfigOf(t, c.other), "etc/kubernetes/azure.json": `{"aadClientSecret":"0123456789abcdefghij"}`} {
				writeFile(t, filepath.Join(root, name), text)
			}
			args := []string{"seal", "--root", root, "--run", "r1", "--no-install", "--free-space", "none", "--imds", "http://127.0.0.1:1"}
			if c.own != "" {
				writeFile(t, root+disk, c.own)
			}
			if c.policy != "" {
				policy := filepath.Join(t.TempDir(), "policy.yaml")
				writeFile(t, policy, c.policy)
				args = append(args, "--policy", policy)
			}
			out, code := agentRun(t, args...)
			data, _ := os.ReadFile(filepath.Join(root, "etc/kubernetes/kubelet.conf"))
			travels := code == 0 && strings.Contains(string(data), "client-key-data")
			if code != c.code || !strings.Contains(out, c.says) || travels != c.travels {
				t.Errorf("%s: exit code %d, travels %v: %s", c.about, code, travels, out)
			}
		})
	}
}

// TestWhoseCredentialElsewhere: the credential of a kubelet with another root is looked at as one in
// the usual place.
func TestWhoseCredentialElsewhere(t *testing.T) {
	node := pkix.Name{CommonName: "system:node:n1", Organization: []string{"system:nodes"}}
	pool := pkix.Name{CommonName: "client", Organization: []string{"system:masters"}}
	for _, c := range []struct {
		about, join string
		subject     pkix.Name
		code        int
		says        string
		travels     bool
	}{
		{"the node's own, said to stay", "keep", node, 1, "data/kubelet/kubeconfig is this node's own", false},
		{"the node's own, nobody said anything", "auto", node, 0, "", false},
		{"the pool's, said to stay", "keep", pool, 0, "", true},
		{"the pool's, nobody said anything", "auto", pool, 1, "the credential in /data/kubelet/kubeconfig is not this node's own", false},
	} {
		t.Run(c.about, func(t *testing.T) {
			root := filepath.Join(t.TempDir(), "root")
			for name, text := range map[string]string{"etc/hostname": "n1\n", "etc/machine-id": "0123456789abcdef0123456789abcdef\n",
				"etc/default/kubelet": "KUBELET_EXTRA_ARGS=--root-dir=/data/kubelet\n", "data/kubelet/kubeconfig": kubeconfigOf(t, c.subject)} {
				writeFile(t, filepath.Join(root, name), text)
			}
			out, code := agentRun(t, "seal", "--root", root, "--run", "r1", "--no-install", "--free-space", "none", "--imds", "http://127.0.0.1:1", "--join", c.join)
			_, err := os.Stat(filepath.Join(root, "data/kubelet/kubeconfig"))
			if travels := code == 0 && err == nil; code != c.code || !strings.Contains(out, c.says) || travels != c.travels {
				t.Errorf("exit code %d, travels %v: %s", code, travels, out)
			}
		})
	}
}
