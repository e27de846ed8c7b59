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
func (p *pointer) target() kamino.Target {
	return kamino.Target{Version: p.image.version.Name, Reference: p.reference, Seen: &p.image.version}
}

// lookModel points the model at a version that was just seen Succeeded and replicated. The former
// model is written on the lease first.
func (p *pointer) lookModel(ctx context.Context) (workflow.Next, error) {
	v, readAt, err := p.promotedVersion(ctx)
	if err != nil {
		return workflow.Next{}, err
	}
	switch {
	case !v.Whole() && v.State != kamino.Creating || !v.Ours() && p.work() != kamino.WorkProve:
		return workflow.Next{}, fmt.Errorf("version %s is %s: the model is not changed", v.Name, v.State)
	case v.Bad != "":
		return workflow.Next{}, fmt.Errorf("version %s was withdrawn meanwhile: %s", v.Name, v.Bad)
	case p.work() == kamino.WorkProve && v.Proof != kamino.TagProofPassed:
		return workflow.Next{}, fmt.Errorf("version %s is no longer tagged as proved: somebody changed its tags, or rebuilt it; the model is not changed", v.Name)
	}
	if err := p.image.unswapped(v); err != nil {
		return workflow.Next{}, err
	}
	if v.State == kamino.Creating || !v.Ready {
		return workflow.WaitPercent("version "+v.Name+" to be replicated after a change", v.Percent), nil
	}
	p.image.version, p.image.readAt = v, readAt
	pool, err := p.promotedPool(ctx)
	if err != nil {
		return workflow.Next{}, err
	}
	if v.Untried() && p.mode == kamino.ProveNone && p.image.promotes() && p.plan == nil {
		p.image.readAt = time.Time{}
		return p.image.omit(v), nil
	}
	if !p.noted && p.result.ModelDiff == nil { // a person may have changed it since the run was adopted
		if err := p.refuseUndone(pool); err != nil {
			return workflow.Next{}, err
		}
	}
	next, err := p.promote(ctx, pool, p.target())
	if err == nil && next.Kind == workflow.NextAct && !p.noted { // otherwise the promotion is half done
		err = p.refusePaused(ctx)
	}
	if save := next.Note; save != nil && p.opts.NewNodes > 0 && p.owed() == nil {
		next.Note = func(l *kamino.Lease) {
			save(l)
			l.Ledger.Owed = &kamino.ScaleOut{Version: p.image.version.Name}
		}
	}
	return next, err
}

// promotedVersion returns the version and when it was read. It reads the version again if it was
// written since. It also does if the last read is not from just now; a read within LookAge is
// enough if an offer will compare the version anyway, or if it is promoted.
func (p *pointer) promotedVersion(ctx context.Context) (kamino.Version, time.Time, error) {
	v := p.image.version
	age := kamino.Elapsed(p.image.readAt, p.engine.now())
	if age <= kamino.JustNow || age < kamino.LookAge &&
		(p.target().Offers() && p.reference == kamino.ByDefinition || p.result.ModelDiff != nil) {
		return v, p.image.readAt, nil
	}
	found, err := p.engine.readVersion(ctx, p.pool, v.Name)
	if err != nil {
		return v, time.Time{}, err
	} else if found == nil {
		return v, time.Time{}, fmt.Errorf("version %s is gone: the model is not changed", v.Name)
	}
	return *found, p.engine.now(), nil
}

// promotedPool reads the pool. A read within LookAge is enough if only the version was written
// since, because a write of the model is conditional on what was read.
func (p *pointer) promotedPool(ctx context.Context) (kamino.Pool, error) {
	if kamino.Elapsed(p.offeredAt, p.engine.now()) < kamino.LookAge {
		p.offeredAt = time.Time{}
		return p.pool, nil
	}
	return p.poolNow(ctx)
}

// poolNow reads the pool, and does not change the run's copy.
func (p *pointer) poolNow(ctx context.Context) (kamino.Pool, error) {
	pool, err := p.engine.Provider.Pool(ctx, p.pool.ID)
	if err != nil {
		return pool, fmt.Errorf("read pool %s: %w", p.pool.Name, err)
	}
	return pool, nil
}

// promote writes what the pool's next instance boots from, for updates and rollbacks. An offer has
// no effect on a definition that nothing refers to. So a pool that will refer to its definition
// gets the offer first, and a pool that will not any more gets it last.
func (p *pointer) promote(ctx context.Context, pool kamino.Pool, want kamino.Target) (workflow.Next, error) {
	p.pool = pool
	if list := p.opts.Unlifted(pool.Refusals); len(list) > 0 {
		return workflow.Next{}, &kamino.RefusedError{Subject: "pool " + pool.Name, Refusals: list}
	}
	if pool.Updating {
		return workflow.Wait("a change of the pool to end"), nil
	}
	if want.Offers() && want.Reference == kamino.ByDefinition {
		if (p.opts.ImageOnly || pool.Owner != nil && want.Seen.Unaccepted) && !p.opts.Offers {
			p.result.Hidden = true
			return workflow.Done("version " + want.Version + " stays hidden: its instances would run the model's own bootstrap; " +
				poolstate.HowToPromote(pool.Name, want.Version) + " offers it"), nil
		}
		return p.offer(ctx, pool, want)
	}
	if p.modelIsTheirs() && want.Former == nil {
		return workflow.Done("the model is not written; it refers to " + kamino.LastSegments(pool.Model.Image, 3)), nil
	} else if p.pool.Owner != nil {
		return workflow.Next{}, kamino.WithHint(fmt.Errorf("%s writes the model of pool %s: it is not written", pool.Owner.Name, pool.Name),
			"change it there")
	}
	next, err := p.nextImage(ctx, pool, want)
	if err != nil {
		return workflow.Next{}, err
	}
	if len(next.Diff) == 0 && want.Offers() {
		return p.offer(ctx, pool, want)
	} else if len(next.Diff) == 0 {
		return p.unchanged(pool), nil
	}
	if was := p.held.Lease.Record.ModelWas; !p.ownImage(pool) && !strings.EqualFold(pool.Model.Image, next.Image) {
		return workflow.Next{}, kamino.WithHint(fmt.Errorf(
			"somebody changed the image of pool %s from %s to %s during the run: the model is not changed",
			pool.Name, kamino.LastSegments(was, 3), kamino.LastSegments(pool.Model.Image, 3)), "to replace it anyway, run again")
	}
	var born time.Time
	if want.Reference == kamino.ByDefinition && !strings.EqualFold(pool.Model.Image, next.Image) {
		versions, err := p.image.versions(ctx)
		if err != nil {
			return workflow.Next{}, err
		}
		if now := resolvedName(versions); now != want.Version {
			return workflow.Next{}, kamino.WithHint(
				fmt.Errorf("the image definition now stands for %s, not for %s: the model of pool %s was not pointed at it",
					cmp.Or(now, "nothing"), want.Version, pool.Name), "kamino rollback --pool %s --to VERSION sets the wanted one",
				pool.Name)
		}
		born = kamino.NewestBirth(versions)
	}
	if lost := Unreturned(next.Diff); lost != "" && want.Former == nil && !p.unreturned {
		p.unreturned = true
		p.held.Warn("save from your template: " + lost +
			"; the provider does not return them, and kamino rollback --to original asks for them")
	}
	write := workflow.Act(kamino.ActModel, describeDiff(pool, next.Diff), func(ctx context.Context) error {
		p.result.ModelDiff = next.Diff
		p.result.Changed = true
		err := p.engine.Provider.Promote(ctx, pool, want)
		p.held.Wrote(err)
		return err
	}).Announcing(kamino.ActDeleteSnapshot, cleanText(p.pool))
	if p.noted {
		return write, nil
	}
	versions, err := p.image.everListed(ctx)
	if err != nil {
		return workflow.Next{}, err
	}
	return write.Noting(func(l *kamino.Lease) { p.noteModel(l, pool, next, want, born, prototype(pool, versions)) }), nil
}

// unchanged is a promotion that has nothing to write. An image that somebody else wrote into the
// model, and that a person adopts, counts as Kamino's from now on.
func (p *pointer) unchanged(pool kamino.Pool) workflow.Next {
	image := kamino.LastSegments(pool.Model.Image, 3)
	if wrote := p.held.Lease.Ledger.Wrote; !p.opts.AdoptModel || wrote == nil || strings.EqualFold(wrote.Image, pool.Model.Image) {
		return workflow.Done("refers to " + image)
	}
	return workflow.Act(kamino.ActModel, "adopt the image "+image+" of pool "+pool.Name, func(context.Context) error { return nil }).Noting(
		func(l *kamino.Lease) {
			l.Ledger.Wrote = &kamino.WrittenModel{Image: pool.Model.Image, At: p.engine.date(), Seen: true}
		})
}

// offer makes the definition stand for a version: the one write that changes the next image of a
// pool that refers to the definition. Versions have no revision, so the version is compared with a
// read just before, and the next look reads it again.
func (p *pointer) offer(ctx context.Context, pool kamino.Pool, want kamino.Target) (workflow.Next, error) {
	v, read := want.Seen, p.engine.now()
	versions, err := p.image.versions(ctx)
	if err != nil {
		return workflow.Next{}, err
	}
	if was := p.held.Lease.Record.ModelWas; !p.ownImage(pool) {
		return workflow.Next{}, kamino.WithHint(fmt.Errorf(
			"somebody changed the image of pool %s from %s to %s during the run: version %s is not offered",
			pool.Name, kamino.LastSegments(was, 3), kamino.LastSegments(pool.Model.Image, 3), v.Name), "to replace it anyway, run again")
	}
	if now := kamino.Resolved(versions); now != nil && kamino.CompareVersions(now.Name, v.Name) > 0 {
		return workflow.Next{}, kamino.WithHint(fmt.Errorf(
			"version %s is offered and counts as newer than %s: new nodes would still boot from it", now.Name, v.Name),
			"if it is not wanted: kamino rollback --pool %s --to %s", pool.Name, v.Name)
	}
	pin := kamino.MovedPin(pool.Model.Image, versions)
	if pin == nil && v.Excluded && v.Offer == kamino.TagOfferOffered && want.Reference == kamino.ByDefinition {
		pin = &kamino.Pin{Image: resolvedName(versions), Wrote: v.ID} // a person excluded it
	}
	if pin != nil {
		if list := p.opts.Unlifted([]kamino.Refusal{pin.Refusal(pool)}); len(list) > 0 {
			return workflow.Next{}, &kamino.RefusedError{Subject: "pool " + pool.Name, Refusals: list}
		}
	}
	promoted := func(l *kamino.Lease) {
		if l.Ledger.Promoted = (&kamino.Promotion{Version: v.Name, Born: kamino.NewestBirth(versions)}); kamino.Points(
			pool.Model.Image, versions) {
			l.Ledger.NoteStood(resolvedName(versions), p.engine.date())
		}
	}
	offer := workflow.Act(kamino.ActMarkVersion, "offer version "+v.Name+" to new nodes of pool "+pool.Name,
		func(ctx context.Context) error {
			p.result.Changed, p.image.readAt, p.offeredAt = true, time.Time{}, read
			return p.engine.Provider.Promote(ctx, pool, want)
		})
	if p.modelIsTheirs() || want.Reference != kamino.ByDefinition {
		return offer.Noting(promoted), nil
	}
	next, err := p.nextImage(ctx, pool, want)
	if err != nil {
		return workflow.Next{}, err
	}
	if len(next.Diff) == 0 {
		return offer.Noting(promoted), nil
	}
	return offer.Announcing(kamino.ActModel, describeDiff(pool, next.Diff)).Announcing(kamino.ActDeleteSnapshot, cleanText(p.pool)).Noting(
		func(l *kamino.Lease) {
			p.noteModel(l, pool, next, want, kamino.NewestBirth(versions), prototype(pool, versions))
			p.noted = true
		}), nil
}

// ownImage reports whether the model's image is the one from the run's beginning, or one that
// Kamino wrote.
func (p *pointer) ownImage(pool kamino.Pool) bool {
	wrote := p.held.Lease.Ledger.Wrote
	return pool.Owner != nil || strings.EqualFold(pool.Model.Image, p.held.Lease.Record.ModelWas) || wrote != nil &&
		strings.EqualFold(pool.Model.Image, wrote.Image)
}

// bornHidden reports whether a version of this run has to be created hidden: it has to be proved
// first, or the pool refers to the definition, or will, and would boot from it before it was
// examined.
func (p *pointer) bornHidden(ctx context.Context) (bool, error) {
	if p.proves() || !p.image.promotes() {
		return true, nil
	}
	next, err := p.engine.Provider.NextImage(ctx, p.pool, kamino.Target{Version: p.image.version.Name, Reference: kamino.ByDefinition})
	if err != nil {
		return false, fmt.Errorf("compare the model of pool %s: %w", p.pool.Name, err)
	}
	return p.reference == kamino.ByDefinition || strings.EqualFold(next.Image, p.pool.Model.Image), nil
}

// nextImage is what has to be written into the model. Parts that somebody else added to a model of
// Kamino's are reported, and replaced only if a person says so. Otherwise a policy that restores an
// extension each night would use up a model each night.
func (p *pointer) nextImage(ctx context.Context, pool kamino.Pool, want kamino.Target) (kamino.NextImage, error) {
	next, err := p.engine.Provider.NextImage(ctx, pool, want)
	if err != nil {
		return next, fmt.Errorf("compare the model of pool %s: %w", pool.Name, err)
	}
	if p.whole = len(next.Diff) == 0 && want.Reference == kamino.ByDefinition; p.opts.AdoptModel || p.result.ModelDiff != nil ||
		!p.held.Lease.Ledger.Leaves(pool, want, next) {
		return next, nil
	}
	p.doubt(kamino.StepModel, "extensions that somebody added to the model since Kamino wrote it are kept, and new nodes run them: "+
		describeFields(next.Diff)+"; kamino update --adopt-model removes them")
	next.Diff = []kamino.FieldChange{}
	return next, nil
}

// noteModel records on the ledger the model that is about to be replaced.
func (p *pointer) noteModel(l *kamino.Lease, pool kamino.Pool, next kamino.NextImage, want kamino.Target, born time.Time, prototype bool) {
	former := kamino.SavedModel{At: p.engine.date(), Image: pool.Model.Image, Saved: pool.Model.Saved}
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
func prototype(pool kamino.Pool, versions []kamino.Version) bool {
	return strings.Contains(strings.ToLower(pool.Model.Image), "/galleries/"+strings.ToLower(pool.Gallery)+"/") ||
		slices.ContainsFunc(versions, func(v kamino.Version) bool { return strings.EqualFold(v.ID, pool.Model.Image) })
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

// scalesOut reports whether new nodes were requested, and either this run made or adopted the
// change that they should show, or an earlier run failed to request them.
func (p *pointer) scalesOut() bool {
	news := p.image.promotes() && (p.held.Adopted || p.result.Changed || !p.image.preBuilt)
	return p.opts.NewNodes > 0 && (news || p.owed() != nil)
}

// owed returns the scale-out that was begun for this version and not seen to end.
func (p *pointer) owed() *kamino.ScaleOut {
	if p.held.Lease == nil || p.held.Lease.Ledger.Owed == nil || p.held.Lease.Ledger.Owed.Version != p.image.version.Name {
		return nil
	}
	return p.held.Lease.Ledger.Owed
}

// lookScaleOut requests more instances. The lease records the target capacity before the request,
// so that neither a crash nor a failure requests twice.
func (p *pointer) lookScaleOut(ctx context.Context) (workflow.Next, error) {
	pool, err := p.poolNow(ctx)
	if err != nil {
		return workflow.Next{}, err
	}
	p.pool = pool
	if list := p.opts.Unlifted(pool.Refusals); len(list) > 0 {
		return workflow.Next{}, &kamino.RefusedError{Subject: "pool " + pool.Name, Refusals: list}
	}
	// While the pool is busy, its capacity is a request that may still be taken back.
	if pool.Updating {
		return workflow.Wait("a change of the pool to end"), nil
	}
	if owed := p.owed(); owed != nil && owed.To > 0 && pool.Capacity >= owed.To {
		return workflow.Done(fmt.Sprintf("capacity is %d", pool.Capacity)), nil
	}
	// An autoscaler that changed the capacity meanwhile is right: the new nodes are added to its
	// number.
	aim := pool.Capacity + p.opts.NewNodes
	return workflow.Act(kamino.ActScaleOut, fmt.Sprintf("scale out from %d to %d", pool.Capacity, aim), func(ctx context.Context) error {
		p.result.Changed = true
		return p.engine.Provider.SetCapacity(ctx, pool, aim)
	}).Noting(func(l *kamino.Lease) { l.Ledger.Owed = &kamino.ScaleOut{Version: p.image.version.Name, To: aim} }), nil
}

// promotedHere reports whether this process has seen the version promoted.
func (p *pointer) promotedHere() bool {
	return slices.ContainsFunc(p.result.Steps, func(s kamino.StepTime) bool { return s.Name == kamino.StepModel && !s.Skipped })
}

func (p *pointer) planModel() string {
	if p.modelIsTheirs() {
		p.plan.ModelDiff = []kamino.FieldChange{}
	}
	offers := !p.opts.ImageOnly && p.reference == kamino.ByDefinition && (!p.image.preBuilt || p.target().Offers())
	switch {
	case len(p.plan.ModelDiff) == 0 && offers:
		return "offer version " + p.image.version.Name + " to new nodes; the model is up to date"
	case len(p.plan.ModelDiff) == 0:
		return "nothing: the model is up to date"
	}
	return describeDiff(p.pool, p.plan.ModelDiff)
}

func (p *pointer) planScaleOut() string {
	return fmt.Sprintf("scale out from %d to %d", p.pool.Capacity, p.pool.Capacity+p.opts.NewNodes)
}

// Unreturned names what a pool loses when it first leaves its original model and no provider
// returns; "" if it has left that already, or loses nothing.
func Unreturned(diff []kamino.FieldChange) string {
	var lost []string
	for _, d := range diff {
		switch name := d.Field[strings.LastIndexByte(d.Field, '.')+1:]; {
		case name == "imageReference" && strings.Contains(d.From, "/images/kamino-"):
			return ""
		case name == "customData" && d.To == "#cloud-config":
			lost = append([]string{"custom data"}, lost...)
		case name == "extensions":
			stay := strings.Split(d.To, ", ")
			for _, extension := range strings.Split(d.From, ", ") {
				if extension != "" && !slices.Contains(stay, extension) {
					lost = append(lost, "protected settings of "+extension)
				}
			}
		}
	}
	return strings.Join(lost, ", ")
}
