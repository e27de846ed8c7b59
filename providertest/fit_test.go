package providertest_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"kamino.dev/kamino"
	"kamino.dev/kamino/azure/emulator"
)

// rolled makes a version of the donor and points the model at it, then grows the
// pool: what a run is for. It returns what Azure said against it.
func (c *cloud) rolled() (string, kamino.Artifact) {
	c.Helper()
	if said := c.wholeRun("2026.1.1"); said != "" {
		return said, kamino.Artifact{}
	}
	before := c.pool()
	if err := c.SetCapacity(c.Context(), before, before.Capacity+1); err != nil {
		return err.Error(), kamino.Artifact{}
	}
	if grown := len(c.server.Instances()); grown != before.Capacity+1 {
		return "the pool did not grow", kamino.Artifact{}
	}
	return "", c.version("2026.1.1").Artifact
}

func (c *cloud) document(kind kamino.Kind, name string) map[string]any {
	c.Helper()
	doc := c.server.Document(c.Address(c.pool(), kind, name))
	if doc == nil {
		c.Fatalf("no %s %s", kind, name)
	}
	return doc["properties"].(map[string]any)
}

// TestMachinesThatGrow: from a pool of each kind an image comes of which the pool
// can grow, also where the role cannot read what sizes there are.
func TestMachinesThatGrow(t *testing.T) {
	for name, pool := range map[string]emulator.Pool{
		"ordinary":                         {},
		"NVMe only":                        {Size: "Standard_D4s_v6"},
		"NVMe only, and the model says so": {Size: "Standard_D4s_v6", DiskController: "NVMe"},
		"NVMe by choice":                   {Size: "Standard_E4bds_v5", DiskController: "NVMe"},
		"SCSI by choice":                   {Size: "Standard_E4bds_v5", DiskController: "SCSI"},
		"generation 1":                     {Generation: "V1"},
		"Arm64":                            {Architecture: "Arm64"},
		"Trusted Launch":                   {SecurityType: "TrustedLaunch"},
		"purchase plan":                    {Plan: &emulator.Plan{Publisher: "kinvolk", Product: "flatcar", Name: "stable"}},
		"disk of 128 GiB":                  {DiskGB: 128},
	} {
		for _, sees := range []string{"sizes unknown", "sizes known"} {
			t.Run(name+", "+sees, func(t *testing.T) {
				c := begin(t, setting{latencies: emulator.NoLatency(), pool: pool})
				if sees == "sizes known" {
					c.server.SetRoles(clientID, c.role(), emulator.Role{Actions: []string{"Microsoft.Compute/skus/read"}})
				}
				if said, _ := c.rolled(); said != "" {
					t.Error(said)
				}
			})
		}
	}
}

// TestCustomerKey: where the model's disks are encrypted with a customer's key, so
// are snapshot and image, in each region.
func TestCustomerKey(t *testing.T) {
	c := begin(t, customerKey())
	c.encryptionSet()
	ctx, pool, in := t.Context(), c.pool(), c.instance()
	c.must(c.Create(ctx, pool, kamino.Artifact{Kind: kamino.KindSnapshot, Name: kamino.SnapshotName(pool.Name), Source: in.Disk, Machine: kamino.Machine{Generation: "V2"}}))
	encryption, _ := c.document(kamino.KindSnapshot, kamino.SnapshotName(pool.Name))["encryption"].(map[string]any)
	if want := (map[string]any{"diskEncryptionSetId": customerKey().pool.DiskEncryptionSet, "type": "EncryptionAtRestWithCustomerKey"}); !maps.Equal(encryption, want) {
		t.Errorf("the snapshot is encrypted with %v, want %v", encryption, want)
	}
	c.must(c.Delete(ctx, pool, kamino.Artifact{Kind: kamino.KindSnapshot, Name: kamino.SnapshotName(pool.Name)}))
	if said, _ := c.rolled(); said != "" {
		t.Fatal(said)
	}
	profile := c.document(kamino.KindVersion, "2026.1.1")["publishingProfile"].(map[string]any)
	region := profile["targetRegions"].([]any)[0].(map[string]any)
	disk, _ := region["encryption"].(map[string]any)["osDiskImage"].(map[string]any)
	if disk["diskEncryptionSetId"] != customerKey().pool.DiskEncryptionSet {
		t.Errorf("region %v, want the replicas encrypted with the customer's key", region)
	}
	c.must(c.Withdraw(ctx, c.pool(), "2026.1.1", kamino.Bad{Reason: "never Ready"}))
	profile = c.document(kamino.KindVersion, "2026.1.1")["publishingProfile"].(map[string]any)
	if profile["targetRegions"].([]any)[0].(map[string]any)["encryption"] == nil {
		t.Errorf("the mark has taken the encryption away: %v", profile)
	}
}

// TestMisfits: what can not be carried over is refused before anything is touched,
// with the field and what to do.
func TestMisfits(t *testing.T) {
	profile := `{"properties":{"virtualMachineProfile":{`
	for _, tt := range []struct {
		name       string
		pool       emulator.Pool
		model      string // PATCH of the scale set, after its instances were made
		definition *kamino.Artifact
		set        bool // the disk encryption set exists
		want       string
		code       kamino.Code
	}{
		{name: "security type", model: profile + `"securityProfile":{"securityType":"TrustedLaunch"}}}}`, code: "fit", want: "securityProfile.securityType"},
		{name: "generation 1 in a pool for Trusted Launch", pool: emulator.Pool{Generation: "V1"},
			model: profile + `"securityProfile":{"securityType":"TrustedLaunch"}}}}`, code: "fit", want: "hyperVGeneration"},
		{name: "controller", pool: emulator.Pool{Size: "Standard_E4bds_v5", DiskController: "SCSI"},
			model: `{"properties":{"virtualMachineProfile":{"storageProfile":{"diskControllerType":"NVMe"}}}}`, code: "fit", want: "diskControllerType"},
		{name: "size with another controller", model: `{"sku":{"name":"Standard_D4s_v6","tier":"Standard","capacity":3}}`, code: "fit", want: "disk controllers NVMe"},
		{name: "size of another architecture", model: `{"sku":{"name":"Standard_D4ps_v5","tier":"Standard","capacity":3}}`, code: "fit", want: "architecture Arm64"},
		{name: "disk", pool: emulator.Pool{DiskGB: 128}, model: `{"properties":{"virtualMachineProfile":{"storageProfile":{"osDisk":{"diskSizeGB":64}}}}}`,
			code: "fit", want: "128 GiB"},
		{name: "plan", pool: emulator.Pool{Plan: &emulator.Plan{Publisher: "kinvolk", Product: "flatcar", Name: "beta"}},
			model: `{"plan":{"publisher":"kinvolk","product":"flatcar","name":"stable"}}`, code: "plan", want: "kinvolk/flatcar/beta"},
		{name: "plan of the definition", pool: emulator.Pool{Plan: &emulator.Plan{Publisher: "kinvolk", Product: "flatcar", Name: "stable"}},
			definition: &kamino.Artifact{Name: "d"}, code: "plan", want: "purchasePlan of image definition d"},
		{name: "controllers of the definition", pool: emulator.Pool{Size: "Standard_D4s_v6"},
			definition: &kamino.Artifact{Name: "d"}, code: "fit", want: "DiskControllerTypes of image definition d"},
		{name: "encryption", model: `{"properties":{"virtualMachineProfile":{"storageProfile":{"osDisk":{"managedDisk":{"diskEncryptionSet":{"id":"` +
			customerKey().pool.DiskEncryptionSet + `"}}}}}}}`, set: true, code: "encryption", want: "the platform's key"},
		{name: "encryption set that is gone", pool: customerKey().pool, code: "encryption", want: "diskEncryptionSets/read"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := begin(t, setting{latencies: emulator.NoLatency(), pool: tt.pool})
			if tt.set {
				c.encryptionSet()
			}
			if tt.model != "" {
				c.server.Change(c.scenario.PoolID(poolName), tt.model)
			}
			in := c.instance()
			in.Architecture = "x64" // as the node says
			refusals, _, err := c.Fit(t.Context(), c.pool(), in, tt.definition)
			if err != nil {
				t.Fatal(err)
			}
			if !slices.ContainsFunc(refusals, func(r kamino.Refusal) bool {
				return r.Code == tt.code && strings.Contains(r.String(), tt.want) && r.Do != ""
			}) {
				t.Errorf("refused for %v, want code %q and text %q", refusals, tt.code, tt.want)
			}
		})
	}
}
