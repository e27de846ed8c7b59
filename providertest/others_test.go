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
	c.boots("blue", c.Address(c.pool(), kamino.KindVersion, name))
	c.must(c.SetCapacity(t.Context(), blue(), 2))
	c.must(c.Promote(t.Context(), blue(), kamino.Target{Former: before.Model.Saved}))
	if image := blue().Model.Image; image != before.Model.Image {
		t.Fatalf("the model of the other scale set refers to %s", image)
	}
	version := kamino.Artifact{Kind: kamino.KindVersion, Name: name}
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

// boots writes an image into the model of a scale set, as people do.
func (c *cloud) boots(set, image string) {
	c.server.Change(c.scenario.PoolID(set), `{"properties":{"virtualMachineProfile":{"storageProfile":{"imageReference":{"id":"`+image+`"}}}}}`)
}
