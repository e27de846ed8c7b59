package emulator

import (
	"context"
	"net/http"
	"regexp"
	"strconv"
	"strings"
)

var versionName = regexp.MustCompile(`^\d+\.\d+\.\d+$`)

// viewVersion shows replication only when it is asked for, with progress by the clock.
func viewVersion(c *call, r *resource, shown object) {
	if !strings.Contains(strings.ToLower(c.r.URL.Query().Get("$expand")), "replicationstatus") {
		return
	}
	aggregated, summary := "Completed", []any{}
	for _, region := range items(r.doc, "properties", "publishingProfile", "targetRegions") {
		state, percent := "Completed", 100
		switch {
		case r.state() == "Failed" && !replicatedTo(r, text(region, "name")): // that those of a version stay whose update failed is assumed
			state, percent, aggregated = "Failed", 0, "Failed"
		case r.state() == "Updating", !replicatedTo(r, text(region, "name")): // that an update of any kind shows is assumed
			state, percent, aggregated = "Replicating", c.s.progress(r.op, c.now), "InProgress"
		}
		summary = append(summary, object{"region": text(region, "name"), "state": state, "details": "", "progress": percent})
	}
	set(shown, object{"aggregatedState": aggregated, "summary": summary}, "properties", "replicationStatus")
}

// putVersion builds an image version, or changes what may change of one.
func putVersion(c *call) reply {
	definition := c.t.get(parent(c.target.id))
	if definition == nil {
		return notFound(c, parent(c.target.id))
	}
	if old := c.t.get(c.target.id); old != nil && (old.state() != "Failed" || c.r.Method == http.MethodPatch) {
		if old.hidden {
			return c.restoreVersion(old)
		}
		return c.updateVersion(old)
	}
	if err := busy(definition); err != nil {
		return reply{err: err}
	}
	source, err := c.checkVersion(definition)
	if err != nil {
		return reply{err: err}
	}
	c.defaults(definition)
	r := c.create()
	r.facts["source"], r.facts["replicas"] = source.id, []any{}
	if n, ok := number(source.doc, "properties", "diskSizeGB"); ok {
		r.facts["gigabytes"] = n
	}
	for name, value := range source.facts {
		if name == "instance" || name == "vmId" {
			r.facts[name] = value
		}
	}
	set(r.doc, stamp(c.now), "properties", "publishingProfile", "publishedDate")
	set(r.doc, "Full", "properties", "publishingProfile", "replicationMode")
	if mode := text(c.body, "properties", "publishingProfile", "replicationMode"); mode != "" {
		set(r.doc, mode, "properties", "publishingProfile", "replicationMode")
	}
	r.setState("Creating")
	return reply{status: http.StatusCreated, shows: r.id,
		op: c.buildOperation(r, source, definition, c.laterRefusal(r, source, definition))}
}

// laterRefusal is what the service finds out only when it builds a version, which
// then stays, as Failed, and must be deleted.
func (c *call) laterRefusal(r, source, definition *resource) *apiError {
	if c.missingZRS(r) != "" {
		return refuse(http.StatusBadRequest, "InvalidParameter", "%s", c.s.zrsText())
	}
	has, wants := text(source.doc, "properties", "hyperVGeneration"), text(definition.doc, "properties", "hyperVGeneration")
	if has != "" && wants != "" && !fold(has, wants) && !c.s.TolerateGeneration {
		return refuse(http.StatusConflict, "Conflict",
			"The resource '%s' has a different Hypervisor generation ['%s'] than the parent gallery image '%s' ['%s'].", source.id, has,
			definition.id, wants)
	}
	return nil
}

// buildOperation copies the source into the version; refused makes it fail as late as the service
// would find out.
func (c *call) buildOperation(r, source, definition *resource, refused *apiError) *pending {
	id, sourceID, definitionID, files := r.id, source.id, definition.id, copyFiles(source.files)
	p := &pending{family: galleryFamily, location: r.location(), holds: []string{id}, latency: c.s.delays.Version}
	if fold(text(r.doc, "properties", "publishingProfile", "replicationMode"), "Shallow") {
		p.latency = c.s.delays.ShallowVersion
	}
	p.finish = func(t *tx) *apiError {
		r := t.edit(id)
		if r == nil || refused != nil {
			return refused
		}
		r.files = files
		r.setState("Succeeded")
		r.replicated()
		if best := t.latest(definitionID, r.location()); best != nil && best.id == id {
			t.upgradeOS(definitionID)
		}
		return nil
	}
	p.fail = func(t *tx, _ *apiError) {
		if r := t.edit(id); r != nil {
			r.setState("Failed")
		}
	}
	if refused != nil {
		p.latency = min(p.latency, c.s.delays.UpdateVersion)
	} else if m := c.s.Machines; m != nil {
		p.work = func(ctx context.Context) error { return m.Build(ctx, sourceID, id) }
	}
	return p
}

// defaults fills the publishing profile as the service does.
func (c *call) defaults(definition *resource) {
	profile := part(c.body, "properties", "publishingProfile")
	if profile == nil {
		profile = object{}
		set(c.body, profile, "properties", "publishingProfile")
	}
	replicas, storage := any(1), any("Standard_LRS")
	if n, ok := profile["replicaCount"]; ok && n != nil {
		replicas = n
	}
	if kind, ok := profile["storageAccountType"].(string); ok {
		storage = kind
	}
	profile["replicaCount"], profile["storageAccountType"] = replicas, storage
	if len(items(profile, "targetRegions")) == 0 {
		profile["targetRegions"] = array(object{"name": text(c.body, "location")})
	}
	for _, region := range items(profile, "targetRegions") {
		if _, ok := region["regionalReplicaCount"]; !ok {
			region["regionalReplicaCount"] = replicas
		}
		if text(region, "storageAccountType") == "" {
			region["storageAccountType"] = storage
		}
	}
	if _, ok := profile["excludeFromLatest"]; !ok {
		profile["excludeFromLatest"] = false
	}
}

func (c *call) checkVersion(definition *resource) (*resource, *apiError) {
	name, location := c.rt.names[2], text(c.body, "location")
	for _, number := range strings.Split(name, ".") {
		if _, err := strconv.ParseInt(number, 10, 32); err != nil || !versionName.MatchString(name) {
			return nil, refuse(http.StatusBadRequest, "InvalidParameter",
				"The image version name is invalid. The image version name should follow Major(int).Minor(int).Patch(int) format, for example: 1.0.0, 2018.12.1 etc.")
		}
	}
	if location == "" {
		return nil, refuse(http.StatusBadRequest, "LocationRequired", "The location property is required for this definition.")
	}
	regions := items(c.body, "properties", "publishingProfile", "targetRegions")
	home := len(regions) == 0
	for _, region := range regions {
		home = home || sameRegion(text(region, "name"), location)
	}
	if !home {
		return nil, refuse(http.StatusBadRequest, "InvalidParameter",
			"The publishing profile regions must contain the location of image version '%s'.", location)
	}
	id := text(c.body, "properties", "storageProfile", "osDiskImage", "source", "id")
	if id == "" {
		id = text(c.body, "properties", "storageProfile", "source", "id")
	}
	if id == "" {
		return nil, refuse(http.StatusBadRequest, "InvalidParameter",
			"Required parameter 'storageProfile.osDiskImage.source.id' is missing (null).")
	}
	source := c.t.get(id)
	if source == nil || source.hidden || source.files == nil || source.kind.name == disks && text(source.doc, "managedBy") != "" {
		return nil, refuse(http.StatusNotFound, "ResourceNotFound", "The source '%s' of the image version was not found or cannot be used.",
			id)
	}
	return source, c.checkSource(definition, source)
}

// checkSource compares what a version is built from with its definition.
func (c *call) checkSource(definition, source *resource) *apiError {
	if source.state() != "Succeeded" {
		return refuse(http.StatusConflict, "OperationNotAllowed", "The source '%s' is not ready: its provisioning state is '%s'.",
			source.id, source.state())
	}
	if !sameRegion(source.location(), text(c.body, "location")) {
		return refuse(http.StatusBadRequest, "InvalidParameter",
			"The source '%s' is in %s; it must be in the location of the image version, %s.", source.id, source.location(),
			text(c.body, "location"))
	}
	if source.kind.name == snapshots && feature(definition, "SecurityType") == "TrustedLaunchSupported" {
		// hashicorp/packer-plugin-azure#304
		return refuse(http.StatusBadRequest, "InvalidParameter",
			"The security type 'TrustedLaunchSupported' is not supported for the source id '%s'. Currently only Vhd Blob, User Image and Gallery Image Version sources are supported.", source.id)
	}
	if arch := text(source.doc, "properties", "supportedCapabilities", "architecture"); arch != "" &&
		!fold(arch, text(definition.doc, "properties", "architecture")) {
		return refuse(http.StatusConflict, "InvalidParameter",
			"The resource '%s' has a different architecture ['%s'] than the parent gallery image '%s' ['%s'].", source.id, arch,
			definition.id, text(definition.doc, "properties", "architecture"))
	}
	return nil
}

// missingZRS is the first region a version wants ZRS in that has none.
func (c *call) missingZRS(r *resource) string {
	for _, region := range items(r.doc, "properties", "publishingProfile", "targetRegions") {
		if strings.HasSuffix(text(region, "storageAccountType"), "_ZRS") && !c.s.hasZRS(text(region, "name")) {
			return text(region, "name")
		}
	}
	return ""
}

// updateVersion changes the publishing and safety profiles of a version; its source and mode stay.
func (c *call) updateVersion(old *resource) reply {
	if old.state() == "Deleting" { // azure-compute-docs, troubleshooting-shared-images.md; the code is assumed
		return failed(http.StatusConflict, "OperationNotAllowed",
			"Operation 'Update Gallery Image Version' is not on allowed on %s; since it is marked for deletion.", old.name())
	}
	if properties := part(c.body, "properties"); properties != nil && part(properties, "storageProfile") == nil {
		// Required by the type; that the service insists, and how it says so, is assumed,
		// unverified on real Azure.
		return failed(http.StatusBadRequest, "InvalidParameter",
			"Required parameter 'galleryImageVersion.properties.storageProfile' is missing (null).")
	}
	if source := text(c.body, "properties", "storageProfile", "osDiskImage", "source", "id"); source != "" &&
		!fold(source, text(old.doc, "properties", "storageProfile", "osDiskImage", "source", "id")) {
		return failed(http.StatusConflict, "PropertyChangeNotAllowed",
			"Changing property 'galleryImageVersion.properties.storageProfile.osDiskImage.source.id' is not allowed.")
	}
	for _, fixed := range []string{"replicationMode", "storageAccountType"} {
		sent := text(c.body, "properties", "publishingProfile", fixed)
		if sent != "" && sent != text(old.doc, "properties", "publishingProfile", fixed) {
			return failed(http.StatusConflict, "PropertyChangeNotAllowed",
				"Changing property 'galleryImageVersion.properties.publishingProfile.%s' is not allowed.", fixed)
		}
	}
	if err := c.checkRegions(old); err != nil {
		return reply{err: err}
	}
	unset(c.body, "properties", "storageProfile")
	if profile := part(c.body, "properties", "publishingProfile"); profile != nil {
		if len(items(profile, "targetRegions")) == 0 {
			delete(profile, "targetRegions") // null and empty leave them as they are
		}
		if _, sent := profile["excludeFromLatest"]; !sent && c.r.Method == http.MethodPut {
			profile["excludeFromLatest"] = false // a PUT says the whole; assumed, unverified on real Azure
		}
	}
	rep := c.updateOf(old, c.s.delays.UpdateVersion, nil)
	if rep.op != nil {
		c.t.edit(old.id).flagged(old, c.now)
		finish, id := rep.op.finish, old.id
		rep.op.finish = func(t *tx) *apiError {
			err := finish(t)
			if v := t.edit(id); v != nil {
				v.replicated()
			}
			if v := t.get(id); v != nil {
				if best := t.latest(parent(id), v.location()); best != nil && best.id == id && !same(old.doc, v.doc) {
					t.upgradeOS(parent(id))
				}
			}
			return err
		}
	}
	return rep
}

// checkRegions refuses an update whose publishing profile does not tell the storage
// type of a region as it is; what is left out counts as Standard_LRS
// (Azure/azure-powershell#9911; that a profile without any region is judged so too is
// assumed, unverified on real Azure), and one that forgets a region
// (hashicorp/terraform-provider-azurerm#21999).
func (c *call) checkRegions(old *resource) *apiError {
	profile := part(c.body, "properties", "publishingProfile")
	if profile == nil {
		return nil
	}
	sent := items(profile, "targetRegions")
	for _, was := range items(old.doc, "properties", "publishingProfile", "targetRegions") {
		name, kind, found := text(was, "name"), text(was, "storageAccountType"), len(sent) == 0
		now := text(profile, "storageAccountType")
		for _, region := range sent {
			if sameRegion(text(region, "name"), name) {
				found = true
				if t := text(region, "storageAccountType"); t != "" {
					now = t
				}
			}
		}
		if !found && !truth(old.doc, "properties", "safetyProfile", "allowDeletionOfReplicatedLocations") {
			return refuse(http.StatusBadRequest, "InvalidParameter",
				"Complete set of target locations not specified while updating gallery artifact '%s'. Deletion of previously replicated locations is not allowed, and you need to specify a complete set of target regions, or specify null or empty set for target regions, or set allow deletion of replicated locations under safety profile property.", old.name())
		}
		if now == "" {
			now = "Standard_LRS"
		}
		if kind != "" && found && !fold(now, kind) {
			return refuse(http.StatusBadRequest, "InvalidParameter",
				"Global storage account type does not match the storage account type in the existing TargetRegion: '%s'. Please specify '%s' for the global storage account type.", name, kind)
		}
	}
	return nil
}

// deleteVersion deletes a version, also one that is in use: scale-out then fails.
func deleteVersion(c *call) reply {
	r := c.t.get(c.target.id)
	if r == nil {
		return reply{status: http.StatusNoContent}
	}
	if err := busy(r); err != nil {
		return reply{err: err}
	}
	if end := text(r.doc, "properties", "publishingProfile", "endOfLifeDate"); end > stamp(c.now) &&
		truth(r.doc, "properties", "safetyProfile", "blockDeletionBeforeEndOfLife") {
		return failed(http.StatusConflict, "DeleteGalleryImageVersionBlockedBeforeEndOfLife",
			"The image version '%s' cannot be deleted before its end of life %s.", r.id, end)
	}
	rep := c.removal(r, galleryFamily, c.s.delays.DeleteVersion)
	if gallery := c.t.get(parent(parent(r.id))); c.r.URL.Query().Get("bypassSoftDelete") != "true" &&
		truth(gallery.doc, "properties", "softDeletePolicy", "isSoftDeleteEnabled") {
		rep.op.work, rep.op.finish = nil, func(t *tx) *apiError { t.softDelete(r.id); return nil }
	}
	return rep
}
