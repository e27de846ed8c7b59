package aws

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/autoscaling"
	scaling "github.com/aws/aws-sdk-go-v2/service/autoscaling/types"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"kamino.dev/kamino"
)

// A promotion writes a parameter or a launch template. Whatever else launches from the same one
// would change its next image too.

// sharedAge is how old may be what is known of the other groups: persons give a group its template,
// and an update of some minutes lists them once.
const sharedAge = 10 * time.Minute

// refuseShared tells which other group of the Region would change its next image with this one.
func (p *Provider) refuseShared(ctx context.Context, g group) (out []kamino.Refusal, err error) {
	own := p.ParameterName(kamino.Pool{Name: text(g.AutoScalingGroupName), Group: clusterOf(g.Tags)})
	name := g.recipe.Parameter
	if strings.HasPrefix(name, "/aws/") {
		out = append(out, kamino.Refusal{Code: "foreign-parameter", Field: "ImageId", Value: name,
			Why: "the template names a parameter that others write, and this account cannot",
			Do:  "set the template's ImageId to the AMI that the parameter holds; Kamino then moves the group to parameter " + own})
	}
	// PutParameter takes no version or label, and writes no parameter of another account by its ARN
	// (https://docs.aws.amazon.com/systems-manager/latest/APIReference/API_PutParameter.html).
	if len(out) == 0 && strings.Contains(name, ":") {
		out = append(out, kamino.Refusal{Code: "pinned-parameter", Field: "ImageId", Value: name,
			Why: "the template names a version, a label or the ARN of a parameter: what a promotion writes there would not be what the next instance boots from",
			Do:  "set the template's ImageId to the parameter without version or label, or to the AMI that it holds; Kamino then moves the group to parameter " + own})
	}
	if g.recipe.Template == "" {
		return out, nil
	}
	groups, err := p.allGroups(ctx)
	if err != nil {
		return nil, err
	}
	// A promotion moves a group without a parameter to its own. A look at all pools, which promotes
	// nothing, does not read every group's template for that.
	template, parameter := false, len(out) > 0 || name == "" && wide(ctx)
	name = cmp.Or(name, own)
	for _, other := range groups {
		who := text(other.AutoScalingGroupName)
		if who == text(g.AutoScalingGroupName) || text(other.Status) != "" { // a group that is being deleted launches nothing
			continue
		}
		if cluster, its := clusterOf(g.Tags), clusterOf(other.Tags); strings.EqualFold(who, text(g.AutoScalingGroupName)) &&
			(cluster == its || cluster == "" || its == "") {
			out = append(out, kamino.Refusal{Code: "same-name", Field: "AutoScalingGroupName", Value: text(g.AutoScalingGroupName),
				Why: "the name of Auto Scaling group " + who +
					" differs in case only: both would have one lease, and the former images of each other",
				Do: "replace one of the two by a group of another name; until then " + g.byHand()})
		}
		for _, s := range specifications(other) {
			named, same := cmp.Or(text(s.Version), byDefault), text(s.LaunchTemplateId) == g.recipe.Template
			if same && !template && (named == byLatest || named == byDefault && g.recipe.Named == byDefault) {
				template = true
				out = append(out, kamino.Refusal{Code: kamino.CodeShared, Field: "LaunchTemplate.Version", Value: named,
					Why: "Auto Scaling group " + who + " launches from " + named +
						" of the same template, and would boot from this group's image",
					Do: "give each group a launch template of its own, or let " + who + " name a version by number"})
			}
			if parameter || template && same {
				continue
			}
			if parameter, err = p.names(ctx, s, named, text(g.AutoScalingGroupARN), name); err != nil {
				return nil, err
			}
			if parameter {
				out = append(out, kamino.Refusal{Code: kamino.CodeShared, Field: "ImageId", Value: name,
					Why: "the template of Auto Scaling group " + who +
						" names the parameter that a promotion of this group writes, and would boot from this group's image",
					Do: "set ImageId of that template to an AMI"})
			}
		}
	}
	return out, nil
}

// byHand is how a person goes back to an older image where Kamino changes nothing.
func (g group) byHand() string {
	name := text(g.AutoScalingGroupName)
	if g.recipe.Parameter == "" {
		return "let Auto Scaling group " + name + " launch from an older version of template " + g.recipe.Template +
			" to go back to its image"
	}
	return "go back to an older image with: aws ssm put-parameter --overwrite --name " + g.recipe.Parameter +
		" --data-type aws:ec2:image --value AMI"
}

// names says whether a version of a template names a parameter, by its name or by its ARN in the
// account and Region of a group. A template that is gone names none.
func (p *Provider) names(ctx context.Context, s *scaling.LaunchTemplateSpecification, named, group, parameter string) (bool, error) {
	template := text(s.LaunchTemplateId)
	if template == "" {
		return false, nil
	}
	read := func() (types.LaunchTemplateVersion, error) { return p.version(ctx, template, named) }
	if named == byDefault || named == byLatest {
		read = func() (types.LaunchTemplateVersion, error) {
			return recentFor(p.known, sharedAge, p.config.Clock.Now(), "named "+template+" "+named,
				func() (types.LaunchTemplateVersion, error) {
					return p.describeVersion(ctx, template, named, false)
				})
		}
	}
	v, err := read()
	if errors.Is(err, kamino.ErrNotFound) {
		return false, nil
	} else if err != nil {
		return false, err
	}
	other, ok := strings.CutPrefix(text(v.LaunchTemplateData.ImageId), resolvePrefix)
	return ok && sameParameter(other, parameter, group), nil
}

// sameParameter says whether two names are of one parameter:
// arn:PARTITION:ssm:REGION:ACCOUNT:parameter/a/b is that of /a/b, and /a that of a
// (https://docs.aws.amazon.com/service-authorization/latest/reference/list_awssystemsmanager.html).
// One with a version or a label is none that a promotion writes.
func sameParameter(a, b, group string) bool {
	own := strings.Split(group, ":")
	plain := func(name string) string {
		parts := strings.SplitN(name, ":", 6)
		if parts[0] == "arn" && len(parts) == 6 && len(own) > 5 && parts[3] == own[3] && parts[4] == own[4] {
			name = strings.TrimPrefix(parts[5], "parameter")
		}
		return strings.TrimPrefix(name, "/")
	}
	return plain(a) == plain(b)
}

// launchedBy is another group of the Region whose next instance would launch from an image; "" for
// none. It is always read again, because a wrong deletion cannot be undone.
func (p *Provider) launchedBy(ctx context.Context, but, image string) (string, error) {
	p.mu.Lock()
	err := p.listGroups(ctx)
	groups := p.all
	p.mu.Unlock()
	if err != nil {
		return "", err
	}
	for _, other := range groups {
		who := text(other.AutoScalingGroupName)
		if who == but || text(other.Status) != "" {
			continue
		}
		if slices.ContainsFunc(overrides(other.MixedInstancesPolicy),
			func(o scaling.LaunchTemplateOverrides) bool { return text(o.ImageId) == image }) {
			return who, nil
		}
		if name := text(other.LaunchConfigurationName); name != "" {
			out, err := p.scaling.DescribeLaunchConfigurations(ctx,
				&autoscaling.DescribeLaunchConfigurationsInput{LaunchConfigurationNames: []string{name}})
			if err != nil {
				return "", translate(err, "read launch configuration %s", name)
			}
			if slices.ContainsFunc(out.LaunchConfigurations, func(l scaling.LaunchConfiguration) bool { return text(l.ImageId) == image }) {
				return who, nil
			}
		}
		for _, s := range specifications(other) {
			if text(s.LaunchTemplateId) == "" {
				continue
			}
			v, err := p.describeVersion(ctx, text(s.LaunchTemplateId), cmp.Or(text(s.Version), byDefault), true)
			if errors.Is(err, kamino.ErrNotFound) {
				continue // it launches nothing
			} else if err != nil {
				return "", err
			}
			if text(v.LaunchTemplateData.ImageId) == image {
				return who, nil
			}
		}
	}
	return "", nil
}

// specifications are all templates that a group may launch from.
func specifications(g scaling.AutoScalingGroup) (out []*scaling.LaunchTemplateSpecification) {
	if s := specification(g); s != nil {
		out = append(out, s)
	}
	for _, o := range overrides(g.MixedInstancesPolicy) {
		if o.LaunchTemplateSpecification != nil {
			out = append(out, o.LaunchTemplateSpecification)
		}
	}
	return out
}

// allGroups are those of the Region, as they were not long ago.
func (p *Provider) allGroups(ctx context.Context) ([]scaling.AutoScalingGroup, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.all == nil || p.config.Clock.Now().Sub(p.listed) > sharedAge {
		if err := p.listGroups(ctx); err != nil {
			return nil, err
		}
	}
	return p.all, nil
}
