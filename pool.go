package kamino

import (
	"cmp"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
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
	ID   InstanceID `json:"id"`
	Pool PoolID     `json:"pool"`
	// VMID is what SMBIOS shows as system UUID; "" where no call tells it. Then no ID is ever given
	// to a second machine, and the node with that ID as its spec.providerID says what it shows.
	VMID     string `json:"vmId"`
	Hostname string `json:"hostname"`
	Power    Power  `json:"power"`
	Disk     string `json:"disk"`  // the OS disk, as the provider names it
	Image    string `json:"image"` // what it booted from, "" when unknown

	Machine
	Size       string `json:"size,omitempty"`       // the machine's type, as the provider names it
	Zone       string `json:"zone,omitempty"`       // as the label topology.kubernetes.io/zone names it; "" when unknown
	DiskGB     int    `json:"diskGB,omitempty"`     // of the OS disk, in GiB; 0 when unknown
	Encryption string `json:"encryption,omitempty"` // the customer's key set of the OS disk; "" for the provider's own key

	// Failure is the provider's word on what last went wrong with the machine,
	// for instance that no capacity was left to start it; "" when nothing did.
	Failure string `json:"failure,omitempty"`
	// Refusals are the reasons of the provider against this instance as donor.
	Refusals []Refusal `json:"refusals,omitempty"`
}

// as is the instance with the VM that its node or a record showed, where its provider tells none.
func (in Instance) as(vm string) Instance {
	in.VMID = cmp.Or(in.VMID, vm)
	return in
}

// Machine is what a disk and the machine that boots it must agree on.
type Machine struct {
	Generation   string `json:"generation,omitempty"`   // V1 or V2
	Architecture string `json:"architecture,omitempty"` // x64 or Arm64
	SecurityType string `json:"securityType,omitempty"` // Standard, TrustedLaunch, …
	Controller   string `json:"controller,omitempty"`   // of its disks: SCSI, NVMe, of an image also both; "" when unknown
	Plan         string `json:"plan,omitempty"`         // publisher/product/name of what was bought with its image; "" for nothing
}

// Unlike tells why an image for this machine may not boot on those that boot an image for
// another; "" where nothing is known to differ. Case does not count: Azure's does not.
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
	// UID is given to no other pool, also not to a later one of the same name; "" where the
	// provider has none.
	UID string `json:"uid,omitempty"`
	// Created is when this pool came into being; zero where that is not known.
	Created time.Time `json:"-"`
	// Revision makes the next write conditional on nobody having changed the
	// pool since this read.
	Revision string `json:"revision"`
	// Stamp is another after every write of the pool, and never again what it was before; "" where
	// the provider has none. What is set and taken back has the former Revision, perhaps.
	Stamp string `json:"-"`
	// Owner is who writes the pool's recipe back; nil for nobody that is known. Its recipe is never
	// written.
	Owner *Owner `json:"owner,omitempty"`
	// NoPointer says why the pool's recipe cannot refer to a pointer (ByPointer); "" where it can.
	NoPointer string `json:"noPointer,omitempty"`
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

// Kind names one of the things that a run makes at the provider.
type Kind string

// The kinds of artifact.
const (
	Gallery    Kind = "gallery"
	Definition Kind = "image definition"
	Version    Kind = "image version"
	Snapshot   Kind = "snapshot"
	// Parameter is what the recipes of pools refer to in place of an image, where that stands by
	// itself. It is only found: Promote makes it.
	Parameter Kind = "parameter"
)

// MadeOfFormer says whether an artifact is one that Kamino made of an earlier pool of this pool's
// name. One that names no pool, as a kamino without this tag made it, counts as this pool's unless
// it is older than the pool. What is of no run was made by another program, or the original.
func (p Pool) MadeOfFormer(a Artifact) bool {
	switch of := a.Tags[TagPoolUID]; {
	case p.UID == "" || a.Tags[TagRun] == "":
		return false
	case of == "":
		return !a.Created.IsZero() && a.Created.Before(p.Created)
	default:
		return of != p.UID
	}
}

// Identify adds the pool's UID to the tags of what is made of it.
func (p Pool) Identify(tags map[string]string) map[string]string {
	if p.UID == "" {
		return tags
	}
	return Artifact{Tags: tags}.with(TagPoolUID, p.UID).Tags
}

// settled says whether an instance that is seen for the first time has a node that is not Ready and
// is older than the budget: it may have been Ready in time, before anybody watched.
func (in Instance) settled(nodes []Node, now time.Time, budget time.Duration) bool {
	return slices.ContainsFunc(nodes, func(n Node) bool { return n.runsOn(in.ID) && !n.Ready && now.Sub(n.Created) > budget })
}

// newborn lists the instances of a pool that boot from an image. What an instance boots from is
// read once: elders are those that boot from another one.
func (e *Engine) newborn(ctx context.Context, pool Pool, image string, elders *map[InstanceID]bool) (born []Instance, err error) {
	ids, err := e.Provider.Instances(ctx, pool)
	if err != nil {
		return nil, fmt.Errorf("list the instances of pool %s: %w", pool.Name, err)
	}
	if *elders == nil {
		*elders = map[InstanceID]bool{}
	}
	slices.Sort(ids)
	for _, id := range ids {
		if (*elders)[id] {
			continue
		}
		in, err := e.Provider.Instance(ctx, id)
		if errors.Is(err, ErrNotFound) {
			continue
		} else if err != nil {
			return nil, fmt.Errorf("read instance %s: %w", id, err)
		}
		if strings.EqualFold(in.Image, image) {
			born = append(born, in)
		} else {
			(*elders)[id] = true
		}
	}
	return born, nil
}

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

// Target is what a pool's next instance is to boot from: a version, or what it booted from before
// the first prototype.
type Target struct {
	Version   string         // name of an image version of the pool; "" with Former
	Reference ImageReference // how the pool refers to the version; "": as it does now
	// Seen, where set, is the version as it was read: it is offered, where it is withheld. Nil:
	// only the pool's recipe counts.
	Seen *Artifact
	// Former, where set, is a Model.Saved. Its image comes back in the pool's present recipe, with
	// what a promotion removed of that. What belongs to another pool now is not written, and what
	// people have changed since stays.
	Former json.RawMessage
	// Secrets go with Former: what the provider never gives back.
	Secrets Secrets
}

// Bad is why a version is withdrawn.
type Bad struct {
	Reason string // as its tag says it, for people
	Nodes  bool   // its nodes did not do well
}

// Secrets is what a pool's recipe has and a provider does not show. It is saved nowhere; to go
// back to a former model, the user must supply it.
type Secrets struct {
	CustomData []byte // nil leaves what the model has
	// Protected are the protected settings of extensions, JSON objects by name; nil
	// for an extension that has none.
	Protected map[string]json.RawMessage
}

// Offers says whether the version of a target has to be offered. One that only a person has
// excluded makes no difference to a pool that refers to versions.
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
	// NeedsCustomData: the target has custom data that the provider never shows, and that a person
	// has to bring.
	NeedsCustomData bool
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

// Models is how many recipes the instances of a pool refer to, as far as is known, of how many they
// may. No cloud tells: it is counted from when instances were created and when kamino wrote the
// recipe. What others write is not in it.
type Models struct {
	Known int `json:"known"`
	Most  int `json:"most"`
}

// Warning tells what to do when few are left; "" when enough are.
func (m *Models) Warning() string {
	if m == nil || m.Known < m.Most-2 {
		return ""
	}
	return fmt.Sprintf("the instances refer to %d of at most %d models, as far as is known; at the limit the pool takes no update or no further node: "+
		"replace the nodes of the oldest images, and use --image-reference pointer, which writes the model once", m.Known, m.Most)
}

// models counts recipes. Instances from before the first write that is known count by their
// version, since each version was written by itself then.
func (o overview) models() *Models {
	writes := o.lease.Ledger.Writes
	if o.pool.MostModels == 0 || len(writes) == 0 && points(o.pool.Model.Image, o.versions) {
		return nil
	}
	known, counted := map[string]bool{}, 0
	for _, v := range o.versions {
		counted += v.Instances
		for _, born := range v.Births {
			if n := slices.IndexFunc(writes, func(at time.Time) bool { return !at.After(born) }); n >= 0 {
				known[writes[n].String()] = true
			} else {
				known[v.Name] = true
			}
		}
	}
	m := &Models{Known: len(known), Most: o.pool.MostModels}
	if o.pool.Capacity > counted {
		m.Known++ // instances of what was there before
	}
	return m
}

// Doubt is what could not be found out: a run goes on, and tells it as a warning.
type Doubt struct {
	Found string
	Do    string // what a person may do about it; "" where nothing is known
}

func (d Doubt) String() string {
	if d.Do == "" {
		return d.Found
	}
	return d.Found + "; to change that: " + d.Do
}

// Provider is the port to a factory of VMs. No method waits for the operation
// that it begins: the engine looks again. All methods may be repeated without
// harm, and none keeps state that another process would need.
//
// Errors, each to be recognised with errors.Is or errors.As: ErrNotFound,
// ErrNotVisible, ErrInProgress, ErrConflict, ErrUnavailable (the outcome is unknown),
// ErrForbidden, ErrUnsupported, and *ThrottledError. Anything else is final.
type Provider interface {
	Pools
	Machines
	Images
	Pointer

	// Preflight returns ErrForbidden naming every action that a run needs and
	// that is not allowed, or an error that says what is wrong with the
	// credentials. Doubts are what it could not find out, a sentence each that
	// names the right it lacks: the run goes on and tells them as warnings.
	Preflight(context.Context) (doubts []Doubt, err error)
}

// Pools are groups of machines made from one recipe. Part of [Provider].
type Pools interface {
	// PoolOf tells which pool an instance belongs to: from its ID alone where that says it, else
	// from one list of all pools that answers for many instances, and is read again for one that
	// is not in it, but not within a few seconds. ErrUnsupported: the ID is not one of this
	// provider, the instance is in no pool, or its kind of pool is not supported.
	PoolOf(context.Context, InstanceID) (PoolID, error)
	// Pool reads a pool. ErrNotFound when it is gone.
	Pool(context.Context, PoolID) (Pool, error)
	// Instances lists the IDs of all instances of a pool. A pool that has none is
	// an empty list; a list that cannot be read is an error, whatever the reason.
	Instances(context.Context, Pool) ([]InstanceID, error)
	// SetCapacity sets the number of instances, conditional on pool.Revision.
	// ErrUnsupported where somebody else decides that number.
	SetCapacity(ctx context.Context, pool Pool, instances int) error
}

// Machines are the instances of pools. Part of [Provider].
type Machines interface {
	// Instance reads one instance. ErrNotFound when it is gone.
	Instance(context.Context, InstanceID) (Instance, error)
	// SetPower begins to switch an instance on or off.
	SetPower(context.Context, InstanceID, Power) error
	// Fit compares a donor with what the pool will make of its disk, and with the
	// image definition where it exists (nil: not yet). It only reads. What Create
	// carries over by itself is no refusal. Doubts are as Preflight's.
	Fit(ctx context.Context, pool Pool, donor Instance, definition *Artifact) (refusals []Refusal, doubts []Doubt, err error)
}

// Images are what is made of a donor's disk, and what it lives in. Part of [Provider].
type Images interface {
	// Homes are the kinds of artifacts that image versions live in here, outermost
	// first: on Azure a gallery, and in it an image definition. None where versions
	// stand by themselves. It makes no call.
	Homes() []Kind
	// Find reads the artifacts of a kind that belong to the pool: the one of
	// that name, or all when the name is empty. None is no error; but a list that
	// was not found although its parent exists is ErrUnavailable. A list of
	// versions is newest first and tells who uses each.
	Find(context.Context, Pool, Kind, string) ([]Artifact, error)
	// Create begins to make an artifact. Repeated with the same content it
	// changes nothing.
	Create(context.Context, Pool, Artifact) error
	// Delete begins to delete an artifact; one that does not exist is no error.
	// A version is deleted only after a fresh read shows that neither the
	// model nor an instance of the pool uses it: else ErrInUse.
	Delete(context.Context, Pool, Artifact) error
	// SetTags writes tags and nothing else: of a home of versions all as they stand in the
	// artifact, of a version as Retagged makes them of a fresh read. ErrConflict: that read shows
	// the version withdrawn, or not, as the artifact does not tell. What somebody writes between
	// that read and the write is overwritten: no revision of either is known everywhere.
	SetTags(context.Context, Pool, Artifact) error
}

// Pointer decides what the next instance of a pool boots from. Part of [Provider].
type Pointer interface {
	// NextImage tells what a pool's next instance boots from once a target was
	// promoted, and what would have to change. It writes nothing. No difference:
	// the target is promoted already.
	NextImage(context.Context, Pool, Target) (NextImage, error)
	// Promote makes a target what the pool's next instance boots from, by one write a call. Where
	// the target offers its version, that is a write of its own: before the recipe's where the
	// recipe shall refer to the definition, after it where not, so that the next image changes
	// once. A write of the recipe is conditional on pool.Revision. That of a version is made only
	// if a fresh read shows it as in Target.Seen, else ErrConflict: what somebody else writes
	// between that read and the write is overwritten. Where nothing would change, nothing is sent.
	Promote(context.Context, Pool, Target) error
	// Withdraw takes a version back: no recipe that refers to its definition or pointer means it
	// any more, and its tags say so, with the reason (at most 256 characters count). The next image
	// never becomes a newer version: a definition stands for the newest that is left, a pointer
	// gets the newest older one that is good and has a receipt. ErrInUse: there is none, and a
	// recipe refers to it. ErrNotFound when the version is gone. Repeated with another reason it
	// changes that.
	Withdraw(ctx context.Context, pool Pool, version string, bad Bad) error
}
