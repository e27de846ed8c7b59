package aws

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"kamino.dev/kamino"
)

var _ kamino.Prover = (*Provider)(nil)

// consoleLines is how many lines of a console are evidence.
const consoleLines = 100

// tagCanaryName is on a canary: its name.
const tagCanaryName = "kamino-canary-name"

// blockedCodes are refusals of a launch that say nothing of the image.
var blockedCodes = []string{"InsufficientInstanceCapacity", "InstanceLimitExceeded", "VcpuLimitExceeded", "MaxSpotInstanceCountExceeded",
	"InsufficientFreeAddressesInSubnet", "Unsupported"}

// CanaryFit reports what a canary would be, and refuses one that cannot be kept free of other
// pods.
func (p *Provider) CanaryFit(ctx context.Context, pool kamino.Pool) (kamino.CanaryFit, error) {
	g, err := p.read(ctx, pool.ID)
	if err != nil {
		return kamino.CanaryFit{}, err
	}
	if g.data == nil {
		return kamino.CanaryFit{Refusals: pool.Refusals}, nil
	}
	fit := g.fit()
	if len(fit.Refusals) > 0 || g.recipe.means() == "" {
		return fit, nil
	}
	refusal, err := p.refuseRights(ctx, g, pool)
	if refusal != nil {
		fit.Refusals = append(fit.Refusals, *refusal)
	}
	return fit, err
}

func (g group) fit() kamino.CanaryFit {
	fit := kamino.CanaryFit{Size: g.size()}
	// RunInstances takes no template that has them
	// (https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_RequestLaunchTemplateData.html).
	if g.data.InstanceRequirements != nil || fit.Size == "" {
		fit.Refusals = append(fit.Refusals, kamino.Refusal{Code: "canary-type", Field: "InstanceRequirements",
			Why: "the group chooses instance types by attributes: a single instance cannot be launched so",
			Do:  "name a type in the launch template, and the attributes in the group"})
		return fit
	}
	// A request names one subnet of the group, and EC2 refuses one of another zone than the
	// template's (unverified).
	if zone := g.zone(); zone != "" && len(g.subnets()) > 1 {
		fit.Refusals = append(fit.Refusals, kamino.Refusal{Code: "canary-zone", Field: "Placement.AvailabilityZone", Value: zone,
			Why: "the template names a zone, and the group has more than one subnet: it is not known which of them is in that zone",
			Do:  "omit the zone in the template, as a group launches where its subnets are"})
		return fit
	}
	_, fit.LeftOut = g.canaryTags()
	if _, refusal := taintedUserData(text(g.data.UserData), strings.Repeat("0", 64)); refusal != nil {
		fit.Refusals = append(fit.Refusals, *refusal)
	}
	return fit
}

// size is the type of a canary: the first of a mixed policy, else the template's, else, where the
// group chooses types by attributes, that of an instance it has; "" without one.
func (g group) size() string {
	for _, o := range overrides(g.MixedInstancesPolicy) {
		if text(o.InstanceType) != "" {
			return *o.InstanceType
		}
	}
	if g.data.InstanceType == "" {
		for _, m := range g.Instances {
			if text(m.InstanceType) != "" {
				return *m.InstanceType
			}
		}
	}
	return string(g.data.InstanceType)
}

// Canaries lists them by tag, without terminated ones.
func (p *Provider) Canaries(ctx context.Context, pool kamino.Pool) ([]kamino.Canary, error) {
	all, err := once(ctx, "canaries", func() ([]types.Instance, error) { return p.canaries(ctx, filter("tag-key", tagCanaryName)) })
	if err != nil {
		return nil, err
	}
	found := []kamino.Canary{}
	for _, in := range all {
		if tagOf(in.Tags, kamino.TagPool) == pool.Name {
			c := canary(in)
			found = append(found, c)
			p.known.launches(pool, c.Name, launched{instance: text(in.InstanceId)})
		}
	}
	return found, nil
}

func (p *Provider) canaries(ctx context.Context, filters ...types.Filter) (found []types.Instance, err error) {
	alive := filter("instance-state-name", "pending", "running", "stopping", "stopped", "shutting-down")
	found, err = p.instances(ctx, append(filters, alive)...)
	return found, translate(err, "list canaries")
}

func canary(in types.Instance) kamino.Canary {
	name, zone := text(in.InstanceId), ""
	if in.Placement != nil {
		zone = text(in.Placement.AvailabilityZone)
	}
	expires, _ := time.Parse(time.RFC3339, tagOf(in.Tags, kamino.TagExpires)) // the zero time: anybody may remove it
	c := kamino.Canary{Name: tagOf(in.Tags, tagCanaryName), Version: text(in.ImageId), Run: tagOf(in.Tags, kamino.TagRun), Expires: expires,
		State:    kamino.Creating,
		Instance: nodeID(zone, name), Hostname: text(in.PrivateDnsName), Power: power(in.State.Name), Zone: zone}
	switch in.State.Name {
	case types.InstanceStateNameRunning:
		c.State = kamino.Succeeded
	case types.InstanceStateNameShuttingDown:
		c.State = kamino.Deleting
	case types.InstanceStateNameStopped, types.InstanceStateNameStopping:
		c.State = kamino.Failed
		if in.StateReason != nil {
			c.Failure = kamino.Plain(text(in.StateReason.Code) + ": " + text(in.StateReason.Message))
			c.Blocked = notTheImage(text(in.StateReason.Code))
		}
	}
	return c
}

// notTheImage says whether an instance ended for a reason that its disk has no part in: EC2's own,
// or somebody who stopped it
// (https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_StateReason.html).
func notTheImage(reason string) bool {
	return strings.HasPrefix(reason, "Server.") || strings.HasPrefix(reason, "Client.UserInitiated")
}

// LaunchCanary runs one instance of the group's template outside the group, with the hidden image.
// The client token is of the order: EC2 launches one of it, also after an answer that was lost.
func (p *Provider) LaunchCanary(ctx context.Context, pool kamino.Pool, order kamino.CanaryOrder) error {
	there, err := p.canaries(ctx, filter("tag:"+tagCanaryName, order.Name))
	if err != nil {
		return err
	}
	for _, in := range there {
		if c := canary(in); c.Run != order.Run || c.Version != order.Version {
			return fmt.Errorf("launch canary %s: it exists, of run %q with image %s: %w", order.Name, c.Run, c.Version, kamino.ErrConflict)
		}
	}
	if len(there) > 0 {
		return nil
	}
	g, err := p.read(ctx, pool.ID)
	if err != nil {
		return err
	}
	if g.data == nil {
		return fmt.Errorf("launch canary %s: pool %s has no launch template: %w", order.Name, pool.Name, kamino.ErrUnsupported)
	}
	user, refusal := taintedUserData(text(g.data.UserData), order.Nonce)
	if refusal != nil {
		return fmt.Errorf("launch canary %s: %s: %w", order.Name, refusal.Why, kamino.ErrUnsupported)
	}
	out, err := p.ec2.RunInstances(ctx, p.canaryInput(g, pool, order, user))
	switch {
	case err == nil && len(out.Instances) == 1:
		p.known.launches(pool, order.Name, launched{text(out.Instances[0].InstanceId), p.config.Clock.Now()})
	case hasCode(err, blockedCodes...):
		return fmt.Errorf("launch canary %s: %w: %w", order.Name, kamino.ErrBlocked, classify(err))
	case hasCode(err, "IdempotentParameterMismatch"): // its tags are not found yet
		return fmt.Errorf("launch canary %s: %w", order.Name, kamino.ErrInProgress)
	}
	return translate(err, "launch canary %s", order.Name)
}

// canaryInput has the tags that the group would propagate: the cluster is known by them.
func (p *Provider) canaryInput(g group, pool kamino.Pool, order kamino.CanaryOrder, user string) *ec2.RunInstancesInput {
	tags, _ := g.canaryTags()
	tags["Name"] = order.Name
	own := map[string]string{tagCanaryName: order.Name, kamino.TagCanary: order.Version, kamino.TagPool: pool.Name,
		kamino.TagRun: order.Run, kamino.TagNonce: order.Nonce,
		kamino.TagExpires: order.Expires.UTC().Format(time.RFC3339)}
	one := int32(1)
	input := &ec2.RunInstancesInput{
		LaunchTemplate: &types.LaunchTemplateSpecification{LaunchTemplateId: &g.recipe.Template,
			Version: sdk.String(fmt.Sprint(g.recipe.Version))},
		ImageId: &order.Version, InstanceType: types.InstanceType(g.size()), MinCount: &one, MaxCount: &one, UserData: &user,
		ClientToken: sdk.String(digest(order.Name, order.Run, order.Version)),
		// A group terminates what is protected so all the same, and TerminateInstances does not.
		DisableApiTermination: sdk.Bool(false),
		TagSpecifications:     []types.TagSpecification{{ResourceType: types.ResourceTypeInstance, Tags: tagsIn(tags, own)}},
	}
	for _, spec := range g.data.TagSpecifications { // those of its volumes; that a request replaces the template's whole is unverified
		if spec.ResourceType != types.ResourceTypeInstance {
			input.TagSpecifications = append(input.TagSpecifications,
				types.TagSpecification{ResourceType: spec.ResourceType, Tags: spec.Tags})
		}
	}
	if subnet := g.canarySubnet(order.Run); subnet != "" {
		if input.NetworkInterfaces = interfacesIn(subnet, g.data.NetworkInterfaces); len(input.NetworkInterfaces) == 0 {
			input.SubnetId = &subnet
		}
	}
	return input
}

// zone is what the template names; "" for none.
func (g group) zone() string {
	if g.data.Placement == nil {
		return ""
	}
	return cmp.Or(text(g.data.Placement.AvailabilityZone), text(g.data.Placement.AvailabilityZoneId))
}

func (g group) subnets() []string {
	return strings.FieldsFunc(text(g.VPCZoneIdentifier), func(r rune) bool { return r == ',' || r == ' ' })
}

// canarySubnet is another one for each run: of a zone that has no capacity, or not the canary's
// type, every proof would be inconclusive. "" where the group has the default VPC's.
func (g group) canarySubnet(run string) string {
	all := g.subnets()
	if len(all) == 0 {
		return ""
	}
	sum := sha256.Sum256([]byte(run))
	return all[binary.BigEndian.Uint32(sum[:])%uint32(len(all))]
}

// mostTags is how many tags a resource may have
// (https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/Using_Tags.html#tag-restrictions).
const mostTags = 50

// canaryTags are those that a group gives its instances, as far as there is room beside a canary's
// own, and what is left out. By those of Kubernetes a node finds its cluster: they come first.
func (g group) canaryTags() (tags map[string]string, left []string) {
	all := g.instanceTags()
	maps.DeleteFunc(all, func(key, _ string) bool { return slices.Contains(canaryTags, key) })
	keys := slices.Collect(maps.Keys(all))
	clusters := func(key string) int {
		if ofKubernetes(key) {
			return 0
		}
		return 1
	}
	slices.SortFunc(keys, func(a, b string) int { return cmp.Or(clusters(a)-clusters(b), cmp.Compare(a, b)) })
	room := mostTags - len(canaryTags) - 1 // and its name
	for i, key := range keys {
		if i >= room {
			left = append(left, "tag "+key)
			delete(all, key)
		}
	}
	return all, left
}

// canaryTags are the tags of a canary alone.
var canaryTags = []string{tagCanaryName, kamino.TagCanary, kamino.TagPool, kamino.TagRun, kamino.TagNonce, kamino.TagExpires}

// interfacesIn are a template's network interfaces, with the group's subnet for those that have
// none: a group fills that in, and RunInstances refuses a subnet beside interfaces
// (https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_RunInstances.html). Without one EC2
// takes the default VPC. That those of the request replace the template's is unverified.
func interfacesIn(
	subnet string, template []types.LaunchTemplateInstanceNetworkInterfaceSpecification,
) (out []types.InstanceNetworkInterfaceSpecification) {
	for _, t := range template {
		own := types.InstanceNetworkInterfaceSpecification{
			AssociateCarrierIpAddress: t.AssociateCarrierIpAddress, AssociatePublicIpAddress: t.AssociatePublicIpAddress,
			DeleteOnTermination: t.DeleteOnTermination,
			Description:         t.Description, DeviceIndex: t.DeviceIndex, Groups: t.Groups, InterfaceType: t.InterfaceType,
			Ipv4PrefixCount:  t.Ipv4PrefixCount,
			Ipv6AddressCount: t.Ipv6AddressCount, Ipv6PrefixCount: t.Ipv6PrefixCount, NetworkCardIndex: t.NetworkCardIndex,
			PrimaryIpv6:                    t.PrimaryIpv6,
			SecondaryPrivateIpAddressCount: t.SecondaryPrivateIpAddressCount, SubnetId: t.SubnetId,
		}
		if text(own.SubnetId) == "" {
			own.SubnetId = &subnet
		}
		out = append(out, own)
	}
	return out
}

// RemoveCanary terminates a canary of the pool: the instance that this process launched or met by
// its name last, and else, as lists lag, what is listed by it now. Of several of a name one goes at
// a time: whoever removes canaries lists them until there are none.
func (p *Provider) RemoveCanary(ctx context.Context, pool kamino.Pool, name string) error {
	if !strings.HasPrefix(name, "kamino-") {
		return fmt.Errorf("remove canary %s: not the name of a canary: %w", name, kamino.ErrConflict)
	}
	met := p.known.canaryOf(pool, name)
	ids := []string{met.instance}
	if met.instance == "" {
		var err error
		if ids, err = p.canaryInstances(ctx, pool, name); err != nil || len(ids) == 0 {
			return err
		}
	}
	_, err := p.ec2.TerminateInstances(ctx, &ec2.TerminateInstancesInput{InstanceIds: ids})
	err = translate(err, "remove canary %s", name)
	if errors.Is(err, kamino.ErrNotFound) && p.config.Clock.Now().Sub(met.at) < shownWithin { // not shown yet is not gone
		return fmt.Errorf("canary %s was launched at %s and is not shown yet: %w", name, met.at.UTC().Format(time.RFC3339),
			kamino.ErrInProgress)
	}
	if err == nil || errors.Is(err, kamino.ErrNotFound) {
		p.known.terminates(pool, name)
		return nil
	}
	return err
}

// canaryInstances are those listed by a canary's name.
func (p *Provider) canaryInstances(ctx context.Context, pool kamino.Pool, name string) (ids []string, err error) {
	there, err := p.canaries(ctx, filter("tag:"+tagCanaryName, name))
	for _, in := range there {
		if tagOf(in.Tags, kamino.TagPool) != pool.Name {
			return nil, fmt.Errorf("remove canary %s: it is of pool %s: %w", name, tagOf(in.Tags, kamino.TagPool), kamino.ErrConflict)
		}
		ids = append(ids, text(in.InstanceId))
	}
	return ids, err
}

// CanaryRights is the policy beside the first.
func (*Provider) CanaryRights() string { return "docs/aws-policy-canary.json" }

// PreflightCanary implements kamino.Prover. CanaryFit tries the rights of a canary: policies are
// narrowed to launches by the pool's template.
func (*Provider) PreflightCanary(context.Context) ([]kamino.Warning, error) { return nil, nil }

// refuseRights tries by a dry run to launch a canary from the pool's present image. Whether a
// canary may be terminated cannot be tried before there is one.
func (p *Provider) refuseRights(ctx context.Context, g group, pool kamino.Pool) (*kamino.Refusal, error) {
	err := p.rights(ctx, "rights of a canary", pool, func() error {
		input := p.canaryInput(g, pool, kamino.CanaryOrder{Name: "kamino-preflight", Version: g.recipe.means(), Run: "preflight"},
			text(g.data.UserData))
		input.DryRun, input.ClientToken = sdk.Bool(true), nil
		return p.tryAll(ctx, []dryRun{{"ec2:RunInstances",
			func(ctx context.Context, c ec2Calls) error { return tried(c.RunInstances(ctx, input)) }}})
	})
	if errors.Is(err, kamino.ErrForbidden) {
		return &kamino.Refusal{Code: "canary-rights", Field: "ec2:RunInstances", Why: err.Error(), Do: "grant the rights of " +
			p.CanaryRights() + ", with the role of the nodes in it"}, nil
	}
	return nil, err
}

// Console reads what EC2 keeps of a canary's serial console, the last lines of 64 KB at most. It
// may be minutes old (https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/instance-console.html).
func (p *Provider) Console(ctx context.Context, _ kamino.Pool, c kamino.Canary) ([]string, error) {
	name, err := instanceID(c.Instance)
	if err != nil {
		return nil, err
	}
	out, err := p.ec2.GetConsoleOutput(ctx, &ec2.GetConsoleOutputInput{InstanceId: &name})
	if err != nil {
		return nil, translate(err, "read the console of canary %s", c.Name)
	}
	raw, err := base64.StdEncoding.DecodeString(text(out.Output))
	if err != nil {
		return nil, fmt.Errorf("read the console of canary %s: %w", c.Name, err)
	}
	lines := strings.Split(strings.TrimRight(string(raw), "\n"), "\n")
	return lines[max(0, len(lines)-consoleLines):], nil
}
