package aws

import (
	"context"
	"fmt"
	"strings"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"kamino.dev/kamino"
)

// Stand-ins for what a dry run must name.
const (
	noInstance = "i-00000000000000000"
	noVolume   = "vol-00000000000000000"
	noSnapshot = "snap-00000000000000000"
	noImage    = "ami-00000000000000000"
	noTemplate = "lt-00000000000000000"
)

// dryRun is a call that would do something, and does not.
type dryRun struct {
	action string
	try    func(context.Context, ec2Calls) error
}

// tried is the error of a call.
func tried[T any](_ T, err error) error { return err }

// reads are made by every run before it changes anything: they are tried only where a right is
// missing, so that all that are missing are named together.
func reads() []dryRun {
	dry := sdk.Bool(true)
	return []dryRun{
		{"ec2:DescribeInstances", func(ctx context.Context, c ec2Calls) error {
			return tried(c.DescribeInstances(ctx, &ec2.DescribeInstancesInput{DryRun: dry}))
		}},
		{"ec2:DescribeInstanceAttribute", func(ctx context.Context, c ec2Calls) error {
			return tried(c.DescribeInstanceAttribute(ctx, &ec2.DescribeInstanceAttributeInput{DryRun: dry, InstanceId: sdk.String(noInstance), Attribute: types.InstanceAttributeNameInstanceInitiatedShutdownBehavior}))
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
			return tried(c.DescribeLaunchTemplateVersions(ctx, &ec2.DescribeLaunchTemplateVersionsInput{DryRun: dry, LaunchTemplateId: sdk.String(noTemplate)}))
		}},
	}
}

func dryRuns() []dryRun {
	dry := sdk.Bool(true)
	return []dryRun{
		{"ec2:StopInstances", func(ctx context.Context, c ec2Calls) error {
			return tried(c.StopInstances(ctx, &ec2.StopInstancesInput{DryRun: dry, InstanceIds: []string{noInstance}}))
		}},
		{"ec2:StartInstances", func(ctx context.Context, c ec2Calls) error {
			return tried(c.StartInstances(ctx, &ec2.StartInstancesInput{DryRun: dry, InstanceIds: []string{noInstance}}))
		}},
		{"ec2:CreateSnapshot", func(ctx context.Context, c ec2Calls) error {
			return tried(c.CreateSnapshot(ctx, &ec2.CreateSnapshotInput{DryRun: dry, VolumeId: sdk.String(noVolume)}))
		}},
		{"ec2:DeleteSnapshot", func(ctx context.Context, c ec2Calls) error {
			return tried(c.DeleteSnapshot(ctx, &ec2.DeleteSnapshotInput{DryRun: dry, SnapshotId: sdk.String(noSnapshot)}))
		}},
		{"ec2:RegisterImage", func(ctx context.Context, c ec2Calls) error {
			return tried(c.RegisterImage(ctx, &ec2.RegisterImageInput{DryRun: dry, Name: sdk.String("kamino-preflight")}))
		}},
		{"ec2:DeregisterImage", func(ctx context.Context, c ec2Calls) error {
			return tried(c.DeregisterImage(ctx, &ec2.DeregisterImageInput{DryRun: dry, ImageId: sdk.String(noImage)}))
		}},
		{"ec2:CreateTags", func(ctx context.Context, c ec2Calls) error {
			return tried(c.CreateTags(ctx, &ec2.CreateTagsInput{DryRun: dry, Resources: []string{noImage}, Tags: tagsIn(map[string]string{"kamino": "preflight"})}))
		}},
		{"ec2:DeleteTags", func(ctx context.Context, c ec2Calls) error {
			return tried(c.DeleteTags(ctx, &ec2.DeleteTagsInput{DryRun: dry, Resources: []string{noImage}}))
		}},
	}
}

// templateRuns are for groups whose template names no parameter yet, or never will. One that names
// its version by number gets another number, and its template no other default.
func templateRuns(template, named string) []dryRun {
	dry := sdk.Bool(true)
	runs := []dryRun{{"ec2:CreateLaunchTemplateVersion", func(ctx context.Context, c ec2Calls) error {
		return tried(c.CreateLaunchTemplateVersion(ctx, &ec2.CreateLaunchTemplateVersionInput{DryRun: dry, LaunchTemplateId: &template, LaunchTemplateData: &types.RequestLaunchTemplateData{ImageId: sdk.String(noImage)}}))
	}}}
	if named != byDefault {
		return runs
	}
	return append(runs, dryRun{"ec2:ModifyLaunchTemplate", func(ctx context.Context, c ec2Calls) error {
		return tried(c.ModifyLaunchTemplate(ctx, &ec2.ModifyLaunchTemplateInput{DryRun: dry, LaunchTemplateId: &template}))
	}})
}

// Preflight asks by dry runs what the credentials may do at EC2. A dry run that is refused for
// another reason than a right says nothing: the stand-ins do not exist. Auto Scaling and SSM
// know no dry run. What writes a template is tried by Fit, which knows whether that is needed.
func (p *Provider) Preflight(ctx context.Context) (doubts []kamino.Doubt, err error) {
	return nil, p.tryAll(ctx, dryRuns())
}

// tryAll names every action that is not allowed.
func (p *Provider) tryAll(ctx context.Context, runs []dryRun) error {
	var missing []string
	for i := 0; i < len(runs); i++ {
		d := runs[i]
		err := d.try(ctx, p.ec2)
		switch {
		case hasCode(err, "UnauthorizedOperation"):
			if missing = append(missing, d.action); len(missing) == 1 {
				runs = append(runs, reads()...)
			}
		case hasCode(err, throttleCodes...), hasCode(err, forbiddenCodes...), hasCode(err, strangerCodes...), hasCode(err, expiredCodes...), err != nil && codeOf(err) == "":
			return translate(err, "try %s", d.action)
		}
	}
	if len(missing) > 0 {
		return kamino.WithHint(fmt.Errorf("these credentials lack %s: %w", strings.Join(missing, ", "), kamino.ErrForbidden),
			"docs/aws-policy.json and docs/aws-policy-canary.json grant what is needed")
	}
	return nil
}
