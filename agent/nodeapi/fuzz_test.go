package nodeapi

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"testing"
	"time"

	"kamino.dev/kamino/agent/disk/disktest"
	"kamino.dev/kamino/agent/userdata"
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

// FuzzAnswers: whatever answers for the API server, the node is read and its taints are set, or an error tells why not.
func FuzzAnswers(f *testing.F) {
	f.Add([]byte(`{"metadata":{"resourceVersion":"1"},"spec":{"taints":[{"key":"a","effect":"NoSchedule"}]}}`), 200)
	f.Add([]byte(`{"kind":"Status","message":"no\nway"}`), 403)
	f.Add([]byte(`{"spec":{"taints":[null,{"key":{}}]}}`), 409)
	f.Fuzz(func(t *testing.T, body []byte, code int) {
		if code < 200 || code > 599 {
			return
		}
		c := &Client{server: "https://a.invalid", node: "n", wait: func(context.Context, time.Duration) error { return errors.New("ended") },
			http: &http.Client{Transport: replies{code, body}, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}}
		_ = c.Taint(t.Context(), []userdata.Taint{{Key: "a", Effect: "NoSchedule"}}, nil)
		_ = c.Reach(t.Context())
		_, _ = c.Ready(t.Context())
		_ = c.Annotate(t.Context(), map[string]string{"a": "b"})
	})
}

type replies struct {
	code int
	body []byte
}

func (a replies) RoundTrip(r *http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: a.code, Header: http.Header{}, Request: r, Body: io.NopCloser(bytes.NewReader(a.body))}, nil
}
