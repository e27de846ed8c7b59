package emulator

import (
	"net/http"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// imagePatch points the model at an image the way that keeps everything else.
func imagePatch(version string) string {
	return `{"properties":{"virtualMachineProfile":{"storageProfile":{"imageReference":{"id":"` + version + `"},"osDisk":{"caching":"ReadWrite","diskSizeGB":30,"managedDisk":{"storageAccountType":"Premium_LRS"}}}}}}`
}

func TestTheMainJob(t *testing.T) {
	w := onePool(t, nil)
	donor := w.instance("0")
	if err := w.s.WriteDisk(donor.ID, func(files map[string]string) { files["/sealed"] = "yes" }); err != nil {
		t.Fatal(err)
	}
	w.must(201, http.MethodPut, galleryPath, `{`+location+`}`)
	w.clock.Advance(time.Minute)
	w.must(201, http.MethodPut, definitionURL, definitionDoc)
	w.clock.Advance(time.Minute)
	stop := w.must(202, http.MethodPost, donor.ID+"/powerOff?skipShutdown=false", "")
	if got := text(w.poll(stop).body, "status"); got != "InProgress" {
		t.Fatalf("stop is %s", got)
	}
	if got := w.instance("0").PowerState; got != PowerStopping {
		t.Fatalf("power %s", got)
	}
	w.clock.Advance(2 * time.Minute)
	if got := text(w.poll(stop).body, "status"); got != "Succeeded" || w.instance("0").PowerState != PowerStopped {
		t.Fatalf("stop is %s, power %s", got, w.instance("0").PowerState)
	}
	snapshot := w.must(202, http.MethodPut, compute+"/snapshots/s1", w.snapshotDoc("0"))
	w.clock.Advance(15 * time.Second)
	if half, _ := number(w.must(200, http.MethodGet, compute+"/snapshots/s1", "").body, "properties", "completionPercent"); half != 50 {
		t.Fatalf("snapshot is %d %% complete after half its time", half)
	}
	w.clock.Advance(15 * time.Second)
	if got := text(w.poll(snapshot).body, "status"); got != "Succeeded" {
		t.Fatalf("snapshot is %s", got)
	}
	w.must(202, http.MethodPost, donor.ID+"/start", "")
	w.clock.Advance(2 * time.Minute)
	build := w.must(201, http.MethodPut, definitionURL+"/versions/2026.11.20", versionDoc("s1"))
	w.clock.Advance(330 * time.Second)
	status := w.must(200, http.MethodGet, definitionURL+"/versions/2026.11.20?$expand=ReplicationStatus", "")
	if progress, _ := number(items(status.body, "properties", "replicationStatus", "summary")[0], "progress"); progress != 50 {
		t.Fatalf("version is %d %% replicated after half its time: %v", progress, status.body)
	}
	w.clock.Advance(330 * time.Second)
	if got := text(w.poll(build).body, "status"); got != "Succeeded" {
		t.Fatalf("version is %s", got)
	}
	w.must(202, http.MethodDelete, compute+"/snapshots/s1", "")
	w.clock.Advance(time.Minute)
	w.must(404, http.MethodGet, compute+"/snapshots/s1", "")
	model := w.must(200, http.MethodGet, poolPath, "")
	w.must(200, http.MethodPatch, poolPath, imagePatch(definitionURL+"/versions/2026.11.20"), "If-Match", text(model.body, "etag"))
	w.clock.Advance(time.Minute)
	w.must(200, http.MethodPatch, poolPath, `{"sku":{"name":"Standard_D2s_v3","tier":"Standard","capacity":4}}`)
	w.clock.Advance(time.Minute)
	clone := w.instance("3")
	if clone.ExactVersion != "2026.11.20" || clone.ComputerName != "pool1000003" || clone.PowerState != PowerRunning {
		t.Fatalf("clone %+v", clone)
	}
	files, err := w.s.ReadDisk(clone.ID)
	if err != nil || files["/sealed"] != "yes" {
		t.Fatalf("clone's disk %v, %v", files, err)
	}
	if diff := cmp.Diff(donor.VMID, w.instance("0").VMID); diff != "" {
		t.Fatal(diff)
	}
}
