package e2e

import (
	"context"
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	nodeutil "k8s.io/kubernetes/pkg/util/node"

	"kamino.dev/kamino"
	"kamino.dev/kamino/azure/emulator"
	"kamino.dev/kamino/engine"
	"kamino.dev/kamino/lab"
	"kamino.dev/kamino/lab/demo"
	"kamino.dev/kamino/poolstate"
)

// TestUpdate is the main job with everything that users see of it: the
// workload does not suffer, the donor is as it was before, the next node boots
// from the new image, status shows it, and a second update changes nothing.
func TestUpdate(t *testing.T) {
	t.Parallel()
	p := newPool(t, 2)
	w := demo.Workload{Name: p.name, Replicas: 4, MinAvailable: 3, NodeSelector: map[string]string{"agentpool": p.name}}
	if err := w.Start(t.Context(), shared.Client); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := w.Delete(context.WithoutCancel(t.Context()), shared.Client); err != nil {
			t.Error(err)
		}
	})
	witness, err := w.Watch(t.Context(), shared.Client)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { witness.Stop() })
	donor, bystander := p.get(p.node(0)), p.get(p.node(1))

	r := kaminoRun(t, updateArgs(donor.Name, "--new-updated-nodes", "1")...).mustSucceed(t)
	if r.Donor != donor.Name || r.Version != kamino.VersionName(time.Now()) || !r.Changed || r.AwaySeconds <= 0 {
		t.Errorf("report says donor %q, version %q, changed %t, away %g s", r.Donor, r.Version, r.Changed, r.AwaySeconds)
	}
	if account := witness.Stop(); account.Violations != 0 || account.Events == 0 {
		t.Errorf("the budget was violated %d times in %d events; as few as %d pods were available", account.Violations, account.Events, account.Lowest)
	}
	p.expectSame(donor, p.get(donor.Name))
	p.expectSame(bystander, p.get(bystander.Name))
	if now := p.get(donor.Name).Status.NodeInfo.BootID; now == donor.Status.NodeInfo.BootID {
		t.Error("the donor never booted")
	}
	if now := p.get(bystander.Name).Status.NodeInfo.BootID; now != bystander.Status.NodeInfo.BootID {
		t.Error("a node that is not the donor has booted")
	}
	p.inspectClone(r.Version, donor)
	p.inspectStatus(r)
	p.inspectSecond(donor.Name)
}

// expectSame compares a node with what it was, as kubectl shows it.
func (p *pool) expectSame(was, is *corev1.Node) {
	p.Helper()
	if !nodeutil.IsNodeReady(is) {
		p.Errorf("node %s is not Ready", is.Name)
	}
	before, _ := json.MarshalIndent(nodeText(was), "", " ") // a Node can always be encoded
	after, _ := json.MarshalIndent(nodeText(is), "", " ")
	if string(before) != string(after) {
		p.Errorf("node %s is not as it was:\n%s\n-- now --\n%s", was.Name, before, after)
	}
}

// inspectClone waits for the third node: another machine than the donor, with
// the donor's disk behind it.
func (p *pool) inspectClone(version string, donor *corev1.Node) {
	p.Helper()
	name := p.node(2)
	p.awaitNode(name)
	clone := p.get(name)
	if clone.Status.NodeInfo.MachineID == donor.Status.NodeInfo.MachineID || clone.Status.NodeInfo.SystemUUID == donor.Status.NodeInfo.SystemUUID {
		p.Errorf("clone %s has an identity of the donor: %+v", name, clone.Status.NodeInfo)
	}
	in, ok := shared.Cloud.Instance(p.instance(2))
	if !ok || !strings.HasSuffix(in.ImageID, "/versions/"+version) {
		p.Errorf("clone %s was made from %q, not from version %s", name, in.ImageID, version)
	}
	disk, err := shared.Cloud.ReadDisk(p.instance(2))
	if err != nil {
		p.Fatal(err)
	}
	if !strings.Contains(disk["/var/log/ancestry.log"], donor.Name) {
		p.Errorf("the clone's ancestry is %q, without donor %s", disk["/var/log/ancestry.log"], donor.Name)
	}
	for _, key := range []string{kamino.AnnotationRun, kamino.AnnotationProtect, kamino.AnnotationReceipt} {
		if _, ok := clone.Annotations[key]; ok {
			p.Errorf("clone %s carries annotation %s", name, key)
		}
	}
}

func (p *pool) inspectStatus(r report) {
	p.Helper()
	o := kaminoRun(p.T, "status", "--pool", p.name, "-o", "json")
	if o.code != 0 {
		p.Fatalf("status: exit code %d\n%s", o.code, o.log)
	}
	var pools []poolstate.PoolStatus
	if err := json.Unmarshal([]byte(o.out), &pools); err != nil {
		p.Fatalf("status: %v\n%s", err, o.out)
	}
	if len(pools) != 1 || len(pools[0].Versions) != 1 {
		p.Fatalf("status shows not one pool with one version:\n%s", o.out)
	}
	v := pools[0].Versions[0]
	if v.Name != r.Version || v.State != kamino.Succeeded || !v.Ready || v.BuiltFrom != r.Donor || v.Run != r.Run || !v.InModel || v.Instances != 1 {
		p.Errorf("status shows the version as %+v", v)
	}
	if built, err := time.Parse(time.RFC3339, v.BuiltAt); err != nil || time.Since(built) > time.Hour {
		p.Errorf("status says that the version was built at %q", v.BuiltAt)
	}
	if !strings.EqualFold(pools[0].Model, definitionOf(r.Image)) || !strings.EqualFold(pools[0].Next, r.Version) {
		p.Errorf("status: the model is %s and the next node boots from %s, want %s", pools[0].Model, pools[0].Next, r.Image)
	}
	if pools[0].Unfinished != nil {
		p.Errorf("status shows an unfinished run: %+v", pools[0].Unfinished)
	}
}

// inspectSecond updates again on the same day.
func (p *pool) inspectSecond(donor string) {
	p.Helper()
	if now := time.Now().UTC(); now.Hour() == 23 && now.Minute() == 59 {
		p.Skip("midnight in UTC is near: the day of the second update may be another one")
	}
	before := photograph(p.T, shared)
	o := kaminoRun(p.T, updateArgs(donor, "--new-updated-nodes", "1", "-o", "table")...)
	if o.code != 0 || !strings.Contains(o.out, "Nothing to do") || !strings.Contains(o.out, kamino.VersionName(time.Now())) {
		p.Errorf("second update: exit code %d, %q\n%s", o.code, o.out, o.log)
	}
	p.expectOwn(before, photograph(p.T, shared), "lease kamino-"+p.name)
}

// expectOwn compares what belongs to this pool, while other tests change theirs.
func (p *pool) expectOwn(before, after photo, except ...string) {
	p.Helper()
	for _, d := range before.differences(after, except...) {
		name, _, _ := strings.Cut(d, "\n")
		if strings.Contains(name, p.name) {
			p.Errorf("changed: %s", d)
		}
	}
}

// TestForeignMarks: what other people and programs put on the donor stays as it
// is, also where it is the very thing that Kamino uses.
func TestForeignMarks(t *testing.T) {
	t.Parallel()
	for name, patch := range map[string]string{
		"cordon":     `{"spec":{"unschedulable":true}}`,
		"taint":      `{"spec":{"taints":[{"key":"team","value":"a","effect":"PreferNoSchedule"},{"key":"kamino","effect":"NoSchedule"}]}}`,
		"protected":  `{"metadata":{"annotations":{"cluster-autoscaler.kubernetes.io/scale-down-disabled":"true"}}}`,
		"allowed":    `{"metadata":{"annotations":{"cluster-autoscaler.kubernetes.io/scale-down-disabled":"false"}}}`,
		"annotation": `{"metadata":{"annotations":{"example.com/owner":"ops","kamino.dev/note":"hands off"},"labels":{"example.com/rack":"7"}}}`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPool(t, 1)
			p.patch(p.node(0), patch)
			if name == "cordon" {
				await(t, "the cordon's taint is there", func() string { return lacksCordonTaint(p.get(p.node(0))) })
			}
			before := p.get(p.node(0))
			kaminoRun(t, updateArgs(before.Name)...).mustSucceed(t)
			p.expectSame(before, p.get(before.Name))
		})
	}
}

func lacksCordonTaint(node *corev1.Node) string {
	for _, taint := range node.Spec.Taints {
		if taint.Key == corev1.TaintNodeUnschedulable {
			return ""
		}
	}
	return "no taint " + corev1.TaintNodeUnschedulable
}

// TestCordonMeanwhile: a person who cordons the donor during the run finds it
// cordoned afterwards.
func TestCordonMeanwhile(t *testing.T) {
	t.Parallel()
	p := newPool(t, 1)
	before := p.get(p.node(0))
	cordoned := false
	c := call{onLine: func(line logLine, _ *os.Process) {
		if line.step == "drain" && line.kind == string(kamino.EventDone) {
			cordoned = true
			p.patch(before.Name, `{"spec":{"unschedulable":true},"metadata":{"annotations":{"example.com/why":"disk looks bad"}}}`)
		}
	}}
	c.run(t, updateArgs(before.Name)...).mustSucceed(t)
	if !cordoned {
		t.Fatal("no line of the log told that the drain was done")
	}
	want := before.DeepCopy()
	want.Spec.Unschedulable = true
	want.Annotations["example.com/why"] = "disk looks bad"
	want.Spec.Taints = append(want.Spec.Taints, corev1.Taint{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule})
	now := p.get(before.Name)
	for i := range now.Spec.Taints {
		now.Spec.Taints[i].TimeAdded = nil
	}
	p.expectSame(want, now)
}

// TestBudgetHolds: pods that cannot be moved keep the donor, and everything is given back.
func TestBudgetHolds(t *testing.T) {
	t.Parallel()
	p := newPool(t, 1)
	w := demo.Workload{Name: p.name, Replicas: 1, MinAvailable: 1, NodeSelector: map[string]string{"agentpool": p.name}}
	if err := w.Start(t.Context(), shared.Client); err != nil {
		t.Fatal(err)
	}
	before := p.get(p.node(0))
	o := kaminoRun(t, updateArgs(before.Name, "--drain-timeout", "2s")...)
	if o.code != 1 {
		t.Errorf("exit code %d, want 1\n%s", o.code, o.log)
	}
	for _, want := range []string{before.Name, p.name + "-", "disruption budget", "--force"} {
		if !strings.Contains(strings.ToLower(o.log+o.report(t).Error), want) {
			t.Errorf("the message does not mention %q:\n%s", want, o.log)
		}
	}
	p.expectSame(before, p.get(before.Name))
	p.expectFree()
	pods, err := shared.Client.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{LabelSelector: "app.kubernetes.io/name=" + p.name})
	if err != nil {
		t.Fatal(err)
	}
	if len(pods.Items) != 1 || pods.Items[0].DeletionTimestamp != nil {
		t.Errorf("the pod that the budget protects was evicted: %d pods", len(pods.Items))
	}
	if err := w.Delete(t.Context(), shared.Client); err != nil {
		t.Error(err)
	}
}

// expectFree: no run holds the pool.
func (p *pool) expectFree() {
	p.Helper()
	if run := p.holder(); run != "" {
		p.Errorf("the lease of pool %s is still held by %s", p.name, run)
	}
}

// holder is the run that holds the pool's lease; "" when it is free.
func (p *pool) holder() string {
	p.Helper()
	leases, err := p.lab.Client.CoordinationV1().Leases(kamino.SystemNamespace).List(p.Context(), metav1.ListOptions{LabelSelector: "app.kubernetes.io/managed-by=kamino"})
	if err != nil {
		p.Fatal(err)
	}
	for _, l := range leases.Items {
		if strings.EqualFold(l.Annotations["kamino.dev/pool"], p.id) && l.Spec.HolderIdentity != nil {
			return *l.Spec.HolderIdentity
		}
	}
	return ""
}

// expectRunning: the emulator has the instance running.
func (p *pool) expectRunning(n int) {
	p.Helper()
	if in, ok := p.lab.Cloud.Instance(p.instance(n)); !ok || in.PowerState != emulator.PowerRunning {
		p.Errorf("instance %s is %s", p.instance(n), in.PowerState)
	}
}

// TestPackageDiff: what the next node would lack is named, package by package, and the node that
// was asked is as it was.
func TestPackageDiff(t *testing.T) {
	t.Parallel()
	p := newPool(t, 2)
	version := kaminoRun(t, updateArgs(p.node(0))...).mustSucceed(t).Version
	before := p.get(p.node(1))
	diff := func(node string) (d engine.PackageDiff) {
		t.Helper()
		o := kaminoRun(t, "status", "--diff", "--node", node, "--image", lab.SealImage, "-o", "json")
		if err := json.Unmarshal([]byte(o.out), &d); err != nil || o.code != 0 {
			t.Fatalf("exit code %d, %v\n%s\n%s", o.code, err, o.out, o.log)
		}
		return d
	}
	if d := diff(before.Name); len(d.Differs) > 0 || d.Same == 0 || d.Version != version || len(d.Missing) > 0 {
		t.Errorf("before any patch %+v", d)
	}
	patched := strings.NewReplacer("libc6 2.36-9 ", "libc6 2.36-10 ", "openssl 3.0.15 ", "openssl 3.0.17 ", "tzdata 2025a ", "tzdata 2026a ")
	if err := shared.Cloud.WriteDisk(p.instance(1), func(files map[string]string) {
		files["/var/lib/dpkg/packages"] = patched.Replace(files["/var/lib/dpkg/packages"])
	}); err != nil {
		t.Fatal(err)
	}
	want := []engine.PackageDrift{{Name: "libc6", Arch: "amd64", Next: "2.36-9", Node: "2.36-10"},
		{Name: "openssl", Arch: "amd64", Next: "3.0.15", Node: "3.0.17"}, {Name: "tzdata", Arch: "all", Next: "2025a", Node: "2026a"}}
	if d := diff(before.Name); !slices.Equal(d.Differs, want) || d.Same != 2 {
		t.Errorf("after three packages were patched %+v", d)
	}
	p.expectSame(before, p.get(before.Name))
	pods, err := shared.Client.CoreV1().Pods(kamino.SystemNamespace).List(t.Context(), metav1.ListOptions{FieldSelector: "spec.nodeName=" + before.Name})
	if err != nil || len(pods.Items) > 0 {
		t.Errorf("pods are left: %v, %v", pods.Items, err)
	}
	o := kaminoRun(t, "status", "--pool", p.name, "-o", "json")
	var pools []poolstate.PoolStatus
	if err := json.Unmarshal([]byte(o.out), &pools); err != nil || len(pools) != 1 || pools[0].Behind == nil || pools[0].Behind.Missing == nil || len(pools[0].Behind.Missing) > 0 {
		t.Errorf("status: %v\n%s", err, o.out)
	}
	o = kaminoRun(t, "status", "--diff", "--node", before.Name, "--image", lab.SealImage)
	if o.code != 0 || !strings.Contains(o.out, "2 the same, 3 differ") || !strings.Contains(o.out, "2.36-10") {
		t.Errorf("exit code %d\n%s\n%s", o.code, o.out, o.log)
	}
}
