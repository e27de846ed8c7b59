package azure

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v8"

	"kamino.dev/kamino"
)

// noOpCustomData is base64 of "#cloud-config\n". Custom data can be replaced
// but, as far as is known, not removed (terraform's provider says so; unverified).
const noOpCustomData = "I2Nsb3VkLWNvbmZpZwo="

// writtenVM is what this process wrote into a model beside the image, to
// notice when the service has put something else there.
type writtenVM struct {
	osDisk  *armcompute.VirtualMachineScaleSetUpdateOSDisk
	secrets *[sha256.Size]byte // of the secrets that went with it; nil for none
}

// ExtensionRule keeps extensions of the model that do not bootstrap nodes.
// Publisher and Type are compared without case; a "*" at the end stands for any
// rest.
type ExtensionRule struct{ Publisher, Type string }

// BillingExtensions are the rules that hold without configuration: the
// extensions that tell Azure whose node it is. Their name differs between
// clusters (computeAksLinuxBilling, AKSLinuxBilling); publisher and type do not.
func BillingExtensions() []ExtensionRule {
	return []ExtensionRule{
		{"Microsoft.AKS", "Compute.AKS-Engine.Linux.Billing"},
		{"Microsoft.AKS", "Compute.AKS.Linux.Billing"},
	}
}

func (r ExtensionRule) keeps(e kamino.Extension) bool {
	return wild(r.Publisher, e.Publisher) && wild(r.Type, e.Type)
}

func wild(pattern, s string) bool {
	if prefix, ok := strings.CutSuffix(pattern, "*"); ok {
		return len(s) >= len(prefix) && strings.EqualFold(s[:len(prefix)], prefix)
	}
	return strings.EqualFold(pattern, s)
}

// NextImage implements kamino.Provider without a call, except where it has to ask how a write of
// secrets went.
func (p *Provider) NextImage(ctx context.Context, pool kamino.Pool, want kamino.Target) (kamino.NextImage, error) {
	have, next, err := p.nextModel(pool, want)
	if err != nil {
		return kamino.NextImage{}, err
	}
	to := kamino.NextImage{Image: imageText(next.Image),
		Diff:            append(p.difference(pool, have, next, want), p.secretsDue(ctx, pool, want)...),
		NeedsCustomData: want.Former != nil && want.Secrets.CustomData == nil}
	for _, e := range next.Extensions {
		back, said := toExtension(e), false
		for name := range want.Secrets.Protected {
			said = said || strings.EqualFold(name, back.Name)
		}
		if want.Former != nil && !said && !slices.ContainsFunc(pool.Model.Extensions,
			func(h kamino.Extension) bool { return sameExtension(h, back) }) {
			to.Needs = append(to.Needs, back.Name)
		}
	}
	return to, nil
}

// sameExtension: another program of the same name is another one.
func sameExtension(a, b kamino.Extension) bool {
	return strings.EqualFold(a.Name, b.Name) && strings.EqualFold(a.Publisher, b.Publisher) && strings.EqualFold(a.Type, b.Type)
}

// Promote offers the version, or writes image, custom data and extensions in one PATCH that carries
// the whole storage profile, conditional on the ETag.
//
// A PATCH with the image alone would reset size, type and caching of the OS
// disk (Azure/azure-rest-api-specs#13164); a PUT of the whole model would write
// an old capacity back and undo an autoscaler's work (kubernetes/autoscaler#2959).
// Custom data cannot be read back: it is written whenever something else is, and
// with protected settings whenever they are given, once by one process unless the
// operation fails.
func (p *Provider) Promote(ctx context.Context, pool kamino.Pool, want kamino.Target) error {
	if want.Offers() && want.Reference == kamino.ByDefinition {
		return p.offer(ctx, pool, *want.Seen)
	}
	have, next, err := p.nextModel(pool, want)
	if err != nil {
		return err
	}
	if len(p.difference(pool, have, next, want))+len(p.secretsDue(ctx, pool, want)) == 0 {
		if want.Offers() {
			return p.offer(ctx, pool, *want.Seen)
		}
		return nil
	}
	at, err := p.place(pool)
	if err != nil {
		return err
	}
	disk, err := p.osDisk(pool, have)
	if err != nil {
		return err
	}
	profile := &armcompute.VirtualMachineScaleSetUpdateVMProfile{
		StorageProfile: &armcompute.VirtualMachineScaleSetUpdateStorageProfile{
			ImageReference: next.Image, OSDisk: disk, DataDisks: have.DataDisks, DiskControllerType: have.Controller,
		},
		ExtensionProfile: &armcompute.VirtualMachineScaleSetExtensionProfile{Extensions: writable(next.Extensions)},
	}
	custom := noOpCustomData
	if want.Former != nil {
		custom = base64.StdEncoding.EncodeToString(want.Secrets.CustomData)
	}
	if want.Former == nil || want.Secrets.CustomData != nil {
		profile.OSProfile = &armcompute.VirtualMachineScaleSetUpdateOSProfile{CustomData: to.Ptr(custom)}
	}
	poller, err := at.sets.BeginUpdate(ctx, at.group, at.name, armcompute.VirtualMachineScaleSetUpdate{
		Properties: &armcompute.VirtualMachineScaleSetUpdateProperties{VirtualMachineProfile: profile},
	}, ifMatch(pool))
	if err := poll(p, string(pool.ID), poller, err); err != nil {
		return translate(err, "write the model of scale set %s", at.name)
	}
	p.mu.Lock()
	p.written[pool.ID] = writtenVM{disk, fingerprint(want)}
	p.mu.Unlock()
	return nil
}

// ifMatch makes a write conditional. Old API versions return no ETag; then the
// comparison after the write is the only guard.
func ifMatch(pool kamino.Pool) *armcompute.VirtualMachineScaleSetsClientBeginUpdateOptions {
	if pool.Revision == "" {
		return nil
	}
	return &armcompute.VirtualMachineScaleSetsClientBeginUpdateOptions{IfMatch: to.Ptr(pool.Revision)}
}

// nextModel is the model as read and as wanted.
func (p *Provider) nextModel(pool kamino.Pool, want kamino.Target) (have, next saved, err error) {
	if err := json.Unmarshal(pool.Model.Saved, &have); err != nil {
		return have, next, fmt.Errorf("read saved model of pool %s: %w", pool.Name, err)
	}
	if want.Former != nil {
		err := json.Unmarshal(want.Former, &next)
		if err == nil && next.Image == nil {
			err = errors.New("it names no image")
		}
		if err != nil {
			return have, next, fmt.Errorf("read the model to be given back to pool %s: %w", pool.Name, err)
		}
		next.Image.ExactVersion = nil // read-only
		next.Extensions = rejoined(have.Extensions, next.Extensions)
		return have, next, protect(next.Extensions, want.Secrets.Protected)
	}
	if want.Version == "" {
		return have, next, fmt.Errorf("no image wanted for pool %s", pool.Name)
	}
	image := p.Address(pool, kamino.KindVersion, want.Version)
	if want.Reference == kamino.ByDefinition {
		image = p.Address(pool, kamino.KindDefinition, kamino.DefinitionName(pool.Name))
	}
	next.Image = &armcompute.ImageReference{ID: to.Ptr(image)}
	for _, e := range have.Extensions {
		if pool.Owner != nil || p.keeps(toExtension(e)) {
			next.Extensions = append(next.Extensions, e)
		}
	}
	return have, next, nil
}

// rejoined are the extensions of the saved model, in its order, and then those that a model has
// besides. A present one keeps the settings and the version that it has now. One of the same name
// that is another program gives way: nodes of the saved image may not join without it.
func rejoined(have, saved []*armcompute.VirtualMachineScaleSetExtension) (out []*armcompute.VirtualMachineScaleSetExtension) {
	named := func(list []*armcompute.VirtualMachineScaleSetExtension, name *string) int {
		return slices.IndexFunc(list, func(e *armcompute.VirtualMachineScaleSetExtension) bool {
			return strings.EqualFold(value(e.Name), value(name))
		})
	}
	for _, e := range saved {
		if i := named(have, e.Name); i >= 0 && sameExtension(toExtension(have[i]), toExtension(e)) {
			e = have[i]
		}
		out = append(out, e)
	}
	for _, e := range have {
		if named(saved, e.Name) < 0 {
			out = append(out, e)
		}
	}
	return out
}

func (p *Provider) keeps(e kamino.Extension) bool {
	return slices.ContainsFunc(p.config.KeepExtensions, func(r ExtensionRule) bool { return r.keeps(e) })
}

// difference lists what the write would change, and after a write what has not
// become as it was written.
func (p *Provider) difference(pool kamino.Pool, have, next saved, want kamino.Target) []kamino.FieldChange {
	const vm = "virtualMachineProfile."
	var diff []kamino.FieldChange
	if from, to := imageText(have.Image), imageText(next.Image); !strings.EqualFold(from, to) {
		diff = append(diff, kamino.FieldChange{Field: vm + "storageProfile.imageReference", From: from, To: to})
	}
	if from, to := names(have.Extensions), names(next.Extensions); from != to {
		diff = append(diff, kamino.FieldChange{Field: vm + "extensionProfile.extensions", From: from,
			To: returning(next.Extensions, have.Extensions)})
	}
	for _, e := range next.Extensions {
		back := toExtension(e)
		for _, h := range pool.Model.Extensions {
			if strings.EqualFold(h.Name, back.Name) && !sameExtension(h, back) {
				diff = append(diff, kamino.FieldChange{Field: vm + "extensionProfile.extensions[" + h.Name + "].type",
					From: h.Publisher + "/" + h.Type, To: back.Publisher + "/" + back.Type})
			}
		}
	}
	p.mu.Lock()
	written, wrote := p.written[pool.ID]
	p.mu.Unlock()
	if now, err := updateDisk(have.OSDisk); wrote && err == nil && !sameJSON(now, written.osDisk) {
		diff = append(diff, kamino.FieldChange{Field: vm + "storageProfile.osDisk", From: asJSON(now), To: asJSON(written.osDisk)})
	}
	if len(diff) > 0 && want.Former == nil {
		diff = append(diff, kamino.FieldChange{Field: vm + "osProfile.customData", From: "(cannot be read)", To: "#cloud-config"})
	}
	return diff
}

// fingerprint tells secrets of a model apart; nil where there are none.
func fingerprint(want kamino.Target) *[sha256.Size]byte {
	if want.Former == nil || want.Secrets.CustomData == nil && len(given(want.Secrets)) == 0 {
		return nil
	}
	sum := sha256.Sum256([]byte(asJSON(want.Secrets)))
	return &sum
}

// given are the extensions with protected settings to be written, sorted.
func given(s kamino.Secrets) []string {
	names := slices.Sorted(maps.Keys(s.Protected))
	return slices.DeleteFunc(names, func(n string) bool { return s.Protected[n] == nil })
}

// secretsDue are the secrets that this process has not written yet, or whose
// write has failed.
func (p *Provider) secretsDue(ctx context.Context, pool kamino.Pool, want kamino.Target) (diff []kamino.FieldChange) {
	due := fingerprint(want)
	if due == nil {
		return nil
	}
	p.mu.Lock()
	written := p.written[pool.ID].secrets
	p.mu.Unlock()
	if written != nil && *written == *due && !p.hasFailed(ctx, string(pool.ID)) {
		return nil
	}
	const vm, from = "virtualMachineProfile.", "(cannot be read)"
	if data := want.Secrets.CustomData; data != nil {
		diff = append(diff, kamino.FieldChange{Field: vm + "osProfile.customData", From: from, To: fmt.Sprintf("%d bytes", len(data))})
	}
	for _, name := range given(want.Secrets) {
		diff = append(diff, kamino.FieldChange{Field: vm + "extensionProfile.extensions[" + name + "].protectedSettings",
			From: from, To: "as given"})
	}
	return diff
}

// osDisk is the OS disk to send: as this process wrote it before, where the
// service has changed it since, else as it is.
func (p *Provider) osDisk(pool kamino.Pool, have saved) (*armcompute.VirtualMachineScaleSetUpdateOSDisk, error) {
	p.mu.Lock()
	written, wrote := p.written[pool.ID]
	p.mu.Unlock()
	if wrote {
		return written.osDisk, nil
	}
	return updateDisk(have.OSDisk)
}

// updateDisk is an OS disk with the fields that a PATCH may hold: those that
// both types share under the same JSON names.
func updateDisk(d *armcompute.VirtualMachineScaleSetOSDisk) (*armcompute.VirtualMachineScaleSetUpdateOSDisk, error) {
	if d == nil {
		return nil, nil
	}
	raw, err := json.Marshal(d)
	if err != nil {
		return nil, err
	}
	var out armcompute.VirtualMachineScaleSetUpdateOSDisk
	return &out, json.Unmarshal(raw, &out)
}

// writable is a list of extensions without what Azure alone writes. Protected
// settings are never returned; whether a PATCH that omits them keeps them is
// unverified on real Azure, as the extensions kept by default have none.
func writable(list []*armcompute.VirtualMachineScaleSetExtension) []*armcompute.VirtualMachineScaleSetExtension {
	out := make([]*armcompute.VirtualMachineScaleSetExtension, 0, len(list))
	for _, e := range list {
		c := &armcompute.VirtualMachineScaleSetExtension{Name: e.Name}
		if e.Properties != nil {
			props := *e.Properties
			props.ProvisioningState = nil
			c.Properties = &props
		}
		out = append(out, c)
	}
	return out
}

// protect puts protected settings back, which ARM never returns.
func protect(list []*armcompute.VirtualMachineScaleSetExtension, settings map[string]json.RawMessage) error {
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		raw := settings[name]
		i := slices.IndexFunc(list, func(e *armcompute.VirtualMachineScaleSetExtension) bool {
			return strings.EqualFold(value(e.Name), name) && e.Properties != nil
		})
		if i < 0 {
			return kamino.WithHint(fmt.Errorf("protected settings for extension %q: the model has %s", name, names(list)),
				"name an extension that comes back; kamino rollback --dry-run lists those that need settings")
		}
		if raw == nil {
			continue // it has none
		}
		var object map[string]any
		if err := json.Unmarshal(raw, &object); err != nil {
			return fmt.Errorf("protected settings for extension %q: %w", name, err)
		}
		list[i].Properties.ProtectedSettings = object
	}
	return nil
}

// returning is names, with a word on those which come back without what they may need.
func returning(next, have []*armcompute.VirtualMachineScaleSetExtension) string {
	out := make([]string, len(next))
	for i, e := range next {
		out[i] = value(e.Name)
		had := slices.ContainsFunc(have, func(h *armcompute.VirtualMachineScaleSetExtension) bool {
			return strings.EqualFold(value(h.Name), value(e.Name))
		})
		if !had && e.Properties != nil && e.Properties.ProtectedSettings == nil {
			out[i] += " (without protected settings)"
		}
	}
	return strings.Join(out, ", ")
}

func names(list []*armcompute.VirtualMachineScaleSetExtension) string {
	out := make([]string, len(list))
	for i, e := range list {
		out[i] = value(e.Name)
	}
	return strings.Join(out, ", ")
}

func asJSON(v any) string {
	raw, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	return string(raw)
}

func sameJSON(a, b any) bool {
	var x, y any
	return json.Unmarshal([]byte(asJSON(a)), &x) == nil && json.Unmarshal([]byte(asJSON(b)), &y) == nil && reflect.DeepEqual(x, y)
}

// SetCapacity asks for a number of instances. The SKU must be named whole.
func (p *Provider) SetCapacity(ctx context.Context, pool kamino.Pool, instances int) error {
	at, err := p.place(pool)
	if err != nil {
		return err
	}
	var have saved
	if err := json.Unmarshal(pool.Model.Saved, &have); err != nil || have.SKU == nil {
		return fmt.Errorf("scale out pool %s: its SKU is not known", pool.Name)
	}
	sku := *have.SKU
	sku.Capacity = to.Ptr(int64(instances))
	poller, err := at.sets.BeginUpdate(ctx, at.group, at.name, armcompute.VirtualMachineScaleSetUpdate{SKU: &sku}, ifMatch(pool))
	return translate(poll(p, string(pool.ID), poller, err), "scale out scale set %s to %d", at.name, instances)
}
