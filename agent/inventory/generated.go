package inventory

import (
	"path"
	"slices"
	"strings"

	"kamino.dev/kamino/agent/disk"
)

// row is one kind of file that systems generate, and that is the same, or says nothing, wherever it
// is.
type row struct {
	paths []string // path.Match per component, relative; "**" as the last matches everything below
	why   string
	// check narrows the row to files with the content that they should have. Nil: the place is
	// enough.
	check func(l *look, name string, data []byte) bool
	// programs: a compiled program of any size needs no check.
	programs bool
}

func generatedRow(name string) *row {
	first, _, _ := strings.Cut(name, "/")
	for _, i := range rowsByRoot[first] {
		if everyRow[i].matches(name) {
			return &everyRow[i]
		}
	}
	return nil
}

// everyRow is both tables.
var everyRow = slices.Concat(rows, nodeRows)

func (r row) matches(name string) bool {
	for _, p := range r.paths {
		if top, ok := strings.CutSuffix(p, "/**"); ok {
			for at := path.Dir(name); at != "."; at = path.Dir(at) {
				if ok, _ := path.Match(top, at); ok {
					return true
				}
			}
		} else if ok, _ := path.Match(p, name); ok {
			return true
		}
	}
	return false
}

// rowsByRoot are the rows that may match a name, by its first component.
var rowsByRoot = func() map[string][]int {
	out := map[string][]int{}
	for i, r := range everyRow {
		for _, p := range r.paths {
			first, _, _ := strings.Cut(p, "/")
			if known := out[first]; len(known) == 0 || known[len(known)-1] != i {
				out[first] = append(known, i)
			}
		}
	}
	return out
}()

// generatedLink knows links that lead nowhere on the disk as it lies, but do when it runs.
func generatedLink(name, target string) bool {
	// An installation's few links under the kernel's own.
	if disk.Under(name, "dev") {
		return true
	}
	if !path.IsAbs(target) {
		target = path.Join("/", path.Dir(name), target)
	}
	// Into memory; by update-alternatives, and to documentation and manual pages, which images leave out.
	for _, dir := range []string{"/run/", "/proc/", "/etc/alternatives/", "/usr/share/man/", "/usr/share/doc/"} {
		if strings.HasPrefix(target, dir) {
			return true
		}
	}
	return false
}

// Row is one line of the table for people.
type Row struct {
	Paths []string
	Why   string
}

// Table is what is generated and known, with a reason for each kind. docs/agent.md is generated
// from it.
func Table() []Row {
	out := make([]Row, 0, len(everyRow))
	for _, r := range everyRow {
		shown := Row{Why: r.why}
		for _, p := range r.paths {
			shown.Paths = append(shown.Paths, "/"+p)
		}
		out = append(out, shown)
	}
	return out
}
