package emulator

type handler = func(*call) reply

// allKinds is the table of everything ARM serves here, by lower-case type.
func allKinds() map[string]*kind {
	permissions := &kind{name: "Microsoft.Authorization/permissions", list: listPermissions}
	tags := tagsKind()
	table := map[string]*kind{
		"subscriptions": {name: "Microsoft.Resources/subscriptions", open: true, get: getResource,
			list: listSubscriptions},
		"resourcegroups": {name: "Microsoft.Resources/subscriptions/resourceGroups", get: getGroup,
			list: listGroups, put: putGroup, patch: putGroup, delete: deleteGroup},
		"microsoft.compute": {name: "Microsoft.Compute", get: getProvider,
			actions: map[string]handler{"register": getProvider}},
		"microsoft.compute/skus":                  {name: "Microsoft.Compute/skus", list: listSKUs},
		"microsoft.authorization/permissions":     permissions,
		"microsoft.authorization/denyassignments": {name: "Microsoft.Authorization/denyAssignments", list: listDenyAssignments},
		"locations":        {name: "Microsoft.Resources/subscriptions/locations", list: listLocations},
		"resources":        {name: "Microsoft.Resources/subscriptions/resources", list: listResources},
		key(tagsType):      tags,
		key(locks):         lockKind(),
		key(loadBalancers): {name: loadBalancers, get: getResource},
		key(subnets):       {name: subnets, get: getResource},
		key(encryptionSets): {name: encryptionSets, get: getResource, list: listArtifacts, put: putEncryptionSet,
			delete: deleteNested},
		"microsoft.compute/locations": {name: "Microsoft.Compute/locations"},
		key(scaleSets):                scaleSetKind(),
		key(scaleSetVMs):              instanceKind(scaleSetVMs),
		key(virtualMachines):          instanceKind(virtualMachines),
		key(extensions): {name: extensions, get: getExtension, list: listExtensions, put: putExtension,
			patch: putExtension, delete: deleteExtension},
		key(disks): {name: disks, get: getResource, list: listArtifacts, delete: deleteArtifact},
		key(snapshots): {name: snapshots, get: getResource, list: listArtifacts, put: putSnapshot, patch: patchSnapshot,
			delete: deleteArtifact, view: viewSnapshot,
			actions: map[string]handler{"begingetaccess": grantAccess, "endgetaccess": revokeAccess},
			spelled: map[string]string{"begingetaccess": "beginGetAccess", "endgetaccess": "endGetAccess"}},
		key(galleries): {name: galleries, get: getResource, list: listArtifacts, put: putGallery,
			patch: patchOf(putGallery), delete: deleteNested},
		key(imageDefs): {name: imageDefs, get: getResource, list: listNested, put: putDefinition,
			patch: patchOf(putDefinition), delete: deleteNested},
		key(imageVersions): {name: imageVersions, get: getResource, list: listNested, put: putVersion,
			patch: patchOf(putVersion), delete: deleteVersion, view: viewVersion},
		"microsoft.compute/locations/versions": {name: "Microsoft.Compute/locations/versions"},
	}
	for _, family := range []string{computeFamily, diskFamily, galleryFamily} {
		name := "Microsoft.Compute/locations/" + family
		table[key(name)] = &kind{name: name, get: getOperation}
	}
	for _, on := range []string{scaleSets, scaleSetVMs, virtualMachines, disks, galleries, imageDefs, imageVersions, snapshots,
		loadBalancers, subnets} {
		table[key(on)+"/providers/permissions"] = permissions
		table[key(on)+"/providers/tags"] = tags
	}
	return table
}

func scaleSetKind() *kind {
	return &kind{
		name: scaleSets, get: getResource, list: listScaleSets, put: putScaleSet, patch: patchScaleSet, delete: deleteScaleSet,
		view:  viewScaleSet,
		reads: map[string]handler{"instanceview": getSetView, "skus": listSetSKUs},
		actions: map[string]handler{
			"poweroff":      onSet(func(c *call, rs []*resource) reply { return c.change(rs, c.powerOff()) }),
			"start":         onSet(func(c *call, rs []*resource) reply { return c.change(rs, c.powerOn()) }),
			"deallocate":    onSet(func(c *call, rs []*resource) reply { return c.change(rs, c.deallocate()) }),
			"restart":       onSet(func(c *call, rs []*resource) reply { return c.change(rs, c.restart()) }),
			"reimage":       onSet((*call).reimage),
			"manualupgrade": onSet((*call).manualUpgrade),
			"delete": func(c *call) reply {
				rs, err := c.chosen()
				if err != nil {
					return reply{err: err}
				}
				return c.removeInstances(rs)
			},
		},
		spelled: map[string]string{"poweroff": "powerOff", "instanceview": "instanceView", "manualupgrade": "manualUpgrade"},
	}
}

func instanceKind(name string) *kind {
	k := &kind{
		name: name, get: getResource, list: listVMs, put: putInstance, patch: putInstance, delete: deleteInstance, view: viewInstance,
		reads: map[string]handler{"instanceview": getInstanceView},
		actions: map[string]handler{
			"poweroff":                    onOne(func(c *call, rs []*resource) reply { return c.change(rs, c.powerOff()) }),
			"start":                       onOne(func(c *call, rs []*resource) reply { return c.change(rs, c.powerOn()) }),
			"deallocate":                  onOne(func(c *call, rs []*resource) reply { return c.change(rs, c.deallocate()) }),
			"restart":                     onOne(func(c *call, rs []*resource) reply { return c.change(rs, c.restart()) }),
			"reimage":                     onOne((*call).reimage),
			"reimageall":                  onOne((*call).reimage),
			"retrievebootdiagnosticsdata": bootDiagnostics,
		},
		spelled: map[string]string{"retrievebootdiagnosticsdata": "retrieveBootDiagnosticsData", "poweroff": "powerOff",
			"instanceview": "instanceView", "reimageall": "reimageAll"},
	}
	if name == scaleSetVMs {
		k.list = listInstances
	}
	return k
}

// listNested lists definitions of a gallery or versions of a definition.
func listNested(c *call) reply {
	if c.read(c.target.id) == nil {
		return notFound(c, c.target.id)
	}
	return c.page(c.readAll(c.target.id, c.target.kind))
}
