package crash

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kamino.dev/kamino"
	"kamino.dev/kamino/agent/patch"
	"kamino.dev/kamino/azure/emulator"
	"kamino.dev/kamino/engine"
	"kamino.dev/kamino/internal/invariant"
	"kamino.dev/kamino/internal/worlds"
	"kamino.dev/kamino/lab/nodes"
)

// managerTime is how long a package manager takes: several looks at its pod.
const managerTime = 30 * time.Second

// patchPrefix begins the names of the pods of a patch; the first word after it tells the others
// from the one that upgrades.
const patchPrefix = "kamino-patch-"

// What the package sources have for every node of a world whose nodes are patched. kubelet is on
// hold.
const (
	upgrades = "libc6 2.36-10 amd64 " + nodes.NeedsReboot + "\nopenssl 3.0.16 amd64\nkubelet 1.36.4 amd64\n"
	heldName = "kubelet"
	heldIs   = "kubelet 1.36.3 amd64"
)

// patchTask is what a pod's name says that it is for.
func patchTask(name string) (verb invariant.Verb, run string, ok bool) {
	run, ok = strings.CutPrefix(name, patchPrefix)
	for word, verb := range map[string]invariant.Verb{"reboot-": invariant.Restart, "look-": invariant.LookAt,
		"check-": invariant.CheckNode} {
		if rest, yes := strings.CutPrefix(run, word); ok && yes {
			return verb, rest, true
		}
	}
	return invariant.Patch, run, ok
}

// sources gives a machine packages, and newer ones to upgrade to.
func sources(files map[string]string) {
	nodes.FillPackages(files)
	files[nodes.UpgradesFile], files[nodes.HeldFile] = upgrades, heldName
}

// patch begins `kamino patch`.
func (w *World) patch(p *Process, o kamino.Options) *Process {
	all := kamino.PatchDefaults()
	order := all.Order
	all.Options, all.Order = o, order
	all.Order.Settle = 10 * time.Second
	all.Proof = kamino.PatchDefaults().Proof
	if w.station.kamino != "" {
		return w.spawn(p, "patch", "--target-node", o.Donor, "--grace-period", o.Grace.String(),
			"--min-ready", all.Order.Settle.String(), "--image", sealImage, "-o", "json")
	}
	w.begin(p, func(ctx context.Context, e *engine.Engine) (err error) {
		p.Patched, err = e.Patch(ctx, all)
		return err
	})
	return p
}

// CheckPackages and what follows implement worlds.Host.
func (m *machine) CheckPackages() (refused error) {
	m.w.writeDisk(m, func(files map[string]string) { refused = nodes.CheckUpgrade(files) })
	return refused
}

func (m *machine) BeginUpgrade(o worlds.Order) (refused error) {
	m.w.writeDisk(m, func(files map[string]string) { refused = nodes.BeginUpgrade(files, o.Run) })
	return refused
}

func (m *machine) Upgrade(o worlds.Order) string {
	policy, err := patch.ParsePolicy(o.Policy)
	m.w.check("read the order of run "+o.Run, err)
	return m.answer(o, func(files map[string]string) patch.Report { return m.boot.Boot().Upgrade(files, policy) })
}

func (m *machine) Look(o worlds.Order) string { return m.answer(o, m.boot.Boot().Look) }

// answer is what the agent tells of what it does to the disk.
func (m *machine) answer(o worlds.Order, do func(map[string]string) patch.Report) string {
	var report patch.Report
	m.w.writeDisk(m, func(files map[string]string) { report = do(files) })
	text, err := nodes.PatchAnswer(o.Run, o.Nonce, report)
	m.w.check("write the answer of node "+m.node, err)
	return text
}

// takesOff says whether a write of a node removes the mark of a run.
func (c *Call) takesOff() bool {
	var changes []struct{ Op, Path string }
	_ = json.Unmarshal(c.body, &changes) // what is no JSON patch removes nothing
	return slices.ContainsFunc(changes, func(change struct{ Op, Path string }) bool {
		return change.Op == "remove" && strings.HasSuffix(change.Path, "/kamino.dev~1run")
	})
}

// inOrder says whether the agent has looked at a machine in its present boot, and it is in order.
func (w *World) inOrder(m *machine) bool {
	report := patch.Report{Reboot: []string{"its disk is gone"}}
	if m.Looked == m.BootID && m.Kubelet && !m.Working() {
		w.writeDisk(m, func(files map[string]string) { report = m.boot.Boot().Look(files) })
	}
	return len(report.Reboot)+len(report.FailedUnits) == 0
}

// signed notes that a node was signed.
func (w *World) signed(c *Call) {
	if m := w.machineNamed(c.means.Node); m != nil && c.means.Verb == invariant.Sign && c.Status < 300 {
		m.Unseen = false
	}
}

// restPatch checks that packages on hold have kept their versions, and that no node stays blocked
// that is in order, since the last run has signed what was patched.
func (w *World) restPatch() {
	for _, n := range w.state.Nodes {
		if m := w.machineNamed(n.Name); w.shape.Patch && m != nil && !m.Unseen &&
			(slices.Contains(n.Taints, kamino.TaintPatchFailed) || n.Annotations[kamino.AnnotationPatchFailed] != "") {
			w.audit.Violate("I32", "node %s stays blocked, and is in order", n.Name)
		}
	}
	for _, m := range w.machines {
		w.writeDisk(m, func(files map[string]string) {
			if w.shape.Patch && !strings.Contains(nodes.Packages(files), heldIs+"\n") {
				w.audit.Violate("I32", "package %s of node %s, which is on hold, has another version", heldName, m.node)
			}
		})
	}
}

// mendPackages is a person who finishes an interrupted change of packages, and takes back what
// broke.
func (w *World) mendPackages() {
	if !w.shape.Patch {
		return
	}
	for _, m := range w.machines {
		working := m.Working()
		w.writeDisk(m, func(files map[string]string) {
			if !working {
				nodes.ConfigureAll(files)
			}
			nodes.Repair(files)
			sources(files)
		})
	}
}

// patchLines are how the machines of a world stand whose nodes are patched.
func (w *World) patchLines() (out []string) {
	for _, m := range w.machines {
		w.writeDisk(m, func(files map[string]string) {
			out = append(out, fmt.Sprintf("machine %s packages=%q upgrading=%v unseen=%v", m.node, nodes.Packages(files),
				nodes.Upgrading(files), m.Unseen))
		})
	}
	return out
}

// comes lets something come of the upgrade of a package.
func comes(what string) func(worlds.World, string, string) {
	return func(to worlds.World, donor, _ string) {
		w := to.(*World)
		w.on(donor, func(m *machine) {
			w.writeDisk(m, func(files map[string]string) {
				files[nodes.UpgradesFile] = "openssl 3.0.16 amd64 " + what + "\n" + upgrades
			})
		})
	}
}

// patchRivals are what becomes of a patch inside a machine.
var patchRivals = []worlds.Rival{
	{Name: "packages were left half-way before", Column: "12", Same: true, Rows: []string{"P1"},
		Act: func(w worlds.World, donor, _ string) { w.(*World).leaveHalfWay(donor) }},
	{Name: "a package breaks", Column: "5b", Same: true, Rows: []string{"P2"}, Act: comes(nodes.Breaks)},
	{Name: "the node comes back by a power cycle only", Column: "12", Same: true, Unharmed: true, Rows: []string{"P2"},
		Act: comes(nodes.HangsOnce)},
	{Name: "the node does not come back from its restart", Column: "12", Same: true, Rows: []string{"P2"}, Act: comes(nodes.HangsAlways)},
	{Name: "a unit fails from then on", Column: "5b", Same: true, Rows: []string{"P2"}, Act: comes(nodes.FailsUnit)},
	{Name: "the node takes no more pods", Column: "12", Same: true, Rows: []string{"P2", "P3", "P4"}, Act: fated(worlds.NoRoom)},
	{Name: "the pod has no image", Column: "12", Same: true, Rows: []string{"P2", "P3", "P4"}, Act: fated(worlds.NoImage)},
	{Name: "the node does not boot", Column: "12", Same: true, Rows: []string{"P2", "P3"}, Act: fated(worlds.NeverBoots)},
	{Name: "the node is slow", Column: "12", Same: true, Unharmed: true, Rows: []string{"P2", "P3", "P4"}, Act: fated(worlds.Slow)},
	{Name: "the budget of the pods never yields", Column: "12", Same: true, Rows: []string{"P1", "S3", "S4"},
		Act: func(w worlds.World, donor, _ string) { w.HoldPods(donor) }},
	{Name: "a person reboots the node", Column: "9", Act: func(w worlds.World, donor, _ string) { w.Reboot(donor) }},
	{Name: "the runtime is restarted, and the pods of the run end", Column: "9", Same: true, Rows: []string{"P2", "P3", "P4"},
		Act: func(w worlds.World, donor, _ string) { w.(*World).oust(donor) }},
}

func fated(f worlds.Fate) func(worlds.World, string, string) {
	return func(w worlds.World, donor, _ string) { w.SetFate(donor, f) }
}

// leaveHalfWay is a change of packages by somebody else that was interrupted.
func (w *World) leaveHalfWay(node string) {
	w.on(node, func(m *machine) {
		w.writeDisk(m, func(files map[string]string) { _ = nodes.BeginUpgrade(files, "somebody") }) // refused where it is so already
	})
}

// oust ends the pods of a patch on a node, as a container runtime that is upgraded does.
func (w *World) oust(node string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	pods, err := w.station.admin.CoreV1().Pods(kamino.SystemNamespace).List(w.ctx,
		metav1.ListOptions{FieldSelector: "spec.nodeName=" + node})
	w.check("list pods", err)
	m := w.machineNamed(node)
	if err != nil || m == nil {
		return
	}
	for i := range pods.Items {
		pod := &pods.Items[i]
		if _, _, ok := patchTask(pod.Name); ok && pod.Status.Phase == corev1.PodRunning {
			(&agentsPod{m, pod}).Ends(worlds.End{ExitCode: 137})
		}
	}
}

// ofImages are the rivals that meddle with images, or with donors that are off: a patch has neither.
var ofImages = []string{"a person changes the model's image", "a person takes the newest version out of latest",
	"a person deletes the snapshot",
	"nothing can be deleted in the cloud", "a policy denies what makes an image", "the original script takes another donor",
	"the original script has a snapshot of the donor", "the pool's recipe gets an owner",
	"the OS disk of a donor that is off is replaced"}

// rivalsOfPatch are those that matter to a patch; what happens inside machines is its own.
func rivalsOfPatch() []worlds.Rival {
	all := slices.DeleteFunc(worlds.Rivals(), func(r worlds.Rival) bool { return r.Rows != nil || slices.Contains(ofImages, r.Name) })
	return append(all, patchRivals...)
}

// warned says whether a process told of anything that another run has to look at.
func (p *Process) warned() bool {
	return len(p.Result.Warnings) > 0 || slices.ContainsFunc(p.Patched.Nodes,
		func(n engine.PatchedNode) bool { return len(n.Warnings) > 0 })
}

// patchShape is the world in which kamino patch runs: there is a node besides donor and spare, or
// a run for the one of them could not take it while the other is blocked.
func patchShape() Shape {
	return Shape{Name: "patch", Patch: true, Pool: func(p *emulator.Pool) { p.Count = 3 }}
}
