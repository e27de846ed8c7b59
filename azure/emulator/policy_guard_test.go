package emulator

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v8"
)

// What stands between a run and the cloud that nobody in the run can change.

func TestPoliciesDenyWrites(t *testing.T) {
	c := pointed(t, nil, "1.0.0")
	untagged := func(doc map[string]any) bool { return text(doc, "tags", "costcenter") == "" }
	c.s.SetPolicies(Policy{Name: "tags are needed", Scope: groupPath, Type: "Microsoft.Compute/galleries/**", Denies: untagged})
	err := c.patch("1.0.0", func(*armcompute.GalleryImageVersionProperties) {})
	wantText(t, err, http.StatusForbidden, "RequestDisallowedByPolicy", "Resource '1.0.0' was disallowed by policy. Policy identifiers:")
	c.grow() // of another type
	finish[armcompute.GalleryImageVersionsClientDeleteResponse](c, "a delete is not denied")(
		c.factory.NewGalleryImageVersionsClient().BeginDelete(c.context, sdkGroup, "g1", "pool1", "1.0.0", nil))
	c.s.SetPolicies()
	c.build("1.1.0")
}

func TestALockOnAResource(t *testing.T) {
	c := pointed(t, nil, "1.0.0", "1.1.0")
	c.s.Lock(definitionURL+"/versions/1.0.0", "keep", "CanNotDelete")
	remove := func(version string) error {
		_, err := c.factory.NewGalleryImageVersionsClient().BeginDelete(c.context, sdkGroup, "g1", "pool1", version, nil)
		return err
	}
	wantText(t, remove("1.0.0"), http.StatusConflict, "ScopeLocked", "cannot perform delete operation because following scope(s) are locked: '"+definitionURL+"/versions/1.0.0'")
	c.flag("1.0.0", true) // CanNotDelete lets writes pass
	if err := remove("1.1.0"); err != nil {
		t.Fatal(err)
	}
	c.s.Lock(definitionURL, "still", "ReadOnly")
	wantText(t, c.patch("1.0.0", func(*armcompute.GalleryImageVersionProperties) {}), http.StatusConflict, "ScopeLocked", "cannot perform write operation")
	c.s.Lock(definitionURL, "still", "")
	c.s.Lock(definitionURL+"/versions/1.0.0", "keep", "")
	if err := remove("1.0.0"); err != nil {
		t.Fatal(err)
	}
}

// TestRightsTakenAwayInTheMiddle takes them between two requests of one client.
func TestRightsTakenAwayInTheMiddle(t *testing.T) {
	var s *Server
	c := pointed(t, func(server *Server) {
		s = server
		server.OnRequest = func(r *http.Request) {
			if r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, "/versions/1.0.0") {
				s.SetRoles("app", Role{Actions: []string{"*/read"}})
			}
		}
	}, "1.0.0")
	err := c.patch("1.0.0", func(*armcompute.GalleryImageVersionProperties) {})
	wantText(t, err, http.StatusForbidden, "AuthorizationFailed", "does not have authorization to perform action 'Microsoft.Compute/galleries/images/versions/write'")
}

// TestBlindnessForAWhile: reads find nothing, or lists are empty, until a time has passed; writes
// work.
func TestBlindnessForAWhile(t *testing.T) {
	w := onePool(t, instant)
	version := w.build("0", "1.0.0")
	w.s.AddFault(Fault{Method: http.MethodGet, Path: "**/images/pool1/versions", Kind: Empty, Times: -1, For: 5 * time.Minute})
	w.s.AddFault(Fault{Method: http.MethodGet, Kind: Blind, Times: -1, For: 5 * time.Minute})
	list := definitionURL + "/versions"
	for range 3 {
		if got := w.must(200, http.MethodGet, list, ""); len(items(got.body, "value")) != 0 {
			t.Fatalf("the list shows %v", got.body)
		}
		w.refused(404, "SubscriptionNotFound", "", http.MethodGet, version, "")
		w.clock.Advance(time.Minute)
	}
	w.must(200, http.MethodPatch, version, `{"tags":{"a":"b"}}`)
	w.clock.Advance(3 * time.Minute)
	if got := w.must(200, http.MethodGet, list, ""); len(items(got.body, "value")) != 1 {
		t.Fatalf("still empty: %v", got.body)
	}
	w.must(200, http.MethodGet, version, "")
	w.s.AddFault(Fault{Method: http.MethodGet, Path: "**/virtualMachineScaleSets/pool1", Kind: Absent})
	w.refused(404, "ResourceNotFound", "", http.MethodGet, poolPath, "")
	w.must(200, http.MethodGet, poolPath, "")
}
