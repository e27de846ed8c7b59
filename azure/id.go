package azure

import (
	"context"
	"fmt"
	"strings"

	"kamino.dev/kamino"
)

// providerScheme begins the providerID of every node on Azure
// (https://github.com/kubernetes-sigs/cloud-provider-azure).
const providerScheme = "azure://"

// scaleSet is a resource ID of a scale set, taken apart.
type scaleSet struct {
	subscription, group, name string
}

// segments cuts a resource ID into its lower-case keys and their values. Azure
// compares the whole ID without case.
func segments(id string) map[string]string {
	parts := strings.Split(strings.Trim(id, "/"), "/")
	out := make(map[string]string, len(parts)/2)
	for i := 0; i+1 < len(parts); i += 2 {
		out[strings.ToLower(parts[i])] = parts[i+1]
	}
	return out
}

func parsePool(id kamino.PoolID) (scaleSet, error) {
	s := segments(string(id))
	v := scaleSet{s["subscriptions"], s["resourcegroups"], s["virtualmachinescalesets"]}
	if v.subscription == "" || v.group == "" || v.name == "" {
		return v, fmt.Errorf("%q is not the ID of a scale set: %w", id, kamino.ErrUnsupported)
	}
	return v, nil
}

// parseInstance takes a providerID of a node apart:
// azure:///subscriptions/S/resourceGroups/G/providers/Microsoft.Compute/virtualMachineScaleSets/V/virtualMachines/N
// on Uniform scale sets. The node's name is never cut: its prefix may differ
// from the scale set's name, and numbers are used again.
func parseInstance(id kamino.InstanceID) (scaleSet, string, error) {
	rest, ok := strings.CutPrefix(string(id), providerScheme)
	if !ok {
		return scaleSet{}, "", fmt.Errorf("providerID %q is not one of Azure: %w", id, kamino.ErrUnsupported)
	}
	s := segments(rest)
	v := scaleSet{s["subscriptions"], s["resourcegroups"], s["virtualmachinescalesets"]}
	vm := s["virtualmachines"]
	switch {
	case v.subscription == "" || v.group == "" || vm == "":
		return v, "", fmt.Errorf("providerID %q is not one of a VM: %w", id, kamino.ErrUnsupported)
	case v.name == "":
		return v, "", fmt.Errorf("providerID %q is a single VM or one of a Flexible scale set, and only Uniform scale sets are supported: %w",
			id, kamino.ErrUnsupported)
	}
	return v, vm, nil
}

// PoolOf derives the scale set of an instance from its ID.
func (p *Provider) PoolOf(_ context.Context, id kamino.InstanceID) (kamino.PoolID, error) {
	v, _, err := parseInstance(id)
	if err != nil {
		return "", err
	}
	return v.id(), nil
}

func (v scaleSet) id() kamino.PoolID { return kamino.PoolID(strings.ToLower(v.path())) }

// path is the resource ID as Azure spells it.
func (v scaleSet) path() string {
	return "/subscriptions/" + v.subscription + "/resourceGroups/" + v.group +
		"/providers/Microsoft.Compute/virtualMachineScaleSets/" + v.name
}
