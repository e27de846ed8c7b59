package emulator

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// Points 6 and 7: instances.

func TestTheOSDiskOfAUniformInstanceIsHidden(t *testing.T) {
	w := onePool(t, instant)
	disk := w.instance("0").OSDiskID
	shown := w.must(200, http.MethodGet, poolPath+"/virtualMachines/0", "").body
	if got := text(shown, "properties", "storageProfile", "osDisk", "managedDisk", "id"); got != disk {
		t.Fatalf("the instance names disk %s", got)
	}
	w.refused(404, "ResourceNotFound", "was not found", http.MethodGet, disk, "")
	if list := items(w.must(200, http.MethodGet, compute+"/disks", "").body, "value"); len(list) != 0 {
		t.Fatalf("disks %v", list)
	}
	w.must(200, http.MethodPut, compute+"/snapshots/s", w.snapshotDoc("0"))
}

func TestSnapshotsKeepTheContentOfTheirMoment(t *testing.T) {
	w := onePool(t, instant)
	donor := w.instance("1")
	write := func(content string) {
		if err := w.s.WriteDisk(donor.ID, func(files map[string]string) { files["/marker"] = content }); err != nil {
			t.Fatal(err)
		}
	}
	write("before")
	w.must(200, http.MethodPut, compute+"/snapshots/s", w.snapshotDoc("1"))
	write("after")
	files, err := w.s.ReadDisk(compute + "/snapshots/s")
	if err != nil || files["/marker"] != "before" {
		t.Fatalf("snapshot holds %v, %v", files, err)
	}
	w.refused(409, "PropertyChangeNotAllowed", "sourceResourceId", http.MethodPut, compute+"/snapshots/s", w.snapshotDoc("0"))
	w.must(200, http.MethodPut, compute+"/snapshots/s", w.snapshotDoc("1"))
	w.refused(404, "ResourceNotFound", "source", http.MethodPut, compute+"/snapshots/s2", strings.ReplaceAll(w.snapshotDoc("1"), "OsDisk", "NoDisk"))
	if _, err := w.s.ReadDisk(compute + "/snapshots/nope"); err == nil {
		t.Fatal("no error for a disk that is not there")
	}
}

// TestSwapDisk: an instance whose OS disk was swapped boots from an empty one, and a snapshot of the
// former disk is still that.
func TestSwapDisk(t *testing.T) {
	w := onePool(t, instant)
	former := w.instance("1")
	if err := w.s.WriteDisk(former.ID, func(files map[string]string) { files["/marker"] = "former" }); err != nil {
		t.Fatal(err)
	}
	of := w.snapshotDoc("1")
	w.s.SwapDisk(former.ID)
	now := w.instance("1")
	shown := w.must(200, http.MethodGet, poolPath+"/virtualMachines/1", "").body
	if files, err := w.s.ReadDisk(now.ID); err != nil || len(files) > 0 || now.OSDiskID == former.OSDiskID || now.VMID != former.VMID ||
		text(shown, "properties", "storageProfile", "osDisk", "managedDisk", "id") != now.OSDiskID {
		t.Errorf("disk %s with %v, %v; it was %s", now.OSDiskID, files, err, former.OSDiskID)
	}
	w.must(200, http.MethodPut, compute+"/snapshots/s", of)
	if files, err := w.s.ReadDisk(compute + "/snapshots/s"); err != nil || files["/marker"] != "former" {
		t.Errorf("the snapshot of the former disk holds %v, %v", files, err)
	}
}

func TestEphemeralDisksRefuse(t *testing.T) {
	w := newWorld(t, Scenario{Pools: []Pool{{Name: "pool1", Count: 1, Ephemeral: true}}}, instant)
	w.refused(409, "OperationNotAllowed", "Operation 'deallocate' is not supported for VMs or VM Scale Set instances using an ephemeral OS disk.",
		http.MethodPost, poolPath+"/virtualMachines/0/deallocate", "")
	w.refused(409, "OperationNotAllowed", "ephemeral", http.MethodPut, compute+"/snapshots/s", w.snapshotDoc("0"))
	if shown := w.must(200, http.MethodGet, poolPath+"/virtualMachines/0", "").body; has(shown, "properties", "storageProfile", "osDisk", "managedDisk", "id") {
		t.Fatalf("an ephemeral disk has an id: %v", shown)
	}
}

func TestPowerStates(t *testing.T) {
	w := onePool(t, nil)
	vm := poolPath + "/virtualMachines/1"
	code := func() string {
		view := w.must(200, http.MethodGet, vm+"/instanceView", "").body
		return text(items(view, "statuses")[1], "code")
	}
	steps := []struct {
		path          string
		during, after string
		took          time.Duration
	}{
		{"/powerOff?skipShutdown=false", PowerStopping, PowerStopped, 120 * time.Second},
		{"/start", PowerStarting, PowerRunning, 120 * time.Second},
		{"/powerOff?skipShutdown=true", PowerStopping, PowerStopped, 10 * time.Second},
		{"/deallocate", PowerDeallocating, PowerDeallocated, 10 * time.Second},
		{"/start", PowerStarting, PowerRunning, 120 * time.Second},
	}
	for _, step := range steps {
		t.Run(step.path, func(t *testing.T) {
			w.must(202, http.MethodPost, vm+step.path, "")
			w.clock.Advance(step.took - time.Second)
			if got := code(); got != step.during {
				t.Fatalf("%s: during it %s, want %s", step.path, got, step.during)
			}
			w.clock.Advance(time.Second)
			if got := code(); got != step.after {
				t.Fatalf("%s: after it %s, want %s", step.path, got, step.after)
			}
		})
	}
	if !truth(w.stateOf(vm).Facts, "tpmReset") {
		t.Error("deallocate kept the TPM state")
	}
	w.must(200, http.MethodPost, vm+"/start", "") // runs already
	w.s.PowerOffFromGuest(vm)
	if got := code(); got != PowerStopped {
		t.Fatalf("after the guest halted: %s", got)
	}
}

func TestSetLevelActionsTakeInstanceIDs(t *testing.T) {
	w := onePool(t, instant)
	w.must(200, http.MethodPost, poolPath+"/poweroff?skipShutdown=false", `{"instanceIds":["0","2"]}`)
	var states []string
	for _, i := range w.s.Instances() {
		states = append(states, i.PowerState)
	}
	if diff := cmp.Diff([]string{PowerStopped, PowerRunning, PowerStopped}, states); diff != "" {
		t.Fatal(diff)
	}
	w.refused(400, "InvalidParameter", "is not an active Virtual Machine Scale Set VM instanceId", http.MethodPost, poolPath+"/start", `{"instanceIds":["7"]}`)
	summary := items(w.must(200, http.MethodGet, poolPath+"/instanceView", "").body, "virtualMachine", "statusesSummary")
	if len(summary) != 3 {
		t.Fatalf("summary %v", summary)
	}
	w.must(200, http.MethodPost, poolPath+"/start", "")
	w.must(200, http.MethodPut, poolPath+"/virtualMachines/0", `{"properties":{"protectionPolicy":{"protectFromScaleSetActions":true}}}`)
	w.refused(409, "OperationNotAllowed", "protected", http.MethodPost, poolPath+"/poweroff", `{"instanceIds":["0"]}`)
	w.must(200, http.MethodPost, poolPath+"/virtualMachines/0/powerOff", "")
	w.must(200, http.MethodPost, poolPath+"/delete", `{"instanceIds":["1"]}`)
	if capacity, _ := number(w.model(), "sku", "capacity"); capacity != 2 {
		t.Fatalf("capacity %d", capacity)
	}
}

func TestExpandShowsViewAndUserData(t *testing.T) {
	w := newWorld(t, Scenario{Pools: []Pool{{Name: "pool1", Count: 1, UserData: "aGVsbG8K"}}}, instant)
	vm := poolPath + "/virtualMachines/0"
	bare := w.must(200, http.MethodGet, vm, "").body
	if has(bare, "properties", "instanceView") || has(bare, "properties", "userData") {
		t.Fatalf("shown unasked: %v", bare)
	}
	full := w.must(200, http.MethodGet, vm+"?$expand=instanceView", "").body
	if text(full, "properties", "instanceView", "hyperVGeneration") != "V2" {
		t.Fatalf("view %v", full)
	}
	if got := text(w.must(200, http.MethodGet, vm+"?$expand=userData", "").body, "properties", "userData"); got != "aGVsbG8K" {
		t.Fatalf("user data %q", got)
	}
}

func TestANewInstanceRecordsItsModel(t *testing.T) {
	w := onePool(t, instant)
	w.must(200, http.MethodPatch, poolPath, `{"properties":{"virtualMachineProfile":{"osProfile":{"customData":"I2Nsb3VkLWNvbmZpZwo="},"extensionProfile":{"extensions":[]}}}}`)
	w.must(200, http.MethodPatch, poolPath, `{"sku":{"capacity":4}}`)
	old, born := w.must(200, http.MethodGet, poolPath+"/virtualMachines/0", "").body, w.must(200, http.MethodGet, poolPath+"/virtualMachines/3", "").body
	if truth(old, "properties", "latestModelApplied") || !truth(born, "properties", "latestModelApplied") {
		t.Error("latestModelApplied does not tell old from new")
	}
	if len(items(old, "resources")) != 2 || len(items(born, "resources")) != 0 {
		t.Errorf("extensions: old %v, new %v", old["resources"], born["resources"])
	}
	if got := w.stateOf(poolPath + "/virtualMachines/3").CustomDataHash; got != hash("I2Nsb3VkLWNvbmZpZwo=") {
		t.Errorf("custom data %s", got)
	}
	if got := w.instance("3").ExactVersion; got != genericVersion {
		t.Errorf("exact version %s", got)
	}
	// Manual upgrade brings an old instance to the model; where the image changed, on a new disk.
	for _, image := range []bool{false, true} {
		disk := w.instance("0").OSDiskID
		if image {
			w.must(200, http.MethodPatch, poolPath, imagePatch(w.build("0", "1.0.0")))
		}
		w.must(200, http.MethodPost, poolPath+"/manualupgrade", `{"instanceIds":["0"]}`)
		if !truth(w.s.Document(poolPath+"/virtualMachines/0"), "properties", "latestModelApplied") || (w.instance("0").OSDiskID != disk) != image {
			t.Errorf("manual upgrade with another image %t: disk %s, before %s", image, w.instance("0").OSDiskID, disk)
		}
	}
}

func TestUpgradePolicyAutomaticReplacesInstances(t *testing.T) {
	for policy, replaced := range map[string]bool{"Manual": false, "Automatic": true, "Rolling": true} {
		t.Run(policy, func(t *testing.T) {
			w := newWorld(t, Scenario{Pools: []Pool{{Name: "pool1", Count: 2, UpgradePolicy: policy}}}, nil)
			before := w.instance("0")
			if err := w.s.WriteDisk(before.ID, func(files map[string]string) { files["/precious"] = "work" }); err != nil {
				t.Fatal(err)
			}
			w.must(200, http.MethodPatch, poolPath, `{"properties":{"virtualMachineProfile":{"osProfile":{"customData":"I2Nsb3VkLWNvbmZpZwo="}}}}`)
			w.clock.Advance(time.Hour)
			files, err := w.s.ReadDisk(before.ID)
			if err != nil {
				t.Fatal(err)
			}
			if gone := files["/precious"] == ""; gone != replaced {
				t.Errorf("%s: replaced is %v", policy, gone)
			}
		})
	}
}

func TestAutomaticOSUpgradeFollowsANewVersion(t *testing.T) {
	w := newWorld(t, Scenario{Pools: []Pool{{Name: "pool1", Count: 2, AutomaticOSUpgrade: true}}}, func(s *Server) {
		s.Latencies = NoLatency()
		s.Latencies.AutomaticUpgrade = 5 * time.Minute
	})
	w.build("0", "1.0.0")
	w.must(200, http.MethodPatch, poolPath, imagePatch(definitionURL))
	w.build("0", "1.1.0")
	if got := w.instance("1").ExactVersion; got != genericVersion {
		t.Fatalf("replaced at once, by %s", got)
	}
	w.clock.Advance(5 * time.Minute)
	if got := w.instance("1").ExactVersion; got != "1.1.0" {
		t.Fatalf("not replaced: %s", got)
	}
}

func TestAutomaticRepairsReplaceAStoppedInstance(t *testing.T) {
	w := newWorld(t, Scenario{Pools: []Pool{{Name: "pool1", Count: 1, AutomaticRepairs: true}}}, instant)
	disk := w.instance("0").OSDiskID
	w.must(200, http.MethodPost, poolPath+"/virtualMachines/0/powerOff", "")
	w.clock.Advance(10 * time.Minute)
	if got := w.instance("0"); got.OSDiskID == disk || got.PowerState != PowerRunning {
		t.Fatalf("not repaired: %+v", got)
	}
}

func TestFlexibleScaleSets(t *testing.T) {
	w := newWorld(t, Scenario{Pools: []Pool{{Name: "flex", Count: 2, Flexible: true}}}, instant)
	pool := compute + "/virtualMachineScaleSets/flex"
	if mode := text(w.must(200, http.MethodGet, pool, "").body, "properties", "orchestrationMode"); mode != "Flexible" {
		t.Fatalf("mode %s", mode)
	}
	w.refused(409, "OperationNotAllowed", "Flexible", http.MethodGet, pool+"/instanceView", "")
	w.refused(409, "OperationNotAllowed", "Flexible", http.MethodGet, pool+"/virtualMachines", "")
	vms := items(w.must(200, http.MethodGet, compute+"/virtualMachines?$filter='virtualMachineScaleSet/id'%20eq%20'"+pool+"'", "").body, "value")
	if len(vms) != 2 || !fold(text(vms[0], "properties", "virtualMachineScaleSet", "id"), pool) {
		t.Fatalf("machines %v", vms)
	}
	w.must(200, http.MethodPost, text(vms[0], "id")+"/powerOff", "")
	i, _ := w.s.Instance(text(vms[0], "id"))
	if i.PowerState != PowerStopped || !i.Flexible || i.Pool != "flex" {
		t.Fatalf("instance %+v", i)
	}
	w.must(200, http.MethodGet, i.OSDiskID, "")
}

func TestSubscribersSeeEveryChangeInOrder(t *testing.T) {
	w := onePool(t, nil)
	var seen []Change
	cancel := w.s.Subscribe(func(c Change) {
		if strings.HasSuffix(c.ID, "/virtualMachines/0") {
			seen = append(seen, c)
			w.s.Instances() // calling back must not deadlock
		}
	})
	w.must(202, http.MethodPost, poolPath+"/virtualMachines/0/powerOff", "")
	w.clock.Advance(2 * time.Minute)
	w.must(202, http.MethodDelete, poolPath+"/virtualMachines/0", "")
	w.clock.Advance(time.Minute)
	var kinds []ChangeKind
	for n, c := range seen {
		kinds = append(kinds, c.Kind)
		if n > 0 && c.Seq <= seen[n-1].Seq {
			t.Errorf("change %d follows %d", c.Seq, seen[n-1].Seq)
		}
	}
	if diff := cmp.Diff([]ChangeKind{Updated, Updated, Updated, Deleted}, kinds); diff != "" {
		t.Fatal(diff)
	}
	if last := seen[3]; last.New != nil || text(last.Old, "name") != "pool1_0" {
		t.Fatalf("deletion %+v", last)
	}
	cancel()
	w.must(200, http.MethodPost, poolPath+"/virtualMachines/1/start", "")
	if len(seen) != 4 {
		t.Error("a cancelled subscriber was called")
	}
}

// recorder stands behind instances and writes down what it is asked to do.
type recorder struct {
	mu    sync.Mutex
	calls []string
	gate  chan struct{}
}

func (m *recorder) note(call string) error {
	if m.gate != nil {
		<-m.gate
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.calls = append(m.calls, call)
	return nil
}

func (m *recorder) Create(_ context.Context, i Instance) error {
	return m.note("create " + i.InstanceID + " " + i.ExactVersion)
}
func (m *recorder) Start(_ context.Context, i Instance) error { return m.note("start " + i.InstanceID) }
func (m *recorder) Stop(_ context.Context, i Instance, skip bool) error {
	return m.note("stop " + i.InstanceID + map[bool]string{true: " cut"}[skip])
}
func (m *recorder) Delete(_ context.Context, i Instance) error {
	return m.note("delete " + i.InstanceID)
}
func (m *recorder) Snapshot(_ context.Context, i Instance, id string) error {
	return m.note("snapshot " + i.InstanceID + " " + id[strings.LastIndexByte(id, '/')+1:])
}
func (m *recorder) Build(_ context.Context, _, id string) error {
	return m.note("build " + id[strings.LastIndexByte(id, '/')+1:])
}
func (m *recorder) Remove(_ context.Context, id string) error {
	return m.note("remove " + id[strings.LastIndexByte(id, '/')+1:])
}

func TestMachinesStandBehindInstances(t *testing.T) {
	m := &recorder{}
	idle := make(chan struct{}, 100)
	w := newWorld(t, Scenario{Pools: []Pool{{Name: "pool1", Count: 1}}}, func(s *Server) { s.Machines = m; instant(s) })
	w.s.Subscribe(func(Change) { idle <- struct{}{} })
	settled := func(id, state string) {
		t.Helper()
		deadline := time.After(10 * time.Second)
		for {
			if doc := w.s.Document(id); state == "gone" && doc == nil || doc != nil && text(doc, "properties", "provisioningState") == state {
				return
			}
			select {
			case <-idle:
			case <-deadline:
				t.Fatalf("%s is not %s: %v", id, state, w.s.Document(id))
			}
		}
	}
	vm, snapshot := poolPath+"/virtualMachines/0", compute+"/snapshots/s"
	settled(vm, "Succeeded")
	settled(poolPath, "Succeeded")
	w.must(202, http.MethodPost, vm+"/powerOff?skipShutdown=true", "")
	settled(vm, "Succeeded")
	w.must(202, http.MethodPut, snapshot, w.snapshotDoc("0"))
	settled(snapshot, "Succeeded")
	w.must(202, http.MethodPost, vm+"/start", "")
	settled(vm, "Succeeded")
	w.must(201, http.MethodPut, galleryPath, `{`+location+`}`)
	w.must(201, http.MethodPut, definitionURL, definitionDoc)
	w.must(201, http.MethodPut, definitionURL+"/versions/1.0.0", versionDoc("s"))
	settled(definitionURL+"/versions/1.0.0", "Succeeded")
	w.must(202, http.MethodDelete, snapshot, "")
	settled(snapshot, "gone")
	w.must(200, http.MethodPatch, poolPath, imagePatch(definitionURL+"/versions/1.0.0"))
	w.must(200, http.MethodPatch, poolPath, `{"sku":{"capacity":2}}`)
	settled(poolPath, "Succeeded")
	w.must(202, http.MethodDelete, vm, "")
	settled(vm, "gone")
	want := []string{"create 0 " + genericVersion, "stop 0 cut", "snapshot 0 s", "start 0", "build 1.0.0", "remove s", "create 1 1.0.0", "delete 0"}
	m.mu.Lock()
	defer m.mu.Unlock()
	if diff := cmp.Diff(want, m.calls); diff != "" {
		t.Fatal(diff)
	}
}
