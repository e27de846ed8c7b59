package emulator

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/arm"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/cloud"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v8"
)

const (
	sdkGroup = "kamino-lab"
	sdkSub   = "00000000-0000-0000-0000-000000000001"
)

// client is Microsoft's SDK against an emulator over HTTPS.
type client struct {
	*testing.T
	s       *Server
	context context.Context
	factory *armcompute.ClientFactory
}

// newClient serves one pool on the wall clock, a thousand times faster than published.
func newClient(t *testing.T, secret string, change func(*Server)) *client {
	t.Helper()
	s := &Server{Speed: 2000, Identities: []Identity{{ClientID: "app", Secret: "right"}}}
	if change != nil {
		change(s)
	}
	s.Seed(Scenario{Pools: []Pool{{Name: "pool1", Count: 2}}})
	server := httptest.NewTLSServer(s)
	t.Cleanup(func() { server.Close(); s.Close() })
	core := azcore.ClientOptions{
		Cloud: cloud.Configuration{ActiveDirectoryAuthorityHost: server.URL,
			Services: map[cloud.ServiceName]cloud.ServiceConfiguration{cloud.ResourceManager: {Endpoint: server.URL, Audience: server.URL}}},
		Transport: server.Client(), Retry: policy.RetryOptions{MaxRetries: -1},
	}
	credential, err := azidentity.NewClientSecretCredential("adfs", "app", secret, &azidentity.ClientSecretCredentialOptions{ClientOptions: core, DisableInstanceDiscovery: true})
	if err != nil {
		t.Fatal(err)
	}
	factory, err := armcompute.NewClientFactory(sdkSub, credential, &arm.ClientOptions{ClientOptions: core, DisableRPRegistration: true})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	t.Cleanup(cancel)
	return &client{T: t, s: s, context: ctx, factory: factory}
}

// finish waits for an operation that must succeed.
func finish[T any](c *client, what string) func(*runtime.Poller[T], error) T {
	return func(poller *runtime.Poller[T], err error) T {
		c.Helper()
		if err != nil {
			c.Fatalf("begin %s: %v", what, err)
		}
		result, err := poller.PollUntilDone(c.context, nil)
		if err != nil {
			c.Fatalf("%s: %v", what, err)
		}
		return result
	}
}

func wantCode(t *testing.T, err error, status int, code string) {
	t.Helper()
	var re *azcore.ResponseError
	if !errors.As(err, &re) || re.StatusCode != status || re.ErrorCode != code {
		t.Fatalf("error %v, want %d %s", err, status, code)
	}
}

func TestSDKTakesADonorsImage(t *testing.T) {
	c := newClient(t, "right", nil)
	vms, sets := c.factory.NewVirtualMachineScaleSetVMsClient(), c.factory.NewVirtualMachineScaleSetsClient()
	finish[armcompute.GalleriesClientCreateOrUpdateResponse](c, "gallery")(
		c.factory.NewGalleriesClient().BeginCreateOrUpdate(c.context, sdkGroup, "g1", armcompute.Gallery{Location: to.Ptr("westeurope")}, nil))
	finish[armcompute.GalleryImagesClientCreateOrUpdateResponse](c, "definition")(
		c.factory.NewGalleryImagesClient().BeginCreateOrUpdate(c.context, sdkGroup, "g1", "pool1", sdkDefinition(), nil))

	finish[armcompute.VirtualMachineScaleSetVMsClientPowerOffResponse](c, "stop")(vms.BeginPowerOff(c.context, sdkGroup, "pool1", "0", nil))
	vm, err := vms.Get(c.context, sdkGroup, "pool1", "0", &armcompute.VirtualMachineScaleSetVMsClientGetOptions{Expand: to.Ptr(armcompute.InstanceViewTypesInstanceView)})
	if err != nil {
		t.Fatal(err)
	}
	if got := *vm.Properties.InstanceView.Statuses[1].Code; got != PowerStopped || *vm.Properties.InstanceView.HyperVGeneration != "V2" {
		t.Fatalf("power %s", got)
	}
	disk := vm.Properties.StorageProfile.OSDisk.ManagedDisk.ID
	_, err = c.factory.NewDisksClient().Get(c.context, sdkGroup, *vm.Properties.StorageProfile.OSDisk.Name, nil)
	wantCode(t, err, http.StatusNotFound, "ResourceNotFound")
	snapshot := finish[armcompute.SnapshotsClientCreateOrUpdateResponse](c, "snapshot")(
		c.factory.NewSnapshotsClient().BeginCreateOrUpdate(c.context, sdkGroup, "s", armcompute.Snapshot{Location: to.Ptr("westeurope"),
			Properties: &armcompute.SnapshotProperties{HyperVGeneration: to.Ptr(armcompute.HyperVGenerationV2),
				CreationData: &armcompute.CreationData{CreateOption: to.Ptr(armcompute.DiskCreateOptionCopy), SourceResourceID: disk}}}, nil))
	if *snapshot.Properties.ProvisioningState != "Succeeded" || *snapshot.Properties.CompletionPercent != 100 {
		t.Fatalf("snapshot %v", *snapshot.Properties.ProvisioningState)
	}
	finish[armcompute.VirtualMachineScaleSetVMsClientStartResponse](c, "start")(vms.BeginStart(c.context, sdkGroup, "pool1", "0", nil))
	version := finish[armcompute.GalleryImageVersionsClientCreateOrUpdateResponse](c, "version")(
		c.factory.NewGalleryImageVersionsClient().BeginCreateOrUpdate(c.context, sdkGroup, "g1", "pool1", "2026.11.20", sdkVersion(snapshot.ID), nil))
	finish[armcompute.SnapshotsClientDeleteResponse](c, "snapshot delete")(c.factory.NewSnapshotsClient().BeginDelete(c.context, sdkGroup, "s", nil))

	pool, err := sets.Get(c.context, sdkGroup, "pool1", nil)
	if err != nil {
		t.Fatal(err)
	}
	update := sdkUpdate(pool.VirtualMachineScaleSet, version.ID)
	_, err = sets.BeginUpdate(c.context, sdkGroup, "pool1", update, &armcompute.VirtualMachineScaleSetsClientBeginUpdateOptions{IfMatch: to.Ptr(`"99"`)})
	wantCode(t, err, http.StatusPreconditionFailed, "PreconditionFailed")
	updated := finish[armcompute.VirtualMachineScaleSetsClientUpdateResponse](c, "model")(
		sets.BeginUpdate(c.context, sdkGroup, "pool1", update, &armcompute.VirtualMachineScaleSetsClientBeginUpdateOptions{IfMatch: pool.Etag}))
	if *updated.Properties.VirtualMachineProfile.StorageProfile.ImageReference.ID != *version.ID || *updated.Etag == *pool.Etag ||
		*updated.Properties.VirtualMachineProfile.StorageProfile.OSDisk.Caching != armcompute.CachingTypesReadWrite {
		t.Fatalf("model %+v", updated)
	}
	finish[armcompute.VirtualMachineScaleSetsClientUpdateResponse](c, "scale out")(
		sets.BeginUpdate(c.context, sdkGroup, "pool1", armcompute.VirtualMachineScaleSetUpdate{SKU: &armcompute.SKU{Name: pool.SKU.Name, Tier: pool.SKU.Tier, Capacity: to.Ptr[int64](3)}}, nil))
	clone, err := vms.Get(c.context, sdkGroup, "pool1", "2", nil)
	if err != nil || *clone.Properties.StorageProfile.ImageReference.ExactVersion != "2026.11.20" {
		t.Fatalf("clone %v, %v", clone, err)
	}
}

func sdkDefinition() armcompute.GalleryImage {
	return armcompute.GalleryImage{Location: to.Ptr("westeurope"), Properties: &armcompute.GalleryImageProperties{
		OSType: to.Ptr(armcompute.OperatingSystemTypesLinux), OSState: to.Ptr(armcompute.OperatingSystemStateTypesGeneralized),
		HyperVGeneration: to.Ptr(armcompute.HyperVGenerationV2), Features: []*armcompute.GalleryImageFeature{{Name: to.Ptr("SecurityType"), Value: to.Ptr("Standard")}},
		Identifier: &armcompute.GalleryImageIdentifier{Publisher: to.Ptr("kamino"), Offer: to.Ptr("pool1"), SKU: to.Ptr("node")}}}
}

func sdkVersion(snapshot *string) armcompute.GalleryImageVersion {
	return armcompute.GalleryImageVersion{Location: to.Ptr("westeurope"), Properties: &armcompute.GalleryImageVersionProperties{
		PublishingProfile: &armcompute.GalleryImageVersionPublishingProfile{ReplicaCount: to.Ptr[int32](3), StorageAccountType: to.Ptr(armcompute.StorageAccountTypeStandardZRS),
			TargetRegions: []*armcompute.TargetRegion{{Name: to.Ptr("westeurope")}}},
		StorageProfile: &armcompute.GalleryImageVersionStorageProfile{OSDiskImage: &armcompute.GalleryOSDiskImage{Source: &armcompute.GalleryDiskImageSource{ID: snapshot}}}}}
}

// sdkUpdate is the one PATCH that changes the image and nothing else.
func sdkUpdate(pool armcompute.VirtualMachineScaleSet, version *string) armcompute.VirtualMachineScaleSetUpdate {
	disk := pool.Properties.VirtualMachineProfile.StorageProfile.OSDisk
	return armcompute.VirtualMachineScaleSetUpdate{Properties: &armcompute.VirtualMachineScaleSetUpdateProperties{VirtualMachineProfile: &armcompute.VirtualMachineScaleSetUpdateVMProfile{
		OSProfile: &armcompute.VirtualMachineScaleSetUpdateOSProfile{CustomData: to.Ptr("I2Nsb3VkLWNvbmZpZwo=")},
		StorageProfile: &armcompute.VirtualMachineScaleSetUpdateStorageProfile{ImageReference: &armcompute.ImageReference{ID: version},
			OSDisk: &armcompute.VirtualMachineScaleSetUpdateOSDisk{Caching: disk.Caching, DiskSizeGB: disk.DiskSizeGB, ManagedDisk: disk.ManagedDisk}}}}}
}

func TestSDKSeesListsSKUsAndExtensions(t *testing.T) {
	c := newClient(t, "right", func(s *Server) { s.PageSize = 1 })
	var vms []*armcompute.VirtualMachineScaleSetVM
	pager := c.factory.NewVirtualMachineScaleSetVMsClient().NewListPager(sdkGroup, "pool1", &armcompute.VirtualMachineScaleSetVMsClientListOptions{Expand: to.Ptr("instanceView")})
	for pager.More() {
		page, err := pager.NextPage(c.context)
		if err != nil {
			t.Fatal(err)
		}
		vms = append(vms, page.Value...)
	}
	if len(vms) != 2 || vms[1].Properties.InstanceView == nil {
		t.Fatalf("%d instances", len(vms))
	}
	zrs := false
	skus := c.factory.NewResourceSKUsClient().NewListPager(&armcompute.ResourceSKUsClientListOptions{Filter: to.Ptr("location eq 'westeurope'")})
	for skus.More() {
		page, err := skus.NextPage(c.context)
		if err != nil {
			t.Fatal(err)
		}
		for _, sku := range page.Value {
			zrs = zrs || *sku.ResourceType == "snapshots" && *sku.Name == "Standard_ZRS"
		}
	}
	if !zrs {
		t.Error("no ZRS in westeurope")
	}
	extensions := c.factory.NewVirtualMachineScaleSetExtensionsClient()
	finish[armcompute.VirtualMachineScaleSetExtensionsClientDeleteResponse](c, "extension delete")(extensions.BeginDelete(c.context, sdkGroup, "pool1", "vmssCSE", nil))
	_, err := extensions.Get(c.context, sdkGroup, "pool1", "vmssCSE", nil)
	wantCode(t, err, http.StatusNotFound, "ResourceNotFound")
}

func TestSDKReportsFailedOperationsAndBadSecrets(t *testing.T) {
	c := newClient(t, "right", nil)
	c.s.AddFault(Fault{Path: "**/powerOff", Kind: FailOperation, Code: "InternalExecutionError", Message: "boom"})
	poller, err := c.factory.NewVirtualMachineScaleSetVMsClient().BeginPowerOff(c.context, sdkGroup, "pool1", "0", nil)
	if err != nil {
		t.Fatal(err)
	}
	_, err = poller.PollUntilDone(c.context, nil)
	wantCode(t, err, http.StatusOK, "InternalExecutionError")

	wrong := newClient(t, "wrong", nil)
	_, err = wrong.factory.NewVirtualMachineScaleSetsClient().Get(wrong.context, sdkGroup, "pool1", nil)
	var failed *azidentity.AuthenticationFailedError
	if !errors.As(err, &failed) || failed.RawResponse.StatusCode != http.StatusUnauthorized {
		t.Fatalf("error %v", err)
	}
}
