package azure

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v8"

	"kamino.dev/kamino"
)

func (p *Provider) findVersion(ctx context.Context, at place, name string) ([]kamino.Artifact, error) {
	got, err := at.versions.Get(ctx, at.group, at.gallery, at.definition, name,
		&armcompute.GalleryImageVersionsClientGetOptions{Expand: to.Ptr(armcompute.ReplicationStatusTypesReplicationStatus)})
	if err != nil {
		return nil, err
	}
	a := toVersion(got.GalleryImageVersion)
	if props := got.Properties; props != nil && props.ReplicationStatus != nil {
		a.Ready, a.Failure = false, "not replicated to "+at.location
		for _, s := range props.ReplicationStatus.Summary {
			if regionName(value(s.Region)) == regionName(at.location) {
				a.Percent, a.Failure = int(value(s.Progress)), ""
				a.Ready = (a.State == kamino.Succeeded || a.State == kamino.Failed) &&
					value(s.State) == armcompute.ReplicationStateCompleted
			}
		}
	}
	return []kamino.Artifact{a}, nil
}

// toVersion leaves Ready at what the provisioning state says: lists carry no
// replication status.
func toVersion(v armcompute.GalleryImageVersion) kamino.Artifact {
	a := kamino.Artifact{Kind: kamino.KindVersion, Name: value(v.Name), ID: value(v.ID), Tags: tagsOut(v.Tags)}
	props := v.Properties
	if props == nil {
		return a
	}
	a.State = state(string(value(props.ProvisioningState)), true)
	a.Ready = a.State == kamino.Succeeded
	if pub := props.PublishingProfile; pub != nil {
		a.Storage = string(value(pub.StorageAccountType))
		a.Replica = int(value(pub.ReplicaCount))
		a.Excluded = value(pub.ExcludeFromLatest)
		a.Created = value(pub.PublishedDate)
		a.Disputed = !a.Excluded && slices.ContainsFunc(pub.TargetRegions,
			func(r *armcompute.TargetRegion) bool { return value(r.ExcludeFromLatest) })
	}
	if sp := props.StorageProfile; sp != nil && sp.OSDiskImage != nil && sp.OSDiskImage.Source != nil {
		a.Source = value(sp.OSDiskImage.Source.ID)
	}
	return a
}

// regionName is a region as Azure mostly writes it, "westus2": galleries have "West US 2".
func regionName(s string) string { return strings.ToLower(strings.ReplaceAll(s, " ", "")) }

// listVersions lists the versions of a pool, newest first, with who uses each:
// one list of versions and, where there are any, one of instances.
func (p *Provider) listVersions(ctx context.Context, at place, pool kamino.Pool) ([]kamino.Artifact, error) {
	out, err := at.allVersions(ctx)
	if err = translate(err, "list image versions of pool %s", at.name); errors.Is(err, kamino.ErrNotFound) {
		return nil, p.noDefinition(ctx, at, err)
	} else if err != nil || len(out) == 0 {
		return nil, err
	}
	uses, err := p.uses(ctx, at)
	if err != nil {
		return nil, err
	}
	for i := range out {
		v := &out[i]
		v.OfFormer = pool.MadeOfFormer(*v)
		v.Births = uses[strings.ToLower(v.ID)]
		v.Instances = len(v.Births)
		v.InModel = strings.EqualFold(pool.Model.Image, v.ID)
		if v.State == kamino.Failed {
			if err := p.explain(ctx, at, v); err != nil {
				return nil, err
			}
		}
	}
	slices.SortStableFunc(out, func(a, b kamino.Artifact) int { return -kamino.CompareVersions(a.Name, b.Name) })
	markLatest(out, pool)
	return out, nil
}

// explain completes what a list tells of a version that failed: why, and whether its replicas are
// there all the same, as after a change of its tags that failed. That they still show as Completed
// then is assumed, unverified on real Azure.
func (p *Provider) explain(ctx context.Context, at place, v *kamino.Artifact) error {
	v.Failure = p.whyFailed(ctx, v.ID)
	found, err := p.findVersion(ctx, at, v.Name)
	if err = translate(err, "read version %s", v.Name); errors.Is(err, kamino.ErrNotFound) {
		return nil
	} else if err != nil {
		return err
	}
	v.Ready = v.State == found[0].State && found[0].Ready
	return nil
}

// allVersions lists the versions of a pool as they come.
func (at place) allVersions(ctx context.Context) (out []kamino.Artifact, err error) {
	pager := at.versions.NewListByGalleryImagePager(at.group, at.gallery, at.definition, nil)
	for pager.More() {
		page, err := pager.NextPage(ctx)
		if err != nil {
			return nil, err
		}
		for _, v := range page.Value {
			out = append(out, toVersion(*v))
		}
	}
	return out, nil
}

// noDefinition makes sure that a list of versions is missing because its definition is.
func (p *Provider) noDefinition(ctx context.Context, at place, missing error) error {
	_, err := p.findDefinition(ctx, at)
	if err = translate(err, "read the image definition of pool %s", at.name); errors.Is(err, kamino.ErrNotFound) {
		return nil
	} else if err != nil {
		return err
	}
	return fmt.Errorf("%w: although the definition exists: %s", kamino.ErrUnavailable, missing.Error())
}

// markLatest finds the version that a model means which names the definition
// only: the newest that Succeeded and is not excluded
// (https://learn.microsoft.com/azure/virtual-machines/shared-image-galleries).
func markLatest(newestFirst []kamino.Artifact, pool kamino.Pool) {
	for i := range newestFirst {
		v := &newestFirst[i]
		j := strings.LastIndex(strings.ToLower(v.ID), "/versions/")
		if j < 0 || !strings.EqualFold(pool.Model.Image, v.ID[:j]) {
			return
		}
		if v.State == kamino.Succeeded && !v.Excluded {
			v.InModel = true
			return
		}
	}
}

// uses tells when the instances of a pool were created, by the version that they booted from.
func (p *Provider) uses(ctx context.Context, at place) (map[string][]time.Time, error) {
	out := map[string][]time.Time{}
	err := list(ctx, at, at.path()+"/virtualMachines?api-version="+vmListVersion, func(vm struct {
		Properties struct {
			TimeCreated    string `json:"timeCreated"`
			StorageProfile struct {
				ImageReference *armcompute.ImageReference `json:"imageReference"`
			} `json:"storageProfile"`
		} `json:"properties"`
	}) {
		if from := strings.ToLower(bornFrom(vm.Properties.StorageProfile.ImageReference)); from != "" {
			created, _ := time.Parse(time.RFC3339Nano, vm.Properties.TimeCreated) // zero: not known
			out[from] = append(out[from], created)
		}
	})
	return out, translateList(err, "list instances of scale set %s", at.name)
}

// unused makes sure, by reading now, that nothing uses a version.
func (p *Provider) unused(ctx context.Context, at place, pool kamino.Pool, v kamino.Artifact) error {
	now, err := p.Pool(ctx, pool.ID)
	if err != nil {
		return err
	}
	list, err := p.listVersions(ctx, at, now)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(list, func(have kamino.Artifact) bool { return have.Name == v.Name })
	if i < 0 {
		return p.unlisted(ctx, at, v)
	}
	if have := list[i]; have.InModel || have.Instances > 0 {
		return fmt.Errorf("version %s (%d instances, in the model: %t): %w", v.Name, have.Instances, have.InModel, kamino.ErrInUse)
	}
	return p.unusedByOthers(ctx, at, list, i)
}

// unlisted makes sure that a version which is in no list does not exist: who uses one that does is
// not known.
func (p *Provider) unlisted(ctx context.Context, at place, v kamino.Artifact) error {
	_, err := p.findVersion(ctx, at, v.Name)
	if err = translate(err, "read version %s", v.Name); errors.Is(err, kamino.ErrNotFound) {
		return nil
	} else if err != nil {
		return err
	}
	return fmt.Errorf("version %s exists and is in no list: %w", v.Name, kamino.ErrUnavailable)
}

// unusedByOthers makes sure that no other scale set of the resource group uses a version, in its
// model or by an instance: people make a second scale set of the first one's image. Of Flexible
// scale sets it reads the model only: their instances are VMs of their own.
func (p *Provider) unusedByOthers(ctx context.Context, at place, newestFirst []kamino.Artifact, i int) error {
	v := newestFirst[i]
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
			others := slices.Clone(newestFirst)
			markLatest(others, kamino.Pool{Model: model})
			if strings.EqualFold(model.Image, v.ID) || others[i].InModel {
				return fmt.Errorf("version %s (in the model of scale set %s): %w", v.Name, value(set.Name), kamino.ErrInUse)
			}
			if strings.EqualFold(value(set.Name), at.name) || flexible(*set) {
				continue
			}
			other := at
			other.name = value(set.Name)
			n, err := p.usesBeside(ctx, other, v.ID)
			if err != nil {
				return err
			}
			if n > 0 {
				return fmt.Errorf("version %s (%d instances of scale set %s): %w", v.Name, n, other.name, kamino.ErrInUse)
			}
		}
	}
	return nil
}

// neighbor is what was read of a scale set that is not the pool's.
type neighbor struct {
	at   time.Time
	uses map[string]int // instances, by the version that they booted from
}

// besideFor is how long what was read of such a scale set counts. Hundreds of them take longer to
// ask than one call may, so that the next call goes on where that one stopped. A set whose model
// names a version is found in the list of sets, which is read each time.
const besideFor = 10 * time.Minute

// usesBeside counts the instances of another scale set that booted from a version. That there was
// none is known for a while.
func (p *Provider) usesBeside(ctx context.Context, at place, version string) (int, error) {
	key, version := strings.ToLower(at.path()), strings.ToLower(version)
	p.mu.Lock()
	known, ok := p.others[key]
	p.mu.Unlock()
	if ok && p.config.Clock.Now().Sub(known.at) < besideFor && known.uses[version] == 0 {
		return 0, nil
	}
	now := p.config.Clock.Now()
	all, err := p.uses(ctx, at)
	if err != nil {
		return 0, err
	}
	known = neighbor{now, make(map[string]int, len(all))}
	for from, births := range all {
		known.uses[from] = len(births)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.others[key] = known
	return known.uses[version], nil
}

func flexible(set armcompute.VirtualMachineScaleSet) bool {
	return set.Properties != nil && value(set.Properties.OrchestrationMode) == armcompute.OrchestrationModeFlexible
}

// replicasOf is how many replicas a version of a pool gets: three as in the original script, and one for
// each 50 machines that may be created at once
// (https://learn.microsoft.com/azure/virtual-machines/azure-compute-gallery#scaling).
func replicasOf(pool kamino.Pool) int32 { return int32(min(max(3, (pool.Capacity+49)/50), 100)) }

// createVersion builds a version from a snapshot. Without a storage type it asks
// first whether the region has zone-redundant storage. Where the model's disks are
// encrypted with a customer's key, so are the replicas: that cannot be added later
// (https://learn.microsoft.com/azure/virtual-machines/image-version-encryption).
func (p *Provider) createVersion(ctx context.Context, at place, model saved, pool kamino.Pool, want kamino.Artifact) error {
	storage := want.Storage
	if storage == "" {
		offers, err := p.region(ctx, at)
		if err != nil {
			return err
		}
		storage = kamino.StorageLRS
		if offers.zrs {
			storage = kamino.StorageZRS
		}
	}
	var encryption *armcompute.EncryptionImages
	if set := model.encryption(); set != "" {
		encryption = &armcompute.EncryptionImages{OSDiskImage: &armcompute.OSDiskImageEncryption{DiskEncryptionSetID: to.Ptr(set)}}
	}
	kind := to.Ptr(armcompute.StorageAccountType(storage))
	replicas := to.Ptr(replicasOf(pool))
	poller, err := at.versions.BeginCreateOrUpdate(ctx, at.group, at.gallery, at.definition, want.Name, armcompute.GalleryImageVersion{
		Location: to.Ptr(at.location), Tags: tagsIn(want.Tags),
		Properties: &armcompute.GalleryImageVersionProperties{
			PublishingProfile: &armcompute.GalleryImageVersionPublishingProfile{
				ReplicaCount: replicas, StorageAccountType: kind, ExcludeFromLatest: to.Ptr(want.Excluded),
				TargetRegions: []*armcompute.TargetRegion{{
					Name: to.Ptr(at.location), RegionalReplicaCount: replicas, StorageAccountType: kind, Encryption: encryption,
				}},
			},
			// The defaults of these two are documented nowhere (unverified): both are said.
			SafetyProfile: &armcompute.GalleryImageVersionSafetyProfile{
				AllowDeletionOfReplicatedLocations: to.Ptr(true), BlockDeletionBeforeEndOfLife: to.Ptr(false),
			},
			StorageProfile: &armcompute.GalleryImageVersionStorageProfile{
				OSDiskImage: &armcompute.GalleryOSDiskImage{Source: &armcompute.GalleryDiskImageSource{ID: to.Ptr(want.Source)}},
			},
		},
	}, nil)
	return poll(p, p.Address(pool, want.Kind, want.Name), poller, err)
}
