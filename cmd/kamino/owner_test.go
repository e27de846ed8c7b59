package main

import (
	"strings"
	"testing"

	"kamino.dev/kamino"
)

// TestOwnerLines: what the owner of a model has to write comes once a version is offered, and
// status tells the whole command that trusts a definition again.
func TestOwnerLines(t *testing.T) {
	owner := &kamino.Owner{Name: "capz", Spec: "image: x"}
	for _, hidden := range []bool{true, false} {
		var out strings.Builder
		updateReport{Result: kamino.Result{Version: "2026.03.10", Hidden: hidden, Owner: owner}}.owner(&out)
		if strings.Contains(out.String(), "not before") != hidden {
			t.Errorf("hidden %t: %s", hidden, out.String())
		}
	}
	var out strings.Builder
	printPoolStatus(&out, kamino.PoolStatus{Strayed: &kamino.Stray{Booted: "v1", Promoted: "v2"}}, false)
	if !strings.Contains(out.String(), "--target-node NODE --image-reference pointer") {
		t.Errorf("status: %s", out.String())
	}
}
