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

// build makes today's version: it takes the snapshot of the sealed disk, builds the version from it
// and deletes the snapshot.
type build struct {
	*common
	donor   *donor
	image   *image
	pointer *pointer
	canary  *canary

	reused   *kamino.Copy // the snapshot that the version is made of
	foreign  string       // why a snapshot of the pool's name was left alone
	failures int
	lost     time.Time // since when the version is not found
	cleaning bool      // this process has requested the deletion of the snapshot
}

func (b *build) mustHold() bool { return b.donor.mayRelease() && b.needed() }

func (b *build) mustRelease() bool { return b.donor.mayRelease() && b.marked() }

// lookImage builds the version. A build that failed because the region has no zone-redundant
// storage is repeated once without it.
func (b *build) lookImage(ctx context.Context) (workflow.Next, error) {
	found, err := b.engine.readVersion(ctx, b.pool, b.image.version.Name)
	if err != nil {
		return workflow.Next{}, err
	} else if found == nil {
		return b.absentVersion(ctx)
	}
	v := *found
	b.image.there, b.lost = true, time.Time{}
	switch {
	case !v.Ours(), b.reused != nil && v.Run != b.reused.Run, b.image.preBuilt && v.Run != b.image.version.Run:
		return workflow.Next{}, fmt.Errorf("version %s appeared meanwhile and was not made by this run", v.Name)
	case v.Whole() && v.Ready:
		if b.image.version, b.image.readAt = v, b.engine.now(); b.ungated() {
			return b.image.gate(v), nil
		}
		return workflow.Done(strings.TrimSuffix("replicated, "+v.Storage, ", ")), nil // a cloud may have no storage types
	case v.State == kamino.Failed:
		return b.failedImage(v)
	case v.State == kamino.Deleting:
		return workflow.Wait("the failed version to be deleted"), nil
	}
	return workflow.WaitPercent("the build and replication of the image", v.Percent), nil
}

// absentVersion builds the version. A version that existed before counts as gone only after
// GoneAfter; otherwise it would be built twice.
func (b *build) absentVersion(ctx context.Context) (workflow.Next, error) {
	if now := b.engine.now(); b.lost.IsZero() {
		b.lost = now
	} else if kamino.Elapsed(b.lost, now) >= kamino.GoneAfter {
		b.image.there = false
	}
	if b.image.there {
		return workflow.Wait(lateVersion(b.image.version.Name)), nil
	}
	return b.createVersion(ctx)
}

func (b *build) createVersion(ctx context.Context) (workflow.Next, error) {
	if b.reused == nil {
		return workflow.Next{}, errors.New("no snapshot to build from: it was deleted meanwhile")
	}
	want := kamino.ParseVersion(kamino.Artifact{
		Kind: kamino.KindVersion, Name: b.image.version.Name, Source: b.reused.ID,
		Storage: b.held.Lease.Record.Storage, Tags: b.reused.Tags,
	})
	hidden, err := b.pointer.bornHidden(ctx)
	if err != nil {
		return workflow.Next{}, err
	} else if hidden {
		want = b.image.hide(want)
	}
	if !b.image.promotes() {
		want = want.Gate()
	}
	if hidden && b.opts.ImageOnly {
		want = want.LeaveUnaccepted()
	}
	create := workflow.Act(kamino.ActCreateVersion, buildText(want.Name), func(ctx context.Context) error {
		err := b.engine.Provider.Create(ctx, b.pool, want.Artifact)
		if noZRS(err) {
			return b.held.SetLease(ctx, func(l *kamino.Lease) { l.Record.Storage = kamino.StorageLRS })
		}
		b.image.there, b.lost = err == nil, time.Time{}
		return err
	})
	if b.held.Lease.Ledger.Empty { // otherwise it is recorded when the block is removed, if this run had a donor
		create = create.Noting(func(l *kamino.Lease) { l.Ledger.Empty = false })
	}
	return create, nil
}

func (b *build) failedImage(v kamino.Version) (workflow.Next, error) {
	retry := v.Storage == kamino.StorageZRS && noZRS(errors.New(v.Failure))
	if !retry && b.failures > 0 {
		return workflow.Next{}, fmt.Errorf("version %s failed twice: %s", v.Name, v.Failure)
	}
	return workflow.Act(kamino.ActDeleteVersion, "delete the failed version and build again; it failed: "+v.Failure,
		func(ctx context.Context) error {
			if b.image.there = false; !retry {
				b.failures++
			}
			return b.engine.Provider.Delete(ctx, b.pool, v.Artifact)
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
func (b *build) lookFailedVersion(ctx context.Context) (workflow.Next, error) {
	if b.image.version.Name == "" {
		return workflow.Done("no version was begun"), nil
	}
	v, err := b.engine.readVersion(ctx, b.pool, b.image.version.Name)
	if err != nil {
		return workflow.Next{}, err
	}
	if v == nil && b.image.there && b.runner.Spent() < kamino.LookAge { // it may be in progress from the snapshot already
		return workflow.Wait(lateVersion(b.image.version.Name)), nil
	} else if v == nil || !v.Ours() {
		return workflow.Done("none"), nil
	}
	switch {
	case v.State == kamino.Failed && !v.Whole():
		return workflow.Act(kamino.ActDeleteVersion, "delete the failed version "+v.Name, func(ctx context.Context) error {
			return b.engine.Provider.Delete(ctx, b.pool, v.Artifact)
		}), nil
	case v.State == kamino.Creating, v.State == kamino.Deleting:
		return workflow.WaitPercent(fmt.Sprintf("version %s, which is %s", v.Name, v.State), v.Percent), nil
	}
	return workflow.Done(v.Name + " is complete"), nil
}

func (b *build) planImage() string {
	return buildText(b.image.version.Name)
}

// needed reports whether neither an image nor a snapshot of this day can be used.
func (b *build) needed() bool { return b.image.missing() && b.reused == nil }

// untouchedYet reports whether the donor is needed, and nothing was done to it yet.
func (b *build) untouchedYet() bool {
	mark, err := b.donor.node.Claimed(b.pool.ID)
	return b.needed() && mark == nil && err == nil && !b.held.Sealing()
}

// marked reports whether the run may hold a donor.
func (b *build) marked() bool {
	mark, err := b.donor.node.Claimed(b.pool.ID)
	return mark != nil || err != nil || b.held.Sealing() || b.needed()
}
