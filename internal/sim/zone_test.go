package sim

import (
	"context"
	"slices"
	"testing"
	"time"

	"kamino.dev/kamino"
)

// TestZoneOfItsOwnDead: nodes of a bad version register, are never Ready, and are replaced by the
// group's health checks; their Node objects stay for some time (a cloud controller's cache of
// instances is ten minutes old on Azure). They do not make their zone "cut off".
func TestZoneOfItsOwnDead(t *testing.T) {
	for _, zone := range []string{"", "westeurope-2"} {
		for _, linger := range []time.Duration{0, 90 * time.Second, 10 * time.Minute} {
			const label = "topology.kubernetes.io/zone"
			w := aged(1)
			w.watchNext()
			w.version("2026.03.09").Tags[kamino.TagRun] = "former"
			w.version("2026.03.09").sick = mute
			p := &proc{}
			w.spawn(p, func(ctx context.Context) {
				runs := []kamino.PoolResult{{Pool: poolA, Result: &kamino.Result{Version: "2026.03.09", Changed: true}}}
				p.err = p.engine().Watch(ctx, runs, kamino.Watching{For: time.Hour, Proof: kamino.Proving{Budget: 5 * time.Minute}})
			})
			w.nodes["a-1"].Labels[label] = zone // the one older node of the zone, well throughout
			var round func()
			round = func() {
				for _, m := range w.machines {
					if m.kubelet {
						continue
					}
					m.Zone = zone
					n := &simNode{Node: kamino.Node{Name: m.Hostname, UID: "uid-" + string(m.ID), OS: "linux", Architecture: "amd64", ProviderID: m.ID,
						SystemUUID: m.VMID + "-x", Created: w.now, Annotations: map[string]string{}, Labels: map[string]string{label: zone}}}
					w.nodes[m.Hostname] = n
					w.changeNode(n)
					w.after(4*time.Minute+linger, func() {
						if w.nodes[n.Name] == n {
							w.removeNode(n)
						}
					})
				}
				w.after(4*time.Minute, func() {
					p, sick := w.pools[poolA], 0
					for _, m := range w.machines {
						if !m.kubelet {
							w.removeMachine(m)
							sick++
						}
					}
					p.capacity -= sick
					w.grow(p, p.capacity+sick)
					w.after(joinTime+time.Second, round)
				})
			}
			w.after(time.Minute, func() { w.grow(w.pools[poolA], 5) })
			w.after(time.Minute+joinTime+time.Second, round)
			w.wait()
			if got := w.turns(); !slices.Equal(got, []string{"2026.03.09", "2026.03.05"}) || p.err == nil {
				t.Errorf("zone %q, Node objects stay for %s: %v; the next instance boots from %v", zone, linger, p.err, got)
			}
		}
	}
}

// TestZoneAfterRestart: a process that goes on with the watch finds two bad nodes that are older
// than the budget. They are no witnesses that their zone is cut off.
func TestZoneAfterRestart(t *testing.T) {
	for _, zone := range []string{"", "westeurope-2"} {
		const label = "topology.kubernetes.io/zone"
		w := aged(1)
		w.watchNext()
		w.version("2026.03.09").Tags[kamino.TagRun] = "former"
		w.version("2026.03.09").sick = mute
		w.nodes["a-1"].Labels[label] = zone
		w.machines[w.nodes["a-2"].ProviderID].Image = artifactID(poolA, kamino.Version, "2026.03.05")
		l := w.leases[poolA]
		l.Ledger.Promoted = &kamino.Promotion{Version: "2026.03.09", At: w.now}
		w.leases[poolA] = l
		zoneThem := func() {
			for _, m := range w.machines {
				if m.kubelet || m.Zone == zone && w.nodes[m.Hostname] != nil {
					continue
				}
				m.Zone = zone
				n := &simNode{Node: kamino.Node{Name: m.Hostname, UID: "uid-" + string(m.ID), OS: "linux", Architecture: "amd64", ProviderID: m.ID,
					SystemUUID: m.VMID, Created: w.now, Annotations: map[string]string{}, Labels: map[string]string{label: zone}}}
				w.nodes[m.Hostname] = n
				w.changeNode(n)
			}
		}
		w.after(time.Minute, func() { w.grow(w.pools[poolA], 5) })
		w.after(time.Minute+joinTime+time.Second, zoneThem)
		p := &proc{}
		w.spawn(p, func(ctx context.Context) {
			if p.err = p.engine().Clock.Sleep(ctx, 20*time.Minute); p.err != nil {
				return
			}
			runs := []kamino.PoolResult{{Pool: poolA, Result: &kamino.Result{Version: "2026.03.09", Changed: true}}}
			p.err = p.engine().Watch(ctx, runs, kamino.Watching{For: time.Hour, Proof: kamino.Proving{Budget: 5 * time.Minute}})
		})
		w.after(22*time.Minute, func() { w.grow(w.pools[poolA], 7) })
		w.after(22*time.Minute+joinTime+time.Second, zoneThem)
		w.wait()
		if got := w.turns(); !slices.Equal(got, []string{"2026.03.09", "2026.03.05"}) || p.err == nil {
			t.Errorf("zone %q: %v; the next instance boots from %v", zone, p.err, got)
		}
	}
}
