package azure

import "testing"

func TestCallOf(t *testing.T) {
	const group = "/subscriptions/0000-1/resourceGroups/g1"
	for path, want := range map[string]string{
		group + "/providers/Microsoft.Compute/virtualMachineScaleSets":                                       "GET Microsoft.Compute/virtualMachineScaleSets",
		group + "/providers/Microsoft.Compute/virtualMachineScaleSets/vmss-7":                                "GET Microsoft.Compute/virtualMachineScaleSets",
		group + "/providers/Microsoft.Compute/virtualMachineScaleSets/vmss-7/virtualMachines/3/instanceView": "GET Microsoft.Compute/virtualMachineScaleSets/virtualMachines/instanceView",
		group + "/providers/Microsoft.Compute/virtualMachineScaleSets/vmss-7/virtualMachines/3/start":        "GET Microsoft.Compute/virtualMachineScaleSets/virtualMachines/start",
		"/subscriptions/0000-1/providers/Microsoft.Compute/locations/westus2/operations/9f-1":                "GET Microsoft.Compute/locations/operations",
		group + "/providers/Microsoft.Compute/snapshots/s1/providers/Microsoft.Authorization/permissions":    "GET Microsoft.Authorization/permissions",
		group:                                    "GET subscriptions/resourceGroups",
		"/weird/name/vmss-7":                     "GET other",
		"/subscriptions/0000-1/resourceGroups/g": "GET subscriptions/resourceGroups",
	} {
		t.Run(path, func(t *testing.T) {
			if got := callOf("GET", path); got != want {
				t.Errorf("%s: %q, want %q", path, got, want)
			}
		})
	}
}
