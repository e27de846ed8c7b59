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

// TestOwnerOfManyPools: a night over pools that somebody else writes takes the same options, and
// tells their owners the same.
func TestOwnerOfManyPools(t *testing.T) {
	var out strings.Builder
	autoReport{Pools: []kamino.PoolResult{{Name: "a", Result: &kamino.Result{Version: "2026.03.10", Owner: &kamino.Owner{Name: "capz", Spec: "image: x"}}}}}.table(&out, false)
	if !strings.Contains(out.String(), "Pool:\ta\n") || !strings.Contains(out.String(), "image: x") {
		t.Errorf("%s", out.String())
	}
	w := newFakeWorld()
	stale(w)
	if _, errs, code := w.kamino(t, "auto-update", "--accept-bootstrap", "--dry-run"); code != exitFailed || !strings.Contains(errs, "--image-only") {
		t.Errorf("exit code %d: %s", code, errs)
	}
	if _, errs, code := w.kamino(t, "auto-update", "--image-only", "--accept-bootstrap", "--dry-run"); code != exitFine {
		t.Errorf("exit code %d: %s", code, errs)
	}
}

// TestAutoUpdateTellsWhatWaits: a version that is left to a person, with the command.
func TestAutoUpdateTellsWhatWaits(t *testing.T) {
	var out strings.Builder
	autoReport{Pools: []kamino.PoolResult{{Pool: "/s/a", Name: "a", Result: &kamino.Result{Version: "2026.03.10", Waiting: true}}}}.table(&out, false)
	for _, want := range []string{"\twaits to be promoted\n", "Waits:\tversion 2026.03.10 is left to a person: kamino promote --pool a --version 2026.03.10\n"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%swant %q", out.String(), want)
		}
	}
}
