package providertest_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"kamino.dev/kamino"
	"kamino.dev/kamino/azure"
	"kamino.dev/kamino/azure/emulator"
	"kamino.dev/kamino/providertest"
)

// TestAzure runs the contract against Microsoft's SDK in front and the emulator
// behind HTTPS, once with published latencies on a virtual clock and once with
// none.
func TestAzure(t *testing.T) {
	t.Run("published latencies", func(t *testing.T) {
		providertest.Run(t, func(t *testing.T) providertest.World { return begin(t, setting{}).world() })
	})
	t.Run("no latencies", func(t *testing.T) {
		providertest.Run(t, func(t *testing.T) providertest.World {
			return begin(t, setting{latencies: emulator.NoLatency()}).world()
		})
	})
}

// setting is what a test wants of an emulated Azure. The zero value is an
// ordinary one.
type setting struct {
	latencies emulator.Latencies
	pool      emulator.Pool
	others    []emulator.Pool
	server    func(*emulator.Server)
	front     func(http.Handler) http.Handler // stands before the emulator
	group     string                          // what azure.json names; "": the scenario's
	in        string                          // the scenario's resource group; "": the usual one
	keeps     []azure.ExtensionRule           // nil: the billing extensions
}

// cloud is an emulated Azure with one pool, and the provider that talks to it
// over HTTPS.
type cloud struct {
	*azure.Provider
	*testing.T
	server   *emulator.Server
	clock    *emulator.VirtualClock
	scenario emulator.Scenario
}

const (
	poolName = "k8s-Pool1-vmss"
	clientID = "client"
)

func begin(t *testing.T, s setting) *cloud {
	t.Helper()
	const secret = "not-a-secret"
	s.pool.Name, s.pool.Count = poolName, 3
	c := &cloud{T: t,
		clock:    emulator.NewVirtualClock(time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC)),
		scenario: emulator.Scenario{ResourceGroup: s.in, Pools: append([]emulator.Pool{s.pool}, s.others...)}.Defaults()}
	c.server = &emulator.Server{Clock: c.clock, Latencies: s.latencies, PollInterval: time.Second,
		Identities: []emulator.Identity{{ClientID: clientID, Secret: secret, Roles: []emulator.Role{c.role()}}}}
	if s.server != nil {
		s.server(c.server)
	}
	c.server.Seed(c.scenario)
	var handler http.Handler = c.server
	if s.front != nil {
		handler = s.front(handler)
	}
	https := httptest.NewTLSServer(handler)
	t.Cleanup(func() { https.Close(); c.server.Close() })
	if s.group == "" {
		s.group = c.scenario.ResourceGroup
	}

	dir := t.TempDir()
	stack := file(t, dir, "azurestackcloud.json", `{"resourceManagerEndpoint":%q,"activeDirectoryEndpoint":%q,"tokenAudience":%q}`,
		https.URL, https.URL+"/adfs", https.URL)
	config := file(t, dir, "azure.json", `{"cloud":"AzureStackCloud","tenantId":%q,"subscriptionId":%q,"resourceGroup":%q,"aadClientId":%q,"aadClientSecret":%q}`,
		c.scenario.Tenant, c.scenario.Subscription, s.group, clientID, secret)
	var err error
	c.Provider, err = azure.New(azure.Config{
		File: config, Transport: https.Client(), KeepExtensions: s.keeps,
		Getenv: func(k string) string { return map[string]string{"AZURE_ENVIRONMENT_FILEPATH": stack}[k] },
	})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// world is the cloud as the contract wants it; the credentials must suffice.
func (c *cloud) world() providertest.World {
	c.Helper()
	c.bothRoles("")
	if doubts, err := c.Preflight(c.Context()); err != nil || len(doubts) > 0 {
		c.Fatal(err, doubts)
	}
	return providertest.World{Provider: c.Provider, Donor: c.donor(), Pass: c.clock.Advance, Edit: c.edit, Recipe: c.recipe}
}

// edit lets a person resize the machines and add an extension.
func (c *cloud) edit() {
	c.server.Change(c.scenario.PoolID(poolName), `{"sku":{"name":"Standard_D16s_v5"},"properties":{"virtualMachineProfile":{"extensionProfile":{"extensions":[
		{"name":"monitor","properties":{"publisher":"Example","type":"Monitor","typeHandlerVersion":"2.0","settings":{}}}]}}}}`)
}

// recipe is the machines' size, and the extension of edit.
func (c *cloud) recipe() string {
	for _, e := range c.server.State() {
		if !strings.EqualFold(e.ID, c.scenario.PoolID(poolName)) {
			continue
		}
		raw, err := json.Marshal(e.Document)
		c.must(err)
		var set struct {
			SKU        struct{ Name string }
			Properties struct {
				VirtualMachineProfile struct {
					ExtensionProfile struct {
						Extensions []struct {
							Name       string
							Properties struct{ TypeHandlerVersion string }
						}
					}
				}
			}
		}
		c.must(json.Unmarshal(raw, &set))
		text := set.SKU.Name
		for _, e := range set.Properties.VirtualMachineProfile.ExtensionProfile.Extensions {
			if e.Name == "monitor" {
				text += " monitor " + e.Properties.TypeHandlerVersion
			}
		}
		return text
	}
	c.Fatal("no such scale set")
	return ""
}

func (c *cloud) donor() kamino.InstanceID {
	return kamino.InstanceID("azure://" + c.scenario.PoolID(poolName) + "/virtualMachines/0")
}

func (c *cloud) pool() kamino.Pool {
	c.Helper()
	id, err := c.PoolOf(c.Context(), c.donor())
	if err != nil {
		c.Fatal(err)
	}
	pool, err := c.Pool(c.Context(), id)
	if err != nil {
		c.Fatal(err)
	}
	return pool
}

func (c *cloud) instance() kamino.Instance {
	c.Helper()
	in, err := c.Instance(c.Context(), c.donor())
	if err != nil {
		c.Fatal(err)
	}
	return in
}

func (c *cloud) must(err error) {
	c.Helper()
	if err != nil {
		c.Fatal(err)
	}
}

func file(t *testing.T, dir, name, format string, args ...any) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, fmt.Appendf(nil, format, args...), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
