package providertest_test

import (
	"errors"
	"testing"
	"time"

	"kamino.dev/kamino"
)

// TestOtherSetsInstances: a version that an instance of another scale set of the
// resource group booted from is in use, whatever that set's model refers to now.
func TestOtherSetsInstances(t *testing.T) {
	const name = "2026.11.20"
	c := imaged(t, name)
	id := kamino.PoolID(c.scenario.PoolID("blue"))
	blue := func() kamino.Pool {
		for {
			pool, err := c.Pool(t.Context(), id)
			c.must(err)
			if !pool.Updating {
				return pool
			}
			c.clock.Advance(time.Second)
		}
	}
	before := blue()
	_, err := c.SetModel(t.Context(), before, kamino.ModelSpec{Image: c.Address(c.pool(), kamino.Version, name)}, false)
	c.must(err)
	c.must(c.SetCapacity(t.Context(), blue(), 2))
	_, err = c.SetModel(t.Context(), blue(), kamino.ModelSpec{Saved: before.Model.Saved}, false)
	c.must(err)
	if image := blue().Model.Image; image != before.Model.Image {
		t.Fatalf("the model of the other scale set refers to %s", image)
	}
	version := kamino.Artifact{Kind: kamino.Version, Name: name}
	if err := c.Delete(t.Context(), c.pool(), version); !errors.Is(err, kamino.ErrInUse) {
		t.Errorf("an instance of another scale set booted from it: the delete says %v", err)
	}
	c.must(c.SetCapacity(t.Context(), blue(), 0))
	blue()
	c.clock.Advance(time.Minute)
	if err := c.Delete(t.Context(), c.pool(), version); err != nil {
		t.Errorf("nobody uses it: the delete says %v", err)
	}
}
