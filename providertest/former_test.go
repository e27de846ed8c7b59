package providertest_test

import (
	"fmt"
	"testing"
	"time"

	"kamino.dev/kamino"
	"kamino.dev/kamino/azure/emulator"
)

// TestFormerScaleSet: a scale set that has the name of a deleted one has another unique ID.
// Versions and snapshots of that stand in its definition and its resource group, and are not its
// own.
func TestFormerScaleSet(t *testing.T) {
	c := begin(t, setting{latencies: emulator.NoLatency()})
	pool := c.pool()
	if pool.UID == "" {
		t.Fatal("the scale set has no unique ID")
	}
	tags := map[string]string{kamino.TagRun: "r-1", kamino.TagBuiltFrom: "n"}
	at := func(kind kamino.Kind, name string) string { return c.Address(pool, kind, name) }
	for _, a := range []kamino.Artifact{
		{Kind: kamino.KindGallery, Name: pool.Gallery}, {Kind: kamino.KindDefinition, Name: kamino.DefinitionName(pool.Name), Machine: c.instance().Machine},
		{Kind: kamino.KindSnapshot, Name: kamino.SnapshotName(pool.Name), Source: c.instance().Disk, Tags: tags},
		{Kind: kamino.KindVersion, Name: "2026.1.1", Source: at(kamino.KindSnapshot, kamino.SnapshotName(pool.Name)), Tags: tags},
	} {
		c.must(c.Create(t.Context(), pool, a))
		c.clock.Advance(time.Minute)
	}
	if v := c.version("2026.1.1"); v.OfFormer || !v.Ours() {
		t.Fatalf("its own version is %+v", v)
	}
	version := c.version("2026.1.1")
	c.server.Change(version.ID, `{"tags":{"kamino-pool-id":null}}`)
	if v := c.version("2026.1.1"); v.Tags[kamino.TagPoolUID] != "" || v.OfFormer || !v.Ours() {
		t.Errorf("its version, of a kamino that named no pool: %+v", v)
	}
	created := fmt.Sprintf(`{"properties":{"timeCreated":%q}}`, c.clock.Now().Format(time.RFC3339))
	c.server.Change(c.scenario.PoolID(poolName), created)
	if v := c.version("2026.1.1"); !v.OfFormer || v.Ours() {
		t.Errorf("a version that names no pool, and is older than the pool: %+v", v)
	}
	c.server.Change(version.ID, fmt.Sprintf(`{"tags":{"kamino-pool-id":%q}}`, pool.UID))
	c.server.Change(c.scenario.PoolID(poolName), `{"properties":{"uniqueId":"00000000-0000-0000-0000-000000000002"}}`)
	c.clock.Advance(time.Minute)
	for _, name := range []string{"", "2026.1.1"} {
		found, err := c.Find(t.Context(), c.pool(), kamino.KindVersion, name)
		c.must(err)
		if len(found) != 1 || !found[0].OfFormer || kamino.ParseCopy(found[0]).Ours() {
			t.Errorf("Find %q: %+v", name, found)
		}
	}
	found, err := c.Find(t.Context(), c.pool(), kamino.KindSnapshot, kamino.SnapshotName(pool.Name))
	c.must(err)
	if len(found) != 1 || !found[0].OfFormer {
		t.Errorf("the snapshot is %+v", found)
	}
}
