package azure

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strings"
	"time"

	"kamino.dev/kamino"
)

// setVersion is the API version of scale sets, as armcompute v8 asks for it: a canary is made of
// the document that it gives, so that fields which nobody here knows go along.
const setVersion = vmListVersion

// recipe is the document of a pool's scale set, made into that of a canary: the model as it will
// be after promotion, and nothing by which others would know the pool again.
type recipe struct {
	doc           map[string]any
	kept, leftOut []string
	refusals      refusals
	links         []link
}

// link is another resource that the document names, and the action that its writer needs there
// (linked actions,
// https://learn.microsoft.com/azure/role-based-access-control/permissions/compute).
type link struct{ action, id string }

func (r *recipe) link(action, id string) {
	if l := (link{action, id}); id != "" && !slices.Contains(r.links, l) {
		r.links = append(r.links, l)
	}
}

// recipe reads a pool's scale set, its user data included, which is shown on request only.
func (p *Provider) recipe(ctx context.Context, at place) (*recipe, error) {
	r := &recipe{}
	if err := at.get(ctx, at.path()+"?api-version="+setVersion+"&$expand=userData", &r.doc); err != nil {
		return r, translate(err, "read scale set %s", at.name)
	}
	r.identity()
	r.policies()
	r.extensions(p.keeps)
	r.placement()
	return r, r.network(ctx, at)
}

// readOnly are the fields that Azure alone writes (armcompute, models.go: READ-ONLY).
var readOnly = [][]string{{"id"}, {"name"}, {"type"}, {"etag"}, {"systemData"},
	{"properties", "provisioningState"}, {"properties", "uniqueId"}, {"properties", "timeCreated"},
	{"properties", "virtualMachineProfile", "timeCreated"}}

// dropped are the policies that would act on a canary, or delay its end
// (terminateNotificationProfile: 5 to 15 minutes), and the probe of a load balancer that it is not
// behind.
var dropped = [][]string{{"tags"}, {"properties", "automaticRepairsPolicy"}, {"properties", "externalHealthPolicy"},
	{"properties", "scaleInPolicy"},
	{"properties", "spotRestorePolicy"}, {"properties", "resiliencyPolicy"}, {"properties", "lifecycleHooksProfile"},
	{"properties", "zoneBalance"},
	{"properties", "virtualMachineProfile", "scheduledEventsProfile", "terminateNotificationProfile"},
	{"properties", "virtualMachineProfile", "networkProfile", "healthProbe"}}

func (r *recipe) policies() {
	for _, keys := range slices.Concat(readOnly, dropped) {
		if in := part(r.doc, keys[:len(keys)-1]...); in != nil {
			delete(in, keys[len(keys)-1])
		}
	}
	set(r.doc, 1, "sku", "capacity")
	set(r.doc, false, "properties", "overprovision")
	set(r.doc, map[string]any{"mode": "Manual"}, "properties", "upgradePolicy")
	set(r.doc, noOpCustomData, "properties", "virtualMachineProfile", "osProfile", "customData")
	// Managed storage: lines of the console are evidence, and cost no right of the pool's.
	if bd := []string{"properties", "virtualMachineProfile", "diagnosticsProfile", "bootDiagnostics"}; part(r.doc,
		bd...)["enabled"] != true {
		set(r.doc, map[string]any{"enabled": true}, bd...)
	}
}

// identity keeps user-assigned identities, whose values are read-only
// (kubernetes/autoscaler#1592). A system-assigned one would be another principal, without the
// pool's roles: a node that uses it would fail and the image not be to blame.
func (r *recipe) identity() {
	identity := part(r.doc, "identity")
	if kind := text(identity, "type"); strings.Contains(strings.ToLower(kind), "systemassigned") {
		r.refusals.add("system-assigned", "identity.type", kind, "a canary would have another identity, without the roles of the pool's",
			"use user-assigned identities")
	}
	delete(identity, "principalId")
	delete(identity, "tenantId")
	for _, id := range slices.Sorted(maps.Keys(part(identity, "userAssignedIdentities"))) {
		set(identity, map[string]any{}, "userAssignedIdentities", id)
		r.link("Microsoft.ManagedIdentity/userAssignedIdentities/assign/action", id)
	}
	for _, s := range parts(r.doc, "properties", "virtualMachineProfile", "osProfile", "secrets") {
		r.link("Microsoft.KeyVault/vaults/deploy/action", text(s, "sourceVault", "id")) // assumed, unverified on real Azure
	}
}

// extensions keeps those that a promotion keeps, without what Azure alone writes. Protected
// settings are never shown, so an extension that may have some is left out, unless they are a
// reference (protectedSettingsFromKeyVault): without them it would fail, and the image not be to
// blame. Those of BillingExtensions have none.
func (r *recipe) extensions(keeps func(kamino.Extension) bool) {
	in := part(r.doc, "properties", "virtualMachineProfile", "extensionProfile")
	if in == nil {
		return
	}
	kept := []any{}
	for _, e := range parts(in, "extensions") {
		known := kamino.Extension{Name: text(e, "name"), Publisher: text(e, "properties", "publisher"), Type: text(e, "properties", "type")}
		if !keeps(known) {
			continue
		}
		vault := text(e, "properties", "protectedSettingsFromKeyVault", "sourceVault", "id")
		billing := slices.ContainsFunc(BillingExtensions(), func(b ExtensionRule) bool { return b.keeps(known) })
		if vault == "" && !billing {
			r.leftOut = append(r.leftOut, fmt.Sprintf("extension %s: its protected settings, if it has any, cannot be read", known.Name))
			continue
		}
		r.link("Microsoft.KeyVault/vaults/deploy/action", vault) // assumed, unverified on real Azure
		delete(e, "id")
		delete(e, "type")
		delete(part(e, "properties"), "provisioningState")
		kept = append(kept, e)
	}
	in["extensions"] = kept
}

// placement tells what of the pool's reserved room a canary takes, and what may take it away.
func (r *recipe) placement() {
	vm := part(r.doc, "properties", "virtualMachineProfile")
	if id := text(vm, "capacityReservation", "capacityReservationGroup", "id"); id != "" {
		r.kept = append(r.kept, "capacity reservation "+lastSegment(id)+": the canary takes room of the pool's")
		r.link("Microsoft.Compute/capacityReservationGroups/deploy/action", id) // assumed, unverified on real Azure
	}
	if id := text(r.doc, "properties", "hostGroup", "id"); id != "" {
		r.kept = append(r.kept, "host group "+lastSegment(id)+": the canary takes room of the pool's")
		r.link("Microsoft.Compute/hostGroups/read", id)
	}
	r.link("Microsoft.Compute/proximityPlacementGroups/read", text(r.doc, "properties", "proximityPlacementGroup", "id"))
	r.link(encryptionRead, text(vm, "storageProfile", "osDisk", "managedDisk", "diskEncryptionSet", "id"))
	if priority := text(vm, "priority"); priority != "" && !strings.EqualFold(priority, "Regular") {
		r.kept = append(r.kept, "priority "+priority+": Azure may evict the canary")
	}
}

const encryptionRead = "Microsoft.Compute/diskEncryptionSets/read"

// ordered is the document of one canary.
func (r *recipe) ordered(pool kamino.Pool, order kamino.CanaryOrder) (map[string]any, error) {
	vm := []string{"properties", "virtualMachineProfile"}
	set(r.doc, map[string]any{"id": order.Version}, append(vm, "storageProfile", "imageReference")...)
	set(r.doc, order.Name, append(vm, "osProfile", "computerNamePrefix")...)
	tags := map[string]any{kamino.TagCanary: lastSegment(order.Version), kamino.TagPool: pool.Name, kamino.TagRun: order.Run,
		kamino.TagExpires: order.Expires.UTC().Format(time.RFC3339)}
	if order.Nonce != "" {
		tags[kamino.TagNonce] = order.Nonce
	}
	r.doc["tags"] = tags
	// Another run tries another zone: one without room would block every proof.
	if zones, ok := r.doc["zones"].([]any); ok && len(zones) > 0 {
		h := fnv.New32a()
		_, _ = h.Write([]byte(order.Name)) // never fails (hash.Hash)
		r.doc["zones"] = []any{zones[int(h.Sum32()%uint32(len(zones)))]}
	}
	return r.doc, r.password(append(vm, "osProfile"))
}

// password: ARM demands one where machines may be logged into with it, and never returns the
// pool's. Nobody learns this one. Windows pools are refused.
func (r *recipe) password(os []string) error {
	linux := part(r.doc, append(os, "linuxConfiguration")...)
	if linux["disablePasswordAuthentication"] == true {
		return nil
	}
	raw := make([]byte, 24)
	if _, err := rand.Read(raw); err != nil {
		return err
	}
	// Three of the four classes that Azure demands are in the last characters, whatever came
	// before.
	set(r.doc, base64.RawURLEncoding.EncodeToString(raw)+"aA1!", append(os, "adminPassword")...)
	return nil
}

func lastSegment(id string) string { return id[strings.LastIndexByte(id, '/')+1:] }

// part is the object at the end of keys; nil where there is none.
func part(doc map[string]any, keys ...string) map[string]any {
	for _, key := range keys {
		doc, _ = doc[key].(map[string]any)
	}
	return doc
}

// parts are the objects in the list at the end of keys.
func parts(doc map[string]any, keys ...string) (found []map[string]any) {
	list, _ := part(doc, keys[:len(keys)-1]...)[keys[len(keys)-1]].([]any)
	for _, v := range list {
		if o, ok := v.(map[string]any); ok {
			found = append(found, o)
		}
	}
	return found
}

func text(doc map[string]any, keys ...string) string {
	s, _ := part(doc, keys[:len(keys)-1]...)[keys[len(keys)-1]].(string)
	return s
}

// set writes a value, making the objects on the way.
func set(doc map[string]any, value any, keys ...string) {
	for _, key := range keys[:len(keys)-1] {
		in, ok := doc[key].(map[string]any)
		if !ok {
			in = map[string]any{}
			doc[key] = in
		}
		doc = in
	}
	doc[keys[len(keys)-1]] = value
}
