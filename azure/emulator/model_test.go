package emulator

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// Point 4: the scale set's model.

func (w *world) model() map[string]any {
	w.Helper()
	return w.must(200, http.MethodGet, poolPath, "").body
}

func (w *world) stateOf(id string) StateEntry {
	w.Helper()
	for _, e := range w.s.State() {
		if fold(e.ID, id) {
			return e
		}
	}
	w.Fatalf("no %s in the state", id)
	return StateEntry{}
}

func TestEtagCountsModelWrites(t *testing.T) {
	w := onePool(t, instant)
	if etag := text(w.model(), "etag"); etag != `"1"` {
		t.Fatalf("etag %s", etag)
	}
	w.must(200, http.MethodPatch, poolPath, `{"tags":{"a":"1"}}`, "If-Match", `"1"`)
	w.must(200, http.MethodPatch, poolPath, `{"tags":{"a":"2"}}`, "If-Match", `"2"`)
	w.refused(412, "PreconditionFailed", `Etag provided in if-match header "2" does not match etag "3" of resource.`,
		http.MethodPatch, poolPath, `{"tags":{"a":"3"}}`, "If-Match", `"2"`)
	w.must(200, http.MethodPatch, poolPath, `{"tags":{"a":"4"}}`, "If-Match", "*")
	w.refused(412, "PreconditionFailed", `does not match etag "4" of resource.`, http.MethodPut, poolPath, `{`+location+`}`, "If-Match", `"2"`)
	w.refused(412, "PreconditionFailed", "exists", http.MethodPut, poolPath, `{`+location+`}`, "If-None-Match", "*")
	if tag := text(w.model(), "tags", "a"); tag != "4" {
		t.Fatalf("tag %s", tag)
	}
}

func TestPatchOfTheImageAloneResetsTheOSDisk(t *testing.T) {
	w := onePool(t, instant)
	version := w.build("0", "1.0.0")
	disk := []string{"properties", "virtualMachineProfile", "storageProfile", "osDisk"}
	before := part(w.model(), disk...)
	w.must(200, http.MethodPatch, poolPath, imagePatch(version))
	if diff := cmp.Diff(before, part(w.model(), disk...)); diff != "" {
		t.Fatalf("a full PATCH changed the disk: %s", diff)
	}
	w.must(200, http.MethodPatch, poolPath, `{"properties":{"virtualMachineProfile":{"storageProfile":{"imageReference":{"id":"`+version+`"}}}}}`)
	after := part(w.model(), disk...)
	if text(after, "caching") != "None" || text(after, "managedDisk", "storageAccountType") != "Standard_LRS" {
		t.Fatalf("disk %v", after)
	}
	image := part(w.model(), "properties", "virtualMachineProfile", "storageProfile", "imageReference")
	if diff := cmp.Diff(map[string]any{"id": version}, image); diff != "" {
		t.Fatalf("image reference: %s", diff)
	}
}

func TestPatchOfStorageNeedsTheImage(t *testing.T) {
	w := onePool(t, instant)
	w.refused(400, "InvalidParameter", "Required parameter 'imageReference' is missing (null).",
		http.MethodPatch, poolPath, `{"properties":{"virtualMachineProfile":{"storageProfile":{"osDisk":{"caching":"None"}}}}}`)
}

func TestWriteOnlyFieldsStayHiddenAndSurviveAPut(t *testing.T) {
	w := onePool(t, instant)
	before := w.stateOf(poolPath)
	if before.CustomDataHash == "" || cmp.Diff([]string{"vmsscse"}, before.Protected) != "" {
		t.Fatalf("seed: %+v", before)
	}
	model := w.model()
	raw := string(mustJSON(t, model))
	for _, secret := range []string{"customData", "protectedSettings", "bootstrap.sh", "adminPassword"} {
		if strings.Contains(raw, secret) {
			t.Errorf("GET shows %s", secret)
		}
	}
	// What azure-cli sends to delete an extension: the model without image, custom data and one
	// extension.
	profile := part(model, "properties", "virtualMachineProfile")
	delete(part(profile, "storageProfile"), "imageReference")
	extensionProfile := part(profile, "extensionProfile")
	extensionProfile["extensions"] = extensionProfile["extensions"].([]any)[:1]
	w.must(200, http.MethodPut, poolPath, string(mustJSON(t, model)))
	after := w.stateOf(poolPath)
	if after.CustomDataHash != before.CustomDataHash || cmp.Diff(before.Protected, after.Protected) != "" {
		t.Fatalf("PUT lost write-only fields: %+v", after)
	}
	if got := text(w.model(), "properties", "virtualMachineProfile", "storageProfile", "imageReference", "publisher"); got != "Generic" {
		t.Fatalf("PUT lost the image: %s", got)
	}
	if n := len(items(w.model(), "properties", "virtualMachineProfile", "extensionProfile", "extensions")); n != 1 {
		t.Fatalf("%d extensions", n)
	}
	w.must(200, http.MethodPatch, poolPath, `{"properties":{"virtualMachineProfile":{"extensionProfile":{"extensions":[]}}}}`)
	if left := w.stateOf(poolPath).Protected; len(left) != 0 {
		t.Fatalf("protected settings of removed extensions: %v", left)
	}
}

func TestCustomAndUserData(t *testing.T) {
	w := onePool(t, instant)
	was := w.stateOf(poolPath).CustomDataHash
	custom := func(value string) string {
		return `{"properties":{"virtualMachineProfile":{"osProfile":{"customData":"` + value + `"}}}}`
	}
	w.refused(400, "InvalidParameter", "Base64", http.MethodPatch, poolPath, custom("#not base64"))
	w.must(200, http.MethodPatch, poolPath, custom(""))
	if got := w.stateOf(poolPath).CustomDataHash; got != was {
		t.Error("an empty string removed the custom data")
	}
	w.must(200, http.MethodPatch, poolPath, custom("I2Nsb3VkLWNvbmZpZwo="))
	if got := w.stateOf(poolPath).CustomDataHash; got != hash("I2Nsb3VkLWNvbmZpZwo=") {
		t.Errorf("hash %s", got)
	}
	user := func(value string) string {
		return `{"properties":{"virtualMachineProfile":{"userData":"` + value + `"}}}`
	}
	w.must(200, http.MethodPatch, poolPath, user("aGVsbG8K"))
	if has(w.model(), "properties", "virtualMachineProfile", "userData") {
		t.Error("user data shown unasked")
	}
	shown := w.must(200, http.MethodGet, poolPath+"?$expand=userData", "").body
	if got := text(shown, "properties", "virtualMachineProfile", "userData"); got != "aGVsbG8K" {
		t.Errorf("user data %q", got)
	}
	w.must(200, http.MethodPatch, poolPath, user(""))
	if got := w.stateOf(poolPath).UserDataHash; got != "" {
		t.Error("an empty string did not delete the user data")
	}
}

func TestIdentityValuesAreRefused(t *testing.T) {
	sc := Scenario{Pools: []Pool{{Name: "pool1", Count: 1, UserAssignedIdentities: []string{groupPath + "/providers/Microsoft.ManagedIdentity/userAssignedIdentities/id1"}}}}
	w := newWorld(t, sc, instant)
	body := string(mustJSON(t, w.model()))
	w.refused(400, "InvalidIdentityValues", "id1", http.MethodPut, poolPath, body)
	tolerant := newWorld(t, sc, func(s *Server) { instant(s); s.TolerateIdentityValues = true })
	tolerant.must(200, http.MethodPut, poolPath, body)
}

func TestAPutCarriesItsOldCapacity(t *testing.T) {
	w := onePool(t, instant)
	stale := string(mustJSON(t, w.model()))
	w.must(200, http.MethodPatch, poolPath, `{"sku":{"capacity":5}}`)
	if n := len(w.s.Instances()); n != 5 {
		t.Fatalf("%d instances", n)
	}
	w.must(200, http.MethodPut, poolPath, stale)
	if n := len(w.s.Instances()); n != 3 {
		t.Fatalf("%d instances after a PUT of the old model", n)
	}
}

func TestScaleInSparesProtectedInstances(t *testing.T) {
	w := onePool(t, instant)
	w.must(200, http.MethodPut, poolPath+"/virtualMachines/2", `{"location":"westeurope","properties":{"protectionPolicy":{"protectFromScaleIn":true}}}`)
	w.must(200, http.MethodPatch, poolPath, `{"sku":{"capacity":1}}`)
	if list := w.s.Instances(); len(list) != 1 || list[0].InstanceID != "2" {
		t.Fatalf("left: %+v", list)
	}
	w.must(200, http.MethodDelete, poolPath+"/virtualMachines/2", "")
	if capacity, _ := number(w.model(), "sku", "capacity"); capacity != 0 || len(w.s.Instances()) != 0 {
		t.Fatalf("an explicit delete was not obeyed: capacity %d", capacity)
	}
}

func TestPlatformImageMayBecomeGalleryButNotManagedImage(t *testing.T) {
	w := onePool(t, instant)
	w.refused(409, "OperationNotAllowed", "Image type", http.MethodPatch, poolPath, imagePatch(compute+"/images/managed"))
	w.refused(404, "GalleryImageNotFound", "not available in westeurope", http.MethodPatch, poolPath, imagePatch(definitionURL+"/versions/9.9.9"))
	w.must(200, http.MethodPatch, poolPath, imagePatch(w.build("0", "1.0.0")))
}

func TestExtensionsAreResources(t *testing.T) {
	w := onePool(t, nil)
	list := items(w.must(200, http.MethodGet, poolPath+"/extensions", "").body, "value")
	if len(list) != 2 || text(list[1], "properties", "type") != "Compute.AKS-Engine.Linux.Billing" {
		t.Fatalf("extensions %v", list)
	}
	w.must(200, http.MethodGet, poolPath+"/extensions/vmsscse", "")
	w.must(202, http.MethodDelete, poolPath+"/extensions/vmssCSE", "")
	w.clock.Advance(10 * time.Second)
	w.must(404, http.MethodGet, poolPath+"/extensions/vmssCSE", "")
	w.must(204, http.MethodDelete, poolPath+"/extensions/vmssCSE", "")
	if etag := text(w.model(), "etag"); etag != `"2"` {
		t.Fatalf("etag %s", etag)
	}
	added := w.must(201, http.MethodPut, poolPath+"/extensions/health", `{"properties":{"publisher":"Microsoft.ManagedServices","type":"ApplicationHealthLinux","typeHandlerVersion":"1.0","protectedSettings":{"k":"v"}}}`)
	w.clock.Advance(time.Minute)
	if strings.Contains(string(mustJSON(t, added.body)), "protectedSettings") || len(items(w.must(200, http.MethodGet, poolPath+"/extensions", "").body, "value")) != 2 {
		t.Fatalf("added %v", added.body)
	}
}

func TestScaleSetsAreCreatedAndDeleted(t *testing.T) {
	w := onePool(t, instant)
	model := w.model()
	model["sku"] = map[string]any{"name": "Standard_D2s_v3", "capacity": 2}
	part(model, "properties", "virtualMachineProfile", "osProfile")["computerNamePrefix"] = "other"
	path := compute + "/virtualMachineScaleSets/other"
	w.must(201, http.MethodPut, path, string(mustJSON(t, model)))
	list := items(w.must(200, http.MethodGet, path+"/virtualMachines", "").body, "value")
	if len(list) != 2 || text(list[1], "properties", "osProfile", "computerName") != "other000001" {
		t.Fatalf("instances %v", list)
	}
	w.must(200, http.MethodDelete, path, "")
	w.must(404, http.MethodGet, path, "")
	if n := len(w.s.Instances()); n != 3 {
		t.Fatalf("%d instances left", n)
	}
}

func TestAFailedUpdateLeavesTheOldModel(t *testing.T) {
	w := onePool(t, nil)
	w.s.AddFault(Fault{Method: "PATCH", Kind: FailOperation, Code: "AllocationFailed", Message: "no room"})
	begun := w.must(200, http.MethodPatch, poolPath, `{"sku":{"capacity":4}}`)
	w.clock.Advance(2 * time.Minute)
	if got := w.poll(begun); text(got.body, "status") != "Failed" || text(got.body, "error", "code") != "AllocationFailed" {
		t.Fatalf("operation %v", got.body)
	}
	capacity, _ := number(w.model(), "sku", "capacity")
	if capacity != 3 || len(w.s.Instances()) != 3 || text(w.model(), "properties", "provisioningState") != "Failed" {
		t.Fatalf("capacity %d, %d instances", capacity, len(w.s.Instances()))
	}
}
