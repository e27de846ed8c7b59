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

// Copy is a copy of a donor's disk, a snapshot or an image version, with what its tags say of where it
// comes from. Texts are empty where nothing is known.
type Copy struct {
	Artifact
	Run       string   // the run that made it; "" for the original script and other programs
	Epoch     int64    // of the lease when it was made; 0 if not known
	Donor     string   // node name
	VM        string   // the donor's; "" for the original script
	Parent    string   // the image that the donor booted from
	BuiltAt   string   // when the disk was captured, as the tag says: see Built
	Receipt   string   // hash of the seal receipt; without one the disk may hold secrets
	Packages  string   // as Freshness.PackageDigest
	Software  Software // of a node that boots from it, without images
	patchedAt time.Time
	Policy    string        // SHA-256 of the seal policy
	Unknown   *UnknownFiles // nil if nobody looked
	poolUID   string
}

// Version is an image version of a pool, with what its tags say. The tags that it was read with stay in
// its Artifact, which is what a provider writes.
type Version struct {
	Copy
	Phase Phase
	Offer string // TagOfferHidden and so on; "" for the original script, and for pools that refer to versions
	Proof string // TagProofWanted and so on; any other text is how a proof ended that proved nothing
	Bad   string // why it was withdrawn
	// Gated: only a person may promote the hidden version. That was decided when it was made or proved;
	// options of a later run do not change it.
	Gated bool
	// Unaccepted: the version was left hidden because Kamino does not know the bootstrap that its
	// instances would run.
	Unaccepted bool
}

// Phase is where a version is on its way to a pool's nodes.
type Phase string

// The phases of a version.
const (
	PhaseBuilding  Phase = "building"
	PhaseHidden    Phase = "hidden"    // not offered, and not proved
	PhaseProving   Phase = "proving"   // a canary boots from it
	PhaseWaiting   Phase = "waiting"   // passed its proof, and waits for promotion
	PhasePromoted  Phase = "promoted"  // offered, now or once
	PhaseWithdrawn Phase = "withdrawn" // chosen again only by its name
	PhaseFailed    Phase = "failed"    // its build failed
)

// ParseCopy reads the tags of a snapshot.
func ParseCopy(a Artifact) Copy { return ParseVersion(a).Copy }

// ParseVersion reads the tags of a version. Nothing else reads them; write is the inverse.
func ParseVersion(a Artifact) Version {
	tag := a.Tags
	v := Version{Offer: tag[TagOffer], Proof: tag[TagProof], Bad: tag[TagBad], Copy: Copy{
		Artifact: a, Run: tag[TagRun], Donor: tag[TagBuiltFrom], VM: tag[TagVM], Parent: tag[TagParent], BuiltAt: tag[TagBuiltAt],
		Receipt: tag[TagReceipt], Packages: tag[TagPackages], Policy: tag[TagPolicy], poolUID: tag[TagPoolUID],
		Software: Software{Kernel: tag[TagKernel], OS: tag[TagOS], Kubelet: tag[TagKubelet], Runtime: tag[TagRuntime]}}}
	v.Epoch, _ = strconv.ParseInt(tag[TagEpoch], 10, 64)
	v.patchedAt, _ = time.Parse(time.RFC3339, tag[TagPatched])
	if n, err := strconv.Atoi(tag[TagUnknown]); err == nil && n >= 0 {
		v.Unknown = &UnknownFiles{Mode: tag[TagUnknownMode], Count: n, Digest: tag[TagUnknownDigest]}
	}
	v.Gated = v.Hidden() && tag[TagPromote] == string(PromoteManual)
	v.Unaccepted = v.Hidden() && tag[TagBootstrap] != ""
	switch {
	case a.State == Failed && !a.Whole(), a.State == Deleting:
		v.Phase = PhaseFailed
	case v.Bad != "", v.Offer == TagOfferWithdrawn:
		v.Phase = PhaseWithdrawn
	case a.Whole() && v.Hidden() && v.Proof == TagProofPassed:
		v.Phase = PhaseWaiting
	case a.State == Creating, !a.Ready && v.Hidden():
		v.Phase = PhaseBuilding
	case v.Offer == TagOfferProving:
		v.Phase = PhaseProving
	case v.Hidden(), v.Foreign():
		v.Phase = PhaseHidden
	default:
		v.Phase = PhasePromoted
	}
	return v
}

// ParseVersions reads the tags of a list of versions.
func ParseVersions(list []Artifact) []Version {
	out := make([]Version, len(list))
	for i, a := range list {
		out[i] = ParseVersion(a)
	}
	return out
}

// write returns the version with other tags; "" removes a tag. The version that was read is not changed.
func (v Version) write(tags map[string]string) Version {
	a := v.Artifact
	if a.Tags = maps.Clone(a.Tags); a.Tags == nil {
		a.Tags = map[string]string{}
	}
	for tag, value := range tags {
		if a.Tags[tag] = value; value == "" {
			delete(a.Tags, tag)
		}
	}
	return ParseVersion(a)
}

// Bad is why a version is withdrawn.
type Bad struct {
	Reason string // the text of its tag, for people
	Nodes  bool   // its nodes failed
}

// RefuseSame is the refusal to make another image of a disk like that of this bad version.
func (v Version) RefuseSame(node string) Refusal {
	return Refusal{Code: CodeBadImage, Why: fmt.Sprintf(
		"it has the same packages as when version %s was made of it, which is withdrawn: %s", v.Name, Plain(v.Bad)),
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
func (v Version) Offered() Version {
	proof := v.Proof
	if proof == TagProofFailed { // a person takes it nevertheless
		proof = ""
	}
	return v.Offering(TagOfferOffered).write(map[string]string{TagBad: "", TagBootstrap: "", TagProof: proof})
}

// Withdrawn returns the version as a withdrawal writes it. It keeps the tag of a passed proof,
// unless it is withdrawn because of its nodes.
func (v Version) Withdrawn(bad Bad) Version {
	proof := v.Proof
	switch {
	case bad.Nodes:
		proof = TagProofFailed
	case v.Untried():
		proof = ""
	}
	return v.Offering(TagOfferWithdrawn).write(map[string]string{TagProof: proof,
		TagBad: CutText(cmp.Or(bad.Reason, TagOfferWithdrawn), MaxTag)})
}

// Offering returns the version with an offer state: the tag, and Excluded to match.
func (v Version) Offering(state string) Version {
	v.Excluded = state != TagOfferOffered
	return v.write(map[string]string{TagOffer: state})
}

// WithProof returns the version with another state of its proof.
func (v Version) WithProof(how string) Version { return v.write(map[string]string{TagProof: how}) }

// Gate returns the version as a run writes it that leaves its promotion to a person.
func (v Version) Gate() Version { return v.write(map[string]string{TagPromote: string(PromoteManual)}) }

// LeaveUnaccepted returns the hidden version as a run writes it that does not know the bootstrap of its instances.
func (v Version) LeaveUnaccepted() Version {
	return v.write(map[string]string{TagBootstrap: TagBootstrapUnaccepted})
}

// SameOffer reports whether two reads of a version have the same state, and were made by the same run.
func (v Version) SameOffer(b Version) bool {
	return v.Offer == b.Offer && v.Bad == b.Bad && v.Run == b.Run && v.Excluded == b.Excluded
}

// Retagged returns a version as a fresh read shows it, with Kamino's tags of want; tags of others
// stay. ErrConflict: the version was withdrawn since want was read, or that was reverted. So no
// version is promoted that a person withdrew while it was proved.
func (v Version) Retagged(want Version) (Version, error) {
	if v.Bad != want.Bad {
		return v, fmt.Errorf("version %s was withdrawn meanwhile, or that was taken back: %w", v.Name, ErrConflict)
	}
	ours := maps.Clone(want.Tags)
	maps.DeleteFunc(ours, func(tag, _ string) bool { return !strings.HasPrefix(tag, tagPrefix) })
	return v.write(ours), nil
}

// tagPrefix is the prefix of all tags that are written after a version was made.
const tagPrefix = "kamino-"

// The values of TagProof: wanted (from birth), passed, taken without a proof, and failed. Any other
// text is how a proof ended that proved nothing.
const (
	TagProofWanted  = "wanted"
	TagProofPassed  = "passed"
	TagProofOmitted = "omitted"
	TagProofFailed  = "failed" // withdrawn because of its nodes
)

// Ours reports whether Kamino (any version, or the original script) made the version of this pool.
func (c Copy) Ours() bool { return !c.OfFormer && (c.Run != "" || c.Donor != "") }

// Foreign reports whether somebody else made the version and it is excluded from latest.
func (v Version) Foreign() bool { return !v.Ours() && v.Excluded }

// WhyDisputed describes a version that is Disputed.
func (v Version) WhyDisputed() string {
	return "version " + v.Name + " is offered as latest, and excluded from latest in one of its regions; which of the two applies is undocumented"
}

// Good reports whether new nodes can boot from the version.
func (v Version) Good() bool { return v.Whole() && v.Bad == "" }

// StandsIn reports whether a version may replace a withdrawn one without being named.
func (v Version) StandsIn(pool Pool) bool {
	return !v.OfFormer && v.Good() && v.Ready && !v.Unused() && (!v.Excluded || v.Hidden()) && v.Receipt != "" && !v.Untried() &&
		!(v.Unaccepted && pool.Owner != nil)
}

// Withheld reports whether pools that refer to the definition cannot get the version: because of
// its state, because a person excluded it, or because its last change failed.
func (v Version) Withheld() bool {
	return v.State == Failed || v.Excluded || v.Bad != "" || v.Offer == TagOfferWithdrawn || v.Hidden()
}

// Hidden reports whether a version was never offered.
func (v Version) Hidden() bool {
	return v.Offer == TagOfferHidden || v.Offer == TagOfferProving
}

// Unused reports whether a version was never used, as far as known: it was never offered, no model
// names it, and no instance booted from it. (A version that was promoted by name may be used before
// it is offered.)
func (v Version) Unused() bool { return v.Hidden() && !v.InModel && v.Instances == 0 }

// Untried reports whether a version was to be proved, and neither passed nor was taken without a
// proof.
func (v Version) Untried() bool {
	how := v.Proof
	return how != "" && how != TagProofPassed && how != TagProofOmitted && how != TagProofFailed
}

// Unproved reports whether a version still has to be proved: it is hidden and has not passed.
func (v Version) Unproved() bool {
	return v.Good() && v.Hidden() && v.Proof != TagProofPassed
}

// TagBootstrapUnaccepted is the value of TagBootstrap.
const TagBootstrapUnaccepted = "unaccepted"

// AfterDay reports whether a version of this pool is named for a later day.
func (v Version) AfterDay(day time.Time) bool {
	at, err := VersionDate(v.Name)
	return err == nil && !v.Foreign() && !v.OfFormer && VersionName(at) > VersionName(day)
}

// OfDay reports whether a version is of that day.
func (v Version) OfDay(day time.Time) bool {
	at, err := VersionDate(v.Name)
	return err == nil && VersionName(at) == VersionName(day)
}

// Outnumbered returns a version of an earlier day whose name counts as later; nil if there is none.
// Another program, which does not know NN, may make version 2026.11.24 after 2026.11.2301. Such a
// version is never the latest, and is not deleted as an old one.
func (v Version) Outnumbered(by []Version) *Version {
	day, err := VersionDate(v.Name)
	if err != nil {
		return nil
	}
	return First(by, func(o Version) bool {
		at, err := VersionDate(o.Name)
		return err == nil && at.Before(day) && CompareVersions(o.Name, v.Name) > 0
	})
}

// MayPromote reports whether a version may be promoted without a further proof or a person's
// decision: it was offered already, has passed, or was made where no proof was wanted.
func (v Version) MayPromote(p Proving) bool {
	switch {
	case !v.Good(), v.OfFormer:
		return false
	case !v.Hidden():
		return !v.Excluded && !v.Untried()
	case p.Promote == PromoteManual, v.Gated, !v.Ours() && v.Receipt == "": // no tag records that a person accepted such a version
		return false
	}
	never := v.Proof == "" && v.Offer == TagOfferHidden
	return v.Proof == TagProofPassed || p.Mode == ProveNone && never
}

// Built returns when the disk of a version was captured: by its tag (which the original script
// wrote too), else by its name, else as the provider reports.
func (c Copy) Built() (at Stamp, ok bool) {
	if t, err := ParseBuiltAt(c.BuiltAt); err == nil {
		return Stamp{t, true}, true
	}
	if d, err := VersionDate(c.Name); err == nil {
		return Stamp{d, false}, true
	}
	return Stamp{c.Created, true}, !c.Created.IsZero()
}

// Patched returns when the disk was last patched, as far as known.
func (c Copy) Patched() (Stamp, bool) {
	if !c.patchedAt.IsZero() {
		return Stamp{c.patchedAt, true}, true
	}
	return c.Built()
}

// Unsealed describes the risk of a copy without a seal receipt.
func (c Copy) Unsealed() string {
	return "its disk may hold the identity and the secrets of node " + cmp.Or(c.Donor, "unknown")
}

// First returns the first version of a list that fits; nil if none does.
func First(versions []Version, fits func(Version) bool) *Version {
	if i := slices.IndexFunc(versions, fits); i >= 0 {
		return &versions[i]
	}
	return nil
}

// NewestImage returns the newest version whose build was completed. A version that was rolled back
// counts: its disk is not worth another build.
func NewestImage(newestFirst []Version) *Version {
	return First(newestFirst, func(v Version) bool { return v.Whole() && !v.Foreign() && !v.OfFormer })
}

// NewestGood returns the newest version that could be promoted; nil if there is none.
func NewestGood(newestFirst []Version) *Version {
	return First(newestFirst, func(v Version) bool { return v.Good() && !v.Foreign() && !v.OfFormer })
}

// NewestOfDay returns the newest version of a day; nil if there is none.
func NewestOfDay(newestFirst []Version, day time.Time) *Version {
	return First(newestFirst, func(v Version) bool { return v.OfDay(day) })
}

// Latest returns the version that a model which names the definition would get.
func Latest(newestFirst []Version) *Version {
	return First(newestFirst, func(v Version) bool { return v.Good() && !v.Excluded })
}

// Promotable returns the newest version that new nodes may boot from without a person's decision,
// including a version that is not offered yet.
func Promotable(newestFirst []Version, p Proving) *Version {
	return First(newestFirst, func(v Version) bool { return v.MayPromote(p) })
}

// SetAside is the prefix of the reason of a version that nobody judged: a person returned to the
// original model by name, for example at the end of a trial. The version is used again only by its
// name, and its donor may make another one of the same packages.
const SetAside = "set aside, not judged: "

// Aside reports whether a version is set aside.
func (v Version) Aside() bool { return strings.HasPrefix(v.Bad, SetAside) }

// BadVersions returns the versions that were judged bad, including deleted ones.
func BadVersions(versions []Version, ledger Ledger) (out []Version) {
	for _, v := range versions {
		if v.Bad != "" && !v.Aside() {
			out = append(out, v)
		}
	}
	for _, u := range ledger.Unfit { // versions that were pruned
		if IndexOf(versions, u.Version) < 0 {
			out = append(out, ParseVersion(Artifact{Kind: KindVersion, Name: u.Version, Tags: u.Tags}))
		}
	}
	return out
}

// IndexOf returns the index of a version in a list; -1 if it is not there.
func IndexOf(versions []Version, name string) int {
	return slices.IndexFunc(versions, func(v Version) bool { return v.Name == name })
}

// SameImage reports whether the image of a model is this version, or its definition.
func SameImage(v *Version, image string) bool {
	return v != nil && (strings.EqualFold(v.ID, image) || strings.EqualFold(DefinitionOf(v.ID), image))
}

// BadAncestor returns the nearest withdrawn ancestor of a version; "" if there is none. Ancestors
// are found by TagParent: gallery paths that end in versions/NAME.
func BadAncestor(v Version, all []Version) string {
	for range all { // the loop ends even if the ancestors form a cycle
		parent := LastSegment(v.Parent)
		i := IndexOf(all, parent)
		if i < 0 || !strings.Contains(v.Parent, "versions/") {
			return ""
		}
		if v = all[i]; v.Bad != "" {
			return v.Name
		}
	}
	return ""
}

// Descendants returns the versions that have a version among their ancestors.
func Descendants(of string, all []Version) (names []string) {
	for _, v := range all {
		at := v
		for range all {
			i := IndexOf(all, LastSegment(at.Parent))
			if i < 0 || !strings.Contains(at.Parent, "versions/") {
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
func NewestBirth(versions []Version) (newest time.Time) {
	for _, v := range versions {
		for _, born := range v.Births {
			if born.After(newest) {
				newest = born
			}
		}
	}
	return newest
}

// Unfit is the record of a withdrawn version that was pruned: the disk that it was made of, and why
// it was withdrawn.
type Unfit struct {
	Version string            `json:"version"`
	Tags    map[string]string `json:"tags"`
}
