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
	"github.com/aws/aws-sdk-go-v2/service/autoscaling"
	scaling "github.com/aws/aws-sdk-go-v2/service/autoscaling/types"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/aws-sdk-go-v2/service/ssm"
	parameter "github.com/aws/aws-sdk-go-v2/service/ssm/types"

	"kamino.dev/kamino"
)

// resolvePrefix stands before the name of a parameter where a template has one in place of an image
// (https://docs.aws.amazon.com/autoscaling/ec2/userguide/using-systems-manager-parameters.html).
const resolvePrefix = "resolve:ssm:"

// Ways in which a group names the version of its template; anything else is a number.
const (
	byDefault = "$Default"
	byLatest  = "$Latest"
)

// recipe is what a group's next instance is made from, as far as Kamino writes it: a Model's Saved.
type recipe struct {
	Template  string `json:"template"`            // ID
	Named     string `json:"named"`               // how the group names the version: a number, $Default, $Latest
	Version   int64  `json:"version"`             // the number that this means now
	Image     string `json:"image"`               // what the version has as its image
	Parameter string `json:"parameter,omitempty"` // that the image is resolved from
	Value     string `json:"value,omitempty"`     // of the parameter
	// ByAttributes: instance types are chosen by attributes; WarmPool: the group has one, though it
	// may be empty. Both rule out parameters
	// (https://docs.aws.amazon.com/autoscaling/ec2/userguide/using-systems-manager-parameters.html).
	ByAttributes bool `json:"byAttributes,omitempty"`
	WarmPool     bool `json:"warmPool,omitempty"`
}

// madeBy begins the description of a version of a template that Kamino made.
const madeBy = "kamino "

// noPointer says why a group's template cannot come to name a parameter.
func (r recipe) noPointer() string {
	switch {
	case r.Parameter != "":
	case r.ByAttributes:
		return "the group chooses instance types by attributes, and its template cannot name a parameter then; it gets a version of the template for each image"
	case r.WarmPool:
		return "the group has a warm pool, and its template cannot name a parameter then; it gets a version of the template for each image"
	}
	return ""
}

// means is the image that the next instance boots from.
func (r recipe) means() string {
	if r.Parameter != "" {
		return r.Value
	}
	return r.Image
}

// group is a group with its recipe, freshly read.
type group struct {
	scaling.AutoScalingGroup
	recipe recipe
	data   *types.ResponseLaunchTemplateData
	stamp  string // Pool.Stamp
	made   bool   // the version of the template is one that Kamino made
}

// Pool reads a group and what it launches from.
func (p *Provider) Pool(ctx context.Context, id kamino.PoolID) (kamino.Pool, error) {
	g, err := p.read(ctx, id)
	if err != nil {
		return kamino.Pool{}, err
	}
	refusals, updating, err := p.refusePool(ctx, g)
	if err != nil {
		return kamino.Pool{}, err
	}
	out, err := p.pool(id, g)
	out.Updating, out.Refusals = updating, refusals
	return out, err
}

// pool is a group as the port has it, what speaks against it left out.
func (p *Provider) pool(id kamino.PoolID, g group) (kamino.Pool, error) {
	saved, err := json.Marshal(g.recipe)
	if err != nil {
		return kamino.Pool{}, fmt.Errorf("save the recipe of %s: %w", id, err)
	}
	return kamino.Pool{
		NoPointer: g.recipe.noPointer(),
		ID:        id, Name: id.Name(), Group: clusterOf(g.Tags), Location: p.region, UID: g.uid(), Created: sdk.ToTime(g.CreatedTime),
		Capacity: int(sdk.ToInt32(g.DesiredCapacity)),
		Model:    kamino.Model{Image: g.recipe.means(), Saved: saved},
		Revision: digest(string(saved), sdk.ToInt32(g.DesiredCapacity), sdk.ToInt32(g.MinSize), sdk.ToInt32(g.MaxSize)),
		Stamp:    g.stamp,
	}, nil
}

// uid is that of the group's ARN,
// arn:PARTITION:autoscaling:REGION:ACCOUNT:autoScalingGroup:UID:autoScalingGroupName/NAME
// (https://docs.aws.amazon.com/service-authorization/latest/reference/list_amazonec2autoscaling.html).
func (g group) uid() string {
	if parts := strings.SplitN(text(g.AutoScalingGroupARN), ":", 8); len(parts) == 8 {
		return parts[6]
	}
	return ""
}

// unchangedPool reads a pool's group afresh; ErrConflict where it is not as it was seen.
func (p *Provider) unchangedPool(ctx context.Context, seen kamino.Pool) (group, kamino.Pool, error) {
	g, err := p.read(ctx, seen.ID)
	if err != nil {
		return g, kamino.Pool{}, err
	}
	now, err := p.pool(seen.ID, g)
	if err == nil && now.Revision != seen.Revision {
		err = fmt.Errorf("pool %s was changed meanwhile: %w", seen.Name, kamino.ErrConflict)
	}
	return g, now, err
}

// clusterTag is on what belongs to a cluster
// (https://github.com/kubernetes/cloud-provider-aws, pkg/providers/v1/tags.go).
const clusterTag = "kubernetes.io/cluster/"

// clusterOf is the name of the cluster that a group says it is of; "" where it says none.
func clusterOf(tags []scaling.TagDescription) string {
	for _, t := range tags {
		if name, ok := strings.CutPrefix(text(t.Key), clusterTag); ok {
			return name
		}
	}
	return ""
}

func (p *Provider) readGroup(ctx context.Context, id kamino.PoolID) (scaling.AutoScalingGroup, error) {
	name, err := p.groupOf(id)
	if err != nil {
		return scaling.AutoScalingGroup{}, err
	}
	return once(ctx, groupKey(name), func() (scaling.AutoScalingGroup, error) {
		out, err := p.scaling.DescribeAutoScalingGroups(ctx,
			&autoscaling.DescribeAutoScalingGroupsInput{AutoScalingGroupNames: []string{name}})
		if err != nil {
			return scaling.AutoScalingGroup{}, translate(err, "read Auto Scaling group %s", name)
		}
		if len(out.AutoScalingGroups) != 1 {
			return scaling.AutoScalingGroup{}, fmt.Errorf("read Auto Scaling group %s: %w", name, kamino.ErrNotFound)
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		p.remember(out.AutoScalingGroups[0])
		return out.AutoScalingGroups[0], nil
	})
}

func groupKey(name string) string { return "group " + name }

// read is a group with the version of its template, and the parameter where that names one.
func (p *Provider) read(ctx context.Context, id kamino.PoolID) (group, error) {
	g, err := p.readGroup(ctx, id)
	if err != nil {
		return group{}, err
	}
	out := group{AutoScalingGroup: g}
	spec := specification(g)
	if spec == nil {
		return out, nil
	}
	out.recipe = recipe{Template: text(spec.LaunchTemplateId), Named: text(spec.Version),
		ByAttributes: byAttributes(g.MixedInstancesPolicy), WarmPool: hasWarmPool(g)}
	if out.recipe.Named == "" { // left out, it means the default version
		out.recipe.Named = byDefault
	}
	version, resolved, err := p.current(ctx, out.recipe.Template, out.recipe.Named)
	if err != nil {
		return group{}, err
	}
	out.data, out.made = version.LaunchTemplateData, strings.HasPrefix(text(version.VersionDescription), madeBy)
	out.recipe.Version, out.recipe.Image = sdk.ToInt64(version.VersionNumber), text(out.data.ImageId)
	if name, ok := strings.CutPrefix(out.recipe.Image, resolvePrefix); ok {
		out.recipe.Parameter = name
		if out.recipe.Value = resolved; resolved == "" {
			if out.recipe.Value, out.stamp, err = p.parameter(ctx, name); err != nil {
				return group{}, fmt.Errorf("read the image of Auto Scaling group %s: %w", text(g.AutoScalingGroupName), err)
			}
		}
	}
	return out, nil
}

// parameter reads what a parameter holds, and its stamp: each write raises its version, and one
// that was deleted and made again begins at 1
// (https://docs.aws.amazon.com/systems-manager/latest/userguide/sysman-paramstore-versions.html).
func (p *Provider) parameter(ctx context.Context, name string) (value, stamp string, err error) {
	found, err := once(ctx, "parameter "+name, func() (parameter.Parameter, error) {
		out, err := p.ssm.GetParameters(ctx, &ssm.GetParametersInput{Names: []string{name}})
		if err != nil {
			return parameter.Parameter{}, translate(err, "read parameter %s", name)
		}
		if len(out.Parameters) != 1 {
			return parameter.Parameter{}, fmt.Errorf("read parameter %s: %w", name, kamino.ErrNotFound)
		}
		return out.Parameters[0], nil
	})
	if err == nil && found.Version > 0 && found.LastModifiedDate != nil {
		stamp = fmt.Sprintf("%s %d %s", name, found.Version, found.LastModifiedDate.UTC().Format(time.RFC3339Nano))
	}
	return text(found.Value), stamp, err
}

// overrides are those of a mixed instances policy; none where there is no policy.
func overrides(policy *scaling.MixedInstancesPolicy) []scaling.LaunchTemplateOverrides {
	if policy == nil || policy.LaunchTemplate == nil {
		return nil
	}
	return policy.LaunchTemplate.Overrides
}

func byAttributes(policy *scaling.MixedInstancesPolicy) bool {
	return slices.ContainsFunc(overrides(policy), func(o scaling.LaunchTemplateOverrides) bool { return o.InstanceRequirements != nil })
}

// hasWarmPool says whether a group has a warm pool that is not being deleted.
func hasWarmPool(g scaling.AutoScalingGroup) bool {
	return g.WarmPoolConfiguration != nil && g.WarmPoolConfiguration.Status != scaling.WarmPoolStatusPendingDelete
}

// specification names the template of a group; nil for a launch configuration.
func specification(g scaling.AutoScalingGroup) *scaling.LaunchTemplateSpecification {
	if g.MixedInstancesPolicy != nil && g.MixedInstancesPolicy.LaunchTemplate != nil {
		return g.MixedInstancesPolicy.LaunchTemplate.LaunchTemplateSpecification
	}
	return g.LaunchTemplate
}

// current reads the version of a launch template that a group launches from. Where the group
// names no number, the same call tells which that is and, where the template is known to name a
// parameter, the image that EC2 resolves it to; that is "" where nobody asked, or EC2 did not
// say.
func (p *Provider) current(ctx context.Context, template, named string) (v types.LaunchTemplateVersion, resolved string, err error) {
	if named != byDefault && named != byLatest {
		v, err = p.version(ctx, template, named)
		return v, "", err
	}
	asks := p.known.points(template)
	now, err := once(ctx, "version "+template+" "+named, func() (types.LaunchTemplateVersion, error) {
		return p.describeVersion(ctx, template, named, asks)
	})
	if err != nil {
		return v, "", err
	}
	number := strconv.FormatInt(sdk.ToInt64(now.VersionNumber), 10)
	if !asks {
		p.known.keepVersion(template, number, now)
		return now, "", nil
	}
	if id := text(now.LaunchTemplateData.ImageId); strings.HasPrefix(id, "ami-") {
		resolved = id
	}
	v, err = p.version(ctx, template, number)
	return v, resolved, err
}

// version reads a version of a launch template by its number, once: it never changes
// (https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/launch-templates.html).
func (p *Provider) version(ctx context.Context, template, number string) (types.LaunchTemplateVersion, error) {
	if v, ok := p.known.version(template, number); ok {
		return v, nil
	}
	v, err := p.describeVersion(ctx, template, number, false)
	if err == nil {
		p.known.keepVersion(template, number, v)
	}
	return v, err
}

func (p *Provider) describeVersion(ctx context.Context, template, named string, resolve bool) (types.LaunchTemplateVersion, error) {
	out, err := p.ec2.DescribeLaunchTemplateVersions(ctx, &ec2.DescribeLaunchTemplateVersionsInput{LaunchTemplateId: &template,
		Versions: []string{named}, ResolveAlias: &resolve})
	if err != nil {
		return types.LaunchTemplateVersion{}, translate(err, "read version %s of launch template %s", named, template)
	}
	if len(out.LaunchTemplateVersions) != 1 || out.LaunchTemplateVersions[0].LaunchTemplateData == nil {
		return types.LaunchTemplateVersion{}, fmt.Errorf("read version %s of launch template %s: %w", named, template, kamino.ErrNotFound)
	}
	return out.LaunchTemplateVersions[0], nil
}

// SetCapacity sets the desired capacity, within what the group allows.
func (p *Provider) SetCapacity(ctx context.Context, pool kamino.Pool, instances int) error {
	if _, _, err := p.unchangedPool(ctx, pool); err != nil {
		return fmt.Errorf("set capacity of %s: %w", pool.Name, err)
	}
	name, err := p.groupOf(pool.ID)
	if err != nil {
		return err
	}
	wanted := int32(instances)
	_, err = p.scaling.SetDesiredCapacity(ctx, &autoscaling.SetDesiredCapacityInput{AutoScalingGroupName: &name, DesiredCapacity: &wanted})
	return translate(err, "set the desired capacity of %s to %d", name, instances)
}
