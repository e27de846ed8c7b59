package aws

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"kamino.dev/kamino"
)

// machine is what an image must say that is made of a donor's disk, and RegisterImage would guess
// wrong: i386, no ENA, boot mode of the instance type (EC2 API reference, RegisterImage). It goes
// on the snapshot, as the donor may be gone when the image is made. A value of a tag has at most
// 256 characters.
type machine struct {
	Architecture string `json:"a"`
	Root         string `json:"r"`
	Type         string `json:"v"` // of the volume
	IOPS         int32  `json:"i,omitempty"`
	Throughput   int32  `json:"h,omitempty"`
	Platform     string `json:"p"`           // PlatformDetails, and
	Usage        string `json:"u,omitempty"` // UsageOperation: what is billed besides the machine
	Boot         string `json:"b,omitempty"`
	TPM          string `json:"t,omitempty"`
	IMDS         string `json:"m,omitempty"`
	NoENA        bool   `json:"e,omitempty"`
	SRIOV        string `json:"s,omitempty"`
}

// shownWithin is how long a snapshot that was made here is waited for before another is. EC2 gives
// no bound; one that was never made, whatever the answer said, costs the donor as long.
const shownWithin = time.Minute

// createSnapshot copies a donor's disk. CreateSnapshot knows no client token: a snapshot of that
// volume and run is looked for first, not by tag, as filters by tag lag most. One that is not shown
// yet is remembered; where its answer was lost, a second one is refused by EC2 itself, which makes
// one snapshot of a volume in 15 s.
func (p *Provider) createSnapshot(ctx context.Context, pool kamino.Pool, a kamino.Artifact) error {
	there, err := p.snapshots(ctx, filter("volume-id", a.Source))
	if err != nil {
		return err
	}
	made, at := p.known.madeOf(a.Source)
	for _, s := range there {
		if text(s.SnapshotId) == made {
			made = "" // as it is shown
		}
		tags := tagsOut(s.Tags)
		if tags[tagSnapshot] == a.Name && tags[kamino.TagRun] == kamino.ParseCopy(a).Run && s.State != types.SnapshotStateError {
			return nil
		}
	}
	if made != "" && p.config.Clock.Now().Sub(at) < shownWithin {
		return fmt.Errorf("snapshot %s of volume %s was made at %s and is not shown yet: %w", made, a.Source, at.UTC().Format(time.RFC3339),
			kamino.ErrInProgress)
	}
	m, err := p.machineOf(ctx, a.Source)
	if err != nil {
		return err
	}
	raw, err := json.Marshal(m)
	if err != nil {
		return fmt.Errorf("describe the machine of volume %s: %w", a.Source, err)
	}
	g, err := p.read(ctx, pool.ID)
	if err != nil {
		return err
	}
	own := pool.Identify(map[string]string{kamino.TagPool: pool.Name, tagSnapshot: a.Name, tagMachine: string(raw)})
	out, err := p.ec2.CreateSnapshot(ctx, &ec2.CreateSnapshotInput{VolumeId: &a.Source, Description: description(a.Name),
		TagSpecifications: []types.TagSpecification{{ResourceType: types.ResourceTypeSnapshot, Tags: tagsIn(g.ownTags(a.Tags, own))}}})
	if err != nil {
		return translate(err, "make snapshot %s of volume %s", a.Name, a.Source)
	}
	p.known.note(false, text(out.SnapshotId))
	p.known.makes(a.Source, text(out.SnapshotId), p.config.Clock.Now())
	return nil
}

// machineOf describes the machine that a volume is the root of.
func (p *Provider) machineOf(ctx context.Context, volume string) (machine, error) {
	known, ok := p.known.at(volume, p.config.Clock.Now())
	if !ok {
		var err error
		if known, err = p.behind(ctx, volume); err != nil {
			return machine{}, err
		}
	}
	in := known.instance
	m := machine{Architecture: string(in.Architecture), Root: text(in.RootDeviceName), Type: string(known.disk.VolumeType),
		Platform: text(in.PlatformDetails), Usage: text(in.UsageOperation),
		Boot: string(in.BootMode), TPM: text(in.TpmSupport), NoENA: !sdk.ToBool(in.EnaSupport), SRIOV: text(in.SriovNetSupport)}
	m.IOPS, m.Throughput = performance(known.disk)
	source, err := p.ec2.DescribeImages(ctx, &ec2.DescribeImagesInput{ImageIds: []string{text(in.ImageId)}})
	if err != nil && !isMissing(codeOf(err)) { // one that is deregistered tells nothing; the instance is enough
		return machine{}, translate(err, "read image %s", text(in.ImageId))
	}
	if err == nil && len(source.Images) == 1 {
		m.Boot, m.IMDS = string(source.Images[0].BootMode), string(source.Images[0].ImdsSupport)
	}
	return m, nil
}

// performance is what a volume of the same type has to be told: EC2 refuses an io1 or io2 one
// without IOPS, gives a gp3 one 3000 and 125 MiB/s, and takes neither for other types (EC2 API
// reference, EbsBlockDevice).
func performance(v *types.Volume) (iops, throughput int32) {
	switch v.VolumeType {
	case types.VolumeTypeIo1, types.VolumeTypeIo2, types.VolumeTypeGp3:
		return sdk.ToInt32(v.Iops), sdk.ToInt32(v.Throughput)
	}
	return 0, 0
}

// positive is a number that is sent only where there is one.
func positive(n int32) *int32 {
	if n > 0 {
		return &n
	}
	return nil
}

// longestDescription is in characters, which are those of ASCII (EC2 API reference, RegisterImage).
const longestDescription = 255

func description(text string) *string {
	plain := strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return '?'
		}
		return r
	}, text)
	return sdk.String(plain[:min(len(plain), longestDescription)])
}

// behind reads a volume, and the instance that it is at.
func (p *Provider) behind(ctx context.Context, volume string) (steady, error) {
	volumes, err := p.ec2.DescribeVolumes(ctx, &ec2.DescribeVolumesInput{VolumeIds: []string{volume}})
	if err != nil {
		return steady{}, translate(err, "read volume %s", volume)
	}
	if len(volumes.Volumes) != 1 || len(volumes.Volumes[0].Attachments) == 0 {
		return steady{}, fmt.Errorf("volume %s is not attached to an instance: %w", volume, kamino.ErrNotFound)
	}
	in, err := p.describe(ctx, text(volumes.Volumes[0].Attachments[0].InstanceId))
	return steady{instance: in, disk: &volumes.Volumes[0]}, err
}

func (p *Provider) snapshots(ctx context.Context, filters ...types.Filter) (all []types.Snapshot, err error) {
	err = pages(func(token *string) (*string, error) {
		page, err := p.ec2.DescribeSnapshots(ctx, &ec2.DescribeSnapshotsInput{OwnerIds: []string{"self"}, Filters: filters,
			NextToken: token})
		if err != nil {
			return nil, err
		}
		all = append(all, page.Snapshots...)
		return page.NextToken, nil
	})
	return all, translate(err, "list snapshots")
}

// findSnapshots are the pool's snapshots that no image was made of: those belong to their images.
func (p *Provider) findSnapshots(ctx context.Context, pool kamino.Pool, name string) ([]kamino.Artifact, error) {
	all, err := p.snapshotsOfPool(ctx, pool, name)
	if err != nil || len(all) == 0 {
		return nil, err
	}
	if slices.ContainsFunc(all, func(s types.Snapshot) bool { _, sure := p.known.isImaged(text(s.SnapshotId)); return !sure }) {
		if _, err := p.images(ctx, pool, ""); err != nil { // notes what they are made of
			return nil, err
		}
	}
	var found []kamino.Artifact
	for _, s := range all {
		if imaged, _ := p.known.isImaged(text(s.SnapshotId)); !imaged {
			found = append(found, snapshotArtifact(s))
		}
	}
	return found, nil
}

func (p *Provider) snapshotsOfPool(ctx context.Context, pool kamino.Pool, name string) ([]types.Snapshot, error) {
	if !wide(ctx) {
		filters := []types.Filter{filter("tag:"+kamino.TagPool, pool.Name)}
		if name != "" {
			filters = append(filters, filter("tag:"+tagSnapshot, name))
		}
		all, err := p.snapshots(ctx, filters...)
		return snapshotsNamed(all, pool, name), err
	}
	all, err := once(ctx, "snapshots", func() ([]types.Snapshot, error) { return p.snapshots(ctx, filter("tag-key", tagSnapshot)) })
	return snapshotsNamed(all, pool, name), err
}

// snapshotsNamed are those of a pool, and of no earlier one of its name, and of a name where
// there is one. A group may be called b*, and * and ? in a filter stand for anything
// (https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/Using_Filtering.html).
func snapshotsNamed(all []types.Snapshot, pool kamino.Pool, name string) []types.Snapshot {
	return slices.DeleteFunc(slices.Clone(all), func(s types.Snapshot) bool {
		return tagOf(s.Tags, kamino.TagPool) != pool.Name || pool.MadeOfFormer(snapshotArtifact(s)) || name != "" &&
			tagOf(s.Tags, tagSnapshot) != name
	})
}

func snapshotArtifact(s types.Snapshot) kamino.Artifact {
	tags := tagsOut(s.Tags)
	percent, _ := strconv.Atoi(strings.TrimSuffix(text(s.Progress), "%")) // empty at first
	a := kamino.Artifact{Kind: kamino.KindSnapshot, Name: tags[tagSnapshot], ID: text(s.SnapshotId), State: kamino.Creating,
		Percent: percent, Source: text(s.VolumeId),
		Tags: tags, Created: sdk.ToTime(s.StartTime)}
	switch s.State {
	case types.SnapshotStateCompleted:
		a.State, a.Ready, a.Percent = kamino.Succeeded, true, 100
	case types.SnapshotStateError:
		a.State, a.Failure = kamino.Failed, text(s.StateMessage)
	}
	return a
}

func (p *Provider) deleteSnapshots(ctx context.Context, pool kamino.Pool, a kamino.Artifact) error {
	found, err := p.findSnapshots(ctx, pool, a.Name)
	if err != nil {
		return err
	}
	for _, s := range found {
		if err := p.deleteSnapshot(ctx, s.ID); err != nil {
			return err
		}
	}
	return nil
}

// deleteSnapshot leaves one that an image is made of.
func (p *Provider) deleteSnapshot(ctx context.Context, id string) error {
	_, err := p.ec2.DeleteSnapshot(ctx, &ec2.DeleteSnapshotInput{SnapshotId: &id})
	p.known.unmake(id)
	if hasCode(err, "InvalidSnapshot.InUse", "InvalidSnapshot.NotFound") {
		return nil
	}
	return translate(err, "delete snapshot %s", id)
}
