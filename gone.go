package kamino

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// goneAfter is how long a donor's instance must be missing, from reads and from its pool's list, before it is given up. Microsoft's
// support names the replication between regions as the cause of 404s for resources that exist
// (https://github.com/hashicorp/terraform-provider-azurerm/issues/18268); for how long they last no source was found (unverified).
const goneAfter = 3 * time.Minute

// lookMissing decides what it means that the donor's instance was not found. It is gone only if its pool can be read and lists it
// no more, twice and goneAfter apart, and its node is not alive meanwhile.
func (r *Run) lookMissing(ctx context.Context, id InstanceID) (Next, error) {
	if r.poolGone {
		return done("the donor is gone with its pool"), nil
	}
	now := r.clock().Now()
	first := r.missing.id != id
	if !first && now.Sub(r.missing.since) < goneAfter {
		return wait("the donor's instance, which is not found, to be found or to stay away"), nil
	}
	pool, err := r.Provider.Pool(ctx, r.pool.ID)
	if err != nil {
		return Next{}, hintPool(fmt.Errorf("read pool %s: %w", r.pool.Name, err), r.pool.ID)
	}
	listed, err := r.Provider.Instances(ctx, pool)
	if err != nil {
		return Next{}, fmt.Errorf("list the instances of pool %s: %w", r.pool.Name, err)
	}
	switch {
	case slices.ContainsFunc(listed, id.same):
		r.missing = missing{}
		return wait("the donor's instance, which its pool lists, to be found"), nil
	case first:
		r.missing = missing{id, now}
		return wait("the donor's instance, which is not found, to be found or to stay away"), nil
	case r.node.Ready && r.node.runsOn(id):
		return wait("the donor's instance, which is not found although its node is Ready"), nil
	}
	return done("the donor is gone: its instance was deleted"), nil
}

// missing is an instance that was neither found nor listed.
type missing struct {
	id    InstanceID
	since time.Time
}

func (id InstanceID) same(other InstanceID) bool { return strings.EqualFold(string(id), string(other)) }

func (n Node) runsOn(id InstanceID) bool { return n.ProviderID.same(id) }

// stranger tells why an instance may not be the machine of the donor, "" when it may. What a lease
// says about a donor is a claim, as a mark is: nothing is done to a machine of another pool, or to
// one that another node runs on.
func (r *Run) stranger(ctx context.Context, donor string, id InstanceID) (string, error) {
	if pool, err := r.Provider.PoolOf(id); err != nil || pool != r.pool.ID {
		return fmt.Sprintf("instance %s is none of pool %s", id, r.pool.Name), nil
	}
	if r.node.Name == donor && r.node.runsOn(id) {
		return "", nil
	}
	nodes, err := r.Cluster.Nodes(ctx)
	if err != nil {
		return "", fmt.Errorf("list nodes: %w", err)
	}
	for _, n := range nodes {
		if n.runsOn(id) && n.Name != donor {
			return fmt.Sprintf("instance %s is the machine of node %s, not of %s", id, n.Name, donor), nil
		}
	}
	return "", nil
}

// hintPool tells what to do where a pool cannot be read that a donor belongs to.
func hintPool(err error, pool PoolID) error {
	switch {
	case errors.Is(err, ErrNotFound):
		return WithHint(err, "nothing was taken off; try again in some minutes with: kamino restore; if the pool was deleted for good: kamino restore --pool %s --pool-is-gone", pool.Name())
	case errors.Is(err, ErrNotVisible):
		return WithHint(err, "nothing was taken off; use credentials of the pool's tenant that may read %s, then: kamino restore; if the pool was deleted with its resource group: kamino restore --pool %s --pool-is-gone",
			pool, pool.Name())
	}
	return err
}

// snapshotLife is longer than any run needs its snapshot: the limits of the steps from its making to the end of the build.
const snapshotLife = 24 * time.Hour

// foreignSnapshot tells why a snapshot may belong to a run that lives elsewhere, "" when its run is this one or has certainly ended:
// it was made under an earlier epoch of the lease that this run holds, its donor was given back just now, or it is too old. A
// snapshot without a run was made by the original, which had no runs.
func (r *Run) foreignSnapshot(s Artifact) string {
	run, held := s.Tags[TagRun], r.lease.Epoch
	if r.id == "" {
		held++ // a plan: the run would take the lease
	}
	epoch, err := strconv.ParseInt(s.Tags[TagEpoch], 10, 64)
	earlier := err == nil && epoch < held
	old := !s.Created.IsZero() && r.clock().Now().Sub(s.Created) > snapshotLife
	if run == "" || run == r.id || earlier || old || slices.Contains(r.returned, run) {
		return ""
	}
	return fmt.Sprintf("belongs to run %s (epoch %s), of which the lease of the pool does not know (epoch %d)", run, s.Tags[TagEpoch], r.lease.Epoch)
}

// replaced says whether an instance that was read is certainly another machine than that VM.
func replaced(in Instance, vm string) bool {
	_, now := vmID(in.VMID)
	_, then := vmID(vm)
	return now && then && !SameVM(in.VMID, vm)
}
