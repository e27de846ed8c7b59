package azure

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"

	"kamino.dev/kamino"
)

// place is where the artifacts of a pool live.
type place struct {
	*clients
	scaleSet
	gallery, definition, location string
}

func (p *Provider) place(pool kamino.Pool) (place, error) {
	v, err := parsePool(pool.ID)
	if err != nil {
		return place{}, err
	}
	v.name, v.group = pool.Name, pool.Group
	c, err := p.of(v.subscription)
	return place{c, v, pool.Gallery, kamino.DefinitionName(pool.Name), pool.Location}, err
}

// Address is the resource ID that an artifact has or will have.
func (p *Provider) Address(pool kamino.Pool, kind kamino.Kind, name string) string {
	v, err := parsePool(pool.ID)
	if err != nil {
		return ""
	}
	base := "/subscriptions/" + v.subscription + "/resourceGroups/" + pool.Group + "/providers/Microsoft.Compute/"
	switch kind {
	case kamino.KindGallery:
		return base + "galleries/" + pool.Gallery
	case kamino.KindDefinition:
		return base + "galleries/" + pool.Gallery + "/images/" + kamino.DefinitionName(pool.Name)
	case kamino.KindVersion:
		return base + "galleries/" + pool.Gallery + "/images/" + kamino.DefinitionName(pool.Name) + "/versions/" + name
	}
	return base + "snapshots/" + name
}

// Homes are a gallery, and in it an image definition.
func (p *Provider) Homes() []kamino.Kind {
	return []kamino.Kind{kamino.KindGallery, kamino.KindDefinition}
}

// Find reads artifacts. If they or their parents do not exist, it returns none
// and no error.
func (p *Provider) Find(ctx context.Context, pool kamino.Pool, kind kamino.Kind, name string) ([]kamino.Artifact, error) {
	at, err := p.place(pool)
	if err != nil {
		return nil, err
	}
	var found []kamino.Artifact
	switch kind {
	case kamino.KindGallery:
		found, err = p.findGallery(ctx, at)
	case kamino.KindDefinition:
		found, err = p.findDefinition(ctx, at)
	case kamino.KindSnapshot:
		found, err = p.findSnapshot(ctx, at, name)
	case kamino.KindVersion:
		if name == "" {
			return p.listVersions(ctx, at, pool)
		}
		found, err = p.findVersion(ctx, at, name)
	case kamino.KindParameter: // recipes refer to image definitions
		return nil, nil
	default:
		return nil, fmt.Errorf("find %s: %w", kind, kamino.ErrUnsupported)
	}
	if err = translate(err, "read %s %s", kind, name); errors.Is(err, kamino.ErrNotFound) {
		return nil, nil
	}
	for i := range found {
		found[i].OfFormer = pool.MadeOfFormer(found[i])
		if found[i].State == kamino.Failed {
			found[i].Failure = cmp.Or(p.whyFailed(ctx, found[i].ID), found[i].Failure)
		}
	}
	return found, err
}

// Create begins to make an artifact.
func (p *Provider) Create(ctx context.Context, pool kamino.Pool, want kamino.Artifact) error {
	at, model, err := p.modelled(pool)
	if err != nil {
		return err
	}
	id := p.Address(pool, want.Kind, want.Name)
	if want.Kind == kamino.KindSnapshot || want.Kind == kamino.KindVersion {
		want.Tags = pool.Identify(want.Tags)
	}
	switch want.Kind {
	case kamino.KindGallery:
		err = p.createGallery(ctx, at, id)
	case kamino.KindDefinition:
		err = p.createDefinition(ctx, at, model, id, want)
	case kamino.KindSnapshot:
		err = p.createSnapshot(ctx, at, model, id, want)
	case kamino.KindVersion:
		err = p.createVersion(ctx, at, model, pool, want)
	default:
		err = kamino.ErrUnsupported
	}
	return translate(err, "create %s %s", want.Kind, want.Name)
}

// Delete begins to delete an artifact.
func (p *Provider) Delete(ctx context.Context, pool kamino.Pool, a kamino.Artifact) error {
	at, err := p.place(pool)
	if err != nil {
		return err
	}
	id := p.Address(pool, a.Kind, a.Name)
	switch a.Kind {
	case kamino.KindSnapshot:
		poller, err := at.snapshots.BeginDelete(ctx, at.group, a.Name, nil)
		return p.deleting(poll(p, id, poller, err), a)
	case kamino.KindVersion:
		if err := p.unused(ctx, at, pool, a); err != nil {
			return err
		}
		poller, err := at.versions.BeginDelete(ctx, at.group, at.gallery, at.definition, a.Name, nil)
		return p.deleting(poll(p, id, poller, err), a)
	}
	return fmt.Errorf("delete %s %s: %w", a.Kind, a.Name, kamino.ErrUnsupported)
}

func (p *Provider) deleting(err error, a kamino.Artifact) error {
	if err = translate(err, "delete %s %s", a.Kind, a.Name); errors.Is(err, kamino.ErrNotFound) {
		return nil
	}
	return err
}

// poll remembers the poller of an operation that began well.
func poll[T any](p *Provider, id string, poller *runtime.Poller[T], err error) error {
	if err == nil {
		began(p, id, poller)
	}
	return err
}

// state maps a provisioning state. A version that is Updating (its replicas are
// changed, say) stays usable and counts as Succeeded: to take it for broken
// would delete an image in use.
func state(provisioning string, usableWhileUpdating bool) kamino.State {
	switch strings.ToLower(provisioning) {
	case "succeeded":
		return kamino.Succeeded
	case "failed", "canceled":
		return kamino.Failed
	case "deleting":
		return kamino.Deleting
	case "updating", "migrating":
		if usableWhileUpdating {
			return kamino.Succeeded
		}
	}
	return kamino.Creating
}
