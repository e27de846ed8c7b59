package emulator

import (
	"fmt"
	"net/http"
	"regexp"
	"strings"
)

// listResources is what az resource list asks for: everything of a subscription
// or a resource group that ARM itself knows, which instances of Uniform scale sets
// and their hidden disks are not.
func listResources(c *call) reply {
	parent := "/subscriptions/" + c.rt.subscription
	if c.rt.group != "" {
		parent = c.rt.groupID()
	}
	keep := resourceFilter(c.r.URL.Query().Get("$filter"))
	shown := []any{}
	for _, name := range []string{scaleSets, virtualMachines, disks, snapshots, galleries, imageDefs, imageVersions, encryptionSets} {
		for _, r := range c.readAll(parent, c.s.kinds[key(name)]) {
			if r.hidden || !keep(r) {
				continue
			}
			brief := object{"id": r.id, "name": r.name(), "type": r.kind.name, "location": r.location(), "tags": clone(part(r.doc, "tags"))}
			if sku := part(r.doc, "sku"); sku != nil {
				brief["sku"] = clone(sku)
			}
			shown = append(shown, brief)
		}
	}
	return reply{status: http.StatusOK, body: object{"value": shown}}
}

var comparison = regexp.MustCompile(`(?i)(resourceType|name|location|tagName|tagValue)\s+eq\s+'([^']*)'`)

// resourceFilter understands comparisons joined by "and"
// (https://learn.microsoft.com/rest/api/resources/resources/list).
func resourceFilter(filter string) func(*resource) bool {
	wanted := map[string]string{}
	for _, found := range comparison.FindAllStringSubmatch(filter, -1) {
		wanted[strings.ToLower(found[1])] = found[2]
	}
	return func(r *resource) bool {
		tag, tagged := part(r.doc, "tags")[wanted["tagname"]]
		for field, has := range map[string]string{"resourcetype": r.kind.name, "name": r.name(), "location": r.location(),
			"tagvalue": fmt.Sprint(tag)} {
			if want, asked := wanted[field]; asked && !fold(want, has) {
				return false
			}
		}
		return wanted["tagname"] == "" || tagged
	}
}

// listLocations is what az account list-locations asks for.
func listLocations(c *call) reply {
	var listed []object
	for _, l := range [][2]string{{"westeurope", "West Europe"}, {"northeurope", "North Europe"}, {"eastus", "East US"},
		{"westus2", "West US 2"}} {
		listed = append(listed, object{"id": "/subscriptions/" + c.rt.subscription + "/locations/" + l[0], "name": l[0], "type": "Region",
			"displayName": l[1], "regionalDisplayName": l[1],
			"metadata": object{"regionType": "Physical", "regionCategory": "Recommended"}})
	}
	return reply{status: http.StatusOK, body: object{"value": array(listed...)}}
}

// getProvider says that a resource provider is registered, and in which API
// versions it serves its types: az resource picks the newest.
func getProvider(c *call) reply {
	var types []object
	for _, name := range []string{scaleSets, virtualMachines, disks, snapshots, galleries, imageDefs, imageVersions, encryptionSets} {
		types = append(types, object{"resourceType": name[strings.IndexByte(name, '/')+1:], "locations": []any{"West Europe"},
			"apiVersions": []any{"2022-08-01"}})
	}
	return reply{status: http.StatusOK, body: object{"id": "/subscriptions/" + c.rt.subscription + "/providers/Microsoft.Compute",
		"namespace": "Microsoft.Compute", "registrationState": "Registered", "resourceTypes": array(types...)}}
}

const tagsType = "Microsoft.Resources/tags"

// tagsKind is the tags of a scope as a resource of their own
// (https://learn.microsoft.com/rest/api/resources/tags).
func tagsKind() *kind {
	return &kind{name: tagsType, get: getTags, put: writeTags, patch: writeTags, delete: writeTags}
}

// tagged is what the tags of a request belong to.
func (c *call) tagged() string {
	i := strings.LastIndex(key(c.r.URL.Path), "/providers/"+key(tagsType))
	return c.r.URL.Path[:i]
}

func getTags(c *call) reply {
	r := c.read(c.tagged())
	if r == nil || r.hidden {
		return notFound(c, c.tagged())
	}
	return showTags(r)
}

func showTags(r *resource) reply {
	tags := clone(part(r.doc, "tags"))
	if tags == nil {
		tags = object{}
	}
	return reply{status: http.StatusOK, body: object{"id": r.id + "/providers/" + tagsType + "/default",
		"name": "default", "type": tagsType,
		"properties": object{"tags": tags}}}
}

// writeTags replaces all tags (PUT), merges or deletes some (PATCH), or deletes all.
func writeTags(c *call) reply {
	if old := c.t.get(c.tagged()); old == nil || old.hidden {
		return notFound(c, c.tagged())
	}
	r := c.t.edit(c.tagged())
	sent, operation := part(c.body, "properties", "tags"), strings.ToLower(text(c.body, "operation"))
	tags := clone(part(r.doc, "tags"))
	switch {
	case tags == nil, c.r.Method != http.MethodPatch, operation == "replace":
		tags = object{}
	}
	for name, value := range sent {
		if operation == "delete" {
			delete(tags, name)
		} else if c.r.Method != http.MethodDelete {
			tags[name] = value
		}
	}
	if err := checkTags(tags); err != nil {
		return reply{err: err}
	}
	r.doc["tags"] = tags
	if r.kind.name == scaleSets {
		r.touch()
	}
	return showTags(r)
}

// grantAccess is the beginGetAccess of a snapshot: a link to download it, unless
// its network access policy forbids that (the refusal's text is assumed, unverified
// on real Azure).
func grantAccess(c *call) reply {
	r := c.t.get(c.target.id)
	switch {
	case r == nil:
		return notFound(c, c.target.id)
	case r.state() != "Succeeded":
		return failed(http.StatusConflict, "OperationNotAllowed", "The snapshot '%s' is not ready.", r.name())
	case fold(text(r.doc, "properties", "networkAccessPolicy"), "DenyAll"):
		return failed(http.StatusForbidden, "DiskAccessDenied",
			"Access to the snapshot '%s' is denied by its network access policy DenyAll.", r.name())
	}
	set(c.t.edit(r.id).doc, "ActiveSAS", "properties", "diskState")
	return reply{status: http.StatusOK, body: object{"accessSAS": c.s.base(c.r) + "/md-" + derived("sas", r.id) +
		"/abcd?sv=2018-03-28&sr=b&sig=emulated"}}
}

func revokeAccess(c *call) reply {
	if c.t.get(c.target.id) == nil {
		return notFound(c, c.target.id)
	}
	set(c.t.edit(c.target.id).doc, "Unattached", "properties", "diskState")
	return reply{status: http.StatusOK}
}

// listSetSKUs are the sizes that a scale set can be given (az vmss list-skus).
func listSetSKUs(c *call) reply {
	pool := c.read(c.target.id)
	if pool == nil {
		return notFound(c, c.target.id)
	}
	var listed []object
	for _, size := range []string{text(pool.doc, "sku", "name"), "Standard_D2s_v3", "Standard_D4s_v3"} {
		listed = append(listed, object{"resourceType": scaleSets, "sku": object{"name": size, "tier": "Standard"},
			"capacity": object{"minimum": 0, "maximum": 1000, "defaultCapacity": 1, "scaleType": "Automatic"}})
	}
	return reply{status: http.StatusOK, body: object{"value": array(listed...)}}
}
