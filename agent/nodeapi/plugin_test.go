package nodeapi

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"kamino.dev/kamino/agent/disk/disktest"
)

const eksUser = `exec: {apiVersion: client.authentication.k8s.io/v1beta1, command: %COMMAND%, args: [eks, get-token], env: [{name: GREETING, value: hello}]}`

// TestPluginElsewhere: the kubeconfig of EKS is read on any disk, and its program executed on none
// but the running machine's.
func TestPluginElsewhere(t *testing.T) {
	d := disktest.New(t, map[string]string{Paths[1]: config("https://api:443", "", strings.ReplaceAll(eksUser, "%COMMAND%", "bin/token"))})
	c, err := Load(d)
	if err != nil || !c.Plugin() || c.plugin.Command != "/var/lib/kubelet/bin/token" {
		t.Fatalf("%+v, %v", c, err)
	}
	if holders, err := Holders(d); err != nil || len(holders) > 0 {
		t.Errorf("%v, %v: the disk holds no credential", holders, err)
	}
	if _, err := c.plugin.get(t.Context()); err == nil || !strings.Contains(err.Error(), "on the running machine only") {
		t.Error(err)
	}
	if _, err := Load(disktest.New(t, map[string]string{Paths[1]: config("https://api:443", "", "exec: {}")})); err == nil {
		t.Error("a plugin without a command")
	}
}

// program writes a plugin that counts its calls, and answers text.
func program(t *testing.T, text string) (p *plugin, calls func() int) {
	t.Helper()
	dir := t.TempDir()
	name := filepath.Join(dir, "token")
	script := "#!/bin/sh\necho \"$@ $GREETING $HOME $KUBERNETES_EXEC_INFO\" >>" + dir + "/calls\n" + text
	if err := os.WriteFile(name, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	p = &plugin{APIVersion: "client.authentication.k8s.io/v1beta1", Command: name, Args: []string{"eks", "get-token"}}
	p.Env = append(p.Env, struct {
		Name  string `yaml:"name"`
		Value string `yaml:"value"`
	}{"GREETING", "hello"})
	return p, func() int {
		data, err := os.ReadFile(dir + "/calls")
		if err != nil {
			t.Fatal(err)
		}
		want := `eks get-token hello /run/kamino/plugin {"apiVersion":"client.authentication.k8s.io/v1beta1","kind":"ExecCredential","spec":{"interactive":false}}`
		for line := range strings.Lines(string(data)) {
			if strings.TrimSpace(line) != want {
				t.Errorf("called with %s", line)
			}
		}
		return strings.Count(string(data), "\n")
	}
}

func answer(token string, ends time.Time) string {
	return `echo '{"kind":"ExecCredential","apiVersion":"client.authentication.k8s.io/v1beta1","status":{"expirationTimestamp":"` + ends.UTC().Format(time.RFC3339) + `","token":"` + token + `"}}'`
}

func TestPlugin(t *testing.T) {
	p, calls := program(t, answer("k8s-aws-v1.x", time.Now().Add(14*time.Minute)))
	for range 3 {
		if token, err := p.get(t.Context()); token != "k8s-aws-v1.x" || err != nil {
			t.Fatalf("%q, %v", token, err)
		}
	}
	if n := calls(); n != 1 {
		t.Errorf("%d calls for a token that lasts", n)
	}
	p, calls = program(t, answer("short", time.Now().Add(pluginEarly/2)))
	for range 2 {
		if _, err := p.get(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if n := calls(); n != 2 {
		t.Errorf("%d calls for a token that ends", n)
	}
	for text, want := range map[string]string{"echo no role >&2; exit 255": "no role", "echo hello": "not an ExecCredential", `echo '{"kind":"ExecCredential","status":{}}'`: "not an ExecCredential"} {
		t.Run(text, func(t *testing.T) {
			p, _ := program(t, text)
			if _, err := p.get(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v", text, err)
			}
		})
	}
}

// TestPluginRefused: a token that the API server does not take is asked for anew.
func TestPluginRefused(t *testing.T) {
	var sent []string
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if sent = append(sent, r.Header.Get("Authorization")); len(sent) == 1 {
			w.WriteHeader(http.StatusUnauthorized)
		}
	}))
	defer s.Close()
	p, calls := program(t, answer("x", time.Now().Add(time.Hour)))
	c, err := (&Credentials{Server: s.URL, plugin: p}).Client(t.Context(), "n1", func(ctx context.Context, _ time.Duration) error { return ctx.Err() })
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Annotate(t.Context(), map[string]string{"k": "v"}); err != nil || len(sent) != 2 || sent[1] != "Bearer x" || calls() != 2 {
		t.Errorf("%v, sent %q", err, sent)
	}
}
