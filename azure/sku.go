package azure

import (
	"cmp"
	"context"
	"errors"
	"net/url"
	"regexp"
	"strconv"
	"strings"

	"kamino.dev/kamino"
)

// region is what a location offers, as far as it matters here.
type region struct {
	unknown bool // these credentials may not ask
	zrs     bool // disks and snapshots can be zone-redundant
	sizes   map[string]size
}

// size is what machines of a size can boot from; empty lists are not known.
type size struct {
	controllers, generations []string
	architecture             string
}

// noSKUs tells what follows when a region's offers cannot be read. The list is
// one of the subscription, so that a role at a resource group cannot grant it.
var noSKUs = kamino.Warning{Found: "Microsoft.Compute/skus/read is not allowed at the subscription: image versions are stored as " +
	kamino.StorageLRS +
	", which is lost if the zone fails, and the sizes of machines are judged by their names",
	Do: "az role assignment create --assignee PRINCIPAL --scope /subscriptions/SUBSCRIPTION --role ROLE, with Reader, or with a role of your own that has this action alone"}

// region asks once per location what it offers; its errors are the SDK's
// (https://learn.microsoft.com/rest/api/compute/resource-skus/list). That
// Standard_ZRS of snapshots and disks holds for image versions is unverified, so a
// version that fails for it is built again without.
func (p *Provider) region(ctx context.Context, at place) (region, error) {
	name := regionName(at.location)
	key := strings.ToLower(at.subscription) + "/" + name
	p.mu.Lock()
	known, ok := p.regions[key]
	p.mu.Unlock()
	if ok {
		return known, nil
	}
	r, err := at.region(ctx, name)
	if errors.Is(classify(err), kamino.ErrForbidden) {
		r, err = region{unknown: true}, nil
	} else if err != nil {
		return r, err
	}
	p.mu.Lock()
	p.regions[key] = r
	p.mu.Unlock()
	return r, nil
}

// region reads the list. Of its megabytes only what is needed is decoded.
func (at place) region(ctx context.Context, name string) (region, error) {
	r := region{sizes: map[string]size{}}
	link := "/subscriptions/" + at.subscription + "/providers/Microsoft.Compute/skus?api-version=2021-07-01&$filter=" +
		url.QueryEscape("location eq '"+name+"'")
	err := list(ctx, at, link, func(s sku) {
		switch strings.ToLower(s.ResourceType) {
		case "snapshots", "disks":
			r.zrs = r.zrs || s.Name == kamino.StorageZRS && len(s.Restrictions) == 0
		case "virtualmachines":
			r.sizes[strings.ToLower(s.Name)] = size{s.list("DiskControllerTypes"), s.list("HyperVGenerations"),
				strings.Join(s.list("CpuArchitectureType"), "")}
		}
	})
	return r, err
}

type sku struct {
	ResourceType string `json:"resourceType"`
	Name         string `json:"name"`
	Restrictions []any  `json:"restrictions"`
	Capabilities []struct {
		Name  string `json:"name"`
		Value string `json:"value"`
	} `json:"capabilities"`
}

// list is a capability whose values are separated by commas.
func (s sku) list(capability string) []string {
	for _, c := range s.Capabilities {
		if strings.EqualFold(c.Name, capability) {
			return split(c.Value)
		}
	}
	return nil
}

func split(text string) []string {
	return strings.FieldsFunc(text, func(r rune) bool { return r == ',' || r == ' ' })
}

// Disk controllers, as Azure writes them.
const (
	scsi = "SCSI"
	nvme = "NVMe"
)

var (
	sizeName = regexp.MustCompile(`(?i)^[a-z]+_[a-z]+\d+(?:-\d+)?([a-z]*)(?:_.*?)??(?:_v(\d+))?(?:_promo)?$`)
	// graceChip: Grace Blackwell machines have Arm64 processors and no p in their names
	// (https://learn.microsoft.com/azure/virtual-machines/sizes/gpu-accelerated/nd-gb200-v6-series).
	graceChip = regexp.MustCompile(`(?i)_GB\d+(?:_|$)`)
)

// size is what is known of a size: what the region says, else what its name tells.
// Sizes of version 6 and later are NVMe only
// (https://learn.microsoft.com/azure/virtual-machines/enable-nvme-faqs), a p before
// the version is Arm64
// (https://learn.microsoft.com/azure/virtual-machines/vm-naming-conventions). That regions
// tell no controllers only of sizes older than the choice is unverified.
func (r region) size(name string) size {
	known := r.sizes[strings.ToLower(name)]
	parts := sizeName.FindStringSubmatch(name)
	if parts == nil {
		return known
	}
	if len(known.controllers) == 0 {
		known.controllers = []string{scsi}
		if v, err := strconv.Atoi(parts[2]); err == nil && v >= 6 {
			known.controllers = []string{nvme}
		}
	}
	if known.architecture == "" {
		known.architecture = "x64"
		if strings.Contains(strings.ToLower(parts[1]), "p") || graceChip.MatchString(name) {
			known.architecture = "Arm64"
		}
	}
	return known
}

// attaches is what the donor's disk is attached by: as its instance says; else the only
// controller that its size has; else SCSI. Azure writes what it chose into machines of
// generation V2, since there is a choice (armcompute's comment on diskControllerType).
func (r region) attaches(donor kamino.Instance) string {
	return cmp.Or(donor.Controller, only(r.size(donor.Size).controllers), scsi)
}

// controller is what machines of a model attach their OS disk to: as the model
// says; else the only one that its size has; "" where neither tells. Azure writes
// its default into the model when a scale set is made (armcompute's comment on
// diskControllerType; that it always does is unverified).
func (r region) controller(model saved) string {
	size := ""
	if model.SKU != nil {
		size = value(model.SKU.Name)
	}
	return cmp.Or(value(model.Controller), only(r.size(size).controllers))
}

func only(list []string) string {
	if len(list) == 1 {
		return list[0]
	}
	return ""
}
