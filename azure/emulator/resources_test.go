package emulator

import (
	"net/http"
	"strings"
	"testing"
)

func TestGroupsAnswerHEAD(t *testing.T) {
	w := onePool(t, nil)
	w.must(204, http.MethodHead, groupPath, "")
	w.must(404, http.MethodHead, strings.Replace(groupPath, "kamino-lab", "nope", 1), "")
}

func TestTagsAtScope(t *testing.T) {
	w := onePool(t, instant)
	w.must(200, http.MethodPut, compute+"/snapshots/s", w.snapshotDoc("0"))
	for _, scope := range []string{groupPath, poolPath, compute + "/snapshots/s"} {
		tags := scope + "/providers/Microsoft.Resources/tags/default"
		w.must(200, http.MethodPut, tags, `{"properties":{"tags":{"a":"1","b":"2"}}}`)
		w.must(200, http.MethodPatch, tags, `{"operation":"Merge","properties":{"tags":{"c":"3"}}}`)
		w.must(200, http.MethodPatch, tags, `{"operation":"Delete","properties":{"tags":{"a":"1"}}}`)
		if got := w.must(200, http.MethodGet, tags, "").body; text(got, "properties", "tags", "c") != "3" || has(got, "properties", "tags", "a") {
			t.Errorf("%s: tags %v", scope, got)
		}
		if got := w.must(200, http.MethodGet, scope, "").body; text(got, "tags", "b") != "2" {
			t.Errorf("%s itself: %v", scope, got["tags"])
		}
	}
	w.must(404, http.MethodGet, compute+"/snapshots/none/providers/Microsoft.Resources/tags/default", "")
	w.s.SetRoles(tester, Role{Actions: []string{"*"}, NotActions: []string{"Microsoft.Resources/tags/write"}})
	w.refused(403, "AuthorizationFailed", "'Microsoft.Resources/tags/write'", http.MethodPut, groupPath+"/providers/Microsoft.Resources/tags/default", `{}`)
}

func TestResourcesAreListed(t *testing.T) {
	w := onePool(t, instant)
	w.build("0", "1.0.0")
	count := func(filter string) int {
		return len(items(w.must(200, http.MethodGet, groupPath+"/resources?$filter="+filter, "").body, "value"))
	}
	if got := count(""); got != 5 { // scale set, snapshot, gallery, definition, version; no instance and no hidden disk
		t.Errorf("%d resources", got)
	}
	if got := count("resourceType%20eq%20'Microsoft.Compute/snapshots'"); got != 1 {
		t.Errorf("%d snapshots", got)
	}
	if got := count("tagName%20eq%20'poolName'%20and%20tagValue%20eq%20'pool1'"); got != 1 {
		t.Errorf("%d resources with that tag", got)
	}
	if got := len(items(w.must(200, http.MethodGet, subscription+"/locations", "").body, "value")); got == 0 {
		t.Error("no locations")
	}
	if got := items(w.must(200, http.MethodGet, poolPath+"/skus", "").body, "value"); len(got) == 0 || text(got[0], "sku", "name") != "Standard_D2s_v3" {
		t.Errorf("sizes %v", got)
	}
}

func TestSnapshotsCanBeDownloadedUnlessTheirPolicyForbidsIt(t *testing.T) {
	w := onePool(t, instant)
	w.must(200, http.MethodPut, compute+"/snapshots/s", w.snapshotDoc("0"))
	if link := text(w.must(200, http.MethodPost, compute+"/snapshots/s/beginGetAccess", `{"access":"Read","durationInSeconds":60}`).body, "accessSAS"); !strings.HasPrefix(link, w.url) {
		t.Errorf("link %q", link)
	}
	w.must(200, http.MethodPost, compute+"/snapshots/s/endGetAccess", "")
	closed := strings.Replace(w.snapshotDoc("0"), `"properties":{`, `"properties":{"networkAccessPolicy":"DenyAll",`, 1)
	w.must(200, http.MethodPut, compute+"/snapshots/closed", closed)
	w.refused(403, "DiskAccessDenied", "DenyAll", http.MethodPost, compute+"/snapshots/closed/beginGetAccess", `{"access":"Read","durationInSeconds":60}`)
	w.s.SetRoles(tester, Role{Actions: []string{"*"}, NotActions: []string{"Microsoft.Compute/snapshots/beginGetAccess/action"}})
	w.refused(403, "AuthorizationFailed", "'Microsoft.Compute/snapshots/beginGetAccess/action'", http.MethodPost, compute+"/snapshots/s/beginGetAccess", `{}`)
}
