package sim

import (
	"context"
	"strings"
	"testing"
	"time"

	"kamino.dev/kamino"
	"kamino.dev/kamino/engine"
)

// TestWatchGoesOn: a watch that another process goes on with, as after a restart of the controller,
// does not take nodes that had been Ready for long for nodes that never became Ready.
func TestWatchGoesOn(t *testing.T) {
	w := aged(1)
	if p := w.update(options("a-0")); p.err != nil {
		t.Fatal(p.err)
	}
	next := birth(w)
	w.grow(w.pools[poolA], w.pools[poolA].capacity+3)
	w.advance(w.now.Add(30 * time.Minute)) // three nodes of it came, and are Ready
	ready, broken := 0, 0
	for _, m := range w.machines {
		n := w.nodes[m.Hostname]
		if n == nil || m.Image != artifactID(poolA, kamino.KindVersion, next) {
			continue
		}
		if n.Ready {
			ready++
		}
		if broken < 2 { // a rack loses its network
			n.Ready, m.Kubelet = false, false
			broken++
		}
	}
	if ready < 3 || broken < 2 {
		t.Fatalf("%d nodes of %s were Ready, %d broke", ready, next, broken)
	}
	w.watchNext()
	told := 0
	p := &proc{tune: heard(func(ev kamino.Event) {
		if ev.Kind == kamino.EventWarning && strings.Contains(ev.Message, "was older than 5m0s when the watch first saw it") {
			told++
		}
	})}
	w.spawn(p, func(ctx context.Context) {
		runs := []engine.PoolResult{{Pool: poolA, Result: &engine.Result{Version: next, Changed: true}}}
		p.err = p.engine().Watch(ctx, runs, engine.Watching{For: 30 * time.Minute, Proof: kamino.Proving{Budget: 5 * time.Minute}})
	})
	w.wait()
	if got := birth(w); p.err != nil || got != next {
		t.Errorf("the watch ended %v; nodes boot from %s, want %s", p.err, got, next)
	}
	if told != 1 {
		t.Errorf("%d warnings that nodes cannot be judged, want one", told)
	}
}

// TestWatchFactor: a budget that is a factor of the pool's history counts for the watch as for a
// proof, and the plain one where no history is known.
func TestWatchFactor(t *testing.T) {
	for name, tt := range map[string]struct {
		boots []float64 // of canaries, in seconds
		bad   bool
	}{
		"known":   {[]float64{60, 60, 60}, true},
		"unknown": {[]float64{60, 60}, false},
	} {
		w := aged(1)
		w.watchNext()
		w.version("2026.03.09").sick = mute
		l := w.leases[poolA]
		l.Ledger.Boots = tt.boots
		w.leases[poolA] = l
		p := &proc{}
		w.spawn(p, func(ctx context.Context) {
			runs := []engine.PoolResult{{Pool: poolA, Result: &engine.Result{Version: "2026.03.09", Changed: true}}}
			p.err = p.engine().Watch(ctx, runs, engine.Watching{For: time.Hour, Proof: kamino.Proving{Budget: 2 * time.Hour, Times: 3}})
		})
		w.after(time.Minute, func() { w.grow(w.pools[poolA], 5) })
		w.wait()
		if bad := birth(w) != "2026.03.09"; bad != tt.bad || (p.err != nil) != bad || bad && !strings.Contains(p.err.Error(), "not Ready within 3m0s") {
			t.Errorf("%s: withdrawn: %t, %v", name, bad, p.err)
		}
	}
}

// birthless is a provider that does not tell when instances were created, as that of AWS.
type birthless struct{ kamino.Provider }

func (b birthless) Find(ctx context.Context, pool kamino.Pool, kind kamino.Kind, name string) ([]kamino.Artifact, error) {
	found, err := b.Provider.Find(ctx, pool, kind, name)
	for i := range found {
		found[i].Births = nil
	}
	return found, err
}

// TestWatchWithoutBirths: the watch after a rollback to a version of which nodes run for months
// does not take them for new ones where the cloud does not tell when they were born.
func TestWatchWithoutBirths(t *testing.T) {
	for name, tell := range map[string]bool{"births are told": true, "births are not told": false} {
		w := aged(1)
		w.watchNext()
		broken := 0
		for range 4 { // of the older version, for months
			w.addMachine(poolA, "a-old"+string(rune('0'+broken)), artifactID(poolA, kamino.KindVersion, "2026.03.05"))
			broken++
		}
		for _, host := range []string{"a-old0", "a-old1"} { // and two are broken, which is why somebody looked
			w.nodes[host].Ready = false
			w.machines[w.nodes[host].ProviderID].Kubelet = false
		}
		w.advance(w.now.Add(30 * 24 * time.Hour))
		if _, err := w.rollback(t, engine.RollbackOptions{Pool: "a", To: "2026.03.05"}); err != nil {
			t.Fatal(err)
		}
		w.advance(w.now.Add(time.Minute))
		p := &proc{tune: func(e *engine.Engine) {
			if !tell {
				e.Provider = birthless{e.Provider}
			}
		}}
		w.spawn(p, func(ctx context.Context) {
			runs := []engine.PoolResult{{Pool: poolA, Result: &engine.Result{Version: "2026.03.05", Changed: true}}}
			p.err = p.engine().Watch(ctx, runs, engine.Watching{For: time.Hour, Proof: kamino.Proving{Budget: 10 * time.Minute}})
		})
		w.wait()
		if got := birth(w); p.err != nil || got != "2026.03.05" {
			t.Errorf("%s: the watch ended %v; nodes boot from %s, want the one that the rollback named", name, p.err, got)
		}
	}
}

// TestWatchKept: that new nodes of a version are not Ready which cannot be withdrawn stands in the
// ledger, where every process finds it, until a person has promoted the version all the same.
func TestWatchKept(t *testing.T) {
	w := aged(1)
	w.watchNext()
	w.version("2026.03.09").sick = mute
	for _, name := range []string{"2026.03.05", "2026.03.01", "2026.02.10", "2026.2.9"} {
		w.version(name).Tags[kamino.TagBad] = "it is old"
	}
	p := &proc{}
	w.spawn(p, p.watches)
	w.after(time.Minute, func() { w.grow(w.pools[poolA], 5) })
	w.wait()
	kept := w.status(t).Kept()
	if got := birth(w); got != "2026.03.09" || p.err == nil || kept == nil || kept.Withdrawn != got || !strings.Contains(kept.Reason, "not Ready within 5m0s") ||
		!strings.Contains(kept.Failure, "no good version before 2026.03.09") || !strings.Contains(kept.Failure, "kamino rollback") {
		t.Fatalf("%v; nodes boot from %s; the ledger says %+v", p.err, got, kept)
	}
	if back, err := w.promote(engine.PromoteOptions{Pool: "a", Version: "2026.03.09"}); err != nil || !back.Changed {
		t.Errorf("%+v, %v", back, err)
	}
	if kept := w.status(t).Kept(); kept != nil {
		t.Errorf("a person has promoted it, and the ledger still says %+v", kept)
	}
	if back, err := w.promote(engine.PromoteOptions{Pool: "a", Version: "2026.03.09"}); err != nil || back.Changed {
		t.Errorf("once more: %+v, %v", back, err)
	}
}

// pleading is a cluster in which nobody approves certificates.
type pleading struct{ simCluster }

func (c pleading) Examine(ctx context.Context, order kamino.ExamineOrder) (kamino.ClusterObservation, error) {
	seen, err := c.simCluster.Examine(ctx, order)
	seen.Requests = []kamino.CertificateRequest{{}}
	return seen, err
}

// countWarnings lets an engine count what it warns of with such words.
func countWarnings(words string, told *int) func(*engine.Engine) {
	return heard(func(ev kamino.Event) {
		if ev.Kind == kamino.EventWarning && strings.Contains(ev.Message, words) {
			*told++
		}
	})
}

// TestWatchUnheeded: new nodes that wait for certificates which nobody approves are not held
// against their version, and the watch says so once.
func TestWatchUnheeded(t *testing.T) {
	w := aged(1)
	w.watchNext()
	w.version("2026.03.09").sick = mute
	told := 0
	tell := countWarnings("cannot judge node a-new0: its certificate is denied, or not approved", &told)
	p := &proc{tune: func(e *engine.Engine) {
		tell(e)
		e.Cluster = pleading{e.Cluster.(simCluster)}
	}}
	w.spawn(p, p.watches)
	w.after(time.Minute, func() { w.grow(w.pools[poolA], 5) })
	w.wait()
	if got := birth(w); p.err != nil || got != "2026.03.09" || told != 1 {
		t.Errorf("%v; nodes boot from %s; %d warnings", p.err, got, told)
	}
}

// listless is a provider whose instances these credentials may not list.
type listless struct{ kamino.Provider }

func (l listless) Instances(context.Context, kamino.Pool) ([]kamino.InstanceID, error) {
	return nil, kamino.ErrForbidden
}

// TestWatchUnread: a watch that may not read new nodes does not pass for one that found nothing.
func TestWatchUnread(t *testing.T) {
	w := aged(1)
	told := 0
	tell := countWarnings("cannot judge new nodes, which it cannot read", &told)
	p := &proc{tune: func(e *engine.Engine) {
		tell(e)
		e.Provider = listless{e.Provider}
	}}
	w.spawn(p, p.watches)
	w.wait()
	if p.err != nil || told != 1 {
		t.Errorf("%v; %d warnings", p.err, told)
	}
}
