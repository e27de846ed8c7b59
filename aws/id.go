package aws

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"regexp"
	"strings"

	"github.com/aws/aws-sdk-go-v2/service/autoscaling"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling/types"

	"kamino.dev/kamino"
)

// providerID is what the cloud provider of Kubernetes writes: aws:///ZONE/INSTANCE
// (https://github.com/kubernetes/cloud-provider-aws, pkg/providers/v1/instances.go).
var providerID = regexp.MustCompile(`^aws:///([a-z0-9-]*)/(i-[0-9a-f]{8,})$`)

func instanceID(id kamino.InstanceID) (string, error) {
	found := providerID.FindStringSubmatch(string(id))
	if found == nil {
		return "", fmt.Errorf("instance %q is no instance of EC2: %w", id, kamino.ErrUnsupported)
	}
	return found[2], nil
}

func nodeID(zone, instance string) kamino.InstanceID {
	return kamino.InstanceID("aws:///" + zone + "/" + instance)
}

func (p *Provider) poolID(group string) kamino.PoolID {
	return kamino.PoolID("aws:" + p.region + "/" + group)
}

// groupOf is the name of a pool's group.
func (p *Provider) groupOf(id kamino.PoolID) (string, error) {
	name, ok := strings.CutPrefix(string(id), string(p.poolID("")))
	if !ok || name == "" {
		return "", fmt.Errorf("pool %q is no Auto Scaling group in %s: %w", id, p.region, kamino.ErrUnsupported)
	}
	return name, nil
}

// PoolOf finds the group of an instance. An ID of EC2 does not name it: all groups are listed the
// first time, and again for an instance that is in none of those.
func (p *Provider) PoolOf(id kamino.InstanceID) (kamino.PoolID, error) {
	instance, err := instanceID(id)
	if err != nil {
		return "", err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.groups[instance] == "" {
		// The port has no context here: on other clouds the ID says it.
		if err := p.listGroups(context.Background()); err != nil {
			return "", err
		}
	}
	if group := p.groups[instance]; group != "" {
		return p.poolID(group), nil
	}
	return "", fmt.Errorf("instance %s is in no Auto Scaling group: %w", instance, kamino.ErrUnsupported)
}

// listGroups learns which instance is in which group. The caller holds the lock.
func (p *Provider) listGroups(ctx context.Context) error {
	pages := autoscaling.NewDescribeAutoScalingGroupsPaginator(p.scaling, &autoscaling.DescribeAutoScalingGroupsInput{})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return translate(err, "list Auto Scaling groups")
		}
		for _, g := range page.AutoScalingGroups {
			p.remember(g)
		}
	}
	return nil
}

func (p *Provider) remember(g types.AutoScalingGroup) {
	for _, in := range g.Instances {
		p.groups[text(in.InstanceId)] = text(g.AutoScalingGroupName)
	}
}

// digest is a short hash of what makes a thing what it is.
func digest(parts ...any) string {
	sum := sha256.Sum256(fmt.Append(nil, parts...))
	return hex.EncodeToString(sum[:16])
}

// vmID stands for the UUID that SMBIOS shows, which no call tells: the digits of the instance ID,
// filled with zeros. Instance IDs are never given twice.
func vmID(instance string) string {
	digits := strings.TrimPrefix(instance, "i-")
	return (digits + strings.Repeat("0", 32))[:32]
}
