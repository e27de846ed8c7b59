package sim

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"sync"
	"testing"
	"time"
)

// simReport is what the simulation writes into the file that KAMINO_SIM_JSON
// names. Each test adds its part; delete the file to begin anew.
type simReport struct {
	Seeds      int     `json:"seeds"`  // random walks
	Trials     int     `json:"trials"` // single faults and rivals
	Violations int     `json:"violations"`
	Away       awayRow `json:"awaySeconds"` // of every donor under every fault
	// ByFault tells what each fault costs the donor when it is the only one.
	ByFault map[string]awayRow `json:"awayByFault"`
	// Histogram counts the times that donors were away: up to so many seconds.
	Histogram []bucket `json:"histogram"`
	// Cells counts how often each thing happened that a test must have met.
	Cells   map[string]int `json:"cells"`
	Defects struct {
		Seeded int `json:"seeded"`
		Caught int `json:"caught"`
	} `json:"defects"`
}

type awayRow struct {
	Count int     `json:"count"`
	P50   float64 `json:"p50"`
	P99   float64 `json:"p99"`
	Max   float64 `json:"max"`
}

type bucket struct {
	UpTo  float64 `json:"upTo"` // 0: any
	Count int     `json:"count"`
}

var bounds = []float64{60, 120, 180, 240, 300, 600, 1200, 1800, 3600, 7200, 0}

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

// away adds times. Quantiles of several tests together are those of the test
// with the most.
func (r *simReport) away(a *awayTimes) {
	if r.Histogram == nil {
		for _, b := range bounds {
			r.Histogram = append(r.Histogram, bucket{UpTo: b})
		}
		r.ByFault = map[string]awayRow{}
	}
	for _, d := range a.list {
		i := slices.IndexFunc(bounds, func(b float64) bool { return d.Seconds() <= b || b == 0 })
		r.Histogram[i].Count++
	}
	all := a.all()
	if worst := max(r.Away.Max, all.Max); all.Count >= r.Away.Count {
		count := r.Away.Count
		r.Away = all
		r.Away.Count, r.Away.Max = all.Count+count, worst
	} else {
		r.Away.Count += all.Count
		r.Away.Max = worst
	}
	for fault, list := range a.byFault {
		if have := row(list); have.Count > r.ByFault[fault].Count {
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

func (a *awayTimes) all() awayRow { return row(a.list) }

func row(list []time.Duration) awayRow {
	if len(list) == 0 {
		return awayRow{}
	}
	slices.Sort(list)
	at := func(share float64) float64 {
		return list[min(int(share*float64(len(list))), len(list)-1)].Round(time.Second).Seconds()
	}
	return awayRow{len(list), at(0.5), at(0.99), at(1)}
}

func (r awayRow) String() string {
	return fmt.Sprintf("%d times, p50 %.0f s, p99 %.0f s, max %.0f s", r.Count, r.P50, r.P99, r.Max)
}

// print lists the times by fault, the longest first.
func (a *awayTimes) print(t *testing.T) {
	t.Helper()
	names := slices.SortedFunc(maps.Keys(a.byFault), func(x, y string) int {
		return int(row(a.byFault[y]).Max - row(a.byFault[x]).Max)
	})
	for _, name := range names {
		t.Logf("%-60s %s", name, row(a.byFault[name]))
	}
}
