package aws

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"kamino.dev/kamino"
)

// groupTag is on every instance of a group
// (https://docs.aws.amazon.com/autoscaling/ec2/userguide/ec2-auto-scaling-tagging.html).
const groupTag = "aws:autoscaling:groupName"

// Instance reads one instance. A terminated one does not exist.
func (p *Provider) Instance(ctx context.Context, id kamino.InstanceID) (kamino.Instance, error) {
	name, err := instanceID(id)
	if err != nil {
		return kamino.Instance{}, err
	}
	in, err := p.describe(ctx, name)
	if err != nil {
		return kamino.Instance{}, err
	}
	facts, err := p.facts(ctx, in)
	if err != nil {
		return kamino.Instance{}, err
	}
	disk, refusals := facts.disk, refuseInstance(in, facts.shutdown)
	var pool kamino.PoolID // none for a canary
	if group := tagOf(in.Tags, groupTag); group != "" {
		pool = p.poolID(group)
	}
	out := kamino.Instance{
		ID: id, Pool: pool, Hostname: text(in.PrivateDnsName), Power: power(in.State.Name), Image: text(in.ImageId),
		Machine: kamino.Machine{Architecture: architecture(string(in.Architecture))}, Size: string(in.InstanceType), Refusals: refusals,
	}
	if in.Placement != nil {
		out.Zone = text(in.Placement.AvailabilityZone)
	}
	if disk != nil {
		out.Disk, out.Encryption = text(disk.VolumeId), text(disk.KmsKeyId)
		if disk.Size != nil {
			out.DiskGB = int(*disk.Size)
		}
	}
	if in.State.Name == types.InstanceStateNameStopped {
		out.Failure = failure(in.StateReason, out.Encryption)
	}
	return out, nil
}

// askedFor are the reasons of a stop that somebody asked for
// (https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_StateReason.html).
var askedFor = []string{"", "Client.UserInitiatedShutdown", "Client.InstanceInitiatedShutdown", "Client.UserInitiatedHibernate"}

// failure is why an instance is off that nobody switched off. Where whoever starts it may not use
// the key of its disk, the start succeeds, and the instance is off again with this reason
// (https://repost.aws/knowledge-center/kms-iam-ec2-permission).
func failure(reason *types.StateReason, key string) string {
	switch {
	case reason == nil || slices.Contains(askedFor, text(reason.Code)):
		return ""
	case text(reason.Code) == "Client.InternalError" && key != "":
		return kamino.Plain(text(reason.Message)) + ": these credentials may lack kms:CreateGrant for key " + key + " of its root"
	}
	return kamino.Plain(text(reason.Message))
}

// describe reads an instance; ErrNotFound where it is terminated.
func (p *Provider) describe(ctx context.Context, name string) (types.Instance, error) {
	found, err := once(ctx, "instance "+name, func() ([]types.Instance, error) {
		if wide(ctx) {
			return p.instances(ctx, filter("instance-id", name))
		}
		out, err := p.ec2.DescribeInstances(ctx, &ec2.DescribeInstancesInput{InstanceIds: []string{name}})
		if err != nil || len(out.Reservations) == 0 {
			return nil, err
		}
		return out.Reservations[0].Instances, nil
	})
	if err != nil {
		return types.Instance{}, translate(err, "read instance %s", name)
	}
	if len(found) == 0 {
		return types.Instance{}, fmt.Errorf("read instance %s: %w", name, kamino.ErrNotFound)
	}
	in := found[0]
	switch {
	case in.State == nil:
		return in, fmt.Errorf("read instance %s: no state: %w", name, kamino.ErrUnavailable)
	case in.State.Name == types.InstanceStateNameTerminated, in.State.Name == types.InstanceStateNameShuttingDown:
		return in, fmt.Errorf("instance %s is %s: %w", name, in.State.Name, kamino.ErrNotFound)
	}
	return in, nil
}

// instances are those that the filters leave.
func (p *Provider) instances(ctx context.Context, filters ...types.Filter) (found []types.Instance, err error) {
	err = pages(func(token *string) (*string, error) {
		page, err := p.ec2.DescribeInstances(ctx, &ec2.DescribeInstancesInput{Filters: filters, NextToken: token})
		if err != nil {
			return nil, err
		}
		for _, r := range page.Reservations {
			found = append(found, r.Instances...)
		}
		return page.NextToken, nil
	})
	return found, err
}

// facts reads what only persons change of an instance, at most once in steadyFor. A shutdown from
// within may terminate the instance, whatever protects it
// (https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/terminating-instances.html).
func (p *Provider) facts(ctx context.Context, in types.Instance) (steady, error) {
	name, now := text(in.InstanceId), p.config.Clock.Now()
	if f, ok := p.known.facts(name, now); ok {
		return f, nil
	}
	disk, err := p.rootVolume(ctx, in)
	if err != nil {
		return steady{}, err
	}
	shutdown, err := p.ec2.DescribeInstanceAttribute(ctx,
		&ec2.DescribeInstanceAttributeInput{InstanceId: &name, Attribute: types.InstanceAttributeNameInstanceInitiatedShutdownBehavior})
	if err != nil {
		return steady{}, translate(err, "read the shutdown behavior of instance %s", name)
	}
	f := steady{at: now, instance: in, disk: disk}
	if b := shutdown.InstanceInitiatedShutdownBehavior; b != nil {
		f.shutdown = text(b.Value)
	}
	p.known.keepFacts(name, f)
	return f, nil
}

// rootVolume reads the volume that an instance boots from; nil where that is no EBS volume.
func (p *Provider) rootVolume(ctx context.Context, in types.Instance) (*types.Volume, error) {
	for _, m := range in.BlockDeviceMappings {
		if text(m.DeviceName) != text(in.RootDeviceName) || m.Ebs == nil {
			continue
		}
		input := &ec2.DescribeVolumesInput{VolumeIds: []string{text(m.Ebs.VolumeId)}}
		if wide(ctx) {
			input = &ec2.DescribeVolumesInput{Filters: []types.Filter{filter("volume-id", text(m.Ebs.VolumeId))}}
		}
		out, err := p.ec2.DescribeVolumes(ctx, input)
		if err != nil {
			return nil, translate(err, "read volume %s of instance %s", text(m.Ebs.VolumeId), text(in.InstanceId))
		}
		if len(out.Volumes) == 1 {
			return &out.Volumes[0], nil
		}
	}
	return nil, nil
}

func power(state types.InstanceStateName) kamino.Power {
	switch state {
	case types.InstanceStateNameRunning:
		return kamino.PowerOn
	case types.InstanceStateNameStopped:
		return kamino.PowerOff
	}
	return kamino.PowerBetween
}

// architecture is EC2's word in those of galleries.
func architecture(arch string) string {
	return map[string]string{"x86_64": "x64", "arm64": "Arm64"}[arch]
}

// SetPower begins to stop or start an instance. It stops with a shutdown of the guest, never by
// force: after that writes may follow
// (https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/instance-stop-methods.html).
func (p *Provider) SetPower(ctx context.Context, id kamino.InstanceID, want kamino.Power) error {
	name, err := instanceID(id)
	if err != nil {
		return err
	}
	ids := []string{name}
	if want == kamino.PowerOn {
		_, err = p.ec2.StartInstances(ctx, &ec2.StartInstancesInput{InstanceIds: ids})
	} else {
		_, err = p.ec2.StopInstances(ctx, &ec2.StopInstancesInput{InstanceIds: ids})
	}
	return translate(err, "switch instance %s %s", name, want)
}

// Instances lists the members of a group, whatever state they are in.
func (p *Provider) Instances(ctx context.Context, pool kamino.Pool) ([]kamino.InstanceID, error) {
	g, err := p.readGroup(ctx, pool.ID)
	if errors.Is(err, kamino.ErrNotFound) {
		return nil, fmt.Errorf("list instances of pool %s: %w", pool.Name, kamino.ErrUnavailable)
	} else if err != nil {
		return nil, err
	}
	list := []kamino.InstanceID{}
	for _, in := range g.Instances {
		list = append(list, nodeID(text(in.AvailabilityZone), text(in.InstanceId)))
	}
	return list, nil
}

func tagOf(tags []types.Tag, key string) string {
	for _, t := range tags {
		if text(t.Key) == key {
			return text(t.Value)
		}
	}
	return ""
}
