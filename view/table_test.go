package view

import (
	"cmp"
	"testing"

	"kamino.dev/kamino"
	"kamino.dev/kamino/poolstate"
)

// TestVersionNotes: status tells the state of every version, and how its proof ended.
func TestVersionNotes(t *testing.T) {
	ready := func(v poolstate.VersionStatus) poolstate.VersionStatus {
		v.State, v.Ready, v.Percent = cmp.Or(v.State, kamino.Succeeded), true, 100
		return v
	}
	for _, tt := range []struct {
		v           poolstate.VersionStatus
		state, note string
	}{
		{poolstate.VersionStatus{Phase: kamino.PhaseBuilding, State: kamino.Creating, Percent: 40}, "building 40%", "-"},
		{poolstate.VersionStatus{Phase: kamino.PhasePromoted, Proof: "passed", State: kamino.Succeeded, Percent: 60}, "promoted 60%", "-"},
		{ready(poolstate.VersionStatus{Phase: kamino.PhaseHidden, Excluded: true, Proof: "inconclusive: cloud: no quota"}), "hidden", "proof inconclusive: cloud: no quota"},
		{ready(poolstate.VersionStatus{Phase: kamino.PhaseHidden, Excluded: true, Proof: "abandoned"}), "hidden", "proof abandoned"},
		{ready(poolstate.VersionStatus{Phase: kamino.PhasePromoted, Proof: "passed"}), "promoted", "-"},
		{ready(poolstate.VersionStatus{Phase: kamino.PhasePromoted}), "promoted", "unproved"},
		{ready(poolstate.VersionStatus{Phase: kamino.PhasePromoted, Proof: "omitted"}), "promoted", "unproved"},
		{ready(poolstate.VersionStatus{Phase: kamino.PhasePromoted, Proof: "wanted"}), "promoted", "unproved so far"},
		{ready(poolstate.VersionStatus{Phase: kamino.PhasePromoted, Proof: "inconclusive: cloud: no quota"}), "promoted", "proof inconclusive: cloud: no quota"},
		{ready(poolstate.VersionStatus{Phase: kamino.PhaseHidden}), "hidden", "unproved"},
		{ready(poolstate.VersionStatus{Phase: kamino.PhaseHidden, Proof: "wanted"}), "hidden", "unproved so far"},
		{ready(poolstate.VersionStatus{Phase: kamino.PhaseProving, Excluded: true}), "proving", "-"},
		{ready(poolstate.VersionStatus{Phase: kamino.PhaseWaiting, Excluded: true, Proof: "passed"}), "waiting", "passed; kamino promote makes new nodes boot from it"},
		{ready(poolstate.VersionStatus{Phase: kamino.PhaseHidden, Unaccepted: true, Proof: "passed"}), "hidden", "its instances would run the owner's bootstrap: kamino plan shows how to accept it"},
		{ready(poolstate.VersionStatus{Phase: kamino.PhaseWithdrawn, Excluded: true, Instances: 2, Bad: "leaks a key"}), "withdrawn", "withdrawn, and in use by 2 instances; bad: leaks a key"},
		{ready(poolstate.VersionStatus{Phase: kamino.PhaseWithdrawn, Excluded: true, Bad: "failed its proof: clock: an hour ahead"}), "withdrawn", "bad: failed its proof: clock: an hour ahead"},
		{ready(poolstate.VersionStatus{Phase: kamino.PhasePromoted, Proof: "passed", BadAncestor: "2026.11.01"}), "promoted", "it descends from 2026.11.01, which was withdrawn"},
		{ready(poolstate.VersionStatus{Phase: kamino.PhasePromoted, Proof: "passed", State: kamino.Failed, Failure: "a tag was refused"}), "promoted", "last change failed: a tag was refused"},
		{poolstate.VersionStatus{Phase: kamino.PhaseFailed, State: kamino.Failed, Failure: "the disk was odd"}, "failed", "the disk was odd"},
		{poolstate.VersionStatus{Phase: kamino.PhaseFailed, State: kamino.Deleting}, "deleting", "-"},
	} {
		if state, note := versionState(tt.v), versionNote(tt.v, true); state != tt.state || note != tt.note {
			t.Errorf("%s: %s, want %s: %s", state, note, tt.state, tt.note)
		}
	}
}

// TestPastResults: the history tells what each run did to the pool's next image, and why.
func TestPastResults(t *testing.T) {
	for _, tt := range []struct {
		run  kamino.PastRun
		want string
	}{
		{kamino.PastRun{}, "ok"},
		{kamino.PastRun{Failure: "no quota"}, "failed: no quota"},
		{kamino.PastRun{Pointed: "2026.11.10", Verb: kamino.VerbPromote}, "promoted 2026.11.10"},
		{kamino.PastRun{Pointed: "original", Verb: kamino.VerbRollback}, "rolled back to original"},
		{kamino.PastRun{Pointed: "2026.11.01", Verb: kamino.VerbWithdraw, Withdrawn: "2026.11.10", Reason: "disk fills up"}, "withdrew 2026.11.10: disk fills up; next node boots from 2026.11.01"},
		{kamino.PastRun{Verb: kamino.VerbWithdraw, Withdrawn: "2026.11.10", Reason: "disk fills up"}, "withdrew 2026.11.10: disk fills up"},
		{kamino.PastRun{Work: kamino.WorkPatch, Packages: 3}, "patched the node, 3 packages changed"},
		{kamino.PastRun{Work: kamino.WorkPatch}, "checked the node's packages, nothing to upgrade"},
		{kamino.PastRun{Work: kamino.WorkPatch, Failure: "no answer"}, "patch failed: no answer"},
		{kamino.PastRun{Verb: kamino.VerbWithdraw, Withdrawn: "2026.11.10", Reason: "disk fills up", Failure: "no answer"}, "withdraw failed: no answer"},
	} {
		if got := pastResult(tt.run); got != tt.want {
			t.Errorf("%q, want %q", got, tt.want)
		}
	}
}
