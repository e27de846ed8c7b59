package kamino

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"
)

// target is what the pool's next instance shall boot from.
func (r *Run) target() Target {
	return Target{Version: r.image.version.Name, Reference: r.image.reference, Seen: &r.image.version}
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
	v, readAt, err := r.promotedVersion(ctx)
	if err != nil {
		return Next{}, err
	}
	switch {
	case !v.whole() && v.State != Creating || !v.Ours() && r.work() != WorkProve:
		return Next{}, fmt.Errorf("version %s is %s: the model is not changed", v.Name, v.State)
	case v.Tags[TagBad] != "":
		return Next{}, fmt.Errorf("version %s was withdrawn meanwhile: %s", v.Name, v.Tags[TagBad])
	case r.work() == WorkProve && v.Tags[TagProof] != proofPassed:
		return Next{}, fmt.Errorf("version %s no longer says that it passed its proof: somebody changed its tags, or made it again; the model is not changed", v.Name)
	}
	if err := r.unswapped(v); err != nil {
		return Next{}, err
	}
	if v.State == Creating || !v.Ready {
		return waitPercent("version "+v.Name+" to be replicated after a change", v.Percent), nil
	}
	r.image.version, r.image.readAt = v, readAt
	pool, err := r.promotedPool(ctx)
	if err != nil {
		return Next{}, err
	}
	if v.untried() && r.proof.mode == ProveNone && r.promotes() && r.plan == nil {
		r.image.readAt = time.Time{}
		return r.omit(v), nil
	}
	if !r.image.noted && r.result.ModelDiff == nil { // a person may have changed it since the run was taken over
		if err := r.refuseUndone(pool); err != nil {
			return Next{}, err
		}
	}
	next, err := r.promote(ctx, pool, r.target())
	if err == nil && next.kind == nextAct && !r.image.noted { // else it is half promoted
		err = r.refusePaused(ctx)
	}
	if save := next.note; save != nil && r.opts.NewNodes > 0 && r.owed() == nil {
		next.note = func(l *Lease) {
			save(l)
			l.Ledger.Owed = &ScaleOut{Version: r.image.version.Name}
		}
	}
	return next, err
}

// promotedVersion reads the version, unless nothing was written of it since it was read, and that
// was just now, or within lookAge and either an offer will compare it with what it is then, or it
// is promoted; and tells when that was.
func (r *Run) promotedVersion(ctx context.Context) (Artifact, time.Time, error) {
	v := r.image.version
	age := elapsed(r.image.readAt, r.engine.now())
	if age <= justNow || age < lookAge && (r.target().Offers() && r.image.reference == ByDefinition || r.result.ModelDiff != nil) {
		return v, r.image.readAt, nil
	}
	found, err := r.engine.Provider.Find(ctx, r.pool, Version, v.Name)
	if err != nil {
		return v, time.Time{}, fmt.Errorf("read version %s: %w", v.Name, err)
	}
	if len(found) == 0 {
		return v, time.Time{}, fmt.Errorf("version %s is gone: the model is not changed", v.Name)
	}
	return found[0], r.engine.now(), nil
}

// promotedPool reads the pool, unless it was read within lookAge and only the version was written
// since: a write of the model is conditional on what was read.
func (r *Run) promotedPool(ctx context.Context) (Pool, error) {
	if elapsed(r.image.offeredAt, r.engine.now()) < lookAge {
		r.image.offeredAt = time.Time{}
		return r.pool, nil
	}
	return r.poolNow(ctx)
}

// poolNow reads the pool. What the run takes it for stays as it was.
func (r *Run) poolNow(ctx context.Context) (Pool, error) {
	pool, err := r.engine.Provider.Pool(ctx, r.pool.ID)
	if err != nil {
		return pool, fmt.Errorf("read pool %s: %w", r.pool.Name, err)
	}
	return pool, nil
}

// promote writes what the pool's next instance boots from, for updates and rollbacks alike. A
// definition that nothing refers to changes nothing yet: so a pool that shall refer to it gets the
// offer first, and one that shall not any more gets it last.
func (r *Run) promote(ctx context.Context, pool Pool, want Target) (Next, error) {
	r.pool = pool
	if list := r.opts.unlifted(pool.Refusals); len(list) > 0 {
		return Next{}, &RefusedError{Subject: "pool " + pool.Name, Refusals: list}
	}
	if pool.Updating {
		return wait("a change of the pool to end"), nil
	}
	if want.Offers() && want.Reference == ByDefinition {
		if (r.opts.ImageOnly || pool.Owner != nil && want.Seen.unaccepted()) && !r.opts.offers {
			r.result.Hidden = true
			return done("version " + want.Version + " stays hidden: its instances would run the model's own bootstrap; " + HowToPromote(pool.Name, want.Version) + " offers it"), nil
		}
		return r.offer(ctx, pool, want)
	}
	if r.modelIsTheirs() && want.Former == nil {
		return done("the model is not written; it refers to " + lastSegments(pool.Model.Image, 3)), nil
	} else if r.pool.Owner != nil {
		return Next{}, WithHint(fmt.Errorf("%s writes the model of pool %s: it is not written", pool.Owner.Name, pool.Name), "change it there")
	}
	next, err := r.nextImage(ctx, pool, want)
	if err != nil {
		return Next{}, err
	}
	if len(next.Diff) == 0 && want.Offers() {
		return r.offer(ctx, pool, want)
	} else if len(next.Diff) == 0 {
		return r.unchanged(pool), nil
	}
	if was := r.held.lease.Record.ModelWas; !r.ownImage(pool) && !strings.EqualFold(pool.Model.Image, next.Image) {
		return Next{}, WithHint(fmt.Errorf("somebody changed the image of pool %s from %s to %s during the run: the model is not changed",
			pool.Name, lastSegments(was, 3), lastSegments(pool.Model.Image, 3)), "to replace it anyway, run again")
	}
	var born time.Time
	if want.Reference == ByDefinition && !strings.EqualFold(pool.Model.Image, next.Image) {
		versions, err := r.versions(ctx)
		if err != nil {
			return Next{}, err
		}
		if now := resolvedName(versions); now != want.Version {
			return Next{}, WithHint(fmt.Errorf("the image definition now stands for %s, not for %s: the model of pool %s was not pointed at it",
				cmp.Or(now, "nothing"), want.Version, pool.Name), "kamino rollback --pool %s --to VERSION sets the wanted one", pool.Name)
		}
		born = newestBirth(versions)
	}
	if lost := Unreturned(next.Diff); lost != "" && want.Former == nil && !r.image.unreturned {
		r.image.unreturned = true
		r.held.warn("save from your template: " + lost + "; the provider does not return them, and kamino rollback --to original asks for them")
	}
	write := act(ActModel, describeDiff(pool, next.Diff), func(ctx context.Context) error {
		r.result.ModelDiff = next.Diff
		r.result.Changed = true
		err := r.engine.Provider.Promote(ctx, pool, want)
		r.held.wrote(err)
		return err
	}).announcing(ActDeleteSnapshot, cleanText(r.pool))
	if r.image.noted {
		return write, nil
	}
	versions, err := r.everListed(ctx)
	if err != nil {
		return Next{}, err
	}
	return write.noting(func(l *Lease) { r.noteModel(l, pool, next, want, born, prototype(pool, versions)) }), nil
}

// unchanged is a promotion that has nothing to write. An image that somebody else has put into the
// model, and that a person adopts, counts as kamino's from now on.
func (r *Run) unchanged(pool Pool) Next {
	image := lastSegments(pool.Model.Image, 3)
	if wrote := r.held.lease.Ledger.Wrote; !r.opts.AdoptModel || wrote == nil || strings.EqualFold(wrote.Image, pool.Model.Image) {
		return done("refers to " + image)
	}
	return act(ActModel, "adopt the image "+image+" of pool "+pool.Name, func(context.Context) error { return nil }).noting(func(l *Lease) {
		l.Ledger.Wrote = &WrittenModel{Image: pool.Model.Image, At: r.engine.date(), Seen: true}
	})
}

// offer lets the definition stand for a version: the one write that changes what the next instance
// of a pool boots from that refers to it. Versions have no revision: what was read just before is
// compared, and read again by the next look.
func (r *Run) offer(ctx context.Context, pool Pool, want Target) (Next, error) {
	v, read := want.Seen, r.engine.now()
	versions, err := r.versions(ctx)
	if err != nil {
		return Next{}, err
	}
	if was := r.held.lease.Record.ModelWas; !r.ownImage(pool) {
		return Next{}, WithHint(fmt.Errorf("somebody changed the image of pool %s from %s to %s during the run: version %s is not offered",
			pool.Name, lastSegments(was, 3), lastSegments(pool.Model.Image, 3), v.Name), "to replace it anyway, run again")
	}
	if now := resolved(versions); now != nil && CompareVersions(now.Name, v.Name) > 0 {
		return Next{}, WithHint(fmt.Errorf("version %s is offered and counts as newer than %s: new nodes would still boot from it", now.Name, v.Name),
			"if it is not wanted: kamino rollback --pool %s --to %s", pool.Name, v.Name)
	}
	pin := movedPin(pool.Model.Image, versions)
	if pin == nil && v.Excluded && v.Tags[TagOffer] == offerOffered && want.Reference == ByDefinition {
		pin = &Pin{Image: resolvedName(versions), Wrote: v.ID} // a person excluded it
	}
	if pin != nil {
		if list := r.opts.unlifted([]Refusal{pin.refusal(pool)}); len(list) > 0 {
			return Next{}, &RefusedError{Subject: "pool " + pool.Name, Refusals: list}
		}
	}
	promoted := func(l *Lease) {
		if l.Ledger.Promoted = (&Promotion{Version: v.Name, Born: newestBirth(versions)}); points(pool.Model.Image, versions) {
			l.Ledger.stood(resolvedName(versions), r.engine.date())
		}
	}
	offer := act(ActMarkVersion, "offer version "+v.Name+" to new nodes of pool "+pool.Name, func(ctx context.Context) error {
		r.result.Changed, r.image.readAt, r.image.offeredAt = true, time.Time{}, read
		return r.engine.Provider.Promote(ctx, pool, want)
	})
	if r.modelIsTheirs() || want.Reference != ByDefinition {
		return offer.noting(promoted), nil
	}
	next, err := r.nextImage(ctx, pool, want)
	if err != nil {
		return Next{}, err
	}
	if len(next.Diff) == 0 {
		return offer.noting(promoted), nil
	}
	return offer.announcing(ActModel, describeDiff(pool, next.Diff)).announcing(ActDeleteSnapshot, cleanText(r.pool)).noting(func(l *Lease) {
		r.noteModel(l, pool, next, want, newestBirth(versions), prototype(pool, versions))
		r.image.noted = true
	}), nil
}

// comeToPoint lets a pool whose model does not point come to do so with a version that is promoted,
// as a run does: where a person promotes each version, no run writes the model, and each promotion
// would make another one. Nothing is asked of who wants it by version.
func (e *Engine) comeToPoint(ctx context.Context, o *overview, t *target, typed ImageReference) error {
	if t.points || t.version == nil || t.offered || typed == ByVersion || o.pool.Owner != nil || o.pool.NoPointer != "" || !e.livesIn(Definition) {
		return nil
	}
	if now := resolved(o.versions); t.version.Disputed || now != nil && CompareVersions(now.Name, t.version.Name) > 0 ||
		o.strayed() != nil || againstPointer(o.pool, o.versions) != "" {
		return nil
	}
	if err := e.readTag(ctx, o); err != nil {
		return err
	}
	if !o.tagged {
		t.comes, t.points = ByDefinition, true
	}
	return nil
}

// halfway says whether a promotion ended between its two writes: the definition stands for a
// version that passed its proof, and the model names an older one, or none, still.
func (o overview) halfway(v Artifact) bool {
	now, offered := o.next(), resolved(o.versions)
	return !points(o.pool.Model.Image, o.versions) && offered != nil && offered.Name == v.Name && v.Ours() && v.Tags[TagOffer] == offerOffered &&
		v.Tags[TagProof] == proofPassed && (now == nil || CompareVersions(now.Name, v.Name) < 0)
}

// ownImage says whether the model refers to what it did when the run began, or to what kamino
// wrote.
func (r *Run) ownImage(pool Pool) bool {
	wrote := r.held.lease.Ledger.Wrote
	return pool.Owner != nil || strings.EqualFold(pool.Model.Image, r.held.lease.Record.ModelWas) || wrote != nil && strings.EqualFold(pool.Model.Image, wrote.Image)
}

// bornHidden says whether a version of this run is to be hidden from birth: it has to be proved
// first, or the pool refers to the definition, or shall, and would boot from it before it was
// looked at.
func (r *Run) bornHidden(ctx context.Context) (bool, error) {
	if r.proves() || !r.promotes() {
		return true, nil
	}
	next, err := r.engine.Provider.NextImage(ctx, r.pool, Target{Version: r.image.version.Name, Reference: ByDefinition})
	if err != nil {
		return false, fmt.Errorf("compare the model of pool %s: %w", r.pool.Name, err)
	}
	return r.image.reference == ByDefinition || strings.EqualFold(next.Image, r.pool.Model.Image), nil
}

// nextImage is what has to be written into the model. What somebody has added to one that kamino
// wrote is told, and written only where a person says so: else whatever puts an extension back each
// night, as a policy does, would cost a model each night.
func (r *Run) nextImage(ctx context.Context, pool Pool, want Target) (NextImage, error) {
	next, err := r.engine.Provider.NextImage(ctx, pool, want)
	if err != nil {
		return next, fmt.Errorf("compare the model of pool %s: %w", pool.Name, err)
	}
	if r.image.whole = len(next.Diff) == 0 && want.Reference == ByDefinition; r.opts.AdoptModel || r.result.ModelDiff != nil || !r.held.lease.Ledger.leaves(pool, want, next) {
		return next, nil
	}
	r.doubt(InModel, "extensions that somebody added to the model since Kamino wrote it are kept, and new nodes run them: "+
		describeFields(next.Diff)+"; kamino update --adopt-model removes them")
	next.Diff = []FieldChange{}
	return next, nil
}

// leaves says whether a model differs in nothing that a pool needs which refers to its definition:
// it names that still, and nothing was left to be written once.
func (l Ledger) leaves(pool Pool, want Target, next NextImage) bool {
	return want.Reference == ByDefinition && l.Wrote != nil && l.Wrote.Whole && len(next.Diff) > 0 &&
		strings.EqualFold(l.Wrote.Image, pool.Model.Image) && strings.EqualFold(pool.Model.Image, next.Image)
}

// noteModel writes on the ledger what a write of the model takes the place of.
func (r *Run) noteModel(l *Lease, pool Pool, next NextImage, want Target, born time.Time, prototype bool) {
	former := SavedModel{At: r.engine.date(), Image: pool.Model.Image, Saved: pool.Model.Saved}
	// A second write of the same image must not hide the way back.
	same := strings.EqualFold(former.Image, next.Image)
	if !same {
		l.Ledger.remember(former, prototype)
	}
	l.Ledger.writing(next.Image, former.At, same, pool.Stamp)
	l.Ledger.Promoted, l.Ledger.Stood = nil, nil
	if want.Reference == ByDefinition {
		l.Ledger.Promoted = &Promotion{Version: want.Version, Born: born}
		l.Ledger.stood(want.Version, former.At)
	}
}

// prototype says whether a pool's image is one of its versions, or of its gallery.
func prototype(pool Pool, versions []Artifact) bool {
	return strings.Contains(strings.ToLower(pool.Model.Image), "/galleries/"+strings.ToLower(pool.Gallery)+"/") ||
		slices.ContainsFunc(versions, func(v Artifact) bool { return strings.EqualFold(v.ID, pool.Model.Image) })
}

// remember keeps a model that is about to be replaced. The first that is no prototype is the
// original and stays it: of later ones nobody knows whether their other fields are not a
// prototype's.
func (l *Ledger) remember(m SavedModel, prototype bool) {
	if l.Former == nil || !strings.EqualFold(l.Former.Image, m.Image) {
		l.Former = &m
	}
	if !prototype && l.Original == nil {
		l.Original = &m
	}
}

func describeDiff(pool Pool, diff []FieldChange) string {
	return fmt.Sprintf("write the model of pool %s: %s", pool.Name, describeFields(diff))
}

func describeFields(diff []FieldChange) string {
	fields := make([]string, len(diff))
	for i, d := range diff {
		fields[i] = d.Field
	}
	return strings.Join(fields, ", ")
}

// scaleOutWanted: new nodes were asked for, and this run made or adopted the
// change that they are to show, or a run before it failed to ask for them.
func (r *Run) scaleOutWanted() bool {
	news := r.promotes() && (r.held.adopted || r.result.Changed || !r.image.preBuilt)
	return r.opts.NewNodes > 0 && (news || r.owed() != nil)
}

// owed is the scale-out that was begun for this version and not seen to its end.
func (r *Run) owed() *ScaleOut {
	if r.held.lease == nil || r.held.lease.Ledger.Owed == nil || r.held.lease.Ledger.Owed.Version != r.image.version.Name {
		return nil
	}
	return r.held.lease.Ledger.Owed
}

// lookScaleOut asks for more instances. The capacity aimed at stands on the
// lease before it is asked for, so that neither crash nor failure asks twice.
func (r *Run) lookScaleOut(ctx context.Context) (Next, error) {
	pool, err := r.poolNow(ctx)
	if err != nil {
		return Next{}, err
	}
	r.pool = pool
	if list := r.opts.unlifted(pool.Refusals); len(list) > 0 {
		return Next{}, &RefusedError{Subject: "pool " + pool.Name, Refusals: list}
	}
	// While the pool is busy, its capacity is what was asked for and may yet be
	// taken back.
	if pool.Updating {
		return wait("a change of the pool to end"), nil
	}
	if owed := r.owed(); owed != nil && owed.To > 0 && pool.Capacity >= owed.To {
		return done(fmt.Sprintf("capacity is %d", pool.Capacity)), nil
	}
	// An autoscaler that changed the capacity meanwhile is right: our nodes are
	// added to what it decided.
	aim := pool.Capacity + r.opts.NewNodes
	return act(ActScaleOut, fmt.Sprintf("scale out from %d to %d", pool.Capacity, aim), func(ctx context.Context) error {
		r.result.Changed = true
		return r.engine.Provider.SetCapacity(ctx, pool, aim)
	}).noting(func(l *Lease) { l.Ledger.Owed = &ScaleOut{Version: r.image.version.Name, To: aim} }), nil
}

// promotedHere: this process has seen the version promoted.
func (r *Run) promotedHere() bool {
	return slices.ContainsFunc(r.result.Steps, func(s StepTime) bool { return s.Name == InModel && !s.Skipped })
}

// bootable reads, where the target is a version, what no list tells: whether it is replicated in
// the pool's region. While a version is changed, as by the rollback before this one, the provider
// may say that it is not: that is waited for.
func (e *Engine) bootable(ctx context.Context, o overview, t target, dryRun bool) error {
	if t.version == nil {
		return nil
	}
	look := func(ctx context.Context) (Next, error) {
		found, err := e.Provider.Find(ctx, o.pool, Version, t.version.Name)
		switch {
		case err != nil:
			return Next{}, fmt.Errorf("read version %s: %w", t.version.Name, err)
		case len(found) > 0 && found[0].whole() && found[0].Ready:
			return done("version " + t.version.Name + " is replicated"), nil
		case len(found) > 0 && found[0].State == Succeeded && found[0].Failure == "":
			return waitPercent("the change of version "+t.version.Name, found[0].Percent), nil
		}
		return Next{}, WithHint(fmt.Errorf("version %s of pool %s is not replicated in %s: no node can boot from it",
			t.version.Name, o.pool.Name, cmp.Or(o.pool.Location, "the pool's region")), "%s", o.targetsHint(t.version.Name))
	}
	if next, err := look(ctx); err != nil || next.kind == nextDone || dryRun {
		return err
	}
	r := e.newRun(t.options())
	r.pool = o.pool
	return r.exec(ctx, []Step{{Name: InVersion, Does: "wait for the change of the version", Patient: true,
		Look: func(_ *Run, ctx context.Context) (Next, error) { return look(ctx) }}})
}
