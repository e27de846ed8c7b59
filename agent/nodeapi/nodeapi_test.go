package nodeapi

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"kamino.dev/kamino/agent/disk/disktest"
	"kamino.dev/kamino/agent/userdata"
)

func pair(t *testing.T, name string, organizations ...string) (cert, key []byte) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name, Organization: organizations},
		NotAfter: time.Now().Add(time.Hour), ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := x509.MarshalECPrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: raw})
}

func config(server, cluster, user string) string {
	return fmt.Sprintf("apiVersion: v1\nkind: Config\nclusters:\n- name: other\n  cluster: {server: 'https://wrong'}\n- name: c\n  cluster: {server: '%s', %s}\n"+
		"users:\n- name: u\n  user: {%s}\ncontexts:\n- name: x\n  context: {cluster: c, user: u}\ncurrent-context: x\n", server, cluster, user)
}

func TestLoad(t *testing.T) {
	nodeCert, nodeKey := pair(t, "system:node:n1", "system:nodes")
	poolCert, poolKey := pair(t, "client", "system:masters")
	const server = "https://10.0.0.1:6443"
	inline := func(cert, key []byte) string {
		return "client-certificate-data: " + base64.StdEncoding.EncodeToString(cert) + ", client-key-data: " + base64.StdEncoding.EncodeToString(key)
	}
	for name, c := range map[string]struct {
		files map[string]string
		want  string
	}{
		"inline":            {map[string]string{Paths[0]: config(server, "", inline(nodeCert, nodeKey))}, ""},
		"another's":         {map[string]string{Paths[1]: config(server, "", inline(poolCert, poolKey))}, ""},
		"files, relative":   {map[string]string{Paths[0]: config(server, "", "client-certificate: n.pem, client-key: /etc/kubernetes/n.pem"), "etc/kubernetes/n.pem": string(nodeCert) + string(nodeKey)}, ""},
		"token file":        {map[string]string{Paths[0]: config(server, "", "tokenFile: /t"), "t": "abc\n"}, ""},
		"first that exists": {map[string]string{Paths[0]: config(server, "", inline(nodeCert, nodeKey)), Paths[1]: "broken"}, ""},
		"none":              {nil, "no kubeconfig at /etc/kubernetes/kubelet.conf"},
		"nothing in it":     {map[string]string{Paths[0]: config(server, "", "")}, "neither a client certificate nor a token"},
		"missing file":      {map[string]string{Paths[0]: config(server, "", "client-certificate: /gone, client-key: /gone")}, "client-certificate"},
		"bad CA":            {map[string]string{Paths[0]: config(server, "certificate-authority-data: eA==", "token: x")}, "no certificate in it"},
		"no server":         {map[string]string{Paths[0]: config("here", "", "token: x")}, "is not a URL"},
		"no YAML":           {map[string]string{Paths[0]: "{{{"}, "decode"},
		"empty":             {map[string]string{Paths[0]: "kind: Config\n"}, "no cluster or no user"},
	} {
		t.Run(name, func(t *testing.T) {
			c, want := c, c.want
			got, err := Load(disktest.New(t, c.files))
			if want != "" {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("%s: %v, want %q", name, err, want)
				}
				return
			}
			if err != nil || got.Server != server {
				t.Errorf("%s: %+v, %v", name, got, err)
			}
		})
	}
}

// apiServer answers like one with a single node.
type apiServer struct {
	node     map[string]any
	requests []string
	answers  []int // codes other than 200, one a request, then none
	version  int
}

func (a *apiServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	a.requests = append(a.requests, fmt.Sprintf("%s %s %s %s", r.Method, r.URL.Path, r.Header.Get("Content-Type"), body))
	if len(a.answers) > 0 {
		code := a.answers[0]
		if a.answers = a.answers[1:]; code != 0 {
			w.WriteHeader(code)
			_, _ = io.WriteString(w, `{"kind":"Status","message":"told to answer `+http.StatusText(code)+`"}`) // the client reads it or not
			return
		}
	}
	if r.Header.Get("Authorization") != "Bearer secret" {
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	if r.Method == http.MethodPatch {
		var patch map[string]any
		if err := json.Unmarshal(body, &patch); err != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		meta, _ := patch["metadata"].(map[string]any)
		if v, ok := meta["resourceVersion"]; ok && v != fmt.Sprint(a.version) {
			w.WriteHeader(http.StatusConflict)
			return
		}
		delete(meta, "resourceVersion")
		merge(a.node, patch)
		a.version++
	}
	a.node["metadata"].(map[string]any)["resourceVersion"] = fmt.Sprint(a.version)
	_ = json.NewEncoder(w).Encode(a.node) // the client reads it or not
}

func merge(into, patch map[string]any) {
	for k, v := range patch {
		inner, isMap := v.(map[string]any)
		former, was := into[k].(map[string]any)
		switch {
		case v == nil:
			delete(into, k)
		case isMap && was:
			merge(former, inner)
		default:
			into[k] = v
		}
	}
}

func serve(t *testing.T, a *apiServer) *Client {
	t.Helper()
	s := httptest.NewTLSServer(a)
	t.Cleanup(s.Close)
	ca := base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}))
	c, err := Load(disktest.New(t, map[string]string{Paths[0]: config(s.URL, "tls-server-name: example.com, certificate-authority-data: "+ca, "token: secret")}))
	if err != nil {
		t.Fatal(err)
	}
	client, err := c.Client(t.Context(), "n1", func(ctx context.Context, _ time.Duration) error { return ctx.Err() })
	if err != nil {
		t.Fatal(err)
	}
	return client
}

func TestChanges(t *testing.T) {
	a := &apiServer{node: map[string]any{"metadata": map[string]any{"annotations": map[string]any{"theirs": "x", "old": "y"}, "labels": map[string]any{"gone": "1"}},
		"spec": map[string]any{"taints": []any{map[string]any{"key": "theirs", "effect": "NoSchedule"}, map[string]any{"key": "a", "value": "1", "effect": "NoSchedule"}, map[string]any{"key": "b", "effect": "NoExecute"}}}}}
	c := serve(t, a)
	if err := errors.Join(c.Annotate(t.Context(), map[string]string{"kamino.dev/receipt": "{}", "old": ""}), c.Label(t.Context(), map[string]string{"tier": "db"}, []string{"gone"}),
		c.Taint(t.Context(), []userdata.Taint{{Key: "a", Value: "2", Effect: "NoSchedule"}}, []userdata.Taint{{Key: "b", Effect: "NoExecute"}})); err != nil {
		t.Fatal(err)
	}
	want := map[string]any{"metadata": map[string]any{"annotations": map[string]any{"theirs": "x", "kamino.dev/receipt": "{}"}, "labels": map[string]any{"tier": "db"}, "resourceVersion": "3"},
		"spec": map[string]any{"taints": []any{map[string]any{"key": "theirs", "effect": "NoSchedule"}, map[string]any{"key": "a", "value": "2", "effect": "NoSchedule"}}}}
	a.node["metadata"].(map[string]any)["resourceVersion"] = "3"
	if diff := cmp.Diff(want, a.node); diff != "" {
		t.Error(diff)
	}
	if len(a.requests) != 4 || !strings.HasPrefix(a.requests[0], "PATCH /api/v1/nodes/n1 application/merge-patch+json") {
		t.Errorf("requests %q", a.requests)
	}
}

// TestReady: the condition is read as kubelet wrote it, and asked for once.
func TestReady(t *testing.T) {
	a := &apiServer{node: map[string]any{"metadata": map[string]any{}, "status": map[string]any{"conditions": []any{
		map[string]any{"type": "MemoryPressure", "status": "True", "lastHeartbeatTime": "2026-01-01T00:00:00Z"},
		map[string]any{"type": "Ready", "status": "False", "reason": "KubeletNotReady", "message": "no network", "lastHeartbeatTime": "2026-11-21T10:00:00Z"}}}}}
	c := serve(t, a)
	want := Ready{Message: "KubeletNotReady: no network", Heartbeat: time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC)}
	if got, err := c.Ready(t.Context()); err != nil || got != want {
		t.Errorf("%+v, %v", got, err)
	}
	a.answers = []int{500}
	if _, err := c.Ready(t.Context()); err == nil || len(a.requests) != 2 {
		t.Errorf("%v after %d requests", err, len(a.requests))
	}
	delete(a.node, "status")
	if got, err := c.Ready(t.Context()); err == nil {
		t.Errorf("a node without conditions is %+v", got)
	}
}

func TestPersistence(t *testing.T) {
	for name, tt := range map[string]struct {
		answers  []int
		requests int
		want     string
	}{
		"throttled, conflict, broken": {[]int{429, 409, 500, 503}, 5, ""},
		"not ours":                    {[]int{404}, 1, "status 404: told to answer Not Found"},
		"never":                       {[]int{500, 500, 500, 500, 500, 500, 500, 500, 500, 500, 500}, 10, "status 500"},
	} {
		t.Run(name, func(t *testing.T) {
			a := &apiServer{node: map[string]any{"metadata": map[string]any{}}, answers: tt.answers}
			err := serve(t, a).Annotate(t.Context(), map[string]string{"k": "v"})
			if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) || len(a.requests) != tt.requests {
				t.Errorf("%s: %v after %d requests", name, err, len(a.requests))
			}
		})
	}
	a := &apiServer{node: map[string]any{"metadata": map[string]any{}}, answers: []int{0, 403}}
	if err := serve(t, a).Taint(t.Context(), []userdata.Taint{{Key: "a", Effect: "NoSchedule"}}, nil); !errors.Is(err, ErrForbidden) || len(a.requests) != 2 {
		t.Errorf("forbidden: %v after %d requests", err, len(a.requests))
	}
	a = &apiServer{node: map[string]any{"metadata": map[string]any{}, "spec": map[string]any{}}, answers: []int{0, 409}}
	if err := serve(t, a).Taint(t.Context(), []userdata.Taint{{Key: "a", Effect: "NoSchedule"}}, nil); err != nil || len(a.requests) != 4 {
		t.Errorf("changed in between: %v after %d requests", err, len(a.requests))
	}
}

// TestInsecure: a kubeconfig that switches the check of the server's certificate off is refused
// before anything is sent.
func TestInsecure(t *testing.T) {
	asked := false
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { asked = true; _, _ = io.WriteString(w, "{}") }))
	t.Cleanup(s.Close)
	c, err := Load(disktest.New(t, map[string]string{Paths[0]: config(s.URL, "insecure-skip-tls-verify: true", "token: secret")}))
	if err != nil {
		t.Fatal(err)
	}
	client, err := c.Client(t.Context(), "n1", func(context.Context, time.Duration) error { return errors.New("no patience") })
	if err == nil {
		err = client.Annotate(t.Context(), map[string]string{"a": "b"})
	}
	if err == nil || !strings.Contains(err.Error(), "certificate-authority-data") || asked {
		t.Errorf("asked: %t, %v", asked, err)
	}
}
