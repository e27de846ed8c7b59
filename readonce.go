package kamino

import (
	"context"
	"slices"
	"sync"
)

// readOnce is a provider whose reads are made once and then answered from
// memory: the plan of a pool asks for the same things as the judgement of the
// pool and as the steps that it prints, and pools share a gallery. It lives as
// long as one plan. A run never reads through it.
type readOnce struct {
	Provider

	mu   sync.Mutex
	read map[string]*reading
}

// reading is one read, which others wait for.
type reading struct {
	once      sync.Once
	pool      Pool
	artifacts []Artifact
	doubts    []string
	err       error
}

func newReadOnce(p Provider) *readOnce { return &readOnce{Provider: p, read: map[string]*reading{}} }

// planning is an engine for plans only: each of its reads is made once.
func (e *Engine) planning() *Engine {
	copied := *e
	copied.Provider = newReadOnce(e.Provider)
	return &copied
}

func (r *readOnce) reading(key string) *reading {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.read[key] == nil {
		r.read[key] = &reading{}
	}
	return r.read[key]
}

// Pool implements Provider.
func (r *readOnce) Pool(ctx context.Context, id PoolID) (Pool, error) {
	got := r.reading("pool\x00" + string(id))
	got.once.Do(func() { got.pool, got.err = r.Provider.Pool(ctx, id) })
	return got.pool, got.err
}

// Find implements Provider. Artifacts of one address are the same artifact, of
// whichever pool: pools share their gallery. Lists are of one pool.
func (r *readOnce) Find(ctx context.Context, pool Pool, kind Kind, name string) ([]Artifact, error) {
	key := string(pool.ID) + "\x00" + string(kind) + "\x00" + name
	if at := r.Address(pool, kind, name); at != "" && name != "" {
		key = at
	}
	got := r.reading(key)
	got.once.Do(func() { got.artifacts, got.err = r.Provider.Find(ctx, pool, kind, name) })
	return slices.Clone(got.artifacts), got.err
}

// Address implements Addresser; "" where the provider does not.
func (r *readOnce) Address(pool Pool, kind Kind, name string) string {
	if a, ok := r.Provider.(Addresser); ok {
		return a.Address(pool, kind, name)
	}
	return ""
}

// Preflight implements Preflighter.
func (r *readOnce) Preflight(ctx context.Context) ([]string, error) {
	p, ok := r.Provider.(Preflighter)
	if !ok {
		return nil, nil
	}
	got := r.reading("preflight")
	got.once.Do(func() { got.doubts, got.err = p.Preflight(ctx) })
	return got.doubts, got.err
}

// Fit implements Fitter.
func (r *readOnce) Fit(ctx context.Context, pool Pool, donor Instance, definition *Artifact) ([]Refusal, []string, error) {
	if f, ok := r.Provider.(Fitter); ok {
		return f.Fit(ctx, pool, donor, definition)
	}
	return nil, nil, nil
}
