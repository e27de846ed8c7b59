package emulator

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// Point 10: what an instance sees.

// ask sends a request to the metadata handler of an instance.
func ask(t *testing.T, h http.Handler, method, path, body string, header ...string) (int, string) {
	t.Helper()
	r := httptest.NewRequest(method, path, strings.NewReader(body))
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	raw, err := io.ReadAll(w.Result().Body)
	if err != nil {
		t.Fatal(err)
	}
	return w.Code, string(raw)
}

func TestInstanceMetadata(t *testing.T) {
	w := newWorld(t, Scenario{Pools: []Pool{{Name: "pool1", Count: 2, UserData: "aGVsbG8K", Tags: map[string]string{"a": "b"}}}}, nil)
	i := w.instance("1")
	h := w.s.Metadata(i.ID)
	for name, refused := range map[string][]string{
		"no header":  {"/metadata/instance?api-version=2021-02-01"},
		"proxied":    {"/metadata/instance?api-version=2021-02-01", "Metadata", "true", "X-Forwarded-For", "1.2.3.4"},
		"no version": {"/metadata/instance", "Metadata", "true"},
		"no text":    {"/metadata/instance/compute/vmId?api-version=2021-02-01", "Metadata", "true"},
	} {
		t.Run(name, func(t *testing.T) {
			if code, body := ask(t, h, "GET", refused[0], "", refused[1:]...); code != 400 || name == "no version" && !strings.Contains(body, "newest-versions") {
				t.Errorf("%s: %d %s", name, code, body)
			}
		})
	}
	code, body := ask(t, h, "GET", "/metadata/instance/compute?api-version=2021-02-01", "", "Metadata", "true")
	for _, want := range []string{`"vmId":"` + i.VMID + `"`, `"name":"pool1_1"`, `"vmScaleSetName":"pool1"`, `"computerName":"pool1000001"`, `"exactVersion":"` + genericVersion + `"`, `"resourceId":"` + i.ID, `"tags":"a:b;poolName:pool1"`} {
		if code != 200 || !strings.Contains(body, want) {
			t.Errorf("%d: no %s in %s", code, want, body)
		}
	}
	if code, body := ask(t, h, "GET", "/metadata/instance/compute/userData?api-version=2021-01-01&format=text", "", "Metadata", "true"); code != 200 || body != "aGVsbG8K" {
		t.Errorf("user data: %d %q", code, body)
	}
	if code, _ := ask(t, h, "GET", "/metadata/instance/compute/userData?api-version=2020-09-01&format=text", "", "Metadata", "true"); code != 404 {
		t.Errorf("user data before its version: %d", code)
	}
	w.must(202, http.MethodDelete, i.ID, "")
	w.clock.Advance(time.Hour)
	if code, _ := ask(t, h, "GET", "/metadata/instance?api-version=2021-02-01", "", "Metadata", "true"); code != 410 {
		t.Errorf("a deleted machine: %d", code)
	}
}

func TestExtendedMetadata(t *testing.T) {
	for kind, want := range map[string]string{"": `"ppsType":"None"`, "Savable": `"ppsType":"Savable"`} {
		w := newWorld(t, Scenario{Pools: []Pool{{Name: "pool1", Count: 1, PPSType: kind}}}, nil)
		h := w.s.Metadata(w.instance("0").ID)
		const path = "/metadata/instance?api-version=2021-08-01"
		if _, body := ask(t, h, "GET", path+"&extended=true", "", "Metadata", "true"); !strings.Contains(body, want) || !strings.Contains(body, `"hasCustomData":true`) {
			t.Errorf("%q: no %s in %s", kind, want, body)
		}
		if _, body := ask(t, h, "GET", path, "", "Metadata", "true"); strings.Contains(body, "ppsType") {
			t.Errorf("%q: told without being asked: %s", kind, body)
		}
	}
}

func TestManagedIdentityTokens(t *testing.T) {
	w := onePool(t, func(s *Server) { s.Identities = []Identity{{ClientID: "mi", ResourceID: "/subscriptions/x/mi"}} })
	h := w.s.Metadata(w.instance("0").ID)
	get := func(query string) (int, string) {
		return ask(t, h, "GET", "/metadata/identity/oauth2/token?api-version=2018-02-01&resource=arm"+query, "", "Metadata", "true")
	}
	if code, body := get("&client_id=nobody"); code != 400 || !strings.Contains(body, "Identity not found") {
		t.Errorf("unknown: %d %s", code, body)
	}
	if code, _ := get(""); code != 400 {
		t.Errorf("no system identity here: %d", code)
	}
	code, body := get("&msi_res_id=/subscriptions/x/mi")
	_, token, _ := strings.Cut(body, `"access_token":"`)
	token, _, _ = strings.Cut(token, `"`)
	if code != 200 {
		t.Fatalf("%d %s", code, body)
	}
	w.must(200, http.MethodGet, poolPath, "", "Authorization", "Bearer "+token)
}

func TestScheduledEvents(t *testing.T) {
	w := onePool(t, nil)
	i := w.instance("0")
	h := w.s.Metadata(i.ID)
	path := "/metadata/scheduledevents?api-version=2020-07-01"
	if _, body := ask(t, h, "GET", path, "", "Metadata", "true"); !strings.Contains(body, `"Events":[]`) {
		t.Fatalf("events %s", body)
	}
	id := w.s.ScheduleEvent(i.ID, "Reboot", 15*time.Minute)
	if _, body := ask(t, h, "GET", path, "", "Metadata", "true"); !strings.Contains(body, `"EventType":"Reboot"`) || !strings.Contains(body, `"Resources":["pool1_0"]`) {
		t.Fatalf("events %s", body)
	}
	ask(t, h, "POST", path, `{"StartRequests":[{"EventId":"`+id+`"}]}`, "Metadata", "true")
	if _, body := ask(t, h, "GET", path, "", "Metadata", "true"); !strings.Contains(body, `"Events":[]`) {
		t.Fatalf("events %s", body)
	}
}

// tag reads the text of the first XML element with a name.
func tag(document, name string) string {
	_, rest, _ := strings.Cut(document, "<"+name+">")
	value, _, _ := strings.Cut(rest, "<")
	return value
}

func healthReport(container, instance, state string) string {
	return `<?xml version="1.0" encoding="utf-8"?><Health><GoalStateIncarnation>1</GoalStateIncarnation><Container><ContainerId>` + container +
		`</ContainerId><RoleInstanceList><Role><InstanceId>` + instance + `</InstanceId><Health><State>` + state + `</State></Health></Role></RoleInstanceList></Container></Health>`
}

func TestProvisioningWaitsForTheReportOfReady(t *testing.T) {
	for _, quick := range []bool{true, false} {
		w := onePool(t, func(s *Server) {
			s.RequireReady = true
			if quick {
				instant(s)
			}
		})
		begun := w.must(200, http.MethodPatch, poolPath, `{"sku":{"capacity":5}}`)
		w.clock.Advance(10 * time.Minute)
		for _, id := range []string{"3", "4"} {
			if i := w.instance(id); i.PowerState != PowerRunning || i.State != "Creating" {
				t.Fatalf("%s is %s, %s", id, i.PowerState, i.State)
			}
		}
		wire := []string{"x-ms-version", "2012-11-30", "x-ms-agent-name", "test"}
		h := w.s.Metadata(w.instance("3").ID)
		if _, body := ask(t, h, "GET", "/?comp=versions", ""); !strings.Contains(body, "2012-11-30") {
			t.Errorf("versions %s", body)
		}
		if code, _ := ask(t, h, "GET", "/machine/?comp=goalstate", ""); code != 400 {
			t.Errorf("goal state without a version: %d", code)
		}
		_, goal := ask(t, h, "GET", "/machine/?comp=goalstate", "", wire...)
		if code, _ := ask(t, h, "POST", "/machine/?comp=health", healthReport("other", tag(goal, "InstanceId"), "Ready"), wire...); code != 400 {
			t.Errorf("a report for another container: %d", code)
		}
		if code, body := ask(t, h, "POST", "/machine/?comp=health", healthReport(tag(goal, "ContainerId"), tag(goal, "InstanceId"), "Ready"), wire...); code != 200 {
			t.Fatalf("health: %d %s", code, body)
		}
		if i := w.instance("3"); i.State != "Succeeded" || text(w.poll(begun).body, "status") != "InProgress" {
			t.Fatalf("after one report: %s, %v", i.State, w.poll(begun).body)
		}
		other := w.s.Metadata(w.instance("4").ID)
		if code, _ := ask(t, other, "POST", "/provisioning/health", `{"state":"NotReady","details":{"subStatus":"ProvisioningFailed","description":"no"}}`, "x-ms-guest-agent-name", "t"); code != 201 {
			t.Errorf("not ready: %d", code)
		}
		if got := w.stateOf(w.instance("4").ID).Facts["reportedReason"]; got != "ProvisioningFailed no" {
			t.Errorf("reason %v", got)
		}
		ask(t, other, "POST", "/provisioning/health", `{"state":"Ready"}`, "x-ms-guest-agent-name", "t")
		if got := text(w.poll(begun).body, "status"); got != "Succeeded" {
			t.Errorf("after both reports: %s", got)
		}
	}
}

func TestProvisioningTimesOut(t *testing.T) {
	w := onePool(t, func(s *Server) { s.RequireReady = true })
	begun := w.must(200, http.MethodPatch, poolPath, `{"sku":{"capacity":4}}`)
	w.clock.Advance(40 * time.Minute)
	got := w.poll(begun)
	if text(got.body, "status") != "Failed" || text(got.body, "error", "code") != "OSProvisioningTimedOut" {
		t.Fatalf("operation %v", got.body)
	}
	view := w.must(200, http.MethodGet, poolPath+"/virtualMachines/3/instanceView", "").body
	if code := text(items(view, "statuses")[0], "code"); code != "ProvisioningState/failed/OSProvisioningTimedOut" {
		t.Fatalf("status %s", code)
	}
}
