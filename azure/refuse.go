package azure

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v8"

	"kamino.dev/kamino"
)

// refusals collects what speaks against a pool or an instance.
type refusals []kamino.Refusal

func (r *refusals) add(code kamino.Code, field, value, why, do string) {
	*r = append(*r, kamino.Refusal{Code: code, Field: field, Value: value, Why: why, Do: do})
}

// refusePool lists what of a scale set makes a prototype dangerous or
// impossible.
func refusePool(set armcompute.VirtualMachineScaleSet, group string) []kamino.Refusal {
	var r refusals
	refuseAKS(&r, set, group)
	if version := value(set.Tags[kamino.TagCanary]); version != "" {
		r.add("canary", "tags", kamino.TagCanary, fmt.Sprintf("it is the canary of pool %s with version %s, and is temporary",
			value(set.Tags[kamino.TagPool]), version),
			"choose a node of the pool")
	}
	if set.Properties == nil {
		return r
	}
	if mode := value(set.Properties.OrchestrationMode); mode == armcompute.OrchestrationModeFlexible {
		r.add("flexible", "properties.orchestrationMode", string(mode), "only Uniform scale sets are supported so far",
			"choose a node of a Uniform scale set")
	}
	refusePolicy(&r, set.Properties)
	if vm := set.Properties.VirtualMachineProfile; vm != nil {
		refuseProfile(&r, vm)
	}
	return r
}

// refuseAKS recognises pools that AKS manages: changes through ARM make such a
// cluster unsupportable, and AKS undoes them
// (https://learn.microsoft.com/azure/aks/support-policies).
func refuseAKS(r *refusals, set armcompute.VirtualMachineScaleSet, group string) {
	field, val := "", ""
	// In order: what is refused must be told in the same words each time.
	for _, k := range slices.Sorted(maps.Keys(set.Tags)) {
		if strings.HasPrefix(strings.ToLower(k), "aks-managed-") {
			field, val = "tags", k
			break
		}
	}
	if strings.HasPrefix(strings.ToUpper(group), "MC_") {
		field, val = "resourceGroup", group
	}
	if field != "" {
		r.add("aks", field, val, "AKS manages this pool, forbids changes of its scale set and undoes them",
			"use AKS' own node image upgrades")
	}
}

// capzOwner is how a tag begins that cluster-api-provider-azure gives what it owns (its
// api/v1beta1/tags.go); the name of the cluster follows.
const capzOwner = "sigs.k8s.io_cluster-api-provider-azure_cluster_"

// owner recognises pools of an AzureMachinePool: its controller puts its own image back into the
// model and replaces the instances that booted from another (azure/types.go, HasModelChanges and
// HasLatestModelApplied, as of August 2026).
func owner(tags map[string]*string, definition string) *kamino.Owner {
	for _, k := range slices.Sorted(maps.Keys(tags)) {
		if cluster, ok := strings.CutPrefix(strings.ToLower(k), capzOwner); ok {
			return &kamino.Owner{Name: "cluster-api-provider-azure (cluster " + cluster + ")",
				Spec: "spec:\n  template:\n    image:\n      id: " + definition,
				Needs: "the gate SkipMachinePoolModelReconciliation (EXP_SKIP_MACHINE_POOL_MODEL_RECONCILIATION=true), unless instances show the definition as their image: " +
					"where they show the version that they booted from, the controller replaces nodes forever"}
		}
	}
	return nil
}

// refuseOwner refuses a pool whose owner would put another image back. One whose recipe names the
// definition is none of these: there only versions are moved.
func (p *Provider) refuseOwner(pool *kamino.Pool, tags map[string]*string) {
	definition := p.Address(*pool, kamino.KindDefinition, "")
	if pool.Owner = owner(tags, definition); pool.Owner == nil || strings.EqualFold(pool.Model.Image, definition) {
		return
	}
	pool.Refusals = append(pool.Refusals, kamino.Refusal{Code: "capz", Field: "image of the model", Value: pool.Model.Image,
		Why:   pool.Owner.Name + " owns this pool: it would put its own image back into the scale set and replace the nodes that booted from another",
		Do:    "change the image in the spec of its AzureMachinePool: kamino update --image-only makes one, and prints the lines",
		Allow: kamino.AllowImageOnly})
}

// refusePolicy refuses what would carry a new image to running nodes.
func refusePolicy(r *refusals, props *armcompute.VirtualMachineScaleSetProperties) {
	if u := props.UpgradePolicy; u != nil {
		if mode := value(u.Mode); mode != "" && mode != armcompute.UpgradeModeManual {
			r.add("upgrade-policy", "properties.upgradePolicy.mode", string(mode),
				"Azure would replace running nodes, all at once in mode Automatic, as soon as the model changes",
				"az vmss update --set upgradePolicy.mode=Manual")
		}
		if a := u.AutomaticOSUpgradePolicy; a != nil && value(a.EnableAutomaticOSUpgrade) {
			r.add("automatic-os-upgrade", "properties.upgradePolicy.automaticOSUpgradePolicy.enableAutomaticOSUpgrade", "true",
				"Azure would roll the whole pool, without drain, when a new version appears",
				"az vmss update --enable-auto-os-upgrade false")
		}
	}
	if a := props.AutomaticRepairsPolicy; a != nil && value(a.Enabled) {
		r.add(kamino.CodeRepairs, "properties.automaticRepairsPolicy.enabled", "true",
			"Azure may delete the donor as unhealthy while it is off",
			"az vmss update --enable-automatic-repairs false")
	}
}

func refuseProfile(r *refusals, vm *armcompute.VirtualMachineScaleSetVMProfile) {
	if s := vm.ServiceArtifactReference; s != nil && value(s.ID) != "" {
		r.add("service-artifact", "properties.virtualMachineProfile.serviceArtifactReference.id", value(s.ID),
			"a service artifact fixes the image version of the scale set, whatever its model names",
			"remove the reference from the scale set, or choose another pool")
	}
	if sp := vm.StorageProfile; sp != nil && sp.OSDisk != nil {
		if d := sp.OSDisk.DiffDiskSettings; d != nil && value(d.Option) != "" {
			r.add(kamino.CodeEphemeral, "properties.virtualMachineProfile.storageProfile.osDisk.diffDiskSettings.option", string(*d.Option),
				"an ephemeral OS disk cannot be snapshotted and does not outlive a stop", "use a pool with managed OS disks")
		}
		if os := value(sp.OSDisk.OSType); os == armcompute.OperatingSystemTypesWindows {
			r.add(kamino.CodeOS, "properties.virtualMachineProfile.storageProfile.osDisk.osType", string(os),
				"only Linux disks can be sealed", "choose a Linux pool")
		}
	}
	if s := vm.SecurityProfile; s != nil && value(s.SecurityType) == armcompute.SecurityTypesConfidentialVM {
		r.add("confidential", "properties.virtualMachineProfile.securityProfile.securityType", string(*s.SecurityType),
			"the disk of a Confidential VM is bound to its VM", "choose another pool")
	}
	if pr := value(vm.Priority); pr == armcompute.VirtualMachinePriorityTypesSpot || pr == armcompute.VirtualMachinePriorityTypesLow {
		*r = append(*r, kamino.Refusal{Code: kamino.CodeSpot, Field: "properties.virtualMachineProfile.priority", Value: string(pr),
			Why: "Azure may evict the donor while it is off", Do: "choose another pool, or use --allow-spot", Allow: kamino.AllowSpot})
	}
}
