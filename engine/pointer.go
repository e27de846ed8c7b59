package engine

import (
	"context"
	"fmt"
	"time"

	"kamino.dev/kamino"
	"kamino.dev/kamino/poolstate"
)

// pointer is how the pool refers to its image, and the write that makes new nodes boot from another.
type pointer struct {
	*common
	image *image

	reference  kamino.ImageReference // how the pool will refer to the version
	offeredAt  time.Time             // when the pool was read in which the version was offered; zero once the pool was read again
	noted      bool                  // the lease records the write of the model
	unreturned bool                  // the parts that the provider never returns were named before the first write of the model
	whole      bool                  // the model needs no more writes
}

// withdrawnMeanwhile is the error for a version that was withdrawn after it was chosen. A person
// who names a version that is withdrawn already knows the reason.
func (p *pointer) withdrawnMeanwhile(v kamino.Version) error {
	return kamino.WithHint(fmt.Errorf("version %s was withdrawn meanwhile: %s", v.Name, v.Bad),
		"to use it anyway: kamino rollback --pool %s --to %s", p.pool.Name, v.Name)
}

// overviewNow reads, under the lease, what a choice of another image needs.
func (p *pointer) overviewNow(ctx context.Context) (poolstate.State, error) {
	pool, err := p.poolNow(ctx)
	if err != nil {
		return poolstate.State{}, err
	}
	versions, err := p.image.versions(ctx)
	if err != nil {
		return poolstate.State{}, err
	}
	o := poolstate.State{ID: pool.ID, Pool: pool, Versions: p.held.Lease.Ledger.Distrust(versions), Lease: *p.held.Lease}
	return o, p.engine.heed(ctx, &o)
}
