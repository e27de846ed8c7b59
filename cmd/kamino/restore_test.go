package main

import (
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"kamino.dev/kamino"
	"kamino.dev/kamino/engine"
	"kamino.dev/kamino/poolstate"
)

// TestNothingLeft: restore says that nothing was left only if it could look.
func TestNothingLeft(t *testing.T) {
	for want, failed := range map[string]error{"Nothing was left.\n": nil, "": errors.New("list leases: forbidden")} {
		var out strings.Builder
		if printLeft(&out, nil, false, failed); out.String() != want {
			t.Errorf("with error %v: %q, want %q", failed, out.String(), want)
		}
	}
}

// TestRestoreUnknownPool: the pools are named, as by other commands.
func TestRestoreUnknownPool(t *testing.T) {
	w := newFakeWorld()
	stale(w)
	if _, errs, code := w.kamino(t, "restore", "--pool", "wrong"); code != exitFailed || !strings.Contains(errs, "the pools are "+pool1) {
		t.Errorf("exit code %d: %s", code, errs)
	}
}

// TestRestoreBesideALiveRun: it is refused, in the table whole, and is no failure where a release
// ends.
func TestRestoreBesideALiveRun(t *testing.T) {
	world := func() *fakeWorld {
		w := newFakeWorld()
		p := stale(w)
		w.cluster.alive = true
		w.cluster.leases[p.ID] = kamino.Lease{Revision: "1", Holder: "r9", Process: "host-of-somebody-with-a-long-name.example.org/12345-abcde", Renewed: w.now,
			Record: kamino.Record{Donor: "n3", Step: "drain"}}
		return w
	}
	w := world()
	out, errs, code := w.kamino(t, "restore")
	if code != exitRefused || !strings.Contains(out, "donor n3, step drain): still active, left alone\n") {
		t.Errorf("exit code %d\n%s%s", code, out, errs)
	}
	if strings.Contains(errs, "level=ERROR") || !strings.Contains(errs, "kind=refused") {
		t.Errorf("a pool that is held is logged as a failure:\n%s", errs)
	}
	if out, errs, code := world().kamino(t, "restore", "--dry-run"); code != exitFine || !strings.Contains(out, "still active, left alone: last heartbeat 0s ago\n") || strings.Contains(out, "would be given back") {
		t.Errorf("dry run: exit code %d\n%s%s", code, out, errs)
	}
}

// TestUnreadableLease: every command that reads all pools reports a lease that cannot be read.
func TestUnreadableLease(t *testing.T) {
	for _, command := range []string{"restore", "restore --dry-run", "status", "plan"} {
		w := newFakeWorld()
		id := stale(w).ID
		w.cluster.leases[id] = kamino.Lease{Err: kamino.WithHint(errors.New("lease kamino-system/kamino-x: written by a newer kamino"), "use that version")}
		out, errs, code := w.kamino(t, strings.Fields(command)...)
		if code != exitFailed || strings.Count(out+errs, "kamino-system/kamino-x") != 1 || strings.Count(errs, "Hint: use that version") != 1 || strings.Contains(out, "Nothing was left") {
			t.Errorf("%s: exit code %d\n%s%s", command, code, out, errs)
		}
	}
}

// TestErrorsOnce: what stands beside each pool is not told again at the end, and a hint for all of
// them once.
func TestErrorsOnce(t *testing.T) {
	for _, command := range []string{"status", "plan", "status -o json"} {
		w := newFakeWorld()
		threePools(w)
		for id := range w.cloud.pools {
			w.cloud.fails[id] = kamino.WithHint(errors.New("the token has expired"), "az login")
		}
		out, errs, code := w.kamino(t, strings.Fields(command)...)
		if code != exitFailed || strings.Count(out, "the token has expired") != 3 || strings.Count(errs, "Hint: az login") != 1 {
			t.Errorf("%s: exit code %d\n%s%s", command, code, out, errs)
		}
		if told := strings.Count(errs, "the token has expired"); told != map[bool]int{true: 3}[strings.Contains(command, "json")] {
			t.Errorf("%s tells %d errors a second time:\n%s", command, told, errs)
		}
	}
}

// TestSilentRun: a run that was silent for longer than a lease lasts is told as one whose process
// has ended.
func TestSilentRun(t *testing.T) {
	for _, tt := range []struct {
		silent int
		word   string
	}{{59, "Running:"}, {76, "Unfinished:"}} {
		w := newFakeWorld()
		history(w)
		l := w.cluster.leases[fakePool(pool1)]
		l.Renewed = w.now.Add(-time.Duration(tt.silent) * time.Second)
		w.cluster.leases[fakePool(pool1)] = l
		out, errs, code := w.kamino(t, "status")
		if code != exitFine || !strings.Contains(out, tt.word) || tt.silent > 60 && !strings.Contains(out, "no heartbeat for 1m16s (its process has probably ended)") {
			t.Errorf("silent for %d s: exit code %d\n%s%s", tt.silent, code, out, errs)
		}
		if plan, _, _ := w.kamino(t, "plan"); strings.Contains(plan, " is active") != (tt.word == "Running:") {
			t.Errorf("silent for %d s:\n%s", tt.silent, plan)
		}
	}
}

// TestRemediesAreWhole: what to do is never cut, neither in a file nor on a terminal.
func TestRemediesAreWhole(t *testing.T) {
	remedy := strings.TrimSpace(strings.Repeat("then do this and that ", 12))
	print := map[string]func(*strings.Builder, int) error{
		"doctor": func(out *strings.Builder, columns int) error {
			table := outputFlag{format: "table"}
			return table.write(out, columns, nil, func(w io.Writer) {
				printChecks(w, []engine.Check{{Name: "image", Pool: "p", State: engine.CheckFailed, Found: strings.Repeat("found out ", 20) + "last", Do: remedy}})
			})
		},
		"restore": func(out *strings.Builder, columns int) error {
			table := outputFlag{format: "table"}
			return table.write(out, columns, nil, func(w io.Writer) {
				printLeft(w, []poolstate.Leftover{{Pool: "/p", Run: "r", Node: "n", What: "a mark that is not trusted", Reason: remedy}}, false, nil)
			})
		},
	}
	for name, table := range print {
		for _, columns := range []int{0, 80, 120} {
			var out strings.Builder
			if err := table(&out, columns); err != nil {
				t.Fatal(err)
			}
			if strings.Contains(out.String(), "…") || strings.Count(out.String(), "that") != 12+strings.Count(name, "restore") {
				t.Errorf("%s, %d columns:\n%s", name, columns, &out)
			}
			for line := range strings.Lines(out.String()) {
				if columns > 0 && len(line) > columns+1 {
					t.Errorf("%s: line %q is longer than %d", name, line, columns)
				}
			}
		}
	}
}
