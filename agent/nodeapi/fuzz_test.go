package nodeapi

import (
	"os"
	"testing"

	"kamino.dev/kamino/agent/disk/disktest"
)

// FuzzKubeconfig: whatever stands where kubelet's kubeconfig is, it is read or refused, and never
// read as somebody's credentials without a server to give them to.
func FuzzKubeconfig(f *testing.F) {
	d := disktest.New(f, map[string]string{"etc/kubernetes/token": "t\n", Paths[0]: ""})
	f.Add("clusters:\n- name: c\n  cluster: {server: 'https://x'}\nusers:\n- name: u\n  user: {token: x}\ncontexts:\n- name: k\n  context: {cluster: c, user: u}\ncurrent-context: k\n")
	f.Add("clusters:\n- cluster: {server: 'https://x', certificate-authority-data: eA==}\nusers:\n- user: {tokenFile: token}\n")
	f.Add("clusters: [{cluster: {server: 'x://y'}}]\nusers: [{user: {client-certificate-data: LS0t, client-key-data: LS0t}}]\n")
	f.Fuzz(func(t *testing.T, text string) {
		if err := os.WriteFile(d.Host(Paths[0]), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		c, err := Load(d)
		if err == nil && (c.Server == "" || c.Token == "" && c.leaf == nil && len(c.tls.Certificates) == 0) {
			t.Errorf("%q: credentials for %q without any", text, c.Server)
		}
		holders, err := Holders(d)
		for _, h := range holders {
			if err == nil && h.Path == "" {
				t.Errorf("%q: a holder from nowhere", text)
			}
		}
	})
}
