package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"kamino.dev/kamino"
)

// fakeCloud is a provider that is a table: what stands in it is found, what is
// written changes it at once. It counts what is written.
type fakeCloud struct {
	kamino.Prover // that has no canary: no test gets so far as to make one
	pools         map[kamino.PoolID]*kamino.Pool
	artifacts     map[string]*kamino.Artifact // by address
	instances     map[kamino.InstanceID]kamino.Instance
	fails         map[kamino.PoolID]error
	doubts        []kamino.Warning
	homeless      bool // versions live in nothing, as on AWS

	writes []string
}

const (
	fakeGroup   = "/subscriptions/00000000-0000-0000-0000-000000000001/resourceGroups/rg/providers/Microsoft.Compute/"
	fakeGallery = "SIG_rg"
	stock       = "Canonical:ubuntu:22_04-lts:latest"
)

func fakePool(name string) kamino.PoolID {
	return kamino.PoolID(fakeGroup + "virtualMachineScaleSets/" + name)
}

func newFakeCloud() *fakeCloud {
	return &fakeCloud{
		pools: map[kamino.PoolID]*kamino.Pool{}, artifacts: map[string]*kamino.Artifact{},
		instances: map[kamino.InstanceID]kamino.Instance{}, fails: map[kamino.PoolID]error{},
	}
}

func (c *fakeCloud) addPool(name string) *kamino.Pool {
	p := &kamino.Pool{
		ID: fakePool(name), Name: name, Group: "rg", Location: "westus2", Gallery: fakeGallery, Capacity: 3, Revision: "1",
		Model: kamino.Model{Image: stock, Extensions: []kamino.Extension{{Name: "vmssCSE"}, {Name: "AKSLinuxBilling"}}, Saved: []byte(`{"image":"` + stock + `"}`)},
	}
	c.pools[p.ID] = p
	return p
}

// put adds an artifact of a pool that Succeeded, with its parents.
func (c *fakeCloud) put(p *kamino.Pool, kind kamino.Kind, name string, tags map[string]string) *kamino.Artifact {
	if kind == kamino.KindVersion {
		c.put(p, kamino.KindDefinition, kamino.DefinitionName(p.Name), nil)
	}
	if kind == kamino.KindDefinition {
		c.put(p, kamino.KindGallery, fakeGallery, nil)
	}
	a := &kamino.Artifact{Kind: kind, Name: name, ID: c.Address(*p, kind, name), State: kamino.Succeeded, Ready: true, Tags: tags}
	if kind == kamino.KindDefinition {
		a.Generation, a.Architecture, a.SecurityType = "V2", "x64", "Standard"
	}
	if c.artifacts[a.ID] == nil {
		c.artifacts[a.ID] = a
	}
	return c.artifacts[a.ID]
}

func (c *fakeCloud) PoolOf(_ context.Context, id kamino.InstanceID) (kamino.PoolID, error) {
	pool, _, ok := strings.Cut(strings.TrimPrefix(string(id), "azure://"), "/virtualMachines/")
	if !ok {
		return "", fmt.Errorf("instance %q: %w", id, kamino.ErrUnsupported)
	}
	return kamino.PoolID(pool), nil
}

func (c *fakeCloud) Pool(_ context.Context, id kamino.PoolID) (kamino.Pool, error) {
	if err := c.fails[id]; err != nil {
		return kamino.Pool{}, err
	}
	if p := c.pools[id]; p != nil {
		return *p, nil
	}
	return kamino.Pool{}, fmt.Errorf("scale set %s: %w", id.Name(), kamino.ErrNotFound)
}

func (c *fakeCloud) Instance(_ context.Context, id kamino.InstanceID) (kamino.Instance, error) {
	if in, ok := c.instances[id]; ok {
		return in, nil
	}
	return kamino.Instance{}, fmt.Errorf("instance %s: %w", id, kamino.ErrNotFound)
}

func (c *fakeCloud) Address(pool kamino.Pool, kind kamino.Kind, name string) string {
	switch kind {
	case kamino.KindGallery:
		return fakeGroup + "galleries/" + fakeGallery
	case kamino.KindDefinition:
		return fakeGroup + "galleries/" + fakeGallery + "/images/" + name
	case kamino.KindVersion:
		return fakeGroup + "galleries/" + fakeGallery + "/images/" + kamino.DefinitionName(pool.Name) + "/versions/" + name
	}
	return fakeGroup + "snapshots/" + name
}

func (c *fakeCloud) Find(_ context.Context, pool kamino.Pool, kind kamino.Kind, name string) ([]kamino.Artifact, error) {
	if name != "" {
		if a := c.artifacts[c.Address(pool, kind, name)]; a != nil {
			return []kamino.Artifact{c.used(pool, *a)}, nil
		}
		return nil, nil
	}
	var out []kamino.Artifact
	for id, a := range c.artifacts {
		if a.Kind == kind && strings.HasPrefix(id, c.Address(pool, kamino.KindDefinition, kamino.DefinitionName(pool.Name))+"/") {
			out = append(out, c.used(pool, *a))
		}
	}
	slices.SortFunc(out, func(a, b kamino.Artifact) int { return kamino.CompareVersions(b.Name, a.Name) })
	return out, nil
}

func (c *fakeCloud) used(pool kamino.Pool, a kamino.Artifact) kamino.Artifact {
	a.Tags = maps.Clone(a.Tags)
	a.InModel = c.pools[pool.ID].Model.Image == a.ID
	for _, in := range c.instances {
		if in.Image == a.ID {
			a.Instances++
		}
	}
	return a
}

func (c *fakeCloud) wrote(format string, args ...any) {
	c.writes = append(c.writes, fmt.Sprintf(format, args...))
}

func (c *fakeCloud) SetPower(_ context.Context, id kamino.InstanceID, p kamino.Power) error {
	c.wrote("power %s of %s", p, id)
	return nil
}

func (c *fakeCloud) Create(_ context.Context, pool kamino.Pool, a kamino.Artifact) error {
	c.wrote("create %s %s", a.Kind, a.Name)
	return nil
}

func (c *fakeCloud) Delete(_ context.Context, pool kamino.Pool, a kamino.Artifact) error {
	c.wrote("delete %s %s", a.Kind, a.Name)
	delete(c.artifacts, a.ID)
	return nil
}

func (c *fakeCloud) SetTags(_ context.Context, _ kamino.Pool, a kamino.Artifact) error {
	c.wrote("tags of %s %s: %v", a.Kind, a.Name, a.Tags)
	c.artifacts[a.ID].Tags = a.Tags
	return nil
}

func (c *fakeCloud) Withdraw(_ context.Context, pool kamino.Pool, version string, bad kamino.Bad) error {
	a := c.artifacts[c.Address(pool, kamino.KindVersion, version)]
	*a = kamino.ParseVersion(*a).Withdrawn(bad).Artifact
	c.wrote("version %s excluded: %t", a.Name, a.Excluded)
	return nil
}

func (c *fakeCloud) NextImage(_ context.Context, pool kamino.Pool, want kamino.Target) (next kamino.NextImage, err error) {
	now, former := c.pools[pool.ID], len(want.Former) > 0
	next.NeedsCustomData = former && want.Secrets.CustomData == nil
	next.Image = c.Address(pool, kamino.KindVersion, want.Version)
	if former {
		next.Image = stock
	}
	if next.Image != now.Model.Image {
		next.Diff = append(next.Diff, kamino.FieldChange{Field: "imageReference", From: now.Model.Image, To: next.Image})
	}
	if had := len(now.Model.Extensions) > 1; had != former {
		names := []string{"AKSLinuxBilling", "vmssCSE, AKSLinuxBilling"}
		if had {
			slices.Reverse(names)
		}
		next.Diff = append(next.Diff, kamino.FieldChange{Field: "extensions", From: names[0], To: names[1]})
	}
	return next, nil
}

func (c *fakeCloud) Promote(ctx context.Context, pool kamino.Pool, want kamino.Target) error {
	next, err := c.NextImage(ctx, pool, want)
	if len(next.Diff) == 0 && want.Offers() {
		a := c.artifacts[want.Seen.ID]
		*a = kamino.ParseVersion(*a).Offered().Artifact
		c.wrote("version %s excluded: %t", a.Name, a.Excluded)
	}
	if now := c.pools[pool.ID]; len(next.Diff) > 0 {
		c.wrote("model of %s: %s", pool.Name, next.Image)
		now.Model.Image, now.Revision = next.Image, now.Revision+"x"
		now.Model.Extensions = []kamino.Extension{{Name: "AKSLinuxBilling"}}
		if next.Image == stock {
			now.Model.Extensions = append(now.Model.Extensions, kamino.Extension{Name: "vmssCSE"})
		}
	}
	return err
}

func (c *fakeCloud) SetCapacity(_ context.Context, pool kamino.Pool, n int) error {
	c.wrote("capacity of %s: %d", pool.Name, n)
	return nil
}

func (c *fakeCloud) Preflight(context.Context) ([]kamino.Warning, error) { return c.doubts, nil }

func (c *fakeCloud) Fit(context.Context, kamino.Pool, kamino.Instance, *kamino.Artifact) ([]kamino.Refusal, []kamino.Warning, error) {
	return nil, nil, nil
}

func (c *fakeCloud) Instances(_ context.Context, pool kamino.Pool) ([]kamino.InstanceID, error) {
	var out []kamino.InstanceID
	for id := range c.instances {
		if of, err := c.PoolOf(context.Background(), id); err == nil && of == pool.ID {
			out = append(out, id)
		}
	}
	return out, nil
}

func (c *fakeCloud) Homes() []kamino.Kind {
	if c.homeless {
		return nil
	}
	return []kamino.Kind{kamino.KindGallery, kamino.KindDefinition}
}

func (*fakeCloud) Canaries(context.Context, kamino.Pool) ([]kamino.Canary, error) { return nil, nil }

func (*fakeCloud) CanaryFit(context.Context, kamino.Pool) (kamino.CanaryFit, error) {
	return kamino.CanaryFit{Size: "Standard_D2s_v3"}, nil
}

func (*fakeCloud) CanaryRights() string { return "docs/azure-role-canary.json" }

func (*fakeCloud) PreflightCanary(context.Context) ([]kamino.Warning, error) { return nil, nil }
