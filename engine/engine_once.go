package engine

import (
	"context"
	"slices"
	"sync"

	"kamino.dev/kamino"
)

// readOnce is a provider that makes each read once and then answers from memory. A plan reads the
// same things for the judgement of the pool and for its steps, and pools share a gallery. It lives
// as long as one plan; a run never reads through it.
type readOnce struct {
	kamino.Provider

	mu   sync.Mutex
	read map[string]*reading
}

// reading is one read, for which concurrent callers wait.
type reading struct {
	once      sync.Once
	pool      kamino.Pool
	artifacts []kamino.Artifact
	doubts    []kamino.Warning
	err       error
}

func newReadOnce(p kamino.Provider) *readOnce {
	return &readOnce{Provider: p, read: map[string]*reading{}}
}

// planning returns an engine for plans, which makes each read once.
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
func (r *readOnce) Pool(ctx context.Context, id kamino.PoolID) (kamino.Pool, error) {
	got := r.reading("pool\x00" + string(id))
	got.once.Do(func() { got.pool, got.err = r.Provider.Pool(ctx, id) })
	return got.pool, got.err
}

// Find implements Provider. Pools of a group share their gallery; all other artifacts are of one
// pool.
func (r *readOnce) Find(ctx context.Context, pool kamino.Pool, kind kamino.Kind, name string) ([]kamino.Artifact, error) {
	of := string(pool.ID)
	if kind == kamino.KindGallery {
		of = pool.Group
	}
	got := r.reading(of + "\x00" + string(kind) + "\x00" + name)
	got.once.Do(func() { got.artifacts, got.err = r.Provider.Find(ctx, pool, kind, name) })
	return slices.Clone(got.artifacts), got.err
}

// Preflight implements Provider.
func (r *readOnce) Preflight(ctx context.Context) ([]kamino.Warning, error) {
	got := r.reading("preflight")
	got.once.Do(func() { got.doubts, got.err = r.Provider.Preflight(ctx) })
	return got.doubts, got.err
}
