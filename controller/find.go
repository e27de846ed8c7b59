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
	nodes    []kamino.Node
	pools    map[kamino.PoolID]bool
	of       map[string]kamino.PoolID    // by name of node
	names    map[string][]kamino.PoolID  // by folded name, and by folded ID
	labelled map[string]map[string][]int // places in nodes, by key and value; keys that were asked for
}

func newKnown() known {
	return known{pools: map[kamino.PoolID]bool{}, of: map[string]kamino.PoolID{}, names: map[string][]kamino.PoolID{}, labelled: map[string]map[string][]int{}}
}

// fold makes two strings equal where strings.EqualFold says that they are.
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

// pools finds out which pool each node belongs to. Most nodes were seen before.
func (r *reconciler) known(ctx context.Context) (k known, err error) {
	k = newKnown()
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
		k.of[n.Name] = id
		k.add(id)
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
			k.add(l.Pool)
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

func (k known) named(name string) []kamino.PoolID { return k.names[fold(name)] }

// labels are the places in nodes of those with a label.
func (k known) labels(key, value string) []int {
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

// fitting are the places in nodes of those with all labels, of which there is one at least.
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
