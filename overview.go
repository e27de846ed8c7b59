package kamino

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
)

// overview is what one reading of the world tells about a pool. It is read in
// bulk: the nodes and the leases of the cluster with one list each, the pool and
// its versions with one read each, and nothing per node.
type overview struct {
	id         PoolID
	pool       Pool
	nodes      []Node
	versions   []Artifact // newest first
	definition bool
	lease      Lease
	gone       bool // the pool does not exist any more
	err        error
}

// readers bounds how many pools are read at the same time, so that a service
// with limits per minute is not flooded.
const readers = 8

// overviews reads all pools, or those of the given names. Pools are known by
// their nodes and by their leases. It returns the nodes of the whole cluster
// too.
func (e *Engine) overviews(ctx context.Context, names []string) ([]overview, []Node, error) {
	nodes, err := e.Cluster.Nodes(ctx)
	if err != nil {
		return nil, nil, fmt.Errorf("list nodes: %w", err)
	}
	byID := map[PoolID]*overview{}
	get := func(id PoolID) *overview {
		if byID[id] == nil {
			byID[id] = &overview{id: id, lease: Lease{Pool: id}}
		}
		return byID[id]
	}
	for _, n := range nodes {
		if id, err := e.Provider.PoolOf(n.ProviderID); err == nil {
			o := get(id)
			o.nodes = append(o.nodes, n)
		}
	}
	leases, listed := e.Cluster.(Leases)
	if listed {
		all, err := leases.Leases(ctx)
		if err != nil {
			return nil, nil, fmt.Errorf("list leases: %w", err)
		}
		for _, l := range all {
			get(l.Pool).lease = l
		}
	}
	chosen, err := choosePools(byID, names)
	if err != nil {
		return nil, nil, err
	}
	e.readAll(ctx, chosen, !listed)
	chosen = slices.DeleteFunc(chosen, func(o *overview) bool {
		return o.gone && len(o.nodes) == 0 && o.lease.Holder == "" && len(names) == 0
	})
	out := make([]overview, len(chosen))
	for i, o := range chosen {
		o.versions = o.lease.Ledger.distrust(o.versions)
		out[i] = *o
	}
	return out, nodes, nil
}

// choosePools picks pools by name or ID, all when there are no names, and sorts
// them.
func choosePools(all map[PoolID]*overview, names []string) ([]*overview, error) {
	var chosen []*overview
	var known []string
	for id, o := range all {
		known = append(known, id.Name())
		if len(names) == 0 || slices.ContainsFunc(names, id.is) {
			chosen = append(chosen, o)
		}
	}
	slices.Sort(known)
	for _, name := range names {
		n := 0
		for _, o := range chosen {
			if o.id.is(name) {
				n++
			}
		}
		switch {
		case n == 0 && len(known) == 0:
			return nil, WithHint(fmt.Errorf("pool %q is unknown: no node of this cluster belongs to a pool", name), "look at spec.providerID: kubectl get nodes -o yaml")
		case n == 0:
			return nil, WithHint(fmt.Errorf("pool %q is unknown: no node belongs to it", name), "the pools are %s", strings.Join(known, ", "))
		case n > 1:
			return nil, WithHint(fmt.Errorf("pool %q is ambiguous: %d pools have that name", name, n), "give the whole ID")
		}
	}
	slices.SortFunc(chosen, func(a, b *overview) int { return strings.Compare(string(a.id), string(b.id)) })
	return chosen, nil
}

// is compares a pool with a name or an ID that a user typed.
func (p PoolID) is(name string) bool {
	return strings.EqualFold(p.Name(), name) || strings.EqualFold(string(p), name)
}

// readAll fills in what each pool's own reads tell.
func (e *Engine) readAll(ctx context.Context, pools []*overview, readLease bool) {
	var wg sync.WaitGroup
	places := make(chan struct{}, readers)
	for _, o := range pools {
		places <- struct{}{}
		wg.Go(func() {
			defer func() { <-places }()
			o.err = e.readOne(ctx, o, readLease)
		})
	}
	wg.Wait()
}

func (e *Engine) readOne(ctx context.Context, o *overview, readLease bool) (err error) {
	if o.lease.Err != nil {
		if len(o.nodes) == 0 { // a pool that is no more needs no lease
			_, err = e.Provider.Pool(ctx, o.id)
			o.gone = errors.Is(err, ErrNotFound)
		}
		return fmt.Errorf("read lease of pool %s: %w", o.id.Name(), o.lease.Err)
	}
	if o.pool, err = e.Provider.Pool(ctx, o.id); errors.Is(err, ErrNotFound) {
		if o.gone = true; o.lease.Holder != "" || len(o.taken()) > 0 {
			return hintPool(fmt.Errorf("read pool %s: %w", o.id.Name(), err), o.id)
		}
		return WithHint(fmt.Errorf("read pool %s: %w", o.id.Name(), err), "if it was deleted for good, delete the Node objects that it left: kubectl delete node")
	} else if err != nil {
		return hintPool(fmt.Errorf("read pool %s: %w", o.id.Name(), err), o.id)
	}
	if o.versions, err = e.Provider.Find(ctx, o.pool, Version, ""); err != nil {
		return fmt.Errorf("list image versions of pool %s: %w", o.pool.Name, err)
	}
	o.definition = len(o.versions) > 0
	if !o.definition {
		found, err := e.Provider.Find(ctx, o.pool, Definition, DefinitionName(o.pool.Name))
		if err != nil {
			return fmt.Errorf("read the image definition of pool %s: %w", o.pool.Name, err)
		}
		o.definition = len(found) > 0
	}
	if readLease {
		if o.lease, err = e.Cluster.Lease(ctx, o.id); err != nil {
			return fmt.Errorf("read lease of pool %s: %w", o.pool.Name, err)
		}
	}
	return nil
}

// donorAway: an ended run had a donor of the pool sealed, as far as lease and marks tell.
func (o overview) donorAway() bool {
	if o.lease.Record.Sealing {
		return true
	}
	return slices.ContainsFunc(o.taken(), func(n Node) bool { mark, err := n.claim(o.id); return err == nil && mark != nil && mark.Sealing })
}

// taken lists the nodes of the pool that runs have.
func (o overview) taken() []Node {
	var out []Node
	for _, n := range o.nodes {
		if mark, err := n.taken(o.id, o.lease); err == nil && mark != nil {
			out = append(out, n)
		}
	}
	return out
}

// good says whether a version can be what new nodes are made of.
func (a Artifact) good() bool { return a.State == Succeeded && a.Tags[TagBad] == "" }

// built is when the disk of a version was captured: by its tag, which the
// original wrote too, else by its name, else as the provider says.
func (a Artifact) built() (at stamp, ok bool) {
	if t, err := parseBuiltAt(a.Tags[TagBuiltAt]); err == nil {
		return stamp{t, true}, true
	}
	if d, err := VersionDate(a.Name); err == nil {
		return stamp{d, false}, true
	}
	return stamp{a.Created, true}, !a.Created.IsZero()
}

// latest is the version that a model naming the definition would get.
func latest(newestFirst []Artifact) *Artifact {
	for i, v := range newestFirst {
		if v.good() && !v.Excluded {
			return &newestFirst[i]
		}
	}
	return nil
}

// next is the version that the next node would boot from; nil when the model
// does not refer to any of them.
func (o overview) next() *Artifact {
	image := o.pool.Model.Image
	for i, v := range o.versions {
		if v.ID != "" && strings.EqualFold(v.ID, image) {
			return &o.versions[i]
		}
	}
	if len(o.versions) > 0 && strings.EqualFold(definitionOf(o.versions[0].ID), image) {
		for i, v := range o.versions {
			if v.State == Succeeded && !v.Excluded {
				return &o.versions[i]
			}
		}
	}
	return nil
}
