package kamino

import (
	"cmp"
	"encoding/hex"
	"regexp"
	"slices"
	"strings"
	"time"
)

// Same reports whether two IDs are of one instance. Clouds change the case of IDs.
func (id InstanceID) Same(other InstanceID) bool { return strings.EqualFold(string(id), string(other)) }

// InstanceID identifies one VM: it is the node's spec.providerID.
type InstanceID string

// Power is the power state of an instance.
type Power string

// The power states that the engine distinguishes. Between is every state that changes by itself
// (starting, stopping).
const (
	PowerOn      Power = "on"
	PowerOff     Power = "off"
	PowerBetween Power = "between"
)

// Instance is one VM of a pool, freshly read.
type Instance struct {
	ID   InstanceID `json:"id"`
	Pool PoolID     `json:"pool"`
	// VMID is the system UUID that SMBIOS shows; "" where no call returns it. Then no ID is ever
	// reused for a second machine, and the node with that ID as its spec.providerID shows the UUID.
	VMID     string `json:"vmId"`
	Hostname string `json:"hostname"`
	Power    Power  `json:"power"`
	Disk     string `json:"disk"`  // the OS disk, as the provider names it
	Image    string `json:"image"` // the image that it booted from; "" if unknown

	Machine
	Size       string `json:"size,omitempty"`       // the machine's type, as the provider names it
	Zone       string `json:"zone,omitempty"`       // as the label topology.kubernetes.io/zone names it; "" when unknown
	DiskGB     int    `json:"diskGB,omitempty"`     // of the OS disk, in GiB; 0 when unknown
	Encryption string `json:"encryption,omitempty"` // the customer's key set of the OS disk; "" for the provider's own key

	// Failure is the provider's last error of the machine, for instance that there was no capacity
	// to start it; "" if there is none.
	Failure string `json:"failure,omitempty"`
	// Refusals are the provider's reasons against this instance as donor.
	Refusals []Refusal `json:"refusals,omitempty"`
}

// WithVM fills in the VM ID that the node or a record shows, where the provider returns none.
func (in Instance) WithVM(vm string) Instance {
	in.VMID = cmp.Or(in.VMID, vm)
	return in
}

// Settled reports whether an instance that is seen for the first time is older than the budget and
// its node is not Ready. It may have been Ready in time, before anybody watched.
func (in Instance) Settled(nodes []Node, now time.Time, budget time.Duration) bool {
	return slices.ContainsFunc(nodes, func(n Node) bool { return n.RunsOn(in.ID) && !n.Ready && now.Sub(n.Created) > budget })
}

// SameVM compares two identities of a VM. It ignores case, and the byte order of the first three
// groups, which SMBIOS shows swapped on some machines
// (https://learn.microsoft.com/azure/virtual-machines/instance-metadata-service).
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

// PowerCycle is the progress of a node's power cycle.
type PowerCycle string

// Name is the last segment of the ID.
func (id InstanceID) Name() string { return string(id)[strings.LastIndexByte(string(id), '/')+1:] }

// ofScaleSet is an instance of an Azure scale set: resource group, scale set and number.
var ofScaleSet = regexp.MustCompile(`(?i)/resourceGroups/([^/]+)/providers/Microsoft\.Compute/virtualMachineScaleSets/([^/]+)/virtualMachines/([^/]+)$`)

// Start is the command with which a person starts the machine. Nobody has typed it on a real cloud:
// unverified.
func (id InstanceID) Start() string {
	if strings.HasPrefix(string(id), "aws:") {
		return "aws ec2 start-instances --instance-ids " + id.Name()
	}
	if m := ofScaleSet.FindStringSubmatch(string(id)); m != nil {
		return "az vmss start --resource-group " + m[1] + " --name " + m[2] + " --instance-ids " + m[3]
	}
	return "az vm start --ids " + strings.TrimPrefix(string(id), "azure://")
}

// Release is the command with which a person puts the machine back in service in its Auto Scaling
// group; unverified as Start is.
func (id InstanceID) Release(pool string) string {
	return "aws autoscaling exit-standby --auto-scaling-group-name " + pool + " --instance-ids " + id.Name()
}
