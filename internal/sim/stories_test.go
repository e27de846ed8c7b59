package sim

import (
	"context"
	"fmt"
	"testing"
	"time"

	"kamino.dev/kamino"
)

// stories are what no single fault tells: how a pool or a donor stands before anything happens.
// Each returns what went wrong, "" nothing.
var stories = []struct {
	name string
	play func() string
}{
	{"a donor whose disk does not fit its pool", func() string {
		w, asked, p := aged(1), 0, &proc{}
		p.tune = func(e *kamino.Engine) {
			e.Provider = fitting{simProvider{p}, []kamino.Refusal{{Code: "fit", Field: "diskControllerType", Value: "NVMe", Why: "w", Do: "d"}}, nil, &asked}
		}
		w.startUpdate(p, options("a-0"))
		w.wait()
		return unless(p.err != nil && w.writes == 0, "the run ended %v after %d writes", p.err, w.writes)
	}},
	{"a donor that is about to be rebooted", func() string {
		w := aged(1)
		w.nodes["a-0"].Annotations[kamino.KuredPendingReboot.Annotation] = "now"
		o := options("a-0")
		o.PendingReboot = []kamino.Signal{kamino.KuredPendingReboot}
		p := w.update(o)
		return unless(p.err != nil && w.writes == 0, "the run ended %v after %d writes", p.err, w.writes)
	}},
	{"a snapshot of another disk, with the tags of a run that was", func() string { return copiedTags("a-2", true) }},
	{"a snapshot of a run that the ledger does not know", func() string { return copiedTags("a-0", false) }},
	{"a version that is left to a person, and a night without that option", func() string {
		w, o := aged(1), proving()
		o.Proof.Promote = kamino.PromoteManual
		was := w.pools[poolA].image
		p := w.update(o)
		night := autoOptions()
		night.Proof = proving().Proof
		again, _ := w.auto(night)
		return unless(p.err == nil && again.err == nil && w.pools[poolA].image == was && len(w.audit.violations) == 0,
			"the run ended %v, the night %v, and the pool refers to %s, not to %s", p.err, again.err, w.pools[poolA].image, was)
	}},
	{"a version that was rolled back, and a night", func() string {
		w := aged(1)
		if p := w.update(options("a-0")); p.err != nil {
			return p.err.Error()
		}
		p := &proc{}
		w.spawn(p, func(ctx context.Context) { _, p.err = p.engine().Rollback(ctx, kamino.RollbackOptions{Pool: "a"}) })
		w.wait()
		back := w.pools[poolA].image
		w.advance(w.now.Add(time.Hour))
		night, _ := w.auto(autoOptions())
		return unless(p.err == nil && w.pools[poolA].image == back, "rolled back (%v) to %s, the pool refers to %s after a night (%v)", p.err, back, w.pools[poolA].image, night.err)
	}},
}

func unless(good bool, format string, args ...any) string {
	if good {
		return ""
	}
	return fmt.Sprintf(format, args...)
}

// TestStories: all of them end well.
func TestStories(t *testing.T) {
	for _, s := range stories {
		if wrong := s.play(); wrong != "" {
			t.Errorf("%s: %s", s.name, wrong)
		}
	}
}

// copiedTags is a run in a pool whose snapshot is that of another disk, or of a run that the ledger
// does not know, whatever its tags say: it is not promoted.
func copiedTags(of string, known bool) string {
	w := aged(1)
	donor := w.machineOf(w.nodes["a-0"])
	snapshot := kamino.SnapshotName("a")
	w.artifacts[artifactKey(poolA, kamino.Snapshot, snapshot)] = &simArtifact{pool: poolA, Artifact: kamino.Artifact{
		Kind: kamino.Snapshot, Name: snapshot, ID: artifactID(poolA, kamino.Snapshot, snapshot), State: kamino.Succeeded, Ready: true, Percent: 100,
		Created: w.now, Source: w.machineOf(w.nodes[of]).Disk,
		Tags: map[string]string{kamino.TagBuiltFrom: "a-0", kamino.TagVM: donor.VMID, kamino.TagReceipt: "deadbeef", kamino.TagRun: "r-earlier",
			kamino.TagEpoch: "7", kamino.TagBuiltAt: w.now.UTC().Format(kamino.BuiltAtFormat)}}}
	if l := w.leases[poolA]; known {
		l.Ledger.Past = []kamino.PastRun{{Run: "r-earlier", Donor: "a-0", Failure: "f", Step: "image"}}
		w.leases[poolA] = l
	}
	p := w.update(options("a-0"))
	v := w.version(kamino.VersionName(w.now))
	return unless(p.err == nil && v != nil && v.Tags[kamino.TagRun] != "r-earlier" && w.pools[poolA].image == v.ID && p.result.AwaySeconds > 0,
		"the run ended %v, version %+v, away %.0f s", p.err, v, p.result.AwaySeconds)
}
