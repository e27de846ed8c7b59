package emulator

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v8"
)

func TestPatchesOfAVersionAreRefused(t *testing.T) {
	c := pointed(t, nil, "1.0.0")
	north := armcompute.TargetRegion{Name: to.Ptr("northeurope"), StorageAccountType: to.Ptr(armcompute.StorageAccountTypeStandardZRS)}
	err := c.patch("1.0.0", func(p *armcompute.GalleryImageVersionProperties) {
		p.PublishingProfile.TargetRegions = append(p.PublishingProfile.TargetRegions, &north)
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name, text string
		change     func(*armcompute.GalleryImageVersionProperties)
	}{
		{"a region forgotten", "Complete set of target locations not specified while updating gallery artifact", func(p *armcompute.GalleryImageVersionProperties) {
			p.PublishingProfile.TargetRegions = p.PublishingProfile.TargetRegions[:1]
		}},
		{"types missing", "Please specify 'Standard_ZRS' for the global storage account type", func(p *armcompute.GalleryImageVersionProperties) {
			p.PublishingProfile.StorageAccountType = nil
			for _, r := range p.PublishingProfile.TargetRegions {
				r.StorageAccountType = nil
			}
		}},
		{"no storage profile", "storageProfile' is missing", func(p *armcompute.GalleryImageVersionProperties) { p.StorageProfile = nil }},
	} {
		t.Run(test.name, func(t *testing.T) {
			err := c.patch("1.0.0", test.change)
			if err == nil || !strings.Contains(err.Error(), test.text) || !strings.Contains(err.Error(), "400") {
				t.Errorf("%s: error %v", test.name, err)
			}
		})
	}
	// No region at all leaves them as they are.
	if err := c.patch("1.0.0", func(p *armcompute.GalleryImageVersionProperties) { p.PublishingProfile.TargetRegions = nil }); err != nil {
		t.Fatal(err)
	}
	if n := len(items(c.s.Document(definitionURL+"/versions/1.0.0"), "properties", "publishingProfile", "targetRegions")); n != 2 {
		t.Errorf("%d regions", n)
	}

	w := onePool(t, func(s *Server) { instant(s); s.Latencies.DeleteVersion = time.Minute })
	version := w.build("0", "1.0.0")
	w.must(202, http.MethodDelete, version, "")
	w.refused(409, "OperationNotAllowed", "Operation 'Update Gallery Image Version' is not on allowed on 1.0.0; since it is marked for deletion.",
		http.MethodPatch, version, `{"properties":{"storageProfile":{},"publishingProfile":{"excludeFromLatest":true}}}`)
}

// TestARivalsPutWinsSilently: versions have no ETag, and If-Match counts for nothing.
func TestARivalsPutWinsSilently(t *testing.T) {
	c := pointed(t, nil, "1.0.0", "1.1.0")
	versions := c.factory.NewGalleryImageVersionsClient()
	read, err := versions.Get(c.context, sdkGroup, "g1", "pool1", "1.1.0", nil) // Terraform, which updates by GET and PUT of the whole
	if err != nil {
		t.Fatal(err)
	}
	c.flag("1.1.0", true)
	finish[armcompute.GalleryImageVersionsClientCreateOrUpdateResponse](c, "rival's PUT")(
		versions.BeginCreateOrUpdate(c.context, sdkGroup, "g1", "pool1", "1.1.0", read.GalleryImageVersion, nil))
	if got := *c.grow().Properties.StorageProfile.ImageReference.ExactVersion; got != "1.1.0" {
		t.Fatalf("boots %s: the rival did not undo the flag", got)
	}
	w := onePool(t, instant)
	version := w.build("0", "1.0.0")
	if got := w.must(200, http.MethodGet, version, ""); got.header.Get("ETag") != "" || got.body["etag"] != nil {
		t.Errorf("a version has an ETag: %v", got.body["etag"])
	}
	w.must(200, http.MethodPatch, version, `{"properties":{"storageProfile":{},"publishingProfile":{"excludeFromLatest":true}}}`, "If-Match", `"99"`)
}

func TestADeletedVersionFlickers(t *testing.T) {
	w := onePool(t, func(s *Server) { instant(s); s.DeleteEcho = time.Minute })
	version := w.build("0", "1.0.0")
	w.must(200, http.MethodDelete, version, "")
	got := map[int]int{}
	for range 10 {
		got[w.do(http.MethodGet, version, "").status]++
	}
	if got[200] != 5 || got[404] != 5 {
		t.Errorf("ten reads: %v", got)
	}
	w.clock.Advance(time.Minute)
	for range 10 {
		w.must(404, http.MethodGet, version, "")
	}
}

func TestASoftDeletedVersionResolvesByItsID(t *testing.T) {
	c := pointed(t, nil, "1.0.0", "1.1.0")
	galleries, versions := c.factory.NewGalleriesClient(), c.factory.NewGalleryImageVersionsClient()
	finish[armcompute.GalleriesClientUpdateResponse](c, "soft delete")(galleries.BeginUpdate(c.context, sdkGroup, "g1",
		armcompute.GalleryUpdate{Properties: &armcompute.GalleryProperties{SoftDeletePolicy: &armcompute.SoftDeletePolicy{IsSoftDeleteEnabled: to.Ptr(true)}}}, nil))
	remove := func() {
		finish[armcompute.GalleryImageVersionsClientDeleteResponse](c, "delete")(versions.BeginDelete(c.context, sdkGroup, "g1", "pool1", "1.1.0", nil))
	}
	remove()
	_, err := versions.Get(c.context, sdkGroup, "g1", "pool1", "1.1.0", nil)
	wantCode(t, err, http.StatusNotFound, "ResourceNotFound")
	if got := *c.grow().Properties.StorageProfile.ImageReference.ExactVersion; got != "1.0.0" {
		t.Fatalf("latest means %s", got)
	}
	c.point(definitionURL + "/versions/1.1.0")
	if got := *c.grow().Properties.StorageProfile.ImageReference.ExactVersion; got != "1.1.0" {
		t.Fatalf("by its ID: boots %s", got)
	}
	finish[armcompute.GalleryImageVersionsClientUpdateResponse](c, "restore")(versions.BeginUpdate(c.context, sdkGroup, "g1", "pool1", "1.1.0",
		armcompute.GalleryImageVersionUpdate{Properties: &armcompute.GalleryImageVersionProperties{Restore: to.Ptr(true), StorageProfile: &armcompute.GalleryImageVersionStorageProfile{}}}, nil))
	if _, err = versions.Get(c.context, sdkGroup, "g1", "pool1", "1.1.0", nil); err != nil {
		t.Fatal(err)
	}
	finish[armcompute.GalleryImageVersionsClientDeleteResponse](c, "delete for good")(
		versions.BeginDelete(c.context, sdkGroup, "g1", "pool1", "1.1.0", &armcompute.GalleryImageVersionsClientBeginDeleteOptions{BypassSoftDelete: to.Ptr(true)}))
	wantText(t, c.tryGrow(), http.StatusNotFound, "GalleryImageNotFound", "versions/1.1.0 is not available in westeurope region")
}
