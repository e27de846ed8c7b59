package emulator

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// workshop is Machines that write down what they are asked to do.
type workshop struct {
	mu     sync.Mutex
	calls  []string
	broken string // the call that fails
}

func (m *workshop) note(format string, args ...any) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	call := fmt.Sprintf(format, args...)
	m.calls = append(m.calls, call)
	if m.broken != "" && strings.HasPrefix(call, m.broken) {
		return errors.New("the tool slipped")
	}
	return nil
}

func base(id string) string { return id[strings.LastIndexByte(id, '/')+1:] }

func (m *workshop) Create(_ context.Context, i Instance) error {
	return m.note("create %s from %q", i.Name, base(i.ImageID))
}
func (m *workshop) Start(_ context.Context, i Instance) error { return m.note("start %s", i.Name) }
func (m *workshop) Stop(_ context.Context, i Instance, cut bool) error {
	return m.note("stop %s %t", i.Name, cut)
}
func (m *workshop) Delete(_ context.Context, i Instance) error { return m.note("delete %s", i.Name) }
func (m *workshop) Snapshot(_ context.Context, i Instance, id string) error {
	return m.note("snapshot %s to %s", i.Name, base(id))
}
func (m *workshop) Build(_ context.Context, from, to string) error {
	return m.note("build %s from %s", base(to), base(from))
}
func (m *workshop) Remove(_ context.Context, id string) error { return m.note("remove %s", base(id)) }
func (m *workshop) Interface(i Instance) (string, netip.Prefix, bool) {
	return "00:22:48:ab:cd:ef", netip.MustParsePrefix("10.1.0.7/24"), i.InstanceID == "0"
}

// done waits for a call, or for as many of it as n says.
func (m *workshop) done(t *testing.T, call string) {
	t.Helper()
	deadline := time.After(10 * time.Second)
	for {
		m.mu.Lock()
		found := slices.Contains(m.calls, call)
		calls := slices.Clone(m.calls)
		m.mu.Unlock()
		if found {
			return
		}
		select {
		case <-deadline:
			t.Fatalf("never asked to %s, but to %q", call, calls)
		case <-time.After(time.Millisecond):
		}
	}
}

// settled waits until nothing holds the resource any more.
func (w *world) settled(id string) map[string]any {
	w.Helper()
	deadline := time.After(10 * time.Second)
	for {
		if state := text(w.s.Document(id), "properties", "provisioningState"); state == "Succeeded" || state == "Failed" {
			return w.s.Document(id)
		}
		select {
		case <-deadline:
			w.Fatalf("%s does not settle: %v", id, w.s.Document(id))
		case <-time.After(time.Millisecond):
		}
	}
}

func TestMachinesAreAsked(t *testing.T) {
	m := &workshop{}
	w := newWorld(t, Scenario{Pools: []Pool{{Name: "pool1", Count: 1}}}, func(s *Server) { instant(s); s.Machines = m })
	m.done(t, `create pool1_0 from ""`)
	w.settled(poolPath)
	i := w.instance("0")
	w.must(202, http.MethodPost, i.ID+"/powerOff?skipShutdown=true", "")
	m.done(t, "stop pool1_0 true")
	w.settled(i.ID)
	w.must(202, http.MethodPut, compute+"/snapshots/s", `{"location":"westeurope","properties":{"creationData":{"createOption":"Copy","sourceResourceId":"`+i.OSDiskID+`"}}}`)
	m.done(t, "snapshot pool1_0 to s")
	w.settled(compute + "/snapshots/s")
	w.must(202, http.MethodPost, i.ID+"/start", "")
	m.done(t, "start pool1_0")
	w.settled(i.ID)
	w.must(202, http.MethodDelete, compute+"/snapshots/s", "")
	m.done(t, "remove s")
}

func TestMachineThatFails(t *testing.T) {
	m := &workshop{broken: "stop"}
	w := newWorld(t, Scenario{Pools: []Pool{{Name: "pool1", Count: 1}}}, func(s *Server) { instant(s); s.Machines = m })
	w.settled(poolPath)
	i := w.instance("0")
	w.must(202, http.MethodPost, i.ID+"/powerOff", "")
	m.done(t, "stop pool1_0 false")
	if doc := w.settled(i.ID); text(doc, "properties", "provisioningState") != "Failed" {
		t.Errorf("state %s", text(doc, "properties", "provisioningState"))
	}
	if now := w.instance("0"); now.PowerState != PowerRunning {
		t.Errorf("power %s of a machine that could not be stopped", now.PowerState)
	}
}

// What cloud-init and the extensions' agent need of the platform.
func TestGuestIsProvisioned(t *testing.T) {
	w := newWorld(t, Scenario{Pools: []Pool{{Name: "pool1", Count: 2, SSHKey: "ssh-ed25519 AAAAkey", Extensions: []Extension{
		{Name: "CSE", Publisher: "P", Type: "T", ProtectedSettings: map[string]any{"commandToExecute": "true"}}}}}}, func(s *Server) { instant(s); s.Machines = &workshop{} })
	w.settled(poolPath)
	h := w.s.Metadata(w.instance("0").ID)
	_, body := ask(t, h, "GET", "/metadata/instance?api-version=2021-08-01&extended=true", "", "Metadata", "true")
	for _, want := range []string{`"keyData":"ssh-ed25519 AAAAkey"`, `"macAddress":"002248ABCDEF"`, `"privateIpAddress":"10.1.0.7"`, `"address":"10.1.0.0"`, `"prefix":"24"`} {
		if !strings.Contains(body, want) {
			t.Errorf("no %s in %s", want, body)
		}
	}
	if _, body := ask(t, w.s.Metadata(w.instance("1").ID), "GET", "/metadata/instance?api-version=2021-08-01", "", "Metadata", "true"); !strings.Contains(body, `"interface":[]`) {
		t.Errorf("a machine without a network has one: %s", body)
	}
	if code, _ := ask(t, h, "POST", "/machine?comp=health", "<Health/>", "x-ms-version", "2012-11-30"); code != 400 {
		t.Errorf("cloud-init's health report without content: %d, want 400 and not 404 or a redirect", code)
	}
	got := w.s.Extensions(w.instance("0").ID)
	if len(got) != 1 || got[0].Name != "CSE" || got[0].ProtectedSettings["commandToExecute"] != "true" {
		t.Errorf("extensions %+v", got)
	}
	if w.s.Extensions(poolPath) != nil {
		t.Error("a scale set has extensions of an instance")
	}
}
