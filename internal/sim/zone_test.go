package sim

import (
	"context"
	"slices"
	"testing"
	"time"

	"kamino.dev/kamino"
	"kamino.dev/kamino/engine"
)

// zoneLabel is on nodes, and theZone is where the machines of a bad version are in these tests.
const (
	zoneLabel = "topology.kubernetes.io/zone"
	theZone   = "westeurope-2"
)

// badVersion is a pool whose next version is mute, with one older node in a zone, well throughout.
func badVersion(zone string) *world {
	w := aged(1)
	w.watchNext()
	w.version("2026.03.09").Tags[kamino.TagRun] = "former"
	w.version("2026.03.09").sick = mute
	w.nodes["a-1"].Labels[zoneLabel] = zone
	return w
}

// watchBad watches that version, from a while after its promotion.
func watchBad(w *world, after time.Duration) *proc {
	p := &proc{}
	w.spawn(p, func(ctx context.Context) {
		if p.err = p.engine().Clock.Sleep(ctx, after); p.err != nil {
			return
		}
		p.watches(ctx)
	})
	return p
}

// watches watches the new nodes of the version that a run has just promoted.
func (p *proc) watches(ctx context.Context) {
	runs := []engine.PoolResult{{Pool: poolA, Result: &engine.Result{Version: "2026.03.09", Changed: true}}}
	p.err = p.engine().Watch(ctx, runs, engine.Watching{For: time.Hour, Proof: kamino.Proving{Budget: 5 * time.Minute}})
}

// resumed is a world whose pool has scaled out with the bad version, to first instances and later
// by more, and a process that goes on with the watch when the first nodes are older than the
// budget.
func resumed(zone string, first, more int) (*world, *proc) {
	w := badVersion(zone)
	w.machines[w.nodes["a-2"].ProviderID].Image = artifactID(poolA, kamino.KindVersion, "2026.03.05")
	l := w.leases[poolA]
	l.Ledger.Promoted = &kamino.Promotion{Version: "2026.03.09", At: w.now}
	w.leases[poolA] = l
	p := watchBad(w, 20*time.Minute)
	for i, at := range []time.Duration{time.Minute, 22 * time.Minute} {
		w.after(at, func() { w.grow(w.pools[poolA], first+more*i) })
		w.after(at+joinTime+time.Second, func() { registerDead(w, zone) })
	}
	w.wait()
	return w, p
}

// registerDead gives each machine without a kubelet that has none a node in the zone that is never
// Ready, and returns them. With their machine's own UUID they would go when it is removed.
func registerDead(w *world, zone string) (dead []*simNode) {
	for _, m := range w.machines {
		if m.Kubelet || w.nodes[m.Hostname] != nil {
			continue
		}
		m.Zone = zone
		n := &simNode{Node: kamino.Node{Name: m.Hostname, UID: "uid-" + string(m.ID), OS: "linux", Architecture: "amd64", ProviderID: m.ID,
			SystemUUID: m.VMID + "-x", Created: w.now, Annotations: map[string]string{}, Labels: map[string]string{zoneLabel: zone}}}
		w.nodes[m.Hostname] = n
		w.changeNode(n)
		dead = append(dead, n)
	}
	return dead
}

// TestZoneOfItsOwnDead: nodes of a bad version register, are never Ready, and are replaced by the
// group's health checks; their Node objects stay for some time (a cloud controller's cache of
// instances is ten minutes old on Azure). They do not make their zone "cut off".
func TestZoneOfItsOwnDead(t *testing.T) {
	const health, joins = 4 * time.Minute, joinTime + time.Second
	for _, zone := range []string{"", theZone} {
		for _, linger := range []time.Duration{0, 90 * time.Second, 10 * time.Minute} {
			w := badVersion(zone)
			p := watchBad(w, 0)
			var register func()
			register = func() {
				for _, n := range registerDead(w, zone) {
					w.after(health+linger, func() {
						if w.nodes[n.Name] == n {
							w.removeNode(n)
						}
					})
				}
				w.after(health+joins, register)
			}
			w.after(time.Minute, func() { w.grow(w.pools[poolA], 5) })
			w.after(time.Minute+joins, register)
			w.after(time.Minute+joins, func() { replaced(w, health) })
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
	for _, zone := range []string{"", theZone} {
		w, p := resumed(zone, 5, 2)
		if got := w.turns(); !slices.Equal(got, []string{"2026.03.09", "2026.03.05"}) || p.err == nil {
			t.Errorf("zone %q: %v; the next instance boots from %v", zone, p.err, got)
		}
	}
}
