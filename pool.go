package kamino

import (
	"encoding/hex"
	"encoding/json"
	"strings"
	"time"
)

// PoolID identifies a pool at its provider; on Azure it is the resource ID of
// the scale set in lower case.
type PoolID string

// Name is the last segment of the ID, the pool's own name.
func (p PoolID) Name() string {
	s := string(p)
	return s[strings.LastIndexByte(s, '/')+1:]
}

// InstanceID identifies one VM: it is the node's spec.providerID.
type InstanceID string

// Power is what an instance's machine does.
type Power string

// The power states that the engine tells apart. Between is everything that
// will become another state by itself (starting, stopping).
const (
	PowerOn      Power = "on"
	PowerOff     Power = "off"
	PowerBetween Power = "between"
)

// Instance is one VM of a pool, freshly read.
type Instance struct {
	ID       InstanceID `json:"id"`
	Pool     PoolID     `json:"pool"`
	VMID     string     `json:"vmId"` // what SMBIOS shows as system UUID
	Hostname string     `json:"hostname"`
	Power    Power      `json:"power"`
	Disk     string     `json:"disk"`  // the OS disk, as the provider names it
	Image    string     `json:"image"` // what it booted from, "" when unknown

	Machine
	Size       string `json:"size,omitempty"`       // the machine's type, as the provider names it
	DiskGB     int    `json:"diskGB,omitempty"`     // of the OS disk, in GiB; 0 when unknown
	Encryption string `json:"encryption,omitempty"` // the customer's key set of the OS disk; "" for the provider's own key

	// Failure is the provider's word on what last went wrong with the machine,
	// for instance that no capacity was left to start it; "" when nothing did.
	Failure string `json:"failure,omitempty"`
	// Refusals are the reasons of the provider against this instance as donor.
	Refusals []Refusal `json:"refusals,omitempty"`
}

// Machine is what a disk and the machine that boots it must agree on.
type Machine struct {
	Generation   string `json:"generation,omitempty"`   // V1 or V2
	Architecture string `json:"architecture,omitempty"` // x64 or Arm64
	SecurityType string `json:"securityType,omitempty"` // Standard, TrustedLaunch, …
	Controller   string `json:"controller,omitempty"`   // of its disks: SCSI, NVMe, of an image also both; "" when unknown
	Plan         string `json:"plan,omitempty"`         // publisher/product/name of what was bought with its image; "" for nothing
}

// Model is a pool's recipe, as far as Kamino has to know it.
type Model struct {
	Image      string      `json:"image"` // ID of version or definition, or publisher:offer:sku:version
	Extensions []Extension `json:"extensions"`
	// Saved is the part of the provider's own document that is needed to write
	// this model back, opaque to everybody else.
	Saved json.RawMessage `json:"saved,omitempty"`
}

// Extension is a program that the provider runs on every new instance.
type Extension struct {
	Name      string `json:"name"`
	Publisher string `json:"publisher"`
	Type      string `json:"type"`
}

// Pool is a set of nodes built from one recipe, freshly read.
type Pool struct {
	ID       PoolID `json:"id"`
	Name     string `json:"name"`
	Group    string `json:"group"`
	Location string `json:"location"`
	Gallery  string `json:"gallery"` // name of the gallery of its images
	Capacity int    `json:"capacity"`
	Model    Model  `json:"model"`
	// Revision makes the next write conditional on nobody having changed the
	// pool since this read.
	Revision string `json:"revision"`
	// Owner is who writes the pool's recipe back; nil for nobody that is known. Its recipe is never
	// written.
	Owner *Owner `json:"owner,omitempty"`
	// MostModels is how many recipes the instances of the pool may refer to together, each keeping
	// the one that it was made with; 0: any number.
	MostModels int `json:"mostModels,omitempty"`
	// Updating says that the provider is busy applying an earlier change.
	Updating bool      `json:"updating,omitempty"`
	Refusals []Refusal `json:"refusals,omitempty"`
}

// Owner is a program that writes a pool's recipe.
type Owner struct {
	Name string `json:"name"`
	// Spec is what its own document must hold so that the pool refers to its image definition, in
	// the document's language, and Needs what must hold besides, which nobody checks.
	Spec  string `json:"spec"`
	Needs string `json:"needs,omitempty"`
}

// Kind names one of the four things that a run makes at the provider.
type Kind string

// The kinds of artifact.
const (
	Gallery    Kind = "gallery"
	Definition Kind = "image definition"
	Version    Kind = "image version"
	Snapshot   Kind = "snapshot"
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
// as it is when found, as it shall be when created.
type Artifact struct {
	Kind    Kind              `json:"kind"`
	Name    string            `json:"name"`
	ID      string            `json:"id,omitempty"`
	State   State             `json:"state,omitempty"`
	Percent int               `json:"percent"`            // 0 to 100, as the provider reports it
	Ready   bool              `json:"ready"`              // snapshot complete; version replicated in the pool's region
	Failure string            `json:"failure,omitempty"`  // why it Failed, in the provider's words
	Source  string            `json:"source,omitempty"`   // disk of a snapshot, snapshot of a version
	Storage string            `json:"storage,omitempty"`  // of a version: Standard_ZRS or Standard_LRS
	Replica int               `json:"replicas,omitempty"` // of a version, in the pool's region
	Tags    map[string]string `json:"tags,omitempty"`
	Created time.Time         `json:"created,omitzero"`

	Machine // that it fits: of a definition, and of the donor when definition or snapshot is created

	// Of a version in a list: who would miss it.
	Instances int  `json:"instances"` // instances of the pool that booted from it
	InModel   bool `json:"inModel"`   // the pool's model refers to it
	Excluded  bool `json:"excluded"`  // not offered as latest
	// Births are when those instances were created, the zero time where that is not known; nil: of
	// none it is.
	Births []time.Time `json:"births,omitempty"`
	// Disputed: it is offered as latest, and in one of its regions not. Which of the two counts is
	// documented nowhere.
	Disputed bool `json:"disputed,omitempty"`
}

// Ours says whether Kamino, of any version and the original included, made it.
func (a Artifact) Ours() bool {
	return a.Tags[TagRun] != "" || a.Tags[TagBuiltFrom] != ""
}

// Target is what a pool's next instance shall boot from: a version, or what it booted from before
// the first prototype.
type Target struct {
	Version   string         // name of an image version of the pool; "" with Former
	Reference ImageReference // how the pool refers to the version
	// Seen, where set, is the version as it was read: it is offered, where it is withheld. Nil:
	// only the pool's recipe counts.
	Seen *Artifact
	// Former, where set, is a Model.Saved to be written back instead.
	Former json.RawMessage
	// Secrets go with Former: what the provider never gives back.
	Secrets Secrets
}

// Secrets is what a pool's recipe holds and a provider does not show. It is nowhere saved; whoever
// wants a former model back must have it.
type Secrets struct {
	CustomData []byte // nil leaves what the model has
	// Protected are the protected settings of extensions, JSON objects by name; nil
	// for an extension that has none.
	Protected map[string]json.RawMessage
}

// Offers says whether the version of a target has to be offered. One that a person alone withholds
// is of no account to a pool that refers to versions.
func (t Target) Offers() bool {
	if t.Seen == nil || !t.Seen.Withheld() {
		return false
	}
	return t.Reference == ByDefinition || t.Seen.Tags[TagOffer] != "" || t.Seen.Tags[TagBad] != ""
}

// NextImage is what a pool's next instance boots from once a target was promoted.
type NextImage struct {
	Image string        // as Model.Image
	Diff  []FieldChange // what that changes of the pool's recipe; none: it is so already
	// Needs are what comes back with the target and of whose secrets nothing was said.
	Needs []string
}

// FieldChange is one line of a difference between two models.
type FieldChange struct {
	Field string `json:"field"`
	From  string `json:"from"`
	To    string `json:"to"`
}

// SameVM compares two identities of a VM. Case does not count, nor does the
// byte order of the first three groups, which SMBIOS shows swapped on some
// machines (https://learn.microsoft.com/azure/virtual-machines/instance-metadata-service).
func SameVM(a, b string) bool {
	x, okA := vmID(a)
	y, okB := vmID(b)
	return okA && okB && (x == y || swapped(x) == y)
}

func vmID(s string) (id [16]byte, ok bool) {
	raw, err := hex.DecodeString(strings.ReplaceAll(strings.ToLower(s), "-", ""))
	if err != nil || len(raw) != len(id) {
		return id, false
	}
	return [16]byte(raw), true
}

func swapped(id [16]byte) [16]byte {
	id[0], id[1], id[2], id[3] = id[3], id[2], id[1], id[0]
	id[4], id[5] = id[5], id[4]
	id[6], id[7] = id[7], id[6]
	return id
}
