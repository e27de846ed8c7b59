package main

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"kamino.dev/kamino"
	"kamino.dev/kamino/engine"
	"kamino.dev/kamino/poolstate"
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

// TestPauseWords: a dry run ends as the run would, a second reason tells of the first, and who
// resumes what is not paused is told so.
func TestPauseWords(t *testing.T) {
	w := newFakeWorld()
	stale(w)
	for _, c := range []struct {
		args       []string
		out, wrong string
		code       int
	}{
		{[]string{"resume"}, "The cluster is not paused: nothing was changed.", "", exitFine},
		{[]string{"resume", "--reason", "x"}, "", "a resume takes no reason", exitFailed},
		{[]string{"resume", "--outptu", "x"}, "", "unknown flag: --outptu", exitFailed},
		{[]string{"pause", "disk", "array"}, "", `kamino pause --reason "disk array"`, exitFailed},
		{[]string{"pause", "--reason", "first"}, "The cluster is paused: first; active runs end within minutes, and no new run begins; kamino resume ends the pause\n", "", exitFine},
		{[]string{"update", "--target-node", "n3", "--prove", "none", "--dry-run"}, "", "node n3 refused: the cluster is paused: first (by ann, since 2026-03-10T09:00:00Z)\nHint: kamino resume ends it", exitRefused},
		{[]string{"status"}, "first (by ann, since 2026-03-10T09:00:00Z); kamino resume ends it", "", exitFine},
		{[]string{"status", "-o", "json"}, `"pausedBy": "ann",`, "", exitFine},
		{[]string{"plan"}, "first (by ann, since 2026-03-10T09:00:00Z); no run begins before kamino resume\n", "", exitFine},
		{[]string{"plan", "--detailed-exitcode"}, " nothing before kamino resume; then: make a new prototype of n3\n", "", exitFine},
		{[]string{"plan", "-o", "json"}, `"afterResume": "update"`, "", exitFine},
		{[]string{"plan", "-o", "json"}, `"donor": "n3"`, "", exitFine},
		{[]string{"pause", "--reason", "second"}, "The cluster is paused: second; active runs end within minutes, and no new run begins; kamino resume ends the pause\nBefore, it was: first (by ann, since 2026-03-10T09:00:00Z)\n", "", exitFine},
		{[]string{"update", "--target-node", "n3", "--prove", "none"}, "", "new runs and promotions refused: the cluster is paused: second (by ann, since 2026-03-10T09:00:00Z)\nHint: kamino resume ends it", exitRefused},
		{[]string{"update", "--target-node", "n3", "--prove", "none", "-o", "json"}, "\"hints\": [\n    \"kamino resume ends it\"\n  ]", "", exitRefused},
		{[]string{"promote", "--pool", pool1, "--version", "2026.11.10"}, "", "the cluster is paused: second (by ann, since 2026-03-10T09:00:00Z)\nHint: kamino resume ends it", exitRefused},
		{[]string{"doctor"}, "failed   the cluster is paused: second (by ann, since 2026-03-10T09:00:00Z) ", "", exitFailed},
		{[]string{"resume"}, "The cluster is no longer paused; it was: second (by ann, since 2026-03-10T09:00:00Z)\n", "", exitFine},
		{[]string{"update", "--target-node", "n3", "--prove", "none", "--dry-run"}, "STEP", "", exitFine},
	} {
		if out, errs, code := w.kamino(t, c.args...); code != c.code || !strings.Contains(out, c.out) || !strings.Contains(errs, c.wrong) {
			t.Errorf("%v: exit code %d, want %d\n%s%s", c.args, code, c.code, out, errs)
		}
	}
}

// TestAlready: who types it again is told that it was done.
func TestAlready(t *testing.T) {
	for _, done := range []string{"Promoted", "Withdrawn"} {
		var out bytes.Buffer
		(&pointCommand{done: done}).table(&out, engine.Rollback{Name: "a", To: "2026.11.22"})
		if want := "Already " + strings.ToLower(done) + ": the next node boots from 2026.11.22.\n"; !strings.HasSuffix(out.String(), want) {
			t.Errorf("%q, want %q", out.String(), want)
		}
	}
}

// TestProvedWords: whoever has a version proved is told by what it passed, and what no check could
// compare; of a dry run, what it would start.
func TestProvedWords(t *testing.T) {
	left := []kamino.Finding{{Check: "images", Outcome: kamino.ProofNotApplicable, Evidence: "no donor"}}
	for want, back := range map[string]engine.Rollback{
		"Proved:\tby canary c-0, Ready in 1m30s; 15 checks passed\nNot applicable:\timages: no donor\nWarning:\tretire: away\n": {
			Proof: &kamino.Proved{By: kamino.ProveCanary, Node: "c-0", ReadySeconds: 90, Checks: 15, Left: left}, Warnings: []string{"retire: away"}},
		"Proof:\tstart one instance (dry run)\n": {Canary: "start one instance"},
	} {
		var out bytes.Buffer
		back.Name, back.From, back.To, back.Changed = "a", "2026.11.21", "2026.11.22", true
		c := pointCommand{done: "Promoted"}
		c.promote.DryRun = back.Canary != ""
		if c.table(&out, back); !strings.Contains(out.String(), want) || !strings.Contains(out.String(), "Next node:\tboots from 2026.11.22, before from 2026.11.21") {
			t.Errorf("%q, want %q", out.String(), want)
		}
	}
}

// TestGivenBack: the result names the donor of an ended run that was given back first.
func TestGivenBack(t *testing.T) {
	r := engine.Rollback{Name: "a", From: "2026.11.10", To: "2026.11.22", GivenBack: []poolstate.Leftover{{Run: "r9", Node: "n3", What: "node is off", Done: "started"}}}
	for _, changed := range []bool{true, false} {
		var promoted, back bytes.Buffer
		r.Changed = changed
		(&pointCommand{done: "Promoted"}).table(&promoted, r)
		printRollback(&back, r, engine.RollbackOptions{})
		for _, out := range []string{promoted.String(), back.String()} {
			if want := "Given back:\tnode is off, of run r9, node n3: started\n"; !strings.Contains(out, want) {
				t.Errorf("%q lacks %q", out, want)
			}
		}
	}
}
