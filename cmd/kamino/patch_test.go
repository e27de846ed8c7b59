package main

import (
	"strings"
	"testing"

	"kamino.dev/kamino"
	"kamino.dev/kamino/engine"
)

// TestPatchWords: a node on which there was nothing to upgrade is signed, since its package manager
// looked, and is not shown as one that was upgraded.
func TestPatchWords(t *testing.T) {
	none := &kamino.PatchReport{Manager: "apt"}
	some := &kamino.PatchReport{Manager: "apt", Changed: []kamino.PackageMoved{{Name: "bash", From: "1", To: "2"}}}
	for _, tt := range []struct {
		node engine.PatchedNode
		want string
	}{
		{engine.PatchedNode{Node: "n1", Report: some, Signed: "D"}, "patched D"},
		{engine.PatchedNode{Node: "n1", Report: none, Signed: "D"}, "nothing to upgrade, according to apt: counts as patched D"},
		{engine.PatchedNode{Node: "n1", Signed: "2026-11-23T164550Z"}, "patched 2026-11-23T16:45:50Z"},
		{engine.PatchedNode{Node: "n1", Report: none, Signed: "D", Restarted: true}, "nothing to upgrade, according to apt: counts as patched D"},
		{engine.PatchedNode{Node: "n1", Signed: "D"}, "patched D"},
		{engine.PatchedNode{Node: "n1", Report: none, Error: "no answer"}, "failed: no answer"},
	} {
		var out strings.Builder
		printPatch(&out, engine.PatchResult{Nodes: []engine.PatchedNode{tt.node}})
		if row := strings.Split(out.String(), "\n")[1]; !strings.HasSuffix(row, "\t"+tt.want) {
			t.Errorf("%q, want %q", row, tt.want)
		}
	}
}
