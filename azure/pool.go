package azure

import (
	"context"
	"encoding/json"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v8"

	"kamino.dev/kamino"
)

// Pool reads a scale set.
func (p *Provider) Pool(ctx context.Context, id kamino.PoolID) (kamino.Pool, error) {
	v, err := parsePool(id)
	if err != nil {
		return kamino.Pool{}, err
	}
	c, err := p.of(v.subscription)
	if err != nil {
		return kamino.Pool{}, err
	}
	got, err := c.sets.Get(ctx, v.group, v.name, nil)
	if err != nil {
		return kamino.Pool{}, translate(err, "read scale set %s", v.name)
	}
	pool, err := toPool(id, v, got.VirtualMachineScaleSet)
	if err == nil {
		pool.Gallery, err = p.galleryOf(ctx, c, v.subscription, pool.Group)
		p.refuseOwner(&pool, got.Tags)
	}
	return pool, err
}

// mostModels is how many models the instances of a Uniform scale set may refer to
// (https://github.com/MicrosoftDocs/azure-docs/issues/103472, by a Microsoft author); of Flexible
// ones nobody reported a limit.
const mostModels = 10

func toPool(id kamino.PoolID, v scaleSet, set armcompute.VirtualMachineScaleSet) (kamino.Pool, error) {
	model, err := readModel(set)
	if err != nil {
		return kamino.Pool{}, err
	}
	name, group := v.name, v.group
	if s := segments(value(set.ID)); s["virtualmachinescalesets"] != "" {
		// As Azure writes them: the ID that names the pool is in lower case.
		name, group = s["virtualmachinescalesets"], s["resourcegroups"]
	}
	pool := kamino.Pool{
		ID: id, Name: name, Group: group, Location: value(set.Location),
		Model: model, Revision: value(set.Etag), Stamp: value(set.Etag), Refusals: refusePool(set, group),
	}
	if !flexible(set) {
		pool.MostModels = mostModels
	}
	if set.SKU != nil {
		pool.Capacity = int(value(set.SKU.Capacity))
	}
	if set.Properties != nil {
		pool.UID, pool.Created = value(set.Properties.UniqueID), value(set.Properties.TimeCreated)
		state := value(set.Properties.ProvisioningState)
		pool.Updating = strings.EqualFold(state, "Updating") || strings.EqualFold(state, "Creating")
	}
	return pool, nil
}

// saved is what of a model is needed to write it back, and to compare it.
type saved struct {
	Image      *armcompute.ImageReference                    `json:"imageReference,omitempty"`
	OSDisk     *armcompute.VirtualMachineScaleSetOSDisk      `json:"osDisk,omitempty"`
	DataDisks  []*armcompute.VirtualMachineScaleSetDataDisk  `json:"dataDisks,omitempty"`
	Controller *string                                       `json:"diskControllerType,omitempty"`
	Extensions []*armcompute.VirtualMachineScaleSetExtension `json:"extensions,omitempty"`
	// SKU is needed by SetCapacity, which must name it whole.
	SKU *armcompute.SKU `json:"sku,omitempty"`
	// What instances of the model demand of their image besides.
	Plan     *armcompute.Plan `json:"plan,omitempty"`
	Security string           `json:"securityType,omitempty"`
}

func readModel(set armcompute.VirtualMachineScaleSet) (kamino.Model, error) {
	var s saved
	s.SKU, s.Plan = set.SKU, set.Plan
	if set.Properties != nil && set.Properties.VirtualMachineProfile != nil {
		vm := set.Properties.VirtualMachineProfile
		if sp := vm.StorageProfile; sp != nil {
			s.Image, s.OSDisk, s.DataDisks, s.Controller = sp.ImageReference, sp.OSDisk, sp.DataDisks, sp.DiskControllerType
		}
		if vm.SecurityProfile != nil {
			s.Security = string(value(vm.SecurityProfile.SecurityType))
		}
		if vm.ExtensionProfile != nil {
			s.Extensions = vm.ExtensionProfile.Extensions
		}
	}
	raw, err := json.Marshal(s)
	m := kamino.Model{Image: imageText(s.Image), Saved: raw}
	for _, e := range s.Extensions {
		m.Extensions = append(m.Extensions, toExtension(e))
	}
	return m, err
}

func toExtension(e *armcompute.VirtualMachineScaleSetExtension) kamino.Extension {
	out := kamino.Extension{Name: value(e.Name)}
	if e.Properties != nil {
		out.Publisher, out.Type = value(e.Properties.Publisher), value(e.Properties.Type)
	}
	return out
}

// imageText is an image reference as one text: an ID, or
// publisher:offer:sku:version as az prints it.
func imageText(r *armcompute.ImageReference) string {
	if r == nil {
		return ""
	}
	for _, id := range []*string{r.ID, r.CommunityGalleryImageID, r.SharedGalleryImageID} {
		if value(id) != "" {
			return *id
		}
	}
	return strings.Join([]string{value(r.Publisher), value(r.Offer), value(r.SKU), value(r.Version)}, ":")
}
