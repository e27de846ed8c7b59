package sim

import (
	"context"
	"strings"
	"testing"
	"time"

	"kamino.dev/kamino"
	"kamino.dev/kamino/engine"
	"kamino.dev/kamino/internal/worlds"
)

// TestEtcdRestored: wherever a run is when Kubernetes goes back in time, the donor comes back: by
// the run itself or, where its process was killed, by the next restore.
func TestEtcdRestored(t *testing.T) {
	var trials []trial
	for _, begin := range []func(uint64) *world{aged, replacing} {
		sites, _ := golden(t, begin)
		for _, s := range sites {
			for i, r := range rivals("a-0", "a-1") {
				if strings.Contains(r.Name, "etcd") {
					trials = append(trials, trial{begin: begin, site: s, kind: worlds.RivalActs, rival: rivals("a-0", "a-1")[i]})
				}
			}
		}
	}
	play(t, trials, []string{rivalEtcdRestored})
}

// TestEtcdRestoredAfterKill: the process of a run is killed at a write, and Kubernetes knows
// nothing of the run afterwards. A restore, or the next update with another donor, finds the donor
// by the snapshot of its disk; before there is one, a restore leaves it to a decision. In a pool
// that replaces what is off, nothing stays suspended.
func TestEtcdRestoredAfterKill(t *testing.T) {
	next := map[string]func(*world) *proc{
		"restore": func(w *world) *proc { return w.restore() },
		"update":  func(w *world) *proc { return w.update(options("a-1")) },
	}
	for kind, begin := range map[string]func(uint64) *world{"keeps what is off": aged, "replaces what is off": replacing} {
		sites, _ := golden(t, begin)
		for name, run := range next {
			name = kind + ", " + name
			found, decided, suspended := 0, 0, 0
			for _, s := range sites {
				if !s.call.write || s.step == "image" { // what is being built stays somebody's for a day
					continue
				}
				w := begin(1)
				w.startUpdate(&proc{faults: []fault{{kind: worlds.KillUnheard, at: s.at}}}, goldenOptions())
				w.wait()
				w.RestoreEtcd()
				w.advance(w.now.Add(3 * time.Minute))
				m, n := w.donorOf("a-0")
				snapshot := w.artifacts[artifactKey(poolA, kamino.KindSnapshot, kamino.SnapshotName("a"))] != nil
				away := m.Power == kamino.PowerOff || m.standing() != kamino.InService
				if away && !snapshot {
					w.decide(w.restore().found)
					decided += w.hits[cellDecided]
				} else if away {
					found++
				} else if w.pools[poolA].suspended {
					suspended++
				}
				back := run(w)
				if away && back.err != nil {
					t.Errorf("%s: %s ended %v", s, name, back.err)
				}
				w.advance(w.now.Add(2 * time.Minute))
				still := w.pools[poolA].suspended && (back.err == nil || len(back.found) > 0) // an update that is refused takes no donor
				if m.Power != kamino.PowerOn || !n.Ready || m.standing() != kamino.InService || still {
					t.Errorf("%s: after %s the donor is %s, ready %v, %s; suspended %v; found %+v, %v", s, name, m.Power, n.Ready, m.standing(), still, back.found, back.err)
				}
				for _, v := range w.audit.violations {
					t.Errorf("%s: %s: %s", s, name, v)
				}
			}
			if found == 0 {
				t.Errorf("%s: no site with a snapshot and a donor that is away", name)
			}
			if decided == 0 {
				t.Errorf("%s: no site where a restore leaves a donor to a decision", name)
			}
			if suspended == 0 && kind == "replaces what is off" {
				t.Errorf("%s: no site where only the pool shows that a run was there", name)
			}
		}
	}
}

// TestSuspendedUnknown: what a run suspended in a pool is listed and resumed by a restore, although
// neither lease nor node shows a run; not while a machine is out of service, which needs it.
func TestSuspendedUnknown(t *testing.T) {
	const suspended = "suspended in the pool"
	for _, held := range []bool{false, true} {
		w := replacing(1)
		p, m := w.pools[poolA], w.machineOf(w.nodes["a-0"])
		if p.suspended = true; held {
			m.held, p.capacity = kamino.Held, p.capacity-1
		}
		listed := &proc{}
		w.spawn(listed, func(ctx context.Context) {
			listed.found, listed.err = listed.engine().Restore(ctx, engine.RestoreOptions{DryRun: true})
		})
		w.wait()
		names := len(listed.found) == 1 && strings.Contains(listed.found[0].What, suspended)
		if listed.err != nil || names == held || !p.suspended {
			t.Errorf("held %v: a dry run finds %+v, %v; suspended %v", held, listed.found, listed.err, p.suspended)
		}
		first := w.restore()
		if held && (!p.suspended || !w.decide(first.found)) {
			t.Errorf("with a machine out of service, a restore finds %+v; suspended %v", first.found, p.suspended)
		} else if held {
			first = w.restore()
		}
		if first.err != nil || p.suspended || len(first.found) != 1 || !strings.Contains(first.found[0].What, suspended) || first.found[0].Done == "" {
			t.Errorf("held %v: found %+v, %v; suspended %v", held, first.found, first.err, p.suspended)
		}
		if again := w.restore(); again.err != nil || len(again.found) > 0 {
			t.Errorf("held %v: the next restore finds %+v, %v", held, again.found, again.err)
		}
		w.sound(t)
	}
}

// TestHeldUnknown: a machine that is out of service without a known run is listed also where others
// had suspended before what a run suspends, so that the pool does not show a run either.
func TestHeldUnknown(t *testing.T) {
	w := replacing(1)
	p, m := w.pools[poolA], w.machineOf(w.nodes["a-2"])
	m.held, p.capacity = kamino.Held, p.capacity-1
	first := w.restore()
	if first.err != nil || len(first.found) != 1 || first.found[0].Node != "a-2" || !w.decide(first.found) {
		t.Errorf("found %+v, %v", first.found, first.err)
	}
	if again := w.restore(); again.err != nil || len(again.found) > 0 {
		t.Errorf("the next restore finds %+v, %v", again.found, again.err)
	}
	w.sound(t)
}

// TestEtcdRestoredIntoRun: the backup was made in the middle of an earlier run of the same donor, so
// that the lease names that run again, and the node has its marks. That run has ended, and nobody
// acts for it: the donor of the present run comes back without a restore.
func TestEtcdRestoredIntoRun(t *testing.T) {
	for kind, begin := range map[string]func(uint64) *world{"keeps what is off": aged, "replaces what is off": replacing} {
		for _, step := range []string{"drain", "image"} {
			again := func(p *proc, rivals func(backup time.Time) []fault) *world {
				w, backup, first := begin(1), time.Time{}, &proc{}
				first.tune = heard(func(ev kamino.Event) {
					if ev.Kind == kamino.EventStarted && ev.Step == step {
						backup = w.now
					}
				})
				o := options("a-0")
				w.startUpdate(first, o)
				w.wait()
				w.advance(w.now.Add(time.Hour))
				o.Today, p.faults = kamino.TodayAgain, rivals(backup)
				w.startUpdate(p, o)
				w.wait()
				return w
			}
			log := &proc{logging: true}
			if again(log, func(time.Time) []fault { return nil }); log.err != nil {
				t.Fatal(log.err)
			}
			for _, s := range log.log {
				if !s.call.write {
					continue
				}
				w := again(&proc{}, func(backup time.Time) []fault {
					return []fault{{kind: worlds.RivalActs, at: s.at, rival: &rival{Rival: worlds.Rival{Name: rivalEtcdRestored}, happen: func(w *world) { w.restoreEtcd(backup) }}}}
				})
				m, n := w.donorOf("a-0")
				back := func() bool { return m.Power == kamino.PowerOn && n.Ready && m.standing() == kamino.InService }
				if w.advance(w.now.Add(3 * time.Minute)); !back() {
					t.Errorf("%s, backup at %s, restored at %s: the donor is %s, ready %v, %s", kind, step, s, m.Power, n.Ready, m.standing())
				}
				r := w.restore()
				if w.advance(w.now.Add(2 * time.Minute)); r.err != nil || !back() || w.pools[poolA].suspended || len(n.Taints) > 0 {
					t.Errorf("%s, backup at %s, restored at %s: after a restore the donor is %s, ready %v, %s, taints %v, suspended %v, %v",
						kind, step, s, m.Power, n.Ready, m.standing(), n.Taints, w.pools[poolA].suspended, r.err)
				}
			}
		}
	}
}

// TestEtcdRestoredOfYoungDonor: the node of a killed run's donor is younger than the backup, and a
// kubelet that is off registers none. A restore finds the machine by the disk that the snapshot is
// of, and does not delete this last witness before.
func TestEtcdRestoredOfYoungDonor(t *testing.T) {
	for kind, begin := range map[string]func(uint64) *world{"keeps what is off": aged, "replaces what is off": replacing} {
		sites, _ := golden(t, begin)
		found := 0
		for _, s := range sites {
			if !s.call.write || s.step == "image" {
				continue
			}
			w := begin(1)
			w.startUpdate(&proc{faults: []fault{{kind: worlds.KillUnheard, at: s.at}}}, goldenOptions())
			w.wait()
			m, n := w.donorOf("a-0")
			if m.Power != kamino.PowerOff || w.artifacts[artifactKey(poolA, kamino.KindSnapshot, kamino.SnapshotName("a"))] == nil {
				continue
			}
			found++
			w.RestoreEtcd()
			w.removeNode(n)
			w.audit.person("a-0")
			r := w.restore()
			w.advance(w.now.Add(2 * time.Minute))
			if n = w.nodes["a-0"]; r.err != nil || m.Power != kamino.PowerOn || m.standing() != kamino.InService || n == nil || !n.Ready || w.pools[poolA].suspended {
				t.Errorf("%s, killed at %s: after a restore the donor is %s, %s, suspended %v; found %+v, %v", kind, s, m.Power, m.standing(), w.pools[poolA].suspended, r.found, r.err)
			}
		}
		if found == 0 {
			t.Errorf("%s: no site with a snapshot and a donor that is off", kind)
		}
	}
}

// TestEtcdRestoredPods: the backup was made while a pod of the agent existed. Its kubelet, which has
// started again since, knows of no container of it and runs it once more; the agent does nothing.
func TestEtcdRestoredPods(t *testing.T) {
	runs := map[string]func(w *world, p *proc){
		"update": func(w *world, p *proc) { w.startUpdate(p, options("a-0")) },
		"patch": func(w *world, p *proc) {
			o := patchOptions()
			o.Pool, o.Donor = "", "a-0"
			w.spawn(p, func(ctx context.Context) { _, p.err = p.engine().Patch(ctx, o); p.left() })
		},
	}
	for name, start := range runs {
		w, golden := aged(1), &proc{logging: true}
		start(w, golden)
		w.wait()
		w.advance(w.now.Add(time.Hour))
		places := map[string]time.Time{}
		for _, s := range w.etcd.pods {
			places[string(s.pod.order.Task)] = s.at.Add(time.Millisecond)
		}
		for task, backup := range places {
			w, p := aged(1), &proc{}
			start(w, p)
			w.wait()
			w.advance(w.now.Add(time.Hour))
			m, n := w.donorOf("a-0")
			boots, release := m.Boots, m.release
			m.release = release
			w.restoreEtcd(backup)
			w.advance(w.now.Add(5 * time.Minute))
			if m.Power != kamino.PowerOn || m.Boots != boots || !n.Ready || m.Working() {
				t.Errorf("%s, backup while the pod %s exists: machine %s, boots %d and %d, ready %v", name, task, m.Power, boots, m.Boots, n.Ready)
			}
		}
	}
}
