package providertest_test

import (
	"errors"
	"strings"
	"testing"

	"kamino.dev/kamino"
	"kamino.dev/kamino/azure/emulator"
)

// TestPointerMoves: a pool whose model names the definition boots new machines from the version
// that is offered, whatever is hidden, and its model is not written again. The version that the
// definition stands for is in use.
func TestPointerMoves(t *testing.T) {
	c := imaged(t, "2026.1.1")
	ctx := t.Context()
	c.must(c.Promote(ctx, c.pool(), kamino.Target{Version: "2026.1.1", Reference: kamino.ByDefinition}))
	hidden := kamino.Artifact{Kind: kamino.Version, Name: "2026.1.2", Source: c.Address(c.pool(), kamino.Snapshot, kamino.SnapshotName(poolName)), Replica: 1,
		Tags: versionTags, Excluded: true}
	c.must(c.Create(ctx, c.pool(), hidden))
	boots := func(want string) {
		t.Helper()
		pool := c.pool()
		c.must(c.SetCapacity(ctx, pool, pool.Capacity+1))
		if i := last(c); i.ExactVersion != want {
			t.Errorf("instance %s boots from %s, want %s", i.Name, i.ExactVersion, want)
		}
	}
	flag := func(name string, excluded bool) {
		t.Helper()
		v := c.version(name)
		v.Excluded = excluded
		c.must(c.SetVersion(ctx, c.pool(), v))
	}
	inUse := func(name string) {
		t.Helper()
		list, err := c.Find(ctx, c.pool(), kamino.Version, "")
		c.must(err)
		for _, v := range list {
			if v.InModel != (v.Name == name) {
				t.Errorf("version %s is in the model: %t; the definition stands for %s", v.Name, v.InModel, name)
			}
		}
		if err := c.Delete(ctx, c.pool(), kamino.Artifact{Kind: kamino.Version, Name: name}); !errors.Is(err, kamino.ErrInUse) {
			t.Errorf("delete of %s, which the definition stands for: %v", name, err)
		}
	}
	boots("2026.1.1")
	inUse("2026.1.1")
	flag("2026.1.2", false)
	inUse("2026.1.2")
	boots("2026.1.2")
	flag("2026.1.2", true)
	boots("2026.1.1")
	if models := models(c); models != 1 {
		t.Errorf("%d models were written, want one", models)
	}
}

// models counts the writes of the pool's model.
func models(c *cloud) (n int) {
	for _, e := range c.server.State() {
		if strings.EqualFold(e.ID, c.scenario.PoolID(poolName)) {
			n, _ = e.Facts["models"].(int)
		}
	}
	return n
}

// last is the newest instance of the pool.
func last(c *cloud) (newest emulator.Instance) {
	for _, i := range c.server.Instances() {
		if i.Pool == poolName {
			newest = i
		}
	}
	return newest
}
