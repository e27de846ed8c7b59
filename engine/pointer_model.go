package engine

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"kamino.dev/kamino"
	"kamino.dev/kamino/poolstate"
	"kamino.dev/kamino/workflow"
)

// target is what the pool's next instance will boot from.
func (r *Run) target() kamino.Target {
	return kamino.Target{Version: r.image.version.Name, Reference: r.image.reference, Seen: &r.image.version}
}

// lookModel points the model at a version that was just seen Succeeded and replicated. The former
// model is written on the lease first.
func (r *Run) lookModel(ctx context.Context) (workflow.Next, error) {
	v, readAt, err := r.promotedVersion(ctx)
	if err != nil {
		return workflow.Next{}, err
	}
	switch {
	case !v.Whole() && v.State != kamino.Creating || !v.Ours() && r.work() != kamino.WorkProve:
		return workflow.Next{}, fmt.Errorf("version %s is %s: the model is not changed", v.Name, v.State)
	case v.Tags[kamino.TagBad] != "":
		return workflow.Next{}, fmt.Errorf("version %s was withdrawn meanwhile: %s", v.Name, v.Tags[kamino.TagBad])
	case r.work() == kamino.WorkProve && v.Tags[kamino.TagProof] != kamino.TagProofPassed:
		return workflow.Next{}, fmt.Errorf("version %s is no longer tagged as proved: somebody changed its tags, or rebuilt it; the model is not changed", v.Name)
	}
	if err := r.unswapped(v); err != nil {
		return workflow.Next{}, err
	}
	if v.State == kamino.Creating || !v.Ready {
		return workflow.WaitPercent("version "+v.Name+" to be replicated after a change", v.Percent), nil
	}
	r.image.version, r.image.readAt = v, readAt
	pool, err := r.promotedPool(ctx)
	if err != nil {
		return workflow.Next{}, err
	}
	if v.Untried() && r.proof.mode == kamino.ProveNone && r.promotes() && r.plan == nil {
		r.image.readAt = time.Time{}
		return r.omit(v), nil
	}
	if !r.image.noted && r.result.ModelDiff == nil { // a person may have changed it since the run was adopted
		if err := r.refuseUndone(pool); err != nil {
			return workflow.Next{}, err
		}
	}
	next, err := r.promote(ctx, pool, r.target())
	if err == nil && next.Kind == workflow.NextAct && !r.image.noted { // otherwise the promotion is half done
		err = r.refusePaused(ctx)
	}
	if save := next.Note; save != nil && r.opts.NewNodes > 0 && r.owed() == nil {
		next.Note = func(l *kamino.Lease) {
			save(l)
			l.Ledger.Owed = &kamino.ScaleOut{Version: r.image.version.Name}
		}
	}
	return next, err
}

// promotedVersion returns the version and when it was read. It reads the version again if it was
// written since. It also does if the last read is not from just now; a read within LookAge is
// enough if an offer will compare the version anyway, or if it is promoted.
func (r *Run) promotedVersion(ctx context.Context) (kamino.Artifact, time.Time, error) {
	v := r.image.version
	age := kamino.Elapsed(r.image.readAt, r.engine.now())
	if age <= kamino.JustNow || age < kamino.LookAge && (r.target().Offers() && r.image.reference == kamino.ByDefinition || r.result.ModelDiff != nil) {
		return v, r.image.readAt, nil
	}
	found, err := r.engine.Provider.Find(ctx, r.pool, kamino.Version, v.Name)
	if err != nil {
		return v, time.Time{}, fmt.Errorf("read version %s: %w", v.Name, err)
	}
	if len(found) == 0 {
		return v, time.Time{}, fmt.Errorf("version %s is gone: the model is not changed", v.Name)
	}
	return found[0], r.engine.now(), nil
}

// promotedPool reads the pool. A read within LookAge is enough if only the version was written
// since, because a write of the model is conditional on what was read.
func (r *Run) promotedPool(ctx context.Context) (kamino.Pool, error) {
	if kamino.Elapsed(r.image.offeredAt, r.engine.now()) < kamino.LookAge {
		r.image.offeredAt = time.Time{}
		return r.pool, nil
	}
	return r.poolNow(ctx)
}

// poolNow reads the pool, and does not change the run's copy.
func (r *Run) poolNow(ctx context.Context) (kamino.Pool, error) {
	pool, err := r.engine.Provider.Pool(ctx, r.pool.ID)
	if err != nil {
		return pool, fmt.Errorf("read pool %s: %w", r.pool.Name, err)
	}
	return pool, nil
}

// promote writes what the pool's next instance boots from, for updates and rollbacks. An offer has
// no effect on a definition that nothing refers to. So a pool that will refer to its definition
// gets the offer first, and a pool that will not any more gets it last.
func (r *Run) promote(ctx context.Context, pool kamino.Pool, want kamino.Target) (workflow.Next, error) {
	r.pool = pool
	if list := r.opts.Unlifted(pool.Refusals); len(list) > 0 {
		return workflow.Next{}, &kamino.RefusedError{Subject: "pool " + pool.Name, Refusals: list}
	}
	if pool.Updating {
		return workflow.Wait("a change of the pool to end"), nil
	}
	if want.Offers() && want.Reference == kamino.ByDefinition {
		if (r.opts.ImageOnly || pool.Owner != nil && want.Seen.Unaccepted()) && !r.opts.Offers {
			r.result.Hidden = true
			return workflow.Done("version " + want.Version + " stays hidden: its instances would run the model's own bootstrap; " + poolstate.HowToPromote(pool.Name, want.Version) + " offers it"), nil
		}
		return r.offer(ctx, pool, want)
	}
	if r.modelIsTheirs() && want.Former == nil {
		return workflow.Done("the model is not written; it refers to " + kamino.LastSegments(pool.Model.Image, 3)), nil
	} else if r.pool.Owner != nil {
		return workflow.Next{}, kamino.WithHint(fmt.Errorf("%s writes the model of pool %s: it is not written", pool.Owner.Name, pool.Name), "change it there")
	}
	next, err := r.nextImage(ctx, pool, want)
	if err != nil {
		return workflow.Next{}, err
	}
	if len(next.Diff) == 0 && want.Offers() {
		return r.offer(ctx, pool, want)
	} else if len(next.Diff) == 0 {
		return r.unchanged(pool), nil
	}
	if was := r.held.Lease.Record.ModelWas; !r.ownImage(pool) && !strings.EqualFold(pool.Model.Image, next.Image) {
		return workflow.Next{}, kamino.WithHint(fmt.Errorf("somebody changed the image of pool %s from %s to %s during the run: the model is not changed",
			pool.Name, kamino.LastSegments(was, 3), kamino.LastSegments(pool.Model.Image, 3)), "to replace it anyway, run again")
	}
	var born time.Time
	if want.Reference == kamino.ByDefinition && !strings.EqualFold(pool.Model.Image, next.Image) {
		versions, err := r.versions(ctx)
		if err != nil {
			return workflow.Next{}, err
		}
		if now := resolvedName(versions); now != want.Version {
			return workflow.Next{}, kamino.WithHint(fmt.Errorf("the image definition now stands for %s, not for %s: the model of pool %s was not pointed at it",
				cmp.Or(now, "nothing"), want.Version, pool.Name), "kamino rollback --pool %s --to VERSION sets the wanted one", pool.Name)
		}
		born = kamino.NewestBirth(versions)
	}
	if lost := Unreturned(next.Diff); lost != "" && want.Former == nil && !r.image.unreturned {
		r.image.unreturned = true
		r.held.Warn("save from your template: " + lost + "; the provider does not return them, and kamino rollback --to original asks for them")
	}
	write := workflow.Act(kamino.ActModel, describeDiff(pool, next.Diff), func(ctx context.Context) error {
		r.result.ModelDiff = next.Diff
		r.result.Changed = true
		err := r.engine.Provider.Promote(ctx, pool, want)
		r.held.Wrote(err)
		return err
	}).Announcing(kamino.ActDeleteSnapshot, cleanText(r.pool))
	if r.image.noted {
		return write, nil
	}
	versions, err := r.everListed(ctx)
	if err != nil {
		return workflow.Next{}, err
	}
	return write.Noting(func(l *kamino.Lease) { r.noteModel(l, pool, next, want, born, prototype(pool, versions)) }), nil
}

// unchanged is a promotion that has nothing to write. An image that somebody else wrote into the
// model, and that a person adopts, counts as Kamino's from now on.
func (r *Run) unchanged(pool kamino.Pool) workflow.Next {
	image := kamino.LastSegments(pool.Model.Image, 3)
	if wrote := r.held.Lease.Ledger.Wrote; !r.opts.AdoptModel || wrote == nil || strings.EqualFold(wrote.Image, pool.Model.Image) {
		return workflow.Done("refers to " + image)
	}
	return workflow.Act(kamino.ActModel, "adopt the image "+image+" of pool "+pool.Name, func(context.Context) error { return nil }).Noting(func(l *kamino.Lease) {
		l.Ledger.Wrote = &kamino.WrittenModel{Image: pool.Model.Image, At: r.engine.date(), Seen: true}
	})
}

// offer makes the definition stand for a version: the one write that changes the next image of a
// pool that refers to the definition. Versions have no revision, so the version is compared with a
// read just before, and the next look reads it again.
func (r *Run) offer(ctx context.Context, pool kamino.Pool, want kamino.Target) (workflow.Next, error) {
	v, read := want.Seen, r.engine.now()
	versions, err := r.versions(ctx)
	if err != nil {
		return workflow.Next{}, err
	}
	if was := r.held.Lease.Record.ModelWas; !r.ownImage(pool) {
		return workflow.Next{}, kamino.WithHint(fmt.Errorf("somebody changed the image of pool %s from %s to %s during the run: version %s is not offered",
			pool.Name, kamino.LastSegments(was, 3), kamino.LastSegments(pool.Model.Image, 3), v.Name), "to replace it anyway, run again")
	}
	if now := kamino.Resolved(versions); now != nil && kamino.CompareVersions(now.Name, v.Name) > 0 {
		return workflow.Next{}, kamino.WithHint(fmt.Errorf("version %s is offered and counts as newer than %s: new nodes would still boot from it", now.Name, v.Name),
			"if it is not wanted: kamino rollback --pool %s --to %s", pool.Name, v.Name)
	}
	pin := kamino.MovedPin(pool.Model.Image, versions)
	if pin == nil && v.Excluded && v.Tags[kamino.TagOffer] == kamino.TagOfferOffered && want.Reference == kamino.ByDefinition {
		pin = &kamino.Pin{Image: resolvedName(versions), Wrote: v.ID} // a person excluded it
	}
	if pin != nil {
		if list := r.opts.Unlifted([]kamino.Refusal{pin.Refusal(pool)}); len(list) > 0 {
			return workflow.Next{}, &kamino.RefusedError{Subject: "pool " + pool.Name, Refusals: list}
		}
	}
	promoted := func(l *kamino.Lease) {
		if l.Ledger.Promoted = (&kamino.Promotion{Version: v.Name, Born: kamino.NewestBirth(versions)}); kamino.Points(pool.Model.Image, versions) {
			l.Ledger.NoteStood(resolvedName(versions), r.engine.date())
		}
	}
	offer := workflow.Act(kamino.ActMarkVersion, "offer version "+v.Name+" to new nodes of pool "+pool.Name, func(ctx context.Context) error {
		r.result.Changed, r.image.readAt, r.image.offeredAt = true, time.Time{}, read
		return r.engine.Provider.Promote(ctx, pool, want)
	})
	if r.modelIsTheirs() || want.Reference != kamino.ByDefinition {
		return offer.Noting(promoted), nil
	}
	next, err := r.nextImage(ctx, pool, want)
	if err != nil {
		return workflow.Next{}, err
	}
	if len(next.Diff) == 0 {
		return offer.Noting(promoted), nil
	}
	return offer.Announcing(kamino.ActModel, describeDiff(pool, next.Diff)).Announcing(kamino.ActDeleteSnapshot, cleanText(r.pool)).Noting(func(l *kamino.Lease) {
		r.noteModel(l, pool, next, want, kamino.NewestBirth(versions), prototype(pool, versions))
		r.image.noted = true
	}), nil
}

// comeToPoint moves a pool whose model refers to a version to the definition, with a promotion, as
// a run would. If a person promotes each version, no run writes the model, and each promotion would
// use up another model.
func (e *Engine) comeToPoint(ctx context.Context, o *poolstate.State, t *poolstate.Destination) error {
	if t.Points || t.Version == nil || t.Offered || o.Pool.Owner != nil || o.Pool.NoPointer != "" || !e.livesIn(kamino.Definition) {
		return nil
	}
	if now := kamino.Resolved(o.Versions); t.Version.Disputed || now != nil && kamino.CompareVersions(now.Name, t.Version.Name) > 0 ||
		o.Strayed() != nil || againstPointer(o.Pool, o.Versions) != "" {
		return nil
	}
	if err := e.readTag(ctx, o); err != nil {
		return err
	}
	if !o.Tagged {
		t.Comes, t.Points = kamino.ByDefinition, true
	}
	return nil
}

// ownImage reports whether the model's image is the one from the run's beginning, or one that
// Kamino wrote.
func (r *Run) ownImage(pool kamino.Pool) bool {
	wrote := r.held.Lease.Ledger.Wrote
	return pool.Owner != nil || strings.EqualFold(pool.Model.Image, r.held.Lease.Record.ModelWas) || wrote != nil && strings.EqualFold(pool.Model.Image, wrote.Image)
}

// bornHidden reports whether a version of this run has to be created hidden: it has to be proved
// first, or the pool refers to the definition, or will, and would boot from it before it was
// examined.
func (r *Run) bornHidden(ctx context.Context) (bool, error) {
	if r.proves() || !r.promotes() {
		return true, nil
	}
	next, err := r.engine.Provider.NextImage(ctx, r.pool, kamino.Target{Version: r.image.version.Name, Reference: kamino.ByDefinition})
	if err != nil {
		return false, fmt.Errorf("compare the model of pool %s: %w", r.pool.Name, err)
	}
	return r.image.reference == kamino.ByDefinition || strings.EqualFold(next.Image, r.pool.Model.Image), nil
}

// nextImage is what has to be written into the model. Parts that somebody else added to a model of
// Kamino's are reported, and replaced only if a person says so. Otherwise a policy that restores an
// extension each night would use up a model each night.
func (r *Run) nextImage(ctx context.Context, pool kamino.Pool, want kamino.Target) (kamino.NextImage, error) {
	next, err := r.engine.Provider.NextImage(ctx, pool, want)
	if err != nil {
		return next, fmt.Errorf("compare the model of pool %s: %w", pool.Name, err)
	}
	if r.image.whole = len(next.Diff) == 0 && want.Reference == kamino.ByDefinition; r.opts.AdoptModel || r.result.ModelDiff != nil || !r.held.Lease.Ledger.Leaves(pool, want, next) {
		return next, nil
	}
	r.doubt(kamino.StepModel, "extensions that somebody added to the model since Kamino wrote it are kept, and new nodes run them: "+
		describeFields(next.Diff)+"; kamino update --adopt-model removes them")
	next.Diff = []kamino.FieldChange{}
	return next, nil
}

// noteModel records on the ledger the model that is about to be replaced.
func (r *Run) noteModel(l *kamino.Lease, pool kamino.Pool, next kamino.NextImage, want kamino.Target, born time.Time, prototype bool) {
	former := kamino.SavedModel{At: r.engine.date(), Image: pool.Model.Image, Saved: pool.Model.Saved}
	// A second write of the same image must not hide the former model.
	same := strings.EqualFold(former.Image, next.Image)
	if !same {
		l.Ledger.NoteSaved(former, prototype)
	}
	l.Ledger.NoteWrite(next.Image, former.At, same, pool.Stamp)
	l.Ledger.Promoted, l.Ledger.Stood = nil, nil
	if want.Reference == kamino.ByDefinition {
		l.Ledger.Promoted = &kamino.Promotion{Version: want.Version, Born: born}
		l.Ledger.NoteStood(want.Version, former.At)
	}
}

// prototype reports whether a pool's image is one of its versions, or of its gallery.
func prototype(pool kamino.Pool, versions []kamino.Artifact) bool {
	return strings.Contains(strings.ToLower(pool.Model.Image), "/galleries/"+strings.ToLower(pool.Gallery)+"/") ||
		slices.ContainsFunc(versions, func(v kamino.Artifact) bool { return strings.EqualFold(v.ID, pool.Model.Image) })
}

func describeDiff(pool kamino.Pool, diff []kamino.FieldChange) string {
	return fmt.Sprintf("write the model of pool %s: %s", pool.Name, describeFields(diff))
}

func describeFields(diff []kamino.FieldChange) string {
	fields := make([]string, len(diff))
	for i, d := range diff {
		fields[i] = d.Field
	}
	return strings.Join(fields, ", ")
}

// scaleOutWanted reports whether new nodes were requested, and either this run made or adopted the
// change that they should show, or an earlier run failed to request them.
func (r *Run) scaleOutWanted() bool {
	news := r.promotes() && (r.held.Adopted || r.result.Changed || !r.image.preBuilt)
	return r.opts.NewNodes > 0 && (news || r.owed() != nil)
}

// owed returns the scale-out that was begun for this version and not seen to end.
func (r *Run) owed() *kamino.ScaleOut {
	if r.held.Lease == nil || r.held.Lease.Ledger.Owed == nil || r.held.Lease.Ledger.Owed.Version != r.image.version.Name {
		return nil
	}
	return r.held.Lease.Ledger.Owed
}

// lookScaleOut requests more instances. The lease records the target capacity before the request,
// so that neither a crash nor a failure requests twice.
func (r *Run) lookScaleOut(ctx context.Context) (workflow.Next, error) {
	pool, err := r.poolNow(ctx)
	if err != nil {
		return workflow.Next{}, err
	}
	r.pool = pool
	if list := r.opts.Unlifted(pool.Refusals); len(list) > 0 {
		return workflow.Next{}, &kamino.RefusedError{Subject: "pool " + pool.Name, Refusals: list}
	}
	// While the pool is busy, its capacity is a request that may still be taken back.
	if pool.Updating {
		return workflow.Wait("a change of the pool to end"), nil
	}
	if owed := r.owed(); owed != nil && owed.To > 0 && pool.Capacity >= owed.To {
		return workflow.Done(fmt.Sprintf("capacity is %d", pool.Capacity)), nil
	}
	// An autoscaler that changed the capacity meanwhile is right: the new nodes are added to its
	// number.
	aim := pool.Capacity + r.opts.NewNodes
	return workflow.Act(kamino.ActScaleOut, fmt.Sprintf("scale out from %d to %d", pool.Capacity, aim), func(ctx context.Context) error {
		r.result.Changed = true
		return r.engine.Provider.SetCapacity(ctx, pool, aim)
	}).Noting(func(l *kamino.Lease) { l.Ledger.Owed = &kamino.ScaleOut{Version: r.image.version.Name, To: aim} }), nil
}

// promotedHere reports whether this process has seen the version promoted.
func (r *Run) promotedHere() bool {
	return slices.ContainsFunc(r.result.Steps, func(s kamino.StepTime) bool { return s.Name == kamino.StepModel && !s.Skipped })
}

// bootable reads whether a target version is replicated in the pool's region, which no list shows.
// While a version is changed, for example by a rollback just before, the provider may report that
// it is not; that is waited for.
func (e *Engine) bootable(ctx context.Context, o poolstate.State, t poolstate.Destination, dryRun bool) error {
	if t.Version == nil {
		return nil
	}
	look := func(ctx context.Context) (workflow.Next, error) {
		found, err := e.Provider.Find(ctx, o.Pool, kamino.Version, t.Version.Name)
		switch {
		case err != nil:
			return workflow.Next{}, fmt.Errorf("read version %s: %w", t.Version.Name, err)
		case len(found) > 0 && found[0].Whole() && found[0].Ready:
			return workflow.Done("version " + t.Version.Name + " is replicated"), nil
		case len(found) > 0 && found[0].State == kamino.Succeeded && found[0].Failure == "":
			return workflow.WaitPercent("the change of version "+t.Version.Name, found[0].Percent), nil
		}
		return workflow.Next{}, kamino.WithHint(fmt.Errorf("version %s of pool %s is not replicated in %s: no node can boot from it",
			t.Version.Name, o.Pool.Name, cmp.Or(o.Pool.Location, "the pool's region")), "%s", o.TargetsHint(t.Version.Name))
	}
	if next, err := look(ctx); err != nil || next.Kind == workflow.NextDone || dryRun {
		return err
	}
	r := e.newRun(t.Options())
	r.pool = o.Pool
	return r.exec(ctx, []Step{{Name: kamino.StepVersion, Does: "wait for the change of the version", Patient: true,
		Look: look}})
}
