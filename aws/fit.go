package aws

import (
	"context"
	"fmt"
	"slices"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	scaling "github.com/aws/aws-sdk-go-v2/service/autoscaling/types"

	"kamino.dev/kamino"
)

// Fit compares a donor with what the launch template will make of its disk.
func (p *Provider) Fit(ctx context.Context, pool kamino.Pool, donor kamino.Instance, _ *kamino.Artifact) (refusals []kamino.Refusal, doubts []kamino.Doubt, err error) {
	g, err := p.read(ctx, pool.ID)
	if err != nil {
		return nil, nil, err
	}
	name, err := instanceID(donor.ID)
	if err != nil || g.data == nil {
		return nil, nil, err
	}
	in, err := p.describe(ctx, name)
	if err != nil {
		return nil, nil, err
	}
	if g.recipe.Parameter == "" {
		if err := p.tryAll(ctx, templateRuns(g.recipe.Template, g.recipe.Named)); err != nil {
			return nil, nil, err
		}
	}
	if desired, least := sdk.ToInt32(g.DesiredCapacity), sdk.ToInt32(g.MinSize); desired <= least && !standsBy(g.AutoScalingGroup, name) {
		refusals = append(refusals, kamino.Refusal{Code: "minimum", Field: "MinSize", Value: fmt.Sprint(least),
			Why: fmt.Sprintf("the donor has to go to Standby, and the group's desired capacity of %d would be below its minimum", desired), Do: lowerMinimum(pool.Name, least)})
	}
	if donor.Encryption != "" { // no dry run asks for it
		doubts = append(doubts, kamino.Doubt{Found: fmt.Sprintf("whether these credentials have kms:CreateGrant for key %s of the donor's root: without it the donor does not start again; AWS's own key aws/ebs needs no such right", donor.Encryption)})
	}
	root := false
	for _, m := range g.data.BlockDeviceMappings {
		if m.Ebs == nil || text(m.DeviceName) != text(in.RootDeviceName) {
			continue
		}
		root = true
		if size := int(sdk.ToInt32(m.Ebs.VolumeSize)); size != 0 && size < donor.DiskGB {
			refusals = append(refusals, kamino.Refusal{Code: "disk-size", Field: "BlockDeviceMappings", Value: fmt.Sprintf("%d GiB", size),
				Why: fmt.Sprintf("the launch template wants a root volume of %d GiB, the donor's has %d: a launch would fail", size, donor.DiskGB),
				Do:  "choose a donor with a smaller disk, or make the template's root volume larger"})
		}
		if m.Ebs.SnapshotId != nil {
			refusals = append(refusals, kamino.Refusal{Code: "root-snapshot", Field: "BlockDeviceMappings", Value: *m.Ebs.SnapshotId,
				Why: "the launch template makes the root volume of a snapshot of its own, whatever the image is", Do: "remove SnapshotId from the template"})
		}
	}
	if len(g.data.BlockDeviceMappings) > 0 && !root {
		// A mapping under another name than the image's root is a second volume (unverified).
		doubts = append(doubts, kamino.Doubt{Found: fmt.Sprintf("no block device mapping of the launch template is for %s, the donor's root: new nodes may have one volume more", text(in.RootDeviceName))})
	}
	return refusals, doubts, nil
}

// standsBy says whether an instance is in Standby, or on its way there.
func standsBy(g scaling.AutoScalingGroup, instance string) bool {
	return slices.ContainsFunc(g.Instances, func(in scaling.Instance) bool {
		return text(in.InstanceId) == instance && (in.LifecycleState == scaling.LifecycleStateStandby || in.LifecycleState == scaling.LifecycleStateEnteringStandby)
	})
}

// lowerMinimum is the command that makes room for one donor.
func lowerMinimum(group string, least int32) string {
	if least == 0 {
		return "give the group an instance"
	}
	return fmt.Sprintf("aws autoscaling update-auto-scaling-group --auto-scaling-group-name %s --min-size %d", group, least-1)
}
