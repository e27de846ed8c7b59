package providertest_test

import (
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"

	"kamino.dev/kamino"
	"kamino.dev/kamino/azure/emulator"
)

// TestPoolsOfOthersAreRefused: a recipe that somebody else writes back, or whose image something
// else fixes, is refused with the owner's name.
func TestPoolsOfOthersAreRefused(t *testing.T) {
	for _, tt := range []struct {
		code, want string
		tags       map[string]string
		model      string
	}{
		{code: "capz", want: "cluster prod-1", tags: emulator.CAPZTags("prod-1")},
		{code: "service-artifact", want: "fixes the image version", model: `{"properties":{"virtualMachineProfile":{"serviceArtifactReference":{"id":
			"/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/galleries/g1/serviceArtifacts/a/vmArtifactsProfiles/p"}}}}`},
		{},
	} {
		c := begin(t, setting{latencies: emulator.NoLatency(), pool: emulator.Pool{Tags: tt.tags}})
		if tt.model != "" {
			c.server.Change(c.scenario.PoolID(poolName), tt.model)
		}
		list := c.pool().Refusals
		if tt.code == "" {
			if len(list) > 0 {
				t.Errorf("a pool of nobody is refused: %v", list)
			}
			continue
		}
		i := slices.IndexFunc(list, func(r kamino.Refusal) bool { return r.Code == tt.code })
		owned := c.pool().Owner != nil
		if i < 0 || !strings.Contains(list[i].Why, tt.want) || list[i].Do == "" || (list[i].Allow == "image-only") != owned || owned != (tt.tags != nil) {
			t.Errorf("%s: refusals %+v, owner %+v", tt.code, list, c.pool().Owner)
		}
	}
}

// TestWhatStandsAboveTheRole: an error by a policy, a lock or the limit of models says what to do,
// which is not to grant rights.
func TestWhatStandsAboveTheRole(t *testing.T) {
	const tooMany = "Virtual Machine Scale Set 'x' has reached its limit of 10 models that may be referenced by one or more VMs belonging to the Virtual Machine Scale Set."
	for _, tt := range []struct {
		name      string
		stand     func(*cloud)
		forbidden bool
		hint      string
	}{
		{"policy", func(c *cloud) { c.server.SetPolicies(emulator.Policy{Name: "no writes"}) }, true, "exempt the resource group"},
		{"lock", func(c *cloud) { c.server.Lock(c.groupID(), "still", "ReadOnly") }, true, "az lock delete"},
		{"models", func(c *cloud) {
			c.server.AddFault(emulator.Fault{Method: http.MethodPatch, Kind: emulator.Reply, Status: http.StatusConflict, Code: "OperationNotAllowed", Message: tooMany})
		}, false, "replace the oldest nodes"},
	} {
		c := begin(t, setting{latencies: emulator.NoLatency()})
		pool := c.pool()
		tt.stand(c)
		err := c.SetCapacity(t.Context(), pool, pool.Capacity+1)
		if err == nil || errors.Is(err, kamino.ErrForbidden) != tt.forbidden || !strings.Contains(kamino.Hint(err), tt.hint) ||
			errors.Is(err, kamino.ErrInProgress) || errors.Is(err, kamino.ErrUnavailable) {
			t.Errorf("%s: %v (hint %q)", tt.name, err, kamino.Hint(err))
		}
	}
}

// TestOwnedPoolThatPoints: once the owner's recipe names the definition it is refused no more; what
// the owner wrote besides, its bootstrap above all, is no difference, and versions are moved
// without a write of the model.
func TestOwnedPoolThatPoints(t *testing.T) {
	c := imagedIn(t, setting{pool: emulator.Pool{Tags: emulator.CAPZTags("prod-1")}}, "2026.1.1", "2026.1.2")
	definition := c.Address(c.pool(), kamino.Definition, "")
	if owner := c.pool().Owner; !strings.Contains(owner.Spec, "id: "+definition) || !strings.Contains(owner.Needs, "SkipMachinePoolModelReconciliation") {
		t.Errorf("owner %+v", owner)
	}
	c.server.Change(c.scenario.PoolID(poolName), `{"properties":{"virtualMachineProfile":{"storageProfile":{"imageReference":{"id":"`+definition+`"}}}}}`)
	before := c.pool()
	if len(before.Refusals) > 0 || before.Owner == nil || len(before.Model.Extensions) == 0 {
		t.Fatalf("pool %+v", before)
	}
	c.must(c.Withdraw(t.Context(), before, "2026.1.2", "a test"))
	v := c.version("2026.1.2")
	to := kamino.Target{Version: v.Name, Reference: kamino.ByDefinition, Seen: &v}
	if next, err := c.NextImage(t.Context(), before, to); err != nil || len(next.Diff) > 0 {
		t.Errorf("difference %+v, %v", next, err)
	}
	c.must(c.Promote(t.Context(), before, to))
	if now := c.pool(); now.Revision != before.Revision || c.version(v.Name).Excluded {
		t.Errorf("the model has revision %s, had %s; version %+v", now.Revision, before.Revision, c.version(v.Name))
	}
}
