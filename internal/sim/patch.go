package sim

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"kamino.dev/kamino"
	"kamino.dev/kamino/internal/invariant"
	"kamino.dev/kamino/internal/worlds"
)

// managerTime is how long a package manager takes.
const managerTime = 90 * time.Second

// patchState is what a patch does to a machine, and how it stands afterwards.
type patchState struct {
	release int  // how often its packages were upgraded
	pending bool // it asks for a reboot
	broken  bool // a DaemonSet's pod is not Ready in the boots after an upgrade
	stuck   bool // its next boot does not come up; the one after it does
	former  bool // its boots take the kernel that it had before its upgrade
	outside bool // its kernel comes from outside: none lies in /boot
	halfWay bool // a change of its packages has begun and not ended
}

// ill says whether the machine is not in order after its upgrade.
func (m *machine) ill() bool { return m.broken && m.release > 0 }

// startPatch implements kamino.Cluster for the tasks of patches. What must hold of one is I32.
func (c simCluster) startPatch(ctx context.Context, node kamino.Node, task kamino.Task, order kamino.SealOrder) error {
	w, run := c.p.w, order.Run
	verb := map[kamino.Task]invariant.Verb{kamino.TaskPatch: invariant.Patch, kamino.TaskReboot: invariant.Restart,
		kamino.TaskCheck: invariant.CheckNode, kamino.TaskLook: invariant.LookAt}[task]
	return c.call(ctx, call{method: "Patch", subject: string(task) + " " + run, write: true}, func(*fault) error {
		n := w.nodes[node.Name]
		if n == nil {
			return fmt.Errorf("node %s: %w", node.Name, kamino.ErrNotFound)
		}
		var policy struct{ Boot, Held string }
		_ = json.Unmarshal(order.Patch, &policy)
		asked := c.p.onNode(node, verb)
		asked.Run, asked.Held = run, policy.Held
		w.audit.before(asked)
		pod, err := w.newPod(node.Name, order)
		if err != nil {
			return err
		}
		key := string(task) + " " + run
		if pod := w.patches[key]; pod != nil {
			if task == kamino.TaskReboot && pod.node != worlds.NoNode {
				w.audit.violate("I32", "%s asks twice for a reboot of %s", c.p.name, n.Name)
			}
			return nil
		}
		w.happened("%s asks %s to %s", c.p.name, node.Name, task)
		w.play(w.patches, key, pod, node, task, order, policy.Boot)
		return nil
	})
}

// patchPods are the pods of patches on a node that hold its drain up, as kube tells: those of
// other runs than the one that has the node.
func (w *world) patchPods(node kamino.Node) (left []kamino.Pod) {
	mark, err := node.Mark()
	for _, key := range slices.Sorted(maps.Keys(w.patches)) {
		pod := w.patches[key]
		task, run, _ := strings.Cut(key, " ")
		patches := slices.Contains([]kamino.Task{kamino.TaskPatch, kamino.TaskReboot, kamino.TaskLook}, kamino.Task(task))
		if patches && pod.node == node.Name && !pod.Done && !pod.Failed && !(err == nil && mark != nil && mark.Run == run) {
			left = append(left, kamino.Pod{Namespace: kamino.SystemNamespace, Name: task + "-" + run,
				Reason: "no controller would recreate it", Stuck: true})
		}
	}
	return left
}

// packages are those of a machine, as its agent lists them.
func (m *machine) packages() string { return fmt.Sprintf("openssl 3.%d amd64\n", m.release) }

// digest is that of its packages.
func (m *machine) digest() string {
	sum := sha256.Sum256([]byte(m.packages()))
	return hex.EncodeToString(sum[:])
}

// AskPackages is kamino.PackageStore's, of which the simulation keeps no lists.
func (c simCluster) AskPackages(ctx context.Context, node kamino.Node, order kamino.SealOrder) error {
	w, key := c.p.w, string(kamino.TaskPackages)+" "+order.Run
	return c.call(ctx, call{method: "AskPackages", subject: order.Run, write: true}, func(*fault) error {
		m := w.machineOf(w.nodes[node.Name])
		if m == nil {
			return fmt.Errorf("node %s: %w", node.Name, kamino.ErrNotFound)
		}
		pod, err := w.newPod(node.Name, order)
		if err != nil {
			return err
		}
		pod.w, pod.pods, pod.key = w, w.patches, key
		w.patches[key] = pod
		m.Later(4*time.Second, func() {
			if m.Kubelet && !w.mute && m.Tell(kamino.AnnotationPackages,
				worlds.Pack(order.Run, order.Nonce, "list", []byte(m.packages()))) {
				pod.Ends(worlds.End{})
			}
		})
		return nil
	})
}

// Record implements kamino.Recorder.
func (c simCluster) Record(_ context.Context, n kamino.Node, _, reason, message string) {
	c.p.w.events = append(c.p.w.events, n.Name+" "+reason+" "+message)
}

// CheckPackages and what follows implement worlds.Host.
func (m *machine) CheckPackages() error {
	if m.halfWay {
		return errors.New("an earlier change of packages was interrupted")
	}
	return nil
}

func (m *machine) BeginUpgrade(worlds.Order) error {
	err := m.CheckPackages()
	m.halfWay = true
	return err
}

func (m *machine) Upgrade(o worlds.Order) string {
	report := kamino.PatchReport{Boot: m.BootID, Manager: "apt", Kept: []string{"kubelet"}}
	if m.halfWay = false; m.release == 0 {
		m.release, m.pending = 1, true
		report.Changed = []kamino.PackageMoved{{Name: "libc6", From: "1", To: "2"}}
	}
	report.Reboot = m.reasons()
	return answer(o, report)
}

func (m *machine) Look(o worlds.Order) string {
	seen := kamino.PatchReport{Boot: m.BootID, Running: "6.1", Newest: "6.1", Reboot: m.reasons()}
	if m.outside {
		seen.Newest = ""
	}
	return answer(o, seen)
}

// VM implements worlds.Host.
func (m *machine) VM() string { return m.VMID }

// Stuck implements worlds.Host.
func (m *machine) Stuck() bool {
	stuck := m.stuck
	m.stuck = false
	return stuck
}

func answer(o worlds.Order, r kamino.PatchReport) string {
	text, _ := json.Marshal(r)
	return worlds.Pack(o.Run, o.Nonce, "report", text)
}

func (m *machine) reasons() []string {
	if m.pending {
		return []string{"kernel 6.2 is installed and 6.1 runs"}
	}
	return nil
}

// Daemons implements kamino.Patcher.
func (c simCluster) Daemons(ctx context.Context, node kamino.Node) (out []kamino.DaemonPod, err error) {
	err = c.call(ctx, call{method: "Daemons", subject: node.Name}, func(*fault) error {
		out = []kamino.DaemonPod{{Set: "kube-system/net", Ready: true}}
		if n := c.p.w.nodes[node.Name]; n != nil {
			if m := c.p.w.machineOf(n); m != nil && m.ill() {
				out[0].Ready, out[0].Reason = false, "CrashLoopBackOff"
			}
		}
		return nil
	})
	return out, err
}

// Sign implements kamino.Patcher.
func (c simCluster) Sign(ctx context.Context, node kamino.Node, at time.Time) error {
	return c.editNode(ctx, node, "Sign", invariant.Sign, func(n *simNode) {
		if m := c.p.w.machineOf(n); m != nil {
			m.Unseen = false
		}
		if mark, err := n.Mark(); err == nil && mark != nil && mark.Begun {
			mark.Begun = false
			text, _ := json.Marshal(mark)
			n.Annotations[kamino.AnnotationRun] = string(text)
		}
		n.Labels = maps.Clone(n.Labels)
		n.Labels[kamino.LabelPatched] = at.UTC().Format(kamino.PatchedFormat)
		n.Annotations[kamino.KuredLastPatch.Annotation] = at.UTC().Format(time.RFC3339)
		delete(n.Annotations, kamino.AnnotationPatchFailed)
		n.Taints = slices.DeleteFunc(slices.Clone(n.Taints), func(t kamino.Taint) bool { return t.Key == kamino.TaintPatchFailed })
	})
}

// KeepBlocked implements kamino.Patcher.
func (c simCluster) KeepBlocked(ctx context.Context, node kamino.Node, why kamino.PatchFailure) error {
	return c.editNode(ctx, node, "KeepBlocked", invariant.KeepBlocked, func(n *simNode) {
		text, _ := json.Marshal(why)
		n.Annotations[kamino.AnnotationPatchFailed] = string(text)
		if !n.Tainted(kamino.TaintPatchFailed) {
			n.Taints = append(slices.Clone(n.Taints), kamino.Taint{Key: kamino.TaintPatchFailed, Effect: "NoSchedule"})
		}
	})
}

func (c simCluster) editNode(ctx context.Context, node kamino.Node, method string, verb invariant.Verb, edit func(*simNode)) error {
	w := c.p.w
	return c.call(ctx, call{method: method, subject: node.Name, write: true}, func(*fault) error {
		n := w.nodes[node.Name]
		if n == nil || n.UID != node.UID {
			return fmt.Errorf("node %s: %w", node.Name, kamino.ErrConflict)
		}
		w.audit.before(c.p.onNode(n.Node, verb))
		n.Annotations = maps.Clone(n.Annotations)
		edit(n)
		w.changeNode(n)
		w.happened("%s: %s of node %s", c.p.name, method, n.Name)
		return nil
	})
}
