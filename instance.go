package kamino

import (
	"cmp"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Same says whether two IDs are of one instance: clouds change their case.
func (id InstanceID) Same(other InstanceID) bool { return strings.EqualFold(string(id), string(other)) }

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

// WithVM is the instance with the VM that its node or a record showed, where its provider tells none.
func (in Instance) WithVM(vm string) Instance {
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

// Settled says whether an instance that is seen for the first time has a node that is not Ready and
// is older than the budget: it may have been Ready in time, before anybody watched.
func (in Instance) Settled(nodes []Node, now time.Time, budget time.Duration) bool {
	return slices.ContainsFunc(nodes, func(n Node) bool { return n.RunsOn(in.ID) && !n.Ready && now.Sub(n.Created) > budget })
}

// SameVM compares two identities of a VM. Case does not count, nor does the
// byte order of the first three groups, which SMBIOS shows swapped on some
// machines (https://learn.microsoft.com/azure/virtual-machines/instance-metadata-service).
func SameVM(a, b string) bool {
	x, okA := ParseVMID(a)
	y, okB := ParseVMID(b)
	return okA && okB && (x == y || swapped(x) == y)
}

// ParseVMID reads a UUID, with or without dashes, in any case.
func ParseVMID(s string) (id [16]byte, ok bool) {
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

// PowerCycle is how far the power cycle of a node has come.
type PowerCycle string
