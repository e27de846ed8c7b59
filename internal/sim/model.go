package sim

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"kamino.dev/kamino"
	"kamino.dev/kamino/internal/invariant"
)

// document is what of a pool's model is saved and written back.
type document struct {
	Image  string   `json:"image"`
	Custom string   `json:"-"` // written, never read back
	Exts   []string `json:"exts"`

	Protected map[string]string `json:"-"`
}

func (p *simPool) document() document { return document{p.image, p.custom, p.exts, p.protected} }

func (p *simPool) revisionText() string { return strconv.Itoa(p.revision) }

// imageOf is what the model refers to once a version is promoted.
func (p *simPool) imageOf(want kamino.Target) string {
	if want.Reference == kamino.ByDefinition {
		return artifactID(p.id, kamino.KindDefinition, kamino.DefinitionName(p.id.Name()))
	}
	return artifactID(p.id, kamino.KindVersion, want.Version)
}

// wanted is the document that a model is to become, and how it differs.
func (p *simPool) wanted(want kamino.Target) (to document, diff []kamino.FieldChange) {
	to = document{Image: p.imageOf(want), Custom: "noop", Exts: []string{"monitor"}}
	if want.Former != nil {
		_ = json.Unmarshal(want.Former, &to)
		for _, e := range p.exts { // what people added since stays
			if !slices.Contains(to.Exts, e) {
				to.Exts = append(to.Exts, e)
			}
		}
		if to.Custom = p.custom; want.Secrets.CustomData != nil {
			to.Custom = string(want.Secrets.CustomData)
		}
	}
	to.Protected = maps.Clone(p.protected)
	for name, raw := range want.Secrets.Protected {
		if raw != nil {
			if to.Protected == nil {
				to.Protected = map[string]string{}
			}
			to.Protected[name] = string(raw)
		}
	}
	if now, then := fmt.Sprint(to.Protected), fmt.Sprint(p.protected); now != then {
		diff = append(diff, kamino.FieldChange{Field: "extensions.protectedSettings", From: then, To: now})
	}
	for _, f := range []kamino.FieldChange{
		{Field: "imageReference", From: p.image, To: to.Image}, {Field: "customData", From: p.custom, To: to.Custom},
		{Field: "extensions", From: strings.Join(p.exts, " "), To: strings.Join(to.Exts, " ")},
	} {
		if f.From != f.To {
			diff = append(diff, f)
		}
	}
	return to, diff
}

// NextImage makes no call. Extensions that come back have secrets.
func (s simProvider) NextImage(_ context.Context, pool kamino.Pool, want kamino.Target) (kamino.NextImage, error) {
	p := s.p.w.pools[pool.ID]
	if p == nil {
		return kamino.NextImage{}, nil
	}
	to, diff := p.wanted(want)
	next := kamino.NextImage{Image: to.Image, Diff: diff, NeedsCustomData: want.Former != nil && want.Secrets.CustomData == nil}
	for _, e := range to.Exts {
		if _, said := want.Secrets.Protected[e]; want.Former != nil && !said && !slices.Contains(p.exts, e) {
			next.Needs = append(next.Needs, e)
		}
	}
	return next, nil
}

func (s simProvider) Promote(ctx context.Context, pool kamino.Pool, want kamino.Target) error {
	w := s.p.w
	if p := w.pools[pool.ID]; p != nil && want.Offers() {
		if _, diff := p.wanted(want); want.Reference == kamino.ByDefinition || len(diff) == 0 {
			return s.offer(ctx, pool.ID, *want.Seen)
		}
	}
	return s.p.call(ctx, call{method: "Promote", subject: pool.Name, write: true}, func(f *fault) error {
		p := w.pools[pool.ID]
		if p == nil {
			return fmt.Errorf("pool %s: %w", pool.ID, kamino.ErrNotFound)
		}
		// As with ARM, a write without a condition is made whatever has changed.
		if p.revisionText() != pool.Revision && pool.Revision != "" {
			return fmt.Errorf("write model: %w", kamino.ErrConflict)
		}
		if w.now.Before(p.busy) {
			return fmt.Errorf("write model: %w", kamino.ErrInProgress)
		}
		to, diff := p.wanted(want)
		if len(diff) == 0 {
			return nil
		}
		if w.modelsOf(p) >= modelLimit {
			return errTenModels
		}
		s.p.auditModel(p, pool.Revision, to.Image, diff)
		was := p.document()
		w.setModel(p, to)
		w.happened("%s points model of %s at %s", s.p.name, pool.Name, lastSegment(to.Image))
		if f.fails() {
			w.after(poolTime, func() {
				if p.image == to.Image {
					w.setModel(p, was)
					w.happened("the change of the model of %s failed", pool.Name)
				}
			})
		}
		return nil
	})
}

// modelLimit is how many models the instances of a pool may refer to, as with Azure's Uniform scale
// sets (https://github.com/MicrosoftDocs/azure-docs/issues/103472).
const modelLimit = 10

var errTenModels = fmt.Errorf("pool has reached its limit of %d models", modelLimit)

// modelsOf counts the models that the machines of a pool refer to.
func (w *world) modelsOf(p *simPool) int {
	referred := map[int]bool{}
	for _, m := range w.machines {
		if m.Pool == p.id {
			referred[m.model] = true
		}
	}
	return len(referred)
}

func (w *world) setModel(p *simPool, d document) {
	p.image, p.custom, p.exts, p.protected, p.revision = d.Image, d.Custom, d.Exts, d.Protected, w.next()
	p.model++
	if p.busy = w.now.Add(poolTime); p.sticky != "" {
		p.sticky = w.bootsFrom(p)
	}
}

// offer plays the write of a version that offers it.
func (s simProvider) offer(ctx context.Context, pool kamino.PoolID, seen kamino.Version) error {
	return s.writeVersion(ctx, "Promote", pool, seen.Name, func(have kamino.Version) (kamino.Version, error) {
		if !have.SameOffer(seen) {
			return have, fmt.Errorf("offer version %s: %w", have.Name, kamino.ErrConflict)
		}
		return have.Offered(), nil
	})
}

func (s simProvider) Withdraw(ctx context.Context, pool kamino.Pool, version string, bad kamino.Bad) error {
	w := s.p.w
	return s.writeVersion(ctx, "Withdraw", pool.ID, version, func(have kamino.Version) (kamino.Version, error) {
		left := slices.ContainsFunc(w.versions(pool.ID), func(v kamino.Artifact) bool {
			return v.Name != version && v.State == kamino.Succeeded && !v.Excluded
		})
		if p := w.pools[pool.ID]; !left && !have.Excluded &&
			p.image == artifactID(p.id, kamino.KindDefinition, kamino.DefinitionName(p.id.Name())) {
			return have, fmt.Errorf("withdraw version %s: %w", version, kamino.ErrInUse)
		}
		return have.Withdrawn(bad), nil
	})
}

func (s simProvider) writeVersion(ctx context.Context, method string, pool kamino.PoolID, name string,
	change func(kamino.Version) (kamino.Version, error)) error {
	w := s.p.w
	return s.p.call(ctx, call{method: method, subject: name, write: true}, func(f *fault) error {
		have := w.artifacts[artifactKey(pool, kamino.KindVersion, name)]
		if have == nil {
			return fmt.Errorf("version %s: %w", name, kamino.ErrNotFound)
		}
		v, err := change(kamino.ParseVersion(have.Artifact))
		if err == nil {
			err = refuseTags(v.Tags)
		}
		if err != nil {
			return err
		}
		w.audit.before(invariant.Call{Process: s.p.name, Verb: invariant.MarkVersion, Pool: string(pool), Target: have.ID})
		if have.Excluded && !v.Excluded {
			s.p.auditOffer(w.pools[pool], v.Name)
		}
		if have.Tags = v.Tags; have.Excluded != v.Excluded {
			w.flag(have, v.Excluded)
		}
		w.written(have, f)
		w.happened("%s: version %s is %s: %q", s.p.name, name, v.Offer, v.Bad)
		return nil
	})
}

// SetTags writes the tags of a version or a home at once.
func (s simProvider) SetTags(ctx context.Context, pool kamino.Pool, a kamino.Artifact) error {
	w := s.p.w
	return s.p.call(ctx, call{method: "SetTags", subject: a.Name, write: true}, func(f *fault) error {
		have := w.artifacts[artifactKey(pool.ID, a.Kind, a.Name)]
		if have == nil {
			return fmt.Errorf("%s %s: %w", a.Kind, a.Name, kamino.ErrNotFound)
		}
		want := a
		if a.Kind == kamino.KindVersion {
			v, err := kamino.ParseVersion(have.Artifact).Retagged(kamino.ParseVersion(a))
			if err != nil {
				return err
			}
			want = v.Artifact
		}
		if err := refuseTags(want.Tags); err != nil {
			return err
		}
		w.audit.before(invariant.Call{Process: s.p.name, Verb: invariant.MarkVersion, Pool: string(pool.ID), Target: have.ID})
		have.Tags = maps.Clone(want.Tags)
		if a.Kind == kamino.KindVersion {
			w.written(have, f)
		}
		return nil
	})
}

// written ends a write of a version that is whole. One whose operation fails leaves it Failed, with
// what was written and with its replicas; the next that succeeds mends it.
func (w *world) written(a *simArtifact, f *fault) {
	switch {
	case f.fails():
		a.settle, a.State, a.Failure = w.now, kamino.Failed, "the write of the version ended "+string(f.kind)
	case a.State == kamino.Failed && a.Ready:
		a.State, a.Failure = kamino.Succeeded, ""
	}
}

// flag writes whether a version is excluded. Withdrawing takes less time than offering, so that who
// does not wait for the one before the other leaves a definition that stands for a third, or
// nothing.
func (w *world) flag(a *simArtifact, excluded bool) {
	a.shown = a.Excluded
	takes := 15 * time.Second
	if excluded {
		takes = 5 * time.Second
	}
	a.Excluded, a.settle = excluded, w.now.Add(takes)
	w.after(takes, func() { w.happened("version %s: excluded is %t", a.Name, a.Excluded) })
}

// bootsFrom is the image of a pool's next instance: "" where a definition stands for nothing.
func (w *world) bootsFrom(p *simPool) string {
	if p.image != artifactID(p.id, kamino.KindDefinition, kamino.DefinitionName(p.id.Name())) {
		return p.image
	}
	image, newest := "", ""
	for _, a := range w.artifacts {
		excluded := a.Excluded
		if w.now.Before(a.settle) {
			excluded = a.shown
		}
		if a.pool == p.id && a.Kind == kamino.KindVersion && a.State == kamino.Succeeded && !excluded &&
			(newest == "" || kamino.CompareVersions(a.Name, newest) > 0) {
			image, newest = a.ID, a.Name
		}
	}
	return image
}

// Preflight finds nothing missing, and Fit nothing against a donor.
func (s simProvider) Preflight(context.Context) ([]kamino.Warning, error) { return nil, nil }

func (s simProvider) Fit(context.Context, kamino.Pool, kamino.Instance, *kamino.Artifact) ([]kamino.Refusal, []kamino.Warning, error) {
	return nil, nil, nil
}

func (s simProvider) SetCapacity(ctx context.Context, pool kamino.Pool, instances int) error {
	w := s.p.w
	return s.p.call(ctx, call{method: "SetCapacity", subject: pool.Name, write: true}, func(f *fault) error {
		p := w.pools[pool.ID]
		if p == nil || p.revisionText() != pool.Revision && pool.Revision != "" {
			return fmt.Errorf("write capacity: %w", kamino.ErrConflict)
		}
		w.audit.before(invariant.Call{Process: s.p.name, Verb: invariant.SetCapacity, Pool: string(pool.ID), Revision: pool.Revision,
			Instances: instances})
		w.grow(p, instances)
		return nil
	})
}

// grow sets the capacity; new machines boot from the model's image.
func (w *world) grow(p *simPool, instances int) {
	for range instances - p.capacity {
		host := fmt.Sprintf("%s-new%d", p.id.Name(), p.joins)
		p.joins++
		image := cmp.Or(p.sticky, w.bootsFrom(p))
		w.after(joinTime, func() {
			m := w.addMachine(p.id, host, image)
			if w.sickOf(image) == mute {
				m.Kubelet = false
				delete(w.nodes, host)
			}
			w.happened("machine %s joins", host)
		})
	}
	p.capacity, p.revision, p.busy = instances, w.next(), w.now.Add(poolTime)
	w.happened("capacity of %s is %d", p.id.Name(), instances)
}
