package aws

import (
	"context"
	"errors"
	"fmt"
	"strings"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"kamino.dev/kamino"
)

// Stand-ins for what a dry run of a read must name.
const (
	noInstance = "i-00000000000000000"
	noTemplate = "lt-00000000000000000"
	noImage    = "ami-00000000000000000"
)

// dryRun is a call that would do something, and does not.
type dryRun struct {
	action string
	try    func(context.Context, ec2Calls) error
}

// tried is the error of a call.
func tried[T any](_ T, err error) error { return err }

// reads are what no policy narrows to a resource: stand-ins will do.
func reads() []dryRun {
	dry := sdk.Bool(true)
	return []dryRun{
		{"ec2:DescribeInstances", func(ctx context.Context, c ec2Calls) error {
			return tried(c.DescribeInstances(ctx, &ec2.DescribeInstancesInput{DryRun: dry}))
		}},
		{"ec2:DescribeInstanceAttribute", func(ctx context.Context, c ec2Calls) error {
			return tried(c.DescribeInstanceAttribute(ctx, &ec2.DescribeInstanceAttributeInput{DryRun: dry,
				InstanceId: sdk.String(noInstance), Attribute: types.InstanceAttributeNameInstanceInitiatedShutdownBehavior}))
		}},
		{"ec2:DescribeVolumes", func(ctx context.Context, c ec2Calls) error {
			return tried(c.DescribeVolumes(ctx, &ec2.DescribeVolumesInput{DryRun: dry}))
		}},
		{"ec2:DescribeSnapshots", func(ctx context.Context, c ec2Calls) error {
			return tried(c.DescribeSnapshots(ctx, &ec2.DescribeSnapshotsInput{DryRun: dry, OwnerIds: []string{"self"}}))
		}},
		{"ec2:DescribeImages", func(ctx context.Context, c ec2Calls) error {
			return tried(c.DescribeImages(ctx, &ec2.DescribeImagesInput{DryRun: dry, Owners: []string{"self"}}))
		}},
		{"ec2:DescribeLaunchTemplateVersions", func(ctx context.Context, c ec2Calls) error {
			return tried(c.DescribeLaunchTemplateVersions(ctx,
				&ec2.DescribeLaunchTemplateVersionsInput{DryRun: dry, LaunchTemplateId: sdk.String(noTemplate)}))
		}},
	}
}

// donorRuns are what a run does to its donor and makes of its disk, with the tags that it gives:
// policies are narrowed by both.
func donorRuns(instance, volume string, tags map[string]string) []dryRun {
	dry, ids := sdk.Bool(true), []string{instance}
	tagged := func(kind types.ResourceType) []types.TagSpecification {
		return []types.TagSpecification{{ResourceType: kind, Tags: tagsIn(tags)}}
	}
	return []dryRun{
		{"ec2:StopInstances", func(ctx context.Context, c ec2Calls) error {
			return tried(c.StopInstances(ctx, &ec2.StopInstancesInput{DryRun: dry, InstanceIds: ids}))
		}},
		{"ec2:StartInstances", func(ctx context.Context, c ec2Calls) error {
			return tried(c.StartInstances(ctx, &ec2.StartInstancesInput{DryRun: dry, InstanceIds: ids}))
		}},
		{"ec2:CreateSnapshot", func(ctx context.Context, c ec2Calls) error {
			return tried(c.CreateSnapshot(ctx, &ec2.CreateSnapshotInput{DryRun: dry, VolumeId: &volume,
				TagSpecifications: tagged(types.ResourceTypeSnapshot)}))
		}},
		{"ec2:RegisterImage", func(ctx context.Context, c ec2Calls) error {
			return tried(c.RegisterImage(ctx, &ec2.RegisterImageInput{DryRun: dry, Name: sdk.String("kamino-preflight"),
				TagSpecifications: tagged(types.ResourceTypeImage)}))
		}},
	}
}

// versionRuns are what is done to a version later. Without one there is nothing to try them on.
func versionRuns(im types.Image) []dryRun {
	dry := sdk.Bool(true)
	runs := []dryRun{
		{"ec2:DeregisterImage", func(ctx context.Context, c ec2Calls) error {
			return tried(c.DeregisterImage(ctx, &ec2.DeregisterImageInput{DryRun: dry, ImageId: im.ImageId}))
		}},
		{"ec2:CreateTags", func(ctx context.Context, c ec2Calls) error {
			return tried(c.CreateTags(ctx, &ec2.CreateTagsInput{DryRun: dry, Resources: []string{text(im.ImageId)},
				Tags: tagsIn(map[string]string{"kamino": "preflight"})}))
		}},
		{"ec2:DeleteTags", func(ctx context.Context, c ec2Calls) error {
			return tried(c.DeleteTags(ctx, &ec2.DeleteTagsInput{DryRun: dry, Resources: []string{text(im.ImageId)},
				Tags: []types.Tag{{Key: sdk.String("kamino")}}}))
		}},
	}
	for _, id := range snapshotsOf(im) {
		runs = append(runs, dryRun{"ec2:DeleteSnapshot", func(ctx context.Context, c ec2Calls) error {
			return tried(c.DeleteSnapshot(ctx, &ec2.DeleteSnapshotInput{DryRun: dry, SnapshotId: &id}))
		}})
	}
	return runs
}

// templateRuns are for groups whose template names no parameter yet, or never will. One that names
// its version by number gets another number, and its template no other default.
func templateRuns(template, named string) []dryRun {
	dry := sdk.Bool(true)
	runs := []dryRun{{"ec2:CreateLaunchTemplateVersion", func(ctx context.Context, c ec2Calls) error {
		return tried(c.CreateLaunchTemplateVersion(ctx, &ec2.CreateLaunchTemplateVersionInput{DryRun: dry, LaunchTemplateId: &template,
			LaunchTemplateData: &types.RequestLaunchTemplateData{ImageId: sdk.String(noImage)}}))
	}}}
	if named != byDefault {
		return runs
	}
	return append(runs, dryRun{"ec2:ModifyLaunchTemplate", func(ctx context.Context, c ec2Calls) error {
		return tried(c.ModifyLaunchTemplate(ctx, &ec2.ModifyLaunchTemplateInput{DryRun: dry, LaunchTemplateId: &template}))
	}})
}

// Preflight asks by dry runs what the credentials may read at EC2. A dry run that is refused for
// another reason than a right says nothing: the stand-ins do not exist. Auto Scaling and SSM
// know no dry run. What a run does to its donor and its pool's things is tried by Fit, which knows
// them: policies are narrowed to them.
func (p *Provider) Preflight(ctx context.Context) (doubts []kamino.Warning, err error) {
	return nil, p.tryAll(ctx, reads())
}

// tryRun tries what a run with a donor does.
func (p *Provider) tryRun(ctx context.Context, pool kamino.Pool, g group, donor kamino.Instance, instance string) error {
	err := p.rights(ctx, "rights of a run", pool, func() error {
		runs := donorRuns(instance, donor.Disk, g.ownTags(map[string]string{kamino.TagPool: pool.Name}))
		images, err := p.imagesOf(ctx, pool)
		if err != nil {
			return err
		}
		if len(images) > 0 {
			runs = append(runs, versionRuns(images[0])...)
		}
		return p.tryAll(ctx, runs)
	})
	if err != nil || g.recipe.Parameter != "" {
		return err
	}
	return p.tryAll(ctx, templateRuns(g.recipe.Template, g.recipe.Named))
}

// rights tries something that is allowed or not, for a pool at most once in steadyFor. A look at
// all groups tries it for one of them: EC2 takes few of these calls in a second
// (https://docs.aws.amazon.com/ec2/latest/devguide/ec2-api-throttling.html).
func (p *Provider) rights(ctx context.Context, what string, pool kamino.Pool, try func() error) error {
	if !wide(ctx) {
		_, err := recentFor(p.known, steadyFor, p.config.Clock.Now(), what+" "+pool.Name,
			func() (struct{}, error) { return struct{}{}, try() })
		return err
	}
	missing, err := once(ctx, what, func() (missing error, err error) {
		if err = try(); errors.Is(err, kamino.ErrForbidden) {
			return err, nil
		}
		return nil, err
	})
	if err == nil {
		err = missing
	}
	return err
}

// tryAll names every action that is not allowed, and what a policy says that denies one.
func (p *Provider) tryAll(ctx context.Context, runs []dryRun) error {
	var missing []string
	denial := ""
	for _, d := range runs {
		err := d.try(ctx, p.ec2)
		switch {
		case hasCode(err, "UnauthorizedOperation"):
			missing = append(missing, d.action)
			if said := classify(err).Error(); explicitly(said) {
				denial = said
			}
		case hasCode(err, throttleCodes...), hasCode(err, forbiddenCodes...), hasCode(err, strangerCodes...), hasCode(err, expiredCodes...),
			err != nil && codeOf(err) == "":
			return translate(err, "try %s", d.action)
		}
	}
	switch {
	case denial != "":
		return kamino.WithHint(fmt.Errorf("a policy denies %s: %w: %s", strings.Join(missing, ", "), kamino.ErrForbidden, denial),
			"%s", denialHint)
	case len(missing) > 0:
		return kamino.WithHint(fmt.Errorf("these credentials lack %s: %w", strings.Join(missing, ", "), kamino.ErrForbidden),
			"docs/aws-policy.json and docs/aws-policy-canary.json grant what is needed; compare the resources and tags that they name")
	}
	return nil
}
