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

// State is the progress of an artifact's creation.
type State string

// The states of an artifact.
const (
	Creating  State = "Creating"
	Succeeded State = "Succeeded"
	Failed    State = "Failed"
	Deleting  State = "Deleting"
)

// Artifact is a gallery, an image definition, an image version or a snapshot, as it was found or as
// it is to be created.
type Artifact struct {
	Kind    Kind   `json:"kind"`
	Name    string `json:"name"`
	ID      string `json:"id,omitempty"`
	State   State  `json:"state,omitempty"`
	Percent int    `json:"percent"` // 0 to 100, as the provider reports it
	// Ready: the snapshot is complete, or the version is replicated in the pool's region. A version
	// that is Failed and Ready was complete before its last change failed; repeating that change
	// repairs it.
	Ready   bool   `json:"ready"`
	Failure string `json:"failure,omitempty"`  // why it Failed, in the provider's words
	Source  string `json:"source,omitempty"`   // disk of a snapshot, snapshot of a version
	Storage string `json:"storage,omitempty"`  // of a version: Standard_ZRS or Standard_LRS
	Replica int    `json:"replicas,omitempty"` // of a version, in the pool's region
	// Keeps, of a version: its snapshot became a part of it, is deleted with it, and is not found
	// any more.
	Keeps   bool              `json:"keeps,omitempty"`
	Tags    map[string]string `json:"tags,omitempty"`
	Created time.Time         `json:"created,omitzero"`

	Machine // the machine that it fits: of a definition, and of the donor when a definition or snapshot is created

	// OfFormer: Kamino made it of an earlier pool that had this pool's name, for example in a
	// former cluster. It counts as somebody else's.
	OfFormer bool `json:"ofFormerPool,omitempty"`

	// Use is set for a version in a list.
	Use
	Excluded bool `json:"excluded"` // not offered as latest
	// Disputed: the version is excluded from latest in only one of its regions. Which setting
	// counts is not documented.
	Disputed bool `json:"disputed,omitempty"`
}

// Use is who still needs a version.
type Use struct {
	Instances int  `json:"instances"` // instances of the pool that booted from it
	InModel   bool `json:"inModel"`   // the pool's model refers to it
	// Births are when those instances were created, zero for unknown times; nil if none is known.
	Births []time.Time `json:"births,omitempty"`
}

// Bad is why a version is withdrawn.
type Bad struct {
	Reason string // the text of its tag, for people
	Nodes  bool   // its nodes failed
}

// Storage types of image versions
// (https://learn.microsoft.com/azure/virtual-machines/shared-image-galleries).
const (
	StorageZRS = "Standard_ZRS"
	StorageLRS = "Standard_LRS"
)

// DefinitionOf removes "/versions/…" from a version's ID.
func DefinitionOf(version string) string {
	if i := strings.LastIndex(strings.ToLower(version), "/versions/"); i >= 0 {
		return version[:i]
	}
	return version
}

// MaxTag is the longest text that Kamino writes into a tag. Azure accepts 256 characters
// (https://learn.microsoft.com/azure/azure-resource-manager/management/tag-resources).
const MaxTag = 250

// RefuseSame is the refusal to make another image of a disk like that of this bad version.
func (a Artifact) RefuseSame(node string) Refusal {
	return Refusal{Code: "bad-image", Why: fmt.Sprintf("it has the same packages as when version %s was made of it, which is withdrawn: %s", a.Name, Plain(a.Tags[TagBad])),
		Do: fmt.Sprintf("kamino patch --target-node %s, or choose another node: kamino plan ranks them", node)}
}

// SnapshotLife is longer than any run needs its snapshot: the sum of the limits of the steps from
// its creation to the end of the build.
const SnapshotLife = 24 * time.Hour

// The values of TagOffer: the state of a version. It is written together with Excluded, so if the
// two disagree, somebody else changed one. Versions of the original script, and of pools that refer
// to versions, have no such tag: they are offered.
const (
	TagOfferHidden    = "hidden"    // from birth
	TagOfferProving   = "proving"   // a canary boots from it
	TagOfferOffered   = "offered"   // promoted: a pool that refers to the definition may boot from it
	TagOfferWithdrawn = "withdrawn" // TagBad has the reason; it is used again only by its name
)

// Offered returns the version as a promotion writes it.
func (a Artifact) Offered() Artifact {
	a = a.Offering(TagOfferOffered)
	delete(a.Tags, TagBad)
	delete(a.Tags, TagBootstrap)
	if a.Tags[TagProof] == TagProofFailed { // a person takes it nevertheless
		delete(a.Tags, TagProof)
	}
	return a
}

// Withdrawn returns the version as a withdrawal writes it. It keeps the tag of a passed proof,
// unless it is withdrawn because of its nodes.
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

// Offering returns the version with an offer state: the tag, and Excluded to match.
func (a Artifact) Offering(state string) Artifact {
	a.Excluded = state != TagOfferOffered
	return a.WithTag(TagOffer, state)
}

// WithTag returns a copy of the artifact with another tag; the artifact that was read is not
// changed.
func (a Artifact) WithTag(tag, value string) Artifact {
	if a.Tags = maps.Clone(a.Tags); a.Tags == nil {
		a.Tags = map[string]string{}
	}
	a.Tags[tag] = value
	return a
}

// SameOffer reports whether two reads of a version have the same TagOffer, TagBad and Excluded, and
// were made by the same run.
func (a Artifact) SameOffer(b Artifact) bool {
	for _, tag := range []string{TagOffer, TagBad, TagRun} {
		if a.Tags[tag] != b.Tags[tag] {
			return false
		}
	}
	return a.Excluded == b.Excluded
}

// Retagged returns a version as a fresh read shows it, with Kamino's tags of want; tags of others
// stay. ErrConflict: the version was withdrawn since want was read, or that was reverted. So no
// version is promoted that a person withdrew while it was proved.
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

// tagPrefix is the prefix of all tags that are written after a version was made.
const tagPrefix = "kamino-"

// Life is the state of a version on its way to a pool's nodes, read from its tags.
type Life string

// The states of a version's life.
const (
	LifeBuilding  Life = "building"
	LifeHidden    Life = "hidden"    // not offered, and not proved
	LifeProving   Life = "proving"   // a canary boots from it
	LifeWaiting   Life = "waiting"   // passed, and waits for promotion
	LifePromoted  Life = "promoted"  // offered, now or once
	LifeWithdrawn Life = "withdrawn" // chosen again only by its name
	LifeFailed    Life = "failed"    // its build failed
)

// Life returns the state of a version.
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

// The values of TagProof: wanted (from birth), passed, taken without a proof, and failed. Any other
// text is how a proof ended that proved nothing.
const (
	TagProofWanted  = "wanted"
	TagProofPassed  = "passed"
	TagProofOmitted = "omitted"
	TagProofFailed  = "failed" // withdrawn because of its nodes
)

// Ours reports whether Kamino (any version, or the original script) made the version of this pool.
func (a Artifact) Ours() bool {
	return !a.OfFormer && (a.Tags[TagRun] != "" || a.Tags[TagBuiltFrom] != "")
}

// Foreign reports whether somebody else made the version and it is excluded from latest.
func (a Artifact) Foreign() bool { return !a.Ours() && a.Excluded }

// WhyDisputed describes a version that is Disputed.
func (a Artifact) WhyDisputed() string {
	return "version " + a.Name + " is offered as latest, and excluded from latest in one of its regions; which of the two applies is undocumented"
}

// Whole reports whether a version's build was completed. A change of its tags or flags may have
// failed since.
func (a Artifact) Whole() bool { return a.State == Succeeded || a.State == Failed && a.Ready }

// Good reports whether new nodes can boot from the version.
func (a Artifact) Good() bool { return a.Whole() && a.Tags[TagBad] == "" }

// StandsIn reports whether a version may replace a withdrawn one without being named.
func (a Artifact) StandsIn(pool Pool) bool {
	return !a.OfFormer && a.Good() && a.Ready && !a.Unused() && (!a.Excluded || a.Hidden()) && a.Tags[TagReceipt] != "" && !a.Untried() && !(a.Unaccepted() && pool.Owner != nil)
}

// Withheld reports whether pools that refer to the definition cannot get the version: because of
// its state, because a person excluded it, or because its last change failed.
func (a Artifact) Withheld() bool {
	return a.State == Failed || a.Excluded || a.Tags[TagBad] != "" || a.Tags[TagOffer] == TagOfferWithdrawn || a.Hidden()
}

// Hidden reports whether a version was never offered.
func (a Artifact) Hidden() bool {
	return a.Tags[TagOffer] == TagOfferHidden || a.Tags[TagOffer] == TagOfferProving
}

// Unused reports whether a version was never used, as far as known: it was never offered, no model
// names it, and no instance booted from it. (A version that was promoted by name may be used before
// it is offered.)
func (a Artifact) Unused() bool { return a.Hidden() && !a.InModel && a.Instances == 0 }

// Untried reports whether a version was to be proved, and neither passed nor was taken without a
// proof.
func (a Artifact) Untried() bool {
	how := a.Tags[TagProof]
	return how != "" && how != TagProofPassed && how != TagProofOmitted && how != TagProofFailed
}

// Unproved reports whether a version still has to be proved: it is hidden and has not passed.
func (a Artifact) Unproved() bool {
	return a.Good() && a.Hidden() && a.Tags[TagProof] != TagProofPassed
}

// Waiting reports whether a version has passed its proof and is not promoted.
func (a Artifact) Waiting() bool {
	return a.Good() && a.Hidden() && a.Tags[TagProof] == TagProofPassed
}

// Gated reports whether only a person may promote the version. That was decided when it was made or
// proved; options of a later run do not change it.
func (a Artifact) Gated() bool { return a.Hidden() && a.Tags[TagPromote] == string(PromoteManual) }

// Gate returns the version as a run writes it that leaves its promotion to a person.
func (a Artifact) Gate() Artifact { return a.WithTag(TagPromote, string(PromoteManual)) }

// TagBootstrapUnaccepted is the value of TagBootstrap.
const TagBootstrapUnaccepted = "unaccepted"

// AfterDay reports whether a version of this pool is named for a later day.
func (a Artifact) AfterDay(day time.Time) bool {
	at, err := VersionDate(a.Name)
	return err == nil && !a.Foreign() && !a.OfFormer && VersionName(at) > VersionName(day)
}

// Unaccepted reports whether a version was left hidden because Kamino does not know the bootstrap
// that its instances would run.
func (a Artifact) Unaccepted() bool { return a.Hidden() && a.Tags[TagBootstrap] != "" }

// MayPromote reports whether a version may be promoted without a further proof or a person's
// decision: it was offered already, has passed, or was made where no proof was wanted.
func (a Artifact) MayPromote(p Proving) bool {
	switch {
	case !a.Good(), a.OfFormer:
		return false
	case !a.Hidden():
		return !a.Excluded && !a.Untried()
	case p.Promote == PromoteManual, a.Gated(), !a.Ours() && a.Tags[TagReceipt] == "": // no tag records that a person accepted such a version
		return false
	}
	never := a.Tags[TagProof] == "" && a.Tags[TagOffer] == TagOfferHidden
	return a.Tags[TagProof] == TagProofPassed || p.Mode == ProveNone && never
}

// Built returns when the disk of a version was captured: by its tag (which the original script
// wrote too), else by its name, else as the provider reports.
func (a Artifact) Built() (at Stamp, ok bool) {
	if t, err := ParseBuiltAt(a.Tags[TagBuiltAt]); err == nil {
		return Stamp{t, true}, true
	}
	if d, err := VersionDate(a.Name); err == nil {
		return Stamp{d, false}, true
	}
	return Stamp{a.Created, true}, !a.Created.IsZero()
}

// First returns the first version of a list that fits; nil if none does.
func First(versions []Artifact, fits func(Artifact) bool) *Artifact {
	if i := slices.IndexFunc(versions, fits); i >= 0 {
		return &versions[i]
	}
	return nil
}

// NewestImage returns the newest version whose build was completed. A version that was rolled back
// counts: its disk is not worth another build.
func NewestImage(newestFirst []Artifact) *Artifact {
	return First(newestFirst, func(v Artifact) bool { return v.Whole() && !v.Foreign() && !v.OfFormer })
}

// NewestGood returns the newest version that could be promoted; nil if there is none.
func NewestGood(newestFirst []Artifact) *Artifact {
	return First(newestFirst, func(v Artifact) bool { return v.Good() && !v.Foreign() && !v.OfFormer })
}

// Latest returns the version that a model which names the definition would get.
func Latest(newestFirst []Artifact) *Artifact {
	return First(newestFirst, func(v Artifact) bool { return v.Good() && !v.Excluded })
}

// Promotable returns the newest version that new nodes may boot from without a person's decision,
// including a version that is not offered yet.
func Promotable(newestFirst []Artifact, p Proving) *Artifact {
	return First(newestFirst, func(v Artifact) bool { return v.MayPromote(p) })
}

// SetAside is the prefix of the reason of a version that nobody judged: a person returned to the
// original model by name, for example at the end of a trial. The version is used again only by its
// name, and its donor may make another one of the same packages.
const SetAside = "set aside, not judged: "

// Aside reports whether a version is set aside.
func (a Artifact) Aside() bool { return strings.HasPrefix(a.Tags[TagBad], SetAside) }

// BadVersions returns the versions that were judged bad, including deleted ones.
func BadVersions(versions []Artifact, ledger Ledger) (out []Artifact) {
	for _, v := range versions {
		if v.Tags[TagBad] != "" && !v.Aside() {
			out = append(out, v)
		}
	}
	for _, u := range ledger.Unfit { // versions that were pruned
		if IndexOf(versions, u.Version) < 0 {
			out = append(out, Artifact{Kind: KindVersion, Name: u.Version, Tags: u.Tags})
		}
	}
	return out
}

// IndexOf returns the index of a version in a list; -1 if it is not there.
func IndexOf(versions []Artifact, name string) int {
	return slices.IndexFunc(versions, func(v Artifact) bool { return v.Name == name })
}

// SameImage reports whether the image of a model is this version, or its definition.
func SameImage(v *Artifact, image string) bool {
	return v != nil && (strings.EqualFold(v.ID, image) || strings.EqualFold(DefinitionOf(v.ID), image))
}

// BadAncestor returns the nearest withdrawn ancestor of a version; "" if there is none. Ancestors
// are found by TagParent: gallery paths that end in versions/NAME.
func BadAncestor(v Artifact, all []Artifact) string {
	for range all { // the loop ends even if the ancestors form a cycle
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

// Descendants returns the versions that have a version among their ancestors.
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

// NewestBirth returns when the newest known instance was created; zero if none is known.
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

// ReadUnknownFiles reads the counts of unknown files from tags; nil if there are none.
func ReadUnknownFiles(tags map[string]string) *UnknownFiles {
	n, err := strconv.Atoi(tags[TagUnknown])
	if err != nil || n < 0 {
		return nil
	}
	return &UnknownFiles{Mode: tags[TagUnknownMode], Count: n, Digest: tags[TagUnknownDigest]}
}

// Unfit is the record of a withdrawn version that was pruned: the disk that it was made of, and why
// it was withdrawn.
type Unfit struct {
	Version string            `json:"version"`
	Tags    map[string]string `json:"tags"`
}
