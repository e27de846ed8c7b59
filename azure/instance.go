package azure

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v8"

	"kamino.dev/kamino"
)

// Instance reads an instance with its power state, in one call.
func (p *Provider) Instance(ctx context.Context, id kamino.InstanceID) (kamino.Instance, error) {
	v, vm, err := parseInstance(id)
	if err != nil {
		return kamino.Instance{}, err
	}
	c, err := p.of(v.subscription)
	if err != nil {
		return kamino.Instance{}, err
	}
	got, err := c.vms.Get(ctx, v.group, v.name, vm,
		&armcompute.VirtualMachineScaleSetVMsClientGetOptions{Expand: to.Ptr(armcompute.InstanceViewTypesInstanceView)})
	if err != nil {
		return kamino.Instance{}, translate(err, "read instance %s of scale set %s", vm, v.name)
	}
	out := toInstance(id, v.id(), got.VirtualMachineScaleSetVM)
	if out.VMID == "" {
		return out, fmt.Errorf("read instance %s of scale set %s: %w: the answer has no vmId", vm, v.name, kamino.ErrUnavailable)
	}
	return out, nil
}

// Instances lists the instances of a scale set. Of each it decodes its number only.
func (p *Provider) Instances(ctx context.Context, pool kamino.Pool) ([]kamino.InstanceID, error) {
	at, err := p.place(pool)
	if err != nil {
		return nil, err
	}
	out := []kamino.InstanceID{}
	err = list(ctx, at, at.path()+"/virtualMachines?api-version="+vmListVersion, func(vm struct {
		InstanceID string `json:"instanceId"`
	}) {
		out = append(out, kamino.InstanceID(providerScheme+at.path()+"/virtualMachines/"+vm.InstanceID))
	})
	return out, translateList(err, "list instances of scale set %s", at.name)
}

// vmListVersion is the API version of the list of instances, as armcompute v8 asks for it.
const vmListVersion = "2026-04-01"

// list reads a list page by page and decodes of each value what each takes: with thousands of
// instances, what the SDK's lists decode takes longer than everything else a plan reads.
func list[T any](ctx context.Context, at place, link string, each func(T)) error {
	for link != "" {
		var page struct {
			NextLink string `json:"nextLink"`
			Value    []T    `json:"value"`
		}
		if err := at.get(ctx, link, &page); err != nil {
			return err
		}
		for _, v := range page.Value {
			each(v)
		}
		link = page.NextLink
	}
	return nil
}

// translateList is translate for lists whose parent has been read: one that is not found is not
// empty, it is not known.
func translateList(err error, format string, args ...any) error {
	if err = translate(err, format, args...); errors.Is(err, kamino.ErrNotFound) {
		return fmt.Errorf("%w: although its parent exists: %w", kamino.ErrUnavailable, errors.New(err.Error()))
	}
	return err
}

func toInstance(id kamino.InstanceID, pool kamino.PoolID, vm armcompute.VirtualMachineScaleSetVM) kamino.Instance {
	out := kamino.Instance{ID: id, Pool: pool, Power: kamino.PowerBetween, Machine: kamino.Machine{SecurityType: "Standard"}}
	if vm.SKU != nil {
		out.Size = value(vm.SKU.Name)
	}
	if len(vm.Zones) > 0 {
		out.Zone = regionName(value(vm.Location)) + "-" + value(vm.Zones[0]) // as cloud-provider-azure's makeZone
	}
	out.Plan = planText(vm.Plan)
	props := vm.Properties
	if props == nil {
		return out
	}
	out.VMID = value(props.VMID)
	if props.OSProfile != nil {
		out.Hostname = strings.ToLower(value(props.OSProfile.ComputerName))
	}
	if s := props.SecurityProfile; s != nil && value(s.SecurityType) != "" {
		out.SecurityType = string(*s.SecurityType)
	}
	if sp := props.StorageProfile; sp != nil {
		// A GET of this disk answers 404 on Uniform scale sets although a
		// snapshot by its ID works (Azure/azure-cli#20258): generation and the
		// like are taken from the instance view.
		if sp.OSDisk != nil && sp.OSDisk.ManagedDisk != nil {
			out.Disk = value(sp.OSDisk.ManagedDisk.ID)
		}
		out.Image = bornFrom(sp.ImageReference)
		out.Controller = string(value(sp.DiskControllerType))
		if disk := sp.OSDisk; disk != nil {
			out.DiskGB = int(value(disk.DiskSizeGB))
			if m := disk.ManagedDisk; m != nil && m.DiskEncryptionSet != nil {
				out.Encryption = value(m.DiskEncryptionSet.ID)
			}
		}
	}
	if view := props.InstanceView; view != nil {
		out.Generation = string(value(view.HyperVGeneration))
		out.Power, out.Failure = power(view.Statuses)
	}
	out.Refusals = refuseInstance(props)
	return out
}

// bornFrom is the exact version that an instance booted from, also where the
// model refers to the definition.
func bornFrom(r *armcompute.ImageReference) string {
	if r == nil {
		return ""
	}
	id := value(r.ID)
	if id == "" {
		return imageText(r)
	}
	if exact := value(r.ExactVersion); exact != "" && !strings.Contains(strings.ToLower(id), "/versions/") {
		return id + "/versions/" + exact
	}
	return id
}

// power reads the codes of an instance view
// (https://learn.microsoft.com/azure/virtual-machines/states-billing).
func power(statuses []*armcompute.InstanceViewStatus) (state kamino.Power, failure string) {
	state = kamino.PowerBetween
	for _, s := range statuses {
		code := strings.ToLower(value(s.Code))
		switch {
		case code == "powerstate/running":
			state = kamino.PowerOn
		case code == "powerstate/stopped", code == "powerstate/deallocated":
			state = kamino.PowerOff
		case strings.HasPrefix(code, "provisioningstate/failed"):
			failure = strings.TrimPrefix(value(s.Code), "ProvisioningState/failed/")
			if m := value(s.Message); m != "" {
				failure += ": " + kamino.Plain(m)
			}
		}
	}
	return state, failure
}

func refuseInstance(props *armcompute.VirtualMachineScaleSetVMProperties) []kamino.Refusal {
	var r refusals
	if sp := props.StorageProfile; sp != nil && sp.OSDisk != nil {
		if d := sp.OSDisk.DiffDiskSettings; d != nil && value(d.Option) != "" {
			r.add(kamino.CodeEphemeral, "properties.storageProfile.osDisk.diffDiskSettings.option", string(*d.Option),
				"an ephemeral OS disk cannot be snapshotted and does not outlive a stop", "choose a node with a managed OS disk")
		}
	}
	if s := props.SecurityProfile; s != nil && value(s.SecurityType) == armcompute.SecurityTypesConfidentialVM {
		r.add("confidential", "properties.securityProfile.securityType", string(*s.SecurityType),
			"the disk of a Confidential VM is bound to its VM", "choose another pool")
	}
	return r
}

// SetPower begins to start an instance or to switch it off. It uses the calls
// on the instance, not those on the scale set, and never deallocates: a
// deallocated machine may find no capacity to start again, and loses its
// temporary disk (https://learn.microsoft.com/azure/virtual-machines/states-billing).
func (p *Provider) SetPower(ctx context.Context, id kamino.InstanceID, want kamino.Power) error {
	v, vm, err := parseInstance(id)
	if err != nil {
		return err
	}
	c, err := p.of(v.subscription)
	if err != nil {
		return err
	}
	if want == kamino.PowerOn {
		poller, err := c.vms.BeginStart(ctx, v.group, v.name, vm, nil)
		return translate(poll(p, string(id), poller, err), "start instance %s of scale set %s", vm, v.name)
	}
	poller, err := c.vms.BeginPowerOff(ctx, v.group, v.name, vm, nil)
	return translate(poll(p, string(id), poller, err), "switch off instance %s of scale set %s", vm, v.name)
}
