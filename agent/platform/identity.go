// Package platform talks to what a VM finds around it: SMBIOS, the instance metadata service (IMDS)
// of Azure or EC2, and Azure's WireServer and provisioning CD.
package platform

import (
	"strings"

	"kamino.dev/kamino/agent/disk"
	"kamino.dev/kamino/agent/scan"
	"kamino.dev/kamino/internal/lazyregexp"
)

// dmiUUID is the SMBIOS system UUID as the kernel shows it, readable by root only
// (https://www.kernel.org/doc/Documentation/ABI/testing/sysfs-firmware-dmi-tables).
const dmiUUID = "sys/class/dmi/id/product_uuid"

var uuid = lazyregexp.New(`^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$`)

// SMBIOS is the machine's UUID in lower case, or empty when it cannot be read or is one of the
// values that boards without a UUID show.
func SMBIOS(d *disk.Disk) string { return VMID(d.Text(dmiUUID)) }

// VMID normalises a VM's identity; what is not a usable UUID becomes empty.
func VMID(text string) string {
	id := strings.ToLower(strings.TrimSpace(text))
	if !uuid.MatchString(id) || strings.Trim(id, "0-") == "" || strings.Trim(id, "f-") == "" {
		return ""
	}
	return id
}

// Same compares two VM identities in any case and either byte order of their first three groups:
// generation 1 machines show the SMBIOS UUID swapped with respect to IMDS vmId (cloud-init's
// azure/identity.py, azure-init's vm_id.rs).
func Same(a, b string) bool {
	a, b = VMID(a), VMID(b)
	return a != "" && (a == b || a == scan.Swapped(b))
}
