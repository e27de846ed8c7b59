package sim

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"kamino.dev/kamino"
	"kamino.dev/kamino/engine"
	"kamino.dev/kamino/internal/worlds"
)

// list plays a dry-run of restore.
func (w *world) list() *proc {
	p := &proc{}
	w.spawn(p, func(ctx context.Context) {
		p.found, p.err = p.engine().Restore(ctx, engine.RestoreOptions{DryRun: true})
	})
	w.wait()
	return p
}

// writes counts everything that processes wrote, leases included.
func (w *world) allWrites() int {
	n := w.writes
	for _, l := range w.leases {
		n += int(l.Epoch)
	}
	return n
}

// killed is a world whose update was killed at the n-th call of a method.
func killed(method string, nth int) *world {
	sites := &proc{logging: true}
	w := aged(1)
	w.startUpdate(sites, options("a-0"))
	w.wait()
	for _, s := range sites.log {
		if s.call.method != method {
			continue
		}
		if nth--; nth == 0 {
			w := aged(1)
			w.update(options("a-0"), fault{kind: worlds.KillAfter, at: s.at})
			return w
		}
	}
	panic("no such call: " + method)
}

func TestRestoreHealthy(t *testing.T) {
	for name, begin := range map[string]func(uint64) *world{"fresh": fresh, "aged": aged} {
		w := begin(1)
		before := w.allWrites()
		p := w.restore()
		if p.err != nil || len(p.found) != 0 {
			t.Errorf("%s: found %+v, %v", name, p.found, p.err)
		}
		if n := w.allWrites() - before; n != 0 {
			t.Errorf("%s: %d writes in a healthy cluster", name, n)
		}
		w.sound(t)
	}
}

// TestRestoreDryRun: what would be given back is listed, and nothing is done.
func TestRestoreDryRun(t *testing.T) {
	for _, at := range []struct{ method, want string }{
		{"Mark", "protected"}, {"Seal", "perhaps sealed and off"}, {"Create snapshot", "snapshot snapshot_a"},
	} {
		w := killed(at.method, 1)
		w.advance(w.now.Add(time.Hour))
		before, epoch := w.writes, w.leases[poolA].Epoch
		p := w.list()
		text := fmt.Sprintf("%+v", p.found)
		for _, want := range []string{at.want, "a-0", "p1-run1", "lease held by process p1 at step"} {
			if p.err != nil || !strings.Contains(text, want) {
				t.Errorf("killed at %s: dry-run does not tell %q: %s, %v", at.method, want, text, p.err)
			}
		}
		if w.writes != before || w.leases[poolA].Epoch != epoch {
			t.Errorf("killed at %s: the dry-run writes", at.method)
		}
		for _, l := range p.found {
			if l.Done != "" {
				t.Errorf("killed at %s: the dry-run says it did %+v", at.method, l)
			}
		}
		if p := w.restore(); p.err != nil || len(p.found) == 0 || p.found[0].Done == "" {
			t.Errorf("killed at %s: restore gives %+v, %v", at.method, p.found, p.err)
		}
		w.sound(t)
	}
}

// TestRestoreForeign: marks that are not ours, or of a newer version, are left
// alone and reported; so is the rest of that node.
func TestRestoreForeign(t *testing.T) {
	for text, want := range map[string]string{
		`{"format":2,"run":"x","pool":"p"}`: "written by a newer kamino",
		`somebody else's`:                   "was not written by kamino",
	} {
		w := aged(1)
		n := w.nodes["a-1"]
		n.Annotations[kamino.AnnotationRun] = text
		n.Taints = []kamino.Taint{{Key: kamino.TaintBlock, Value: "x", Effect: "NoSchedule"}}
		before := maps.Clone(n.Annotations)
		writes := w.allWrites()
		p := w.restore()
		if p.err != nil || len(p.found) != 1 || p.found[0].Node != "a-1" || p.found[0].Done != "" || !strings.Contains(p.found[0].Reason, want) {
			t.Errorf("found %+v, %v; want a report with %q", p.found, p.err, want)
		}
		if !maps.Equal(n.Annotations, before) || len(n.Taints) != 1 || w.allWrites() != writes {
			t.Errorf("node is %+v, %+v now, %d writes", n.Annotations, n.Taints, w.allWrites()-writes)
		}
		// Another node of the pool can be a donor all the same.
		if p := w.update(options("a-0")); p.err != nil {
			t.Errorf("update beside a foreign mark: %v", p.err)
		}
		if !maps.Equal(n.Annotations, before) || len(n.Taints) != 1 {
			t.Errorf("after an update node is %+v, %+v", n.Annotations, n.Taints)
		}
		// The node itself cannot.
		if p := w.update(options("a-1")); p.err == nil || !strings.Contains(p.err.Error(), want) {
			t.Errorf("update of a node with a foreign mark: %v", p.err)
		}
	}
}

// TestRestoreLive: a run whose process lives is left alone, and named.
func TestRestoreLive(t *testing.T) {
	w := aged(1)
	late := &rival{Rival: worlds.Rival{Name: "a restore"}, happen: func(w *world) {}}
	var second *proc
	listed := &proc{name: "third"}
	late.happen = func(w *world) {
		second = w.startRestore(&proc{name: "second"})
		w.spawn(listed, func(ctx context.Context) {
			listed.found, listed.err = listed.engine().Restore(ctx, engine.RestoreOptions{DryRun: true})
		})
	}
	first := w.update(options("a-0"), fault{kind: worlds.RivalActs, at: 60, rival: late})
	if first.err != nil || first.result.Adopted {
		t.Errorf("the run that lives: %v, adopted %v", first.err, first.result.Adopted)
	}
	if held := (*kamino.HeldError)(nil); !errors.As(second.err, &held) || held.Donor != "a-0" || len(second.found) == 0 {
		t.Fatalf("restore beside it: %+v, %v", second.found, second.err)
	}
	if listed.err != nil || len(listed.found) == 0 {
		t.Errorf("a dry run of it: %+v, %v", listed.found, listed.err)
	}
	for _, l := range listed.found {
		if !strings.Contains(l.Reason, "still active, left alone") {
			t.Errorf("the dry run does not tell that the run lives: %+v", l)
		}
	}
	for _, l := range second.found {
		for _, want := range []string{"held by run p1-run1", "process p1", "donor a-0", "step "} {
			if l.Done != "" || !strings.Contains(l.Reason, want) {
				t.Errorf("%+v does not tell %q", l, want)
			}
		}
	}
	w.sound(t)
}

// TestRestoreUnmarked: where somebody removed the annotation, the taint is
// enough to bring the donor back.
func TestRestoreUnmarked(t *testing.T) {
	w := killed("Create snapshot", 1)
	n := w.nodes["a-0"]
	n.Annotations = map[string]string{}
	w.leases = map[kamino.PoolID]kamino.Lease{} // and the lease
	p := w.restore()
	if p.err != nil || len(p.found) == 0 {
		t.Errorf("found %+v, %v", p.found, p.err)
	}
	w.sound(t)
}

// TestRestoreForgotten: where Kubernetes forgot the node, the lease is enough.
func TestRestoreForgotten(t *testing.T) {
	w := killed("Create snapshot", 1)
	w.removeNode(w.nodes["a-0"])
	if p := w.restore(); p.err != nil || len(p.found) == 0 {
		t.Errorf("found %+v, %v", p.found, p.err)
	}
	w.sound(t)
}

// TestRestoreTwice: the second finds nothing.
func TestRestoreTwice(t *testing.T) {
	w := killed("Seal", 1)
	if p := w.restore(); p.err != nil || len(p.found) == 0 {
		t.Errorf("found %+v, %v", p.found, p.err)
	}
	before := w.allWrites()
	if p := w.restore(); p.err != nil || len(p.found) != 0 || w.allWrites() != before {
		t.Errorf("the second finds %+v, %v, and makes %d writes", p.found, p.err, w.allWrites()-before)
	}
	w.sound(t)
}
