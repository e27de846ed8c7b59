package emulator

import (
	"crypto/sha256"
	"encoding/hex"
	"strconv"
	"strings"
	"time"
)

// newInstance writes an instance of a scale set and its OS disk, as they are the
// moment creation begins. pool must be writable: it counts its instances.
func (t *tx) newInstance(pool *resource, im image) *resource {
	serial, _ := number(pool.facts, "next")
	pool.facts["next"] = serial + 1
	rt, _ := parse(pool.id)
	k, name, suffix := t.s.kinds[key(scaleSetVMs)], pool.name()+"_"+strconv.Itoa(serial), base36(serial)
	id := pool.id + "/virtualMachines/" + strconv.Itoa(serial)
	if isFlexible(pool) {
		unique := derived(pool.id, "flexible", strconv.Itoa(serial))
		k, name, suffix = t.s.kinds[key(virtualMachines)], pool.name()+"_"+unique[:8], unique[30:]
		id = rt.groupID() + "/providers/" + virtualMachines + "/" + name
	}
	profile := part(pool.doc, "properties", "virtualMachineProfile")
	r := &resource{id: id, kind: k, created: t.now, etag: 1, doc: object{
		"id": id, "name": name, "type": k.name, "location": pool.location(), "tags": clone(part(pool.doc, "tags")),
		"sku": object{"name": text(pool.doc, "sku", "name"), "tier": "Standard"}, "zones": pool.doc["zones"], "etag": `"1"`,
	}, facts: object{"pool": pool.id, "size": text(pool.doc, "sku", "name"), "generation": text(pool.facts, "generation"),
		"architecture": text(pool.facts, "architecture"), "security": securityType(pool)}}
	for _, name := range []string{"zones", "plan"} {
		if value := pool.doc[name]; value != nil {
			r.doc[name] = cloneAny(value)
		} else {
			delete(r.doc, name)
		}
	}
	if zones, ok := r.doc["zones"].([]any); ok && len(zones) > 1 { // a machine is in one
		r.doc["zones"] = []any{zones[serial%len(zones)]}
	}
	os := clone(part(profile, "osProfile"))
	if os == nil {
		os = object{}
	}
	os["computerName"] = text(os, "computerNamePrefix") + suffix
	delete(os, "computerNamePrefix")
	properties := object{
		"latestModelApplied": true, "vmId": derived(id, "vm", identifier()), "provisioningState": "Creating", "timeCreated": stamp(t.now),
		"hardwareProfile": object{"vmSize": text(pool.doc, "sku", "name")}, "osProfile": os,
	}
	for _, name := range []string{"securityProfile", "networkProfile", "priority", "diagnosticsProfile"} {
		if value := profile[name]; value != nil {
			properties[name] = cloneAny(value)
		}
	}
	if isFlexible(pool) {
		properties["virtualMachineScaleSet"] = object{"id": pool.id}
	} else {
		r.doc["instanceId"] = strconv.Itoa(serial)
		properties["modelDefinitionApplied"] = "VirtualMachineScaleSet"
	}
	r.doc["properties"] = properties
	t.put(r)
	t.bear(r, pool, im)
	r.follow(pool)
	setPower(r, PowerStarting, t.now)
	return r
}

// bear gives an instance a new OS disk from an image, and everything that comes
// from the model when a disk is made.
func (t *tx) bear(r, pool *resource, im image) {
	profile := part(pool.doc, "properties", "virtualMachineProfile")
	if old := text(r.facts, "disk"); old != "" {
		t.remove(old)
	}
	rt, _ := parse(pool.id)
	name := strings.ReplaceAll(text(r.doc, "name")+"_"+text(r.doc, "name"), "-", "_") + "_OsDisk_1_" +
		strings.ReplaceAll(identifier(), "-", "")
	diskID := rt.groupID() + "/providers/" + disks + "/" + name
	model := part(profile, "storageProfile", "osDisk")
	os := clone(model)
	if os == nil {
		os = object{}
	}
	os["osType"], os["name"], os["createOption"] = poolOS(pool), name, "FromImage"
	if has(os, "diffDiskSettings") {
		delete(os, "managedDisk")
	} else {
		set(os, diskID, "managedDisk", "id")
	}
	storage := object{"osDisk": os, "dataDisks": []any{}}
	if controller := text(profile, "storageProfile", "diskControllerType"); controller != "" {
		storage["diskControllerType"] = controller
	}
	reference := clone(part(profile, "storageProfile", "imageReference"))
	r.facts["reference"] = cloneAny(reference)
	if t.s.Pointer.Resolved && im.id != "" {
		reference["id"] = im.id
	}
	reference["exactVersion"] = im.exact
	storage["imageReference"] = reference
	r.doc["properties"].(object)["storageProfile"] = storage
	r.facts["disk"], r.facts["image"] = diskID, im.id
	r.custom, r.user = pool.custom, pool.user
	r.facts["customDataHash"] = hash(pool.custom)
	t.put(&resource{id: diskID, kind: t.s.kinds[key(disks)], created: t.now, hidden: !isFlexible(pool), files: copyFiles(im.files),
		facts: object{"instance": r.id},
		doc: object{"id": diskID, "name": name, "type": disks, "location": pool.location(), "managedBy": r.id,
			"sku": object{"name": "Premium_LRS", "tier": "Premium"},
			"properties": object{"osType": poolOS(pool), "hyperVGeneration": text(r.facts, "generation"),
				"diskSizeGB": gigabytes(model), "encryption": encrypted(model), "diskState": "Attached", "provisioningState": "Succeeded",
				"timeCreated": stamp(t.now), "uniqueId": identifier()}}})
	t.extend(r, pool)
}

// gigabytes is the size of a model's OS disk: what it says, else 30.
func gigabytes(osDisk object) int {
	if n, ok := number(osDisk, "diskSizeGB"); ok {
		return n
	}
	return 30
}

// encrypted is how disks of a model are encrypted.
func encrypted(osDisk object) object {
	if set := text(osDisk, "managedDisk", "diskEncryptionSet", "id"); set != "" {
		return object{"type": "EncryptionAtRestWithCustomerKey", "diskEncryptionSetId": set}
	}
	return object{"type": "EncryptionAtRestWithPlatformKey"}
}

// extend gives an instance the extensions of the model, run to the end.
func (t *tx) extend(r, pool *resource) {
	var resources, views []any
	for _, e := range items(pool.doc, "properties", "virtualMachineProfile", "extensionProfile", "extensions") {
		installed := clone(e)
		installed["id"], installed["type"] = r.id+"/extensions/"+text(e, "name"), r.kind.name+"/extensions"
		installed["location"] = pool.location()
		set(installed, "Succeeded", "properties", "provisioningState")
		resources = append(resources, installed)
		views = append(views, object{"name": text(e, "name"), "type": text(e, "properties", "publisher") + "." +
			text(e, "properties", "type"),
			"typeHandlerVersion": text(e, "properties", "typeHandlerVersion"),
			"statuses":           array(status("ProvisioningState/succeeded", t.now))})
	}
	delete(r.doc, "resources")
	if resources != nil {
		r.doc["resources"] = resources
	}
	set(r.doc, views, "properties", "instanceView", "extensions")
}

// ready completes creation.
func (t *tx) ready(id string) {
	if r := t.get(id); r != nil {
		r = t.edit(id)
		r.setState("Succeeded")
		setPower(r, PowerRunning, t.now)
	}
}

func hash(secret string) string {
	if secret == "" {
		return ""
	}
	sum := sha256.Sum256([]byte(secret))
	return "sha256:" + hex.EncodeToString(sum[:])
}

// base36 is the suffix of a Uniform instance's computer name: six characters.
func base36(n int) string {
	suffix := strings.ToUpper(strconv.FormatInt(int64(n), 36))
	return strings.Repeat("0", max(0, 6-len(suffix))) + suffix
}

func isFlexible(pool *resource) bool {
	return fold(text(pool.doc, "properties", "orchestrationMode"), "Flexible")
}

// power is the code of an instance's power state, "" before it has one.
func power(r *resource) string {
	for _, s := range items(r.doc, "properties", "instanceView", "statuses") {
		if code := text(s, "code"); strings.HasPrefix(code, "PowerState/") {
			return code
		}
	}
	return ""
}

// setPower writes the instance view of a power state.
func setPower(r *resource, code string, now time.Time) {
	view := part(r.doc, "properties", "instanceView")
	if view == nil {
		view = object{}
		set(r.doc, view, "properties", "instanceView")
	}
	view["computerName"] = text(r.doc, "properties", "osProfile", "computerName")
	view["hyperVGeneration"] = text(r.facts, "generation")
	view["osName"], view["osVersion"] = "debian", "12"
	agent := object{"vmAgentVersion": "Unknown", "statuses": array(object{"code": "ProvisioningState/Unavailable", "level": "Warning",
		"displayStatus": "Not Ready", "message": "VM status blob is found but not yet populated.", "time": stamp(now)})}
	if code == PowerRunning {
		agent = object{"vmAgentVersion": "2.9.1.1", "statuses": array(object{"code": "ProvisioningState/succeeded", "level": "Info",
			"displayStatus": "Ready", "message": "Guest Agent is running", "time": stamp(now)})}
	}
	view["vmAgent"] = agent
	view["disks"] = array(object{"name": text(r.doc, "properties", "storageProfile", "osDisk", "name"),
		"statuses": array(status("ProvisioningState/succeeded", now))})
	provisioning := strings.ToLower(r.state())
	if failure := text(r.facts, "failure"); failure != "" && provisioning == "failed" {
		provisioning += "/" + failure
	}
	view["statuses"] = array(status("ProvisioningState/"+provisioning, now), status(code, now))
}

func status(code string, now time.Time) object {
	display := code[strings.IndexByte(code, '/')+1:]
	if strings.HasPrefix(code, "PowerState/") {
		display = "VM " + display
	} else if display == "succeeded" {
		display = "Provisioning succeeded"
	}
	return object{"code": code, "level": "Info", "displayStatus": display, "time": stamp(now)}
}
