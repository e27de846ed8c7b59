package poolstate

import (
	"fmt"
	"testing"

	"kamino.dev/kamino"
)

// TestBehind: the next node is compared with the Ready one that was patched last.
func TestBehind(t *testing.T) {
	node := func(name, kernel, patched, digest string) kamino.Node {
		text := fmt.Sprintf(`{"patchedAt":%q,"packageDigest":%q}`, patched, digest)
		return kamino.Node{Name: name, Ready: true, Software: kamino.Software{Kernel: kernel, OS: "Debian 12", Kubelet: "v1.36.3"}, Annotations: map[string]string{kamino.AnnotationFreshness: text}}
	}
	old, best := node("old", "6.9.0-1", "2026-11-01T00:00:00Z", "00"), node("best", "6.8.0-12", "2026-11-18T12:00:00Z", "11")
	unready, future := node("unready", "7.0", "2026-11-19T00:00:00Z", "22"), node("future", "6.1", "2027-01-01T00:00:00Z", "33")
	unready.Ready = false
	signalled := kamino.Node{Name: "kured", Ready: true, Software: kamino.Software{Kernel: "6.8.0-12"}, Annotations: map[string]string{kamino.KuredLastPatch.Annotation: "2026-11-19T12:00:00Z"}}
	garbled := kamino.Node{Name: "garbled", Ready: true, Annotations: map[string]string{kamino.AnnotationFreshness: "{"}, Software: kamino.Software{Kernel: "6.8.0-10"}}
	plain := kamino.Node{Name: "plain", Ready: true, Software: kamino.Software{Kernel: "6.8.0-9"}}
	tags := map[string]string{kamino.TagKernel: "6.8.0-9", kamino.TagOS: "Debian 12", kamino.TagPackages: "00", kamino.TagPatched: "2026-11-10T12:00:00Z"}
	for _, tt := range []struct {
		name  string
		nodes []kamino.Node
		tags  map[string]string
		want  string
	}{
		{"patched later", []kamino.Node{old, best, unready, future}, tags, "node best by 8.0 days: kernel 6.8.0-9 (there 6.8.0-12), packages differ"},
		{"by its signal", []kamino.Node{best, signalled}, tags, "node kured by 9.0 days: kernel 6.8.0-9 (there 6.8.0-12), packages not compared"},
		{"the newer kernel", []kamino.Node{plain, garbled}, tags, "node garbled: kernel 6.8.0-9 (there 6.8.0-10), packages not compared"},
		{"nothing", []kamino.Node{node("n", "6.8.0-9", "2026-11-10T12:00:00Z", "00")}, tags, "node n: the same kernel, OS, kubelet, runtime and packages"},
		{"patched before", []kamino.Node{old}, tags, "node old: kernel 6.8.0-9 (there 6.9.0-1), packages the same"},
		{"no node is Ready", []kamino.Node{unready}, tags, "<nil>"},
		{"a version that tells no kernel", []kamino.Node{best}, map[string]string{kamino.TagPackages: "00"}, "<nil>"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := fmt.Sprint(State{Nodes: tt.nodes}.behind(kamino.ParseVersion(kamino.Artifact{Name: "2026.11.10", Tags: tt.tags}), selectNow, []kamino.Signal{kamino.KuredLastPatch}))
			if got != tt.want {
				t.Errorf("%s: %s, want %s", tt.name, got, tt.want)
			}
		})
	}
}
