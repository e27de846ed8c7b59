package kamino

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// points says whether a model refers to the definition of versions, and not to one of them.
func points(image string, versions []Artifact) bool {
	return slices.ContainsFunc(versions, func(v Artifact) bool {
		return v.ID != "" && strings.EqualFold(definitionOf(v.ID), image) && !strings.EqualFold(v.ID, image)
	})
}

// resolved is the version that a definition stands for: the newest that
// Succeeded and is not excluded.
func resolved(newestFirst []Artifact) *Artifact {
	return first(newestFirst, func(v Artifact) bool { return v.State == Succeeded && !v.Excluded })
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
			return &Pin{Image: image, Wrote: v.ID}
		case now.Name == v.Name, now.Ours() && now.Tags[TagOffer] == "" && CompareVersions(now.Name, v.Name) > 0:
			return nil // the original made it
		}
		return &Pin{Image: now.ID, Wrote: v.ID}
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
// pointerSettles or more after the last promotion. A later one that followed acquits it of what was
// created before: a person may have excluded the version for an hour meanwhile, and taken that
// back. That Azure resolves "latest" anew at each scale-out is what most users report
// (https://github.com/Azure/azure-rest-api-specs/issues/4446), and one did not see
// (https://github.com/Azure/azvmimagebuilder/issues/33): unverified.
func (l Ledger) astray(image string, versions []Artifact) *Stray {
	p, now := l.Promoted, resolved(versions)
	if p == nil || p.At.IsZero() || now == nil || now.Name != p.Version || !points(image, versions) {
		return nil
	}
	first := Stray{Promoted: p.Version, At: p.At}
	since := p.Born // when the last that followed was created
	if i := indexOf(versions, p.Version); i >= 0 {
		for _, born := range versions[i].Births {
			if born.After(since) && !born.Before(p.At.Add(pointerSettles)) {
				since = born
			}
		}
	}
	for _, v := range versions {
		for _, born := range v.Births {
			if v.Name != p.Version && born.After(since) && !born.Before(p.At.Add(pointerSettles)) && (first.Born.IsZero() || born.Before(first.Born)) {
				first.Booted, first.Born = v.Name, born
			}
		}
	}
	if first.Born.IsZero() {
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
	return target{version: o.promotable(opts), points: o.follows(opts.ImageReference), verb: VerbPromote, nobody: &opts.Proof}
}

// follows says whether the pool refers to its definition, and shall go on doing so.
func (o overview) follows(reference ImageReference) bool {
	return points(o.pool.Model.Image, o.versions) && (reference == ByDefinition || o.pool.Owner != nil || o.strayed() == nil && !o.tagged)
}

// chooseReference decides how the pool shall refer to its image. What a person typed is done or
// refused; else the pool refers to the definition, unless something speaks against it.
func (r *Run) chooseReference(versions []Artifact) (Next, error) {
	if r.image.reference = r.opts.ImageReference; !r.inDefinition() && r.image.reference != ByVersion {
		r.image.reference = ByPointer
		return Next{}, r.refuseOwned()
	}
	if err := r.refuseOwned(); err != nil || r.image.reference == ByVersion {
		return Next{}, err
	}
	ledger := r.held.lease.Ledger
	against, stray := againstPointer(r.pool, versions), ledger.strayed(r.pool.Model.Image, versions)
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
			r.doubt(InVersion, "whether new nodes boot from what the image definition stands for: "+stray.String())
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
		r.doubt(InVersion, "whether new nodes would boot from what the image definition stands for: "+against+
			". The model names the version instead; --image-reference pointer names the definition")
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
func againstPointer(pool Pool, versions []Artifact) string {
	now := resolved(versions)
	if now != nil && now.Disputed {
		return now.disputed()
	}
	i := slices.IndexFunc(versions, func(v Artifact) bool { return v.ID != "" && strings.EqualFold(v.ID, pool.Model.Image) })
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
		return "every version is excluded from latest: include the one that the model names again, or use --image-reference version"
	}
	return "kamino rollback --pool " + r.pool.Name + " --to VERSION sets the one that it stands for; or use --image-reference version"
}

// Pin is an image that somebody else has put into a model in which kamino had
// written one. It is left alone until somebody says otherwise.
type Pin struct {
	Image string `json:"image"` // that the model refers to
	Wrote string `json:"wrote"` // that kamino wrote last
	// Unsure: it is what stood there before that write, which nobody has seen to take effect, and
	// the pool was written since.
	Unsure bool `json:"unsure,omitempty"`
}

func (p Pin) String() string {
	if p.Unsure {
		return p.why()
	}
	return fmt.Sprintf("somebody pinned the model to %s; kamino last wrote %s", lastSegments(p.Image, 3), lastSegments(p.Wrote, 3))
}

func (p Pin) why() string {
	if p.Unsure {
		return fmt.Sprintf("a run ended while it wrote %s into the model, and somebody may have set %s again since", lastSegments(p.Wrote, 3), lastSegments(p.Image, 3))
	}
	return "it was set by someone else: kamino last wrote " + lastSegments(p.Wrote, 3)
}

func (p Pin) refusal(pool Pool) Refusal {
	return Refusal{Code: "pinned", Field: "image of the model of pool " + pool.Name, Value: lastSegments(p.Image, 3),
		Why:   p.why(),
		Do:    "keep it, or replace it with --adopt-model",
		Allow: allowAdopt}
}

// pin says whether somebody else chose the image of a model. A ledger without an
// entry says nothing, nor does any other field of the model; an image that stood
// there before a write which was never seen is explained by the interrupted run, unless the pool
// was written since. Where nothing was written so far, the last version that was made counts.
func (l Ledger) pin(pool Pool, versions []Artifact) *Pin {
	image := pool.Model.Image
	if pin := movedPin(image, versions); pin != nil {
		return pin
	}
	if points(image, versions) {
		return nil // nobody chose a version
	}
	if w := l.Wrote; w != nil {
		if l.undone(image) && !l.mayBeUndone(pool) || strings.EqualFold(image, w.Image) {
			return nil
		}
		return &Pin{Image: image, Wrote: w.Image, Unsure: l.undone(image)}
	}
	made := l.lastMade()
	if made < 0 || sameImage(latest(versions), image) {
		return nil
	}
	for _, v := range versions {
		// One that is hidden was never written.
		if v.Name == l.Past[made].Version && v.good() && !v.hidden() && !sameImage(&v, image) {
			return &Pin{Image: image, Wrote: v.ID}
		}
	}
	return nil
}

// undone says whether a model still has the image that stood there before a write which was never
// seen: the run that noted it ended first.
func (l Ledger) undone(image string) bool {
	return l.Wrote != nil && !l.Wrote.Seen && l.Former != nil && strings.EqualFold(image, l.Former.Image)
}

// unwritten says whether such a write never was: it was refused, or nobody at all has written the
// pool since. Else a person may have taken it back, which was a choice.
func (l Ledger) unwritten(pool Pool) bool {
	return l.undone(pool.Model.Image) && (l.Wrote.Refused || pool.Stamp != "" && pool.Stamp == l.Wrote.Stamp)
}

// mayBeUndone says whether somebody may have taken such a write back: the pool was written since.
// Where the provider has no stamps, nothing tells.
func (l Ledger) mayBeUndone(pool Pool) bool {
	return l.undone(pool.Model.Image) && pool.Stamp != "" && !l.unwritten(pool)
}

// pinned is pin for a pool. What its owner puts into the recipe is nobody's choice of a version.
func (l Ledger) pinned(pool Pool, versions []Artifact) *Pin {
	if pool.Owner != nil {
		return movedPin(pool.Model.Image, versions)
	}
	return l.pin(pool, versions)
}

func (o overview) pin() *Pin { return o.lease.Ledger.pinned(o.pool, o.versions) }

const (
	allowAdopt     = "adopt-model"
	allowImageOnly = "image-only"
)

// refusePinned refuses a pool whose image somebody else chose. What boots meanwhile says nothing of
// how the pool follows its definition.
func (r *Run) refusePinned(ctx context.Context, versions []Artifact) error {
	pin := r.held.lease.Ledger.pinned(r.pool, versions)
	if pin == nil {
		return nil
	}
	if list := r.opts.unlifted([]Refusal{pin.refusal(r.pool)}); len(list) > 0 {
		if r.plan == nil && r.held.lease.Ledger.Promoted != nil {
			if err := r.held.setLease(ctx, func(l *Lease) { l.Ledger.Promoted = nil }); err != nil {
				return err
			}
		}
		return &RefusedError{Subject: "pool " + r.pool.Name, Refusals: list}
	}
	return nil
}

// refuseUndone refuses to write a model again whose image somebody may have taken back.
func (r *Run) refuseUndone(pool Pool) error {
	if r.held.lease == nil {
		return nil // a plan
	}
	pin := r.held.lease.Ledger.pinned(pool, r.image.listed)
	if pin == nil || !pin.Unsure {
		return nil
	}
	if list := r.opts.unlifted([]Refusal{pin.refusal(pool)}); len(list) > 0 {
		return &RefusedError{Subject: "pool " + pool.Name, Refusals: list}
	}
	return nil
}

// refusePointer refuses a pointer that was asked for where the pool's recipe cannot refer to one.
func (r *Run) refusePointer() error {
	if r.pool.NoPointer == "" || r.opts.ImageReference == "" || r.opts.ImageReference == ByVersion {
		return nil
	}
	return &RefusedError{Subject: "pool " + r.pool.Name, Refusals: []Refusal{{Code: "pointer", Field: "--image-reference", Value: "pointer",
		Why: r.pool.NoPointer, Do: "use --image-reference version, or omit the flag"}}}
}

// promoted notes that a version which was to be promoted is.
func (l *Ledger) promoted(version string, now time.Time) {
	if p := l.Promoted; p != nil && p.Version == version && p.At.IsZero() {
		l.Promoted = &Promotion{Version: version, At: now, Born: p.Born}
	}
}

// stood notes what the definition of a pool stood for, where that is not known from before.
func (l *Ledger) stood(version string, at time.Time) {
	if l.Stood == nil && version != "" {
		l.Stood = &Promotion{Version: version, At: at}
	}
}

// sticks says whether the pool may boot from a version although its definition stands for another
// by now: no instance was seen that followed.
func (l Ledger) sticks(version string, versions []Artifact) bool {
	return l.Stood != nil && l.Stood.Version == version && !slices.ContainsFunc(versions, func(v Artifact) bool {
		return v.Name != version && slices.ContainsFunc(v.Births, l.Stood.At.Add(pointerSettles).Before)
	})
}
