package aws

import (
	"context"
	"fmt"
	"slices"
	"strings"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling"
	scaling "github.com/aws/aws-sdk-go-v2/service/autoscaling/types"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"kamino.dev/kamino"
)

// owners write a group's recipe back. Their tags are from the documentation of EKS, and from the
// sources of Cluster API's provider for AWS (api/v1beta2/tags.go) and of kOps. Those with pointer
// set leave a template alone that names a parameter of ours.
var owners = []struct {
	tag, name, do string
	pointer       bool
}{
	{"eks:nodegroup-name", "an EKS managed node group", "update the node group with eksctl or the EKS API; Kamino is for self-managed groups", false},
	{"sigs.k8s.io/cluster-api-provider-aws/cluster/", "Cluster API", "set the image in the AWSMachinePool", false},
	{"kops.k8s.io/instancegroup", "kOps", "set the instance group's image to ssm:PARAMETER, or to the image that was made", true},
	{"aws:cloudformation:stack-name", "CloudFormation", "set ImageId of the stack's launch template to resolve:ssm:NAME", true},
}

// refusePool tells what speaks against a group, and whether something is being done to it.
func (p *Provider) refusePool(ctx context.Context, g group) (out []kamino.Refusal, updating bool, err error) {
	add := func(code, field, value, why, do string) {
		out = append(out, kamino.Refusal{Code: code, Field: field, Value: value, Why: why, Do: do})
	}
	if g.recipe.Template == "" {
		add("launch-configuration", "LaunchConfigurationName", text(g.LaunchConfigurationName), "the group launches from a launch configuration, which cannot be changed",
			"give the group a launch template")
	}
	for _, t := range g.Tags {
		for _, o := range owners {
			if strings.HasPrefix(text(t.Key), o.tag) && (!o.pointer || g.recipe.Parameter == "") {
				add("owner", "Tags", text(t.Key), "the group is managed by "+o.name+", which writes its recipe back", o.do)
			}
		}
	}
	if g.recipe.Named == byLatest && g.recipe.Parameter == "" {
		add("latest", "LaunchTemplate.Version", byLatest, "the group launches the latest version of its template, so that creating a version promotes it already",
			"set the group's template version to $Default or a number, or the template's ImageId to resolve:ssm:NAME")
	}
	if field := ownImage(g.MixedInstancesPolicy); field != "" {
		add("override", "MixedInstancesPolicy", field, "an override has an image or a template of its own, which goes before the group's", "remove "+field+" from the overrides")
	}
	if g.WarmPoolSize != nil && *g.WarmPoolSize > 0 {
		add(kamino.CodeWarmPool, "WarmPoolSize", fmt.Sprint(*g.WarmPoolSize), "the instances of the warm pool hold the former image, and join the cluster with it", "delete the warm pool")
	}
	if suspends(g.AutoScalingGroup, launch) {
		add(kamino.CodeSuspended, "SuspendedProcesses", launch, "the group launches nothing, and takes no instance back from Standby", resumeLaunch(text(g.AutoScalingGroupName)))
	}
	shared, err := p.refuseShared(ctx, g)
	if err != nil {
		return nil, false, err
	}
	out = append(out, shared...)
	refreshing, err := p.refreshing(ctx, text(g.AutoScalingGroupName))
	if refreshing != "" {
		add(kamino.CodeRefresh, "InstanceRefreshes", refreshing, "an instance refresh replaces the group's instances at the moment", "wait until it has ended, or cancel it")
	}
	return out, text(g.Status) != "", err
}

// ownImage names what an override has that goes before the group's template.
func ownImage(policy *scaling.MixedInstancesPolicy) string {
	for _, o := range overrides(policy) {
		switch {
		case o.LaunchTemplateSpecification != nil:
			return "LaunchTemplateSpecification"
		case text(o.ImageId) != "":
			return "ImageId"
		}
	}
	return ""
}

// refreshEnded are the states of an instance refresh that is over (Auto Scaling API reference,
// InstanceRefresh).
var refreshEnded = []scaling.InstanceRefreshStatus{scaling.InstanceRefreshStatusSuccessful, scaling.InstanceRefreshStatusFailed, scaling.InstanceRefreshStatusCancelled,
	scaling.InstanceRefreshStatusRollbackSuccessful, scaling.InstanceRefreshStatusRollbackFailed}

func (p *Provider) refreshing(ctx context.Context, name string) (string, error) {
	out, err := recent(p.known, p.config.Clock.Now(), "refreshes "+name, func() (*autoscaling.DescribeInstanceRefreshesOutput, error) {
		return p.scaling.DescribeInstanceRefreshes(ctx, &autoscaling.DescribeInstanceRefreshesInput{AutoScalingGroupName: &name})
	})
	if err != nil {
		return "", translate(err, "list instance refreshes of %s", name)
	}
	for _, r := range out.InstanceRefreshes {
		if !slices.Contains(refreshEnded, r.Status) {
			return string(r.Status), nil
		}
	}
	return "", nil
}

// refuseInstance tells what speaks against an instance as donor.
func refuseInstance(in types.Instance, shutdown string) (out []kamino.Refusal) {
	name := text(in.InstanceId)
	add := func(code, field, value, why, do string) {
		out = append(out, kamino.Refusal{Code: code, Field: field, Value: value, Why: why, Do: do})
	}
	switch {
	case in.InstanceLifecycle == types.InstanceLifecycleTypeSpot:
		add("spot", "InstanceLifecycle", "spot", "Spot Instances of a group cannot be stopped", "choose an on-demand node")
	case in.RootDeviceType != types.DeviceTypeEbs:
		add("ephemeral", "RootDeviceType", string(in.RootDeviceType), "an instance with an instance-store root cannot be stopped", "use images with an EBS root")
	}
	if strings.HasPrefix(text(in.PlatformDetails), "Windows") {
		add("windows", "PlatformDetails", text(in.PlatformDetails), "only Linux nodes can be sealed", "choose another pool")
	}
	if in.Operator != nil && sdk.ToBool(in.Operator.Managed) {
		add("owner", "Operator.Principal", text(in.Operator.Principal), "the instance is managed by "+text(in.Operator.Principal), "choose a node of a self-managed group")
	}
	if len(in.ProductCodes) > 0 {
		add("product-code", "ProductCodes", text(in.ProductCodes[0].ProductCodeId), "the image is from AWS Marketplace, and no other image may be made from its disk",
			"subscribe to the product's own images")
	}
	if in.HibernationOptions != nil && sdk.ToBool(in.HibernationOptions.Configured) {
		add("hibernation", "HibernationOptions", "configured", "an instance that can hibernate writes its memory to its disk", "launch without hibernation")
	}
	if shutdown == "terminate" {
		add("shutdown-behavior", "InstanceInitiatedShutdownBehavior", shutdown, "the instance is terminated when it shuts down, and a seal shuts it down",
			"aws ec2 modify-instance-attribute --instance-id "+name+" --instance-initiated-shutdown-behavior stop")
	}
	return out
}
