package e2e

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"kamino.dev/kamino"
	"kamino.dev/kamino/azure/emulator"
	"kamino.dev/kamino/lab/nodes"
)

// TestFirstRoleAlone: without the rights of a canary a run is refused before it changes anything, and
// says which role to grant. With --prove none the version is promoted unproved.
func TestFirstRoleAlone(t *testing.T) {
	t.Parallel()
	p := newPool(t, 2)
	first := call{env: map[string]string{"AZURE_CLIENT_ID": firstRoleID}}
	model := p.model()
	o := first.run(t, updateArgs(p.node(0))...)
	for _, want := range []string{"virtualMachineScaleSets/delete", "azure-role-canary.json", "--prove none"} {
		if o.code != 3 || !strings.Contains(o.log, want) || p.model() != model {
			t.Fatalf("exit code %d, want 3 and %q\n%s", o.code, want, o.log)
		}
	}
	r := first.run(t, updateArgs(p.node(0), "--prove", "none")...).mustSucceed(t)
	if steps := stepsOf(r); !r.Changed || slices.Contains(steps, kamino.StepLaunch) {
		t.Errorf("unproved: changed %t by %v", r.Changed, steps)
	}
}

// stepsOf are the steps that a run went through.
func stepsOf(r report) (names []string) {
	for _, s := range r.Steps {
		if !s.Skipped {
			names = append(names, s.Name)
		}
	}
	return names
}

// TestProvedByDefault: a user who sets nothing gets a version that a canary has proved.
func TestProvedByDefault(t *testing.T) {
	t.Parallel()
	p := newPool(t, 2)
	r := kaminoRun(t, updateArgs(p.node(0))...).mustSucceed(t)
	if steps := stepsOf(r); !r.Changed || !slices.Contains(steps, kamino.StepExamine) || !slices.Contains(steps, kamino.StepRetire) {
		t.Errorf("changed %t by %v", r.Changed, steps)
	}
	for _, in := range shared.Cloud.Instances() {
		if kamino.CanaryName(kamino.PoolID(strings.ToLower(p.id)), r.Run) == in.Pool {
			t.Errorf("canary %s is left", in.Name)
		}
	}
}

// TestCanaryTakesNoPods: of the pods that could run on a canary's node those of DaemonSets do, and
// no others, however many wait for a node of the pool.
func TestCanaryTakesNoPods(t *testing.T) {
	t.Parallel()
	p := newPool(t, 2)
	p.daemonSet()
	labels := map[string]string{"app": p.name + "-ordinary"}
	deployments := shared.Client.AppsV1().Deployments(metav1.NamespaceDefault)
	_, err := deployments.Create(t.Context(), &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: p.name}, Spec: appsv1.DeploymentSpec{Replicas: new(int32(6)), Selector: &metav1.LabelSelector{MatchLabels: labels},
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{NodeSelector: map[string]string{"agentpool": p.name},
			Affinity: &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{
				{LabelSelector: &metav1.LabelSelector{MatchLabels: labels}, TopologyKey: corev1.LabelHostname}}}}, // one a node: the others wait
			Containers: []corev1.Container{{Name: "main", Image: "registry.invalid/main:1"}}}}}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = deployments.Delete(cleanupContext(t), p.name, metav1.DeleteOptions{}) })
	pods, err := shared.Client.CoreV1().Pods(metav1.NamespaceDefault).Watch(t.Context(), metav1.ListOptions{LabelSelector: "app in (" + p.name + ", " + p.name + "-ordinary)"})
	if err != nil {
		t.Fatal(err)
	}
	landed := make(chan map[string]bool)
	go func() {
		owners := map[string]bool{}
		for e := range pods.ResultChan() {
			if pod, ok := e.Object.(*corev1.Pod); ok && strings.HasPrefix(pod.Spec.NodeName, "kamino-") {
				owners[metav1.GetControllerOf(pod).Kind] = true
			}
		}
		landed <- owners
	}()
	r := kaminoRun(t, updateArgs(p.node(0))...).mustSucceed(t)
	pods.Stop()
	if owners := <-landed; !r.Changed || !owners["DaemonSet"] || owners["ReplicaSet"] {
		t.Errorf("changed %t; on the canary's node were pods of %v", r.Changed, owners)
	}
}

// TestProbeEnds: a probe is started once, and its end is seen soon after it: one that fails
// convicts the version, one that succeeds lets the run go on.
func TestProbeEnds(t *testing.T) {
	t.Parallel()
	probe := filepath.Join(t.TempDir(), "probe.yaml")
	if err := os.WriteFile(probe, []byte(probeOf("default")), 0o600); err != nil {
		t.Fatal(err)
	}
	p := newPool(t, 2)
	for i, jobs := range []string{"", nodes.Fails} {
		p.canaries(nodes.Behaviour{Jobs: jobs})
		model := p.model()
		o := kaminoRun(t, updateArgs(p.node(i), "--again", "--probe", probe)...)
		if convicted := strings.Contains(o.report(t).Error, "failed its proof: probe: it failed"); convicted != (jobs == nodes.Fails) || (p.model() == model) != convicted {
			t.Errorf("jobs %q: exit code %d, convicted: %t, model before %s, after %s\n%s", jobs, o.code, convicted, model, p.model(), o.log)
		}
		if n := strings.Count(o.log, "start the operator's probe"); n != 1 {
			t.Errorf("jobs %q: the probe was started %d times\n%s", jobs, n, o.log)
		}
	}
}

// canaries lets the canaries of a pool behave so from now on.
func (p *pool) canaries(b nodes.Behaviour) { behaviours.Store(p.name, b) }

var behaviours sync.Map // how canaries behave, by its name

// canaryBehaviour is how a machine of the shared lab behaves.
func canaryBehaviour(in emulator.Instance) nodes.Behaviour {
	if in.Tags[kamino.TagCanary] == "" {
		return nodes.Behaviour{}
	}
	b, _ := behaviours.Load(in.Tags[kamino.TagPool])
	behaviour, _ := b.(nodes.Behaviour)
	return behaviour
}

// TestProofs: what is wrong with a canary's machine is found from its console to its pods, and by
// the check that is meant for it. Which checks there are, and that each is needed, package sim's
// TestKinds shows.
func TestProofs(t *testing.T) {
	const failed, unclear = kamino.ProofFailed, kamino.ProofInconclusive
	for _, tt := range []struct {
		name   string
		behave nodes.Behaviour
		want   kamino.Outcome
		reason string
	}{
		{"panic", nodes.Behaviour{NoKubelet: true, Console: "[    1.2] Kernel panic - not syncing: VFS: Unable to mount root fs\n"}, failed, "ready: no node has registered within 1m0s of the machine's start; its console ends with: [    1.2] Kernel panic"},
		{"twin", nodes.Behaviour{MachineID: "TWIN"}, failed, "identity: "},
		{"bare", nodes.Behaviour{Bare: true}, failed, "apart: "},
		{"clock", nodes.Behaviour{Clock: time.Hour}, failed, "clock: it is 1h0m"},
		{"unit", nodes.Behaviour{Units: []string{"systemd-networkd-wait-online.service"}}, failed, "units: failed: systemd-networkd-wait-online.service"},
		{"disk", nodes.Behaviour{Pressure: corev1.NodeDiskPressure}, failed, "pressure: condition DiskPressure is True"},
		{"crash", nodes.Behaviour{Daemons: "CrashLoopBackOff"}, failed, "daemonsets: "},
		{"registry", nodes.Behaviour{Daemons: "ImagePullBackOff"}, unclear, "daemonsets: "},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			p := newPool(t, 2)
			if tt.behave.MachineID != "" {
				tt.behave.MachineID = p.get(p.node(1)).Status.NodeInfo.MachineID
			}
			if tt.behave.Daemons != "" {
				p.daemonSet()
			}
			p.canaries(tt.behave)
			model := p.model()
			o := kaminoRun(t, updateArgs(p.node(0), "--boot-budget", "1m")...)
			code := map[kamino.Outcome]int{failed: 4, unclear: 5}[tt.want]
			if why := o.report(t).Error; o.code != code || !strings.Contains(why, tt.reason) || p.model() != model {
				t.Errorf("exit code %d, want %d; %q, want %q; model before %s, after %s", o.code, code, why, tt.reason, model, p.model())
			}
		})
	}
}

// daemonSet makes one whose pods run on the nodes of the pool alone.
func (p *pool) daemonSet() {
	p.Helper()
	labels := map[string]string{"app": p.name}
	sets := p.lab.Client.AppsV1().DaemonSets(metav1.NamespaceDefault)
	_, err := sets.Create(p.Context(), &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Name: p.name, Labels: labels}, Spec: appsv1.DaemonSetSpec{Selector: &metav1.LabelSelector{MatchLabels: labels},
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{NodeSelector: map[string]string{"agentpool": p.name},
			Containers: []corev1.Container{{Name: "main", Image: "registry.invalid/main:1"}}}}}}, metav1.CreateOptions{})
	if err != nil {
		p.Fatal(err)
	}
	p.Cleanup(func() { _ = sets.Delete(cleanupContext(p.T), p.name, metav1.DeleteOptions{}) })
}

// probeOf is an operator's Job in a namespace.
func probeOf(namespace string) string {
	return `apiVersion: batch/v1
kind: Job
metadata: {name: probe, namespace: ` + namespace + `}
spec: {backoffLimit: 0, template: {spec: {restartPolicy: Never, containers: [{name: main, image: "registry.invalid/probe:1"}]}}}
`
}
