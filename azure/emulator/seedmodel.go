package emulator

// document is the scale set of a pool, as a GET returns it.
func (p Pool) document(id, location string) object {
	os := object{"osType": "Linux", "createOption": "FromImage", "caching": "ReadWrite", "diskSizeGB": 30,
		"managedDisk": object{"storageAccountType": "Premium_LRS"}}
	if p.Ephemeral {
		os = object{"osType": "Linux", "createOption": "FromImage", "caching": "ReadOnly", "diskSizeGB": 30,
			"diffDiskSettings": object{"option": "Local"}, "managedDisk": object{"storageAccountType": "Standard_LRS"}}
	}
	osProfile := object{"computerNamePrefix": p.Prefix, "adminUsername": "azureuser", "allowExtensionOperations": true, "secrets": []any{}}
	if p.Windows {
		os["osType"] = "Windows"
		osProfile["windowsConfiguration"] = object{"provisionVMAgent": true}
	} else {
		osProfile["linuxConfiguration"] = object{"disablePasswordAuthentication": true, "provisionVMAgent": true,
			"ssh": object{"publicKeys": array(object{"path": "/home/azureuser/.ssh/authorized_keys", "keyData": p.SSHKey})}}
	}
	if p.DiskGB > 0 {
		os["diskSizeGB"] = p.DiskGB
	}
	if p.DiskEncryptionSet != "" {
		set(os, object{"id": p.DiskEncryptionSet}, "managedDisk", "diskEncryptionSet")
	}
	profile := object{
		"osProfile":      osProfile,
		"storageProfile": object{"osDisk": os, "imageReference": p.imageReference(), "dataDisks": []any{}},
		"networkProfile": object{"networkInterfaceConfigurations": array(object{"name": "nic", "properties": object{"primary": true,
			"ipConfigurations": array(object{"name": "ip", "properties": object{"primary": true}})}})},
	}
	if p.DiskController != "" {
		set(profile, p.DiskController, "storageProfile", "diskControllerType")
	}
	if extensions := p.extensions(); len(extensions) > 0 {
		profile["extensionProfile"] = object{"extensions": array(extensions...)}
	}
	if p.SecurityType != "" {
		profile["securityProfile"] = object{"securityType": p.SecurityType,
			"uefiSettings": object{"secureBootEnabled": true, "vTpmEnabled": true}}
	}
	if p.Spot {
		profile["priority"], profile["evictionPolicy"] = "Spot", "Delete"
	}
	properties := object{"orchestrationMode": "Uniform", "provisioningState": "Succeeded", "singlePlacementGroup": false,
		"overprovision":            false,
		"platformFaultDomainCount": 1, "uniqueId": identifier(), "virtualMachineProfile": profile}
	if p.Flexible {
		properties["orchestrationMode"] = "Flexible"
	} else {
		upgrade := object{"mode": p.UpgradePolicy}
		if p.AutomaticOSUpgrade {
			upgrade["automaticOSUpgradePolicy"] = object{"enableAutomaticOSUpgrade": true, "disableAutomaticRollback": false}
		}
		properties["upgradePolicy"] = upgrade
	}
	if p.AutomaticRepairs {
		properties["automaticRepairsPolicy"] = object{"enabled": true, "gracePeriod": "PT10M"}
	}
	doc := object{"id": id, "name": p.Name, "type": scaleSets, "location": location, "etag": `"1"`, "tags": p.tags(),
		"sku": object{"name": p.Size, "tier": "Standard", "capacity": p.Count}, "properties": properties}
	if p.Plan != nil {
		doc["plan"] = object{"publisher": p.Plan.Publisher, "product": p.Plan.Product, "name": p.Plan.Name}
	}
	if len(p.Zones) > 0 {
		zones := []any{}
		for _, zone := range p.Zones {
			zones = append(zones, zone)
		}
		doc["zones"] = zones
	}
	if len(p.UserAssignedIdentities) > 0 {
		identities := object{}
		for _, identity := range p.UserAssignedIdentities {
			identities[identity] = object{"clientId": derived("client", identity), "principalId": derived("principal", identity)}
		}
		doc["identity"] = object{"type": "UserAssigned", "userAssignedIdentities": identities}
	}
	return doc
}

func (p Pool) tags() object {
	tags := object{"poolName": p.Name}
	for name, value := range p.Tags {
		tags[name] = value
	}
	return tags
}

func (p Pool) imageReference() object {
	if p.ImageID != "" {
		return object{"id": p.ImageID}
	}
	return object{"publisher": p.Publisher, "offer": p.Offer, "sku": p.SKU, "version": "latest"}
}

func (p Pool) extensions() []object {
	var made []object
	for _, e := range p.Extensions {
		properties := object{"publisher": e.Publisher, "type": e.Type, "typeHandlerVersion": e.Version, "autoUpgradeMinorVersion": true,
			"settings": object{}}
		if e.Settings != nil {
			properties["settings"] = e.Settings
		}
		if e.ProtectedSettings != nil {
			properties["protectedSettings"] = e.ProtectedSettings
		}
		made = append(made, object{"name": e.Name, "properties": properties})
	}
	return made
}
