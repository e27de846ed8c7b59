package main

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"kamino.dev/kamino"
	"kamino.dev/kamino/internal/golden"
	"kamino.dev/kamino/poolstate"
	"kamino.dev/kamino/view"
)

// history is a pool with a version of each kind, one unfinished run and the
// model from before the first prototype.
func history(w *fakeWorld) {
	p := stale(w)
	put := func(name string, tags map[string]string) *kamino.Artifact {
		tags[kamino.TagRun], tags[kamino.TagParent] = "r-"+name, "kamino-k8s-pool1-vmss-prototype/versions/2026.9.30"
		return w.cloud.put(p, kamino.KindVersion, name, tags)
	}
	put("2026.9.30", map[string]string{kamino.TagBuiltFrom: "n1", kamino.TagBuiltAt: "2026-09-30 00:42:10.000001"})
	put("2026.10.02", map[string]string{kamino.TagBuiltFrom: "n2"})
	put("2026.11.11", map[string]string{kamino.TagBuiltFrom: "n3", kamino.TagBad: "rolled back to 2026.11.10 at 2026-11-12T08:00:00Z"}).Excluded = true
	failed := put("2026.11.19", map[string]string{kamino.TagBuiltFrom: "n2"})
	failed.State, failed.Ready, failed.Failure = kamino.Failed, false, "the disk was odd"
	building := put("2026.11.20", map[string]string{kamino.TagBuiltFrom: "n2"})
	building.State, building.Ready, building.Percent = kamino.Creating, false, 40
	w.instance("n1", func(in *kamino.Instance) { in.Image = w.cloud.Address(*p, kamino.KindVersion, "2026.10.02") })
	w.instance("n2", func(in *kamino.Instance) { in.Image = p.Model.Image })
	w.cluster.nodes["n3"].Ready = false
	for tag, value := range map[string]string{kamino.TagPackages: "00", kamino.TagPatched: "2026-11-09T12:00:00Z", kamino.TagKernel: "6.8.0-9", kamino.TagKubelet: "v1.35.1"} {
		w.cloud.artifacts[w.cloud.Address(*p, kamino.KindVersion, "2026.11.10")].Tags[tag] = value
	}
	w.cluster.nodes["n2"].Software = kamino.Software{Kernel: "6.8.0-12", Kubelet: "v1.35.1"}
	w.cluster.nodes["n2"].Annotations[kamino.AnnotationFreshness] = `{"packageDigest":"11","patchedAt":"2026-11-19T12:00:00Z"}`
	w.cluster.nodes["n1"].Annotations[kamino.AnnotationConfig] = `{"generation":4,"status":"Applied","error":"","hash":"sha256:b","at":"2026-11-19T12:00:00Z"}`
	w.cluster.nodes["n2"].Annotations[kamino.AnnotationConfig] = `{"generation":3,"status":"RolledBack","error":"node not healthy within 2m0s: it is not Ready: KubeletNotReady",` +
		`"hash":"sha256:a","offered":{"generation":4,"hash":"sha256:b"},"at":"2026-11-19T12:05:00Z"}`
	booted := time.Date(2026, 11, 1, 3, 0, 0, 0, time.UTC)
	w.cluster.leases[p.ID] = kamino.Lease{Revision: "1", Holder: "r-2026.11.20", Process: "laptop/77", Epoch: 4, Renewed: w.now.Add(-5 * time.Minute),
		Record: kamino.Record{Donor: "n2", Step: "image", Version: "2026.11.20", Started: w.now.Add(-20 * time.Minute), GivingBack: true, Failure: "image: out of luck"},
		Ledger: kamino.Ledger{Original: &kamino.SavedModel{Image: stock, Saved: []byte("{}")}, Wrote: &kamino.WrittenModel{Image: "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/galleries/SIG_rg/images/x/versions/2026.11.10", Seen: true},
			Past: []kamino.PastRun{{Run: "r-2026.11.19", Donor: "n1", Version: "2026.11.19", Ended: w.now.Add(-24 * time.Hour), Seconds: 31, Step: "drain", Failure: "drain: node n1 cannot be drained"},
				{Run: "r-2026.11.10", Donor: "n1", Version: "2026.11.10", Ended: w.now.AddDate(0, 0, -10), Seconds: 1400, AwaySeconds: 300}},
			Boots: []float64{61.5, 48}, Phases: []map[string]float64{{"kernel": 2.1, "kubelet": 30}},
			Generic: &kamino.Waterfall{Node: "n9", At: booted, Timing: kamino.Timing{Starts: map[string]float64{"kernel": 0}, Phases: map[string]float64{"kernel": 2.5}}},
			Clone:   &kamino.Waterfall{Node: "kamino-1", At: booted, Timing: kamino.Timing{Starts: map[string]float64{"kernel": 0, "kubelet": 8}, Phases: map[string]float64{"kernel": 2.1, "kubelet": 30}}}}}
	w.cloud.addPool("k8s-pool2-vmss").Refusals = []kamino.Refusal{{Code: "spot", Field: "virtualMachineProfile.priority", Value: "Spot",
		Why: "Azure may evict the donor", Do: "choose another pool, or allow it", Allow: "allow-spot"}}
	w.addNode("k8s-pool2-vmss", "m1", "")
	at := w.now.Add(14 * time.Hour)
	w.starters = []starter{{[]string{"K8S-pool1-vmss"}, poolstate.NextRun{By: "NodePrototype pool1", At: &at, When: "Sat, Sun 02:00 to 05:00 UTC", Why: "OutsideWindow: waiting for the window"}}}
}

// TestCloudWithoutGalleries: a status names no home of versions where
// the cloud has none.
func TestCloudWithoutGalleries(t *testing.T) {
	for _, homeless := range []bool{true, false} {
		w := newFakeWorld()
		history(w)
		w.cloud.homeless = homeless
		status, _, _ := w.kamino(t, "status")
		json, _, _ := w.kamino(t, "status", "-o", "json")
		for _, tt := range []struct{ of, out, word string }{{"status", status, "Definition:"}, {"status -o json", json, `"definition":`}} {
			t.Run(tt.of, func(t *testing.T) {
				if strings.Contains(tt.out, tt.word) == homeless || tt.out == "" {
					t.Errorf("homeless %v, %s: %s", homeless, tt.of, tt.out)
				}
			})
		}
	}
}

func TestStatusGolden(t *testing.T) {
	for _, format := range []string{"table", "json", "yaml", openMetrics} {
		w := newFakeWorld()
		history(w)
		out, errs, code := w.kamino(t, "status", "-o", format)
		if code != 0 || errs != "" || len(w.writes()) > 0 {
			t.Errorf("exit code %d, stderr %q, wrote %q", code, errs, w.writes())
		}
		if format == openMetrics {
			out = strings.Replace(out, `version="`+buildVersion()+`"`, `version="v"`, 1)
		}
		golden.Check(t, "testdata/status/"+format+".txt", out)
	}
}

// TestStatusAway: the table tells that a donor may be off, and of a silent run what ends that.
func TestStatusAway(t *testing.T) {
	at := time.Date(2026, 11, 20, 3, 0, 0, 0, time.UTC)
	const line = "Donor away:\tn2, since 2026-11-20T02:00:00Z"
	for _, tt := range []struct {
		name   string
		change func(*kamino.Unfinished)
		want   string
	}{
		{"at work", func(u *kamino.Unfinished) { u.Alive = true }, line + " (1h0m)\n"},
		{"silent", func(*kamino.Unfinished) {}, line + " (1h0m); it may be off until one of these commands ends the run:\n\tkamino update --target-node n2 finishes it, kamino restore gives back"},
		{"never heard of", func(u *kamino.Unfinished) { u.Heartbeat = time.Time{} }, line + "; it may be off"},
		{"patched", func(u *kamino.Unfinished) { u.Alive, u.Work = true, kamino.WorkPatch }, "Node" + strings.TrimPrefix(line, "Donor")},
		{"back", func(u *kamino.Unfinished) { u.AwayEnds = at }, ""},
		{"not taken yet", func(u *kamino.Unfinished) { u.AwaySince = time.Time{} }, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			u := &kamino.Unfinished{Run: "r1", Process: "host/1", Heartbeat: at.Add(-5 * time.Minute), Silence: 300}
			u.Donor, u.Step, u.Started, u.AwaySince = "n2", "stop", at.Add(-2*time.Hour), at.Add(-time.Hour)
			tt.change(u)
			var out strings.Builder
			view.Table(&out, []poolstate.PoolStatus{{Name: "pool1", Unfinished: u}}, false)
			if told := strings.Contains(out.String(), " away:"); told != (tt.want != "") || !strings.Contains(out.String(), tt.want) {
				t.Errorf("want %q in\n%s", tt.want, out.String())
			}
		})
	}
	t.Run("paused", func(t *testing.T) {
		for work, want := range map[kamino.Work]string{
			"":               "\n\tkamino resume && kamino update --target-node n2 finishes it, kamino restore gives back",
			kamino.WorkPatch: "\n\tkamino resume && kamino patch --target-node n2 finishes it, kamino restore gives back",
			kamino.WorkProve: "as does the next run; kamino resume && kamino promote --prove canary",
		} {
			u := &kamino.Unfinished{Run: "r1", Process: "host/1", Heartbeat: at, Record: kamino.Record{Donor: "n2", Work: work}}
			var out strings.Builder
			view.Table(&out, []poolstate.PoolStatus{{Name: "pool1", Unfinished: u, Paused: "incident 7"}}, false)
			if !strings.Contains(out.String(), want) {
				t.Errorf("want %q in\n%s", want, out.String())
			}
		}
	})
}

func TestRollback(t *testing.T) {
	w := newFakeWorld()
	p := stale(w)
	w.cloud.put(p, kamino.KindVersion, "2026.11.01", map[string]string{kamino.TagBuiltFrom: "n1", kamino.TagRun: "r0", kamino.TagReceipt: "sha256:1"})
	w.cluster.leases[p.ID] = kamino.Lease{Revision: "1", Ledger: kamino.Ledger{Original: &kamino.SavedModel{Image: stock, Saved: p.Model.Saved}}}
	run := func(wantCode int, args ...string) string {
		t.Helper()
		out, errs, code := w.kamino(t, append([]string{"rollback", "--pool", pool1}, args...)...)
		if code != wantCode {
			t.Errorf("rollback %q: exit code %d, want %d: %s", args, code, wantCode, errs)
		}
		return fmt.Sprintf("$ kamino rollback %s\n%s", strings.Join(args, " "), out)
	}
	image := func(version string) string { return w.cloud.Address(*p, kamino.KindVersion, version) }
	expect := func(what, model string, bad ...string) {
		t.Helper()
		if got := w.cloud.pools[p.ID].Model.Image; got != model {
			t.Errorf("%s: the model refers to %s, want %s", what, got, model)
		}
		for _, name := range []string{"2026.11.01", "2026.11.10"} {
			v := w.cloud.artifacts[image(name)]
			want := strings.Contains(strings.Join(bad, " "), name)
			if v.Excluded != want || (v.Tags[kamino.TagBad] != "") != want {
				t.Errorf("%s: version %s excluded %t, mark %q; want it marked: %t", what, name, v.Excluded, v.Tags[kamino.TagBad], want)
			}
		}
	}
	text := run(exitToDo, "--dry-run", "--detailed-exitcode")
	if wrote := w.writes(); len(wrote) > 0 {
		t.Errorf("the dry-run wrote %q", wrote)
	}
	expect("after the dry-run", image("2026.11.10"))
	text += run(exitFailed, "--to", "original", "--dry-run") // as it is without --dry-run
	if real := run(exitFailed, "--to", "original"); !strings.HasSuffix(real, "original\n") || len(w.writes()) > 0 {
		t.Errorf("back to the original without its custom data: %s, wrote %q", real, w.writes())
	}
	text += run(exitFine)
	expect("one version back", image("2026.11.01"), "2026.11.10")
	if plan, _, _ := w.kamino(t, "plan"); strings.Contains(plan, "point the model") {
		t.Errorf("the plan undoes the rollback:\n%s", plan)
	}
	text += run(exitFine)
	expect("no further back without a name", image("2026.11.01"), "2026.11.10")
	if out, _, _ := w.kamino(t, "status"); !strings.Contains(out, "original, with --to\n") {
		t.Errorf("status does not say that the target has to be named:\n%s", out)
	}
	text += run(exitFine, "--to", "original", "--keep-custom-data")
	expect("back to before the first prototype", stock, "2026.11.01", "2026.11.10")
	text += run(exitFine, "--to", "2026.11.10")
	expect("forward again", image("2026.11.10"), "2026.11.01")
	before := len(w.writes())
	text += run(exitFine, "--to", "2026.11.10")
	if wrote := w.writes()[before:]; len(wrote) > 0 {
		t.Errorf("repeated, it wrote %q", wrote)
	}
	models := 0
	for _, what := range w.cloud.writes {
		if strings.HasPrefix(what, "model ") {
			models++
		}
	}
	if models != 3 {
		t.Errorf("%d writes of the model, want one for each move: %q", models, w.cloud.writes)
	}
	if l := w.cluster.leases[p.ID]; l.Holder != "" {
		t.Errorf("the lease is still held by %s", l.Holder)
	}
	golden.Check(t, "testdata/rollback.txt", text)
}

// TestDistrusted: what is done about a pool that does not follow its definition depends on who
// writes its model.
func TestDistrusted(t *testing.T) {
	for owner, want := range map[*kamino.Owner]string{
		nil:             "the model is written by version until somebody removes the tag kamino-pointer",
		{Name: "prod1"}: "prod1 writes the model, so that nothing else is done about it",
	} {
		var out strings.Builder
		view.Table(&out, []poolstate.PoolStatus{{Strayed: &kamino.Stray{Booted: "1.0.1", Promoted: "1.0.2"}, Owner: owner}}, false)
		if !strings.Contains(out.String(), want) {
			t.Errorf("owner %v: %s", owner, out.String())
		}
	}
}

// TestPatchedAway: who was woken sees in the status and on its page that a patch has a node, and
// which nodes patches left blocked.
func TestPatchedAway(t *testing.T) {
	w := newFakeWorld()
	p := stale(w)
	since := w.now.Add(-20 * time.Minute)
	w.cluster.leases[p.ID] = kamino.Lease{Revision: "1", Holder: "r2", Process: "laptop/77", Epoch: 4, Renewed: w.now.Add(-5 * time.Minute),
		Record: kamino.Record{Donor: "n2", Step: "patch", Work: kamino.WorkPatch, Started: since},
		Ledger: kamino.Ledger{Past: []kamino.PastRun{{Run: "r1", Donor: "n1", Work: kamino.WorkPatch, Version: "2026.11.19", Ended: since, Seconds: 300, Step: "patch", Failure: "patch: interrupted"},
			{Run: "r0", Donor: "n1", Work: kamino.WorkPatch, Ended: since, Seconds: 200, Packages: 3},
			{Run: "r-1", Verb: kamino.VerbWithdraw, Withdrawn: "2026.11.10", Reason: "slow", Pointed: "2026.11.09", Ended: since, Seconds: 3}}}}
	n := w.cluster.nodes["n1"]
	n.Taints = []kamino.Taint{{Key: kamino.TaintPatchFailed, Effect: "NoSchedule"}}
	n.Annotations[kamino.AnnotationPatchFailed] = `{"run":"r1","reason":"patch: interrupted","at":"` + since.Format(time.RFC3339) + `"}`
	out, errs, code := w.kamino(t, "status")
	if code != 0 || errs != "" {
		t.Errorf("exit code %d: %s", code, errs)
	}
	golden.Check(t, "testdata/status/patch.txt", out)
	page, _, _ := w.kamino(t, "status", "-o", "html")
	for _, want := range []string{"kamino patch --target-node n2", "node n1 stays blocked after a patch", "kamino patch --target-node n1"} {
		if !strings.Contains(page, want) {
			t.Errorf("the page does not say %q", want)
		}
	}
}

func TestStatusHTML(t *testing.T) {
	w := newFakeWorld()
	history(w)
	out, errs, code := w.kamino(t, "status", "-o", "html")
	if code != 0 || errs != "" || !strings.HasPrefix(out, "<!doctype html>") || !strings.Contains(out, "2026.10.02") || len(w.writes()) > 0 {
		t.Errorf("exit code %d, stderr %q\n%.500s", code, errs, out)
	}
	for _, args := range [][]string{{"plan", "-o", "html"}, {"status", "-o", "htm"}} {
		if _, errs, code := newFakeWorld().kamino(t, args...); code != exitFailed || !strings.Contains(errs, "Hint: ") {
			t.Errorf("%v: exit code %d, %s", args, code, errs)
		}
	}
}
