package nodes_test

import (
	"net/http/httptest"
	"strings"
	"testing"

	"kamino.dev/kamino/azure/emulator"
)

// arm speaks to an emulator as Azure's clients do.
type arm struct {
	t     *testing.T
	cloud *emulator.Server
}

// do sends a request that must succeed.
func (a *arm) do(method, id, body string) {
	a.t.Helper()
	r := httptest.NewRequest(method, "https://localhost"+id+"?api-version=2024-07-01", strings.NewReader(body))
	r.Header.Set("Authorization", "Bearer "+a.cloud.Token())
	r.Header.Set("Content-Type", "application/json")
	w := httptest.NewRecorder()
	a.cloud.ServeHTTP(w, r)
	if w.Code >= 300 {
		a.t.Fatalf("%s %s: %d %s", method, id, w.Code, w.Body)
	}
}
