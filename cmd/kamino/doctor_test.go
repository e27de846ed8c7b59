package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"kamino.dev/kamino"
	"kamino.dev/kamino/engine"
)

// TestDoctor: each thing that would stop a run is a failed check with what to do, beside
// those that passed, and nothing is written anywhere.
func TestDoctor(t *testing.T) {
	const fine = "image cloud cluster donor lease model gallery definition version reuse rehearse"
	held := func(w *fakeWorld, alive bool) {
		l := kamino.Lease{Revision: "1", Holder: "r9", Process: "host/1", Renewed: w.now, Record: kamino.Record{Step: "drain", Donor: "n3"}}
		if !alive {
			l.Renewed = w.now.AddDate(0, 0, -1)
		}
		w.cluster.leases[fakePool(pool1)] = l
	}
	tests := []struct {
		name   string
		world  func(*fakeWorld)
		args   []string
		passed string
		failed string
		warned string
		do     string // in the advice of what did not pass
	}{
		{name: "all is well", passed: fine},
		{name: "a node of choice", args: []string{"--target-node", "n3"}, passed: fine},
		{name: "the only image that is listed", world: func(w *fakeWorld) { delete(w.env, "POD_IMAGE") }, passed: fine},
		{name: "no image", world: func(w *fakeWorld) { delete(w.env, "POD_IMAGE"); w.cluster.noImages = true }, passed: strings.TrimPrefix(fine, "image "), failed: "image", do: "--image NAME@sha256:DIGEST"},
		{name: "image not pinned", args: []string{"--image", "kamino:latest"}, passed: strings.TrimPrefix(fine, "image "), failed: "image", do: "--image NAME@sha256:DIGEST"},
		{name: "image that may not seal disks", world: func(w *fakeWorld) { w.cluster.noImages = true },
			passed: strings.TrimPrefix(fine, "image "), warned: "image", do: "kamino init --seal-image " + fakeSealImage},
		{name: "cluster not prepared", world: func(w *fakeWorld) {
			w.cluster.unprepared = kamino.WithHint(errors.New("not prepared"), "kamino init")
		}, passed: strings.Replace(fine, "cluster ", "", 1), failed: "cluster", do: "kamino init"},
		{name: "a cluster that is paused", world: func(w *fakeWorld) { w.cluster.paused = "an incident" },
			passed: fine, failed: "paused", do: "kamino resume"},
		{name: "unknown node", args: []string{"--target-node", "nope"}, passed: "image cloud cluster", failed: "unknown-node", do: "kubectl get nodes"},
		{name: "this very node", args: []string{"--target-node", "n2"}, world: func(w *fakeWorld) { w.env["NODE_ID"] = "n2" },
			passed: "image cloud cluster", failed: "self", do: "another node"},
		{name: "a pod that nothing brings back", world: func(w *fakeWorld) {
			w.cluster.pods["n3"] = []kamino.Pod{{Namespace: "default", Name: "bare", Reason: "no controller", Stuck: true}}
		}, passed: strings.TrimSuffix(fine, " rehearse"), failed: "drain", do: "--force"},
		{name: "a pod that a webhook keeps", world: func(w *fakeWorld) {
			w.cluster.doubtful = true
			w.cluster.pods["n3"] = []kamino.Pod{{Namespace: "default", Name: "kept", Reason: "a webhook denied it"}}
		}, passed: fine, warned: "rehearse"},
		{name: "pool that cannot be read", world: func(w *fakeWorld) { w.cloud.fails[fakePool(pool1)] = fmt.Errorf("read: %w", kamino.ErrForbidden) },
			passed: "image cloud cluster", failed: "pool", do: "grant"},
		{name: "a right that some runs want", world: func(w *fakeWorld) {
			w.cloud.doubts = []kamino.Warning{{Found: "skus/read is not allowed", Do: "a role with it"}}
		},
			passed: fine, warned: "cloud", do: "a role with it\n"},
		{name: "no candidate", args: []string{"--minimum-ready-time", "90d"}, passed: "image cloud cluster lease", warned: "donor", do: "kamino plan --pool " + pool1},
		{name: "another run at work", world: func(w *fakeWorld) { held(w, true) }, passed: strings.Replace(fine, "lease ", "", 1), warned: "lease", do: "if the process is gone: kamino restore"},
		{name: "a run that ended", world: func(w *fakeWorld) { held(w, false) }, passed: strings.Replace(fine, "lease ", "", 1), warned: "lease", do: "kamino restore"},
		{name: "a run that ended and left its donor off", world: func(w *fakeWorld) {
			held(w, false)
			l := w.cluster.leases[fakePool(pool1)]
			l.Record.Donor, l.Record.AwaySince = "n3", w.now.Add(-time.Hour)
			w.cluster.leases[fakePool(pool1)] = l
		}, passed: strings.Replace(fine, "lease ", "", 1), warned: "lease", do: "kamino update --target-node n3 finishes it, kamino restore gives back"},
		{name: "a pool of one node", world: func(w *fakeWorld) { w.cloud.pools[fakePool(pool1)].Capacity = 1 }, passed: fine, warned: "rehearse"},
		{name: "unknown pool", args: []string{"--pool", "nope"}, passed: "image cloud cluster", failed: "pools", do: pool1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := newFakeWorld()
			stale(w)
			if tt.world != nil {
				tt.world(w)
			}
			out, errs, code := w.kamino(t, append([]string{"doctor", "-o", "json"}, tt.args...)...)
			var checks []engine.Check
			if err := json.Unmarshal([]byte(out), &checks); err != nil {
				t.Fatal(err, out, errs)
			}
			got := map[engine.Health][]string{}
			advice := ""
			for _, c := range checks {
				got[c.State] = append(got[c.State], c.Name)
				if c.State != engine.CheckPassed && c.Do == "" {
					t.Errorf("nothing is said of what to do about: %+v", c)
				}
				advice += c.Do + "\n"
			}
			for state, want := range map[engine.Health]string{engine.CheckPassed: tt.passed, engine.CheckFailed: tt.failed, engine.CheckWarned: tt.warned} {
				if !slices.Equal(got[state], strings.Fields(want)) {
					t.Errorf("%s: %v, want %s\n%s", state, got[state], want, out)
				}
			}
			if !strings.Contains(advice, tt.do) {
				t.Errorf("advice %q, want %q", advice, tt.do)
			}
			if (code == exitFailed) != (tt.failed != "") || code > exitFailed {
				t.Errorf("exit code %d", code)
			}
			if done := w.writes(); len(done) > 0 {
				t.Errorf("written: %v", done)
			}
		})
	}
}

// TestDoctorTable: people get a table, and a last line when something is wrong.
func TestDoctorTable(t *testing.T) {
	w := newFakeWorld()
	stale(w)
	delete(w.env, "POD_IMAGE")
	w.cluster.noImages = true
	out, errs, code := w.kamino(t, "doctor")
	if !strings.HasPrefix(out, "CHECK ") || !strings.Contains(out, "rehearse ") || !strings.Contains(errs, "1 of 11 checks failed") || code != exitFailed {
		t.Errorf("exit code %d\n%s%s", code, out, errs)
	}
}
