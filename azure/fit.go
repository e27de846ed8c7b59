package azure

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v8"

	"kamino.dev/kamino"
)

// Fit implements kamino.Provider. Plan, disk encryption set and disk controller go
// from the model to what Create makes; what cannot go along is refused.
func (p *Provider) Fit(ctx context.Context, pool kamino.Pool, donor kamino.Instance, definition *kamino.Artifact) ([]kamino.Refusal,
	[]kamino.Warning, error) {
	at, model, err := p.modelled(pool)
	if err != nil {
		return nil, nil, err
	}
	doubts, err := p.poolRights(ctx, at)
	if err != nil {
		return nil, nil, err
	}
	offers, err := p.region(ctx, at)
	if err != nil {
		return nil, nil, translate(err, "list what region %s offers", at.location)
	}
	if offers.unknown {
		doubts = append(doubts, noSKUs)
	}
	donor.Controller = offers.attaches(donor)
	r := fitPool(model, donor, offers)
	if definition != nil {
		fitDefinition(&r, *definition, model, donor.Controller)
	}
	return r, doubts, p.fitEncryption(ctx, &r, at, model)
}

// modelled is the place of a pool with its model.
func (p *Provider) modelled(pool kamino.Pool) (place, saved, error) {
	at, err := p.place(pool)
	var model saved
	if err == nil {
		err = json.Unmarshal(pool.Model.Saved, &model)
	}
	return at, model, err
}

const (
	profile    = "properties.virtualMachineProfile."
	otherDonor = "choose a node that was created after this change of the model, or undo the change"
)

// fitPool compares the donor, whose disk controller is known, with the model of its
// pool: they differ while a pool is moved from one kind of machine to another.
func fitPool(model saved, donor kamino.Instance, offers region) (r refusals) {
	fitModel(&r, model, donor)
	fitSize(&r, model, donor, offers)
	return r
}

// fitModel compares what the model says itself.
func fitModel(r *refusals, model saved, donor kamino.Instance) {
	security := cmp.Or(model.Security, "Standard")
	if !strings.EqualFold(security, donor.SecurityType) {
		r.add(kamino.CodeFit, profile+"securityProfile.securityType", security,
			fmt.Sprintf("the donor is %s, and all versions of an image definition have one security type", donor.SecurityType), otherDonor)
	}
	if c := value(model.Controller); c != "" && !strings.EqualFold(c, donor.Controller) {
		r.add(kamino.CodeFit, profile+"storageProfile.diskControllerType", c, "the donor's disk is attached by "+donor.Controller,
			otherDonor)
	}
	if donor.Generation == "V1" && (!strings.EqualFold(security, "Standard") || value(model.Controller) == nvme) {
		r.add(kamino.CodeFit, "instanceView.hyperVGeneration", donor.Generation, "new instances of the model need generation V2",
			otherDonor)
	}
	if disk := model.OSDisk; disk != nil {
		if gb := int(value(disk.DiskSizeGB)); gb > 0 && donor.DiskGB > gb {
			r.add(kamino.CodeFit, profile+"storageProfile.osDisk.diskSizeGB", fmt.Sprint(gb),
				fmt.Sprintf("the donor's OS disk has %d GiB, and no instance can have a smaller disk than its image", donor.DiskGB),
				fmt.Sprintf("choose another node, or az vmss update --set virtualMachineProfile.storageProfile.osDisk.diskSizeGB=%d",
					donor.DiskGB))
		}
	}
	// An instance that tells no plan may have one: whether Azure always shows it is unverified.
	if plan := planText(model.Plan); donor.Plan != "" && !strings.EqualFold(plan, donor.Plan) {
		r.add("plan", "plan", cmp.Or(plan, "none"), "the donor was made with purchase plan "+donor.Plan, otherDonor)
	}
	if set := model.encryption(); !strings.EqualFold(set, donor.Encryption) {
		r.add("encryption", profile+"storageProfile.osDisk.managedDisk.diskEncryptionSet.id", cmp.Or(set, "none"),
			fmt.Sprintf("the donor's OS disk is encrypted with %s", cmp.Or(donor.Encryption, "the platform's key")), otherDonor)
	}
}

// fitSize asks, where the model's size is not the donor's, whether the new one
// boots what the donor's disk holds.
func fitSize(r *refusals, model saved, donor kamino.Instance, offers region) {
	if model.SKU == nil || donor.Size == "" || strings.EqualFold(value(model.SKU.Name), donor.Size) {
		return
	}
	name := value(model.SKU.Name)
	next := offers.size(name)
	refuse := func(what, has, can string) {
		r.add(kamino.CodeFit, "sku.name", name, fmt.Sprintf("that size has %s %s, the donor (%s) has %s", what, can, donor.Size, has),
			otherDonor)
	}
	if next.architecture != "" && donor.Architecture != "" && !strings.EqualFold(next.architecture, donor.Architecture) {
		refuse("architecture", donor.Architecture, next.architecture)
	}
	if donor.Generation != "" && !offered(next.generations, donor.Generation) {
		refuse("generations", donor.Generation, strings.Join(next.generations, ", "))
	}
	if !offered(next.controllers, donor.Controller) {
		refuse("disk controllers", donor.Controller, strings.Join(next.controllers, ", "))
	}
}

// offered says whether a value is on a list, or the list is not known.
func offered(list []string, want string) bool { return len(list) == 0 || listed(list, want) }

// fitDefinition compares what a definition says of all its versions, for ever, with
// what the model needs. A size that attaches disks by NVMe only answers "cannot
// boot with OS image or disk" to an image that does not say NVMe
// (https://github.com/kubernetes-sigs/image-builder/issues/1875), and Azure refuses a plan
// that is not the definition's
// (https://github.com/Azure/azure-rest-api-specs/issues/22133).
func fitDefinition(r *refusals, definition kamino.Artifact, model saved, controller string) {
	const do = "if no instance uses its versions, delete the definition; else choose another gallery with --gallery"
	if has := split(cmp.Or(definition.Controller, scsi)); !offered(has, controller) {
		r.add(kamino.CodeFit, controllerFeature+" of image definition "+definition.Name, strings.Join(has, ","),
			"the pool's machines attach their disks by "+controller+", and features of a definition never change", do)
	}
	if plan := planText(model.Plan); !strings.EqualFold(plan, definition.Plan) {
		r.add("plan", "purchasePlan of image definition "+definition.Name, cmp.Or(definition.Plan, "none"),
			"the pool's model has plan "+cmp.Or(plan, "none")+", and that of a definition never changes", do)
	}
}

// fitEncryption makes sure that the disk encryption set of the model can be
// named for snapshot and image versions, which asks for a right to read it.
func (p *Provider) fitEncryption(ctx context.Context, r *refusals, at place, model saved) error {
	set := model.encryption()
	if set == "" {
		return nil
	}
	_, err := p.encryptionType(ctx, at, set)
	if err = translate(err, "read disk encryption set %s", set); errors.Is(err, kamino.ErrForbidden) || errors.Is(err, kamino.ErrNotFound) {
		r.add("encryption", profile+"storageProfile.osDisk.managedDisk.diskEncryptionSet.id", set,
			"without it snapshot and image would be encrypted with the platform's key only: "+err.Error(),
			"grant Microsoft.Compute/diskEncryptionSets/read at the disk encryption set")
		return nil
	}
	return err
}

// encryptionType is the type of a disk encryption set, which snapshots encrypted
// with it name too. It is read once; errors are the SDK's.
func (p *Provider) encryptionType(ctx context.Context, at place, set string) (armcompute.EncryptionType, error) {
	p.mu.Lock()
	known := p.encryption[strings.ToLower(set)]
	p.mu.Unlock()
	if known != "" {
		return known, nil
	}
	var body struct {
		Properties struct {
			EncryptionType armcompute.EncryptionType `json:"encryptionType"`
		} `json:"properties"`
	}
	if err := at.get(ctx, set+"?api-version=2024-03-02", &body); err != nil {
		return "", err
	}
	kind := body.Properties.EncryptionType
	if kind == "" {
		kind = armcompute.EncryptionTypeEncryptionAtRestWithCustomerKey
	}
	p.mu.Lock()
	p.encryption[strings.ToLower(set)] = kind
	p.mu.Unlock()
	return kind, nil
}

// encryption is the model's disk encryption set, "" for the platform's key.
func (s saved) encryption() string {
	if s.OSDisk == nil || s.OSDisk.ManagedDisk == nil || s.OSDisk.ManagedDisk.DiskEncryptionSet == nil {
		return ""
	}
	return value(s.OSDisk.ManagedDisk.DiskEncryptionSet.ID)
}

// planText is a purchase plan as publisher/product/name.
func planText(p *armcompute.Plan) string {
	if p == nil || value(p.Name) == "" {
		return ""
	}
	return value(p.Publisher) + "/" + value(p.Product) + "/" + value(p.Name)
}
