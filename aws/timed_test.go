package aws

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	transport "github.com/aws/aws-sdk-go-v2/aws/transport/http"

	"kamino.dev/kamino"
)

// TestTimed: a service that takes a call and never answers counts as one that is away.
func TestTimed(t *testing.T) {
	silent := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }))
	t.Cleanup(silent.Close)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, silent.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := timed(transport.NewBuildableClient(), 10*time.Millisecond).Do(req)
	if err == nil {
		resp.Body.Close()
	}
	if !errors.Is(classify(err), kamino.ErrUnavailable) {
		t.Errorf("%v", err)
	}
}
