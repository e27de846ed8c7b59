package providertest_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"kamino.dev/kamino"
	"kamino.dev/kamino/azure"
	"kamino.dev/kamino/azure/emulator"
)

// role is the one that the documentation tells people to make, at the resource
// group of the pool: what every test of the provider runs with.
func (c *cloud) role() emulator.Role {
	c.Helper()
	raw, err := os.ReadFile("../docs/azure-role.json")
	if err != nil {
		c.Fatal(err)
	}
	role := emulator.Role{Scope: c.groupID()}
	if err := json.Unmarshal(raw, &role); err != nil {
		c.Fatal(err)
	}
	return role
}

func (c *cloud) groupID() string {
	return "/subscriptions/" + c.scenario.Subscription + "/resourceGroups/" + c.scenario.ResourceGroup
}

// without takes an action of the role away.
func (c *cloud) without(action string) {
	role := c.role()
	role.Actions = slices.DeleteFunc(role.Actions, func(a string) bool { return a == action })
	c.server.SetRoles(clientID, role)
}

// TestPreflightNamesEveryAction: whatever of the shipped role is missing, connect
// says so before anything is touched.
func TestPreflightNamesEveryAction(t *testing.T) {
	c := begin(t, setting{latencies: emulator.NoLatency()})
	for _, action := range azure.Actions() {
		c.without(action)
		doubts, err := c.Preflight(t.Context())
		told := fmt.Sprint(doubts)
		if err != nil {
			told = err.Error()
		}
		if !strings.Contains(told, action) {
			t.Errorf("without %s: %v, %q, want it named", action, err, doubts)
		}
		if err != nil && !errors.Is(err, kamino.ErrForbidden) {
			t.Errorf("without %s: %v, want ErrForbidden", action, err)
		}
	}
}

// TestEveryActionIsNeeded: a run that is not asked beforehand fails, or finds out
// less, without any single action of the role, and its error names that action.
func TestEveryActionIsNeeded(t *testing.T) {
	c := begin(t, customerKey())
	c.encryptionSet()
	if said := c.wholeRun("2026.1.1"); said != "" {
		t.Fatalf("with the whole role: %s", said)
	}
	for _, action := range azure.Actions() {
		t.Run(action[strings.IndexByte(action, '/')+1:], func(t *testing.T) {
			c := begin(t, customerKey())
			c.encryptionSet()
			_, err := c.Preflight(t.Context()) // all is well, and is not asked again
			c.must(err)
			c.without(action)
			if strings.HasPrefix(action, "Microsoft.Authorization/") { // what Preflight itself needs
				if doubts, err := c.Preflight(t.Context()); err != nil || !strings.Contains(fmt.Sprint(doubts), action) {
					t.Errorf("Preflight: %q, %v, want a doubt that names %s", doubts, err, action)
				}
				return
			}
			if said := c.wholeRun("2026.1.1"); !strings.Contains(said, action) {
				t.Errorf("a run says %q, want it to name %s", said, action)
			}
		})
	}
}

// customerKey is a pool whose disks are encrypted with a key of the customer's.
func customerKey() setting {
	sc := emulator.Scenario{}.Defaults()
	return setting{latencies: emulator.NoLatency(), pool: emulator.Pool{DiskEncryptionSet: "/subscriptions/" + sc.Subscription +
		"/resourceGroups/" + sc.ResourceGroup + "/providers/Microsoft.Compute/diskEncryptionSets/keys"}}
}

// encryptionSet makes the disk encryption set that the pool's model names.
func (c *cloud) encryptionSet() {
	c.Helper()
	c.server.Put(customerKey().pool.DiskEncryptionSet, map[string]any{"location": "westeurope",
		"properties": map[string]any{"encryptionType": "EncryptionAtRestWithCustomerKey"}})
}

// wholeRun does at the provider what a run does, and returns the first thing that
// went wrong, or all doubts and refusals.
func (c *cloud) wholeRun(version string) (said string) {
	c.Helper()
	ctx, id := c.Context(), kamino.PoolID(strings.ToLower(c.scenario.PoolID(poolName)))
	var told []string
	var failed error
	try := func(err error) bool {
		if failed == nil {
			failed = err
		}
		return err == nil
	}
	pool, err := c.Pool(ctx, id)
	try(err)
	in, err := c.Instance(ctx, c.donor())
	if !try(err) || failed != nil {
		return failed.Error()
	}
	arch := "x64" // as the node says
	if c.scenario.Pools[0].Architecture != "" {
		arch = c.scenario.Pools[0].Architecture
	}
	in.Architecture = arch
	refusals, doubts, err := c.Fit(ctx, pool, in, nil)
	try(err)
	for _, r := range refusals {
		told = append(told, r.String())
	}
	for _, d := range doubts {
		if !strings.Contains(d.Found, "skus/read") { // which a role at the resource group cannot grant
			told = append(told, d.Found)
		}
	}
	snapshot := c.Address(pool, kamino.KindSnapshot, kamino.SnapshotName(pool.Name))
	for _, a := range []kamino.Artifact{
		{Kind: kamino.KindGallery, Name: pool.Gallery},
		{Kind: kamino.KindDefinition, Name: kamino.DefinitionName(pool.Name), Machine: kamino.Machine{Generation: in.Generation, Architecture: arch, SecurityType: in.SecurityType, Controller: in.Controller}},
		{Kind: kamino.KindSnapshot, Name: kamino.SnapshotName(pool.Name), Source: in.Disk, Machine: kamino.Machine{Generation: in.Generation, Architecture: arch, SecurityType: in.SecurityType}},
		{Kind: kamino.KindVersion, Name: version, Source: snapshot},
	} {
		_, err := c.Find(ctx, pool, a.Kind, a.Name)
		try(err)
		try(c.Create(ctx, pool, a))
	}
	try(c.SetPower(ctx, c.donor(), kamino.PowerOff))
	try(c.SetPower(ctx, c.donor(), kamino.PowerOn))
	try(c.Promote(ctx, pool, kamino.Target{Version: version}))
	_, err = c.Find(ctx, pool, kamino.KindVersion, "")
	try(err)
	try(c.Delete(ctx, pool, kamino.Artifact{Kind: kamino.KindSnapshot, Name: kamino.SnapshotName(pool.Name)}))
	try(c.Delete(ctx, pool, kamino.Artifact{Kind: kamino.KindVersion, Name: "2025.1.1"}))
	if failed != nil {
		told = append(told, failed.Error())
	}
	return strings.Join(told, "\n")
}

// TestSKUsAreNotNeeded: what a region offers is a read of the subscription, which
// the role at the resource group cannot grant. It costs a warning and zone
// redundancy, not the run.
func TestSKUsAreNotNeeded(t *testing.T) {
	c := begin(t, setting{latencies: emulator.NoLatency()})
	_, doubts, err := c.Fit(t.Context(), c.pool(), c.instance(), nil)
	if err != nil || len(doubts) != 1 || !strings.Contains(doubts[0].Found, "Microsoft.Compute/skus/read") {
		t.Errorf("Fit: %q, %v, want one doubt that names the action", doubts, err)
	}
	if said := c.wholeRun("2026.1.1"); said != "" {
		t.Fatal(said)
	}
	if v := c.version("2026.1.1"); v.Storage != kamino.StorageLRS {
		t.Errorf("storage %s, want %s", v.Storage, kamino.StorageLRS)
	}
	c = begin(t, setting{latencies: emulator.NoLatency()})
	c.server.SetRoles(clientID, c.role(), emulator.Role{Scope: "/subscriptions/" + c.scenario.Subscription, Actions: []string{"Microsoft.Compute/skus/read"}})
	if said := c.wholeRun("2026.1.1"); said != "" {
		t.Fatal(said)
	}
	if v := c.version("2026.1.1"); v.Storage != kamino.StorageZRS {
		t.Errorf("storage %s, want %s where the region is known", v.Storage, kamino.StorageZRS)
	}
}

func (c *cloud) version(name string) kamino.Version {
	c.Helper()
	found, err := c.Find(c.Context(), c.pool(), kamino.KindVersion, name)
	if err != nil || len(found) != 1 {
		c.Fatalf("version %s: %v, %v", name, found, err)
	}
	return kamino.ParseVersion(found[0])
}

// TestGuardrails: connect names what stands above all roles.
func TestGuardrails(t *testing.T) {
	for _, tt := range []struct {
		name  string
		build func(*cloud)
		deny  []emulator.DenyAssignment
		want  []string
	}{
		{name: "CanNotDelete", build: func(c *cloud) { c.lock(c.groupID(), "CanNotDelete") },
			want: []string{"careful", "CanNotDelete", "could not be deleted"}},
		{name: "ReadOnly at the subscription", build: func(c *cloud) { c.lock("/subscriptions/"+c.scenario.Subscription, "ReadOnly") },
			want: []string{"careful", "ReadOnly", "/subscriptions/"}},
		{name: "deny assignment", deny: []emulator.DenyAssignment{{Name: "lockdown", Actions: []string{"*"}, NotActions: []string{"*/read"}}},
			want: []string{"lockdown", "Microsoft.Compute/snapshots/write"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := begin(t, setting{latencies: emulator.NoLatency(), server: func(s *emulator.Server) { s.DenyAssignments = tt.deny }})
			if tt.build != nil {
				tt.build(c)
			}
			_, err := c.Preflight(t.Context())
			if !errors.Is(err, kamino.ErrForbidden) {
				t.Fatalf("got %v, want ErrForbidden", err)
			}
			for _, want := range tt.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%q does not say %q", err, want)
				}
			}
		})
	}
	c := begin(t, setting{latencies: emulator.NoLatency(), server: func(s *emulator.Server) {
		s.DenyAssignments = []emulator.DenyAssignment{{Name: "reads", Actions: []string{"Microsoft.Storage/*"}}}
	}})
	if _, err := c.Preflight(t.Context()); err != nil {
		t.Errorf("a deny assignment that takes nothing needed: %v", err)
	}
}

func (c *cloud) lock(scope, level string) {
	c.server.Put(scope+"/providers/Microsoft.Authorization/locks/careful", map[string]any{"properties": map[string]any{"level": level}})
}

// TestWrongGroup: a resource group that does not exist is no silence.
func TestWrongGroup(t *testing.T) {
	c := begin(t, setting{latencies: emulator.NoLatency(), group: "no-such-group"})
	_, err := c.Preflight(t.Context())
	if err == nil || !strings.Contains(err.Error(), "no-such-group") || !strings.Contains(kamino.Hint(err), "--resource-group") {
		t.Errorf("got %v (hint %q), want an error that names the group and what to type", err, kamino.Hint(err))
	}
}

// TestExcludeZoneRedundant: a version whose replicas are zone-redundant is marked
// without a word on storage that Azure would take for another type.
func TestExcludeZoneRedundant(t *testing.T) {
	c := begin(t, setting{latencies: emulator.NoLatency()})
	c.server.SetRoles(clientID, c.role(), emulator.Role{Scope: "/subscriptions/" + c.scenario.Subscription, Actions: []string{"Microsoft.Compute/skus/read"}})
	if said := c.wholeRun("2026.1.1"); said != "" {
		t.Fatal(said)
	}
	before := c.version("2026.1.1")
	if before.Storage != kamino.StorageZRS {
		t.Fatalf("storage %s", before.Storage)
	}
	c.must(c.Withdraw(t.Context(), c.pool(), before.Name, kamino.Bad{Reason: "never Ready"}))
	after := c.version("2026.1.1")
	if !after.Excluded || after.Tags[kamino.TagBad] == "" || after.Storage != before.Storage || after.Replica != before.Replica {
		t.Errorf("version is %+v, was %+v", after, before)
	}
	regions := c.server.Document(before.ID)["properties"].(map[string]any)["publishingProfile"].(map[string]any)["targetRegions"].([]any)
	if len(regions) != 1 || regions[0].(map[string]any)["storageAccountType"] != kamino.StorageZRS {
		t.Errorf("regions %v", regions)
	}
}
