package emulator

import (
	"encoding/json"
	"encoding/xml"
	"fmt"
	"io"
	"net/http"
	"strings"
)

// wireServer adds the endpoints of 168.63.129.16: versions, goal state and health, as
// afterburn and azure-init use them
// (https://learn.microsoft.com/azure/virtual-machines/linux/no-agent).
func (g *guest) wireServer(mux *http.ServeMux) {
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("comp") != "versions" {
			http.NotFound(w, r)
			return
		}
		sendXML(w, `<Versions><Preferred><Version>2015-04-05</Version></Preferred><Supported><Version>2015-04-05</Version><Version>2012-11-30</Version></Supported></Versions>`)
	})
	mux.HandleFunc("GET /machine/{$}", g.goalState)
	mux.HandleFunc("POST /machine/{$}", g.health)
	mux.HandleFunc("POST /machine", g.health) // as cloud-init writes it
	mux.HandleFunc("POST /provisioning/health", g.healthJSON)
}

func sendXML(w http.ResponseWriter, document string) {
	w.Header().Set("Content-Type", "text/xml; charset=utf-8")
	_, _ = io.WriteString(w, `<?xml version="1.0" encoding="utf-8"?>`+document) // the guest may have gone away
}

// container and role are the names the goal state gives this machine.
func (g *guest) container() string { return derived("container", key(g.id)) }

func (g *guest) role(i Instance) string {
	return derived("role", key(g.id)) + "._" + i.Name
}

func (g *guest) known(w http.ResponseWriter, r *http.Request) (Instance, bool) {
	if r.Header.Get("x-ms-version") == "" {
		http.Error(w, "x-ms-version is missing", http.StatusBadRequest)
		return Instance{}, false
	}
	i, ok := g.s.Instance(g.id)
	if !ok {
		http.Error(w, "gone", http.StatusGone)
	}
	return i, ok
}

func (g *guest) goalState(w http.ResponseWriter, r *http.Request) {
	if r.URL.Query().Get("comp") != "goalstate" {
		http.NotFound(w, r)
		return
	}
	i, ok := g.known(w, r)
	if !ok {
		return
	}
	sendXML(w, fmt.Sprintf(`<GoalState xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance"><Version>2012-11-30</Version><Incarnation>1</Incarnation>`+
		`<Machine><ExpectedState>Started</ExpectedState><StopRolesDeadlineHint>300000</StopRolesDeadlineHint></Machine>`+
		`<Container><ContainerId>%s</ContainerId><RoleInstanceList><RoleInstance><InstanceId>%s</InstanceId><State>Started</State></RoleInstance></RoleInstanceList></Container></GoalState>`,
		g.container(), g.role(i)))
}

// health is the classic XML report.
func (g *guest) health(w http.ResponseWriter, r *http.Request) {
	if r.URL.Query().Get("comp") != "health" {
		http.NotFound(w, r)
		return
	}
	i, ok := g.known(w, r)
	if !ok {
		return
	}
	var report struct {
		XMLName     xml.Name `xml:"Health"`
		Incarnation int      `xml:"GoalStateIncarnation"`
		Container   string   `xml:"Container>ContainerId"`
		Roles       []struct {
			ID          string `xml:"InstanceId"`
			State       string `xml:"Health>State"`
			SubStatus   string `xml:"Health>Details>SubStatus"`
			Description string `xml:"Health>Details>Description"`
		} `xml:"Container>RoleInstanceList>Role"`
	}
	if err := xml.NewDecoder(io.LimitReader(r.Body, 1<<20)).Decode(&report); err != nil || len(report.Roles) != 1 {
		http.Error(w, "malformed health report", http.StatusBadRequest)
		return
	}
	role := report.Roles[0]
	if report.Incarnation != 1 || report.Container != g.container() || role.ID != g.role(i) {
		http.Error(w, "the report names another container, role or incarnation than the goal state", http.StatusBadRequest)
		return
	}
	g.s.reportReady(g.id, role.State == "Ready", strings.TrimSpace(role.SubStatus+" "+role.Description))
	w.WriteHeader(http.StatusOK)
}

// healthJSON is the newer report, as azure-init sends it.
func (g *guest) healthJSON(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("x-ms-guest-agent-name") == "" {
		http.Error(w, "x-ms-guest-agent-name is missing", http.StatusBadRequest)
		return
	}
	var report struct {
		State   string `json:"state"`
		Details struct {
			SubStatus   string `json:"subStatus"`
			Description string `json:"description"`
		} `json:"details"`
	}
	if err := json.NewDecoder(io.LimitReader(r.Body, 1<<20)).Decode(&report); err != nil || report.State != "Ready" &&
		report.State != "NotReady" {
		http.Error(w, "malformed health report", http.StatusBadRequest)
		return
	}
	g.s.reportReady(g.id, report.State == "Ready", strings.TrimSpace(report.Details.SubStatus+" "+report.Details.Description))
	w.WriteHeader(http.StatusCreated)
}
