package chart

import (
	"bytes"
	"context"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"helm.sh/helm/v3/pkg/action"
	"helm.sh/helm/v3/pkg/chart/loader"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/cli-runtime/pkg/genericclioptions"

	"kamino.dev/kamino"
	"kamino.dev/kamino/azure/emulator"
	"kamino.dev/kamino/lab/labtest"
)

// helmAction is Helm as its command configures it, with releases kept in the cluster.
func helmAction(t *testing.T) *action.Configuration {
	t.Helper()
	flags := genericclioptions.NewConfigFlags(false)
	flags.KubeConfig = &shared.Kubeconfig
	space := namespace
	flags.Namespace = &space
	config := &action.Configuration{}
	if err := config.Init(flags, namespace, "secret", func(string, ...any) {}); err != nil {
		t.Fatal(err)
	}
	return config
}

// installed is a release that Helm installed. Its pods fit on no node: the test is their kubelet,
// and runs what is in them as processes.
func installed(t *testing.T, sets ...string) *release {
	t.Helper()
	n := int(taken.Add(1)) - 1
	if n >= pools {
		t.Fatal("there are too few pools for all tests")
	}
	r := &release{name: "helm-" + strings.ToLower(t.Name()[len("Test"):]), pool: poolName(n), node: poolName(n) + "000000"}
	r.helm(t, false, sets...)
	return r
}

// helm installs or upgrades the release.
func (r *release) helm(t *testing.T, upgrade bool, sets ...string) {
	t.Helper()
	c, err := loader.Load(chartDir)
	if err != nil {
		t.Fatal(err)
	}
	all := values(t, append(slices.Clone(sets), "kamino.targetNode="+r.node, "kamino.drain.gracePeriod=1", "kamino.nodeSelector.nowhere=x")...)
	config := helmAction(t)
	if upgrade {
		_, err = action.NewUpgrade(config).RunWithContext(t.Context(), r.name, c, all)
	} else {
		install := action.NewInstall(config)
		install.ReleaseName, install.Namespace = r.name, namespace
		_, err = install.RunWithContext(t.Context(), c, all)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// pod waits for the pod of a job of the release and keeps its object until its process has ended.
func (r *release) pod(t *testing.T, component string) *corev1.Pod {
	t.Helper()
	var found *corev1.Pod
	labtest.Await(t, time.Minute, "there is a pod of component "+component, func() string {
		list, err := shared.Client.CoreV1().Pods(namespace).List(t.Context(), metav1.ListOptions{
			LabelSelector: "app.kubernetes.io/component=" + component + ",app.kubernetes.io/instance=" + r.name})
		if err != nil {
			return err.Error()
		}
		if len(list.Items) == 0 {
			return "none"
		}
		found = &list.Items[0]
		return ""
	})
	r.patchPod(t, found.Name, `{"metadata":{"finalizers":["batch.kubernetes.io/job-tracking","lab/kubelet"]}}`)
	return found
}

func (r *release) patchPod(t *testing.T, name, patch string, subresources ...string) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	_, err := shared.Client.CoreV1().Pods(namespace).Patch(ctx, name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}, subresources...)
	if err != nil && !apierrors.IsNotFound(err) {
		t.Error(err)
	}
}

// process is a pod's container.
type process struct {
	*exec.Cmd
	mu  sync.Mutex
	log bytes.Buffer
}

func (p *process) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.log.Write(b)
}

func (p *process) says() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.log.String()
}

func (r *release) start(t *testing.T, pod *corev1.Pod, more ...string) *process {
	t.Helper()
	r.job = pod.Spec
	p := &process{Cmd: r.command(t, more...)}
	p.Stdout, p.Stderr = p, p
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	return p
}

// "helm uninstall" while the donor is off: it ends the job, which gives the donor back with the
// rights that it still has, and only then takes those away.
func TestUninstall(t *testing.T) {
	t.Parallel()
	r := installed(t)
	// The donor stays off until somebody wants it back.
	shared.Cloud.AddFault(emulator.Fault{Kind: emulator.SlowOperation, Method: "PUT", Path: "**/snapshots/" + kamino.SnapshotName(r.pool), Times: 1, Duration: 40 * time.Second})
	pod := r.pod(t, "run")
	run := r.start(t, pod, quick...)
	labtest.Await(t, time.Minute, "the donor is off", func() string {
		if strings.Contains(run.says(), "kind=waiting") && strings.Contains(run.says(), "step=snapshot") {
			return ""
		}
		return "its log is:\n" + tail(run.says())
	})
	gone := make(chan error, 1)
	go func() {
		uninstall := action.NewUninstall(helmAction(t))
		uninstall.Timeout, uninstall.DisableHooks = 2*time.Minute, noHooks
		_, err := uninstall.Run(r.name)
		gone <- err
	}()
	var hook sync.WaitGroup
	if !noHooks {
		hook.Go(func() { r.runHook(t) })
	}
	labtest.Await(t, time.Minute, "somebody ends the pod of the run", func() string {
		now, err := shared.Client.CoreV1().Pods(namespace).Get(t.Context(), pod.Name, metav1.GetOptions{})
		if err != nil || now.DeletionTimestamp != nil {
			return ""
		}
		return "it is not being deleted"
	})
	if err := run.Process.Signal(syscall.SIGTERM); err != nil {
		t.Error(err)
	}
	if err := run.Wait(); err == nil || !strings.Contains(run.says(), "interrupted") {
		t.Errorf("the run ended with %v\n%s", err, tail(run.says()))
	}
	r.patchPod(t, pod.Name, `{"metadata":{"finalizers":null}}`)
	if err := <-gone; err != nil {
		t.Errorf("helm uninstall: %v\n%s", err, tail(run.says()))
	}
	hook.Wait()
	r.expectBack(t, run)
	r.expectNothing(t)
}

// noHooks shows what happens without the hook.
const noHooks = false

// runHook is the kubelet of the pre-delete hook's pod.
func (r *release) runHook(t *testing.T) {
	pod := r.pod(t, "restore")
	hook := (&release{name: r.name, pool: r.pool, node: r.node}).start(t, pod)
	err := hook.Wait()
	if err != nil {
		t.Errorf("hook: %v\n%s", err, tail(hook.says()))
	}
	r.patchPod(t, pod.Name, `{"status":{"phase":"Succeeded"}}`, "status")
	r.patchPod(t, pod.Name, `{"metadata":{"finalizers":["batch.kubernetes.io/job-tracking"]}}`)
}

// expectBack: the donor is on, unmarked, and its pool free.
func (r *release) expectBack(t *testing.T, run *process) {
	t.Helper()
	node, err := shared.Client.CoreV1().Nodes().Get(t.Context(), r.node, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if node.Annotations[kamino.AnnotationRun] != "" || slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == kamino.TaintBlock }) {
		t.Errorf("the donor is still marked: %v %v\n%s", node.Annotations, node.Spec.Taints, tail(run.says()))
	}
	for _, in := range shared.Cloud.Instances() {
		if strings.EqualFold(in.ComputerName, r.node) && in.PowerState != emulator.PowerRunning {
			t.Errorf("the donor is %s\n%s", in.PowerState, tail(run.says()))
		}
	}
}

// expectNothing: Helm left nothing of the release.
func (r *release) expectNothing(t *testing.T) {
	t.Helper()
	ours := metav1.ListOptions{LabelSelector: "app.kubernetes.io/instance=" + r.name}
	labtest.Await(t, time.Minute, "nothing is left of the release", func() string {
		jobs, err := shared.Client.BatchV1().Jobs(namespace).List(t.Context(), ours)
		accounts, err2 := shared.Client.CoreV1().ServiceAccounts(namespace).List(t.Context(), ours)
		bindings, err3 := shared.Client.RbacV1().ClusterRoleBindings().List(t.Context(), ours)
		if err != nil || err2 != nil || err3 != nil {
			return "it cannot be read"
		}
		var left []string
		for _, j := range jobs.Items {
			left = append(left, j.Name)
		}
		for _, a := range accounts.Items {
			left = append(left, a.Name)
		}
		for _, b := range bindings.Items {
			left = append(left, b.Name)
		}
		return strings.Join(left, ", ")
	})
}

// "helm upgrade" of a release with a Job works, and so does a second release for the same pool.
func TestUpgradeAndSecondRelease(t *testing.T) {
	t.Parallel()
	r := installed(t)
	r.helm(t, true, "kamino.imageHistory=4")
	jobs := func(name string) []batchv1.Job {
		t.Helper()
		list, err := shared.Client.BatchV1().Jobs(namespace).List(t.Context(), metav1.ListOptions{LabelSelector: "app.kubernetes.io/component=run,app.kubernetes.io/instance=" + name})
		if err != nil {
			t.Fatal(err)
		}
		return slices.DeleteFunc(list.Items, func(j batchv1.Job) bool { return j.DeletionTimestamp != nil })
	}
	if got := jobs(r.name); len(got) != 1 || !strings.HasSuffix(got[0].Name, "-2") {
		t.Errorf("after an upgrade: %d jobs, %v", len(got), got)
	}
	second := &release{name: r.name + "-2nd", pool: r.pool, node: r.node}
	second.helm(t, false)
	if got := jobs(second.name); len(got) != 1 {
		t.Errorf("of the second release: %d jobs", len(got))
	}
}
