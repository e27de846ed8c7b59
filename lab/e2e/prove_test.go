package e2e

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

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
	labels, only := map[string]string{"app": p.name}, map[string]string{"agentpool": p.name}
	meta, selector := metav1.ObjectMeta{Name: p.name, Labels: labels}, &metav1.LabelSelector{MatchLabels: labels}
	template := corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{NodeSelector: only,
		Containers: []corev1.Container{{Name: "main", Image: "registry.invalid/main:1"}}}}
	apps := shared.Client.AppsV1()
	_, err := apps.DaemonSets(metav1.NamespaceDefault).Create(t.Context(), &appsv1.DaemonSet{ObjectMeta: meta, Spec: appsv1.DaemonSetSpec{Selector: selector, Template: template}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	labels = map[string]string{"app": p.name + "-ordinary"}
	template.Labels, selector = labels, &metav1.LabelSelector{MatchLabels: labels}
	template.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{
		{LabelSelector: selector, TopologyKey: corev1.LabelHostname}}}} // one a node: the others wait
	_, err = apps.Deployments(metav1.NamespaceDefault).Create(t.Context(), &appsv1.Deployment{ObjectMeta: meta, Spec: appsv1.DeploymentSpec{Replicas: new(int32(6)), Selector: selector, Template: template}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		_ = apps.DaemonSets(metav1.NamespaceDefault).Delete(ctx, p.name, metav1.DeleteOptions{})
		_ = apps.Deployments(metav1.NamespaceDefault).Delete(ctx, p.name, metav1.DeleteOptions{})
	})
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
		shared.Nodes.Behave(func(in emulator.Instance) nodes.Behaviour {
			if in.Tags[kamino.TagCanary] == "" || in.Tags[kamino.TagPool] != p.name {
				return nodes.Behaviour{}
			}
			return nodes.Behaviour{Jobs: jobs}
		})
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

// probeOf is an operator's Job in a namespace.
func probeOf(namespace string) string {
	return `apiVersion: batch/v1
kind: Job
metadata: {name: probe, namespace: ` + namespace + `}
spec: {backoffLimit: 0, template: {spec: {restartPolicy: Never, containers: [{name: main, image: "registry.invalid/probe:1"}]}}}
`
}
