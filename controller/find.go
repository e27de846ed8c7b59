package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"kamino.dev/kamino"
	"kamino.dev/kamino/api/v1alpha1"
)

// problem is why nothing can be done for a prototype: a reason of Ready, and a sentence.
type problem struct{ reason, text string }

func (p *problem) Error() string { return p.text }

func troubled(reason, text string, args ...any) error {
	return &problem{reason, fmt.Sprintf(text, args...)}
}

// known is which pools there are, as nodes and leases tell.
type known struct {
	nodes []kamino.Node
	pools map[kamino.PoolID]bool
	of    map[string]kamino.PoolID // by name of node
}

// pools finds out which pool each node belongs to. Most nodes were seen before.
func (r *reconciler) known(ctx context.Context) (k known, err error) {
	k = known{pools: map[kamino.PoolID]bool{}, of: map[string]kamino.PoolID{}}
	if k.nodes, err = r.seen.Cluster.Nodes(ctx); err != nil {
		return k, err
	}
	for _, n := range k.nodes {
		id, err := r.engine.Provider.PoolOf(ctx, n.ProviderID)
		if errors.Is(err, kamino.ErrUnsupported) {
			continue
		} else if err != nil {
			return k, fmt.Errorf("find the pool of node %s: %w", n.Name, err)
		}
		k.of[n.Name], k.pools[id] = id, true
	}
	return k, nil
}

// find is the pool that a spec means. One without nodes is known by its lease, which all reads.
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
			k.pools[l.Pool] = true
		}
		found = k.named(spec.Pool)
	}
	switch len(found) {
	case 0:
		return "", troubled(v1alpha1.ReasonPoolNotFound, "no node of the cluster belongs to pool %q: kamino status lists the pools", spec.Pool)
	case 1:
		return found[0], nil
	}
	return "", troubled(v1alpha1.ReasonAmbiguous, "%d pools have the name %q: set spec.pool to the whole ID of one of them", len(found), spec.Pool)
}

func (k known) named(name string) (found []kamino.PoolID) {
	for id := range k.pools {
		if strings.EqualFold(id.Name(), name) || strings.EqualFold(string(id), name) {
			found = append(found, id)
		}
	}
	return found
}

func (k known) findByLabels(labels map[string]string) (kamino.PoolID, error) {
	found := map[kamino.PoolID]bool{}
	for _, n := range k.nodes {
		fits := true
		for key, value := range labels {
			has, ok := n.Labels[key]
			fits = fits && ok && has == value
		}
		if id := k.of[n.Name]; fits && id != "" {
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
	return "", troubled(v1alpha1.ReasonAmbiguous, "nodes with the labels of spec.nodeSelector belong to %d pools: %s", len(found), strings.Join(names, ", "))
}

// others are the names of the other prototypes that mean a pool.
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
