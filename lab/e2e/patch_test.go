package e2e

import (
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kamino.dev/kamino"
	"kamino.dev/kamino/engine"
	"kamino.dev/kamino/lab"
	"kamino.dev/kamino/lab/nodes"
)

// patchArgs are those of a patch which waits no longer than the lab makes it.
func patchArgs(more ...string) []string {
	return append([]string{"patch", "--grace-period", "20", "--min-ready", "0s",
		"--max-not-ready", "1000", "--max-unavailable-pools", "all", "--image", lab.SealImage}, more...)
}

// offers puts versions of packages into the sources of a pool's nodes; a word more tells what comes
// of one. Package kubelet is on hold.
func (p *pool) offers(upgrades string, indices ...int) {
	p.Helper()
	for _, i := range indices {
		if err := p.lab.Cloud.WriteDisk(p.instance(i), func(files map[string]string) {
			files[nodes.UpgradesFile], files[nodes.HeldFile] = upgrades, "kubelet\n"
		}); err != nil {
			p.Fatal(err)
		}
	}
}

const threeUpgrades = "libc6 2.36-10 amd64\nopenssl 3.0.17 amd64\ntzdata 2026a all\nkubelet 1.36.4 amd64\n"

func (o outcome) patchResult(t *testing.T) (r engine.PatchResult) {
	t.Helper()
	if err := json.Unmarshal([]byte(o.out), &r); err != nil {
		t.Fatalf("exit code %d; standard output is no JSON: %v\n%s\n%s", o.code, err, o.out, o.log)
	}
	return r
}

// patched is the one node that a patch which must have worked has patched.
func (o outcome) patched(t *testing.T) engine.PatchedNode {
	t.Helper()
	r := o.patchResult(t)
	if o.code != 0 || len(r.Nodes) != 1 || r.Nodes[0].Signed == "" || r.Nodes[0].Report == nil {
		t.Fatalf("exit code %d\n%s\n%s", o.code, o.out, o.log)
	}
	return r.Nodes[0]
}

func boots(p *pool) (all []string) {
	for _, name := range p.computers() {
		all = append(all, p.get(name).Status.NodeInfo.BootID)
	}
	return all
}

// without is what a patch may leave on a node taken off it again.
func withoutSignature(n *corev1.Node) *corev1.Node {
	n = n.DeepCopy()
	delete(n.Labels, kamino.LabelPatched)
	for _, name := range []string{kamino.AnnotationPatch, kamino.AnnotationPatchLook, kamino.KuredLastPatch.Annotation} {
		delete(n.Annotations, name)
	}
	return n
}

// TestPatchPool: of a pool the best node is patched, restarted where a package asks for it, and
// signed; packages on hold stay, the other nodes do not notice, and the history tells.
func TestPatchPool(t *testing.T) {
	t.Parallel()
	p := newPool(t, 3)
	p.offers(strings.Replace(threeUpgrades, "libc6 2.36-10 amd64", "libc6 2.36-10 amd64 "+nodes.NeedsReboot, 1), 0, 1, 2)
	before, was := photograph(t, shared), boots(p)
	plan := kaminoRun(t, patchArgs("--pool", p.name, "--dry-run", "-o", "json")...).patchResult(t)
	if d := before.differences(photograph(t, shared), "event ", "node "); len(plan.Nodes) > 0 || len(plan.Candidates) != 3 || !slices.Equal(boots(p), was) || ofPool(p, d) != "" {
		t.Fatalf("a dry run does something: %+v\n%s", plan, ofPool(p, d))
	}
	objects := map[string]*corev1.Node{}
	for _, name := range p.computers() {
		objects[name] = p.get(name)
	}
	o := kaminoRun(t, patchArgs("--pool", p.name, "-o", "json")...)
	one := o.patched(t)
	want := []kamino.PackageMoved{{Name: "libc6", Arch: "amd64", From: "2.36-9", To: "2.36-10"}, {Name: "openssl", Arch: "amd64", From: "3.0.15", To: "3.0.17"},
		{Name: "tzdata", Arch: "all", From: "2025a", To: "2026a"}}
	if !one.Restarted || one.Cycled || one.Blocked || !slices.Equal(one.Report.Changed, want) || !slices.Equal(one.Report.Kept, []string{"kubelet"}) {
		t.Errorf("patched %+v, %+v", one, one.Report)
	}
	for i, now := range boots(p) {
		name := p.computers()[i]
		n := p.get(name)
		if took := name == one.Node; took != (now != was[i]) || took != (n.Labels[kamino.LabelPatched] == one.Signed) {
			t.Errorf("node %s: boot %s, before %s, patched %q", name, now, was[i], n.Labels[kamino.LabelPatched])
		}
		p.expectSame(withoutSignature(objects[name]), withoutSignature(n))
	}
	if at := p.get(one.Node).Annotations[kamino.KuredLastPatch.Annotation]; at == "" {
		t.Error("kured's readers are told nothing")
	}
	p.expectFree()
	// Nothing is left to do: it keeps its time, and is not restarted.
	o = kaminoRun(t, patchArgs("--target-node", one.Node)...)
	signed, err := time.Parse(kamino.PatchedFormat, one.Signed)
	if err != nil {
		t.Error(err)
	}
	if o.code != 0 || !strings.Contains(o.out, "patched "+signed.Format(time.RFC3339)) || !slices.Contains(strings.Fields(o.out), "no") || strings.Contains(o.out, "PACKAGE OF") {
		t.Errorf("exit code %d\n%s\n%s", o.code, o.out, o.log)
	}
	if o = kaminoRun(t, "status", "--pool", p.name); !strings.Contains(o.out, "patched the node, 3 packages changed") || !strings.Contains(o.out, "nothing to upgrade") {
		t.Errorf("the history does not tell of the patches:\n%s", o.out)
	}
	if o = kaminoRun(t, patchArgs("--pool", p.name)...); o.code != 0 || strings.Count(o.out, "\t") > 0 && !strings.Contains(o.out, "openssl") {
		t.Errorf("exit code %d\n%s\n%s", o.code, o.out, o.log)
	}
}

// ofPool are the differences that name a pool.
func ofPool(p *pool, differences []string) string {
	return strings.Join(slices.DeleteFunc(differences, func(d string) bool { return !strings.Contains(d, p.name) }), "\n")
}

// TestPatchOfANode: without a need nothing is restarted; what the next node would lack is named
// then, and nothing before.
func TestPatchOfANode(t *testing.T) {
	t.Parallel()
	p := newPool(t, 2)
	p.offers(threeUpgrades, 1)
	kaminoRun(t, updateArgs(p.node(0))...).mustSucceed(t)
	diff := func() (d engine.PackageDiff) {
		o := kaminoRun(t, "status", "--diff", "--node", p.node(1), "--image", lab.SealImage, "-o", "json")
		if err := json.Unmarshal([]byte(o.out), &d); err != nil || o.code != 0 {
			t.Fatalf("exit code %d, %v\n%s\n%s", o.code, err, o.out, o.log)
		}
		return d
	}
	if d := diff(); len(d.Differs) > 0 {
		t.Errorf("before the patch %+v", d)
	}
	was := p.get(p.node(1)).Status.NodeInfo.BootID
	one := kaminoRun(t, patchArgs("--target-node", p.node(1), "--scope", "security", "-o", "json")...).patched(t)
	if one.Restarted || p.get(p.node(1)).Status.NodeInfo.BootID != was || len(one.Report.Changed) != 3 {
		t.Errorf("%+v, %+v", one, one.Report)
	}
	var names []string
	for _, d := range diff().Differs {
		names = append(names, d.Name)
	}
	if !slices.Equal(names, []string{"libc6", "openssl", "tzdata"}) {
		t.Errorf("the next node would lack %v", names)
	}
	if o := kaminoRun(t, "status", "--pool", p.name); !strings.Contains(o.out, p.node(1)) {
		t.Errorf("status does not tell of the best node:\n%s", o.out)
	}
	p.offers("libc6 2.36-11 amd64 "+nodes.NeedsReboot+"\nkubelet 1.36.4 amd64\n", 1)
	one = kaminoRun(t, patchArgs("--target-node", p.node(1), "--reboot", "never", "--held", "-o", "json", "--manager", "apt")...).patched(t)
	if one.Restarted || len(one.Report.Changed) != 2 {
		t.Errorf("%+v, %+v", one, one.Report)
	}
	if one = kaminoRun(t, patchArgs("--target-node", p.node(1), "--reboot", "always", "-o", "json")...).patched(t); !one.Restarted || p.get(p.node(1)).Status.NodeInfo.BootID == was {
		t.Errorf("not restarted: %+v", one)
	}
}

// TestPatchCycles: a node that does not boot is power-cycled once, and told.
func TestPatchCycles(t *testing.T) {
	t.Parallel()
	p := newPool(t, 2)
	p.offers("libc6 2.36-10 amd64 "+nodes.HangsOnce+"\n", 0)
	o := kaminoRun(t, patchArgs("--target-node", p.node(0), "--return", "1m", "-o", "json")...)
	one := o.patched(t)
	if !one.Restarted || !one.Cycled || !strings.Contains(o.log, "did not come back within 1m0s: switching its machine off and on") {
		t.Errorf("%+v\n%s", one, o.log)
	}
	if n := strings.Count(o.log, "switch off the machine"); n != 1 {
		t.Errorf("switched off %d times\n%s", n, o.log)
	}
	p.expectRunning(0)
	p.expectFree()
}

// TestPatchFails: a node whose packages are left half-way stays blocked, and the next one is taken;
// one that is refused is as it was.
func TestPatchFails(t *testing.T) {
	t.Parallel()
	p := newPool(t, 3)
	p.offers("libc6 2.36-10 amd64\nopenssl 3.0.17 amd64 "+nodes.Breaks+"\n", 0)
	p.offers(threeUpgrades, 1, 2)
	o := kaminoRun(t, patchArgs("--target-node", p.node(0), "-o", "json")...)
	r := o.patchResult(t)
	n := p.get(p.node(0))
	if o.code != 1 || len(r.Nodes) != 1 || !r.Nodes[0].Blocked || !strings.Contains(r.Nodes[0].Error, "dpkg: error processing package openssl") || !hasTaint(n, kamino.TaintPatchFailed) || hasTaint(n, kamino.TaintBlock) ||
		n.Annotations[kamino.AnnotationPatchFailed] == "" || n.Labels[kamino.LabelPatched] != "" {
		t.Errorf("exit code %d, %+v, %v\n%s", o.code, r.Nodes, n.Spec.Taints, o.log)
	}
	p.expectFree()
	// The pool's next patch takes another one; whoever has mended the first has it patched.
	if one := kaminoRun(t, patchArgs("--pool", p.name, "-o", "json")...).patched(t); one.Node == p.node(0) {
		t.Errorf("the blocked node was taken: %+v", one)
	}
	p.offers(threeUpgrades, 0)
	if one := kaminoRun(t, patchArgs("--target-node", p.node(0), "-o", "json")...).patched(t); len(one.Report.Changed) != 2 || hasTaint(p.get(p.node(0)), kamino.TaintPatchFailed) {
		t.Errorf("%+v, %v", one.Report, p.get(p.node(0)).Spec.Taints)
	}
}

// TestPatchHalfWay: a node whose packages somebody left half-way is refused with its pods on it,
// and patched once they are in order.
func TestPatchHalfWay(t *testing.T) {
	t.Parallel()
	p := newPool(t, 2)
	p.offers(threeUpgrades, 0)
	disk := func(change func(map[string]string)) {
		if err := p.lab.Cloud.WriteDisk(p.instance(0), change); err != nil {
			t.Fatal(err)
		}
	}
	disk(func(files map[string]string) {
		if err := nodes.BeginUpgrade(files, "somebody"); err != nil {
			t.Error(err)
		}
	})
	o := kaminoRun(t, patchArgs("--target-node", p.node(0), "-o", "json")...)
	r, n := o.patchResult(t), p.get(p.node(0))
	if o.code != 3 || len(r.Nodes) != 1 || !strings.Contains(r.Nodes[0].Error, "dpkg --configure -a") || len(n.Spec.Taints) > 0 {
		t.Errorf("exit code %d, %+v, %v\n%s", o.code, r.Nodes, n.Spec.Taints, o.log)
	} else if slices.ContainsFunc(r.Nodes[0].Steps, func(s kamino.StepTime) bool { return s.Name == kamino.StepDrain }) {
		t.Errorf("refused after the drain: %+v", r.Nodes[0].Steps)
	}
	p.expectFree()
	disk(nodes.ConfigureAll)
	if one := kaminoRun(t, patchArgs("--target-node", p.node(0), "-o", "json")...).patched(t); len(one.Report.Changed) != 3 {
		t.Errorf("%+v", one.Report)
	}
}

func hasTaint(n *corev1.Node, key string) bool {
	return slices.ContainsFunc(n.Spec.Taints, func(taint corev1.Taint) bool { return taint.Key == key })
}

// TestPatchKilled: a process that is killed while dpkg works leaves a node that restore keeps
// blocked, and that the next patch brings in order; one that is killed before leaves it as it
// was.
func TestPatchKilled(t *testing.T) {
	t.Parallel()
	for name, at := range map[string]moment{
		"protected": {kamino.StepProtect, kamino.EventActed, ""},
		"working":   {kamino.StepPatch, kamino.EventActed, "upgrade the packages"},
		"booting":   {kamino.StepReboot, kamino.EventActed, "restart the node"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPool(t, 2)
			p.offers("libc6 2.36-10 amd64 "+nodes.NeedsReboot+"\n", 0)
			before, sent := p.get(p.node(0)), false
			c := call{onLine: func(line logLine, process *os.Process) {
				if at.is(line) && !sent {
					sent = true
					if err := process.Kill(); err != nil {
						t.Error(err)
					}
				}
			}}
			if name == "protected" { // it is still waiting when the signal comes
				c.binary = usersBinary(t, "", "")
			}
			if o := c.run(t, patchArgs("--target-node", before.Name)...); !sent {
				t.Fatalf("no line of the log told of %+v:\n%s", at, o.log)
			}
			if o := kaminoRun(t, "restore", "--pool", p.name); o.code != 0 {
				t.Fatalf("restore: exit code %d\n%s\n%s", o.code, o.out, o.log)
			}
			n := p.get(before.Name)
			if kept := hasTaint(n, kamino.TaintPatchFailed); kept != (name != "protected") || hasTaint(n, kamino.TaintBlock) || n.Annotations[kamino.AnnotationRun] != "" {
				t.Errorf("after restore the taints are %v, the mark %q", n.Spec.Taints, n.Annotations[kamino.AnnotationRun])
			}
			await(t, "dpkg to have ended", func() string {
				pods, err := shared.Client.CoreV1().Pods(kamino.SystemNamespace).List(t.Context(), metav1.ListOptions{FieldSelector: "spec.nodeName=" + before.Name})
				if files, readErr := shared.Cloud.ReadDisk(p.instance(0)); err != nil || readErr != nil || len(pods.Items) > 0 || files["/var/lib/dpkg/updates/0001"] != "" {
					return "it works"
				}
				return ""
			})
			one := kaminoRun(t, patchArgs("--target-node", before.Name, "-o", "json")...).patched(t)
			if n := p.get(before.Name); hasTaint(n, kamino.TaintPatchFailed) || n.Labels[kamino.LabelPatched] != one.Signed {
				t.Errorf("patched again: %v, %v", n.Spec.Taints, n.Labels)
			}
			p.expectSame(withoutSignature(before), withoutSignature(p.get(before.Name)))
			p.expectFree()
		})
	}
}
