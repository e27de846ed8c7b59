package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"kamino.dev/kamino"
	"kamino.dev/kamino/poolstate"
	"kamino.dev/kamino/selection"
)

// addLacks adds the images that the next node of each pool would have to pull: one request for each
// version with a list. Without the right to read lists it adds nothing.
func (e *Engine) addLacks(ctx context.Context, all []poolstate.State, out []poolstate.PoolStatus) {
	shelf, ok := e.Cluster.(kamino.PackageStore)
	if !ok {
		return
	}
	for i, o := range all {
		b := out[i].Behind
		if b == nil {
			continue
		}
		list, err := shelf.List(ctx, o.Next().Run)
		at := slices.IndexFunc(o.Nodes, func(n kamino.Node) bool { return n.Name == b.Node })
		if err == nil && at >= 0 {
			b.Missing = list.Lacks(o.Nodes[at])
		}
	}
}

// overviews reads all pools, or those of the given names, and returns the nodes of the whole
// cluster too. Pools are known by their nodes and by their leases.
func (e *Engine) overviews(ctx context.Context, names []string) ([]poolstate.State, []kamino.Node, error) {
	nodes, err := e.Cluster.Nodes(ctx)
	if err != nil {
		return nil, nil, fmt.Errorf("list nodes: %w", err)
	}
	byID := map[kamino.PoolID]*poolstate.State{}
	get := func(id kamino.PoolID) *poolstate.State {
		if byID[id] == nil {
			byID[id] = &poolstate.State{ID: id, Lease: kamino.Lease{Pool: id}}
		}
		return byID[id]
	}
	for _, n := range selection.Twins(nodes) {
		id, err := e.poolOf(ctx, n)
		if err != nil {
			return nil, nil, err
		}
		if id != "" && !id.OfCanary() {
			o := get(id)
			o.Nodes = append(o.Nodes, n)
		}
	}
	leases, err := e.Cluster.Leases(ctx)
	if err != nil {
		return nil, nil, fmt.Errorf("list leases: %w", err)
	}
	for _, l := range leases {
		get(l.Pool).Lease = l
	}
	chosen, err := poolstate.ChoosePools(byID, names)
	if err != nil {
		return nil, nil, err
	}
	e.readAll(ctx, chosen)
	chosen = slices.DeleteFunc(chosen, func(o *poolstate.State) bool {
		return o.Gone && len(o.Nodes) == 0 && o.Lease.Holder == "" && len(names) == 0
	})
	out := make([]poolstate.State, len(chosen))
	for i, o := range chosen {
		o.Versions = o.Lease.Ledger.Distrust(o.Versions)
		out[i] = *o
	}
	return out, nodes, nil
}

// onePool reads the pool that a person named, after it has restored what an interrupted run of it
// left.
func (e *Engine) onePool(ctx context.Context, name string, dryRun bool, leaves func(kamino.Version) bool) (poolstate.State, error) {
	if name == "" {
		return poolstate.State{}, kamino.WithHint(errors.New("no pool named"), "name it with --pool; kamino status lists the pools")
	}
	all, _, err := e.overviews(ctx, []string{name})
	if err != nil {
		return poolstate.State{}, err
	}
	o := all[0]
	switch {
	case o.Err != nil && dryRun:
		return o, o.Err
	case o.Err != nil:
		return o, clearUnread(ctx, e, o)
	case !dryRun:
		back, err := clearPool(ctx, e, o, RestoreOptions{leaves: leaves})
		if len(back) > 0 && err == nil { // the version that was being built then exists by now
			if all, _, err = e.overviews(ctx, []string{name}); err == nil {
				o, err = all[0], all[0].Err
			}
		}
		if o.GivenBack = back; err != nil {
			return o, err
		}
		o.Awaits = leaves != nil && slices.ContainsFunc(o.Versions, o.Lease.Ledger.Builds)
	}
	return o, e.heed(ctx, &o)
}

// readAll adds what each pool's own reads show.
func (e *Engine) readAll(ctx context.Context, pools []*poolstate.State) {
	e.inTurn(len(pools), noneUrgent, func(own *Engine, i int) { pools[i].Err = own.readOne(ctx, pools[i]) })
}

func (e *Engine) readOne(ctx context.Context, o *poolstate.State) (err error) {
	if o.Lease.Err != nil {
		if len(o.Nodes) == 0 { // a pool that does not exist needs no lease
			_, err = e.Provider.Pool(ctx, o.ID)
			o.Gone = errors.Is(err, kamino.ErrNotFound)
		}
		return fmt.Errorf("read lease of pool %s: %w", o.ID.Name(), o.Lease.Err)
	}
	if o.Pool, err = e.Provider.Pool(ctx, o.ID); errors.Is(err, kamino.ErrNotFound) {
		if o.Gone = true; o.Lease.Holder != "" || len(o.Taken()) > 0 {
			return kamino.HintPool(fmt.Errorf("read pool %s: %w", o.ID.Name(), err), o.ID)
		}
		return kamino.WithHint(fmt.Errorf("read pool %s: %w", o.ID.Name(), err),
			"if it was deleted for good, delete the Node objects that it left: kubectl delete node")
	} else if err != nil {
		return kamino.HintPool(fmt.Errorf("read pool %s: %w", o.ID.Name(), err), o.ID)
	}
	if o.Versions, err = e.listVersions(ctx, o.Pool); err != nil {
		return err
	}
	if prover, _, ok := e.prover(); ok {
		o.Canaries, _ = prover.Canaries(ctx, o.Pool) // restore reports why not
	}
	lives := e.livesIn(kamino.KindDefinition)
	if o.Definition = lives && len(o.Versions) > 0; lives && !o.Definition {
		found, err := e.Provider.Find(ctx, o.Pool, kamino.KindDefinition, kamino.DefinitionName(o.Pool.Name))
		if err != nil {
			return fmt.Errorf("read the image definition of pool %s: %w", o.Pool.Name, err)
		}
		o.Definition = len(found) > 0
	}
	return nil
}
