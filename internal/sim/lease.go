package sim

import (
	"fmt"
	"maps"
	"slices"
	"strconv"

	"kamino.dev/kamino"
)

// standing is the lease of a pool; a pool that has none has an empty one.
func (w *world) standing(pool kamino.PoolID) kamino.Lease {
	l := w.leases[pool]
	l.Pool = pool
	return l
}

// allLeases lists the leases of all pools, by pool.
func (w *world) allLeases() []kamino.Lease {
	var out []kamino.Lease
	for _, id := range slices.Sorted(maps.Keys(w.leases)) {
		out = append(out, w.standing(id))
	}
	return out
}

// writeLease writes a lease if it is still at the revision that was read.
func (w *world) writeLease(p *proc, l kamino.Lease) (kamino.Lease, error) {
	if w.leases[l.Pool].Revision != l.Revision {
		return kamino.Lease{}, fmt.Errorf("lease of %s: %w", l.Pool.Name(), kamino.ErrConflict)
	}
	if size := l.Size(); w.leaseRoom > 0 && size > w.leaseRoom {
		w.hit(cellLeaseFull)
		return kamino.Lease{}, fmt.Errorf("lease of %s: %d bytes: %w", l.Pool.Name(), size, kamino.ErrTooLarge)
	}
	l.Revision = strconv.Itoa(w.next())
	w.backUpLease(l)
	w.audit.lease(p, l.Pool, func() { w.leases[l.Pool] = l })
	return l, nil
}

const cellLeaseFull = "a lease that is full"

// hit counts that something which a test must have met happened.
func (w *world) hit(cell string) { w.hits[cell]++ }
