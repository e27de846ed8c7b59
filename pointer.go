package kamino

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// What TagOffer says of a version: its state. It is written together with Excluded, so that one
// that disagrees with it was changed by somebody else. Versions of the original, and of pools that
// refer to versions, have none: they are offered.
const (
	offerHidden    = "hidden"    // from birth
	offerProving   = "proving"   // a canary boots from it
	offerOffered   = "offered"   // promoted: a pool that refers to the definition may boot from it
	offerWithdrawn = "withdrawn" // TagBad tells why; it returns to use by its name only
)

// Offered is a version as whoever promotes it writes it.
func (a Artifact) Offered() Artifact {
	a = a.offering(offerOffered)
	delete(a.Tags, TagBad)
	delete(a.Tags, TagBootstrap)
	return a
}

// Withdrawn is a version as whoever withdraws it writes it.
func (a Artifact) Withdrawn(reason string) Artifact {
	a = a.offering(offerWithdrawn)
	delete(a.Tags, TagProof)
	a.Tags[TagBad] = cutText(firstWord(reason, offerWithdrawn), maxTag)
	return a
}

// offering is a version as it shall be written: offered or not, and tagged so.
func (a Artifact) offering(state string) Artifact {
	if a.Tags = maps.Clone(a.Tags); a.Tags == nil {
		a.Tags = map[string]string{}
	}
	a.Tags[TagOffer], a.Excluded = state, state != offerOffered
	return a
}

// whole says whether a version was built to its end: a change of its tags or flags may have failed
// since then.
func (a Artifact) whole() bool { return a.State == Succeeded || a.State == Failed && a.Ready }

// Withheld says whether a version is kept from pools that refer to its definition: by its state, or
// by a person. Nor does a definition stand for one whose last change failed.
func (a Artifact) Withheld() bool {
	return a.State == Failed || a.Excluded || a.Tags[TagBad] != "" || a.Tags[TagOffer] == offerWithdrawn || a.hidden()
}

// unused says whether nothing was ever made of a version, as far as can be told: it was not
// offered, and none that the model names or an instance booted from, as where it was promoted by
// name and its run ended before it was offered.
func (a Artifact) unused() bool { return a.hidden() && !a.InModel && a.Instances == 0 }

// SameOffer says whether two reads of a version show the same: what TagOffer, TagBad and Excluded
// tell, and that one run made both.
func (a Artifact) SameOffer(b Artifact) bool {
	for _, tag := range []string{TagOffer, TagBad, TagRun} {
		if a.Tags[tag] != b.Tags[tag] {
			return false
		}
	}
	return a.Excluded == b.Excluded
}

// points says whether a model refers to the definition of versions, and not to one of them.
func points(image string, versions []Artifact) bool {
	return slices.ContainsFunc(versions, func(v Artifact) bool {
		return v.ID != "" && strings.EqualFold(definitionOf(v.ID), image) && !strings.EqualFold(v.ID, image)
	})
}

// resolved is the version that a definition stands for: the newest that
// Succeeded and is not excluded.
func resolved(newestFirst []Artifact) *Artifact {
	for i, v := range newestFirst {
		if v.State == Succeeded && !v.Excluded {
			return &newestFirst[i]
		}
	}
	return nil
}

func resolvedName(newestFirst []Artifact) string {
	if v := resolved(newestFirst); v != nil {
		return v.Name
	}
	return ""
}

// movedPin says whether somebody else has moved what the definition stands for: it is not the
// newest version that kamino offered. Where kamino never offered one, nothing is said.
func movedPin(image string, versions []Artifact) *Pin {
	if !points(image, versions) {
		return nil
	}
	for _, v := range versions {
		if v.State != Succeeded || v.Tags[TagOffer] != offerOffered || v.Tags[TagBad] != "" && v.Excluded {
			continue
		}
		now := resolved(versions)
		switch {
		case now == nil:
			return &Pin{image, v.ID}
		case now.Name == v.Name, now.Ours() && now.Tags[TagOffer] == "" && CompareVersions(now.Name, v.Name) > 0:
			return nil // made visible by an earlier kamino
		}
		return &Pin{now.ID, v.ID}
	}
	return nil
}

// Promotion is a version that a definition was made to stand for.
type Promotion struct {
	Version string    `json:"version"`
	At      time.Time `json:"at,omitzero"` // when that was seen to be done; zero: not so far
	// Born is when the newest instance of then was created, by the cloud's clock: At is by that of
	// the machine that promoted, which may be behind.
	Born time.Time `json:"born,omitzero"`
}

// Stray is an instance that did not follow its pool's definition.
type Stray struct {
	Booted   string    `json:"booted"`   // the version that it was made of
	Promoted string    `json:"promoted"` // the one that the definition stood for
	At       time.Time `json:"at"`       // when that was promoted
	Born     time.Time `json:"born"`     // when the instance was created
}

func (s Stray) String() string {
	return fmt.Sprintf("an instance created at %s booted from version %s, although %s was promoted at %s",
		s.Born.UTC().Format(time.RFC3339), s.Booted, s.Promoted, s.At.UTC().Format(time.RFC3339))
}

const (
	// pointerUnreliable is the value of TagPointer.
	pointerUnreliable = "unreliable"
	// pointerSettles is how long after a promotion an instance may still boot from what was
	// promoted before. How long excludeFromLatest takes to count is published nowhere.
	pointerSettles = 10 * time.Minute
)

// astray judges a pointer by what booted from it: the first instance that was created
// pointerSettles or more after the last promotion. That Azure resolves "latest" anew at each
// scale-out is what most users report (https://github.com/Azure/azure-rest-api-specs/issues/4446),
// and one did not see (https://github.com/Azure/azvmimagebuilder/issues/33): unverified.
func (l Ledger) astray(image string, versions []Artifact) *Stray {
	p, now := l.Promoted, resolved(versions)
	if p == nil || p.At.IsZero() || now == nil || now.Name != p.Version || !points(image, versions) {
		return nil
	}
	first := Stray{Promoted: p.Version, At: p.At}
	for _, v := range versions {
		for _, born := range v.Births {
			if born.After(p.Born) && !born.Before(p.At.Add(pointerSettles)) && (first.Born.IsZero() || born.Before(first.Born)) {
				first.Booted, first.Born = v.Name, born
			}
		}
	}
	if first.Born.IsZero() || first.Booted == p.Version {
		return nil
	}
	return &first
}

func (o overview) strayed() *Stray { return o.lease.Ledger.strayed(o.pool.Model.Image, o.versions) }

// strayed is why a pool's definition is not believed: what is seen now, or was noted once, though
// the instance that showed it is gone.
func (l Ledger) strayed(image string, versions []Artifact) *Stray {
	if seen := l.astray(image, versions); seen != nil {
		return seen
	}
	return l.Strayed
}

// newest is the newest version that new nodes may be made of, as a target.
func (o overview) newest(opts AutoOptions) target {
	return target{version: o.promotable(opts), points: opts.ImageOnly || o.follows(opts.ImageReference),
		offered: opts.ImageOnly, verb: VerbPromote, nobody: &opts.Proof}
}

// follows says whether the pool refers to its definition, and shall go on doing so.
func (o overview) follows(reference ImageReference) bool {
	return points(o.pool.Model.Image, o.versions) && (reference == ByDefinition || o.pool.Owner != nil || o.strayed() == nil && !o.tagged)
}

// chooseReference decides how the pool shall refer to its image. What a person typed is done or
// refused; else the pool refers to the definition, unless something speaks against it.
func (r *Run) chooseReference(ctx context.Context, versions []Artifact) (Next, error) {
	if r.image.reference = r.opts.ImageReference; !r.inDefinition() && r.image.reference != ByVersion {
		r.image.reference = ByPointer
		return Next{}, r.refuseOwned()
	}
	if err := r.refuseOwned(); err != nil || r.image.reference == ByVersion {
		return Next{}, err
	}
	ledger := r.held.lease.Ledger
	against, stray := r.againstPointer(versions), ledger.strayed(r.pool.Model.Image, versions)
	tagged := r.image.definition.Tags[TagPointer] == pointerUnreliable
	switch {
	case r.opts.ImageReference == ByDefinition && against != "":
		return Next{}, &RefusedError{Subject: "pool " + r.pool.Name, Refusals: []Refusal{{Code: "pointer", Field: "image definition", Value: DefinitionName(r.pool.Name),
			Why: against, Do: r.towardsPointer(versions)}}}
	case r.opts.ImageReference == ByDefinition && (tagged || ledger.Strayed != nil) && r.plan == nil:
		return r.tagPointer(nil), nil
	case r.opts.ImageReference == ByDefinition, r.modelIsTheirs():
		r.image.reference = ByDefinition
		if stray != nil {
			r.doubt(InVersion, []string{"whether new nodes boot from what the image definition stands for: " + stray.String()})
		}
		return Next{}, nil
	case stray != nil && !tagged && r.plan == nil:
		return r.tagPointer(stray), nil
	case stray != nil:
		against = stray.String()
	case tagged:
		against = "image definition " + DefinitionName(r.pool.Name) + " has the tag " + TagPointer + "=" + pointerUnreliable
	}
	if r.image.reference = ByDefinition; against != "" {
		r.image.reference = ByVersion
		r.doubt(InVersion, []string{"whether new nodes would boot from what the image definition stands for: " + against +
			". The model names the version instead; --image-reference pointer names the definition"})
	}
	return Next{}, nil
}

// modelIsTheirs: the recipe is not written by this run.
func (r *Run) modelIsTheirs() bool { return r.opts.ImageOnly || r.pool.Owner != nil }

// refuseOwned refuses what would write the recipe of a pool that somebody else writes.
func (r *Run) refuseOwned() error {
	field, value := "", ""
	switch {
	case r.pool.Owner == nil:
		return r.refusePointer()
	case r.image.reference == ByVersion:
		field, value = "--image-reference", string(ByVersion)
	case r.opts.NewNodes > 0:
		field, value = "--new-updated-nodes", fmt.Sprint(r.opts.NewNodes)
	default:
		return nil
	}
	return &RefusedError{Subject: "pool " + r.pool.Name, Refusals: []Refusal{{Code: "owned", Field: field, Value: value,
		Why: r.pool.Owner.Name + " writes the model and the number of instances, and would undo it", Do: "leave " + field + " out"}}}
}

// tagPointer writes on the definition that it is not to be relied upon, or takes that off.
func (r *Run) tagPointer(stray *Stray) Next {
	d := r.image.definition
	if d.Tags = maps.Clone(d.Tags); d.Tags == nil {
		d.Tags = map[string]string{}
	}
	delete(d.Tags, TagPointer)
	what := "trust image definition " + d.Name + " again"
	if stray != nil {
		d.Tags[TagPointer], what = pointerUnreliable, "distrust image definition "+d.Name+": "+stray.String()
	}
	return act(ActMarkVersion, what, func(ctx context.Context) error {
		err := r.engine.Provider.SetTags(ctx, r.pool, d)
		if err == nil {
			r.image.definition = d
		}
		return err
	}).of(d.Name).noting(func(l *Lease) {
		if l.Ledger.Strayed = stray; stray == nil {
			l.Ledger.Promoted = nil // judged by what is promoted from now on
		}
	})
}

// distrust writes on the definition that an instance did not follow it, where that is not written.
func (r *Run) distrust(ctx context.Context, stray *Stray) (Next, error) {
	if stray == nil || r.image.definition.Tags[TagPointer] == pointerUnreliable {
		return Next{}, nil
	}
	found, err := r.engine.Provider.Find(ctx, r.pool, Definition, DefinitionName(r.pool.Name))
	if err != nil {
		return Next{}, fmt.Errorf("read the image definition of pool %s: %w", r.pool.Name, err)
	} else if len(found) == 0 {
		return Next{}, nil // with it all versions are gone
	}
	if r.image.definition = found[0]; found[0].Tags[TagPointer] == pointerUnreliable {
		return Next{}, nil
	}
	return r.tagPointer(stray), nil
}

// againstPointer tells why the pool may not refer to its definition; "" when it may. One that
// refers to a version is moved only while the definition stands for the same, or for what kamino
// itself offered last: else its next image could become a third one.
func (r *Run) againstPointer(versions []Artifact) string {
	now := resolved(versions)
	if now != nil && now.Disputed {
		return now.disputed()
	}
	i := slices.IndexFunc(versions, func(v Artifact) bool { return v.ID != "" && strings.EqualFold(v.ID, r.pool.Model.Image) })
	if i < 0 {
		return ""
	}
	named := versions[i]
	switch {
	case now == nil:
		return "the model names version " + named.Name + ", and the definition stands for nothing"
	case now.Name == named.Name, now.Tags[TagOffer] == offerOffered && now.Ours() && CompareVersions(now.Name, named.Name) > 0:
		return ""
	}
	return "the model names version " + named.Name + ", and the definition stands for " + now.Name
}

// towardsPointer tells what to do about that. A rollback of a pool that refers to a version offers
// nothing that a person excluded.
func (r *Run) towardsPointer(versions []Artifact) string {
	if resolved(versions) == nil {
		return "every version is excluded: let the one that the model names count for the definition again; or use --image-reference version"
	}
	return "kamino rollback --pool " + r.pool.Name + " --to VERSION says which one it is to stand for; or use --image-reference version"
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

// ownImage says whether the model refers to what it did when the run began, or to what kamino
// wrote.
func (r *Run) ownImage(pool Pool) bool {
	wrote := r.held.lease.Ledger.Wrote
	return pool.Owner != nil || strings.EqualFold(pool.Model.Image, r.held.lease.Record.ModelWas) || wrote != nil && strings.EqualFold(pool.Model.Image, wrote.Image)
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
		return Next{}, WithHint(fmt.Errorf("version %s is offered and counts as newer than %s: new nodes would go on booting from it", now.Name, v.Name),
			"if it is not wanted: kamino rollback --pool %s --to %s", pool.Name, v.Name)
	}
	pin := movedPin(pool.Model.Image, versions)
	if pin == nil && v.Excluded && v.Tags[TagOffer] == offerOffered && want.Reference == ByDefinition {
		pin = &Pin{resolvedName(versions), v.ID} // a person excluded it
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
