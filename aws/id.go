package aws

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"regexp"
	"strings"
	"time"

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
		return "", fmt.Errorf("instance %q is not an EC2 instance: %w", id, kamino.ErrUnsupported)
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
		return "", fmt.Errorf("pool %q is not an Auto Scaling group in %s: %w", id, p.region, kamino.ErrUnsupported)
	}
	return name, nil
}

// listAge is how old the list of all groups may be for an instance that is not in it: nodes that
// are in no group would each cost a list.
const listAge = 10 * time.Second

// PoolOf finds the group of an instance. An ID of EC2 does not name it: all groups are listed the
// first time, and again for an instance that is in none of those, but not within listAge.
func (p *Provider) PoolOf(ctx context.Context, id kamino.InstanceID) (kamino.PoolID, error) {
	instance, err := instanceID(id)
	if err != nil {
		return "", err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.groups[instance] == "" && p.config.Clock.Now().Sub(p.listed) > listAge {
		if err := p.listGroups(ctx); err != nil {
			return "", err
		}
	}
	if group := p.groups[instance]; group != "" {
		return p.poolID(group), nil
	}
	return "", fmt.Errorf("instance %s is in no Auto Scaling group: %w", instance, kamino.ErrUnsupported)
}

// listGroups learns all groups, and which instance is in which. The caller holds the lock.
func (p *Provider) listGroups(ctx context.Context) error {
	most, all := int32(100), []types.AutoScalingGroup{}
	err := translate(pages(func(token *string) (*string, error) {
		page, err := p.scaling.DescribeAutoScalingGroups(ctx, &autoscaling.DescribeAutoScalingGroupsInput{MaxRecords: &most,
			NextToken: token})
		if err != nil {
			return nil, err
		}
		for _, g := range page.AutoScalingGroups {
			p.remember(g)
			all = append(all, g)
			if seen := kamino.Seen(ctx); seen != nil {
				seen.Store(groupKey(text(g.AutoScalingGroupName)), &reading[types.AutoScalingGroup]{done: true, value: g})
			}
		}
		if seen := kamino.Seen(ctx); seen != nil && text(page.NextToken) == "" {
			seen.Store(wideKey, true)
		}
		return page.NextToken, nil
	}), "list Auto Scaling groups")
	if err == nil {
		p.listed, p.all = p.config.Clock.Now(), all
	}
	return err
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
