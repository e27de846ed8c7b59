package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"kamino.dev/kamino"
	"kamino.dev/kamino/internal/golden"
	"kamino.dev/kamino/poolstate"
)

const pool1 = "k8s-pool1-vmss"

// stale is a pool with an image of the 10th and three nodes, of which two were
// patched since.
func stale(w *fakeWorld) *kamino.Pool {
	p := w.cloud.addPool(pool1)
	v := w.cloud.put(p, kamino.KindVersion, "2026.11.10", map[string]string{
		kamino.TagBuiltFrom: "n1", kamino.TagBuiltAt: "2026-11-10 00:42:10.000123", kamino.TagRun: "r1"})
	p.Model.Image, p.Model.Extensions = v.ID, []kamino.Extension{{Name: "AKSLinuxBilling"}}
	w.addNode(pool1, "n1", "2026-11-09")
	w.addNode(pool1, "n2", "2026-11-18T03:12:00Z")
	w.addNode(pool1, "n3", "2026-11-18T01:00:00Z")
	return p
}

// tried is a pool whose run r9 failed after its snapshot was made.
func tried(w *fakeWorld) *kamino.Pool {
	p := stale(w)
	w.cluster.leases[p.ID] = kamino.Lease{Revision: "1", Ledger: kamino.Ledger{Past: []kamino.PastRun{{Run: "r9", Failure: "no quota", Step: "image"}}}}
	return p
}

// withoutImage is a pool that never had a prototype.
func withoutImage(w *fakeWorld) *kamino.Pool {
	p := w.cloud.addPool(pool1)
	for _, n := range []string{"n1", "n2", "n3"} {
		w.addNode(pool1, n, "2026-11-18")
	}
	return p
}

// up is a pool whose nodes were not patched since its image.
func up(w *fakeWorld) *kamino.Pool {
	p := stale(w)
	for _, n := range w.cluster.nodes {
		n.Annotations[kamino.KuredLastPatch.Annotation] = "2026-11-09"
	}
	return p
}

var planCases = []struct {
	name  string
	world func(*fakeWorld)
	args  []string
	code  int
}{
	{name: "no-image", world: func(w *fakeWorld) { withoutImage(w) }, code: exitToDo},
	{name: "patches", world: func(w *fakeWorld) { stale(w) }, code: exitToDo},
	{name: "nothing", world: func(w *fakeWorld) { up(w) }},
	{name: "too-old", world: func(w *fakeWorld) { up(w) }, args: []string{"--maximum-image-age", "7"}, code: exitToDo},
	{name: "too-few-candidates", world: func(w *fakeWorld) { stale(w) }, args: []string{"--minimum-candidates", "3"}},
	{name: "all-rejected", world: allRejected, args: []string{"--reject-tainted", "--ignore-nodes", "n3", "--minimum-ready-time", "1d"}},
	{name: "unreadable-date", world: func(w *fakeWorld) {
		up(w)
		w.cluster.nodes["n2"].Annotations[kamino.KuredLastPatch.Annotation] = "yesterday evening"
	}},
	{name: "model-elsewhere", world: func(w *fakeWorld) {
		p := up(w)
		newest := w.cloud.put(p, kamino.KindVersion, "2026.11.15", map[string]string{kamino.TagBuiltFrom: "n2", kamino.TagRun: "r2", kamino.TagReceipt: "sha256:aa"})
		newest.Created = w.now.AddDate(0, 0, -5)
	}, code: exitToDo},
	{name: "model-of-somebody", world: func(w *fakeWorld) {
		p := up(w)
		p.Model.Image = "Canonical:ubuntu:24_04-lts:latest"
		w.cluster.leases[p.ID] = kamino.Lease{Revision: "1", Ledger: kamino.Ledger{Original: &kamino.SavedModel{Image: stock, Saved: p.Model.Saved}}}
	}},
	{name: "refused-pool", world: func(w *fakeWorld) {
		stale(w).Refusals = []kamino.Refusal{{Code: "upgrade-policy", Field: "properties.upgradePolicy.mode", Value: "Automatic",
			Why: "a change of the model would replace running nodes", Do: "set the mode to Manual"}}
	}},
	{name: "refused-donor", world: func(w *fakeWorld) {
		stale(w)
		w.instance("n3", func(in *kamino.Instance) {
			in.Refusals = []kamino.Refusal{{Code: "ephemeral", Field: "osDisk.diffDiskSettings.option", Value: "Local",
				Why: "an ephemeral OS disk cannot be snapshotted", Do: "choose a node with a managed OS disk"}}
		})
	}, code: exitToDo},
	{name: "other-generation", world: func(w *fakeWorld) {
		p := stale(w)
		w.cloud.put(p, kamino.KindDefinition, kamino.DefinitionName(pool1), nil).Generation = "V1"
	}, code: exitRefused},
	{name: "stuck-pods", world: func(w *fakeWorld) {
		stale(w)
		w.cluster.pods["n3"] = []kamino.Pod{{Namespace: "default", Name: "debug", Reason: "no controller would recreate it", Stuck: true}}
	}, code: exitToDo},
	{name: "image-not-allowed", world: func(w *fakeWorld) {
		stale(w)
		w.cluster.sealPod = &kamino.RefusedError{Subject: "the seal pod", Refusals: []kamino.Refusal{{Code: kamino.CodeSealPod, Why: "the image may not seal disks", Do: "kamino init --seal-image"}}}
	}, code: exitRefused},
	{name: "may-not-make-seal-pods", world: func(w *fakeWorld) {
		stale(w)
		w.cluster.sealPod = fmt.Errorf("create pods: %w", kamino.ErrForbidden)
	}, code: exitToDo},
	{name: "not-prepared", world: func(w *fakeWorld) {
		stale(w)
		w.cluster.sealPod = kamino.WithHint(fmt.Errorf("this cluster is not prepared: %w", kamino.ErrNotFound), "kamino init")
	}, code: exitToDo},
	{name: "unfinished", world: func(w *fakeWorld) {
		p := stale(w)
		w.cluster.leases[p.ID] = kamino.Lease{Revision: "1", Holder: "r9", Process: "host/77", Epoch: 4, Record: kamino.Record{
			Donor: "n3", Step: "image", Version: "2026.11.20", Started: w.now.Add(-20 * time.Minute), ModelWas: p.Model.Image}}
	}, code: exitToDo},
	{name: "being-built", world: func(w *fakeWorld) {
		v := w.cloud.put(stale(w), kamino.KindVersion, "2026.11.20", map[string]string{
			kamino.TagBuiltFrom: "n3", kamino.TagBuiltAt: "2026-11-20 10:00:00.000000", kamino.TagRun: "r9", kamino.TagEpoch: "0", kamino.TagReceipt: "sha256:aa"})
		v.State, v.Ready, v.Percent = kamino.Creating, false, 40
	}, code: exitToDo},
	{name: "rolled-back-today", world: func(w *fakeWorld) {
		badVersion(w, "2026.11.20", "2026-11-20 02:00:00.000000")
		w.cluster.nodes["n2"].Annotations[kamino.KuredLastPatch.Annotation] = "2026-11-20T05:00:00Z"
	}},
	{name: "rolled-back", world: func(w *fakeWorld) { badVersion(w, "2026.11.16", "2026-11-16 02:00:00.000000") }, code: exitToDo},
	{name: "budgets-history-and-prune", world: budgets, args: []string{"--max-history", "2"}, code: exitToDo},
	{name: "snapshot-of-today", world: func(w *fakeWorld) {
		w.cloud.put(tried(w), kamino.KindSnapshot, kamino.SnapshotName(pool1), map[string]string{kamino.TagBuiltFrom: "n2",
			kamino.TagBuiltAt: "2026-11-20 09:00:00.000000", kamino.TagRun: "r9", kamino.TagEpoch: "0", kamino.TagReceipt: "sha256:aa"})
	}, code: exitToDo},
	{name: "snapshot-of-today-of-the-donor", world: func(w *fakeWorld) {
		w.cloud.put(tried(w), kamino.KindSnapshot, kamino.SnapshotName(pool1), map[string]string{kamino.TagBuiltFrom: "n3",
			kamino.TagBuiltAt: "2026-11-20 09:00:00.000000", kamino.TagRun: "r9", kamino.TagEpoch: "0", kamino.TagReceipt: "sha256:aa"})
	}, code: exitToDo},
	{name: "original-builds-today", world: func(w *fakeWorld) {
		v := w.cloud.put(stale(w), kamino.KindVersion, "2026.11.20", map[string]string{kamino.TagBuiltFrom: "n3"})
		v.State, v.Ready, v.Percent = kamino.Creating, false, 40
	}},
	{name: "pool-gone", world: func(w *fakeWorld) {
		stale(w)
		w.addNode("k8s-gone-vmss", "g1", "2026-11-18")
	}, code: exitFailed},
	{name: "no-pools", world: func(w *fakeWorld) {
		n := withoutImage(w)
		for _, node := range w.cluster.nodes {
			node.ProviderID = "kind://docker/kind/" + kamino.InstanceID(node.Name)
		}
		delete(w.cloud.pools, n.ID)
	}},
	{name: "two-pools-of-three", world: threePools, args: []string{"--pool", pool1, "--pool", "k8s-pool3-vmss"}, code: exitToDo},
	{name: "yaml", world: threePools, args: []string{"--pool", "k8s-pool2-vmss", "-o", "yaml"}},
	{name: "json", world: func(w *fakeWorld) { budgets(w) }, args: []string{"-o", "json"}, code: exitToDo},
}

func allRejected(w *fakeWorld) {
	stale(w)
	n2, n3 := w.cluster.nodes["n2"], w.cluster.nodes["n3"]
	n2.Unschedulable = true
	n2.Conditions = []kamino.Condition{{Type: "KernelDeadlock", Status: "True", Reason: "DockerHung"}}
	n2.Taints = []kamino.Taint{{Key: "dedicated", Value: "ml", Effect: "NoSchedule"}, {Key: kamino.TaintDeleting, Effect: "NoSchedule"}}
	n3.Ready = false
	n3.Annotations[kamino.KuredPendingReboot.Annotation] = "true"
}

func badVersion(w *fakeWorld, name, at string) {
	p := stale(w)
	w.cloud.put(p, kamino.KindVersion, name, map[string]string{kamino.TagBuiltFrom: "n3", kamino.TagBuiltAt: at, kamino.TagRun: "r2",
		kamino.TagBad: "rolled back to 2026.11.10 at " + at[:10]}).Excluded = true
}

func budgets(w *fakeWorld) {
	p := stale(w)
	for _, name := range []string{"2026.9.30", "2026.10.02", "2026.10.20"} {
		w.cloud.put(p, kamino.KindVersion, name, map[string]string{kamino.TagBuiltFrom: "n1", kamino.TagRun: "r0"})
	}
	w.instance("n1", func(in *kamino.Instance) {
		in.Image = w.cloud.Address(*p, kamino.KindVersion, "2026.10.02")
	})
	w.cluster.pods["n3"] = []kamino.Pod{
		{Namespace: "shop", Name: "web-7d9f-x2x"}, {Namespace: "shop", Name: "db-0", Reason: "the disruption budget db needs 2 healthy pods and has 2 now"},
		{Namespace: "default", Name: "debug", Reason: "ending"},
	}
	w.cluster.leases[p.ID] = kamino.Lease{Revision: "1", Ledger: kamino.Ledger{Past: []kamino.PastRun{
		{Seconds: 2400, AwaySeconds: 290}, {Seconds: 2500, AwaySeconds: 310}, {Seconds: 9000, AwaySeconds: 800}}}}
}

func threePools(w *fakeWorld) {
	stale(w)
	for i, name := range []string{"k8s-pool2-vmss", "k8s-pool3-vmss"} {
		w.cloud.addPool(name)
		w.addNode(name, fmt.Sprintf("m%d", i), "")
	}
}

func TestPlanGolden(t *testing.T) {
	for _, c := range planCases {
		t.Run(c.name, func(t *testing.T) {
			w := newFakeWorld()
			c.world(w)
			args := append([]string{"plan", "--detailed-exitcode"}, c.args...)
			out, errs, code := w.kamino(t, args...)
			if code != c.code {
				t.Errorf("exit code %d, want %d", code, c.code)
			}
			if len(w.writes()) > 0 {
				t.Errorf("a plan wrote: %q", w.writes())
			}
			text := fmt.Sprintf("$ kamino %s\n%s", strings.Join(args, " "), out)
			if errs != "" {
				text += "--- stderr\n" + errs
			}
			golden.Check(t, "testdata/plan/"+c.name+".txt", fmt.Sprintf("%s--- exit code %d\n", text, code))
		})
	}
}

// The dry-run of auto-update prints the same plan.
func TestAutoUpdateDryRunIsThePlan(t *testing.T) {
	for _, c := range planCases {
		w := newFakeWorld()
		c.world(w)
		plan, _, planCode := w.kamino(t, append([]string{"plan"}, c.args...)...)
		args := []string{"auto-update", "--dry-run"}
		for _, a := range c.args {
			args = append(args, strings.Replace(a, "--pool", "--target-vmss", 1))
		}
		dry, _, dryCode := w.kamino(t, args...)
		if plan != dry || planCode != dryCode {
			t.Errorf("%s: exit codes %d and %d, plans differ:\n%s", c.name, planCode, dryCode, cmp.Diff(plan, dry))
		}
		if len(w.writes()) > 0 {
			t.Errorf("%s: a dry-run wrote: %q", c.name, w.writes())
		}
	}
}

// The formats tell the same, and a failing pool does not hide the others.
func TestPlanFormats(t *testing.T) {
	w := newFakeWorld()
	threePools(w)
	w.cloud.fails[fakePool("k8s-pool2-vmss")] = errors.New("the scale set is on fire")
	out, errs, code := w.kamino(t, "plan", "-o", "json")
	if code != exitFailed || !strings.Contains(errs, "on fire") {
		t.Errorf("exit code %d, stderr %q", code, errs)
	}
	var plans []poolstate.PoolPlan
	if err := json.Unmarshal([]byte(out), &plans); err != nil {
		t.Fatal(err)
	}
	if len(plans) != 3 || plans[0].Donor != "n3" || plans[0].Run == nil || !kamino.Has(plans[1].Held, "error") {
		t.Errorf("plans are %+v", plans)
	}
	text, _, _ := w.kamino(t, "plan", "-o", "yaml")
	asJSON, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	var a, b any
	_, _ = json.Unmarshal([]byte(out), &a), json.Unmarshal(asJSON, &b)
	if diff := cmp.Diff(a, b); diff != "" {
		t.Errorf("json and yaml differ (-json +yaml):\n%s", diff)
	}
}
