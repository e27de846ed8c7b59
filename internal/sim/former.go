package sim

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"kamino.dev/kamino"
)

// formerLease is a pool's lease in another namespace, where a former version of the program keeps
// it. Once a run here has taken over what stands there, no former version touches it.
type formerLease struct {
	kamino.Lease
	moved bool
}

// What must have happened to leases in another namespace.
const (
	cellMoved   = "the ledger moves from another namespace"
	cellAdopted = "a run in another namespace is taken over"
	cellRetired = "a run that was taken over finds its lease retired"
	cellHeld    = "a run in another namespace is left alone while it lives"
)

// standing is the lease of a pool as all namespaces together tell it, as package kube reads it:
// the one here while a run holds it, else the former one, with what is known of the ledger.
func (w *world) standing(pool kamino.PoolID) kamino.Lease {
	here, there := w.leases[pool], w.elsewhere[pool]
	here.Pool = pool
	if there == nil || there.moved || here.Holder != "" {
		return here
	}
	out := there.Lease
	out.Epoch = max(here.Epoch, there.Epoch)
	if out.Ledger.Former == nil {
		out.Ledger.Former, out.Ledger.Wrote = here.Ledger.Former, here.Ledger.Wrote
	}
	if out.Ledger.Original == nil {
		out.Ledger.Original = here.Ledger.Original
	}
	out.Revision = here.Revision + formerRevision + there.Revision
	return out
}

const formerRevision = "+"

// takeLease writes the lease here. What it takes over is retired in the other namespace.
func (w *world) takeLease(p *proc, l kamino.Lease) (kamino.Lease, error) {
	// The condition is what was read: who has not read the former lease is not stopped by it.
	here, read, takes := strings.Cut(l.Revision, formerRevision)
	there := w.elsewhere[l.Pool]
	if w.leases[l.Pool].Revision != here || takes && (there.moved || there.Revision != read) {
		return kamino.Lease{}, fmt.Errorf("lease of %s: %w", l.Pool.Name(), kamino.ErrConflict)
	}
	if size := l.Size(); w.leaseRoom > 0 && size > w.leaseRoom {
		w.hit(cellLeaseFull)
		return kamino.Lease{}, fmt.Errorf("lease of %s: %d bytes: %w", l.Pool.Name(), size, kamino.ErrTooLarge)
	}
	if takes && there.Holder != "" {
		w.hit(cellAdopted)
	} else if takes {
		w.hit(cellMoved)
	}
	l.Revision = strconv.Itoa(w.next())
	w.backUpLease(l)
	w.audit.lease(p, l.Pool, func() {
		if w.leases[l.Pool] = l; takes {
			w.elsewhere[l.Pool].moved = true
		}
	})
	return l, nil
}

// formerCluster is Kubernetes as a process of a former version sees it: it knows the lease of its
// own namespace and no other.
type formerCluster struct{ simCluster }

func (c formerCluster) Lease(ctx context.Context, pool kamino.PoolID) (out kamino.Lease, err error) {
	err = c.call(ctx, call{method: "Lease", subject: pool.Name()}, func(*fault) error {
		there := c.p.w.formerLease(pool)
		if there.moved {
			return c.retired(pool)
		}
		out = there.Lease
		return nil
	})
	return out, err
}

func (c formerCluster) Leases(ctx context.Context) (out []kamino.Lease, err error) {
	err = c.call(ctx, call{method: "Leases"}, func(*fault) error {
		if there := c.p.w.formerLease(poolA); !there.moved {
			out = []kamino.Lease{there.Lease}
		}
		return nil
	})
	return out, err
}

func (c formerCluster) SetLease(ctx context.Context, l kamino.Lease) (out kamino.Lease, err error) {
	w := c.p.w
	what := call{method: "SetLease", subject: l.Pool.Name() + " " + l.Record.Step + " " + l.Record.Intent, write: true}
	err = c.call(ctx, what, func(*fault) error {
		there := w.formerLease(l.Pool)
		if there.moved {
			w.hit(cellRetired)
			return c.retired(l.Pool)
		}
		if there.Revision != l.Revision {
			return fmt.Errorf("lease of %s: %w", l.Pool.Name(), kamino.ErrConflict)
		}
		l.Revision = strconv.Itoa(w.next())
		w.audit.lease(c.p, l.Pool, func() { there.Lease = l })
		out = l
		return nil
	})
	return out, err
}

// retired is what a former version makes of a lease in format 2.
func (c formerCluster) retired(pool kamino.PoolID) error {
	return fmt.Errorf("lease of %s has format 2, written by a newer kamino (this one knows 1)", pool.Name())
}

func (w *world) formerLease(pool kamino.PoolID) *formerLease {
	if w.elsewhere[pool] == nil {
		w.elsewhere[pool] = &formerLease{Lease: kamino.Lease{Pool: pool}}
	}
	return w.elsewhere[pool]
}

// moveAway makes it that the pool was only ever used by a former version in another namespace.
func (w *world) moveAway() {
	w.elsewhere[poolA] = &formerLease{Lease: w.leases[poolA]}
	delete(w.leases, poolA)
}

// allLeases lists the leases of all pools as they stand, by pool.
func (w *world) allLeases() []kamino.Lease {
	pools := map[kamino.PoolID]bool{}
	for id := range w.leases {
		pools[id] = true
	}
	for id, there := range w.elsewhere {
		pools[id] = pools[id] || !there.moved
	}
	var out []kamino.Lease
	for _, id := range slices.Sorted(maps.Keys(pools)) {
		out = append(out, w.standing(id))
	}
	return out
}

const cellLeaseFull = "a lease that is full"

// hit counts that something which a test must have met happened.
func (w *world) hit(cell string) { w.hits[cell]++ }
