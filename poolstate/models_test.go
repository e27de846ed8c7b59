package poolstate

import (
	"testing"
	"time"

	"kamino.dev/kamino"
)

func TestModels(t *testing.T) {
	day := func(n int) time.Time { return time.Date(2026, 11, n, 0, 0, 0, 0, time.UTC) }
	at := func(name string, births ...time.Time) kamino.Version {
		return kamino.ParseVersion(kamino.Artifact{Kind: kamino.KindVersion, Name: name, ID: "/d/versions/" + name, State: kamino.Succeeded, Use: kamino.Use{Instances: len(births), Births: births}})
	}
	o := State{Pool: kamino.Pool{MostModels: 10, Capacity: 6, Model: kamino.Model{Image: "/d/versions/2026.11.06"}}, Versions: []kamino.Version{
		at("2026.11.06", day(8), day(9)), at("2026.11.02", day(3)), at("2026.11.01", day(2), day(2))}}
	if m := o.models(); m.Known != 4 || m.Warning() != "" { // three versions, and what was there before
		t.Errorf("by version: %+v", m)
	}
	o.Lease.Ledger.Writes = []time.Time{day(7), day(6)}
	o.Pool.Model.Image = "/d"
	if m := o.models(); m.Known != 4 {
		t.Errorf("after two writes: %+v", m)
	}
	o.Lease.Ledger.Writes = []time.Time{day(1)}
	if m := o.models(); m.Known != 2 {
		t.Errorf("all after one write: %+v", m)
	}
	o.Lease.Ledger.Writes = nil
	if m := o.models(); m != nil {
		t.Errorf("a pool that points, and nothing is known of its writes: %+v", m)
	}
	for known, warns := range map[int]bool{7: false, 8: true, 11: true} {
		if m := (&Models{Known: known, Most: 10}); (m.Warning() != "") != warns {
			t.Errorf("%d of 10: %q", known, m.Warning())
		}
	}
}
