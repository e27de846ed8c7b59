package azure

import (
	"context"
	"strings"
	"sync"
)

// Look caches the scale sets of resource groups for a while: each pool is asked for its
// canaries, which stand in the list of all, and a look at a thousand pools would read a thousand
// lists of a thousand. Runs go without it. Who has one renews it.
type Look struct {
	mu     sync.Mutex
	groups map[string]*group
}

// group is what was read of a resource group.
type group struct {
	mu   sync.Mutex
	read bool
	sets []beside
}

type lookKey struct{}

// NewLook returns an empty one.
func NewLook() *Look { return &Look{groups: map[string]*group{}} }

// Context returns a context whose calls share what the look has seen.
func (l *Look) Context(ctx context.Context) context.Context {
	return context.WithValue(ctx, lookKey{}, l)
}

// group finds what a look has of a resource group; nil without a look.
func (l *Look) group(at place) *group {
	if l == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	key := strings.ToLower(at.subscription + "/" + at.group)
	if l.groups[key] == nil {
		l.groups[key] = &group{}
	}
	return l.groups[key]
}

// once reads the group, if nobody has; who asks meanwhile waits.
func (g *group) once(read func() ([]beside, error)) ([]beside, error) {
	if g == nil {
		return read()
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.read {
		return g.sets, nil
	}
	sets, err := read()
	if err == nil {
		g.read, g.sets = true, sets
	}
	return sets, err
}
