package sim

import (
	"context"
	"slices"
	"testing"
	"time"

	"kamino.dev/kamino"
	"kamino.dev/kamino/engine"
)

// TestDeadOutnumber: a small pool scales out far with a bad version. The group's health checks
// replace its nodes, and their Node objects stay for ten minutes: more than the older nodes are.
func TestDeadOutnumber(t *testing.T) {
	const health, joins, linger = 4 * time.Minute, joinTime + time.Second, 90 * time.Second
	for _, to := range []int{5, 8, 15, 30} {
		w := badVersion("")
		p := watchBad(w, 0)
		var register func()
		register = func() {
			for _, n := range registerDead(w, "") {
				w.after(health+linger, func() {
					if w.nodes[n.Name] == n {
						w.removeNode(n)
					}
				})
			}
			w.after(health+joins, register)
		}
		w.after(time.Minute, func() { w.grow(w.pools[poolA], to) })
		w.after(time.Minute+joins, register)
		w.after(time.Minute+joins, func() { replaced(w, health) })
		w.wait()
		if got := w.turns(); !slices.Equal(got, []string{"2026.03.09", "2026.03.05"}) || p.err == nil {
			t.Errorf("to %d nodes: %v; the next instance boots from %v", to, p.err, got)
		}
	}
}

// TestRestartAmongDead: a process that goes on with a watch finds sick nodes that are older than
// the budget, more than the old ones. All that come later are sick, too.
func TestRestartAmongDead(t *testing.T) {
	for _, first := range []int{5, 7, 10} {
		w, p := resumed("", first, 3)
		if got := w.turns(); !slices.Equal(got, []string{"2026.03.09", "2026.03.05"}) || p.err == nil {
			t.Errorf("%d at first: %v; the next instance boots from %v", first, p.err, got)
		}
	}
}

// TestOthersScaleOut: while the nodes of a bad version are watched, another pool scales out far,
// and its new nodes register and need their time to be Ready.
func TestOthersScaleOut(t *testing.T) {
	w := badVersion("")
	p := watchBad(w, 0)
	w.after(time.Minute, func() { w.grow(w.pools[poolA], 5) })
	for i := range 12 { // every five minutes six nodes, Ready after 90 s
		for j := range 6 {
			w.after(time.Duration(i)*5*time.Minute+2*time.Minute, func() {
				name := "other-" + string(rune('a'+i)) + string(rune('a'+j))
				n := &simNode{Node: kamino.Node{Name: name, UID: "uid-" + name, OS: "linux", Architecture: "amd64", ProviderID: kamino.InstanceID("sim:///other/" + name),
					Created: w.now, Annotations: map[string]string{}, Labels: map[string]string{}}}
				w.nodes[name] = n
				w.changeNode(n)
				w.after(4*time.Minute, func() { w.removeNode(n) }) // short-lived, as those of a batch
			})
		}
	}
	w.wait()
	if got := w.turns(); !slices.Equal(got, []string{"2026.03.09", "2026.03.05"}) || p.err == nil {
		t.Errorf("%v; the next instance boots from %v", p.err, got)
	}
}

// refreshed is a provider that refuses its pool while an instance refresh replaces the instances,
// as aws/refuse.go does.
type refreshed struct {
	simProvider
	until func() bool
}

func (s refreshed) Pool(ctx context.Context, id kamino.PoolID) (kamino.Pool, error) {
	pool, err := s.simProvider.Pool(ctx, id)
	if s.until() {
		pool.Refusals = append(pool.Refusals, kamino.Refusal{Code: kamino.CodeRefresh, Field: "InstanceRefreshes", Value: "InProgress",
			Why: "an instance refresh replaces the group's instances at the moment", Do: "wait until it has ended, or cancel it"})
	}
	return pool, err
}

// TestWatchDuringRefresh: after a promotion somebody rolls the new image out by an instance
// refresh. The image is bad: the watch must take it back, at the latest when the refresh has ended.
func TestWatchDuringRefresh(t *testing.T) {
	for _, lasts := range []time.Duration{0, 25 * time.Minute} {
		w := badVersion("")
		ends := w.now.Add(lasts)
		p := &proc{}
		p.tune = func(e *engine.Engine) {
			e.Provider = refreshed{e.Provider.(simProvider), func() bool { return w.now.Before(ends) }}
		}
		w.spawn(p, p.watches)
		w.after(time.Minute, func() { w.grow(w.pools[poolA], 5) })
		w.wait()
		if got := w.turns(); !slices.Equal(got, []string{"2026.03.09", "2026.03.05"}) || p.err == nil {
			t.Errorf("a refresh of %s: %v; the next instance boots from %v", lasts, p.err, got)
		}
	}
}

// TestWatchReads: a watch of many new nodes asks the cloud no more for those that have been Ready.
func TestWatchReads(t *testing.T) {
	for _, nodes := range []int{10, 100, 300} {
		w := aged(1)
		w.watchNext()
		w.version("2026.03.09").Tags[kamino.TagRun] = "former"
		p := &proc{logging: true}
		w.spawn(p, p.watches)
		w.after(time.Minute, func() { w.grow(w.pools[poolA], 3+nodes) })
		w.wait()
		count := map[string]int{}
		for _, s := range p.log {
			count[s.call.method]++
		}
		t.Logf("%d new nodes, an hour: %v, %v", nodes, count, p.err)
		if most := 20 * nodes; count["Instance"] > most {
			t.Errorf("%d new nodes that are Ready: %d reads of single instances in an hour", nodes, count["Instance"])
		}
	}
}
