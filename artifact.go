package kamino

import (
	"fmt"
	"maps"
	"strings"
	"time"
)

// Kind is the kind of an artifact at the provider.
type Kind string

// The kinds of artifact.
const (
	KindGallery    Kind = "gallery"
	KindDefinition Kind = "image definition"
	KindVersion    Kind = "image version"
	KindSnapshot   Kind = "snapshot"
	// KindParameter is what recipes refer to in place of an image, in a cloud with parameters. It is
	// only found; Promote makes it.
	KindParameter Kind = "parameter"
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

// Machine is the hardware that a disk and the machine that boots it must agree on.
type Machine struct {
	Generation   string `json:"generation,omitempty"`   // V1 or V2
	Architecture string `json:"architecture,omitempty"` // x64 or Arm64
	SecurityType string `json:"securityType,omitempty"` // Standard, TrustedLaunch, …
	Controller   string `json:"controller,omitempty"`   // of the disks: SCSI, NVMe, for an image also both; "" if unknown
	Plan         string `json:"plan,omitempty"`         // publisher/product/name of the marketplace plan of its image; "" for none
}

// Unlike returns why an image for this machine may not boot on the other machine; "" if no
// difference is known. Case is ignored, as Azure does.
func (m Machine) Unlike(other Machine) string {
	for _, part := range []struct{ name, own, others string }{
		{"architecture", m.Architecture, other.Architecture}, {"generation", m.Generation, other.Generation},
	} {
		if part.own != "" && part.others != "" && !strings.EqualFold(part.own, part.others) {
			return fmt.Sprintf("its %s is %s, and that of the pool's present image %s", part.name, part.own, part.others)
		}
	}
	return ""
}

// Use is who still needs a version.
type Use struct {
	Instances int  `json:"instances"` // instances of the pool that booted from it
	InModel   bool `json:"inModel"`   // the pool's model refers to it
	// Births are when those instances were created, zero for unknown times; nil if none is known.
	Births []time.Time `json:"births,omitempty"`
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

// Tags that Kamino puts on the resources that it makes. BuiltFrom and BuiltAt are those of the
// original script. Tag names have no "/", which Azure forbids
// (https://learn.microsoft.com/azure/azure-resource-manager/management/tag-resources).
const (
	TagBuiltFrom = "BuiltFrom"        // donor's node name
	TagBuiltAt   = "BuiltAt"          // BuiltAtFormat, UTC
	TagRun       = "kamino-run"       // run ID
	TagEpoch     = "kamino-epoch"     // epoch of the lease when it was made
	TagReceipt   = "kamino-receipt"   // hash of the seal receipt
	TagParent    = "kamino-parent"    // image that the donor booted from
	TagBad       = "kamino-bad"       // why the version was withdrawn
	TagOffer     = "kamino-offer"     // hidden, proving, offered or withdrawn
	TagProof     = "kamino-proof"     // outcome of its proof; see TagProofWanted
	TagPromote   = "kamino-promote"   // PromoteManual: while the version is hidden, only a person promotes it
	TagBootstrap = "kamino-bootstrap" // TagBootstrapUnaccepted: hidden until somebody accepts the bootstrap of its instances
	TagPointer   = "kamino-pointer"   // of an image definition: TagPointerUnreliable
	TagVM        = "kamino-vm"        // donor's VM; missing on what the original script made
	TagPolicy    = "kamino-policy"    // SHA-256 of the seal policy
	// Number of files on the image that nothing explains, whether the policy refused or reported
	// them, and a digest of their names and contents.
	TagUnknown       = "kamino-unknown"
	TagUnknownMode   = "kamino-unknown-mode"
	TagUnknownDigest = "kamino-unknown-digest"
	TagPackages      = "kamino-packages" // SHA-256 of the packages on the disk, as Freshness.PackageDigest
	// Software of a node that boots from the image; see Freshness and Software.
	TagPackageCount = "kamino-package-count"
	TagPatched      = "kamino-patched" // RFC 3339
	TagKernel       = "kamino-kernel"
	TagOS           = "kamino-os"
	TagKubelet      = "kamino-kubelet"
	TagRuntime      = "kamino-runtime"
	TagImages       = "kamino-images" // container images in the donor's cache, as its kubelet lists them
	TagImageBytes   = "kamino-image-bytes"
	TagSSHKeys      = "kamino-ssh-keys" // of the donor, as Receipt.SSHKeys, with spaces between
	// Tags of a canary; its agent reads those of its own instance.
	TagCanary  = "kamino-canary"  // name of the image version that it proves
	TagPool    = "kamino-pool"    // name of the pool that it belongs to
	TagPoolUID = "kamino-pool-id" // Pool.UID of the pool that a snapshot or a version was made from
	TagExpires = "kamino-expires" // RFC 3339: after this anybody may remove it
	TagNonce   = "kamino-nonce"   // repeated in the agent's report
)

// MaxTag is the longest text that Kamino writes into a tag. Azure accepts 256 characters
// (https://learn.microsoft.com/azure/azure-resource-manager/management/tag-resources).
const MaxTag = 250

// WithTag returns a copy of the artifact with another tag; the artifact that was read is not
// changed.
func (a Artifact) WithTag(tag, value string) Artifact {
	if a.Tags = maps.Clone(a.Tags); a.Tags == nil {
		a.Tags = map[string]string{}
	}
	a.Tags[tag] = value
	return a
}

// Whole reports whether a version's build was completed. A change of its tags or flags may have
// failed since.
func (a Artifact) Whole() bool { return a.State == Succeeded || a.State == Failed && a.Ready }

// TagPointerUnreliable is the value of TagPointer.
const TagPointerUnreliable = "unreliable"

// Unreliable reports whether an image definition is tagged as one that instances do not follow.
func (a Artifact) Unreliable() bool { return a.Tags[TagPointer] == TagPointerUnreliable }
