package kamino

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Storage types of image versions
// (https://learn.microsoft.com/azure/virtual-machines/shared-image-galleries).
const (
	StorageZRS = "Standard_ZRS"
	StorageLRS = "Standard_LRS"
)

// imaging is what is known of today's version, and of what it is made of.
type imaging struct {
	reference  ImageReference // how the pool shall refer to it
	definition Artifact       // as last seen
	formerHome bool           // it was there before the run began, and so may versions be
	readAt     time.Time      // when version was read whole; zero once something was written of it
	offeredAt  time.Time      // when the pool was read that version was offered in; zero once it was read again
	noted      bool           // the write of the model stands on the lease
	unreturned bool           // what no provider gives back was named before the first write of the model
	whole      bool           // nothing of the model is left to be written
	version    Artifact       // as last seen
	preBuilt   bool           // it was there before the run began
	reused     *Artifact
	foreign    string // why a snapshot of the pool's name was left alone
	failures   int
	there      bool       // what this process builds was seen, or its making was acknowledged
	lost       time.Time  // since when it is not found
	kept       []string   // old versions that turned out to be in use
	going      *Artifact  // the old version whose deletion was begun and not acknowledged
	listed     []Artifact // the versions as they were last listed
	listedAt   time.Time  // when that was; zero once something was done that may have changed them
	cleaning   bool       // this process has asked for the end of the snapshot
	bad        []Artifact // those that were withdrawn
}

// mendTime is how long a gallery or definition that has failed is asked for
// again.
const mendTime = 5 * time.Minute

// ensure is a look that creates what does not exist.
func (r *Run) ensure(ctx context.Context, want Artifact, check func(Artifact) error) (Next, error) {
	found, err := r.engine.Provider.Find(ctx, r.pool, want.Kind, want.Name)
	if err != nil {
		return Next{}, fmt.Errorf("read %s %s: %w", want.Kind, want.Name, err)
	}
	create := act(createAct(want.Kind), createText(want.Kind, want.Name), func(ctx context.Context) error {
		return r.engine.Provider.Create(ctx, r.pool, want)
	})
	if len(found) == 0 && !r.held.lease.Ledger.Empty { // versions live in it
		return create.noting(func(l *Lease) { l.Ledger.Empty = true }), nil
	} else if len(found) == 0 {
		return create, nil
	}
	have := found[0]
	switch have.State {
	case Succeeded:
		return done(have.Name), check(have)
	case Failed:
		// The same request again mends what an earlier one left half made.
		if r.runner.Spent() > mendTime {
			return Next{}, WithHint(fmt.Errorf("%s %s has failed: %s", have.Kind, have.Name, have.Failure),
				"delete it if it is empty, then run again")
		}
		return create, nil
	}
	return wait(fmt.Sprintf("%s %s, which is %s", have.Kind, have.Name, have.State)), nil
}

// livesIn says whether image versions live in artifacts of a kind here.
func (e *Engine) livesIn(kind Kind) bool { return slices.Contains(e.Provider.Homes(), kind) }

func (r *Run) inGallery() bool    { return r.engine.livesIn(Gallery) }
func (r *Run) inDefinition() bool { return r.engine.livesIn(Definition) }

func createAct(kind Kind) Act {
	if kind == Gallery {
		return ActCreateGallery
	}
	return ActCreateDefinition
}

func createText(kind Kind, name string) string { return fmt.Sprintf("create %s %s", kind, name) }

func (r *Run) lookGallery(ctx context.Context) (Next, error) {
	want := Artifact{Kind: Gallery, Name: r.pool.Gallery}
	next, err := r.ensure(ctx, want, func(Artifact) error { return nil })
	return next.announcing(ActCreateDefinition, createText(Definition, DefinitionName(r.pool.Name))), err
}

func (r *Run) lookDefinition(ctx context.Context) (Next, error) {
	want := r.wantedDefinition()
	return r.ensure(ctx, want, func(have Artifact) error {
		r.image.definition = have
		if list := misfits(have, want); len(list) > 0 {
			return inTheWay{WithHint(errors.New(list[0].Why), "%s", list[0].Do)}
		}
		return nil
	})
}

// wantedDefinition is one that the donor's disk fits.
func (r *Run) wantedDefinition() Artifact {
	in := r.donor.instance
	return Artifact{
		Kind: Definition, Name: DefinitionName(r.pool.Name),
		Machine: Machine{Generation: in.Generation, Architecture: in.Architecture, SecurityType: in.SecurityType, Controller: in.Controller},
	}
}

// misfits compares what of a definition can never be changed. A definition
// without an architecture or a security type is of the original: x64, Standard. One for
// TrustedLaunchSupported fits nobody: its versions are never made of snapshots
// (https://github.com/hashicorp/packer-plugin-azure/issues/304).
func misfits(have, want Artifact) (list []Refusal) {
	for _, f := range []struct{ name, have, want, absent string }{
		{"generation", have.Generation, want.Generation, "V1"},
		{"architecture", have.Architecture, want.Architecture, "x64"},
		{"security type", have.SecurityType, want.SecurityType, "Standard"},
	} {
		if f.have == "" {
			f.have = f.absent
		}
		if f.want != "" && !strings.EqualFold(f.have, f.want) {
			list = append(list, Refusal{Code: "fit", Field: f.name + " of image definition " + have.Name, Value: f.have,
				Why: fmt.Sprintf("image definition %s has %s %s, the donor %s, and it can never be changed", have.Name, f.name, f.have, f.want),
				Do:  "if no instance uses its versions, delete the definition; else choose another gallery with --gallery"})
		}
	}
	return list
}

// imageMissing: today's version is not even begun.
func (r *Run) imageMissing() bool { return !r.image.preBuilt }

// imageUnready: today's version is not there, or still being built, perhaps from
// the snapshot.
func (r *Run) imageUnready() bool {
	return !r.image.preBuilt || !r.image.version.whole() || !r.image.version.Ready
}

// deleteSnapshot waits for a version that is still being built from it.
func (r *Run) deleteSnapshot(ctx context.Context, s Artifact, what string) (Next, error) {
	versions, err := r.versions(ctx)
	if err != nil {
		return Next{}, err
	}
	for _, v := range versions {
		if v.State == Creating && v.Ours() {
			return waitPercent("version "+v.Name+", which is being built from the snapshot", v.Percent), nil
		}
	}
	return act(ActDeleteSnapshot, what, func(ctx context.Context) error {
		r.image.cleaning = r.image.reused != nil // else it is none of this run's
		return r.engine.Provider.Delete(ctx, r.pool, s)
	}), nil
}

// lookImage builds the version. A build that failed because the region has no
// zone-redundant storage is repeated once without.
func (r *Run) lookImage(ctx context.Context) (Next, error) {
	found, err := r.engine.Provider.Find(ctx, r.pool, Version, r.image.version.Name)
	if err != nil {
		return Next{}, fmt.Errorf("read version %s: %w", r.image.version.Name, err)
	}
	if len(found) == 0 {
		return r.absentVersion(ctx)
	}
	v := found[0]
	r.image.there, r.image.lost = true, time.Time{}
	switch {
	case !v.Ours(), r.image.reused != nil && v.Tags[TagRun] != r.image.reused.Tags[TagRun], r.image.preBuilt && v.Tags[TagRun] != r.image.version.Tags[TagRun]:
		return Next{}, fmt.Errorf("version %s appeared meanwhile and was not made by this run", v.Name)
	case v.whole() && v.Ready:
		if r.image.version, r.image.readAt = v, r.engine.now(); r.ungated() {
			return r.gate(v), nil
		}
		return done(strings.TrimSuffix("replicated, "+v.Storage, ", ")), nil // a cloud may have no types of storage
	case v.State == Failed:
		return r.failedImage(v)
	case v.State == Deleting:
		return wait("the failed version to be deleted"), nil
	}
	return waitPercent("the build and replication of the image", v.Percent), nil
}

// absentVersion builds the version, but for one that was there: that it is not found is believed
// after goneAfter only, as it would be made a second time.
func (r *Run) absentVersion(ctx context.Context) (Next, error) {
	if now := r.engine.now(); r.image.lost.IsZero() {
		r.image.lost = now
	} else if elapsed(r.image.lost, now) >= goneAfter {
		r.image.there = false
	}
	if r.image.there {
		return wait(lateVersion(r.image.version.Name)), nil
	}
	return r.createVersion(ctx)
}

func lateVersion(name string) string {
	return "version " + name + ", which is not found, to be found or to be confirmed gone"
}

func (r *Run) createVersion(ctx context.Context) (Next, error) {
	if r.image.reused == nil {
		return Next{}, errors.New("no snapshot to build from: it was deleted meanwhile")
	}
	want := Artifact{
		Kind: Version, Name: r.image.version.Name, Source: r.image.reused.ID, Replica: r.opts.Replicas,
		Storage: r.held.lease.Record.Storage, Tags: r.image.reused.Tags,
	}
	hidden, err := r.bornHidden(ctx)
	if err != nil {
		return Next{}, err
	} else if hidden {
		want = r.hide(want)
	}
	if !r.promotes() {
		want = want.gate()
	}
	if hidden && r.opts.ImageOnly {
		want.Tags[TagBootstrap] = bootstrapUnaccepted
	}
	create := act(ActCreateVersion, buildText(want.Name), func(ctx context.Context) error {
		err := r.engine.Provider.Create(ctx, r.pool, want)
		if noZRS(err) {
			return r.held.setLease(ctx, func(l *Lease) { l.Record.Storage = StorageLRS })
		}
		r.image.there, r.image.lost = err == nil, time.Time{}
		return err
	})
	if r.held.lease.Ledger.Empty { // it is noted when the block comes off, where this run had a donor
		create = create.noting(func(l *Lease) { l.Ledger.Empty = false })
	}
	return create, nil
}

func buildText(version string) string { return "build version " + version }

func (r *Run) failedImage(v Artifact) (Next, error) {
	retry := v.Storage == StorageZRS && noZRS(errors.New(v.Failure))
	if !retry && r.image.failures > 0 {
		return Next{}, fmt.Errorf("version %s failed twice: %s", v.Name, v.Failure)
	}
	return act(ActDeleteVersion, "delete the failed version and build again; it failed: "+v.Failure, func(ctx context.Context) error {
		if r.image.there = false; !retry {
			r.image.failures++
		}
		return r.engine.Provider.Delete(ctx, r.pool, v)
	}).noting(func(l *Lease) {
		if retry {
			l.Record.Storage = StorageLRS
		}
	}), nil
}

// noZRS recognises the texts with which Azure has refused zone-redundant
// storage over the years.
func noZRS(err error) bool {
	if err == nil {
		return false
	}
	_, after, zrs := strings.Cut(strings.ToLower(err.Error()), "zrs")
	return zrs && strings.Contains(after, "not supported")
}

// lookClean deletes the snapshot of the pool, once no version is built from it.
func (r *Run) lookClean(ctx context.Context) (Next, error) {
	name := SnapshotName(r.pool.Name)
	if v := r.image.version; r.image.reused != nil && v.Keeps && v.Source == r.image.reused.ID {
		return done("a part of version " + v.Name), nil
	}
	found, err := r.engine.Provider.Find(ctx, r.pool, Snapshot, name)
	if err != nil {
		return Next{}, fmt.Errorf("read snapshot %s: %w", name, err)
	}
	if len(found) == 0 && r.image.reused != nil && !r.image.cleaning && r.runner.Spent() < lookAge {
		return wait("the snapshot of this run, which is not found, to be found or to be confirmed gone"), nil
	} else if len(found) == 0 {
		return done("no snapshot is left"), nil
	}
	s := found[0]
	if !s.Ours() {
		return done("snapshot " + name + " was not made by kamino and is kept"), nil
	}
	if s.State == Deleting {
		return wait("the snapshot to be deleted"), nil
	}
	if r.image.foreign = r.foreignSnapshot(s); r.image.foreign != "" {
		r.held.warn("snapshot " + name + " " + r.image.foreign)
		return done("snapshot " + name + " " + r.image.foreign + " and is kept"), nil
	}
	return r.deleteSnapshot(ctx, s, cleanText(r.pool))
}

func cleanText(p Pool) string { return "delete snapshot " + SnapshotName(p.Name) }

// mayHaveSnapshot: the run got as far as that, now or before it was adopted.
func (r *Run) mayHaveSnapshot() bool { return r.held.adopted || r.image.version.Name != "" }

// lookFailedVersion deletes what a failed build left, and waits for one that
// still reads the snapshot.
func (r *Run) lookFailedVersion(ctx context.Context) (Next, error) {
	if r.image.version.Name == "" {
		return done("no version was begun"), nil
	}
	found, err := r.engine.Provider.Find(ctx, r.pool, Version, r.image.version.Name)
	if err != nil {
		return Next{}, fmt.Errorf("read version %s: %w", r.image.version.Name, err)
	}
	if len(found) == 0 && r.image.there && r.runner.Spent() < lookAge { // it may be built from the snapshot already
		return wait(lateVersion(r.image.version.Name)), nil
	} else if len(found) == 0 || !found[0].Ours() {
		return done("none"), nil
	}
	v := found[0]
	switch {
	case v.State == Failed && !v.whole():
		return act(ActDeleteVersion, "delete the failed version "+v.Name, func(ctx context.Context) error {
			return r.engine.Provider.Delete(ctx, r.pool, v)
		}), nil
	case v.State == Creating, v.State == Deleting:
		return waitPercent(fmt.Sprintf("version %s, which is %s", v.Name, v.State), v.Percent), nil
	}
	return done(v.Name + " is in order"), nil
}

// keepWithdrawn is how many versions stay that were withdrawn, and as many that were never offered.
const keepWithdrawn = 1

// Prunable lists the versions that may be deleted, oldest first: ours, older than the newest keep
// that were promoted, and used by no model, no instance, and no way back. What was withdrawn counts
// apart, as its reason speaks against its donor, and so does what was never offered: of each the
// newest apart stay, and all that may yet be promoted. So does a version that the pool may stick
// to, and one that only its name makes old, and with any doubt a version stays.
func Prunable(newestFirst []Artifact, keep, apart int, ledger Ledger) []Artifact {
	var out []Artifact
	promoted, withdrawn, hidden := 0, 0, 0
	for _, v := range newestFirst {
		recent := false
		switch {
		case !v.whole(), v.foreign(), v.OfFormer:
		case !v.good():
			recent = withdrawn < apart
			withdrawn++
		case v.unused():
			recent = hidden < apart || promoted == 0
			hidden++
		default:
			recent = promoted < keep
			promoted++
		}
		target := ledger.Former != nil && strings.EqualFold(ledger.Former.Image, v.ID)
		switch {
		case recent,
			!v.Ours(), v.InModel, v.Instances > 0, target, v.State == Creating, ledger.sticks(v.Name, newestFirst),
			v.whole() && v.outnumbered(newestFirst) != nil:
			continue
		}
		out = append(out, v)
	}
	slices.Reverse(out)
	return out
}

// lookPrune deletes one version at a time, the oldest first.
func (r *Run) lookPrune(ctx context.Context) (Next, error) {
	versions, err := r.recentVersions(ctx)
	if err != nil {
		return Next{}, err
	}
	if missing := r.unlisted(versions); missing != "" && r.runner.Spent() < lookAge {
		r.image.listedAt = time.Time{} // not to be looked at again
		return wait(missing + ", to be listed or to be confirmed gone"), nil
	}
	versions = r.held.lease.Ledger.distrust(versions)
	victims := slices.DeleteFunc(Prunable(versions, r.opts.History, keepWithdrawn, r.held.lease.Ledger), func(v Artifact) bool { return slices.Contains(r.image.kept, v.Name) })
	if g := r.image.going; g != nil && indexOf(versions, g.Name) < 0 {
		victims = []Artifact{*g}
	}
	if len(victims) == 0 {
		if len(r.result.Pruned) > 0 || r.held.adopted { // lists end with their versions
			if next, any := r.pruneLists(ctx, versions); any {
				return next, nil
			}
		}
		return done(fmt.Sprintf("versions kept: %d", len(versions))), nil
	}
	v := victims[0]
	if v.State == Deleting {
		return wait("version " + v.Name + " to be deleted"), nil
	}
	next := act(ActDeleteVersion, "delete version "+v.Name, func(ctx context.Context) error {
		r.image.going = &v
		err := r.engine.Provider.Delete(ctx, r.pool, v)
		switch {
		case errors.Is(err, ErrInUse):
			r.image.going, r.image.kept = nil, append(r.image.kept, v.Name)
			return nil
		case err != nil:
			return err
		}
		r.image.going = nil
		r.result.Changed = true
		r.result.Pruned = append(r.result.Pruned, v.Name)
		return nil
	}).of(v.Name)
	if v.Tags[TagBad] != "" && !v.aside() {
		next = next.noting(func(l *Lease) { l.Ledger.pruned(v) })
	}
	return next, nil
}
