package azure

import (
	"context"
	"fmt"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v8"

	"kamino.dev/kamino"
)

// offer lets the definition of a pool stand for a version.
func (p *Provider) offer(ctx context.Context, pool kamino.Pool, seen kamino.Version) error {
	return p.writeVersion(ctx, pool, seen.Name, func(have kamino.Version) (kamino.Version, error) {
		if !have.SameOffer(seen) {
			return have, fmt.Errorf("version %s was changed meanwhile: %w", have.Name, kamino.ErrConflict)
		}
		return have.Offered(), nil
	})
}

// Withdraw takes a version back from its definition. What else the definition would stand for then
// is read beforehand; what somebody else writes after that read is not seen, as versions have no
// ETag.
func (p *Provider) Withdraw(ctx context.Context, pool kamino.Pool, version string, bad kamino.Bad) error {
	if err := p.missed(ctx, pool, version); err != nil {
		return err
	}
	return p.writeVersion(ctx, pool, version, func(have kamino.Version) (kamino.Version, error) { return have.Withdrawn(bad), nil })
}

// missed refuses where a definition would stand for nothing without a version, one in dispute not
// counted, and a scale set of the resource group refers to it: a scale-out would fail
// (https://learn.microsoft.com/azure/virtual-machines/troubleshooting-shared-images).
func (p *Provider) missed(ctx context.Context, pool kamino.Pool, version string) error {
	at, err := p.place(pool)
	if err != nil {
		return err
	}
	versions, err := at.allVersions(ctx)
	if err != nil {
		return translateList(err, "list image versions of pool %s", at.name)
	}
	for _, v := range versions {
		if v.Name == version && v.Excluded { // the definition does not stand for it
			return nil
		}
		if v.Name != version && v.State == kamino.Succeeded && !v.Excluded && !v.Disputed {
			return nil
		}
	}
	definition := p.Address(pool, kamino.KindDefinition, "")
	pager := at.sets.NewListPager(at.group, nil)
	for pager.More() {
		page, err := pager.NextPage(ctx)
		if err != nil {
			return translateList(err, "list the scale sets of resource group %s", at.group)
		}
		for _, set := range page.Value {
			model, err := readModel(*set)
			if err != nil {
				return err
			}
			if strings.EqualFold(model.Image, definition) {
				return fmt.Errorf("version %s is the only one that image definition %s stands for, to which scale set %s refers: %w",
					version, at.definition, value(set.Name), kamino.ErrInUse)
			}
		}
	}
	return nil
}

// SetTags writes the tags of a version or of an image definition.
func (p *Provider) SetTags(ctx context.Context, pool kamino.Pool, a kamino.Artifact) error {
	if a.Kind == kamino.KindVersion {
		return p.writeVersion(ctx, pool, a.Name, func(have kamino.Version) (kamino.Version,
			error) {
			return have.Retagged(kamino.ParseVersion(a))
		})
	}
	at, err := p.place(pool)
	if err != nil {
		return err
	} else if a.Kind != kamino.KindDefinition {
		return fmt.Errorf("write the tags of %s %s: %w", a.Kind, a.Name, kamino.ErrUnsupported)
	}
	poller, err := at.definitions.BeginUpdate(ctx, at.group, at.gallery, at.definition, armcompute.GalleryImageUpdate{Tags: tagsIn(a.Tags)},
		nil)
	return translate(poll(p, p.Address(pool, kamino.KindDefinition, a.Name), poller, err), "write the tags of image definition %s",
		at.definition)
}

// writeVersion writes the tags of a version and whether it is excluded from latest. The publishing
// profile goes back with all target regions and storage types as they were read: left out, they
// count as another type (https://github.com/Azure/azure-powershell/issues/9911). Versions have no
// ETag.
func (p *Provider) writeVersion(ctx context.Context, pool kamino.Pool, name string,
	change func(kamino.Version) (kamino.Version, error)) error {
	at, err := p.place(pool)
	if err != nil {
		return err
	}
	got, err := at.versions.Get(ctx, at.group, at.gallery, at.definition, name, nil)
	if err != nil {
		return translate(err, "read version %s", name)
	}
	v, err := change(kamino.ParseVersion(toVersion(got.GalleryImageVersion)))
	if err != nil {
		return err
	}
	profile := &armcompute.GalleryImageVersionPublishingProfile{ExcludeFromLatest: to.Ptr(v.Excluded)}
	if props := got.Properties; props != nil && props.PublishingProfile != nil {
		profile.StorageAccountType, profile.TargetRegions = props.PublishingProfile.StorageAccountType,
			props.PublishingProfile.TargetRegions
	}
	poller, err := at.versions.BeginUpdate(ctx, at.group, at.gallery, at.definition, name, armcompute.GalleryImageVersionUpdate{
		Tags: tagsIn(v.Tags),
		Properties: &armcompute.GalleryImageVersionProperties{
			PublishingProfile: profile, StorageProfile: &armcompute.GalleryImageVersionStorageProfile{},
		},
	}, nil)
	return translate(poll(p, p.Address(pool, kamino.KindVersion, name), poller, err), "write version %s", name)
}
