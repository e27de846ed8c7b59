package sim

import (
	"testing"

	"kamino.dev/kamino"
	"kamino.dev/kamino/internal/worlds"
)

// TestNodelessUnexplained: a run is killed while its donor is off and before there is a snapshot, etcd
// goes back in time, and the donor's node is younger than the backup. A restore lists the machine of
// the pool that is off and no node's, as it lists one that has a node.
func TestNodelessUnexplained(t *testing.T) {
	sites, _ := golden(t, aged)
	for _, s := range sites {
		w := aged(1)
		w.startUpdate(&proc{faults: []fault{{kind: worlds.KillUnheard, at: s.at}}}, goldenOptions())
		w.wait()
		m, n := w.donorOf("a-0")
		if m.Power != kamino.PowerOff || w.artifacts[artifactKey(poolA, kamino.KindSnapshot, kamino.SnapshotName("a"))] != nil {
			continue
		}
		w.RestoreEtcd()
		w.removeNode(n)
		w.audit.person("a-0")
		if r := w.restore(); m.Power == kamino.PowerOff && len(r.found) == 0 {
			t.Errorf("killed at %s: the donor is off, and a restore finds nothing and ends %v", s, r.err)
		}
	}
}
