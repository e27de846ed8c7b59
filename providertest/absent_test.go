package providertest_test

import (
	"errors"
	"testing"

	"kamino.dev/kamino"
	"kamino.dev/kamino/azure/emulator"
)

var versionTags = map[string]string{kamino.TagBuiltFrom: "node", kamino.TagRun: "run-1"}

// imaged is a cloud whose pool has an image version.
func imaged(t *testing.T, name string) *cloud {
	t.Helper()
	return imagedIn(t, setting{others: []emulator.Pool{{Name: "blue", Count: 1}}}, name)
}

func imagedIn(t *testing.T, s setting, names ...string) *cloud {
	t.Helper()
	s.latencies = emulator.NoLatency()
	c := begin(t, s)
	c.must(c.SetPower(t.Context(), c.donor(), kamino.PowerOff))
	in, pool := c.instance(), c.pool()
	snapshot := kamino.SnapshotName(pool.Name)
	for _, a := range []kamino.Artifact{
		{Kind: kamino.KindGallery, Name: pool.Gallery},
		{Kind: kamino.KindDefinition, Name: kamino.DefinitionName(pool.Name), Machine: kamino.Machine{Generation: in.Generation, Architecture: "x64", SecurityType: in.SecurityType}},
		{Kind: kamino.KindSnapshot, Name: snapshot, Source: in.Disk, Machine: kamino.Machine{Generation: in.Generation, Architecture: "x64", SecurityType: in.SecurityType}, Tags: versionTags},
	} {
		c.must(c.Create(t.Context(), pool, a))
	}
	for _, name := range names {
		c.must(c.Create(t.Context(), pool, kamino.Artifact{Kind: kamino.KindVersion, Name: name, Source: c.Address(pool, kamino.KindSnapshot, snapshot), Tags: versionTags}))
	}
	return c
}

// TestAbsentReads: what one 404 says is not believed where a list would be taken for empty: nobody
// uses a version, no version exists.
func TestAbsentReads(t *testing.T) {
	c := imaged(t, "2026.11.20")
	pool := c.pool()
	version := kamino.Artifact{Kind: kamino.KindVersion, Name: "2026.11.20"}
	lists := map[string]string{
		"versions":  c.Address(pool, kamino.KindDefinition, "") + "/versions",
		"instances": c.scenario.PoolID(poolName) + "/virtualMachines",
	}
	for what, path := range lists {
		c.server.AddFault(emulator.Fault{Method: "GET", Path: path, Kind: emulator.Absent})
		if found, err := c.Find(t.Context(), pool, kamino.KindVersion, ""); err == nil || errors.Is(err, kamino.ErrNotFound) {
			t.Errorf("the list of %s is 404: found %d versions, %v", what, len(found), err)
		}
		// The model uses it: a list that is not found must not let it be deleted.
		if err := c.Promote(t.Context(), c.pool(), kamino.Target{Version: version.Name}); err != nil {
			t.Fatal(err)
		}
		c.server.AddFault(emulator.Fault{Method: "GET", Path: path, Kind: emulator.Absent})
		if err := c.Delete(t.Context(), c.pool(), version); err == nil || errors.Is(err, kamino.ErrNotFound) {
			t.Errorf("the list of %s is 404: the delete of a version in use says %v", what, err)
		}
		if found, err := c.Find(t.Context(), pool, kamino.KindVersion, version.Name); err != nil || len(found) != 1 || found[0].State != kamino.Succeeded {
			t.Errorf("the list of %s was 404: the version in use is %v, %v", what, found, err)
		}
	}
	c.server.AddFault(emulator.Fault{Method: "GET", Path: lists["instances"], Kind: emulator.Absent})
	if list, err := c.Instances(t.Context(), pool); err == nil || errors.Is(err, kamino.ErrNotFound) {
		t.Errorf("the list of instances is 404: %v, %v", list, err)
	}
}

// TestBlindCredentials: credentials that see nothing say of nothing that it does not exist.
func TestBlindCredentials(t *testing.T) {
	c := imaged(t, "2026.11.20")
	pool := c.pool()
	c.server.AddFault(emulator.Fault{Path: "/subscriptions/**", Kind: emulator.Blind, Times: -1})
	check := func(what string, err error) {
		if !errors.Is(err, kamino.ErrNotVisible) || errors.Is(err, kamino.ErrNotFound) || kamino.Hint(err) == "" {
			t.Errorf("%s: %v, hint %q", what, err, kamino.Hint(err))
		}
	}
	_, err := c.Pool(t.Context(), pool.ID)
	check("pool", err)
	_, err = c.Instance(t.Context(), c.donor())
	check("instance", err)
	_, err = c.Instances(t.Context(), pool)
	check("instances", err)
	for kind, name := range map[kamino.Kind]string{kamino.KindGallery: pool.Gallery, kamino.KindDefinition: kamino.DefinitionName(pool.Name),
		kamino.KindSnapshot: kamino.SnapshotName(pool.Name), kamino.KindVersion: "2026.11.20"} {
		_, err = c.Find(t.Context(), pool, kind, name)
		check(string(kind), err)
	}
	_, err = c.Find(t.Context(), pool, kamino.KindVersion, "")
	check("versions", err)
	check("delete", c.Delete(t.Context(), pool, kamino.Artifact{Kind: kamino.KindVersion, Name: "2026.11.20"}))
}

// TestOtherSetsImage: a version that another scale set of the resource group is made of is in use.
func TestOtherSetsImage(t *testing.T) {
	c := imaged(t, "2026.11.20")
	pool := c.pool()
	version := c.Address(pool, kamino.KindVersion, "2026.11.20")
	for _, image := range []string{version, c.Address(pool, kamino.KindDefinition, "")} {
		c.boots("blue", image)
		if err := c.Delete(t.Context(), c.pool(), kamino.Artifact{Kind: kamino.KindVersion, Name: "2026.11.20"}); !errors.Is(err, kamino.ErrInUse) {
			t.Errorf("the model of another scale set is %s: the delete says %v", image, err)
		}
	}
}
