package kamino

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
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
	if a.Tags[TagProof] == proofFailed { // a person takes it all the same
		delete(a.Tags, TagProof)
	}
	return a
}

// Withdrawn is a version as whoever withdraws it writes it. Its tag still says that it passed its
// proof, unless its nodes are why it is withdrawn.
func (a Artifact) Withdrawn(bad Bad) Artifact {
	untried := a.untried()
	a = a.offering(offerWithdrawn)
	switch {
	case bad.Nodes:
		a.Tags[TagProof] = proofFailed
	case untried:
		delete(a.Tags, TagProof)
	}
	a.Tags[TagBad] = cutText(cmp.Or(bad.Reason, offerWithdrawn), maxTag)
	return a
}

// offering is a version as it shall be written: offered or not, and tagged so.
func (a Artifact) offering(state string) Artifact {
	a.Excluded = state != offerOffered
	return a.with(TagOffer, state)
}

// with is an artifact with another tag. The one that was read, and is remembered, keeps its own.
func (a Artifact) with(tag, value string) Artifact {
	if a.Tags = maps.Clone(a.Tags); a.Tags == nil {
		a.Tags = map[string]string{}
	}
	a.Tags[tag] = value
	return a
}

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

// Retagged is a version as a fresh read shows it, with those tags of want that kamino writes: what
// others have tagged stays. ErrConflict: it was withdrawn since want was read, or that was taken
// back. No version is promoted that a person withdrew while it was proved.
func (a Artifact) Retagged(want Artifact) (Artifact, error) {
	if a.Tags[TagBad] != want.Tags[TagBad] {
		return a, fmt.Errorf("version %s was withdrawn meanwhile, or that was taken back: %w", a.Name, ErrConflict)
	}
	for tag, value := range want.Tags {
		if strings.HasPrefix(tag, tagPrefix) {
			a = a.with(tag, value)
		}
	}
	return a, nil
}

// tagPrefix begins the names of all tags that are written after a version was made.
const tagPrefix = "kamino-"

// Life is how far a version has come on its way to a pool's nodes, as its tags tell.
type Life string

// The states of a version's life.
const (
	LifeBuilding  Life = "building"
	LifeHidden    Life = "hidden"    // not offered, and not proved
	LifeProving   Life = "proving"   // a canary boots from it
	LifeWaiting   Life = "waiting"   // passed, and waits for kamino promote
	LifePromoted  Life = "promoted"  // offered, now or once
	LifeWithdrawn Life = "withdrawn" // never chosen again, but by its name
	LifeFailed    Life = "failed"    // its build
)

func (a Artifact) life() Life {
	switch {
	case a.State == Failed && !a.whole(), a.State == Deleting:
		return LifeFailed
	case a.Tags[TagBad] != "", a.Tags[TagOffer] == offerWithdrawn:
		return LifeWithdrawn
	case a.State == Creating, !a.Ready && a.hidden():
		return LifeBuilding
	case a.waiting():
		return LifeWaiting
	case a.Tags[TagOffer] == offerProving:
		return LifeProving
	case a.hidden(), a.foreign():
		return LifeHidden
	}
	return LifePromoted
}

// What TagProof says of a version that is to be proved, from birth, of one that passed, and of one
// that somebody took without. Any other text is how a proof ended that told nothing.
const (
	proofWanted  = "wanted"
	proofPassed  = "passed"
	proofOmitted = "omitted"
	proofFailed  = "failed" // withdrawn for how its nodes did
)

// Ours says whether Kamino, of any version and the original included, made it of this pool.
func (a Artifact) Ours() bool {
	return !a.OfFormer && (a.Tags[TagRun] != "" || a.Tags[TagBuiltFrom] != "")
}

// foreign says whether a version is somebody else's, and kept from pools: it stands in no one's
// way.
func (a Artifact) foreign() bool { return !a.Ours() && a.Excluded }

// disputed tells of a version that is Disputed.
func (a Artifact) disputed() string {
	return "version " + a.Name + " is offered as latest, and excluded from latest in one of its regions; which of the two applies is undocumented"
}

// whole says whether a version was built to its end: a change of its tags or flags may have failed
// since then.
func (a Artifact) whole() bool { return a.State == Succeeded || a.State == Failed && a.Ready }

// good says whether a version can be what new nodes are made of.
func (a Artifact) good() bool { return a.whole() && a.Tags[TagBad] == "" }

// standsIn says whether a version can take the place of one that is withdrawn, though nobody names
// it.
func (a Artifact) standsIn(pool Pool) bool {
	return !a.OfFormer && a.good() && a.Ready && !a.unused() && (!a.Excluded || a.hidden()) && a.Tags[TagReceipt] != "" && !a.untried() && !(a.unaccepted() && pool.Owner != nil)
}

// Withheld says whether a version is kept from pools that refer to its definition: by its state, or
// by a person. Nor does a definition stand for one whose last change failed.
func (a Artifact) Withheld() bool {
	return a.State == Failed || a.Excluded || a.Tags[TagBad] != "" || a.Tags[TagOffer] == offerWithdrawn || a.hidden()
}

// hidden says whether a version was never offered.
func (a Artifact) hidden() bool {
	return a.Tags[TagOffer] == offerHidden || a.Tags[TagOffer] == offerProving
}

// unused says whether nothing was ever made of a version, as far as can be told: it was not
// offered, and none that the model names or an instance booted from, as where it was promoted by
// name and its run ended before it was offered.
func (a Artifact) unused() bool { return a.hidden() && !a.InModel && a.Instances == 0 }

// untried says whether a version was to be proved, and neither passed nor was taken without.
func (a Artifact) untried() bool {
	how := a.Tags[TagProof]
	return how != "" && how != proofPassed && how != proofOmitted && how != proofFailed
}

// unproved says whether a version still has to be proved: it is hidden, and has passed nothing.
func (a Artifact) unproved() bool {
	return a.good() && a.hidden() && a.Tags[TagProof] != proofPassed
}

// waiting says whether a version has passed and is not promoted.
func (a Artifact) waiting() bool {
	return a.good() && a.hidden() && a.Tags[TagProof] == proofPassed
}

// gated says whether a version is left to a person: that was decided when it was made or proved,
// and what a later run is told changes nothing of it.
func (a Artifact) gated() bool { return a.hidden() && a.Tags[TagPromote] == string(PromoteManual) }

// gate is a version as a run writes it that leaves its promotion to a person.
func (a Artifact) gate() Artifact { return a.with(TagPromote, string(PromoteManual)) }

// bootstrapUnaccepted is the value of TagBootstrap.
const bootstrapUnaccepted = "unaccepted"

// afterDay reports whether a version of this pool is named for a later day.
func (a Artifact) afterDay(day time.Time) bool {
	at, err := VersionDate(a.Name)
	return err == nil && !a.foreign() && !a.OfFormer && VersionName(at) > VersionName(day)
}

// unaccepted says whether a version was left hidden because its instances would run a bootstrap
// that kamino does not know.
func (a Artifact) unaccepted() bool { return a.hidden() && a.Tags[TagBootstrap] != "" }

// mayPromote says whether a version may become what new nodes boot from without a further proof or
// a person's word: it is offered already, has passed, or was made where nobody wanted a proof.
func (a Artifact) mayPromote(p Proving) bool {
	switch {
	case !a.good(), a.OfFormer:
		return false
	case !a.hidden():
		return !a.Excluded && !a.untried()
	case p.Promote == PromoteManual, a.gated(), !a.Ours() && a.Tags[TagReceipt] == "": // that a person took such a one is noted nowhere
		return false
	}
	never := a.Tags[TagProof] == "" && a.Tags[TagOffer] == offerHidden
	return a.Tags[TagProof] == proofPassed || p.Mode == ProveNone && never
}

// built is when the disk of a version was captured: by its tag, which the
// original wrote too, else by its name, else as the provider says.
func (a Artifact) built() (at stamp, ok bool) {
	if t, err := parseBuiltAt(a.Tags[TagBuiltAt]); err == nil {
		return stamp{t, true}, true
	}
	if d, err := VersionDate(a.Name); err == nil {
		return stamp{d, false}, true
	}
	return stamp{a.Created, true}, !a.Created.IsZero()
}

// first is the first version of a list that fits; nil where none does.
func first(versions []Artifact, fits func(Artifact) bool) *Artifact {
	if i := slices.IndexFunc(versions, fits); i >= 0 {
		return &versions[i]
	}
	return nil
}

// newestImage is the newest version that was ever finished. One that was rolled
// back counts: what it was made of is not worth making again.
func newestImage(newestFirst []Artifact) *Artifact {
	return first(newestFirst, func(v Artifact) bool { return v.whole() && !v.foreign() && !v.OfFormer })
}

// newestGood is the newest version that could be promoted; nil when there is none.
func newestGood(newestFirst []Artifact) *Artifact {
	return first(newestFirst, func(v Artifact) bool { return v.good() && !v.foreign() && !v.OfFormer })
}

// latest is the version that a model naming the definition would get.
func latest(newestFirst []Artifact) *Artifact {
	return first(newestFirst, func(v Artifact) bool { return v.good() && !v.Excluded })
}

// promotable is the newest version that new nodes may be made of without asking anybody, one
// included that is not offered yet.
func promotable(newestFirst []Artifact, p Proving) *Artifact {
	return first(newestFirst, func(v Artifact) bool { return v.mayPromote(p) })
}

// promotable is the newest version that may become what the pool's new nodes boot from.
func (o overview) promotable(opts AutoOptions) *Artifact {
	if o.pool.Owner == nil {
		return promotable(o.versions, opts.Proof)
	}
	return promotable(slices.DeleteFunc(slices.Clone(o.versions), Artifact.unaccepted), opts.Proof)
}

// setAside begins the reason of a version that nobody judged: a person went back to the original
// model by name, as at the end of a trial. Nothing takes the version by itself, and its donor may
// make another one of the same packages.
const setAside = "set aside, not judged: "

// aside says whether a version is set aside.
func (a Artifact) aside() bool { return strings.HasPrefix(a.Tags[TagBad], setAside) }

// badVersions are those that were judged as bad, deleted ones among them.
func badVersions(versions []Artifact, ledger Ledger) (out []Artifact) {
	for _, v := range versions {
		if v.Tags[TagBad] != "" && !v.aside() {
			out = append(out, v)
		}
	}
	for _, u := range ledger.Unfit { // that are no more
		if indexOf(versions, u.Version) < 0 {
			out = append(out, Artifact{Kind: Version, Name: u.Version, Tags: u.Tags})
		}
	}
	return out
}

// distrusted are the versions that a move to a target leaves as not to be
// chosen: all that are newer than it, and with the original all.
func (o overview) distrusted(t target) []Artifact {
	var out []Artifact
	for _, v := range o.versions {
		unmarked := slices.Contains(o.lease.Ledger.RolledBack, v.Name)
		shown := t.points && v.State == Succeeded && !v.Excluded
		if (v.good() && !v.OfFormer || unmarked || shown) && !v.foreign() && t.before(v.Name) {
			out = append(out, v)
		}
	}
	return out
}

// making are the versions that a rollback leaves too, and that no other move does: they are newer
// than its target, and still being built.
func (o overview) making(t target) []Artifact {
	return slices.DeleteFunc(slices.Clone(o.versions), func(v Artifact) bool {
		return v.State != Creating || !v.Ours() || slices.Contains(o.lease.Ledger.RolledBack, v.Name) || !t.before(v.Name)
	})
}

// unborn are what the pool's runs since the last that ended well were to make, which no list shows
// yet, and the ledger does not distrust so far. What points at a version, or patches a node, makes
// none and says nothing of those.
func (o overview) unborn(t target) (names []string) {
	for _, p := range o.lease.Ledger.Past {
		switch {
		case p.Pointed != "", p.Work == WorkPatch:
		case p.Failure == "":
			return names
		case t.before(p.Version) && indexOf(o.versions, p.Version) < 0 && !slices.Contains(o.lease.Ledger.RolledBack, p.Version):
			names = append(names, p.Version)
		}
	}
	return names
}

// before says whether a target comes before a version of a name.
func (t target) before(name string) bool {
	return name != "" && (t.version == nil || CompareVersions(name, t.version.Name) > 0)
}

// begunBad are those of them that a rollback or a withdrawal, which ended too early, has decided
// against or marked, and that a pool which refers to the definition may boot from.
func (o overview) begunBad(t target) []Artifact {
	if !t.points {
		return nil
	}
	return slices.DeleteFunc(o.distrusted(t), Artifact.good)
}

func indexOf(versions []Artifact, name string) int {
	return slices.IndexFunc(versions, func(v Artifact) bool { return v.Name == name })
}

func sameImage(v *Artifact, image string) bool {
	return v != nil && (strings.EqualFold(v.ID, image) || strings.EqualFold(definitionOf(v.ID), image))
}

// badAncestor is the nearest version in the line of a version that was withdrawn; "" when there is
// none. The line is told by TagParent: gallery paths that end in versions/NAME.
func badAncestor(v Artifact, all []Artifact) string {
	for range all { // a line that bites its tail ends, too
		parent := lastSegment(v.Tags[TagParent])
		i := indexOf(all, parent)
		if i < 0 || !strings.Contains(v.Tags[TagParent], "versions/") {
			return ""
		}
		if v = all[i]; v.Tags[TagBad] != "" {
			return v.Name
		}
	}
	return ""
}

// descendants are the versions whose line goes back to a version.
func descendants(of string, all []Artifact) (names []string) {
	for _, v := range all {
		at := v
		for range all {
			i := indexOf(all, lastSegment(at.Tags[TagParent]))
			if i < 0 || !strings.Contains(at.Tags[TagParent], "versions/") {
				break
			}
			if at = all[i]; at.Name == of {
				names = append(names, v.Name)
				break
			}
		}
	}
	return names
}

// newestBirth is when the newest instance was created that is known; zero where none is.
func newestBirth(versions []Artifact) (newest time.Time) {
	for _, v := range versions {
		for _, born := range v.Births {
			if born.After(newest) {
				newest = born
			}
		}
	}
	return newest
}

// bornBefore says whether some of the instances that boot from a version may be older than its
// promotion. No list tells which.
func (o overview) bornBefore(v *Artifact) bool {
	since := o.promotedAt(v)
	return since.IsZero() || slices.ContainsFunc(v.Births, func(born time.Time) bool { return born.Before(since) })
}

// promotedAt is when a version became what the pool's next instance boots from; zero where nobody
// noted it.
func (o overview) promotedAt(v *Artifact) time.Time {
	l := o.lease.Ledger
	if p := l.Promoted; p != nil && p.Version == v.Name {
		return p.At
	} else if w := l.Wrote; w != nil && strings.EqualFold(w.Image, v.ID) {
		return w.At
	}
	return time.Time{}
}

// unknownFiles reads what tags tell; nil when they tell nothing.
func unknownFiles(tags map[string]string) *UnknownFiles {
	n, err := strconv.Atoi(tags[TagUnknown])
	if err != nil || n < 0 {
		return nil
	}
	return &UnknownFiles{Mode: tags[TagUnknownMode], Count: n, Digest: tags[TagUnknownDigest]}
}

// Unfit is what is kept of a withdrawn version that was pruned: of which disk it was made, and why
// it was withdrawn.
type Unfit struct {
	Version string            `json:"version"`
	Tags    map[string]string `json:"tags"`
}

// pruned notes a version that is deleted.
func (l *Ledger) pruned(v Artifact) {
	if slices.ContainsFunc(l.Unfit, func(u Unfit) bool { return u.Version == v.Name }) {
		return
	}
	tags := map[string]string{}
	for _, name := range []string{TagBad, TagBuiltFrom, TagBuiltAt, TagVM, TagPackages} {
		if text := v.Tags[name]; text != "" {
			tags[name] = text
		}
	}
	l.Unfit = keepNewest(Unfit{v.Name, tags}, l.Unfit)
}
