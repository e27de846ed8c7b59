package aws

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"

	"kamino.dev/kamino"
)

// Whether a version is offered stands in its tags alone: EC2 has no "latest" that one could be kept
// out of. What a pool that names a parameter boots from is the parameter's value.

// offer marks a version as offered, if it still is as it was seen.
func (p *Provider) offer(ctx context.Context, pool kamino.Pool, seen kamino.Version) error {
	return p.writeVersion(ctx, pool, seen.Name, func(have kamino.Version) (kamino.Version, error) {
		return have.Offered(), sameOffer(have, seen)
	})
}

// unchanged looks whether a version still is as it was seen.
func (p *Provider) unchanged(ctx context.Context, pool kamino.Pool, seen kamino.Version) error {
	im, err := p.image(ctx, pool, seen.Name)
	if err != nil {
		return err
	}
	return sameOffer(kamino.ParseVersion(versionArtifact(im)), seen)
}

func sameOffer(have, seen kamino.Version) error {
	if have.SameOffer(seen) {
		return nil
	}
	return fmt.Errorf("version %s was changed meanwhile: %w", have.Name, kamino.ErrConflict)
}

// Withdraw marks a version as withdrawn. Where the pool names a parameter that holds it, the newest
// older version that is good, has a receipt and is for the same machines goes there first; ErrInUse
// where there is none.
func (p *Provider) Withdraw(ctx context.Context, pool kamino.Pool, version string, bad kamino.Bad) error {
	im, err := p.image(ctx, pool, version)
	if err != nil {
		return err
	}
	fresh, err := p.Pool(ctx, pool.ID)
	if err != nil {
		return err
	}
	var now recipe
	if len(fresh.Model.Saved) > 0 && json.Unmarshal(fresh.Model.Saved, &now) == nil && now.Parameter != "" &&
		now.Value == text(im.ImageId) {
		if now.Value, err = p.successor(ctx, fresh, versionArtifact(im)); err != nil {
			return err
		}
		if _, _, err := p.unchangedPool(ctx, fresh); err != nil { // the parameter takes no condition: the read in its place comes last
			return fmt.Errorf("withdraw version %s: %w", version, err)
		}
		if err := p.point(ctx, now); err != nil {
			return err
		}
	}
	return p.writeVersion(ctx, pool, version, func(have kamino.Version) (kamino.Version, error) { return have.Withdrawn(bad), nil })
}

// successor is the image that a pool's parameter gets when a version is withdrawn: never a newer
// one, which nobody may have chosen yet.
func (p *Provider) successor(ctx context.Context, pool kamino.Pool, withdrawn kamino.Artifact) (string, error) {
	versions, err := p.findVersions(ctx, pool, "")
	if err != nil {
		return "", err
	}
	for _, v := range kamino.ParseVersions(versions) {
		if kamino.CompareVersions(v.Name, withdrawn.Name) < 0 && v.Ready && !v.OfFormer && !v.Withheld() && v.Receipt != "" &&
			v.Machine.Unlike(withdrawn.Machine) == "" {
			return v.ID, nil
		}
	}
	return "", fmt.Errorf("no version before %s can take its place in the parameter of pool %s: %w", withdrawn.Name,
		pool.Name, kamino.ErrInUse)
}

// SetTags writes the tags of a version.
func (p *Provider) SetTags(ctx context.Context, pool kamino.Pool, a kamino.Artifact) error {
	if a.Kind != kamino.KindVersion {
		return fmt.Errorf("write the tags of %s %s: %w", a.Kind, a.Name, kamino.ErrUnsupported)
	}
	return p.writeVersion(ctx, pool, a.Name, func(have kamino.Version) (kamino.Version,
		error) {
		return have.Retagged(kamino.ParseVersion(a))
	})
}

// writeVersion changes tags of an image, and whether it is excluded, by what a fresh read shows.
// The tags by which it is found stay.
func (p *Provider) writeVersion(ctx context.Context, pool kamino.Pool, version string,
	change func(kamino.Version) (kamino.Version, error)) error {
	im, err := p.image(ctx, pool, version)
	if err != nil {
		return err
	}
	have := kamino.ParseVersion(versionArtifact(im))
	want, err := change(have)
	if err != nil {
		return err
	}
	tags := map[string]string{}
	maps.Copy(tags, want.Tags)
	delete(tags, tagExcluded)
	if want.Excluded {
		tags[tagExcluded] = "true"
	}
	tags[kamino.TagPool], tags[tagVersion] = pool.Name, version
	return p.setTags(ctx, text(im.ImageId), have.Tags, tags)
}
