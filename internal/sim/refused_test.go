package sim

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"kamino.dev/kamino"
	"kamino.dev/kamino/engine"
	"kamino.dev/kamino/poolstate"
)

// commands are those that begin with giving back what earlier runs of pool a left.
var commands = map[string]func(ctx context.Context, p *proc) error{
	"update": func(ctx context.Context, p *proc) error {
		_, err := p.engine().Update(ctx, options("a-0"))
		return err
	},
	"auto-update": func(ctx context.Context, p *proc) error {
		_, err := p.engine().AutoUpdate(ctx, crowded())
		return err
	},
	"rollback": func(ctx context.Context, p *proc) error {
		_, err := p.engine().Rollback(ctx, engine.RollbackOptions{Pool: "a", To: "2026.03.05"})
		return err
	},
}

// givenBack plays a command against a provider that is in its way, in a world whose run was killed
// with its donor off.
func givenBack(t *testing.T, name string, command func(context.Context, *proc) error, provider func(simProvider) kamino.Provider) {
	t.Helper()
	for _, free := range []bool{false, true} {
		w := killed("Create snapshot", 1)
		w.advance(w.now.Add(time.Hour))
		if l := w.leases[poolA]; free {
			l.Holder, l.Process, l.Record = "", "", kamino.Record{}
			w.leases[poolA] = l
		}
		w.audit.person("a-0")
		p := &proc{}
		p.tune = func(e *engine.Engine) { e.Provider = provider(e.Provider.(simProvider)) }
		w.spawn(p, func(ctx context.Context) { p.err = command(ctx, p) })
		w.wait()
		w.advance(w.now.Add(time.Hour))
		n := w.nodes["a-0"]
		if m := w.machineOf(n); m.Power != kamino.PowerOn || n.Annotations[kamino.AnnotationRun] != "" || n.Tainted(kamino.TaintBlock) {
			t.Errorf("%s, lease free %t, ended %v (hint %q); the donor is %s, %v, %v", name, free, p.err, kamino.Hint(p.err), m.Power, n.Annotations, n.Taints)
		}
	}
}

// rightless is a provider whose credentials lack a right that only a build needs, or whose group
// has a lock.
type rightless struct{ simProvider }

func (rightless) Preflight(context.Context) ([]kamino.Warning, error) {
	return nil, fmt.Errorf("in resource group rg: %w: Microsoft.Compute/galleries/images/write", kamino.ErrForbidden)
}

// TestRightlessGivesBack: credentials that may not build any more give back what was taken.
func TestRightlessGivesBack(t *testing.T) {
	for name, command := range commands {
		givenBack(t, name, command, func(s simProvider) kamino.Provider { return rightless{s} })
	}
}

// unlisted is a provider whose versions cannot be listed.
type unlisted struct{ simProvider }

func (s unlisted) Find(ctx context.Context, pool kamino.Pool, kind kamino.Kind, name string) ([]kamino.Artifact, error) {
	if kind == kamino.KindVersion && name == "" {
		return nil, fmt.Errorf("list versions: %w", kamino.ErrForbidden)
	}
	return s.simProvider.Find(ctx, pool, kind, name)
}

// TestUnlistedGivesBack: versions that cannot be listed are no reason to leave a donor off.
func TestUnlistedGivesBack(t *testing.T) {
	for name, command := range commands {
		givenBack(t, name, command, func(s simProvider) kamino.Provider { return unlisted{s} })
	}
}

// TestRollbackGivesBack: a rollback that has nothing to write, or is refused, begins with giving
// back too; a dry-run does not.
func TestRollbackGivesBack(t *testing.T) {
	for name, o := range map[string]engine.RollbackOptions{
		"nothing to change": {Pool: "a", To: "2026.03.09"},
		"no custom data":    {Pool: "a", To: poolstate.ToOriginal},
		"no such version":   {Pool: "a", To: "2020.01.01"},
	} {
		command := func(ctx context.Context, p *proc) error { _, err := p.engine().Rollback(ctx, o); return err }
		givenBack(t, "rollback, "+name, command, func(s simProvider) kamino.Provider { return s })
	}
	w := killed("Create snapshot", 1)
	w.advance(w.now.Add(time.Hour))
	before := w.allWrites()
	if _, err := w.rollback(t, engine.RollbackOptions{Pool: "a", To: "2026.03.05", DryRun: true}); err != nil || w.allWrites() != before {
		t.Errorf("a dry-run makes %d writes: %v", w.allWrites()-before, err)
	}
}

// TestTellsWhatItGaveBack: who moves what a pool boots from is told of the donor of an ended run,
// which was given back before.
func TestTellsWhatItGaveBack(t *testing.T) {
	for name, do := range map[string]func(*world) (engine.Rollback, error){
		"promote": func(w *world) (engine.Rollback, error) {
			w.waits("2026.03.19")
			return w.promote(engine.PromoteOptions{Pool: "a"})
		},
		"withdraw": func(w *world) (engine.Rollback, error) {
			out, p := w.withdraw(kamino.WithdrawOptions{Pool: "a", Reason: "bad"})
			return out, p.err
		},
		"rollback": func(w *world) (engine.Rollback, error) { return w.rollback(t, engine.RollbackOptions{Pool: "a"}) },
		"rollback to what is": func(w *world) (engine.Rollback, error) {
			return w.rollback(t, engine.RollbackOptions{Pool: "a", To: "2026.03.09"})
		},
	} {
		w := killed("Create snapshot", 1)
		w.advance(w.now.Add(time.Hour))
		out, err := do(w)
		if donor := func(l poolstate.Leftover) bool { return l.Node == "a-0" && l.Run != "" && l.Done != "" }; err != nil || !slices.ContainsFunc(out.GivenBack, donor) {
			t.Errorf("%s: %v, given back %+v", name, err, out.GivenBack)
		}
	}
}

// TestLostPoolHint: while a donor is away, one 404 of its pool must not tell people to delete Node
// objects, which carry the mark.
func TestLostPoolHint(t *testing.T) {
	for name, command := range commands {
		w := killed("Create snapshot", 1)
		w.advance(w.now.Add(time.Hour))
		w.leases[poolA] = kamino.Lease{Pool: poolA, Revision: "9"}
		delete(w.pools, poolA)
		p := &proc{}
		w.spawn(p, func(ctx context.Context) { p.err = command(ctx, p) })
		w.wait()
		if h := strings.Join(kamino.Hints(p.err), "\n"); strings.Contains(h, "kubectl delete node") || !strings.Contains(h, "kamino restore") {
			t.Errorf("the donor a-0 is away and marked; %s ends %v and says: %s", name, p.err, h)
		}
	}
}

// foreignMark marks node a-0 for a run that is not the pool's.
func foreignMark(w *world, block bool) *simNode {
	n := w.nodes["a-0"]
	w.forge("a-0", kamino.Mark{Format: 1, Run: "x", Block: block, Pool: poolA, Instance: n.ProviderID, VMID: n.SystemUUID, BootID: n.BootID})
	if block {
		n.Taints = []kamino.Taint{{Key: kamino.TaintBlock, Value: "x", Effect: "NoSchedule"}}
	}
	return n
}

// TestMarkLiftsNothing: the mark of a run that is not gone on with lifts no refusal. The node is
// given back, and then judged as any other.
func TestMarkLiftsNothing(t *testing.T) {
	for _, block := range []bool{false, true} {
		for _, code := range []kamino.Code{"fit", "pending-reboot", ""} {
			w := aged(1)
			w.tracing = true
			n := foreignMark(w, block)
			asked, p, o := 0, &proc{}, options("a-0")
			var refusals []kamino.Refusal
			switch code {
			case "fit":
				refusals = []kamino.Refusal{{Code: code, Field: "diskControllerType", Value: "NVMe", Why: "w", Do: "d"}}
			case "pending-reboot":
				n.Annotations[kamino.KuredPendingReboot.Annotation] = "2026-03-10T10:00:00Z"
				o.PendingReboot = []kamino.Signal{kamino.KuredPendingReboot}
			}
			p.tune = func(e *engine.Engine) { e.Provider = fitting{e.Provider.(simProvider), refusals, nil, &asked} }
			w.startUpdate(p, o)
			w.wait()
			var refused *kamino.RefusedError
			if is := errors.As(p.err, &refused); is != (code != "") || is && refused.Refusals[0].Code != code || asked == 0 && code != "pending-reboot" {
				t.Errorf("block %t, %q: fit was asked %d times, the run ended %v", block, code, asked, p.err)
			}
			if code != "" && (len(w.switches("a-0")) > 0 || p.result.AwaySeconds > 0) {
				t.Errorf("block %t, %q: the donor was away %.0f s", block, code, p.result.AwaySeconds)
			}
			if n.Annotations[kamino.AnnotationRun] != "" || w.leases[poolA].Holder != "" {
				t.Errorf("block %t, %q: annotations %v, lease held by %q", block, code, n.Annotations, w.leases[poolA].Holder)
			}
			w.sound(t)
		}
	}
}

// TestForgedMarkOfAnotherPool: a mark that nobody believes takes no turn of auto-update's other
// pools.
func TestForgedMarkOfAnotherPool(t *testing.T) {
	w := aged(1)
	b := kamino.PoolID(groupID + "/scaleSets/b")
	w.addPool(b, 1)
	n := w.nodes["b-0"]
	w.forge("b-0", kamino.Mark{Format: 1, Run: "never", Pool: b, Instance: n.ProviderID, VMID: n.SystemUUID, BootID: n.BootID, Sealing: true})
	w.patch("a-2", "2026-03-10T08:00:00Z")
	w.advance(w.now.Add(30 * time.Hour))
	o := autoOptions()
	o.Pools, o.MaxAway, o.MaxImageAge = []string{"a"}, 1, 24*time.Hour
	begun := w.now
	p, res := w.auto(o)
	if p.err != nil || !slices.ContainsFunc(res, func(r engine.PoolResult) bool { return r.Result != nil }) || w.now.Sub(begun) > 40*time.Minute {
		t.Errorf("auto-update of pool a took %s: %v, %+v", w.now.Sub(begun), p.err, res)
	}
}

// badLease is a cluster in which the lease of one pool cannot be read.
type badLease struct {
	kamino.Cluster
	pool kamino.PoolID
}

func (b badLease) Leases(ctx context.Context) ([]kamino.Lease, error) {
	all, err := b.Cluster.Leases(ctx)
	return append(all, kamino.Lease{Pool: b.pool, Err: errors.New("written by a newer kamino")}), err
}

// TestOneBadLease: a pool whose lease cannot be read is told, and keeps no other pool's donor off.
func TestOneBadLease(t *testing.T) {
	for _, command := range []string{"restore", "auto-update", "status"} {
		w := killed("Create snapshot", 1)
		b := kamino.PoolID(groupID + "/scaleSets/b")
		w.addPool(b, 1)
		w.advance(w.now.Add(time.Hour))
		before := len(w.leases)
		p := &proc{}
		p.tune = func(e *engine.Engine) { e.Cluster = badLease{e.Cluster, b} }
		var status []poolstate.PoolStatus
		w.spawn(p, func(ctx context.Context) {
			switch command {
			case "restore":
				_, p.err = p.engine().Restore(ctx, engine.RestoreOptions{})
			case "auto-update":
				_, p.err = p.engine().AutoUpdate(ctx, crowded())
			case "status":
				status, p.err = p.engine().Status(ctx, nil, nil)
			}
		})
		w.wait()
		w.advance(w.now.Add(time.Hour))
		told := p.err != nil && strings.Contains(p.err.Error(), "read lease of pool b: written by a newer kamino")
		for _, s := range status {
			told = told || strings.Contains(s.Error, "read lease of pool b")
		}
		if !told || len(w.leases) != before {
			t.Errorf("%s ended %v, %+v; leases %v", command, p.err, status, w.leases)
		}
		if m := w.machineOf(w.nodes["a-0"]); command != "status" && m.Power != kamino.PowerOn {
			t.Errorf("%s ended %v; the donor of pool a is %s", command, p.err, m.Power)
		}
	}
}
