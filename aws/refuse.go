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
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"kamino.dev/kamino"
)

// owner is a program that writes a group's recipe.
type owner struct {
	tag, name, do string
	// pointer: it leaves a template alone that names a parameter of ours.
	pointer bool
	// image: an image may be made of one of the group's nodes, for a person to name in the
	// owner's own document.
	image bool
}

// owners write a group's recipe back. Their tags are from the documentation of EKS, and from the
// sources of Cluster API's provider for AWS (api/v1beta2/tags.go) and of kOps. kOps resolves ssm:
// on the operator's machine, writes the AMI ID into the template, and its groups launch $Latest
// (https://github.com/kubernetes/kops, upup/pkg/fi/cloudup/awsup/aws_cloud.go, resolveImage).
var owners = []owner{
	{tag: "eks:nodegroup-name", name: "an EKS managed node group",
		do: "update the node group with eksctl or the EKS API; Kamino is for self-managed groups"},
	{tag: "sigs.k8s.io/cluster-api-provider-aws/cluster/", name: "Cluster API",
		do: makeImage + "set spec.awsLaunchTemplate.ami.id of the AWSMachinePool to the AMI ID", image: true},
	{tag: "kops.k8s.io/instancegroup", name: "kOps",
		do: makeImage + "set spec.image of the instance group to the AMI ID, then: kops update cluster --yes", image: true},
	{tag: "aws:cloudformation:stack-name", name: "CloudFormation, which eksctl uses too", pointer: true, image: true,
		do: "make a parameter that holds the present AMI: aws ssm put-parameter --type String --data-type aws:ec2:image --name NAME --value AMI; " +
			"then set ImageId of the stack's launch template to resolve:ssm:NAME; or " + makeImage + "set ImageId to the AMI ID"},
}

// makeImage begins what to do where Kamino may write no recipe.
const makeImage = "make an image with: kamino update --target-node NODE --image-only; then "

// refusePool tells what speaks against a group, and whether something is being done to it.
func (p *Provider) refusePool(ctx context.Context, g group) (out []kamino.Refusal, updating bool, err error) {
	add := func(code kamino.Code, field, value, why, do string) {
		out = append(out, kamino.Refusal{Code: code, Field: field, Value: value, Why: why, Do: do})
	}
	if g.recipe.Template == "" {
		add("launch-configuration", "LaunchConfigurationName", text(g.LaunchConfigurationName),
			"the group launches from a launch configuration, which cannot be changed",
			"give the group a launch template")
	}
	owned := false
	for _, t := range g.Tags {
		for _, o := range owners {
			if !strings.HasPrefix(text(t.Key), o.tag) || o.pointer && g.recipe.Parameter != "" {
				continue
			}
			add(kamino.CodeOwner, "Tags", text(t.Key), "the group is managed by "+o.name+", which writes its recipe back", o.do)
			if owned = true; o.image {
				out[len(out)-1].Allow = kamino.AllowImageOnly
			}
		}
	}
	if g.recipe.Named == byLatest && g.recipe.Parameter == "" {
		add("latest", "LaunchTemplate.Version", byLatest,
			"the group launches the latest version of its template, so that creating a version promotes it already",
			map[bool]string{true: makeImage + "set its AMI ID where the owner has the image",
				false: "set the group's template version to $Default or a number; or make a parameter that holds the present AMI (aws ssm put-parameter --type String --data-type aws:ec2:image --name NAME --value AMI) " +
					"and set the template's ImageId to resolve:ssm:NAME; or " + makeImage + "set its AMI ID in the template"}[owned])
		out[len(out)-1].Allow = kamino.AllowImageOnly
	}
	if field := ownImage(g.MixedInstancesPolicy); field != "" {
		add("override", "MixedInstancesPolicy", field, "an override has an image or a template of its own, which goes before the group's",
			"remove "+field+" from the overrides")
	}
	if g.WarmPoolSize != nil && *g.WarmPoolSize > 0 {
		add(kamino.CodeWarmPool, "WarmPoolSize", fmt.Sprint(*g.WarmPoolSize),
			"the instances of the warm pool hold the former image, and join the cluster with it", "delete the warm pool")
	}
	if suspends(g.AutoScalingGroup, launch) {
		add(kamino.CodeSuspended, "SuspendedProcesses", launch, "the group launches nothing, and takes no instance back from Standby",
			resumeLaunch(text(g.AutoScalingGroupName)))
	}
	missing, err := p.refuseMissing(ctx, g)
	if err != nil {
		return nil, false, err
	}
	out = append(out, missing...)
	shared, err := p.refuseShared(ctx, g)
	if err != nil {
		return nil, false, err
	}
	out = append(out, shared...)
	refreshing, err := p.refreshing(ctx, text(g.AutoScalingGroupName))
	if refreshing != "" {
		add(kamino.CodeRefresh, "InstanceRefreshes", refreshing, "an instance refresh replaces the group's instances at the moment",
			"wait until it has ended, or cancel it")
	}
	return out, text(g.Status) != "", err
}

// refuseMissing refuses a group whose next instance has no image: somebody deregistered it, such
// as a program that deletes unused images and does not read parameters.
func (p *Provider) refuseMissing(ctx context.Context, g group) ([]kamino.Refusal, error) {
	id := g.recipe.means()
	if !strings.HasPrefix(id, "ami-") {
		return nil, nil
	}
	if wide(ctx) { // the list of all images is read once in such a look, and no image by itself that is nobody's
		if g.recipe.Parameter == "" && !g.made {
			return nil, nil
		}
		all, err := once(ctx, "images", func() (map[string][]types.Image, error) { return p.listImages(ctx, imagePrefix+"*") })
		if err != nil {
			return nil, err
		}
		if slices.ContainsFunc(all[text(g.AutoScalingGroupName)], func(im types.Image) bool { return text(im.ImageId) == id }) {
			return nil, nil
		}
	}
	_, err := recentFor(p.known, sharedAge, p.config.Clock.Now(), "image "+id, func() (types.Image, error) { return p.imageByID(ctx, id) })
	if !errors.Is(err, kamino.ErrNotFound) {
		return nil, err
	}
	field, name := "ImageId", text(g.AutoScalingGroupName)
	if g.recipe.Parameter != "" {
		field = "parameter " + g.recipe.Parameter
	}
	return []kamino.Refusal{{Code: kamino.CodeNoImage, Field: field, Value: id, Why: err.Error() + ": the group can launch no instance",
		Do: "choose a version that kamino status shows, or the image from before Kamino: kamino rollback --pool " + name +
			" --to VERSION, or --to original; without Kamino " + g.byHand()}}, nil
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
var refreshEnded = []scaling.InstanceRefreshStatus{scaling.InstanceRefreshStatusSuccessful, scaling.InstanceRefreshStatusFailed,
	scaling.InstanceRefreshStatusCancelled,
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
	add := func(code kamino.Code, field, value, why, do string) {
		out = append(out, kamino.Refusal{Code: code, Field: field, Value: value, Why: why, Do: do})
	}
	switch {
	case in.InstanceLifecycle == types.InstanceLifecycleTypeSpot:
		add(kamino.CodeSpot, "InstanceLifecycle", "spot", "Spot Instances of a group cannot be stopped", "choose an on-demand node")
	case in.RootDeviceType != types.DeviceTypeEbs:
		add(kamino.CodeEphemeral, "RootDeviceType", string(in.RootDeviceType), "an instance with an instance-store root cannot be stopped",
			"use images with an EBS root")
	}
	if strings.HasPrefix(text(in.PlatformDetails), "Windows") {
		add("windows", "PlatformDetails", text(in.PlatformDetails), "only Linux nodes can be sealed", "choose another pool")
	}
	if in.Operator != nil && sdk.ToBool(in.Operator.Managed) {
		add(kamino.CodeOwner, "Operator.Principal", text(in.Operator.Principal), "the instance is managed by "+text(in.Operator.Principal),
			"choose a node of a self-managed group")
	}
	if len(in.ProductCodes) > 0 {
		add("product-code", "ProductCodes", text(in.ProductCodes[0].ProductCodeId),
			"the image is from AWS Marketplace, and no other image may be made from its disk",
			"subscribe to the product's own images")
	}
	if in.HibernationOptions != nil && sdk.ToBool(in.HibernationOptions.Configured) {
		add("hibernation", "HibernationOptions", "configured", "an instance that can hibernate writes its memory to its disk",
			"launch without hibernation")
	}
	if shutdown == "terminate" {
		add("shutdown-behavior", "InstanceInitiatedShutdownBehavior", shutdown,
			"the instance is terminated when it shuts down, and a seal shuts it down",
			"aws ec2 modify-instance-attribute --instance-id "+name+" --instance-initiated-shutdown-behavior stop")
	}
	return out
}
