package poolstate

import (
	"strings"
	"testing"
	"time"

	"kamino.dev/kamino"
)

// TestConfigs: what nodes tell of their configuration is shown as it is, and never taken for more
// than words.
func TestConfigs(t *testing.T) {
	node := func(name, text string) kamino.Node {
		return kamino.Node{Name: name, Annotations: map[string]string{kamino.AnnotationConfig: text}}
	}
	o := State{Nodes: []kamino.Node{
		node("n3", `{"generation":310,"status":"RolledBack","error":"kubelet not healthy\u001b[31m within 2m0s","hash":"sha256:a","offered":{"generation":311,"hash":"sha256:b"},"at":"2026-11-21T10:00:00Z"}`),
		node("n1", `{"generation":311,"status":"Applied","error":"","hash":"sha256:b","at":"2026-11-21T10:00:00Z"}`),
		node("n2", `{"generation":0,"status":"Image","at":""}`),
		node("n4", `{"generation":310,"status":"Unreadable","error":"`+strings.Repeat("x", 1000)+`"}`),
		node("n5", `{"generation":310,"status":"Invalid","offered":{"hash":"sha256:b"}}`),
		node("n6", `{"generation":310,"status":"Splendid"}`),
		node("n7", "none"), {Name: "n8"}}}
	all := o.configs()
	if len(all) != 6 {
		t.Fatalf("%+v", all)
	}
	if want := (kamino.NodeConfig{Node: "n1", Generation: 311, Status: kamino.ConfigApplied, Since: time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC)}); all[0] != want {
		t.Errorf("%+v", all[0])
	}
	if all[1].Status != kamino.ConfigImage || all[5].Status != kamino.ConfigUnknown || len(all[3].Reason) > kamino.MaxConfigReason+len("…") || strings.Contains(all[2].Reason, "\x1b") {
		t.Errorf("%+v", all)
	}
	failed := PoolStatus{Configs: all}.FailedConfigs()
	if len(failed) != 3 {
		t.Fatalf("failed: %+v", failed)
	}
	for i, want := range []string{"node n3 refused generation 311 (RolledBack): kubelet not healthy", "node n4 cannot read its NodeConfig (Unreadable): xxx", "node n5 refused its NodeConfig (Invalid): no reason given"} {
		if !strings.HasPrefix(failed[i].String(), want) {
			t.Errorf("%q, want %q", failed[i], want)
		}
	}
}

// TestAbandonedProof: a version is being proved while a canary of it is there, or a run that lives
// has it; else its proof was abandoned.
func TestAbandonedProof(t *testing.T) {
	now := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	v := kamino.ParseVersion(kamino.Artifact{Kind: kamino.KindVersion, Name: "2026.11.22", ID: "/d/versions/2026.11.22", State: kamino.Succeeded, Ready: true}).Offering(kamino.TagOfferProving)
	lease := func(version string, silence time.Duration) kamino.Lease {
		return kamino.Lease{Holder: "r", Renewed: now.Add(-silence), Record: kamino.Record{Version: version}}
	}
	for name, tt := range map[string]struct {
		lease    kamino.Lease
		canaries []kamino.Canary
		proof    string
		life     kamino.Phase
	}{
		"nobody":             {proof: "abandoned", life: kamino.PhaseHidden},
		"a canary":           {canaries: []kamino.Canary{{Version: strings.ToUpper(v.ID)}}, life: kamino.PhaseProving},
		"another's canary":   {canaries: []kamino.Canary{{Version: "/d/versions/2026.11.21"}}, proof: "abandoned", life: kamino.PhaseHidden},
		"a run":              {lease: lease(v.Name, time.Second), life: kamino.PhaseProving},
		"a run that is dead": {lease: lease(v.Name, time.Hour), proof: "abandoned", life: kamino.PhaseHidden},
		"a run of another":   {lease: lease("2026.11.23", time.Second), proof: "abandoned", life: kamino.PhaseHidden},
	} {
		t.Run(name, func(t *testing.T) {
			o := State{ID: "p", Lease: tt.lease, Canaries: tt.canaries, Versions: []kamino.Version{v}}
			if got := o.Status(now, nil).Versions[0]; got.Phase != tt.life || got.Proof != tt.proof {
				t.Errorf("%s: %s, proof %q; want %s, %q", name, got.Phase, got.Proof, tt.life, tt.proof)
			}
		})
	}
}

// TestAwayWithoutLease: somebody deleted the lease of a pool while its donor was off. The marks of
// the node tell that; the alert KaminoDonorAway, the event and the notification go by Away.
func TestAwayWithoutLease(t *testing.T) {
	mark := `{"format":1,"run":"r1","epoch":1,"pool":"p","instance":"i","since":"2026-11-20T03:00:00Z","block":true,"sealing":true}`
	n := kamino.Node{Name: "n1", ProviderID: "i", Annotations: map[string]string{kamino.AnnotationRun: mark}, Taints: []kamino.Taint{{Key: kamino.TaintBlock, Value: "r1", Effect: "NoSchedule"}}}
	o := State{ID: "p", Nodes: []kamino.Node{n}}
	u := o.Unfinished(time.Date(2026, 11, 20, 9, 0, 0, 0, time.UTC))
	if u == nil || u.Donor != "n1" {
		t.Fatalf("%+v", u)
	}
	if u.Away().IsZero() {
		t.Error("donor n1 is off, and nothing tells since when: no alert, no event")
	}
}
