package main

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"kamino.dev/kamino"
	"kamino.dev/kamino/poolstate"
)

// remainsWorld is a pool whose next node boots from a version, with homes, marks and a lease.
func remainsWorld() *fakeWorld {
	w := newFakeWorld()
	p := stale(w)
	w.cloud.put(p, kamino.KindGallery, fakeGallery, nil)
	w.cloud.put(p, kamino.KindDefinition, kamino.DefinitionName(p.Name), nil)
	w.cloud.put(p, kamino.KindVersion, "2026.11.01", map[string]string{kamino.TagBuiltFrom: "n1"})
	w.cloud.put(p, kamino.KindVersion, "2026.10.01", map[string]string{kamino.TagRun: "of-another-cluster"}).OfFormer = true
	w.cloud.put(p, kamino.KindVersion, "1.0.0", nil) // somebody else's
	w.cluster.leases[p.ID] = kamino.Lease{Pool: p.ID, Revision: "1"}
	w.cluster.nodes["n1"].Labels = map[string]string{kamino.LabelPatched: "20261109", "team": "a"}
	w.cluster.nodes["n2"].Annotations["kamino.dev/lineage"] = "x"
	w.cluster.nodes["n3"].Taints = []kamino.Taint{{Key: kamino.TaintPatchFailed}}
	return w
}

// TestRemains: an uninstall is told all that Kamino made, in the order in which it can go, and no
// command for what somebody still needs.
func TestRemains(t *testing.T) {
	w := remainsWorld()
	out, errs, code := w.kamino(t, "restore", "--everything", "--dry-run")
	if code != exitFine || len(w.writes()) > 0 {
		t.Fatalf("exit code %d, writes %q\n%s%s", code, w.writes(), out, errs)
	}
	version := fakeGroup + "galleries/" + fakeGallery + "/images/" + kamino.DefinitionName(pool1) + "/versions/"
	at := -1
	for _, want := range []string{
		"# pool " + pool1 + ": image version 2026.11.10\n# needed: the next node boots from it: kamino rollback --pool " + pool1 + " --to original, with --dry-run to see what that needs\n# az resource delete --ids " + version + "2026.11.10\n",
		"# pool " + pool1 + ": image version 2026.11.01\naz resource delete --ids " + version + "2026.11.01\n",
		"# pool " + pool1 + ": image version 2026.10.01\n# needed: an earlier pool of this name made it: make sure that no other cluster uses it\n# az resource delete --ids " + version + "2026.10.01\n",
		"\n# image definition " + kamino.DefinitionName(pool1) + "\n# needed: it holds what is still needed\n# az resource delete",
		"\n# gallery " + fakeGallery + "\n# needed: it holds what is still needed\n# az resource delete",
		"# taint " + kamino.TaintPatchFailed + " on node n3\n# needed: its patch failed",
		"# label " + kamino.LabelPatched + " on 1 node\nkubectl label nodes -l " + kamino.LabelPatched + " " + kamino.LabelPatched + "-\n",
		"# annotation kamino.dev/lineage on 1 node\nkubectl annotate nodes --all kamino.dev/lineage-\n",
		"# the leases of 1 pool",
		"# lists of packages of versions\nkubectl delete configmap -n kamino-system -l app.kubernetes.io/name=kamino-packages\n",
		"# needed: it holds the leases\n# kubectl delete namespace --ignore-not-found kamino-system\n",
	} {
		i := strings.Index(out, want)
		if i <= at {
			t.Errorf("%q is not there, or too early", want)
		}
		at = max(at, i)
	}
	if strings.Contains(out, "1.0.0") || strings.Contains(out, "team") {
		t.Errorf("what others made is in it")
	}
	if t.Failed() {
		t.Log(out)
	}
}

// TestRemainsAsData: programs get the same, and a pool that cannot be read is an error beside the
// rest.
func TestRemainsAsData(t *testing.T) {
	w := remainsWorld()
	other := w.cloud.addPool("pool2")
	w.addNode("pool2", "m1", "")
	w.cloud.fails[other.ID] = errors.New("the token has expired")
	out, errs, code := w.kamino(t, "restore", "--everything", "--dry-run", "-o", "json")
	var got struct {
		Left    []poolstate.Leftover
		Remains []remainder
	}
	if err := json.Unmarshal([]byte(out), &got); err != nil || code != exitFailed || !strings.Contains(errs, "the token has expired") {
		t.Fatalf("exit code %d, %v\n%s%s", code, err, out, errs)
	}
	if !slices.ContainsFunc(got.Remains, func(r remainder) bool { return r.What == "image version 2026.11.01" && r.Pool.Name() == pool1 }) {
		t.Errorf("remains: %+v", got.Remains)
	}
	if out, _, _ := w.kamino(t, "restore", "--everything", "--dry-run", "--pool", pool1); strings.Contains(out, "pool2") {
		t.Errorf("another pool is in it:\n%s", out)
	}
}

// TestRemainsAtOriginal: the leases hold the former models, and can go once all pools are back at
// theirs; not while one boots from an image of Kamino's, or cannot be read, or was not asked for.
func TestRemainsAtOriginal(t *testing.T) {
	const leases = "\nkubectl delete lease -n " + kamino.SystemNamespace
	for name, c := range map[string]struct {
		change func(w *fakeWorld)
		args   []string
		want   bool
	}{
		"at its original model": {func(w *fakeWorld) {}, nil, true},
		"one pool of all":       {func(w *fakeWorld) {}, []string{"--pool", pool1}, false},
		"another boots from an image": {func(w *fakeWorld) {
			other := w.cloud.addPool("pool2")
			w.addNode("pool2", "m1", "")
			other.Model.Image = w.cloud.put(other, kamino.KindVersion, "2026.11.02", map[string]string{kamino.TagBuiltFrom: "m1"}).ID
		}, nil, false},
		"another cannot be read": {func(w *fakeWorld) {
			other := w.cloud.addPool("pool2")
			w.addNode("pool2", "m1", "")
			w.cloud.fails[other.ID] = errors.New("the token has expired")
		}, nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			w := remainsWorld()
			for _, p := range w.cloud.pools {
				p.Model.Image = "Generic:linux:node:latest"
			}
			c.change(w)
			out, errs, _ := w.kamino(t, append([]string{"restore", "--everything", "--dry-run"}, c.args...)...)
			if got := strings.Contains(out, leases); got != c.want {
				t.Errorf("the leases can go: %t, want %t\n%s%s", got, c.want, out, errs)
			}
		})
	}
}
