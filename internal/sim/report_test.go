package sim

import (
	"encoding/json"
	"errors"
	"io/fs"
	"maps"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"kamino.dev/kamino/internal/worlds"
)

// simReport is what the simulation writes into the file that KAMINO_SIM_JSON
// names. Each test adds its part; delete the file to begin anew.
type simReport struct {
	worlds.Report
	// ByFault tells what each fault costs the donor when it is the only one.
	ByFault map[string]worlds.Away `json:"awayByFault"`
	// Cells counts how often each thing happened that a test must have met.
	Cells map[string]int `json:"cells"`
}

var reportLock sync.Mutex

// inReport changes the report, where one is wanted.
func inReport(t *testing.T, change func(*simReport)) {
	t.Helper()
	path := os.Getenv("KAMINO_SIM_JSON")
	if path == "" {
		return
	}
	reportLock.Lock()
	defer reportLock.Unlock()
	var r simReport
	text, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(text, &r)
	} else if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	if err == nil {
		change(&r)
		text, _ = json.MarshalIndent(r, "", "  ")
		err = os.WriteFile(path, append(text, '\n'), 0o644)
	}
	if err != nil {
		t.Errorf("KAMINO_SIM_JSON: %v", err)
	}
}

// counts are how often things happened that tests must have met.
type counts struct {
	mu sync.Mutex
	of map[string]int
}

func (c *counts) add(hits map[string]int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.of == nil {
		c.of = map[string]int{}
	}
	for cell, n := range hits {
		c.of[cell] += n
	}
}

// require fails the test for every cell that was not met.
func (c *counts) require(t *testing.T, cells []string) {
	t.Helper()
	for _, cell := range cells {
		if c.of[cell] == 0 {
			t.Errorf("cell %q is empty: it never happened", cell)
		}
		t.Logf("cell %-60s %d", cell, c.of[cell])
	}
}

func (r *simReport) cells(c *counts, cells []string) {
	if r.Cells == nil {
		r.Cells = map[string]int{}
	}
	for _, cell := range cells {
		r.Cells[cell] += c.of[cell]
	}
}

// away adds times.
func (r *simReport) away(a *awayTimes) {
	r.Add(a.list)
	if r.ByFault == nil {
		r.ByFault = map[string]worlds.Away{}
	}
	for fault, list := range a.byFault {
		if have := worlds.AwayOf(list); have.Count > r.ByFault[fault].Count {
			r.ByFault[fault] = have
		}
	}
}

// awayTimes collects how long donors were away.
type awayTimes struct {
	mu      sync.Mutex
	list    []time.Duration
	byFault map[string][]time.Duration
}

// add takes those of a world. Times in which nobody was there to give a donor
// back are told for their fault only.
func (a *awayTimes) add(fault string, w *world, alone bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.byFault == nil {
		a.byFault = map[string][]time.Duration{}
	}
	spans := w.audit.spans()
	a.byFault[fault] = append(a.byFault[fault], spans...)
	if !alone {
		a.list = append(a.list, spans...)
	}
}

// print lists the times by fault, the longest first.
func (a *awayTimes) print(t *testing.T) {
	t.Helper()
	names := slices.SortedFunc(maps.Keys(a.byFault), func(x, y string) int {
		return int(worlds.AwayOf(a.byFault[y]).Max - worlds.AwayOf(a.byFault[x]).Max)
	})
	for _, name := range names {
		t.Logf("%-60s %s", name, worlds.AwayOf(a.byFault[name]))
	}
}
