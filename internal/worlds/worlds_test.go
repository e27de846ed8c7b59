package worlds

import (
	"slices"
	"testing"
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
