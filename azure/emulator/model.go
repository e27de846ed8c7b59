package emulator

import (
	"encoding/base64"
	"net/http"
	"strings"
)

// hide moves the write-only fields of a scale set's body out of the document:
// ARM keeps them when a later write leaves them out, and never shows them.
func (r *resource) hide(body object) *apiError {
	profile := part(body, "properties", "virtualMachineProfile")
	if custom, ok := dig(profile, "osProfile", "customData").(string); ok && custom != "" {
		// "" cannot remove custom data: it counts as never sent (terraform-provider-azurerm says
		// so; unverified).
		if raw, err := base64.StdEncoding.DecodeString(custom); err != nil || len(raw) > 65535 {
			e := refuse(http.StatusBadRequest, "InvalidParameter",
				"Custom data in OSProfile must be in Base64 encoding and with a maximum length of 87380 characters.")
			e.Target = "customData"
			return e
		}
		r.custom = custom
	}
	unset(body, "properties", "virtualMachineProfile", "osProfile", "customData")
	unset(body, "properties", "virtualMachineProfile", "osProfile", "adminPassword")
	if user, ok := profile["userData"].(string); ok { // "" deletes it (azure-cli#17223)
		if raw, err := base64.StdEncoding.DecodeString(user); err != nil || len(raw) > 65535 {
			e := refuse(http.StatusBadRequest, "InvalidParameter",
				"User data must be in Base64 encoding and with a maximum length of 87380 characters.")
			e.Target = "userData"
			return e
		}
		r.user = user
	}
	delete(profile, "userData")
	if r.secrets == nil {
		r.secrets = map[string]object{}
	}
	for _, e := range items(profile, "extensionProfile", "extensions") {
		r.hideSettings(e)
	}
	return nil
}

// hideSettings keeps an extension's protectedSettings apart; {} wipes them, absence keeps them.
func (r *resource) hideSettings(extension object) {
	properties := part(extension, "properties")
	if secret, ok := properties["protectedSettings"].(object); ok {
		r.secrets[strings.ToLower(text(extension, "name"))] = secret
	}
	delete(properties, "protectedSettings")
}

// readOnly are fields of a scale set that a write cannot change.
func stripReadOnly(body object) {
	for _, name := range []string{"id", "name", "type", "etag", "systemData"} {
		delete(body, name)
	}
	for _, name := range []string{"provisioningState", "uniqueId", "timeCreated"} {
		unset(body, "properties", name)
	}
}

// mergePut applies a PUT on an existing scale set: what it leaves out stays, what
// it names as an array or an image reference is replaced.
func mergePut(pool *resource, body object) *apiError {
	if mode := text(body, "properties", "orchestrationMode"); mode != "" && !fold(mode, text(pool.doc, "properties", "orchestrationMode")) {
		return refuse(http.StatusConflict, "PropertyChangeNotAllowed", "Changing property 'orchestrationMode' is not allowed.")
	}
	return mergeModel(pool, body)
}

// mergePatch applies a PATCH, with the traps it has for whoever changes the image.
func mergePatch(pool *resource, body object) *apiError {
	storage := part(body, "properties", "virtualMachineProfile", "storageProfile")
	if storage == nil {
		return mergeModel(pool, body)
	}
	if part(storage, "imageReference") == nil {
		// Azure/azure-rest-api-specs#10322
		e := refuse(http.StatusBadRequest, "InvalidParameter", "Required parameter 'imageReference' is missing (null).")
		e.Target = "imageReference"
		return e
	}
	kept := part(pool.doc, "properties", "virtualMachineProfile", "storageProfile", "osDisk")
	reset := object{"osType": poolOS(pool), "createOption": "FromImage", "caching": "None", "diskSizeGB": 30,
		"managedDisk": object{"storageAccountType": "Standard_LRS"}}
	if has(kept, "diffDiskSettings") {
		reset["diffDiskSettings"] = kept["diffDiskSettings"]
		delete(reset, "managedDisk")
	}
	// Azure/azure-rest-api-specs#13164: whatever of osDisk the PATCH leaves out returns to the
	// image's defaults.
	for name, value := range part(storage, "osDisk") {
		reset[name] = cloneAny(value)
	}
	if err := mergeModel(pool, body); err != nil {
		return err
	}
	set(pool.doc, reset, "properties", "virtualMachineProfile", "storageProfile", "osDisk")
	return nil
}

func mergeModel(pool *resource, body object) *apiError {
	stripReadOnly(body)
	if location := text(body, "location"); location != "" && !sameRegion(location, pool.location()) {
		return refuse(http.StatusConflict, "InvalidResourceLocation",
			"The resource '%s' already exists in location '%s'. A resource with the same name cannot be created in location '%s'.",
			pool.name(), pool.location(), location)
	}
	delete(body, "location")
	if reference := part(body, "properties", "virtualMachineProfile", "storageProfile", "imageReference"); reference != nil {
		for name, value := range reference {
			if value == nil {
				delete(reference, name)
			}
		}
		delete(reference, "exactVersion")
		unset(pool.doc, "properties", "virtualMachineProfile", "storageProfile", "imageReference")
	}
	for _, whole := range []string{"tags", "identity", "plan"} {
		if value, ok := body[whole].(object); ok {
			pool.doc[whole] = value
			delete(body, whole)
		}
	}
	pool.doc = merge(pool.doc, body)
	return checkModel(pool)
}

// checkModel refuses models ARM refuses.
func checkModel(pool *resource) *apiError {
	seen := map[string]bool{}
	for _, e := range items(pool.doc, "properties", "virtualMachineProfile", "extensionProfile", "extensions") {
		name := strings.ToLower(text(e, "name"))
		if name == "" || seen[name] {
			return refuse(http.StatusBadRequest, "InvalidParameter", "The extension name '%s' is missing or used twice.", name)
		}
		seen[name] = true
	}
	for name := range pool.secrets {
		if !seen[name] {
			delete(pool.secrets, name)
		}
	}
	if allow, ok := dig(pool.doc, "properties", "virtualMachineProfile", "osProfile", "allowExtensionOperations").(bool); ok &&
		!allow && len(seen) > 0 {
		return refuse(http.StatusConflict, "OperationNotAllowed", "Extensions are not allowed while allowExtensionOperations is false.")
	}
	if capacity, ok := number(pool.doc, "sku", "capacity"); ok && (capacity < 0 || capacity > 1000) {
		return refuse(http.StatusBadRequest, "InvalidParameter", "The value %d of sku.capacity is out of range 0 to 1000.", capacity)
	}
	return nil
}
