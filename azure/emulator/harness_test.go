package emulator

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

const (
	tester       = "00000000-0000-0000-0000-000000000000" // the client of Server.Token
	subscription = "/subscriptions/00000000-0000-0000-0000-000000000001"
	groupPath    = subscription + "/resourceGroups/kamino-lab"
	compute      = groupPath + "/providers/Microsoft.Compute"
	poolPath     = compute + "/virtualMachineScaleSets/pool1"
)

// world is one emulator behind real HTTP.
type world struct {
	*testing.T
	s     *Server
	clock *VirtualClock
	url   string
}

// answer is one reply.
type answer struct {
	status int
	header http.Header
	body   map[string]any
}

func (a answer) code() string    { return text(a.body, "error", "code") }
func (a answer) message() string { return text(a.body, "error", "message") }

// newWorld serves a scenario on a virtual clock; change may set up the server.
func newWorld(t *testing.T, sc Scenario, change func(*Server)) *world {
	t.Helper()
	clock := NewVirtualClock(time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC))
	s := &Server{Clock: clock}
	if change != nil {
		change(s)
	}
	s.Seed(sc)
	server := httptest.NewServer(s)
	t.Cleanup(func() { server.Close(); s.Close() })
	return &world{T: t, s: s, clock: clock, url: server.URL}
}

// onePool is a world with one pool of three nodes.
func onePool(t *testing.T, change func(*Server)) *world {
	t.Helper()
	return newWorld(t, Scenario{Pools: []Pool{{Name: "pool1", Count: 3}}}, change)
}

func instant(s *Server) { s.Latencies = NoLatency() }

// try sends a request; err is what the connection says.
func (w *world) try(method, path, body string, header ...string) (answer, error) {
	w.Helper()
	if !strings.HasPrefix(path, "http") {
		if !strings.Contains(path, "api-version=") && !strings.HasPrefix(path, "/_emulator") {
			path += map[bool]string{true: "&", false: "?"}[strings.Contains(path, "?")] + "api-version=2026-04-01"
		}
		path = w.url + path
	}
	req, err := http.NewRequest(method, path, strings.NewReader(body))
	if err != nil {
		w.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+w.s.Token())
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return answer{}, err
	}
	defer func() { _ = res.Body.Close() }()
	raw, err := io.ReadAll(res.Body)
	if err != nil {
		return answer{}, err
	}
	a := answer{status: res.StatusCode, header: res.Header}
	if len(raw) > 0 && raw[0] == '{' {
		if err := json.Unmarshal(raw, &a.body); err != nil {
			w.Fatalf("%s %s: %v in %s", method, path, err, raw)
		}
	}
	return a, nil
}

func (w *world) do(method, path, body string, header ...string) answer {
	w.Helper()
	a, err := w.try(method, path, body, header...)
	if err != nil {
		w.Fatalf("%s %s: %v", method, path, err)
	}
	return a
}

// must is do with a wanted status.
func (w *world) must(status int, method, path, body string, header ...string) answer {
	w.Helper()
	a := w.do(method, path, body, header...)
	if a.status != status {
		w.Fatalf("%s %s: status %d, want %d: %v", method, path, a.status, status, a.body)
	}
	return a
}

// refused is do with a wanted status and error code, and a piece of the message.
func (w *world) refused(status int, code, message, method, path, body string, header ...string) {
	w.Helper()
	a := w.must(status, method, path, body, header...)
	if a.code() != code || !strings.Contains(a.message(), message) {
		w.Fatalf("%s %s: error %q %q, want %q %q", method, path, a.code(), a.message(), code, message)
	}
}

// poll reads the operation a reply began.
func (w *world) poll(begun answer) answer {
	w.Helper()
	link := begun.header.Get("Azure-AsyncOperation")
	if link == "" {
		w.Fatalf("no Azure-AsyncOperation in %v", begun.header)
	}
	return w.do(http.MethodGet, link, "")
}

func (w *world) instance(id string) Instance {
	w.Helper()
	i, ok := w.s.Instance(poolPath + "/virtualMachines/" + id)
	if !ok {
		w.Fatalf("no instance %s", id)
	}
	return i
}

const (
	location      = `"location":"westeurope"`
	definitionDoc = `{` + location + `,"properties":{"osType":"Linux","osState":"Generalized","hyperVGeneration":"V2","features":[{"name":"SecurityType","value":"Standard"}],"identifier":{"publisher":"kamino","offer":"pool1","sku":"node"}}}`
	galleryPath   = compute + "/galleries/g1"
	definitionURL = galleryPath + "/images/pool1"
)

func (w *world) snapshotDoc(instance string) string {
	return `{` + location + `,"sku":{"name":"Standard_LRS"},"properties":{"hyperVGeneration":"V2","creationData":{"createOption":"Copy","sourceResourceId":"` + w.instance(instance).OSDiskID + `"}}}`
}

func versionDoc(snapshot string) string {
	return `{` + location + `,"properties":{"publishingProfile":{"targetRegions":[{"name":"westeurope"}],"replicaCount":3},"storageProfile":{"osDiskImage":{"source":{"id":"` + compute + "/snapshots/" + snapshot + `"}}}}}`
}

// build makes gallery, definition, snapshot and version from an instance, in no time.
func (w *world) build(instance, version string) string {
	w.Helper()
	w.do(http.MethodPut, galleryPath, `{`+location+`}`)
	w.do(http.MethodPut, definitionURL, definitionDoc)
	w.must(200, http.MethodPut, compute+"/snapshots/s-"+version, w.snapshotDoc(instance))
	w.must(201, http.MethodPut, definitionURL+"/versions/"+version, versionDoc("s-"+version))
	return definitionURL + "/versions/" + version
}
