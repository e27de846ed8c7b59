package emulator

import (
	"net/http"
	"strings"
)

// image is what an imageReference resolves to.
type image struct {
	id           string // ARM ID of the version; "" for a platform image
	exact        string
	files        map[string]string
	generation   string
	architecture string
	security     string
	state        string // Generalized, Specialized
	osType       string
	controllers  string // feature DiskControllerTypes; "": SCSI
	plan         object
	gigabytes    int
}

// genericVersion is what "latest" of every platform image resolves to.
const genericVersion = "1.0.20261101"

// genericFiles is the disk of an image of the marketplace.
func genericFiles() map[string]string {
	return map[string]string{"/etc/os-release": "ID=debian\nVERSION_ID=12\n", "/etc/hosts": "127.0.0.1 localhost\n"}
}

// resolveImage finds what instances of a scale set would be made from now.
func (t *tx) resolveImage(pool *resource) (image, *apiError) {
	ref := part(pool.doc, "properties", "virtualMachineProfile", "storageProfile", "imageReference")
	id := text(ref, "id")
	if id == "" {
		if text(ref, "publisher") == "" {
			return image{}, refuse(http.StatusBadRequest, "InvalidParameter", "Required parameter 'imageReference' is missing (null).")
		}
		exact := text(ref, "version")
		if exact == "" || fold(exact, "latest") {
			exact = genericVersion
		}
		return image{exact: exact, files: genericFiles(), generation: text(pool.facts, "generation"),
			architecture: text(pool.facts, "architecture"), security: "", state: "Generalized", osType: poolOS(pool)}, nil
	}
	rt, ok := parse(id)
	if !ok || len(rt.types) < 2 || !fold(rt.types[0], "galleries") {
		return image{}, refuse(http.StatusConflict, "OperationNotAllowed",
			"The Image type for a Virtual Machine Scale Set may not be changed.")
	}
	if len(rt.names) == 2 {
		latest := t.latest(id, pool.location())
		if latest == nil {
			return image{}, t.noLatest(id, pool.location())
		}
		id = latest.id
	}
	return t.imageVersion(id, pool)
}

// imageVersion checks that a gallery version can make instances of a scale set.
func (t *tx) imageVersion(id string, pool *resource) (image, *apiError) {
	v := t.get(id)
	if v == nil || v.kind.name != imageVersions || v.state() == "Failed" || v.state() == "Creating" || v.state() == "Deleting" ||
		!replicatedTo(v, pool.location()) {
		return image{}, notInRegion(id, pool.location())
	}
	d := t.get(parent(v.id))
	im := image{id: v.id, exact: v.name(), files: v.files, generation: text(d.doc, "properties", "hyperVGeneration"),
		architecture: text(d.doc, "properties", "architecture"), security: feature(d, "SecurityType"),
		state: text(d.doc, "properties", "osState"), osType: text(d.doc, "properties", "osType"),
		controllers: feature(d, "DiskControllerTypes"), plan: part(d.doc, "properties", "purchasePlan")}
	im.gigabytes, _ = number(v.facts, "gigabytes")
	return im, im.fits(pool)
}

// fits compares a definition with the scale set (azure-compute-docs,
// troubleshooting-shared-images.md; the codes are assumed, unverified on real Azure).
func (im image) fits(pool *resource) *apiError {
	trusted := fold(securityType(pool), "TrustedLaunch")
	switch {
	case im.state == "Specialized":
		return refuse(http.StatusConflict, "OperationNotAllowed",
			"Cannot update Virtual Machine Scale Set %s as the current OS state of the VM Scale Set is Generalized which is different from the updated gallery image OS state which is Specialized.", pool.name())
	case !fold(im.osType, poolOS(pool)):
		return refuse(http.StatusConflict, "OperationNotAllowed",
			"Cannot update Virtual Machine Scale Set %s: its OS type %s differs from the gallery image's, %s.", pool.name(),
			poolOS(pool), im.osType)
	case im.security == "TrustedLaunch" && !trusted:
		return refuse(http.StatusBadRequest, "BadRequest",
			"The provided gallery image only supports creation of VMs and VM Scale Sets with 'TrustedLaunch' security type.")
	case trusted && im.security != "TrustedLaunch" && im.security != "TrustedLaunchSupported":
		return refuse(http.StatusBadRequest, "BadRequest",
			"The provided image does not support creation of VMs and VM Scale Sets with 'TrustedLaunch' security type.")
	case im.generation != "" && text(pool.facts, "generation") != "" && im.generation != text(pool.facts, "generation"):
		return refuse(http.StatusBadRequest, "BadRequest",
			"The selected VM size '%s' cannot boot Hypervisor Generation '%s'.", text(pool.doc, "sku", "name"),
			strings.TrimPrefix(im.generation, "V"))
	case im.architecture != "" && text(pool.facts, "architecture") != "" && im.architecture != text(pool.facts, "architecture"):
		return refuse(http.StatusBadRequest, "BadRequest",
			"The VM size '%s' with architecture '%s' cannot boot an image of architecture '%s'.", text(pool.doc, "sku", "name"),
			text(pool.facts, "architecture"), im.architecture)
	}
	return im.fitsMachine(pool)
}

// fitsMachine compares an image with the machines of a scale set: disk controllers
// (the text stands in https://github.com/kubernetes-sigs/image-builder/issues/1875),
// purchase plan (azure-rest-api-specs#22133), size of the OS disk. The codes are
// assumed, unverified on real Azure.
func (im image) fitsMachine(pool *resource) *apiError {
	size := text(pool.doc, "sku", "name")
	has, needs := im.controllers, controllersOf(size)
	if has == "" {
		has = "SCSI"
	}
	if controller := text(pool.doc, "properties", "virtualMachineProfile", "storageProfile", "diskControllerType"); controller != "" {
		needs = controller
	}
	common := false
	for _, c := range strings.Split(needs, ",") {
		common = common || strings.Contains(has, c)
	}
	gigabytes, set := number(pool.doc, "properties", "virtualMachineProfile", "storageProfile", "osDisk", "diskSizeGB")
	switch plan := part(pool.doc, "plan"); {
	case !common:
		return refuse(http.StatusBadRequest, "InvalidParameter",
			"The VM size '%s' cannot boot with OS image or disk. Please check that disk controller types supported by the OS image or disk is one of the supported disk controller types for the VM size '%s'. Please query sku api at https://aka.ms/azure-compute-skus to determine supported disk controller types for the VM size.", size, size)
	case !same(text(im.plan, "name"), text(plan, "name")) || !same(text(im.plan, "product"), text(plan, "product")):
		return refuse(http.StatusBadRequest, "VMMarketplaceInvalidInput",
			"Creating a virtual machine from Marketplace image or a custom image sourced from a Marketplace image requires Plan information in the request.")
	case set && im.gigabytes > gigabytes:
		return refuse(http.StatusConflict, "OperationNotAllowed",
			"The specified disk size %d GB is smaller than the size of the corresponding disk in the VM image: %d GB. This is not allowed. Please choose equal or greater size or do not specify an explicit size.", gigabytes, im.gigabytes)
	}
	return nil
}

func poolOS(pool *resource) string {
	if part(pool.doc, "properties", "virtualMachineProfile", "osProfile", "windowsConfiguration") != nil {
		return "Windows"
	}
	if osType := text(pool.doc, "properties", "virtualMachineProfile", "storageProfile", "osDisk", "osType"); osType != "" {
		return osType
	}
	return "Linux"
}

func securityType(pool *resource) string {
	if security := text(pool.doc, "properties", "virtualMachineProfile", "securityProfile", "securityType"); security != "" {
		return security
	}
	return "Standard"
}

func feature(definition *resource, name string) string {
	for _, f := range items(definition.doc, "properties", "features") {
		if fold(text(f, "name"), name) {
			return text(f, "value")
		}
	}
	return ""
}

// sameRegion compares westeurope with West Europe.
func sameRegion(a, b string) bool {
	return fold(strings.ReplaceAll(a, " ", ""), strings.ReplaceAll(b, " ", ""))
}

// parent is the ID one type/name pair up.
func parent(id string) string {
	for range 2 {
		id = id[:strings.LastIndexByte(id, '/')]
	}
	return id
}
