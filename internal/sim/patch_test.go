package sim

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"kamino.dev/kamino"
	"kamino.dev/kamino/engine"
	"kamino.dev/kamino/internal/worlds"
	"kamino.dev/kamino/poolstate"
	"kamino.dev/kamino/selection"
)

// patchProc is a process that patches.
type patchProc struct {
	*proc
	out engine.PatchResult
}

func patchOptions() kamino.PatchOptions {
	o := kamino.PatchDefaults()
	o.Pool = "a"
	return o
}

func (w *world) startPatch(o kamino.PatchOptions, faults ...fault) *patchProc {
	p := &patchProc{proc: &proc{faults: faults}}
	w.spawn(p.proc, func(ctx context.Context) {
		p.out, p.err = p.engine().Patch(ctx, o)
		p.left()
	})
	return p
}

func (w *world) patched(o kamino.PatchOptions, faults ...fault) *patchProc {
	p := w.startPatch(o, faults...)
	w.wait()
	return p
}

// over is what went wrong until now, once everything has come to rest.
func (w *world) over() string {
	w.audit.settled()
	return strings.Join(w.audit.violations, "; ")
}

// patchStories are how patches end.
var patchStories = []struct {
	name string
	play func() string
}{
	{"one node is patched, restarted and signed, the others stay as they are", func() string {
		w := aged(1)
		boots := map[string]string{}
		for name, n := range w.nodes {
			boots[name] = n.BootID
		}
		p := w.patched(patchOptions())
		if p.err != nil || len(p.out.Nodes) != 1 {
			return fmt.Sprintf("%+v, %v", p.out, p.err)
		}
		one := p.out.Nodes[0]
		for name, n := range w.nodes {
			if taken := name == one.Node; taken != (n.BootID != boots[name]) || taken != (n.Labels[kamino.LabelPatched] == one.Signed) || len(n.Taints) > 0 {
				return fmt.Sprintf("node %s: %+v", name, n.Node)
			}
		}
		if one.Report == nil || len(one.Report.Changed) != 1 || !one.Restarted || one.Cycled || one.Signed == "" {
			return fmt.Sprintf("%+v", one)
		}
		first := one.Signed
		w.advance(w.now.Add(time.Hour))
		o := patchOptions()
		o.Pool, o.Donor = "", one.Node
		if p = w.patched(o); p.err != nil || p.out.Nodes[0].Restarted || p.out.Nodes[0].Signed != first {
			return fmt.Sprintf("again: %+v, %v", p.out, p.err)
		}
		return w.over()
	}},
	{"a node that is not in order stays blocked, and the next is taken", func() string {
		w := aged(1)
		w.machineOf(w.nodes["a-0"]).broken = true
		p := w.patched(patchOptions())
		if p.err != nil || len(p.out.Nodes) != 2 || !p.out.Nodes[0].Blocked || len(p.out.Nodes[0].Hints) == 0 || p.out.Nodes[1].Signed == "" {
			return fmt.Sprintf("%+v, %v", p.out, p.err)
		}
		if n := w.nodes["a-0"]; !n.Tainted(kamino.TaintPatchFailed) || n.Labels[kamino.LabelPatched] != "" || n.Annotations[kamino.AnnotationRun] != "" {
			return fmt.Sprintf("%+v", n.Node)
		}
		if all := selection.Select([]kamino.Node{w.nodes["a-0"].Node}, kamino.Rules{AnyPatch: true}, w.now); all[0].Rank != 0 {
			return "it may be a donor"
		}
		return w.over()
	}},
	{"a node that takes no pod to look at it stays blocked after the limit", func() string {
		w := aged(1)
		o := patchOptions()
		o.Pool, o.Donor = "", "a-0"
		began := w.now
		p := w.startPatch(o)
		p.tune = heard(func(ev kamino.Event) {
			if ev.Step == kamino.StepReboot && ev.Kind == kamino.EventDone {
				w.machineOf(w.nodes["a-0"]).Fate = worlds.NoRoom
			}
		})
		w.wait()
		if n := w.nodes["a-0"]; p.err == nil || !n.Tainted(kamino.TaintPatchFailed) || w.now.Sub(began) > time.Hour {
			return fmt.Sprintf("after %s: %+v, %v", w.now.Sub(began), p.out, p.err)
		}
		return w.over()
	}},
	{"a node that does not boot is power-cycled once", func() string {
		w := aged(1)
		m := w.machineOf(w.nodes["a-0"])
		m.stuck = true
		o := patchOptions()
		o.Pool, o.Donor = "", "a-0"
		p := w.patched(o)
		if p.err != nil || !p.out.Nodes[0].Cycled || !p.out.Nodes[0].Restarted {
			return fmt.Sprintf("%+v, %v", p.out, p.err)
		}
		return w.over()
	}},
	{"a node with a local volume is not power-cycled: a stop destroys the volume", func() string {
		w := aged(1)
		w.BindVolume("a-0")
		m := w.machineOf(w.nodes["a-0"])
		m.stuck = true
		p := w.patched(patchOptions())
		if len(p.out.Nodes) == 0 || p.out.Nodes[0].Cycled || !p.out.Nodes[0].Blocked || m.Power != kamino.PowerOn {
			return fmt.Sprintf("%v, %+v, machine %s", p.err, p.out, m.Power)
		}
		m.Booted() // a person restarts the guest
		return w.over()
	}},
	{"a node that somebody put back in service meanwhile is not power-cycled: its pool would replace it", func() string {
		w := replacing(1)
		m := w.machineOf(w.nodes["a-0"])
		id := m.ID
		m.stuck = true
		w.after(5*time.Minute, func() {
			if m.held != kamino.Held {
				w.audit.violate("I32", "%s is %q", m.Hostname, m.held)
			}
			w.serve("a-0")
		})
		p := w.patched(patchOptions())
		if p.err != nil || len(p.out.Nodes) != 2 || !p.out.Nodes[0].Blocked || !strings.Contains(p.out.Nodes[0].Error, "back in service") || p.out.Nodes[1].Signed == "" {
			return fmt.Sprintf("%+v, %v", p.out, p.err)
		}
		if m.Gone || m.Power != kamino.PowerOn || w.machines[id] != m || p.out.Nodes[0].Cycled {
			return fmt.Sprintf("the machine is %s, gone %t", m.Power, m.Gone)
		}
		m.Booted() // a person mends it
		return w.over()
	}},
	{"a node that does not come back at all is left on and blocked, and the lease is free", func() string {
		w := aged(1)
		w.machineOf(w.nodes["a-0"]).Fate = worlds.NeverBoots
		p := w.patched(patchOptions())
		if p.err != nil || len(p.out.Nodes) != 2 || !p.out.Nodes[0].Blocked || !p.out.Nodes[0].Cycled || w.standing(poolA).Holder != "" {
			return fmt.Sprintf("%+v, %v", p.out, p.err)
		}
		if m, n := w.machineOf(w.nodes["a-0"]), w.nodes["a-0"]; m.Power != kamino.PowerOn || !n.Tainted(kamino.TaintPatchFailed) {
			return fmt.Sprintf("%s, %+v", m.Power, n.Node)
		}
		w.mend()
		return w.over()
	}},
	{"a node whose packages were left half-way, or that has no image for the pod, is refused with its pods on it, and the next is taken", func() string {
		for _, sick := range []func(*machine){func(m *machine) { m.halfWay = true }, func(m *machine) { m.Fate = worlds.NoImage }} {
			w := aged(1)
			sick(w.machineOf(w.nodes["a-0"]))
			p := w.patched(patchOptions())
			if p.err != nil || len(p.out.Nodes) != 2 || p.out.Nodes[0].Node != "a-0" || p.out.Nodes[0].Blocked || p.out.Nodes[1].Signed == "" {
				return fmt.Sprintf("%+v, %v", p.out, p.err)
			}
			if drains := func(s kamino.StepTime) bool { return s.Name == kamino.StepDrain }; slices.ContainsFunc(p.out.Nodes[0].Steps, drains) || !slices.ContainsFunc(p.out.Nodes[1].Steps, drains) {
				return fmt.Sprintf("%+v", p.out.Nodes)
			}
			if n := w.nodes["a-0"]; len(n.Taints) > 0 || n.Annotations[kamino.AnnotationRun] != "" {
				return fmt.Sprintf("%+v", n.Node)
			}
			if wrong := w.over(); wrong != "" {
				return wrong
			}
		}
		return ""
	}},
	{"a patch that another process goes on with is not held up by its own pod", func() string {
		for at := 1; ; at++ {
			w, o := aged(1), patchOptions()
			o.Pool, o.Donor = "", "a-0"
			if p := w.patched(o, fault{kind: worlds.KillAfter, at: at}); !p.crashed {
				return ""
			}
			p := w.patched(o)
			if wrong := w.over(); wrong != "" || p.err != nil || p.out.Nodes[0].Signed == "" {
				return cmp.Or(wrong, fmt.Sprintf("killed after call %d: %v", at, p.err))
			}
		}
	}},
	{"no node is sealed on which another run upgrades packages, of which only the pod is left", func() string {
		o := patchOptions()
		o.Pool, o.Donor = "", "a-0"
		for at := 1; ; at++ {
			w := aged(1)
			if p := w.patched(o, fault{kind: worlds.KillAfter, at: at}); !p.crashed {
				return "its pod never met a run"
			}
			n := w.nodes["a-0"]
			left, working := w.patchPods(kamino.Node{Name: "a-0"}), w.machineOf(n).Working()
			w.DeleteLease()
			w.EditNode("a-0", func(n *kamino.Node) bool {
				delete(n.Annotations, kamino.AnnotationRun)
				n.Taints = nil
				return true
			})
			p := w.update(options("a-0"))
			if len(left) > 0 && working {
				w.DeletePods() // who removed the block examines the node, and removes them
				w.audit.settled()
				if wrong := w.audit.violations; len(wrong) > 0 || p.err == nil || !strings.Contains(p.err.Error(), left[0].String()) {
					return cmp.Or(strings.Join(wrong, "; "), fmt.Sprintf("killed after call %d: %v", at, p.err))
				}
				return ""
			}
		}
	}},
	{"what a check refused is checked again where another process goes on, and the node is mended since", func() string {
		for at := 1; ; at++ {
			w, o := aged(1), patchOptions()
			o.Pool, o.Donor = "", "a-0"
			m := w.machineOf(w.nodes["a-0"])
			m.halfWay = true
			if p := w.patched(o, fault{kind: worlds.KillAfter, at: at}); !p.crashed {
				return ""
			}
			m.halfWay = false
			p := w.patched(o)
			if wrong := w.over(); wrong != "" || p.err != nil || p.out.Nodes[0].Signed == "" {
				return fmt.Sprintf("killed after call %d: %v, %s", at, p.err, wrong)
			}
		}
	}},
	{"a refusal after a node was patched does not end as one before any was", func() string {
		w := aged(1)
		o := patchOptions()
		o.Nodes = 2
		before := w.nodes["a-0"].Labels[kamino.LabelPatched]
		var look func()
		look = func() {
			if w.nodes["a-0"].Labels[kamino.LabelPatched] != before && w.standing(poolA).Holder == "" {
				w.paused = "incident"
				return
			}
			w.after(10*time.Millisecond, look)
		}
		w.after(time.Minute, look)
		p := w.patched(o)
		if len(p.out.Nodes) != 2 || p.out.Nodes[0].Signed == "" || p.err == nil || !strings.Contains(p.err.Error(), "1 of 2 nodes of pool a patched") {
			return fmt.Sprintf("%+v, %v", p.out, p.err)
		}
		return w.over()
	}},
	{"the last node that serves is not taken", func() string {
		w := aged(1)
		for _, name := range []string{"a-1", "a-2"} {
			w.EditNode(name, func(n *kamino.Node) bool { n.Unschedulable = true; return true })
		}
		p := w.patched(patchOptions())
		refused := (*kamino.RefusedError)(nil)
		if !errors.As(p.err, &refused) || refused.Refusals[0].Code != "last-ready" || w.machineOf(w.nodes["a-0"]).release != 0 {
			return fmt.Sprintf("%+v, %v", p.out, p.err) + w.over()
		}
		return w.over()
	}},
	{"a node whose patch was killed is given back blocked, and the next patch of it mends that", func() string {
		for at := 1; ; at++ {
			w := aged(1)
			o := patchOptions()
			o.Pool, o.Donor = "", "a-0"
			if p := w.patched(o, fault{kind: worlds.KillAfter, at: at}); !p.crashed {
				return w.over() // there are no more calls
			}
			w.advance(w.now.Add(2 * time.Minute))
			if last := w.restore(); last.err != nil {
				return fmt.Sprintf("call %d: restore: %v", at, last.err)
			}
			if wrong := w.over(); wrong != "" {
				return fmt.Sprintf("call %d: %s", at, wrong)
			}
			p := w.patched(o)
			if n := w.nodes["a-0"]; p.err != nil || len(n.Taints) > 0 || n.Labels[kamino.LabelPatched] == "" {
				return fmt.Sprintf("call %d: patched again: %+v, %v", at, n.Node, p.err)
			}
			if wrong := w.over(); wrong != "" {
				return fmt.Sprintf("call %d: patched again: %s", at, wrong)
			}
		}
	}},
	{"no node is power-cycled for the time that a service asked to be left alone", func() string {
		o := patchOptions()
		o.Pool, o.Donor = "", "a-0"
		for at, last := 1, 1; at <= last; at++ {
			w := aged(1)
			p := w.patched(o, fault{kind: worlds.Throttled, at: at})
			if last = p.calls; len(p.out.Nodes) == 0 {
				last = at + 1 // refused before anything was begun
				continue
			}
			if p.err != nil || p.out.Nodes[0].Cycled || w.machineOf(w.nodes["a-0"]).Power != kamino.PowerOn {
				return fmt.Sprintf("call %d: %+v, %v", at, p.out, p.err)
			}
			if wrong := w.over(); wrong != "" {
				return fmt.Sprintf("call %d: %s", at, wrong)
			}
		}
		return ""
	}},
	{"a node of which no waiting evicts a pod is left as it is, and the next is taken", func() string {
		w := aged(1)
		w.pods = append(w.pods, &simPod{Pod: kamino.Pod{Namespace: "default", Name: "bare"}, node: "a-0", bare: true})
		p := w.patched(patchOptions())
		refused := (*kamino.RefusedError)(nil)
		if p.err != nil || len(p.out.Nodes) != 2 || p.out.Nodes[0].Node != "a-0" || !strings.Contains(p.out.Nodes[0].Error, "default/bare") || p.out.Nodes[1].Signed == "" {
			return fmt.Sprintf("%+v, %v", p.out, p.err)
		}
		o := patchOptions()
		o.Pool, o.Donor = "", "a-0"
		if p = w.patched(o); !errors.As(p.err, &refused) || refused.Refusals[0].Code != "drain" {
			return fmt.Sprintf("%+v, %v", p.out, p.err)
		}
		n := w.nodes["a-0"]
		if m := w.machineOf(n); m.release != 0 || m.Boots != 1 || len(n.Taints) > 0 || n.Annotations[kamino.AnnotationRun] != "" {
			return fmt.Sprintf("%+v, %d boots", n.Node, m.Boots)
		}
		return w.over()
	}},
	{"a node whose boot takes its former kernel stays blocked, and says so", func() string {
		w := aged(1)
		w.machineOf(w.nodes["a-0"]).former = true
		p := w.patched(patchOptions())
		if p.err != nil || len(p.out.Nodes) != 2 || !p.out.Nodes[0].Blocked || !strings.Contains(p.out.Nodes[0].Error, "kernel 6.2 is installed and 6.1 runs") {
			return fmt.Sprintf("%+v, %v", p.out, p.err)
		}
		if n := w.nodes["a-0"]; !n.Tainted(kamino.TaintPatchFailed) || n.Labels[kamino.LabelPatched] != "" {
			return fmt.Sprintf("%+v", n.Node)
		}
		return w.over()
	}},
	{"that nobody knows whether the newest kernel runs is told, and the node signed", func() string {
		w := aged(1)
		w.machineOf(w.nodes["a-0"]).outside = true
		p := w.patched(patchOptions())
		if p.err != nil || len(p.out.Nodes) != 1 || p.out.Nodes[0].Signed == "" || !slices.ContainsFunc(p.out.Nodes[0].Warnings, func(text string) bool {
			return strings.Contains(text, "a-0 has no kernel in /boot")
		}) {
			return fmt.Sprintf("%+v, %v", p.out, p.err)
		}
		return w.over()
	}},
	{"two nodes are patched, one after the other, also where one besides fails", func() string {
		for broken, want := range map[string]int{"": 2, "a-0": 3} {
			w := aged(1)
			if broken != "" {
				w.machineOf(w.nodes[broken]).broken = true
			}
			o := patchOptions()
			o.Nodes = 2
			p := w.patched(o)
			signed, blocked := 0, 0
			for _, n := range w.nodes {
				if n.Labels[kamino.LabelPatched] != "" && len(n.Taints) == 0 {
					signed++
				}
				if n.Tainted(kamino.TaintPatchFailed) {
					blocked++
				}
			}
			if p.err != nil || len(p.out.Nodes) != want || signed != 2 || blocked != want-2 {
				return fmt.Sprintf("%d signed, %d blocked, %+v, %v", signed, blocked, p.out, p.err)
			}
			if wrong := w.over(); wrong != "" {
				return wrong
			}
		}
		return ""
	}},
	{"no more candidates are tried than were asked for", func() string {
		for retries, want := range []int{1, 2} {
			w := aged(1)
			for _, name := range []string{"a-0", "a-1", "a-2"} {
				w.machineOf(w.nodes[name]).broken = true
			}
			o := patchOptions()
			o.Retries = retries
			p := w.patched(o)
			blocked := 0
			for _, n := range w.nodes {
				if n.Tainted(kamino.TaintPatchFailed) {
					blocked++
				}
			}
			if p.err == nil || len(p.out.Nodes) != want || blocked != want {
				return fmt.Sprintf("%d retries: %d blocked, %+v, %v", retries, blocked, p.out, p.err)
			}
			if wrong := w.over(); wrong != "" {
				return wrong
			}
		}
		return ""
	}},
	{"a night patches, selects and makes an image of the patched node", func() string {
		w := aged(1)
		w.advance(w.now.Add(time.Hour))
		o := autoOptions()
		o.Patch = &kamino.PatchOptions{Options: o.Options, Order: kamino.PatchDefaults().Order, Nodes: 1, Retries: 1, MaxAway: 1, MaxNotReady: 2}
		night, results := w.auto(o)
		if night.err != nil || len(results) != 1 || results[0].Patched == nil || results[0].Result == nil {
			return fmt.Sprintf("%+v, %v", results, night.err)
		}
		if one := results[0].Patched.Nodes[0]; one.Node != results[0].Donor || one.Signed == "" {
			return fmt.Sprintf("patched %+v, donor %s", one, results[0].Donor)
		}
		return w.over()
	}},
}

func init() { stories = append(stories, patchStories...) }

// patchRivals do something to the pool while a node is patched.
var patchRivals = map[string]func(w *world, node string){
	"kured restarts the node":       func(w *world, node string) { w.Reboot(node) },
	"the autoscaler takes the node": func(w *world, node string) { w.ScaleDown(node) },
	"the node's machine is deleted": func(w *world, node string) { w.DeleteMachine(node) },
	"a person cordons the node": func(w *world, node string) {
		w.EditNode(node, func(n *kamino.Node) bool { n.Unschedulable = true; return true })
	},
	"a person deletes the pods":  func(w *world, _ string) { w.DeletePods() },
	"the API server is away":     func(w *world, _ string) { w.CutAPI(2 * time.Minute) },
	"another process updates":    func(w *world, _ string) { w.Update("a-1") },
	"another process gives back": func(w *world, _ string) { w.Restore() },
	"another process patches":    func(w *world, _ string) { w.startPatch(patchOptions()) },
	"nothing":                    func(*world, string) {},
	"the node will not boot by itself": func(w *world, node string) {
		if m, _ := w.donorOf(node); m != nil {
			m.stuck = true
		}
	},
	"the node will be out of order": func(w *world, node string) {
		if m, _ := w.donorOf(node); m != nil && m.release == 0 {
			m.broken = true
		}
	},
}

// TestPatchWalks: wherever a patch is killed or disturbed, the next ones bring everything in order.
func TestPatchWalks(t *testing.T) {
	names := slices.Sorted(func(yield func(string) bool) {
		for name := range patchRivals {
			if !yield(name) {
				return
			}
		}
	})
	for i := range walks(t, 600, 10*time.Second) {
		seed := uint64(i)
		rng := rand.New(rand.NewPCG(seed, 18))
		w := aged(seed)
		w.replaces = rng.IntN(3) == 0
		rival := names[rng.IntN(len(names))]
		w.after(time.Duration(rng.IntN(400))*time.Second, func() { patchRivals[rival](w, "a-0") })
		var drawn []string
		for range 1 + rng.IntN(3) {
			kind := []worlds.Fault{worlds.KillBefore, worlds.KillAfter, worlds.LostReply, worlds.ServerError}[rng.IntN(4)]
			at := 1 + rng.IntN(150)
			drawn = append(drawn, fmt.Sprintf("%s at %d", kind, at))
			w.patched(patchOptions(), fault{kind: kind, at: at})
			w.advance(w.now.Add(time.Duration(rng.IntN(200)) * time.Second))
		}
		w.advance(w.now.Add(10 * time.Minute)) // the rival has come by then
		w.mend()
		for _, n := range w.nodes { // a person lets go what a cordon or a failure left
			if m := w.machineOf(n); m != nil {
				m.stuck = false
			}
		}
		w.wait() // for who has come last
		last := w.restore()
		wrong := w.over()
		if last.err != nil {
			wrong += fmt.Sprintf("; restore: %v", last.err)
		}
		if wrong != "" {
			t.Fatalf("seed %d, %s, %v: %s\n%s", seed, rival, drawn, wrong, w.tail(60))
		}
	}
}

// TestPatchPutBack: GitOps takes back the label that says when a node was patched, or writes back
// that of an earlier patch. Once that is mended, the node is patched and signed again.
func TestPatchPutBack(t *testing.T) {
	for _, was := range []string{"", "2026-01-01T000000Z"} {
		w := aged(1)
		n := w.nodes["a-0"]
		if was != "" {
			n.Labels[kamino.LabelPatched] = was
		}
		o := patchOptions()
		o.Pool, o.Donor = "", "a-0"
		w.PutBack("a-0")
		w.EditNode("a-0", func(n *kamino.Node) bool {
			n.Labels[kamino.LabelPatched], n.Labels["team"] = "2026-03-01T000000Z", "x"
			return true
		})
		w.advance(w.now.Add(time.Minute))
		if got := n.Labels[kamino.LabelPatched]; got != was || n.Labels["team"] != "x" {
			t.Fatalf("with label %q, GitOps leaves %v", was, n.Labels)
		}
		w.mend()
		p := w.patched(o)
		w.advance(w.now.Add(10 * time.Minute))
		if wrong := w.over(); p.err != nil || wrong != "" || len(p.out.Nodes) != 1 || n.Labels[kamino.LabelPatched] != p.out.Nodes[0].Signed {
			t.Errorf("with label %q: %+v, %v, labels %v: %s", was, p.out, p.err, n.Labels, wrong)
		}
	}
}

// TestPatchRebootedMeanwhile: a node that boots while a process which examined it is frozen is
// examined again before it is signed. The audit knows which boot was looked at.
func TestPatchRebootedMeanwhile(t *testing.T) {
	patchRebooted(t, 5, []string{kamino.StepExamine, kamino.StepSign}, func(w *world) { w.Reboot("a-0") }, func(out engine.PatchResult) bool {
		return len(out.Nodes) == 1 && out.Nodes[0].Signed != ""
	})
}

// TestPatchRebootedUnchecked: a node that somebody restarts while it is checked keeps its pods, and
// the next candidate is taken.
func TestPatchRebootedUnchecked(t *testing.T) {
	drained := func(s kamino.StepTime) bool { return s.Name == kamino.StepDrain }
	patchRebooted(t, 2, []string{kamino.StepCheck}, func(w *world) {
		w.Reboot("a-0")
		for _, pod := range w.patches {
			pod.AgentPod = shown(worlds.End{ExitCode: 137})
		}
	}, func(out engine.PatchResult) bool {
		return len(out.Nodes) == 2 && !slices.ContainsFunc(out.Nodes[0].Steps, drained) &&
			strings.Contains(out.Nodes[0].Error, "has booted since the run began") && out.Nodes[1].Signed != ""
	})
}

// patchRebooted lets kured freeze a patch and act at each call of some steps, of which there are at
// least so many.
func patchRebooted(t *testing.T, least int, steps []string, happen func(*world), right func(engine.PatchResult) bool) {
	t.Helper()
	w := aged(1)
	p := w.startPatch(patchOptions())
	p.logging = true
	w.wait()
	tried := 0
	for _, s := range p.log {
		if !slices.Contains(steps, s.step) {
			continue
		}
		tried++
		w := aged(1)
		again := w.patched(patchOptions(), fault{kind: worlds.RivalActs, at: s.at, rival: &rival{Rival: worlds.Rival{Name: "kured", Freeze: worlds.Frozen}, happen: happen}})
		if wrong := w.over(); again.err != nil || wrong != "" || !right(again.out) {
			t.Errorf("%s: %+v, %v: %s", s, again.out, again.err, wrong)
		}
	}
	if tried < least {
		t.Errorf("%d calls tried", tried)
	}
}

// patchView is what operators see of pool a and node a-0.
type patchView struct {
	status poolstate.PoolStatus
	plan   poolstate.PoolPlan
	update *poolstate.Plan
	checks []engine.Check
	left   []poolstate.Leftover
}

func (w *world) patchView() (v patchView, err error) {
	p := &proc{}
	w.spawn(p, func(ctx context.Context) {
		e, errs := p.engine(), make([]error, 5)
		var status []poolstate.PoolStatus
		var plans []poolstate.PoolPlan
		status, errs[0] = e.Status(ctx, nil, autoOptions().Rules.LastPatch)
		plans, errs[1] = e.PlanPools(ctx, autoOptions())
		v.update, errs[2] = e.Plan(ctx, options("a-0"))
		v.checks, errs[3] = e.Doctor(ctx, autoOptions(), "")
		v.left, errs[4] = e.Restore(ctx, engine.RestoreOptions{DryRun: true})
		if p.err = errors.Join(errs...); p.err == nil {
			v.status, v.plan = status[0], plans[0]
		}
	})
	w.wait()
	return v, p.err
}

// text is all that the view says of a-0, a part each.
func (v patchView) text() map[string]string {
	status, _ := json.Marshal([]any{v.status.Blocked, v.status.Unfinished}) // texts and numbers
	all := map[string]string{"status": string(status) + fmt.Sprint(v.status.Blocked), "plan": fmt.Sprintf("%v %v", v.plan.Why, v.plan.Candidates),
		"update --dry-run": fmt.Sprintf("%v", v.update.Refusals)}
	for _, c := range v.checks {
		all["doctor"] += fmt.Sprintf("%s %s: %s; %s\n", c.Name, c.State, c.Found, c.Do)
	}
	for _, l := range v.left {
		all["restore --dry-run"] += fmt.Sprintf("%s %s: %s; %s\n", l.Run, l.Node, l.What, l.Reason)
	}
	return all
}

// TestPatchShown: wherever a patch is interrupted or killed once the node's packages may have been
// changed, every view names the node, its run, since when, and what to type; no update takes it.
func TestPatchShown(t *testing.T) {
	for _, kind := range []worlds.Fault{worlds.Interrupted, worlds.KillAfter} {
		seen := map[bool]int{}
		for at := 1; ; at++ {
			w := aged(1)
			o := patchOptions()
			o.Pool, o.Donor = "", "a-0"
			p := w.patched(o, fault{kind: kind, at: at})
			if !p.crashed && !p.interrupted {
				break
			}
			w.advance(w.now.Add(2 * time.Minute))
			mark, _ := w.nodes["a-0"].Mark()
			begun, blocked := mark != nil && mark.Begun, w.nodes["a-0"].Tainted(kamino.TaintPatchFailed)
			if !begun && !blocked {
				continue // it is as it was, or in order
			}
			seen[blocked]++
			v, err := w.patchView()
			if err != nil {
				t.Fatalf("%s at %d: %v", kind, at, err)
			}
			run := w.nodes["a-0"].Annotations[kamino.AnnotationPatchFailed] + w.nodes["a-0"].Annotations[kamino.AnnotationRun]
			for name, text := range v.text() {
				for _, want := range []string{"a-0", "patch", v.runID(), v.since()} {
					if want == "" || !strings.Contains(text, want) {
						t.Fatalf("%s at %d, blocked %v (%s): %s does not say %q: %s", kind, at, blocked, run, name, want, text)
					}
				}
				if name != "status" && !strings.Contains(text, "kamino patch --target-node a-0") {
					t.Fatalf("%s at %d: %s does not say what to type: %s", kind, at, name, text)
				}
			}
			if v.plan.Donor == "a-0" {
				t.Fatalf("%s at %d: auto-update would take the node: %+v", kind, at, v.plan)
			}
			for range 2 {
				if _, results := w.auto(autoOptions()); results[0].Donor == "a-0" {
					t.Fatalf("%s at %d: auto-update took the node: %+v", kind, at, results)
				}
			}
			var refused *kamino.RefusedError
			if u := w.update(options("a-0")); !errors.As(u.err, &refused) || refused.Refusals[0].Code != "patch-failed" || len(w.artifacts) == 0 {
				t.Fatalf("%s at %d: update: %v", kind, at, u.err)
			}
			if m := w.machineOf(w.nodes["a-0"]); m.Power != kamino.PowerOn {
				t.Fatalf("%s at %d: the node is %s", kind, at, m.Power)
			}
			if wrong := w.over(); wrong != "" {
				t.Fatalf("%s at %d: %s", kind, at, wrong)
			}
		}
		if seen[true]+seen[false] == 0 {
			t.Errorf("%s: no patch was interrupted in its midst", kind)
		}
	}
}

func (v patchView) runID() string {
	switch {
	case v.status.Unfinished != nil:
		return v.status.Unfinished.Run
	case len(v.status.Blocked) > 0:
		return v.status.Blocked[0].Run
	}
	return ""
}

func (v patchView) since() string {
	switch {
	case v.status.Unfinished != nil:
		return v.status.Unfinished.Started.Format("15:04:05")
	case len(v.status.Blocked) > 0:
		return v.status.Blocked[0].Since.Format("15:04:05")
	}
	return ""
}

// TestPlannedPatch: a dry run tells when the candidates were patched, and ends as the patch would
// while the cluster is paused.
func TestPlannedPatch(t *testing.T) {
	w := aged(1)
	w.patch("a-1", "2026-03-08T08:00:00Z")
	plan := func() (out engine.PatchResult, err error) {
		p := &proc{}
		w.spawn(p, func(ctx context.Context) { out, p.err = p.engine().PlanPatch(ctx, patchOptions()) })
		w.wait()
		return out, p.err
	}
	out, err := plan()
	if err != nil || !slices.ContainsFunc(out.Candidates, func(c kamino.Candidate) bool { return c.Node == "a-1" && c.Patched == "2026-03-08T08:00:00Z" }) {
		t.Errorf("%+v, %v", out.Candidates, err)
	}
	w.paused = "incident 7"
	var refused *kamino.RefusedError
	if out, err = plan(); !errors.As(err, &refused) || refused.Refusals[0].Code != kamino.CodePaused || len(out.Candidates) != 3 {
		t.Errorf("paused: %+v, %v", out.Candidates, err)
	}
}

// TestPatchSaysNode: a node that is patched is no donor in what is told of the run, of one that was
// killed or told to end, and of what comes after it.
func TestPatchSaysNode(t *testing.T) {
	o := patchOptions()
	o.Pool, o.Donor = "", "a-0"
	told := map[string]string{}
	heardBy := func(what string) func(*engine.Engine) {
		return heard(func(ev kamino.Event) {
			if text := strings.ReplaceAll(ev.Message, kamino.TaintBlock, ""); strings.Contains(text, "donor") {
				told[ev.Step+": "+text] = what
			}
		})
	}
	play := func(w *world, what string, do func(context.Context, *engine.Engine) error, faults ...fault) *proc {
		p := &proc{faults: faults, tune: heardBy(what)}
		w.spawn(p, func(ctx context.Context) { p.err = do(ctx, p.engine()) })
		w.wait()
		if p.err != nil && strings.Contains(p.err.Error()+strings.Join(kamino.Hints(p.err), ""), "donor") {
			told["error: "+p.err.Error()+"; "+strings.Join(kamino.Hints(p.err), "; ")] = what
		}
		return p
	}
	patch := func(ctx context.Context, e *engine.Engine) error { _, err := e.Patch(ctx, o); return err }
	restore := func(ctx context.Context, e *engine.Engine) error {
		_, err := e.Restore(ctx, engine.RestoreOptions{})
		return err
	}
	for kind, after := range map[worlds.Fault]func(context.Context, *engine.Engine) error{worlds.KillAfter: patch, worlds.Interrupted: restore, worlds.KillBefore: restore} {
		for at := 1; ; at++ {
			w := aged(1)
			what := fmt.Sprintf("%s at call %d", kind, at)
			p := play(w, what, patch, fault{kind: kind, at: at})
			if !p.crashed && p.err == nil {
				break
			}
			if play(w, what+", and another at once", restore); at%3 == 0 {
				w.advance(w.now.Add(2 * time.Minute))
			}
			play(w, what+", and after it", after)
		}
	}
	for text, what := range told {
		t.Errorf("%s: %s", what, text)
	}
}
