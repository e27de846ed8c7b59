package providertest

import (
	"errors"
	"slices"
	"testing"
	"time"

	"kamino.dev/kamino"
)

// holds tries what a provider keeps whose pools replace an instance that is off.
func holds(t *testing.T, begin func(t *testing.T) World) {
	clauses := []struct {
		name string
		try  func(*testing.T, *world, kamino.Standby)
	}{
		{"a held donor that is off stays, and is as it was once it is released", heldStays},
		{"Hold and Release may be repeated", heldTwice},
		{"Release waits for a donor that is off", heldOff},
		{"Holding of what the pool does not have is ErrNotFound", heldForeign},
	}
	for _, c := range clauses {
		t.Run("Holder: "+c.name, func(t *testing.T) {
			w := &world{World: begin(t), t: t}
			holder, ok := w.Provider.(kamino.Standby)
			if ok != w.Replaces {
				t.Fatalf("the world says that it replaces what is off: %t; its provider is a Holder: %t", w.Replaces, ok)
			}
			if !ok {
				return // an instance that is off stays, as another clause tries
			}
			c.try(t, w, holder)
		})
	}
}

// hold takes the donor out of service, where there is need to.
func (w *world) hold() {
	w.t.Helper()
	if h, ok := w.Provider.(kamino.Standby); ok {
		w.stands(h, kamino.Held, func() error { return h.Hold(w.ctx(), w.pool(), w.Donor) })
	}
}

// stands calls until the donor stands so.
func (w *world) stands(h kamino.Standby, want kamino.Holding, call func() error) {
	w.t.Helper()
	w.eventually("the donor is "+string(want), func() bool {
		how, err := h.Holding(w.ctx(), w.pool(), w.Donor)
		w.must(err)
		if how == want || how == kamino.Moving {
			return how == want
		}
		if err := call(); !errors.Is(err, kamino.ErrInProgress) {
			w.must(err)
		}
		return false
	})
}

func (w *world) release(h kamino.Standby) {
	w.t.Helper()
	w.stands(h, kamino.InService, func() error { return h.Release(w.ctx(), w.pool(), w.Donor) })
}

func (w *world) members() []kamino.InstanceID {
	w.t.Helper()
	ids, err := w.Provider.Instances(w.ctx(), w.pool())
	w.must(err)
	slices.Sort(ids)
	return ids
}

func heldStays(t *testing.T, w *world, h kamino.Standby) {
	before, members := w.pool(), w.members()
	w.off()
	w.Pass(time.Hour)
	if got := w.members(); !slices.Equal(got, members) {
		t.Errorf("while the donor is held the pool has %v, had %v", got, members)
	}
	w.must(w.Provider.SetPower(w.ctx(), w.Donor, kamino.PowerOn))
	w.eventually("the donor runs", func() bool { return w.instance().Power == kamino.PowerOn })
	w.release(h)
	w.Pass(time.Hour)
	if now := w.pool(); now.Capacity != before.Capacity || now.Revision != before.Revision || !slices.Equal(w.members(), members) {
		t.Errorf("in the end the pool is %+v with %v, was %+v with %v", now, w.members(), before, members)
	}
}

func heldTwice(t *testing.T, w *world, h kamino.Standby) {
	w.hold()
	capacity := w.pool().Capacity
	w.must(h.Hold(w.ctx(), w.pool(), w.Donor))
	w.hold()
	if now := w.pool().Capacity; now != capacity {
		t.Errorf("held twice, the pool has capacity %d, held once %d", now, capacity)
	}
	w.release(h)
	now := w.pool()
	w.must(h.Release(w.ctx(), now, w.Donor))
	if after := w.pool(); after.Revision != now.Revision {
		t.Errorf("released twice, the pool is %+v, was %+v", after, now)
	}
}

func heldOff(t *testing.T, w *world, h kamino.Standby) {
	w.off()
	if err := h.Release(w.ctx(), w.pool(), w.Donor); !errors.Is(err, kamino.ErrInProgress) {
		t.Errorf("release of a donor that is off: %v, want ErrInProgress", err)
	}
	if how, err := h.Holding(w.ctx(), w.pool(), w.Donor); err != nil || how != kamino.Held {
		t.Errorf("the donor is %s, %v", how, err)
	}
}

func heldForeign(t *testing.T, w *world, h kamino.Standby) {
	if _, err := h.Holding(w.ctx(), w.pool(), w.Donor+"99999"); !errors.Is(err, kamino.ErrNotFound) {
		t.Errorf("%v, want ErrNotFound", err)
	}
}
