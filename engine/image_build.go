package engine

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"kamino.dev/kamino"
	"kamino.dev/kamino/workflow"
)

// imageState is what a run knows of today's version and its sources.
type imageState struct {
	reference  kamino.ImageReference // how the pool will refer to the version
	definition kamino.Artifact       // as last read
	formerHome bool                  // the definition existed before the run began, so it may have versions
	readAt     time.Time             // when version was read whole; zero after a write to it
	offeredAt  time.Time             // when the pool was read in which version was offered; zero once the pool was read again
	noted      bool                  // the lease records the write of the model
	unreturned bool                  // the parts that the provider never returns were named before the first write of the model
	whole      bool                  // the model needs no more writes
	version    kamino.Artifact       // as last read
	preBuilt   bool                  // the version existed before the run began
	reused     *kamino.Artifact
	foreign    string // why a snapshot of the pool's name was left alone
	failures   int
	there      bool              // the build of this process was seen, or its request was acknowledged
	lost       time.Time         // since when the version is not found
	kept       []string          // old versions that turned out to be in use
	going      *kamino.Artifact  // the old version whose deletion was requested and not acknowledged
	listed     []kamino.Artifact // the versions as last listed
	listedAt   time.Time         // when listed was read; zero after an act that may have changed it
	cleaning   bool              // this process has requested the deletion of the snapshot
	bad        []kamino.Artifact // the withdrawn versions
}

// imageMissing reports whether today's version is not even begun.
func (r *Run) imageMissing() bool { return !r.image.preBuilt }

// imageUnready reports whether today's version does not exist or is still being built, perhaps from
// the snapshot.
func (r *Run) imageUnready() bool {
	return !r.image.preBuilt || !r.image.version.Whole() || !r.image.version.Ready
}

// lookImage builds the version. A build that failed because the region has no zone-redundant
// storage is repeated once without it.
func (r *Run) lookImage(ctx context.Context) (workflow.Next, error) {
	found, err := r.engine.Provider.Find(ctx, r.pool, kamino.Version, r.image.version.Name)
	if err != nil {
		return workflow.Next{}, fmt.Errorf("read version %s: %w", r.image.version.Name, err)
	}
	if len(found) == 0 {
		return r.absentVersion(ctx)
	}
	v := found[0]
	r.image.there, r.image.lost = true, time.Time{}
	switch {
	case !v.Ours(), r.image.reused != nil && v.Tags[kamino.TagRun] != r.image.reused.Tags[kamino.TagRun], r.image.preBuilt && v.Tags[kamino.TagRun] != r.image.version.Tags[kamino.TagRun]:
		return workflow.Next{}, fmt.Errorf("version %s appeared meanwhile and was not made by this run", v.Name)
	case v.Whole() && v.Ready:
		if r.image.version, r.image.readAt = v, r.engine.now(); r.ungated() {
			return r.gate(v), nil
		}
		return workflow.Done(strings.TrimSuffix("replicated, "+v.Storage, ", ")), nil // a cloud may have no storage types
	case v.State == kamino.Failed:
		return r.failedImage(v)
	case v.State == kamino.Deleting:
		return workflow.Wait("the failed version to be deleted"), nil
	}
	return workflow.WaitPercent("the build and replication of the image", v.Percent), nil
}

// absentVersion builds the version. A version that existed before counts as gone only after
// GoneAfter; otherwise it would be built twice.
func (r *Run) absentVersion(ctx context.Context) (workflow.Next, error) {
	if now := r.engine.now(); r.image.lost.IsZero() {
		r.image.lost = now
	} else if kamino.Elapsed(r.image.lost, now) >= kamino.GoneAfter {
		r.image.there = false
	}
	if r.image.there {
		return workflow.Wait(lateVersion(r.image.version.Name)), nil
	}
	return r.createVersion(ctx)
}

func lateVersion(name string) string {
	return "version " + name + " (not found; confirming that it was deleted)"
}

func (r *Run) createVersion(ctx context.Context) (workflow.Next, error) {
	if r.image.reused == nil {
		return workflow.Next{}, errors.New("no snapshot to build from: it was deleted meanwhile")
	}
	want := kamino.Artifact{
		Kind: kamino.Version, Name: r.image.version.Name, Source: r.image.reused.ID, Replica: r.opts.Replicas,
		Storage: r.held.Lease.Record.Storage, Tags: r.image.reused.Tags,
	}
	hidden, err := r.bornHidden(ctx)
	if err != nil {
		return workflow.Next{}, err
	} else if hidden {
		want = r.hide(want)
	}
	if !r.promotes() {
		want = want.Gate()
	}
	if hidden && r.opts.ImageOnly {
		want.Tags[kamino.TagBootstrap] = kamino.TagBootstrapUnaccepted
	}
	create := workflow.Act(kamino.ActCreateVersion, buildText(want.Name), func(ctx context.Context) error {
		err := r.engine.Provider.Create(ctx, r.pool, want)
		if noZRS(err) {
			return r.held.SetLease(ctx, func(l *kamino.Lease) { l.Record.Storage = kamino.StorageLRS })
		}
		r.image.there, r.image.lost = err == nil, time.Time{}
		return err
	})
	if r.held.Lease.Ledger.Empty { // otherwise it is recorded when the block is removed, if this run had a donor
		create = create.Noting(func(l *kamino.Lease) { l.Ledger.Empty = false })
	}
	return create, nil
}

func buildText(version string) string { return "build version " + version }

func (r *Run) failedImage(v kamino.Artifact) (workflow.Next, error) {
	retry := v.Storage == kamino.StorageZRS && noZRS(errors.New(v.Failure))
	if !retry && r.image.failures > 0 {
		return workflow.Next{}, fmt.Errorf("version %s failed twice: %s", v.Name, v.Failure)
	}
	return workflow.Act(kamino.ActDeleteVersion, "delete the failed version and build again; it failed: "+v.Failure, func(ctx context.Context) error {
		if r.image.there = false; !retry {
			r.image.failures++
		}
		return r.engine.Provider.Delete(ctx, r.pool, v)
	}).Noting(func(l *kamino.Lease) {
		if retry {
			l.Record.Storage = kamino.StorageLRS
		}
	}), nil
}

// noZRS recognizes the texts with which Azure has refused zone-redundant storage over the years.
func noZRS(err error) bool {
	if err == nil {
		return false
	}
	_, after, zrs := strings.Cut(strings.ToLower(err.Error()), "zrs")
	return zrs && strings.Contains(after, "not supported")
}

// lookFailedVersion deletes the remains of a failed build, and waits for one that still reads the
// snapshot.
func (r *Run) lookFailedVersion(ctx context.Context) (workflow.Next, error) {
	if r.image.version.Name == "" {
		return workflow.Done("no version was begun"), nil
	}
	found, err := r.engine.Provider.Find(ctx, r.pool, kamino.Version, r.image.version.Name)
	if err != nil {
		return workflow.Next{}, fmt.Errorf("read version %s: %w", r.image.version.Name, err)
	}
	if len(found) == 0 && r.image.there && r.runner.Spent() < kamino.LookAge { // it may be in progress from the snapshot already
		return workflow.Wait(lateVersion(r.image.version.Name)), nil
	} else if len(found) == 0 || !found[0].Ours() {
		return workflow.Done("none"), nil
	}
	v := found[0]
	switch {
	case v.State == kamino.Failed && !v.Whole():
		return workflow.Act(kamino.ActDeleteVersion, "delete the failed version "+v.Name, func(ctx context.Context) error {
			return r.engine.Provider.Delete(ctx, r.pool, v)
		}), nil
	case v.State == kamino.Creating, v.State == kamino.Deleting:
		return workflow.WaitPercent(fmt.Sprintf("version %s, which is %s", v.Name, v.State), v.Percent), nil
	}
	return workflow.Done(v.Name + " is complete"), nil
}
