package emulator

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"
)

// Machines is what stands behind the instances. Every method blocks until it is
// done; the ARM operation ends when it returns. Methods are called without the
// server's lock, and never two at a time for one instance, except that Delete may
// interrupt anything. ctx ends with the server.
type Machines interface {
	// Create makes the OS disk from ImageID, or from the generic image where that is "", and powers
	// on. A reimage is Delete and Create of the same ID.
	Create(ctx context.Context, i Instance) error
	Start(ctx context.Context, i Instance) error
	Stop(ctx context.Context, i Instance, skipShutdown bool) error
	Delete(ctx context.Context, i Instance) error
	// Snapshot copies the OS disk of i to the snapshot with this ARM ID.
	Snapshot(ctx context.Context, i Instance, snapshotID string) error
	// Build makes an image version (ARM ID) from a snapshot (ARM ID).
	Build(ctx context.Context, snapshotID, versionID string) error
	// Remove deletes what was kept for a snapshot or version.
	Remove(ctx context.Context, artifactID string) error
}

// Networked is what Machines with a network can do besides: say an instance's network
// card and its address with the length of its subnet's prefix. ok is false without one.
type Networked interface {
	Interface(i Instance) (mac string, address netip.Prefix, ok bool)
}

// Codes of an instance's power state, as instance views show them.
const (
	PowerStarting     = "PowerState/starting"
	PowerRunning      = "PowerState/running"
	PowerStopping     = "PowerState/stopping"
	PowerStopped      = "PowerState/stopped"
	PowerDeallocating = "PowerState/deallocating"
	PowerDeallocated  = "PowerState/deallocated"
)

// Instance is one virtual machine, of a scale set or of its own.
type Instance struct {
	ID             string // ARM ID
	VMID           string // properties.vmId, the SMBIOS UUID
	Pool           string // name of the scale set, "" for a machine of its own
	PoolID         string // ARM ID of the scale set
	InstanceID     string // "0", or the name of a Flexible machine
	Name           string // V_0
	ComputerName   string
	SubscriptionID string
	ResourceGroup  string
	Location       string
	Size           string
	Flexible       bool
	OSDiskID       string // ARM ID of the OS disk; GET on it answers 404
	ImageID        string // ARM ID of the image version it was made from; "" for the generic image
	ExactVersion   string
	CustomData     string // base64, as the model had it when the disk was made
	UserData       string // base64
	PowerState     string // PowerRunning, …
	State          string // provisioningState: Creating, Updating, Succeeded, Failed, Deleting
	Generation     string // V1, V2
	Architecture   string // x64, Arm64
	SecurityType   string // Standard, TrustedLaunch, ConfidentialVM
	Windows        bool
	Spot           bool
	Ephemeral      bool
	Tags           map[string]string
}

// instance is the public face of an instance's resource.
func (t *tx) instance(r *resource) Instance {
	rt, _ := parse(r.id)
	i := Instance{
		ID: r.id, VMID: text(r.doc, "properties", "vmId"), Name: text(r.doc, "name"), InstanceID: text(r.doc, "instanceId"),
		PoolID: text(r.facts, "pool"), ComputerName: text(r.doc, "properties", "osProfile", "computerName"),
		SubscriptionID: rt.subscription, ResourceGroup: rt.group, Location: r.location(), Size: text(r.facts, "size"),
		Flexible: len(rt.names) == 1, OSDiskID: text(r.facts, "disk"), ImageID: text(r.facts, "image"),
		ExactVersion: text(r.doc, "properties", "storageProfile", "imageReference", "exactVersion"),
		CustomData:   r.custom, UserData: r.user, PowerState: power(r), State: r.state(),
		Generation: text(r.facts, "generation"), Architecture: text(r.facts, "architecture"), SecurityType: text(r.facts, "security"),
		Windows: fold(text(r.doc, "properties", "storageProfile", "osDisk", "osType"), "Windows"),
		Spot:    fold(text(r.doc, "properties", "priority"), "Spot"), Ephemeral: ephemeral(r), Tags: map[string]string{},
	}
	if i.InstanceID == "" {
		i.InstanceID = i.Name
	}
	if pool, ok := parse(i.PoolID); ok && len(pool.names) > 0 {
		i.Pool = pool.names[0]
	}
	for name := range part(r.doc, "tags") {
		i.Tags[name] = text(r.doc, "tags", name)
	}
	return i
}

// Instances lists every instance, those being created or deleted included.
func (s *Server) Instances() []Instance {
	s.start()
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.begin()
	var found []*resource
	for _, r := range s.store.current {
		if isInstance(r) {
			found = append(found, r)
		}
	}
	sortResources(found)
	listed := make([]Instance, 0, len(found))
	for _, r := range found {
		listed = append(listed, t.instance(r))
	}
	return listed
}

// Instance finds one by its ARM ID.
func (s *Server) Instance(id string) (Instance, bool) {
	s.start()
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.begin()
	if r := t.get(id); isInstance(r) {
		return t.instance(r), true
	}
	return Instance{}, false
}

// Extensions are those the instance was made with, protected settings included, as its
// own agent gets them.
func (s *Server) Extensions(instanceID string) []Extension {
	s.start()
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.begin()
	r := t.get(instanceID)
	if !isInstance(r) {
		return nil
	}
	secrets := map[string]object{}
	if pool := t.get(text(r.facts, "pool")); pool != nil {
		secrets = pool.secrets
	}
	var listed []Extension
	for _, e := range items(r.doc, "resources") {
		name := text(e, "name")
		listed = append(listed, Extension{Name: name, Publisher: text(e, "properties", "publisher"), Type: text(e, "properties", "type"),
			Version: text(e, "properties", "typeHandlerVersion"), Settings: clone(part(e, "properties", "settings")),
			ProtectedSettings: clone(secrets[key(name)])})
	}
	return listed
}

func isInstance(r *resource) bool {
	return r != nil && (r.kind.name == scaleSetVMs || r.kind.name == virtualMachines)
}

// PowerOffFromGuest is what the platform sees when the guest halts itself: the
// instance is PowerState/stopped, and still billed.
func (s *Server) PowerOffFromGuest(instanceID string) {
	s.start()
	s.alter(func(t *tx) {
		if r := t.get(instanceID); isInstance(r) && power(r) == PowerRunning {
			setPower(t.edit(instanceID), PowerStopped, t.now)
			t.repairLater(instanceID)
		}
	})
}

// ReadDisk returns the content of a disk: of an instance, or of anything that
// keeps one (disk, snapshot, image version), by ARM ID. The map is the caller's.
func (s *Server) ReadDisk(id string) (map[string]string, error) {
	s.start()
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.begin().diskOf(id)
	if r == nil {
		return nil, fmt.Errorf("read disk of %s: no such disk", id)
	}
	return copyFiles(r.files), nil
}

// WriteDisk changes the content of a disk. Snapshots and versions made before keep theirs.
func (s *Server) WriteDisk(id string, change func(files map[string]string)) error {
	s.start()
	found := false
	s.alter(func(t *tx) {
		r := t.diskOf(id)
		if r == nil {
			return
		}
		found = true
		files := copyFiles(r.files)
		change(files)
		t.edit(r.id).files = files
	})
	if !found {
		return fmt.Errorf("write disk of %s: no such disk", id)
	}
	return nil
}

// diskOf is the resource that keeps the content for an ID.
func (t *tx) diskOf(id string) *resource {
	r := t.get(id)
	if isInstance(r) {
		r = t.get(text(r.facts, "disk"))
	}
	if r == nil || r.files == nil {
		return nil
	}
	return r
}

func copyFiles(files map[string]string) map[string]string {
	copied := make(map[string]string, len(files))
	for path, content := range files {
		copied[path] = content
	}
	return copied
}

func ephemeral(r *resource) bool {
	return text(r.doc, "properties", "storageProfile", "osDisk", "diffDiskSettings", "option") != ""
}

// noEphemeral refuses what an ephemeral OS disk cannot do
// (https://learn.microsoft.com/azure/virtual-machines/ephemeral-os-disks).
func noEphemeral(r *resource, action string) *apiError {
	if !ephemeral(r) {
		return nil
	}
	return refuse(http.StatusConflict, "OperationNotAllowed",
		"Operation '%s' is not supported for VMs or VM Scale Set instances using an ephemeral OS disk.", action)
}
