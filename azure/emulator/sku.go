package emulator

import (
	"net/http"
	"strings"
)

// zrsMessage carries today's wording and the one the original vmss-prototype looks for.
const zrsMessage = "ZRS storage account type is not supported in this region. detail:ZRS is not supported"

func (s *Server) zrsText() string {
	if s.ZRSText != "" {
		return s.ZRSText
	}
	return zrsMessage
}

func (s *Server) hasZRS(location string) bool {
	for _, without := range s.NoZRS {
		if sameRegion(without, location) {
			return false
		}
	}
	return true
}

// architectureOf follows the naming rule of Azure's sizes: a p before the version is Arm64
// (https://learn.microsoft.com/azure/virtual-machines/vm-naming-conventions).
func architectureOf(size string) string {
	parts := strings.Split(size, "_")
	if len(parts) > 1 && strings.Contains(strings.TrimLeft(strings.TrimLeft(parts[1], "ABCDEFGHIJKLMNOPQRSTUVWXYZ"), "0123456789"), "p") {
		return "Arm64"
	}
	return "x64"
}

// controllersOf are the disk controllers that a size has: NVMe only from version 6 on
// (https://learn.microsoft.com/azure/virtual-machines/enable-nvme-faqs), both on
// storage-optimised Ebds of version 5, SCSI before.
func controllersOf(size string) string {
	version := size[strings.LastIndexByte(size, '_')+1:]
	switch {
	case len(version) > 1 && version[0] == 'v' && (version[1] >= '6' || len(version) > 2):
		return "NVMe"
	case strings.Contains(size, "_E") && strings.Contains(size, "bds_v5"):
		return "SCSI,NVMe"
	}
	return "SCSI"
}

// listSKUs is Microsoft.Compute/skus with its only filter, location eq '…': disks and
// snapshots by storage type, and the sizes that scale sets use.
func listSKUs(c *call) reply {
	location := "westeurope"
	if _, after, ok := strings.Cut(c.r.URL.Query().Get("$filter"), "'"); ok {
		location = strings.Trim(after, "'")
	}
	location = strings.ToLower(strings.ReplaceAll(location, " ", ""))
	entry := func(kind, name, size string, capabilities ...any) object {
		return object{"resourceType": kind, "name": name, "tier": strings.SplitN(name, "_", 2)[0], "size": size,
			"locations":    []any{location},
			"locationInfo": array(object{"location": location, "zones": []any{"1", "2", "3"}}), "capabilities": capabilities,
			"restrictions": []any{}}
	}
	var listed []object
	for _, kind := range []string{"disks", "snapshots"} {
		names := []string{"Standard_LRS", "Premium_LRS"}
		if c.s.hasZRS(location) {
			zrs := map[string]string{"disks": "StandardSSD_ZRS", "snapshots": "Standard_ZRS"}
			names = append(names, zrs[kind])
		}
		for _, name := range names {
			listed = append(listed, entry(kind, name, "", object{"name": "MaxSizeGiB", "value": "32767"}))
		}
	}
	sizes := map[string]bool{"Standard_D2s_v3": true, "Standard_D2ps_v5": true}
	order := []string{"Standard_D2s_v3", "Standard_D2ps_v5"}
	for _, pool := range c.t.children("/subscriptions/"+c.rt.subscription, c.s.kinds[key(scaleSets)]) {
		if size := text(pool.doc, "sku", "name"); size != "" && !sizes[size] {
			sizes[size], order = true, append(order, size)
		}
	}
	for _, size := range order {
		generations := "V1,V2"
		if architectureOf(size) == "Arm64" {
			generations = "V2"
		}
		listed = append(listed, entry("virtualMachines", size, strings.TrimPrefix(size, "Standard_"),
			object{"name": "vCPUs", "value": "2"}, object{"name": "MemoryGB", "value": "8"},
			object{"name": "CpuArchitectureType", "value": architectureOf(size)}, object{"name": "HyperVGenerations", "value": generations},
			object{"name": "DiskControllerTypes", "value": controllersOf(size)},
			object{"name": "PremiumIO", "value": "True"}, object{"name": "EphemeralOSDiskSupported", "value": "True"}))
	}
	return reply{status: http.StatusOK, body: object{"value": array(listed...)}}
}
