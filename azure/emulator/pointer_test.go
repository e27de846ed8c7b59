package emulator

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v8"
)

// A pool that points at an image definition, as Microsoft's SDK over HTTPS sees it.

// pointed serves a pool of two nodes whose model names the definition, with these versions.
func pointed(t *testing.T, change func(*Server), versions ...string) *client {
	t.Helper()
	c := newClient(t, "right", func(s *Server) {
		s.Latencies = NoLatency()
		if change != nil {
			change(s)
		}
	})
	finish[armcompute.GalleriesClientCreateOrUpdateResponse](c, "gallery")(
		c.factory.NewGalleriesClient().BeginCreateOrUpdate(c.context, sdkGroup, "g1", armcompute.Gallery{Location: to.Ptr("westeurope")}, nil))
	finish[armcompute.GalleryImagesClientCreateOrUpdateResponse](c, "definition")(
		c.factory.NewGalleryImagesClient().BeginCreateOrUpdate(c.context, sdkGroup, "g1", "pool1", sdkDefinition(), nil))
	vm, err := c.factory.NewVirtualMachineScaleSetVMsClient().Get(c.context, sdkGroup, "pool1", "0", nil)
	if err != nil {
		t.Fatal(err)
	}
	finish[armcompute.SnapshotsClientCreateOrUpdateResponse](c, "snapshot")(
		c.factory.NewSnapshotsClient().BeginCreateOrUpdate(c.context, sdkGroup, "s", armcompute.Snapshot{Location: to.Ptr("westeurope"),
			Properties: &armcompute.SnapshotProperties{HyperVGeneration: to.Ptr(armcompute.HyperVGenerationV2),
				CreationData: &armcompute.CreationData{CreateOption: to.Ptr(armcompute.DiskCreateOptionCopy), SourceResourceID: vm.Properties.StorageProfile.OSDisk.ManagedDisk.ID}}}, nil))
	for _, name := range versions {
		c.build(name)
	}
	if len(versions) > 0 {
		c.point(definitionURL)
	}
	return c
}

func (c *client) build(name string) {
	c.Helper()
	finish[armcompute.GalleryImageVersionsClientCreateOrUpdateResponse](c, "version "+name)(c.factory.NewGalleryImageVersionsClient().
		BeginCreateOrUpdate(c.context, sdkGroup, "g1", "pool1", name, sdkVersion(to.Ptr(compute+"/snapshots/s")), nil))
}

// point writes the image reference of the model.
func (c *client) point(image string) {
	c.Helper()
	if err := c.tryPoint(image); err != nil {
		c.Fatalf("write the model: %v", err)
	}
}

func (c *client) tryPoint(image string) error {
	sets := c.factory.NewVirtualMachineScaleSetsClient()
	pool, err := sets.Get(c.context, sdkGroup, "pool1", nil)
	if err != nil {
		return err
	}
	poller, err := sets.BeginUpdate(c.context, sdkGroup, "pool1", sdkUpdate(pool.VirtualMachineScaleSet, to.Ptr(image)), nil)
	if err != nil {
		return err
	}
	_, err = poller.PollUntilDone(c.context, nil)
	return err
}

// grow asks for one more instance and returns it.
func (c *client) grow() armcompute.VirtualMachineScaleSetVM {
	c.Helper()
	if err := c.tryGrow(); err != nil {
		c.Fatalf("scale out: %v", err)
	}
	list := c.s.Instances()
	return c.vm(list[len(list)-1].InstanceID)
}

func (c *client) tryGrow() error {
	sets := c.factory.NewVirtualMachineScaleSetsClient()
	pool, err := sets.Get(c.context, sdkGroup, "pool1", nil)
	if err != nil {
		return err
	}
	poller, err := sets.BeginUpdate(c.context, sdkGroup, "pool1", armcompute.VirtualMachineScaleSetUpdate{
		SKU: &armcompute.SKU{Name: pool.SKU.Name, Tier: pool.SKU.Tier, Capacity: to.Ptr(*pool.SKU.Capacity + 1)}}, nil)
	if err != nil {
		return err
	}
	_, err = poller.PollUntilDone(c.context, nil)
	return err
}

func (c *client) vm(id string) armcompute.VirtualMachineScaleSetVM {
	c.Helper()
	vm, err := c.factory.NewVirtualMachineScaleSetVMsClient().Get(c.context, sdkGroup, "pool1", id, nil)
	if err != nil {
		c.Fatal(err)
	}
	return vm.VirtualMachineScaleSetVM
}

// booted is the exact version of an instance.
func (c *client) booted(id string) string {
	c.Helper()
	return *c.vm(id).Properties.StorageProfile.ImageReference.ExactVersion
}

// flag writes excludeFromLatest with the regions as they are read.
func (c *client) flag(version string, excluded bool) {
	c.Helper()
	if err := c.patch(version, func(p *armcompute.GalleryImageVersionProperties) {
		p.PublishingProfile.ExcludeFromLatest = to.Ptr(excluded)
	}); err != nil {
		c.Fatalf("flag %s: %v", version, err)
	}
}

// patch sends the publishing profile of a version back with a change.
func (c *client) patch(version string, change func(*armcompute.GalleryImageVersionProperties)) error {
	versions := c.factory.NewGalleryImageVersionsClient()
	got, err := versions.Get(c.context, sdkGroup, "g1", "pool1", version, nil)
	if err != nil {
		return err
	}
	have := got.Properties.PublishingProfile
	body := armcompute.GalleryImageVersionProperties{StorageProfile: &armcompute.GalleryImageVersionStorageProfile{},
		PublishingProfile: &armcompute.GalleryImageVersionPublishingProfile{StorageAccountType: have.StorageAccountType, TargetRegions: have.TargetRegions, ExcludeFromLatest: have.ExcludeFromLatest}}
	change(&body)
	poller, err := versions.BeginUpdate(c.context, sdkGroup, "g1", "pool1", version, armcompute.GalleryImageVersionUpdate{Properties: &body}, nil)
	if err != nil {
		return err
	}
	_, err = poller.PollUntilDone(c.context, nil)
	return err
}

func wantText(t *testing.T, err error, status int, code, text string) {
	t.Helper()
	wantCode(t, err, status, code)
	if !strings.Contains(err.Error(), text) {
		t.Fatalf("error %v lacks %q", err, text)
	}
}

func TestLatestIsResolvedWhereAnInstanceGetsItsDisk(t *testing.T) {
	c := pointed(t, nil, "2026.9.30", "2026.10.1")
	if got := *c.grow().Properties.StorageProfile.ImageReference.ExactVersion; got != "2026.10.1" {
		t.Fatalf("scale-out boots %s, want the numeric maximum", got)
	}
	c.build("2026.11.1")
	vms, sets := c.factory.NewVirtualMachineScaleSetVMsClient(), c.factory.NewVirtualMachineScaleSetsClient()
	finish[armcompute.VirtualMachineScaleSetsClientUpdateInstancesResponse](c, "manual upgrade")(
		sets.BeginUpdateInstances(c.context, sdkGroup, "pool1", armcompute.VirtualMachineScaleSetVMInstanceRequiredIDs{InstanceIDs: []*string{to.Ptr("2")}}, nil))
	if got := c.booted("2"); got != "2026.10.1" {
		t.Fatalf("manual upgrade moved the exact version to %s", got)
	}
	finish[armcompute.VirtualMachineScaleSetVMsClientReimageResponse](c, "reimage")(vms.BeginReimage(c.context, sdkGroup, "pool1", "2", nil))
	if got := c.booted("2"); got != "2026.11.1" {
		t.Fatalf("reimage boots %s", got)
	}
	c.flag("2026.11.1", true)
	if got := *c.grow().Properties.StorageProfile.ImageReference.ExactVersion; got != "2026.10.1" {
		t.Fatalf("an excluded version boots: %s", got)
	}
}

func TestARepairResolvesLatest(t *testing.T) {
	w := newWorld(t, Scenario{Pools: []Pool{{Name: "pool1", Count: 1, AutomaticRepairs: true}}}, instant)
	w.build("0", "1.0.0")
	w.must(200, http.MethodPatch, poolPath, imagePatch(definitionURL))
	w.build("0", "1.1.0")
	w.must(200, http.MethodPost, poolPath+"/virtualMachines/0/powerOff", "")
	w.clock.Advance(time.Hour)
	if got := w.instance("0").ExactVersion; got != "1.1.0" {
		t.Fatalf("repaired from %s", got)
	}
}

func TestTheRegionFlagExcludesInItsRegionOnly(t *testing.T) {
	c := pointed(t, nil, "1.0.0", "1.1.0")
	err := c.patch("1.1.0", func(p *armcompute.GalleryImageVersionProperties) {
		p.PublishingProfile.TargetRegions[0].ExcludeFromLatest = to.Ptr(true)
	})
	if err != nil {
		t.Fatal(err)
	}
	if got := *c.grow().Properties.StorageProfile.ImageReference.ExactVersion; got != "1.0.0" {
		t.Fatalf("boots %s", got)
	}
	err = c.patch("1.1.0", func(p *armcompute.GalleryImageVersionProperties) {
		here, there := *p.PublishingProfile.TargetRegions[0], armcompute.TargetRegion{Name: to.Ptr("northeurope"), StorageAccountType: p.PublishingProfile.StorageAccountType, ExcludeFromLatest: to.Ptr(true)}
		here.ExcludeFromLatest = to.Ptr(false)
		p.PublishingProfile.TargetRegions = []*armcompute.TargetRegion{&here, &there}
	})
	if err != nil {
		t.Fatal(err)
	}
	if got := *c.grow().Properties.StorageProfile.ImageReference.ExactVersion; got != "1.1.0" {
		t.Fatalf("another region's flag excludes: boots %s", got)
	}
}

func TestNothingToResolveHasTwoTexts(t *testing.T) {
	c := pointed(t, nil, "1.0.0")
	c.flag("1.0.0", true)
	wantText(t, c.tryGrow(), http.StatusNotFound, "GalleryImageNotFound", `There is no latest image version exists for \"`+definitionURL+`\"`)

	w := newWorld(t, Scenario{Pools: []Pool{{Name: "pool1", Count: 1}}}, instant)
	w.build("0", "1.0.0")
	w.s.Seed(Scenario{Location: "northeurope", Pools: []Pool{{Name: "north", Count: 1}}})
	north := compute + "/virtualMachineScaleSets/north"
	w.refused(404, "GalleryImageNotFound", "images/pool1 is not available in northeurope region. Please contact image owner to replicate to this region",
		http.MethodPatch, north, imagePatch(definitionURL))
}

func TestAVersionCountsWhereItsCopiesAreComplete(t *testing.T) {
	w := newWorld(t, Scenario{Pools: []Pool{{Name: "pool1", Count: 1}}}, func(s *Server) {
		s.Latencies = NoLatency()
		s.Latencies.UpdateVersion = 10 * time.Minute
	})
	w.s.Seed(Scenario{Location: "northeurope", Pools: []Pool{{Name: "north", Count: 1}}})
	north := compute + "/virtualMachineScaleSets/north"
	copies := func(version string) {
		w.must(200, http.MethodPatch, w.build("0", version), `{"properties":{"storageProfile":{},"publishingProfile":{"targetRegions":[{"name":"westeurope"},{"name":"northeurope"}]}}}`)
	}
	copies("1.0.0")
	w.clock.Advance(time.Hour)
	w.must(200, http.MethodPatch, north, imagePatch(definitionURL))
	copies("1.1.0")
	grown := func(capacity int) string {
		w.must(200, http.MethodPatch, north, fmt.Sprintf(`{"sku":{"capacity":%d}}`, capacity))
		i, _ := w.s.Instance(fmt.Sprintf("%s/virtualMachines/%d", north, capacity-1))
		return i.ExactVersion
	}
	shown := w.must(200, http.MethodGet, definitionURL+"/versions/1.1.0?$expand=ReplicationStatus", "").body
	if got := text(items(shown, "properties", "replicationStatus", "summary")[1], "state"); got != "Replicating" {
		t.Fatalf("replication in northeurope: %s", got)
	}
	if got := grown(2); got != "1.0.0" {
		t.Fatalf("boots %s while its copies are made", got)
	}
	w.clock.Advance(time.Hour)
	if got := grown(3); got != "1.1.0" {
		t.Fatalf("boots %s after its copies were made", got)
	}
}

func TestSwitchesOfThePointer(t *testing.T) {
	sticky := pointed(t, func(s *Server) { s.Pointer.Sticky = true }, "1.0.0")
	sticky.build("1.1.0")
	if got := *sticky.grow().Properties.StorageProfile.ImageReference.ExactVersion; got != "1.0.0" {
		t.Fatalf("sticky: boots %s", got)
	}
	sticky.point(definitionURL)
	if got := *sticky.grow().Properties.StorageProfile.ImageReference.ExactVersion; got != "1.1.0" {
		t.Fatalf("sticky: boots %s after a write of the model", got)
	}
	for resolved, want := range map[bool]string{false: definitionURL, true: definitionURL + "/versions/1.0.0"} {
		c := pointed(t, func(s *Server) { s.Pointer.Resolved = resolved }, "1.0.0")
		if got := c.grow().Properties.StorageProfile.ImageReference; *got.ID != want || *got.ExactVersion != "1.0.0" {
			t.Errorf("resolved %t: shows %s, %s", resolved, *got.ID, *got.ExactVersion)
		}
	}

	w := onePool(t, func(s *Server) { instant(s); s.Pointer.Lag = time.Minute })
	w.build("0", "1.0.0")
	w.build("0", "1.1.0")
	w.must(200, http.MethodPatch, poolPath, imagePatch(definitionURL))
	w.must(200, http.MethodPatch, definitionURL+"/versions/1.1.0", `{"properties":{"storageProfile":{},"publishingProfile":{"excludeFromLatest":true}}}`)
	grown := func() string {
		w.must(200, http.MethodPatch, poolPath, fmt.Sprintf(`{"sku":{"capacity":%d}}`, len(w.s.Instances())+1))
		list := w.s.Instances()
		return list[len(list)-1].ExactVersion
	}
	if got := grown(); got != "1.1.0" {
		t.Errorf("lag: boots %s at once", got)
	}
	w.clock.Advance(time.Minute)
	if got := grown(); got != "1.0.0" {
		t.Errorf("lag: boots %s after a minute", got)
	}
}
