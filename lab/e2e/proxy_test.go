package e2e

import (
	"bytes"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"kamino.dev/kamino/lab"
)

// proxy stands before a lab's API server, acts as its administrator, and notes
// what passes.
type proxy struct {
	kubeconfig string
	close      func() // all connections, watches too

	mu   sync.Mutex
	seen []string // method and path, and dryRun where it was asked for
	gone bool     // no request is answered
	// before is called of each request, and says whether it goes on to the API server.
	before func(request string) bool
}

// strike has something done at each request from now on; nil for nothing.
func (p *proxy) strike(before func(request string) bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.before = before
}

// cut makes the API server unreachable, or reachable again.
func (p *proxy) cut(gone bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.gone = gone
}

const dryRun = "?dryRun=All"

// note is what is kept of a request. That an eviction is dry stands in its body.
func note(r *http.Request) string {
	dry := r.URL.Query().Has("dryRun")
	if strings.HasSuffix(r.URL.Path, "/eviction") {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return "unread " + r.URL.Path
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		object, _, err := scheme.Codecs.UniversalDeserializer().Decode(body, nil, nil)
		eviction, ok := object.(*policyv1.Eviction)
		dry = err == nil && ok && eviction.DeleteOptions != nil && len(eviction.DeleteOptions.DryRun) > 0
	}
	if dry {
		return r.Method + " " + r.URL.Path + dryRun
	}
	return r.Method + " " + r.URL.Path
}

func newProxy(t *testing.T, l *lab.Lab) *proxy {
	t.Helper()
	config := l.RESTConfig()
	transport, err := rest.TransportFor(config)
	if err != nil {
		t.Fatal(err)
	}
	target, err := url.Parse(config.Host)
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{}
	quiet := log.New(io.Discard, "", 0) // of requests that were given up, and of handlers that were aborted
	forward := &httputil.ReverseProxy{
		ErrorLog:      quiet,
		Transport:     transport,
		FlushInterval: -1, // watches
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(target) },
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		request := note(r)
		p.mu.Lock()
		p.seen = append(p.seen, request)
		before, gone := p.before, p.gone
		p.mu.Unlock()
		if gone || before != nil && !before(request) {
			panic(http.ErrAbortHandler)
		}
		forward.ServeHTTP(w, r)
	}))
	server.Config.ErrorLog = quiet
	t.Cleanup(server.Close)
	p.close = server.CloseClientConnections
	p.kubeconfig = writeKubeconfig(t, server.URL)
	return p
}

func (p *proxy) requests() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.seen)
}

// writes are the requests that could change something.
func (p *proxy) writes() []string { return slices.DeleteFunc(p.requests(), reads) }

// reads: reviews of one's own rights are posted, but change nothing.
func reads(request string) bool {
	return strings.HasPrefix(request, "GET ") || strings.HasSuffix(request, dryRun) || strings.Contains(request, "/authorization.k8s.io/")
}

func writeKubeconfig(t *testing.T, server string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "kubeconfig")
	text := `{"apiVersion":"v1","kind":"Config","current-context":"lab",
 "clusters":[{"name":"lab","cluster":{"server":"` + server + `"}}],
 "users":[{"name":"lab","user":{}}],
 "contexts":[{"name":"lab","context":{"cluster":"lab","user":"lab"}}]}`
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// armWrites are what Kamino asked the emulator to change since a request.
func armWrites(l *lab.Lab, since int) []string {
	var list []string
	for _, e := range l.Cloud.Requests(since) {
		if e.Method != http.MethodGet && !strings.Contains(e.Path, "/oauth2/") {
			list = append(list, e.Method+" "+e.Path)
		}
	}
	return list
}

// lastRequest is the number of the last request that the emulator was sent.
func lastRequest(l *lab.Lab) int {
	all := l.Cloud.Requests(0)
	if len(all) == 0 {
		return 0
	}
	return all[len(all)-1].Seq
}
