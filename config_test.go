package kamino

import (
	"strings"
	"testing"
	"time"
)

// TestConfigs: what nodes tell of their configuration is shown as it is, and never taken for more
// than words.
func TestConfigs(t *testing.T) {
	node := func(name, text string) Node {
		return Node{Name: name, Annotations: map[string]string{AnnotationConfig: text}}
	}
	o := overview{nodes: []Node{
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
	if want := (NodeConfig{Node: "n1", Generation: 311, Status: ConfigApplied, Since: time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC)}); all[0] != want {
		t.Errorf("%+v", all[0])
	}
	if all[1].Status != ConfigImage || all[5].Status != ConfigUnknown || len(all[3].Reason) > configReason+len("…") || strings.Contains(all[2].Reason, "\x1b") {
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
