package providertest_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"kamino.dev/kamino"
	"kamino.dev/kamino/azure/emulator"
)

// thief is a host that is no part of the cloud. It serves HTTPS with a
// certificate that the client trusts, and remembers who came with a token.
type thief struct {
	*httptest.Server
	mu    sync.Mutex
	calls []string
}

func newThief(t *testing.T) *thief {
	th := &thief{}
	th.Server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		th.mu.Lock()
		defer th.mu.Unlock()
		th.calls = append(th.calls, r.Method+" "+r.URL.Path+" with "+strings.SplitN(r.Header.Get("Authorization")+" ", " ", 2)[0])
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"status":"Succeeded","value":[]}`)) // the client may be gone
	}))
	t.Cleanup(th.Close)
	return th
}

func (th *thief) check(t *testing.T) {
	t.Helper()
	th.mu.Lock()
	defer th.mu.Unlock()
	for _, c := range th.calls {
		t.Errorf("a host outside the cloud was called: %s", c)
	}
}

// lying answers as the cloud does, but lets lie change each reply.
func lying(lie func(*http.Request, *httptest.ResponseRecorder)) func(http.Handler) http.Handler {
	return func(honest http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			rec := httptest.NewRecorder()
			honest.ServeHTTP(rec, r)
			lie(r, rec)
			for name, values := range rec.Header() {
				w.Header()[name] = values
			}
			w.Header().Del("Content-Length")
			w.WriteHeader(rec.Code)
			_, _ = w.Write(rec.Body.Bytes()) // the client may be gone
		})
	}
}

// TestTokenStaysInTheCloud: whatever host a reply names, as the place of an
// operation, of the next page or of the resource itself, the bearer token is
// not sent there.
func TestTokenStaysInTheCloud(t *testing.T) {
	for _, header := range []string{"Azure-AsyncOperation", "Location"} {
		t.Run(header, func(t *testing.T) {
			th := newThief(t)
			c := begin(t, setting{front: lying(func(r *http.Request, rec *httptest.ResponseRecorder) {
				if r.Method == http.MethodPut && strings.Contains(r.URL.Path, "/versions/") {
					rec.Header().Del("Azure-AsyncOperation")
					rec.Header().Set(header, th.URL+"/operation")
					rec.Code = http.StatusAccepted
				}
			}), server: func(s *emulator.Server) { s.NoZRS = []string{"westeurope"} }})
			c.failedVersion()
			found, err := c.Find(t.Context(), c.pool(), kamino.KindVersion, "2026.1.2") // asks why it failed
			if err != nil || len(found) != 1 || found[0].State != kamino.Failed {
				t.Fatalf("found %+v, %v, want a failed version", found, err)
			}
			th.check(t)
		})
	}
	t.Run("nextLink", func(t *testing.T) {
		th := newThief(t)
		c := begin(t, setting{latencies: emulator.NoLatency(), server: func(s *emulator.Server) { s.PageSize = 1 },
			front: lying(func(r *http.Request, rec *httptest.ResponseRecorder) {
				body := rec.Body.String()
				if i := strings.Index(body, `"nextLink":"https://`); i >= 0 {
					rest := body[i+len(`"nextLink":"https://`):]
					rec.Body.Reset()
					rec.Body.WriteString(body[:i] + `"nextLink":"` + th.URL + rest[strings.Index(rest, "/"):])
				}
			})})
		c.failedVersion()
		if _, err := c.Find(t.Context(), c.pool(), kamino.KindVersion, ""); err == nil || !strings.Contains(err.Error(), strings.TrimPrefix(th.URL, "https://")) {
			t.Errorf("a list whose next page is elsewhere: %v, want an error that names the host", err)
		}
		th.check(t)
	})
	t.Run("redirect", func(t *testing.T) {
		th := newThief(t)
		c := begin(t, setting{latencies: emulator.NoLatency(), front: lying(func(r *http.Request, rec *httptest.ResponseRecorder) {
			if strings.Contains(r.URL.Path, "/virtualMachineScaleSets/") {
				rec.Header().Set("Location", th.URL+r.URL.Path)
				rec.Code = http.StatusTemporaryRedirect
			}
		})})
		if _, err := c.Instance(t.Context(), c.donor()); err == nil {
			t.Error("a redirect to another host was followed")
		}
		th.check(t)
	})
}

// failedVersion begins a version that cannot be built, since the region has no
// zone-redundant storage.
func (c *cloud) failedVersion() {
	c.Helper()
	ctx, pool, in := c.Context(), c.pool(), c.instance()
	for _, a := range []kamino.Artifact{
		{Kind: kamino.KindGallery, Name: pool.Gallery},
		{Kind: kamino.KindDefinition, Name: kamino.DefinitionName(pool.Name), Machine: kamino.Machine{Generation: "V2", Architecture: "x64", SecurityType: "Standard"}},
		{Kind: kamino.KindSnapshot, Name: kamino.SnapshotName(pool.Name), Source: in.Disk, Machine: kamino.Machine{Generation: "V2", Architecture: "x64"}},
		{Kind: kamino.KindVersion, Name: "2026.1.2", Source: c.Address(pool, kamino.KindSnapshot, kamino.SnapshotName(pool.Name)), Storage: kamino.StorageZRS},
	} {
		c.must(c.Create(ctx, pool, a))
		c.clock.Advance(time.Hour)
	}
}
