package crash

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"kamino.dev/kamino/internal/worlds"
)

// Summary is a report as JSON.
type Summary struct {
	worlds.Report
	Calls int `json:"calls"`
	Idle  int `json:"idle"` // runs with nothing to do, at the end of cases
	Cells struct {
		Required int    `json:"required"`
		Empty    int    `json:"empty"`
		Names    []Cell `json:"names,omitempty"` // of the empty ones
	} `json:"cells"`
	Processes bool    `json:"processes"` // real processes were killed
	Seconds   float64 `json:"seconds"`
	Failures  []Fail  `json:"failures,omitempty"`
	// GaveUp are cases in which the run gave everything back, and the next one did
	// the work, although the matrix wants the first one to go on.
	GaveUp []string `json:"gaveUp,omitempty"`
}

// Fail is a case that broke something.
type Fail struct {
	Case string   `json:"case"`
	What []string `json:"what"`
}

// Summary sums a report up.
func (r *Report) Summary() Summary {
	s := Summary{Calls: r.Calls, Seconds: r.Took.Seconds()}
	s.Positions, s.Violations = len(r.Outcomes), r.Violations
	s.Cells.Required, s.Cells.Empty, s.Cells.Names = len(required(r.aws, r.work)), len(r.Empty), r.Empty
	s.Add(r.Away)
	for _, o := range r.Outcomes {
		if o.Idle {
			s.Idle++
		}
		if o.gaveUp() {
			s.GaveUp = append(s.GaveUp, fmt.Sprintf("%s: %v", o.Case.Name, o.FirstErr))
		}
		what := o.Violations
		if !o.Hit {
			what = append(slices.Clone(what), "the case did not happen: its call was never made")
		}
		if len(what) > 0 {
			s.Failures = append(s.Failures, Fail{o.Case.Name, what})
		}
	}
	return s
}

// gaveUp tells whether a run failed because of a lie where the matrix wants it to
// go on: to try again or to look.
func (o Outcome) gaveUp() bool {
	switch kind := o.Case.Strike.Kind; {
	case o.FirstErr == nil, kind.Kills(), kind == worlds.RivalActs, kind == worlds.NoAnswer, kind == worlds.OperationEndless,
		kind == worlds.Interrupted, kind == "":
		return false
	}
	return strings.Trim(o.Case.Cell.wants(), "RL") == ""
}

// WriteJSON prints the summary.
func (s Summary) WriteJSON(w io.Writer) error {
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	return encoder.Encode(s)
}

// WriteText prints the report for people.
func (r *Report) WriteText(w io.Writer, s Summary) {
	for _, f := range s.Failures {
		fmt.Fprintf(w, "VIOLATED  %s\n", f.Case)
		for _, what := range f.What {
			fmt.Fprintf(w, "          %s\n", what)
		}
	}
	kills := "in-process"
	if s.Processes {
		kills = "SIGKILL of real processes"
	}
	if !s.Processes {
		fmt.Fprintf(w, "Cases for each cell of the fault matrix:\n\n")
		printMatrix(w, r.Cells, r.aws, r.work)
	}
	fmt.Fprintf(w, "\nThe donor's time away, on the virtual clock, over all cases:\n\n")
	most := 1
	for _, bar := range s.Histogram {
		most = max(most, bar.Count)
	}
	for _, bar := range s.Histogram {
		fmt.Fprintf(w, "  up to %-7s %5d %s\n", bar.UpTo, bar.Count, strings.Repeat("#", (bar.Count*50+most-1)/most))
	}
	fmt.Fprintf(w, "\nCalls disturbed:    %d\nPositions tried:    %d (%s)\nViolations:         %d\n",
		s.Calls, s.Positions, kills, s.Violations)
	if !s.Processes {
		fmt.Fprintf(w, "Cells:              %d required, %d empty\n", s.Cells.Required, s.Cells.Empty)
	}
	fmt.Fprintf(w, "Run once more:      %d, with nothing to do\n", s.Idle)
	fmt.Fprintf(w, "Gave up too early:  %d, everything given back\n", len(s.GaveUp))
	if s.Seeds > 0 {
		fmt.Fprintf(w, "Random walks:       %d seeds\nDefects:            %d seeded, %d caught\n", s.Seeds, s.Defects.Seeded,
			s.Defects.Caught)
	}
	fmt.Fprintf(w, "Donor away:         %s\nTook:               %.0f s\n", s.Away, s.Seconds)
}
