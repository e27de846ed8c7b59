package controller

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"kamino.dev/kamino"
	"kamino.dev/kamino/api/v1alpha1"
	"kamino.dev/kamino/controller/metrics"
	"kamino.dev/kamino/engine"
	"kamino.dev/kamino/poolstate"
)

// barred is a cluster that lists its nodes to nobody.
type barred struct {
	kamino.Cluster
	asked *atomic.Int32
}

func (b barred) Nodes(context.Context) ([]kamino.Node, error) {
	b.asked.Add(1)
	return nil, fmt.Errorf("list nodes: %w", kamino.ErrForbidden)
}

// TestWarning: what the watch of a version warns of counts as long as that is next; named again
// later, it is watched again.
func TestWarning(t *testing.T) {
	r := &reconciler{watches: map[kamino.PoolID]watching{"/pools/blue": {version: "v2", cancel: func() {}}}}
	r.warned("/pools/blue", "v1", "of a former one")
	r.warned("/pools/blue", "v2", "it cannot judge node n")
	r.unwatch("/pools/blue", "v1")
	if got := r.warning("/pools/blue", "v2"); got != "it cannot judge node n" {
		t.Errorf("it says %q", got)
	}
	if got := r.warning("/pools/blue", "v1"); got != "" {
		t.Errorf("of another version it says %q", got)
	}
	if _, on := r.watches["/pools/blue"]; on {
		t.Error("v2 would not be watched again")
	}
}

// TestWatchAgain: new nodes that may not be listed for a while are not left unwatched for good, and
// the log says so.
func TestWatchAgain(t *testing.T) {
	var log bytes.Buffer
	var asked atomic.Int32
	r := &reconciler{seen: &engine.Engine{Cluster: barred{asked: &asked}}, watches: map[kamino.PoolID]watching{}, opts: Options{Log: slog.New(slog.NewTextHandler(&log, nil))},
		runs: &runs{on: t.Context(), wake: func(string) { t.Error("it would be tried again without a pause") }, ended: func(string, string, []engine.PoolResult, error) {}}}
	spec, w := v1alpha1.NodePrototypeSpec{Watch: new(v1alpha1.Duration("1h"))}, world{now: now}
	w.view.Status.Next, w.view.Promoted = "2026.11.23", now.Add(-time.Minute)
	for pass := range int32(2) {
		r.watch("blue", spec, w, "/pools/blue", kamino.AutoOptions{})
		r.runs.busy.Wait()
		if asked.Load() != pass+1 || strings.Count(log.String(), "version=2026.11.23") != int(pass)+1 {
			t.Fatalf("pass %d: nodes were asked for %d times\n%s", pass, asked.Load(), log.String())
		}
	}
}

// endless is a cluster that answers when nobody waits any more.
type endless struct {
	kamino.Cluster
	asked chan struct{}
}

func (e endless) Nodes(ctx context.Context) ([]kamino.Node, error) {
	close(e.asked)
	<-ctx.Done()
	return nil, ctx.Err()
}

// TestForgetEndsWatch: with the NodePrototype goes the watch that it asked for, which might
// withdraw a version, and no other prototype's.
func TestForgetEndsWatch(t *testing.T) {
	asked := make(chan struct{})
	other := watching{prototype: "green", version: "v1", cancel: func() { t.Error("the watch of another prototype was ended") }}
	r := &reconciler{seen: &engine.Engine{Cluster: endless{asked: asked}}, watches: map[kamino.PoolID]watching{"/pools/green": other}, opts: Options{Log: slog.New(slog.DiscardHandler)},
		runs: &runs{on: t.Context(), wake: func(string) {}}, teller: &teller{}, pace: &pace{}, metrics: metrics.NewRuns(prometheus.NewRegistry(), "")}
	w := world{now: now}
	w.view.Status.Next, w.view.Promoted = "2026.11.23", now.Add(-time.Minute)
	r.watch("blue", v1alpha1.NodePrototypeSpec{Watch: new(v1alpha1.Duration("1h"))}, w, "/pools/blue", kamino.AutoOptions{})
	<-asked
	r.forget("blue")
	r.runs.busy.Wait()
	if _, on := r.watches["/pools/green"]; len(r.watches) != 1 || !on {
		t.Errorf("watched are %+v", r.watches)
	}
}

// watcher has a watch on for prototype blue, whose pool was promoted half an hour ago.
func watcher(t *testing.T, ended *bool) (*reconciler, world) {
	r := &reconciler{watches: map[kamino.PoolID]watching{"/pools/p": {prototype: "blue", version: "2026.11.23", lasts: time.Hour, cancel: func() { *ended = true }}},
		seen: &engine.Engine{Cluster: endless{asked: make(chan struct{})}}, opts: Options{Log: slog.New(slog.DiscardHandler)},
		runs: &runs{on: t.Context(), wake: func(string) {}}, teller: &teller{}, pace: &pace{}, metrics: metrics.NewRuns(prometheus.NewRegistry(), "")}
	w := world{now: now}
	w.view.Status.Next, w.view.Promoted = "2026.11.23", now.Add(-30*time.Minute)
	return r, w
}

// TestWatchHandedOver: a prototype that is renamed, as by a chart, finds the former one's watch
// on, and keeps it when that one is forgotten.
func TestWatchHandedOver(t *testing.T) {
	ended := false
	r, w := watcher(t, &ended)
	r.watch("green", v1alpha1.NodePrototypeSpec{Watch: new(v1alpha1.Duration("1h"))}, w, "/pools/p", kamino.AutoOptions{})
	r.forget("blue")
	if one := r.watches["/pools/p"]; ended || one.prototype != "green" {
		t.Errorf("the watch was ended, or is that of %q", one.prototype)
	}
}

// TestWatchInherited: a chart that renames a prototype makes the new one first: that one has the
// watch once the former is gone, and not where it has gone itself.
func TestWatchInherited(t *testing.T) {
	spec := v1alpha1.NodePrototypeSpec{Watch: new(v1alpha1.Duration("1h"))}
	for _, first := range []string{"blue", "green"} {
		ended := false
		r, w := watcher(t, &ended)
		w.trouble = &problem{v1alpha1.ReasonConflict, "x"}
		r.watch("green", spec, w, "/pools/p", kamino.AutoOptions{})
		r.watch("blue", spec, w, "/pools/p", kamino.AutoOptions{})
		other := map[string]string{"blue": "green", "green": "blue"}[first]
		r.forget(first)
		if one := r.watches["/pools/p"]; ended || one.prototype != other {
			t.Errorf("without %s the watch was ended, or is that of %q", first, one.prototype)
		}
		r.forget(other)
		if !ended || len(r.watches) > 0 {
			t.Errorf("nobody is left who asked for %+v", r.watches)
		}
	}
}

// TestWatchNoMoreAsked: a watch that may withdraw a version ends with what asked for it, and is as
// long as the spec says now.
func TestWatchNoMoreAsked(t *testing.T) {
	length := func(d v1alpha1.Duration) v1alpha1.NodePrototypeSpec { return v1alpha1.NodePrototypeSpec{Watch: &d} }
	for name, tt := range map[string]struct {
		spec  v1alpha1.NodePrototypeSpec
		pool  kamino.PoolID
		ends  bool
		anew  bool // another watch begins
		wrong *problem
	}{
		"unchanged":                   {spec: length("1h"), pool: "/pools/p"},
		"the pool cannot be read":     {spec: length("1h"), pool: "/pools/p", wrong: &problem{v1alpha1.ReasonUnreadable, "x"}},
		"removed":                     {pool: "/pools/p", ends: true},
		"removed, and wrong besides":  {pool: "/pools/p", wrong: &problem{v1alpha1.ReasonInvalid, "x"}, ends: true},
		"shortened to what is over":   {spec: length("10m"), pool: "/pools/p", ends: true},
		"shortened":                   {spec: length("40m"), pool: "/pools/p", ends: true, anew: true},
		"lengthened":                  {spec: length("2h"), pool: "/pools/p", ends: true, anew: true},
		"of another pool":             {spec: length("1h"), pool: "/pools/other", ends: true},
		"of a pool that is not found": {spec: length("1h"), wrong: &problem{v1alpha1.ReasonPoolNotFound, "x"}, ends: true},
	} {
		t.Run(name, func(t *testing.T) {
			ended := false
			r, w := watcher(t, &ended)
			if w.trouble = tt.wrong; tt.pool != "/pools/p" {
				w.view = poolstate.PoolView{} // of which nothing is next
			}
			r.watch("blue", tt.spec, w, tt.pool, kamino.AutoOptions{})
			began := r.seen.Cluster.(endless).asked
			if tt.anew {
				<-began
			}
			if ended != tt.ends {
				t.Errorf("the watch that was on has ended: %t, want %t", ended, tt.ends)
			}
			r.forget("blue")
			r.runs.busy.Wait()
			select {
			case <-began:
				if !tt.anew {
					t.Error("another watch begins")
				}
			default:
			}
			if len(r.watches) > 0 {
				t.Errorf("after its prototype, %+v is left", r.watches)
			}
		})
	}
}

// TestWatchLengthAndBack: a watch that was shortened to what is over goes on where the former
// length is asked for again.
func TestWatchLengthAndBack(t *testing.T) {
	ended := false
	r, w := watcher(t, &ended)
	r.watch("blue", v1alpha1.NodePrototypeSpec{Watch: new(v1alpha1.Duration("10m"))}, w, "/pools/p", kamino.AutoOptions{})
	r.watch("blue", v1alpha1.NodePrototypeSpec{Watch: new(v1alpha1.Duration("1h"))}, w, "/pools/p", kamino.AutoOptions{})
	<-r.seen.Cluster.(endless).asked
	r.forget("blue")
	r.runs.busy.Wait()
}
