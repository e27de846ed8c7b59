package main

import (
	"slices"
	"testing"
	"time"

	"kamino.dev/kamino"
	"kamino.dev/kamino/poolstate"
)

// TestHappened: a command tells of what happened since it began, and of a donor that nobody brings
// back.
func TestHappened(t *testing.T) {
	began := time.Date(2026, 11, 23, 4, 0, 0, 0, time.UTC)
	now := began.Add(10 * time.Minute)
	away := func(process string, alive bool) *kamino.Unfinished {
		return &kamino.Unfinished{Run: "r", Process: process, Alive: alive, Record: kamino.Record{Donor: "n", AwaySince: began.Add(time.Minute)}}
	}
	for name, tt := range map[string]struct {
		status poolstate.PoolStatus
		want   []string
	}{
		"before it began":         {poolstate.PoolStatus{Runs: []kamino.PastRun{{Run: "a", Failure: "x", Ended: began.Add(-time.Millisecond)}}}, nil},
		"since":                   {poolstate.PoolStatus{Runs: []kamino.PastRun{{Run: "a", Failure: "x", Ended: began}}}, []string{"failed/a"}},
		"its own donor":           {poolstate.PoolStatus{Unfinished: away("me", true)}, []string{"away/r/n"}},
		"of an ended process":     {poolstate.PoolStatus{Unfinished: away("other", false)}, []string{"away/r/n"}},
		"of a process that lives": {poolstate.PoolStatus{Unfinished: away("other", true)}, nil},
		"refused":                 {poolstate.PoolStatus{Refusals: []kamino.Refusal{{Code: "x"}}}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, h := range happened(tt.status, "me", now, began) {
				got = append(got, h.Key)
			}
			if !slices.Equal(got, tt.want) {
				t.Errorf("%s: %q, want %q", name, got, tt.want)
			}
		})
	}
}
