package emulator

import (
	"net/http"
	"strings"
	"testing"
	"time"
)

// Point 1: paths.

func TestPathsIgnoreCaseAndIDsEchoTheCallersGroup(t *testing.T) {
	w := onePool(t, nil)
	upper := strings.Replace(strings.ToLower(poolPath), "/resourcegroups/kamino-lab/", "/resourceGroups/KAMINO-LAB/", 1)
	a := w.must(200, http.MethodGet, upper, "")
	if want := strings.Replace(poolPath, "kamino-lab", "KAMINO-LAB", 1); text(a.body, "id") != want {
		t.Fatalf("id %s, want %s", text(a.body, "id"), want)
	}
	w.must(202, http.MethodPost, strings.ToLower(poolPath)+"/POWEROFF", `{"instanceIds":["0"]}`)
}

func TestAPIVersionIsRequiredAndItsValueIgnored(t *testing.T) {
	w := onePool(t, nil)
	w.refused(400, "MissingApiVersionParameter", "api-version", http.MethodGet, w.url+poolPath, "")
	w.must(200, http.MethodGet, poolPath+"?api-version=1999-01-01", "")
}

func TestUnknownPathsAreNotFound(t *testing.T) {
	w := onePool(t, nil)
	w.refused(404, "ResourceNotFound", "", http.MethodGet, groupPath+"/providers/Microsoft.Network/virtualNetworks/v", "")
	w.refused(404, "ResourceNotFound", "Microsoft.Compute/virtualMachineScaleSets/other' under resource group 'kamino-lab' was not found", http.MethodGet, compute+"/virtualMachineScaleSets/other", "")
	w.refused(404, "ResourceGroupNotFound", "'nope'", http.MethodGet, strings.Replace(poolPath, "kamino-lab", "nope", 1), "")
	w.refused(404, "SubscriptionNotFound", "", http.MethodGet, strings.Replace(poolPath, "000000000001", "000000000002", 1), "")
}

func TestListsArePagedByNextLink(t *testing.T) {
	w := newWorld(t, Scenario{Pools: []Pool{{Name: "pool1", Count: 12}}}, func(s *Server) { s.PageSize = 5 })
	var ids []string
	for link := poolPath + "/virtualMachines"; link != ""; {
		page := w.must(200, http.MethodGet, link, "")
		for _, i := range items(page.body, "value") {
			ids = append(ids, text(i, "instanceId"))
		}
		link = text(page.body, "nextLink")
	}
	if got := strings.Join(ids, " "); got != "0 1 2 3 4 5 6 7 8 9 10 11" {
		t.Fatalf("pages hold %s", got)
	}
}

func TestSubscriptionsGroupsAndSubscriptionWideLists(t *testing.T) {
	w := onePool(t, nil)
	subscriptions := items(w.must(200, http.MethodGet, "/subscriptions", "").body, "value")
	if len(subscriptions) != 1 || text(subscriptions[0], "state") != "Enabled" {
		t.Fatalf("subscriptions %v", subscriptions)
	}
	w.must(200, http.MethodGet, subscription, "")
	if groups := items(w.must(200, http.MethodGet, subscription+"/resourcegroups", "").body, "value"); len(groups) != 1 {
		t.Fatalf("groups %v", groups)
	}
	if location := text(w.must(200, http.MethodGet, strings.ToLower(groupPath), "").body, "location"); location != "westeurope" {
		t.Fatalf("location %s", location)
	}
	if pools := items(w.must(200, http.MethodGet, subscription+"/providers/Microsoft.Compute/virtualMachineScaleSets", "").body, "value"); len(pools) != 1 {
		t.Fatalf("pools %v", pools)
	}
	w.must(201, http.MethodPut, subscription+"/resourceGroups/second", `{`+location+`}`)
	w.must(200, http.MethodDelete, subscription+"/resourceGroups/second", "")
}

// Point 2: headers and operations.

func TestOperationsHaveBothURLs(t *testing.T) {
	w := onePool(t, nil)
	begun := w.must(202, http.MethodPost, poolPath+"/virtualMachines/0/powerOff", "")
	for _, header := range []string{"Azure-AsyncOperation", "Location", "Retry-After", "x-ms-request-id", "x-ms-correlation-request-id", "x-ms-ratelimit-remaining-subscription-writes"} {
		if begun.header.Get(header) == "" {
			t.Errorf("no %s", header)
		}
	}
	if !strings.Contains(begun.header.Get("Location"), "&monitor=true") || !strings.Contains(begun.header.Get("Azure-AsyncOperation"), "/providers/Microsoft.Compute/locations/westeurope/operations/") {
		t.Errorf("links %v", begun.header)
	}
	w.must(202, http.MethodGet, begun.header.Get("Location"), "")
	first := w.poll(begun)
	if text(first.body, "status") != "InProgress" || text(first.body, "startTime") == "" || text(first.body, "name") == "" || has(first.body, "endTime") {
		t.Errorf("running: %v", first.body)
	}
	w.clock.Advance(5 * time.Minute)
	last := w.poll(begun)
	if text(last.body, "status") != "Succeeded" || text(last.body, "endTime") == "" {
		t.Errorf("done: %v", last.body)
	}
	w.must(200, http.MethodGet, begun.header.Get("Location"), "")
}

func TestFamiliesOfOperationURLs(t *testing.T) {
	w := onePool(t, nil)
	snapshot := w.must(202, http.MethodPut, compute+"/snapshots/s", w.snapshotDoc("0"))
	if link := snapshot.header.Get("Azure-AsyncOperation"); !strings.Contains(link, "/DiskOperations/") {
		t.Error(link)
	}
	gallery := w.must(201, http.MethodPut, galleryPath, `{`+location+`}`)
	if link := gallery.header.Get("Azure-AsyncOperation"); !strings.Contains(link, "/capsOperations/") {
		t.Error(link)
	}
}

func TestWithoutLatencyTheFirstReplyIsTerminal(t *testing.T) {
	w := onePool(t, instant)
	snapshot := w.must(200, http.MethodPut, compute+"/snapshots/s", w.snapshotDoc("0"))
	if snapshot.header.Get("Azure-AsyncOperation") != "" || text(snapshot.body, "properties", "provisioningState") != "Succeeded" {
		t.Fatalf("snapshot %v %v", snapshot.header, snapshot.body)
	}
	w.must(200, http.MethodPost, poolPath+"/virtualMachines/0/powerOff", "")
	w.must(200, http.MethodDelete, compute+"/snapshots/s", "")
	w.must(204, http.MethodDelete, compute+"/snapshots/s", "")
}

func TestSpeedDividesLatencies(t *testing.T) {
	w := onePool(t, func(s *Server) { s.Speed = 10 })
	w.must(202, http.MethodPost, poolPath+"/virtualMachines/0/powerOff", "")
	w.clock.Advance(12 * time.Second)
	if got := w.instance("0").PowerState; got != PowerStopped {
		t.Fatalf("power %s after 12 s at speed 10", got)
	}
}

// Point 3: one write at a time.

func TestASecondWriteMeanwhileConflicts(t *testing.T) {
	w := onePool(t, nil)
	w.must(200, http.MethodPatch, poolPath, `{"tags":{"a":"1"}}`)
	busy := w.must(200, http.MethodGet, poolPath, "")
	if state := text(busy.body, "properties", "provisioningState"); state != "Updating" {
		t.Fatalf("state %s", state)
	}
	w.refused(409, "Conflict", "concurrent", http.MethodPatch, poolPath, `{"tags":{"a":"2"}}`)
	w.clock.Advance(25 * time.Second)
	w.must(200, http.MethodPatch, poolPath, `{"tags":{"a":"2"}}`)

	w.must(202, http.MethodPost, poolPath+"/virtualMachines/0/powerOff", "")
	w.refused(409, "Conflict", "concurrent", http.MethodPost, poolPath+"/virtualMachines/0/start", "")
}

func TestADeleteTakesOverFromARunningOperation(t *testing.T) {
	w := onePool(t, nil)
	stop := w.must(202, http.MethodPost, poolPath+"/virtualMachines/0/powerOff", "")
	w.must(202, http.MethodDelete, poolPath+"/virtualMachines/0", "")
	if got := w.poll(stop); text(got.body, "status") != "Canceled" || text(got.body, "error", "code") != "OperationPreempted" {
		t.Fatalf("stop %v", got.body)
	}
	w.clock.Advance(5 * time.Minute)
	w.must(404, http.MethodGet, poolPath+"/virtualMachines/0", "")
}

// Point 10 (permissions are answered before they are needed).

func TestRolesGrantAndAreListed(t *testing.T) {
	w := onePool(t, nil)
	w.s.SetRoles(tester, Role{Scope: groupPath, Actions: []string{"*"}, NotActions: []string{"Microsoft.Compute/snapshots/write", "Microsoft.Compute/*/powerOff/action"}})
	w.refused(403, "AuthorizationFailed", "'Microsoft.Compute/snapshots/write' over scope", http.MethodPut, compute+"/snapshots/s", w.snapshotDoc("0"))
	w.refused(403, "AuthorizationFailed", "'Microsoft.Compute/virtualMachineScaleSets/virtualMachines/powerOff/action'", http.MethodPost, poolPath+"/virtualMachines/0/powerOff", "")
	list := w.must(200, http.MethodGet, groupPath+"/providers/Microsoft.Authorization/permissions", "")
	denied, _ := dig(items(list.body, "value")[0], "notActions").([]any)
	if len(denied) != 2 || denied[0] != "Microsoft.Compute/snapshots/write" {
		t.Fatalf("permissions %v", list.body)
	}
	w.must(200, http.MethodGet, poolPath+"/providers/Microsoft.Authorization/permissions", "")
	w.refused(403, "AuthorizationFailed", "'Microsoft.Compute/skus/read'", http.MethodGet, subscription+"/providers/Microsoft.Compute/skus", "")

	// Another role may grant what one takes back, and none at all grants nothing.
	w.s.SetRoles(tester, Role{Scope: groupPath, Actions: []string{"*"}, NotActions: []string{"Microsoft.Compute/snapshots/write"}},
		Role{Scope: subscription, Actions: []string{"Microsoft.Compute/snapshots/WRITE"}})
	w.must(202, http.MethodPut, compute+"/snapshots/s", w.snapshotDoc("0"))
	w.s.SetRoles(tester)
	w.refused(403, "AuthorizationFailed", "virtualMachineScaleSets/read", http.MethodGet, poolPath, "")
}

// TestLinkedActions: a write that refers to a resource needs a right on that one too.
func TestLinkedActions(t *testing.T) {
	w := onePool(t, instant)
	w.build("0", "1.0.0")
	all := func(but string) Role {
		return Role{Scope: groupPath, Actions: []string{"*"}, NotActions: []string{but}}
	}
	w.s.SetRoles(tester, all("Microsoft.Compute/disks/beginGetAccess/action"))
	w.refused(403, "LinkedAuthorizationFailed", "'Microsoft.Compute/disks/beginGetAccess/action' on the linked scope(s)", http.MethodPut, compute+"/snapshots/s", w.snapshotDoc("0"))
	w.s.SetRoles(tester, all("Microsoft.Compute/snapshots/beginGetAccess/action"))
	w.must(200, http.MethodPut, compute+"/snapshots/s", w.snapshotDoc("0"))
	w.refused(403, "LinkedAuthorizationFailed", "'Microsoft.Compute/snapshots/beginGetAccess/action'", http.MethodPut, definitionURL+"/versions/2.0.0", versionDoc("s"))
	w.s.SetRoles(tester, all("Microsoft.Compute/galleries/images/versions/read"))
	w.refused(403, "LinkedAuthorizationFailed", "'Microsoft.Compute/galleries/images/versions/read'", http.MethodPatch, poolPath,
		`{"properties":{"virtualMachineProfile":{"storageProfile":{"imageReference":{"id":"`+definitionURL+`/versions/1.0.0"}}}}}`)
}

func TestLocksAndDenyAssignments(t *testing.T) {
	w := onePool(t, instant)
	w.build("0", "1.0.0")
	lock := groupPath + "/providers/Microsoft.Authorization/locks/careful"
	w.must(201, http.MethodPut, lock, `{"properties":{"level":"CanNotDelete"}}`)
	w.refused(409, "ScopeLocked", "cannot perform delete", http.MethodDelete, compute+"/snapshots/s-1.0.0", "")
	w.must(200, http.MethodPatch, poolPath, `{"tags":{"a":"b"}}`)
	if found := items(w.must(200, http.MethodGet, groupPath+"/providers/Microsoft.Authorization/locks", "").body, "value"); len(found) != 1 {
		t.Errorf("locks %v", found)
	}
	w.must(200, http.MethodPut, lock, `{"properties":{"level":"ReadOnly"}}`)
	w.refused(409, "ScopeLocked", "cannot perform write", http.MethodPost, poolPath+"/virtualMachines/0/powerOff", "")
	w.must(200, http.MethodDelete, lock, "")
	w.must(200, http.MethodDelete, compute+"/snapshots/s-1.0.0", "")

	w = onePool(t, func(s *Server) {
		s.DenyAssignments = []DenyAssignment{{Name: "lockdown", Scope: groupPath, Actions: []string{"*"}, NotActions: []string{"*/read"}}}
	})
	w.must(200, http.MethodGet, poolPath, "")
	w.refused(403, "DenyAssignmentAuthorizationFailed", "'lockdown'", http.MethodPatch, poolPath, `{"tags":{"a":"b"}}`)
	if found := items(w.must(200, http.MethodGet, groupPath+"/providers/Microsoft.Authorization/denyAssignments", "").body, "value"); len(found) != 1 {
		t.Errorf("deny assignments %v", found)
	}
}
