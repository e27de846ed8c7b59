package kamino

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// imageWanted is what the model shall refer to.
func (r *Run) imageWanted() string {
	if r.ImageReference == ByDefinition {
		return definitionOf(r.version.ID)
	}
	return r.version.ID
}

// definitionOf cuts "/versions/…" off a version's ID.
func definitionOf(version string) string {
	if i := strings.LastIndex(strings.ToLower(version), "/versions/"); i >= 0 {
		return version[:i]
	}
	return version
}

// lookModel points the model at the version that it has just seen Succeeded and
// replicated. The former model is written on the lease first.
func (r *Run) lookModel(ctx context.Context) (Next, error) {
	found, err := r.Provider.Find(ctx, r.pool, Version, r.version.Name)
	if err != nil {
		return Next{}, fmt.Errorf("read version %s: %w", r.version.Name, err)
	}
	if len(found) == 0 {
		return Next{}, fmt.Errorf("version %s is gone: the model is not changed", r.version.Name)
	}
	v := found[0]
	if v.State != Succeeded && v.State != Creating || !v.Ours() {
		return Next{}, fmt.Errorf("version %s is %s: the model is not changed", v.Name, v.State)
	}
	if err := r.unswapped(v); err != nil {
		return Next{}, err
	}
	if v.State == Creating || !v.Ready {
		return waitPercent("the build and replication of the image", v.Percent), nil
	}
	r.version = v
	pool, err := r.Provider.Pool(ctx, r.pool.ID)
	if err != nil {
		return Next{}, fmt.Errorf("read pool %s: %w", r.pool.Name, err)
	}
	next, err := r.pointModel(ctx, pool, ModelSpec{Image: r.imageWanted()}, r.imageWanted())
	if save := next.note; save != nil && r.NewNodes > 0 && r.owed() == nil {
		next.note = func(l *Lease) {
			save(l)
			l.Ledger.Owed = &ScaleOut{Version: r.version.Name}
		}
	}
	return next, err
}

// pointModel is the one write of the model, for updates and rollbacks alike. image
// is what the model refers to afterwards.
func (r *Run) pointModel(ctx context.Context, pool Pool, want ModelSpec, image string) (Next, error) {
	r.pool = pool
	if list := r.unlifted(pool.Refusals); len(list) > 0 {
		return Next{}, &RefusedError{Subject: "pool " + pool.Name, Refusals: list}
	}
	if pool.Updating {
		return wait("an earlier change of the model"), nil
	}
	diff, err := r.Provider.SetModel(ctx, pool, want, true)
	if err != nil {
		return Next{}, fmt.Errorf("compare the model of pool %s: %w", pool.Name, err)
	}
	if len(diff) == 0 {
		return done("refers to " + lastSegments(pool.Model.Image, 3)), nil
	}
	if was := r.lease.Record.ModelWas; !strings.EqualFold(pool.Model.Image, was) && !strings.EqualFold(pool.Model.Image, image) {
		return Next{}, WithHint(fmt.Errorf("somebody changed the image of pool %s from %s to %s during the run: the model is not changed",
			pool.Name, lastSegments(was, 3), lastSegments(pool.Model.Image, 3)), "if the new image shall replace it, run again")
	}
	former := SavedModel{At: r.clock().Now(), Image: pool.Model.Image, Saved: pool.Model.Saved}
	return act(ActModel, describeDiff(pool, diff), func(ctx context.Context) error {
		r.result.ModelDiff = diff
		r.result.Changed = true
		_, err := r.Provider.SetModel(ctx, pool, want, false)
		return err
	}).noting(func(l *Lease) {
		// A second write of the same image must not hide the way back.
		same := strings.EqualFold(former.Image, image)
		if !same {
			l.Ledger.remember(former, r.pool.Gallery)
		}
		l.Ledger.writing(image, former.At, same)
	}), nil
}

// remember keeps a model that is about to be replaced. The first that does not
// refer to the gallery is the original and stays it: of later ones nobody knows
// whether their other fields are not a prototype's.
func (l *Ledger) remember(m SavedModel, gallery string) {
	if l.Former == nil || !strings.EqualFold(l.Former.Image, m.Image) {
		l.Former = &m
	}
	prototype := strings.Contains(strings.ToLower(m.Image), "/galleries/"+strings.ToLower(gallery)+"/")
	if !prototype && l.Original == nil {
		l.Original = &m
	}
}

func describeDiff(pool Pool, diff []FieldChange) string {
	fields := make([]string, len(diff))
	for i, d := range diff {
		fields[i] = d.Field
	}
	return fmt.Sprintf("write the model of pool %s: %s", pool.Name, strings.Join(fields, ", "))
}

// scaleOutWanted: new nodes were asked for, and this run made or adopted the
// change that they are to show, or a run before it failed to ask for them.
func (r *Run) scaleOutWanted() bool {
	return r.NewNodes > 0 && (r.adopted || r.result.Changed || !r.preBuilt || r.owed() != nil)
}

// owed is the scale-out that was begun for this version and not seen to its end.
func (r *Run) owed() *ScaleOut {
	if r.lease == nil || r.lease.Ledger.Owed == nil || r.lease.Ledger.Owed.Version != r.version.Name {
		return nil
	}
	return r.lease.Ledger.Owed
}

// lookScaleOut asks for more instances. The capacity aimed at stands on the
// lease before it is asked for, so that neither crash nor failure asks twice.
func (r *Run) lookScaleOut(ctx context.Context) (Next, error) {
	scaler, ok := r.Provider.(Scaler)
	if !ok {
		return Next{}, fmt.Errorf("scale out pool %s: %w by this provider", r.pool.Name, ErrUnsupported)
	}
	pool, err := r.Provider.Pool(ctx, r.pool.ID)
	if err != nil {
		return Next{}, fmt.Errorf("read pool %s: %w", r.pool.Name, err)
	}
	r.pool = pool
	if list := r.unlifted(pool.Refusals); len(list) > 0 {
		return Next{}, &RefusedError{Subject: "pool " + pool.Name, Refusals: list}
	}
	// While the pool is busy, its capacity is what was asked for and may yet be
	// taken back.
	if pool.Updating {
		return wait("a change of the pool"), nil
	}
	if owed := r.owed(); owed != nil && owed.To > 0 && pool.Capacity >= owed.To {
		return done(fmt.Sprintf("capacity is %d", pool.Capacity)), nil
	}
	// An autoscaler that changed the capacity meanwhile is right: our nodes are
	// added to what it decided.
	aim := pool.Capacity + r.NewNodes
	return act(ActScaleOut, fmt.Sprintf("scale out from %d to %d", pool.Capacity, aim), func(ctx context.Context) error {
		r.result.Changed = true
		return scaler.SetCapacity(ctx, pool, aim)
	}).noting(func(l *Lease) { l.Ledger.Owed = &ScaleOut{Version: r.version.Name, To: aim} }), nil
}

// lookPrune deletes one version at a time, the oldest first.
func (r *Run) lookPrune(ctx context.Context) (Next, error) {
	versions, err := r.Provider.Find(ctx, r.pool, Version, "")
	if err != nil {
		return Next{}, fmt.Errorf("list image versions of pool %s: %w", r.pool.Name, err)
	}
	versions = r.lease.Ledger.distrust(versions)
	victims := slices.DeleteFunc(Prunable(versions, r.History, r.lease.Ledger), func(v Artifact) bool { return r.kept[v.Name] })
	if len(victims) == 0 {
		return done(fmt.Sprintf("versions kept: %d", len(versions))), nil
	}
	v := victims[0]
	if v.State == Deleting {
		return wait("version " + v.Name + " to be deleted"), nil
	}
	return act(ActDeleteVersion, "delete version "+v.Name, func(ctx context.Context) error {
		err := r.Provider.Delete(ctx, r.pool, v)
		if errors.Is(err, ErrInUse) {
			r.kept[v.Name] = true
			return nil
		} else if err != nil {
			return err
		}
		r.result.Changed = true
		r.result.Pruned = append(r.result.Pruned, v.Name)
		return nil
	}).of(v.Name), nil
}

// Prunable lists the versions that may go, oldest first: ours, older than the
// newest keep that Succeeded, and used by no model, no instance, and no way
// back. A version that was rolled back does not count, but stays as long as one
// of its age would: it can be gone forward to, and says which node not to take
// again. So does one that only its name makes old. With any doubt a version stays.
func Prunable(newestFirst []Artifact, keep int, ledger Ledger) []Artifact {
	var out []Artifact
	good := 0
	for _, v := range newestFirst {
		recent := good < keep
		if v.good() {
			good++
		}
		target := ledger.Former != nil && strings.EqualFold(ledger.Former.Image, v.ID)
		switch {
		case v.State == Succeeded && recent,
			!v.Ours(), v.InModel, v.Instances > 0, target, v.State == Creating,
			v.State == Succeeded && v.outnumbered(newestFirst) != nil:
			continue
		}
		out = append(out, v)
	}
	for i, j := 0, len(out)-1; i < j; i, j = i+1, j-1 {
		out[i], out[j] = out[j], out[i]
	}
	return out
}
