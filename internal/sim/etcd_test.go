package sim

import (
	"strings"
	"testing"
	"time"

	"kamino.dev/kamino"
	"kamino.dev/kamino/internal/worlds"
)

// TestEtcdRestored: wherever a run is when Kubernetes goes back in time, the donor comes back: by
// the run itself or, where its process was killed, by the next restore.
func TestEtcdRestored(t *testing.T) {
	sites, _ := golden(t, aged)
	var trials []trial
	for _, s := range sites {
		for i, r := range rivals("a-0", "a-1") {
			if strings.Contains(r.Name, "etcd") {
				trials = append(trials, trial{begin: aged, site: s, kind: worlds.RivalActs, rival: rivals("a-0", "a-1")[i]})
			}
		}
	}
	play(t, trials, []string{rivalEtcdRestored})
}

// TestEtcdRestoredAfterKill: the process of a run is killed at a write, and Kubernetes knows
// nothing of the run afterwards. A restore, or the next update with another donor, finds the donor
// by the snapshot of its disk; before there is one, a restore leaves it to a decision.
func TestEtcdRestoredAfterKill(t *testing.T) {
	next := map[string]func(*world) *proc{
		"restore": func(w *world) *proc { return w.restore() },
		"update":  func(w *world) *proc { return w.update(w.options("a-1")) },
	}
	sites, _ := golden(t, aged)
	for name, run := range next {
		found, decided := 0, 0
		for _, s := range sites {
			if !s.call.write || s.step == "image" { // what is being built stays somebody's for a day
				continue
			}
			w := aged(1)
			w.startUpdate(&proc{faults: []fault{{kind: worlds.KillUnheard, at: s.at}}}, w.goldenOptions())
			w.wait()
			w.RestoreEtcd()
			w.advance(w.now.Add(3 * time.Minute))
			m, n := w.donorOf("a-0")
			snapshot := w.artifacts[artifactKey(poolA, kamino.Snapshot, kamino.SnapshotName("a"))] != nil
			off := m.Power == kamino.PowerOff
			if off && !snapshot {
				w.decide(w.restore().found)
				decided += w.hits[cellDecided]
			} else if off {
				found++
			}
			back := run(w)
			if off && back.err != nil {
				t.Errorf("%s: %s ended %v", s, name, back.err)
			}
			w.advance(w.now.Add(2 * time.Minute))
			if m.Power != kamino.PowerOn || !n.Ready {
				t.Errorf("%s: after %s the donor is %s, ready %v; found %+v", s, name, m.Power, n.Ready, back.found)
			}
			for _, v := range w.audit.violations {
				t.Errorf("%s: %s: %s", s, name, v)
			}
		}
		if found == 0 {
			t.Errorf("%s: no site with a snapshot and a donor that is off", name)
		}
		if decided == 0 {
			t.Errorf("%s: no site where a restore leaves a donor to a decision", name)
		}
	}
}
