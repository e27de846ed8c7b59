package crash

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"kamino.dev/kamino/internal/invariant"
)

// Columns of the fault matrix.
var columns = []struct{ Key, Says string }{
	{"1", "429"}, {"2", "409 or preempted"}, {"3", "5xx, not done"}, {"4", "done, reply lost"}, {"5a", "done, failure reported"},
	{"5b", "not done, success reported"}, {"6", "operation failed or lost"}, {"7", "killed, three positions"}, {"8", "second kamino"},
	{"9", "donor gone or replaced"}, {"10", "stale read"}, {"11", "change by others"}, {"12", "never finishes"},
	{"13", "midnight, wrong clock"}, {"14", "403"}, {"15", "quota, capability"}, {"16", "told to stop"},
}

// rows of the fault matrix, each with the reactions that it requires, one per
// column: R retry, L look and go on, C compensate and fail, X refuse before any
// effect, B roll back, W wait with a deadline, N another candidate, A adopt,
// - nothing to react to.
var rows = []struct{ Key, Says, Wants string }{
	{"S0", "preflight", "R R R - - - - A W N L N X L X X X"},
	{"S1", "lock and epoch", "R R R L L L - A W N L W X L X - X"},
	{"S2", "protect", "R R R L L L L A W N L L N - X - C"},
	{"S3", "block", "R R R L L L - A W N L L N - X - C"},
	{"S4", "drain", "R R R L L L - A W C L L CN L C - C"},
	{"H1", "out of service", "R R R L L L - A W C L L C - C - C"},
	{"S5", "seal", "R R R L L C - A W C L C C - C - C"},
	{"S6", "power off", "R R R L L LR LR A W C L L C - C - C"},
	{"S7", "snapshot", "R R R L L LR C A W CL L C C L C C C"},
	{"S8", "power on", "R R R L L LR R A L L L L R - R R R"},
	{"S9", "wait until Ready", "- - R - - - - A W L L L P L R - W"},
	{"H2", "back in service", "R R R L L L - A L L L L R - R - R"},
	{"S10", "unblock, unprotect", "R R R L L L - A L L L L R - R - R"},
	{"S12", "gallery, definition", "R R R L L LR L A W - L X X - X X C"},
	{"S13", "create version", "R R R L L LR R A W - L X C L RX C C"},
	{"S14", "write the model", "R LR R L L LR L A X - L LR B - X - B"},
	{"S18", "start a canary", "R R R L L LR R A C - L L C - C C C"},
	{"S19", "its node, the proof", "R R R L L - - A W - L L C - C - C"},
	{"S20", "remove a canary", "R R R L L LR R A L - L L L - R - R"},
	{"P1", "choose whom to patch", "R R R - - - - A W N L N X L X - X"},
	{"P2", "upgrade packages", "R R R L L L - A W C L L C L C - C"},
	{"P3", "restart", "R R R L L LR - A W C L L C L C - C"},
	{"P4", "examine", "R R R L L LR - A W C L L C L C - C"},
	{"P5", "sign", "R R R L L LR - A W C L L C L C - C"},
	{"V1", "roll back", "- - - - - - - A - - - - - - - - -"},
	{"V2", "withdraw", "- - - - - - - A - - - - - - - - -"},
	{"V3", "promote", "- - - - - - - A - - - - - - - - -"},
	{"S16", "prune", "R R R L L LR R A X - X X W L W - W"},
	{"S17", "clean up", "R R R L L LR R A L - L L P L R - R"},
}

// Cell is one cell of the matrix.
type Cell struct {
	Row    string `json:"row"`
	Column string `json:"column"`
}

func (c Cell) String() string { return c.Row + "/" + c.Column }

// wants is the reaction that a cell requires, "-" for none.
func (c Cell) wants() string {
	for _, r := range rows {
		if r.Key == c.Row {
			for i, w := range strings.Fields(r.Wants) {
				if columns[i].Key == c.Column {
					return w
				}
			}
		}
	}
	return "-"
}

// on says that a cell is of one cloud only: galleries, operations that are asked after, a region
// without a kind of storage and a step that begins no call are Azure's, a way out of service is
// AWS's.
func (c Cell) on(aws bool) bool {
	switch {
	case c.Row == "H1", c.Row == "H2":
		return aws
	case c.work() == Patch:
		return !aws
	case !aws:
		return true
	case c.Row == "S12":
		return false
	case c.Column == "6":
		return c.Row == "S7" || c.Row == "S13"
	}
	return c != Cell{"S13", "15"} && c != Cell{"S14", "12"} && c != Cell{"S17", "5b"} // a kept snapshot needs no deletion
}

// work is the command whose steps the cell is of.
func (c Cell) work() Work {
	for command, row := range moves {
		if c.Row == row {
			return command
		}
	}
	if c.Row[0] == 'P' {
		return Patch
	}
	return Update
}

// required lists the cells that need a case.
func required(aws bool, work Work) []Cell {
	var out []Cell
	for _, r := range rows {
		for _, c := range columns {
			if cell := (Cell{r.Key, c.Key}); cell.wants() != "-" && cell.on(aws) && work.has(cell.work()) {
				out = append(out, cell)
			}
		}
	}
	return out
}

// rowsOf tells the row of each call of a run. Some steps of the pipeline are
// several rows.
func rowsOf(calls []*Call) []string {
	byStep := map[string]string{
		"connect": "S0", "validate": "S0", "lock": "S1", "recover": "S1", "gallery": "S12", "definition": "S12", "version": "S13",
		"choose": "P1", "check": "P1", "patch": "P2", "reboot": "P3", "sign": "P5", "reuse": "S7", "rehearse": "S0", "protect": "S2",
		"inventory": "S2", "drain": "S3", "hold": "H1", "release": "H2", "seal": "S5", "stop": "S6", "snapshot": "S7",
		"start": "S8", "return": "S10",
		"image": "S13", "clean": "S17", "launch": "S18", "join": "S19", "examine": "S19", "retire": "S20", "model": "S14",
		"scale-out": "S14", "prune": "S16",
	}
	out := make([]string, len(calls))
	blocked, started := false, false
	patches := slices.ContainsFunc(calls, func(c *Call) bool { return c.Step == "choose" })
	for i, c := range calls {
		out[i] = cmp.Or(byStep[c.Step], c.Step, "S0") // a step that the matrix does not know is a row of its own
		switch {
		case c.Step == "examine" && patches:
			out[i] = "P4"
		case c.Step == "drain" && blocked:
			out[i] = "S4"
		case c.Step == "hold" && !blocked: // a donor that leaves service is blocked first
			out[i] = "S3"
		case c.Step == "start" && started:
			out[i] = "S9"
		case c.Step == "prune" && i == len(calls)-1:
			out[i] = "S17" // the release of the lease
		}
		blocked = blocked || (c.Step == "drain" || c.Step == "hold") && c.means.Verb == invariant.Mark
		started = started || c.Step == "start" && c.means.Verb == invariant.PowerOn
	}
	return out
}

// printMatrix writes how many cases each cell has; "." is a cell that needs none, "!0" one
// that needs a case and has none.
func printMatrix(w io.Writer, count map[Cell]int, aws bool, work Work) {
	fmt.Fprintf(w, "%-24s", "")
	for _, c := range columns {
		fmt.Fprintf(w, "%5s", c.Key)
	}
	fmt.Fprintln(w)
	for _, r := range rows {
		fmt.Fprintf(w, "%-4s%-20s", r.Key, r.Says)
		for _, c := range columns {
			cell := Cell{r.Key, c.Key}
			switch n := count[cell]; {
			case n > 0:
				fmt.Fprintf(w, "%5d", n)
			case cell.wants() == "-" || !cell.on(aws) || !work.has(cell.work()):
				fmt.Fprintf(w, "%5s", ".")
			default:
				fmt.Fprintf(w, "%5s", "!0")
			}
		}
		fmt.Fprintln(w)
	}
	fmt.Fprintln(w)
	for _, c := range columns {
		fmt.Fprintf(w, "  %-3s %s\n", c.Key, c.Says)
	}
}
