package worlds

import (
	"slices"
	"testing"
	"time"
)

// TestDictionary: no name stands for two things, and every entry says where it belongs.
func TestDictionary(t *testing.T) {
	var names []string
	for _, r := range Rivals() {
		names = append(names, r.Name)
		if r.Act == nil || r.Column == "" {
			t.Errorf("rival %q: no act, or no column of the fault matrix", r.Name)
		}
	}
	for _, f := range Faults() {
		names = append(names, string(f))
	}
	slices.Sort(names)
	if want := len(names); want < 50 || len(slices.Compact(names)) != want {
		t.Errorf("%d names, some of them twice: %q", want, names)
	}
}

// TestFits: a fault strikes only calls for which it makes sense.
func TestFits(t *testing.T) {
	for _, c := range []struct {
		name  string
		call  Call
		fits  []Fault
		never []Fault
	}{
		{"read of Kubernetes", Call{Kube: true}, []Fault{KillAfter, Conflict, Forbidden}, []Fault{Absent, LostReply, StaleRead, Blind, Quota}},
		{"read of the cloud", Call{Older: true}, []Fault{Absent, StaleRead, Blind}, []Fault{Unread, FalseSuccess, OperationFailed}},
		{"write of the lease", Call{Kube: true, Write: true, Lease: true}, []Fault{LostReply, FalseFailure}, []Fault{FalseSuccess, Unread}},
		{"build", Call{Write: true, Create: true, Long: true}, []Fault{LateCreate, OperationLies, Quota, FalseSuccess}, []Fault{Absent}},
		{"power on", Call{Write: true, Long: true, Start: true}, []Fault{Quota, OperationGone}, []Fault{LateCreate}},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, f := range c.fits {
				if !f.Fits(c.call) {
					t.Errorf("%q does not strike it", f)
				}
			}
			for _, f := range c.never {
				if f.Fits(c.call) {
					t.Errorf("%q strikes it", f)
				}
			}
		})
	}
}

// TestReading: the two parts of a reading are what was asked for, wherever the other is.
func TestReading(t *testing.T) {
	day := time.Date(2026, 12, 31, 23, 0, 0, 0, time.UTC)
	a := Reading(day, day)
	for _, wall := range []time.Duration{-25 * time.Hour, 0, time.Second, time.Hour} {
		for _, mono := range []time.Duration{0, time.Second, time.Hour} {
			b := Reading(day.Add(wall), day.Add(mono))
			if b.Sub(a) != mono || b.Round(0).Sub(a.Round(0)) != wall || !b.Round(0).Equal(day.Add(wall)) {
				t.Errorf("%s and %s became %s and %s, %s", wall, mono, b.Round(0).Sub(a.Round(0)), b.Sub(a), b)
			}
		}
	}
}
