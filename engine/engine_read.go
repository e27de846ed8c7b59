package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"kamino.dev/kamino"
	"kamino.dev/kamino/selection"
)

// takenNow reports whether a run has a node. It reads the lease of the node's pool only if the mark
// needs a witness.
func (e *Engine) takenNow(ctx context.Context, n kamino.Node, pool kamino.PoolID) (bool, error) {
	mark, err := n.Claimed(pool)
	if err != nil || mark == nil {
		return false, nil
	}
	if mark, err = n.OwnedBy(pool, kamino.Lease{}); err == nil {
		return mark != nil, nil
	}
	lease, err := e.Cluster.Lease(ctx, pool)
	if err != nil {
		return false, fmt.Errorf("read lease of pool %s: %w", pool.Name(), err)
	}
	mark, err = n.OwnedBy(pool, lease)
	return err == nil && mark != nil, nil
}

// namedNode reads a node that a person named.
func (e *Engine) namedNode(ctx context.Context, name string) (kamino.Node, error) {
	n, err := e.Cluster.Node(ctx, name)
	if errors.Is(err, kamino.ErrNotFound) {
		return n, kamino.RefuseUnknown(name)
	} else if err != nil {
		return n, fmt.Errorf("read node %s: %w", name, err)
	}
	return n, nil
}

// namedPool returns the pool of a named node. A node without a pool is an error.
func (e *Engine) namedPool(ctx context.Context, n kamino.Node) (kamino.PoolID, error) {
	id, err := e.Provider.PoolOf(ctx, n.ProviderID)
	if errors.Is(err, kamino.ErrUnsupported) {
		return "", refuseOutside(n, err)
	} else if err != nil {
		return "", fmt.Errorf("find the pool of node %s: %w", n.Name, err)
	}
	return id, nil
}

// labelKarpenter is the label with the node pool on each node that Karpenter creates
// (https://karpenter.sh/docs/concepts/nodepools).
const labelKarpenter = "karpenter.sh/nodepool"

// refuseOutside refuses a node that belongs to no pool.
func refuseOutside(n kamino.Node, err error) error {
	f := kamino.Refusal{Code: "provider", Field: "spec.providerID", Value: string(n.ProviderID), Why: err.Error(),
		Do: "choose a node of a pool that this provider can handle"}
	if by := n.Labels[labelKarpenter]; by != "" {
		f = kamino.Refusal{Code: kamino.CodeOwner, Field: "metadata.labels[" + labelKarpenter + "]", Value: by,
			Why: "Karpenter made the node, and it belongs to no pool: " + err.Error(),
			Do:  "choose a node of a pool; the image of Karpenter's nodes is set in their node class"}
	}
	return &kamino.RefusedError{Subject: "node " + n.Name, Refusals: []kamino.Refusal{f}}
}

// forAutoscaler returns the length of a wait for cluster-autoscaler.
func (e *Engine) forAutoscaler(needed time.Duration) time.Duration {
	return min(needed, cmp.Or(e.SettleLimit, needed))
}

// holder returns the provider as Standby; nil where no pool replaces an instance that is off.
func (e *Engine) holder() kamino.Standby {
	holder, _ := e.asked().(kamino.Standby)
	return holder
}

// asked returns the provider itself, to test for optional interfaces. A plan's memory wraps the
// provider and has none.
func (e *Engine) asked() kamino.Provider {
	if plan, ok := e.Provider.(*readOnce); ok {
		return plan.Provider
	}
	return e.Provider
}

// poolOf returns the pool of a node; "" if it belongs to none.
func (e *Engine) poolOf(ctx context.Context, n kamino.Node) (kamino.PoolID, error) {
	id, err := e.Provider.PoolOf(ctx, n.ProviderID)
	if errors.Is(err, kamino.ErrUnsupported) {
		return "", nil
	} else if err != nil {
		return "", fmt.Errorf("find the pool of node %s: %w", n.Name, err)
	}
	return id, nil
}

// nodesOf reads the nodes of a pool, from a list of all nodes.
func (e *Engine) nodesOf(ctx context.Context, id kamino.PoolID) ([]kamino.Node, error) {
	nodes, err := e.Cluster.Nodes(ctx)
	if err != nil {
		return nil, fmt.Errorf("list nodes: %w", err)
	}
	return e.ofPool(ctx, nodes, id)
}

// ofPool returns those of the nodes that belong to a pool.
func (e *Engine) ofPool(ctx context.Context, nodes []kamino.Node, id kamino.PoolID) (out []kamino.Node, err error) {
	for _, n := range nodes {
		pool, err := e.poolOf(ctx, n)
		if err != nil {
			return nil, err
		}
		if pool == id {
			out = append(out, n)
		}
	}
	return selection.Twins(out), nil
}

// livesIn reports whether image versions live in artifacts of a kind, in this cloud.
func (e *Engine) livesIn(kind kamino.Kind) bool { return slices.Contains(e.Provider.Homes(), kind) }

// prover returns the provider as Prover and the cluster as Examiner, if they are.
func (e *Engine) prover() (kamino.Prover, kamino.Examiner, bool) {
	prover, can := e.asked().(kamino.Prover)
	examiner, looks := e.Cluster.(kamino.Examiner)
	return prover, examiner, can && looks
}

// listVersions lists the versions of a pool, newest first.
func (e *Engine) listVersions(ctx context.Context, pool kamino.Pool) ([]kamino.Version, error) {
	found, err := e.Provider.Find(ctx, pool, kamino.KindVersion, "")
	if err != nil {
		return nil, fmt.Errorf("list image versions of pool %s: %w", pool.Name, err)
	}
	return kamino.ParseVersions(found), nil
}

// readVersion reads a version of a pool; nil if it is not found.
func (e *Engine) readVersion(ctx context.Context, pool kamino.Pool, name string) (*kamino.Version, error) {
	found, err := e.Provider.Find(ctx, pool, kamino.KindVersion, name)
	if err != nil {
		return nil, fmt.Errorf("read version %s: %w", name, err)
	} else if len(found) == 0 {
		return nil, nil
	}
	v := kamino.ParseVersion(found[0])
	return &v, nil
}

// readSnapshot reads the snapshot of a pool; nil if there is none.
func (e *Engine) readSnapshot(ctx context.Context, pool kamino.Pool) (*kamino.Copy, error) {
	found, err := e.Provider.Find(ctx, pool, kamino.KindSnapshot, kamino.SnapshotName(pool.Name))
	if err != nil {
		return nil, fmt.Errorf("read snapshot %s: %w", kamino.SnapshotName(pool.Name), err)
	} else if len(found) == 0 {
		return nil, nil
	}
	s := kamino.ParseCopy(found[0])
	return &s, nil
}
