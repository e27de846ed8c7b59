package emulator

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"
)

// Point 5: galleries.

func mustJSON(t *testing.T, value any) []byte {
	t.Helper()
	raw, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

func TestGalleryNames(t *testing.T) {
	w := onePool(t, instant)
	w.refused(400, "InvalidParameter", "a-b", http.MethodPut, compute+"/galleries/a-b", `{`+location+`}`)
	w.must(201, http.MethodPut, galleryPath, `{`+location+`}`)
	w.must(200, http.MethodPut, galleryPath, `{`+location+`,"tags":{"a":"b"}}`)
	second := strings.Replace(galleryPath, "kamino-lab", "second", 1)
	w.must(201, http.MethodPut, strings.Replace(groupPath, "kamino-lab", "second", 1), `{`+location+`}`)
	w.refused(409, "Conflict", "already used in this subscription", http.MethodPut, second, `{`+location+`}`)
}

func TestDefinitionRules(t *testing.T) {
	w := onePool(t, instant)
	w.refused(404, "ResourceNotFound", "galleries/g1", http.MethodPut, definitionURL, definitionDoc)
	w.must(201, http.MethodPut, galleryPath, `{`+location+`}`)
	w.refused(400, "InvalidParameter", "galleryImage.name", http.MethodPut, galleryPath+"/images/_x", definitionDoc)
	w.refused(400, "InvalidParameter", "galleryImage.name", http.MethodPut, galleryPath+"/images/x-", definitionDoc)
	w.refused(400, "InvalidParameter", "identifier.publisher", http.MethodPut, definitionURL, strings.Replace(definitionDoc, `"kamino"`, `"kamino."`, 1))
	w.must(201, http.MethodPut, definitionURL, definitionDoc)
	w.must(200, http.MethodPut, definitionURL, definitionDoc)
	w.refused(409, "Conflict", "already used", http.MethodPut, galleryPath+"/images/pool2", definitionDoc)
	w.refused(409, "PropertyChangeNotAllowed", "Changing property 'galleryImage.properties.hyperVGeneration' is not allowed.",
		http.MethodPut, definitionURL, strings.Replace(definitionDoc, `"V2"`, `"V1"`, 1))
	w.refused(409, "CannotDeleteResource", "Can not delete resource before nested resources are deleted", http.MethodDelete, galleryPath, "")
	w.must(200, http.MethodDelete, definitionURL, "")
	w.must(200, http.MethodDelete, galleryPath, "")
}

func TestDefaultSecurityFollowsTheAPIVersion(t *testing.T) {
	w := onePool(t, instant)
	w.must(201, http.MethodPut, galleryPath, `{`+location+`}`)
	bare := func(sku string) string {
		return `{` + location + `,"properties":{"osType":"Linux","osState":"Generalized","identifier":{"publisher":"k","offer":"o","sku":"` + sku + `"}}}`
	}
	old := w.must(201, http.MethodPut, galleryPath+"/images/old?api-version=2021-10-01", bare("old")).body
	if got := text(old, "properties", "hyperVGeneration"); got != "V1" || has(old, "properties", "features") {
		t.Errorf("old default %v", old)
	}
	modern := w.must(201, http.MethodPut, galleryPath+"/images/new?api-version=2025-03-03", bare("new")).body
	if text(modern, "properties", "hyperVGeneration") != "V2" || text(items(modern, "properties", "features")[0], "value") != "TrustedLaunchSupported" {
		t.Errorf("new default %v", modern)
	}
	w.must(200, http.MethodPut, compute+"/snapshots/s", w.snapshotDoc("0"))
	w.refused(400, "InvalidParameter", "'TrustedLaunchSupported' is not supported for the source id", http.MethodPut, galleryPath+"/images/new/versions/1.0.0", versionDoc("s"))
	begun := w.must(201, http.MethodPut, galleryPath+"/images/old/versions/1.0.0", versionDoc("s"))
	failed := w.poll(begun)
	if text(failed.body, "status") != "Failed" || text(failed.body, "error", "code") != "Conflict" ||
		!strings.Contains(text(failed.body, "error", "message"), "different Hypervisor generation ['V2'] than the parent gallery image") {
		t.Errorf("operation %v", failed.body)
	}
	if state := text(w.must(200, http.MethodGet, galleryPath+"/images/old/versions/1.0.0", "").body, "properties", "provisioningState"); state != "Failed" {
		t.Errorf("version is %s", state)
	}
}

func TestVersionRules(t *testing.T) {
	w := onePool(t, instant)
	w.build("0", "1.0.0")
	put := func(name, body string) answer { return w.do(http.MethodPut, definitionURL+"/versions/"+name, body) }
	for _, name := range []string{"1.0", "1.0.x", "1.0.99999999999", "1.0.0.0"} {
		if a := put(name, versionDoc("s-1.0.0")); a.status != 400 || !strings.Contains(a.message(), "Major(int).Minor(int).Patch(int)") {
			t.Errorf("%s: %d %s", name, a.status, a.message())
		}
	}
	w.refused(400, "InvalidParameter", "must contain the location of image version", http.MethodPut, definitionURL+"/versions/1.0.1",
		strings.Replace(versionDoc("s-1.0.0"), `[{"name":"westeurope"}]`, `[{"name":"northeurope"}]`, 1))
	w.refused(404, "ResourceNotFound", "snapshots/none", http.MethodPut, definitionURL+"/versions/1.0.1", versionDoc("none"))
	w.refused(409, "PropertyChangeNotAllowed", "source", http.MethodPut, definitionURL+"/versions/1.0.0", versionDoc("s-other"))
	w.must(200, http.MethodPut, definitionURL+"/versions/1.0.0", versionDoc("s-1.0.0"))
	w.refused(409, "PropertyChangeNotAllowed", "replicationMode", http.MethodPatch, definitionURL+"/versions/1.0.0", `{"properties":{"storageProfile":{},"publishingProfile":{"replicationMode":"Shallow"}}}`)
	w.must(200, http.MethodPatch, definitionURL+"/versions/1.0.0", `{"properties":{"storageProfile":{},"publishingProfile":{"excludeFromLatest":true}}}`)
	if got := w.s.Document(definitionURL + "/versions/1.0.0"); !truth(got, "properties", "publishingProfile", "excludeFromLatest") || len(items(got, "properties", "publishingProfile", "targetRegions")) != 1 {
		t.Errorf("patched %v", got)
	}
	if has(w.must(200, http.MethodGet, definitionURL+"/versions/1.0.0", "").body, "properties", "replicationStatus") {
		t.Error("replication status shown unasked")
	}
}

func TestZRSWhereThereIsNone(t *testing.T) {
	w := onePool(t, func(s *Server) { s.NoZRS = []string{"West Europe"} })
	w.must(201, http.MethodPut, galleryPath, `{`+location+`}`)
	w.clock.Advance(time.Minute)
	w.must(201, http.MethodPut, definitionURL, definitionDoc)
	w.must(202, http.MethodPut, compute+"/snapshots/s", w.snapshotDoc("0"))
	w.clock.Advance(time.Minute)
	begun := w.must(201, http.MethodPut, definitionURL+"/versions/1.0.0", strings.Replace(versionDoc("s"), `"replicaCount":3`, `"replicaCount":3,"storageAccountType":"Standard_ZRS"`, 1))
	w.clock.Advance(time.Hour)
	got := w.poll(begun)
	if text(got.body, "status") != "Failed" || !strings.Contains(text(got.body, "error", "message"), "ZRS storage account type is not supported in this region.") ||
		!strings.Contains(text(got.body, "error", "message"), "detail:ZRS is not supported") {
		t.Fatalf("operation %v", got.body)
	}
	left := w.must(200, http.MethodGet, definitionURL+"/versions/1.0.0?$expand=ReplicationStatus", "")
	if text(left.body, "properties", "provisioningState") != "Failed" || text(left.body, "properties", "replicationStatus", "aggregatedState") != "Failed" {
		t.Fatalf("the failed version: %v", left.body)
	}
	names := map[string]bool{}
	for _, sku := range items(w.must(200, http.MethodGet, "/subscriptions/00000000-0000-0000-0000-000000000001/providers/Microsoft.Compute/skus?$filter=location%20eq%20'westeurope'", "").body, "value") {
		names[text(sku, "resourceType")+" "+text(sku, "name")] = true
	}
	if names["snapshots Standard_ZRS"] || !names["snapshots Standard_LRS"] || !names["virtualMachines Standard_D2s_v3"] {
		t.Fatalf("skus %v", names)
	}
}

func TestTheSourceIsLockedDuringTheBuild(t *testing.T) {
	w := onePool(t, func(s *Server) {
		s.Latencies = NoLatency()
		s.Latencies.Version = 10 * time.Minute
	})
	w.must(201, http.MethodPut, galleryPath, `{`+location+`}`)
	w.must(201, http.MethodPut, definitionURL, definitionDoc)
	w.must(200, http.MethodPut, compute+"/snapshots/s", w.snapshotDoc("0"))
	w.must(201, http.MethodPut, definitionURL+"/versions/1.0.0", versionDoc("s"))
	w.refused(409, "OperationNotAllowed", "being read to build", http.MethodDelete, compute+"/snapshots/s", "")
	w.refused(409, "Conflict", "", http.MethodPut, definitionURL+"/versions/1.0.0", versionDoc("s"))
	w.refused(404, "GalleryImageNotFound", "", http.MethodPatch, poolPath, imagePatch(definitionURL+"/versions/1.0.0"))
	w.clock.Advance(10 * time.Minute)
	w.must(200, http.MethodDelete, compute+"/snapshots/s", "")
}

func TestLatestIsTheHighestNumberNotExcluded(t *testing.T) {
	w := onePool(t, instant)
	for _, version := range []string{"2026.9.30", "2026.10.1", "2026.11.20"} {
		w.build("0", version)
	}
	w.must(200, http.MethodPatch, definitionURL+"/versions/2026.11.20", `{"properties":{"storageProfile":{},"publishingProfile":{"excludeFromLatest":true}}}`)
	w.must(200, http.MethodPatch, poolPath, imagePatch(definitionURL))
	w.must(200, http.MethodPatch, poolPath, `{"sku":{"capacity":4}}`)
	if got := w.instance("3").ExactVersion; got != "2026.10.1" {
		t.Fatalf("latest is %s", got)
	}
}

func TestDeletingTheVersionInUseBreaksScaleOut(t *testing.T) {
	w := onePool(t, instant)
	version := w.build("0", "1.0.0")
	w.must(200, http.MethodPatch, poolPath, imagePatch(version))
	w.must(200, http.MethodPatch, poolPath, `{"sku":{"capacity":4}}`)
	w.must(200, http.MethodDelete, version, "")
	w.refused(404, "GalleryImageNotFound", "not available", http.MethodPatch, poolPath, `{"sku":{"capacity":5}}`)
	w.refused(404, "GalleryImageNotFound", "", http.MethodPost, poolPath+"/virtualMachines/3/reimage", "")
	if n := len(w.s.Instances()); n != 4 || w.instance("3").PowerState != PowerRunning {
		t.Fatalf("%d instances", n)
	}
}

func TestSecurityTypesMustFit(t *testing.T) {
	w := newWorld(t, Scenario{Pools: []Pool{{Name: "pool1", Count: 1}, {Name: "trusted", Count: 1, SecurityType: "TrustedLaunch"}}}, instant)
	standard := w.build("0", "1.0.0")
	trusted := compute + "/virtualMachineScaleSets/trusted"
	w.refused(400, "BadRequest", "'TrustedLaunch' security type", http.MethodPatch, trusted, imagePatch(standard))
	w.must(201, http.MethodPut, galleryPath+"/images/trusted", strings.NewReplacer(`"Standard"`, `"TrustedLaunch"`, `"pool1"`, `"trusted"`).Replace(definitionDoc))
	w.must(201, http.MethodPut, galleryPath+"/images/trusted/versions/1.0.0", versionDoc("s-1.0.0"))
	w.refused(400, "BadRequest", "only supports creation of VMs and VM Scale Sets with 'TrustedLaunch' security type", http.MethodPatch, poolPath, imagePatch(galleryPath+"/images/trusted/versions/1.0.0"))
	w.must(200, http.MethodPatch, trusted, imagePatch(galleryPath+"/images/trusted/versions/1.0.0"))
}

func TestAProtectedVersionOutlivesItsDelete(t *testing.T) {
	w := onePool(t, instant)
	version := w.build("0", "1.0.0")
	w.must(200, http.MethodPatch, version, `{"properties":{"storageProfile":{},"publishingProfile":{"endOfLifeDate":"2027-01-01T00:00:00Z"},"safetyProfile":{"blockDeletionBeforeEndOfLife":true}}}`)
	w.refused(409, "DeleteGalleryImageVersionBlockedBeforeEndOfLife", "", http.MethodDelete, version, "")
}
