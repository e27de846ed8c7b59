package providertest_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"kamino.dev/kamino"
	"kamino.dev/kamino/azure"
	"kamino.dev/kamino/azure/emulator"
)

// canaryRole is the second role that the documentation tells people to make.
func (c *cloud) canaryRole() emulator.Role {
	c.Helper()
	raw, err := os.ReadFile("../docs/azure-role-canary.json")
	if err != nil {
		c.Fatal(err)
	}
	role := emulator.Role{Scope: c.groupID()}
	if err := json.Unmarshal(raw, &role); err != nil {
		c.Fatal(err)
	}
	return role
}

// bothRoles gives the credentials both roles, but for an action.
func (c *cloud) bothRoles(without string) {
	canary := c.canaryRole()
	canary.Actions = slices.DeleteFunc(canary.Actions, func(a string) bool { return a == without })
	c.server.SetRoles(clientID, c.role(), canary)
}

// TestCanaryRoleFile: the file grants what the program asks for, and no more.
func TestCanaryRoleFile(t *testing.T) {
	c := begin(t, setting{latencies: emulator.NoLatency()})
	if got, want := c.canaryRole().Actions, azure.CanaryActions(); !slices.Equal(got, want) {
		t.Errorf("docs/azure-role-canary.json grants %v, the program asks for %v", got, want)
	}
}

// everything is a pool whose model names whatever a canary's writer may need a right for.
func everything(c *cloud) {
	group := c.groupID()
	network := group + "/providers/Microsoft.Network/"
	balancer := network + "loadBalancers/out"
	c.server.Put(network+"virtualNetworks/vnet/subnets/nodes", map[string]any{"properties": map[string]any{"routeTable": map[string]any{"id": network + "routeTables/r"}}})
	c.server.Put(balancer, map[string]any{"properties": map[string]any{
		"outboundRules": []any{map[string]any{"properties": map[string]any{"backendAddressPool": map[string]any{"id": balancer + "/backendAddressPools/outbound"}}}},
		"loadBalancingRules": []any{map[string]any{"properties": map[string]any{"backendAddressPool": map[string]any{"id": balancer + "/backendAddressPools/kubernetes"},
			"disableOutboundSnat": true}}},
	}})
	c.server.Change(c.scenario.PoolID(poolName), strings.NewReplacer("GROUP", group, "NETWORK/", network, "LB", balancer).Replace(`{
	"identity": {"type": "UserAssigned", "userAssignedIdentities": {"GROUP/providers/Microsoft.ManagedIdentity/userAssignedIdentities/nodes": {"clientId": "c", "principalId": "p"}}},
	"tags": {"min": "1", "max": "9", "poolName": "pool"},
	"zones": ["1", "2", "3"],
	"properties": {
		"zoneBalance": true, "overprovision": true,
		"proximityPlacementGroup": {"id": "GROUP/providers/Microsoft.Compute/proximityPlacementGroups/near"},
		"hostGroup": {"id": "GROUP/providers/Microsoft.Compute/hostGroups/hosts"},
		"scaleInPolicy": {"rules": ["OldestVM"]},
		"virtualMachineProfile": {
			"unknownToThisProgram": {"travels": true},
			"capacityReservation": {"capacityReservationGroup": {"id": "GROUP/providers/Microsoft.Compute/capacityReservationGroups/room"}},
			"scheduledEventsProfile": {"terminateNotificationProfile": {"enable": true, "notBeforeTimeout": "PT15M"}},
			"osProfile": {"secrets": [{"sourceVault": {"id": "GROUP/providers/Microsoft.KeyVault/vaults/v"}, "vaultCertificates": []}],
				"linuxConfiguration": {"disablePasswordAuthentication": false}},
			"networkProfile": {"healthProbe": {"id": "LB/probes/p"}, "networkInterfaceConfigurations": [{"name": "nic", "properties": {"primary": true,
				"networkSecurityGroup": {"id": "NETWORK/networkSecurityGroups/nsg"},
				"ipConfigurations": [{"name": "ip", "properties": {"primary": true, "subnet": {"id": "NETWORK/virtualNetworks/vnet/subnets/nodes"},
					"publicIPAddressConfiguration": {"name": "pip"},
					"applicationGatewayBackendAddressPools": [{"id": "NETWORK/applicationGateways/g/backendAddressPools/p"}],
					"applicationSecurityGroups": [{"id": "NETWORK/applicationSecurityGroups/asg"}],
					"loadBalancerInboundNatPools": [{"id": "LB/inboundNatPools/ssh"}],
					"loadBalancerBackendAddressPools": [{"id": "LB/backendAddressPools/kubernetes"}, {"id": "LB/backendAddressPools/outbound"}]}}]}}]}
		}}}`))
}

// balancer replaces the pool's load balancer by a public one whose rules send the machines traffic
// and are their only way out.
func (c *cloud) onlyInbound() {
	network := c.groupID() + "/providers/Microsoft.Network/"
	balancer := network + "loadBalancers/out"
	c.server.Put(balancer, map[string]any{"properties": map[string]any{
		"frontendIPConfigurations": []any{map[string]any{"id": balancer + "/frontendIPConfigurations/f", "properties": map[string]any{"publicIPAddress": map[string]any{"id": "x"}}}},
		"loadBalancingRules": []any{map[string]any{"properties": map[string]any{"frontendIPConfiguration": map[string]any{"id": balancer + "/frontendIPConfigurations/f"},
			"backendAddressPool": map[string]any{"id": balancer + "/backendAddressPools/kubernetes"}}}},
	}})
	c.server.Put(network+"virtualNetworks/vnet/subnets/nodes", map[string]any{"properties": map[string]any{}})
}

// proof makes a hidden version and a canary of it, and returns the scale set's document.
func (c *cloud) proof(change func(*cloud)) (map[string]any, kamino.CanaryOrder) {
	c.Helper()
	if said := c.wholeRun("2026.1.1"); said != "" {
		c.Fatal(said)
	}
	change(c)
	c.bothRoles("")
	order := c.order()
	c.must(c.LaunchCanary(c.Context(), c.pool(), order))
	return c.server.Document(c.scenario.PoolID(order.Name)), order
}

func (c *cloud) order() kamino.CanaryOrder {
	pool := c.pool()
	return kamino.CanaryOrder{Name: kamino.CanaryName(pool.ID, "run-1"), Run: "run-1", Nonce: "n", Version: c.Address(pool, kamino.KindVersion, "2026.1.1"),
		Expires: time.Date(2026, 11, 21, 0, 0, 0, 0, time.UTC)}
}

// dig follows keys and indexes.
func dig(v any, keys ...any) any {
	for _, k := range keys {
		switch k := k.(type) {
		case string:
			m, _ := v.(map[string]any)
			v = m[k]
		case int:
			list, _ := v.([]any)
			if k >= len(list) {
				return nil
			}
			v = list[k]
		}
	}
	return v
}

// TestCanaryRecipe: the canary is the pool's recipe as a promotion leaves it, and nothing by which
// the pool's neighbours would know it again.
func TestCanaryRecipe(t *testing.T) {
	c := begin(t, setting{latencies: emulator.NoLatency(), pool: emulator.Pool{UserData: "dXNlcg=="}})
	doc, order := c.proof(everything)
	const vm, os, nic = "virtualMachineProfile", "osProfile", "networkInterfaceConfigurations"
	ip := dig(doc, "properties", vm, "networkProfile", nic, 0, "properties", "ipConfigurations", 0, "properties")
	for what, is := range map[string]bool{
		"one instance":            dig(doc, "sku", "capacity") == 1.0 || dig(doc, "sku", "capacity") == 1,
		"its own prefix":          dig(doc, "properties", vm, os, "computerNamePrefix") == order.Name,
		"none of the pool's tags": dig(doc, "tags", "min") == nil && dig(doc, "tags", "poolName") == nil,
		"its expiry":              dig(doc, "tags", kamino.TagExpires) == "2026-11-21T00:00:00Z",
		"one zone":                len(dig(doc, "zones").([]any)) == 1,
		"no zone balance":         dig(doc, "properties", "zoneBalance") == nil,
		"no scale-in rules":       dig(doc, "properties", "scaleInPolicy") == nil,
		"no delay at its end":     dig(doc, "properties", vm, "scheduledEventsProfile", "terminateNotificationProfile") == nil,
		"unknown fields":          dig(doc, "properties", vm, "unknownToThisProgram", "travels") == true,
		"the hidden version":      dig(doc, "properties", vm, "storageProfile", "imageReference", "id") == order.Version,
		"its way out only":        len(dig(ip, "loadBalancerBackendAddressPools").([]any)) == 1 && strings.HasSuffix(dig(ip, "loadBalancerBackendAddressPools", 0, "id").(string), "/outbound"),
		"no probe":                dig(doc, "properties", vm, "networkProfile", "healthProbe") == nil,
		"no NAT":                  dig(ip, "loadBalancerInboundNatPools") == nil,
		"no public address":       dig(ip, "publicIPAddressConfiguration") == nil,
		"no application gateway":  dig(ip, "applicationGatewayBackendAddressPools") == nil,
		"its network groups":      dig(ip, "applicationSecurityGroups", 0, "id") != nil,
		"billing, no bootstrap":   len(dig(doc, "properties", vm, "extensionProfile", "extensions").([]any)) == 1,
		"the pool's identities":   len(dig(doc, "identity", "userAssignedIdentities").(map[string]any)) == 1,
		"no read-only identity":   !strings.Contains(jsonText(doc["identity"]), "clientId"),
	} {
		t.Run(what, func(t *testing.T) {
			if !is {
				t.Errorf("the canary lacks: %s\n%s", what, jsonText(doc))
			}
		})
	}
	in := c.server.Instances()
	i := slices.IndexFunc(in, func(i emulator.Instance) bool { return i.Pool == order.Name })
	if i < 0 || in[i].UserData != "dXNlcg==" || in[i].Tags[kamino.TagCanary] != "2026.1.1" || in[i].Tags[kamino.TagNonce] != "n" || !strings.HasPrefix(in[i].ComputerName, order.Name) {
		t.Errorf("the canary's machine is %+v", in[max(i, 0)])
	}
	fit, err := c.CanaryFit(t.Context(), c.pool())
	if told := strings.Join(fit.Kept, "\n"); err != nil || !strings.Contains(told, "outbound") || !strings.Contains(told, "room") {
		t.Errorf("kept is told as %q, %v", told, err)
	}
	other := c.pool()
	other.ID = kamino.PoolID(strings.ToLower(c.scenario.PoolID(order.Name)))
	if pool, err := c.Pool(t.Context(), other.ID); err != nil || len(pool.Refusals) == 0 || pool.Refusals[0].Code != "canary" {
		t.Errorf("the canary as a pool: %v, %v, want it refused", pool.Refusals, err)
	}
}

// TestCanaryExtensions: of the extensions that a promotion keeps the canary has those whose
// settings are all known. One that may have protected settings, which nobody can read, is left out
// and named.
func TestCanaryExtensions(t *testing.T) {
	extension := func(name, publisher, kind, more string) string {
		return fmt.Sprintf(`{"name":%q,"properties":{"publisher":%q,"type":%q%s}}`, name, publisher, kind, more)
	}
	c := begin(t, setting{latencies: emulator.NoLatency(), keeps: append(azure.BillingExtensions(), azure.ExtensionRule{Publisher: "example", Type: "*"})})
	doc, order := c.proof(func(c *cloud) {
		c.server.Change(c.scenario.PoolID(poolName), `{"properties":{"virtualMachineProfile":{"extensionProfile":{"extensions":[`+
			extension("billing", "Microsoft.AKS", "Compute.AKS.Linux.Billing", "")+`,`+
			extension("monitor", "example", "Monitor", `,"settings":{"a":1}`)+`,`+
			extension("guard", "example", "Guard", `,"protectedSettingsFromKeyVault":{"secretUrl":"u","sourceVault":{"id":"`+c.groupID()+`/providers/Microsoft.KeyVault/vaults/v"}}`)+`,`+
			extension("bootstrap", "Microsoft.Azure.Extensions", "CustomScript", "")+`]}}}}`)
	})
	var has []string
	for _, e := range dig(doc, "properties", "virtualMachineProfile", "extensionProfile", "extensions").([]any) {
		has = append(has, dig(e, "name").(string))
	}
	fit, err := c.CanaryFit(t.Context(), c.pool())
	if c.must(err); strings.Join(has, " ") != "billing guard" || len(fit.LeftOut) != 1 || !strings.Contains(fit.LeftOut[0], "monitor") {
		t.Errorf("%s has the extensions %v, and left out is told as %q", order.Name, has, fit.LeftOut)
	}
}

func jsonText(v any) string {
	raw, _ := json.Marshal(v)
	return string(raw)
}

// TestCanaryRefusals: what a canary cannot have is told, and what would convict a good image is
// refused before anything is made.
func TestCanaryRefusals(t *testing.T) {
	for _, tt := range []struct {
		name, change string
		also         func(*cloud)
		code         kamino.Code
	}{
		{name: "system-assigned identity", change: `{"identity": {"type": "SystemAssigned, UserAssigned"}}`, code: "system-assigned"},
		{name: "the way out brings traffic", also: func(c *cloud) { everything(c); c.onlyInbound() }, code: "outbound"},
		{name: "a load balancer that cannot be read", also: func(c *cloud) {
			everything(c)
			c.bothRoles("Microsoft.Network/loadBalancers/read")
		}, code: "outbound"},
		{name: "a right at the subnet", also: func(c *cloud) {
			everything(c)
			c.bothRoles("Microsoft.Network/virtualNetworks/subnets/join/action")
		}, code: "rights"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := begin(t, setting{latencies: emulator.NoLatency()})
			c.bothRoles("")
			if tt.change != "" {
				c.server.Change(c.scenario.PoolID(poolName), tt.change)
			}
			if tt.also != nil {
				tt.also(c)
			}
			fit, err := c.CanaryFit(t.Context(), c.pool())
			if err != nil || !slices.ContainsFunc(fit.Refusals, func(r kamino.Refusal) bool { return r.Code == tt.code }) {
				t.Fatalf("CanaryFit says %+v, %v, want a refusal %q", fit, err, tt.code)
			}
			if err := c.LaunchCanary(t.Context(), c.pool(), c.order()); err == nil {
				t.Error("the canary was launched all the same")
			}
			if doc := c.server.Document(c.scenario.PoolID(c.order().Name)); doc != nil {
				t.Errorf("a refused canary exists: %s", jsonText(doc))
			}
		})
	}
}

// TestCanaryBlocked: what the cloud refuses whatever the image is does not speak against it.
func TestCanaryBlocked(t *testing.T) {
	sets := "**/virtualMachineScaleSets/kamino-*"
	for _, tt := range []struct {
		name    string
		fault   emulator.Fault
		policy  bool
		launch  error // of LaunchCanary
		blocked bool  // the canary exists, failed and blocked
	}{
		{name: "quota", launch: kamino.ErrBlocked, fault: emulator.Fault{Method: http.MethodPut, Path: sets, Kind: emulator.Reply, Status: http.StatusConflict, Code: "OperationNotAllowed",
			Message: "Operation could not be completed as it results in exceeding approved standardDSv3Family Cores quota. Additional details - Current Limit: 10, Current Usage: 10, Additional Required: 2"}},
		{name: "throttled", launch: &kamino.ThrottledError{}, fault: emulator.Fault{Method: http.MethodPut, Path: sets, Kind: emulator.Reply, Status: http.StatusTooManyRequests, RetryAfter: time.Minute, Times: -1}},
		{name: "policy", launch: kamino.ErrBlocked, policy: true},
		{name: "allocation", blocked: true, fault: emulator.Fault{Method: http.MethodPut, Path: sets, Kind: emulator.FailOperation, Code: "ZonalAllocationFailed",
			Message: "Allocation failed. We do not have sufficient capacity for the requested VM size in this zone."}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := begin(t, setting{latencies: emulator.NoLatency()})
			if said := c.wholeRun("2026.1.1"); said != "" {
				t.Fatal(said)
			}
			c.bothRoles("")
			if tt.policy {
				c.server.SetPolicies(emulator.Policy{Name: "sizes", Type: "Microsoft.Compute/virtualMachineScaleSets"})
			} else {
				c.server.AddFault(tt.fault)
			}
			err := c.LaunchCanary(t.Context(), c.pool(), c.order())
			var throttled *kamino.ThrottledError
			switch {
			case tt.blocked:
				c.must(err)
			case errors.As(tt.launch, &throttled):
				if !errors.As(err, &throttled) {
					t.Errorf("LaunchCanary: %v, want to be throttled", err)
				}
				return
			case !errors.Is(err, tt.launch):
				t.Errorf("LaunchCanary: %v, want %v", err, tt.launch)
				return
			default:
				return
			}
			found, err := c.Canaries(t.Context(), c.pool())
			if err != nil || len(found) != 1 || found[0].State != kamino.Failed || !found[0].Blocked || found[0].Failure == "" {
				t.Errorf("canaries %+v, %v, want one that failed and is blocked", found, err)
			}
		})
	}
}

// TestCanaryGuest: a machine whose guest never reports convicts its image.
func TestCanaryGuest(t *testing.T) {
	c := begin(t, setting{latencies: emulator.NoLatency(), server: func(s *emulator.Server) { s.RequireReady = true }})
	_, order := c.proof(func(*cloud) {})
	found, err := c.Canaries(t.Context(), c.pool())
	if err != nil || len(found) != 1 || found[0].State != kamino.Creating || found[0].VMID == "" || found[0].Power != kamino.PowerOn {
		t.Fatalf("while the guest is silent: %+v, %v", found, err)
	}
	c.clock.Advance(time.Hour)
	found, err = c.Canaries(t.Context(), c.pool())
	if err != nil || len(found) != 1 || found[0].State != kamino.Failed || found[0].Blocked || !strings.Contains(found[0].Failure, "OSProvisioningTimedOut") {
		t.Errorf("after its time: %+v, %v", found, err)
	}
	c.must(c.RemoveCanary(t.Context(), c.pool(), order.Name))
}

// TestCanaryWithoutRights: with the first role alone everything but canaries works, and says so.
func TestCanaryWithoutRights(t *testing.T) {
	c := begin(t, setting{latencies: emulator.NoLatency()})
	if said := c.wholeRun("2026.1.1"); said != "" {
		t.Fatalf("with the first role alone: %s", said)
	}
	_, err := c.PreflightCanary(t.Context())
	if !errors.Is(err, kamino.ErrForbidden) || !strings.Contains(kamino.Hint(err), "azure-role-canary.json") {
		t.Fatalf("PreflightCanary: %v (hint %q)", err, kamino.Hint(err))
	}
	for _, action := range azure.CanaryActions() {
		if !strings.Contains(err.Error(), action) {
			t.Errorf("%q does not name %s", err, action)
		}
	}
	fit, err := c.CanaryFit(t.Context(), c.pool())
	if err != nil || len(fit.Refusals) == 0 {
		t.Errorf("CanaryFit: %+v, %v, want a refusal", fit, err)
	}
	if found, err := c.Canaries(t.Context(), c.pool()); err != nil || len(found) != 0 {
		t.Errorf("canaries %v, %v", found, err)
	}
}

// TestEveryCanaryActionIsNeeded: without any single action of the second role a canary cannot be
// had, or something of it is not known, and that action is named before anything is made.
func TestEveryCanaryActionIsNeeded(t *testing.T) {
	for _, action := range azure.CanaryActions() {
		t.Run(action[strings.IndexByte(action, '/')+1:], func(t *testing.T) {
			c := begin(t, setting{latencies: emulator.NoLatency()})
			if said := c.wholeRun("2026.1.1"); said != "" {
				t.Fatal(said)
			}
			everything(c)
			if strings.HasSuffix(action, "subnets/read") {
				c.onlyInbound()
				c.server.Put(c.groupID()+"/providers/Microsoft.Network/virtualNetworks/vnet/subnets/nodes",
					map[string]any{"properties": map[string]any{"natGateway": map[string]any{"id": "nat"}}})
			}
			c.bothRoles("")
			if fit, err := c.CanaryFit(t.Context(), c.pool()); err != nil || len(fit.Refusals) > 0 {
				t.Fatalf("with the whole role: %+v, %v", fit, err)
			}
			order := c.order()
			c.must(c.LaunchCanary(t.Context(), c.pool(), order))
			found, err := c.Canaries(t.Context(), c.pool())
			c.must(err)
			if _, err := c.Console(t.Context(), c.pool(), found[0]); err != nil {
				t.Errorf("Console: %v", err)
			}
			c.bothRoles(action)
			_, err = c.Preflight(t.Context())
			c.must(err)
			doubts, err := c.PreflightCanary(t.Context())
			if told := fmt.Sprint(doubts, errorText(err)); !strings.Contains(told, action) {
				t.Errorf("PreflightCanary says %q, want it to name %s", told, action)
			}
			// As a run does that did not ask before.
			told := errorText(c.RemoveCanary(t.Context(), c.pool(), order.Name))
			order.Run, order.Name = "run-2", kamino.CanaryName(c.pool().ID, "run-2")
			told += errorText(c.LaunchCanary(t.Context(), c.pool(), order))
			_, err = c.Console(t.Context(), c.pool(), found[0])
			told += errorText(err)
			if !strings.Contains(told, action) && !strings.Contains(told, "reach the internet") {
				t.Errorf("without it the calls say %q", told)
			}
		})
	}
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error() + "\n"
}

// TestCanaryPrefix: cloud-provider-azure finds the scale set of a node by the prefix of its name.
func TestCanaryPrefix(t *testing.T) {
	c := begin(t, setting{latencies: emulator.NoLatency(), others: []emulator.Pool{{Name: "other", Prefix: "KAMINO-"}}})
	c.bothRoles("")
	if err := c.LaunchCanary(t.Context(), c.pool(), c.order()); err == nil || !strings.Contains(err.Error(), "other") {
		t.Errorf("beside a scale set whose machines could be taken for the canary's: %v", err)
	}
}

// TestCanaryForce: where a deletion by force is not allowed, the plain one is taken.
func TestCanaryForce(t *testing.T) {
	c := begin(t, setting{latencies: emulator.NoLatency()})
	_, order := c.proof(func(*cloud) {})
	c.server.AddFault(emulator.Fault{Method: http.MethodDelete, Path: "**/virtualMachineScaleSets/*", Kind: emulator.Reply, Status: http.StatusConflict, Code: "OperationNotAllowed",
		Message: "Operation 'ForceDelete' is not allowed on resource 'x' since it manages updates using maintenance control."})
	c.must(c.RemoveCanary(t.Context(), c.pool(), order.Name))
	if found, err := c.Canaries(t.Context(), c.pool()); err != nil || len(found) != 0 {
		t.Errorf("canaries %v, %v", found, err)
	}
}

// TestCanaryConsole: the last lines, without what a terminal would obey.
func TestCanaryConsole(t *testing.T) {
	c := begin(t, setting{latencies: emulator.NoLatency()})
	_, _ = c.proof(func(*cloud) {})
	found, err := c.Canaries(t.Context(), c.pool())
	c.must(err)
	c.server.WriteConsole(strings.TrimPrefix(string(found[0].Instance), "azure://"), strings.Repeat("[ ok ] started\n", 90)+"\x1b[31m\u009bKernel panic - not syncing\r\n")
	lines, err := c.Console(t.Context(), c.pool(), found[0])
	if err != nil || len(lines) != 40 || lines[39] != "[31mKernel panic - not syncing" {
		t.Errorf("%d lines, %q, %v", len(lines), lines[max(0, len(lines)-1):], err)
	}
}

// TestCopiedCanaryTags: a scale set that only has a canary's tags, as one that somebody made of an
// exported template of one, is no canary: neither its name nor its capacity is that of one.
func TestCopiedCanaryTags(t *testing.T) {
	c := imagedIn(t, setting{others: []emulator.Pool{{Name: "blue", Count: 3}}}, "2026.11.20")
	c.bothRoles("")
	pool := c.pool()
	c.server.Change(c.scenario.PoolID("blue"), `{"tags":{"`+kamino.TagCanary+`":"2026.11.20","`+kamino.TagPool+`":"`+pool.Name+`","`+kamino.TagRun+`":"r-1","`+kamino.TagExpires+`":"2020-01-01T00:00:00Z"}}`)
	c.clock.Advance(time.Minute)
	list, err := c.Canaries(t.Context(), pool)
	c.must(err)
	if len(list) != 0 {
		t.Errorf("listed as canaries, to be removed by the next restore: %+v", list)
	}
	if err := c.RemoveCanary(t.Context(), pool, "blue"); !errors.Is(err, kamino.ErrConflict) {
		t.Errorf("the delete of scale set blue ended %v", err)
	}
	c.clock.Advance(10 * time.Minute)
	if _, err := c.Pool(t.Context(), kamino.PoolID(c.scenario.PoolID("blue"))); err != nil {
		t.Errorf("scale set blue: %v", err)
	}
}
