package azure

import (
	"context"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v8"

	"kamino.dev/kamino"
)

func (p *Provider) findSnapshot(ctx context.Context, at place, name string) ([]kamino.Artifact, error) {
	got, err := at.snapshots.Get(ctx, at.group, name, nil)
	if err != nil {
		return nil, err
	}
	a := kamino.Artifact{Kind: kamino.KindSnapshot, Name: name, ID: value(got.ID), Tags: tagsOut(got.Tags)}
	props := got.Properties
	if props == nil {
		return []kamino.Artifact{a}, nil
	}
	a.State = state(value(props.ProvisioningState), false)
	a.Created = value(props.TimeCreated)
	a.Generation = string(value(props.HyperVGeneration))
	if props.CreationData != nil {
		a.Source = value(props.CreationData.SourceResourceID)
	}
	// Disks that need a copy in the background report how far it has come; for
	// the others there is no percentage, and a snapshot that Succeeded is whole
	// (https://learn.microsoft.com/azure/virtual-machines/disks-incremental-snapshots).
	a.Percent, a.Ready = 0, a.State == kamino.Succeeded
	if props.CompletionPercent != nil {
		a.Percent = int(*props.CompletionPercent)
		a.Ready = a.Ready && *props.CompletionPercent >= 100
	} else if a.Ready {
		a.Percent = 100
	}
	if e := props.CopyCompletionError; e != nil {
		a.State, a.Failure = kamino.Failed, kamino.Plain(value(e.ErrorMessage))
	}
	return []kamino.Artifact{a}, nil
}

// createSnapshot makes a full snapshot that nobody can download: neither public
// nor private network access, and no shared access signature without Entra ID.
func (p *Provider) createSnapshot(ctx context.Context, at place, model saved, id string, want kamino.Artifact) error {
	props := &armcompute.SnapshotProperties{
		CreationData: &armcompute.CreationData{
			CreateOption: to.Ptr(armcompute.DiskCreateOptionCopy), SourceResourceID: to.Ptr(want.Source),
		},
		Incremental:         to.Ptr(false),
		NetworkAccessPolicy: to.Ptr(armcompute.NetworkAccessPolicyDenyAll),
		PublicNetworkAccess: to.Ptr(armcompute.PublicNetworkAccessDisabled),
	}
	if want.Generation != "" {
		props.HyperVGeneration = to.Ptr(armcompute.HyperVGeneration(want.Generation))
	}
	if want.Architecture != "" {
		props.SupportedCapabilities = &armcompute.SupportedCapabilities{Architecture: to.Ptr(armcompute.Architecture(want.Architecture))}
	}
	if want.SecurityType == "TrustedLaunch" {
		props.SecurityProfile = &armcompute.DiskSecurityProfile{SecurityType: to.Ptr(armcompute.DiskSecurityTypesTrustedLaunch)}
	}
	if set := model.encryption(); set != "" {
		kind, err := p.encryptionType(ctx, at, set)
		if err != nil {
			return err
		}
		props.Encryption = &armcompute.Encryption{DiskEncryptionSetID: to.Ptr(set), Type: to.Ptr(kind)}
	}
	poller, err := at.snapshots.BeginCreateOrUpdate(ctx, at.group, want.Name, armcompute.Snapshot{
		Location: to.Ptr(at.location), Tags: tagsIn(want.Tags), Properties: props,
		SKU: &armcompute.SnapshotSKU{Name: to.Ptr(armcompute.SnapshotStorageAccountTypesStandardLRS)},
	}, nil)
	return poll(p, id, poller, err)
}
