package emulator

import (
	"context"
	"net/http"
	"strings"
)

func viewSnapshot(c *call, r *resource, shown object) {
	if r.state() == "Creating" {
		set(shown, c.s.progress(r.op, c.now), "properties", "completionPercent")
	}
}

// putSnapshot copies a disk as it is now. Success is 200 or 202, never 201: both azcore
// and azure-cli reject that.
func putSnapshot(c *call) reply {
	old := c.t.get(c.target.id)
	source := text(c.body, "properties", "creationData", "sourceResourceId")
	if old != nil {
		return c.updateSnapshot(old)
	}
	option := text(c.body, "properties", "creationData", "createOption")
	switch {
	case text(c.body, "location") == "":
		return failed(http.StatusBadRequest, "LocationRequired", "The location property is required for this definition.")
	case !fold(option, "Copy") && !fold(option, "CopyStart"):
		return failed(http.StatusBadRequest, "InvalidParameter",
			"The value '%s' of creationData.createOption is not supported here; use Copy.", option)
	case source == "":
		return failed(http.StatusBadRequest, "InvalidParameter", "Required parameter 'creationData.sourceResourceId' is missing (null).")
	}
	disk := c.t.get(source)
	if disk == nil || disk.files == nil && disk.kind.name != snapshots {
		return failed(http.StatusNotFound, "ResourceNotFound", "The source resource '%s' was not found.", source)
	}
	if !sameRegion(disk.location(), text(c.body, "location")) {
		return failed(http.StatusBadRequest, "InvalidParameter", "The source '%s' is in %s, the snapshot in %s.", source, disk.location(),
			text(c.body, "location"))
	}
	owner := c.t.get(text(disk.facts, "instance"))
	if owner != nil && ephemeral(owner) {
		return reply{err: noEphemeral(owner, "snapshot")}
	}
	if sku := text(c.body, "sku", "name"); strings.HasSuffix(sku, "_ZRS") && !c.s.hasZRS(text(c.body, "location")) {
		return failed(http.StatusBadRequest, "InvalidParameter", "%s", c.s.zrsText())
	}
	r := c.t.put(&resource{id: c.target.id, kind: c.target.kind, created: c.now, files: copyFiles(disk.files), doc: clone(c.body),
		facts: object{"source": disk.id}})
	r.doc["id"], r.doc["name"], r.doc["type"] = r.id, r.name(), snapshots
	if text(r.doc, "sku", "name") == "" {
		r.doc["sku"] = object{"name": "Standard_LRS", "tier": "Standard"}
	}
	for name, value := range (object{"osType": text(disk.doc, "properties", "osType"),
		"diskSizeGB":       dig(disk.doc, "properties", "diskSizeGB"),
		"hyperVGeneration": text(disk.doc, "properties", "hyperVGeneration"), "incremental": false}) {
		if !has(r.doc, "properties", name) {
			set(r.doc, value, "properties", name)
		}
	}
	for name, value := range (object{"timeCreated": stamp(c.now), "uniqueId": identifier(), "diskState": "Unattached",
		"diskSizeBytes": 32213303296}) {
		set(r.doc, value, "properties", name)
	}
	set(r.doc, text(disk.doc, "properties", "uniqueId"), "properties", "creationData", "sourceUniqueId")
	r.setState("Creating")
	if owner != nil {
		r.facts["instance"], r.facts["sourcePower"], r.facts["vmId"] = owner.id, power(owner), text(owner.doc, "properties", "vmId")
	}
	return reply{status: http.StatusAccepted, shows: r.id, op: c.snapshotOperation(r, owner)}
}

func (c *call) snapshotOperation(r, owner *resource) *pending {
	id := r.id
	p := &pending{family: diskFamily, location: r.location(), holds: []string{id}, latency: c.s.delays.Snapshot}
	p.finish = func(t *tx) *apiError {
		if r := t.edit(id); r != nil {
			r.setState("Succeeded")
			set(r.doc, 100, "properties", "completionPercent")
		}
		return nil
	}
	p.fail = func(t *tx, _ *apiError) {
		if r := t.edit(id); r != nil {
			r.setState("Failed")
		}
	}
	if m := c.s.Machines; m != nil && owner != nil {
		i := c.t.instance(owner)
		p.work = func(ctx context.Context) error { return m.Snapshot(ctx, i, id) }
	}
	return p
}

// updateSnapshot is a PUT or PATCH on one that exists: its source cannot change.
func (c *call) updateSnapshot(old *resource) reply {
	if err := busy(old); err != nil {
		return reply{err: err}
	}
	source := text(c.body, "properties", "creationData", "sourceResourceId")
	if source != "" && !fold(source, text(old.doc, "properties", "creationData", "sourceResourceId")) {
		return failed(http.StatusConflict, "PropertyChangeNotAllowed", "Changing property 'creationData.sourceResourceId' is not allowed.")
	}
	if old.state() == "Failed" && c.r.Method == http.MethodPut {
		c.t.remove(old.id)
		return putSnapshot(c)
	}
	r := c.t.edit(old.id)
	if tags, ok := c.body["tags"].(object); ok {
		r.doc["tags"] = clone(tags)
	}
	if sku, ok := c.body["sku"].(object); ok {
		r.doc["sku"] = clone(sku)
	}
	return reply{status: http.StatusOK, shows: r.id}
}

func patchSnapshot(c *call) reply {
	old := c.t.get(c.target.id)
	if old == nil {
		return notFound(c, c.target.id)
	}
	return c.updateSnapshot(old)
}

// deleteArtifact deletes a snapshot or a disk.
func deleteArtifact(c *call) reply {
	r := c.t.get(c.target.id)
	if r == nil || r.hidden {
		return reply{status: http.StatusNoContent}
	}
	if r.kind.name == disks && text(r.doc, "managedBy") != "" {
		return failed(http.StatusConflict, "OperationNotAllowed", "Disk %s is attached to VM %s.", r.name(), text(r.doc, "managedBy"))
	}
	if reader := c.t.readerOf(r.id); reader != "" {
		return failed(http.StatusConflict, "OperationNotAllowed",
			"The resource '%s' is in use: it is being read to build '%s'. Retry when that is complete.", r.id, reader)
	}
	if err := busy(r); err != nil {
		return reply{err: err}
	}
	return c.removal(r, diskFamily, c.s.delays.DeleteSnapshot)
}

// readerOf is the image version that is being built from a source, or "".
func (t *tx) readerOf(source string) string {
	for _, v := range t.s.store.current {
		if v.kind.name == imageVersions && v.state() == "Creating" && fold(text(v.facts, "source"), source) {
			return v.id
		}
	}
	return ""
}

func listArtifacts(c *call) reply {
	parent := c.target.id
	if c.rt.group == "" {
		parent = "/subscriptions/" + c.rt.subscription
	}
	return c.page(c.readAll(parent, c.target.kind))
}
