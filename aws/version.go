package aws

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"kamino.dev/kamino"
)

// imageName is the name of an image version: the only key by which EC2 refuses to make one twice.
func imageName(pool kamino.Pool, version string) string {
	return imagePrefix + plain(pool.Name) + "-" + version
}

const imagePrefix = "kamino-"

// images are those of a pool, of one version or of all. They are listed by name, which lags less
// than tags, and told from others' by tag.
func (p *Provider) images(ctx context.Context, pool kamino.Pool, version string) ([]types.Image, error) {
	if version == "" || kamino.Seen(ctx) != nil { // in one look there is one list
		all, err := p.imagesOf(ctx, pool)
		return slices.DeleteFunc(slices.Clone(all),
			func(im types.Image) bool { return version != "" && text(im.Name) != imageName(pool, version) }), err
	}
	all, err := p.listImages(ctx, imageName(pool, version))
	return all[pool.Name], err
}

func (p *Provider) imagesOf(ctx context.Context, pool kamino.Pool) ([]types.Image, error) {
	key, name := "images "+pool.Name, imageName(pool, "*")
	if wide(ctx) {
		key, name = "images", imagePrefix+"*"
	}
	all, err := once(ctx, key, func() (map[string][]types.Image, error) { return p.listImages(ctx, name) })
	return all[pool.Name], err
}

// listImages are those of a name, by pool.
func (p *Provider) listImages(ctx context.Context, name string) (map[string][]types.Image, error) {
	found := map[string][]types.Image{}
	err := pages(func(token *string) (*string, error) {
		page, err := p.ec2.DescribeImages(ctx, &ec2.DescribeImagesInput{Owners: []string{"self"},
			Filters: []types.Filter{filter("name", name)}, NextToken: token})
		if err != nil {
			return nil, err
		}
		for _, im := range page.Images {
			if pool := tagOf(im.Tags, kamino.TagPool); pool != "" {
				found[pool] = append(found[pool], im)
				p.known.note(true, snapshotsOf(im)...)
				p.known.name(im)
			}
		}
		return page.NextToken, nil
	})
	return found, translate(err, "list images %s", name)
}

// image is the one of a version; ErrNotFound where there is none.
func (p *Provider) image(ctx context.Context, pool kamino.Pool, version string) (types.Image, error) {
	found, err := p.images(ctx, pool, version)
	if err != nil {
		return types.Image{}, err
	}
	if len(found) != 1 {
		return types.Image{}, fmt.Errorf("image version %s of pool %s: %w", version, pool.Name, kamino.ErrNotFound)
	}
	return found[0], nil
}

// imageByID reads an image, anybody's; ErrNotFound where nothing can be launched from it any more.
func (p *Provider) imageByID(ctx context.Context, id string) (types.Image, error) {
	return once(ctx, "image "+id, func() (types.Image, error) {
		out, err := p.ec2.DescribeImages(ctx, &ec2.DescribeImagesInput{ImageIds: []string{id}})
		switch {
		case err != nil:
			return types.Image{}, translate(err, "read image %s", id)
		case len(out.Images) == 0:
			return types.Image{}, fmt.Errorf("image %s does not exist, or is not shared with this account: %w", id, kamino.ErrNotFound)
		case out.Images[0].State == types.ImageStateDeregistered, out.Images[0].State == types.ImageStateDisabled:
			return types.Image{}, fmt.Errorf("image %s is %s: %w", id, out.Images[0].State, kamino.ErrNotFound)
		}
		return out.Images[0], nil
	})
}

func snapshotsOf(im types.Image) (ids []string) {
	for _, m := range im.BlockDeviceMappings {
		if m.Ebs != nil && m.Ebs.SnapshotId != nil {
			ids = append(ids, *m.Ebs.SnapshotId)
		}
	}
	return ids
}

func (p *Provider) findVersions(ctx context.Context, pool kamino.Pool, name string) ([]kamino.Artifact, error) {
	list, err := p.images(ctx, pool, name)
	if err != nil || len(list) == 0 {
		return nil, err
	}
	booted := map[string]int{}
	if name == "" { // a list tells who uses each
		if booted, err = p.bootedFrom(ctx, pool); err != nil {
			return nil, err
		}
	}
	var now recipe
	_ = json.Unmarshal(pool.Model.Saved, &now) // a pool without recipe refers to none of them
	var found []kamino.Artifact
	for _, im := range list {
		a := versionArtifact(im)
		a.OfFormer = pool.MadeOfFormer(a)
		a.Instances, a.InModel = booted[a.ID], now.means() == a.ID
		found = append(found, a)
	}
	slices.SortFunc(found, func(a, b kamino.Artifact) int { return kamino.CompareVersions(b.Name, a.Name) })
	return found, nil
}

// bootedFrom counts the instances of a pool by their image.
func (p *Provider) bootedFrom(ctx context.Context, pool kamino.Pool) (map[string]int, error) {
	counts := map[string]int{}
	name, err := p.groupOf(pool.ID)
	if err != nil {
		return nil, err
	}
	all, err := recent(p.known, p.config.Clock.Now(), "members "+name, func() ([]types.Instance, error) {
		return p.instances(ctx, filter("tag:"+groupTag, name), filter("instance-state-name", "pending", "running", "stopping", "stopped"))
	})
	for _, in := range all {
		if tagOf(in.Tags, groupTag) == name { // * and ? in a filter stand for anything
			counts[text(in.ImageId)]++
		}
	}
	return counts, translate(err, "list instances of pool %s", pool.Name)
}

func versionArtifact(im types.Image) kamino.Artifact {
	tags := tagsOut(im.Tags)
	created, _ := time.Parse(time.RFC3339, text(im.CreationDate)) // the zero time where it is told in another form
	a := kamino.Artifact{Kind: kamino.KindVersion, Name: tags[tagVersion], ID: text(im.ImageId), State: kamino.Creating,
		Tags: tags, Created: created,
		Machine:  kamino.Machine{Architecture: architecture(string(im.Architecture)), Generation: generation(im)},
		Excluded: tags[tagExcluded] != ""}
	if ids := snapshotsOf(im); len(ids) > 0 {
		a.Source, a.Keeps = ids[0], true
	}
	switch im.State {
	case types.ImageStateAvailable:
		a.State, a.Ready, a.Percent = kamino.Succeeded, true, 100
		if a.Failure = otherBilling(im); a.Failure != "" {
			a.State, a.Ready = kamino.Failed, false
		}
	case types.ImageStateFailed, types.ImageStateError, types.ImageStateInvalid, types.ImageStateDisabled:
		a.State = kamino.Failed
		if im.StateReason != nil {
			a.Failure = kamino.Plain(text(im.StateReason.Message))
		}
	}
	return a
}

// generation is the firmware that an image needs, in the words of galleries: V1 boots by BIOS, V2
// by UEFI; "" for an image that boots by either, or of which that is not known. One of arm64 boots
// by UEFI. One of x86 that names no boot mode boots by what is the default of its instance type, and
// may have the loaders of both (https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/ami-boot.html).
func generation(im types.Image) string {
	switch {
	case im.Architecture == types.ArchitectureValuesArm64, im.BootMode == types.BootModeValuesUefi:
		return "V2"
	case im.BootMode == types.BootModeValuesLegacyBios:
		return "V1"
	}
	return ""
}

// otherBilling tells that an image is not billed as the machine whose disk it has; "" where it is.
// RegisterImage takes the billing codes from the snapshot, and says to compare the platform details
// afterwards and to discard an image with others
// (https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_RegisterImage.html).
func otherBilling(im types.Image) string {
	var donor machine
	if json.Unmarshal([]byte(tagOf(im.Tags, tagMachine)), &donor) != nil {
		return "" // made by somebody else
	}
	for _, c := range [][3]string{{"platform details", donor.Platform, text(im.PlatformDetails)},
		{"usage operation", donor.Usage, text(im.UsageOperation)}} {
		if c[1] != "" && c[2] != "" && c[1] != c[2] {
			return fmt.Sprintf("the image has %s %q, and its donor has %q: nodes of the image would lack the subscription of the donor",
				c[0], c[2], c[1])
		}
	}
	return ""
}

// createVersion makes an image of a snapshot. One of that name that is there already is left alone:
// it is the pool's own, or nothing can be made.
func (p *Provider) createVersion(ctx context.Context, pool kamino.Pool, a kamino.Artifact) error {
	name := imageName(pool, a.Name)
	m, err := p.machineBehind(ctx, a)
	if err != nil {
		return err
	}
	raw, err := json.Marshal(m)
	if err != nil {
		return fmt.Errorf("describe the machine of snapshot %s: %w", a.Source, err)
	}
	g, err := p.read(ctx, pool.ID)
	if err != nil {
		return err
	}
	own := pool.Identify(map[string]string{kamino.TagPool: pool.Name, tagVersion: a.Name, tagMachine: string(raw)})
	if a.Excluded {
		own[tagExcluded] = "true"
	}
	p.known.forget(a.Source)
	input := &ec2.RegisterImageInput{Name: &name, Description: description("kamino " + a.Name + " of " + string(pool.ID)),
		RootDeviceName: &m.Root,
		Architecture:   types.ArchitectureValues(m.Architecture), VirtualizationType: sdk.String("hvm"), EnaSupport: sdk.Bool(!m.NoENA),
		BootMode: types.BootModeValues(m.Boot), TpmSupport: types.TpmSupportValues(m.TPM), ImdsSupport: types.ImdsSupportValues(m.IMDS),
		BlockDeviceMappings: []types.BlockDeviceMapping{
			{DeviceName: &m.Root, Ebs: &types.EbsBlockDevice{SnapshotId: &a.Source, VolumeType: types.VolumeType(m.Type),
				Iops: positive(m.IOPS), Throughput: positive(m.Throughput), DeleteOnTermination: sdk.Bool(true)}}},
		TagSpecifications: []types.TagSpecification{{ResourceType: types.ResourceTypeImage, Tags: tagsIn(g.ownTags(a.Tags, own))}}}
	if m.SRIOV != "" {
		input.SriovNetSupport = &m.SRIOV
	}
	_, err = p.ec2.RegisterImage(ctx, input)
	if !hasCode(err, "InvalidAMIName.Duplicate") {
		return translate(err, "make image %s of snapshot %s", name, a.Source)
	}
	return p.isOurs(ctx, pool, a)
}

// machineBehind is what a version's snapshot says of its machine: the version has its tags, unless
// somebody else made it up.
func (p *Provider) machineBehind(ctx context.Context, a kamino.Artifact) (m machine, err error) {
	said := a.Tags[tagMachine]
	if said == "" {
		snapshots, err := p.ec2.DescribeSnapshots(ctx, &ec2.DescribeSnapshotsInput{SnapshotIds: []string{a.Source}})
		if err != nil {
			return m, translate(err, "read snapshot %s", a.Source)
		}
		if len(snapshots.Snapshots) == 1 {
			said = tagOf(snapshots.Snapshots[0].Tags, tagMachine)
		}
	}
	if json.Unmarshal([]byte(said), &m) != nil {
		return m, fmt.Errorf("snapshot %s does not say of which machine it is", a.Source)
	}
	return m, nil
}

// isOurs says nothing against an image of that name that this run has made. One that is not shown
// may have been made just now, or have been deleted a moment ago: EC2 keeps names for a while.
func (p *Provider) isOurs(ctx context.Context, pool kamino.Pool, a kamino.Artifact) error {
	name := imageName(pool, a.Name)
	out, err := p.ec2.DescribeImages(ctx, &ec2.DescribeImagesInput{Owners: []string{"self"}, Filters: []types.Filter{filter("name", name)}})
	if err != nil {
		return translate(err, "read image %s", name)
	}
	if len(out.Images) == 0 {
		return fmt.Errorf("the name %s is taken by an image that is not shown: %w", name, kamino.ErrInProgress)
	}
	im := out.Images[0]
	if tagOf(im.Tags, kamino.TagPool) != pool.Name || tagOf(im.Tags, kamino.TagRun) != kamino.ParseCopy(a).Run {
		return kamino.WithHint(fmt.Errorf("the name %s is taken by image %s, which this run did not make", name, text(im.ImageId)),
			"if nothing needs it: aws ec2 deregister-image --image-id %s", text(im.ImageId))
	}
	return nil
}

// deleteVersion deregisters an image that neither the recipe of a group of the Region, nor the
// pool's parameter, nor any instance of the account refers to, and deletes its snapshots. Where an
// earlier attempt ended between the two, the image is gone and a.Source tells the snapshot.
func (p *Provider) deleteVersion(ctx context.Context, pool kamino.Pool, a kamino.Artifact) error {
	im, err := p.image(ctx, pool, a.Name)
	if errors.Is(err, kamino.ErrNotFound) && a.Keeps {
		return p.deleteKept(ctx, a.Source)
	} else if errors.Is(err, kamino.ErrNotFound) {
		return nil
	} else if err != nil {
		return err
	}
	id := text(im.ImageId)
	g, err := p.read(ctx, pool.ID)
	if err != nil {
		return err
	}
	if g.recipe.means() == id {
		return fmt.Errorf("delete image %s: the next instance of %s boots from it: %w", id, pool.Name, kamino.ErrInUse)
	}
	users, err := p.instances(ctx, filter("image-id", id), filter("instance-state-name", "pending", "running", "stopping", "stopped"))
	if err != nil {
		return translate(err, "list instances of image %s", id)
	}
	if len(users) > 0 {
		return fmt.Errorf("delete image %s: instances run from it: %w", id, kamino.ErrInUse)
	}
	if other, err := p.launchedBy(ctx, text(g.AutoScalingGroupName), id); err != nil {
		return err
	} else if other != "" {
		return fmt.Errorf("delete image %s: Auto Scaling group %s launches from it: %w", id, other, kamino.ErrInUse)
	}
	if own := p.ParameterName(pool); own != g.recipe.Parameter { // somebody may let a template name it again
		if held, _, err := p.parameter(ctx, own); err != nil && !errors.Is(err, kamino.ErrNotFound) {
			return err
		} else if held == id {
			return fmt.Errorf("delete image %s: parameter %s holds it: %w", id, own, kamino.ErrInUse)
		}
	}
	p.known.unname(text(im.Name))
	if _, err := p.ec2.DeregisterImage(ctx, &ec2.DeregisterImageInput{ImageId: &id}); err != nil && !isMissing(codeOf(err)) {
		return translate(err, "deregister image %s", id)
	}
	p.known.forget(snapshotsOf(im)...)
	for _, s := range snapshotsOf(im) {
		if err := p.deleteKept(ctx, s); err != nil {
			return err
		}
	}
	return nil
}

// deleteKept deletes a snapshot that was a part of an image, and looks: with the image nothing is
// left by which it would be found again.
func (p *Provider) deleteKept(ctx context.Context, id string) error {
	for range 3 {
		_, err := p.ec2.DeleteSnapshot(ctx, &ec2.DeleteSnapshotInput{SnapshotId: &id})
		if hasCode(err, "InvalidSnapshot.InUse", "InvalidSnapshot.NotFound") { // another image's, or gone
			return nil
		} else if err != nil {
			return translate(err, "delete snapshot %s", id)
		}
		left, err := p.ec2.DescribeSnapshots(ctx, &ec2.DescribeSnapshotsInput{SnapshotIds: []string{id}})
		if isMissing(codeOf(err)) || err == nil && len(left.Snapshots) == 0 {
			return nil
		} else if err != nil {
			return translate(err, "read snapshot %s", id)
		}
	}
	return fmt.Errorf("snapshot %s is deleted and still shown: %w", id, kamino.ErrInProgress)
}
