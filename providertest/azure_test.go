package providertest_test

import (
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
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
		providertest.Run(t, func(t *testing.T) providertest.World { return azureWorld(t, emulator.Latencies{}) })
	})
	t.Run("no latencies", func(t *testing.T) {
		providertest.Run(t, func(t *testing.T) providertest.World { return azureWorld(t, emulator.NoLatency()) })
	})
}

func azureWorld(t *testing.T, latencies emulator.Latencies) providertest.World {
	t.Helper()
	clock := emulator.NewVirtualClock(time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC))
	const secret = "not-a-secret"
	server := &emulator.Server{Clock: clock, Latencies: latencies, PollInterval: time.Second,
		Identities: []emulator.Identity{{ClientID: "client", Secret: secret}}}
	scenario := emulator.Scenario{Pools: []emulator.Pool{{Name: "k8s-Pool1-vmss", Count: 3}}}.Defaults()
	server.Seed(scenario)
	https := httptest.NewTLSServer(server)
	t.Cleanup(func() { https.Close(); server.Close() })

	dir := t.TempDir()
	stack := file(t, dir, "azurestackcloud.json", `{"resourceManagerEndpoint":%q,"activeDirectoryEndpoint":%q,"tokenAudience":%q}`,
		https.URL, https.URL+"/adfs", https.URL)
	config := file(t, dir, "azure.json", `{"cloud":"AzureStackCloud","tenantId":%q,"subscriptionId":%q,"resourceGroup":%q,"aadClientId":"client","aadClientSecret":%q}`,
		scenario.Tenant, scenario.Subscription, scenario.ResourceGroup, secret)
	provider, err := azure.New(azure.Config{
		File: config, Transport: https.Client(),
		Getenv: func(k string) string { return map[string]string{"AZURE_ENVIRONMENT_FILEPATH": stack}[k] },
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := provider.Preflight(t.Context()); err != nil {
		t.Fatal(err)
	}
	return providertest.World{
		Provider: provider,
		Donor:    kamino.InstanceID("azure://" + scenario.PoolID("k8s-Pool1-vmss") + "/virtualMachines/0"),
		Pass:     clock.Advance,
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
