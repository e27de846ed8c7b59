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

// State is how far an artifact has come.
type State string

// The states of an artifact.
const (
	Creating  State = "Creating"
	Succeeded State = "Succeeded"
	Failed    State = "Failed"
	Deleting  State = "Deleting"
)

// Artifact is a gallery, an image definition, an image version or a snapshot:
// as it is when found, or as it is to be when created.
type Artifact struct {
	Kind    Kind   `json:"kind"`
	Name    string `json:"name"`
	ID      string `json:"id,omitempty"`
	State   State  `json:"state,omitempty"`
	Percent int    `json:"percent"` // 0 to 100, as the provider reports it
	// Ready: snapshot complete; version replicated in the pool's region. A version that Failed and
	// is Ready was whole before its last change failed; that change made again mends it.
	Ready   bool   `json:"ready"`
	Failure string `json:"failure,omitempty"`  // why it Failed, in the provider's words
	Source  string `json:"source,omitempty"`   // disk of a snapshot, snapshot of a version
	Storage string `json:"storage,omitempty"`  // of a version: Standard_ZRS or Standard_LRS
	Replica int    `json:"replicas,omitempty"` // of a version, in the pool's region
	// Keeps, of a version: the snapshot that it was made of is a part of it from then on, goes with
	// it, and is found no more.
	Keeps   bool              `json:"keeps,omitempty"`
	Tags    map[string]string `json:"tags,omitempty"`
	Created time.Time         `json:"created,omitzero"`

	Machine // that it fits: of a definition, and of the donor when definition or snapshot is created

	// OfFormer: Kamino made it of an earlier pool that had this pool's name, such as that of a
	// former cluster. It is somebody else's.
	OfFormer bool `json:"ofFormerPool,omitempty"`

	// Of a version in a list.
	Use
	Excluded bool `json:"excluded"` // not offered as latest
	// Disputed: it is offered as latest, and in one of its regions not. Which of the two counts is
	// documented nowhere.
	Disputed bool `json:"disputed,omitempty"`
}

// Use is what still needs a version.
type Use struct {
	Instances int  `json:"instances"` // instances of the pool that booted from it
	InModel   bool `json:"inModel"`   // the pool's model refers to it
	// Births are when those instances were created, the zero time where that is not known; nil: of
	// none it is.
	Births []time.Time `json:"births,omitempty"`
}

// Bad is why a version is withdrawn.
type Bad struct {
	Reason string // as its tag says it, for people
	Nodes  bool   // its nodes did not do well
}

// Storage types of image versions
// (https://learn.microsoft.com/azure/virtual-machines/shared-image-galleries).
const (
	StorageZRS = "Standard_ZRS"
	StorageLRS = "Standard_LRS"
)

// DefinitionOf cuts "/versions/…" off a version's ID.
func DefinitionOf(version string) string {
	if i := strings.LastIndex(strings.ToLower(version), "/versions/"); i >= 0 {
		return version[:i]
	}
	return version
}

// MaxTag bounds what is written into a tag: Azure takes 256 characters
// (https://learn.microsoft.com/azure/azure-resource-manager/management/tag-resources).
const MaxTag = 250

// RefuseSame refuses to make another image of a disk as bad as that of the version.
func (a Artifact) RefuseSame(node string) Refusal {
	return Refusal{Code: "bad-image", Why: fmt.Sprintf("it has the same packages as when version %s was made of it, which is withdrawn: %s", a.Name, Plain(a.Tags[TagBad])),
		Do: fmt.Sprintf("kamino patch --target-node %s, or choose another node: kamino plan ranks them", node)}
}

// SnapshotLife is longer than any run needs its snapshot: the limits of the steps from its making
// to the end of the build.
const SnapshotLife = 24 * time.Hour

// What TagOffer says of a version: its state. It is written together with Excluded, so that one
// that disagrees with it was changed by somebody else. Versions of the original, and of pools that
// refer to versions, have none: they are offered.
const (
	TagOfferHidden    = "hidden"    // from birth
	TagOfferProving   = "proving"   // a canary boots from it
	TagOfferOffered   = "offered"   // promoted: a pool that refers to the definition may boot from it
	TagOfferWithdrawn = "withdrawn" // TagBad tells why; it returns to use by its name only
)

// Offered is a version as whoever promotes it writes it.
func (a Artifact) Offered() Artifact {
	a = a.Offering(TagOfferOffered)
	delete(a.Tags, TagBad)
	delete(a.Tags, TagBootstrap)
	if a.Tags[TagProof] == TagProofFailed { // a person takes it all the same
		delete(a.Tags, TagProof)
	}
	return a
}

// Withdrawn is a version as whoever withdraws it writes it. Its tag still says that it passed its
// proof, unless its nodes are why it is withdrawn.
func (a Artifact) Withdrawn(bad Bad) Artifact {
	untried := a.Untried()
	a = a.Offering(TagOfferWithdrawn)
	switch {
	case bad.Nodes:
		a.Tags[TagProof] = TagProofFailed
	case untried:
		delete(a.Tags, TagProof)
	}
	a.Tags[TagBad] = CutText(cmp.Or(bad.Reason, TagOfferWithdrawn), MaxTag)
	return a
}

// Offering is a version as it shall be written: offered or not, and tagged so.
func (a Artifact) Offering(state string) Artifact {
	a.Excluded = state != TagOfferOffered
	return a.WithTag(TagOffer, state)
}

// WithTag is an artifact with another tag. The one that was read, and is remembered, keeps its own.
func (a Artifact) WithTag(tag, value string) Artifact {
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
			a = a.WithTag(tag, value)
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

// Life is the state in which a version is.
func (a Artifact) Life() Life {
	switch {
	case a.State == Failed && !a.Whole(), a.State == Deleting:
		return LifeFailed
	case a.Tags[TagBad] != "", a.Tags[TagOffer] == TagOfferWithdrawn:
		return LifeWithdrawn
	case a.State == Creating, !a.Ready && a.Hidden():
		return LifeBuilding
	case a.Waiting():
		return LifeWaiting
	case a.Tags[TagOffer] == TagOfferProving:
		return LifeProving
	case a.Hidden(), a.Foreign():
		return LifeHidden
	}
	return LifePromoted
}

// What TagProof says of a version that is to be proved, from birth, of one that passed, and of one
// that somebody took without. Any other text is how a proof ended that told nothing.
const (
	TagProofWanted  = "wanted"
	TagProofPassed  = "passed"
	TagProofOmitted = "omitted"
	TagProofFailed  = "failed" // withdrawn for how its nodes did
)

// Ours says whether Kamino, of any version and the original included, made it of this pool.
func (a Artifact) Ours() bool {
	return !a.OfFormer && (a.Tags[TagRun] != "" || a.Tags[TagBuiltFrom] != "")
}

// Foreign says whether a version is somebody else's, and kept from pools: it stands in no one's
// way.
func (a Artifact) Foreign() bool { return !a.Ours() && a.Excluded }

// WhyDisputed tells of a version that is Disputed.
func (a Artifact) WhyDisputed() string {
	return "version " + a.Name + " is offered as latest, and excluded from latest in one of its regions; which of the two applies is undocumented"
}

// Whole says whether a version was built to its end: a change of its tags or flags may have failed
// since then.
func (a Artifact) Whole() bool { return a.State == Succeeded || a.State == Failed && a.Ready }

// Good says whether a version can be what new nodes are made of.
func (a Artifact) Good() bool { return a.Whole() && a.Tags[TagBad] == "" }

// StandsIn says whether a version can take the place of one that is withdrawn, though nobody names
// it.
func (a Artifact) StandsIn(pool Pool) bool {
	return !a.OfFormer && a.Good() && a.Ready && !a.Unused() && (!a.Excluded || a.Hidden()) && a.Tags[TagReceipt] != "" && !a.Untried() && !(a.Unaccepted() && pool.Owner != nil)
}

// Withheld says whether a version is kept from pools that refer to its definition: by its state, or
// by a person. Nor does a definition stand for one whose last change failed.
func (a Artifact) Withheld() bool {
	return a.State == Failed || a.Excluded || a.Tags[TagBad] != "" || a.Tags[TagOffer] == TagOfferWithdrawn || a.Hidden()
}

// Hidden says whether a version was never offered.
func (a Artifact) Hidden() bool {
	return a.Tags[TagOffer] == TagOfferHidden || a.Tags[TagOffer] == TagOfferProving
}

// Unused says whether nothing was ever made of a version, as far as can be told: it was not
// offered, and none that the model names or an instance booted from, as where it was promoted by
// name and its run ended before it was offered.
func (a Artifact) Unused() bool { return a.Hidden() && !a.InModel && a.Instances == 0 }

// Untried says whether a version was to be proved, and neither passed nor was taken without.
func (a Artifact) Untried() bool {
	how := a.Tags[TagProof]
	return how != "" && how != TagProofPassed && how != TagProofOmitted && how != TagProofFailed
}

// Unproved says whether a version still has to be proved: it is hidden, and has passed nothing.
func (a Artifact) Unproved() bool {
	return a.Good() && a.Hidden() && a.Tags[TagProof] != TagProofPassed
}

// Waiting says whether a version has passed and is not promoted.
func (a Artifact) Waiting() bool {
	return a.Good() && a.Hidden() && a.Tags[TagProof] == TagProofPassed
}

// Gated says whether a version is left to a person: that was decided when it was made or proved,
// and what a later run is told changes nothing of it.
func (a Artifact) Gated() bool { return a.Hidden() && a.Tags[TagPromote] == string(PromoteManual) }

// Gate is a version as a run writes it that leaves its promotion to a person.
func (a Artifact) Gate() Artifact { return a.WithTag(TagPromote, string(PromoteManual)) }

// TagBootstrapUnaccepted is the value of TagBootstrap.
const TagBootstrapUnaccepted = "unaccepted"

// AfterDay reports whether a version of this pool is named for a later day.
func (a Artifact) AfterDay(day time.Time) bool {
	at, err := VersionDate(a.Name)
	return err == nil && !a.Foreign() && !a.OfFormer && VersionName(at) > VersionName(day)
}

// Unaccepted says whether a version was left hidden because its instances would run a bootstrap
// that kamino does not know.
func (a Artifact) Unaccepted() bool { return a.Hidden() && a.Tags[TagBootstrap] != "" }

// MayPromote says whether a version may become what new nodes boot from without a further proof or
// a person's word: it is offered already, has passed, or was made where nobody wanted a proof.
func (a Artifact) MayPromote(p Proving) bool {
	switch {
	case !a.Good(), a.OfFormer:
		return false
	case !a.Hidden():
		return !a.Excluded && !a.Untried()
	case p.Promote == PromoteManual, a.Gated(), !a.Ours() && a.Tags[TagReceipt] == "": // that a person took such a one is noted nowhere
		return false
	}
	never := a.Tags[TagProof] == "" && a.Tags[TagOffer] == TagOfferHidden
	return a.Tags[TagProof] == TagProofPassed || p.Mode == ProveNone && never
}

// Built is when the disk of a version was captured: by its tag, which the
// original wrote too, else by its name, else as the provider says.
func (a Artifact) Built() (at Stamp, ok bool) {
	if t, err := ParseBuiltAt(a.Tags[TagBuiltAt]); err == nil {
		return Stamp{t, true}, true
	}
	if d, err := VersionDate(a.Name); err == nil {
		return Stamp{d, false}, true
	}
	return Stamp{a.Created, true}, !a.Created.IsZero()
}

// First is the first version of a list that fits; nil where none does.
func First(versions []Artifact, fits func(Artifact) bool) *Artifact {
	if i := slices.IndexFunc(versions, fits); i >= 0 {
		return &versions[i]
	}
	return nil
}

// NewestImage is the newest version that was ever finished. One that was rolled
// back counts: what it was made of is not worth making again.
func NewestImage(newestFirst []Artifact) *Artifact {
	return First(newestFirst, func(v Artifact) bool { return v.Whole() && !v.Foreign() && !v.OfFormer })
}

// NewestGood is the newest version that could be promoted; nil when there is none.
func NewestGood(newestFirst []Artifact) *Artifact {
	return First(newestFirst, func(v Artifact) bool { return v.Good() && !v.Foreign() && !v.OfFormer })
}

// Latest is the version that a model naming the definition would get.
func Latest(newestFirst []Artifact) *Artifact {
	return First(newestFirst, func(v Artifact) bool { return v.Good() && !v.Excluded })
}

// Promotable is the newest version that new nodes may be made of without asking anybody, one
// included that is not offered yet.
func Promotable(newestFirst []Artifact, p Proving) *Artifact {
	return First(newestFirst, func(v Artifact) bool { return v.MayPromote(p) })
}

// SetAside begins the reason of a version that nobody judged: a person went back to the original
// model by name, as at the end of a trial. Nothing takes the version by itself, and its donor may
// make another one of the same packages.
const SetAside = "set aside, not judged: "

// Aside says whether a version is set aside.
func (a Artifact) Aside() bool { return strings.HasPrefix(a.Tags[TagBad], SetAside) }

// BadVersions are those that were judged as bad, deleted ones among them.
func BadVersions(versions []Artifact, ledger Ledger) (out []Artifact) {
	for _, v := range versions {
		if v.Tags[TagBad] != "" && !v.Aside() {
			out = append(out, v)
		}
	}
	for _, u := range ledger.Unfit { // that are no more
		if IndexOf(versions, u.Version) < 0 {
			out = append(out, Artifact{Kind: Version, Name: u.Version, Tags: u.Tags})
		}
	}
	return out
}

// IndexOf is the place of a version in a list; -1 where it is not there.
func IndexOf(versions []Artifact, name string) int {
	return slices.IndexFunc(versions, func(v Artifact) bool { return v.Name == name })
}

// SameImage says whether an image of a model is a version, or the definition that it is of.
func SameImage(v *Artifact, image string) bool {
	return v != nil && (strings.EqualFold(v.ID, image) || strings.EqualFold(DefinitionOf(v.ID), image))
}

// BadAncestor is the nearest version in the line of a version that was withdrawn; "" when there is
// none. The line is told by TagParent: gallery paths that end in versions/NAME.
func BadAncestor(v Artifact, all []Artifact) string {
	for range all { // a line that bites its tail ends, too
		parent := LastSegment(v.Tags[TagParent])
		i := IndexOf(all, parent)
		if i < 0 || !strings.Contains(v.Tags[TagParent], "versions/") {
			return ""
		}
		if v = all[i]; v.Tags[TagBad] != "" {
			return v.Name
		}
	}
	return ""
}

// Descendants are the versions whose line goes back to a version.
func Descendants(of string, all []Artifact) (names []string) {
	for _, v := range all {
		at := v
		for range all {
			i := IndexOf(all, LastSegment(at.Tags[TagParent]))
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

// NewestBirth is when the newest instance was created that is known; zero where none is.
func NewestBirth(versions []Artifact) (newest time.Time) {
	for _, v := range versions {
		for _, born := range v.Births {
			if born.After(newest) {
				newest = born
			}
		}
	}
	return newest
}

// ReadUnknownFiles reads what tags tell; nil when they tell nothing.
func ReadUnknownFiles(tags map[string]string) *UnknownFiles {
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
