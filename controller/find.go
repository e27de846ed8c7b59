package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"kamino.dev/kamino"
	"kamino.dev/kamino/api/v1alpha1"
)

// problem is why nothing can be done for a prototype: a reason of Ready, and a sentence.
type problem struct{ reason, text string }

func (p *problem) Error() string { return p.text }

func troubled(reason, text string, args ...any) error {
	return &problem{reason, fmt.Sprintf(text, args...)}
}

// known is the pools that exist, according to the nodes. Parallel passes share it.
type known struct {
	nodes   []kamino.Node
	pools   map[kamino.PoolID]bool
	of      map[string]kamino.PoolID   // pool by the name of a node
	members map[kamino.PoolID][]int    // indexes in nodes
	names   map[string][]kamino.PoolID // by folded name, and by folded ID
	strange bool                       // the provider does not know the pool of some node, perhaps not yet

	mu       *sync.Mutex
	labelled map[string]map[string][]int // indexes in nodes, by label key and value; only keys that were asked for
}

func newKnown() known {
	return known{pools: map[kamino.PoolID]bool{}, of: map[string]kamino.PoolID{}, members: map[kamino.PoolID][]int{},
		names: map[string][]kamino.PoolID{},
		mu:    &sync.Mutex{}, labelled: map[string]map[string][]int{}}
}

// nodesOf returns the nodes of a pool.
func (k known) nodesOf(pool kamino.PoolID) []kamino.Node {
	out := make([]kamino.Node, 0, len(k.members[pool]))
	for _, i := range k.members[pool] {
		out = append(out, k.nodes[i])
	}
	return out
}

// census caches what is known of nodes until one of them changes. Otherwise a pass of each of a
// thousand prototypes would go through all nodes.
type census struct {
	stale atomic.Bool // set before a pass is requested that has to see a change

	mu    sync.Mutex
	taken time.Time
	known known
}

// strangers is the interval at which a provider is asked again for the pools of nodes that it did
// not know.
const strangers = 30 * time.Second

// fold makes two strings equal that strings.EqualFold considers equal.
func fold(s string) string { return strings.ToLower(strings.ToUpper(s)) }

func (k known) add(id kamino.PoolID) {
	if k.pools[id] {
		return
	}
	k.pools[id] = true
	name, whole := fold(id.Name()), fold(string(id))
	k.names[name] = append(k.names[name], id)
	if whole != name {
		k.names[whole] = append(k.names[whole], id)
	}
}

// known finds out which pool each node belongs to. The heartbeats of the nodes may be old.
func (r *reconciler) known(ctx context.Context) (k known, err error) {
	c, now := &r.census, r.engine.Clock.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.stale.Swap(false) && !c.taken.IsZero() && (!c.known.strange || now.Sub(c.taken) < strangers) {
		return c.known, nil
	}
	defer func() {
		if err != nil {
			c.stale.Store(true)
		}
	}()
	k = newKnown()
	if k.nodes, err = r.seen.Cluster.Nodes(ctx); err != nil {
		return k, err
	}
	for i, n := range k.nodes {
		id, err := r.engine.Provider.PoolOf(ctx, n.ProviderID)
		if errors.Is(err, kamino.ErrUnsupported) {
			k.strange = true
			continue
		} else if err != nil {
			return k, fmt.Errorf("find the pool of node %s: %w", n.Name, err)
		}
		k.of[n.Name], k.members[id] = id, append(k.members[id], i)
		k.add(id)
	}
	c.taken, c.known = now, k
	return k, nil
}

// find returns the pool of a spec. A pool without nodes is found by its lease, which all reads.
func (k known) find(spec v1alpha1.NodePrototypeSpec, all func() ([]kamino.Lease, error)) (kamino.PoolID, error) {
	if spec.Pool == "" {
		return k.findByLabels(spec.NodeSelector)
	}
	found := k.named(spec.Pool)
	if len(found) == 0 {
		leases, err := all()
		if err != nil {
			return "", err
		}
		for _, l := range leases {
			if strings.EqualFold(l.Pool.Name(), spec.Pool) || strings.EqualFold(string(l.Pool), spec.Pool) {
				found = append(found, l.Pool)
			}
		}
		slices.Sort(found)
		found = slices.Compact(found)
	}
	switch len(found) {
	case 0:
		return "", troubled(v1alpha1.ReasonPoolNotFound, "no node of the cluster belongs to pool %q: kamino status lists the pools",
			spec.Pool)
	case 1:
		return found[0], nil
	}
	return "", troubled(v1alpha1.ReasonAmbiguous, "%d pools have the name %q: set spec.pool to the whole ID of one of them",
		len(found), spec.Pool)
}

func (k known) named(name string) []kamino.PoolID { return k.names[fold(name)] }

// labels returns the indexes of the nodes with a label.
func (k known) labels(key, value string) []int {
	k.mu.Lock()
	defer k.mu.Unlock()
	of, asked := k.labelled[key]
	if !asked {
		of = map[string][]int{}
		for i, n := range k.nodes {
			if v, ok := n.Labels[key]; ok {
				of[v] = append(of[v], i)
			}
		}
		k.labelled[key] = of
	}
	return of[value]
}

// fitting returns the indexes of the nodes with all labels, of which there is at least one.
func (k known) fitting(labels map[string]string) (fit []int) {
	first := true
	for key, value := range labels {
		if with := k.labels(key, value); first || len(with) < len(fit) {
			fit, first = with, false
		}
	}
	return slices.DeleteFunc(slices.Clone(fit), func(i int) bool {
		for key, value := range labels {
			if has, ok := k.nodes[i].Labels[key]; !ok || has != value {
				return true
			}
		}
		return false
	})
}

func (k known) findByLabels(labels map[string]string) (kamino.PoolID, error) {
	found := map[kamino.PoolID]bool{}
	for _, i := range k.fitting(labels) {
		if id := k.of[k.nodes[i].Name]; id != "" {
			found[id] = true
		}
	}
	var names []string
	for id := range found {
		names = append(names, id.Name())
	}
	slices.Sort(names)
	switch len(found) {
	case 0:
		return "", troubled(v1alpha1.ReasonPoolNotFound, "no node of a pool has the labels of spec.nodeSelector")
	case 1:
		for id := range found {
			return id, nil
		}
	}
	return "", troubled(v1alpha1.ReasonAmbiguous, "nodes with the labels of spec.nodeSelector belong to %d pools: %s", len(found),
		strings.Join(names, ", "))
}

// others returns the names of the other prototypes of a pool.
func (k known) others(own string, pool kamino.PoolID, all []v1alpha1.NodePrototype) (names []string) {
	none := func() ([]kamino.Lease, error) { return nil, nil } // its own find has read them
	for _, p := range all {
		if p.Name == own || p.DeletionTimestamp != nil {
			continue
		}
		if id, err := k.find(p.Spec, none); err == nil && strings.EqualFold(string(id), string(pool)) {
			names = append(names, p.Name)
		}
	}
	slices.Sort(names)
	return names
}
