package sim

import (
	"context"
	"reflect"
	"testing"

	"kamino.dev/kamino"
	"kamino.dev/kamino/poolstate"
)

// TestBoots: the ledger keeps the donor's boot where the agent told it to be a generic machine's,
// and the boot of the canary that proved the version; a run whose donor is a clone replaces only
// the latter.
func TestBoots(t *testing.T) {
	w := aged(1)
	status := func() *kamino.Boots {
		var out []poolstate.PoolStatus
		p := &proc{}
		w.spawn(p, func(ctx context.Context) { out, p.err = p.engine().Status(ctx, nil, nil) })
		w.wait()
		if p.err != nil || len(out) == 0 || out[0].Boots == nil {
			t.Fatalf("%v: %+v", p.err, out)
		}
		return out[0].Boots
	}
	update := func(again bool) {
		o := proving()
		if again {
			o.Today = kamino.TodayAgain
		}
		p := &proc{}
		w.startUpdate(p, o)
		w.wait()
		if p.err != nil {
			t.Fatal(p.err)
		}
	}
	update(false)
	first := status()
	if first.Generic == nil || first.Generic.Node != "a-0" || !reflect.DeepEqual(first.Generic.Timing, genericBoot) {
		t.Fatalf("generic: %+v", first.Generic)
	}
	if first.Clone == nil || first.Clone.Node == "a-0" || !reflect.DeepEqual(first.Clone.Timing, cloneBoot) {
		t.Fatalf("clone: %+v", first.Clone)
	}
	update(true)
	if again := status(); !reflect.DeepEqual(again.Generic, first.Generic) || !again.Clone.At.After(first.Clone.At) {
		t.Errorf("after the second run: generic %+v, clone %+v", again.Generic, again.Clone)
	}
}
