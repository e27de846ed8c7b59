package providertest_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

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
		t.Run(tt.code, func(t *testing.T) {
			c := begin(t, setting{latencies: emulator.NoLatency(), pool: emulator.Pool{Tags: tt.tags}})
			if tt.model != "" {
				c.server.Change(c.scenario.PoolID(poolName), tt.model)
			}
			list := c.pool().Refusals
			if tt.code == "" {
				if len(list) > 0 {
					t.Errorf("a pool of nobody is refused: %v", list)
				}
				return
			}
			i := slices.IndexFunc(list, func(r kamino.Refusal) bool { return string(r.Code) == tt.code })
			owned := c.pool().Owner != nil
			if i < 0 || !strings.Contains(list[i].Why, tt.want) || list[i].Do == "" || (list[i].Allow == "image-only") != owned || owned != (tt.tags != nil) {
				t.Errorf("%s: refusals %+v, owner %+v", tt.code, list, c.pool().Owner)
			}
		})
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
		t.Run(tt.name, func(t *testing.T) {
			c := begin(t, setting{latencies: emulator.NoLatency()})
			pool := c.pool()
			tt.stand(c)
			err := c.SetCapacity(t.Context(), pool, pool.Capacity+1)
			if err == nil || errors.Is(err, kamino.ErrForbidden) != tt.forbidden || !strings.Contains(kamino.Hint(err), tt.hint) ||
				errors.Is(err, kamino.ErrInProgress) || errors.Is(err, kamino.ErrUnavailable) {
				t.Errorf("%s: %v (hint %q)", tt.name, err, kamino.Hint(err))
			}
		})
	}
}

// TestOwnedPoolThatPoints: once the owner's recipe names the definition it is refused no more; what
// the owner wrote besides, its bootstrap above all, is no difference, and versions are moved
// without a write of the model.
func TestOwnedPoolThatPoints(t *testing.T) {
	c := imagedIn(t, setting{pool: emulator.Pool{Tags: emulator.CAPZTags("prod-1")}}, "2026.1.1", "2026.1.2")
	definition := c.Address(c.pool(), kamino.KindDefinition, "")
	if owner := c.pool().Owner; !strings.Contains(owner.Spec, "id: "+definition) || !strings.Contains(owner.Needs, "SkipMachinePoolModelReconciliation") {
		t.Errorf("owner %+v", owner)
	}
	c.server.Change(c.scenario.PoolID(poolName), `{"properties":{"virtualMachineProfile":{"storageProfile":{"imageReference":{"id":"`+definition+`"}}}}}`)
	before := c.pool()
	if len(before.Refusals) > 0 || before.Owner == nil || len(before.Model.Extensions) == 0 {
		t.Fatalf("pool %+v", before)
	}
	c.must(c.Withdraw(t.Context(), before, "2026.1.2", kamino.Bad{Reason: "a test"}))
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

// TestOwnerSeesNoMove: the controller of cluster-api-provider-azure, as the emulator plays it, sees
// no drift in a hundred pools whose versions kamino offers and withdraws while they grow: no node
// goes and no model is written. Where instances show the version that they booted from it replaces
// nodes until its surges have made ten models, unless its gate is on.
func TestOwnerSeesNoMove(t *testing.T) {
	for seed := range uint64(100) {
		random := rand.New(rand.NewPCG(seed, 16))
		writes, deleted, err := ownedYear(t, random, nil, false)
		if writes+deleted > 0 || err != nil {
			t.Fatalf("seed %d: %d writes of the model, %d instances deleted, %v", seed, writes, deleted, err)
		}
	}
	resolved := func(s *emulator.Server) { s.Pointer.Resolved = true }
	for _, gate := range []bool{false, true} {
		_, deleted, err := ownedYear(t, rand.New(rand.NewPCG(1, 16)), resolved, gate)
		if ended := err != nil && strings.Contains(err.Error(), "limit of 10 models"); (deleted > 0 || ended) == gate || err != nil && !ended {
			t.Errorf("instances show the version, gate %t: %d deleted, %v", gate, deleted, err)
		}
	}
}

// ownedYear moves the pointer of an owned pool for some days, each with a look of its owner.
func ownedYear(t *testing.T, random *rand.Rand, server func(*emulator.Server), gate bool) (writes, deleted int, err error) {
	t.Helper()
	names := []string{"2026.1.1", "2026.1.2", "2026.1.3"}
	c := imagedIn(t, setting{server: server, pool: emulator.Pool{Tags: emulator.CAPZTags("prod-1")}}, names...)
	id := c.scenario.PoolID(poolName)
	c.must(c.SetPower(t.Context(), c.donor(), kamino.PowerOn))
	z := emulator.CAPZ{Pool: id, Replicas: 3, MaxSurge: 1, SkipModelReconciliation: gate,
		Image: map[string]any{"id": c.Address(c.pool(), kamino.KindDefinition, "")}, Call: c.raw}
	for range 8 {
		if _, err := z.Reconcile(); err != nil { // rolls the pool over to its own image
			return writes, deleted, err
		}
	}
	for range 12 {
		v := c.version(names[random.IntN(len(names))])
		switch pool := c.pool(); random.IntN(3) {
		case 0:
			err = c.Promote(t.Context(), pool, kamino.Target{Version: v.Name, Reference: kamino.ByDefinition, Seen: &v})
		case 1:
			if err = c.Withdraw(t.Context(), pool, v.Name, kamino.Bad{Reason: "a test"}); errors.Is(err, kamino.ErrInUse) {
				err = nil // the last one stays
			}
		case 2:
			z.Replicas = min(z.Replicas+1, 6) // each growth is a PUT of the whole, and makes a model
		}
		c.must(err)
		c.clock.Advance(24 * time.Hour)
		did, err := z.Reconcile()
		if err != nil {
			return writes, deleted, err
		}
		deleted += len(did.Deleted)
		if did.WroteModel {
			writes++
		}
	}
	return writes, deleted, nil
}

// raw is an ARM request of somebody who may do everything.
func (c *cloud) raw(method, path string, body map[string]any) (reply map[string]any, err error) {
	text, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	r := httptest.NewRequest(method, path+"?api-version=2026-04-01", bytes.NewReader(text))
	r.Header.Set("Authorization", "Bearer "+c.server.Token())
	w := httptest.NewRecorder()
	c.server.ServeHTTP(w, r)
	if w.Code >= http.StatusMultipleChoices {
		return nil, fmt.Errorf("%s %s: %d %s", method, path, w.Code, w.Body)
	}
	if w.Body.Len() > 0 {
		err = json.Unmarshal(w.Body.Bytes(), &reply)
	}
	return reply, err
}
