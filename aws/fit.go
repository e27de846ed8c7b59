package aws

import (
	"context"
	"fmt"
	"slices"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling"
	scaling "github.com/aws/aws-sdk-go-v2/service/autoscaling/types"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"kamino.dev/kamino"
)

// Fit compares a donor with what the launch template will make of its disk.
func (p *Provider) Fit(ctx context.Context, pool kamino.Pool, donor kamino.Instance, _ *kamino.Artifact) (refusals []kamino.Refusal,
	doubts []kamino.Warning, err error) {
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
	if err := p.tryRun(ctx, pool, g, donor, name); err != nil {
		return nil, nil, err
	}
	if w := weight(g.AutoScalingGroup, name); w != "" && w != "1" {
		refusals = append(refusals, kamino.Refusal{Code: "weights", Field: "MixedInstancesPolicy.WeightedCapacity", Value: w,
			Why: "the group counts the donor as " + w +
				" units of its capacity, and what Standby then takes from the desired capacity is not known",
			Do: "remove WeightedCapacity from the group's overrides"})
	}
	if desired, least := sdk.ToInt32(g.DesiredCapacity), sdk.ToInt32(g.MinSize); desired <= least && !standsBy(g.AutoScalingGroup, name) {
		refusals = append(refusals, kamino.Refusal{Code: "minimum", Field: "MinSize", Value: fmt.Sprint(least),
			Why: fmt.Sprintf("the donor has to go to Standby, and the group's desired capacity of %d would be below its minimum", desired),
			Do:  lowerMinimum(pool.Name, least)})
	}
	if desired, most := sdk.ToInt32(g.DesiredCapacity), sdk.ToInt32(g.MaxSize); desired >= most && !standsBy(g.AutoScalingGroup, name) {
		doubts = append(doubts, kamino.Warning{Found: fmt.Sprintf(
			"the group's desired capacity of %d is its maximum: where cluster-autoscaler launches an instance for the evicted pods, the donor stays in Standby until that one is removed", desired),
			Do: fmt.Sprintf("aws autoscaling update-auto-scaling-group --auto-scaling-group-name %s --max-size %d", pool.Name, most+1)})
	}
	if donor.Encryption != "" { // no dry run asks for it
		doubts = append(doubts, kamino.Warning{Found: fmt.Sprintf(
			"whether these credentials have kms:CreateGrant for key %s of the donor's root: without it the donor does not start again; AWS's own key aws/ebs needs no such right", donor.Encryption)})
	}
	if platform := text(in.PlatformDetails); platform != "" && platform != "Linux/UNIX" {
		doubts = append(doubts, kamino.Warning{Found: fmt.Sprintf(
			"whether an image of the donor's disk keeps the billing code of %q: it is compared when the image is made, and one that lost it is deleted", platform)})
	}
	root := false
	for _, m := range g.data.BlockDeviceMappings {
		if m.Ebs == nil || text(m.DeviceName) != text(in.RootDeviceName) {
			continue
		}
		root = true
		if size := int(sdk.ToInt32(m.Ebs.VolumeSize)); size != 0 && size < donor.DiskGB {
			refusals = append(refusals, kamino.Refusal{Code: "disk-size", Field: "BlockDeviceMappings", Value: fmt.Sprintf("%d GiB", size),
				Why: fmt.Sprintf("the launch template wants a root volume of %d GiB, the donor's has %d: a launch would fail", size,
					donor.DiskGB),
				Do: "choose a donor with a smaller disk, or make the template's root volume larger"})
		}
		if m.Ebs.SnapshotId != nil {
			refusals = append(refusals, kamino.Refusal{Code: "root-snapshot", Field: "BlockDeviceMappings", Value: *m.Ebs.SnapshotId,
				Why: "the launch template makes the root volume of a snapshot of its own, whatever the image is",
				Do:  "remove SnapshotId from the template"})
		}
	}
	if len(g.data.BlockDeviceMappings) > 0 && !root {
		// A mapping under another name than the image's root is a second volume (unverified).
		doubts = append(doubts, kamino.Warning{Found: fmt.Sprintf(
			"no block device mapping of the launch template is for %s, the donor's root: new nodes may have one volume more",
			text(in.RootDeviceName))})
	}
	if refusal, err := p.refuseStopProtected(ctx, name); err != nil {
		return nil, nil, err
	} else if refusal != nil {
		refusals = append(refusals, *refusal)
	}
	second, unsure, err := p.secondVolumes(ctx, g, in)
	if err != nil {
		return nil, nil, err
	}
	hooks, err := p.doubtHooks(ctx, pool.Name)
	return append(refusals, second...), slices.Concat(doubts, unsure, hooks), err
}

// doubtHooks reports launch hooks that end in a termination. Whether a group runs one for an
// instance that comes back from Standby is documented nowhere (unverified). A look at all groups
// leaves it to the run, as the stop protection.
func (p *Provider) doubtHooks(ctx context.Context, group string) (doubts []kamino.Warning, err error) {
	if wide(ctx) {
		return nil, nil
	}
	out, err := recentFor(p.known, steadyFor, p.config.Clock.Now(), "hooks "+group,
		func() (*autoscaling.DescribeLifecycleHooksOutput, error) {
			return p.scaling.DescribeLifecycleHooks(ctx, &autoscaling.DescribeLifecycleHooksInput{AutoScalingGroupName: &group})
		})
	if err != nil {
		return nil, translate(err, "list the lifecycle hooks of %s", group)
	}
	for _, h := range out.LifecycleHooks {
		if text(h.LifecycleTransition) == "autoscaling:EC2_INSTANCE_LAUNCHING" && text(h.DefaultResult) != "CONTINUE" {
			name := text(h.LifecycleHookName)
			doubts = append(doubts, kamino.Warning{
				Found: fmt.Sprintf("lifecycle hook %s may run for the donor when it comes back from Standby: where nothing completes the hook within %d s, the group terminates the donor", name, sdk.ToInt32(h.HeartbeatTimeout)),
				Do:    fmt.Sprintf("aws autoscaling put-lifecycle-hook --auto-scaling-group-name %s --lifecycle-hook-name %s --default-result CONTINUE", group, name)})
		}
	}
	return doubts, nil
}

// refuseStopProtected refuses a donor that may not be stopped. A shutdown from within passes all
// the same, and a donor that does not switch itself off could not be recovered
// (https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/ec2-stop-protection.html). A look at all
// groups leaves it to the run: the call is about one instance, and EC2 takes few in a second.
func (p *Provider) refuseStopProtected(ctx context.Context, instance string) (*kamino.Refusal, error) {
	if wide(ctx) {
		return nil, nil
	}
	out, err := recentFor(p.known, steadyFor, p.config.Clock.Now(), "stop protection "+instance,
		func() (*ec2.DescribeInstanceAttributeOutput, error) {
			return p.ec2.DescribeInstanceAttribute(ctx,
				&ec2.DescribeInstanceAttributeInput{InstanceId: &instance, Attribute: types.InstanceAttributeNameDisableApiStop})
		})
	if err != nil {
		return nil, translate(err, "read the stop protection of instance %s", instance)
	}
	if out.DisableApiStop == nil || !sdk.ToBool(out.DisableApiStop.Value) {
		return nil, nil
	}
	return &kamino.Refusal{Code: "stop-protection", Field: "DisableApiStop", Value: "true",
		Why: "the donor is protected against being stopped: a donor that does not switch itself off could not be recovered",
		Do:  "aws ec2 modify-instance-attribute --instance-id " + instance + " --no-disable-api-stop"}, nil
}

// secondVolumes refuses a donor whose image brings more volumes than the root: an image is made of
// the root only, and a clone would wait for the others. Volumes that only the template maps come
// with it, and what somebody attached to the instance is of no image.
func (p *Provider) secondVolumes(ctx context.Context, g group, in types.Instance) (refusals []kamino.Refusal,
	doubts []kamino.Warning, err error) {
	attached := map[string]bool{}
	for _, m := range in.BlockDeviceMappings {
		if m.Ebs != nil && text(m.DeviceName) != text(in.RootDeviceName) {
			attached[text(m.DeviceName)] = true
		}
	}
	if len(attached) == 0 {
		return nil, nil, nil
	}
	id := text(in.ImageId)
	source, err := p.ec2.DescribeImages(ctx, &ec2.DescribeImagesInput{ImageIds: []string{id}})
	if err != nil && !isMissing(codeOf(err)) {
		return nil, nil, translate(err, "read image %s", id)
	}
	if err != nil || len(source.Images) == 0 {
		return nil, []kamino.Warning{{Found: fmt.Sprintf(
			"whether image %s of the donor brought a second volume, which new nodes would not have: the image is gone", id)}}, nil
	}
	for _, m := range source.Images[0].BlockDeviceMappings {
		if m.Ebs == nil || !attached[text(m.DeviceName)] || g.maps(m) {
			continue
		}
		refusals = append(refusals, kamino.Refusal{Code: "second-volume", Field: "BlockDeviceMappings", Value: text(m.DeviceName),
			Why: fmt.Sprintf("image %s of the donor brings volume %s, and Kamino makes an image of the root volume only: new nodes would not have it", id, text(m.DeviceName)),
			Do:  "use an image with one volume, and map further volumes in the launch template, without a snapshot"})
	}
	return refusals, doubts, nil
}

// maps says whether a group's template makes the volume that a mapping of an image makes. Snapshot
// IDs are lost in each new version of a template, so one there counts only where no more versions
// are made.
func (g group) maps(image types.BlockDeviceMapping) bool {
	return slices.ContainsFunc(g.data.BlockDeviceMappings, func(m types.LaunchTemplateBlockDeviceMapping) bool {
		return m.Ebs != nil && text(m.DeviceName) == text(image.DeviceName) &&
			(text(image.Ebs.SnapshotId) == "" || text(m.Ebs.SnapshotId) != "" && g.recipe.Parameter != "")
	})
}

// weight is how many units of the desired capacity a group counts an instance as; "" where it has
// no weights
// (https://docs.aws.amazon.com/autoscaling/ec2/userguide/ec2-auto-scaling-mixed-instances-groups-instance-weighting.html).
func weight(g scaling.AutoScalingGroup, instance string) string {
	for _, in := range g.Instances {
		if text(in.InstanceId) == instance {
			return text(in.WeightedCapacity)
		}
	}
	return ""
}

// standsBy says whether an instance is in Standby, or on its way there.
func standsBy(g scaling.AutoScalingGroup, instance string) bool {
	return slices.ContainsFunc(g.Instances, func(in scaling.Instance) bool {
		return text(in.InstanceId) == instance && (in.LifecycleState == scaling.LifecycleStateStandby ||
			in.LifecycleState == scaling.LifecycleStateEnteringStandby)
	})
}

// lowerMinimum is the command that makes room for one donor.
func lowerMinimum(group string, least int32) string {
	if least == 0 {
		return "give the group an instance"
	}
	return fmt.Sprintf("aws autoscaling update-auto-scaling-group --auto-scaling-group-name %s --min-size %d", group, least-1)
}
