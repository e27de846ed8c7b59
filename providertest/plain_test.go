package providertest_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"kamino.dev/kamino"
	"kamino.dev/kamino/providertest"
)

// plain is a cloud as unlike Azure as the port allows: image versions stand by themselves, no write
// carries a condition, the factory replaces what is off and is not held, and no call tells a VM.
// What is begun is done at once.
type plain struct {
	pool      kamino.Pool
	instances map[kamino.InstanceID]kamino.Instance
	off       map[kamino.InstanceID]time.Duration // for how long
	made      map[string]kamino.Artifact          // by kind and name
	passed    time.Duration
	held      map[kamino.InstanceID]bool
}

// TestPlainCloud: the contract fits a cloud of another kind, too.
func TestPlainCloud(t *testing.T) {
	providertest.Run(t, func(*testing.T) providertest.World {
		p := &plain{instances: map[kamino.InstanceID]kamino.Instance{}, off: map[kamino.InstanceID]time.Duration{}, made: map[string]kamino.Artifact{}, held: map[kamino.InstanceID]bool{},
			pool: kamino.Pool{ID: "plain/blue", Name: "blue", Location: "here", Capacity: 1, Model: kamino.Model{Image: "stock", Saved: json.RawMessage(`"stock"`)}}}
		return providertest.World{Provider: p, Donor: p.boot(1), Pass: p.pass, Unconditional: true, Replaces: true}
	})
}

// boot makes an instance.
func (p *plain) boot(n int) kamino.InstanceID {
	id := kamino.InstanceID(fmt.Sprintf("plain/blue/%d", n))
	p.instances[id] = kamino.Instance{ID: id, Pool: p.pool.ID, Power: kamino.PowerOn,
		Disk: fmt.Sprint("disk-", n), Image: p.pool.Model.Image}
	return id
}

// pass replaces what is off for ten minutes.
func (p *plain) pass(d time.Duration) {
	p.passed += d
	for id, in := range p.instances {
		if p.off[id] += d; in.Power == kamino.PowerOff && !p.held[id] && p.off[id] >= 10*time.Minute {
			delete(p.instances, id)
			p.boot(100 + len(p.off))
		}
	}
}

func (p *plain) PoolOf(_ context.Context, id kamino.InstanceID) (kamino.PoolID, error) {
	if !strings.HasPrefix(string(id), "plain/blue/") {
		return "", fmt.Errorf("instance %q: %w", id, kamino.ErrUnsupported)
	}
	return p.pool.ID, nil
}

func (p *plain) Pool(ctx context.Context, id kamino.PoolID) (kamino.Pool, error) {
	if id != p.pool.ID {
		return kamino.Pool{}, fmt.Errorf("pool %s: %w", id, kamino.ErrNotFound)
	}
	return p.pool, ctx.Err()
}

func (p *plain) Instance(ctx context.Context, id kamino.InstanceID) (kamino.Instance, error) {
	in, ok := p.instances[id]
	if !ok {
		return in, fmt.Errorf("instance %s: %w", id, kamino.ErrNotFound)
	}
	return in, ctx.Err()
}

func (p *plain) Instances(ctx context.Context, pool kamino.Pool) ([]kamino.InstanceID, error) {
	if pool.ID != p.pool.ID {
		return nil, fmt.Errorf("list instances of pool %s: %w", pool.Name, kamino.ErrUnavailable)
	}
	return slices.Collect(maps.Keys(p.instances)), ctx.Err()
}

func (p *plain) SetPower(ctx context.Context, id kamino.InstanceID, want kamino.Power) error {
	in, err := p.Instance(ctx, id)
	if err == nil {
		in.Power, p.off[id] = want, 0
		p.instances[id] = in
	}
	return err
}

func (p *plain) Holding(ctx context.Context, _ kamino.Pool, id kamino.InstanceID) (kamino.Holding, error) {
	if _, err := p.Instance(ctx, id); err != nil || !p.held[id] {
		return kamino.InService, err
	}
	return kamino.Held, nil
}

func (p *plain) Hold(ctx context.Context, _ kamino.Pool, id kamino.InstanceID) error {
	p.held[id] = true
	return ctx.Err()
}

func (p *plain) Release(ctx context.Context, _ kamino.Pool, id kamino.InstanceID) error {
	if p.instances[id].Power != kamino.PowerOn {
		return fmt.Errorf("release %s: %w", id, kamino.ErrInProgress)
	}
	p.held[id] = false
	return ctx.Err()
}

func (p *plain) Lost(kamino.Pool, kamino.InstanceID) kamino.Warning { return kamino.Warning{} }

func (p *plain) Homes() []kamino.Kind { return nil }

func (p *plain) Find(ctx context.Context, _ kamino.Pool, kind kamino.Kind, name string) (found []kamino.Artifact, err error) {
	for _, a := range p.made {
		if a.Kind == kind && (name == "" || a.Name == name) {
			a.InModel = p.pool.Model.Image == a.ID
			found = append(found, a)
		}
	}
	slices.SortFunc(found, func(a, b kamino.Artifact) int { return kamino.CompareVersions(b.Name, a.Name) })
	return found, ctx.Err()
}

func (p *plain) Create(ctx context.Context, _ kamino.Pool, a kamino.Artifact) error {
	a.ID, a.State, a.Ready, a.Percent, a.Created = string(a.Kind)+"/"+a.Name, kamino.Succeeded, true, 100, time.Unix(1, 0)
	p.made[a.ID] = a
	return ctx.Err()
}

func (p *plain) Delete(ctx context.Context, _ kamino.Pool, a kamino.Artifact) error {
	id := string(a.Kind) + "/" + a.Name
	if p.pool.Model.Image == id {
		return fmt.Errorf("delete %s: %w", id, kamino.ErrInUse)
	}
	delete(p.made, id)
	return ctx.Err()
}

func (p *plain) Fit(ctx context.Context, _ kamino.Pool, _ kamino.Instance, _ *kamino.Artifact) ([]kamino.Refusal, []kamino.Warning, error) {
	return nil, nil, ctx.Err()
}

func (p *plain) SetTags(ctx context.Context, pool kamino.Pool, v kamino.Artifact) error {
	have := p.made[string(v.Kind)+"/"+v.Name]
	if v.Kind == kamino.KindVersion {
		want, err := kamino.ParseVersion(have).Retagged(kamino.ParseVersion(v))
		if err != nil {
			return err
		}
		v = want.Artifact
	}
	v.Excluded = have.Excluded
	return p.Create(ctx, pool, v)
}

func (p *plain) Withdraw(ctx context.Context, pool kamino.Pool, version string, bad kamino.Bad) error {
	v, ok := p.made[string(kamino.KindVersion)+"/"+version]
	if !ok {
		return fmt.Errorf("version %s: %w", version, kamino.ErrNotFound)
	}
	return p.Create(ctx, pool, kamino.ParseVersion(v).Withdrawn(bad).Artifact)
}

func (p *plain) NextImage(ctx context.Context, _ kamino.Pool, want kamino.Target) (next kamino.NextImage, err error) {
	next.Image = string(kamino.KindVersion) + "/" + want.Version
	if want.Former != nil {
		err = json.Unmarshal(want.Former, &next.Image)
	} else if want.Version == "" {
		err = fmt.Errorf("no image wanted for pool %s", p.pool.Name)
	}
	if now := p.pool.Model.Image; now != next.Image {
		next.Diff = []kamino.FieldChange{{Field: "image", From: now, To: next.Image}}
	}
	return next, err
}

func (p *plain) Promote(ctx context.Context, pool kamino.Pool, want kamino.Target) error {
	next, err := p.NextImage(ctx, pool, want)
	if err == nil && len(next.Diff) == 0 && want.Offers() {
		have := kamino.ParseVersion(p.made[string(kamino.KindVersion)+"/"+want.Version])
		if !have.SameOffer(*want.Seen) {
			return fmt.Errorf("offer %s: %w", want.Version, kamino.ErrConflict)
		}
		return p.Create(ctx, pool, have.Offered().Artifact)
	}
	if err == nil {
		p.pool.Model = kamino.Model{Image: next.Image, Saved: fmt.Appendf(nil, "%q", next.Image)}
	}
	return err
}

func (p *plain) SetCapacity(ctx context.Context, _ kamino.Pool, n int) error {
	p.pool.Capacity = n
	return ctx.Err()
}

func (p *plain) Preflight(ctx context.Context) ([]kamino.Warning, error) { return nil, ctx.Err() }
