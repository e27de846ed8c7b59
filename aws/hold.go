package aws

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling"
	scaling "github.com/aws/aws-sdk-go-v2/service/autoscaling/types"

	"kamino.dev/kamino"
)

// tagSuspended is on a group whose zone rebalancing Kamino suspended: AWS keeps no owner.
const tagSuspended = "kamino-suspended"

// Processes of a group that may be suspended. Without Launch it also refuses to take an instance
// back from Standby
// (https://docs.aws.amazon.com/autoscaling/ec2/userguide/understand-how-suspending-processes-affects-other-processes.html).
const (
	rebalance = "AZRebalance"
	launch    = "Launch"
)

func resumeLaunch(group string) string {
	return "aws autoscaling resume-processes --auto-scaling-group-name " + group + " --scaling-processes " + launch
}

var _ kamino.Standby = (*Provider)(nil)

// Holding reads how an instance stands in its group. The tag on the group is the last thing that
// Release removes.
func (p *Provider) Holding(ctx context.Context, pool kamino.Pool, id kamino.InstanceID) (kamino.Holding, error) {
	g, in, err := p.member(ctx, pool, id)
	ours := g.AutoScalingGroupName != nil && suspendedByUs(g)
	switch {
	case errors.Is(err, kamino.ErrNotFound) && ours:
		return kamino.Remains, nil
	case err != nil:
		return "", err
	case in.LifecycleState == scaling.LifecycleStateStandby:
		return kamino.Held, nil
	case in.LifecycleState != scaling.LifecycleStateInService:
		return kamino.Moving, nil
	case ours:
		return kamino.Remains, nil
	}
	return kamino.InService, nil
}

func suspendedByUs(g scaling.AutoScalingGroup) bool {
	return slices.ContainsFunc(g.Tags, func(t scaling.TagDescription) bool { return text(t.Key) == tagSuspended })
}

func (p *Provider) member(ctx context.Context, pool kamino.Pool, id kamino.InstanceID) (scaling.AutoScalingGroup, scaling.Instance, error) {
	name, err := instanceID(id)
	if err != nil {
		return scaling.AutoScalingGroup{}, scaling.Instance{}, err
	}
	g, err := p.readGroup(ctx, pool.ID)
	if err != nil {
		return g, scaling.Instance{}, err
	}
	for _, in := range g.Instances {
		if text(in.InstanceId) == name {
			return g, in, nil
		}
	}
	return g, scaling.Instance{}, fmt.Errorf("instance %s is not in Auto Scaling group %s: %w", name, pool.Name, kamino.ErrNotFound)
}

// Hold begins to take an instance out of service without replacing it: Standby, with the desired
// capacity one lower. Zone rebalancing is suspended before, unless it was: it would launch and then
// terminate another instance for the gap. Repeated it changes nothing.
func (p *Provider) Hold(ctx context.Context, pool kamino.Pool, id kamino.InstanceID) error {
	g, in, err := p.member(ctx, pool, id)
	if err != nil || in.LifecycleState == scaling.LifecycleStateStandby || in.LifecycleState == scaling.LifecycleStateEnteringStandby {
		return err
	}
	if in.LifecycleState != scaling.LifecycleStateInService {
		return fmt.Errorf("hold instance %s, which is %s: %w", text(in.InstanceId), in.LifecycleState, kamino.ErrInProgress)
	}
	if sdk.ToInt32(g.DesiredCapacity) <= sdk.ToInt32(g.MinSize) {
		return kamino.WithHint(fmt.Errorf("hold instance %s: the desired capacity of %s is its minimum, %d: %w", text(in.InstanceId),
			pool.Name, sdk.ToInt32(g.MinSize), kamino.ErrUnsupported),
			"%s", lowerMinimum(pool.Name, sdk.ToInt32(g.MinSize)))
	}
	if suspends(g, launch) { // it would not come back
		return kamino.WithHint(fmt.Errorf("hold instance %s: %s of %s is suspended: %w", text(in.InstanceId), launch, pool.Name,
			kamino.ErrUnsupported), "%s", resumeLaunch(pool.Name))
	}
	if err := p.suspend(ctx, g); err != nil {
		return err
	}
	_, err = p.scaling.EnterStandby(ctx, &autoscaling.EnterStandbyInput{AutoScalingGroupName: g.AutoScalingGroupName,
		InstanceIds:                    []string{text(in.InstanceId)},
		ShouldDecrementDesiredCapacity: sdk.Bool(true)})
	return translate(err, "put instance %s into Standby", text(in.InstanceId))
}

// suspend stops zone rebalancing, which would terminate another instance because the one in Standby
// leaves its zone uneven. The tag is written first, and read back: without it nobody would resume
// rebalancing after this process is killed.
func (p *Provider) suspend(ctx context.Context, g scaling.AutoScalingGroup) error {
	if suspended(g) {
		return nil
	}
	if !suspendedByUs(g) {
		if _, err := p.scaling.CreateOrUpdateTags(ctx,
			&autoscaling.CreateOrUpdateTagsInput{Tags: []scaling.Tag{suspendedTag(g)}}); err != nil {
			return translate(err, "tag Auto Scaling group %s", text(g.AutoScalingGroupName))
		}
		tagged, err := p.readGroup(ctx, p.poolID(text(g.AutoScalingGroupName)))
		if err == nil && !suspendedByUs(tagged) {
			err = fmt.Errorf("the tag of Auto Scaling group %s is not shown yet: %w", text(g.AutoScalingGroupName), kamino.ErrInProgress)
		}
		if err != nil {
			return err
		}
	}
	if _, err := p.scaling.SuspendProcesses(ctx, &autoscaling.SuspendProcessesInput{AutoScalingGroupName: g.AutoScalingGroupName,
		ScalingProcesses: []string{rebalance}}); err != nil {
		return translate(err, "suspend %s of %s", rebalance, text(g.AutoScalingGroupName))
	}
	now, err := p.readGroup(ctx, p.poolID(text(g.AutoScalingGroupName)))
	if err == nil && !suspended(now) {
		err = fmt.Errorf("%s of %s is not suspended yet: %w", rebalance, text(g.AutoScalingGroupName), kamino.ErrInProgress)
	}
	return err
}

// suspended says whether zones are not rebalanced, whoever wants that.
func suspended(g scaling.AutoScalingGroup) bool { return suspends(g, rebalance) }

// suspends says whether a process of a group is suspended, whoever wants that.
func suspends(g scaling.AutoScalingGroup, process string) bool {
	return slices.ContainsFunc(g.SuspendedProcesses, func(s scaling.SuspendedProcess) bool { return text(s.ProcessName) == process })
}

func suspendedTag(g scaling.AutoScalingGroup) scaling.Tag {
	return scaling.Tag{ResourceId: g.AutoScalingGroupName, ResourceType: sdk.String("auto-scaling-group"), Key: sdk.String(tagSuspended),
		Value: sdk.String(rebalance), PropagateAtLaunch: sdk.Bool(false)}
}

// Release begins to put an instance back in service and, once AWS has taken that on, resumes what
// Hold suspended: the desired capacity is what it was, and the instance counts in its zone again.
// Call it until Holding says InService. An instance that does not run would be replaced, so it has
// to run; where a rival used its room meanwhile, it waits for room.
func (p *Provider) Release(ctx context.Context, pool kamino.Pool, id kamino.InstanceID) error {
	g, in, err := p.member(ctx, pool, id)
	if errors.Is(err, kamino.ErrNotFound) && g.AutoScalingGroupName != nil {
		return p.resume(ctx, g)
	} else if err != nil {
		return err
	}
	switch in.LifecycleState {
	case scaling.LifecycleStateInService:
		return p.resume(ctx, g)
	case scaling.LifecycleStateStandby:
	default:
		return nil // on its way
	}
	now, err := p.describe(ctx, text(in.InstanceId))
	if err != nil {
		return err
	}
	if power(now.State.Name) != kamino.PowerOn {
		return fmt.Errorf("put instance %s back in service, which is %s: %w", text(in.InstanceId), now.State.Name, kamino.ErrInProgress)
	}
	if suspends(g, launch) {
		return kamino.WithHint(fmt.Errorf("put instance %s back in service: %s of %s is suspended now: %w", text(in.InstanceId), launch,
			pool.Name, kamino.ErrInProgress), "%s", resumeLaunch(pool.Name))
	}
	if most := sdk.ToInt32(g.MaxSize); sdk.ToInt32(g.DesiredCapacity) >= most {
		return kamino.WithHint(fmt.Errorf("put instance %s back in service: the desired capacity of %s is now its maximum, %d: %w",
			text(in.InstanceId), pool.Name, most, kamino.ErrInProgress),
			"aws autoscaling update-auto-scaling-group --auto-scaling-group-name %s --max-size %d", pool.Name, most+1)
	}
	if _, err = p.scaling.ExitStandby(ctx, &autoscaling.ExitStandbyInput{AutoScalingGroupName: g.AutoScalingGroupName,
		InstanceIds: []string{text(in.InstanceId)}}); err != nil {
		return translate(err, "put instance %s back in service", text(in.InstanceId))
	}
	return p.resume(ctx, g)
}

// Lost implements kamino.Standby. EnterStandby lowered the desired capacity for the instance, and
// nothing raises it again. An autoscaler or a person may have changed it since, and a write of it
// takes no condition: so a person decides.
func (p *Provider) Lost(pool kamino.Pool, id kamino.InstanceID) kamino.Warning {
	return kamino.Warning{
		Found: fmt.Sprintf("instance %s is gone: Auto Scaling group %s may lack one instance, as Standby lowered its desired capacity by one; it is %d now",
			id[strings.LastIndexByte(string(id), '/')+1:], pool.Name, pool.Capacity),
		Do: fmt.Sprintf("aws autoscaling set-desired-capacity --auto-scaling-group-name %s --desired-capacity %d", pool.Name,
			pool.Capacity+1),
	}
}

// resume lets zones be rebalanced again, if Kamino has suspended that. The tag goes last, and no
// reply is believed: without the tag nobody would know whose the suspension is.
func (p *Provider) resume(ctx context.Context, g scaling.AutoScalingGroup) error {
	if !suspendedByUs(g) {
		return nil
	}
	if _, err := p.scaling.ResumeProcesses(ctx, &autoscaling.ResumeProcessesInput{AutoScalingGroupName: g.AutoScalingGroupName,
		ScalingProcesses: []string{rebalance}}); err != nil {
		return translate(err, "resume %s of %s", rebalance, text(g.AutoScalingGroupName))
	}
	now, err := p.readGroup(ctx, p.poolID(text(g.AutoScalingGroupName)))
	if err == nil && suspended(now) {
		err = fmt.Errorf("%s of %s is not resumed yet: %w", rebalance, text(g.AutoScalingGroupName), kamino.ErrInProgress)
	}
	if err != nil {
		return err
	}
	_, err = p.scaling.DeleteTags(ctx, &autoscaling.DeleteTagsInput{Tags: []scaling.Tag{suspendedTag(g)}})
	return translate(err, "remove a tag of Auto Scaling group %s", text(g.AutoScalingGroupName))
}
