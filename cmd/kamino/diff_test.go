package main

import (
	"strings"
	"testing"

	"kamino.dev/kamino"
)

// TestDiffTellsWhatToPutAside: custom data and protected settings that nobody can read, where a
// pool leaves its original model, and not later.
func TestDiffTellsWhatToPutAside(t *testing.T) {
	const ours = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/galleries/x/images/kamino-a-prototype/versions/2026.11.22"
	change := func(field, from, to string) kamino.FieldChange {
		return kamino.FieldChange{Field: "virtualMachineProfile." + field, From: from, To: to}
	}
	custom := change("osProfile.customData", "(cannot be read)", "#cloud-config")
	extensions := change("extensionProfile.extensions", "vmssCSE, health, AKSLinuxBilling", "health")
	for _, tt := range []struct {
		diff []kamino.FieldChange
		want string
	}{
		{[]kamino.FieldChange{change("storageProfile.imageReference", "Canonical:ubuntu:22_04:latest", ours), extensions, custom},
			"Save from your template: custom data, protected settings of vmssCSE, protected settings of AKSLinuxBilling; Azure does not return them"},
		{[]kamino.FieldChange{change("storageProfile.imageReference", "Canonical:ubuntu:22_04:latest", ours), custom}, "Save from your template: custom data; "},
		{[]kamino.FieldChange{change("storageProfile.imageReference", ours, ours+"01"), custom}, ""},
		{[]kamino.FieldChange{change("storageProfile.imageReference", ours, "Canonical:ubuntu:22_04:latest"), change("osProfile.customData", "(cannot be read)", "30 bytes")}, ""},
		{[]kamino.FieldChange{{Field: "parameter /kamino/image", From: "ami-1", To: "ami-2"}}, ""},
	} {
		var out strings.Builder
		printDiff(&out, tt.diff)
		if got := out.String(); tt.want == "" && strings.Contains(got, "Put aside") || !strings.Contains(got, tt.want) {
			t.Errorf("%+v: %swant %q", tt.diff, got, tt.want)
		}
	}
}
