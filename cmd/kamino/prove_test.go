package main

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"kamino.dev/kamino"
)

// TestProofExit: a bad image and a proof that tells nothing have exit codes of their own, also
// where a run joins other errors to them.
func TestProofExit(t *testing.T) {
	for outcome, want := range map[kamino.Outcome]int{kamino.ProofFailed: exitBadImage, kamino.ProofInconclusive: exitUnproved} {
		proof := &kamino.ProofError{Version: "2026.11.22", Outcome: outcome, Findings: []kamino.Finding{{Check: "clock", Outcome: outcome, Evidence: "an hour ahead"}}}
		for _, err := range []error{proof, fmt.Errorf("pool a: %w", proof), errors.Join(kamino.WithHint(&kamino.StepError{Step: "examine", Err: proof}, "hint"), errors.New("other"))} {
			var out bytes.Buffer
			a := newApp(ioStreams{In: strings.NewReader(""), Out: &out, Err: &out}, func(string) string { return "" }, func(int) {})
			if got := a.conclude(err); got != want || !strings.Contains(out.String(), "2026.11.22") || !strings.Contains(out.String(), "clock: an hour ahead") {
				t.Errorf("%v: exit code %d, want %d\n%s", err, got, want, out.String())
			}
		}
	}
}

// TestVersionNotes: status tells a version's state, and how its proof ended.
func TestVersionNotes(t *testing.T) {
	for _, tt := range []struct {
		v    kamino.VersionStatus
		want string
	}{
		{kamino.VersionStatus{Life: kamino.LifeHidden, Excluded: true, Proof: "inconclusive: cloud: no quota"}, "hidden; proof inconclusive: cloud: no quota"},
		{kamino.VersionStatus{Life: kamino.LifeWaiting, Excluded: true, Proof: "passed"}, "waiting"},
		{kamino.VersionStatus{Life: kamino.LifeWithdrawn, Excluded: true, Bad: "failed its proof: clock: an hour ahead"}, "bad: failed its proof: clock: an hour ahead"},
		{kamino.VersionStatus{Life: kamino.LifePromoted, BadAncestor: "2026.11.01"}, "its line goes back to 2026.11.01, which was withdrawn"},
	} {
		if got := versionNote(tt.v, true); got != tt.want {
			t.Errorf("%q, want %q", got, tt.want)
		}
	}
}
