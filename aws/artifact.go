package aws

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"kamino.dev/kamino"
)

// Tags by which what a pool made is found again.
const (
	tagVersion  = "kamino-version"  // name of the image version
	tagSnapshot = "kamino-snapshot" // name of the snapshot
	tagMachine  = "kamino-machine"  // on a snapshot: what an image made of it must say, see machine
	tagExcluded = "kamino-excluded" // on an image: it is not offered
)

// Find reads the snapshot of a pool or its images, newest first.
func (p *Provider) Find(ctx context.Context, pool kamino.Pool, kind kamino.Kind, name string) ([]kamino.Artifact, error) {
	switch kind {
	case kamino.KindVersion:
		return p.findVersions(ctx, pool, name)
	case kamino.KindSnapshot:
		return p.findSnapshots(ctx, pool, name)
	case kamino.KindParameter:
		return p.findParameter(ctx, pool)
	}
	return nil, nil
}

// findParameter finds the pool's parameter, whether or not its template names it.
func (p *Provider) findParameter(ctx context.Context, pool kamino.Pool) ([]kamino.Artifact, error) {
	name := p.ParameterName(pool)
	value, _, err := p.parameter(ctx, name)
	if errors.Is(err, kamino.ErrNotFound) {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	var now recipe
	if err := json.Unmarshal(pool.Model.Saved, &now); err != nil {
		return nil, fmt.Errorf("read the launch template of pool %s: %w", pool.Name, err)
	}
	return []kamino.Artifact{{Kind: kamino.KindParameter, Name: name, ID: name, State: kamino.Succeeded, Ready: true, Source: value,
		Use: kamino.Use{InModel: now.Parameter == name}}}, nil
}

// Create begins to make a snapshot or an image.
func (p *Provider) Create(ctx context.Context, pool kamino.Pool, a kamino.Artifact) error {
	switch a.Kind {
	case kamino.KindVersion:
		return p.createVersion(ctx, pool, a)
	case kamino.KindSnapshot:
		return p.createSnapshot(ctx, pool, a)
	}
	return fmt.Errorf("create %s %s: %w", a.Kind, a.Name, kamino.ErrUnsupported)
}

// Delete deletes the snapshot, or an image with the snapshots that nothing else is made of.
func (p *Provider) Delete(ctx context.Context, pool kamino.Pool, a kamino.Artifact) error {
	switch a.Kind {
	case kamino.KindVersion:
		return p.deleteVersion(ctx, pool, a)
	case kamino.KindSnapshot:
		return p.deleteSnapshots(ctx, pool, a)
	}
	return fmt.Errorf("delete %s %s: %w", a.Kind, a.Name, kamino.ErrUnsupported)
}

func tagsOut(list []types.Tag) map[string]string {
	tags := make(map[string]string, len(list))
	for _, t := range list {
		tags[text(t.Key)] = text(t.Value)
	}
	return tags
}

// tagsIn are in order: a client token goes with the same request only.
func tagsIn(tags ...map[string]string) []types.Tag {
	all := []types.Tag{}
	for _, some := range tags {
		for _, key := range slices.Sorted(maps.Keys(some)) {
			all = append(all, types.Tag{Key: &key, Value: sdk.String(some[key])})
		}
	}
	return all
}

// roomForStates is how many tags a version gets after it is made.
const roomForStates = 10

// ownTags are those of a thing that Kamino makes, with the tags that the group gives its instances,
// as far as there is room: organizations ask for tags such as CostCenter. Those of Kubernetes stay
// away: whoever deletes a cluster deletes by them.
func (g group) ownTags(tags ...map[string]string) map[string]string {
	all, theirs := map[string]string{}, map[string]string{}
	for _, some := range tags {
		maps.Copy(all, some)
	}
	for key, value := range g.instanceTags() {
		if _, own := all[key]; own || strings.HasPrefix(key, "kamino") || ofKubernetes(key) {
			continue
		}
		theirs[key] = value
	}
	keys := slices.Sorted(maps.Keys(theirs))
	for _, key := range keys[:min(len(keys), max(0, mostTags-roomForStates-len(all)))] {
		all[key] = theirs[key]
	}
	return all
}

// instanceTags are those that a group's instances get: of its template, and before these its own
// that are propagated
// (https://docs.aws.amazon.com/autoscaling/ec2/userguide/ec2-auto-scaling-tagging.html). Their name
// is another matter.
func (g group) instanceTags() map[string]string {
	all := map[string]string{}
	if g.data != nil {
		for _, spec := range g.data.TagSpecifications {
			if spec.ResourceType == types.ResourceTypeInstance {
				maps.Copy(all, tagsOut(spec.Tags))
			}
		}
	}
	for _, t := range g.Tags {
		if sdk.ToBool(t.PropagateAtLaunch) {
			all[text(t.Key)] = text(t.Value)
		}
	}
	maps.DeleteFunc(all, func(key, _ string) bool { return key == "Name" || strings.HasPrefix(key, "aws:") })
	return all
}

// ofKubernetes says whether a tag is one by which clusters find their own.
func ofKubernetes(key string) bool {
	return strings.Contains(key, "kubernetes.io/") || strings.Contains(key, "k8s.io/") || key == "KubernetesCluster"
}

func filter(name string, values ...string) types.Filter {
	return types.Filter{Name: &name, Values: values}
}

var strange = regexp.MustCompile(`[^A-Za-z0-9_.-]`)

// plain is a name in the characters that images and parameters may have; one that is changed gets a
// hash behind it.
func plain(name string) string {
	cut := strange.ReplaceAllString(name, "_")
	if len(cut) > 80 || cut != name {
		return cut[:min(len(cut), 80)] + "_" + digest(name)[:8]
	}
	return cut
}

// setTags writes the tags of a resource as they shall be, and removes those that are gone.
func (p *Provider) setTags(ctx context.Context, id string, was, want map[string]string) error {
	set, gone := map[string]string{}, []types.Tag{}
	for key, value := range want {
		if old, ok := was[key]; !ok || old != value {
			set[key] = value
		}
	}
	for key := range was {
		if _, ok := want[key]; !ok {
			gone = append(gone, types.Tag{Key: &key})
		}
	}
	if len(set) > 0 {
		if _, err := p.ec2.CreateTags(ctx, &ec2.CreateTagsInput{Resources: []string{id}, Tags: tagsIn(set)}); err != nil {
			return translate(err, "tag %s", id)
		}
	}
	if len(gone) > 0 {
		if _, err := p.ec2.DeleteTags(ctx, &ec2.DeleteTagsInput{Resources: []string{id}, Tags: gone}); err != nil {
			return translate(err, "remove tags of %s", id)
		}
	}
	return nil
}
