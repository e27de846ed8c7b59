package azure

import (
	"cmp"
	"context"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v8"

	"kamino.dev/kamino"
)

func (p *Provider) findGallery(ctx context.Context, at place) ([]kamino.Artifact, error) {
	got, err := at.galleries.Get(ctx, at.group, at.gallery, nil)
	if err != nil {
		return nil, err
	}
	a := kamino.Artifact{Kind: kamino.KindGallery, Name: at.gallery, ID: value(got.ID), Tags: tagsOut(got.Tags)}
	if got.Properties != nil {
		a.State = state(string(value(got.Properties.ProvisioningState)), true)
	}
	a.Ready = a.State == kamino.Succeeded
	return []kamino.Artifact{a}, nil
}

// galleryOf is the name of the gallery of a resource group. Where the group may
// have one of a former name, one list tells; a group that is not found is an
// error, never one without a gallery.
func (p *Provider) galleryOf(ctx context.Context, c *clients, subscription, group string) (string, error) {
	if p.config.Gallery != "" {
		return p.config.Gallery, nil
	}
	name, former := kamino.GalleryName(group), kamino.FormerGalleryName(group)
	if former == "" {
		return name, nil
	}
	key := strings.ToLower(subscription + "/" + group)
	p.mu.Lock()
	known := p.galleries[key]
	p.mu.Unlock()
	if known != "" {
		return known, nil
	}
	pager := c.galleries.NewListByResourceGroupPager(group, nil)
	for pager.More() {
		page, err := pager.NextPage(ctx)
		if err != nil {
			return "", translateList(err, "list the galleries of resource group %s", group)
		}
		for _, g := range page.Value {
			if strings.EqualFold(value(g.Name), former) {
				name = value(g.Name)
			}
		}
	}
	p.mu.Lock()
	p.galleries[key] = name
	p.mu.Unlock()
	return name, nil
}

func (p *Provider) createGallery(ctx context.Context, at place, id string) error {
	poller, err := at.galleries.BeginCreateOrUpdate(ctx, at.group, at.gallery, armcompute.Gallery{
		Location:   to.Ptr(at.location),
		Properties: &armcompute.GalleryProperties{Description: to.Ptr("Images of the pools of this cluster, made by kamino")},
	}, nil)
	return poll(p, id, poller, err)
}

// Features of a definition: its security type, and the disk controllers that its
// versions boot from.
const (
	securityFeature   = "SecurityType"
	controllerFeature = "DiskControllerTypes"
)

func (p *Provider) findDefinition(ctx context.Context, at place) ([]kamino.Artifact, error) {
	got, err := at.definitions.Get(ctx, at.group, at.gallery, at.definition, nil)
	if err != nil {
		return nil, err
	}
	a := kamino.Artifact{Kind: kamino.KindDefinition, Name: at.definition, ID: value(got.ID), Tags: tagsOut(got.Tags)}
	if props := got.Properties; props != nil {
		a.State = state(string(value(props.ProvisioningState)), true)
		a.Generation = string(value(props.HyperVGeneration))
		a.Architecture = string(value(props.Architecture))
		if plan := props.PurchasePlan; plan != nil {
			a.Plan = planText(&armcompute.Plan{Name: plan.Name, Product: plan.Product, Publisher: plan.Publisher})
		}
		for _, f := range props.Features {
			switch value(f.Name) {
			case securityFeature:
				a.SecurityType = value(f.Value)
			case controllerFeature:
				a.Controller = value(f.Value)
			}
		}
	}
	a.Ready = a.State == kamino.Succeeded
	return []kamino.Artifact{a}, nil
}

// createDefinition always names generation and security type: without them the
// API of 2025-03-03 and later makes definitions that refuse snapshots
// (https://learn.microsoft.com/azure/virtual-machines/azure-compute-gallery).
// The OS state is Generalized, since only such images may stand in the model of
// a scale set that takes an osProfile.
//
// Plan and disk controllers never change either. An image that boots by NVMe is
// said to boot by SCSI too, as the ones of the Marketplace are
// (https://learn.microsoft.com/azure/virtual-machines/enable-nvme-interface); one of
// a donor with SCSI says nothing, which means SCSI.
func (p *Provider) createDefinition(ctx context.Context, at place, model saved, id string, want kamino.Artifact) error {
	security := want.SecurityType
	if security == "" {
		security = "Standard"
	}
	props := &armcompute.GalleryImageProperties{
		Identifier: &armcompute.GalleryImageIdentifier{
			Publisher: to.Ptr(kamino.Publisher), Offer: to.Ptr(kamino.OfferName(at.group)), SKU: to.Ptr(at.name),
		},
		OSType:   to.Ptr(armcompute.OperatingSystemTypesLinux),
		OSState:  to.Ptr(armcompute.OperatingSystemStateTypesGeneralized),
		Features: []*armcompute.GalleryImageFeature{{Name: to.Ptr(securityFeature), Value: to.Ptr(security)}},
	}
	offers, err := p.region(ctx, at)
	if err != nil {
		return err
	}
	if strings.EqualFold(cmp.Or(want.Controller, offers.controller(model)), nvme) {
		props.Features = append(props.Features, &armcompute.GalleryImageFeature{Name: to.Ptr(controllerFeature),
			Value: to.Ptr(scsi + "," + nvme)})
	}
	if plan := model.Plan; planText(plan) != "" {
		props.PurchasePlan = &armcompute.ImagePurchasePlan{Name: plan.Name, Product: plan.Product, Publisher: plan.Publisher}
	}
	if want.Generation != "" {
		props.HyperVGeneration = to.Ptr(armcompute.HyperVGeneration(want.Generation))
	}
	if want.Architecture != "" {
		props.Architecture = to.Ptr(armcompute.Architecture(want.Architecture))
	}
	poller, err := at.definitions.BeginCreateOrUpdate(ctx, at.group, at.gallery, at.definition,
		armcompute.GalleryImage{Location: to.Ptr(at.location), Properties: props}, nil)
	return poll(p, id, poller, err)
}
