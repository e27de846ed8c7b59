package main

import (
	"strings"
	"testing"

	"kamino.dev/kamino"
	"kamino.dev/kamino/engine"
)

// TestUpdateTellsWhatComesNext: how the version was proved, and what the next node boots from or
// what a person has to type.
func TestUpdateTellsWhatComesNext(t *testing.T) {
	proved := &kamino.Proved{By: kamino.ProveCanary, Node: "kamino-12345678", ReadySeconds: 43, Checks: 14}
	for want, r := range map[string]engine.Result{
		"Proved:\tby canary kamino-12345678, Ready in 43s; 14 checks passed\nNext node:\tboots from 2026.11.22\n": {Proof: proved, Next: "2026.11.22"},
		"passed\nPending:\tversion 2026.11.22: kamino promote --pool a --version 2026.11.22\n":                    {Proof: proved, Waiting: true},
	} {
		r.Pool, r.Version, r.Changed = "/s/a", "2026.11.22", true
		var out strings.Builder
		if (updateReport{OK: true, Result: r}).table(&out); !strings.Contains(out.String(), want) {
			t.Errorf("%swant %q", out.String(), want)
		}
	}
}

// A run that was taken over did not see its donor go: "0.0s" would be a lie.
func TestUpdateTellsHowLongTheDonorWasAway(t *testing.T) {
	for _, c := range []struct {
		result engine.Result
		want   string
	}{
		{engine.Result{Changed: true, AwaySeconds: 187}, "3m07s"},
		{engine.Result{Changed: true, Adopted: true, AwaySeconds: 187}, "3m07s"},
		{engine.Result{Changed: true, Adopted: true}, "unknown"},
	} {
		var out strings.Builder
		updateReport{OK: true, Result: c.result}.table(&out)
		if _, after, _ := strings.Cut(out.String(), "Donor away:\t"); !strings.HasPrefix(after, c.want) {
			t.Errorf("%+v is printed as\n%swant %q", c.result, out.String(), c.want)
		}
	}
}

// TestReadOnlySystem: a donor whose system cannot be sealed is refused before anything is touched.
func TestReadOnlySystem(t *testing.T) {
	w := newFakeWorld()
	stale(w)
	w.cluster.nodes["n2"].Software.OS = "Bottlerocket OS 1.40.0 (aws-k8s-1.33)"
	_, errs, code := w.kamino(t, "update", "--target-node", "n2")
	if code != exitRefused || !strings.Contains(errs, "status.nodeInfo.osImage") || len(w.writes()) > 0 {
		t.Errorf("exit code %d, writes %q\n%s", code, w.writes(), errs)
	}
}

// TestKarpenter: a node of no pool that Karpenter made is refused, with who made it.
func TestKarpenter(t *testing.T) {
	w := newFakeWorld()
	stale(w)
	w.cluster.nodes["n2"].ProviderID, w.cluster.nodes["n2"].Labels = "azure:///subscriptions/s/resourceGroups/g", map[string]string{"karpenter.sh/nodepool": "general"}
	_, errs, code := w.kamino(t, "update", "--target-node", "n2")
	if code != exitRefused || !strings.Contains(errs, "Karpenter made the node") || !strings.Contains(errs, "general") || len(w.writes()) > 0 {
		t.Errorf("exit code %d, writes %q\n%s", code, w.writes(), errs)
	}
}
