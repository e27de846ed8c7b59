package sim

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"strconv"
	"strings"

	"kamino.dev/kamino"
	"kamino.dev/kamino/internal/invariant"
	"kamino.dev/kamino/internal/worlds"
)

// document is what of a pool's model is saved and written back.
type document struct {
	Image  string   `json:"image"`
	Custom string   `json:"-"` // written, never read back
	Exts   []string `json:"exts"`

	Protected map[string]string `json:"-"`
}

// ReadSaved implements SavedReader.
func (s simProvider) ReadSaved(raw json.RawMessage) (m kamino.Model, err error) {
	var d document
	err = json.Unmarshal(raw, &d)
	m.Image = d.Image
	for _, e := range d.Exts {
		m.Extensions = append(m.Extensions, kamino.Extension{Name: e})
	}
	return m, err
}

func (p *simPool) document() document { return document{p.image, p.custom, p.exts, p.protected} }

func (p *simPool) revisionText() string { return strconv.Itoa(p.revision) }

// savedImage is the image of a saved model.
func savedImage(saved []byte) string {
	var d document
	_ = json.Unmarshal(saved, &d)
	return d.Image
}

// wanted is the document that a model is to become, and how it differs.
func (p *simPool) wanted(want kamino.ModelSpec) (to document, diff []kamino.FieldChange) {
	to = document{Image: want.Image, Custom: "noop", Exts: []string{"monitor"}}
	if want.Saved != nil {
		_ = json.Unmarshal(want.Saved, &to)
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

func (s simProvider) SetModel(ctx context.Context, pool kamino.Pool, want kamino.ModelSpec, dryRun bool) (diff []kamino.FieldChange, err error) {
	w := s.p.w
	if dryRun {
		if p := w.pools[pool.ID]; p != nil {
			_, diff = p.wanted(want)
		}
		return diff, nil
	}
	err = s.p.call(ctx, call{method: "SetModel", subject: pool.Name, write: true}, func(f *fault) error {
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
		var to document
		to, diff = p.wanted(want)
		s.p.auditModel(p, pool.Revision, want, diff)
		was := p.document()
		w.setModel(p, to)
		w.happened("%s points model of %s at %s", s.p.name, pool.Name, lastSegment(to.Image))
		if f.is(worlds.OperationFailed) {
			w.after(poolTime, func() {
				if p.image == to.Image {
					w.setModel(p, was)
					w.happened("the change of the model of %s failed", pool.Name)
				}
			})
		}
		return nil
	})
	return diff, err
}

func (w *world) setModel(p *simPool, d document) {
	p.image, p.custom, p.exts, p.protected, p.revision = d.Image, d.Custom, d.Exts, d.Protected, w.next()
	p.busy = w.now.Add(poolTime)
}

// SetExcluded implements Excluder.
func (s simProvider) SetExcluded(ctx context.Context, pool kamino.Pool, v kamino.Artifact, excluded bool, tags map[string]string) error {
	w := s.p.w
	return s.p.call(ctx, call{method: "SetExcluded", subject: v.Name, write: true}, func(*fault) error {
		have := w.artifacts[artifactKey(pool.ID, kamino.Version, v.Name)]
		if have == nil {
			return fmt.Errorf("version %s: %w", v.Name, kamino.ErrNotFound)
		}
		w.audit.before(invariant.Call{Process: s.p.name, Verb: invariant.MarkVersion, Pool: string(pool.ID), Target: have.ID})
		have.Excluded, have.Tags = excluded, maps.Clone(have.Tags)
		for key, value := range tags {
			if have.Tags[key] = value; value == "" {
				delete(have.Tags, key)
			}
		}
		w.happened("%s marks version %s: %v", s.p.name, v.Name, tags)
		return nil
	})
}

func (s simProvider) SetCapacity(ctx context.Context, pool kamino.Pool, instances int) error {
	w := s.p.w
	return s.p.call(ctx, call{method: "SetCapacity", subject: pool.Name, write: true}, func(f *fault) error {
		p := w.pools[pool.ID]
		if p == nil || p.revisionText() != pool.Revision && pool.Revision != "" {
			return fmt.Errorf("write capacity: %w", kamino.ErrConflict)
		}
		w.audit.before(invariant.Call{Process: s.p.name, Verb: invariant.SetCapacity, Pool: string(pool.ID), Revision: pool.Revision, Instances: instances})
		w.grow(p, instances)
		return nil
	})
}

// grow sets the capacity; new machines boot from the model's image.
func (w *world) grow(p *simPool, instances int) {
	for range instances - p.capacity {
		host := fmt.Sprintf("%s-new%d", p.id.Name(), p.joins)
		p.joins++
		image := p.image
		w.after(joinTime, func() { w.addMachine(p.id, host, image); w.happened("machine %s joins", host) })
	}
	p.capacity, p.revision, p.busy = instances, w.next(), w.now.Add(poolTime)
	w.happened("capacity of %s is %d", p.id.Name(), instances)
}
