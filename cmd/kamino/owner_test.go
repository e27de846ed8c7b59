package main

import (
	"io"
	"strings"
	"testing"

	"kamino.dev/kamino"
	"kamino.dev/kamino/engine"
	"kamino.dev/kamino/poolstate"
	"kamino.dev/kamino/view"
)

// TestOwnerLines: what the owner of a model has to write comes once a version is offered, and
// status tells the whole command that trusts a definition again.
func TestOwnerLines(t *testing.T) {
	owner := &kamino.Owner{Name: "capz", Spec: "image: x", Needs: "the gate"}
	for _, hidden := range []bool{true, false} {
		var out strings.Builder
		updateReport{Result: engine.Result{Version: "2026.03.10", Hidden: hidden, Owner: owner, Extensions: []kamino.Extension{{Name: "cse", Publisher: "p", Type: "t"}}}}.owner(&out)
		if strings.Contains(out.String(), "before that") != hidden {
			t.Errorf("hidden %t: %s", hidden, out.String())
		}
		for _, want := range []string{"extensions: cse (p/t); and its custom data, which Azure does not return", "  image: x\n", "Needed, not checked:\tthe gate\n"} {
			if !strings.Contains(out.String(), want) {
				t.Errorf("hidden %t: %swant %q", hidden, out.String(), want)
			}
		}
	}
	var out strings.Builder
	view.Table(&out, []poolstate.PoolStatus{{Name: "a", Strayed: &kamino.Stray{Booted: "v1", Promoted: "v2"}}}, false)
	if !strings.Contains(out.String(), "removes the tag kamino-pointer from image definition kamino-a") {
		t.Errorf("status: %s", out.String())
	}
}

// TestModelsAreTold: status and plan warn where a pool's instances refer to nearly as many models
// as they may, with what to do.
func TestModelsAreTold(t *testing.T) {
	for known, warns := range map[int]bool{7: false, 8: true} {
		models := &poolstate.Models{Known: known, Most: 10}
		for _, tt := range []struct {
			name  string
			print func(io.Writer)
		}{
			{"status", func(w io.Writer) { view.Table(w, []poolstate.PoolStatus{{Models: models}}, false) }},
			{"plan", func(w io.Writer) { printPool(w, poolstate.PoolPlan{Models: models}) }},
		} {
			var out strings.Builder
			if tt.print(&out); strings.Contains(out.String(), "replace the nodes of the oldest images") != warns {
				t.Errorf("%s with %d of 10 models: %s", tt.name, known, out.String())
			}
		}
	}
}

// TestOwnerOfManyPools: a night over pools that somebody else writes takes the same options, and
// tells their owners the same.
func TestOwnerOfManyPools(t *testing.T) {
	var out strings.Builder
	autoReport{Pools: []engine.PoolResult{{Name: "a", Result: &engine.Result{Version: "2026.03.10", Owner: &kamino.Owner{Name: "capz", Spec: "image: x"}}}}}.table(&out, false)
	if !strings.Contains(out.String(), "Pool:\ta\n") || !strings.Contains(out.String(), "image: x") {
		t.Errorf("%s", out.String())
	}
	w := newFakeWorld()
	stale(w)
	if _, errs, code := w.kamino(t, "auto-update", "--image-only", "--dry-run"); code != exitFine {
		t.Errorf("exit code %d: %s", code, errs)
	}
}

// TestAutoUpdateTellsWhatWaits: a version that is left to a person, with the command.
func TestAutoUpdateTellsWhatWaits(t *testing.T) {
	var out strings.Builder
	autoReport{Pools: []engine.PoolResult{{Pool: "/s/a", Name: "a", Result: &engine.Result{Version: "2026.03.10", Waiting: true}}}}.table(&out, false)
	for _, want := range []string{"\twaits to be promoted\n", "Pending:\tversion 2026.03.10: kamino promote --pool a --version 2026.03.10\n"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%swant %q", out.String(), want)
		}
	}
}
